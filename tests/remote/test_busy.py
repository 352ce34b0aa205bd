"""A server that answers 429 or 503 with Retry-After is waited for with few requests, however many calls
are under way."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from servers.proxy import Proxy

from fastload.errors import ClosedError, RemoteError
from fastload.remote.failures import Tries, of_status
from fastload.remote.objects import Objects
from fastload.remote.obstore import BusyServer

Open = Callable[..., Objects]
BODY = os.urandom(1 << 20)
AT_ONCE = 60
PART = len(BODY) // AT_ONCE


async def _awaited(objects: Objects) -> list[bytes]:
    return [
        bytes(part)
        for part in await asyncio.gather(
            *(objects.fetch("a", k * PART, k * PART + PART) for k in range(AT_ONCE))
        )
    ]


def _blocking(objects: Objects) -> list[bytes]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [
            bytes(part)
            for part in pool.map(lambda k: objects.get_range("a", k * PART, k * PART + PART), range(AT_ONCE))
        ]


@pytest.mark.parametrize(
    ("status", "read"),
    [(429, lambda objects: asyncio.run(_awaited(objects))), (503, _blocking)],
    ids=["429, awaited", "503, blocking"],
)
def test_a_busy_server_is_waited_for_with_few_requests(
    open_s3: Open, proxy: Proxy, read: Callable[[Objects], list[bytes]], status: int
) -> None:
    """60 calls and 5 s of Retry-After: the first try of each, then one request at a time, of all calls
    together; all get their bytes."""
    open_s3().put("a", BODY)
    objects = open_s3(endpoint=proxy.endpoint, timeout=60.0)
    proxy.counts(reset=True)
    proxy.spoil("status", 10_000, status=status, retry_after="5")
    threading.Timer(5.0, proxy.clear).start()
    assert b"".join(read(objects)) == BODY[: PART * AT_ONCE]
    refused = proxy.counts()["faults"]
    assert refused <= AT_ONCE + 5  # after 0.5, 1, 2 and 4 s, less up to half of each


def test_a_call_that_begins_while_the_server_is_busy_waits_for_its_turn(open_s3: Open, proxy: Proxy) -> None:
    """It makes no request before; where its turn does not come within the timeout it says what the server
    answered."""
    open_s3().put("a", BODY)
    objects = open_s3(endpoint=proxy.endpoint, timeout=3.0)
    proxy.spoil("status", 10_000)

    async def both() -> list[object]:
        first = asyncio.ensure_future(_awaited(objects))
        await asyncio.sleep(0.2)
        proxy.counts(reset=True)
        return await asyncio.gather(first, _awaited(objects), return_exceptions=True)

    for result in asyncio.run(both()):
        assert isinstance(result, RemoteError)
        assert "503 (SlowDown); check" in str(result)
    assert proxy.counts()["requests"] < AT_ONCE


def test_any_other_answer_lets_all_go_on() -> None:
    """And an old answer does not close it again further; a call that never comes back from its turn holds
    nobody up for good."""
    server, busy = BusyServer(), of_status(503)
    assert server.turn()[0] == 0
    began = time.monotonic()
    server.refused(busy, began, 60.0)
    wait, opened = server.turn()
    assert 0.4 < wait <= 1
    server.refused(busy, began, 60.0)
    assert server.turn()[0] <= wait
    time.sleep(wait)
    assert server.turn()[0] == 0
    assert 0.4 < server.turn()[0] <= 1
    assert not opened.done()
    server.answered()
    assert opened.done()
    assert server.turn()[0] == 0


def test_closing_ends_the_wait_for_a_turn(open_s3: Open, proxy: Proxy) -> None:
    objects = open_s3(endpoint=proxy.endpoint, timeout=60.0)
    proxy.spoil("status", 10_000)
    closing = threading.Timer(2.0, objects.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(ClosedError):
        asyncio.run(_awaited(objects))
    assert time.monotonic() - began < 20
    closing.join()


def test_pauses_leave_the_loop_its_numbers() -> None:
    """Threads that fetch beside a loop take no number from Python's generator for their pauses, which
    differ all the same."""
    before, busy = random.getstate(), of_status(503)
    pauses = {Tries("reading", "s3://x", 60.0).pause(busy) for _ in range(9)}
    BusyServer().refused(busy, 0.0, 60.0)
    assert random.getstate() == before
    assert len(pauses) > 1
    assert all(0.5 <= pause <= 1 for pause in pauses)
