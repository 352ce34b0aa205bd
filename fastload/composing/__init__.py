"""torchvision's and Pillow's own code where it meets lazy images, in worker processes: functions and whole
transforms that do what theirs do, in fewer steps, are put into their places.

A function is exchanged only where it is the library's own (NOTE [ originals: how replaced code is found ]),
and acts only where it has shown that it makes the library's values. Everything else, and every error, is left
to that."""

from __future__ import annotations

import functools
import importlib

from fastload.common.imports import after_import

_WAITING = {
    "image_ops": "PIL.ImageOps",
    "adjusting": "torchvision.transforms._functional_pil",
    "normalizing": "torchvision.transforms._functional_tensor",
    "to_tensor": "torchvision.transforms.functional",
    "blurring": "torchvision.transforms.functional",
    "compose": "torchvision.transforms.transforms",
    "compose_v2": "torchvision.transforms.v2",
    "spaces": "torchvision.transforms.autoaugment",
    "steps_timm": "timm.data.transforms",
    "steps_lightly": "lightly.transforms.torchvision_v2_compatibility",
}
"""Modules of other libraries by the file here that waits for them."""


def install() -> None:
    """Exchanges the functions in this process, each once its module is imported by somebody
    else."""
    for name, module in _WAITING.items():
        after_import(module, functools.partial(_exchange, name))


def _exchange(name: str) -> None:
    importlib.import_module(f"{__name__}.{name}").exchange()
