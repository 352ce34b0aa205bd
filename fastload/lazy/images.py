"""Lazy images: Pillow's own classes, with a LazyCore in the place of the core image until somebody looks at
the pixels.

NOTE [ lazy images: three classes for one ]
Each class of Pillow that can be lazy, Image and JpegImageFile, has three faces here; an object changes
between them by its `__class__`.
1. The *lazy* class is what a program holds. It is a subclass of Pillow's and has its name. Methods that
   compose are overridden; so is `im`, by which everything else in Pillow, and any C code, gets to the pixels:
   it makes them.
2. A *view* is what Pillow's own code sees as `self` in a method that composes. It shares the `__dict__` of
   the lazy image, and its `im` is the LazyCore. So Pillow's checks, exceptions, arithmetic of boxes and
   copies of `info` are those of the installed Pillow, of any version, and only the calls into its C code are
   met by others. Its `_new` makes views, which become lazy images when the method returns. Two threads in one
   image have a view each.
3. As soon as the pixels are made, the image gets Pillow's own *plain* class, and nothing of this room is left
   in it.
4. So it does at the next call after a program has replaced a function of Pillow's that this room stands in
   for, or given the image a method of its own: the pixels are made as before the change, and from there on
   the program's code runs on a plain image.
A file is read, and closed, where Pillow would load it; the recipe needs its bytes alone. Whatever is not
known to load without an exception is loaded by Pillow there and then (CompressedImage.known), and the image
is a plain one from there on.
"""

from __future__ import annotations

import copyreg
import functools
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any, SupportsIndex

from PIL import Image, JpegImagePlugin

from fastload.common.originals import original
from fastload.lazy import counts, pillow_code
from fastload.lazy.compressed import CompressedImage, Known
from fastload.lazy.core_image import LazyCore
from fastload.lazy.pixels import Array, Core
from fastload.lazy.reading import FileCalls, read_at_once
from fastload.lazy.recipe import Recipe

_Function = Callable[..., Any]
"""A function of Pillow's class, to be called with an image."""
_Plain = Image.Image
_PlainFile = JpegImagePlugin.JpegImageFile
_SLOT = "_im" if isinstance(vars(_Plain).get("im"), property) else "im"
"""Name under which the core image stands in an image's `__dict__`: Pillow 11 has made `im` a property."""
_SCALES = {(): 8, (1, 0): 8, (2, 0): 4, (4, 0): 2, (8, 0): 1}
"""Eighths of the inverse transform by the decoder's configuration that draft() has chosen."""
_METHODS = frozenset(pillow_code.METHODS)
_replaced = pillow_code.replaced


class _PillowFace:
    """Mixin of the views: a recipe as Pillow's own methods see it. See NOTE [ lazy images: three classes
    for one ]."""

    def load(self) -> None:
        """Loads nothing: the pixels stay a recipe."""

    def _new(self, core: Any) -> Image.Image:
        this: Any = self
        new = _Plain._new(this, core)
        if type(core) is LazyCore:
            new.__class__ = _ImageView
        return new


class _ImageView(_PillowFace, _Plain):
    """View of an image that was derived from another."""


class _FileView(_PillowFace, _PlainFile):
    """View of an image file."""

    _fast = False

    def load(self) -> None:
        """Reads the file, as far as that was not done."""
        if type(self.__dict__[_SLOT]) is not LazyCore:
            _load(self)


