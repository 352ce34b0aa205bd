"""Arguments of any range and type: a lazy image gives what Pillow gives, and raises what it raises, at the
same call."""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import both, files
from PIL import Image

LIMITS = [2**15, 2**16, 2**30, 2**31, 2**32, 2**53, 2**63, 2**64, 10**400]
edges = st.tuples(st.sampled_from([0, *LIMITS, *(-each for each in LIMITS)]), st.integers(-3, 90)).map(sum)
"""Whole numbers around the limits of C's types."""
types = st.sampled_from(
    [
        int,
        int,
        int,
        float,
        np.int16,
        np.int32,
        np.int64,
        np.uint8,
        np.float32,
        np.float64,
        Decimal,
        Fraction,
        bool,
        str,
    ]
)
odd = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -0.0,
        1e-300,
        1e300,
        0.5,
        61.0000001,
        82.99999999,
        None,
        "7",
        (),
        1j,
        True,
    ]
)


def typed(number: int, kind: type) -> Any:
    """A number as another type, or as it is where that does not hold it."""
    try:
        return kind(number)
    except (OverflowError, ValueError):
        return number


def is_bearable(width: Any, height: Any) -> bool:
    """Returns False for a size of which Pillow would begin to make an image, in gigabytes."""
    try:
        sides = abs(round(float(width))), abs(round(float(height)))
    except (OverflowError, TypeError, ValueError):
        return True
    return max(sides) >= 2**32 or sides[0] * sides[1] <= 2**22


def is_bearable_size(size: Any) -> bool:
    return not isinstance(size, tuple | list) or len(size) != 2 or is_bearable(*size)


def is_bearable_box(box: Any) -> bool:
    """The same of a box; one with a side that is no number has no size."""
    try:
        left, upper, right, lower = (float(side) for side in box)
    except (OverflowError, TypeError, ValueError):
        return True
    return is_bearable(right - left, lower - upper)


numbers = st.builds(typed, st.integers(-3, 90) | edges, types) | odd


@st.composite
def boxes(draw: Any) -> Any:
    """Boxes of which neither side, or both, are near each other: Pillow makes an image of that size."""
    if draw(st.booleans()):
        left, upper = draw(edges), draw(edges)
        kind = draw(types)
        return tuple(
            typed(side, kind)
            for side in (left, upper, left + draw(st.integers(-2, 40)), upper + draw(st.integers(-2, 40)))
        )
    made = draw(st.tuples(numbers, numbers, numbers, numbers) | st.lists(numbers, min_size=0, max_size=5))
    return draw(st.sampled_from([made, tuple(made), list(made)]))


sizes = (
    st.tuples(numbers, numbers)
    | st.lists(numbers, max_size=3)
    | numbers
    | st.sampled_from([np.array([7, 9]), np.array([7.5, 9])])
)
sizes = sizes.filter(is_bearable_size)
filters = st.sampled_from(
    [
        *Image.Resampling,
        None,
        0,
        3,
        2.0,
        -1,
        8,
        2**31,
        2**64,
        True,
        np.int64(3),
        "bicubic",
        Image.Transpose.ROTATE_90,
    ]
)
gaps = st.none() | st.sampled_from([1, 1.5, 3.0, 0.5, float("nan"), float("inf"), 2**64, np.float32(2), "2"])
methods = st.sampled_from(
    [
        *Image.Transpose,
        7,
        -1,
        2**31,
        2**64,
        True,
        1.0,
        np.int64(1),
        np.uint8(2),
        None,
        "0",
        Image.Resampling.BOX,
    ]
)
dithers = st.sampled_from([None, *Image.Dither, 7, 2**31, 2**64, "x", 1.0, True, np.int64(3)])
modes = st.sampled_from(["RGB", "L", "1", None, "", b"RGB", np.str_("RGB"), 3])
calls = st.one_of(
    st.builds(lambda box: lambda image: image.crop(box), boxes().filter(is_bearable_box)),
    st.builds(lambda size, resample: lambda image: image.resize(size, resample), sizes, filters),
    st.builds(
        lambda size, resample, box, gap: lambda image: image.resize(size, resample, box, gap),
        sizes,
        filters,
        boxes().filter(is_bearable_box) | st.none(),
        gaps,
    ),
    st.builds(
        lambda size, resample, gap: lambda image: image.thumbnail(size, resample, gap), sizes, filters, gaps
    ),
    st.builds(lambda factor: lambda image: image.reduce(factor), sizes),
    st.builds(
        lambda factor, box: lambda image: image.reduce(factor, box), sizes, boxes().filter(is_bearable_box)
    ),
    st.builds(lambda method: lambda image: image.transpose(method), methods),
    st.builds(lambda mode, dither: lambda image: image.convert(mode, dither=dither), modes, dithers),
    st.builds(lambda mode, size: lambda image: image.draft(mode, size), modes, sizes),
)


def much(call: Callable[[Image.Image], Any], image: Image.Image) -> Any:
    """The outcome of a call, at once, without the pixels of a large result."""
    try:
        made = call(image)
    except (Exception, MemoryError) as error:
        return type(error).__name__, str(error)
    return made if not isinstance(made, Image.Image) or made.width * made.height < 1 << 18 else made.size


@pytest.mark.parametrize("limit", [None, Image.MAX_IMAGE_PIXELS])
@given(st.sampled_from(["420", "grey"]), st.lists(calls, min_size=1, max_size=3))
@settings(max_examples=300, print_blob=True)
def test_arguments(limit: int | None, name: str, several: list[Callable[[Image.Image], Any]]) -> None:
    """Each call's result or exception, type and text, and the image after it."""

    def program() -> Any:
        image = Image.open(io.BytesIO(files()[name]))
        values = []
        for call in several:
            made = much(call, image)
            values.append(made)
            image = made if isinstance(made, Image.Image) else image
        return values, image

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize(
    "away", [2**31 - 40, 2**31 - 1, 2**31, 2**32, 2**63, -(2**31) - 1, -(2**31), -(2**63), 10**30]
)
def test_a_box_beyond_32_bits(away: int) -> None:
    """A crop there raises what Pillow raises, from the file and from what was made of it."""
    steps: tuple[Callable[[Image.Image], Image.Image], ...] = (
        lambda image: image,
        lambda image: image.crop((3, 3, 40, 40)),
        lambda image: image.resize((20, 30)),
    )
    for step in steps:
        for box in ((away, 0, away + 9, 9), (0, away, 9, away + 9), (away + 5, away, away + 6, away + 1)):
            plain, lazy = both(
                lambda step=step, box=box: step(Image.open(io.BytesIO(files()["420"]))).crop(box)
            )
            assert lazy == plain
