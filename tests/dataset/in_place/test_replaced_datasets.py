"""Datasets whose loader, class or library was replaced are read as they are, in Python, and explain()
names what was replaced."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from in_place_helpers import EXACT, batches, folder, food, pets
from PIL import Image, JpegImagePlugin
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import datasets
from torchvision.datasets import folder as folders
from torchvision.transforms import v2

from fastload import FastLoader


def turned(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with another's names that gives its images turned by 180 degrees."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if isinstance(made, tuple):
            return made[0].flip(-1), made[1]
        return made.transpose(Image.Transpose.ROTATE_180)

    return wrapper


def assert_as_torch_in_python(loader: FastLoader[Any], dataset: Any, why: str) -> None:
    """An epoch has the batches of torch's own loader, on another engine than native threads, for that
    reason."""
    ours, theirs = batches(loader), batches(DataLoader(dataset, batch_size=4))
    assert all(
        torch.equal(x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True)
    )
    assert loader.stats()["engine"] != "threads"
    assert why in loader.explain(all=True)


REPLACED: dict[str, tuple[Any, Any, str, str]] = {
    "pil_loader": (folder, folders, "pil_loader", "torchvision.datasets.folder.pil_loader"),
    "default_loader": (folder, folders, "default_loader", "torchvision.datasets.folder.default_loader"),
    "__getitem__": (
        folder,
        datasets.DatasetFolder,
        "__getitem__",
        "torchvision.datasets.folder.DatasetFolder.__getitem__",
    ),
    "of a dataset without a loader": (
        food,
        datasets.Food101,
        "__getitem__",
        "torchvision.datasets.food101.Food101.__getitem__",
    ),
    "Image.open": (folder, Image, "open", "PIL.Image.open"),
    "Image.open, without a loader": (pets, Image, "open", "PIL.Image.open"),
    "Image.convert": (folder, Image.Image, "convert", "PIL.Image.Image.convert"),
    "Subset": (
        lambda *a, **o: Subset(folder(*a, **o), range(8)),
        Subset,
        "__getitems__",
        "torch.utils.data.dataset.Subset.__getitems__",
    ),
    "ConcatDataset": (
        lambda *a, **o: ConcatDataset([folder(*a, **o)]),
        *(ConcatDataset, "__getitem__", "torch.utils.data.dataset.ConcatDataset.__getitem__"),
    ),
}


@pytest.mark.parametrize("case", REPLACED)
def test_a_replaced_function_is_called(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are those of the dataset as it is now, and native threads read it again when the function is
    put back."""
    make, owner, name, path = REPLACED[case]
    dataset = make(tmp_path, transform=EXACT)
    with FastLoader(dataset, batch_size=4, num_workers=0) as loader:
        before = batches(loader)
        assert loader.stats()["engine"] == "threads"
        with monkeypatch.context() as patch:
            of_batches = name == "__getitems__"
            value = (
                (lambda self, at: [turned(Subset.__getitem__)(self, each) for each in at])
                if of_batches
                else turned(getattr(owner, name))
            )
            patch.setattr(owner, name, value)
            assert_as_torch_in_python(loader, dataset, f"{path} was replaced")
        assert all(
            torch.equal(x, y)
            for a, b in zip(before, batches(loader), strict=True)
            for x, y in zip(a, b, strict=True)
        )
        assert loader.stats()["engine"] == "threads"


class Callable_:
    """A callable object."""

    def __call__(self, path: Any) -> Any:
        return turned(folders.pil_loader)(path)

    def load(self, path: Any) -> Any:
        return self(path)


@pytest.mark.parametrize(
    "loader",
    [
        turned(folders.default_loader),
        functools.update_wrapper(Callable_(), folders.default_loader),
        functools.partial(turned(folders.pil_loader)),
        functools.update_wrapper(functools.partial(turned(folders.pil_loader)), folders.pil_loader),
        Callable_().load,
    ],
    ids=["wraps", "object", "partial", "wrapped partial", "bound method"],
)
def test_a_loader_is_not_known_by_its_name(tmp_path: Path, loader: Any) -> None:
    dataset = folder(tmp_path, transform=EXACT, loader=loader)
    with FastLoader(dataset, batch_size=4, num_workers=0) as ours:
        assert_as_torch_in_python(ours, dataset, "is not torchvision's")


def test_a_class_is_not_known_by_its_name(tmp_path: Path) -> None:
    """Neither a class that calls itself torchvision's, nor an object of which the class was changed, nor
    one that makes batches itself."""

    class DatasetFolder:
        __module__ = "torchvision.datasets.folder"

        def __init__(self) -> None:
            self.inner = folder(tmp_path, transform=EXACT)
            self.samples, self.loader, self.transform = self.inner.samples, self.inner.loader, EXACT

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            image, label = self.inner[index]
            return image.flip(-1), label

    DatasetFolder.__qualname__ = "DatasetFolder"
    one, other, third = DatasetFolder(), folder(tmp_path, transform=EXACT), folder(tmp_path, transform=EXACT)
    other.__class__ = type(
        "ImageFolder", (datasets.ImageFolder,), {"__getitem__": turned(datasets.ImageFolder.__getitem__)}
    )
    third.__getitems__ = lambda at: [turned(type(third).__getitem__)(third, each) for each in at]
    for dataset, why in (
        (one, "of Python"),
        (other, "__getitem__ of its own"),
        (third, "__getitems__ of its own"),
    ):
        with FastLoader(dataset, batch_size=4, num_workers=0) as loader:
            assert_as_torch_in_python(loader, dataset, why)


