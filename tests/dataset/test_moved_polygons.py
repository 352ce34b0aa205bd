"""Polygons go natively through the draw of their image: dataset[i] and the batches of native threads,
against plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import OUTLINED, Outlined

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import BatchShapeError, TransformError

COUNT, SEED = 20, 4
FIELDS = ["image", *(field.name for field in OUTLINED)]
LISTS: dict[str, Callable[[], list[T.Transform]]] = {
    "nothing": list,
    "flips": lambda: [T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    "resized crop": lambda: [T.RandomHorizontalFlip(), T.RandomResizedCrop((30, 40), scale=(0.05, 1.0))],
    "padded crop": lambda: [T.RandomCrop((70, 50), pad_if_needed=True), T.RandomVerticalFlip()],
    "zoom out, IoU crop": lambda: [
        T.RandomZoomOut(),
        T.RandomIoUCrop(),
        T.RandomHorizontalFlip(),
        T.SanitizeBoundingBoxes(2, 4),
    ],
    "letterbox": lambda: [T.Letterbox((48, 64)), T.SanitizeBoundingBoxes(3)],
    "jitter": lambda: [T.ScaleJitter((50, 60)), T.RandomHorizontalFlip()],
}
LINES = list[list[torch.Tensor]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes with outlines."""
    out = tmp_path_factory.mktemp("outlined") / "d"
    fastload.pack(Outlined(COUNT), out, workers=1)
    return out


def moved(
    part: np.ndarray[Any, Any], steps: list[dict[str, Any]], width: int, height: int
) -> np.ndarray[Any, Any]:
    """Points (P, 2) through the steps of a geometry; nothing is clamped."""
    points, size = part.astype(np.float64), np.array([width, height])
    for step in steps:
        after = np.array(step["size"])
        if step["kind"] in ("crop", "iou_crop"):
            points = points - np.array([step["x"], step["y"]])
        elif step["kind"] == "pad":
            points = points + np.array([step["x"], step["y"]])
        elif step["kind"] == "resize":
            points = points * (after / size)
        elif step["kind"] in ("hflip", "vflip"):
            axis = int(step["kind"] == "vflip")
            points[:, axis] = size[axis] - points[:, axis]
        size = after
    return points


def check(found: LINES, stored: LINES, geometry: core.Geometry, width: int, height: int, where: str) -> None:
    """The polygons of kept boxes, in order, each part of as many points, where the oracle has them."""
    assert geometry.keep is not None
    kept = [parts for parts, keep in zip(stored, geometry.keep, strict=True) if keep]
    assert [list(map(len, parts)) for parts in found] == [list(map(len, parts)) for parts in kept], where
    for mine, parts in zip(found, kept, strict=True):
        for points, part in zip(mine, parts, strict=True):
            assert points.dtype == torch.float32
            expected = moved(part.numpy(), geometry.steps, width, height)
            np.testing.assert_allclose(points.numpy(), expected, rtol=1e-5, atol=1e-3, err_msg=where)


def compare(folder: Path, name: str, seed: int, epoch: int, index: int) -> None:
    dataset, plain = PackedDataset(folder, LISTS[name](), seed=seed), PackedDataset(folder)
    dataset.set_epoch(epoch)
    width, height = int(plain.sizes[1][index]), int(plain.sizes[0][index])
    stored = plain.stored_values(index, ["boxes", "lines"])
    geometry = core.Geometry(
        dataset.plan.program, (width, height), seed, epoch, index, stored["boxes"].numpy()
    )
    sample = dataset[index]
    assert len(sample["lines"]) == len(sample["boxes"])
    check(
        sample["lines"],
        stored["lines"],
        geometry,
        width,
        height,
        f"{name}, seed {seed}, epoch {epoch}, index {index}",
    )


@pytest.mark.parametrize("name", LISTS)
def test_every_sample(folder: Path, name: str) -> None:
    """No object, a thousand, parts without points: under every list."""
    for index in range(COUNT):
        compare(folder, name, SEED, 0, index)


@settings(max_examples=60)
@given(
    st.sampled_from(list(LISTS)),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(3, COUNT - 1),
)
def test_any_draw(folder: Path, name: str, seed: int, epoch: int, index: int) -> None:
    """Seeds and epochs over their whole range."""
    compare(folder, name, seed, epoch, index)


