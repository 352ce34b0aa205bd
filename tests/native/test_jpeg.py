"""JPEG: region decode against full decodes by other bindings, transcodes against pixels, headers against
Pillow."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import turbojpeg  # type: ignore[import-untyped]
from handles import none_left
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from native_helpers import strip
from PIL import Image

from fastload import errors
from fastload._native import core

pytestmark = pytest.mark.usefixtures("no_live_decoders")

Pixels = npt.NDArray[np.uint8]

SAMPLINGS = {
    "444": turbojpeg.TJSAMP_444,
    "422": turbojpeg.TJSAMP_422,
    "420": turbojpeg.TJSAMP_420,
    "440": turbojpeg.TJSAMP_440,
    "411": turbojpeg.TJSAMP_411,
    "grey": turbojpeg.TJSAMP_GRAY,
}
EIGHTHS = (1, 2, 4, 8)
TURBO = turbojpeg.TurboJPEG()


@pytest.fixture(scope="module")
def no_live_decoders() -> Any:
    """The module leaves as many native decoders as it found."""
    with none_left("jpegs"):
        yield


@dataclass(frozen=True)
class Made:
    """A JPEG file made from noise, which shows every block and chroma sample that is out of place."""

    data: bytes
    width: int
    height: int


def make(
    width: int, height: int, sampling: str, quality: int = 75, progressive: bool = False, seed: int = 0
) -> Made:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    flags = turbojpeg.TJFLAG_PROGRESSIVE if progressive else 0
    subsample = SAMPLINGS[sampling]
    data = TURBO.encode(image, quality, turbojpeg.TJPF_RGB, subsample, flags)
    return Made(data, width, height)


def full(made: Made, eighths: int = 8) -> Pixels:
    """TurboJPEG's decode of the whole image: accurate DCT, fancy upsampling, nothing skipped or cropped."""
    factor = None if eighths == 8 else (1, 8 // eighths)
    return np.asarray(TURBO.decode(made.data, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=factor))


def part(whole: Pixels, box: tuple[int, int, int, int], eighths: int) -> Pixels:
    x, y, width, height = box
    bottom, right = -(-(y + height) * eighths // 8), -(-(x + width) * eighths // 8)
    return whole[y * eighths // 8 : bottom, x * eighths // 8 : right]


def transcoders() -> list[Any]:
    return [strip, core.jpeg_to_baseline]


made_files = st.builds(
    make,
    width=st.integers(1, 100),
    height=st.integers(1, 100),
    sampling=st.sampled_from(sorted(SAMPLINGS)),
    quality=st.integers(5, 100),
    progressive=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@st.composite
def files_and_boxes(draw: st.DrawFn) -> tuple[Made, tuple[int, int, int, int]]:
    made = draw(made_files)
    x, y = draw(st.integers(0, made.width - 1)), draw(st.integers(0, made.height - 1))
    return made, (x, y, draw(st.integers(1, made.width - x)), draw(st.integers(1, made.height - y)))


@settings(max_examples=400)
@given(files_and_boxes())
def test_a_box_is_the_full_decode_cropped(case: tuple[Made, tuple[int, int, int, int]]) -> None:
    """Unscaled, every byte of a box equals the full decode's."""
    made, box = case
    np.testing.assert_array_equal(core.jpeg_decode(made.data, box), part(full(made), box, 8))


@settings(max_examples=400)
@given(files_and_boxes(), st.sampled_from(EIGHTHS))
def test_a_scaled_box_is_the_scaled_decode_cropped(
    case: tuple[Made, tuple[int, int, int, int]], eighths: int
) -> None:
    """At every DCT scale a box is the part floor(x s) .. ceil((x + width) s) of the scaled image.

    TurboJPEG chooses its scale by the size of the result, which does not tell scales apart below 8 pixels.
    """
    made, box = case
    assume(max(made.width, made.height) >= 8)
    np.testing.assert_array_equal(
        core.jpeg_decode(made.data, box, eighths), part(full(made, eighths), box, eighths)
    )


@pytest.mark.parametrize("sampling", sorted(SAMPLINGS))
@pytest.mark.parametrize("progressive", [False, True])
def test_every_column_and_row_of_an_image(sampling: str, progressive: bool) -> None:
    """Every start and end of a box, in both directions, of an image that ends inside an MCU."""
    made = make(70, 53, sampling, progressive=progressive)
    whole = full(made)
    for x in range(70):
        for end in {x + 1, x + 2, x + 3, x + 16, x + 17, 70}:
            if end <= 70:
                box = (x, x % 53, end - x, 53 - x % 53)
                np.testing.assert_array_equal(
                    core.jpeg_decode(made.data, box), part(whole, box, 8), err_msg=str(box)
                )
    for y in range(53):
        for end in {y + 1, y + 2, y + 3, y + 16, y + 17, 53}:
            if end <= 53:
                box = (y % 9, y, 40, end - y)
                np.testing.assert_array_equal(
                    core.jpeg_decode(made.data, box), part(whole, box, 8), err_msg=str(box)
                )


def test_cmyk_and_grey_are_pillows_rgb() -> None:
    """Grey and CMYK files come out as Pillow's convert("RGB"), byte for byte."""
    values = np.random.default_rng(1).integers(0, 256, (61, 83, 4), dtype=np.uint8)
    for image in (Image.fromarray(values, "CMYK"), Image.fromarray(values[..., 0])):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=95)
        expected = np.asarray(Image.open(buffer).convert("RGB"))
        np.testing.assert_array_equal(core.jpeg_decode(buffer.getvalue()), expected)
        np.testing.assert_array_equal(
            core.jpeg_decode(buffer.getvalue(), (17, 30, 40, 31)), expected[30:61, 17:57]
        )


@settings(max_examples=150)
@given(made_files, st.sampled_from(transcoders()))
def test_transcoding_keeps_the_pixels(made: Made, transcode: Any) -> None:
    """strip and to_baseline change no pixel, and what to_baseline returns is one baseline scan."""
    data = transcode(made.data)
    np.testing.assert_array_equal(core.jpeg_decode(data), full(made))
    if transcode is core.jpeg_to_baseline:
        found = core.jpeg_scan(data)
        assert (found["kind"], found["scans"], found["arithmetic"]) == ("baseline", 1, False)
    else:
        assert len(data) <= len(made.data)


TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@pytest.mark.parametrize("orientation", sorted(TURNS))
def test_turning_is_exifs(orientation: int) -> None:
    """jpeg_transform turns as Pillow's exif_transpose does.

    The inverse DCT rounds between its columns and its rows, so a transposed pixel may differ by 3; noise
    turned another way differs by more than a hundred.
    """
    made = make(96, 64, "444", quality=95)
    turned = core.jpeg_decode(core.jpeg_transform(made.data, orientation)).astype(int)
    expected = np.asarray(Image.fromarray(full(made)).transpose(TURNS[orientation])).astype(int)
    assert turned.shape == expected.shape
    assert np.abs(turned - expected).max() <= 3


def test_a_turn_that_would_lose_an_edge_is_refused() -> None:
    made = make(97, 64, "420")
    with pytest.raises(errors.SampleError, match="without loss"):
        core.jpeg_transform(made.data, 2)
    with pytest.raises(errors.ArgumentError, match="not 1 to 8"):
        core.jpeg_transform(made.data, 9)


def test_scan_reads_what_pillow_reads() -> None:
    """Size, kind, sampling, EXIF orientation, ICC and the end of the image."""
    image = Image.fromarray(np.zeros((30, 50, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 8
    buffer = io.BytesIO()
    image.save(
        buffer,
        "JPEG",
        exif=exif,
        icc_profile=b"x" * 70000,
        comment=b"hello",
        progressive=True,
        subsampling="4:2:2",
    )
    data = buffer.getvalue()
    found = core.jpeg_scan(data + b"trailing")
    assert (found["width"], found["height"], found["components"], found["precision"]) == (50, 30, 3, 8)
    assert (found["kind"], found["sampling"], found["orientation"]) == (
        "progressive",
        ((2, 1), (1, 1), (1, 1)),
        8,
    )
    assert (found["icc"], found["exif"], found["jfif"], found["eoi"], found["damage"]) == (
        True,
        True,
        True,
        True,
        "",
    )
    assert (found["end"], found["size"]) == (len(data), len(data) + 8)
    stripped = strip(data + b"trailing")
    assert b"hello" not in stripped
    assert len(stripped) < len(data) - 70000
    assert core.jpeg_scan(stripped)["orientation"] == 1


@settings(max_examples=60)
@given(made_files)
def test_header_is_pillows(made: Made) -> None:
    image = Image.open(io.BytesIO(made.data))
    header = core.jpeg_header(made.data)
    assert (header.width, header.height) == image.size
    assert header.components == len(image.getbands())
    assert header.progressive == bool(image.info.get("progressive"))
    assert not header.arithmetic


def test_any_contiguous_buffer_is_taken() -> None:
    made = make(40, 30, "420")
    expected = core.jpeg_decode(made.data)
    for data in (bytearray(made.data), memoryview(made.data), np.frombuffer(made.data, np.uint8)):
        np.testing.assert_array_equal(core.jpeg_decode(data), expected)
    with pytest.raises(TypeError):
        core.jpeg_decode("a path")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "box", [(0, 0, 41, 30), (40, 0, 1, 1), (0, 0, 0, 1), (-1, 0, 5, 5), (0, 0, 2**32 - 1, 30), (1, 2, 3)]
)
def test_a_box_outside_is_an_argument_error(box: tuple[int, ...]) -> None:
    with pytest.raises(errors.ArgumentError):
        core.jpeg_decode(make(40, 30, "420").data, box)


def test_limits_and_bad_arguments() -> None:
    """A larger image than max_pixels is refused by name, at every entry point; so is a scale that is none."""
    data = make(40, 30, "420").data
    for call in (core.jpeg_header, core.jpeg_check, core.jpeg_to_baseline):
        with pytest.raises(errors.SampleError, match="40 x 30 = 1200 pixels; the limit is 1199"):
            call(data, max_pixels=1199)
    with pytest.raises(errors.SampleError, match="limit"):
        core.jpeg_decode(data, max_pixels=1199)
    with pytest.raises(errors.ArgumentError, match="eighths"):
        core.jpeg_decode(data, eighths=3)


def test_warnings_are_counted_and_the_first_is_kept() -> None:
    data = make(64, 64, "420").data
    start = data.index(b"\xff\xdb")
    _, count, first = core.jpeg_decode_report(data[:start] + b"junk" + data[start:])
    assert (count, first) == (1, "Corrupt JPEG data: 4 extraneous bytes before marker 0xdb")
    assert core.jpeg_decode_report(data)[1:] == (0, "")
    assert core.jpeg_check(data) == (0, "")
    assert core.jpeg_check(data[:-2])[0] == 1


def test_threads_decode_at_once() -> None:
    """Eight threads over the same files see the pixels that one sees."""
    files = [make(90, 80, sampling, progressive=bool(i % 2)) for i, sampling in enumerate(sorted(SAMPLINGS))]
    expected = [full(made) for made in files]
    wrong: list[int] = []

    def run() -> None:
        for _ in range(20):
            for i, made in enumerate(files):
                if not np.array_equal(core.jpeg_decode(made.data), expected[i]):
                    wrong.append(i)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_scale_keeps_the_target() -> None:
    """jpeg_scale is the smallest scale that leaves both sides at least the target's."""
    assert core.jpeg_scale((448, 448), (224, 224)) == 4
    assert core.jpeg_scale((447, 448), (224, 224)) == 8
    assert core.jpeg_scale((1792, 4000), (224, 224)) == 1
    assert core.jpeg_scale((100, 100), (224, 224)) == 8


def test_crc32c_is_castagnolis() -> None:
    """RFC 3720's check value and test vectors, whole and in two parts."""
    assert core.crc32c(b"123456789") == 0xE3069283
    assert core.crc32c(bytes(32)) == 0x8A9136AA
    assert core.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert core.crc32c(b"") == 0
    assert core.crc32c(b"6789", core.crc32c(b"12345")) == 0xE3069283
