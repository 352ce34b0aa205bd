"""A pack that stopped late goes on: what may have changed meanwhile, what may not, and that the advice it
gives can be typed."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import warm
from packing_helpers import encoded, picture, stored_samples, tree
from PIL import Image

from fastload.common.spill import Numbers
from fastload.errors import PackError, PackStoppedError
from fastload.packing import Item, open_source, pack, unpack, verify
from fastload.packing.origins import name_digests, shuffled
from fastload.sources.folder import FolderSource
from fastload.sources.unpacked import UnpackedSource
from fastload.store import Manifest

COUNT = 60
BAD = 55
OPTIONS: dict[str, Any] = {"shard_size": 1 << 20, "workers": 2}


@pytest.fixture(scope="module")
def images() -> list[bytes]:
    """Images of some 60 KB, so that shards of 1 MiB hold a handful: the last bad one comes when two are
    complete."""
    rng = np.random.default_rng(3)
    return [encoded(picture(i, 220, 220), quality=98, comment=rng.bytes(8)) for i in range(COUNT)]


def folder(root: Path, images: list[bytes], bad: int = BAD) -> Path:
    """All in one class, so that the order is that of the names; number `bad` cannot be decoded."""
    return tree(root, {f"c/{i:04d}.jpg": b"broken" if i == bad else data for i, data in enumerate(images)})


def stop(src: Path, out: Path, **options: Any) -> None:
    """A pack that stops at the bad file, with at least one shard complete."""
    with pytest.raises(PackStoppedError, match="resume=True"):
        pack(src, out, **{**OPTIONS, **options})
    assert (out / "progress.samples").stat().st_size > 0


def content(out: Path) -> list[tuple[bytes, dict[str, Any]]]:
    return [
        (s.data, {name: np.asarray(v).tolist() for name, v in s.values.items()}) for s in stored_samples(out)
    ]


def same(out: Path, src: Path, whole: Path, **options: Any) -> None:
    """The dataset is, byte for byte, what a pack without interruption makes of the source as it is now."""
    pack(src, whole, **{**OPTIONS, **options})
    for name in sorted({*os.listdir(whole), *os.listdir(out)} - {"manifest.json"}):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert Manifest.load(out).shards == Manifest.load(whole).shards
    assert verify(out).ok


class Unplugged(Exception):
    """What ends a pack here as a kill would."""


class Unplugs(FolderSource):
    """A folder that cannot be read from some position on."""

    def __init__(self, root: str, at: int) -> None:
        super().__init__(root)
        self.at = at

    def read(self, position: int) -> Item:
        if position >= self.at:
            raise Unplugged
        return super().read(position)


class TestWhatMayChange:
    def test_on_error(self, tmp_path: Path, images: list[bytes]) -> None:
        """--resume --on-error skip leaves the bad one out and keeps the shards that were complete."""
        src = folder(tmp_path / "src", images)
        stop(src, tmp_path / "out")
        summary = pack(src, tmp_path / "out", resume=True, on_error="skip", shard_size=1 << 20, workers=1)
        assert (summary.samples, summary.skipped_count) == (COUNT - 1, 1)
        assert summary.packed_now < COUNT - 10
        same(tmp_path / "out", src, tmp_path / "whole", on_error="skip")

    @pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 4}])
    def test_the_bad_file_is_removed(
        self, tmp_path: Path, images: list[bytes], options: dict[str, Any]
    ) -> None:
        """Removed, the rest is packed as if it had never been there; shuffled too, since a file less
        leaves the order of the others."""
        bad = BAD
        if options:  # the one that comes 55th
            names = name_digests(open_source(folder(tmp_path / "probe", images)))
            bad = int(shuffled(names, 4)[BAD])
        src = folder(tmp_path / "src", images, bad)
        stop(src, tmp_path / "out", **options)
        (src / "c" / f"{bad:04d}.jpg").unlink()
        assert pack(src, tmp_path / "out", resume=True, **OPTIONS, **options).packed_now < COUNT - 10
        same(tmp_path / "out", src, tmp_path / "whole", **options)

    def test_the_bad_file_is_replaced(self, tmp_path: Path, images: list[bytes]) -> None:
        """A good one in its place is packed."""
        src = folder(tmp_path / "src", images)
        stop(src, tmp_path / "out")
        (src / "c" / f"{BAD:04d}.jpg").write_bytes(images[BAD])
        assert pack(src, tmp_path / "out", resume=True, **OPTIONS).samples == COUNT
        same(tmp_path / "out", src, tmp_path / "whole")

    def test_files_after_those_written(self, tmp_path: Path, images: list[bytes]) -> None:
        """New files behind what is written are packed, a limit may be raised or set, and times of change
        do not matter."""
        src = folder(tmp_path / "src", images)
        stop(src, tmp_path / "out", limit=BAD + 1)
        (src / "c" / f"{BAD:04d}.jpg").unlink()
        (src / "c" / "0054b.jpg").write_bytes(images[0])
        (src / "c" / "9999.jpg").write_bytes(images[1])
        for path in src.rglob("*.jpg"):
            os.utime(path, ns=(0, 12345))
        assert pack(src, tmp_path / "out", resume=True, **OPTIONS).samples == COUNT + 1
        same(tmp_path / "out", src, tmp_path / "whole")

    def test_another_place(self, tmp_path: Path, images: list[bytes]) -> None:
        """The source may have been moved."""
        src = folder(tmp_path / "src", images)
        stop(src, tmp_path / "out")
        src.rename(tmp_path / "moved")
        assert (
            pack(tmp_path / "moved", tmp_path / "out", resume=True, on_error="skip", **OPTIONS).samples
            == COUNT - 1
        )

    def test_samples_that_were_left_out(self, tmp_path: Path, images: list[bytes]) -> None:
        """Those may go, or be mended, without a word: they stay left out, over several resumes."""
        src = folder(tmp_path / "src", images, 2)
        (src / "c" / "0004.jpg").write_bytes(b"broken too")
        (src / "c" / "0050.jpg").write_bytes(encoded(picture(0, 300, 300)))
        small = {**OPTIONS, "max_pixels": 250 * 250}
        with pytest.raises(Unplugged):
            pack(Unplugs(str(src), 45), tmp_path / "out", on_error="skip", **small)
        (src / "c" / "0002.jpg").unlink()
        (src / "c" / "0004.jpg").write_bytes(images[4])
        with pytest.raises(PackStoppedError, match=r"0050\.jpg"):
            pack(src, tmp_path / "out", resume=True, **small)
        summary = pack(src, tmp_path / "out", resume=True, **OPTIONS)
        assert (summary.samples, summary.skipped_count) == (COUNT - 2, 2)
        assert Manifest.load(tmp_path / "out").options["max_pixels"] == 1 << 28


class TestWhatMayNot:
    @pytest.fixture
    def stopped(self, tmp_path: Path, images: list[bytes]) -> tuple[Path, Path]:
        src = folder(tmp_path / "src", images)
        stop(src, tmp_path / "out")
        return src, tmp_path / "out"

    def refused(self, stopped: tuple[Path, Path], match: str, **options: Any) -> None:
        """Refused with the reason and a way on; what is written stays as it is, and goes on once the
        reason is gone."""
        src, out = stopped
        shards = {path.name: path.read_bytes() for path in out.glob("shard-*")}
        with pytest.raises(PackError, match=match) as caught:
            pack(src, out, resume=True, **{**OPTIONS, "on_error": "skip", **options})
        assert "--overwrite starts again" in str(caught.value)
        found = {path.name: path.read_bytes() for path in out.glob("shard-*")}
        assert found.items() <= shards.items()
        assert "shard-00000.lmdb" in found

    def test_a_file_before_those_written(self, stopped: tuple[Path, Path], images: list[bytes]) -> None:
        """It would shift all samples behind it: refused, by its name."""
        src, out = stopped
        (src / "c" / "0003b.jpg").write_bytes(images[0])
        self.refused(stopped, r"c/0003b\.jpg was not there when the pack was begun")
        (src / "c" / "0003b.jpg").unlink()
        assert pack(src, out, resume=True, on_error="skip", **OPTIONS).samples == COUNT - 1

    def test_a_written_file_removed(self, stopped: tuple[Path, Path]) -> None:
        """The message says between which samples it was."""
        (stopped[0] / "c" / "0003.jpg").unlink()
        self.refused(stopped, r"no longer after .*c/0002\.jpg, where .*c/0004\.jpg is now")

    @pytest.mark.parametrize("same_size", [False, True])
    def test_a_written_file_changed(
        self, stopped: tuple[Path, Path], images: list[bytes], same_size: bool
    ) -> None:
        """By size, or by content where the size is the same; the file is named."""
        path = stopped[0] / "c" / "0003.jpg"
        path.write_bytes(images[3][:-3] + b"abc" if same_size else images[3] + b"x")
        self.refused(stopped, r"c/0003\.jpg has changed since it was written")
        path.write_bytes(images[3])
        assert pack(*stopped, resume=True, on_error="skip", **OPTIONS).samples == COUNT - 1

    def test_a_class_before_the_others(self, stopped: tuple[Path, Path], images: list[bytes]) -> None:
        """A class that sorts in front changes every label."""
        tree(stopped[0], {"a/1.jpg": images[0]})
        self.refused(stopped, r"a/1\.jpg was not there")

    def test_encoding_and_order(self, stopped: tuple[Path, Path]) -> None:
        """encode, the size of shards and the shuffle are those it was begun with."""
        self.refused(stopped, "begun with encode='lossless', now it is 'keep'", encode="keep")
        self.refused(stopped, "begun with shuffle=False", shuffle=True)
        self.refused(stopped, "begun with shard_size", shard_size=2 << 20)

    def test_a_limit_below_what_is_written(self, stopped: tuple[Path, Path]) -> None:
        """There is no taking back."""
        self.refused(
            stopped,
            r"after .*c/0004\.jpg there are no more samples, but [0-9]+ more are written already",
            limit=5,
        )


class Bytes:
    """A Dataset of files' bytes and numbers. It knows of no files, so that names alone say nothing of its
    samples."""

    def __init__(self, images: list[bytes], labels: list[int]) -> None:
        self.images, self.labels, self.read = images, labels, [0] * len(images)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        self.read[index] += 1
        return self.images[index], self.labels[index]


class TestSourcesWithoutFiles:
    """A source that cannot say whether a sample is unchanged: the resume reads it, and does not trust its
    name."""

    @pytest.fixture
    def given(self, images: list[bytes]) -> list[bytes]:
        return [*images[:BAD], b"broken", *images[BAD + 1 :]]

    def test_a_dataset(self, tmp_path: Path, images: list[bytes], given: list[bytes]) -> None:
        """Unchanged, it goes on; with another image or label among those written it is refused by the
        sample's name."""
        labels = list(range(COUNT))
        stop(Bytes(given, labels), tmp_path / "out")  # type: ignore[arg-type]
        for changed in (Bytes([images[1], *images[1:]], labels), Bytes(images, [7, *labels[1:]])):
            with pytest.raises(
                PackError,
                match=(
                    r"Bytes\[0\] has changed since it was written, or Bytes gives another sample at "
                    r"every reading"
                ),
            ):
                pack(changed, tmp_path / "out", resume=True, **OPTIONS)
        later = Bytes(images, [*labels[:BAD], 70, *labels[BAD + 1 :]])
        summary = pack(later, tmp_path / "out", resume=True, **OPTIONS)
        assert summary.samples == COUNT
        assert 0 < summary.packed_now < COUNT - 10
        assert content(tmp_path / "out")[BAD][1]["label"] == 70
        assert min(later.read[:BAD]) >= 1

    def test_another_field_of_a_dataset(self, tmp_path: Path, given: list[bytes]) -> None:
        """A value beside the label that is another now is found, though many samples have that label;
        unchanged, the pack goes on."""
        rows = [{"image": data, "label": i % 2, "note": f"note {i}"} for i, data in enumerate(given)]
        stop(Listed(rows), tmp_path / "out")
        with pytest.raises(PackError, match=r"Listed\[4\] has changed since it was written"):
            pack(
                Listed([*rows[:4], {**rows[4], "note": "another"}, *rows[5:]]),
                tmp_path / "out",
                resume=True,
                **OPTIONS,
            )
        assert (
            pack(Listed(rows), tmp_path / "out", resume=True, on_error="skip", **OPTIONS).samples == COUNT - 1
        )

    def test_random_samples(self, tmp_path: Path, images: list[bytes], given: list[bytes]) -> None:
        """A Dataset that gives another sample at each reading cannot be resumed: the message says so."""

        class Random(Bytes):
            def __getitem__(self, index: int) -> tuple[bytes, int]:
                image, _ = super().__getitem__(index)
                return image, self.read[index]

        source = Random(given, [0] * COUNT)
        stop(source, tmp_path / "out")  # type: ignore[arg-type]
        with pytest.raises(
            PackError,
            match=(
                r"gives another sample at every reading, which cannot be resumed: .*--overwrite starts "
                r"again"
            ),
        ):
            pack(source, tmp_path / "out", resume=True, **OPTIONS)

    @pytest.mark.parametrize("ending", ["parquet", "arrow"])
    def test_images_beside_a_table(
        self, tmp_path: Path, images: list[bytes], given: list[bytes], ending: str
    ) -> None:
        """A changed image of the same size is found where Parquet and Arrow files only name their images."""
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        tree(tmp_path, {f"{i:04d}.jpg": data for i, data in enumerate(given)})
        kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        rows = [{"bytes": None, "path": f"{i:04d}.jpg"} for i in range(COUNT)]
        table = arrow.table({"image": arrow.array(rows, kind), "label": list(range(COUNT))})
        source = tmp_path / f"x.{ending}"
        if ending == "parquet":
            parquet.write_table(table, source, row_group_size=16)
        else:
            with arrow.OSFile(str(source), "wb") as file, arrow.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=16)
        stop(source, tmp_path / "out")
        (tmp_path / "0003.jpg").write_bytes(images[3][:-3] + b"abc")
        with pytest.raises(
            PackError, match=rf"x\.{ending}: row 3 has changed since it was written: restore it"
        ):
            pack(source, tmp_path / "out", resume=True, on_error="skip", **OPTIONS)
        (tmp_path / "0003.jpg").write_bytes(images[3])
        assert pack(source, tmp_path / "out", resume=True, on_error="skip", **OPTIONS).samples == COUNT - 1

    def test_further_pictures_of_an_unpacked_folder(self, tmp_path: Path, images: list[bytes]) -> None:
        """A changed second picture is found in a folder that `unpack` wrote."""
        pairs = [{"image": data, "image2": Image.open(io.BytesIO(data))} for data in images]
        pack(Listed(pairs), tmp_path / "ds", encode="keep")
        unpack(tmp_path / "ds", tmp_path / "files")
        source = UnpackedSource(str(tmp_path / "files"))
        broken = Path(source.name(BAD))
        broken.write_bytes(b"broken")
        stop(tmp_path / "files", tmp_path / "out")
        further = next(
            path
            for path in sorted((tmp_path / "files").rglob("*.*"))
            if "0000" in path.name and str(path) != source.name(0)
        )
        whole = further.read_bytes()
        further.write_bytes(encoded(picture(99, 220, 220), "PNG"))
        with pytest.raises(PackError, match="has changed since it was written: restore it"):
            pack(tmp_path / "files", tmp_path / "out", resume=True, on_error="skip", **OPTIONS)
        further.write_bytes(whole)
        assert (
            pack(tmp_path / "files", tmp_path / "out", resume=True, on_error="skip", **OPTIONS).samples
            == COUNT - 1
        )


