"""Opening: makes Pillow open JPEGs as lazy images, in this process or around one call.

NOTE [ opening: where Pillow is met ]
Programs hold `Image.open` under many names, so nothing of Pillow's is replaced. Image.open finds the function that makes an image file in a
table, Image.OPEN; the entry of "JPEG" is exchanged for one that calls Pillow's own and then gives the image its lazy class.
1. Pillow is not imported for this: where a program has not imported its JPEG plugin yet, an import hook waits for it.
2. An entry that is not Pillow's own is left alone, and one that a program registers later replaces this one.
3. Each time that a JPEG is opened, the functions of Pillow that lazy images stand in for are compared with those of its files
   (NOTE [ originals: how replaced code is found ]); where a program has replaced one, images are Pillow's, and the program's code runs.
4. Before the first image a small JPEG is decoded by Pillow and by the own decoder. Unless the pixels are equal no image is lazy: Pillow may
   have been built with another libjpeg.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from fastload.common.imports import after_import
from fastload.common.originals import OwnCode
from fastload.lazy import counts

Exactness: TypeAlias = Literal["exact", "fast"]
_PLUGIN = "PIL.JpegImagePlugin"
_METHODS = (
    *("load", "im", "copy", "__copy__", "crop", "_crop", "resize", "reduce", "thumbnail", "transpose", "convert", "tobytes", "_new"),
    *("__array_interface__", "__reduce_ex__", "__eq__", "__getstate__", "draft", "readonly", "size", "mode", "_copy_info"),
)
_FILE_METHODS = ("load", "load_prepare", "load_end", "load_read", "load_seek", "__init__", "_open", *_METHODS)
_OWN = OwnCode(
    ("PIL.Image:Image", _METHODS),
    ("PIL.ImageFile:ImageFile", _FILE_METHODS),
    ("PIL.JpegImagePlugin:JpegImageFile", _FILE_METHODS),
    ("PIL.JpegImagePlugin", ("jpeg_factory",)),
)
"""Functions whose place lazy images take, or on whose doing they rely."""


class Opening:
    """The entry of "JPEG" in Pillow's table of functions that open files. See NOTE [ opening: where Pillow is met ].

    Args:
        exactness: "exact": pixels are the installed Pillow's. "fast": images may be scaled in the inverse transform before a resize.
        thread: the identity of the one thread whose images are lazy; None: all.
    """

    def __init__(self, exactness: Exactness, thread: int | None = None) -> None:
        self._exactness, self._thread = exactness, thread
        self._own: Any = None
        self._kinds: tuple[type, type] | None = None
        self._refused = ""

    def begin(self) -> None:
        """Takes the place of Pillow's own entry, unless there is another, or none."""
        module = sys.modules.get("PIL.Image")
        table = getattr(module, "OPEN", {})
        factory, accept = table.get("JPEG", (None, None))
        if factory is None or factory is not getattr(sys.modules.get(_PLUGIN), "jpeg_factory", None) or _OWN.replaced():
            counts.left(_OWN.replaced() or "a program's own function opens JPEGs")
            return
        self._own = factory, accept
        table["JPEG"] = self._open, accept

    def end(self) -> None:
        """Puts Pillow's own entry back, unless another has been registered meanwhile."""
        table = getattr(sys.modules.get("PIL.Image"), "OPEN", {})
        if self._own is not None and table.get("JPEG", (None,))[0] == self._open:
            table["JPEG"] = self._own
        self._own = None

    def _open(self, file: Any, filename: Any = None) -> Any:
        """Pillow's function, and then the lazy class."""
        image = self._own[0](file, filename)
        if self._thread is not None and self._thread != threading.get_ident():
            return image
        if self._kinds is None:
            self._kinds, self._refused = self._prepared()
        plain, lazy = self._kinds
        kind: type = type(image)
        if kind is not plain:
            return image
        mode, why = image.mode, self._refused or _OWN.replaced()
        if why or mode not in ("RGB", "L"):
            counts.left(why or f"mode {mode}")
            return image
        image.__class__ = lazy
        counts.opened()
        return image

    def _prepared(self) -> tuple[tuple[type, type], str]:
        """Pillow's class and the lazy one, and the reason why no image can be lazy."""
        from fastload.lazy import images
        from fastload.lazy.agreement import decoder_agrees

        lazy = images.FastFile if self._exactness == "fast" else images.LazyFile
        return (images.LazyFile._plain, lazy), "" if decoder_agrees() else "Pillow's libjpeg makes other pixels"


def install(exactness: Exactness) -> None:
    """Makes the JPEGs that Pillow opens in this process lazy images, from now on; called in worker processes."""
    counts.take()  # those of a parent that has forked
    after_import(_PLUGIN, Opening(exactness).begin)


@contextmanager
def opened_lazily(exactness: Exactness | None) -> Iterator[None]:
    """Makes the JPEGs that this thread opens in a `with` block lazy images; None: leaves them alone."""
    if exactness is None or "PIL.Image" not in sys.modules:
        yield
        return
    from PIL import JpegImagePlugin  # noqa: F401

    opening = Opening(exactness, threading.get_ident())
    opening.begin()
    try:
        yield
    finally:
        opening.end()
