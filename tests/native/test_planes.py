"""core's planes and rows of any number: what is encoded decodes to the same, and every nearest sampling is
what NumPy picks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastload._native import core
from fastload.errors import ArgumentError, SampleError

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40)) | st.tuples(
    st.integers(1, 20), st.integers(1, 20), st.integers(2, 4)
)
PIXELS = st.sampled_from([np.uint8, np.uint16]).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))


@given(PIXELS, st.data())
def test_round_trip(pixels: npt.NDArray[Any], data: st.DataObject) -> None:
    """Pixels of any form come back, as a whole, in any box, and by any rows and columns."""
    entry = core.encode_planes(pixels)
    height, width = pixels.shape[:2]
    header = core.planes_header(entry)
    assert (header.height, header.width, header.channels) == (
        height,
        width,
        pixels.shape[2] if pixels.ndim == 3 else 1,
    )
    found = core.decode_planes(entry)
    assert found.dtype == pixels.dtype
    assert np.array_equal(found, pixels)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    assert np.array_equal(core.decode_planes(entry, (x, y, w, h)), pixels[y : y + h, x : x + w])
    rows = np.array(data.draw(st.lists(st.integers(0, height - 1), max_size=50)), np.uint32)
    columns = np.array(data.draw(st.lists(st.integers(0, width - 1), max_size=50)), np.uint32)
    assert np.array_equal(core.sample_planes(entry, rows, columns), pixels[rows][:, columns])


def test_codecs() -> None:
    """A label map is runs, and small; smooth 16-bit values are zlib; noise is stored as it is."""
    y, x = np.mgrid[:480, :640]
    labels = ((x // 80 + y // 120) % 21).astype(np.uint8)
    depth = (3 * x + 2 * y + (x * y) % 3).astype(np.uint16)
    noise = np.random.default_rng(0).integers(0, 65536, (480, 640), dtype=np.uint16)
    codecs = {}
    for name, pixels in {"labels": labels, "depth": depth, "noise": noise}.items():
        entry = core.encode_planes(pixels)
        codecs[name] = core.planes_header(entry).codec, round(pixels.nbytes / len(entry))
        assert np.array_equal(core.decode_planes(entry), pixels)
    assert codecs["labels"][0] == core.PLANES_RUNS
    assert codecs["labels"][1] > 100
    assert codecs["depth"][0] == core.PLANES_ZLIB
    assert codecs["depth"][1] >= 4
    assert codecs["noise"] == (core.PLANES_STORED, 1)


@given(st.binary(max_size=200))
def test_hostile(data: bytes) -> None:
    """Any bytes are an error of the sample, or hold."""
    for read in (
        lambda: core.planes_header(data),
        lambda: core.split_varying(data, 2, 8),
        lambda: core.decode_instances(data, 3, 4),
    ):
        try:
            read()
        except SampleError:
            pass


def test_arguments() -> None:
    """What is no picture, and a box that is not within, are told."""
    for pixels in (
        np.zeros((2, 2), np.int32),
        np.zeros(4, np.uint8),
        np.zeros((0, 3), np.uint8),
        np.zeros((2, 2, 5), np.uint8),
    ):
        with pytest.raises(ArgumentError, match="planes"):
            core.encode_planes(pixels)
    entry = core.encode_planes(np.zeros((4, 5), np.uint8))
    for box in ((0, 0, 6, 4), (0, 0, 5, 5), (1, 0, 5, 4), (0, 0, 0, 1), (9, 9, 1, 1)):
        with pytest.raises(ArgumentError, match="box"):
            core.decode_planes(entry, box)
    with pytest.raises(ArgumentError, match="column 5 of 5"):
        core.sample_planes(entry, np.zeros(1, np.uint32), np.array([5], np.uint32))