def test_outlines_stay_with_their_boxes(folder: Path) -> None:
    """Under flips and resizes the corners that an outline has in common with its box stay in common."""
    dataset = PackedDataset(
        folder, [T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0), T.Resize((30, 90))]
    )
    for index in range(6, COUNT):
        sample = dataset[index]
        for box, parts in zip(sample["boxes"], sample["lines"], strict=True):
            for part in parts[:1]:
                low, high = part.amin(0), part.amax(0)
                torch.testing.assert_close(torch.cat([low, high]), box, rtol=0, atol=1e-3)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, with their types."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def loader(folder: Path, name: str, **options: Any) -> FastLoader[Any]:
    return FastLoader(
        PackedDataset(folder, LISTS[name]()), **{"batch_size": 4, "seed": SEED, "shuffle": True, **options}
    )


@pytest.mark.parametrize("form", ["list", "padded", "flat"])
@pytest.mark.parametrize("name", ["zoom out, IoU crop", "letterbox", "jitter", "nothing"])
def test_batches_of_every_engine(folder: Path, name: str, form: Any) -> None:
    """Native threads, of any number, give the batches that Python makes of single samples: polygons are
    lists in each of the forms."""
    options = {"collate": form, "pad_to": None if form == "list" else 8}
    with loader(folder, name, engine="python", num_workers=0, **options) as python:
        wanted = list(python)
    for threads in (0, 1, 3):
        with loader(folder, name, engine="native", num_workers=threads, **options) as native:
            assert native.stats()["engine"] == "threads"
            assert same(list(native), wanted)


def test_native_without_being_asked(folder: Path) -> None:
    """A dataset with polygons goes to native threads, and explain() has nothing of Python per sample."""
    with loader(folder, "flips", num_workers=2, collate="list") as made:
        assert made.stats()["engine"] == "threads"
        assert "in Python" not in str(made.explain(all=True))


def test_fields_left_out(folder: Path) -> None:
    """Polygons are the same without the boxes that they are of, and without the image."""
    for name in ("zoom out, IoU crop", "letterbox", "flips"):
        whole = PackedDataset(folder, LISTS[name](), seed=SEED)
        for fields in (["image", "lines"], ["lines", "number"]):
            part = PackedDataset(folder, LISTS[name](), seed=SEED, fields=fields)
            for index in (0, 2, 5, 9):
                assert same(part[index]["lines"], whole[index]["lines"])


def test_resume(folder: Path) -> None:
    """A pass that goes on in mid-epoch gives the batches that were left."""
    with loader(folder, "zoom out, IoU crop", collate="list", num_workers=2) as first:
        batches = iter(first)
        next(batches)
        state, rest = first.state_dict(), list(batches)
    with loader(folder, "zoom out, IoU crop", collate="list", num_workers=2) as second:
        second.load_state_dict(state)
        assert same(list(second), rest)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_bad_samples(tmp_path: Path, policy: Any) -> None:
    """A row that fails is left out, or has the outlines of its substitute; one with more points than its
    row has room for, too."""
    fastload.pack(Outlined(COUNT), tmp_path / "d", workers=1, shard_samples=4)
    shard = sorted((tmp_path / "d").glob("*.lmdb"))[1]
    data = bytearray(shard.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 3000):
        data[at] ^= 0x5A
    shard.write_bytes(data)
    for form in ("list", "flat"):
        with loader(
            tmp_path / "d",
            "flips",
            collate=form,
            pad_to=None if form == "list" else 1,
            on_error=policy,
            num_workers=2,
        ) as batches:
            for batch in batches:
                if form == "flat":
                    assert list(map(len, batch["lines"])) == batch["boxes"].offsets.diff().tolist()
                else:
                    assert all(len(sample["lines"]) == len(sample["boxes"]) for sample in batch)
            assert batches.skipped + batches.replaced > 0


@pytest.mark.parametrize(("engine", "workers"), [("native", 1), ("python", 0)])
def test_batches_without_collate(folder: Path, engine: Any, workers: int) -> None:
    """Outlines of different numbers are no tensor: the error names the field, and the way out."""
    dataset = PackedDataset(folder, LISTS["letterbox"](), fields=["image", "lines"])
    with (
        FastLoader(dataset, 4, num_workers=workers, engine=engine) as batches,
        pytest.raises(BatchShapeError, match=r"'lines'.*collate="),
    ):
        list(batches)


def test_views_leave_no_outline_behind(folder: Path) -> None:
    """Views have several geometries, and polygons one: they are refused."""
    dataset = PackedDataset(
        folder, T.Views([[T.RandomCrop(8)], [T.RandomCrop(8)]]), fields=["image", "lines"]
    )
    with pytest.raises(TransformError, match="lines"):
        dataset[0]
