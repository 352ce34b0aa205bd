"""to_float: the native float path's bits, in every dtype and layout, from either layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.device.to_float import to_float
from fastload.errors import ArgumentError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FORMATS = [torch.channels_last, torch.contiguous_format]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("out", FORMATS)
def test_every_byte_as_torchs_arithmetic(
    dtype: torch.dtype, source: torch.memory_format, out: torch.memory_format
) -> None:
    """All 256 values of each channel: (x / 255 - mean) / std in float32, rounded once; the input stays as
    it was."""
    x = (
        torch.arange(256, dtype=torch.uint8)
        .view(2, 1, 8, 16)
        .expand(2, 3, 8, 16)
        .contiguous(memory_format=source)
    )
    before = x.clone()
    want = (x.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    got = to_float(x, dtype, MEAN, STD, out)
    assert got.dtype == dtype
    assert got.is_contiguous(memory_format=out)
    assert torch.equal(got, want.to(dtype))
    assert torch.equal(to_float(x, dtype, memory_format=out), (x.float() / 255).to(dtype))
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_after_the_move_as_in_the_native_pass(
    packed: Path, dtype: torch.dtype, form: torch.memory_format
) -> None:
    """Normalize in batch_transform= gives the bits of Normalize in the transform, dtype and layout
    included."""
    crops = [T.RandomResizedCrop(48), T.RandomHorizontalFlip()]
    native = PackedDataset(packed, transform=[*crops, T.Normalize(MEAN, STD)])
    plain = PackedDataset(packed, transform=crops)
    form_of = {"batch_size": 8, "seed": 3, "dtype": dtype, "memory_format": form}
    for steps in (T.Normalize(MEAN, STD), [T.ToFloat(), T.Normalize(MEAN, STD)]):
        with (
            FastLoader(native, **form_of) as want,
            FastLoader(plain, batch_transform=steps, **form_of) as got,
        ):
            for (a, _), (b, _) in zip(want, got, strict=True):
                assert a.dtype == b.dtype == dtype
                assert torch.equal(a, b)
                assert a.stride() == b.stride()


def test_floats_are_not_divided_again() -> None:
    """Floats are taken as 0..1; without anything to change the tensor itself comes back."""
    x = torch.rand(2, 3, 4, 4)
    assert torch.equal(
        to_float(x, mean=MEAN, std=STD),
        (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1),
    )
    before = x.clone()
    to_float(x, torch.bfloat16, MEAN, STD)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_other_forms(channels: int, dtype: torch.dtype) -> None:
    """Grey, RGBA and 16-bit images become floats by the largest value of their dtype, and one mean and std
    serve all channels."""
    most = torch.iinfo(dtype).max
    x = torch.arange(2 * channels * 20).reshape(2, channels, 4, 5).mul(most // (2 * channels * 20)).to(dtype)
    half = (0.5, 0.5, 0.5)
    assert torch.equal(to_float(x), x.float() / most)
    assert torch.equal(
        to_float(x, torch.bfloat16, half, half), ((x.float() / most - 0.5) / 0.5).to(torch.bfloat16)
    )


def test_what_cannot_be_is_said() -> None:
    """Shapes, dtypes, half a normalisation, and two of them."""
    x = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    for call in (
        lambda: to_float(x[0]),
        lambda: to_float(x[:, :2]),
        lambda: to_float(x[:, :1], mean=MEAN, std=STD),
        lambda: to_float(x.short()),
        lambda: to_float(x.int()),
        lambda: to_float(x, torch.float64),
        lambda: to_float(x, mean=MEAN),
        lambda: to_float(x, mean=(0.5,), std=(0.5,)),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_one_normalize_only(packed: Path) -> None:
    """A second one, in the transform or in batch_transform, is refused when the loader is made."""
    twice = T.Normalize(MEAN, STD)
    with pytest.raises(ArgumentError, match="drop one"):
        FastLoader(packed, batch_size=4, transform=[T.Resize((8, 8)), twice], batch_transform=twice)
    with pytest.raises(ArgumentError, match="after Normalize"):
        FastLoader(packed, batch_size=4, transform=[T.Resize((8, 8))], batch_transform=[twice, T.ToFloat()])
