"""push: a dataset at a URL is that of the folder; nothing is sent twice, nothing of others is believed,
and readers are never surprised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import store_helpers  # noqa: F401  (version_helpers' own)
from servers.seaweedfs import SeaweedFS
from transfer_helpers import counted, dataset_of, files_of, manifest_at, names_at, source_of, values_of
from version_helpers import changed

import fastload
from fastload.errors import ArgumentError, DatasetError, PackError, RemoteError
from fastload.packing import verify
from fastload.remote.manifest import data_files
from fastload.remote.objects import Objects
from fastload.remote.obstore import ObstoreObjects
from fastload.store import Manifest, checked

Open = Callable[..., Objects]


@pytest.fixture
def options(seaweedfs: SeaweedFS) -> dict[str, Any]:
    """The keyword with which functions reach the server."""
    return {"storage_options": seaweedfs.options()}


def test_objects_are_the_files(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """Names, bytes and manifest are those of the folder, which is not touched; a second push sends
    nothing."""
    dataset = dataset_of(tmp_path)
    before = files_of(dataset)
    summary = fastload.push(dataset, s3_url, **options)
    objects = open_s3()
    assert {name: objects.get(name, 1 << 30) for name in names_at(objects)} == before == files_of(dataset)
    assert (summary.files, summary.sent_files, summary.removed) == (len(before) - 1, len(before) - 1, 0)
    assert fastload.push(dataset, s3_url, **options).sent_files == 0


def test_a_dataset_opens_in_three_requests(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """Of several sidecars, none that holds, and several files of rows, the bucket has one of each; the
    samples are those of the folder."""
    parts = [dataset_of(tmp_path, count, f"part-{count}") for count in (60, 40)]
    for part in parts:
        fastload.append(part, source_of(tmp_path, 30), shard_size="1MiB")
        fastload.drop(part, where="label = 1 and hash(width * 10000 + height) % 2 = 0")
    dataset = tmp_path / "dataset"
    fastload.concat(parts, dataset)
    local = Manifest.load(dataset)
    assert len(local.sidecars) > 1
    assert len({(shard.rows.folder, shard.rows.file) for shard in local.shards if shard.rows}) > 1
    sidecar = local.sidecars[0]
    (dataset / (sidecar.folder or "") / sidecar.file).write_bytes(b"damaged")
    before = files_of(dataset)
    fastload.push(dataset, s3_url, **options)
    files = [file.name for file in data_files(manifest_at(open_s3()))]
    assert [sum(name.startswith(kind) for name in files) for kind in ("index", "rows")] == [1, 1]
    assert files_of(dataset) == before
    fastload.pull(s3_url, tmp_path / "back", **options)
    assert verify(tmp_path / "back", decode=True).ok
    assert values_of(tmp_path / "back") == values_of(dataset)
    assert fastload.push(dataset, s3_url, **options).sent_files == 0


def test_shards_elsewhere_and_added_values(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """Shards and segments in other folders become objects beside the others, also two of one name; all
    fields are as they were."""
    path, _ = changed(tmp_path)
    manifest = Manifest.load(path)
    with pytest.raises(PackError, match=r"is an attached dataset.*fastload pack"):
        fastload.push(path, s3_url, **options)
    replace(manifest, shards=tuple(replace(shard, base=None) for shard in manifest.shards)).write(path)
    fastload.push(path, s3_url, **options)
    fastload.pull(s3_url, tmp_path / "back", **options)
    assert values_of(tmp_path / "back") == values_of(path)
    assert all(file.folder is None for file in data_files(manifest_at(open_s3())))
    one, two = dataset_of(tmp_path, 40, "one"), dataset_of(tmp_path, 50, "two")
    fastload.concat([one, two], tmp_path / "both")
    fastload.push(tmp_path / "both", f"{s3_url}/both", **options)
    fastload.pull(f"{s3_url}/both", tmp_path / "both back", **options)
    assert values_of(tmp_path / "both back") == values_of(one) + values_of(two)


def test_a_later_version_sends_its_new_files(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an append, shards that are there are not sent again; an older version goes over a later one
    only if that is asked for."""
    dataset = dataset_of(tmp_path)
    fastload.push(dataset, s3_url, **options)
    there = set(names_at(open_s3()))
    fastload.append(dataset, source_of(tmp_path, 20), shard_size="1MiB")
    with counted(monkeypatch) as counts:
        summary = fastload.push(dataset, s3_url, **options)
    assert counts["put_file"] == summary.sent_files == 2  # a shard and the sidecar
    assert not any(counts[f"put_file {name}"] for name in there)
    assert len(manifest_at(open_s3()).shards) == len(Manifest.load(dataset).shards)
    with pytest.raises(
        PackError, match="holds another packed dataset, or a later version of this one; --overwrite"
    ):
        fastload.push(dataset, s3_url, version=1, **options)
    fastload.push(dataset, s3_url, version=1, overwrite=True, **options)
    assert manifest_at(open_s3()).same_samples(Manifest.load(dataset, 1))


