"""core: every call gives back the memory that it takes from malloc, once its result is dropped."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from fastload._native import core
from fastload.store.shard import StoredPlace

CALLS, ROUNDS, ODD = 20, 9, 2
"""Calls in a round, rounds, and those rounds in which something else may have given memory back."""
LEAST = 32
"""Bytes of the smallest block that malloc hands out."""
COUNTS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class Counts(ctypes.Structure):
    """Counts of glibc's malloc."""

    _fields_ = [(name, ctypes.c_size_t) for name in COUNTS.split()]


COUNT: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
if COUNT is not None:
    COUNT.restype = Counts


def allocated() -> int:
    """Bytes that malloc has handed out and not got back, in its heaps and in mappings of their own."""
    counts = COUNT()
    return int(counts.uordblks + counts.hblkhd)


@dataclass
class Inputs:
    """Data for the calls: noise, of which each result takes tens of kilobytes."""

    pixels: npt.NDArray[np.uint8]
    jpeg: bytes
    progressive: bytes
    form: bytes
    planes: bytes
    path: Path  # of a file that holds the JPEG
    place: bytes  # entry of the same file

    def region(self) -> npt.NDArray[np.uint8]:
        decoder = core.RegionDecoder()
        decoder.decode((0, 0, *decoder.open(self.form)), 8)
        return decoder.pixels()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    pixels = np.random.default_rng(3).integers(0, 256, (160, 208, 3), np.uint8)

    def jpeg(**options: Any) -> bytes:
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=95, **options)
        return out.getvalue()

    plain, path = (
        jpeg(subsampling=0, comment="to be stripped"),
        tmp_path_factory.mktemp("memory") / "image.jpg",
    )
    path.write_bytes(plain)
    form, _ = core.DctCoder().encode(plain)
    assert form is not None
    place = StoredPlace(str(path), 0, len(plain), core.crc32c(plain), len(plain), path.stat().st_mtime_ns)
    return Inputs(
        pixels, plain, jpeg(progressive=True), form, core.encode_planes(pixels & 7), path, place.to_bytes()
    )


CASES: dict[str, Callable[[Inputs], object]] = {
    "jpeg_transform": lambda data: core.jpeg_transform(data.jpeg, 6),
    "jpeg_to_baseline": lambda data: core.jpeg_to_baseline(data.progressive),
    "jpeg_decode": lambda data: core.jpeg_decode(data.jpeg),
    "JpegPreparer": lambda data: core.JpegPreparer().prepare(data.jpeg, index=True),
    "DctCoder.encode": lambda data: core.DctCoder().encode(data.jpeg),
    "DctCoder.restore": lambda data: core.DctCoder().restore(data.form),
    "RegionDecoder": Inputs.region,
    "encode_planes": lambda data: core.encode_planes(data.pixels),
    "decode_planes": lambda data: core.decode_planes(data.planes),
    "sample_planes": lambda data: core.sample_planes(
        data.planes, *(np.arange(side, dtype=np.uint32) for side in data.pixels.shape[:2])
    ),
    "resize_exact": lambda data: core.resize_exact(data.pixels, None, (150, 150)),
    "reduce_exact": lambda data: core.reduce_exact(data.pixels, (2, 1)),
    "build_record": lambda data: core.build_record([(0, 1, data.jpeg), (1, 1, (data.form, data.planes))]),
    "read_attached": lambda data: core.read_attached(data.place, None),
    "Files.read": lambda data: core.Files(b"", os.fsencode(data.path) + b"\0", 1, 10).read(0),
}


@pytest.mark.skipif(COUNT is None, reason="needs glibc 2.33")
@pytest.mark.parametrize("name", CASES)
def test_a_call_leaves_no_memory_behind(inputs: Inputs, name: str) -> None:
    """No block for each call stays allocated; malloc's counts show a result that is held.

    A block that stays is counted in every round; what Python and earlier tests keep for later, in some.
    """
    call, grown = CASES[name], []
    call(inputs)
    before = allocated()
    held = call(inputs)
    assert allocated() - before > 10_000
    del held
    for _ in range(ROUNDS):
        before = allocated()
        for _ in range(CALLS):
            call(inputs)
        grown.append(allocated() - before)
    assert sorted(grown)[ODD] < CALLS * LEAST, grown


@pytest.mark.skipif(COUNT is None, reason="needs glibc 2.33")
def test_a_block_that_stays_is_seen(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails for a call that keeps the smallest block."""
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    monkeypatch.setitem(CASES, "leaky", lambda data: (malloc(24), core.jpeg_decode(data.jpeg)))
    with pytest.raises(AssertionError, match="<"):
        test_a_call_leaves_no_memory_behind(inputs, "leaky")
