"""What pack tells of its own accord: images of more than 8 bits are refused; smaller losses, and what is
left out, counted."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, stored_samples, tree
from PIL import Image

from fastload.errors import PackError
from fastload.packing import pack
from fastload.sources.notices import Notices
from fastload.sources.pixels import _avif_bits, _heif_bits
from fastload.store import Manifest

RAMP = np.linspace(0, 65535, 3072).astype(np.uint16).reshape(48, 64)
COLOURS = np.random.default_rng(0).integers(0, 65536, (48, 64, 3), dtype=np.uint16)
GOOD = encoded(picture(0, 16, 16), "PNG")


def png16(pixels: np.ndarray[Any, Any], colour_type: int) -> bytes:
    """A PNG of 16 bits a channel, which Pillow does not write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def jpeg12() -> bytes:
    """A JPEG whose header says 12 bits."""
    data = bytearray(encoded(picture(0, 16, 16)))
    data[data.index(b"\xff\xc0") + 4] = 12
    return bytes(data)


DEEP = {
    "grey PNG": encoded(Image.fromarray(RAMP), "PNG"),
    "RGB PNG": png16(COLOURS, 2),
    "grey and alpha PNG": png16(COLOURS[:, :, :2], 4),
    "grey TIFF": encoded(Image.fromarray(RAMP), "TIFF"),
    "compressed TIFF": encoded(Image.fromarray(RAMP), "TIFF", compression="tiff_lzw"),
    "32-bit TIFF": encoded(Image.fromarray(RAMP.astype(np.int32)), "TIFF"),
    "float TIFF": encoded(Image.fromarray(RAMP.astype(np.float32)), "TIFF"),
    "PPM": b"P6\n64 48\n65535\n" + COLOURS.astype(">u2").tobytes(),
    "PGM": b"P5\n64 48\n1000\n" + (RAMP >> 7).astype(">u2").tobytes(),
    "JPEG": jpeg12(),
}


