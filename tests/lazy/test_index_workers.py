"""Entropy indexes in a loader: workers share what any of them has made, from epoch to epoch and, with
cache=, from run to run. Batches are torch's in every epoch."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handles import none_left
from own_photos import OwnPhotos
from pictures import photo
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from fastload import FastLoader
from fastload.dataset import index_cache
from fastload.errors import ArgumentError, WorkerError

COUNT = 10


class Crop:
    """A random crop, resized, as a tensor, by torch's generator."""

    def __call__(self, image: Image.Image) -> torch.Tensor:
        share, x, y = torch.rand(3).tolist()
        width, height = (int(side * (0.3 + share / 2)) for side in image.size)
        left, upper = int(x * (image.width - width)), int(y * (image.height - height))
        part = image.crop((left, upper, left + width, upper + height)).resize((40, 40))
        return torch.from_numpy(np.array(part)).permute(2, 0, 1)


class Killed(OwnPhotos):
    """Ends the process that makes sample 4, once a file says so."""

    def __getitem__(self, index: int) -> Any:
        if index == 4 and (self.paths[0].parent / "kill").exists():
            (self.paths[0].parent / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Stream(IterableDataset[Any]):
    """The same photographs one after another; worker k begins at the k-th."""

    def __init__(self, root: Path) -> None:
        self.photos = OwnPhotos(root, Crop())

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return (self.photos[index] for index in range(first, COUNT, step))


@pytest.fixture(autouse=True)
def no_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache keeps indexes alone: a file of which it has a form needs none."""
    monkeypatch.setattr("fastload.engines.processes.opened_indexes.FormsPlace", lambda *of: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Photographs that are large enough for an index each."""
    for number in range(COUNT):
        path = tmp_path / "photos" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        photo(number, 280 + 10 * number, 390).save(path, quality=95, subsampling=number % 3)
    return tmp_path / "photos"


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("*.jpg"))


def epochs(loader: Any, count: int = 3) -> Any:
    """The batches of so many epochs, and what is left of torch's generator."""
    torch.manual_seed(3)
    made = [[[part.tolist() for part in batch] for batch in loader] for _ in range(count)]
    return made, torch.get_rng_state().tolist()


def known(loader: FastLoader[Any]) -> tuple[int, int]:
    """Files with an index, and times that one was found, as explain() tells them."""
    line = next(each for each in loader.explain(all=True).splitlines() if each.startswith("indexes"))
    words = line.replace(",", "").split()
    return int(words[2]), int(words[words.index("found") + 1])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_are_torchs_in_every_epoch(root: Path, method: str, persistent: bool) -> None:
    """With workers that persist and with new ones; every file is walked once, by one of them."""
    data = OwnPhotos(root, Crop())
    options: dict[str, Any] = {
        "batch_size": 2,
        "shuffle": True,
        "num_workers": 2,
        "multiprocessing_context": method,
        "persistent_workers": persistent,
    }
    expected = epochs(DataLoader(data, **options))
    with none_left("shared_indexes"):
        with FastLoader(data, **options) as loader:
            assert epochs(loader) == expected
            assert known(loader) == (COUNT, 2 * COUNT)
        del loader


def test_no_memory_beyond_its_share(root: Path) -> None:
    """Two hundredths of the files, and the table's beginning."""
    with FastLoader(OwnPhotos(root, Crop()), batch_size=2, num_workers=2) as loader:
        epochs(loader)
        opened = loader._fastload.opened
        assert opened is not None
        assert opened.memory is not None
        assert opened.memory.learnt()[1] - 12288 <= 0.02 * size_of(root)


def test_a_killed_worker_costs_its_own_batch(root: Path) -> None:
    """Workers in its place find what was made before, and batches stay torch's."""
    data = Killed(root, Crop())
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork"}
    expected = epochs(DataLoader(data, **options), 2)
    with FastLoader(data, **options) as loader:
        (root / "kill").write_text("")
        with pytest.raises(WorkerError, match="SIGKILL"):
            list(loader)
        made, _ = known(loader)
        assert epochs(loader, 2) == expected
        assert known(loader)[0] == COUNT
        assert known(loader)[1] >= COUNT + made


