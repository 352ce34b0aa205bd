"""torchvision's v2.Compose of samples with a lazy image: torchvision's values, containers, exceptions and
random numbers; in worker processes alone, and never in place of other code."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from compositions import functions_exchanged, opened, shown, three_times
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lazy_helpers import both, counted, files, lazily
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from fastload import FastLoader
from fastload.composing import compose_v2

OWN = v2.Compose.forward


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """Compose is exchanged, as in a worker."""
    compose_v2.exchange()
    with functions_exchanged():
        yield
    v2.Compose.forward = OWN  # type: ignore[method-assign]


class Shift(v2.Transform):
    """A program's own transform, of images and boxes."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"by": int(torch.randint(5, ())), "of": len(flat_inputs)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self._call_kernel(F.affine, inpt, 0.0, [params["by"], params["of"]], 1.0, [0.0, 0.0])


class Called(v2.RandomHorizontalFlip):
    """A subclass that is called in another way."""

    def __call__(self, *inputs: Any) -> Any:
        return super().__call__(*super().__call__(*inputs)) if len(inputs) > 1 else inputs[0]


class Twice(v2.RandomHorizontalFlip):
    """A subclass with a forward() of its own."""

    def forward(self, *inputs: Any) -> Any:
        return super().forward(super().forward(*inputs))


def listed(*inputs: Any) -> Any:
    """A program's own function, whose result is another container."""
    return list(inputs) if len(inputs) > 1 else inputs[0]


MEAN = st.sampled_from([[0.485, 0.456, 0.406], (0.5,), [1, 2, 3], torch.tensor([0.1, 0.2, 0.3])])
STD = st.sampled_from([[0.229, 0.224, 0.225], (0.5, 0.1, 0.2), [0.0, 1.0, 1.0]])
probabilities = st.sampled_from([0.0, 0.5, 1.0])
sizes = st.integers(1, 70)
known = st.one_of(
    st.builds(v2.RandomHorizontalFlip, probabilities),
    st.builds(v2.RandomVerticalFlip, probabilities),
    st.builds(
        v2.Resize, sizes | st.tuples(sizes, sizes).map(list), st.sampled_from([*v2.InterpolationMode, 1])
    ),
    st.builds(
        v2.RandomResizedCrop, sizes, interpolation=st.sampled_from(["bilinear", "bicubic", "nearest-exact"])
    ),
    st.builds(v2.CenterCrop, sizes),
    st.builds(v2.RandomCrop, st.integers(20, 50), pad_if_needed=st.booleans()),
    st.builds(v2.ColorJitter, st.just(0.4), st.just(0.4), st.just(0.4), st.just(0.1)),
    st.builds(v2.RandomPhotometricDistort, p=st.just(0.5)),
    st.builds(v2.RandomZoomOut, st.just(0)),
    st.builds(v2.RandomIoUCrop),
    st.builds(v2.RandomGrayscale, probabilities),
    st.builds(v2.SanitizeBoundingBoxes, min_size=st.just(1)),
    st.sampled_from([v2.ToImage(), v2.PILToTensor(), v2.Identity(), Shift(), Twice(), Called(), listed]),
    st.builds(v2.ToDtype, st.just(torch.float32), st.booleans()),
    st.builds(v2.FiveCrop, st.just(20)),
)


def applied(some: Any, probability: float) -> Any:
    return v2.RandomApply(some, probability)


