"""pull: what comes down is what was pushed, in memory that does not grow with it; what does not hold never
becomes a dataset."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.seaweedfs import SeaweedFS
from transfer_helpers import counted, dataset_of, files_of, manifest_at, source_of

import fastload
from fastload.errors import DatasetError, PackError, RemoteError
from fastload.remote import manifest
from fastload.remote.objects import Objects
from fastload.remote.obstore import ObstoreObjects
from fastload.store import Manifest

Open = Callable[..., Objects]


@pytest.fixture
def options(seaweedfs: SeaweedFS) -> dict[str, Any]:
    """The keyword with which functions reach the server."""
    return {"storage_options": seaweedfs.options()}


@pytest.fixture
def pushed(tmp_path: Path, s3_url: str, options: dict[str, Any]) -> Path:
    """A dataset that is at `s3_url` too."""
    dataset = dataset_of(tmp_path)
    fastload.push(dataset, s3_url, **options)
    return dataset


def test_the_same_files(pushed: Path, tmp_path: Path, s3_url: str, options: dict[str, Any]) -> None:
    """Byte for byte, and nothing else; the counts are those of the files."""
    summary = fastload.pull(s3_url, tmp_path / "a" / "back", **options)
    assert files_of(tmp_path / "a" / "back") == files_of(pushed)
    assert summary.files == summary.fetched_files == len(files_of(pushed)) - 1
    assert summary.bytes == sum(
        len(data) for name, data in files_of(pushed).items() if name != "manifest.json"
    )


def test_an_occupied_out(pushed: Path, tmp_path: Path, s3_url: str, options: dict[str, Any]) -> None:
    """A dataset, an unfinished pack, other files and a file are left alone; --overwrite replaces what is
    fastload's."""
    dataset = dataset_of(tmp_path, 10, "other")
    with pytest.raises(PackError, match="already holds a packed dataset; --overwrite"):
        fastload.pull(s3_url, dataset, **options)
    (dataset / "manifest.json").unlink()
    with pytest.raises(PackError, match=r"its manifest\.json is lost"):
        fastload.pull(s3_url, dataset, **options)
    fastload.pull(s3_url, dataset, overwrite=True, **options)
    assert files_of(dataset) == files_of(pushed)
    with pytest.raises(PackError, match="holds other files"):
        fastload.pull(s3_url, source_of(tmp_path, 10), overwrite=True, **options)
    (tmp_path / "file").write_text("x")
    with pytest.raises(PackError, match="is a file"):
        fastload.pull(s3_url, tmp_path / "file", **options)


def test_a_damaged_object(
    pushed: Path,
    tmp_path: Path,
    s3_url: str,
    open_s3: Open,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One flipped bit is noticed, and nothing becomes a dataset; when it is mended, the next pull fetches
    what is left."""
    objects = open_s3()
    shard = Manifest.load(pushed).shards[-1]
    good = (pushed / shard.file).read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 16
    objects.put(shard.file, bytes(bad))
    out = tmp_path / "back"
    with pytest.raises(
        DatasetError,
        match=rf"{shard.file}: its checksum is .* it is damaged, or was replaced meanwhile; pull again",
    ):
        fastload.pull(s3_url, out, **options)
    with pytest.raises(
        DatasetError, match=r"is unfinished: a pull stopped before its end. `fastload pull URL"
    ):
        fastload.PackedDataset(out)
    with pytest.raises(PackError, match="holds an unfinished download: `fastload pull` goes on"):
        fastload.pack(source_of(tmp_path, 10), out)
    objects.delete(shard.file)
    with pytest.raises(RemoteError, match=rf"{shard.file}.*no such object.*pull again, and it goes on"):
        fastload.pull(s3_url, out, timeout=3, **options)
    objects.put(shard.file, good)
    with counted(monkeypatch) as counts:
        fastload.pull(s3_url, out, **options)
    assert {name for name in counts if name.startswith("fetch ")} == {f"fetch {shard.file}"}
    assert files_of(out) == files_of(pushed)


def test_another_dataset_meanwhile(
    pushed: Path, tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """Files of an unfinished pull are kept if the dataset that is at the URL now has their content,
    whatever their names and sizes."""
    out = tmp_path / "back"
    objects = open_s3()
    last = Manifest.load(pushed).shards[-1]
    objects.delete(last.file)
    with pytest.raises(RemoteError):
        fastload.pull(s3_url, out, timeout=3, **options)
    assert list(out.glob("*.lmdb"))
    other = dataset_of(tmp_path, 60, "other", shuffle=True)
    fastload.push(other, s3_url, overwrite=True, **options)
    fastload.pull(s3_url, out, **options)
    names = {shard.file for shard in manifest_at(objects).shards}
    assert {path.name for path in out.glob("*.lmdb")} == names
    assert fastload.packing.verify(out).ok


def test_requests_are_bounded(
    pushed: Path, tmp_path: Path, s3_url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most REQUESTS ranges, of at most RANGE_BYTES, are in flight at a time, and several are."""
    monkeypatch.setattr(manifest, "RANGE_BYTES", 10_000)
    fetch = ObstoreObjects.fetch
    now, most, longest = 0, 0, 0

    async def counting(self: ObstoreObjects, name: str, start: int, stop: int) -> Any:
        nonlocal now, most, longest
        now, longest = now + 1, max(longest, stop - start)
        most = max(most, now)
        try:
            return await fetch(self, name, start, stop)
        finally:
            now -= 1

    monkeypatch.setattr(ObstoreObjects, "fetch", counting)
    fastload.pull(s3_url, tmp_path / "back", **options)
    assert files_of(tmp_path / "back") == files_of(pushed)
    assert 1 < most <= manifest.REQUESTS
    assert longest == 10_000


def test_a_full_disk(pushed: Path, tmp_path: Path, s3_url: str, options: dict[str, Any]) -> None:
    """A file that cannot be written ends in one sentence, with how to go on; and so does a disk that is
    too small from the start."""
    code = (
        "import resource, sys, json, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import fastload\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "fastload.pull(sys.argv[1], sys.argv[2], storage_options=json.loads(sys.argv[3]))\n"
    )
    import json

    command = [
        sys.executable,
        "-c",
        code,
        s3_url,
        str(tmp_path / "back"),
        json.dumps(options["storage_options"]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    last = done.stderr.splitlines()[-1]
    assert "PackError" in last, done.stderr
    assert "pull again, and it goes on" in last
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 500_000
    fastload.pull(s3_url, tmp_path / "back", **options)
    assert files_of(tmp_path / "back") == files_of(pushed)


def test_nothing_there(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """A URL without a dataset, one of a damaged manifest, and one that names other folders are refused,
    and no folder is made."""
    with pytest.raises(DatasetError, match=r"holds no packed dataset \(no manifest.json\): check the URL"):
        fastload.pull(s3_url, tmp_path / "back", **options)
    objects = open_s3()
    one, two = dataset_of(tmp_path, 10, "one"), dataset_of(tmp_path, 12, "two")
    fastload.concat([one, two], tmp_path / "both")
    objects.put("manifest.json", (tmp_path / "both" / "manifest.json").read_bytes())
    with pytest.raises(DatasetError, match=r"names files in other folders.*fastload push"):
        fastload.pull(s3_url, tmp_path / "back", **options)
    objects.put("manifest.json", (one / "manifest.json").read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"manifest\.json cannot be read"):
        fastload.pull(s3_url, tmp_path / "back", **options)
    assert not (tmp_path / "back").exists()