def test_a_subset_that_makes_batches_itself(tmp_path: Path) -> None:
    dataset = Subset(folder(tmp_path, transform=EXACT), range(8))
    dataset.__getitems__ = lambda at: [turned(Subset.__getitem__)(dataset, each) for each in at]  # type: ignore[method-assign]
    with FastLoader(dataset, batch_size=4, num_workers=0) as loader:
        assert_as_torch_in_python(loader, dataset, "its own __getitems__ was replaced")


def test_another_plugin_of_pillows_for_jpegs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may register one of its own by Image.register_open()."""

    class Inverted(JpegImagePlugin.JpegImageFile):
        def load(self) -> Any:
            done, found = self.fp is None, super().load()
            if not done:
                self.paste(self.point(lambda value: 255 - value))
            return found

    dataset = folder(tmp_path, transform=EXACT)
    Image.preinit()
    with FastLoader(dataset, batch_size=4, num_workers=0) as loader:
        monkeypatch.setitem(Image.OPEN, "JPEG", (Inverted, Image.OPEN["JPEG"][1]))
        assert_as_torch_in_python(loader, dataset, "another plugin")


def test_the_image_backend_is_read_at_every_epoch(tmp_path: Path) -> None:
    """torchvision then opens files with accimage, which is not installed here."""
    dataset = folder(tmp_path, transform=EXACT)
    with FastLoader(dataset, batch_size=4, num_workers=0) as loader:
        assert loader.stats()["engine"] == "threads"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torchvision.set_image_backend("accimage")
        try:
            assert "image backend is accimage" in loader.explain(all=True)
            with pytest.raises(ModuleNotFoundError, match="accimage"):
                next(iter(loader))
        finally:
            torchvision.set_image_backend("PIL")
        batches(loader)
        assert loader.stats()["engine"] == "threads"


@pytest.mark.parametrize("workers", [0, 2])
def test_pillows_limit_of_pixels_is_read_at_every_epoch(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lowered, it makes Pillow warn or refuse; raised, or taken away, it does neither any more."""
    dataset = folder(tmp_path, transform=EXACT)
    # Of in_place_helpers.save.
    largest = max(70 + number % 30 for number in range(12)) * max(90 + number % 40 for number in range(12))
    with FastLoader(dataset, batch_size=12, num_workers=workers, engine="native") as loader:
        before = batches(loader)
        for limit in (largest // 3, 0):
            monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
            with pytest.raises(Image.DecompressionBombError):
                batches(loader)
        for limit in (largest - 1, float(largest - 1)):
            monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
            with pytest.warns(Image.DecompressionBombWarning):
                assert all(map(torch.equal, before[0], batches(loader)[0]))
        for limit in (largest, None, 1 << 40):
            monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
            assert all(map(torch.equal, before[0], batches(loader)[0]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_keeps_its_limit_of_pixels(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that is lowered in mid-pass holds from the next one on."""
    dataset = folder(tmp_path, transform=EXACT)
    with FastLoader(dataset, batch_size=1, num_workers=workers, engine="native") as loader:
        before = batches(loader)
        iterator = iter(loader)
        found = [next(iterator)]
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
        found += iterator
        assert all(torch.equal(one[0], other[0]) for one, other in zip(before, found, strict=True))
        with pytest.raises(Image.DecompressionBombError):
            batches(loader)


def test_a_limit_of_pixels_below_pillows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FASTLOAD_MAX_PIXELS bounds what native threads decode: larger images are Pillow's, which opens them."""
    dataset = folder(tmp_path, transform=EXACT)
    with FastLoader(dataset, batch_size=12, num_workers=2, engine="native") as loader:
        before = batches(loader)
        assert loader.stats()["loaded"] == 0
        monkeypatch.setenv("FASTLOAD_MAX_PIXELS", "100")
        assert all(map(torch.equal, before[0], batches(loader)[0]))
        assert loader.stats()["loaded"] == len(dataset)


TV_STEPS: dict[str, list[Any]] = {
    "ToImage": [v2.ToImage(), v2.CenterCrop(60)],
    "floats": [
        v2.CenterCrop(60),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5], [0.5]),
    ],
    "PILToTensor": [v2.CenterCrop(60), v2.PILToTensor()],
    "ToPureTensor": [v2.ToImage(), v2.CenterCrop(60), v2.ToPureTensor()],
    "tensors first": [v2.PILToTensor(), v2.CenterCrop(60), v2.ToImage()],
}


@pytest.mark.parametrize("steps", TV_STEPS)
@pytest.mark.parametrize(
    "options", [{"batch_size": None}, {"batch_size": 5, "collate_fn": list}, {"batch_size": 5}]
)
def test_images_are_tv_tensors_where_torchvisions_are(
    tmp_path: Path, steps: str, options: dict[str, Any]
) -> None:
    """The type of what native threads make is that of the dataset's own samples, one by one and in
    batches."""
    dataset = folder(tmp_path, transform=v2.Compose(TV_STEPS[steps]))
    for mine, other in zip(
        FastLoader(dataset, num_workers=2, engine="native", **options),
        DataLoader(dataset, **options),
        strict=True,
    ):
        pairs = zip(mine, other, strict=True) if options.get("collate_fn") else [(mine, other)]
        for (image, _), (theirs, _) in pairs:
            assert type(image) is type(theirs)
            assert image.dtype == theirs.dtype
            assert (image.as_subclass(torch.Tensor) - theirs.as_subclass(torch.Tensor)).abs().max() <= 1e-6
