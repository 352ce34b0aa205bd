"""torchvision's FiveCrop and TenCrop as views: crops at the corners and the centre, of the image and of its mirror image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload import transforms as T
from fastload.plan.torchvision import Known


@dataclass(frozen=True)
class CornerCrop(T.Transform):
    """(height, width) of the image from one of its corners. An image that is smaller is an error, as it is in torchvision's five_crop.

    Args:
        size: (height, width).
        right, bottom: which corner.
    """

    size: tuple[int, int]
    right: bool
    bottom: bool


def crops_of(step: Known) -> list[list[T.Transform]] | None:
    """The transform of each crop that FiveCrop or TenCrop makes, in torchvision's order; None for any other step."""
    if step.name not in ("FiveCrop", "TenCrop"):
        return None
    centre = T.CenterCrop(step.values["size"])
    size: Any = centre.size
    corners = [CornerCrop(size, right, bottom) for bottom in (False, True) for right in (False, True)]
    five: list[list[T.Transform]] = [[crop] for crop in (*corners, centre)]
    if step.name == "FiveCrop":
        return five
    mirror = T.RandomVerticalFlip(1.0) if step.values["vertical_flip"] else T.RandomHorizontalFlip(1.0)
    return five + [[mirror, *crop] for crop in five]
