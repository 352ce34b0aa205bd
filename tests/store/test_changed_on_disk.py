"""A shard that is cut or overwritten in place, as cp and rsync --inplace do: what was packed or an error, and
never a signal.

Each scenario runs in a child, so that a signal fails its test and not the whole run.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastload import FastLoader, PackedDataset
from fastload.errors import DatasetError, FastloadError, SampleError
from fastload.packing import unpack, verify
from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema

COUNT = 5000
SCHEMA = Schema((Field("image", "image"), Field("label", "int"), Field("caption", "text")))


def pixels(index: int) -> bytes:
    return bytes((index * 7 + k) % 256 for k in range(48))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw 4 x 4 images with a label and a caption, all in one shard."""
    out = tmp_path_factory.mktemp("changed") / "data.fl"
    with DatasetWriter(out, SCHEMA, shard_size=1 << 30, options={}) as writer:
        for i in range(COUNT):
            values = {"image": pixels(i), "label": i + 1, "caption": f"Nr. {i}"}
            writer.append(values, image_kind="raw", height=4, width=4)
        writer.finish(None, {})
    return out


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data.fl"))


def shard_of(path: Path) -> Path:
    return path / "shard-00000.lmdb"


def survives(action: Callable[[], None]) -> None:
    """The action ends by itself in a child: no signal, no exception."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFSIGNALED(status), f"killed by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0


def check_sample(reader: DatasetReader, index: int) -> bool:
    """Whether the sample can be read; if so it is what was packed."""
    try:
        fields = reader.record_fields(index)
    except SampleError as error:
        assert f"sample {index} of " in str(error)
        return False
    assert fields[0][2][12:] == pixels(index)
    return True


def overwrite(file: Path, offset: int, data: bytes) -> None:
    with open(file, "r+b") as out:
        out.seek(offset)
        out.write(data)


def test_cut_while_open(path: Path) -> None:
    """Columns stay what they were, records are read or are SampleErrors, at every length that the file is
    cut to."""

    def action() -> None:
        reader = DatasetReader(path)
        labels = reader.column("label")
        size = shard_of(path).stat().st_size
        for cut in [*range(size, 0, -size // 40), 4096, 1, 0]:
            os.truncate(shard_of(path), cut)
            assert np.array_equal(labels, np.arange(COUNT) + 1)
            assert np.array_equal(reader.column("__height__"), np.full(COUNT, 4))
            read = [check_sample(reader, i) for i in range(0, COUNT, 97)]
            assert all(read) or cut < size
        assert not any(read)

    survives(action)


def test_column_read_late(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was too large to be read at opening is a DatasetError once the file is cut."""
    monkeypatch.setattr("fastload.store.reader.HELD_BYTES", 0)

    def action() -> None:
        reader = DatasetReader(path)
        os.truncate(shard_of(path), 4096)
        with pytest.raises(DatasetError, match="cut after it was opened"):
            reader.column("label")

    survives(action)


def test_labels_overwritten(path: Path) -> None:
    """Another label on the disk is never delivered: the old ones where the dataset is open, and where it is
    opened then by its sidecar, which has a copy; a DatasetError where it is opened then by a walk."""

    def action() -> None:
        dataset = PackedDataset(path)
        content = shard_of(path).read_bytes()
        at = content.find(np.arange(1, 100, dtype="<i8").tobytes())
        overwrite(shard_of(path), at, (12345).to_bytes(8, "little"))
        assert dataset[0]["label"] == 1
        assert dataset.column("label")[0] == 1
        with FastLoader(dataset, batch_size=64) as loader:
            assert next(iter(loader))["label"].tolist() == list(range(1, 65))
        assert PackedDataset(path)[0]["label"] == 1
        with pytest.raises(DatasetError, match="column label"):
            DatasetReader(path, manifest=replace(Manifest.load(path), sidecars=()))

    survives(action)


@pytest.mark.parametrize("seed", range(2))
def test_pages_overwritten(path: Path, seed: int) -> None:
    """Random pages replaced under an open reader: its samples are right or SampleErrors; opening then is
    right or a DatasetError."""

    def action() -> None:
        rng = random.Random(seed)
        file = shard_of(path)
        pages = file.stat().st_size // 4096
        good = file.read_bytes()
        reader = DatasetReader(path)
        for _ in range(25):
            page = rng.choice((0, 1, rng.randrange(pages), pages - 1))
            overwrite(
                file,
                page * 4096,
                rng.choice((rng.randbytes(4096), bytes(4096), good[rng.randrange(pages) * 4096 :][:4096])),
            )
            for i in rng.sample(range(COUNT), 50):
                check_sample(reader, i)
            try:
                with DatasetReader(path) as again:
                    assert np.array_equal(again.column("label"), np.arange(COUNT) + 1)
                    check_sample(again, rng.randrange(COUNT))
            except DatasetError:
                pass
            overwrite(file, page * 4096, good[page * 4096 :][:4096])
        assert all(check_sample(reader, i) for i in range(0, COUNT, 97))

    survives(action)


def test_cut_while_opening(path: Path) -> None:
    """A file that is cut and restored again and again while it is opened: open, and right, or a
    DatasetError."""

    def action() -> None:
        file = shard_of(path)
        good = file.read_bytes()
        done = threading.Event()

        def copy_over() -> None:
            rng = random.Random(1)
            while not done.is_set():
                with open(file, "r+b") as out:
                    out.truncate(rng.randrange(len(good)))
                    out.write(good)

        thread = threading.Thread(target=copy_over)
        thread.start()
        try:
            for n in range(150):
                try:
                    with DatasetReader(path) as reader:
                        assert np.array_equal(reader.column("label"), np.arange(COUNT) + 1)
                        check_sample(reader, n)
                except DatasetError:
                    pass
        finally:
            done.set()
            thread.join()

    survives(action)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("step", [False, True], ids=["native", "python"])
def test_cut_while_a_loader_runs(path: Path, on_error: str, step: bool) -> None:
    """Every sample delivered is what was packed, with its own label; what cannot be read is a SampleError,
    or left out."""

    def action() -> None:
        transform = [lambda image: image] if step else None
        with FastLoader(
            PackedDataset(path, transform=transform),
            batch_size=50,
            on_error=on_error,
            num_workers=0 if step else 2,
        ) as loader:
            seen = 0
            try:
                for number, batch in enumerate(loader):
                    for image, label in zip(batch["image"], batch["label"].tolist(), strict=True):
                        assert image.permute(1, 2, 0).numpy().tobytes() == pixels(label - 1)
                    seen += len(batch["label"])
                    if number == 3:
                        os.truncate(shard_of(path), shard_of(path).stat().st_size // 2)
            except SampleError as error:
                assert on_error != "skip"
                assert str(path) in str(error)
            assert 200 <= seen < COUNT or on_error == "replace"

    survives(action)


def test_cut_under_the_tools(path: Path, tmp_path: Path) -> None:
    """verify and unpack of a cut dataset end with an answer or with an error of fastload's own."""

    def action() -> None:
        size = shard_of(path).stat().st_size
        for cut in (size // 2, 4096, 0):
            os.truncate(shard_of(path), cut)
            for tool in (lambda: verify(path), lambda: unpack(path, tmp_path / "out")):
                try:
                    tool()
                except FastloadError:
                    pass

    survives(action)
