"""Pillow's code in whose place lazy images stand: is it still Pillow's own?

It is asked when an image is opened, and at each call on a lazy one, since a program may replace a function at
any time. Nothing is imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Generic, TypeVar

from fastload.common.originals import OwnCode, Place

METHODS = (
    *(
        "load",
        "copy",
        "__copy__",
        "crop",
        "_crop",
        "resize",
        "_get_safe_box",
        "reduce",
        "thumbnail",
        "draft",
        "transpose",
        "convert",
    ),
    *("point", "filter", "histogram", "split", "getchannel", "transform", "_Image__transformer", "paste"),
    *("_ensure_mutable", "_copy"),
    *("tobytes", "_new", "_copy_info", "load_prepare", "load_end", "load_read", "load_seek"),
)
"""Methods that lazy images do themselves, and those that Pillow's own call on the way; an image may have
one of its own."""
_ATTRIBUTES = (
    *(
        "im",
        "readonly",
        "size",
        "width",
        "height",
        "mode",
        "__array_interface__",
        "__init__",
        "__new__",
        "__del__",
    ),
    *("__getattribute__", "__setattr__"),
)
_OF_IMAGES = (*METHODS, *_ATTRIBUTES)


class _PillowCode(OwnCode):
    """Pillow's code, and values that it looks up on its way from a file to its pixels, and from them to
    bytes."""

    def _looked_at(self) -> tuple[list[Place], list[FunctionType]]:
        places, functions = super()._looked_at()
        image, plugin = _modules()
        if image is None or plugin is None:
            return places, functions
        tables: list[Place] = [
            (image, ("core", "DECODERS", "ENCODERS")),
            (image.DECODERS, ("jpeg",)),
            (image.ENCODERS, ("raw",)),
        ]
        return [*places, *tables, (plugin.ImageFile, ("MAXBLOCK",))], functions

    def _compare(self) -> str:
        return super()._compare() or _tables_changed()


def _modules() -> tuple[ModuleType | None, ModuleType | None]:
    return sys.modules.get("PIL.Image"), sys.modules.get("PIL.JpegImagePlugin")


def _tables_changed() -> str:
    image, plugin = _modules()
    if image is None or plugin is None:
        return ""
    if "jpeg" in image.DECODERS or "raw" in image.ENCODERS:
        return "a program's own codec decodes JPEGs, or encodes raw pixels"
    if image.core is not sys.modules.get("PIL._imaging"):
        return "PIL.Image.core was replaced"
    if type(plugin.ImageFile.MAXBLOCK) is not int:
        return "PIL.ImageFile.MAXBLOCK is no number"
    kinds = plugin.JpegImageFile, plugin.ImageFile.ImageFile, image.Image
    return "" if kinds[0].__mro__ == (*kinds, object) else "a class was put among the bases of Pillow's"


replaced = _PillowCode(
    ("PIL.Image:Image", _OF_IMAGES),
    ("PIL.ImageFile:ImageFile", (*_OF_IMAGES, "_open")),
    ("PIL.JpegImagePlugin:JpegImageFile", (*_OF_IMAGES, "_open")),
    ("PIL.Image", ("_getdecoder", "_getencoder", "_conv_type_shape", "new", "frombuffer", "blend", "merge")),
    ("PIL.ImageFile", ("_tilesort",)),
    ("PIL.JpegImagePlugin", ("jpeg_factory",)),
    ("PIL._imaging", ("new", "fill", "blend", "merge", "jpeg_decoder", "raw_decoder", "raw_encoder")),
).replaced
"""Returns a clause that names what a program has put in the place of Pillow's code; "" where all is
Pillow's own."""
Answer = TypeVar("Answer")


class Probe(Generic[Answer]):
    """A question about the installed Pillow that a trial answers, once in a process.

    The answer is None, and is not kept, while a program has something in the place of Pillow's code, and if
    the trial raises an exception.

    Args:
        trial: makes the trial.
    """

    def __init__(self, trial: Callable[[], Answer]) -> None:
        self._trial = trial
        self._found: list[Answer] = []
        self.__doc__ = trial.__doc__

    def __call__(self) -> Answer | None:
        if not self._found:
            if replaced():
                return None
            try:
                self._found = [self._trial()]
            except Exception:
                return None
        return self._found[0]

    def forget(self) -> None:
        """Forgets the answer."""
        self._found = []
