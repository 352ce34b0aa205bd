"""Lists of torchvision's transforms through PackedDataset against torchvision's own Compose on the decoded
Pillow image."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import TransformError
from fastload.transforms.compiler import compile_plan
from fastload.transforms.library import LIBRARY

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
pil_to_tensor = pytest.importorskip("torchvision.transforms.functional").pil_to_tensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BOTH = pytest.mark.parametrize("v", [v1, v2], ids=["v1", "v2"])
pytestmark = pytest.mark.filterwarnings("ignore:The transform `ToTensor", "ignore:Anti-alias option")


def original(packed: Path, index: int) -> Image.Image:
    """Sample index, decoded whole."""
    return Image.fromarray(PackedDataset(packed)[index][0].permute(1, 2, 0).numpy())


def tensor(image: Any) -> torch.Tensor:
    """A result as the tensor that a list of native steps ends in."""
    return pil_to_tensor(image) if isinstance(image, Image.Image) else image.as_subclass(torch.Tensor)


def steps_apart(mine: torch.Tensor, theirs: torch.Tensor, std: float = 1.0) -> float:
    """The largest difference, in steps of a byte; floats are in 0..1, or normalised, unless they are bytes
    that were cast."""
    assert mine.shape == theirs.shape
    assert mine.dtype == theirs.dtype
    difference = float((mine.double() - theirs.double()).abs().max())
    cast = not mine.is_floating_point() or float(theirs.abs().max()) > 16
    return difference if cast else difference * 255 * std


def twice(image: Any) -> Any:
    """A step that nobody knows."""
    return image


# ---- lists that are native as a whole


def native_lists(v: Any) -> dict[str, tuple[list[Any], float]]:
    """Lists without chance, and how many steps of a byte they may be off: only resampling rounds
    otherwise."""
    floats = [v.ToTensor(), v.Normalize(MEAN, STD)]
    bicubic = v1.InterpolationMode.BICUBIC
    lists: dict[str, tuple[list[Any], float]] = {
        "nothing": ([], 0),
        "evaluation": ([v.Resize(64), v.CenterCrop(56), *floats], 1),
        "pair": ([v.Resize((40, 90)), v.ToTensor()], 1),
        "capped": ([v.Resize(60, max_size=70)], 1),
        "bicubic": ([v.Resize(48, interpolation=bicubic), v.PILToTensor()], 1),
        "no antialias, of Pillow": ([v.Resize(48, antialias=False)], 1),
        "bytes, resized": ([v.PILToTensor(), v.Resize(50, antialias=True)], 1),
        "bytes, resized, not antialiased": ([v.PILToTensor(), v.Resize((61, 55), antialias=False)], 1),
        "bytes, resized, bicubic": (
            [v.PILToTensor(), v.Resize(77, interpolation=bicubic, antialias=True)],
            1,
        ),
        "larger than the image": ([v.CenterCrop((300, 500)), v.ToTensor()], 0),
        "flips": ([v.RandomHorizontalFlip(1.0), v.RandomVerticalFlip(1.0), v.PILToTensor()], 0),
        "late": (
            [v.ToTensor(), v.CenterCrop((60, 400)), v.RandomHorizontalFlip(1.0), v.Normalize(MEAN, STD)],
            0,
        ),
        "later": ([v.CenterCrop(80), *floats, v.CenterCrop(48), v.RandomVerticalFlip(1.0)], 0),
        "converted": ([v.PILToTensor(), v.ConvertImageDtype(torch.float32), v.Normalize(MEAN, STD)], 0),
        "one mean": ([v.ToTensor(), v.Normalize((0.5,), (0.25,))], 0),
        "nested": ([v.Compose([v.Resize(40), v.Compose([v.CenterCrop(33)])]), [v.ToTensor()]], 1),
    }
    if v is v2:
        scaled = v.ToDtype(torch.float32, scale=True)
        lists |= {
            "documented": (
                [
                    v.ToImage(),
                    v.ToDtype(torch.uint8, scale=True),
                    v.Resize(64),
                    scaled,
                    v.Normalize(MEAN, STD),
                ],
                1,
            ),
            "scaled": ([v.ToImage(), scaled, v.Normalize(MEAN, STD)], 0),
            "repeated": ([v.PILToTensor(), v.ToTensor(), scaled, scaled, v.ToPureTensor()], 0),
            "dtype of Pillow": (
                [scaled, v.ConvertImageDtype(torch.float32), v.RGB(), v.Identity(), v.PILToTensor()],
                0,
            ),
        }
    return lists


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # v2.ToTensor is deprecated
    NATIVE = [(v, name) for v in (v1, v2) for name in native_lists(v)]


@pytest.mark.parametrize(("v", "name"), NATIVE)
def test_lists_without_chance_are_native_and_torchvisions(packed: Path, v: Any, name: str) -> None:
    """Every step is native; the result is Compose's, bit for bit where nothing is resampled."""
    steps, apart = native_lists(v)[name]
    dataset = PackedDataset(
        packed, transform=v.Compose(steps) if name != "nothing" and name != "nested" else steps
    )
    assert dataset.plan.native
    chain = [step for part in steps for step in (part if isinstance(part, list) else [part])]
    for index in range(0, 50, 9):
        expected: Any = original(packed, index)
        for step in chain:
            expected = step(expected)
        mine, theirs = dataset[index][0], tensor(expected)
        if apart:
            assert steps_apart(mine, theirs, min(STD)) <= 1.001, index
        else:
            assert torch.equal(mine, theirs), index


