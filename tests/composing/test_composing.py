"""torchvision's Compose of lazy images, run on one recipe: torchvision's tensors, images, exceptions and
random numbers; in worker processes alone, and never in place of other code."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from compositions import functions_exchanged, opened, shown, three_times
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import both, counted, files, is_lazy, lazily
from PIL import Image, ImageFilter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset
from torchvision import transforms as V
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from fastload import FastLoader
from fastload.composing import compose

OWN = V.Compose.__call__


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """Compose is exchanged, as in a worker."""
    compose.exchange()
    with functions_exchanged():
        yield
    V.Compose.__call__ = OWN


class Blur:
    """A program's own step."""

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


def twice(image: Any) -> Any:
    """A program's own step that makes a pixel image."""
    image.putpixel((0, 0), 3 if image.mode == "L" else (1, 2, 3))
    return image


class Flip(V.RandomHorizontalFlip):
    """A subclass with code of its own."""

    def forward(self, img: Any) -> Any:
        return F.vflip(super().forward(img))


probabilities = st.sampled_from([0, 0.5, 1, 0.3])
sizes = st.integers(1, 70)
pairs = st.tuples(sizes, sizes)
modes = st.sampled_from(list(InterpolationMode))
ranges = st.sampled_from([0, 0.4, (0.2, 1.9), 1.0])
images = st.one_of(
    st.builds(
        V.RandomResizedCrop, sizes | pairs, st.sampled_from([(0.08, 1.0), (0.9, 1.0)]), interpolation=modes
    ),
    st.builds(V.Resize, sizes | pairs | st.tuples(sizes), modes, st.sampled_from([None, 80])),
    st.builds(V.Resize, sizes, antialias=st.sampled_from([True, None, False])),
    st.builds(V.CenterCrop, sizes | pairs | st.just(200)),
    st.builds(
        V.RandomCrop,
        sizes | pairs,
        st.sampled_from([None, None, 4]),
        st.booleans(),
        padding_mode=st.just("reflect"),
    ),
    st.builds(V.RandomHorizontalFlip, probabilities),
    st.builds(V.RandomVerticalFlip, probabilities),
    st.builds(V.RandomGrayscale, probabilities),
    st.builds(V.Grayscale, st.sampled_from([1, 3])),
    st.builds(V.ColorJitter, ranges, ranges, ranges, st.sampled_from([0, 0.1, (-0.5, 0.5)])),
    st.builds(V.RandomSolarize, st.just(128), probabilities),
    st.builds(V.RandomRotation, st.just(20)),
    st.builds(V.Pad, st.integers(0, 9)),
    st.builds(Flip, probabilities),
    st.just(Blur()),
    st.just(twice),
)


def applied(some: Any, probability: float) -> Any:
    return V.RandomApply(some, probability)


nested = st.recursive(
    images,
    lambda some: st.one_of(
        st.builds(applied, st.lists(some, max_size=3), probabilities),
        st.builds(V.RandomOrder, st.lists(some, max_size=3)),
        st.builds(V.RandomChoice, st.lists(some, min_size=1, max_size=3)),
        st.builds(V.Compose, st.lists(some, max_size=3)),
    ),
    max_leaves=6,
)
normalize = st.builds(
    V.Normalize,
    st.sampled_from([[0.485, 0.456, 0.406], (0.5,), [1, 2, 3], torch.tensor([0.1, 0.2, 0.3])]),
    st.sampled_from([[0.229, 0.224, 0.225], (0.5, 0.1, 0.2), [0.0, 1.0, 1.0]]),
    st.booleans(),
)
tails = st.one_of(
    st.just([]),
    st.just([V.ToTensor()]),
    normalize.map(lambda last: [V.ToTensor(), last]),
    st.just([V.PILToTensor()]),
    st.just([V.PILToTensor(), V.ConvertImageDtype(torch.float)]),
    st.just([V.PILToTensor(), V.ConvertImageDtype(torch.float64)]),
    normalize.map(
        lambda last: [V.PILToTensor(), V.ConvertImageDtype(torch.float), last, V.RandomErasing(0.5)]
    ),
)


def program(steps: list[Any], name: str, mode: str | None) -> Callable[[], Any]:
    """A program that makes something of a file by steps."""
    whole = V.Compose(steps)

    def make() -> Any:
        image: Any = Image.open(io.BytesIO(files()[name]))
        return shown(whole(image if mode is None else image.convert(mode)))

    return three_times(make)


