"""Pillow's own resize and reduce: the installed Pillow's bytes, however they are stored and whichever CPU
made them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from handles import none_left
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload import errors
from fastload._native import core
from fastload.lazy.resampling import FILTERS, pillow_order

Pixels = npt.NDArray[np.uint8]
Box = tuple[float, float, float, float]

NUMBERS = {
    name: number for number, name in FILTERS.items() if number in {int(each) for each in Image.Resampling}
}
NAMES = st.sampled_from(sorted(NUMBERS))
SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 90)
CHANNELS = st.sampled_from([1, 3])


@pytest.fixture(params=[False, True], ids=["scalar", "best"])
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs on plain C and on the best path of this CPU."""
    core.use_cpu("" if request.param else "plain")
    yield
    core.use_cpu("")


@pytest.fixture(scope="module")
def order() -> str:
    """The order of the passes that the installed Pillow has."""
    found = pillow_order()
    assert found is not None, f"Pillow {Image.__version__} and fastload resize differently"
    return found


def image_of(seed: int, width: int, height: int, channels: int = 3) -> Pixels:
    """Noise; for every third seed of black and white only, which makes filters overshoot."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return np.where(image > 127, 255, 0).astype(np.uint8) if seed % 3 == 0 else image


def box_of(seed: int, width: int, height: int) -> Box | None:
    """A box inside the image, which may be empty: all of it, whole pixels, or any numbers."""
    rng = np.random.default_rng([seed, 1])
    if seed % 4 == 0:
        return None
    edges = [np.sort(rng.uniform(0, side, 2)) for side in (width, height)]
    if seed % 4 == 1:
        edges = [np.round(each) for each in edges]
    (left, right), (top, bottom) = edges
    return float(left), float(top), float(right), float(bottom)


def pillow(image: Pixels) -> Image.Image:
    return Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])


def resized(image: Pixels, box: Box | None, size: tuple[int, int], name: str) -> Pixels:
    """Pillow's resize, as an array of the image's channels."""
    out = np.asarray(pillow(image).resize(size, NUMBERS[name], box=box))
    return out.reshape(size[1], size[0], image.shape[2])


@pytest.mark.usefixtures("path")
@settings(max_examples=400)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, NAMES, CHANNELS)
@example(3, 1, 1, 40, 30, "lanczos", 3)
@example(5, 7, 5, 90, 81, "box", 1)
def test_resize_is_pillow_s(
    order: str, seed: int, width: int, height: int, out_width: int, out_height: int, name: str, channels: int
) -> None:
    """Any box of any image to any size with any filter: the same bytes."""
    image, box, size = (
        image_of(seed, width, height, channels),
        box_of(seed, width, height),
        (out_width, out_height),
    )
    got = core.resize_exact(image, box, size, name, order=order)
    np.testing.assert_array_equal(got, resized(image, box, size, name), str((seed, box, size, name)))


SHAPES = [
    ((960, 930), (31, 31)),
    ((1500, 700), (20, 230)),
    ((17, 900), (250, 25)),
    ((7, 5), (333, 301)),
    ((640, 480), (1, 1)),
    ((1, 1), (40, 30)),
    ((500, 375), (224, 224)),
    ((375, 500), (224, 224)),
    ((300, 300), (224, 224)),
    ((224, 500), (224, 224)),
    ((500, 224), (224, 224)),
]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("channels", [1, 3])
def test_every_filter_at_scales_of_all_sorts(order: str, name: str, channels: int) -> None:
    """Reductions by 30 and by everything, magnifications by 60, sizes that training has, and passes that
    are left out."""
    for (width, height), size in SHAPES:
        image = image_of(width, width, height, channels)
        for box in (None, (0.5, 0.25, width - 0.125, height - 0.1)):
            got = core.resize_exact(image, box, size, name, order=order)
            np.testing.assert_array_equal(
                got, resized(image, box, size, name), str((width, height, box, size))
            )


@settings(max_examples=100)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, NAMES.filter(lambda name: name != "nearest"))
def test_both_orders_are_two_resizes_of_pillow_s(
    seed: int, width: int, height: int, out_width: int, out_height: int, name: str
) -> None:
    """Across first is Pillow's resize of the width and then of the height; down first the other way round."""
    image, size = image_of(seed, width, height), (out_width, out_height)
    across = resized(resized(image, None, (out_width, height), name), None, size, name)
    down = resized(resized(image, None, (width, out_height), name), None, size, name)
    np.testing.assert_array_equal(core.resize_exact(image, None, size, name, order="horizontal"), across)
    np.testing.assert_array_equal(core.resize_exact(image, None, size, name, order="vertical"), down)