@BOTH
def test_random_ones_are_the_native_specs_of_the_same_parameters(v: Any) -> None:
    """The compiled program draws what fastload's own specs with these parameters draw, at these places in
    the list."""
    bicubic = v1.InterpolationMode.BICUBIC
    pairs = [
        (
            v.RandomResizedCrop((20, 30), (0.2, 0.9), (0.5, 1.5), interpolation=bicubic),
            T.RandomResizedCrop((20, 30), (0.2, 0.9), (0.5, 1.5), "bicubic", dct_scale=False),
        ),
        (v.RandomHorizontalFlip(0.3), T.RandomHorizontalFlip(0.3)),
        (v.RandomVerticalFlip(0.7), T.RandomVerticalFlip(0.7)),
        (
            v.RandomCrop((24, 28), padding=(1, 2, 9, 4), pad_if_needed=True, fill=(7, 8, 9)),
            T.RandomCrop((24, 28), (1, 2, 9, 4), True, (7, 8, 9)),
        ),
    ]
    theirs, ours = compile_plan(v.Compose([a for a, _ in pairs])), compile_plan([b for _, b in pairs])
    assert theirs.native
    assert theirs.random
    assert theirs.fixed_size == ours.fixed_size == (24, 28)
    for index in range(300):
        assert theirs.program.resolve(90, 70, 3, 1, index) == ours.program.resolve(90, 70, 3, 1, index)


@BOTH
@pytest.mark.parametrize("padding", [None, 3, [2, 5], [1, 2, 3, 4]])
def test_a_padded_crop_of_the_whole_is_torchvisions(packed_same_size: Path, v: Any, padding: Any) -> None:
    """RandomCrop to exactly the padded size leaves nothing to chance: the sides and the fill are
    torchvision's (whose v2 reorders them)."""
    left, top, right, bottom = (
        {None: (0, 0, 0, 0), 3: (3, 3, 3, 3)}[padding] if not isinstance(padding, list) else (padding * 2)[:4]
    )
    crop = v.RandomCrop((60 + top + bottom, 80 + left + right), padding=padding, fill=(9, 60, 200))
    dataset = PackedDataset(packed_same_size, transform=crop)
    assert dataset.plan.native
    assert torch.equal(dataset[3][0], pil_to_tensor(crop(original(packed_same_size, 3))))


@BOTH
def test_mixed_with_fastloads_own(packed: Path, v: Any) -> None:
    """fastload's specs and torchvision's conversions make one native list; fastload's may then shrink in
    the decoder."""
    mixed = PackedDataset(
        packed,
        transform=[T.RandomResizedCrop(32), v.RandomHorizontalFlip(), v.ToTensor(), v.Normalize(MEAN, STD)],
        seed=1,
    )
    ours = PackedDataset(
        packed,
        transform=[T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToFloat(), T.Normalize(MEAN, STD)],
        seed=1,
    )
    assert mixed.plan.native
    assert all(torch.equal(mixed[i][0], ours[i][0]) for i in range(9))


@BOTH
def test_loader_takes_a_compose(packed: Path, v: Any) -> None:
    """FastLoader(path, transform=Compose): native threads, and the dataset's own samples."""
    compose = v.Compose(
        [v.RandomResizedCrop(24), v.RandomHorizontalFlip(), v.ToTensor(), v.Normalize(MEAN, STD)]
    )
    dataset = PackedDataset(packed, transform=compose, seed=4)
    with FastLoader(packed, batch_size=10, transform=compose, seed=4, num_workers=2) as loader:
        images = torch.cat([images for images, _ in loader])
        assert loader.stats()["engine"] == "threads"
    assert images.dtype == torch.float32
    assert all(torch.equal(images[i], dataset[i][0]) for i in range(50))


# ---- lists that need Python