class Listed(list[Any]):
    """A Dataset of what it lists."""


def test_labels_of_a_table(tmp_path: Path, images: list[bytes]) -> None:
    """A label changed in a line that is written is refused by the name of its file; behind it, it may
    change."""
    tree(tmp_path, {f"{i:04d}.jpg": b"" if i == BAD else data for i, data in enumerate(images)})
    table = tmp_path / "list.csv"

    def write(labels: dict[int, str]) -> None:
        table.write_text(
            "path,label\n" + "".join(f"{i:04d}.jpg,{labels.get(i, 'ab'[i % 2])}\n" for i in range(COUNT))
        )

    write({})
    stop(table, tmp_path / "out")
    write({3: "a", 58: "b"})
    with pytest.raises(PackError, match=r"0003\.jpg has changed since it was written: its label"):
        pack(table, tmp_path / "out", resume=True, on_error="skip", **OPTIONS)
    write({58: "b", 59: "c"})
    pack(table, tmp_path / "out", resume=True, on_error="skip", **OPTIONS)
    assert content(tmp_path / "out")[-1][1]["label"] == 2


def test_a_tar(tmp_path: Path, images: list[bytes]) -> None:
    """Written anew with the bad sample mended, a tar goes on; with a written one changed, it is refused by
    name."""

    def write(changed: dict[int, bytes]) -> None:
        staged = tree(
            tmp_path / "staged", {f"{i:04d}.jpg": changed.get(i, data) for i, data in enumerate(images)}
        )
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            for path in sorted(staged.iterdir()):
                tar.add(path, path.name)

    write({BAD: b"broken"})
    stop(tmp_path / "x.tar", tmp_path / "out")
    write({3: images[3][:-3] + b"abc"})
    with pytest.raises(PackError, match=r"x\.tar:0003 has changed"):
        pack(tmp_path / "x.tar", tmp_path / "out", resume=True, **OPTIONS)
    write({})
    assert pack(tmp_path / "x.tar", tmp_path / "out", resume=True, **OPTIONS).samples == COUNT


