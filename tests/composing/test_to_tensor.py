"""torchvision's to_tensor in one pass: its bits, strides, types and errors; in worker processes alone, and
never in place of other code."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional as F

from fastload import FastLoader
from fastload.composing import to_tensor
from fastload.lazy.opening import opened_lazily

OWN: Callable[..., Any] = F.to_tensor


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """The function is exchanged, as in a worker."""
    to_tensor.exchange()
    yield
    F.to_tensor = OWN


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.dtype == two.dtype and one.stride() == two.stride() and torch.equal(one, two)


def test_every_value_and_shape() -> None:
    """All bytes, both modes, and sizes of one row and one column."""
    for size in ((256, 3), (1, 7), (7, 1), (1, 1), (31, 257)):
        for channels in (1, 3):
            pixels = np.resize(np.arange(256, dtype=np.uint8), (size[1], size[0], channels))
            image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
            assert same(F.to_tensor(image), OWN(image))


def test_lazy_images_are_read_straight() -> None:
    """Of a lazy image no Pillow image is made."""
    file = io.BytesIO()
    Image.effect_noise((61, 47), 80).convert("RGB").save(file, "JPEG")
    with opened_lazily("exact"):
        image = Image.open(io.BytesIO(file.getvalue())).crop((3, 4, 40, 30))
        made = F.to_tensor(image)
        assert type(image) is not Image.Image
    assert same(made, OWN(Image.open(io.BytesIO(file.getvalue())).crop((3, 4, 40, 30))))


class Mine(Image.Image):
    """A program's own class of images."""


def mine() -> Image.Image:
    image = Mine()
    image.__dict__.update(Image.new("RGB", (4, 3), (1, 2, 3)).__dict__)
    return image


OTHERS: dict[str, Callable[[], Any]] = {
    "an array": lambda: np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "floats": lambda: np.ones((2, 3)),
    "RGBA": lambda: Image.new("RGBA", (4, 3), (1, 2, 3, 4)),
    "bits": lambda: Image.new("1", (4, 3), 1),
    "integers": lambda: Image.new("I", (4, 3), 70_000),
    "a class": mine,
    "no image": lambda: "x",
    "four dimensions": lambda: np.zeros((1, 2, 3, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_everything_else_is_torchvisions(name: str) -> None:
    """Arrays, other modes and classes, and errors."""

    def outcome(function: Callable[..., Any]) -> Any:
        try:
            made = function(OTHERS[name]())
        except Exception as error:
            return type(error), str(error)
        return made.dtype, made.stride(), made.tolist()

    assert outcome(F.to_tensor) == outcome(OWN)


def test_another_default_type() -> None:
    """The type of floats is torch's default."""
    image = Image.new("RGB", (4, 3), (1, 2, 3))
    torch.set_default_dtype(torch.float64)
    try:
        assert same(F.to_tensor(image), OWN(image))
        assert F.to_tensor(image).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


class Watching(TorchDispatchMode):
    """Notes each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_operator() -> None:
    """A program's mode sees torchvision's own operators."""
    image = Image.new("RGB", (4, 3), (1, 2, 3))
    with Watching() as ours:
        F.to_tensor(image)
    with Watching() as plain:
        OWN(image)
    assert ours.seen == plain.seen
    assert ours.seen


def test_a_program_s_own_function_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program puts in the place of a function that to_tensor calls has its say."""
    monkeypatch.setattr(F, "_is_numpy", lambda image: True)
    with pytest.raises(Exception, match=r"ndim|dimension"):
        F.to_tensor(Image.new("RGB", (4, 3)))


class Tensors(Dataset[Any]):
    """The function that stands in the module, and a tensor."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        image = Image.new("RGB", (4, 3), (index, 2, 3))
        return transforms.ToTensor()(image), F.to_tensor.__code__.co_filename == to_tensor.__file__


def test_in_workers_alone() -> None:
    """Worker processes have it, unless images are not to be lazy."""
    F.to_tensor = OWN
    try:
        for lazy in ("exact", False):
            with FastLoader(Tensors(), batch_size=4, num_workers=1, lazy=lazy) as loader:
                ((images, exchanged),) = loader
            assert exchanged.all().item() is (lazy == "exact")
            assert same(images[1], OWN(Image.new("RGB", (4, 3), (1, 2, 3))))
        assert F.to_tensor is OWN
    finally:
        to_tensor.exchange()
