"""Batches with masks, boxes and objects: of dataset[i] on every engine, for any number of threads,
resumed, on a device."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from scenes import Scenes
from torch.utils.data import ConcatDataset, Subset

import fastload
from fastload import BucketBatchSampler, FastLoader, Mixture, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload._native import core
from fastload.errors import BatchShapeError
from fastload.packing import Item
from fastload.store import Field
from fastload.store.columns import TableValues

COUNT, BATCH, SEED = 26, 4, 7
ENGINES = [("auto", 0), ("auto", 1), ("auto", 2), ("auto", 3), ("python", 0), ("python", 2)]
FIXED = [
    T.RandomZoomOut(),
    T.RandomIoUCrop(),
    T.Resize((40, 48)),
    T.RandomHorizontalFlip(),
    T.SanitizeBoundingBoxes(2, 4),
    T.ToFloat(),
]
DRAWN = [T.ScaleJitter((64, 64), scale_range=(0.3, 1.5)), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]

BOXED = [
    T.RandomZoomOut(side_range=(1.0, 2.0)),
    T.RandomIoUCrop(),
    T.RandomHorizontalFlip(),
    T.SanitizeBoundingBoxes(2, 4),
]
"""Leaves images of sizes that follow from their boxes."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed scenes."""
    out = tmp_path_factory.mktemp("scenes") / "d"
    fastload.pack(Scenes(COUNT), out)
    return out


def same(one: Any, other: Any) -> None:
    """Both are equal, with types and dtypes, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one, other)
    else:
        assert one == other


def loader(path: Path, transform: Any, **options: Any) -> FastLoader[Any]:
    return FastLoader(
        PackedDataset(path, transform), **{"batch_size": BATCH, "shuffle": True, "seed": SEED, **options}
    )


def expected(path: Path, transform: Any, epoch: int) -> dict[int, Any]:
    """Samples of an epoch by number, from dataset[i]."""
    dataset = PackedDataset(path, transform, seed=SEED)
    dataset.set_epoch(epoch)
    return {index: dataset[index] for index in range(COUNT)}


@pytest.mark.parametrize("transform", [FIXED, DRAWN, BOXED], ids=["fixed", "drawn", "boxed"])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_samples_of_every_engine(path: Path, engine: Any, workers: int, transform: Any) -> None:
    """collate_fn gets the samples that dataset[i] gives, for two epochs."""
    with loader(path, transform, engine=engine, num_workers=workers, collate_fn=list) as batches:
        for epoch in range(2):
            wanted, seen = expected(path, transform, epoch), []
            for batch in batches:
                for sample in batch:
                    seen.append(sample["number"])
                    same(sample, wanted[sample["number"]])
            assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("workers", [1, 2])
def test_threads_make_them(path: Path, workers: int) -> None:
    """Native threads read whatever a field of the scenes is."""
    for transform in (None, FIXED, DRAWN, BOXED):
        with loader(path, transform, num_workers=workers, collate_fn=list) as batches:
            assert batches.stats()["engine"] == "threads", batches.explain(all=True)


@pytest.mark.parametrize(("transform", "pad_to"), [(FIXED, None), (BOXED, 16)], ids=["fixed", "boxed"])
@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
@pytest.mark.parametrize(("engine", "workers"), ENGINES[1:])
def test_forms_of_every_engine(
    path: Path, collate: Any, engine: Any, workers: int, transform: Any, pad_to: int | None
) -> None:
    """A form's batches are the same on every engine and for any number of threads."""
    options: dict[str, Any] = {"collate": collate, "pad_to": None if collate == "list" else pad_to}
    with (
        loader(path, transform, **options, engine="python", num_workers=0) as one,
        loader(path, transform, **options, engine=engine, num_workers=workers) as other,
    ):
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)


