"""Files that are no usual JPEG, damaged, changed or gone: the samples and errors of the dataset itself
(fastload/dataset/in_place/torchvision.py).
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from early import read_early
from in_place_helpers import EXACT, assert_as_torch, folder, image_folder, pets, save
from pictures import photo, with_scans
from PIL import Image
from png_maker import interlaced
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from torchvision.transforms import v2

from fastload import FastLoader
from fastload import transforms as T
from fastload._native import core
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.datasets import InPlaceDatasets
from fastload.errors import SampleError


def add_odd(root: Path) -> list[str]:
    """Files that native threads leave to Pillow, and JPEGs of rarer kinds that they decode; returns the
    names of the former."""
    picture, folder_ = photo(1, 90, 100), root / "class0"
    picture.save(folder_ / "a.png")
    picture.quantize(16).save(folder_ / "palette.png")
    picture.convert("RGBA").save(folder_ / "alpha.png")
    Image.fromarray(np.arange(8000, dtype=np.uint16).reshape(80, 100)).save(folder_ / "deep.png")
    picture.save(folder_ / "w.webp")
    picture.save(folder_ / "b.bmp")
    (folder_ / "p.jpg").write_bytes((folder_ / "a.png").read_bytes())
    picture.convert("CMYK").save(folder_ / "cmyk.jpg")
    picture.convert("L").save(folder_ / "grey.jpg")
    save(folder_ / "progressive.jpg", 3, progressive=True)
    save(folder_ / "restarts.jpg", 4, restart_marker_blocks=2)
    save(folder_ / "full.jpg", 5, subsampling=0)
    with open(save(folder_ / "trailing.jpg", 6), "ab") as file:
        file.write(b"\0" * 100 + (folder_ / "full.jpg").read_bytes())
    (folder_ / "turns.png").write_bytes(interlaced(np.asarray(picture)))
    return ["b.bmp", "turns.png"]


def test_every_format_gives_pillows_pixels(tmp_path: Path) -> None:
    image_folder(tmp_path, 60)
    odd = add_odd(tmp_path)
    loader = assert_as_torch(datasets.ImageFolder(str(tmp_path), EXACT))
    assert loader.stats()["loaded"] == len(odd)
    assert "Pillow" in loader.health.report()
    list(loader)
    assert loader.stats()["loaded"] == 2 * len(odd)


def test_several_are_opened_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: None
) -> None:
    """By the loader's own threads, at most two for each; rows keep their places, and a file that cannot be
    opened is that row's error."""
    root = image_folder(tmp_path, 60)
    for number in range(6):
        photo(number, 90, 100).save(root / "class1" / f"{number:02d}.bmp")
    (root / "class1" / "05.bmp").write_bytes(b"BM nothing")
    under_way, most = 0, 0
    lock, both = threading.Lock(), threading.Event()
    load = InPlaceDataset.load

    def slow(self: InPlaceDataset, index: int) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            if under_way == 2:
                both.set()
        both.wait(10)
        try:
            return load(self, index)
        finally:
            with lock:
                under_way -= 1

    monkeypatch.setattr(InPlaceDataset, "load", slow)
    dataset = datasets.ImageFolder(str(root), EXACT)
    bad = next(index for index, (path, _) in enumerate(dataset.samples) if path.endswith("05.bmp"))
    with FastLoader(dataset, batch_size=len(dataset), num_workers=2, on_error="skip") as loader:
        ((images, labels),) = loader
        assert (loader.stats()["loaded"], loader.stats()["skipped"]) == (5, 1)
    theirs = [dataset[index] for index in range(len(dataset)) if index != bad]
    assert torch.equal(images, torch.stack([image for image, _ in theirs]))
    assert labels.tolist() == [label for _, label in theirs]
    assert most == 2


def test_progressive_jpegs_that_stop_early_are_opened_by_pillow(tmp_path: Path) -> None:
    """Releases of libjpeg-turbo smooth a file without full precision in different ways: its pixels are
    those of Pillow's libjpeg-turbo."""
    whole = save(image_folder(tmp_path) / "class0" / "whole.jpg", 3, progressive=True).read_bytes()
    stops = {count: with_scans(whole, count) for count in range(1, 11)}
    assert stops[10] == whole
    assert len(set(stops.values())) == 10
    for count, data in stops.items():
        (tmp_path / "class0" / f"stops{count}.jpg").write_bytes(data)
    loader = assert_as_torch(datasets.ImageFolder(str(tmp_path), EXACT))
    early = sum(core.jpeg_survey(data)[2] for data in stops.values())
    assert loader.stats()["loaded"] == early > 4


def each(loader: Any) -> Iterator[Any]:
    """A loader's batches, or the exceptions in their places."""
    batches = iter(loader)
    while True:
        try:
            yield next(batches)
        except StopIteration:
            return
        except Exception as error:
            yield error