@settings(max_examples=200)
@given(
    SEEDS,
    SIDES,
    SIDES,
    SIDES,
    SIDES,
    NAMES,
    CHANNELS,
    st.sampled_from(["horizontal", "vertical", "by-shrink"]),
    st.data(),
)
def test_the_value_does_not_depend_on_how_it_is_stored(
    seed: int,
    width: int,
    height: int,
    out_width: int,
    out_height: int,
    name: str,
    channels: int,
    order: str,
    data: st.DataObject,
) -> None:
    """Window, flips, layout, dtype, array written to and path of the CPU give the scalar path's whole
    image, seen otherwise."""
    image, box, size = (
        image_of(seed, width, height, channels),
        box_of(seed, width, height),
        (out_width, out_height),
    )
    core.use_cpu("plain")
    whole = core.resize_exact(image, box, size, name, order=order)
    core.use_cpu("")
    np.testing.assert_array_equal(core.resize_exact(image, box, size, name, order=order), whole)

    window_width, window_height = data.draw(st.integers(1, out_width)), data.draw(st.integers(1, out_height))
    x, y = (
        data.draw(st.integers(0, out_width - window_width)),
        data.draw(st.integers(0, out_height - window_height)),
    )
    hflip, vflip, planar, floats = (data.draw(st.booleans()) for _ in range(4))
    wanted: npt.NDArray[Any] = whole[y : y + window_height, x : x + window_width]
    wanted = wanted[:: -1 if vflip else 1, :: -1 if hflip else 1]
    if floats:
        wanted = torch.from_numpy(wanted.copy()).to(torch.float32).div(255).numpy()
    wanted = wanted.transpose(2, 0, 1) if planar else wanted
    into = np.empty(wanted.shape, wanted.dtype) if data.draw(st.booleans()) else None
    got = core.resize_exact(
        image,
        box,
        size,
        name,
        order=order,
        window=(x, y, window_width, window_height),
        hflip=hflip,
        vflip=vflip,
        dtype="float32" if floats else "uint8",
        layout="CHW" if planar else "HWC",
        into=into,
    )
    assert into is None or got is into
    np.testing.assert_array_equal(got, wanted)


def test_floats_are_torch_s() -> None:
    """Each of the 256 bytes becomes the float32 that torch's division by 255 gives."""
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    got = core.resize_exact(image, None, (16, 16), dtype="float32", layout="CHW")
    assert torch.equal(
        torch.from_numpy(got), torch.from_numpy(image).permute(2, 0, 1).to(torch.float32).div(255)
    )


@settings(max_examples=200)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, NAMES, st.data())
def test_pixels_outside_what_is_read_do_not_matter(
    seed: int, width: int, height: int, out_width: int, out_height: int, name: str, data: st.DataObject
) -> None:
    """resize_exact_reads() names all that a window is made of: the rest may be anything."""
    image, box, size = image_of(seed, width, height), box_of(seed, width, height), (out_width, out_height)
    window_width, window_height = data.draw(st.integers(1, out_width)), data.draw(st.integers(1, out_height))
    window = (
        data.draw(st.integers(0, out_width - window_width)),
        data.draw(st.integers(0, out_height - window_height)),
    )
    asked = {"window": (*window, window_width, window_height)}
    x, y, across, down = core.resize_exact_reads((width, height), box, size, name, **asked)
    other = ~image
    other[y : y + down, x : x + across] = image[y : y + down, x : x + across]
    np.testing.assert_array_equal(
        core.resize_exact(other, box, size, name, **asked), core.resize_exact(image, box, size, name, **asked)
    )