def test_a_file_that_changes_between_epochs(root: Path) -> None:
    """Other bytes under a name, of the same size and time or not, are another file."""
    data = OwnPhotos(root, Crop())
    path = data.paths[3]
    first = path.read_bytes()
    other = io_bytes(photo(50, 300, 390))[: len(first)].ljust(len(first), b"\0")
    loaders = [
        kind(data, batch_size=2, num_workers=1, persistent_workers=True) for kind in (DataLoader, FastLoader)
    ]
    for content in (first, other, first[:-900] + bytes(898) + b"\xff\xd9", first):
        before = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        theirs, ours = (epochs(loader, 1) for loader in loaders)
        assert ours == theirs
    assert known(loaders[1])[0] >= COUNT


def io_bytes(image: Image.Image) -> bytes:
    import io

    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return out.getvalue()


def test_a_cut_file_raises_what_it_raises(root: Path) -> None:
    """In each epoch, also after it was whole."""
    data = OwnPhotos(root, Crop())
    with FastLoader(data, batch_size=2, num_workers=1) as loader:
        epochs(loader, 1)
        data.paths[5].write_bytes(data.paths[5].read_bytes()[:-4000])
        for _ in range(2):
            with pytest.raises(OSError, match="truncated"):
                list(loader)


def test_an_iterable_dataset(root: Path) -> None:
    """Streams open files too."""
    data = Stream(root)
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2}
    expected = epochs(DataLoader(data, **options))
    with FastLoader(data, **options) as loader:
        assert epochs(loader) == expected
        assert known(loader) == (COUNT, 2 * COUNT)


def test_in_the_calling_process(root: Path) -> None:
    """lazy="exact" has them there as well."""
    data = OwnPhotos(root, Crop())
    expected = epochs(DataLoader(data, batch_size=2))
    with FastLoader(data, batch_size=2, lazy="exact") as loader:
        assert epochs(loader) == expected
        assert known(loader) == (COUNT, 2 * COUNT)


@pytest.mark.parametrize(
    "options", [{"num_workers": 0}, {"num_workers": 1, "lazy": False}, {"num_workers": 1, "engine": "python"}]
)
def test_where_pillow_is_left_alone(root: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """No memory, no folder, no line."""
    cache = tmp_path / "cache"
    with FastLoader(OwnPhotos(root, Crop()), batch_size=2, cache=cache, **options) as loader:
        list(loader)
        assert loader._fastload.opened is None
        assert "indexes" not in loader.explain(all=True)
    assert not cache.exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_folder_keeps_them_for_the_next_run(root: Path, tmp_path: Path, workers: int) -> None:
    """Another loader begins with what the first learnt; explain() names the file; two of other lengths have
    files of their own."""
    data, cache = OwnPhotos(root, Crop()), tmp_path / "made" / "cache"
    options: dict[str, Any] = {"batch_size": 2, "num_workers": workers, "lazy": "exact", "cache": cache}
    expected = epochs(DataLoader(data, batch_size=2, num_workers=workers), 2)
    with FastLoader(data, **options) as loader:
        assert epochs(loader, 2) == expected
    (file,) = cache.rglob("*.index")
    assert file.stat().st_size <= 0.02 * size_of(root)
    with FastLoader(data, **options) as loader:
        assert epochs(loader, 2) == expected
        assert known(loader) == (COUNT, 2 * COUNT)
        assert file.parent.name in "".join(loader.explain(all=True).split())
    shorter = OwnPhotos(root, Crop())
    shorter.paths = shorter.paths[:4]
    with FastLoader(shorter, **options) as loader:
        list(loader)
        assert known(loader) == (4, 0)
    assert len(list(cache.rglob("*.index"))) == 2


def hostile(cache: Path, kind: str) -> None:
    """Changes the one file of a folder."""
    (path,) = cache.rglob("*.index")
    data = path.read_bytes()
    if kind == "link":
        path.rename(cache.parent / "elsewhere")
        path.symlink_to(cache.parent / "elsewhere")
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "unreadable":
        path.unlink()
        os.mkfifo(path)
    elif kind == "lies":  # each index under the key of another file, in a file that is whole
        count, size = (int.from_bytes(data[at : at + 8], "little") for at in (8, 16))
        keys = [data[32 + 12 * at : 40 + 12 * at] for at in range(count)]
        sizes = [data[40 + 12 * at : 44 + 12 * at] for at in range(count)]
        turned = keys[1:] + keys[:1]
        body = b"".join(a + b for a, b in zip(turned, sizes, strict=True)) + data[-size:]
        path.write_bytes(data[:24] + core_crc(body).to_bytes(4, "little") + data[28:32] + body)
    elif kind == "huge":
        path.write_bytes(data[:8] + (1 << 60).to_bytes(8, "little") + data[16:])
    else:
        at = {"magic": 3, "count": 8, "sum": 25, "key": 33, "index": len(data) - 40}[kind]
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])


