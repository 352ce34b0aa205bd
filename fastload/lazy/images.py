"""Lazy images: Pillow's own classes, with a LazyCore in the place of the core image until somebody looks at the pixels.

NOTE [ lazy images: three classes for one ]
Each class of Pillow that can be lazy, Image and JpegImageFile, has three faces here; an object changes between them by its `__class__`.
1. The *lazy* class is what a program holds. It is a subclass of Pillow's and has its name. Methods that compose are overridden; so is
   `im`, by which everything else in Pillow, and any C code, gets to the pixels: it makes them.
2. A *view* is what Pillow's own code sees as `self` in a method that composes. It shares the `__dict__` of the lazy image, and its `im` is
   the LazyCore. So Pillow's checks, exceptions, arithmetic of boxes and copies of `info` are those of the installed Pillow, of any version,
   and only the calls into its C code are met by others. Its `_new` makes views, which become lazy images when the method returns.
   Two threads in one image have a view each.
3. As soon as the pixels are made, the image gets Pillow's own *plain* class, and nothing of this room is left in it.
A file is read, and closed, where Pillow would load it; the recipe needs its bytes alone. Whatever is not known to load without an exception
is loaded by Pillow there and then (CompressedImage.known), and the image is a plain one from there on.
"""

from __future__ import annotations

from typing import Any

from PIL import Image, JpegImagePlugin

from fastload.lazy import counts
from fastload.lazy.compressed import CompressedImage
from fastload.lazy.core_image import LazyCore
from fastload.lazy.recipe import Recipe

_Plain = Image.Image
_PlainFile = JpegImagePlugin.JpegImageFile
_SLOT = "_im" if isinstance(vars(_Plain).get("im"), property) else "im"
"""Name under which the core image stands in an image's `__dict__`: Pillow 11 has made `im` a property."""
_SCALES = {1: 8, 2: 4, 4: 2, 8: 1}
"""Eighths of the inverse transform by the scale that draft() has chosen."""
_LARGEST = 64 << 20
"""Bytes of a file that is read at once; of a larger one Pillow reads as much as it needs."""
_BEHIND = 16
"""Bytes in which an end marker may lie behind the end of a block that Pillow reads, without that being clear about where it stops."""


class _View:
    """Mixin of the views: a recipe as Pillow's own methods see it. See NOTE [ lazy images: three classes for one ]."""

    def load(self) -> None:
        """Loads nothing: the pixels stay a recipe."""

    def _new(self, core: Any) -> Any:
        this: Any = self
        new: Any = _Plain._new(this, core)
        if type(core) is LazyCore:
            new.__class__ = _ImageView
        return new


class _ImageView(_View, _Plain):
    """View of an image that was derived from another."""


class _FileView(_View, _PlainFile):
    """View of an image file."""

    _fast = False

    def load(self) -> None:
        """Reads the file, as far as that was not done."""
        if type(self.__dict__[_SLOT]) is not LazyCore and not _read(self):
            _PlainFile.load(self)


class _Lazy:
    """Mixin of the lazy classes. See NOTE [ lazy images: three classes for one ]."""

    _plain: type
    _view: type

    def load(self) -> Any:
        """As Image.load; the pixels are made when the result is asked for one."""
        core = _core_of(self)
        return self.load() if core is None else LazyPixels(self, core)

    @property
    def im(self) -> Any:
        """The core image with the pixels, which are made for it."""
        core = self.__dict__.get(_SLOT)
        if type(core) is not LazyCore:
            if core is not None:  # a closed image, or one that another thread has settled
                _settle(self)
            return _Plain.__dict__["im"].__get__(self) if _SLOT == "_im" else core
        if not core.made:
            counts.whole()
        self.__dict__[_SLOT] = real = core.real()
        _settle(self)
        return real

    @im.setter
    def im(self, core: Any) -> None:
        self.__dict__[_SLOT] = core
        _settle(self)

    def copy(self) -> Any:
        """As Image.copy."""
        return _composed(self, "copy")

    __copy__ = copy

    def crop(self, *args: Any, **options: Any) -> Any:
        """As Image.crop."""
        return _composed(self, "crop", *args, **options)

    def resize(self, *args: Any, **options: Any) -> Any:
        """As Image.resize."""
        return _composed(self, "resize", *args, **options)

    def reduce(self, *args: Any, **options: Any) -> Any:
        """As Image.reduce."""
        return _composed(self, "reduce", *args, **options)

    def thumbnail(self, *args: Any, **options: Any) -> Any:
        """As Image.thumbnail."""
        return _composed(self, "thumbnail", *args, **options)

    def transpose(self, *args: Any, **options: Any) -> Any:
        """As Image.transpose."""
        return _composed(self, "transpose", *args, **options)

    def convert(self, *args: Any, **options: Any) -> Any:
        """As Image.convert."""
        return _composed(self, "convert", *args, **options)

    def tobytes(self, *args: Any, **options: Any) -> bytes:
        """As Image.tobytes; the bytes of the pixels as they are come straight from the file."""
        core = _core_of(self)
        if core is None or args or options:
            return _made(self).tobytes(*args, **options)  # type: ignore[no-any-return]
        counts.straight()
        return core.array().tobytes()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        core = _core_of(self)
        if core is None:
            return self.__array_interface__
        counts.straight()
        pixels = core.array()
        return {"version": 3, "data": memoryview(pixels.data).toreadonly(), "shape": pixels.shape, "typestr": "|u1"}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _Plain.__reduce_ex__(_made(self), protocol)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Lazy):
            _made(other)
        return bool(_made(self) == other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._described()} at 0x{id(self):X}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"{self._described()}>")

    def _described(self: Any) -> str:
        return f"<{self._plain.__module__}.{self._plain.__name__} image mode={self.mode} size={self.width}x{self.height}"


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
    """A LazyFile that may be scaled in the inverse transform before a resize, so that its pixels are near Pillow's."""

    _view, _fast = _FastFileView, True


