"""Floats without dividing: the correctly rounded quotients, calculated by the C library's fused
multiply-add."""

from __future__ import annotations

import ctypes
import ctypes.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.device.exact_division import divides, inverses

KNOWN = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "CLIP": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "halves": ((0.5,) * 3, (0.5,) * 3),
    "none": ((0.0,) * 3, (1.0,) * 3),
    "bytes": ((0.0,) * 3, (1 / 255,) * 3),
}


def fma(a: float, b: float, c: float) -> float:
    """a * b + c in float32, rounded once."""
    return float(_fmaf(a, b, c))


_fmaf = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
_fmaf.restype = ctypes.c_float
_fmaf.argtypes = [ctypes.c_float] * 3


def corrected(a: Any, b: Any, r: Any) -> float:
    """As the kernel does it."""
    q = float(np.float32(a) * np.float32(r))
    return fma(fma(q, -float(b), float(a)), float(r), q)


def assert_quotients(mean: tuple[float, ...], std: tuple[float, ...], reciprocal: bool) -> None:
    whole, inverse = np.float32(255), np.float32(1) / np.float32(255)
    for byte in range(256):
        x = np.float32(byte)
        value = x * inverse if reciprocal else x / whole
        assert reciprocal or corrected(x, whole, inverse) == value
        for m, s, r in zip(mean, std, inverses(std), strict=True):
            centred = value - np.float32(m)
            assert corrected(centred, np.float32(s), r) == centred / np.float32(s), (byte, m, s)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("reciprocal", [False, True])
def test_known_constants_need_no_division(name: str, reciprocal: bool) -> None:
    """Those that people use go the fast way, and come out as divided."""
    assert not divides(*KNOWN[name], reciprocal)
    assert_quotients(*KNOWN[name], reciprocal)


@settings(max_examples=60)
@given(
    st.tuples(*[st.floats(-300, 300, width=32)] * 3),
    st.tuples(*[st.floats(2.0**-10, 300, width=32)] * 3),
    st.booleans(),
)
def test_where_it_says_so_it_is_so(mean: tuple[float, ...], std: tuple[float, ...], reciprocal: bool) -> None:
    """For any constants that it would not divide by, every byte comes out as divided."""
    if not divides(mean, std, reciprocal):
        assert_quotients(mean, std, reciprocal)


def test_what_has_no_inverse_is_divided() -> None:
    """Nought, the smallest numbers, and infinity."""
    for std in (0.0, 1e-45, float("inf"), float("nan")):
        assert divides((0.5,) * 3, (1.0, std, 1.0), False)
