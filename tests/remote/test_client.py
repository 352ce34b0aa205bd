"""Objects of a real S3 server are read, listed, written and deleted as they are; what cannot be done is
one clear sentence."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from servers.seaweedfs import SeaweedFS

from fastload.errors import ArgumentError, ClosedError, RemoteError, RemoteMissingError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects
from fastload.remote.obstore_process import own_obstore

Open = Callable[..., Objects]


@pytest.fixture
def body() -> bytes:
    return os.urandom(300_000)


def test_an_object_is_read_as_it_was_written(open_s3: Open, body: bytes) -> None:
    """Whole, in ranges, blocking and awaited; its size and ETag are told; empty ranges make no request."""
    objects = open_s3()
    objects.put("a/b.bin", body)
    assert objects.get("a/b.bin", len(body)) == body
    assert bytes(objects.get_range("a/b.bin", 7, 100_007)) == body[7:100_007]
    assert bytes(objects.get_range("nothing here", 5, 5)) == b""
    info = objects.head("a/b.bin")
    assert (info.name, info.size) == ("a/b.bin", len(body))
    assert info.etag

    async def ranges() -> list[bytes]:
        starts = range(0, len(body), 10_000)
        return [
            bytes(part)
            for part in await asyncio.gather(*(objects.fetch("a/b.bin", at, at + 10_000) for at in starts))
        ]

    assert b"".join(asyncio.run(ranges())) == body


def test_names_below_the_url_are_listed_relative_to_it(open_s3: Open, s3_url: str) -> None:
    """More than a page of them; neighbours whose names begin alike are not below."""
    objects = open_s3()
    names = [f"part/{k:05d}" for k in range(1100)]

    async def write() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, objects.put, name, b"x") for name in names))

    asyncio.run(write())
    open_s3(s3_url + "-neighbour").put("other", b"y")
    assert sorted(info.name for info in objects.list()) == names
    assert all(info.size == 1 for info in objects.list())
    assert open_s3(s3_url + "/empty").list() == []


def test_a_file_is_uploaded_in_parts(open_s3: Open, tmp_path: Path) -> None:
    """Files of zero bytes, of one part and of several; `sent` is told every byte."""
    objects = open_s3()
    for size in (0, 1000, (20 << 20) + 17):
        file = tmp_path / "file"
        file.write_bytes(os.urandom(size))
        parts: list[int] = []
        objects.put_file("up", file, parts.append)
        assert sum(parts) == size
        assert objects.get("up", size) == file.read_bytes()


def test_an_interrupted_upload_leaves_no_object(open_s3: Open, tmp_path: Path) -> None:
    """What `sent` raises ends the upload; the object is not there, and the upload can be made again."""
    objects = open_s3()
    file = tmp_path / "file"
    file.write_bytes(os.urandom(40 << 20))

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        objects.put_file("up", file, stop)
    assert objects.list() == []
    with pytest.raises(RemoteMissingError):
        objects.head("up")
    objects.put_file("up", file)
    assert objects.head("up").size == 40 << 20


def test_deleting_what_is_not_there_is_no_error(open_s3: Open) -> None:
    objects = open_s3()
    objects.put("a", b"x")
    objects.delete("a")
    objects.delete("a")
    assert objects.list() == []


def test_a_missing_object_or_bucket_is_named(open_s3: Open, s3_url: str) -> None:
    """RemoteMissingError at once, with the URL and one try; it survives pickling."""
    for url in (s3_url, "s3://no-such-bucket/x"):
        objects = open_s3(url)

        async def fetch(objects: Objects = objects) -> object:
            return await objects.fetch("none", 0, 10)

        calls: list[Callable[[], object]] = [
            partial(objects.get, "none", 10),
            partial(objects.get_range, "none", 0, 10),
            partial(objects.head, "none"),
            lambda fetch=fetch: asyncio.run(fetch()),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(RemoteMissingError, match=f"{url}/none") as caught:
                call()
            assert caught.value.tries == 1
            copy = pickle.loads(pickle.dumps(caught.value))
            assert (type(copy), str(copy), copy.url, copy.tries) == (
                RemoteMissingError,
                str(caught.value),
                f"{url}/none",
                1,
            )


def test_a_range_beyond_the_object_is_an_error(open_s3: Open) -> None:
    """Wholly or partly beyond: never a short result."""
    objects = open_s3(timeout=1.0)
    objects.put("a", b"0123456789")
    for start, stop in ((5, 11), (10, 12), (1000, 1001)):
        with pytest.raises(RemoteError, match=f"reading bytes {start}-{stop - 1} of .*the object"):
            objects.get_range("a", start, stop)
    with pytest.raises(RemoteError, match="has 10 bytes, and at most 9 were expected"):
        objects.get("a", 9)
    with pytest.raises(ArgumentError, match="must not end before it begins"):
        objects.get_range("a", 3, 2)


def test_access_denied_says_what_to_check_and_no_secret(
    open_s3: Open, capfd: pytest.CaptureFixture[str]
) -> None:
    """At once, after one more try with the store made anew; neither the message nor what was printed holds
    a key."""
    for changed in ({"secret_access_key": "TOPSECRET"}, {"access_key_id": "TOPSECRET"}):
        with pytest.raises(
            RemoteError, match=r"2 tries .*access denied: .*403.*check the credentials"
        ) as caught:
            open_s3(**changed).list()
        assert caught.value.__context__ is None
        assert "TOPSECRET" not in repr(caught.value) + str(caught.value)
    assert "TOPSECRET" not in "".join(capfd.readouterr())


def test_renewed_credentials_are_taken(seaweedfs: SeaweedFS, open_s3: Open, s3_url: str) -> None:
    """A credential provider is asked anew after access was denied, and the request succeeds."""
    open_s3().put("a", b"hello")
    given: list[str] = []

    def provider() -> dict[str, object]:
        given.append("wrong" if not given else "right")
        secret = "WRONG" if len(given) == 1 else seaweedfs.secret
        return {"access_key_id": seaweedfs.key, "secret_access_key": secret, "expires_at": None}

    options = {"endpoint": seaweedfs.endpoint, "region": "us-east-1", "credential_provider": provider}
    objects = open_objects(s3_url, options)
    assert objects.get("a", 10) == b"hello"
    assert given == ["wrong", "right"]
    objects.close()


def test_credentials_and_endpoint_are_found_in_the_environment(
    seaweedfs: SeaweedFS, open_s3: Open, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An http endpoint of the environment needs no option more."""
    open_s3().put("a", b"hello")
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs.secret)
    objects = open_objects(s3_url)
    assert objects.get("a", 10) == b"hello"
    objects.close()


