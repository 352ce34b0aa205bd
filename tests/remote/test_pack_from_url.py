"""A pack of tars, Parquet, Arrow and TFRecord files in a store makes the dataset of a pack of the same files
on a disk; what cannot be read is named."""

from __future__ import annotations

import gc
import io
import pickle
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures import photo
from servers.azurite import Azurite
from servers.nginx import Nginx
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from tfrecord_maker import example, framed
from transfer_helpers import files_of
from typer.testing import CliRunner

from fastload.cli.main import app
from fastload.errors import ArgumentError, PackError, RemoteError, RemoteMissingError
from fastload.packing import attach, pack
from fastload.remote import foreign
from fastload.remote.client import open_objects
from fastload.remote.foreign import ForeignObjects, ForeignURL, Walk
from fastload.remote.objects import Objects
from fastload.sources import open_source
from fastload.sources.options import SourceOptions
from fastload.versions import append

Open = Callable[..., Objects]
TARS, EACH = 3, 5


def picture(number: int) -> bytes:
    data = io.BytesIO()
    photo(number, 90 + number, 120).save(data, "JPEG", quality=90)
    return data.getvalue()


def tar_of(numbers: range, **more: bytes) -> bytes:
    """A tar of pictures with labels and captions."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for number in numbers:
            members = {"jpg": picture(number), "cls": b"%d" % number, "txt": b"caption %d" % number} | more
            for extension, content in members.items():
                entry = tarfile.TarInfo(f"sample{number:03}.{extension}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def table_of(numbers: range) -> pa.Table:
    images = pa.array([{"bytes": picture(number), "path": None} for number in numbers])
    return pa.table({"image": images, "label": list(numbers)})


def parquet_of(numbers: range) -> bytes:
    data = io.BytesIO()
    pq.write_table(table_of(numbers), data, row_group_size=2, compression="snappy")
    return data.getvalue()


def arrow_of(numbers: range) -> bytes:
    data, table = io.BytesIO(), table_of(numbers)
    with pa.ipc.new_stream(data, table.schema) as writer:
        writer.write_table(table)
    return data.getvalue()


def tfrecord_of(numbers: range) -> bytes:
    """A tf.train.Example with an image for each number, and what else such have."""
    return framed(
        *(
            example(
                **{
                    "image/class/label": [number],
                    "image/encoded": [picture(number)],
                    "caption": [b"c%d" % number],
                }
            )
            for number in numbers
        )
    )


KINDS: dict[str, Callable[[range], bytes]] = {
    "tar": tar_of,
    "parquet": parquet_of,
    "arrow": arrow_of,
    "tfrecord": tfrecord_of,
}


def files(kind: str) -> dict[str, bytes]:
    return {
        f"train-{number:03}.{kind}": KINDS[kind](range(EACH * number, EACH * (number + 1)))
        for number in range(TARS)
    }


@pytest.fixture
def there(open_s3: Open, tmp_path: Path) -> Callable[[dict[str, bytes]], Objects]:
    """Puts objects at `s3_url`, and the same files into `tmp_path / "files"`."""

    def put(content: dict[str, bytes]) -> Objects:
        objects = open_s3()
        for name, data in content.items():
            objects.put(name, data)
            (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "files" / name).write_bytes(data)
        return objects

    return put


Put = Callable[[dict[str, bytes]], Objects]


def source_at(url: str | list[str], server: SeaweedFS) -> Any:
    return open_source(url, SourceOptions(storage_options=server.options(), timeout=5))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_dataset(kind: str, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Every byte of every file, however the objects are named."""
    there(files(kind))
    local = [str(tmp_path / "files" / name) for name in files(kind)]
    pack(local, tmp_path / "local")
    ways: list[Any] = [
        f"{s3_url}/train-{{000..002}}.{kind}",
        f"{s3_url}/train-*.{kind}",
        f"{s3_url}/train-{{000,00[12]}}.{kind}",
        f"{s3_url}/",
        [f"{s3_url}/train-000.{kind}", f"{s3_url}/train-{{001,002}}.{kind}"],
    ]
    before = threading.active_count()
    for number, url in enumerate(ways):
        summary = pack(url, tmp_path / f"out{number}", storage_options=seaweedfs.options(), timeout=20)
        assert summary.samples == TARS * EACH
        assert files_of(tmp_path / f"out{number}") == files_of(tmp_path / "local")
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before, threading.enumerate()


