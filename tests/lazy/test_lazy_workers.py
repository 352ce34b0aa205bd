"""Lazy images in worker processes: a program's own Dataset gives what it gives under torch's DataLoader,
and Pillow is left as it was."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import ContextDecorator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lazy_helpers import files, is_lazy
from own_photos import OwnPhotos
from pictures import write_folder
from PIL import Image, ImageEnhance, ImageFile, ImageFilter, JpegImagePlugin
from torch.utils.data import DataLoader, Dataset, default_collate

from fastload import FastLoader


class Steps:
    """A random crop, resized; a flip; with `jitter` a change of colours and a filter; a tensor: as most
    programs train, without torchvision's import."""

    def __init__(self, side: int, jitter: bool) -> None:
        self.side, self.jitter = side, jitter

    def __call__(self, image: Image.Image) -> torch.Tensor:
        share, x, y, flip = torch.rand(4).tolist()
        width, height = (int(side * (0.3 + share / 2)) for side in image.size)
        left, upper = int(x * (image.width - width)), int(y * (image.height - height))
        image = image.crop((left, upper, left + width, upper + height)).resize(
            (self.side, self.side), Image.Resampling.BILINEAR
        )
        if flip < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.jitter:
            image = ImageEnhance.Color(image).enhance(0.7).filter(ImageFilter.DETAIL)
        return torch.as_tensor(np.array(image, copy=True)).permute(2, 0, 1)


class Broken(OwnPhotos):
    """The same with a file that is cut off."""

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            return Image.open(io.BytesIO(files()["truncated"])).convert("RGB"), index
        return super().__getitem__(index)


def _library(paths: list[Path]) -> Any:
    """A Dataset whose code lies where packages are installed, and is called by the standard library's."""
    code = """
class Decorated(ContextDecorator):
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class Data:
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    @Decorated()
    def __getitem__(self, index):
        return Image.open(self.paths[index]).getpixel((0, 0))
"""
    names: dict[str, Any] = {
        "__name__": "some_library.data",
        "Image": Image,
        "ContextDecorator": ContextDecorator,
    }
    exec(compile(code, "/opt/python/site-packages/some_library/data.py", "exec"), names)
    return names["Data"](paths)


