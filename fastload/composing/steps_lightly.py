"""lightly's ToTensor in a Compose of torchvision's: the transform inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightly.transforms.torchvision_v2_compatibility import ToTensor

from fastload.common.originals import OwnCode
from fastload.composing import compose_v2

_OWN = OwnCode(("lightly.transforms.torchvision_v2_compatibility:ToTensor", ("__call__",)))


def exchange() -> None:
    """Tells Compose of lightly's class; its module is imported."""
    compose_v2.INSIDE_OF_OTHERS[ToTensor] = _inside


def _inside(of: Any) -> Sequence[Any]:
    return () if _OWN.replaced() else (of.transform,)
