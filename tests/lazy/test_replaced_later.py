"""What a program puts in the place of Pillow's code after it has opened an image runs, and sees what it
sees on an image of Pillow's."""

from __future__ import annotations

import copy
import copyreg
import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import both, files, is_lazy, lazily, outcome
from PIL import Image, ImageFile, ImageOps, ImagePalette, JpegImagePlugin

from fastload.lazy.opening import opened_lazily
from fastload.lazy.pillow_code import _PillowCode

CLASSES = (Image.Image, ImageFile.ImageFile, JpegImagePlugin.JpegImageFile)
PARTS = sorted(
    (
        (number, name)
        for number, kind in enumerate(CLASSES)
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType | property) and name not in ("__init__", "_open")
    ),
)
"""Functions and properties of Pillow's classes."""
FUNCTIONS = (
    "_getdecoder",
    "_getencoder",
    "_conv_type_shape",
    "_decompression_bomb_check",
    "new",
    "frombytes",
    "frombuffer",
    "fromarray",
)


def spied(value: Any, name: str, log: list[Any]) -> Any:
    """A function or property of the program's that notes its calls, and does what the one did in whose
    place it stands."""
    if isinstance(value, property):
        return property(
            *(
                None if each is None else spied(each, name, log)
                for each in (value.fget, value.fset, value.fdel)
            )
        )

    def spy(*args: Any, **options: Any) -> Any:
        log.append((name, type(args[0]).__name__ if args else ""))
        return value(*args, **options)

    return spy


def values_of(array: Any) -> Any:
    """Its bytes; of an array of objects, which NumPy makes of an image that has none, only what it is."""
    return str(array.dtype), array.shape, array.tobytes() if array.dtype != object else b""


MOVES: dict[str, Callable[[Any], Any]] = {
    "load": lambda image: image.load() is not None,
    "copy": lambda image: image.copy(),
    "copy.copy": lambda image: copy.copy(image),
    "crop": lambda image: image.crop((3, 4, 50, 60)),
    "crop beyond": lambda image: image.crop((-3, 4, 150, 60)),
    "resize": lambda image: image.resize((20, 30), Image.Resampling.BICUBIC, (1, 2, 50, 40.5)),
    "with a gap": lambda image: image.resize((7, 5), Image.Resampling.BILINEAR, reducing_gap=1.5),
    "thumbnail": lambda image: image.thumbnail((20, 30)),
    "reduce": lambda image: image.reduce(2),
    "transpose": lambda image: image.transpose(Image.Transpose.ROTATE_90),
    "to RGB": lambda image: image.convert("RGB"),
    "to L": lambda image: image.convert("L"),
    "to P": lambda image: image.convert("P", palette=Image.Palette.ADAPTIVE),
    "draft": lambda image: image.draft("L", (20, 30)),
    "tobytes": lambda image: image.tobytes(),
    "raw": lambda image: image.tobytes("raw", "L"),
    "asarray": lambda image: values_of(np.asarray(image)),
    "array": lambda image: values_of(np.array(image)),
    "pickle": lambda image: pickle.loads(pickle.dumps(image)),
    "equal": lambda image: (image == image.copy(), image != 3, image == image.resize((9, 9))),
    "repr": lambda image: repr(image).partition(" at ")[0],
    "pixel": lambda image: image.getpixel((1, 2)),
    "form": lambda image: (image.width, image.height, image.size, image.mode, image.readonly),
    "fit": lambda image: ImageOps.fit(image, (20, 30)),
    "turned": lambda image: ImageOps.exif_transpose(image),
    "exif": lambda image: dict(image.getexif()),
    "pasted": lambda image: image.paste(7, (0, 0, 2, 2)),
    "hash": lambda image: hash(image) and None,
    "closed": lambda image: image.close(),
}


def run(
    name: str,
    before: list[str],
    patch: Callable[[pytest.MonkeyPatch, Any, list[Any]], None],
    after: list[str],
) -> Any:
    """A program that opens a file, makes calls, replaces something, and makes more; all that it sees, and
    the calls of what it replaced."""
    image: Any = Image.open(io.BytesIO(files()[name]))
    log: list[Any] = []
    values: list[Any] = []

    def make(moves: list[str]) -> None:
        nonlocal image
        for move in moves:
            value = outcome(lambda move=move, image=image: MOVES[move](image))
            made = value[0] if isinstance(value[0], list | tuple) else ()
            values.append((move, value, len(made), list(log)))
            if move in ("crop", "resize", "to RGB", "with a gap"):
                image = MOVES[move](image)

    bases = ImageFile.ImageFile.__bases__
    with pytest.MonkeyPatch.context() as patched:
        make(before)
        try:
            patch(patched, image, log)
            make(after)
        finally:
            ImageFile.ImageFile.__bases__ = bases
    return values, log