@settings(max_examples=300)
@given(SEEDS, SIDES, SIDES, st.integers(1, 95), st.integers(1, 95), CHANNELS)
def test_reduce_is_pillow_s(
    seed: int, width: int, height: int, across: int, down: int, channels: int
) -> None:
    """Any box by any factors: the same bytes."""
    image, box = image_of(seed, width, height, channels), box_of(seed, width, height)
    whole = None if box is None else (int(box[0]), int(box[1]), int(box[2]) + 1, int(box[3]) + 1)
    if whole is not None and (whole[2] > width or whole[3] > height):
        whole = None
    got = core.reduce_exact(image, (across, down), whole)
    if (across, down) == (1, 1):
        wanted = pillow(image).crop(whole) if whole else pillow(image)
    else:
        wanted = pillow(image).reduce((across, down), whole)
    np.testing.assert_array_equal(got, np.asarray(wanted).reshape(got.shape))


def test_a_reduction_of_millions_of_pixels_is_pillow_s() -> None:
    """The mean of so many pixels that 2^24 divided by their number is a small integer."""
    image = image_of(1, 2000, 1500, 1)
    np.testing.assert_array_equal(
        core.reduce_exact(image, 1500)[..., 0], np.asarray(pillow(image).reduce(1500))
    )


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "box",
    [
        (-1, 0, 5, 5),
        (0, 0, 11, 5),
        (0, 0, 5, 10.5),
        (6, 0, 5, 5),
        (0, 6, 5, 5),
        (NAN, 0, 5, 5),
        (0, 0, NAN, 5),
        (0, 0, INF, 5),
        (-INF, 0, 5, 5),
        (0, 0, 1e300, 5),
        (0, 0, 5),
        "box",
        (0, 0, None, 1),
    ],
)
@pytest.mark.parametrize("name", ["nearest", "bicubic"])
def test_a_box_that_does_not_fit_is_refused(box: Any, name: str) -> None:
    """An ArgumentError, never a read outside the image."""
    with pytest.raises(errors.ArgumentError, match="box"):
        core.resize_exact(np.zeros((10, 10, 3), dtype=np.uint8), box, (8, 8), name)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"size": (0, 8)}, "output"),
        ({"size": (2**32 - 1, 8)}, "output"),
        ({"size": (-1, 8)}, "size"),
        ({"size": (8,)}, "size"),
        ({"filter": "cubic"}, "filter"),
        ({"order": "down"}, "order"),
        ({"dtype": "float16"}, "dtype"),
        ({"layout": "NCHW"}, "layout"),
        ({"window": (1, 0, 8, 8)}, "window"),
        ({"into": np.zeros((8, 8, 4), np.uint8)}, "into"),
        ({"into": np.zeros((8, 8, 3), np.float32)}, "into"),
        ({"into": np.zeros((8, 16, 3), np.uint8)[:, ::2]}, "into"),
        ({"image": np.zeros((10, 10, 4), np.uint8)}, "image"),
        ({"image": np.zeros((0, 10, 3), np.uint8)}, "image"),
        ({"image": np.zeros((10, 10, 3), np.uint16)}, "image"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changes: dict[str, Any], match: str) -> None:
    """An ArgumentError that names the argument, never a write outside the array."""
    arguments: dict[str, Any] = {
        "image": np.zeros((10, 10, 3), np.uint8),
        "box": None,
        "size": (8, 8),
        **changes,
    }
    with pytest.raises(errors.ArgumentError, match=match):
        core.resize_exact(arguments.pop("image"), arguments.pop("box"), arguments.pop("size"), **arguments)


@pytest.mark.parametrize(
    ("factors", "box"),
    [
        ((0, 1), None),
        ((1, 0), None),
        ((-1, 2), None),
        ((2, 2), (0, 0, 11, 5)),
        ((2, 2), (5, 0, 5, 5)),
        ((2, 2), (-1, 0, 5, 5)),
        ((2,), None),
    ],
)
def test_reductions_that_do_not_fit_are_refused(factors: Any, box: Any) -> None:
    """An ArgumentError, never a read outside the image."""
    with pytest.raises(errors.ArgumentError):
        core.reduce_exact(np.zeros((10, 10, 3), np.uint8), factors, box)


def test_factors_beyond_the_image_are_its_mean() -> None:
    """The largest factors that there are give one pixel."""
    image = image_of(4, 10, 9)
    np.testing.assert_array_equal(
        core.reduce_exact(image, (2**32 - 1, 2**32 - 1)), core.reduce_exact(image, (10, 9))
    )