class _Lazy:
    """Mixin of the lazy classes. See NOTE [ lazy images: three classes for one ]."""

    _plain: type
    _view: type

    @property
    def im(self) -> Any:
        """The core image with the pixels, which are made for it."""
        core = self.__dict__.get(_SLOT)
        if core is None and not _differs(self):
            return _Plain.__dict__["im"].__get__(self) if _SLOT == "_im" else None
        _make_plain(self)
        return self.im

    @im.setter
    def im(self, core: object) -> None:
        _settle(self)
        self.im = core

    @property
    def __array_interface__(self) -> dict[str, Any]:
        pixels = _pixels_of(self, "__array_interface__")
        if pixels is None:
            made: dict[str, Any] = _made(self).__array_interface__
            return made
        return {
            "version": 3,
            "data": memoryview(pixels.data).toreadonly(),
            "shape": pixels.shape,
            "typestr": "|u1",
        }

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        image = _made(self)
        reduce = copyreg.dispatch_table.get(type(image))
        return image.__reduce_ex__(protocol) if reduce is None else reduce(image)

    def __eq__(self, other: object) -> bool:
        plain = self._plain
        if isinstance(other, _Plain):
            _make_plain(self)
            _make_plain(other)
        return plain.__eq__(self, other)  # type: ignore[call-arg]

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__class__":  # of a program's
            _make_plain(self)
            setattr(self, name, value)
        else:
            super().__setattr__(name, value)


# None, which Python sets beside __eq__: hashing is Pillow's, or what a program has made of it.
delattr(_Lazy, "__hash__")


class _Method:
    """A method of Pillow's that lazy images do in their own way, as an attribute of their class.

    A bound method stands for the function that Pillow's class had when it was taken, as a program's own
    method may call it later.

    Args:
        name: the method's.
        call: called with Pillow's function, the image, and the arguments.
    """

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._name, self._call = name, call
        self._own: tuple[Any, Any] = (None, None)

    def __get__(self, image: _Lazy | None, kind: type[_Lazy]) -> object:
        function = getattr(kind._plain, self._name, None)
        if function is None:  # a program has taken it away
            _make_plain(image, self._name)
            return getattr(image, self._name)
        own, method = self._own
        if own is not function:
            method = functools.wraps(function)(functools.partial(self._call, function))
            self._own = function, method
        return function if image is None else MethodType(method, image)


class LazyImage(_Lazy, _Plain):
    """An image that was derived from another, and whose pixels are a recipe."""

    _plain, _view = _Plain, _ImageView


class LazyFile(_Lazy, _PlainFile):
    """An image file of which nothing but the header was read, or whose pixels are a recipe."""

    _plain, _view = _PlainFile, _FileView
    _fast = False


class _FastFileView(_FileView):
    """View of a FastFile."""

    _fast = True


class FastFile(LazyFile):
    """A LazyFile that may be scaled in the inverse transform before a resize, so that its pixels are near
    Pillow's."""

    _view, _fast = _FastFileView, True


KINDS: frozenset[type] = frozenset((LazyImage, LazyFile, FastFile))
"""The lazy classes."""
for _lazy in (LazyImage, LazyFile, FastFile):
    _lazy.__name__, _lazy.__qualname__, _lazy.__module__ = (
        _lazy._plain.__name__,
        _lazy._plain.__qualname__,
        _lazy._plain.__module__,
    )


class LazyPixels:
    """The stand-in for the PixelAccess object that load() returns: the first look at a pixel makes all of
    them."""

    __slots__ = ("_access", "_core", "_readonly")

    def __init__(self, core: LazyCore, readonly: int) -> None:
        self._core, self._readonly = core, readonly
        self._access: Core = None

    def _made(self) -> Core:
        if self._access is None:
            if not self._core.made:
                counts.whole("load")
            self._access = self._core.real().pixel_access(self._readonly)
        return self._access

    def __getitem__(self, at: object) -> object:
        return self._made()[at]

    def __setitem__(self, at: object, colour: object) -> None:
        self._made()[at] = colour

    def __getattr__(self, name: str) -> object:
        return getattr(self._made(), name)


def _differs(image: object) -> bool:
    """Returns True for an image that is a plain one by now, or is to be.

    So it is once a program has replaced code that this room stands in for, in Pillow or in the image, or has
    given it a palette.
    """
    if type(image) not in KINDS or _replaced():
        return True
    held = image.__dict__
    return not _METHODS.isdisjoint(held) or bool(held.get("palette"))


