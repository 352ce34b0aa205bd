"""Transforms of images that the native decoder can do, and the compiler that turns a list of them into a
plan.

The public names are those of ops.py; the compiler's modules are imported by their own names.
"""

from fastload.transforms.ops import (
    MOST_VIEWS,
    CenterCrop,
    ConvertBoundingBoxFormat,
    Letterbox,
    Normalize,
    Patches,
    RandomCrop,
    RandomHorizontalFlip,
    RandomIoUCrop,
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    RandomVerticalFlip,
    RandomZoomOut,
    Resize,
    SanitizeBoundingBoxes,
    ScaleJitter,
    ToFloat,
    Transform,
    Views,
)

__all__ = [
    "MOST_VIEWS",
    "CenterCrop",
    "ConvertBoundingBoxFormat",
    "Letterbox",
    "Normalize",
    "Patches",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomIoUCrop",
    "RandomResize",
    "RandomResizedCrop",
    "RandomShortestSize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "SanitizeBoundingBoxes",
    "ScaleJitter",
    "ToFloat",
    "Transform",
    "Views",
]