@pytest.mark.parametrize("transform", [FIXED, BOXED], ids=["fixed", "boxed"])
def test_numbers_of_rows_in_the_sidecars(path: Path, transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where columns are large, native threads read how many rows a field has in the sidecars: the batches
    are the same."""
    with loader(path, transform, collate="padded", pad_to=1) as batches:
        wanted = [*batches, *batches]
    monkeypatch.setattr("fastload.store.reader.HELD_BYTES", 0)
    monkeypatch.setattr("fastload.store.sidecar.WALKED_SAMPLES", 0)
    dataset = PackedDataset(path, transform)
    counts = [name for name in dataset.opened.reader.schema.columns if name.startswith("__count__")]
    assert counts
    with FastLoader(
        dataset, BATCH, shuffle=True, seed=SEED, collate="padded", pad_to=1, num_workers=2
    ) as batches:
        for epoch in range(2):
            for mine, theirs in zip(batches, wanted[epoch * len(batches) :], strict=False):
                same(mine, theirs)
    # Nothing has read them whole.
    assert all(isinstance(dataset.opened.reader.values(name), TableValues) for name in counts)


FLOATS = [*DRAWN, T.Normalize((0.5,) * 3, (0.5,) * 3)]
WAYS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "of two datasets": (
        lambda path: ConcatDataset([PackedDataset(path, FIXED), PackedDataset(path, FIXED)]),
        {},
    ),
    "of a subset": (
        lambda path: Subset(PackedDataset(path, DRAWN), [3, 2, 9, 9, 1, 0, 20, 4]),
        {"pad_to": 16},
    ),
    "mixed": (lambda path: Mixture({PackedDataset(path, FIXED): 1.0}, samples_per_epoch=10), {}),
    "channels last": (
        lambda path: PackedDataset(path, DRAWN),
        {"memory_format": torch.channels_last, "pad_to": 1},
    ),
    "bfloat16": (lambda path: PackedDataset(path, FLOATS), {"dtype": torch.bfloat16, "pad_to": 32}),
    "of crops by boxes": (
        lambda path: Subset(PackedDataset(path, BOXED), [3, 2, 9, 9, 1, 0, 20, 4]),
        {"pad_to": 1},
    ),
    "of such crops, channels last": (
        lambda path: PackedDataset(path, BOXED),
        {"memory_format": torch.channels_last, "pad_to": 32},
    ),
    "of such crops, in bfloat16": (
        lambda path: PackedDataset(path, [*BOXED, T.ToFloat()]),
        {"dtype": torch.bfloat16, "pad_to": 8},
    ),
    "of such crops, without boxes": (
        lambda path: PackedDataset(path, BOXED, fields=["image", "masks"]),
        {"pad_to": 4},
    ),
    "of some fields": (
        lambda path: PackedDataset(path, FIXED, fields=("image", {"b": "boxes", "m": "masks"})),
        {"drop_last": True},
    ),
    "of an image and a mask": (lambda path: PackedDataset(path, FIXED, fields=["image", "mask"]), {}),
    "without boxes": (lambda path: PackedDataset(path, FIXED, fields=["image", "number"]), {}),
    "without a transform": (
        lambda path: PackedDataset(path, fields=("image", ["boxes", "mask"])),
        {"pad_to": 8},
    ),
    "on a device": (lambda path: PackedDataset(path, FIXED), {"device": "cpu"}),
}


@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
@pytest.mark.parametrize("way", WAYS)
def test_other_loaders(path: Path, way: str, collate: Any) -> None:
    """Native threads give what the dataset's own code gives; batches that are kept stay as they were."""
    make, options = WAYS[way]
    given = {"batch_size": BATCH, "seed": SEED, "collate": collate, **options}
    if collate == "list":
        given.pop("pad_to", None)
    with (
        FastLoader(make(path), engine="python", num_workers=0, **given) as one,
        FastLoader(make(path), engine="native", num_workers=2, **given) as other,
    ):
        same(list(other), list(one))


def test_batches_of_like_shapes(path: Path) -> None:
    """A BucketBatchSampler's batches, in both ways."""
    batches = []
    for engine, workers in (("python", 0), ("native", 2)):
        data = PackedDataset(path, DRAWN)
        order = BucketBatchSampler(data, BATCH, seed=1)
        with FastLoader(
            data,
            batch_sampler=order,
            seed=SEED,
            collate="padded",
            pad_to=32,
            engine=engine,
            num_workers=workers,
        ) as made:
            batches.append(list(made))
    same(batches[1], batches[0])


@pytest.mark.parametrize(("transform", "pad_to"), [(FIXED, None), (BOXED, 1)], ids=["fixed", "boxed"])
@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
@pytest.mark.parametrize(("engine", "workers"), [("auto", 2), ("python", 0)])
def test_resumed_in_mid_epoch(
    path: Path, collate: Any, engine: Any, workers: int, transform: Any, pad_to: int | None
) -> None:
    """A loader that goes on from a state gives the batches that were left."""
    options: dict[str, Any] = {
        "collate": collate,
        "engine": engine,
        "num_workers": workers,
        "pad_to": None if collate == "list" else pad_to,
    }
    with loader(path, transform, **options) as first:
        batches = iter(first)
        for _ in range(3):
            next(batches)
        state, rest = first.state_dict(), list(batches)
    with loader(path, transform, **options) as second:
        second.load_state_dict(state)
        again = list(second)
    assert len(rest) == -(-COUNT // BATCH) - 3
    same(again, rest)


@pytest.mark.parametrize("workers", [0, 2])
def test_objects_on_a_device(path: Path, workers: int) -> None:
    """A batch transform mirrors image, mask and boxes of a padded batch together; rows that are padding
    stay zero."""
    options: dict[str, Any] = {"num_workers": workers, "collate": "padded", "shuffle": False}
    with (
        loader(path, T.Resize((40, 48)), **options) as plain,
        loader(
            path,
            T.Resize((40, 48)),
            **options,
            device="cpu",
            batch_transform=A.AugmentBatch([A.RandomHorizontalFlip(1.0)]),
        ) as mirrored,
    ):
        for before, after in zip(plain, mirrored, strict=True):
            assert torch.equal(after["image"], before["image"].flip(-1))
            assert torch.equal(after["mask"], before["mask"].flip(-1))
            boxes, own = before["boxes"].values, before["boxes"].mask
            turned = torch.stack([48 - boxes[..., 2], boxes[..., 1], 48 - boxes[..., 0], boxes[..., 3]], -1)
            torch.testing.assert_close(after["boxes"].values[own], turned[own], atol=1e-4, rtol=0)
            assert not after["boxes"].values[~own].any()
            same(after["labels"], before["labels"])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_frames_are_as_small_as_their_images(path: Path, memory_format: torch.memory_format) -> None:
    """A padded batch of sizes that follow from boxes is contiguous and no larger than its largest image,
    and lies in the slot."""
    before = core.live_handles()["leases"]
    with loader(
        path, BOXED, num_workers=2, collate="padded", pad_to=1, memory_format=memory_format
    ) as batches:
        for batch in batches:
            images = batch["image"]
            assert images.values.is_contiguous(memory_format=memory_format)
            assert images.values.shape[2:] == tuple(images.lengths.amax(0).tolist())
            assert batch["mask"].values.shape == (len(images.values), *images.values.shape[2:])
            assert core.live_handles()["leases"] > before


def test_one_tensor_of_crops_by_boxes(path: Path) -> None:
    """Without collate= the images of a batch must turn out to have one size: alone they do, and others are
    named."""
    wanted = expected(path, BOXED, 0)
    options: dict[str, Any] = {"shuffle": False, "num_workers": 2, "engine": "native"}
    with FastLoader(
        PackedDataset(path, BOXED, fields=["image", "number"]), batch_size=1, seed=SEED, **options
    ) as alone:
        for index, batch in enumerate(alone):
            assert torch.equal(batch[0], wanted[index]["image"][None])
    with loader(path, BOXED, batch_size=None, **options) as single:
        for index, sample in enumerate(single):
            same(sample, wanted[index])
    with (
        loader(path, BOXED, **options) as several,
        pytest.raises(BatchShapeError, match=r"index 0 is .* and index 1 is"),
    ):
        list(several)
    whole = [T.RandomIoUCrop(sampler_options=[1.0])]
    data = Subset(PackedDataset(path, whole, fields=["image", "number"]), [7, 7, 7])
    with FastLoader(data, batch_size=3, seed=SEED, num_workers=2, engine="native") as equal:
        (batch,) = equal
    assert batch[0].shape[0] == 3


class Panoramas(Scenes):
    """Images of 8000 x 100 pixels, and their boxes."""

    fields = (Field("boxes", "boxes", format="xyxy"),)

    def read(self, position: int) -> Item:
        out = io.BytesIO()
        photo(position, 100, 8000).save(out, "JPEG")
        return Item(
            self.name(position),
            out.getvalue(),
            {"boxes": np.array([[50, 10, 90, 60], [7000, 0, 7400, 100]], np.float32)},
        )


@pytest.mark.parametrize("step", [T.Resize(256), T.RandomShortestSize(256), T.RandomResize(200, 256)])
def test_crops_by_boxes_of_long_images(tmp_path: Path, step: Any) -> None:
    """The room for a panorama, of which no more is known than that, is not a square of its longer side,
    which no batch would hold."""
    fastload.pack(Panoramas(2), tmp_path / "d")
    transform = [T.RandomIoUCrop(), step]
    wanted = PackedDataset(tmp_path / "d", transform, seed=SEED)
    with loader(
        tmp_path / "d", transform, shuffle=False, num_workers=1, engine="native", collate="list"
    ) as batches:
        (batch,) = batches
    for index, sample in enumerate(batch):
        same(sample, wanted[index])


def test_a_sample_that_cannot_be_read(path: Path, tmp_path: Path) -> None:
    """on_error="skip" and "replace" keep all fields of a batch alike in rows."""
    source = Scenes(COUNT)
    fastload.pack(source, tmp_path / "d", shard_samples=5)
    damaged = sorted((tmp_path / "d").glob("*.lmdb"))[1]
    data = bytearray(damaged.read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 6000):
        data[at] ^= 0x5A
    damaged.write_bytes(data)
    for on_error, collate, transform in product(
        ("skip", "replace"), ("list", "padded", "flat"), (FIXED, BOXED)
    ):
        pad_to = 8 if transform is BOXED and collate != "list" else None
        with loader(
            tmp_path / "d", transform, num_workers=2, collate=collate, on_error=on_error, pad_to=pad_to
        ) as batches:
            rows = 0
            for batch in batches:
                if collate == "list":
                    rows += len(batch)
                    continue
                images = batch["image"] if pad_to is None else batch["image"].values
                rows += len(images)
                counts = batch["boxes"].lengths if collate == "padded" else batch["boxes"].offsets.diff()
                others = batch["labels"].lengths if collate == "padded" else batch["labels"].offsets.diff()
                assert torch.equal(counts, others)
                assert len(counts) == len(images) == len(batch["number"])
            lost = batches.skipped + batches.replaced
            assert 0 < lost < COUNT
            assert rows == COUNT - batches.skipped
