"""Masks, boxes, keypoints, instances and rows of a sample go through the image's own draw natively:
dataset[i] against torchvision's functionals at the same parameters, and the native threads' batches against
dataset[i].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from geometry_oracle import as_boxes, as_points, through
from handles import none_left
from scenes import FIELDS, Scenes
from torchvision import tv_tensors

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload._native import core
from fastload.errors import BatchShapeError
from fastload.packing import Item
from fastload.store import Field

COUNT, SEED = 24, 16
NAMES = ["image", *(field.name for field in FIELDS)]
SPATIAL = [name for name in NAMES if name not in ("image", "number")]
LISTS: dict[str, list[Any]] = {
    "none": [],
    "crop": [
        T.RandomCrop((40, 50), pad_if_needed=True, mask_fill=255),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
    ],
    "resized": [T.RandomResizedCrop((33, 47), scale=(0.1, 1.0)), T.RandomHorizontalFlip(), T.ToFloat()],
    "zoom": [T.RandomZoomOut(p=0.7, mask_fill=7), T.Resize((48, 40)), T.RandomHorizontalFlip()],
    "iou": [
        T.RandomIoUCrop(),
        T.RandomHorizontalFlip(),
        T.Resize((32, 32)),
        T.SanitizeBoundingBoxes(min_size=2),
    ],
    "letterbox": [T.Letterbox((30, 64), mask_fill=255), T.SanitizeBoundingBoxes()],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of Scenes."""
    out = tmp_path_factory.mktemp("rows") / "d"
    fastload.pack(Scenes(COUNT), out, workers=1)
    return out


