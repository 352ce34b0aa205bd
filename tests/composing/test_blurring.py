"""torchvision's gaussian_blur of lazy images as a step: its pixels, attributes and errors; in workers alone,
and never in place of other code or another way to compute."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional as F

from fastload import FastLoader
from fastload.composing import blurring
from fastload.lazy import counts, images
from fastload.lazy.opening import opened_lazily

OWN: Callable[..., Any] = F.gaussian_blur
NOISE = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """The function is exchanged, as in a worker."""
    blurring.exchange()
    yield
    F.gaussian_blur = OWN


def jpeg(width: int, height: int, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.fromarray(NOISE[:height, :width]).convert(mode).save(file, "JPEG", quality=95)
    return file.getvalue()


sides = st.integers(1, 12).map(lambda half: 2 * half + 1)


@given(st.integers(1, 400), st.integers(1, 300), sides, st.floats(0.01, 12))
@settings(max_examples=150)
def test_pixels(width: int, height: int, side: int, sigma: float) -> None:
    """Sizes and kernels of any kind, among them those that are too large for the image: torchvision's pixels,
    or its exception."""

    def result(blur: Callable[..., Any], image: Image.Image) -> Any:
        try:
            return np.asarray(blur(image, [side, side], [sigma, sigma]))
        except RuntimeError as error:
            return str(error)

    data = jpeg(width, height)
    with opened_lazily("exact"):
        made = result(F.gaussian_blur, Image.open(io.BytesIO(data)))
    wanted = result(OWN, Image.open(io.BytesIO(data)))
    assert type(made) is type(wanted)
    assert np.array_equal(made, wanted) if isinstance(wanted, np.ndarray) else made == wanted


def test_it_is_a_step() -> None:
    """No image is made for it, its size, mode and info are torchvision's, and steps may follow."""
    data = jpeg(200, 120)

    def program() -> Image.Image:
        image = Image.open(io.BytesIO(data)).resize((90, 80), Image.Resampling.BICUBIC)
        return F.hflip(F.gaussian_blur(image, (9, 9), [1.5, 1.5]))

    wanted = program()
    counts.take()
    with opened_lazily("exact"):
        made = program()
        assert type(made) in images.KINDS
        assert np.array_equal(np.asarray(made), np.asarray(wanted))
        assert (made.mode, made.size, made.info) == (wanted.mode, wanted.size, wanted.info)
    taken = counts.take()
    assert taken is not None
    assert not taken.whole
    assert program().tobytes("raw", "RGBX") == wanted.tobytes("raw", "RGBX")


CALLS: tuple[tuple[Any, ...], ...] = (
    ((9, 3), [1.0, 1.0]),
    (9, 1.0),
    ((8, 8), [1.0, 1.0]),
    ((5, 5), [1.0, 2.0]),
    ((5, 5), [0.0, 1.0]),
    ((5, 5), None),
    ((5,), [1.0, 1.0]),
    ((True, True), [1.0, 1.0]),
    ("x", [1.0]),
)


@pytest.mark.parametrize("call", CALLS, ids=repr)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_all_other_calls_are_torchvisions(call: tuple[Any, ...], mode: str) -> None:
    """Arguments of other kinds, and other modes: its results and its exceptions."""

    def result(blur: Callable[..., Any], image: Image.Image) -> object:
        try:
            return blur(image, *call).tobytes()
        except Exception as error:
            return type(error), str(error)

    data = jpeg(61, 47, mode)
    with opened_lazily("exact"):
        made = result(F.gaussian_blur, Image.open(io.BytesIO(data)))
    assert made == result(OWN, Image.open(io.BytesIO(data)))


def lazily_blurred() -> bool:
    """True if a blur of a lazy image is a step."""
    with opened_lazily("exact"):
        image = F.gaussian_blur(Image.open(io.BytesIO(jpeg(61, 47))), (5, 5), [1.0, 1.0])
        core = images.core_of(image)
        recipe = None if core is None else core.recipe()
        return recipe is not None and any(type(step) is blurring.Convolve for step in recipe.steps)


def test_another_way_to_compute_is_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without oneDNN, under autocast, with another precision, and where a program has replaced a function."""
    assert lazily_blurred()
    torch.backends.mkldnn.set_flags(False)
    try:
        assert not lazily_blurred()
    finally:
        torch.backends.mkldnn.set_flags(True)
    with torch.autocast("cpu", torch.bfloat16):
        assert not lazily_blurred()
    torch.set_float32_matmul_precision("medium")
    try:
        assert not lazily_blurred()
    finally:
        torch.set_float32_matmul_precision("highest")
    from torchvision.transforms import _functional_tensor

    monkeypatch.setattr(
        _functional_tensor, "conv2d", lambda *given, **options: torch.conv2d(*given, **options)
    )
    assert not lazily_blurred()
    monkeypatch.undo()
    monkeypatch.setattr(_functional_tensor, "gaussian_blur", lambda image, *_: image)
    assert not lazily_blurred()
    monkeypatch.undo()
    assert lazily_blurred()


class Photos(Dataset[torch.Tensor]):
    """A file, blurred at random."""

    def __init__(self) -> None:
        blur = transforms.RandomApply([transforms.GaussianBlur(9, (0.1, 2.0))], p=0.7)
        self.steps = transforms.Compose([transforms.RandomCrop(96), blur, transforms.PILToTensor()])

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        made: torch.Tensor = self.steps(Image.open(io.BytesIO(jpeg(180, 120 + index))))
        return made


def test_in_workers() -> None:
    """Batches and torch's generators as with lazy=False."""
    batches = []
    for lazy in ("exact", False):
        torch.manual_seed(7)
        with FastLoader(Photos(), batch_size=6, num_workers=2, lazy=lazy) as loader:
            batches.append([batch.clone() for batch in loader])
            lines = loader.explain(all=True)
        if lazy:
            assert "whole" not in lines
    assert all(map(torch.equal, *batches))
