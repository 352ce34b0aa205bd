"""Values as a page shows them: anything as text, and documents as JSON that JavaScript reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

TEXT_MOST = 20_000
"""Characters of one value on a page."""
_NUMBERS_MOST = 200
"""Numbers of an array that are written out; of a larger one its ends are."""
_BYTES_MOST = 64


def text_of(value: object) -> str:
    """A value as text, cut to TEXT_MOST characters."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        text = (
            f"{len(data):,} bytes: {data[:_BYTES_MOST].hex(' ')}{' ...' if len(data) > _BYTES_MOST else ''}"
        )
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = (
            value.detach().cpu().float().numpy()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else np.asarray(value)
        )
        text = np.array2string(
            array, threshold=_NUMBERS_MOST, edgeitems=4, max_line_width=100, separator=", "
        )
    elif isinstance(value, Mapping | Sequence):
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        if "{" in text:  # and no mere numbers
            text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    else:
        text = str(value)
    return text if len(text) <= TEXT_MOST else f"{text[:TEXT_MOST]} ... ({len(text):,} characters)"


def _plain(value: object) -> object:
    """A value in a list, for JSON: of a tensor its numbers."""
    return np.round(value.double().numpy(), 3).tolist() if isinstance(value, torch.Tensor) else str(value)


def document(value: object) -> bytes:
    """A document as JSON in ASCII; numbers that JSON has not (NaN, infinities) are null."""
    return json.dumps(_finite(value), ensure_ascii=True, allow_nan=False).encode("ascii")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
