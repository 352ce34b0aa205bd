"""Agreement with the installed Pillow: its order of passes is found, a Pillow that rounds or decodes
otherwise is not taken for equal, and what a program has put into its Pillow is not taken for Pillow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from lazy_helpers import both, files, is_lazy, lazily
from PIL import Image, ImageFile, JpegImagePlugin

from fastload._native import core
from fastload.lazy import agreement, resampling
from fastload.lazy.pixels import to_array

PROBES = (resampling.pillow_order, agreement.decoder_agrees)


@pytest.fixture
def fresh() -> Iterator[None]:
    """The probes run anew, in the test and after it."""
    for probe in PROBES:
        probe.forget()
    yield
    for probe in PROBES:
        probe.forget()


@pytest.mark.usefixtures("fresh")
def test_the_installed_pillow_s_order_is_found() -> None:
    """Up to Pillow 12 rows go first, from 13 on what shrinks more."""
    major = int(Image.__version__.split(".")[0])
    assert resampling.pillow_order() == ("by-shrink" if major >= 13 else "horizontal")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("order", ["horizontal", "by-shrink"])
def test_the_probes_tell_the_orders_apart(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """A Pillow of either order is known by its pixels."""

    def resized(pixels: Any, size: tuple[int, int], filter: int, box: Any) -> Any:
        out = core.resize_exact(pixels, box, size, resampling.FILTERS[filter], order=order)
        return out if pixels.shape[2] == 3 else out[:, :, 0]

    monkeypatch.setattr(resampling, "_resized_by_pillow", resized)
    assert resampling.pillow_order() == order


@pytest.mark.usefixtures("fresh")
def test_a_pillow_that_rounds_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value that differs by one is enough, of a resize and of a decoded file."""
    resize, decode = resampling._resized_by_pillow, agreement.decoded_by_pillow

    def resized(pixels: Any, size: tuple[int, int], filter: int, box: Any) -> Any:
        out = resize(pixels, size, filter, box).copy()
        out.flat[-1] ^= filter == Image.Resampling.BICUBIC
        return out

    def decoded(data: bytes, size: tuple[int, int], mode: str) -> Any:
        out = to_array(decode(data, size, mode)).copy()
        out.flat[-1] ^= mode == "L"
        return out

    assert agreement.decoder_agrees()
    monkeypatch.setattr(resampling, "_resized_by_pillow", resized)
    monkeypatch.setattr(agreement, "decoded_by_pillow", decoded)
    assert resampling.pillow_order() is None
    agreement.decoder_agrees.forget()
    assert agreement.decoder_agrees() is False


def refused(*args: Any, **options: Any) -> Any:
    """A program's function."""
    raise RuntimeError("a program's own")


PATCHES: dict[str, tuple[Any, str, Any]] = {
    "small blocks": (ImageFile, "MAXBLOCK", 512),
    "save": (Image.Image, "save", refused),
    "resize": (Image.Image, "resize", refused),
    "convert": (Image.Image, "convert", refused),
    "reduce": (Image.Image, "reduce", lambda self, *args: self.copy()),
    "a resize of its own": (
        Image.Image,
        "resize",
        lambda self, size, *args, **options: Image.new(self.mode, size),
    ),
    "fromarray": (Image, "fromarray", refused),
    "frombytes": (Image, "frombytes", refused),
    "new": (Image, "new", refused),
    "the loader": (ImageFile.ImageFile, "load", refused),
    "the decoder": (Image.core, "jpeg_decoder", refused),
    "the encoder": (Image.core, "raw_encoder", refused),
    "NumPy's way in": (Image.Image, "__array_interface__", property(refused)),
    "the filters": (Image, "Resampling", None),
}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("case", PATCHES)
def test_probes_in_a_patched_pillow(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """A program whose Pillow is patched when the first image is opened has what it has without lazy images,
    and answers of that time are not kept: once the patch is gone, images are lazy, and resizes native."""
    order, data = resampling.pillow_order(), files()["420"]
    for probe in PROBES:
        probe.forget()

    def program() -> Any:
        image = Image.open(io.BytesIO(data))
        return (
            image.size,
            np.asarray(image.crop((3, 4, 50, 60))).tobytes(),
            np.asarray(image.resize((20, 30))).tobytes(),
        )

    with monkeypatch.context() as patched:
        patched.setattr(*PATCHES[case])
        plain, lazy = both(program)
        assert lazy == plain
    with lazily():
        assert is_lazy(Image.open(io.BytesIO(data)))
    assert resampling.pillow_order() == order is not None


@pytest.mark.usefixtures("fresh")
def test_a_probe_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a trial raises stays in it: images are Pillow's, and the next one asks again."""
    for error in (MemoryError, ValueError, RecursionError):
        with monkeypatch.context() as patched, lazily():

            def fails(*args: Any, error: Any = error) -> Any:
                raise error

            patched.setattr(agreement, "_agrees", fails)
            patched.setattr(resampling, "_agrees", fails)
            assert not is_lazy(Image.open(io.BytesIO(files()["420"])))
            assert resampling.pillow_order() is None
    with lazily():
        assert is_lazy(Image.open(io.BytesIO(files()["420"])))


def test_probe_files_are_what_they_are_said_to_be() -> None:
    """Sides of no whole blocks, three samplings and grey, and values that reach both ends."""
    read = [Image.open(io.BytesIO(data)) for _, data in agreement.PROBES]
    probes = agreement.PROBES
    assert [(image.mode, image.size) for image in read] == [(mode, agreement.SIZE) for mode, _ in probes]
    samplings = [
        [part[1:3] for part in image.layer]
        for image in read
        if isinstance(image, JpegImagePlugin.JpegImageFile)
    ]
    assert [sampling[0] for sampling in samplings] == [(2, 2), (2, 1), (1, 1), (1, 1)]
    assert all(np.asarray(image).min() < 20 and np.asarray(image).max() > 235 for image in read)
