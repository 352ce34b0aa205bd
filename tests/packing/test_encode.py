"""What is stored of an image, mode by mode: the same pixels where that is promised, and the counts that
tell what was done."""

from __future__ import annotations

import io
import random
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, stored_samples, tree
from pictures import with_scans
from PIL import Image, ImageOps

from fastload._native import core
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.packing import Item, PackSummary, pack
from fastload.packing.encode import Encoder
from fastload.packing.jpegs import shrunk_size
from fastload.packing.options import PackOptions
from fastload.sources.pixels import upright


def one(
    tmp_path: Path, data: bytes, **options: object
) -> tuple[PackSummary, bytes, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Packs one file; returns the summary, the stored bytes and the stored image's pixels."""
    tree(tmp_path / "src", {"c/x.jpg": data})
    summary = pack(tmp_path / "src", tmp_path / "out", **options)  # type: ignore[arg-type]
    stored = stored_samples(tmp_path / "out")[0]
    assert stored.pixels.shape[:2] == (stored.height, stored.width)
    return summary, stored.data, stored.pixels


def decode(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = core.jpeg_decode(data)
    return pixels


def read_by_pillow(data: bytes) -> np.ndarray[Any, Any] | str:
    """The pixels that ImageFolder's loader makes of a file, or the words of its error."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:
        return str(error)


def exif(orientation: int) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


def with_thumbnail(data: bytes) -> bytes:
    """The JPEG with EXIF, a comment and a profile in front of its tables, and rubbish behind its end."""
    extra = b"".join(
        b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body
        for marker, body in (
            (0xE1, b"Exif\0\0" + bytes(900)),
            (0xE2, b"ICC_PROFILE\0" + bytes(500)),
            (0xFE, b"hello"),
        )
    )
    return data[:2] + extra + data[2:] + b"trailing bytes"


class TestLossless:
    def test_metadata_goes_scan_bytes_stay(self, tmp_path: Path) -> None:
        """What is dropped is exactly what was added around the image."""
        plain = encoded(picture(1, 60, 80), quality=90)
        summary, data, pixels = one(tmp_path, with_thumbnail(plain))
        assert data == plain
        assert (summary.stripped, summary.kept) == (1, 0)
        assert (pixels == decode(plain)).all()
        assert summary.bytes_out == len(plain) < summary.bytes_in

    def test_a_plain_file_is_kept(self, tmp_path: Path) -> None:
        """Nothing to drop: byte for byte."""
        plain = encoded(picture(1, 60, 80))
        summary, data, _ = one(tmp_path, plain)
        assert data == plain
        assert summary.kept == 1

    @pytest.mark.parametrize("subsampling", [0, 1, 2])
    @pytest.mark.parametrize("grey", [False, True])
    def test_progressive_becomes_baseline(self, tmp_path: Path, subsampling: int, grey: bool) -> None:
        """Other coding, same pixels."""
        image = picture(2, 61, 83).convert("L") if grey else picture(2, 61, 83)
        source = encoded(
            image, quality=88, progressive=True, **({} if grey else {"subsampling": subsampling})
        )
        summary, data, pixels = one(tmp_path, source)
        assert summary.transcoded == 1
        assert core.jpeg_scan(data)["kind"] == "baseline"
        assert (pixels == decode(source)).all()

    @pytest.mark.parametrize("form", ["PNG", "WEBP", "BMP", "GIF", "TIFF"])
    def test_other_formats_become_pixels(self, tmp_path: Path, form: str) -> None:
        """Recognised by content whatever the name says, stored as what Pillow's convert("RGB") gives, and
        counted."""
        image = picture(3, 20, 30)
        source = encoded(image, form, **({"lossless": True} if form == "WEBP" else {}))
        summary, _, pixels = one(tmp_path, source)
        assert (pixels == np.asarray(Image.open(io.BytesIO(source)).convert("RGB"))).all()
        assert (summary.raw, dict(summary.formats)) == (1, {form.lower(): 1})

    @pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "L"])
    def test_odd_png_modes_are_converted_as_pillow_does(self, tmp_path: Path, mode: str) -> None:
        """Transparency and palettes become what ImageFolder's loader makes of them."""
        source = encoded(picture(4, 20, 30).convert(mode), "PNG")
        _, _, pixels = one(tmp_path, source)
        assert (pixels == np.asarray(Image.open(io.BytesIO(source)).convert("RGB"))).all()

    def test_cmyk_becomes_rgb(self, tmp_path: Path) -> None:
        """The one exception to lossless: RGB at quality 100, 4:4:4, close to what Pillow makes of it, and
        counted."""
        source = encoded(picture(5, 48, 64).convert("CMYK"), quality=95)
        summary, data, pixels = one(tmp_path, source)
        scan = core.jpeg_scan(data)
        assert (summary.cmyk, scan["components"], scan["sampling"]) == (1, 3, ((1, 1),) * 3)
        expected = np.asarray(Image.open(io.BytesIO(source)).convert("RGB")).astype(int)
        assert np.abs(pixels.astype(int) - expected).max() <= 6

    @pytest.mark.parametrize("scans", [1, 3, 9])
    def test_progressive_files_that_stop_early(self, tmp_path: Path, scans: int) -> None:
        """Stored as the pixels that they have now, which no other release of libjpeg-turbo smooths again;
        the summary names the file."""
        whole = encoded(picture(2, 60, 80), progressive=True)
        source = with_scans(whole, scans)
        assert source != whole
        assert core.jpeg_survey(whole) == (0, "", False)
        assert core.jpeg_survey(source) == (0, "", True)
        for encode in ("lossless", "keep"):
            summary, data, pixels = one(tmp_path / encode, source, encode=encode)
            assert (pixels == decode(source)).all()
            assert (data == source) == (encode == "keep")
            assert (summary.raw, summary.kept) == ((1, 0) if encode == "lossless" else (0, 1))
            ((name, warning),) = summary.warnings
            assert name.endswith("x.jpg")
            assert "stops before full precision" in warning

    def test_damage_inside_the_scan_is_named(self, tmp_path: Path) -> None:
        """Pillow reads it without a word; libjpeg-turbo warns, and the summary passes that on. The pixels
        stay."""
        data = bytearray(encoded(picture(6, 200, 200), quality=90))
        middle = len(data) // 2
        data[middle : middle + 40] = b"\xff\x00" * 20  # all ones: no Huffman code is
        source = bytes(data)
        count, first = core.jpeg_check(source)
        assert count > 0
        summary, _, pixels = one(tmp_path, source, check="entropy")
        assert summary.warnings == ((str(tmp_path / "src" / "c" / "x.jpg"), first),)
        assert (pixels == decode(source)).all()


class TestOtherModes:
    def test_keep(self, tmp_path: Path) -> None:
        """Byte for byte, whatever the kind of JPEG."""
        source = with_thumbnail(encoded(picture(1, 60, 80), progressive=True))
        summary, data, _ = one(tmp_path, source, encode="keep")
        assert data == source
        assert summary.kept == 1

    def test_raw(self, tmp_path: Path) -> None:
        """The very pixels of a full decode."""
        source = encoded(picture(1, 33, 47), quality=80)
        summary, _, pixels = one(tmp_path, source, encode="raw")
        assert (pixels == decode(source)).all()
        assert summary.raw == 1

    @pytest.mark.parametrize("form", ["JPEG", "PNG"])
    def test_jpeg(self, tmp_path: Path, form: str) -> None:
        """Encoded anew at the quality and subsampling asked for."""
        source = encoded(picture(1, 64, 64), form)
        summary, data, _ = one(tmp_path, source, encode="jpeg", quality=35, subsampling="4:4:4")
        assert summary.reencoded == 1
        assert core.jpeg_scan(data)["sampling"] == ((1, 1),) * 3
        again = io.BytesIO()
        Image.open(io.BytesIO(source)).convert("RGB").save(again, "JPEG", quality=35, subsampling=0)
        assert Image.open(io.BytesIO(data)).quantization == Image.open(again).quantization

    def test_grey_stays_grey(self, tmp_path: Path) -> None:
        """One component decodes in half the time of three."""
        source = encoded(picture(1, 64, 64).convert("L"), quality=90)
        _, data, _ = one(tmp_path, source, encode="jpeg")
        assert core.jpeg_scan(data)["components"] == 1


class TestShrink:
    @pytest.mark.parametrize(
        ("size", "sides", "expected"),
        [
            ((400, 300), (200, None), (200, 150)),
            ((400, 300), (None, 150), (200, 150)),
            ((400, 300), (200, 50), (67, 50)),
            ((400, 300), (400, None), None),
            ((40, 30), (100, 100), None),
            ((1000, 1), (10, None), (10, 1)),
        ],
    )
    def test_sizes(
        self, size: tuple[int, int], sides: tuple[int | None, int | None], expected: tuple[int, int] | None
    ) -> None:
        """The longer side at most max_side, the shorter at most min_side, the same aspect, never larger."""
        assert shrunk_size(*size, *sides) == expected

    @pytest.mark.parametrize("form", ["JPEG", "PNG"])
    def test_pixels_are_those_of_a_good_resize(self, tmp_path: Path, form: str) -> None:
        """Close to Pillow's bicubic of the whole image; never larger than asked."""
        image = picture(7, 600, 450)
        summary, _, pixels = one(
            tmp_path,
            encoded(image, form, **({"quality": 95} if form == "JPEG" else {})),
            max_side=150,
            quality=95,
        )
        assert pixels.shape == (150, 112, 3)
        expected = np.asarray(image.resize((112, 150), Image.Resampling.BICUBIC)).astype(float)
        assert np.abs(pixels - expected).mean() < 3
        assert summary.shrunk == 1

    def test_small_images_are_untouched(self, tmp_path: Path) -> None:
        """What is no larger than the sides allow keeps its bytes."""
        source = encoded(picture(1, 60, 80))
        summary, data, _ = one(tmp_path, source, max_side=80, min_side=60)
        assert data == source
        assert summary.shrunk == 0


class TestExif:
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_whole_blocks_turn_without_loss(self, tmp_path: Path, orientation: int) -> None:
        """Sides of whole blocks: the pixels are the turned pixels of the source, and nothing was encoded
        anew."""
        source = encoded(picture(8, 64, 96), quality=90, subsampling=0, exif=exif(orientation))
        summary, data, _ = one(tmp_path, source, exif="apply")
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(source))))
        found = decode(data)
        assert found.shape == expected.shape
        # Turned back they are the source's pixels exactly: no coefficient was changed. Turned, the inverse
        # DCT of a transposed block may round otherwise.
        back = {6: 8, 8: 6}.get(orientation, orientation)
        assert (decode(core.jpeg_transform(data, back)) == decode(source)).all()
        assert np.abs(found.astype(int) - expected.astype(int)).mean() < 0.5
        assert (summary.rotated, summary.reencoded) == ((0, 0) if orientation == 1 else (1, 0))

    def test_other_sides_are_encoded_anew(self, tmp_path: Path) -> None:
        """Sides that are not whole blocks: decoded, turned, encoded at high quality, and counted."""
        source = encoded(picture(8, 61, 90), quality=90, exif=exif(3))
        summary, data, _ = one(tmp_path, source, exif="apply")
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(source)))).astype(int)
        pillows = encoded(Image.fromarray(expected.astype(np.uint8)), quality=95, subsampling=2)
        loss, pillows_loss = (np.abs(decode(each).astype(int) - expected).mean() for each in (data, pillows))
        assert loss < 1.05 * pillows_loss
        assert (summary.rotated, summary.reencoded) == (0, 1)

    def test_ignored_by_default(self, tmp_path: Path) -> None:
        """As ImageFolder: the stored pixels are those of the file, however it was held."""
        source = encoded(picture(8, 64, 96), exif=exif(6))
        _, _, pixels = one(tmp_path, source)
        assert (pixels == decode(source)).all()

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_upright_is_exif_transpose(self, orientation: int) -> None:
        """All eight cases, on pixels."""
        image = picture(9, 5, 7)
        image.getexif()[0x0112] = orientation
        assert (upright(np.asarray(image), orientation) == np.asarray(ImageOps.exif_transpose(image))).all()


