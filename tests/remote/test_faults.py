"""What goes wrong between the client and a real server ends in the right bytes or in one clear
RemoteError; nothing hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.process import wait_for
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

from fastload.errors import RemoteError, RemoteMissingError
from fastload.remote.objects import Objects

Open = Callable[..., Objects]
Read = Callable[[Objects, int, int], bytes]
BODY = os.urandom(3 << 20)


@pytest.fixture
def objects(open_s3: Open, proxy: Proxy) -> Objects:
    """The object `a` with BODY in it, by way of the proxy."""
    open_s3().put("a", BODY)
    return open_s3(endpoint=proxy.endpoint)


def _blocking(objects: Objects, start: int, stop: int) -> bytes:
    return bytes(objects.get_range("a", start, stop))


def _awaited(objects: Objects, start: int, stop: int) -> bytes:
    async def fetch() -> bytes:
        return bytes(await objects.fetch("a", start, stop))

    return asyncio.run(fetch())


@pytest.fixture(params=[_blocking, _awaited], ids=["blocking", "awaited"])
def read(request: pytest.FixtureRequest) -> Read:
    chosen: Read = request.param
    return chosen


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("status", {"status": 503, "retry_after": "1"}),
        ("status", {"status": 429, "retry_after": "1"}),
        ("status", {"status": 500}),
        ("status", {"status": 408}),
        ("cut", {}),
        ("reset", {}),
    ],
    ids=lambda value: str(value),
)
def test_a_spoiled_request_is_tried_again(
    proxy: Proxy, objects: Objects, read: Read, kind: str, more: dict[str, object]
) -> None:
    """Two bad answers, then the right bytes; the server is asked exactly three times."""
    proxy.counts(reset=True)
    proxy.spoil(kind, 2, **more)
    assert read(objects, 100, 2_000_000) == BODY[100:2_000_000]
    counts = proxy.counts()
    assert (counts["requests"], counts["faults"]) == (3, 2)


def test_the_pauses_after_503_leave_the_server_time(proxy: Proxy, objects: Objects) -> None:
    """At least half a second, then a second: what Retry-After asks for is not told by obstore."""
    proxy.spoil("status", 2, retry_after="1")
    began = time.monotonic()
    _blocking(objects, 0, 10)
    assert time.monotonic() - began >= 1.5


def test_flipped_bytes_are_delivered_as_they_came(proxy: Proxy, objects: Objects, read: Read) -> None:
    """The length is right, so the client cannot know; records are checked above it. The next read is
    right."""
    proxy.spoil("flip")
    spoiled = read(objects, 0, 100_000)
    assert len(spoiled) == 100_000
    assert spoiled != BODY[:100_000]
    assert read(objects, 0, 100_000) == BODY[:100_000]


def test_a_silent_request_is_given_up_and_made_again(
    open_s3: Open, proxy: Proxy, objects: Objects, read: Read
) -> None:
    """Long before the silence ends: after a quarter of the timeout."""
    hasty = open_s3(endpoint=proxy.endpoint, timeout=8.0)
    proxy.spoil("silence", seconds=60.0)
    began = time.monotonic()
    assert read(hasty, 0, 100_000) == BODY[:100_000]
    assert 1.9 <= time.monotonic() - began < 8


def test_a_server_that_stays_silent_is_an_error_within_the_timeout(
    open_s3: Open, proxy: Proxy, objects: Objects, read: Read
) -> None:
    """RemoteError says what, where, how often; it takes no longer than the timeout and one try."""
    hasty = open_s3(endpoint=proxy.endpoint, timeout=3.0)
    proxy.silence(60)
    began = time.monotonic()
    with pytest.raises(
        RemoteError,
        match=r"reading bytes 5-99 of s3://.*/a failed after [2-9] tries in .* silent for too long",
    ) as caught:
        read(hasty, 5, 100)
    assert caught.value.tries >= 2
    assert time.monotonic() - began < 6


@pytest.mark.parametrize("how", ["get_range", "fetch"])
def test_a_process_that_stood_still_asks_again(
    seaweedfs: SeaweedFS, proxy: Proxy, objects: Objects, how: str
) -> None:
    """Stopped in the middle of a request for longer than the timeout, as schedulers do: the server gets
    its time once more."""
    proxy.spoil("silence", seconds=60.0)
    script = f"""
        import asyncio, sys
        from fastload.remote.client import open_objects
        objects = open_objects({objects.url!r}, {seaweedfs.options(endpoint=proxy.endpoint)!r}, timeout=2.0)
        found = objects.get_range("a", 5, 99) if {how!r} == "get_range" else asyncio.run(objects.fetch("a",
            5, 99))
        sys.stdout.write(bytes(found).hex())
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: proxy.counts()["faults"] == 1, 60)
        process.send_signal(signal.SIGSTOP)
        time.sleep(5)
        process.send_signal(signal.SIGCONT)
        printed, _ = process.communicate(timeout=60)
    assert printed == BODY[5:99].hex()