def assert_same(dataset: Any, loader: Any) -> tuple[int, int]:
    """Sample by sample the pixels or the error of the dataset; returns how many of each."""
    good = bad = 0
    for index, found in enumerate(each(loader)):
        try:
            image, label = dataset[index]
        except Exception as error:
            assert (type(found), str(found)) == (type(error), str(error)), dataset.samples[index]
            bad += 1
        else:
            assert not isinstance(found, Exception), (found, dataset.samples[index])
            assert torch.equal(found[0][0], image), dataset.samples[index]
            assert found[1].tolist() == [label]
            good += 1
    return good, bad


@pytest.mark.parametrize("seed", range(2))
def test_damaged_files_are_what_pillow_makes_of_them(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    sources = [
        save(tmp_path / "kept" / f"{n}.jpg", n, **options).read_bytes() for n, options in enumerate(KINDS)
    ]
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for number in range(150):
        data = bytearray(draw.choice(sources))
        for _ in range(draw.choice((1, 1, 2, 4))):
            at = draw.randrange(2, len(data))
            data[at : at + draw.choice((0, 1, 1, 3))] = draw.randbytes(draw.choice((0, 1, 1, 2)))
        (tmp_path / "tree" / "a" / f"{number:03d}.jpg").write_bytes(
            data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]
        )
    dataset = datasets.ImageFolder(str(tmp_path / "tree"), EXACT)
    good, bad = assert_same(dataset, FastLoader(dataset, num_workers=2, engine="native"))
    assert min(good, bad) > 10


KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"progressive": True},
    {"subsampling": 0},
    {"restart_marker_blocks": 3},
    {"quality": 30},
)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_odd_jpegs_of_the_shared_folder(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = sorted(
        path for part in ("torture", "findings") for path in (shared / part).rglob("*") if path.is_file()
    )
    for number, path in enumerate(files):
        if path.suffix not in (".md", ".txt", ".json", ".py"):
            os.symlink(path, tmp_path / "a" / f"{number:04d}.jpg")
    dataset = datasets.ImageFolder(str(tmp_path), EXACT)
    assert sum(assert_same(dataset, FastLoader(dataset, num_workers=1, engine="native"))) == len(dataset) > 20


def test_a_dataset_without_a_loader_opens_odd_files_itself(tmp_path: Path) -> None:
    dataset = pets(tmp_path, transform=EXACT)
    assert getattr(dataset, "loader", None) is None
    photo(5, 90, 100).save(dataset._images[3], "PNG")
    dataset._images[7].write_bytes(b"no image")
    found = list(each(FastLoader(dataset, num_workers=1, engine="native")))
    with pytest.raises(type(found[7])) as told:
        dataset[7]
    assert str(found[7]) == str(told.value)
    assert all(torch.equal(found[n][0][0], dataset[n][0]) for n in range(12) if n != 7)


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "no image":
        path.write_bytes(b"text, not an image")
    elif how == "a loop":
        os.symlink(path.name, path)


SPOILT = ["gone", "a folder", "cut", "empty", "no image", "a loop"]


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("epoch", [0, 1])
def test_files_that_went_bad_since_the_folder_was_listed(tmp_path: Path, how: str, epoch: int) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, num_workers=2, prefetch_factor=8, engine="native")
    if epoch:
        assert read_early(loader) > 4
    spoil(Path(dataset.samples[4][0]), how)
    assert assert_same(dataset, loader) == (11, 1)


