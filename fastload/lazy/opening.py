"""Opening: makes Pillow open JPEGs as lazy images, in this process or around one call.

NOTE [ opening: where Pillow is met ]
Programs hold `Image.open` under many names, so it is not replaced. Image.open finds the function
that makes an image file in a table, Image.OPEN; the entry of "JPEG" is exchanged for one that calls Pillow's
own and then gives the image its lazy class.
1. Pillow is not imported for this: where a program has not imported its JPEG plugin yet, an import hook waits
   for it.
2. An entry that is not Pillow's own is left alone, and one that a program registers later replaces this one.
   A program that has taken this one out of the table and calls it gets Pillow's images once no image is to be
   lazy.
3. Each time that a JPEG is opened, the functions of Pillow that lazy images stand in for are compared with
   those of its files (NOTE [ originals: how replaced code is found ]); where a program has replaced one,
   images are Pillow's, and the program's code runs.
4. Before the first image small JPEGs are decoded by Pillow and by the own decoder. Unless the pixels are
   equal no image is lazy: Pillow may have been built with another libjpeg.
5. The table has one entry of this room's, however many threads ask for lazy images at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fastload._native import core
from fastload.common.imports import after_import
from fastload.common.originals import original, stand_in
from fastload.lazy import counts, indexes, pillow_code

if TYPE_CHECKING:
    from PIL import Image

Exactness: TypeAlias = Literal["exact", "fast"]
_PLUGIN = "PIL.JpegImagePlugin"


class _Opening:
    """The entry of "JPEG" in Pillow's table of functions that open files. See NOTE [ opening: where Pillow is
    met ].

    Attributes:
        everywhere: the exactness of images that any thread opens; None: those of some threads alone are lazy.
        threads: the exactness of images by the thread that opens them.
    """

    def __init__(self) -> None:
        self.everywhere: Exactness | None = None
        self.threads: dict[int, Exactness] = {}
        self._own: Any = None

    def begin(self) -> None:
        """Takes the place of Pillow's own entry, unless there is another, or none."""
        table = getattr(sys.modules.get("PIL.Image"), "OPEN", {})
        factory, accept = table.get("JPEG", (None, None))
        if factory is self:
            return
        why = pillow_code.replaced()
        if why or original(factory) is not getattr(sys.modules.get(_PLUGIN), "jpeg_factory", self):
            counts.left(why or "a program's own function opens JPEGs")
            return
        self._own = factory, accept
        stand_in(self, factory)
        table["JPEG"] = self, accept

    def end(self) -> None:
        """Puts Pillow's own entry back once no image is to be lazy, unless another has been registered
        meanwhile."""
        table = getattr(sys.modules.get("PIL.Image"), "OPEN", {})
        if self.threads or self.everywhere is not None:
            return
        if table.get("JPEG", (None,))[0] is self:
            table["JPEG"] = self._own
        functions = sys.modules.get("fastload.lazy.functions")
        if functions is not None:
            functions.take_away()

    def __call__(self, file: object, filename: object = None) -> Image.Image:
        """Pillow's function, and then the lazy class."""
        image: Image.Image = self._own[0](file, filename)
        exactness = self.threads.get(threading.get_ident(), self.everywhere)
        if exactness is None:
            return image
        why = _made_lazy(image, exactness)
        if why:
            counts.left(why)
        return image


_opening = _Opening()


@cache
def _classes() -> dict[Exactness, tuple[Any, Callable[[], bool | None]]]:
    """The lazy classes, and the probe that must agree; they import Pillow."""
    from fastload.lazy import images
    from fastload.lazy.agreement import decoder_agrees

    return {"exact": (images.LazyFile, decoder_agrees), "fast": (images.FastFile, decoder_agrees)}


@cache
def _functions() -> ModuleType:
    """The stand-ins for functions of Pillow; they import Pillow."""
    from fastload.lazy import functions

    return functions


def _made_lazy(image: Image.Image, exactness: Exactness) -> str:
    """Gives an image that Pillow has opened its lazy class. Returns why not, or "" if that is done or the
    class is a program's."""
    if why := pillow_code.replaced():
        return why
    lazy, agrees = _classes()[exactness]
    if type(image) is not lazy._plain:
        return ""
    if not agrees():
        return "Pillow's libjpeg makes other pixels"
    if image.mode not in ("RGB", "L"):
        return f"mode {image.mode}"
    image.__class__ = lazy
    _functions().put()
    counts.opened()
    return ""


def install(
    exactness: Exactness, shared: core.SharedIndexes | None = None, forms: indexes.Forms | None = None
) -> None:
    """Makes the JPEGs that Pillow opens in this process lazy images, from now on; called in worker
    processes.

    Args:
        shared: entropy indexes of files, which the images find and keep there; None: they use none.
        forms: forms of files that decode faster; None: they use none.
    """
    counts.take()  # those of a parent that has forked
    indexes.install(shared, forms)
    _opening.everywhere = exactness
    _opening.threads.clear()  # the parent's
    after_import(_PLUGIN, _opening.begin)


@contextmanager
def opened_lazily(exactness: Exactness | None, shared: core.SharedIndexes | None = None) -> Iterator[None]:
    """Makes the JPEGs that this thread opens in a `with` block lazy images; None: leaves them alone.

    Args:
        shared: as for install(); of images that are loaded in the block.
    """
    if exactness is None or "PIL.Image" not in sys.modules:
        yield
        return
    from PIL import JpegImagePlugin  # noqa: F401

    thread = threading.get_ident()
    before = _opening.threads.get(thread)
    _opening.threads[thread] = exactness
    _opening.begin()
    try:
        with indexes.used(shared):
            yield
    finally:
        if before is None:
            _opening.threads.pop(thread, None)
        else:
            _opening.threads[thread] = before
        _opening.end()