def test_overwriting_leaves_readers_what_they_have(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the manifest, no object of the old dataset is replaced or removed; then its objects go, and
    only they and leftovers."""
    one, two = dataset_of(tmp_path), dataset_of(tmp_path, 40, "two", encode="keep", shuffle=True)
    fastload.push(one, s3_url, **options)
    objects = open_s3()
    objects.put("notes.txt", b"mine")
    before = {info.name: info for info in objects.list()}
    with pytest.raises(PackError, match="holds another packed dataset"):
        fastload.push(two, s3_url, **options)
    seen: list[bool] = []
    put = ObstoreObjects.put

    def looking(self: ObstoreObjects, name: str, data: bytes) -> None:
        if name == "manifest.json":
            now = {info.name: info for info in self.list()}
            seen.append(all(now[each] == info for each, info in before.items()))
        put(self, name, data)

    monkeypatch.setattr(ObstoreObjects, "put", looking)
    fastload.push(two, s3_url, overwrite=True, **options)
    assert seen == [True]
    named = {file.name for file in data_files(manifest_at(objects))}
    assert set(names_at(objects)) == named | {"manifest.json", "notes.txt"}
    assert not named & (before.keys() - {"manifest.json"})
    assert verify(s3_url, **options).ok


def test_what_others_put_there_is_not_taken_for_ours(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard's name and size prove nothing: not before a push, and not after one that was stopped."""
    dataset = dataset_of(tmp_path)
    shard = Manifest.load(dataset).shards[0]
    objects = open_s3()
    objects.put(shard.file, bytes(shard.bytes))
    with pytest.raises(PackError, match="holds parts of a dataset that is not finished; --overwrite"):
        fastload.push(dataset, s3_url, **options)
    fastload.push(dataset, s3_url, overwrite=True, **options)
    assert verify(s3_url, **options).ok
    url = f"{s3_url}/stopped"
    commit = monkeypatch.context
    with commit() as patch:
        patch.setattr("fastload.remote.writer.Bucket.commit", _stop)
        with pytest.raises(KeyboardInterrupt):
            fastload.push(dataset, url, **options)
    stopped = open_s3(url)
    assert "manifest.json" not in names_at(stopped)
    with pytest.raises(PackError, match="an unfinished push of another dataset"):
        fastload.push(dataset_of(tmp_path, 10, "other"), url, **options)
    stopped.put(shard.file, bytes(shard.bytes))
    summary = fastload.push(dataset, url, **options)
    assert shard.bytes <= summary.sent_bytes < summary.bytes
    assert verify(url, **options).ok


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "notes",
    [
        b"",
        b"[]",
        b'{"format": "fastload-push"}',
        checked.seal({"format": "fastload-push", "version": 1, "objects": [1]}),
        checked.seal(
            {
                "format": "fastload-push",
                "version": 1,
                "objects": {"shard-00000.lmdb": {"etag": 7, "content": []}},
            }
        ),
        checked.seal({"format": "fastload-progress", "version": 1, "objects": {}}),
    ],
)
def test_notes_that_do_not_hold(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], notes: bytes
) -> None:
    """A progress.json at the URL that is damaged, of another kind, or made up is no reason to leave
    anything out, and none to fail."""
    dataset = dataset_of(tmp_path, 10)
    open_s3().put("progress.json", notes)
    open_s3().put("shard-00000.lmdb", bytes(Manifest.load(dataset).shards[0].bytes))
    with pytest.raises(PackError, match="--overwrite replaces it"):
        fastload.push(dataset, s3_url, **options)
    fastload.push(dataset, s3_url, overwrite=True, **options)
    assert verify(s3_url, **options).ok
    assert "progress.json" not in names_at(open_s3())