# ---- RegionDecoder


@pytest.fixture
def decoder() -> Iterator[core.RegionDecoder]:
    """A decoder, of which no handle is left."""
    with none_left() as before:
        made = core.RegionDecoder()
        assert core.live_handles()["region_decoders"] == before["region_decoders"] + 1
        yield made
        made.close()
        made.close()
    with pytest.raises(errors.ClosedError):
        made.open(b"")


def jpeg_of(image: Pixels, **options: Any) -> bytes:
    file = io.BytesIO()
    pillow(image).save(file, "JPEG", **options)
    return file.getvalue()


def boxes(width: int, height: int) -> list[tuple[int, int, int, int]]:
    """(x, y, width, height): all of an image, and parts of it."""
    return [
        (0, 0, width, height),
        (width // 3, height // 4, width // 2, height // 3),
        (width // 2, height // 2, width - width // 2, height - height // 2),
        (1, 1, 1, 1),
    ]


def assert_regions_are_pillow_s(decoder: core.RegionDecoder, data: bytes, name: str) -> None:
    """Every box of a file, decoded and resized, is Pillow's full decode, cropped and resized."""
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    assert decoder.open(data) == whole.size
    for x, y, width, height in boxes(*whole.size):
        assert decoder.decode((x, y, width, height)) == (width, height)
        crop = whole.crop((x, y, x + width, y + height))
        np.testing.assert_array_equal(decoder.pixels(), np.asarray(crop), name)
        got = decoder.resample(None, (64, 48), "bicubic", order=pillow_order() or "")
        np.testing.assert_array_equal(got, np.asarray(crop.resize((64, 48), Image.Resampling.BICUBIC)), name)
    assert decoder.warnings == 0


def test_regions_of_photographs_are_pillow_s(shared: Path, decoder: core.RegionDecoder) -> None:
    """Real pictures: parts of them, decoded alone, have the pixels of Pillow's full decode."""
    files = sorted((shared / "corpus" / "in500").rglob("*.jp*g"))[::10]
    assert files, "the shared corpus has no photographs"
    for file in files:
        assert_regions_are_pillow_s(decoder, file.read_bytes(), file.name)


@pytest.mark.parametrize("size", [(64, 48), (61, 47), (9, 5)])
def test_grey_files_are_decoded_to_one_channel(decoder: core.RegionDecoder, size: tuple[int, int]) -> None:
    """A grey file's regions have the pixels of the "L" image that Pillow makes of it."""
    data = jpeg_of(image_of(2, *size, 1))
    whole = Image.open(io.BytesIO(data))
    decoder.open(data)
    for x, y, width, height in boxes(*size):
        decoder.decode((x, y, width, height), grey=True)
        crop = whole.crop((x, y, x + width, y + height))
        np.testing.assert_array_equal(decoder.pixels()[..., 0], np.asarray(crop))
        wanted = np.asarray(crop.resize((32, 40), Image.Resampling.LANCZOS))
        got = decoder.resample(None, (32, 40), "lanczos", order=pillow_order() or "", hflip=True)
        np.testing.assert_array_equal(got[..., 0], wanted[:, ::-1])


@pytest.mark.parametrize("size", [(64, 48), (61, 47), (17, 33), (16, 16), (9, 5)])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "grey"])
@pytest.mark.parametrize("progressive", [False, True])
def test_regions_of_every_sampling_are_pillow_s(
    decoder: core.RegionDecoder, size: tuple[int, int], subsampling: str, progressive: bool
) -> None:
    """Noise at every sampling and of odd sizes; what is progressive goes to libjpeg-turbo, and says so."""
    image = image_of(1, *size, 1 if subsampling == "grey" else 3)
    options = {} if subsampling == "grey" else {"subsampling": subsampling}
    data = jpeg_of(image, quality=90, progressive=progressive, **options)
    assert_regions_are_pillow_s(decoder, data, f"{size} {subsampling}")
    assert decoder.fell_back == progressive


