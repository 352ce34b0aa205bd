"""Real odd and broken JPEGs, real photographs cut and flipped: Pillow's pixels, or an error that says why;
no crash."""

from __future__ import annotations

import csv
import io
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from handles import none_left
from native_helpers import strip
from PIL import Image

from fastload import errors
from fastload._native import core

SEED = 20240607
LIMIT = 1 << 24

# What becomes of the files that Pillow does not decode either: a part of our message.
REFUSED = {
    "ljt__monkey12.jpg": "precision 12|12 bits a sample",  # by libjpeg-turbo 2.1, by us on 3.x
    "pillow__timeout-6646305047838720": "Not a JPEG file",
    "pillow__truncated_jpeg.jpg": "cut off",
    "pillow__ultrahdr.jpg": "cut off",
    "skimage__truncated.jpg": "cut off",
}


@pytest.fixture(scope="module")
def torture(shared: Path) -> dict[str, dict[str, str]]:
    """The manifest's rows by file name, with `path` added."""
    folder = shared / "torture"
    if not folder.is_dir():
        pytest.skip("no torture files in the shared folder")
    with open(folder / "manifest.csv", newline="") as f:
        return {row["file"]: {**row, "path": str(folder / row["file"])} for row in csv.DictReader(f)}


def pillow(data: bytes) -> npt.NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of EXIF blocks; none is about pixels
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def refusal(call: Callable[[], object]) -> str:
    """Why a call raised SampleError, "" when it returned; whatever else it raises fails the test."""
    try:
        call()
    except errors.SampleError as error:
        return error.reason or "no reason given"
    return ""


def decode_some_box(data: bytes, rng: random.Random) -> None:
    header = core.jpeg_header(data, max_pixels=LIMIT)
    x, y = rng.randrange(header.width), rng.randrange(header.height)
    box = (x, y, rng.randint(1, header.width - x), rng.randint(1, header.height - y))
    core.jpeg_decode(data, box, rng.choice((1, 2, 4, 8)), max_pixels=LIMIT)


def every_call(data: bytes, rng: random.Random) -> None:
    """Every entry point either returns or raises SampleError with a reason."""
    calls: list[Callable[[], object]] = [
        lambda: core.jpeg_scan(data),
        lambda: strip(data),
        lambda: core.jpeg_check(data, max_pixels=LIMIT),
        lambda: core.jpeg_transform(data, rng.randint(1, 8), max_pixels=LIMIT),
        lambda: decode_some_box(data, rng),
    ]
    for call in calls:
        assert refusal(call) != "no reason given"


def test_every_file_decodes_as_in_pillow_or_says_why(torture: dict[str, dict[str, str]]) -> None:
    """What Pillow decodes comes out as the same pixels; what it refuses is refused, by name of the cause."""
    assert {name for name, row in torture.items() if row["pillow"] != "ok"} == set(REFUSED)
    for name, row in torture.items():
        data = Path(row["path"]).read_bytes()
        if name in REFUSED:
            with pytest.raises(errors.SampleError, match=REFUSED[name]):
                core.jpeg_decode(data)
            continue
        np.testing.assert_array_equal(core.jpeg_decode(data), pillow(data), err_msg=name)


def test_the_manifests_columns_are_what_scan_finds(torture: dict[str, dict[str, str]]) -> None:
    """Size, kind, precision, components, sampling and EXIF orientation of every file that gets as far as a
    scan."""
    kinds = {
        "baseline": ("baseline", False),
        "extended": ("extended", False),
        "progressive": ("progressive", False),
        "arith-seq": ("extended", True),
    }
    checked = 0
    for name, row in torture.items():
        if row["sof"] == "none" or name == "skimage__truncated.jpg":
            continue
        found = core.jpeg_scan(Path(row["path"]).read_bytes())
        assert (found["kind"], found["arithmetic"]) == kinds[row["sof"]], name
        assert found["precision"] == int(row["precision"]), name
        assert found["components"] == int(row["components"]), name
        assert ",".join(f"{h}x{v}" for h, v in found["sampling"]) == row["sampling"], name
        assert found["orientation"] == int(row["exif_orientation"] or 1), name
        if row["width"]:
            assert (found["width"], found["height"]) == (int(row["width"]), int(row["height"])), name
        checked += 1
    assert checked == len(torture) - 2


def test_a_file_that_strict_turbojpeg_refuses_has_a_warning(torture: dict[str, dict[str, str]]) -> None:
    """libjpeg's warnings are counted, and worded as TurboJPEG words them; clean files have none.

    One file's ICC marker is looked into only by TurboJPEG's header reader; it is no warning here.
    """
    for name, row in torture.items():
        if name in REFUSED or name == "pillow__icc-after-SOF.jpg":
            continue
        count, first = core.jpeg_check(Path(row["path"]).read_bytes())
        if row["turbo_strict"].startswith("ok"):
            assert (count, first) == (0, ""), name
        else:
            assert count >= 1, name
            assert row["turbo_strict"].endswith(first), name


def test_transcodes_keep_the_pixels(torture: dict[str, dict[str, str]]) -> None:
    """Stripped, and as baseline, every file that decodes has the pixels it had; what follows its end is
    gone."""
    for name, row in torture.items():
        if name in REFUSED:
            continue
        data = Path(row["path"]).read_bytes()
        pixels = core.jpeg_decode(data)
        for transcode in (strip, core.jpeg_to_baseline):
            small = transcode(data)
            np.testing.assert_array_equal(core.jpeg_decode(small), pixels, err_msg=name)
            found = core.jpeg_scan(small)
            assert (found["end"], found["stray"], found["exif"], found["icc"]) == (
                len(small),
                0,
                False,
                False,
            ), name


def test_cut_and_flipped_files_never_crash(torture: dict[str, dict[str, str]], shared: Path) -> None:
    """Torture files and photographs, cut anywhere and with any bytes changed, return or raise SampleError."""
    rng = random.Random(SEED)
    photographs = (shared / "corpus" / "in500").rglob("*.jpg")
    cases = [(Path(row["path"]), 12) for row in torture.values()] + [
        (path, 2) for path in sorted(photographs)
    ]
    with none_left("jpegs"):
        for path, times in cases:
            data = path.read_bytes()
            for i in range(times):
                broken = bytearray(data)
                for _ in range(rng.randint(1, 4) if i % 3 else 0):
                    broken[rng.randrange(min(len(broken), 1000) if i % 2 else len(broken))] = rng.randrange(
                        256
                    )
                every_call(bytes(broken[: rng.randrange(len(broken)) if i % 3 == 0 else None]), rng)


def test_a_cut_photograph_is_truncated_and_its_upper_half_is_not(shared: Path) -> None:
    """Cut in its last tenth, a photograph fails as a whole; its first rows decode as they do from the
    whole file."""
    checked = 0
    for path in sorted((shared / "corpus" / "in500").rglob("*.jpg"))[:20]:
        data = path.read_bytes()
        header = core.jpeg_header(data)
        if header.progressive:
            continue
        part = data[: len(data) * 9 // 10]
        with pytest.raises(errors.SampleError, match="cut off"):
            core.jpeg_decode(part)
        box = (0, 0, header.width, header.height // 4)
        np.testing.assert_array_equal(core.jpeg_decode(part, box), core.jpeg_decode(data, box))
        checked += 1
    assert checked > 0
