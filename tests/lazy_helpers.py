"""JPEGs of all kinds, made here; and one program run on a plain image of Pillow and on a lazy one."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pictures import photo
from PIL import Image, JpegImagePlugin

from fastload.lazy import counts
from fastload.lazy.opening import opened_lazily


def jpeg(image: Image.Image, **options: Any) -> bytes:
    """The file that Pillow makes of an image."""
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 90, **options})
    return out.getvalue()


@cache
def files() -> dict[str, bytes]:
    """Small JPEGs by what is special about them. Those of `LAZY` are lazy, the others are left to Pillow."""
    picture = photo(1, 61, 83)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x011A] = 300.0
    good = jpeg(picture, subsampling=2)
    return {
        "420": good,
        "444": jpeg(picture, subsampling=0, exif=exif, dpi=(72, 72)),
        "422": jpeg(picture, subsampling=1, comment=b"a comment"),
        "grey": jpeg(picture.convert("L")),
        "restarts": jpeg(picture, restart_marker_blocks=3),
        "tiny": jpeg(picture.crop((0, 0, 1, 1))),
        "trailing": good + b"rubbish behind the end",
        "damaged": with_damage(good),
        "progressive": jpeg(picture, progressive=True),
        "cmyk": jpeg(picture.convert("CMYK")),
        "truncated": good[: len(good) * 2 // 3],
        "no end": good[:-2],
        "marker inside": good[: len(good) * 2 // 3] + b"\xff\xc4\x00\x05\x00" + good[len(good) * 2 // 3 :],
        "empty": b"",
        "no jpeg": b"\x89PNG" + good,
    }


LAZY = ("420", "444", "422", "grey", "restarts", "tiny", "trailing", "damaged")
"""Names of the files that are lazy."""


def with_damage(data: bytes) -> bytes:
    """A file with wrong bits in its coded data, and all its markers as they were."""
    at = data.index(b"\xff\xda") + 14 + (len(data) - data.index(b"\xff\xda")) // 2
    broken = bytearray(data)
    for i in range(at, at + 6):
        if 0xFF not in (broken[i - 1], broken[i]):
            broken[i] ^= 0x55
    return bytes(broken)


@contextmanager
def lazily(exactness: Any = "exact") -> Iterator[None]:
    """Images that are opened here are lazy."""
    JpegImagePlugin.JpegImageFile  # noqa: B018
    with opened_lazily(exactness):
        yield


def outcome(program: Callable[[], Any]) -> Any:
    """The value of a program, with the warnings that it gave; or its exception."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            value = seen(program())
        except Exception as error:
            value = type(error).__name__, re.sub(r" at 0x\w+", "", str(error))
    return value, [(each.category.__name__, str(each.message)) for each in given]


def seen(value: Any) -> Any:
    """All that can be seen of a value: of an image its class, form, metadata and pixels."""
    if isinstance(value, Image.Image):
        value.load()
        form = value.mode, value.size, value.readonly, value.info, value.format, dict(value.getexif())
        return type(value).__name__, isinstance(value, JpegImagePlugin.JpegImageFile), form, value.tobytes()
    if isinstance(value, list | tuple):
        return [seen(each) for each in value]
    return value


def both(program: Callable[[], Any], exactness: Any = "exact") -> tuple[Any, Any]:
    """Outcomes of a program that opens images, with plain and with lazy ones."""
    plain = outcome(program)
    with lazily(exactness):
        lazy = outcome(program)
    return plain, lazy


def is_lazy(image: Image.Image) -> bool:
    """Returns True if an image's pixels are still a recipe."""
    return type(image) not in (Image.Image, JpegImagePlugin.JpegImageFile)


def counted(program: Callable[[], Any]) -> counts.LazyCounts:
    """Counts of a program that opens lazy images."""
    counts.take()
    with lazily():
        program()
    return counts.take() or counts.LazyCounts()