nested = st.recursive(
    known,
    lambda some: st.one_of(
        st.builds(applied, st.lists(some, min_size=1, max_size=3), probabilities),
        st.builds(v2.RandomOrder, st.lists(some, min_size=1, max_size=3)),
        st.builds(v2.Compose, st.lists(some, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)
dtypes = st.one_of(
    st.just(v2.ToDtype(torch.float32, scale=True)),
    st.just(v2.ToDtype(torch.float32, scale=True)),
    st.just(v2.ToDtype(torch.float32)),
    st.just(v2.ToDtype(torch.float64, scale=True)),
    st.just(v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)),
)
tails = st.one_of(
    st.just([]),
    st.tuples(st.sampled_from([v2.PILToTensor(), v2.ToImage()]), dtypes).map(list),
    st.tuples(
        st.sampled_from([v2.PILToTensor(), v2.ToImage()]), dtypes, st.builds(v2.Normalize, MEAN, STD)
    ).map(list),
    st.tuples(
        st.just(v2.ToImage()), dtypes, st.builds(v2.Normalize, MEAN, STD), st.just(v2.ToPureTensor())
    ).map(list),
)


def boxes(image: Image.Image) -> tv_tensors.BoundingBoxes:
    corners = torch.tensor([[1.0, 2.0, 30.0, 40.0], [5.0, 5.0, 20.0, 25.0]])
    return tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=(image.height, image.width))  # type: ignore[call-arg]


SAMPLES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "alone": lambda image: (image,),
    "label": lambda image: (image, 3),
    "boxes": lambda image: (image, {"boxes": boxes(image), "labels": torch.arange(2)}),
    "one tuple": lambda image: ((image, {"boxes": boxes(image), "labels": torch.arange(2)}),),
    "a tensor before": lambda image: ({"area": torch.arange(6.0).view(1, 2, 3), "image": image},),
    "mask": lambda image: (image, tv_tensors.Mask(torch.ones(1, image.height, image.width))),
    "two images": lambda image: (image, image.copy()),
    "another Image": lambda image: (image, tv_tensors.Image(torch.ones(3, image.height, image.width))),
    "array": lambda image: (image, np.ones((image.height, image.width, 3), np.uint8)),
}


def program(steps: list[Any], sample: str, name: str) -> Callable[[], Any]:
    """A program that makes something of a sample by steps; and whether that is the sample, or has its
    image."""
    compose = v2.Compose(steps)

    def make() -> Any:
        inputs = SAMPLES[sample](Image.open(io.BytesIO(files()[name])).convert("RGB"))
        result = compose(*inputs)
        first = result[0] if isinstance(result, tuple | list) else result
        return shown(result), result is inputs[0], first is inputs[0]

    return three_times(make)


@given(
    st.lists(nested, max_size=5),
    tails,
    st.sampled_from(sorted(SAMPLES)),
    st.sampled_from(["420", "444", "grey", "tiny", "damaged", "progressive"]),
)
@example([v2.FiveCrop(20), v2.RandomHorizontalFlip(1.0)], [], "label", "420")
@example([Called(1.0)], [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)], "label", "420")
@settings(max_examples=300, print_blob=True)
def test_compositions(steps: list[Any], tail: list[Any], sample: str, name: str) -> None:
    """Values, types, strides, containers, exceptions and generators are those of torchvision's Compose."""
    plain, lazy = both(program([*steps, *tail] or [v2.Identity()], sample, name))
    assert lazy == plain


REFERENCE = (
    v2.RandomResizedCrop(32, antialias=True),
    v2.RandomHorizontalFlip(),
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
)


def test_the_image_becomes_floats_at_once() -> None:
    """No image is made between the file and the tensor, in a sample with boxes, too."""
    for inputs in (SAMPLES["alone"], SAMPLES["boxes"], SAMPLES["one tuple"]):
        compose = v2.Compose([*REFERENCE[1:]])
        told = counted(lambda compose=compose, inputs=inputs: compose(*inputs(opened())))
        assert not told.whole
        assert told.straight == told.composed["ToImage"] == 1


DRAWS = (
    v2.RandomResizedCrop(24),
    v2.Resize(30),
    v2.Resize([30, 40], interpolation=v2.InterpolationMode.BICUBIC),
    v2.CenterCrop(20),
    v2.RandomCrop(20),
    v2.RandomHorizontalFlip(1.0),
    v2.RandomVerticalFlip(1.0),
    v2.RandomGrayscale(1.0),
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
)