@BOTH
def test_python_begins_with_what_torchvision_holds(packed: Path, v: Any) -> None:
    """A Pillow image before the conversion to a tensor, bytes or floats after it; fastload's own lists go
    on with the tensor."""
    seen: list[Any] = []

    def look(image: Any) -> Any:
        seen.append(image)
        return image

    lambd = v.Lambda(look)
    cases: list[tuple[Any, Any]] = [
        ([v.CenterCrop(20), lambd], Image.Image),
        ([lambd, v.ToTensor()], Image.Image),
        ([T.CenterCrop(20), lambd, v.PILToTensor()], Image.Image),
        ([look, v.PILToTensor()], Image.Image),
        ([T.CenterCrop(20), look], torch.uint8),
        (look, torch.uint8),
        ([v.PILToTensor(), lambd], torch.uint8),
        ([v.ToTensor(), lambd, v.Normalize(MEAN, STD)], torch.float32),
        ([T.ToFloat(), look], torch.float32),
    ]
    for transform, expected in cases:
        seen.clear()
        PackedDataset(packed, transform=transform)[0]
        assert len(seen) == 1
        if expected is Image.Image:
            assert isinstance(seen[0], Image.Image)
            assert seen[0].mode == "RGB"
        else:
            assert seen[0].dtype == expected
            assert seen[0].shape[0] == 3


def pool(v: Any) -> list[Any]:
    """Steps without chance, some native, some not, some only at some places."""
    made = [
        v.Resize(40),
        v.Resize((30, 44), antialias=True),
        v.Resize(30, interpolation=v1.InterpolationMode.NEAREST),
        v.CenterCrop(35),
        v.CenterCrop((20, 260)),
        v.RandomHorizontalFlip(1.0),
        v.RandomVerticalFlip(1.0),
        v.RandomHorizontalFlip(0.0),
        v.Pad(3),
        v.RandomInvert(1.0),
        v.Lambda(twice),
        twice,
        v.Compose([v.CenterCrop(50), v.RandomVerticalFlip(1.0)]),
        v.RandomApply([v.CenterCrop(9)], p=0.0),
        v.ToTensor(),
        v.PILToTensor(),
        v.ConvertImageDtype(torch.float32),
        v.Normalize((0.4, 0.5, 0.6), (0.5, 0.5, 0.5)),
    ]
    if v is v2:
        made += [
            v.ToImage(),
            v.ToDtype(torch.float32, scale=True),
            v.ToDtype(torch.uint8, scale=True),
            v.ToDtype(torch.float32),
            v.RGB(),
        ]
    return made


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.sampled_from([v1, v2]), st.lists(st.integers(0, 99), min_size=1, max_size=6), st.integers(0, 49))
def test_any_list_is_torchvisions_compose(packed: Path, v: Any, picks: list[int], index: int) -> None:
    """Whatever part is native and whatever is not, the result is Compose's; where Compose fails, so does
    the sample."""
    choices = pool(v)
    steps = [choices[pick % len(choices)] for pick in picks]
    resizes = sum(type(step).__name__ == "Resize" for step in steps)
    # One torchvision step at least, so that Python begins with Pillow.
    compose = v.Compose([v.Lambda(twice), *steps])
    try:
        expected = compose(original(packed, index))
    except (TypeError, ValueError, RuntimeError) as error:
        with pytest.raises(type(error)):
            PackedDataset(packed, transform=[*steps, v.Lambda(twice)])[index]
        return
    mine = PackedDataset(packed, transform=[*steps, v.Lambda(twice)])[index][0]
    assert isinstance(mine, Image.Image) == isinstance(expected, Image.Image)
    std = 0.5 if any(type(step).__name__ == "Normalize" for step in steps) else 1.0
    # a resize of floats, or of what was resized, goes on from what is off by one
    assert steps_apart(tensor(mine), tensor(expected), std) <= 1.001 * resizes + 1e-4


# ---- what is not recognised


class Mirrored(v2.RandomHorizontalFlip):  # type: ignore[misc]
    """A subclass, which may do anything."""


class OldMirrored(v1.RandomHorizontalFlip):  # type: ignore[misc]
    """The same of v1."""


def tampered(v: Any) -> dict[str, Any]:
    """Objects that look like torchvision's and may do something else."""
    attribute = v.CenterCrop(8)
    attribute.mode = "other"
    replaced = v.CenterCrop(8)
    replaced.forward = twice
    hooked = v.CenterCrop(8)
    hooked.register_forward_hook(lambda *_: None)
    missing = v.RandomHorizontalFlip(0.5)
    del missing.p
    return {"attribute": attribute, "forward": replaced, "hook": hooked, "missing": missing}


