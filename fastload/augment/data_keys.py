"""Kornia's data keys: which kinds of objects go with the images through an AugmentationSequential, as far
as its user says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

_BOX_KEYS = ("bbox", "bbox_xyxy", "bbox_xywh")
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("input", "image", "class", "label"), ""),
    "mask": "masks",
    **dict.fromkeys(_BOX_KEYS, "boxes"),
    "keypoints": "keypoints",
}
"""All data keys, and the kind of objects that each names."""
_ADVICE = {"masks": "'mask'", "boxes": "'bbox_xyxy' or 'bbox_xywh'", "keypoints": "'keypoints'"}


def named(keys: Sequence[str]) -> frozenset[str]:
    """Kinds of objects that data keys name."""
    return frozenset(KINDS[key] for key in keys) - {""}


def contradiction(keys: Sequence[str], moves: bool, given: Mapping[str, Collection[str]]) -> str:
    """A clause that says how the objects of a batch contradict data keys; "" if they do not.

    Args:
        keys: the data keys.
        moves: True if pixels are moved, so that objects without a key would be left behind.
        given: the kinds of objects that the batch has, with the formats of its boxes.
    """
    if missing := sorted(named(keys) - given.keys()):
        return f"data_keys name {missing[0]}, and the batch has none: leave them out of data_keys"
    if moves and (left := sorted(given.keys() - named(keys))):
        return (
            f"the batch has {left[0]}, which would stay where they are: add {_ADVICE[left[0]]} to data_keys"
        )
    written = {key.removeprefix("bbox_") for key in keys if key in _BOX_KEYS}
    formats = sorted({"xyxy", "xywh"} & set(given.get("boxes", ())) - written) if written else []
    return f"the batch's boxes are {formats[0]}: write 'bbox_{formats[0]}' in data_keys" if formats else ""
