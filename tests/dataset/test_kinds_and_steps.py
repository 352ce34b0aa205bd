"""Steps meet kinds of fields that torchvision or torch have no way for: rotated boxes to upright ones,
flips of 16-bit integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_source import COUNT, Numbered, packed

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.dataset.values import torch_flips_words, word_flips
from fastload.errors import TransformError
from fastload.packing import Item
from fastload.store import Field

tv = pytest.importorskip("torchvision.tv_tensors")
v2 = pytest.importorskip("torchvision.transforms.v2")

BOX = {
    "xyxy": [1.0, 2, 5, 6],
    "cxcywh": [4.0, 5, 3, 2],
    "xywhr": [4.0, 5, 3, 2, 30],
    "cxcywhr": [6.0, 5, 3, 2, 30],
}


def kept(sample: Any) -> Any:
    """A step that is Python and changes nothing."""
    return sample


def with_boxes(out: Path, form: str) -> Path:
    return packed(out / form, np.float32([BOX[form]] * 2), Field("boxes", "boxes", format=form))


@pytest.mark.parametrize(
    ("form", "to"), [("xywhr", "XYXY"), ("cxcywhr", "CXCYWH"), ("xyxy", "XYWHR"), ("cxcywh", "XYXYXYXY")]
)
@pytest.mark.parametrize("before", [[], [kept]])
def test_boxes_that_are_not_converted(tmp_path: Path, form: str, to: str, before: list[Any]) -> None:
    """Between rotated and upright formats is no conversion: the plan says so, of dataset[i] and of
    loaders, natively and in Python."""
    dataset = PackedDataset(with_boxes(tmp_path, form), [*before, v2.ConvertBoundingBoxFormat(to)])
    words = f"ConvertBoundingBoxFormat makes {to.lower()} of boxes, and 'boxes' has {form}: .*drop the step"
    with pytest.raises(TransformError, match=words):
        dataset[0]
    with pytest.raises(TransformError, match=words):
        list(FastLoader(dataset, batch_size=2, num_workers=0, collate="list"))
    sample = {"boxes": tv.BoundingBoxes(torch.tensor([BOX[form]]), format=form.upper(), canvas_size=(16, 16))}
    with pytest.raises(ValueError, match="Cannot convert between rotated and unrotated"):
        v2.ConvertBoundingBoxFormat(to)(sample)


@pytest.mark.parametrize(
    ("form", "to"), [("xywhr", "CXCYWHR"), ("cxcywhr", "XYXYXYXY"), ("xywhr", "XYWHR"), ("cxcywh", "XYXY")]
)
def test_boxes_that_are_converted(tmp_path: Path, form: str, to: str) -> None:
    """Rotated formats become each other, and upright ones, as torchvision has it."""
    step = v2.ConvertBoundingBoxFormat(to)
    found = PackedDataset(with_boxes(tmp_path, form), [step])[0]["boxes"].as_subclass(torch.Tensor)
    boxes = tv.BoundingBoxes(torch.tensor([BOX[form]] * 2), format=form.upper(), canvas_size=(16, 16))
    torch.testing.assert_close(found, step(boxes).as_subclass(torch.Tensor), rtol=0, atol=1e-5)


class Wide(Numbered):
    """A source of 16-bit masks, and of a 16-bit image beside the first."""

    title = "wide"
    fields = (Field("seg", "mask", "uint16"), Field("depth", "image", "uint16", (1,)))

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        wide = rng.integers(0, 1 << 16, (2, 12, 14), dtype=np.uint16)
        return Item(
            self.name(position),
            rng.integers(0, 256, (12, 14, 3), dtype=np.uint8),
            {"seg": wide[0], "depth": wide[1, ..., None]},
        )


FLIPS = {
    "horizontal": (lambda: [v2.RandomHorizontalFlip(1.0)], [2]),
    "both": (lambda: [v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)], [1, 2]),
    "in a container": (lambda: [v2.RandomApply([v2.RandomHorizontalFlip(1.0)], p=1.0)], [2]),
    "half a turn": (lambda: [v2.RandomRotation((180, 180))], [1, 2]),
    "one's own": (lambda: [lambda sample: {name: value.flip(-1) for name, value in sample.items()}], [2]),
}


@pytest.mark.parametrize("name", FLIPS)
def test_flips_of_16_bits(tmp_path: Path, name: str) -> None:
    """Masks and images of 16 bits are flipped by steps in Python, too, with all their values, in workers
    as in the calling process."""
    make, dims = FLIPS[name]
    fastload.pack(Wide(), tmp_path / "d", workers=1)
    plain, dataset = PackedDataset(tmp_path / "d"), PackedDataset(tmp_path / "d", [kept, *make()])
    for index in range(COUNT):
        sample = dataset[index]
        for field, value in plain[index].items():
            turned = np.flip(value.numpy(), [dim - 3 for dim in dims])
            assert sample[field].dtype == value.dtype
            np.testing.assert_array_equal(sample[field].as_subclass(torch.Tensor).numpy(), turned)
    with FastLoader(dataset, batch_size=2, num_workers=1, collate="list") as loader:
        assert sum(len(batch) for batch in loader) == COUNT
        assert "kept" in loader.explain(measure=True, all=True)


def test_flips_of_16_bit_images_alone(tmp_path: Path) -> None:
    """The same of a sample that is an image of 16 bits and nothing beside, which steps get as a tensor."""
    folder = packed(tmp_path / "d", 7, Field("label", "int"), channels=3, dtype="uint16")
    image, label = PackedDataset(folder, [T.CenterCrop(12), kept, v2.RandomHorizontalFlip(1.0)])[0]
    assert (image.shape, image.dtype, label) == ((3, 12, 12), torch.uint16, 7)
    flipped = flipped_outside(image)
    assert flipped is None or torch.equal(flipped.flip(-1), image)


def flipped_outside(image: torch.Tensor) -> torch.Tensor | None:
    """The image as torch flips it outside of the steps, where fastload changes nothing; None if the
    installed torch cannot."""
    try:
        return image.flip(-1)
    except NotImplementedError:
        return None


def test_torch_is_asked_for_its_own_flips() -> None:
    """fastload flips words in torch's place where the installed torch cannot, and only there."""
    words = torch.arange(6, dtype=torch.int32).to(torch.uint16)
    able = flipped_outside(words) is not None
    assert torch_flips_words() == able
    with word_flips([words]) as mode:
        assert (mode is None) == able
        assert words.flip(0).tolist() == [5, 4, 3, 2, 1, 0]
    with word_flips([words.to(torch.int32)]) as mode:
        assert mode is None
