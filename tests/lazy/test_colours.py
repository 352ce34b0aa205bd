"""Colour steps, blurs, warps and canvases on lazy images: they stay recipes, with Pillow's pixels."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torchvision_ops  # noqa: F401
from lazy_helpers import both, counted, files, is_lazy, lazily
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from PIL import _imaging as library
from torchvision.transforms import _functional_pil as F

from fastload.lazy import colours, functions, pillow_code
from fastload.lazy.pixels import to_core
from fastload.lazy.resampling import noise

Move = Callable[[Any], Any]

STAY: dict[str, Move] = {
    "brightness": lambda image: F.adjust_brightness(image, 1.3),
    "contrast": lambda image: F.adjust_contrast(image, 0.6),
    "saturation": lambda image: F.adjust_saturation(image, 1.9),
    "sharpness": lambda image: F.adjust_sharpness(image, 2.5),
    "hue": lambda image: F.adjust_hue(image, 0.2),
    "no hue": lambda image: F.adjust_hue(image, 0.0),
    "gamma": lambda image: F.adjust_gamma(image, 0.7),
    "invert": ImageOps.invert,
    "solarize": lambda image: ImageOps.solarize(image, 100),
    "posterize": lambda image: ImageOps.posterize(image, 3),
    "equalize": ImageOps.equalize,
    "autocontrast": ImageOps.autocontrast,
    "grayscale": ImageOps.grayscale,
    "grey by an array": lambda image: F.to_grayscale(image, 3),
    "grey": lambda image: image.convert("L").convert("RGB"),
    "Gaussian": lambda image: image.filter(ImageFilter.GaussianBlur(1.4)),
    "box": lambda image: image.filter(ImageFilter.BoxBlur((2, 0.5))),
    "smooth": lambda image: image.filter(ImageFilter.SMOOTH),
    "blend": lambda image: Image.blend(image, image.transpose(Image.Transpose.FLIP_TOP_BOTTOM), 0.4),
    "expand": lambda image: ImageOps.expand(image, (1, 2, 3, 4), 9),
    "pad": lambda image: F.pad(image, [5, 6], (1, 2, 3)),
    "pad to": lambda image: ImageOps.pad(image, (70, 40)),
    "fit": lambda image: ImageOps.fit(image, (20, 20)),
    "contain": lambda image: ImageOps.contain(image, (20, 20)),
    "mirror": ImageOps.mirror,
    "flip": ImageOps.flip,
    "rotate": lambda image: image.rotate(31, Image.Resampling.BICUBIC, expand=True),
    "affine": lambda image: F.affine(image, [1.0, 0.2, -3.0, 0.0, 0.9, 4.0], 2, (9, 9, 9)),
    "perspective": lambda image: F.perspective(image, [1.0, 0.1, 2.0, -0.1, 1.0, 1.0, 0.001, 0.002], 3),
    "band": lambda image: image.split()[1],
    "hue alone": lambda image: image.convert("HSV").getchannel("H"),
}
"""What an RGB image stays a recipe through."""


def opened() -> Any:
    """An image after a crop and a resize."""
    image = Image.open(io.BytesIO(files()["420"])).crop((3, 4, 60, 70))
    return image.resize((41, 33), Image.Resampling.BILINEAR)


def cropped() -> Any:
    """An image whose fourth bytes are those of a decoder."""
    return Image.open(io.BytesIO(files()["420"])).crop((3, 4, 60, 70))


@pytest.mark.parametrize("name", STAY)
def test_stays_a_recipe(name: str) -> None:
    """The result is lazy, and its pixels, mode, size and info are Pillow's, all four bytes of them."""
    with lazily():
        assert is_lazy(STAY[name](opened()))
    plain, lazy = both(lambda: [STAY[name](opened()), STAY[name](opened()).resize((9, 9))])
    assert lazy == plain
    for start in (opened, cropped):
        plain, lazy = both(lambda start=start: STAY[name](start()).convert("RGB").tobytes("raw", "RGBX"))
        assert lazy == plain
    assert not counted(lambda: np.asarray(STAY[name](opened()))).whole


def test_greys_have_no_hue() -> None:
    """H of grey pixels is Pillow's 0, and they stay grey when it is turned."""
    grey = io.BytesIO()
    Image.new("RGB", (24, 17), (90, 90, 90)).save(grey, "JPEG")

    def program() -> Any:
        image = Image.open(io.BytesIO(grey.getvalue()))
        return [image.convert("HSV").split()[0], F.adjust_hue(image, 0.3)]

    plain, lazy = both(program)
    assert lazy == plain