moves = st.lists(st.sampled_from(sorted(MOVES)), max_size=4)
some_files = st.sampled_from(["420", "grey", "444", "damaged", "progressive", "truncated"])


@given(some_files, st.sampled_from(PARTS), moves, moves)
@settings(max_examples=300, print_blob=True)
def test_a_class_s_function(name: str, part: tuple[int, str], before: list[str], after: list[str]) -> None:
    """Whatever of Pillow's classes a program replaces, at any time: its function is called as often, in
    the same order."""
    kind, attribute = CLASSES[part[0]], part[1]

    def patch(patched: pytest.MonkeyPatch, image: Any, log: list[Any]) -> None:
        patched.setattr(kind, attribute, spied(vars(kind)[attribute], attribute, log))

    plain, lazy = both(lambda: run(name, before, patch, after))
    assert lazy == plain


@given(some_files, st.sampled_from(PARTS), moves, moves)
@settings(max_examples=200, print_blob=True)
def test_an_image_s_own_method(name: str, part: tuple[int, str], before: list[str], after: list[str]) -> None:
    """So may one image have a method of its own, which Pillow's other methods call."""
    attribute = part[1]

    def patch(patched: pytest.MonkeyPatch, image: Any, log: list[Any]) -> None:
        method = getattr(image, attribute, None)
        if callable(method) and not attribute.startswith("__"):
            image.__dict__[attribute] = spied(method, attribute, log)

    plain, lazy = both(lambda: run(name, before, patch, after))
    assert lazy == plain


@given(some_files, st.sampled_from(FUNCTIONS), moves, moves)
@settings(max_examples=100, print_blob=True)
def test_a_module_s_function(name: str, attribute: str, before: list[str], after: list[str]) -> None:
    """So may PIL.Image have other functions by which images are made and looked at."""

    def patch(patched: pytest.MonkeyPatch, image: Any, log: list[Any]) -> None:
        patched.setattr(Image, attribute, spied(getattr(Image, attribute), attribute, log))

    plain, lazy = both(lambda: run(name, before, patch, after))
    assert lazy == plain


class Decoder:
    """A program's decoder, which makes every image black."""

    pulls_fd = False

    def __init__(self, *args: Any) -> None:
        pass

    def setimage(self, *args: Any) -> None:
        pass

    def decode(self, data: bytes) -> tuple[int, int]:
        return -1, 0

    def cleanup(self) -> None:
        pass


class Traced(JpegImagePlugin.JpegImageFile):
    """A program's class of JPEG files, to which it moves images that it has opened."""

    def tobytes(self, *args: Any, **options: Any) -> bytes:
        return bytes(1 << 16)


def other_code(self: Any, *args: Any, **options: Any) -> Any:
    """A program's function in the place of one of Pillow's; NumPy asks no one how long its bytes are."""
    return bytes(1 << 16)


def code(function: Any) -> Callable[[pytest.MonkeyPatch, Any], None]:
    return lambda patched, image: patched.setattr(function, "__code__", other_code.__code__)


class Mixin:
    """A class that a program puts among the bases of Pillow's."""

    def tobytes(self, *args: Any, **options: Any) -> bytes:
        return bytes(1 << 16)


def with_attribute(name: str, value: Any) -> Callable[[pytest.MonkeyPatch, Any], None]:
    return lambda patched, image: setattr(image, name, value)