class Told(Dataset[Any]):
    """Is an image lazy where samples are made?"""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> bool:
        return is_lazy(Image.open(io.BytesIO(files()["420"])))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs."""
    return write_folder(tmp_path_factory.mktemp("photos"), 12)


def batches(loader: Any) -> Any:
    torch.manual_seed(7)
    return [[part.tolist() for part in batch] for batch in loader], torch.get_rng_state().tolist()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_batches_are_torchs(root: Path, method: str) -> None:
    """Order, random numbers and pixels are equal bit by bit, for every start method."""
    data = OwnPhotos(root, Steps(64, True))
    options: dict[str, Any] = {
        "batch_size": 5,
        "shuffle": True,
        "num_workers": 2,
        "multiprocessing_context": method,
    }
    expected = batches(DataLoader(data, **options))
    with FastLoader(data, **options) as loader:
        assert batches(loader) == expected
        told = loader.explain(all=True)
    assert "Pillow images are lazy (exact); 12 JPEGs opened" in told
    assert "for PIL.Image.filter" in told
    assert f"first at {__file__}:" in told


def test_straight_to_the_tensor(root: Path) -> None:
    """Crop, resize, flip and to_tensor alone make no Pillow image."""
    data = OwnPhotos(root, Steps(64, False))
    with FastLoader(data, batch_size=4, num_workers=1) as loader:
        list(loader)
        told = loader.explain(all=True)
    assert "12 JPEGs opened, 12 times decoded straight into an array\n" in told


def test_fast_is_near(root: Path) -> None:
    """lazy="fast" gives nearly the same pixels, and the same random numbers."""
    data = OwnPhotos(root, Steps(24, False))
    (exact, state), (fast, other) = (
        batches(FastLoader(data, batch_size=4, num_workers=1, lazy=lazy)) for lazy in ("exact", "fast")
    )
    assert state == other
    difference = np.abs(np.array(exact[0][0], int) - np.array(fast[0][0], int))
    assert 0 < difference.mean() < 6


def test_an_exception_is_pillows(root: Path) -> None:
    """A file that is cut off raises what it raises under torch, at the same call."""
    errors = []
    for loader in (DataLoader, FastLoader):
        with pytest.raises(OSError, match="image file is truncated") as error:
            list(loader(Broken(root, Steps(64, True)), batch_size=4, num_workers=1))
        errors.append(str(error.value).splitlines()[-1])
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("options", "lazy"),
    [
        ({"num_workers": 1}, True),
        ({"num_workers": 1, "lazy": "fast"}, True),
        ({"num_workers": 1, "lazy": False}, False),
        ({"num_workers": 1, "engine": "python"}, False),
        ({"num_workers": 1, "engine": "python", "lazy": "exact"}, False),
        ({"num_workers": 0}, False),
        ({"num_workers": 0, "lazy": "exact"}, True),
        ({"num_workers": 0, "lazy": "exact", "engine": "python"}, False),
    ],
)
def test_where_images_are_lazy(options: dict[str, Any], lazy: bool) -> None:
    """By default in worker processes, on request in the calling process; there Pillow is as it was after
    each batch."""
    with FastLoader(Told(), batch_size=4, **options) as loader:
        for batch in loader:
            assert batch.tolist() == [lazy] * 4
            assert Image.OPEN["JPEG"][0] is JpegImagePlugin.jpeg_factory
            assert not is_lazy(Image.open(io.BytesIO(files()["420"])))
        assert ("Pillow images are lazy" in loader.explain(all=True)) == lazy


def test_the_environment_leaves_pillow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """FASTLOAD_ENGINE=python does."""
    monkeypatch.setenv("FASTLOAD_ENGINE", "python")
    assert [batch.tolist() for batch in FastLoader(Told(), batch_size=4, num_workers=1)] == [[False] * 4]


def opened(samples: Any) -> Any:
    return default_collate(samples), Image.open(io.BytesIO(files()["420"]))


def test_a_lazy_image_in_a_batch() -> None:
    """An image that reaches the loop is pickled with its pixels, as a plain one."""
    _, image = next(iter(FastLoader(Told(), num_workers=1, collate_fn=opened)))
    assert type(image) is JpegImagePlugin.JpegImageFile
    assert image.tobytes() == Image.open(io.BytesIO(files()["420"])).tobytes()


def test_what_a_program_replaced_runs_in_workers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced ImageFile.load leaves all to the program, and explain() says so."""
    real = ImageFile.ImageFile.load

    def load(self: Any) -> Any:
        return real(self)

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    with FastLoader(
        OwnPhotos(root, Steps(64, True)), batch_size=4, num_workers=1, multiprocessing_context="fork"
    ) as loader:
        list(loader)
        assert "left to Pillow: 1 (PIL.ImageFile.ImageFile.load was replaced)" in loader.explain(all=True)


def test_no_line_of_the_loader_is_named(root: Path) -> None:
    """Where a library asks for pixels, and no line of the program, explain() names none, and none of the
    standard library or the worker."""
    data = _library(sorted(root.rglob("*.jpg")))
    with FastLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork") as loader:
        assert len(list(loader)) == 3
        said = " ".join(loader.explain(all=True).split())
    assert "12 made a Pillow image" in said
    assert "first at" not in said


ALONE = """
import sys
from fastload import FastLoader

class Data:
    def __len__(self): return 4
    def __getitem__(self, i):
        before = any(name == "PIL" or name.startswith("PIL.") for name in sys.modules)
        if i < 2: return before, "no image"
        import io
        from importlib.util import find_spec
        if i == 2: assert find_spec("PIL.JpegImagePlugin") is not None  # imports nothing
        from PIL import Image
        image = Image.open(io.BytesIO(open(sys.argv[1], "rb").read()))
        return type(image).__mro__[1].__name__, type(image).__name__

if __name__ == "__main__":
    found = list(FastLoader(Data(), batch_size=None, num_workers=1, multiprocessing_context=sys.argv[2],
        collate_fn=None))
    assert found == [[False, "no image"]] * 2 + [["_Lazy", "JpegImageFile"]] * 2, found
    assert not any(name.startswith("PIL") for name in sys.modules)
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pillow_is_not_imported_for_it(tmp_path: Path, method: str) -> None:
    """A program without images imports no Pillow; one that imports it later has lazy images from then on."""
    (tmp_path / "image.jpg").write_bytes(files()["420"])
    (tmp_path / "alone.py").write_text(ALONE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        [sys.executable, tmp_path / "alone.py", tmp_path / "image.jpg", method],
        check=True,
        timeout=120,
        env=env,
    )