def test_two_writers_at_one_url(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that somebody replaces while the others are sent is noticed before the manifest is
    written."""
    dataset = dataset_of(tmp_path)
    shard = Manifest.load(dataset).shards[0]
    listed, calls = ObstoreObjects.list, []

    def meddled(self: ObstoreObjects) -> Any:
        calls.append(self)
        if len(calls) == 2:  # the first is at the beginning, this one after everything was sent
            open_s3().put(shard.file, bytes(shard.bytes))
        return listed(self)

    monkeypatch.setattr(ObstoreObjects, "list", meddled)
    with pytest.raises(PackError, match="was replaced since it was sent: something else writes to this URL"):
        fastload.push(dataset, s3_url, **options)
    assert "manifest.json" not in names_at(open_s3())


def test_damage_is_not_pushed(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """A shard that is not what was packed is refused, and no dataset is made of the others."""
    dataset = dataset_of(tmp_path)
    path = dataset / Manifest.load(dataset).shards[-1].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"its checksum is .*; it is not pushed"):
        fastload.push(dataset, s3_url, **options)
    path.unlink()
    with pytest.raises(DatasetError):
        fastload.push(dataset, s3_url, **options)
    assert "manifest.json" not in names_at(open_s3())


@pytest.mark.long
def test_the_server_dies_in_the_middle(
    tmp_path: Path,
    seaweedfs: SeaweedFS,
    s3_url: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says how to go on; once the server is back, the rest is sent."""
    dataset = dataset_of(tmp_path, 100)
    put_file = ObstoreObjects.put_file
    sent: list[str] = []

    def dying(self: ObstoreObjects, name: str, *arguments: Any) -> None:
        if len(sent) == 2:
            seaweedfs.kill()
        sent.append(name)
        put_file(self, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ObstoreObjects, "put_file", dying)
        with pytest.raises(RemoteError, match="push again, and it goes on"):
            fastload.push(dataset, s3_url, timeout=3, **options)
    seaweedfs.start()
    fastload.push(dataset, s3_url, **options)
    assert verify(s3_url, **options).ok


def test_wrong_destinations(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """One sentence says what is wrong; other people's objects are left alone."""
    dataset = dataset_of(tmp_path, 10)
    open_s3(f"{s3_url}/mine").put("notes.txt", b"x")
    with pytest.raises(PackError, match=r"holds other objects \(notes.txt, ...\), which are left alone"):
        fastload.push(dataset, f"{s3_url}/mine", overwrite=True, **options)
    with pytest.raises(PackError, match="there is no bucket for s3://no-such-bucket/x: make it first"):
        fastload.push(dataset, "s3://no-such-bucket/x", **options)
    wrong = {**options["storage_options"], "secret_access_key": "not this one"}
    with pytest.raises(RemoteError, match="access denied") as denied:
        fastload.push(dataset, s3_url, storage_options=wrong)
    assert "not this one" not in str(denied.value)
    with pytest.raises(ArgumentError, match="not a URL"):
        fastload.push(dataset, str(tmp_path / "there"))
    with pytest.raises(DatasetError, match="there is no"):
        fastload.push(tmp_path / "nothing", s3_url, **options)
