"""fastload index: what it adds is what packing would have stored, and nothing else of the dataset changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from packing_helpers import encoded, picture, tree

import fastload
from fastload import FastLoader, transforms
from fastload._native import core
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.packing import index, pack, verify
from fastload.store import DatasetReader, DatasetRewriter, DatasetWriter, Field, Manifest, Schema

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastload.__file__).parents[1])}
pytestmark = pytest.mark.usefixtures("no_leaks")


def contents(path: Path) -> tuple[list[Any], dict[str, list[Any]], dict[str, Any], dict[str, Any]]:
    """Every record's fields, every column, options and summary."""
    with DatasetReader(path) as reader:
        fields = [reader.record_fields(i) for i in range(len(reader))]
        columns = {name: reader.column(name).tolist() for name in reader.schema.columns}
        return fields, columns, dict(reader.manifest.options), dict(reader.manifest.summary)


def indexes(path: Path) -> list[bytes | None]:
    """Each sample's entropy index."""
    return [
        next((data for _, kind, data in fields if kind == core.KIND_INDEX), None)
        for fields in contents(path)[0]
    ]


def files(path: Path) -> dict[str, tuple[int, bytes]]:
    """Each file's inode and content."""
    return {p.name: (p.stat().st_ino, p.read_bytes()) for p in path.iterdir() if p.is_file()}


def only_what_is_named(path: Path) -> bool:
    """Whether the folder holds the manifest, the shards that it names, and nothing else."""
    manifest = Manifest.load(path)
    assert len(manifest.sidecars) == 1
    return sorted(os.listdir(path)) == [
        manifest.sidecars[0].file,
        "manifest.json",
        *sorted(shard.file for shard in manifest.shards),
    ]