def test_wrong_options_are_refused_without_their_values() -> None:
    """The key is named, the value is not; nor is what is secret in the URL."""
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("s3://bucket", {"no_such_key": "TOPSECRET"}, "has no key 'no_such_key'"),
        ("s3://bucket", {"client_options": {"no_such": "TOPSECRET"}}, "has no key 'no_such'"),
        ("s3://bucket", {"client_options": "TOPSECRET"}, "must be a dict"),
        ("s3://bucket", {"retry_config": {}}, "retry_config"),
        (
            "https://user:TOPSECRET@host/x?sig=TOPSECRET",
            {"access_key_id": "TOPSECRET"},
            "only client_options",
        ),
        (
            "az://container",
            {"account_key": "TOPSECRET", "account_name": "a", "endpoint": "::"},
            "cannot be opened",
        ),
        ("file:///tmp/x", {"a": "TOPSECRET"}, "no meaning for file"),
        ("not a url", {}, "s3://bucket/path"),
    ]
    for url, options, text in wrong:
        with pytest.raises(ArgumentError, match=text) as caught:
            open_objects(url, options)
        assert "TOPSECRET" not in str(caught.value)
        assert caught.value.__context__ is None or caught.value.__suppress_context__
    for timeout in (0, -1, float("nan"), float("inf"), "1"):
        with pytest.raises(ArgumentError, match="timeout"):
            open_objects("s3://bucket", {}, timeout)  # type: ignore[arg-type]