@BOTH
def test_what_is_not_exactly_torchvisions_is_python(v: Any) -> None:
    """Subclasses, other attributes, hooks, replaced methods, containers with a meaning of their own, modes
    that are not native."""
    nearest = v1.InterpolationMode.NEAREST
    strange = [
        *tampered(v).values(),
        Mirrored(0.5),
        OldMirrored(0.5),
        v.RandomApply([v.CenterCrop(8)], p=0.5),
        v.RandomChoice([v.CenterCrop(8)]),
        v.RandomOrder([v.CenterCrop(8)]),
        v.Resize(8, interpolation=nearest),
        v.RandomResizedCrop(8, interpolation=nearest),
        v.RandomCrop(8, padding=1, padding_mode="reflect"),
        v.Pad(2),
        v.Grayscale(3),
        torch.nn.Identity(),
    ]
    for step in strange:
        plan = compile_plan([step])
        assert plan.python == (step,), step
        assert plan.stages[0].where == "python"


@BOTH
@pytest.mark.parametrize(
    "build",
    [
        lambda v: [v.Resize(9), v.Resize(8)],
        lambda v: [v.RandomCrop(9, padding=1, fill=3), v.CenterCrop(8)],
        lambda v: [v.CenterCrop(9), v.RandomCrop(9, padding=1, fill=3)],
        lambda v: [v.ToTensor(), v.Resize(8)],
        lambda v: [v.ToTensor(), v.RandomCrop(8, padding=1, fill=1)],
        lambda v: [T.Normalize(MEAN, STD), v.RandomCrop(8, padding=1)],
        lambda v: [T.Normalize(MEAN, STD), v.CenterCrop(8)],
        lambda v: [v.ToTensor(), v.ConvertImageDtype(torch.float16)],
        lambda v: [v.PILToTensor(), v.Normalize(MEAN, STD)],
        lambda v: [T.Normalize(MEAN, STD), v.Normalize(MEAN, STD)],
    ],
)
def test_a_place_where_the_native_part_means_something_else(v: Any, build: Any) -> None:
    """The first step is native, the second is not at this place, and explain() can say why."""
    steps = build(v)
    plan = compile_plan(steps)
    assert plan.python == (steps[1],)
    assert type(steps[1]).__name__ in plan.stages[1].why
    assert "(" in plan.stages[1].why


def test_a_second_colour_of_padding_is_refused() -> None:
    """fastload's own list that the engine could only pad in one colour is refused, not padded in the wrong
    one."""
    with pytest.raises(TransformError, match="use one fill"):
        compile_plan([T.RandomCrop(20, padding=2, fill=9), T.RandomCrop(30, padding=9, fill=4)])
    assert compile_plan([T.RandomCrop(20, padding=2, fill=9), T.RandomCrop(10)]).native


@BOTH
def test_every_known_class_is_made_by_torchvision(v: Any) -> None:
    """Each class in the planner's table exists, and is recognised as this torchvision makes it."""
    from fastload.transforms.steps import known

    arguments: dict[str, tuple[Any, ...]] = {
        "ToDtype": (torch.float32,),
        "ConvertImageDtype": (torch.float32,),
        "Normalize": (MEAN, STD),
        "GaussianBlur": (3,),
        "RandomSolarize": (128,),
        "RandomPosterize": (4,),
        "RandomAdjustSharpness": (2.0,),
        "RandomRotation": (10,),
        "RandomAffine": (10,),
        "ScaleJitter": ((16, 16),),
        "RandomResize": (16, 32),
        "ConvertBoundingBoxFormat": ("XYXY",),
        **dict.fromkeys(
            (
                "Resize",
                "RandomResizedCrop",
                "CenterCrop",
                "FiveCrop",
                "TenCrop",
                "RandomCrop",
                "RandomShortestSize",
            ),
            (16,),
        ),
    }
    found = [name for name in LIBRARY if hasattr(v, name)]
    assert len(found) >= 24
    for name in found:
        step = known(getattr(v, name)(*arguments.get(name, ())))
        assert step is not None, name
        assert (step.name, step.v2) == (name, v is v2)


@BOTH
def test_pickling(packed: Path, v: Any) -> None:
    """A dataset with a Compose travels, native and with Python, and gives the same samples."""
    for steps in ([v.Resize(30), v.ToTensor()], [v.Resize(30), v.Lambda(twice), v.ToTensor()]):
        dataset = PackedDataset(packed, transform=v.Compose(steps))
        again = pickle.loads(pickle.dumps(dataset))
        assert again.plan.native == dataset.plan.native
        assert torch.equal(again[7][0], dataset[7][0])