@given(
    st.lists(nested, max_size=6),
    tails,
    st.sampled_from(["420", "444", "grey", "tiny", "damaged", "progressive", "truncated"]),
    st.sampled_from([None, "RGB"]),
)
@settings(max_examples=300, print_blob=True)
def test_compositions(steps: list[Any], tail: list[Any], name: str, mode: str | None) -> None:
    """Values, strides, warnings, exceptions and generators are those of torchvision's own Compose."""
    plain, lazy = both(program([*steps, *tail], name, mode))
    assert lazy == plain


REFERENCE = (
    V.RandomResizedCrop(32),
    V.RandomHorizontalFlip(),
    V.RandomApply([V.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
    V.RandomGrayscale(0.2),
    V.ToTensor(),
    V.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
)


def test_known_steps_are_one_recipe() -> None:
    """No image is made between the file and the tensor, and each step is counted."""
    told = counted(lambda: [V.Compose(REFERENCE)(opened()) for _ in range(20)])
    assert not told.whole
    assert not told.ended
    assert told.straight == 20
    assert told.composed["RandomResizedCrop"] == told.composed["ToTensor"] == 20
    assert 0 < told.composed["ColorJitter"] <= 20


def test_steps_without_a_tensor_give_an_image() -> None:
    """A lazy one; and the image itself where no step did anything."""
    with lazily():
        image = opened()
        assert is_lazy(V.Compose(REFERENCE[:4])(image))
        assert V.Compose([V.RandomHorizontalFlip(0), V.RandomApply([twice], p=0)])(image) is image


def test_what_a_program_changes_acts() -> None:
    """An attribute, a method or hook of one object, a hook of all, a replaced method, a subclass, a mode."""

    def made(compose: Any) -> tuple[Any, int]:
        torch.manual_seed(5)
        told: list[Any] = []
        counts = counted(lambda: told.append(shown(compose(opened()))))
        return told[0], counts.composed.total()

    flip = V.RandomHorizontalFlip(1.0)
    compose = V.Compose([V.Resize(20), flip, V.ToTensor()])
    flipped, three = made(compose)
    assert three == 3
    flip.p = 0.0
    straight, three = made(compose)
    assert straight != flipped
    assert three == 3
    flip.p = 1.0
    flip.forward = lambda image: image  # type: ignore[method-assign]
    assert made(compose) == (straight, 3)
    del flip.forward
    handle = flip.register_forward_hook(lambda module, given, result: given[0])
    assert made(compose) == (straight, 3)
    handle.remove()
    assert made(compose) == (flipped, 3)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, given, result: None)
    assert made(compose) == (flipped, 0)
    hook.remove()
    own = V.RandomHorizontalFlip.forward
    V.RandomHorizontalFlip.forward = lambda self, image: image  # type: ignore[method-assign]
    try:
        assert made(compose) == (straight, 0)
    finally:
        V.RandomHorizontalFlip.forward = own  # type: ignore[method-assign]

    class Mine(V.Compose):
        pass

    assert made(Mine(compose.transforms)) == (flipped, 0)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Watch():
        assert made(compose) == (flipped, 0)
    assert made(compose) == (flipped, 3)


class Noise:
    """A program's own step, with pixels."""

    def __call__(self, image: Image.Image) -> Image.Image:
        return Image.fromarray(np.asarray(image) ^ np.uint8(random.randrange(4)))


class Views(Dataset[Any]):
    """Two views of a file by anybody's wrapper."""

    def __init__(self) -> None:
        self.view = V.Compose([*REFERENCE[:4], Blur(), Noise(), *REFERENCE[4:]])

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        image = opened()
        return self.view(image), self.view(image)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_in_workers(context: str) -> None:
    """Batches as with lazy=False; explain() names the steps that left a recipe, and the one that did not."""
    found = []
    for lazy in ("exact", False):
        torch.manual_seed(7)
        with FastLoader(
            Views(), batch_size=6, num_workers=2, lazy=lazy, multiprocessing_context=context
        ) as loader:
            found.append([[view.clone() for view in batch] for batch in loader])
            lines = " ".join(loader.explain(all=True).split())
        if lazy:
            assert "one recipe through RandomResizedCrop, " in lines
            assert "Blur" in lines
            assert "no longer one after Noise (an image of other pixels) 48" in lines
    for one, two in zip(*found, strict=True):
        assert all(map(torch.equal, one, two))