def test_a_finished_dataset_of_other_samples(tmp_path: Path, images: list[bytes]) -> None:
    """--resume of a finished dataset leaves it, whatever on_error says now, but not for another source or
    limit."""
    src = folder(tmp_path / "src", images[:6])
    pack(src, tmp_path / "out")
    assert pack(src, tmp_path / "out", resume=True, on_error="skip").packed_now == 0
    with pytest.raises(PackError, match=r"is complete, with limit=None where it is 3 now: --overwrite"):
        pack(src, tmp_path / "out", resume=True, limit=3)
    (src / "c" / "0001.jpg").unlink()
    with pytest.raises(PackError, match=r"is complete, with source_digest="):
        pack(src, tmp_path / "out", resume=True)


def test_a_damaged_log(tmp_path: Path, images: list[bytes]) -> None:
    """What the journal does not vouch for is not believed."""
    src = folder(tmp_path / "src", images)
    stop(src, tmp_path / "out")
    log = tmp_path / "out" / "progress.samples"
    data = bytearray(log.read_bytes())
    data[5] ^= 1
    log.write_bytes(data)
    with pytest.raises(PackError, match=r"progress\.samples is not of the size and checksum.*--overwrite"):
        pack(src, tmp_path / "out", resume=True, **OPTIONS)