def test_shuffled_resumed_and_sent_to_a_store(
    tmp_path: Path, s3_url: str, there: Put, open_s3: Open, seaweedfs: SeaweedFS
) -> None:
    """From one URL to another; what had been read before a stop is not read again."""
    there(files("tar"))
    source, options = f"{s3_url}/train-*.tar", {"storage_options": seaweedfs.options()}
    how = {"shuffle": True, "seed": 3, "shard_samples": 4}
    pack(str(tmp_path / "files" / "train-*.tar"), tmp_path / "local", **how)  # type: ignore[arg-type]
    pack(source, f"{s3_url}/made", staging=tmp_path / "staging", **options, **how)  # type: ignore[arg-type]
    made = open_s3(f"{s3_url}/made")
    assert {each.name: made.get(each.name, 1 << 30) for each in made.list()} == files_of(tmp_path / "local")
    objects, last = open_s3(), files("tar")["train-002.tar"]
    objects.put("train-002.tar", last.replace(b"\xff\xd8\xff", b"no jpeg"[:3], 1))
    with pytest.raises(PackError, match=r"train-002\.tar:sample010.*go on with resume=True"):
        pack(source, tmp_path / "out", shard_samples=4, **options)  # type: ignore[arg-type]
    objects.put("train-002.tar", last)
    summary = pack(source, tmp_path / "out", shard_samples=4, resume=True, **options)  # type: ignore[arg-type]
    assert 0 < summary.packed_now < TARS * EACH
    pack(str(tmp_path / "files" / "train-*.tar"), tmp_path / "in order", shard_samples=4)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "in order")


def test_by_https(tmp_path: Path, nginx: Nginx) -> None:
    """Names with and without a password and a query, which are not shown; a web server lists nothing."""
    folder = nginx.root / "private"
    folder.mkdir(exist_ok=True)
    for name, data in files("tar").items():
        (folder / name).write_bytes(data)
        (tmp_path / name).write_bytes(data)
    pack(str(tmp_path / "train-*.tar"), tmp_path / "local")
    options = {"client_options": {"root_certificate": nginx.certificate}}
    url = f"{nginx.https.replace('://', '://user:password@')}/private"
    names = f"{url}/train-{{000..002}}.tar"
    pack(names, tmp_path / "out", storage_options=options)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "local")
    source = open_source(names, SourceOptions(storage_options=options))
    assert "password" not in f"{source.title} {source.name(0)}"
    for wrong in ("train-{000..003}.tar", "train-*.tar", ""):
        with pytest.raises((PackError, RemoteError)) as caught:
            pack(f"{url}/{wrong}", tmp_path / "none", storage_options=options, timeout=5)
        assert "password" not in str(caught.value)
        assert nginx.https.split("//")[1] in str(caught.value)


def test_by_azure(tmp_path: Path, azurite: Azurite) -> None:
    """By a pattern: its list writes ETags in another way than its answers."""
    objects = open_objects("az://fastload/packed", azurite.options(), 20.0)
    for name, data in files("tar").items():
        objects.put(name, data)
        (tmp_path / name).write_bytes(data)
    objects.close()
    pack(str(tmp_path / "train-*.tar"), tmp_path / "local")
    pack("az://fastload/packed/train-*.tar", tmp_path / "out", storage_options=azurite.options())
    assert files_of(tmp_path / "out") == files_of(tmp_path / "local")