def test_one_decode_gives_many_crops(decoder: core.RegionDecoder) -> None:
    """Crops inside a decoded region: each an image of its own, beyond whose edges no pixel exists."""
    image = image_of(7, 120, 90)
    decoder.open(jpeg_of(image))
    decoder.decode()
    whole = Image.fromarray(decoder.pixels())
    for x, y, width, height in boxes(120, 90):
        wanted = np.asarray(
            whole.crop((x, y, x + width, y + height)).resize((32, 40), Image.Resampling.BILINEAR)
        )
        got = decoder.resample(None, (32, 40), image=(x, y, width, height), order=pillow_order() or "")
        np.testing.assert_array_equal(got, wanted)
        near = decoder.resample(None, (32, 40), image=(x, y, width, height), exact=False)
        assert np.abs(near.astype(int) - wanted).max() <= 1
        np.testing.assert_array_equal(
            decoder.pixels((x, y, width, height)), np.asarray(whole)[y : y + height, x : x + width]
        )


@settings(max_examples=100)
@given(SEEDS, SIDES, SIDES, NAMES)
def test_a_part_of_the_file_is_enough(seed: int, out_width: int, out_height: int, name: str) -> None:
    """A box of an image needs no more of it decoded than resize_exact_reads() says."""
    decoder, image, size = core.RegionDecoder(), image_of(1, 100, 80), (out_width, out_height)
    box = box_of(seed, 100, 80)
    decoder.open(jpeg_of(image))
    decoder.decode()
    wanted = decoder.resample(box, size, name)
    x, y, width, height = core.resize_exact_reads((100, 80), box, size, name)
    decoder.decode((x, y, max(width, 1), max(height, 1)) if width and height else None)
    place = (-x, -y, 100, 80) if width and height else (0, 0, 100, 80)
    np.testing.assert_array_equal(decoder.resample(box, size, name, image=place), wanted)


def test_a_region_that_lacks_pixels_is_refused(decoder: core.RegionDecoder) -> None:
    """An image of which the decoded region lacks what is read is an ArgumentError."""
    decoder.open(jpeg_of(image_of(1, 60, 50)))
    decoder.decode((10, 10, 20, 20))
    for place in [(-10, -10, 60, 50), (1, 0, 20, 20), (0, 1, 20, 20), (-(2**40), 0, 20, 20), (0, 0, 0, 20)]:
        with pytest.raises(errors.ArgumentError):
            decoder.resample(None, (8, 8), image=place)
        with pytest.raises(errors.ArgumentError):
            decoder.resample(None, (8, 8), image=place, exact=False)


def test_calls_out_of_order_are_refused(decoder: core.RegionDecoder) -> None:
    """Nothing is resampled before it is decoded, or decoded before it is open."""
    with pytest.raises(errors.ArgumentError, match="open"):
        decoder.decode()
    decoder.open(jpeg_of(image_of(1, 60, 50)))
    with pytest.raises(errors.ArgumentError, match="decode"):
        decoder.resample(None, (8, 8))
    with pytest.raises(errors.ArgumentError):
        decoder.decode((0, 0, 61, 50))
    with pytest.raises(errors.ArgumentError, match="decode"):
        decoder.pixels()
    with pytest.raises(errors.SampleError):
        decoder.open(b"no JPEG")
    with pytest.raises(errors.ArgumentError, match="open"):
        decoder.decode()


def test_damage_is_told(decoder: core.RegionDecoder) -> None:
    """A file whose coded data are damaged falls back to libjpeg-turbo, whose warnings are counted; one
    that is cut off is refused."""
    data = jpeg_of(image_of(1, 160, 120), quality=90)
    middle = len(data) // 2
    decoder.open(data[:middle] + b"\xff\xc4\x00" + data[middle + 3 :])
    decoder.decode()
    assert decoder.fell_back
    assert decoder.warnings > 0
    decoder.open(data[:middle])
    with pytest.raises(errors.SampleError):
        decoder.decode()
    decoder.open(data)
    decoder.decode()
    assert not decoder.fell_back
    assert decoder.warnings == 0


def test_the_file_is_held_while_it_is_open(decoder: core.RegionDecoder) -> None:
    """A bytearray cannot be resized while the decoder reads from it."""
    data = bytearray(jpeg_of(image_of(1, 60, 50)))
    decoder.open(data)
    with pytest.raises(BufferError):
        data.clear()
    decoder.close()
    data.clear()
