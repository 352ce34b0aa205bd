"""Names of a sample's values: which of them is the image, and which the label, where the source does not
say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fastload._native import core
from fastload.errors import PackError

IMAGE_KEYS = ("image", "img", "pixels", "jpg", "jpeg", "png", "pixel_values", "0")
LABEL_KEYS = ("label", "labels", "target", "cls")
"""Names under which datasets commonly have their images, and their labels."""

HEAD = 16
"""Bytes of a value that `is_picture` looks at."""

_BEGINNINGS = (b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP  ", b"P5", b"P6")


def is_picture(head: bytes) -> bool:
    """Returns True if bytes begin as a picture does: of a format that is decoded natively, or AVIF, GIF,
    BMP, TIFF, JPEG 2000, PNM."""
    return core.stored_kind(head) != 0 or head.startswith(_BEGINNINGS) or head[4:12] == b"ftypavif"


def image_name(
    title: str,
    names: Sequence[str],
    sure: Collection[str],
    possible: Collection[str],
    preferred: Sequence[str] = (),
) -> str:
    """The name of the value that is the image: a usual name, or else the only one that is sure to be one, or
    that can be one.

    Args:
        title: the source, for the message.
        names: all names, for the message.
        sure: names of values that are pictures.
        possible: names of values that are bytes.
        preferred: names that come before the usual ones.

    Raises:
        PackError: none can be the image, or several can.
    """
    for name in (*preferred, *IMAGE_KEYS):
        if name in sure or (name in possible and not sure):
            return name
    for found in (sure, possible):
        if len(found) == 1:
            return next(iter(found))
    how_many = "several" if sure or possible else "none"
    raise PackError(f"{title}: {how_many} of {', '.join(names)} can be the image: name one 'image'")


def field_name(name: str, label: str | None) -> str:
    """The field's name of a value that is not the image: ``label`` for the label, and another one for what
    is called image and is none."""
    if name == label:
        return "label"
    return "image_field" if name == "image" else name


def label_name(
    integers: Collection[str], names: Collection[str], preferred: Sequence[str] = ()
) -> str | None:
    """The name of the value that becomes the field ``label``: one of that name, or else integers of a
    usual name."""
    if "label" in names:
        return "label"
    return next((name for name in (*preferred, *LABEL_KEYS) if name in integers), None)