def test_what_cannot_be_packed(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Each in one sentence that names it."""
    content = {"a.tar": tar_of(range(2)), "b.tar.gz": b"\x1f\x8b", "cut.tar": tar_of(range(2))[:3000]}
    there(content | {"x/a.jpg": picture(0), "x/b.jpg": picture(1), "packed/manifest.json": b"{}"})
    options = {"storage_options": seaweedfs.options(), "timeout": 5}
    for name, words in {
        "b.tar": "no such object",
        "b-*.tar": "no object matches",
        "b.tar.gz": "a compressed tar cannot be read at any position",
        "cut.tar": "the tar ends inside sample000.jpg",
        "y": "nothing lies below it",
        "a.mds": "nothing lies below it",
        "packed": "is a packed dataset: open it with PackedDataset",
    }.items():
        with pytest.raises(PackError, match=words) as caught:
            pack(f"{s3_url}/{name}", tmp_path / "out", **options)  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{s3_url}/{name}")
    with pytest.raises(PackError, match=r"is no URL, and others are"):
        pack([f"{s3_url}/a.tar", "b.tar"], tmp_path / "out", **options)  # type: ignore[arg-type]
    attach(tmp_path / "files" / "a.tar", tmp_path / "attached")
    with pytest.raises(ArgumentError, match="lies in a store"):
        append(tmp_path / "attached", f"{s3_url}/a.tar")


def test_an_object_that_is_replaced(s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Is an error that names it, and never another object's bytes; so is one that is removed or shorter."""
    objects = there(files("tar"))
    source = source_at(f"{s3_url}/train-{{000..002}}.tar", seaweedfs)
    again = pickle.loads(pickle.dumps(source))
    assert source.read(0).image == again.read(0).image == picture(0)
    objects.put("train-001.tar", tar_of(range(20, 20 + EACH)))
    objects.delete("train-002.tar")
    for position, words, error in (
        (EACH, "it was replaced, or changed, since it was first read", RemoteError),
        (2 * EACH, "there is no such object", RemoteMissingError),
    ):
        with pytest.raises(error, match=words) as caught:
            source.read(position)
        assert f"{s3_url}/train-00{position // EACH}.tar" in str(caught.value)
    assert source.read(EACH - 1).image == picture(EACH - 1)


def test_a_store_that_refuses_or_stalls(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """Requests are tried again; a wrong key is told at once."""
    there(files("tar"))
    with Proxy(seaweedfs.port) as proxy:
        options = seaweedfs.options(proxy.endpoint)
        for kind in ("reset", "status", "short"):
            proxy.spoil(kind, 3)
        pack(f"{s3_url}/train-{{000..002}}.tar", tmp_path / "out", storage_options=options)
    pack(str(tmp_path / "files" / "train-*.tar"), tmp_path / "local")
    assert files_of(tmp_path / "out") == files_of(tmp_path / "local")
    options = seaweedfs.options() | {"secret_access_key": "x"}
    with pytest.raises(RemoteError, match="access denied") as caught:
        pack(f"{s3_url}/train-000.tar", tmp_path / "no", storage_options=options)
    assert "train-000.tar" in str(caught.value)


@pytest.mark.parametrize(("bandwidth", "most"), [(400e3, 2500), (1e12, 90_000)])
def test_headers_alone_are_read_where_that_is_faster(
    bandwidth: float,
    most: int,
    s3_url: str,
    there: Put,
    seaweedfs: SeaweedFS,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a slow line at most 2.5 KB a sample, and a try; the members are the same either way. The line's time
    goes by what it is asked for, whatever else the machine does."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for number in range(80):
            entry = tarfile.TarInfo(f"{number // 2}.{'cls' if number % 2 else 'jpg'}")
            entry.size = 1 if number % 2 else 60_000
            tar.addfile(entry, io.BytesIO(bytes(60_000)))
    there({"a.tar": content.getvalue()})
    objects, get, asked = ForeignObjects(seaweedfs.options(), 20), ForeignObjects.get, list[int]()

    def timed(self: ForeignObjects, url: str, start: int, stop: int, info: Any) -> Any:
        asked.append(stop - start)
        return get(self, url, start, stop, info)

    monkeypatch.setattr(ForeignObjects, "get", timed)
    clock = SimpleNamespace(perf_counter=lambda: 0.002 * len(asked) + sum(asked) / bandwidth)
    monkeypatch.setattr(foreign, "time", clock)
    url = ForeignURL(f"{s3_url}/a.tar", objects)
    assert url.size == len(content.getvalue())
    with tarfile.open(fileobj=Walk(url), mode="r:") as tar:  # type: ignore[call-overload]
        names = [member.name for member in tar]
    assert sum(asked) < most * 40 + (64 << 10)
    assert names == [f"{number // 2}.{'cls' if number % 2 else 'jpg'}" for number in range(80)]


def test_reads_in_blocks(
    monkeypatch: pytest.MonkeyPatch, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """Of any place and size, in order and out of it, by few requests where they follow each other."""
    content = bytes(range(256)) * 400
    there({"a": content})
    monkeypatch.setattr(foreign, "BLOCK", 10_000)
    with Proxy(seaweedfs.port) as proxy:
        objects = ForeignObjects(seaweedfs.options(proxy.endpoint), 20)
        url = ForeignURL(f"{s3_url}/a", objects)
        for start in range(0, len(content), 700):
            stop = min(start + 700, len(content))
            assert bytes(url.read(start, stop)) == content[start:stop]
        assert proxy.counts()["GET"] <= 11
        for start, stop in ((90_000, 90_001), (5, 60_000), (50_000, 50_010), (0, len(content)), (7, 7)):
            assert bytes(url.read(start, stop)) == content[start:stop]
        with pytest.raises(RemoteError, match=r"/a has 102,400 bytes, and 102,401 are needed"):
            url.read(102_000, 102_401)


def test_the_command(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    there(files("tar"))
    options = [f"--storage-option={key}={value}" for key, value in seaweedfs.options().items()]
    result = CliRunner().invoke(app, ["pack", f"{s3_url}/train-*.tar", str(tmp_path / "out"), *options])
    assert result.exit_code == 0, result.output
    assert f"{TARS * EACH} of {TARS * EACH}" in result.output
