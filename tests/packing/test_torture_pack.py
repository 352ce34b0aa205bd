"""Real odd and broken JPEGs: each packs to the pixels that libjpeg-turbo and Pillow make of it, or is
refused by its name."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from packing_helpers import stored_samples
from pictures import by_pillow

from fastload._native import core
from fastload.errors import PackError, SampleError
from fastload.packing import pack, verify


def turbo(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
    try:
        pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = core.jpeg_decode(data)
        return pixels
    except SampleError:
        return None


@pytest.fixture(scope="module")
def files(shared: Path) -> list[Path]:
    with open(shared / "torture" / "manifest.csv", encoding="utf-8", newline="") as file:
        return [shared / "torture" / row["file"] for row in csv.DictReader(file)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("encode", ["lossless", "keep", "dct", "raw"])
def test_every_file_packs_or_is_refused_by_name(files: list[Path], tmp_path: Path, encode: str) -> None:
    """Lossless, kept or raw: the stored image decodes to the very pixels of the original. What is refused, is
    what Pillow cannot train on either, and nothing else; its name is in the summary."""
    folder = tmp_path / "src" / "c"
    folder.mkdir(parents=True)
    for i, path in enumerate(files):
        shutil.copy(path, folder / f"{i:03d}.jpg")
    summary = pack(tmp_path / "src", tmp_path / "out", encode=encode, on_error="skip")
    refused = {int(Path(name).stem) for name, _ in summary.skipped}
    kept = [i for i in range(len(files)) if i not in refused]
    stored = stored_samples(tmp_path / "out")
    assert len(stored) == len(kept) == summary.samples
    for sample, i in zip(stored, kept, strict=True):
        data = files[i].read_bytes()
        expected = turbo(data)
        theirs = by_pillow(data)
        if expected is None:
            expected = theirs
        assert expected is not None, files[i].name
        assert theirs is not None, files[i].name
        if encode == "lossless" and core.jpeg_scan(data)["components"] == 4:
            assert np.abs(sample.pixels.astype(int) - expected).max() <= 6, files[i].name
        else:
            assert (sample.pixels == expected).all(), files[i].name
    for i in refused:
        data = files[i].read_bytes()
        assert by_pillow(data) is None, files[i].name
    assert verify(tmp_path / "out", decode=True).ok


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", ["structure", "entropy"])
def test_warnings_are_those_of_a_decode(files: list[Path], tmp_path: Path, check: str) -> None:
    """The summary names exactly the files whose full decode counts a warning; with these real files, for
    both depths of check."""
    folder = tmp_path / "src" / "c"
    folder.mkdir(parents=True)
    for path in files:
        shutil.copy(path, folder / f"{path.name}.jpg")
    summary = pack(tmp_path / "src", tmp_path / "out", on_error="skip", check=check)
    named = {Path(name).stem for name, _ in summary.warnings}
    skipped = {Path(name).stem for name, _ in summary.skipped}
    warned = {
        path.name for path in files if path.name not in skipped and core.jpeg_check(path.read_bytes())[0]
    }
    assert named == warned
    assert named


@pytest.mark.filterwarnings("ignore")
def test_each_refused_file_stops_a_pack_by_name(files: list[Path], tmp_path: Path) -> None:
    """on_error="raise": one line that names the file."""
    stopped = 0
    for i, path in enumerate(files):
        folder = tmp_path / str(i) / "c"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / "x.jpg")
        try:
            pack(folder.parent, tmp_path / f"{i}.out", workers=1)
        except PackError as error:
            stopped += 1
            assert str(folder / "x.jpg") in str(error)
            assert "\n" not in str(error)
    assert 0 < stopped < len(files) / 4


def test_a_file_in_the_dct_form_is_sound(files: list[Path], shared: Path) -> None:
    """Packing does not walk such a file: what the form and the markers prove, the walk proves too. Of
    whole files, and of damaged ones."""
    preparer, coder, proved = core.JpegPreparer(), core.DctCoder(), 0
    rng = np.random.default_rng(0)
    for path in (*files, *sorted((shared / "findings").glob("*.jpg"))):
        data = path.read_bytes()
        places = rng.integers(2, len(data), 8)
        damaged = [data[:at] + rng.bytes(1) + data[at:] for at in places]
        for each in (data, data[:-2] + b"\0" + data[-2:], data + b"more", *damaged):
            try:
                whole = preparer.prepare(each, entropy=False).whole
            except SampleError:
                continue
            if whole and coder.encode(each)[0] is not None and coder.sound:
                assert preparer.prepare(each).sound, path
                proved += 1
    assert proved > 30
