"""dtype= and memory_format= on packed data with a Python step: the native form, and which arguments
contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError

CROP = [T.CenterCrop(32)]
FLOATS = [*CROP, T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.3))]
FORMS: list[dict[str, Any]] = [
    {"dtype": torch.float16},
    {"dtype": torch.bfloat16, "memory_format": torch.channels_last},
    {"memory_format": torch.channels_last},
    {
        "dtype": torch.float32,
        "batch_transform": T.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.3)),
        "memory_format": torch.channels_last,
    },
]


class Step:
    """A step of Python that changes nothing."""

    def __call__(self, image: Any) -> Any:
        return image


def stacked(samples: list[Any]) -> Any:
    return [torch.stack([image for image, _ in samples]), {image.dtype for image, _ in samples}]


def images(packed: Path, transform: Any, **arguments: Any) -> list[Any]:
    given = {"batch_size": 16, "seed": 1, "sampler": range(32), **arguments}
    with FastLoader(PackedDataset(packed, transform=transform), **given) as loader:
        return [batch[0] for batch in loader]


TAKERS: dict[str, dict[str, Any]] = {
    "batches": {},
    "collate_fn": {"collate_fn": stacked},
    "samples": {"batch_size": None},
}
CASES = [(form, steps, taker) for form in FORMS[:3] for steps in (CROP, FLOATS) for taker in TAKERS]
# Elsewhere floats come twice, or there are no batches to transform: refused on every engine.
CASES += [(FORMS[3], CROP, "batches")]


@pytest.mark.parametrize(("form", "transform", "taken"), CASES)
def test_the_native_form_with_a_python_step(
    packed: Path, form: dict[str, Any], transform: Any, taken: str
) -> None:
    """Images have the dtype, the values to the bit, and the strides that native threads write, whoever
    takes them, on every engine."""
    taker = TAKERS[taken]
    expected = images(packed, transform, num_workers=1, **form, **taker)
    for engine in ({"num_workers": 0}, {"num_workers": 1}, {"num_workers": 1, "seed_by": "sample"}):
        got = images(packed, [*transform, Step()], **engine, **form, **taker)
        for mine, native in zip(got, expected, strict=True):
            assert (mine.dtype, mine.stride()) == (native.dtype, native.stride())
            assert torch.equal(mine, native)


def test_grey_images(packed: Path) -> None:
    """A Python step may leave another number of channels."""
    grey = [*CROP, lambda image: image[:1]]
    for batch, plain in zip(images(packed, grey, dtype=torch.float32), images(packed, grey), strict=True):
        assert torch.equal(batch, plain / 255)


@pytest.mark.parametrize("collate_fn", [None, list], ids=["default", "own"])
@pytest.mark.parametrize(
    ("leaves", "dtype", "told"),
    [
        (lambda image: image.float(), torch.uint8, "make floats"),
        (lambda image: image[0], torch.float16, r"batches of torch.uint8 \("),
        (lambda image: image.to(torch.int32), torch.float16, r"batches of torch.int32 \("),
        (lambda image: image.sum().item(), torch.float16, r"leave int|batches of torch.int64"),
    ],
)
def test_what_cannot_be_converted(
    packed: Path, collate_fn: Any, leaves: Any, dtype: torch.dtype, told: str
) -> None:
    """Where a Python step leaves no image tensors, the error says what it leaves, and what to do."""
    with pytest.raises(ArgumentError, match=told):
        images(packed, [*CROP, leaves], dtype=dtype, collate_fn=collate_fn, num_workers=1)


@pytest.mark.parametrize("steps", [[], [Step()]], ids=["native", "Python"])
def test_contradictions_are_refused_on_every_engine(packed: Path, steps: list[Any]) -> None:
    """A dtype or format that no engine writes, floats twice, bytes of floats, no image to act on: an
    ArgumentError at once."""
    bytes_, floats = (PackedDataset(packed, transform=[*transform, *steps]) for transform in (CROP, FLOATS))
    labels = PackedDataset(packed, transform=[*CROP, *steps], fields=["label"])
    to_float = T.ToFloat()
    for dataset, arguments, told in (
        (bytes_, {"dtype": torch.float64}, "float64"),
        (bytes_, {"memory_format": torch.channels_last_3d}, "channels_last_3d"),
        (floats, {"dtype": torch.uint8}, "dtype=uint8"),
        (floats, {"batch_transform": to_float}, "both"),
        (bytes_, {"batch_transform": to_float, "dtype": torch.uint8}, "dtype=uint8"),
        (labels, {"dtype": torch.float16}, "leaves them out"),
    ):
        with pytest.raises(ArgumentError, match=told):
            FastLoader(dataset, **arguments)  # type: ignore[arg-type]