def _settle(image: object) -> None:
    """Gives an image whose pixels are made its plain class."""
    kind = type(image)
    if issubclass(kind, _Lazy):
        object.__setattr__(image, "__class__", kind._plain)


def _make_plain(image: object, method: str = "im") -> None:
    """Gives an image its plain class: with its pixels, or, if its file was not read, with the file."""
    core = image.__dict__.get(_SLOT)
    if type(core) is LazyCore:
        if not core.made:
            counts.whole(method)
        image.__dict__[_SLOT] = core.real()
    _settle(image)


def _core_of(image: object, method: str) -> LazyCore | None:
    """The LazyCore of a lazy image for a method; None for one that is a plain one by now. A file is read for
    it.

    Raises:
        Whatever Pillow raises about the file.
    """
    if _differs(image):
        _make_plain(image, method)
        return None
    if image.__dict__.get(_SLOT) is None and isinstance(image, _PlainFile):
        _load(image)
    core = image.__dict__.get(_SLOT)
    if type(core) is LazyCore and not core.made:
        return core
    _make_plain(image)
    return None


def _made(image: object) -> Any:
    """The image itself, of its plain class, with its pixels."""
    if _core_of(image, "im") is not None:
        _make_plain(image)
    return image


def _loaded(function: _Function, image: Any) -> object:
    """As Image.load; the pixels are made when the result is asked for one."""
    core = _core_of(image, "load")
    return function(image) if core is None else LazyPixels(core, image.readonly)


def _bytes_of(function: _Function, image: object, *args: object, **options: object) -> object:
    """As Image.tobytes; the bytes of the pixels as they are come straight from the file."""
    pixels = None if args or options else _pixels_of(image, "tobytes")
    return function(_made(image), *args, **options) if pixels is None else pixels.tobytes()


def _pixels_of(image: Any, method: str) -> Array | None:
    """The pixels of a lazy image as an array, straight from its file; None for one that is a plain one by
    now, or has a size of its own."""
    core = _core_of(image, method)
    if core is None or (image.size, image.mode) != (core.size, core.mode):
        return None
    counts.straight()
    return core.array()


def _composed(function: _Function, image: Any, *args: object, **options: object) -> object:
    """Calls Pillow's own method with a view as its `self`."""
    if _differs(image):
        _make_plain(image, function.__name__)
        return function(image, *args, **options)
    view = _view_of(image)
    result = function(view, *args, **options)
    core = view.__dict__.get(_SLOT)
    if core is not None and (type(core) is not LazyCore or core.made):
        if type(core) is LazyCore:
            counts.whole(function.__name__)
            view.__dict__[_SLOT] = core.real()
        _settle(image)
    for each in result if type(result) is tuple else (result,):
        made: type = type(each)
        if made is _ImageView:
            each.__class__ = LazyImage
    return result


def _view_of(image: Any) -> Image.Image:
    view: Image.Image = object.__new__(image._view)
    view.__dict__ = image.__dict__
    return view


def _pasted(function: _Function, image: Any, im: object, *args: object, **options: object) -> object:
    """Calls Pillow's paste() with a view of what is pasted, if that is lazy."""
    source = _view_of(im) if core_of(im) is not None else im
    return _composed(function, image, source, *args, **options)


def _transformed(function: _Function, image: Any, *args: object, **options: object) -> object:
    """Calls Pillow's transform(), which makes a canvas by Image.new: that must be the stand-in, whose images
    meanwhile are all of a lazy class."""
    new = vars(Image)["new"]
    if original(new) is new:
        _make_plain(image, "transform")
    before, _thread.transforms = _thread.transforms, True
    try:
        return _composed(function, image, *args, **options)
    finally:
        _thread.transforms = before


class _Thread(threading.local):
    """A thread, and whether it is in a call of Pillow's.

    Attributes:
        transforms: it is in Pillow's transform() of a lazy image.
    """

    transforms = False


_thread = _Thread()