def same(a: Any, b: Any) -> bool:
    """Whether two samples are equal, with their types."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def stored(folder: Path, index: int) -> dict[str, Any]:
    """The fields as they were packed."""
    return PackedDataset(folder).stored_values(index, SPATIAL)


@pytest.mark.parametrize("name", LISTS)
def test_samples_are_torchvisions(folder: Path, name: str) -> None:
    """Each field of dataset[i] is torchvision's at the parameters that were drawn; a dropped box takes the
    rows that are of it along."""
    transform = LISTS[name]
    dataset = PackedDataset(folder, transform or None, seed=SEED)
    for index in range(COUNT):
        found, given = dataset[index], stored(folder, index)
        height, width = (int(side[index]) for side in dataset.sizes)
        boxes = given["boxes"].numpy()
        g = core.Geometry(dataset.plan.program, (width, height), SEED, 0, index, boxes)
        assert found["image"].shape[1:] == g.size[::-1]
        keep = torch.from_numpy(g.keep.copy())
        where = f"{name}, sample {index}"
        expected = through(as_boxes(boxes.copy(), "xyxy", width, height), g.steps)
        np.testing.assert_allclose(found["boxes"].numpy(), expected[g.keep], rtol=0, atol=1e-4, err_msg=where)
        assert torch.equal(found["labels"], given["labels"][keep]), where
        assert torch.equal(found["tokens"], given["tokens"]), where
        mask = through(tv_tensors.Mask(given["mask"]), g.steps, g.mask_fill)
        np.testing.assert_array_equal(found["mask"].numpy(), mask, err_msg=where)
        if len(boxes):
            masks = through(tv_tensors.Mask(given["masks"]), g.steps)
            np.testing.assert_array_equal(found["masks"].numpy(), masks[g.keep], err_msg=where)
            points = through(as_points(given["points"][..., :2].numpy(), width, height), g.steps)
            seen = (given["points"][..., 2] > 0).numpy()[g.keep]
            np.testing.assert_allclose(
                found["points"][..., :2].numpy()[seen], points[g.keep][seen], rtol=0, atol=1e-4, err_msg=where
            )
            assert torch.equal(found["points"][..., 2], given["points"][keep][..., 2]), where
    assert name not in ("iou", "letterbox") or any(
        len(dataset[i]["boxes"]) < len(stored(folder, i)["boxes"]) for i in range(COUNT)
    )


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("name", ["crop", "iou", "zoom"])
def test_batches_have_the_samples(folder: Path, name: str, threads: int) -> None:
    """A collate_fn on native threads gets what dataset[i] gives, whatever the number of threads."""
    dataset = PackedDataset(folder, LISTS[name], seed=SEED)
    with FastLoader(
        dataset, batch_size=5, num_workers=threads, collate_fn=list, seed=SEED, engine="native"
    ) as loader:
        samples = [sample for batch in loader for sample in batch]
    assert len(samples) == COUNT
    for index, sample in enumerate(samples):
        assert same(sample, dataset[index]), index


@pytest.mark.parametrize("engine", ["native", "python"])
def test_different_sizes(folder: Path, engine: Any) -> None:
    """Masks and instances have the sizes of their images, one by one and padded."""
    dataset = PackedDataset(folder, [T.ScaleJitter((60, 60)), T.RandomHorizontalFlip()], seed=SEED)
    with FastLoader(dataset, batch_size=6, num_workers=0, collate="list", seed=SEED, engine=engine) as loader:
        samples = [sample for batch in loader for sample in batch]
    assert len(samples) == COUNT
    for index, sample in enumerate(samples):
        assert same(sample, dataset[index]), index
    with FastLoader(
        dataset, batch_size=6, num_workers=0, collate="padded", pad_to=1, seed=SEED, engine=engine
    ) as loader:
        batches = list(loader)
    for index, sample in enumerate(samples):
        batch, row = batches[index // 6], index % 6
        height, width = sample["image"].shape[1:]
        for name in ("image", "mask"):
            assert torch.equal(batch[name].values[row][..., :height, :width], sample[name]), (name, index)
            assert not batch[name].values[row][..., height:, :].any()
        count = len(sample["masks"])
        assert torch.equal(batch["masks"].values[row][:count, :height, :width], sample["masks"])
        assert torch.equal(batch["boxes"].values[row][:count], sample["boxes"])


def test_fields_left_out(folder: Path) -> None:
    """Where boxes are not delivered, crops and what is dropped are the same."""
    whole = PackedDataset(folder, LISTS["iou"], seed=SEED)
    dataset = PackedDataset(folder, LISTS["iou"], seed=SEED, fields=["image", "labels", "mask"])
    for index in range(COUNT):
        assert same(dataset[index], {name: whole[index][name] for name in dataset.fields})
    with FastLoader(
        dataset, batch_size=7, num_workers=2, collate_fn=list, seed=SEED, engine="native"
    ) as loader:
        assert all(
            same(sample, dataset[i])
            for i, sample in enumerate(sample for batch in loader for sample in batch)
        )


def test_default_collate(folder: Path) -> None:
    """Without collate_fn masks are stacked; different numbers of rows are an error that names them."""
    dataset = PackedDataset(folder, LISTS["crop"], seed=SEED, fields=["image", "mask", "number"])
    with FastLoader(dataset, batch_size=6, num_workers=2, seed=SEED) as loader:
        batches = list(loader)
    assert batches[1]["mask"].shape == (6, 40, 50)
    assert all(torch.equal(batches[i // 6]["mask"][i % 6], dataset[i]["mask"]) for i in range(COUNT))
    with (
        FastLoader(
            PackedDataset(folder, LISTS["crop"], fields=["image", "boxes"]), batch_size=6, seed=SEED
        ) as loader,
        pytest.raises(BatchShapeError, match=r"sample\['boxes'\] has the shape \(\d+, 4\) at index 0 and"),
    ):
        list(loader)


class Alike:
    """Samples of two boxes each, but for those of `change`."""

    title, classes, concurrent = "alike", None, True
    fields = (
        Field("boxes", "boxes", format="cxcywh"),
        Field("near", "boxes", "int64", format="xywh"),
        Field("of", "array", "uint8", (None, 2), of="near"),
    )

    def __init__(self, count: int = 8, change: dict[int, dict[str, Any]] | None = None) -> None:
        self._count, self._change = count, change or {}

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"{position}"

    def read(self, position: int) -> Item:
        values = {
            "boxes": [[5, 5, 4, 4], [9, 9, 2, 2]],
            "near": [[1, 2, 8, 4], [0, 0, 1, 1]],
            "of": np.array([[1, position], [2, position]]),
        }
        image = np.full((16, 20, 3), position, np.uint8)
        return Item(self.name(position), image, {**values, **self._change.get(position, {})})


def test_equal_numbers_stack(tmp_path: Path) -> None:
    """Rows of equal numbers are one tensor of the batch, in the slot; several fields of boxes move alike,
    each in its format."""
    fastload.pack(Alike(), tmp_path / "d", workers=1)
    dataset = PackedDataset(tmp_path / "d", [T.RandomHorizontalFlip(1.0)])
    with none_left("leases") as before:
        with FastLoader(dataset, batch_size=4, num_workers=1) as loader:
            batch = next(iter(loader))
        assert batch["boxes"].shape == (4, 2, 4)
        assert batch["boxes"][1].tolist() == [[15, 5, 4, 4], [11, 9, 2, 2]]
        assert batch["near"][1].tolist() == [[11, 2, 8, 4], [19, 0, 1, 1]]
        assert batch["of"].shape == (4, 2, 2)
        assert core.live_handles()["leases"] > before["leases"]
        del batch


def broken(folder: Path, index: int) -> None:
    """Damages a sample's record in its shard."""
    record = PackedDataset(folder).opened.reader.record(index)
    (shard,) = folder.glob("*.lmdb")
    data = bytearray(shard.read_bytes())
    at = data.find(record)
    assert at > 0
    data[at + len(record) // 2] ^= 255
    shard.write_bytes(data)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_bad_samples(tmp_path: Path, policy: str) -> None:
    """A row that fails is left out, or has all fields of its substitute, also where that has more objects
    than the row has room for."""
    few = {3: {"boxes": [], "near": [], "of": np.empty((0, 2), np.uint8)}}
    fastload.pack(Alike(8, few), tmp_path / "d", workers=1)
    broken(tmp_path / "d", 3)
    dataset = PackedDataset(tmp_path / "d", [T.CenterCrop(10)], seed=SEED)
    with FastLoader(
        dataset, batch_size=8, num_workers=2, collate_fn=list, seed=SEED, on_error=policy, engine="native"
    ) as loader:  # type: ignore[arg-type]
        (samples,) = loader
    assert len(samples) == (7 if policy == "skip" else 8)
    for sample in samples:
        index = int(sample["image"][0, 5, 5])
        assert index != 3
        assert same(sample, dataset[index])
    with FastLoader(dataset, batch_size=8, num_workers=2, seed=SEED, on_error=policy) as loader:  # type: ignore[arg-type]
        (batch,) = loader
    assert batch["of"].shape == (len(samples), 2, 2)


def test_resume(folder: Path) -> None:
    """A pass that goes on in mid-epoch gives the batches that it would have given."""
    dataset = PackedDataset(folder, LISTS["iou"], seed=SEED)

    def loader() -> Any:
        return FastLoader(
            dataset, batch_size=4, shuffle=True, num_workers=2, collate_fn=list, seed=SEED, engine="native"
        )

    with loader() as first:
        batches = iter(first)
        head = [next(batches) for _ in range(2)]
        state = first.state_dict()
        rest = list(batches)
    with loader() as second:
        second.load_state_dict(state)
        again = list(second)
    assert len(head) + len(rest) == COUNT // 4
    assert len(again) == len(rest)
    for mine, other in zip(rest, again, strict=True):
        assert all(same(a, b) for a, b in zip(mine, other, strict=True))