def test_an_error_names_the_sample_and_its_file(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    path = Path(dataset.samples[4][0])
    spoil(path, "no image")
    error = next(found for found in each(FastLoader(dataset, num_workers=1)) if isinstance(found, Exception))
    assert str(path) in str(error) + " ".join(getattr(error, "__notes__", ()))


@pytest.mark.parametrize("workers", [0, 2])
def test_on_error(tmp_path: Path, workers: int) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    good = {index: dataset[index][0] for index in range(len(dataset))}
    spoil(Path(dataset.samples[4][0]), "no image")
    spoil(Path(dataset.samples[7][0]), "gone")
    skipping = FastLoader(dataset, batch_size=5, num_workers=workers, on_error="skip", engine="native")
    images = torch.cat([batch[0] for batch in skipping])
    assert skipping.skipped == 2
    assert torch.equal(images, torch.stack([good[index] for index in range(12) if index not in (4, 7)]))
    assert any("UnidentifiedImageError" in reason for reason in skipping.stats()["bad_samples"])
    replacing = FastLoader(
        dataset, batch_size=5, num_workers=workers, on_error="replace", seed=1, engine="native"
    )
    images = torch.cat([batch[0] for batch in replacing])
    assert (len(images), replacing.replaced) == (12, 2)
    assert all(
        any(torch.equal(images[row], other) for index, other in good.items() if index not in (4, 7))
        for row in (4, 7)
    )


def test_no_sample_at_all(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    for path, _ in dataset.samples:
        Path(path).write_bytes(b"no image")
    with pytest.raises(SampleError):
        list(FastLoader(dataset, batch_size=4, num_workers=1, on_error="replace", seed=1))


def test_a_file_that_was_replaced_is_read_as_it_is_now(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=2, engine="native")
    assert read_early(loader) > 4
    for number, (path, _) in enumerate(dataset.samples):
        save(Path(path), 50 + number, subsampling=0)
    ours, theirs = list(loader), list(DataLoader(dataset, batch_size=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "form", [{}, {"collate_fn": list}, {"batch_transform": [v2.RandomHorizontalFlip(p=0)]}]
)
def test_files_that_change_between_two_epochs(tmp_path: Path, form: dict[str, Any]) -> None:
    """An epoch has the files as they are at its iter(), although batches of it were made before: written,
    gone, broken, mended."""
    dataset = folder(tmp_path, transform=EXACT)
    paths = [Path(path) for path, _ in dataset.samples]
    paths[0].write_bytes(b"no image")
    options = {"num_workers": 2, "engine": "native", "on_error": "skip", **form}
    loader = FastLoader(dataset, batch_size=4, prefetch_factor=2, **options)
    assert read_early(loader) > 4
    save(paths[0], 70)
    save(paths[1], 71)
    paths[2].unlink()
    paths[3].write_bytes(b"no image")
    read = loader.stats()["samples"]
    ours = [
        image
        for batch in loader
        for image in (batch[0] if not form.get("collate_fn") else [image for image, _ in batch])
    ]
    expected = [dataset[index][0] for index in range(12) if index not in (2, 3)]
    assert len(ours) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))
    assert loader.skipped == 3
    assert loader.stats()["samples"] - read <= 12 + 4  # what has not changed was not made again


def test_pillows_own_limit_of_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    assert assert_same(dataset, FastLoader(dataset, num_workers=1, engine="native"))[1] == 12


def test_a_file_of_more_than_a_gibibyte_is_not_read_by_native_threads(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    os.truncate(dataset.samples[4][0], (1 << 30) + 1)  # sparse: Pillow reads no more of it than the picture
    loader = FastLoader(dataset, num_workers=1, engine="native")
    assert assert_same(dataset, loader) == (12, 0)
    assert loader.stats()["loaded"] == 1
    assert loader.stats()["bytes"] < 1 << 20


THIN = {
    "Resize": [transforms.Resize(4, max_size=32), transforms.ToTensor()],
    "v2.Resize": [v2.Resize(4, max_size=32), v2.ToImage()],
    "longer side": [v2.ToImage(), v2.Resize(None, max_size=32)],
    "ScaleJitter": [v2.ScaleJitter((32, 32), (0.9, 0.9)), v2.ToImage()],
    "RandomShortestSize": [v2.ToImage(), v2.RandomShortestSize([4], max_size=32)],
    "FiveCrop": [v2.ToImage(), v2.FiveCrop(70)],
}


@pytest.mark.parametrize("steps", THIN)
def test_an_image_too_thin_for_a_resize_is_torchvisions_error(tmp_path: Path, steps: str) -> None:
    """Where a side truncates to 0, the loop gets the exception of the dataset's own sample at that batch,
    and the batches around it."""
    (tmp_path / "a").mkdir()
    for number, size in enumerate([(70, 80), (900, 1), (1, 900), (80, 70)]):
        Image.new("RGB", size).save(tmp_path / "a" / f"{number}.jpg")
    dataset = datasets.ImageFolder(
        str(tmp_path),
        transforms.Compose([*THIN[steps], *([] if steps == "FiveCrop" else [v2.CenterCrop(8)])]),
    )
    before = torch.get_rng_state()
    ours = list(each(FastLoader(dataset, 1, num_workers=1, engine="native", seed=1)))
    assert torch.equal(before, torch.get_rng_state())
    theirs = list(each(DataLoader(dataset, 1)))
    assert len(ours) == len(theirs) == 4
    for mine, other in zip(ours, theirs, strict=True):
        assert isinstance(mine, Exception) == isinstance(other, Exception)
        if isinstance(other, Exception):
            assert (type(mine), str(mine)) == (type(other), str(other))
    assert any(isinstance(one, Exception) for one in ours)


def test_fastloads_own_resize_leaves_a_row_or_column(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (900, 1)).save(tmp_path / "a" / "0.jpg")
    dataset = datasets.ImageFolder(str(tmp_path), [T.Resize(4, max_size=32), T.CenterCrop(8)])
    assert next(iter(FastLoader(dataset, 1, num_workers=1)))[0].shape == (1, 3, 8, 8)


def test_an_error_of_the_transform_is_found_beside_a_loop_that_draws(tmp_path: Path) -> None:
    """The thread that works ahead asks a dataset's own transform for its error: the global generators, from
    which the loop draws meanwhile, stay as they are."""
    steps = transforms.Compose(
        [transforms.RandomHorizontalFlip(), transforms.RandomCrop(500), transforms.PILToTensor()]
    )
    found = InPlaceDatasets().find(folder(tmp_path, transform=steps))
    assert found is not None
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert "crop size (500, 500)" in str(found.own_error(3))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]