for _lazy in (LazyImage, LazyFile, FastFile):
    _lazy.__name__, _lazy.__qualname__, _lazy.__module__ = _lazy._plain.__name__, _lazy._plain.__qualname__, _lazy._plain.__module__


class LazyPixels:
    """The stand-in for the PixelAccess object that load() returns: the first look at a pixel makes all of them."""

    __slots__ = ("_access", "_core", "_image")

    def __init__(self, image: Any, core: LazyCore) -> None:
        self._image, self._core = image, core
        self._access: Any = None

    def _made(self) -> Any:
        if self._access is None:
            if not self._core.made:
                counts.whole("load")
            self._access = self._core.real().pixel_access(self._image.readonly)
        return self._access

    def __getitem__(self, at: Any) -> Any:
        return self._made()[at]

    def __setitem__(self, at: Any, colour: Any) -> None:
        self._made()[at] = colour

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)


def _settle(image: Any) -> None:
    """Gives an image whose pixels are made its plain class."""
    kind = type(image)
    if issubclass(kind, _Lazy):
        image.__class__ = kind._plain


def _core_of(image: Any) -> LazyCore | None:
    """The LazyCore of a lazy image; None for one that is a plain one by now. A file is read for it.

    Raises:
        Whatever Pillow raises about the file.
    """
    core = image.__dict__.get(_SLOT)
    if type(core) is LazyCore and not core.made:
        return core
    if type(core) is LazyCore:  # by the object that load() has returned
        image.__dict__[_SLOT] = core.real()
    elif core is None and isinstance(image, _PlainFile) and _read(image):
        return _core_of(image)
    _settle(image)
    return None


def _made(image: Any) -> Any:
    """The image itself, with its pixels, and of its plain class."""
    if _core_of(image) is not None:
        image.im  # noqa: B018
    return image


def _composed(image: Any, name: str, *args: Any, **options: Any) -> Any:
    """Calls Pillow's own method with a view as its `self`."""
    kind = image._plain
    view = object.__new__(image._view)
    view.__dict__ = image.__dict__
    result: Any = getattr(kind, name)(view, *args, **options)
    core = view.__dict__.get(_SLOT)
    if core is not None and (type(core) is not LazyCore or core.made):
        if type(core) is LazyCore:
            counts.whole(name)
            view.__dict__[_SLOT] = core.real()
        _settle(image)
    made: type = type(result)
    if made is _ImageView:
        result.__class__ = LazyImage
    return result


def _read(image: Any) -> bool:
    """Reads an image file into a recipe, and leaves it, and its file object, as ImageFile.load does. False: Pillow has to load it."""
    scale = image.decoderconfig[0] if image.decoderconfig else 1
    size, mode = image.size, image.mode
    if mode not in ("RGB", "L") or scale not in _SCALES or image.fp is None or _decoders_replaced():
        return False
    if image.tile != [("jpeg", (0, 0, *size), 0, (mode, ""))]:
        return False
    data = _bytes_of(image.fp)
    found = None if data is None else CompressedImage.known(data, mode)
    if data is None or found is None or (-(-found.width // scale), -(-found.height // scale)) != size:
        counts.left("damaged, or of a kind that the own decoder does not know")
        return False
    exclusive = image._exclusive_fp and image._close_exclusive_fp_after_loading
    if not exclusive:
        stop = _stop(found.end, len(data), image.decodermaxblock)
        if stop is None:
            return False
        image.fp.seek(stop)
    image.map = None
    image.__dict__[_SLOT] = LazyCore(Recipe.of_file(CompressedImage(data, (found.width, found.height), mode, _SCALES[scale], image._fast)))
    image.tile = []
    image.readonly = 0
    if exclusive:
        image.fp.close()
    image.fp = None
    return True


def _decoders_replaced() -> bool:
    """Returns True if a program has a decoder of its own for JPEGs."""
    return "jpeg" in Image.DECODERS


def _bytes_of(file: Any) -> bytes | None:
    """All bytes of a file; None where there are too many, or the file object has ways of its own. Pillow can read it all the same."""
    file.seek(0, 2)
    size = file.tell()
    file.seek(0)
    if size > _LARGEST:
        return None
    data = file.read()
    return data if type(data) is bytes and len(data) == size else None


def _stop(end: int, size: int, block: int) -> int | None:
    """Position at which Pillow, which reads a file in blocks, leaves it; None where that is not clear."""
    if size <= block:
        return size
    blocks = -(-end // block)
    return None if 0 <= end - (blocks - 1) * block < _BEHIND else min(blocks * block, size)