class TestRefused:
    def test_cut_off(self, tmp_path: Path) -> None:
        """Half a JPEG stops the pack by name, as Pillow would stop training; skipped, it is named."""
        whole = encoded(picture(1, 200, 200))
        src = tree(tmp_path / "src", {"c/half.jpg": whole[: len(whole) // 2], "c/ok.jpg": whole})
        with pytest.raises(PackError, match=r"half\.jpg: .*(cut off|ends).*on_error='skip'"):
            pack(src, tmp_path / "out")
        summary = pack(src, tmp_path / "out2", on_error="skip")
        assert summary.samples == 1
        assert summary.skipped_count == 1
        assert summary.skipped[0][0].endswith("half.jpg")

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        "options",
        [{}, {"check": "structure"}, {"encode": "keep"}, {"encode": "dct"}, {"encode": "raw"}],
        ids=str,
    )
    def test_damaged_files_are_refused_where_pillow_refuses_them(self, options: dict[str, Any]) -> None:
        """JPEGs without an end marker, with rubbish in its place, cut and damaged: those are packed that
        Pillow reads without an error, as the pixels that a decoder makes of them; any other is refused with
        Pillow's words."""
        rng, seen = random.Random(0), set()
        encoder = Encoder(PackOptions(**options))
        for number in range(150):
            form = rng.choice(
                ({}, {"progressive": True}, {"restart_marker_blocks": 2}, {"quality": 95, "subsampling": 0})
            )
            data = encoded(picture(number % 5, rng.choice((33, 56)), rng.choice((40, 120))), **form)
            end = rng.choice((b"", b"\xff", bytes(64), rng.randbytes(rng.randrange(1, 40))))
            data = data[: -rng.choice((1, 2, 2, 2, 3, 40, 400))] + end
            if rng.random() < 0.3:
                at = rng.randrange(2, len(data))
                data = data[:at] + rng.choice((b"\xff\xd3", bytes(9), b"")) + data[at + 1 :]
            theirs = read_by_pillow(data)
            try:
                stored = encoder(Item("x.jpg", data))
            except SampleError as error:
                assert isinstance(theirs, str), (number, error)
                seen.add("refused")
                if "does not read it" in str(error):
                    assert str(error).endswith(theirs), number
                    seen.add("refused by Pillow alone")
            else:
                assert not isinstance(theirs, str), (number, theirs)
                assert (
                    stored.warning or not isinstance(stored.data, bytes) or stored.data[-2:] == b"\xff\xd9"
                ), number
                seen.add("stored")
        assert seen == {"stored", "refused", "refused by Pillow alone"}

    def test_a_damaged_file_needs_pillow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where Pillow is missing, a JPEG without its end marker is not packed unseen; a whole one needs
        no Pillow."""
        whole = encoded(picture(1, 60, 80))
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        assert Encoder(PackOptions())(Item("x.jpg", whole)).data == whole
        with pytest.raises(PackError, match="damaged JPEGs, which need Pillow"):
            Encoder(PackOptions())(Item("x.jpg", whole[:-2]))

    def test_cut_off_with_an_end_marker_put_on(self, tmp_path: Path) -> None:
        """The markers look right; only walking the coded data tells."""
        whole = encoded(picture(1, 200, 200))
        source = whole[: len(whole) // 2] + b"\xff\xd9"
        assert core.jpeg_check(source)[0] > 0
        summary, _, _ = one(tmp_path, source, check="entropy")
        assert summary.warning_count == 1

    def test_a_header_of_4_gigapixels(self, tmp_path: Path) -> None:
        """65,500 x 65,500: refused from its header, naming the limit and how to raise it."""
        data = bytearray(encoded(picture(1, 16, 16)))
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", 65500, 65500)
        with pytest.raises(PackError, match=r"x\.jpg: .*4290250000|65500"):
            one(tmp_path, bytes(data))

    def test_a_large_png_is_refused_from_its_header(self, tmp_path: Path) -> None:
        """The limit holds for what Pillow reads too."""
        with pytest.raises(PackError, match="30 x 20 pixels are more than the limit of 599"):
            one(tmp_path, encoded(picture(1, 20, 30), "PNG"), max_pixels=599)

    def test_the_limit_is_a_setting(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """FASTLOAD_MAX_PIXELS, checked itself."""
        monkeypatch.setenv("FASTLOAD_MAX_PIXELS", "599")
        with pytest.raises(PackError, match="599"):
            one(tmp_path, encoded(picture(1, 20, 30)))
        monkeypatch.setenv("FASTLOAD_MAX_PIXELS", "many")
        with pytest.raises(ArgumentError, match="FASTLOAD_MAX_PIXELS='many'"):
            one(tmp_path, encoded(picture(1, 20, 30)))

    @pytest.mark.parametrize(
        "data", [b"", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"just text"]
    )
    def test_what_is_no_image(self, tmp_path: Path, data: bytes) -> None:
        """Named, with the reason."""
        with pytest.raises(PackError, match=r"x\.jpg: "):
            one(tmp_path, data)

    def test_nothing_left(self, tmp_path: Path) -> None:
        """Skipping everything is no dataset."""
        with pytest.raises(PackError, match="none of its 1 samples could be packed; the first, "):
            one(tmp_path, b"", on_error="skip")

    @pytest.mark.parametrize(
        "options",
        [
            {"encode": "lossy"}, {"quality": 0}, {"quality": 101}, {"subsampling": "4:1:1"}, {"max_side": 0},
            {"workers": 0},
            {"shard_size": "1 elephant"}, {"shard_size": "1KB"}, {"exif": "yes"}, {"on_error": "ignore"},
            {"limit": 0}, {"seed": -1},
            {"encode": "keep", "max_side": 100}, {"encode": "keep", "exif": "apply"}, {"overwrite": True,
            "resume": True},
            {"check": "all"}, {"max_pixels": 0},
        ],
    )  # fmt: skip
    def test_arguments(self, tmp_path: Path, options: dict[str, object]) -> None:
        """Out of range, or contradicting each other: refused before anything is made."""
        with pytest.raises(ArgumentError):
            one(tmp_path, encoded(picture(1, 8, 8)), **options)
        assert not (tmp_path / "out").exists()