@pytest.mark.parametrize("step", DRAWS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("sample", ["alone", "boxes", "mask"])
def test_a_draw_is_a_step(step: v2.Transform, sample: str) -> None:
    """What torchvision's own make_params has drawn becomes a step of the image's recipe, in a sample with
    boxes and masks, too, and no image is made between two of them."""
    compose = v2.Compose([step, v2.RandomHorizontalFlip(1.0), *REFERENCE[2:]])
    told = counted(lambda: compose(*SAMPLES[sample](opened())))
    flips = isinstance(step, v2.RandomHorizontalFlip)
    assert told.composed == {type(step).__name__: 1 + flips, "RandomHorizontalFlip": 1 + flips, "ToImage": 1}
    assert not told.whole
    assert not told.ended


@pytest.mark.filterwarnings("ignore:Anti-alias option")
@pytest.mark.parametrize(
    "step",
    [
        v2.RandomCrop(50, padding=20),
        v2.Resize(30, max_size=32),
        v2.CenterCrop(500),
        v2.RandomResizedCrop(20, antialias=False),
    ],
    ids=["padding", "most", "larger", "not antialiased"],
)
def test_torchvision_transforms_the_rest(step: v2.Transform) -> None:
    """Where a step is not plainly right, torchvision's own transform() has the same draws and an image, which
    stays a recipe."""
    compose = v2.Compose([step])
    told = counted(lambda: compose(opened()))
    assert (told.composed, told.ended, told.whole) == ({type(step).__name__: 1}, {}, {})


def test_the_end_of_a_recipe_is_told() -> None:
    """explain() gets the transforms that left an image a recipe, whatever they are, and the one that did
    not."""
    hooked = v2.CenterCrop(20)
    hooked.register_forward_hook(lambda module, given, result: None)
    invert = v2.RandomInvert(1.0)
    elastic = v2.ElasticTransform(sigma=1.0)
    compose = v2.Compose([v2.Resize(30), Shift(), Called(), invert, hooked, elastic])
    told = counted(lambda: compose(opened()))
    assert told.composed == dict.fromkeys(("Resize", "Shift", "Called", "RandomInvert", "CenterCrop"), 1)
    assert told.ended == {"ElasticTransform (an image of other pixels)": 1}


def test_a_sample_that_no_step_changes_is_itself() -> None:
    with lazily():
        sample = SAMPLES["boxes"](opened())
        whole = v2.Compose([v2.RandomHorizontalFlip(0.0), v2.RandomApply([v2.Grayscale()], p=0.0)])(*sample)
        assert whole[1] is sample[1]


def test_what_a_program_changes_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method or hook of one object, a replaced function, a subclass of Compose."""

    def made(compose: Any) -> tuple[Any, int]:
        told: list[Any] = []
        counts = counted(lambda: told.append(shown(compose(opened()))))
        return told[0], counts.composed["ToImage"]

    compose = v2.Compose([v2.Resize([20, 20]), *REFERENCE[2:]])
    wanted, one = made(compose)
    assert one == 1
    to_dtype = compose.transforms[2]
    to_dtype.transform = lambda inpt, params: F.to_dtype(inpt, torch.float32, scale=True)  # type: ignore[method-assign]
    assert made(compose) == (wanted, 0)
    del to_dtype.transform
    handle = to_dtype.register_forward_hook(lambda module, given, result: None)
    assert made(compose) == (wanted, 0)
    handle.remove()
    assert made(compose) == (wanted, 1)

    class Mine(v2.Compose):
        pass

    assert made(Mine(compose.transforms)) == (wanted, 0)
    own = v2.Normalize.transform
    monkeypatch.setattr(v2.Normalize, "transform", lambda self, inpt, params: own(self, inpt, params))
    assert made(compose) == (wanted, 0)


class Detections(torch.utils.data.Dataset[Any]):
    """Images with boxes, as torchvision's detection reference has them."""

    def __init__(self) -> None:
        self.steps = v2.Compose([v2.RandomHorizontalFlip(0.5), *REFERENCE[2:]])

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.steps(*SAMPLES["boxes"](opened()))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_in_workers(context: str) -> None:
    """Batches as with lazy=False; explain() names the step that ended in floats."""
    found = []
    for lazy in ("exact", False):
        torch.manual_seed(7)
        with FastLoader(
            Detections(),
            batch_size=3,
            num_workers=2,
            lazy=lazy,
            multiprocessing_context=context,
            collate_fn=list,
        ) as loader:
            found.append(
                [[(image.clone(), target["boxes"].clone()) for image, target in batch] for batch in loader]
            )
            lines = loader.explain(all=True)
        if lazy:
            assert "one recipe through RandomHorizontalFlip, ToImage" in lines
    for one, two in zip(*found, strict=True):
        assert all(
            torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
        )
