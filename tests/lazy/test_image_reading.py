"""fastload.imread: Pillow's pixels of a file or of a box of it, in any thread; errors that name the file."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lazy_helpers import files
from pictures import photo
from PIL import Image

import fastload
from fastload.errors import ArgumentError, SampleError
from fastload.lazy import counts


def by_pillow(
    path: Path, box: tuple[int, int, int, int] | None = None, size: tuple[int, int] | None = None
) -> np.ndarray:
    with path.open("rb") as file:
        image = Image.open(file).convert("RGB").crop(box)
    return np.array(image if size is None else image.resize(size, Image.Resampling.BILINEAR))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("imread")
    for name, data in files().items():
        (made / f"{name}.jpg").write_bytes(data)
    picture = photo(2, 61, 83)
    for mode in ("RGB", "RGBA", "P", "L", "LA", "1", "I;16"):
        image = picture.convert("L").convert("I").convert("I;16") if mode == "I;16" else picture.convert(mode)
        image.save(made / f"{mode.replace(';', '')}.png")
    picture.save(made / "lossy.webp")
    return made


def test_all_kinds_of_files(folder: Path) -> None:
    """Files of all kinds, whole, cut, and resized; those that Pillow does not load are errors that name
    them."""
    failed = set()
    for path in sorted(folder.iterdir()):
        for box, size in ((None, None), ((0, 0, 1, 1), None), ((0, 0, 1, 1), (7, 5)), (None, (23, 31))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Pillow's, of palettes and damaged TIFF parts
                try:
                    wanted = by_pillow(path, box, size)
                except Exception as error:
                    failed.add(path.stem)
                    with pytest.raises(SampleError, match=f"{path.name} cannot be decoded: ") as met:
                        fastload.imread(path, box, size)
                    assert type(error).__name__ in met.value.reason
                    continue
                made = fastload.imread(path, box, size)
            np.testing.assert_array_equal(made, wanted, err_msg=f"{path.name} {box} {size}")
            assert made.flags.c_contiguous
            assert made.flags.writeable
            assert made.flags.owndata
    assert failed == {"empty", "no jpeg", "truncated", "no end", "marker inside"}


@given(data=st.data())
def test_any_box_and_size(folder: Path, data: st.DataObject) -> None:
    name, width, height = data.draw(st.sampled_from([("420", 83, 61), ("grey", 83, 61), ("damaged", 83, 61)]))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = (left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height)))
    size = data.draw(st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99)))
    path = folder / f"{name}.jpg"
    np.testing.assert_array_equal(fastload.imread(path, box, size), by_pillow(path, box, size))


def test_only_the_box_is_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pixels go straight from the file into the array: no image of Pillow's is made."""
    monkeypatch.setattr(Image, "open", None)
    counts.take()
    fastload.imread(folder / "420.jpg", (8, 8, 40, 40), np.array([20, 20]))
    taken = counts.take()
    assert taken is not None
    assert (taken.straight, sum(taken.whole.values())) == (1, 0)


def test_threads(folder: Path) -> None:
    """Eight threads that read at a time have the pixels of one."""
    paths = [folder / f"{name}.jpg" for name in ("420", "444", "422", "grey", "progressive")] * 20
    wanted = [by_pillow(path) for path in paths[:5]] * 20
    with ThreadPoolExecutor(8) as pool:
        for made, each in zip(pool.map(fastload.imread, paths), wanted, strict=True):
            np.testing.assert_array_equal(made, each)


@pytest.mark.parametrize(
    ("box", "size", "words"),
    [
        ((0, 0, 84, 61), None, r"box \(0, 0, 84, 61\) does not lie in .*420.jpg, an image of 83 x 61"),
        ((5, 5, 5, 9), None, "does not lie in"),
        ((-1, 0, 5, 5), None, "does not lie in"),
        ((0, 0, 1.5, 1), None, "give 4 integers"),
        ((0, 0, 1), None, "give 4 integers"),
        (None, (0, 5), "give a width and a height"),
        (None, (5, 1 << 40), "give a width and a height"),
        (None, 5, "give 2 integers"),
    ],
)
def test_arguments(folder: Path, box: object, size: object, words: str) -> None:
    """Boxes and sizes that cannot be are refused in one sentence."""
    with pytest.raises(ArgumentError, match=words):
        fastload.imread(folder / "420.jpg", box, size)


def test_a_missing_file_is_python_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
        fastload.imread(tmp_path / "gone.jpg")
