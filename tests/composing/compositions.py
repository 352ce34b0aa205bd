"""Programs of torchvision's transforms, run on plain and on lazy images: the values of both as they can be
seen, and the random numbers that follow."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from lazy_helpers import files
from PIL import Image, ImageOps
from torchvision import tv_tensors
from torchvision.transforms import _functional_pil as pillow

from fastload.composing import adjusting, image_ops

STEPS: dict[Any, Any] = {pillow: adjusting.STEPS, ImageOps: image_ops.STEPS}
"""Functions that are exchanged for one step, by module."""


@contextmanager
def functions_exchanged() -> Iterator[None]:
    """torchvision's and Pillow's functions are exchanged, as in a worker."""
    own = [(module, name, getattr(module, name)) for module, names in STEPS.items() for name in names]
    adjusting.exchange()
    image_ops.exchange()
    try:
        yield
    finally:
        for module, name, function in own:
            setattr(module, name, function)


def opened() -> Image.Image:
    """An image of mode RGB, opened from a file."""
    return Image.open(io.BytesIO(files()["420"])).convert("RGB")


def shown(value: Any) -> Any:
    """All that can be seen of a tensor, in containers, too; an image itself."""
    if isinstance(value, tuple | list):
        return type(value), [shown(each) for each in value]
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    if isinstance(value, tv_tensors.BoundingBoxes):
        return value.canvas_size, value.format, shown(value.as_subclass(torch.Tensor))
    if isinstance(value, torch.Tensor):
        plain = value.as_subclass(torch.Tensor)
        return type(value), plain.dtype, plain.shape, plain.stride(), plain.numpy().tobytes()
    return shown(torch.from_numpy(value)) if isinstance(value, np.ndarray) else value


def three_times(make: Callable[[], Any]) -> Callable[[], Any]:
    """A program that calls a function three times; its results, and the generators' states at the end."""

    def run() -> Any:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        made: list[Any] = []
        try:
            made.extend(make() for _ in range(3))
        finally:
            state: Any = np.random.get_state()
            made.append(
                (torch.get_rng_state().numpy().tobytes(), random.getstate(), state[1].tobytes(), state[2:])
            )
        return made

    return run
