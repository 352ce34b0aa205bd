"""What a bucket says of a dataset is hostile: manifests and sidecars that do not hold are refused with one
sentence before their use."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reading
from servers.seaweedfs import SeaweedFS

from fastload import PackedDataset, push
from fastload._native import core
from fastload.errors import DatasetError, RemoteError, SampleError
from fastload.remote.client import open_objects
from fastload.store import Manifest, checked
from fastload.store.sidecar import PLACES, open_sidecars

Open = Callable[[str], PackedDataset]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset in several shards."""
    return reading.write_photos(tmp_path_factory.mktemp("photos") / "photos.fl", 60, 300_000)


@pytest.fixture
def own(seaweedfs: SeaweedFS, photos: Path, s3_url: str) -> str:
    """A URL with the dataset, which a test may spoil."""
    push(photos, s3_url, storage_options=seaweedfs.options())
    return s3_url


@pytest.fixture
def opened(seaweedfs: SeaweedFS, tmp_path: Path) -> Open:
    return lambda url: PackedDataset(
        url, cache=tmp_path / "cache", storage_options=seaweedfs.options(), timeout=10
    )


def hostile(server: SeaweedFS, url: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the manifest at a URL."""
    objects = open_objects(url, server.options())
    found = checked.unseal(json.loads(objects.get("manifest.json", 1 << 24)), url)
    change(found)
    objects.put("manifest.json", checked.seal(found))
    objects.close()


def test_sidecars_that_name_places_elsewhere_are_refused(
    seaweedfs: SeaweedFS, opened: Open, photos: Path, own: str
) -> None:
    """Tables with the right checksums, whose places lie outside of the shards: one sentence for their
    samples, and the others are read."""
    manifest = Manifest.load(photos)
    objects = open_objects(own, seaweedfs.options())
    (segment,) = Manifest.from_bytes(objects.get("manifest.json", 1 << 24), own, "manifest.json").sidecars
    data = bytearray(objects.get_range(segment.file, segment.offset, segment.offset + segment.bytes))
    section = open_sidecars(photos, manifest.sidecars).get(manifest.shards[1])
    assert section is not None
    assert segment.directory is not None
    places = section.rows().tobytes()
    at, crc_at = data.find(places), data.find(section.part(PLACES).crcs.tobytes())
    data[at + 4 : at + 8] = (7).to_bytes(4, "little")  # 28 GB further
    data[crc_at : crc_at + 4] = core.crc32c(bytes(data[at : at + len(places)])).to_bytes(4, "little")
    objects.put(segment.file, bytes(data))
    objects.close()

    def sign(found: dict[str, Any]) -> None:
        (known,) = found["sidecars"]
        known["crc32c"] = core.crc32c(bytes(data))
        known["directory"]["crc32c"] = core.crc32c(bytes(data[-known["directory"]["bytes"] :]))

    hostile(seaweedfs, own, sign)
    dataset, first = opened(own), manifest.shards[1].first
    assert dataset[first - 1]
    with pytest.raises(SampleError, match=f"sample {first} .*names places outside of its shards") as caught:
        dataset[first]
    assert "\n" not in str(caught.value)
    dataset.close()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[" * 100_000, b'{"format": "fastload"}', b"\xff\xfe", b"<html>no</html>"]
)
def test_manifests_that_are_none_are_refused(
    seaweedfs: SeaweedFS, opened: Open, s3_url: str, body: bytes
) -> None:
    objects = open_objects(s3_url, seaweedfs.options())
    objects.put("manifest.json", body)
    objects.close()
    with pytest.raises(DatasetError) as caught:
        opened(s3_url)
    assert s3_url in str(caught.value)
    assert len(str(caught.value)) < 500


def huge(found: dict[str, Any]) -> None:
    found["shards"][0]["bytes"] = 1 << 61


def shard_elsewhere(found: dict[str, Any]) -> None:
    found["version"] = 2  # in which manifests may name folders
    found["shards"][0]["folder"] = "../other"


def sidecar_elsewhere(found: dict[str, Any]) -> None:
    found["version"] = 2
    found["sidecars"][0]["folder"] = "../other"


ELSEWHERE = r"s3://.* names files in other folders.*fastload push"


@pytest.mark.parametrize(
    ("change", "says"), [(huge, "s3://"), (shard_elsewhere, ELSEWHERE), (sidecar_elsewhere, ELSEWHERE)]
)
def test_impossible_manifests_are_refused(
    seaweedfs: SeaweedFS, opened: Open, own: str, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    """A manifest that says exabytes, or names files elsewhere: nothing of that size is made, and nothing
    outside of the URL is read."""
    hostile(seaweedfs, own, change)
    with pytest.raises(DatasetError, match=says):
        opened(own)


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """A second host: keeps the heads of requests, and answers all of them with the same bytes."""

    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append(str(self.headers))
        body = b"0123456789"
        self.send_response(206)
        for key, value in (
            ("Content-Length", "10"),
            ("Content-Range", "bytes 0-9/10"),
            ("ETag", '"e"'),
            ("Last-Modified", self.date_time_string()),
        ):
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("kind", [301, 302, 307, 308])
def test_keys_and_passwords_do_not_follow_a_redirect(kind: int) -> None:
    """A server that sends the reader to another host: that host sees neither the password of a URL nor a
    signature by S3's keys."""

    class Redirects(_Elsewhere):
        def do_GET(self) -> None:
            firsts.append(str(self.headers))
            self.send_response(kind)
            self.send_header("Location", f"http://localhost:{second.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    firsts: list[str] = []
    _Elsewhere.seen.clear()
    servers = [
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Redirects, _Elsewhere)
    ]
    first, second = servers
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = {
        "access_key_id": "THEKEY",
        "secret_access_key": "TOPSECRET",
        "region": "x",
        "endpoint": f"http://127.0.0.1:{first.server_port}",
    }
    try:
        for url, options in (
            (f"http://user:TOPSECRET@127.0.0.1:{first.server_port}/d", {}),
            ("s3://bucket/d", keys),
        ):
            objects = open_objects(url, options, 5)
            assert bytes(objects.get_range("a", 0, 10)) == b"0123456789"
            objects.close()
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    assert all("authorization" in head.lower() for head in firsts)
    assert len(_Elsewhere.seen) == len(firsts) == 2
    for head in _Elsewhere.seen:
        assert not [
            word
            for word in ("authorization", "topsecret", "thekey", "dXNlcjp")
            if word.lower() in head.lower()
        ]


class _Repeats(_Elsewhere):
    """An S3 server whose list of objects goes on for ever, with the same page."""

    def do_GET(self) -> None:
        names = (
            f"<Contents><Key>d/{i}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for i in range(1000)
        )
        body = (
            '<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated>'
            "<NextContinuationToken>more</NextContinuationToken>"
            f"{''.join(names)}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.timeout(60)
def test_a_list_without_an_end_is_refused() -> None:
    """One error, and no more memory than a page takes."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Repeats)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    objects = open_objects(
        "s3://bucket/d",
        {"endpoint": endpoint, "access_key_id": "k", "secret_access_key": "s", "region": "x"},
        5,
    )
    try:
        with pytest.raises(RemoteError, match="names the same objects again and again"):
            objects.list()
    finally:
        objects.close()
        server.shutdown()
        server.server_close()