MEANS: dict[str, Callable[[pytest.MonkeyPatch, Any], None]] = {
    "code of tobytes": code(Image.Image.tobytes),
    "code of load": code(ImageFile.ImageFile.load),
    "code of load_read": code(JpegImagePlugin.JpegImageFile.load_read),
    "code of crop": code(Image.Image.crop),
    "code of the interface": code(vars(Image.Image)["__array_interface__"].fget),
    "a tobytes for JPEGs": lambda patched, image: patched.setattr(
        JpegImagePlugin.JpegImageFile, "tobytes", other_code, raising=False
    ),
    "a load_seek": lambda patched, image: patched.setattr(
        ImageFile.ImageFile, "load_seek", other_code, raising=False
    ),
    "no tobytes": lambda patched, image: patched.delattr(Image.Image, "tobytes"),
    "no resize": lambda patched, image: patched.delattr(Image.Image, "resize"),
    "a hash": lambda patched, image: patched.setattr(Image.Image, "__hash__", object.__hash__),
    "a getattribute": lambda patched, image: patched.setattr(
        Image.Image,
        "__getattribute__",
        lambda self, name: 5 if name == "tobytes" else object.__getattribute__(self, name),
        raising=False,
    ),
    "a decoder": lambda patched, image: patched.setitem(Image.DECODERS, "jpeg", Decoder),
    "a decoder of the library": lambda patched, image: patched.setattr(Image.core, "jpeg_decoder", Decoder),
    "an encoder": lambda patched, image: patched.setitem(Image.ENCODERS, "raw", len),
    "no library": lambda patched, image: patched.setattr(Image, "core", None),
    "a base": lambda patched, image: setattr(ImageFile.ImageFile, "__bases__", (Mixin, Image.Image)),
    "a class": lambda patched, image: setattr(image, "__class__", Traced),
    "a class for all": lambda patched, image: patched.setattr(
        Image, "Image", type("Image", (Image.Image,), {"tobytes": other_code})
    ),
    "a block of text": lambda patched, image: patched.setattr(ImageFile, "MAXBLOCK", "512"),
    "small blocks": lambda patched, image: patched.setattr(ImageFile, "MAXBLOCK", 512),
    "a reducer": lambda patched, image: patched.setitem(
        copyreg.dispatch_table, type(image), lambda image: (str, ("a program's own",))
    ),
    "a palette": with_attribute("palette", ImagePalette.ImagePalette("RGB")),
    "a size": with_attribute("_size", (9, 8)),
    "a mode": with_attribute("_mode", "L"),
    "a block": with_attribute("decodermaxblock", 300),
    "no block": with_attribute("decodermaxblock", 0),
    "an odd block": with_attribute("decodermaxblock", 2.5),
    "a prefix": with_attribute("tile_prefix", b"\xff\xd8\xff"),
    "no tile": with_attribute("tile", []),
    "a configuration": with_attribute("decoderconfig", (2, 1)),
    "a list for it": with_attribute("decoderconfig", [1, 0]),
    "no file": with_attribute("fp", None),
    "a file": with_attribute("fp", io.BytesIO(b"\xff\xd8")),
    "readonly": with_attribute("readonly", 1),
    "transparency": lambda patched, image: image.info.update(
        transparency=(1, 2, 3) if image.mode == "RGB" else 1
    ),
}


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize(
    "before", [[], ["load"], ["crop"], ["resize", "crop"]], ids=lambda before: "+".join(before) or "at once"
)
def test_by_any_means(means: str, before: list[str]) -> None:
    """Other code in a function, a base, a codec, an attribute: every call after it has Pillow's outcome."""
    for move in set(MOVES) - {"closed", "pasted"}:
        plain, lazy = both(
            lambda move=move: run(
                "420",
                before,
                lambda patched, image, log: MEANS[means](patched, image),
                [move, "crop", "tobytes", "asarray"],
            )
        )
        assert lazy == plain, move


def test_pixels_of_before_are_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crop that was made before a program replaced its Pillow's resize, or decoder, has the pixels that
    it has without."""
    for name in ("420", "damaged", "grey"):
        expected = Image.open(io.BytesIO(files()[name])).crop((3, 4, 50, 60)).tobytes()
        with lazily():
            crop = Image.open(io.BytesIO(files()[name])).crop((3, 4, 50, 60))
            assert is_lazy(crop)
            with monkeypatch.context() as patched:
                patched.setitem(Image.DECODERS, "jpeg", Decoder)
                patched.setattr(JpegImagePlugin.JpegImageFile, "__init__", other_code)
                patched.setattr(Image, "frombytes", other_code)
                patched.setattr(Image, "new", other_code)
                assert crop.tobytes() == expected


def test_an_image_that_is_looked_at_twice_is_lazy_again() -> None:
    """Once a program has put Pillow's function back, images that it opens are lazy."""
    with pytest.MonkeyPatch.context() as patched, lazily():
        patched.setattr(Image.Image, "tobytes", other_code)
        assert not is_lazy(Image.open(io.BytesIO(files()["420"])))
        patched.undo()
        assert is_lazy(Image.open(io.BytesIO(files()["420"])))


def test_code_is_compared_once_for_images_that_are_lazy_around_single_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stand-ins are put into Pillow and taken away around each batch of a loader without workers: no
    comparison of code is made again for that."""
    data, new = files()["420"], Image.new
    compared: list[int] = []
    compare = _PillowCode._compare
    monkeypatch.setattr(_PillowCode, "_compare", lambda self: (compared.append(1), compare(self))[1])
    for _ in range(10):
        with opened_lazily("exact"):
            Image.open(io.BytesIO(data)).convert("RGB").resize((9, 9)).tobytes()
        before, compared[:] = len(compared), []
    assert (before, Image.new) == (0, new)
