"""Random programs of Pillow's methods on lazy images and on plain ones: nothing that can be seen differs."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import LAZY, both, files, is_lazy, lazily
from PIL import Image, ImageChops, ImageEnhance, ImageFile, ImageFilter, ImageOps

Move = Callable[[Image.Image], Any]
"""One call on an image: it gives an image to go on with, or a value that is compared."""

sides = st.integers(-9, 95)
fractions = st.floats(-3, 90, allow_nan=False).map(lambda x: round(x, 2))
boxes = st.tuples(sides, sides, sides, sides) | st.tuples(fractions, fractions, fractions, fractions)
inner = st.tuples(st.floats(0, 0.6), st.floats(0, 0.6), st.floats(0.05, 0.4), st.floats(0.05, 0.4))
sizes = st.tuples(st.integers(1, 70), st.integers(1, 70)) | st.tuples(st.integers(-1, 9), st.integers(0, 9))
filters = st.sampled_from([None, *Image.Resampling, 9, -1])
gaps = st.sampled_from([None, None, 1.0, 1.5, 2.0, 3.0, 0.5])
modes = st.sampled_from(["RGB", "RGB", "L", "YCbCr", "RGBA", "CMYK", "P", "1", "F", None, "nonsense"])


def cropped_within(box: tuple[float, float, float, float]) -> Move:
    """A crop inside the image, whatever its size."""

    def move(image: Image.Image) -> Any:
        left, upper, width, height = box
        w, h = image.size
        return image.crop(
            (int(left * w), int(upper * h), int(left * w + width * w) + 1, int(upper * h + height * h) + 1)
        )

    return move


def resized_within(
    size: tuple[int, int], resample: Any, box: tuple[float, float, float, float], gap: Any
) -> Move:
    """A resize of a box inside the image."""

    def move(image: Image.Image) -> Any:
        left, upper, width, height = box
        w, h = image.size
        return image.resize(
            size, resample, (left * w, upper * h, (left + width) * w, (upper + height) * h), gap
        )

    return move


def in_place(call: Callable[[Image.Image], Any]) -> Move:
    """A call that changes the image."""

    def move(image: Image.Image) -> Any:
        call(image)
        return image

    return move


def pasted(image: Image.Image) -> Any:
    image.paste((1, 2, 3) if image.mode == "RGB" else 5, (0, 0, 2, 2))
    return image


def poked(image: Image.Image) -> Any:
    access: Any = image.load()
    access[0, 0] = (9, 8, 7) if image.mode == "RGB" else 3
    return image, access[0, 0], image.crop((0, 0, 1, 1))


def saved(image: Image.Image) -> Any:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


composing = st.one_of(
    boxes.map(lambda box: lambda image: image.crop(box)),
    inner.map(cropped_within),
    st.tuples(sizes, filters).map(lambda a: lambda image: image.resize(*a)),
    st.tuples(sizes, filters, st.none() | boxes, gaps).map(lambda a: lambda image: image.resize(*a)),
    st.builds(resized_within, sizes, filters, inner, gaps),
    st.tuples(sizes, st.sampled_from(list(Image.Resampling)), gaps).map(
        lambda a: in_place(lambda image: image.thumbnail(*a))
    ),
    st.sampled_from([1, 2, 3, (2, 1), (1, 3), 0, 2.5, "x"]).map(
        lambda factor: lambda image: image.reduce(factor)
    ),
    st.tuples(st.sampled_from([2, (3, 2)]), boxes).map(lambda a: lambda image: image.reduce(*a)),
    st.sampled_from([*Image.Transpose, 7, None]).map(lambda method: lambda image: image.transpose(method)),
    modes.map(lambda mode: lambda image: image.convert(mode)),
    st.tuples(st.sampled_from(["L", "RGB", None]), sizes).map(
        lambda a: in_place(lambda image: image.draft(*a))
    ),
    st.sampled_from(
        [
            lambda image: image.copy(),
            lambda image: copy.copy(image),
            lambda image: image.crop(),
            lambda image: image.crop((1, 2)),
            lambda image: image.resize((5.5, 4)),
            lambda image: image.resize(np.array([9, 8])),
            lambda image: ImageOps.exif_transpose(image),
            in_place(lambda image: ImageOps.exif_transpose(image, in_place=True)),
            lambda image: ImageOps.fit(image, (20, 30)),
            lambda image: ImageOps.pad(image, (40, 30)),
            lambda image: ImageOps.contain(image, (33, 22)),
            lambda image: ImageOps.mirror(image),
            lambda image: ImageOps.expand(image, 3),
            in_place(lambda image: image.load()),
        ]
    ),
)
factors = st.sampled_from([0, 1, 0.0, 1.0, -0.5, 2.5, 300.0, np.float64(0.3), 1e38, 1e39, True]) | st.floats(
    0, 2
).map(lambda x: round(x, 3))
radii = st.sampled_from([0, 0.3, 1, 2.7, (1.5, 0), (0, 3.2), 30, -1, np.float64(0.7), 1e5])
colours = st.sampled_from([None, 0, 7, "red", (1, 2, 3), (1, 2, 3, 4), (300, -1, 5), 1.5])
maps = st.lists(st.floats(-2, 2).map(lambda x: round(x, 3)), min_size=6, max_size=6)
kinds = st.sampled_from([0, 2, 3, 1])


def blurred(kind: str, radius: Any) -> Move:
    """By a Gaussian or a box; not where that ends the process in Pillows before 11: a huge radius, an image
    without pixels."""
    old = int(Image.__version__.split(".")[0]) < 11

    def move(image: Image.Image) -> Any:
        if old and (radius == 1e5 or 0 in image.size):
            return None
        return image.filter(getattr(ImageFilter, kind)(radius))

    return move


def hue_turned(shift: int) -> Move:
    """As torchvision's adjust_hue."""

    def move(image: Image.Image) -> Any:
        hue, saturation, value = image.convert("HSV").split()
        turned = Image.fromarray(np.asarray(hue) + np.uint8(shift), "L")
        return Image.merge("HSV", (turned, saturation, value)).convert("RGB")

    return move