def canvas(image: Image.Image) -> Image.Image:
    """A plain image as Image.new gives it to Pillow's own code: in transform() of a lazy class."""
    if _thread.transforms and type(image) is _Plain:
        image.__dict__[_SLOT] = LazyCore.around(image.__dict__[_SLOT])
        image.__class__ = LazyImage
    return image


def is_read(image: Any) -> bool:
    """Returns True for a lazy image whose file has been read, or that has none."""
    return image.__dict__.get(_SLOT) is not None


def core_of(image: object) -> LazyCore | None:
    """The LazyCore of a lazy image; None for any other. A file is read for it.

    Raises:
        Whatever Pillow raises about the file.
    """
    return _core_of(image, "im") if type(image) in KINDS else None


def image_of(like: Image.Image, core: LazyCore) -> Image.Image:
    """A lazy image of these pixels, with the attributes that Pillow copies from another."""
    made: Any = _PillowFace._new(like, core)  # type: ignore[arg-type]
    made.__class__ = LazyImage
    result: Image.Image = made
    return result


for _name in (
    *("copy", "__copy__", "crop", "resize", "reduce", "thumbnail", "transpose", "convert"),
    *("point", "filter", "histogram", "split", "getchannel", "_Image__transformer"),
):
    setattr(_Lazy, _name, _Method(_name, _composed))
setattr(_Lazy, "paste", _Method("paste", _pasted))  # noqa: B010
setattr(_Lazy, "transform", _Method("transform", _transformed))  # noqa: B010
setattr(_Lazy, "load", _Method("load", _loaded))  # noqa: B010
setattr(_Lazy, "tobytes", _Method("tobytes", _bytes_of))  # noqa: B010


def _load(image: JpegImagePlugin.JpegImageFile) -> None:
    """Loads an image file as ImageFile.load does: into a recipe, or, where its pixels cannot be asked for
    later, by Pillow."""
    config = image.decoderconfig
    eighths = _SCALES.get(config, 0) if type(config) is tuple else 0
    if not (eighths and _is_usual(image)):
        _settle(image)
        _PlainFile.load(image)
        return
    file, exclusive = image.fp, image._exclusive_fp and image._close_exclusive_fp_after_loading
    calls, how = None, (image.decodermaxblock, image.mode, not exclusive)
    found = read_at_once(file, *how)
    if found is None:
        calls = FileCalls(file)
        found = calls.jpeg(*how)
    if found is not None and _size_at(found[1], eighths) == image.size:
        _read(image, *found, eighths)
        if exclusive and file is not None:
            file.close()
        return
    counts.left("damaged, or of a kind that the own decoder does not know")
    _load_again(image, calls or FileCalls(file), file)


def _load_again(image: Any, calls: FileCalls, file: object) -> None:
    """Has an image loaded by Pillow, to which `calls` stands for the file."""
    _settle(image)
    image.fp = calls
    try:
        _PlainFile.load(image)
    finally:
        calls.leave()
        if image.fp is calls:
            image.fp = file


def _size_at(known: Known, eighths: int) -> tuple[int, int]:
    return -(-known.width * eighths // 8), -(-known.height * eighths // 8)


def _is_usual(image: JpegImagePlugin.JpegImageFile) -> bool:
    """Returns True if Pillow would decode a whole file that it reads itself, in blocks."""
    mode, block = image.mode, image.decodermaxblock
    usual = mode in ("RGB", "L") and image.fp is not None and type(block) is int and block > 0
    return (
        usual
        and image.tile == [("jpeg", (0, 0, *image.size), 0, (mode, ""))]
        and not getattr(image, "tile_prefix", b"")
    )


def _read(image: Any, data: bytes, known: Known, eighths: int) -> None:
    """Puts a recipe into an image whose file was read, and leaves its attributes as ImageFile.load does."""
    size = known.width, known.height
    file = CompressedImage(data, size, image.mode, eighths, image._fast, known.end)
    image.__dict__.update({"map": None, _SLOT: LazyCore(Recipe.of_file(file)), "tile": [], "fp": None})
    image.readonly = 0
