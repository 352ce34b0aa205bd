"""The pack as a whole: what lies on disk afterwards, and what happens when OUT is in the way,
half-written, or the disk is full."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, stored_samples, tree

from fastload.errors import DatasetError, PackError
from fastload.packing import Item, pack
from fastload.store import DatasetReader, Field, Manifest


def photos(root: Path, count: int, size: int = 120) -> Path:
    return tree(
        root, {f"c{i % 3}/{i:04d}.jpg": encoded(picture(i, size, size), quality=92) for i in range(count)}
    )


def content(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """All that a dataset says: every sample's every byte, classes, summary."""
    manifest = Manifest.load(path)
    rows = [
        (s.kind, s.data, s.height, s.width, {k: np.asarray(v).tolist() for k, v in s.values.items()})
        for s in stored_samples(path)
    ]
    return rows, {"classes": manifest.classes, "summary": manifest.summary, "schema": manifest.schema}


def test_summary_counts_add_up(tmp_path: Path) -> None:
    """Every sample is counted once by format and once by what was done; bytes are those of the files."""
    src = photos(tmp_path / "src", 20)
    (src / "c0" / "x.jpg").write_bytes(encoded(picture(1, 30, 30), "PNG"))
    (src / "c1" / "y.jpg").write_bytes(encoded(picture(1, 30, 30), progressive=True))
    (src / "c2" / "z.jpg").write_bytes(b"nothing")
    summary = pack(src, tmp_path / "out", on_error="skip")
    assert summary.samples == summary.packed_now == 22
    assert dict(summary.formats) == {"jpeg": 21, "png": 1}
    assert (summary.kept, summary.transcoded, summary.raw, summary.skipped_count) == (20, 1, 1, 1)
    assert summary.bytes_in == sum(p.stat().st_size for p in src.rglob("*.jpg")) - len(b"nothing")
    # The raw image's own header.
    assert summary.bytes_out == sum(len(s.data) for s in stored_samples(tmp_path / "out")) - 12
    assert summary.seconds > 0
    assert summary.images_per_second == pytest.approx(22 / summary.seconds)
    stored = Manifest.load(tmp_path / "out").summary
    assert (stored["samples"], stored["kept"]) == (22, 20)