def on_canvas(size: tuple[int, int], colour: Any, at: tuple[int, int]) -> Move:
    """Pasted onto a canvas."""

    def move(image: Image.Image) -> Any:
        canvas = Image.new(image.mode, size, colour)
        canvas.paste(image, at)
        return canvas

    return move


colouring = st.one_of(
    st.tuples(st.sampled_from(["Brightness", "Contrast", "Color", "Sharpness"]), factors).map(
        lambda a: lambda image: getattr(ImageEnhance, a[0])(image).enhance(a[1])
    ),
    st.integers(0, 255).map(hue_turned),
    st.builds(blurred, st.sampled_from(["GaussianBlur", "BoxBlur"]), radii),
    st.sampled_from(
        [
            lambda image: image.filter(ImageFilter.SMOOTH),
            lambda image: ImageOps.invert(image),
            lambda image: ImageOps.solarize(image, 99),
            lambda image: ImageOps.posterize(image, 3),
            lambda image: ImageOps.equalize(image),
            lambda image: ImageOps.autocontrast(image),
            lambda image: ImageOps.autocontrast(image, 5, preserve_tone=True),
            lambda image: ImageOps.grayscale(image),
            lambda image: image.convert("L").convert("RGB"),
            lambda image: image.convert("HSV"),
            lambda image: image.split()[0],
            lambda image: image.getchannel(0),
            lambda image: image.convert("HSV").getchannel("V"),
            lambda image: image.point(lambda x: x // 2),
            lambda image: image.point(lambda x: x * 2.5 - 9),
            lambda image: image.point([3] * 256),
            lambda image: Image.merge("RGB", image.split()[::-1]),
            lambda image: Image.merge("HSV", image.convert("HSV").split()[::-1]).convert("RGB"),
            lambda image: Image.blend(image, image.transpose(0), 0.3),
            lambda image: Image.blend(image.convert("L"), image, 0.3),
        ]
    ),
    st.tuples(sizes, maps, kinds, colours).map(
        lambda a: lambda image: image.transform(a[0], Image.Transform.AFFINE, a[1], a[2], fillcolor=a[3])
    ),
    st.tuples(sizes, maps, kinds).map(
        lambda a: (
            lambda image: image.transform(a[0], Image.Transform.PERSPECTIVE, (*a[1], 0.001, -0.002), a[2])
        )
    ),
    st.tuples(st.integers(-400, 400), kinds, st.booleans(), colours).map(
        lambda a: lambda image: image.rotate(a[0], a[1], a[2], fillcolor=a[3])
    ),
    st.tuples(st.integers(0, 9), colours).map(lambda a: lambda image: ImageOps.expand(image, a[0], a[1])),
    st.builds(on_canvas, sizes, colours, st.tuples(st.integers(-70, 70), st.integers(-70, 70))),
)
looking = st.sampled_from(
    [
        lambda image: np.asarray(image),
        lambda image: np.array(image),
        lambda image: image.tobytes(),
        lambda image: image.tobytes("raw", "L"),
        lambda image: image.tobytes("raw", "RGBX"),
        lambda image: image.getpixel((0, 0)),
        lambda image: list(image.resize((3, 2)).getdata()) if hasattr(image, "getdata") else None,
        lambda image: image.getextrema(),
        lambda image: image.histogram(),
        lambda image: image.split(),
        lambda image: image.getbbox(),
        lambda image: pickle.loads(pickle.dumps(image)),
        lambda image: copy.deepcopy(image),
        lambda image: image.rotate(30),
        lambda image: image.filter(__import__("PIL.ImageFilter").ImageFilter.BLUR),
        lambda image: image.point(lambda x: x // 2),
        lambda image: image.transform((9, 9), Image.Transform.AFFINE, (1, 0.2, 3, 0, 1, 2)),
        lambda image: ImageEnhance.Color(image).enhance(0.5),
        lambda image: ImageChops.invert(image),
        lambda image: Image.blend(image, image.copy(), 0.3),
        lambda image: image.getcolors(10**6),
        lambda image: image == image.copy(),
        lambda image: repr(image).partition(" at ")[0],
        lambda image: (image.width, image.height, image.mode, image.format, image.getbands(), image.readonly),
        lambda image: Image.fromarray(np.asarray(image)),
        pasted,
        poked,
        saved,
        in_place(lambda image: image.seek(0)),
        lambda image: image.tell(),
        lambda image: image.seek(1),
        in_place(lambda image: image.putpixel((0, 0), 0)),
        in_place(lambda image: image.close()),
        in_place(lambda image: image.__exit__()),
        in_place(lambda image: image.verify()),
    ]
)


def run(data: bytes, moves: list[Move]) -> Any:
    """Opens a file and makes the calls one after the other. An exception is a value, and the program goes
    on."""
    file = io.BytesIO(data)
    image = Image.open(file)
    kept = [image]
    values: list[Any] = []
    for move in moves:
        try:
            value = move(kept[-1])
        except Exception as error:
            values.append((type(error).__name__, str(error)))
            continue
        if isinstance(value, Image.Image):
            kept.append(value)
        values.append(
            value
            if not isinstance(value, np.ndarray)
            else (value.flags.writeable, value.shape, str(value.dtype), value.tobytes())
        )
    states: list[Any] = []
    for each in kept:
        try:
            each.load()
            states.append(each)
        except Exception as error:
            states.append((type(error).__name__, str(error)))
    return values, states, None if file.closed else file.tell()


@given(
    st.sampled_from(sorted(set(files()) - {"empty", "no jpeg"})),
    st.lists(composing | colouring | looking, min_size=1, max_size=8),
)
@settings(max_examples=400, print_blob=True)
def test_a_random_program_sees_no_difference(name: str, moves: list[Move]) -> None:
    """Values, exceptions, and all images that were made on the way are equal to Pillow's."""
    plain, lazy = both(lambda: run(files()[name], moves))
    assert lazy == plain


@given(st.sampled_from(LAZY), st.sampled_from(["RGB", "L", "HSV"]), composing | colouring | looking)
@settings(max_examples=400, print_blob=True)
def test_a_call_on_a_recipe_of_each_mode_sees_no_difference(name: str, mode: str, move: Move) -> None:
    """What Pillow refuses of a mode, a recipe of it refuses in the same call."""
    plain, lazy = both(lambda: run(files()[name], [lambda image: image.convert(mode), move]))
    assert lazy == plain


@given(st.sampled_from(LAZY), st.lists(composing, min_size=1, max_size=8))
@settings(max_examples=200, print_blob=True)
def test_arrays_of_random_recipes_are_pillows(name: str, moves: list[Move]) -> None:
    """Pixels of long recipes, taken as arrays, are equal to Pillow's."""

    def program() -> Any:
        image = Image.open(io.BytesIO(files()[name]))
        for move in moves:
            try:
                value = move(image)
            except Exception:
                continue
            image = value if isinstance(value, Image.Image) else image
        return np.array(image).tobytes(), image

    plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize("name", sorted(files()))
def test_each_file_is_opened_and_loaded_alike(name: str) -> None:
    """Every kind of file gives the image, or the exception, that it gives without."""
    plain, lazy = both(lambda: Image.open(io.BytesIO(files()[name])))
    assert lazy == plain


@pytest.mark.parametrize("name", LAZY)
def test_recipes_stay_recipes(name: str) -> None:
    """All that composes leaves the pixels unmade, load() included."""
    with lazily():
        image = Image.open(io.BytesIO(files()[name]))
        image.load()
        assert is_lazy(image)
        for made in (
            image.convert("RGB"),
            ImageOps.exif_transpose(image),
            image.crop((0, 0, 1, 1)),
            image.crop((-3, -3, 50, 50))
            .resize((20, 30), Image.Resampling.BICUBIC)
            .transpose(Image.Transpose.FLIP_LEFT_RIGHT),
            image.resize((20, 30), Image.Resampling.LANCZOS, reducing_gap=1.1).copy(),
            image.reduce(2),
        ):
            assert is_lazy(made)
        np.asarray(image)
        image.tobytes()
        assert is_lazy(image)


def test_truncated_images_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LOAD_TRUNCATED_IMAGES a cut-off file is what Pillow makes of it."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for name in ("truncated", "no end", "420"):
        plain, lazy = both(lambda name=name: Image.open(io.BytesIO(files()[name])).crop((3, 4, 50, 60)))
        assert lazy == plain


def test_too_many_pixels_are_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Image.MAX_IMAGE_PIXELS warns and raises."""
    for most in (4000, 2000):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        plain, lazy = both(lambda: Image.open(io.BytesIO(files()["420"])).crop((0, 0, 90, 90)))
        assert lazy == plain
        assert "decompression bomb" in str(lazy)