def drawn(names: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.int64]:
    """The whole order of a shuffle."""
    return shuffled(Numbers("<u8", names), seed).read(0, len(names))


def test_shuffle_of_equal_names() -> None:
    """A permutation, also where names repeat; a name less leaves the order of the others; seeds differ."""
    names = np.array([5, 7, 5, 5, 9, 11, 7], np.uint64)
    order = drawn(names, 1)
    assert sorted(order) == list(range(7))
    fewer = drawn(np.delete(names, 4), 1)
    assert [int(names[p]) for p in order if names[p] != 9] == [int(np.delete(names, 4)[p]) for p in fewer]
    many = np.random.default_rng(0).integers(0, 2**63, 1000).astype(np.uint64)
    assert list(drawn(many, 1)) != list(drawn(many, 2))
    places = np.empty(1000)
    places[drawn(np.sort(many), 1)] = np.arange(1000)
    assert abs(np.corrcoef(places, np.arange(1000))[0, 1]) < 0.1


def test_the_printed_commands_work(tmp_path: Path, images: list[bytes]) -> None:
    """A failed `fastload pack` prints two commands; each, typed as printed, ends in a dataset."""

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        assert command[:2] == ["fastload", "pack"]
        return warm.fastload(*command[1:], "-q", folder=tmp_path)

    folder(tmp_path / "my photos", images)
    printed = []
    for out in ("a", "b"):
        failed = run(
            [
                "fastload",
                "pack",
                "my photos",
                out,
                "--shard-size",
                "1MiB",
                "--on-error",
                "raise",
                "--overwrite",
            ]
        )
        assert failed.returncode == 2
        assert len(failed.stderr.splitlines()) == 1
        printed.append(re.findall(r"`([^`]*)`", failed.stderr))
    (_, skip), (mended, _) = printed
    assert "--overwrite" not in skip + mended
    assert run(shlex.split(skip)).returncode == 0
    assert Manifest.load(tmp_path / "a").count == COUNT - 1
    (tmp_path / "my photos" / "c" / f"{BAD:04d}.jpg").unlink()
    assert run(shlex.split(mended)).returncode == 0
    assert content(tmp_path / "a") == content(tmp_path / "b")