def test_a_server_that_answers_503_for_ever_is_an_error(
    open_s3: Open, proxy: Proxy, objects: Objects, read: Read
) -> None:
    hasty = open_s3(endpoint=proxy.endpoint, timeout=2.0)
    proxy.spoil("status", 1000)
    with pytest.raises(RemoteError, match=r"503 \(SlowDown\); .*timeout=2") as caught:
        read(hasty, 0, 10)
    assert caught.value.tries == proxy.counts()["faults"]


def test_refused_connections_are_tried_again(proxy: Proxy, objects: Objects, read: Read) -> None:
    """Until the server listens again."""
    assert read(objects, 0, 10) == BODY[:10]
    proxy.refuse()
    threading.Timer(1.0, proxy.refuse, (False,)).start()
    assert read(objects, 0, 1000) == BODY[:1000]


@pytest.mark.long
def test_a_server_killed_and_restarted_is_waited_for(seaweedfs: SeaweedFS, open_s3: Open) -> None:
    """Many reads under way end with the right bytes."""
    objects = open_s3(timeout=60.0)
    objects.put("a", BODY)

    async def read_all() -> bool:
        loop = asyncio.get_running_loop()
        reads = [
            asyncio.ensure_future(objects.fetch("a", k * 10_000, k * 10_000 + 10_000)) for k in range(200)
        ]
        await asyncio.sleep(0.02)
        await loop.run_in_executor(None, seaweedfs.restart)
        more = await objects.fetch("a", 0, 1000)
        parts = [bytes(part) for part in await asyncio.gather(*reads)]
        return bytes(more) == BODY[:1000] and all(
            part == BODY[k * 10_000 :][:10_000] for k, part in enumerate(parts)
        )

    assert asyncio.run(read_all())


def test_an_object_deleted_between_two_reads_is_missing(open_s3: Open, objects: Objects, read: Read) -> None:
    assert read(objects, 0, 10) == BODY[:10]
    open_s3().delete("a")
    with pytest.raises(RemoteMissingError, match="not deleted"):
        read(objects, 0, 10)


def test_a_cancelled_read_ends_at_once(proxy: Proxy, objects: Objects) -> None:
    """The awaiting task's cancellation is its own, and the client goes on working."""
    proxy.spoil("silence", seconds=60.0)

    async def cancel() -> None:
        task = asyncio.ensure_future(objects.fetch("a", 0, 10))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert _awaited(objects, 0, 10) == BODY[:10]


@pytest.mark.parametrize("kind", ["status", "reset"])
def test_an_upload_goes_on_after_a_lost_part(
    proxy: Proxy, objects: Objects, tmp_path: Path, kind: str
) -> None:
    """Only the part is sent again."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(20 << 20))
    proxy.counts(reset=True)
    proxy.spoil(kind, method="PUT", part="partNumber=2")
    objects.put_file("up", file)
    counts = proxy.counts()
    assert counts["faults"] == 1
    assert counts["up"] < 30 << 20
    assert objects.get("up", 20 << 20) == file.read_bytes()


def test_an_upload_that_fails_leaves_no_object(
    seaweedfs: SeaweedFS, open_s3: Open, proxy: Proxy, objects: Objects, tmp_path: Path
) -> None:
    """RemoteError after the timeout, and neither an object nor parts of one, which a bucket's owner would
    pay for."""
    # Tests that end a program in the middle of an upload leave it open.
    before = set(seaweedfs.open_uploads("fastload"))
    file = tmp_path / "file"
    file.write_bytes(os.urandom(20 << 20))
    hasty = open_s3(endpoint=proxy.endpoint, timeout=3.0)
    proxy.spoil("status", 1000, method="PUT", part="partNumber=3", status=500)
    with pytest.raises(RemoteError, match=r"uploading s3://.*/up failed .* 500"):
        hasty.put_file("up", file)
    assert [info.name for info in objects.list()] == ["a"]
    wait_for(lambda: before.issuperset(seaweedfs.open_uploads("fastload")), 10)


def test_latency_and_bandwidth_are_those_asked_for(proxy: Proxy, objects: Objects) -> None:
    """What benchmarks build on: a request takes a round trip, a new connection one more, and bytes come no
    faster than allowed."""
    _blocking(objects, 0, 10)
    proxy.set(round_trip=0.2)
    began = time.monotonic()
    _blocking(objects, 0, 10)
    assert time.monotonic() - began >= 0.2
    proxy.set(round_trip=0.0, bandwidth=4e6)
    proxy.counts(reset=True)
    began = time.monotonic()
    assert _blocking(objects, 0, 3 << 20) == BODY
    assert time.monotonic() - began >= (len(BODY) - 300_000) / 4e6
    assert len(BODY) < proxy.counts()["down"] < len(BODY) + 2000
