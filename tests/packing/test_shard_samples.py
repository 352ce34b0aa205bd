"""pack(shard_samples=N): shards end after every N-th place of the order, whatever the samples' sizes and
whichever of them are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packing_helpers import encoded, picture, stored_samples, tree

from fastload.errors import ArgumentError, PackError, PackStoppedError
from fastload.packing import Item, pack, verify
from fastload.sources.folder import FolderSource
from fastload.store import Manifest
from fastload.store import shard as shard_module

COUNT = 23
EACH = 5


def folder(root: Path, bad: tuple[int, ...] = ()) -> Path:
    """Images of very different sizes in one class; those of `bad` cannot be decoded."""
    images = (b"broken" if i in bad else encoded(picture(i, 8 + 37 * (i % 4), 16)) for i in range(COUNT))
    return tree(root, {f"c/{i:04d}.jpg": data for i, data in enumerate(images)})


def shape(out: Path) -> list[tuple[str, int, int, int]]:
    """(name, first, key, count) of each shard."""
    return [(shard.file, shard.first, shard.key, shard.count) for shard in Manifest.load(out).shards]


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_shard_has_so_many_samples(tmp_path: Path, shuffle: bool) -> None:
    """All but the last have as many as were asked for; samples and their order are those of any other
    pack."""
    src, out, other = folder(tmp_path / "src"), tmp_path / "out", tmp_path / "other"
    pack(src, out, shard_samples=EACH, shuffle=shuffle)
    pack(src, other, shuffle=shuffle)
    assert shape(out) == [
        (f"shard-{k:05d}.lmdb", k * EACH, k * EACH, min(EACH, COUNT - k * EACH)) for k in range(5)
    ]
    assert [sample.data for sample in stored_samples(out)] == [
        sample.data for sample in stored_samples(other)
    ]
    assert verify(out).ok
    assert Manifest.load(out).options["shard_samples"] == EACH
    assert "shard_samples" not in Manifest.load(other).options


def test_what_is_left_out_moves_nothing(tmp_path: Path) -> None:
    """Bad samples make their own shard smaller, and one without any sample is missing; all other files
    keep their bytes."""
    whole, some = tmp_path / "whole", tmp_path / "some"
    pack(folder(tmp_path / "a"), whole, shard_samples=EACH)
    summary = pack(
        folder(tmp_path / "b", bad=(6, *range(10, 15), 22)), some, shard_samples=EACH, on_error="skip"
    )
    assert summary.skipped_count == 7
    assert shape(some) == [
        ("shard-00000.lmdb", 0, 0, 5),
        ("shard-00001.lmdb", 5, 5, 4),
        ("shard-00003.lmdb", 9, 15, 5),
        ("shard-00004.lmdb", 14, 20, 2),
    ]
    for name in ("shard-00000.lmdb", "shard-00003.lmdb"):
        assert (some / name).read_bytes() == (whole / name).read_bytes()
    assert verify(some).ok
    names = [sample.data for sample in stored_samples(whole)]
    assert [sample.data for sample in stored_samples(some)] == [
        names[i] for i in range(COUNT) if i not in (6, *range(10, 15), 22)
    ]


@pytest.mark.parametrize("bad", [7, 10, 14, 22])
def test_resume(tmp_path: Path, bad: int) -> None:
    """A pack that stopped goes on at its last complete shard, with the mended source as under skip, and
    ends as one without a stop."""
    src = folder(tmp_path / "src", bad=(2, bad))
    for mend, name in ((False, "skipped"), (True, "mended")):
        out, whole = tmp_path / name, tmp_path / f"{name}-whole"
        (src / f"c/{2:04d}.jpg").write_bytes(encoded(picture(2, 82, 16)))
        (src / f"c/{bad:04d}.jpg").write_bytes(b"broken")
        with pytest.raises(PackStoppedError, match=f"{bad:04d}.jpg"):
            pack(src, out, shard_samples=EACH, workers=2)
        if mend:
            (src / f"c/{bad:04d}.jpg").write_bytes(encoded(picture(bad, 50, 16)))
        pack(src, out, shard_samples=EACH, resume=True, on_error="skip")
        pack(src, whole, shard_samples=EACH, on_error="skip")
        assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole.iterdir())
        for path in whole.glob("*-*"):
            assert (out / path.name).read_bytes() == path.read_bytes(), path.name
        assert Manifest.load(out).shards == Manifest.load(whole).shards


class Unplugged(Exception):
    """What ends a pack here as a kill would."""


class Unplugs(FolderSource):
    """A folder that cannot be read from some position on."""

    def read(self, position: int) -> Item:
        if position >= 18:
            raise Unplugged
        return super().read(position)


def test_resume_where_a_sample_that_was_left_out_is_gone(tmp_path: Path) -> None:
    """Places count those left out, which a resume may lack, so that shards go on where they would have
    gone on with them."""
    src, out = folder(tmp_path / "src", bad=(1,)), tmp_path / "out"
    with pytest.raises(Unplugged):
        pack(Unplugs(str(src)), out, shard_samples=EACH, on_error="skip", workers=1)
    (src / "c/0001.jpg").unlink()
    pack(src, out, shard_samples=EACH, resume=True)
    assert shape(out) == [
        (f"shard-{k:05d}.lmdb", max(0, k * EACH - 1), k * EACH, (4, 5, 5, 5, 3)[k]) for k in range(5)
    ]
    assert verify(out).ok


def test_a_shard_that_would_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with advice, and not cut in two."""
    monkeypatch.setattr(shard_module, "COLUMN_LIMIT", 60)
    with pytest.raises(PackError, match="choose a smaller shard_samples"):
        pack(folder(tmp_path / "src"), tmp_path / "out", shard_samples=EACH)


@pytest.mark.parametrize(
    "given", [{"shard_samples": 0}, {"shard_samples": 2.0}, {"shard_samples": 5, "shard_size": "1GiB"}]
)
def test_bad_arguments(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="shard_samples"):
        pack(tmp_path, tmp_path / "out", **given)


def test_resume_with_another_number(tmp_path: Path) -> None:
    """The number belongs to the pack, as other options do."""
    src, out = folder(tmp_path / "src", bad=(13,)), tmp_path / "out"
    with pytest.raises(PackStoppedError):
        pack(src, out, shard_samples=EACH)
    for other in ({"shard_samples": 4}, {}):
        with pytest.raises(PackError, match="shard_samples=5"):
            pack(src, out, resume=True, on_error="skip", **other)