@pytest.mark.parametrize("workers", [1, 5])
def test_the_same_dataset_for_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    """Threads decide the speed, never the content: the shard files are equal byte for byte."""
    src = photos(tmp_path / "src", 90)
    pack(src, tmp_path / "a", workers=2, shard_size=1 << 20)
    pack(src, tmp_path / "b", workers=workers, shard_size=1 << 20)
    names = sorted(os.listdir(tmp_path / "a"))
    assert names == sorted(os.listdir(tmp_path / "b"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_shuffle_is_a_permutation_that_the_seed_decides(tmp_path: Path) -> None:
    """The same samples in another order; the same order for the same seed; limit takes its first ones."""
    src = photos(tmp_path / "src", 40, 30)
    for name, options in {"plain": {}, "one": {"seed": 1}, "again": {"seed": 1}, "two": {"seed": 2}}.items():
        pack(src, tmp_path / name, shuffle=name != "plain", **options)  # type: ignore[arg-type]
    pack(src, tmp_path / "few", shuffle=True, seed=1, limit=7)
    plain, one, again, two, few = (
        [s.data for s in stored_samples(tmp_path / n)] for n in ("plain", "one", "again", "two", "few")
    )
    assert sorted(plain) == sorted(one) == sorted(two)
    assert one == again
    assert plain != one != two
    assert few == one[:7]


class TestOutInTheWay:
    def test_a_dataset(self, tmp_path: Path) -> None:
        """A finished dataset is refused, and replaced only when asked."""
        src = photos(tmp_path / "src", 6, 30)
        pack(src, tmp_path / "out", limit=3)
        with pytest.raises(PackError, match=r"already holds a packed dataset; --overwrite"):
            pack(src, tmp_path / "out")
        assert pack(src, tmp_path / "out", overwrite=True).samples == 6

    def test_other_files(self, tmp_path: Path) -> None:
        """Somebody's folder is never touched, not even when overwriting."""
        src = photos(tmp_path / "src", 3, 30)
        tree(tmp_path / "out", {"thesis.tex": b"years"})
        for options in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(PackError, match="other files"):
                pack(src, tmp_path / "out", **options)  # type: ignore[arg-type]
        assert (tmp_path / "out" / "thesis.tex").read_bytes() == b"years"

    def test_the_source_itself(self, tmp_path: Path) -> None:
        """Overwriting what is to be packed is refused."""
        src = photos(tmp_path / "src", 3, 30)
        for out in (src, tmp_path):
            with pytest.raises(PackError, match="source lies in it"):
                pack(src, out, overwrite=True)
        assert len(list(src.rglob("*.jpg"))) == 3


class Interrupted(Exception):
    """What stops a pack in these tests."""


class Stops:
    """A source that fails once at one position, as a plug pulled would."""

    title = "stops"
    fields = (Field("label", "int"), Field("text", "text"))
    classes = None
    concurrent = False

    def __init__(self, count: int, stop: int | None) -> None:
        self.count, self.stop = count, stop

    def __len__(self) -> int:
        return self.count

    def name(self, position: int) -> str:
        return f"stops[{position}]"

    def read(self, position: int) -> Item:
        if position == self.stop:
            raise Interrupted
        if position % 10 == 9:
            raise PackError("no good")
        image = encoded(picture(position, 130, 130), quality=95, progressive=position % 7 == 0)
        return Item(self.name(position), image, {"label": position, "text": f"t{position}"})


class TestResume:
    @pytest.mark.parametrize("stop", [0, 1, 55, 149])
    @pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}])
    def test_equals_an_uninterrupted_pack(self, tmp_path: Path, stop: int, options: dict[str, Any]) -> None:
        """Stopped anywhere and resumed, with skipped samples among them: the same content and the same
        summary."""
        options = {**options, "shard_size": 1 << 20, "on_error": "skip"}
        pack(Stops(150, None), tmp_path / "whole", **options)
        with pytest.raises(Interrupted):
            pack(Stops(150, stop), tmp_path / "out", **options)
        with pytest.raises(DatasetError, match=r"unfinished.*--resume.*--overwrite"):
            DatasetReader(tmp_path / "out")
        with pytest.raises(
            PackError, match=r"unfinished pack: --resume finishes it, --overwrite starts again"
        ):
            pack(Stops(150, None), tmp_path / "out", **options)
        summary = pack(Stops(150, None), tmp_path / "out", resume=True, **options)
        assert content(tmp_path / "out") == content(tmp_path / "whole")
        assert summary.samples == 135
        assert summary.skipped_count == 15
        for name in sorted(os.listdir(tmp_path / "whole")):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name

    def test_goes_on_instead_of_starting_again(self, tmp_path: Path) -> None:
        """Complete shards are kept: the resumed call packs fewer samples than there are."""
        with pytest.raises(Interrupted):
            pack(Stops(200, 180), tmp_path / "out", shard_size=1 << 20, on_error="skip")
        summary = pack(Stops(200, None), tmp_path / "out", shard_size=1 << 20, on_error="skip", resume=True)
        assert 0 < summary.packed_now < summary.samples == 180

    def test_of_nothing_and_of_a_finished_one(self, tmp_path: Path) -> None:
        """--resume may stand in a script: it starts where there is nothing, and leaves a finished dataset
        as it is."""
        src = photos(tmp_path / "src", 5, 30)
        first = pack(src, tmp_path / "out", resume=True)
        before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
        second = pack(src, tmp_path / "out", resume=True)
        assert before == {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
        assert (second.samples, second.kept, second.packed_now) == (first.samples, first.kept, 0)

    def test_other_options_are_refused(self, tmp_path: Path) -> None:
        """What was begun one way is not finished another; the message names the option."""
        with pytest.raises(Interrupted):
            pack(Stops(50, 40), tmp_path / "out", on_error="skip", quality=90)
        with pytest.raises(PackError, match="quality=90"):
            pack(Stops(50, None), tmp_path / "out", on_error="skip", quality=80, resume=True)

    def test_another_source_of_what_is_not_written(self, tmp_path: Path) -> None:
        """As long as no shard is complete, a file more or less is no matter (test_resume.py has what is
        refused afterwards)."""
        src = photos(tmp_path / "src", 6, 30)
        (src / "c2" / "9999.jpg").write_bytes(b"broken")
        with pytest.raises(PackError, match=r"9999\.jpg"):
            pack(src, tmp_path / "out")
        (src / "c0" / "new.jpg").write_bytes(encoded(picture(1, 9, 9)))
        (src / "c2" / "9999.jpg").unlink()
        assert pack(src, tmp_path / "out", resume=True).samples == 7

    def test_after_a_repair(self, tmp_path: Path) -> None:
        """A broken file stops the pack; mended, --resume finishes it."""
        src = photos(tmp_path / "src", 6, 30)
        good = (src / "c2" / "0005.jpg").read_bytes()
        (src / "c2" / "0005.jpg").write_bytes(b"broken")
        with pytest.raises(PackError, match=r"0005\.jpg: .*resume"):
            pack(src, tmp_path / "out")
        (src / "c2" / "0005.jpg").write_bytes(good)
        assert pack(src, tmp_path / "out", resume=True).samples == 6


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 3 MiB, where this process may mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("a small file system cannot be mounted here (root needed)")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_full_disk(tmp_path: Path, small_disk: Path) -> None:
    """A clear error, nothing claimed that is not there, and --resume goes on once there is room."""
    src = photos(tmp_path / "src", 120, 250)
    total = sum(p.stat().st_size for p in src.rglob("*.jpg"))
    assert total > 3 << 20
    with pytest.raises(PackError, match=r"disk is full.*--resume"):
        pack(src, small_disk / "out", shard_size=1 << 20)
    assert not (small_disk / "out" / "manifest.json").exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    summary = pack(src, small_disk / "out", shard_size=1 << 20, resume=True)
    assert summary.samples == 120
    pack(src, tmp_path / "whole", shard_size=1 << 20)
    assert content(small_disk / "out") == content(tmp_path / "whole")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """OUT below a file: one error that names it."""
    src = photos(tmp_path / "src", 3, 30)
    (tmp_path / "file").touch()
    with pytest.raises(PackError, match="file"):
        pack(src, tmp_path / "file" / "out")


def test_manifest_is_plain_json(tmp_path: Path) -> None:
    """Options and counts can be read by anything that reads JSON."""
    src = photos(tmp_path / "src", 4, 30)
    pack(src, tmp_path / "out", quality=77)
    document = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert document["options"]["quality"] == 77
    assert document["summary"]["samples"] == 4