class Mixed:
    """Images of every form that is stored, with fields of every kind. The first ones can have no index."""

    def __init__(self, count: int = 90) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        photo = picture(i, 120 + i, 150 + 7 * i % 90)
        forms = [
            lambda: encoded(photo, "PNG"),
            lambda: encoded(photo, quality=95, progressive=True),
            lambda: encoded(photo, quality=95, subsampling=i % 3),
            lambda: encoded(photo.convert("L"), quality=90, comment=b"note" * 400),
            lambda: encoded(photo, quality=95, restart_marker_rows=2),
            lambda: encoded(photo.convert("CMYK"), quality=95),
            lambda: encoded(picture(i, 1, 1)),
            lambda: encoded(photo, quality=95)[:-2],
        ]
        return {
            "image": forms[0 if i < 8 else i % len(forms)](),
            "label": i % 5,
            "weight": i / 7,
            "box": np.arange(4, dtype=np.int16).reshape(2, 2) * i,
            "caption": f"Nr. {i} ☃",
            "raw": bytes([i % 251]) * i,
            "meta": {"i": i},
        }


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty photos, about four shards of 1 MiB."""
    names = {f"c{i % 3}/{i:04d}.jpg": encoded(picture(i, 200, 160 + i), quality=97) for i in range(120)}
    return tree(tmp_path_factory.mktemp("photos"), names)


@pytest.fixture(scope="module")
def bare_once(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bare") / "ds"
    pack(photos, out, shard_size=1 << 20, index=False)
    return out


@pytest.fixture
def bare(bare_once: Path, tmp_path: Path) -> Path:
    """The photos, packed without index into several shards."""
    shutil.copytree(bare_once, tmp_path / "ds")
    assert len(Manifest.load(bare_once).shards) > 3
    return tmp_path / "ds"


def test_the_corpus(shared: Path, tmp_path: Path) -> None:
    """Real photographs in several shards: all that packing with index stores, and --resume finds the pack
    complete."""
    source = shared / "corpus" / "in500"
    pack(source, tmp_path / "with", shard_size=5 << 20)
    pack(source, tmp_path / "ds", shard_size=5 << 20, index=False)
    summary = index(tmp_path / "ds")
    assert contents(tmp_path / "ds") == contents(tmp_path / "with")
    assert None not in indexes(tmp_path / "ds")
    assert (
        summary.samples
        == summary.jpegs
        == summary.indexed
        == summary.added
        == Manifest.load(tmp_path / "with").count
    )
    assert summary.shards == len(Manifest.load(tmp_path / "ds").shards) > 3
    assert only_what_is_named(tmp_path / "ds")
    assert verify(tmp_path / "ds").ok
    again = pack(source, tmp_path / "ds", shard_size=5 << 20, resume=True)
    assert (again.packed_now, again.indexed) == (0, summary.indexed)


@pytest.mark.parametrize(
    "options",
    [{}, {"encode": "keep"}, {"encode": "jpeg"}, {"encode": "raw"}, {"check": "structure"}],
    ids=str,
)
def test_every_form_of_image_and_field(tmp_path: Path, options: dict[str, Any]) -> None:
    """Raw pixels, progressive, CMYK, tiny and cut files among usual ones; text, json, bytes and arrays:
    only indexes are added."""
    source = Mixed()
    pack(source, tmp_path / "with", shard_size=1 << 20, on_error="skip", **options)
    pack(source, tmp_path / "ds", shard_size=1 << 20, on_error="skip", index=False, **options)
    before = contents(tmp_path / "ds")
    summary = index(tmp_path / "ds", workers=3)
    after = contents(tmp_path / "ds")
    assert after == contents(tmp_path / "with")
    assert [[entry for entry in fields if entry[1] != core.KIND_INDEX] for fields in after[0]] == before[0]
    assert summary.added == summary.indexed == sum(each is not None for each in indexes(tmp_path / "ds"))
    if options.get("encode") == "raw":
        assert (summary.jpegs, summary.shards) == (0, 0)
    else:
        assert 0 < summary.indexed < summary.jpegs
    assert (summary.jpegs < summary.samples) == (options.get("encode") != "jpeg")
    assert only_what_is_named(tmp_path / "ds")


def test_a_second_run_changes_nothing(bare: Path) -> None:
    """Not a byte, not a file."""
    first = index(bare)
    before = files(bare)
    second = index(bare, progress=True)
    assert (second.added, second.shards, second.indexed) == (0, 0, first.indexed)
    assert files(bare) == before


def test_shards_that_gain_nothing_stay(tmp_path: Path) -> None:
    """Where no sample can have an index, the files are those from before; only the manifest tells that all
    was seen."""
    pack(
        tree(tmp_path / "src", {f"a/{i}.png": encoded(picture(i, 300, 400), "PNG") for i in range(9)}),
        tmp_path / "ds",
        shard_size=1 << 20,
    )
    pack(tmp_path / "src", tmp_path / "bare", shard_size=1 << 20, index=False)
    before = files(tmp_path / "bare")
    assert index(tmp_path / "bare").shards == 0
    after = files(tmp_path / "bare")
    assert after.pop("manifest.json") != before.pop("manifest.json")
    assert after == before
    assert contents(tmp_path / "bare") == contents(tmp_path / "ds")


def test_an_index_that_is_there_is_kept(tmp_path: Path) -> None:
    """Samples of a dataset that has some: those are not made anew, whatever they hold; what is no JPEG is
    left alone, too."""
    schema = Schema((Field("note", "text"), Field("image", "image")))
    good = encoded(picture(1, 200, 300))
    own = core.JpegPreparer().index(good)
    with DatasetWriter(tmp_path / "ds", schema, shard_size=1 << 20, options={"encode": "keep"}) as writer:
        for data, given in (
            (good, b""),
            (good, b"other"),
            (b"no JPEG at all", b""),
            (b"\xff\xd8", b""),
            (good[: len(good) // 2], b""),
            (good, b""),
        ):
            prepared = writer.prepare(
                {"note": "n", "image": data}, image_kind="jpeg", height=200, width=300, index=given
            )
            writer.append_prepared(prepared)
        writer.finish(None, {"samples": 6})
    summary = index(tmp_path / "ds")
    assert own
    assert indexes(tmp_path / "ds") == [own, b"other", None, None, None, own]
    assert (summary.samples, summary.jpegs, summary.indexed, summary.added, summary.shards) == (6, 6, 3, 2, 1)
    manifest = Manifest.load(tmp_path / "ds")
    assert (manifest.options, manifest.summary) == (
        {"encode": "keep", "index": True},
        {"samples": 6, "indexed": 3},
    )


def test_pixels_are_the_same(bare: Path) -> None:
    """FastLoader's random crops of two epochs, before and after, byte for byte."""

    def epochs() -> list[Any]:
        with FastLoader(
            bare,
            batch_size=16,
            shuffle=True,
            seed=3,
            num_workers=2,
            transform=transforms.RandomResizedCrop(64),
        ) as loader:
            return [(images.clone(), labels.clone()) for _ in range(2) for images, labels in loader]

    before = epochs()
    assert index(bare).added > 0
    for (images, labels), (same, names) in zip(epochs(), before, strict=True):
        assert images.equal(same)
        assert labels.equal(names)


