"""Agreement with the installed Pillow: its order of passes is found, a Pillow that rounds otherwise is not taken for equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload._native import core
from fastload.lazy import resampling


@pytest.fixture
def fresh() -> Iterator[None]:
    """The probes run anew, in the test and after it."""
    resampling.pillow_order.cache_clear()
    yield
    resampling.pillow_order.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_the_installed_pillow_s_order_is_found() -> None:
    """Up to Pillow 12 rows go first, from 13 on what shrinks more."""
    major = int(Image.__version__.split(".")[0])
    assert resampling.pillow_order() == ("by-shrink" if major >= 13 else "horizontal")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("order", ["horizontal", "by-shrink"])
def test_the_probes_tell_the_orders_apart(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """A Pillow of either order is known by its pixels."""

    def resize(self: Any, size: tuple[int, int], resample: int, box: Any = None) -> Image.Image:
        pixels = np.asarray(self)
        out = core.resize_exact(pixels, box, size, resampling.FILTERS[resample], order=order)
        return Image.fromarray(out if pixels.ndim == 3 else out[:, :, 0])

    monkeypatch.setattr(Image.Image, "resize", resize)
    assert resampling.pillow_order() == order


@pytest.mark.usefixtures("fresh")
def test_a_pillow_that_rounds_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value that differs by one is enough."""
    original = Image.Image.resize

    def resize(self: Any, size: tuple[int, int], resample: int, box: Any = None) -> Image.Image:
        out = np.array(original(self, size, resample, box))
        out.flat[-1] ^= resample == Image.Resampling.BICUBIC
        return Image.fromarray(out)

    monkeypatch.setattr(Image.Image, "resize", resize)
    assert resampling.pillow_order() is None


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(1.0, 4.0),
    st.sampled_from(sorted(resampling.FILTERS.values())[:6]),
    st.tuples(*[st.floats(0, 1)] * 4),
)
def test_a_reducing_gap_is_pillow_s(
    width: int, height: int, out_width: int, out_height: int, gap: float, name: str, cuts: tuple[float, ...]
) -> None:
    """The reduction and the resize of what is left give the bytes of Pillow's resize with reducing_gap."""
    number = next(number for number, each in resampling.FILTERS.items() if each == name)
    pixels = np.random.default_rng([width, height]).integers(0, 256, (height, width, 3), dtype=np.uint8)
    (left, right), (top, bottom) = sorted(each * width for each in cuts[:2]), sorted(each * height for each in cuts[2:])
    assume(left < right and top < bottom)  # Pillow reduces no empty box
    box, size = (left, top, right, bottom), (out_width, out_height)
    wanted = np.asarray(Image.fromarray(pixels).resize(size, number, box, gap))
    first = resampling.reduction((width, height), box, size, name, gap)
    if first is not None:
        pixels, box = core.reduce_exact(pixels, first.factors, first.box), first.rest
    got = core.resize_exact(pixels, box, size, name, order=resampling.pillow_order() or "")
    np.testing.assert_array_equal(got, wanted)
