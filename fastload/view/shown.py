"""Values as a page shows them: tensors of images as 8-bit pixels, anything as text, and documents as JSON that JavaScript reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fastload.transforms.spec import Plan
from fastload.view.png import Pixels

TEXT_MOST = 20_000
"""Characters of one value on a page."""
_NUMBERS_MOST = 200
"""Numbers of an array that are written out; of a larger one its ends are."""
_BYTES_MOST = 64


@dataclass(frozen=True)
class ShownImage:
    """An image as 8-bit pixels.

    Attributes:
        pixels: uint8, (height, width) or (height, width, 3).
        note: the changes that were made to show it, in words; "": the pixels are the image's.
    """

    pixels: Pixels
    note: str = ""


def shown_image(image: torch.Tensor, plan: Plan | None = None) -> ShownImage:
    """An image (channels, height, width) of any dtype as 8-bit pixels.

    Floats are those of 0..1, after `plan`'s Normalize is undone. 16-bit values and floats outside of 0..1 are stretched from the least to
    the greatest. Of four channels the first three are shown, of two the first.
    """
    values, notes = image.detach().cpu(), []
    if plan is not None and plan.mean is not None and plan.std is not None and values.is_floating_point():
        shape = (-1, 1, 1)
        values = values.float() * torch.tensor(plan.std).view(shape) + torch.tensor(plan.mean).view(shape)
        notes.append("Normalize is undone")
    if values.shape[0] not in (1, 3):
        notes.append(f"{3 if values.shape[0] > 3 else 1} of its {values.shape[0]} channels")
        values = values[: 3 if values.shape[0] > 3 else 1]
    array = values.float().numpy() if values.is_floating_point() else values.numpy()
    if array.dtype != np.uint8:
        array, note = _bytes_of(array)
        notes += [note] if note else []
    grey = array.shape[0] == 1
    return ShownImage(np.ascontiguousarray(array[0] if grey else array.transpose(1, 2, 0)), "; ".join(notes))


def _bytes_of(array: np.ndarray[Any, Any]) -> tuple[Pixels, str]:
    """8-bit values of others, and how they were made."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    slack = 1e-3  # of floats: rounding in Normalize and back
    if array.dtype.kind == "f" and least >= -slack and most <= 1 + slack:
        low, high, note = 0.0, 1.0, ""
    else:
        low, high, note = least, most, f"stretched from {least:g} .. {most:g}"
    scaled = (np.nan_to_num(array.astype(np.float64), nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    return np.rint(np.clip(scaled, 0, 1) * 255).astype(np.uint8), note


def text_of(value: Any) -> str:
    """A value as text, cut to TEXT_MOST characters."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        text = f"{len(data):,} bytes: {data[:_BYTES_MOST].hex(' ')}{' ...' if len(data) > _BYTES_MOST else ''}"
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = value.detach().cpu().float().numpy() if isinstance(value, torch.Tensor) and value.is_floating_point() else np.asarray(value)
        text = np.array2string(array, threshold=_NUMBERS_MOST, edgeitems=4, max_line_width=100, separator=", ")
    elif isinstance(value, Mapping | Sequence):
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        if "{" in text:  # and no mere numbers
            text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    else:
        text = str(value)
    return text if len(text) <= TEXT_MOST else f"{text[:TEXT_MOST]} ... ({len(text):,} characters)"


def _plain(value: Any) -> Any:
    """A value in a list, for JSON: of a tensor its numbers."""
    return np.round(value.double().numpy(), 3).tolist() if isinstance(value, torch.Tensor) else str(value)


def document(value: Any) -> bytes:
    """A document as JSON in ASCII; numbers that JSON has not (NaN, infinities) are null."""
    return json.dumps(_finite(value), ensure_ascii=True, allow_nan=False).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