class TestMoreThan8Bits:
    @pytest.mark.parametrize("encode", ["lossless", "keep", "jpeg", "raw"])
    def test_refused_in_every_mode(self, tmp_path: Path, encode: str) -> None:
        """No encode mode stores what is left of 16 bits: skipped, each kind of file is counted as one of
        its own."""
        src = tree(
            tmp_path / "src",
            {f"c/{name}.png": data for name, data in DEEP.items()} | {"c/good.png": GOOD, "c/bad.png": b"x"},
        )
        summary = pack(src, tmp_path / "out", encode=encode, on_error="skip")
        assert (summary.samples, summary.skipped_count, summary.noticed("deep")) == (
            1,
            len(DEEP) + 1,
            len(DEEP),
        )
        assert all("8 bits" in reason for name, reason in summary.skipped if not name.endswith("bad.png"))

    def test_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        """Under on_error="raise", with how many there are, and what to do; OUT is not even made."""
        src = tree(
            tmp_path / "src",
            {
                "a/1.png": GOOD,
                "a/2.jpg": encoded(picture(0, 8, 8)),
                "b/1.png": DEEP["RGB PNG"],
                "b/2.tif": DEEP["grey TIFF"],
            },
        )
        with pytest.raises(
            PackError, match=r"b/1\.png: 16 bits a channel.*2 of the 3 images.*--on-error skip"
        ):
            pack(src, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_found_in_the_midst(self, tmp_path: Path) -> None:
        """Under a JPEG's name it is met when its turn comes: refused with a count of what lies behind it."""
        src = tree(
            tmp_path / "src",
            {"a/1.jpg": GOOD, "a/2.jpg": DEEP["RGB PNG"], "a/3.jpg": DEEP["RGB PNG"], "b/1.jpg": GOOD},
        )
        with pytest.raises(
            PackError, match=r"a/2\.jpg: 16 bits a channel.*2 of the 3 images looked at are such"
        ):
            pack(src, tmp_path / "out")

    def test_of_a_dataset(self, tmp_path: Path) -> None:
        """PIL images that a Dataset gives, opened or made, are held to the same."""
        for each in (
            Image.fromarray(RAMP),
            Image.fromarray(RAMP.astype(np.float32)),
            Image.open(io.BytesIO(DEEP["RGB PNG"])),
        ):
            with pytest.raises(PackError, match="a channel; fastload stores 8"):
                pack([(picture(0, 8, 8), 0), (each, 0)], tmp_path / "out", overwrite=True)

    def test_16_bits_a_pixel_are_not_16_a_channel(self, tmp_path: Path) -> None:
        """A BMP of 5, 6 and 5 bits is packed as Pillow reads it."""
        header = struct.pack("<IiiHHIIiiIIIII", 56, 4, 4, 1, 16, 3, 32, 0, 0, 0, 0, 0xF800, 0x7E0, 0x1F)
        data = (
            b"BM" + struct.pack("<IHHI", 14 + 56 + 32, 0, 0, 14 + 56) + header + bytes(range(32)) + b"\0" * 4
        )
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        pack(tree(tmp_path / "src", {"c/x.bmp": data}), tmp_path / "out")
        assert (stored_samples(tmp_path / "out")[0].pixels == expected).all()

    def test_avif(self, tmp_path: Path) -> None:
        """The AV1 configuration tells 10 and 12 bits, which Pillow reads as 8 without a word."""
        features = pytest.importorskip("PIL.features")
        assert [_heif_bits(b"....hvcC" + bytes(17) + bytes([0xF8 | more]) + b"..") for more in (0, 2)] == [
            8,
            10,
        ]
        assert [_avif_bits(b"....av1C" + bytes([0x81, 0, flags, 0])) for flags in (0x0C, 0x40, 0x60)] == [
            8,
            10,
            12,
        ]
        if features.check("avif"):
            assert _avif_bits(encoded(picture(0, 16, 16), "AVIF")) == 8


def transparent(alpha: int) -> bytes:
    image = picture(0, 8, 8).convert("RGBA")
    image.putalpha(alpha)
    return encoded(image, "PNG")


def exif(orientation: int) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


class TestLosses:
    def test_of_other_formats(self, tmp_path: Path) -> None:
        """Transparency that is there, frames after the first, other colour spaces: packed as ImageFolder
        reads them, and counted."""
        image = picture(0, 8, 8)
        palette = image.convert("P")
        files = {
            "opaque.png": transparent(255),
            "half.png": transparent(128),
            "key.png": encoded(palette, "PNG", transparency=palette.getpixel((0, 0))),
            "bytes.png": encoded(palette, "PNG", transparency=bytes(range(256))),
            "frames.webp": encoded(
                image, "WEBP", save_all=True, append_images=[image.rotate(90)], lossless=True
            ),
            "pages.tif": encoded(image, "TIFF", save_all=True, append_images=[image]),
            "cmyk.tif": encoded(image.convert("CMYK"), "TIFF"),
            "bits.png": encoded(image.convert("1"), "PNG"),
        }
        summary = pack(
            tree(tmp_path / "src", {f"c/{name}": data for name, data in files.items()}), tmp_path / "out"
        )
        found = {notice.kind: {Path(name).name for name in notice.examples} for notice in summary.notices}
        assert found == {
            "alpha": {"half.png", "key.png", "bytes.png"},
            "frames": {"frames.webp", "pages.tif"},
            "colour": {"cmyk.tif"},
        }
        assert summary.samples == len(files)

    @pytest.mark.parametrize("encode", ["lossless", "keep", "jpeg", "raw"])
    def test_orientation(self, tmp_path: Path, encode: str) -> None:
        """Images that carry one are counted where it was not applied, and the note names the option;
        applied, there is no note."""
        image = picture(0, 16, 16)
        src = tree(
            tmp_path / "src",
            {
                "c/6.jpg": encoded(image, exif=exif(6)),
                "c/1.jpg": encoded(image, exif=exif(1)),
                "c/3.png": encoded(image, "PNG", exif=exif(3)),
            },
        )
        summary = pack(src, tmp_path / "out", encode=encode)
        assert [(n.kind, n.count) for n in summary.notices] == [("orientation", 2)]
        assert "--exif apply" in summary.notices[0].text
        if encode != "keep":
            assert pack(src, tmp_path / "out2", encode=encode, exif="apply").notices == ()

    @pytest.mark.parametrize("block", [b"II*\0\xff\xff\xff\x7f\0\0", b"XX*\0", b"MM\0*\0\0\0\x08\xff\xff"])
    @pytest.mark.parametrize("option", ["ignore", "apply"])
    def test_damaged_exif_is_no_reason(self, tmp_path: Path, block: bytes, option: str) -> None:
        """A PNG whose EXIF block cannot be read is packed as it is, whether the orientation is asked for
        or not."""
        src = tree(tmp_path / "src", {"c/1.png": encoded(picture(0, 8, 8), "PNG", exif=b"Exif\0\0" + block)})
        assert pack(src, tmp_path / "out", exif=option).notices == ()
        assert (stored_samples(tmp_path / "out")[0].pixels == np.asarray(picture(0, 8, 8))).all()

    def test_cmyk_in_every_mode(self, tmp_path: Path) -> None:
        """A CMYK JPEG is kept, or its conversion is in the summary."""
        src = tree(tmp_path / "src", {"c/1.jpg": encoded(picture(0, 16, 16).convert("CMYK"))})
        for encode, kept, cmyk, noticed in (
            ("lossless", 0, 1, 0),
            ("keep", 1, 0, 0),
            ("raw", 0, 0, 1),
            ("jpeg", 0, 0, 1),
        ):
            summary = pack(src, tmp_path / encode, encode=encode)
            assert (summary.kept, summary.cmyk, summary.noticed("colour")) == (kept, cmyk, noticed), encode


def test_notices_are_in_the_manifest(tmp_path: Path) -> None:
    """And a resume of the finished dataset gives the same summary."""
    src = tree(tmp_path / "src", {"c/6.jpg": encoded(picture(0, 16, 16), exif=exif(6))})
    summary = pack(src, tmp_path / "out")
    stored = Manifest.load(tmp_path / "out").summary["notices"]
    assert [(each["kind"], each["count"], each["examples"]) for each in stored] == [
        ("orientation", 1, [str(src / "c" / "6.jpg")])
    ]
    assert pack(src, tmp_path / "out", resume=True).notices == summary.notices
    assert Notices.of([{"kind": 3}, None, *stored]).all() == summary.notices
    assert Notices.of("x").all() == ()


class TestLeftOut:
    def test_of_a_folder(self, tmp_path: Path) -> None:
        """Pictures of other types, pictures beside the class folders, links to nothing, other files: each
        kind with its count and names."""
        src = tree(
            tmp_path / "src",
            {
                **{f"a/{i}.gif": b"GIF" for i in range(25)},
                "a/1.png": GOOD,
                "a/deep/2.HEIC": b"",
                "a/notes.txt": b"",
                "b/.DS_Store": b"",
                "b/1.png": GOOD,
                "beside.jpg": b"",
                "beside.avif": b"",
                "labels.csv": b"",
            },
        )
        (src / "c").symlink_to("gone")
        (src / "b" / "link").symlink_to("gone.jpg")
        summary = pack(src, tmp_path / "out")
        assert summary.samples == 2
        found = {
            notice.kind: (notice.count, sorted(os.path.relpath(name, src) for name in notice.examples))
            for notice in summary.notices
        }
        assert found.pop(".gif")[0] == 25
        assert found == {
            ".heic": (1, ["a/deep/2.HEIC"]),
            "beside": (2, ["beside.avif", "beside.jpg"]),
            "links": (2, ["b/link", "c"]),
            "files": (3, ["a/notes.txt", "b/.DS_Store", "labels.csv"]),
        }
        assert [len(notice.examples) for notice in summary.notices if notice.kind == ".gif"] == [20]
        assert Notices.of(Manifest.load(tmp_path / "out").summary["notices"]).all() == summary.notices

    def test_what_the_notices_advise(self, tmp_path: Path) -> None:
        """A table takes the GIF that a folder leaves out."""
        files = {
            "a/1.gif": encoded(picture(0, 8, 8), "GIF"),
            "a/2.png": GOOD,
            "b/3.png": GOOD,
            "list.csv": b"path,label\na/1.gif,x\n",
        }
        src = tree(tmp_path / "src", files)
        summary = pack(src, tmp_path / "out")
        assert [(n.kind, ".csv of path,label" in n.text) for n in summary.notices] == [
            ("files", False),
            (".gif", True),
        ]
        assert pack(src / "list.csv", tmp_path / "out2").samples == 1

    def test_a_class_of_other_types(self, tmp_path: Path) -> None:
        """A class folder without an image that is packed: the error says what is there instead."""
        with pytest.raises(
            PackError, match=r"no image in the class folder a; .*there are \.gif, \.heic files"
        ):
            pack(tree(tmp_path / "src", {"a/1.gif": b"", "a/2.heic": b"", "b/1.png": GOOD}), tmp_path / "out")

    def test_of_a_table(self, tmp_path: Path) -> None:
        """Columns without a label among them, and an index column, are named."""
        tree(tmp_path, {"1.png": GOOD, "list.csv": b",image_path,species,height\n0,1.png,fox,3\n"})
        summary = pack(tmp_path / "list.csv", tmp_path / "out")
        assert [(n.kind, n.examples) for n in summary.notices] == [
            ("index column", (str(tmp_path / "list.csv"),)),
            ("no label", ("species", "height")),
        ]
        assert pack(tmp_path / "list.csv", tmp_path / "out2", label_column="species").noticed("no label") == 0

    def test_of_a_tar(self, tmp_path: Path) -> None:
        """Members without a base name and an extension belong to no sample; folders are none."""
        tree(tmp_path / "d", {"1.png": GOOD, "1.cls": b"3", "README": b"", ".hidden": b""})
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            tar.add(tmp_path / "d", "d")
        notices = pack(tmp_path / "x.tar", tmp_path / "out").notices
        assert [(n.kind, n.count) for n in notices] == [("members", 2)]