def test_a_merge_of_other_bands_is_pillows() -> None:
    """H that was changed otherwise, or S and V of another image, make no turned hue."""

    def program() -> Any:
        hue, saturation, value = opened().convert("HSV").split()
        other = opened().rotate(90).resize((41, 33)).convert("HSV").split()
        changed = Image.fromarray(np.asarray(hue) // 2, "L")
        return [
            Image.merge("HSV", (changed, saturation, value)).convert("RGB"),
            Image.merge("HSV", (hue, other[1], value)).convert("RGB"),
            Image.merge("HSV", (hue, value, saturation)).convert("RGB"),
            Image.merge("RGB", (hue, saturation, value)),
        ]

    plain, lazy = both(program)
    assert lazy == plain


def test_enhancers_of_equal_numbers_are_not_confused() -> None:
    """A blend of images that went through different steps of the same numbers is a blend of two."""

    def program() -> Any:
        one, two = ImageEnhance.Color(opened()).enhance(0.5), ImageEnhance.Sharpness(opened()).enhance(0.5)
        return Image.blend(one.convert("L").convert("RGB"), two, 0.5)

    plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize("kind", sorted(colours._trials, key=lambda kind: kind.__name__))
def test_a_kernel_that_differs_is_left_to_pillow(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a trial does not give the installed Pillow's bytes, its own steps run."""
    assert colours.agrees(kind)
    monkeypatch.setitem(colours._trials, kind, lambda: None)
    for name, move in STAY.items():
        plain, lazy = both(lambda move=move: move(opened()))
        assert lazy == plain, name


def test_a_trial_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials see a native step that differs by 1 in one pixel."""
    real = colours.core.colour

    def wrong(pixels: Any, steps: Any) -> Any:
        made = real(pixels, steps)
        made[3, 4] ^= 1
        return made

    for kind, trial in colours._trials.items():
        if issubclass(kind, colours.Colour):
            trial.forget()
            with monkeypatch.context() as patched:
                patched.setattr(colours.core, "colour", wrong)
                assert not colours.agrees(kind), kind
            trial.forget()
            assert colours.agrees(kind)


def test_functions_stand_in_only_while_images_are_lazy() -> None:
    """Image.new, frombuffer, blend and merge are Pillow's own before and after, and count as such then."""
    own = {name: getattr(Image, name) for name in ("new", "frombuffer", "blend", "merge")}
    with lazily():
        opened()
        assert all(getattr(Image, name) is not each for name, each in own.items())
        assert pillow_code.replaced() == ""
        kept = Image.new
        assert is_lazy(kept("RGB", (3, 4)))
    assert all(getattr(Image, name) is each for name, each in own.items())
    assert not is_lazy(kept("RGB", (3, 4)))
    assert functions._own == own


def test_a_program_s_own_function_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blend that a program has put into PIL.Image is called, by Pillow's own code too."""
    calls: list[float] = []

    def program() -> Any:
        image = opened()
        real = Image.blend
        with monkeypatch.context() as patched:
            patched.setattr(Image, "blend", lambda one, two, by: calls.append(by) or real(one, two, by))
            return ImageEnhance.Brightness(image).enhance(0.3)

    plain, lazy = both(program)
    assert lazy == plain
    assert calls == [0.3, 0.3]


def test_a_loop_over_one_image_ends() -> None:
    """A recipe of many blends is carried out now and then."""

    def program() -> Any:
        image = opened()
        for _ in range(300):
            image = Image.blend(image.convert("L").convert("RGB"), image, 1.01)
        return image

    plain, lazy = both(program)
    assert lazy == plain


def test_canvases_that_change() -> None:
    """Further pastes, masks, pixels and parts beyond the edges: what a canvas becomes is Pillow's."""

    def program() -> Any:
        image = opened()
        canvas = Image.new("RGB", (60, 50), (1, 2, 3))
        copy = canvas.copy()
        canvas.paste(image, (-5, 30))
        between = canvas.copy()
        canvas.paste(image, (10, 5), Image.new("L", image.size, 99))
        canvas.paste((9, 9, 9), (0, 0, 4, 4))
        copy.putpixel((3, 3), (7, 7, 7))
        grey = Image.new("L", (60, 50), 200)
        grey.paste(image, (1, 1, 42, 34))
        grey.paste(image.convert("L"), (60, 50))
        return [image, canvas, copy, between, grey]

    plain, lazy = both(program)
    assert lazy == plain


ARRAYS: dict[str, Move] = {
    "colours": lambda pixels: pixels,
    "a view": lambda pixels: pixels[::-1, ::2],
    "a band": lambda pixels: pixels[:, :, 0],
    "four": lambda pixels: np.concatenate([pixels, pixels[:, :, :1]], 2),
    "two": lambda pixels: pixels[:, :, :2],
    "floats": lambda pixels: pixels.astype(np.float32),
    "empty": lambda pixels: pixels[:0],
    "a list": lambda pixels: pixels.tolist(),
}


@pytest.mark.parametrize("mode", [None, "RGB", "L", "HSV"])
@pytest.mark.parametrize("name", ARRAYS)
def test_images_of_arrays(name: str, mode: str | None) -> None:
    """Image.fromarray, with and without a mode: pixels as they were when it was called, and exceptions."""

    def program() -> Any:
        pixels = np.array(opened())
        given = ARRAYS[name](pixels)
        image = Image.fromarray(given, mode)
        if name != "a band":  # whose memory Pillow may share
            pixels[:] = 0
        return [image, image.resize((9, 9)), image.convert("L")]

    plain, lazy = both(program)
    assert lazy == plain


def fourth_bytes(core: Any) -> set[int]:
    """The fourth bytes of a core image's pixels."""
    encoder = library.raw_encoder("RGB", "RGBX", 0, 1)
    encoder.setimage(core, (0, 0, *core.size))
    data, done = b"", 0
    while not done:
        _, done, part = encoder.encode(1 << 16)
        data += part
    encoder.cleanup()
    return set(data[3::4])


@pytest.mark.parametrize("kind", colours._TRIED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("value", [0, 7, 255])
def test_fourth_bytes_are_as_steps_say(kind: type[colours.Proved], value: int) -> None:
    """What Pillow leaves in the byte behind the colours, which some raw modes show."""
    channels, steps = colours._TRIED[kind]
    for step in steps if 3 in channels else ():
        made = step.on_core(to_core(noise(61, 47, 3), value))
        said = step.fourth(value, (61, 47))
        assert made.mode != "RGB" or said is None or fourth_bytes(made) == {said}, step
