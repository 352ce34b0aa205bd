"""Makes torchvision importable beside a build of torch that its compiled operators cannot be loaded into.

The published wheel of torchvision links to the CUDA libraries of the published torch. Beside torch's CPU
build its extension does not load; torchvision allows for that, except that its import describes two operators
whose schemas the extension would have defined. Defined here without a kernel, all that is Python in
torchvision (transforms, datasets) works as ever, and the two raise.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_DESCRIBED = tuple(
    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")
)


def declare() -> torch.library.Library | None:
    """Defines the operators where torchvision is installed and cannot do so itself; the result must be
    kept alive."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return None
    for extension in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(extension))
        except OSError:
            continue
        return None
    library = torch.library.Library("torchvision", "DEF")
    for schema in _DESCRIBED:
        library.define(schema)
    return library


library = declare()