def test_secrets_of_a_url_are_not_shown() -> None:
    """User, password and a presigned query stay out of `url`, of messages and of the error's context."""
    objects = open_objects("http://user:TOPSECRET@127.0.0.1:9/x?X-Amz-Signature=TOPSECRET", timeout=0.5)
    assert objects.url == "http://127.0.0.1:9/x"
    with pytest.raises(RemoteError, match=r"http://127\.0\.0\.1:9/x/a .*refused") as caught:
        objects.get("a", 10)
    assert "TOPSECRET" not in repr(caught.value) + repr(caught.value.__context__) + repr(
        caught.value.__cause__
    )
    objects.close()


def test_a_closed_client_says_so(open_s3: Open) -> None:
    """Every call after close(), and what is awaited during it."""
    objects = open_s3()
    objects.put("a", bytes(1 << 20))

    async def close_while_reading() -> list[object]:
        reading = [asyncio.ensure_future(objects.fetch("a", 0, 1 << 20)) for _ in range(20)]
        await asyncio.sleep(0)
        threading.Thread(target=objects.close).start()
        return await asyncio.gather(*reading, return_exceptions=True)

    for result in asyncio.run(close_while_reading()):
        assert isinstance(result, ClosedError) or len(result) == 1 << 20  # type: ignore[arg-type]
    objects.close()
    for call in (lambda: objects.get("a", 1), lambda: objects.put("a", b""), objects.list):
        with pytest.raises(ClosedError, match="is closed"):
            call()


def test_file_urls_work_without_a_server(tmp_path: Path) -> None:
    """The same calls on a folder."""
    objects = open_objects(f"file://{tmp_path}/made/here")
    objects.put("a/b", b"hello")
    assert (tmp_path / "made/here/a/b").read_bytes() == b"hello"
    assert bytes(objects.get_range("a/b", 1, 3)) == b"el"
    assert [info.name for info in objects.list()] == ["a/b"]
    with pytest.raises(RemoteMissingError):
        objects.get("none", 1)
    objects.delete("a/b")
    objects.delete("a/b")
    objects.close()


def test_failed_requests_keep_nothing_of_their_client(
    seaweedfs: SeaweedFS, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore keeps the future of a request that failed until it is called again, which may be never."""
    obstore, kept = own_obstore(), list[Any]()

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            kept.append(function(*arguments, **named))
            return kept[-1]

        return call

    for name in ("get_async", "get_range_async", "get_ranges_async", "head_async"):
        monkeypatch.setattr(obstore, name, keep(getattr(obstore, name)))
    client = _failing_in_every_way(s3_url, seaweedfs.options())
    assert [type(future.exception()) for future in kept] == [FileNotFoundError] * 5
    gc.collect()
    assert client() is None


def _failing_in_every_way(url: str, options: dict[str, str]) -> weakref.ref[Objects]:
    """A closed client, with a failed request of each kind."""
    objects = open_objects(url, options, 20.0)

    async def fetch(*ranges: tuple[int, int]) -> None:
        await asyncio.gather(*(objects.fetch("none", start, stop) for start, stop in ranges))

    calls: list[Callable[[], object]] = [
        partial(objects.get, "none", 10),
        partial(objects.get_range, "none", 0, 10),
        partial(objects.head, "none"),
        lambda: asyncio.run(fetch((0, 10), (20, 30))),
        lambda: asyncio.run(fetch((0, 10 << 20))),
    ]
    for call in calls:
        with pytest.raises(RemoteMissingError):
            call()
    objects.close()
    return weakref.ref(objects)
