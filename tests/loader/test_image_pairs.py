"""Several images of a sample, 8-bit RGB or planes, go through one transform natively: in dataset[i] and,
equal to it, in batches."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.errors import BatchShapeError, SampleError, TransformError
from fastload.packing import Item
from fastload.store import DatasetReader, Field

COUNT = 9
FIELDS = (
    Field("label", "int"),
    Field("twin", "image"),
    Field("second", "image"),
    Field("depth", "image", "uint16", (1,)),
    Field("deep", "image", "uint16", (3,)),
    Field("alpha", "image", "uint8", (4,)),
)
NAMES = ("image", *(field.name for field in FIELDS[1:]))
TRANSFORMS: dict[str, Any] = {
    "none": None,
    "crop": [T.RandomResizedCrop(24, dct_scale=False), T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    "scaled": [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToFloat()],
    "pad": [T.RandomCrop(70, pad_if_needed=True, fill=9), T.Normalize((0.5,), (0.25,))],
    "letterbox": [T.Letterbox(32, fill=20)],
    "views": [
        T.Views(
            [
                [T.RandomResizedCrop(20), T.RandomHorizontalFlip()],
                [T.RandomResizedCrop(12, interpolation="bicubic")],
            ]
        )
    ],
}


def jpeg(pixels: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


class Pairs:
    """A source of samples with six images: two alike, one of another size, and planes of several forms."""

    title, classes, concurrent, fields = "pairs", None, True, FIELDS

    def __init__(self, change: dict[str, Any] | None = None) -> None:
        self._change = change or {}

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return f"image-{position}.jpg"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        height, width = 60 + position, 50
        image = jpeg(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        values: dict[str, Any] = {
            "label": position,
            "twin": image,
            "second": jpeg(rng.integers(0, 256, (90, 110, 3), dtype=np.uint8)),
            "depth": (np.arange(height)[:, None] * 500 + np.arange(width)).astype(np.uint16),
            "deep": rng.integers(0, 65536, (height, width, 3), dtype=np.uint16),
            "alpha": rng.integers(0, 256, (33, 52, 4), dtype=np.uint8),
        }
        return Item(self.name(position), image, {**values, **self._change})


class Boxed(Pairs):
    """The same with boxes and a mask in the image."""

    fields = (*FIELDS, Field("boxes", "boxes", format="xyxy"), Field("mask", "mask", "uint16"))

    def read(self, position: int) -> Item:
        item = super().read(position)
        height = 60 + position
        boxes = np.array([[2, 3, 20 + position, 40], [30, 30, 45, 59]], np.float32)[: position % 3]
        labels = (np.arange(height)[:, None] * 500 + np.arange(50)).astype(np.uint16)
        return Item(item.name, item.image, {**item.values, "boxes": boxes, "mask": labels})


class Grey(Pairs):
    """A source whose first image is of 16-bit grey."""

    image_field = Field("image", "image", "uint16", (1,))
    fields = (Field("label", "int"),)

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        return Item(
            self.name(position), rng.integers(0, 65536, (40, 30), dtype=np.uint16), {"label": position}
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pairs") / "d"
    fastload.pack(Pairs(), out, workers=1)
    return out


@pytest.fixture(scope="module")
def grey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grey") / "d"
    fastload.pack(Grey(), out, workers=1)
    return out


def flat(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, list) else [value]


def equal(a: Any, b: Any) -> bool:
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def test_images_of_one_size_are_cut_alike(folder: Path) -> None:
    """A twin of the image stays its twin, and what a pixel of the depth says of its place holds of the
    image's pixel."""
    dataset = PackedDataset(
        folder, [T.RandomCrop(30), T.RandomHorizontalFlip(), T.RandomVerticalFlip()], seed=3
    )
    whole = PackedDataset(folder)
    for index in range(COUNT):
        sample, full = dataset[index], whole[index]
        assert torch.equal(sample["twin"], sample["image"])
        assert (sample["depth"].dtype, sample["depth"].shape) == (torch.uint16, (1, 30, 30))
        place = sample["depth"][0].long()
        for name in ("image", "deep"):
            assert torch.equal(sample[name].int(), full[name].int()[:, place // 500, place % 500]), name


def test_sample_without_a_transform(folder: Path) -> None:
    """Every image comes as it was packed."""
    dataset = PackedDataset(folder)
    for index in range(COUNT):
        packed, sample = Pairs().read(index).values, dataset[index]
        for name in ("depth", "deep", "alpha"):
            planes = torch.from_numpy(np.atleast_3d(packed[name]).transpose(2, 0, 1).copy())
            assert sample[name].dtype == planes.dtype
            assert torch.equal(sample[name].int(), planes.int())


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_are_the_samples(folder: Path, name: str, threads: int) -> None:
    """Native batches hold what dataset[i] gives, with any number of threads; samples of different sizes
    are a batch each."""
    fixed = name != "none"
    dataset = PackedDataset(folder, TRANSFORMS[name], seed=7)
    loader = FastLoader(dataset, batch_size=4 if fixed else 1, num_workers=threads, engine="native")
    seen = 0
    for batch in loader:
        for row, label in enumerate(batch["label"].tolist()):
            sample = dataset[label]
            for image in NAMES:
                rows = [part[row] for part in flat(batch[image])]
                assert equal(rows if isinstance(sample[image], list) else rows[0], sample[image]), (
                    image,
                    label,
                )
            seen += 1
    assert seen == COUNT


def test_own_collate_fn(folder: Path) -> None:
    """It gets the samples as dataset[i] gives them; and so do worker processes."""
    dataset = PackedDataset(folder, TRANSFORMS["scaled"], seed=7, fields=("image", "depth"))
    for engine in ("native", "python"):
        [batch] = FastLoader(dataset, batch_size=COUNT, collate_fn=list, engine=engine, num_workers=1)
        for index, sample in enumerate(batch):
            assert all(equal(sample[name], dataset[index][name]) for name in ("image", "depth")), engine


def test_floats(folder: Path) -> None:
    """Values are divided by 255 or 65535 as torchvision's; channels_last, and a mean for all channels."""
    plain = PackedDataset(folder, [T.RandomCrop(30)], seed=1)
    dataset = PackedDataset(folder, [T.RandomCrop(30), T.Normalize((0.5,), (0.25,))], seed=1)
    for index in range(COUNT):
        sample, values = dataset[index], plain[index]
        for name in NAMES:
            most = 65535 if values[name].dtype == torch.uint16 else 255
            wanted = (values[name].float() / most - 0.5) / 0.25
            assert torch.equal(sample[name], wanted), name
    [batch] = FastLoader(
        dataset, batch_size=COUNT, memory_format=torch.channels_last, dtype=torch.float16, engine="native"
    )
    assert batch["alpha"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(batch["depth"][2], dataset[2]["depth"].half())


def test_colours_that_do_not_fit(folder: Path) -> None:
    """A mean or a fill of three channels is refused where an image has others; without that image it is
    not."""
    three = T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    with pytest.raises(TransformError, match=r"Normalize's mean .* 'depth' has 1 channel: give one value"):
        PackedDataset(folder, [T.RandomCrop(20), three])[0]
    with pytest.raises(TransformError, match=r"fill=\(1, 2, 3\) .* 'alpha' has 4 channels"):
        PackedDataset(
            folder, [T.RandomCrop(99, pad_if_needed=True, fill=(1, 2, 3))], fields=("image", "alpha")
        )[0]
    with pytest.raises(TransformError, match="'depth' has 1 channel"):
        next(
            iter(FastLoader(PackedDataset(folder, [T.RandomCrop(20), three]), batch_size=2, engine="native"))
        )
    fits = PackedDataset(folder, [T.RandomCrop(20), three], fields=("image", "twin", "deep"), seed=2)
    assert torch.equal(fits[0]["image"], fits[0]["twin"])


def test_sizes(folder: Path) -> None:
    """Images of one size may stand beside others of another; where one image's differ within a batch, the
    message names it."""
    same = PackedDataset(folder, fields=("image", "second"))
    with pytest.raises(
        BatchShapeError, match=r"'image' of index 0 is 60 x 50 and 'image' of index 1 is 61 x 50"
    ):
        next(iter(FastLoader(same, batch_size=2, engine="native")))
    resized = PackedDataset(folder, [T.Resize(30)], fields=("image", "second"))
    [batch] = FastLoader(
        PackedDataset(folder, [T.Resize((20, 10))], fields=("image", "second")),
        batch_size=COUNT,
        engine="native",
    )
    assert batch["second"].shape == (COUNT, 3, 20, 10)
    assert resized[3]["second"].shape == (3, 30, 36)


def test_first_image_of_planes(grey: Path) -> None:
    """A dataset of 16-bit grey images is read, moved and batched as any other."""
    whole = PackedDataset(grey)
    assert whole[4][0].dtype == torch.uint16
    dataset = PackedDataset(grey, [T.RandomCrop(16), T.RandomHorizontalFlip(), T.ToFloat()], seed=5)
    images, labels = next(iter(FastLoader(dataset, batch_size=COUNT, engine="native")))
    assert (images.dtype, images.shape) == (torch.float32, (COUNT, 1, 16, 16))
    for row, label in enumerate(labels.tolist()):
        assert torch.equal(images[row], dataset[label][0])
        assert torch.isin((images[row] * 65535).round().int(), whole[label][0].int()).all()
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[3][0], dataset[3][0])


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.float16},
        {"memory_format": torch.channels_last},
        {"batch_transform": T.ToFloat()},
        {"batch_transform": T.Normalize((0.5,), (0.25,)), "device": "cpu", "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_floats_of_planes(grey: Path, options: dict[str, Any]) -> None:
    """Conversions of batches take images that are not 8-bit RGB, and are the same whichever engine makes
    them."""
    dataset = PackedDataset(grey, [T.Resize((12, 10))])
    native, python = (
        next(iter(FastLoader(dataset, batch_size=COUNT, engine=engine, **options)))[0]
        for engine in ("native", "python")
    )
    assert native.dtype == python.dtype
    assert torch.equal(native.double(), python.double())


def test_leaving_images_out(folder: Path) -> None:
    """Only delivered images are decoded; without the first, a further one stays as it was packed."""
    assert set(PackedDataset(folder, TRANSFORMS["crop"], fields=("image", "depth"))[0]) == {"image", "depth"}
    alone = PackedDataset(folder, fields=("depth", "label"))
    assert torch.equal(alone[2][0].int(), PackedDataset(folder)[2]["depth"].int())


@pytest.mark.parametrize(("collate", "pad_to"), [("list", None), ("padded", 1), ("padded", 16)])
def test_batches_of_different_sizes(folder: Path, collate: Any, pad_to: int | None) -> None:
    """Each image of a sample has a size of its own in lists and padded batches, as with engine="python"."""
    names = ("image", "second", "depth", "alpha", "label")
    dataset = PackedDataset(
        folder, [T.RandomShortestSize([20, 30, 40]), T.RandomHorizontalFlip()], fields=names, seed=4
    )
    native, python = (
        list(FastLoader(dataset, batch_size=4, collate=collate, pad_to=pad_to, engine=engine, num_workers=2))
        for engine in ("native", "python")
    )
    assert len(native) == len(python) == 3
    for a, b in zip(native, python, strict=True):
        assert _same(a, b)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_further_image_that_is_damaged(tmp_path: Path, on_error: Any) -> None:
    """A sample whose further image was damaged fails as a whole."""
    out = tmp_path / "d"
    fastload.pack(Pairs(), out, workers=1)
    reader = DatasetReader(out)
    data = reader.stored_fields(3)[reader.schema.number("alpha")][1]
    reader.close()
    [shard] = out.glob("shard-*")
    content = bytearray(shard.read_bytes())
    at = content.find(data)
    assert at > 0
    content[at + 8] = 3  # channels, of an entry that says four
    shard.write_bytes(content)
    dataset = PackedDataset(out, TRANSFORMS["crop"], fields=("image", "alpha", "label"), seed=1)
    with pytest.raises(SampleError, match="sample 3"):
        dataset[3]
    labels = [
        label
        for batch in FastLoader(dataset, 3, engine="native", on_error=on_error)
        for label in batch["label"].tolist()
    ]
    assert len(labels) == (COUNT - 1 if on_error == "skip" else COUNT)
    assert 3 not in labels


def test_crops_that_depend_on_boxes(tmp_path: Path) -> None:
    """RandomIoUCrop cuts the twin, the depth and the mask as it cuts the image; an image of another size
    cannot be cut by these boxes."""
    out = tmp_path / "d"
    fastload.pack(Boxed(), out, workers=1)
    steps = [T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.CenterCrop(24)]
    names = ("image", "twin", "depth", "mask", "boxes", "label")
    dataset = PackedDataset(out, steps, fields=names, seed=6)
    assert dataset.plan.native
    cut = 0
    for index in range(COUNT):
        sample = dataset[index]
        assert torch.equal(sample["twin"], sample["image"])
        assert torch.equal(sample["depth"][0].int(), sample["mask"].int())
        cut += not torch.equal(
            sample["image"], PackedDataset(out, T.CenterCrop(24), fields=("image", "label"))[index][0]
        )
    assert cut
    for batch in FastLoader(dataset, COUNT, collate="padded", engine="native", num_workers=2):
        for row, label in enumerate(batch["label"].tolist()):
            assert all(
                equal(batch[name][row], dataset[label][name]) for name in ("image", "twin", "depth", "mask")
            )
    with pytest.raises(
        SampleError,
        match=r"field 'second': RandomIoUCrop cuts images of one size alike, and it has 110 x 90 pixels",
    ):
        PackedDataset(out, steps, fields=("image", "second", "boxes"))[2]
