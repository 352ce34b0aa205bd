"""timm's transforms of lazy images, as steps of torchvision's Compose: timm's tensors and random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from compositions import functions_exchanged, opened, shown, three_times
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import both, counted, outcome
from torchvision import transforms as V

from fastload.composing import compose

timm = pytest.importorskip(
    "timm.data.transforms", reason="timm is not installed, or torchvision, which it imports"
)
factory = pytest.importorskip("timm.data.transforms_factory")


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """Compose is exchanged, as in a worker, and knows timm."""
    from fastload.composing import steps_timm

    call, runs, tensors = V.Compose.__call__, dict(compose.RUNS_OF_OTHERS), dict(compose.TO_TENSORS)
    compose.exchange()
    steps_timm.exchange()
    with functions_exchanged():
        yield
    V.Compose.__call__, compose.RUNS_OF_OTHERS, compose.TO_TENSORS = call, runs, tensors


@given(
    st.sampled_from([24, (31, 17)]),
    st.sampled_from(["random", "bilinear", "bicubic", "lanczos"]),
    st.sampled_from([None, (0.2, 0.9), (1.0, 1.0)]),
    st.sampled_from([None, "rand-m9-mstd0.5-inc1", "augmix-m3", "original", "3a"]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([0.0, 0.5]),
    st.booleans(),
)
@settings(max_examples=60)
def test_training_transforms(
    size: Any,
    interpolation: str,
    scale: Any,
    auto: str | None,
    jitter: float,
    erasing: float,
    normalize: bool,
) -> None:
    """create_transform's results and generators, whatever it is made with."""
    made = factory.create_transform(
        size, is_training=True, interpolation=interpolation, scale=scale, auto_augment=auto,
        color_jitter=jitter, re_prob=erasing, normalize=normalize,
    )  # fmt: skip
    plain, lazy = both(three_times(lambda: shown(made(opened()))))
    assert lazy == plain


@pytest.mark.parametrize("auto", [None, "rand-m9-n4", "original", "3a"])
def test_one_recipe(auto: str | None) -> None:
    """No image is made between the file and the normalised tensor, whatever timm's own classes draw."""
    made = factory.create_transform(32, is_training=True, auto_augment=auto)
    random.seed(1)
    np.random.seed(1)
    told = counted(lambda: [made(opened()) for _ in range(40)])
    assert not told.ended
    assert not told.whole
    assert told.straight == 40
    name = type(made.transforms[2]).__name__
    assert told.composed["RandomResizedCropAndInterpolation"] == told.composed[name] == 40
    assert told.composed["ToTensor"] == 40
    assert "Normalize" not in told.composed  # a part of the table of floats


def test_a_programs_code_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """get_params of one object or of the class, a subclass, and MaybeToTensor's call."""

    def drawn(img: Any, scale: Any, ratio: Any) -> Any:
        return 0, 0, 8, 8

    crop = timm.RandomResizedCropAndInterpolation(16)
    made = V.Compose([crop, timm.MaybeToTensor()])
    cropped = V.functional.resized_crop(opened(), 0, 0, 8, 8, (16, 16))
    expected = outcome(lambda: shown(V.ToTensor()(cropped)))
    for holder in (crop, timm.RandomResizedCropAndInterpolation):
        with monkeypatch.context() as patched:
            patched.setattr(holder, "get_params", drawn if holder is crop else staticmethod(drawn))
            plain, lazy = both(lambda: shown(made(opened())))
            assert lazy == plain == expected

    class Other(timm.MaybeToTensor):  # type: ignore[name-defined,misc]
        def __call__(self, pic: Any) -> Any:
            return super().__call__(pic) + 1

    plain, lazy = both(three_times(lambda: shown(V.Compose([crop, Other()])(opened()))))
    assert lazy == plain
    with monkeypatch.context() as patched:
        patched.setattr(timm.MaybeToTensor, "__call__", lambda self, pic: torch.zeros(3))
        plain, lazy = both(lambda: shown(made(opened())))
        assert lazy == plain == outcome(lambda: shown(torch.zeros(3)))