def test_whoever_has_it_open_goes_on(bare: Path) -> None:
    """An open reader reads on, though its files are gone; its pickle, and a forked child of it, go by the
    new manifest."""
    code = (
        "import os, pickle, sys\n"
        "from fastload.packing import index\n"
        "from fastload.store import DatasetReader\n"
        "path = sys.argv[1]\n"
        "reader = DatasetReader(path)\n"
        "names = {shard.file for shard in reader.manifest.shards}\n"
        "before = [reader.record(i) for i in range(len(reader))]\n"
        "assert index(path, workers=1).shards == len(names)\n"
        "assert not names & set(os.listdir(path))\n"
        "assert [reader.record(i) for i in range(len(reader))] == before\n"
        "expected = [DatasetReader(path).record(i) for i in range(len(before))]\n"
        "assert expected != before\n"
        "assert [pickle.loads(pickle.dumps(reader)).record(i) for i in range(len(before))] == expected\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if [reader.record(i) for i in range(len(before))] == expected else 3)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = warm.run(code, bare, error=True)
    assert done.returncode == 0, done.stderr


def test_a_lost_shard_is_no_replaced_one(bare: Path) -> None:
    """A reader follows a rewriter, but a file that is gone, or another dataset in its place, stays an
    error."""
    (bare / Manifest.load(bare).shards[1].file).unlink()
    with pytest.raises(DatasetError, match="shard-00001"):
        DatasetReader(bare)
    with pytest.raises(DatasetError, match="shard-00001"):
        index(bare)


def test_verifying_what_is_being_indexed(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards replaced under verify() are no damage: it says what happened, and holds when it is run again."""
    module = sys.modules["fastload.unpacking.verify"]
    check = module._check_file

    def replaced_first(folder: Path, shard: Any, pool: Any) -> str:
        monkeypatch.setattr(module, "_check_file", check)
        index(bare)
        return str(check(folder, shard, pool))

    monkeypatch.setattr(module, "_check_file", replaced_first)
    with pytest.raises(DatasetError, match="changed while it was verified"):
        verify(bare, workers=1)
    assert verify(bare).ok


def test_leftovers_go_and_other_files_stay(bare: Path, tmp_path: Path) -> None:
    """Files named as shards that the manifest does not name: removed, a link itself and not its target. A
    folder is left alone."""
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"not ours")
    (bare / "shard-00077.lmdb").write_bytes(b"left over")
    (bare / "shard-000078.lmdb").write_bytes(b"")
    (bare / "shard-00079.lmdb").symlink_to(foreign)
    (bare / "shard-00080.lmdb").symlink_to(tmp_path / "nowhere")
    (bare / "manifest.json.tmp").write_bytes(b"half")
    (bare / "shard-999999999.lmdb").mkdir()
    (bare / "shard-0.lmdb").write_bytes(b"too short a number")
    (bare / "notes.txt").write_text("mine")
    index(bare)
    stays = {"shard-999999999.lmdb", "shard-0.lmdb", "notes.txt", "manifest.json"}
    manifest = Manifest.load(bare)
    assert set(os.listdir(bare)) == stays | {part.file for part in (*manifest.shards, *manifest.sidecars)}
    assert foreign.read_bytes() == b"not ours"
    assert verify(bare).ok


def test_two_writers(bare: Path, photos: Path) -> None:
    """While one writes, another index and a pack over it are refused; nothing is touched, leftovers
    neither."""
    (bare / "shard-00077.lmdb").write_bytes(b"in use, for all that others know")
    before = files(bare)
    with DatasetRewriter(bare, "go on") as first:
        kept = files(bare)
        with pytest.raises(PackError, match="another process"):
            index(bare)
        with pytest.raises(PackError, match="another process"):
            pack(photos, bare, overwrite=True)
        assert files(bare) == kept
        first.close()
    assert kept.keys() == before.keys() - {"shard-00077.lmdb"}
    assert index(bare).added > 0


def test_what_is_no_dataset(tmp_path: Path, photos: Path) -> None:
    """Told as everywhere, and nothing is made there."""
    with pytest.raises(DatasetError, match="there is no"):
        index(tmp_path / "gone")
    with pytest.raises(DatasetError, match="no packed dataset"):
        index(photos)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "shard-00000.lmdb").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"its manifest\.json is lost"):
        index(tmp_path / "half")
    assert os.listdir(tmp_path / "half") == ["shard-00000.lmdb"]
    assert not (tmp_path / "gone").exists()
    with pytest.raises(ArgumentError, match="workers"):
        index(tmp_path, workers=0)


@pytest.mark.parametrize("victim", [0, 50])
def test_a_bad_record_is_named(bare: Path, victim: int) -> None:
    """A flipped byte: the sample and the way on; its shard is the old one still, and no file of the
    attempt stays."""
    with DatasetReader(bare) as reader:
        file, record = reader.shard_of(victim), reader.record(victim)
    data = bytearray((bare / file).read_bytes())
    data[data.index(record[-500:]) + 250] ^= 4
    (bare / file).write_bytes(data)
    before = files(bare)
    with pytest.raises(SampleError, match=rf"sample {victim} .*{file}.*fastload verify") as caught:
        index(bare)
    assert (caught.value.index, caught.value.shard) == (victim, file)
    assert only_what_is_named(bare)
    assert files(bare)[file] == before[file]
    if victim == 0:
        assert files(bare) == before
    assert [bad.index for bad in verify(bare).bad] == [victim]
    assert Manifest.load(bare).options["index"] is False


def test_a_bad_column_stops_it(bare: Path) -> None:
    """A flipped byte in the labels of a shard: an error, and everything as it was."""
    shard = Manifest.load(bare).shards[-1]
    with DatasetReader(bare) as reader:
        labels = reader.column("label")[shard.first :].tobytes()
    data = bytearray((bare / shard.file).read_bytes())
    data[data.index(labels)] ^= 1
    (bare / shard.file).write_bytes(data)
    before = files(bare)
    with pytest.raises(DatasetError, match="column label"):
        index(bare)
    assert files(bare) == before


def test_room_for_one_shard_more(bare: Path, tmp_path: Path) -> None:
    """On a file system with room for little more than one shard it goes through; with less, a PackError that
    says how to go on, and nothing is lost."""
    total = sum(shard.bytes for shard in Manifest.load(bare).shards)
    most = max(shard.bytes for shard in Manifest.load(bare).shards)
    assert total > 3 * most
    disk = tmp_path / "disk"
    disk.mkdir()
    run = f'"{sys.executable}" -m fastload'
    for room, good in ((most // 2, False), (most + most // 4 + (96 << 10), True)):
        commands = (
            f'cp -r "{bare}" "{disk}/ds" && ({run} index -q "{disk}/ds" || echo failed) && {run} verify '
            f'-q "{disk}/ds" && ls "{disk}/ds"'
        )
        inner = f'mount -t tmpfs -o size={total + room} none "{disk}" && {commands}'
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", inner],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env=ENVIRONMENT,
        )
        if "unshare" in done.stderr or "mount" in done.stderr:
            pytest.skip(f"no private mounts here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert "hold (checksums" in done.stdout
        assert ("failed" in done.stdout) != good, done.stderr
        if not good:
            assert "the disk is full" in done.stderr
            assert "bytes more" in done.stderr
            assert "run `fastload index` again" in done.stderr
            assert done.stdout.split()[-len(os.listdir(bare)) :] == sorted(os.listdir(bare))