def core_crc(data: bytes) -> int:
    from fastload._native import core

    return core.crc32c(data)


HOSTILE = ("magic", "count", "sum", "key", "index", "huge", "link", "folder", "unreadable", "lies")


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_folder_costs_time_alone(root: Path, tmp_path: Path, kind: str) -> None:
    """A file that is damaged, no file, or full of other files' indexes changes no pixel; what is no cache of
    ours counts as none, and is left alone where it cannot be replaced."""
    data, cache = OwnPhotos(root, Crop()), tmp_path / "cache"
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 1, "cache": cache}
    expected = epochs(DataLoader(data, batch_size=2, num_workers=1), 2)
    with FastLoader(data, **options) as loader:
        epochs(loader, 1)
    hostile(cache, kind)
    with FastLoader(data, **options) as loader, warnings.catch_warnings():
        if kind == "folder":  # which cannot be replaced
            warnings.simplefilter("ignore")
        loader._fastload.indexes(loader._fastload.plan)
        assert known(loader) == ((COUNT, 0) if kind == "lies" else (0, 0))
        assert epochs(loader, 2) == expected
        assert known(loader)[0] == COUNT
    if kind == "link":
        assert (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_refused(root: Path, tmp_path: Path) -> None:
    """When the loader is made, not in the loop."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="is no folder"):
        FastLoader(OwnPhotos(root, Crop()), num_workers=1, cache=tmp_path / "file" / "cache")


def test_memory_that_is_full(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches stay torch's; what was kept is found."""
    monkeypatch.setattr("fastload.engines.processes.opened_indexes.index_room", lambda: 1 << 16)
    data = OwnPhotos(root, Crop())
    data.paths = [*data.paths] * 2
    for number, path in enumerate(data.paths[COUNT:]):
        copy = path.with_name(f"b{number}.jpg")
        photo(70 + number, 1000, 1300).save(copy, quality=98)
        data.paths[COUNT + number] = copy
    expected = epochs(DataLoader(data, batch_size=2, num_workers=2), 2)
    with FastLoader(data, batch_size=2, num_workers=2) as loader:
        assert epochs(loader, 2) == expected
        files, found = known(loader)
        assert 0 < files < 2 * COUNT
        assert found >= files


def test_no_memory_for_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader works without, and explain() says why."""
    monkeypatch.setattr("fastload.engines.processes.opened_indexes.index_room", lambda: 1 << 62)
    data = OwnPhotos(root, Crop())
    expected = epochs(DataLoader(data, batch_size=2, num_workers=1), 2)
    with FastLoader(data, batch_size=2, num_workers=1) as loader:
        assert epochs(loader, 2) == expected
        assert "indexes    none: " in loader.explain(all=True)


def test_room_is_a_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between 16 MiB and 4 GiB; 256 MiB where nobody knows."""
    for free, room in ((None, 256 << 20), (0, 16 << 20), (64 << 30, 2 << 30), (1 << 40, 4 << 30)):
        monkeypatch.setattr(index_cache, "available_memory", lambda free=free: free)
        assert index_cache.index_room() == room
