"""RandomErasing on native threads: torchvision's erase() at the boxes that fastload.augment draws for the
same op, in every form and layout of an image."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import native_epochs
import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from native_epochs import check_same_by_pillow, check_same_everywhere
from small_source import Numbered

from fastload import FastLoader, PackedDataset, pack
from fastload import augment as A
from fastload import transforms as T
from fastload.augment.philox import Draw, as_indices, words_of
from fastload.common.rng import OP_STREAM
from fastload.packing import Item
from fastload.store import Field

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
datasets = pytest.importorskip("torchvision.datasets")
F = pytest.importorskip("torchvision.transforms.functional")

pytestmark = pytest.mark.filterwarnings("ignore:The transform `ToTensor")
BOTH = pytest.mark.parametrize("v", [v1, v2], ids=["v1", "v2"])
SEED, EPOCH, WIDTH, HEIGHT = 78, 3, 61, 45
epoch_of = functools.partial(native_epochs.epoch_of, seed=SEED)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def drawn(number: int, words: int, index: int, epoch: int) -> Draw:
    """The words of one sample for op `number` of its loader."""
    return Draw(words_of(SEED, epoch, as_indices([index]), [(OP_STREAM + number, words)])[0])


def value_of(step: Any) -> torch.Tensor:
    """What torchvision's step writes, as its own code makes it."""
    values = step.value if isinstance(step.value, list | tuple) else [step.value]
    return torch.tensor([float(each) for each in values])[:, None, None]


def erased(image: torch.Tensor, step: Any, index: int, number: int = 0, epoch: int = 0) -> torch.Tensor:
    """The image after a step that is op `number`, by torchvision's own function."""
    spec = A.RandomErasing(step.p, tuple(step.scale), tuple(step.ratio))
    draw = drawn(number, spec.words, index, epoch)
    wanted = len(draw.chance(spec.p))
    draw.words(2)
    fits, ((top, left, bottom, right),) = spec.boxes(draw, *image.shape[-2:])
    if not wanted or not fits[0]:
        return image
    return F.erase(image, top, left, bottom - top, right - left, value_of(step))


def forms(v: Any) -> dict[str, list[Any]]:
    """The steps that make each form of a tensor."""
    floats = (
        [v.ToTensor()] if v is v1 else [v.PILToTensor(), v.ToImage(), v.ToDtype(torch.float32, scale=True)]
    )
    return {"uint8": [v.PILToTensor()], "float": floats, "normalized": [*floats, v.Normalize(MEAN, STD)]}


SHAPES: list[dict[str, Any]] = [
    {},
    {"p": 1.0, "scale": (0.02, 0.9), "ratio": (0.1, 9.0)},
    {"p": 0.7, "scale": [0.0, 0.0001]},
    {"p": 1.0, "scale": (0.2, 0.2), "ratio": (1.7, 1.7)},
    {"p": 1.0, "scale": (0.9, 1.0), "ratio": (0.5, 2.0)},
    {"p": 0.0},
]
VALUES: dict[str, list[Any]] = {
    "uint8": [0, 7, (1, 254.9, 250.2), True],
    "float": [0, 0.3, [0.1, -2.5, 9.0], (0.7,)],
    "normalized": [0, 1e6, (-2.1179, 1e-9, 3)],
}


@BOTH
@pytest.mark.parametrize("form", list(VALUES))
def test_pixels_are_torchvisions_at_the_boxes_of_augment(packed: Path, v: Any, form: str) -> None:
    """Each range of areas and ratios, and each value that torchvision takes there."""
    before = [v.Resize((HEIGHT, WIDTH)), *forms(v)[form]]
    plain = PackedDataset(packed, transform=before, seed=SEED)
    plain.set_epoch(EPOCH)
    bases = [plain[index][0] for index in range(len(plain))]
    for number, shape in enumerate(SHAPES):
        for value in VALUES[form][: None if number < 2 else 1]:
            step = v.RandomErasing(**shape, value=value)
            dataset = PackedDataset(packed, transform=[*before, step], seed=SEED)
            dataset.set_epoch(EPOCH)
            assert dataset.plan.native
            assert dataset.plan.stages[-1].where == "native"
            changed = 0
            for index, base in enumerate(bases):
                got, want = dataset[index][0], erased(base, step, index, epoch=EPOCH)
                assert type(got) is type(base)
                assert torch.equal(got, want), (step, index)
                changed += not torch.equal(got, base)
            least, most = [(15, 35), (45, 50), (0, 35), (50, 50), (0, 25), (0, 0)][number]
            assert least <= changed <= most, (step, changed)


def test_tensors_of_a_list_of_fastloads_are_erased_before_they_are_floats(packed: Path) -> None:
    """A list with a step of fastload's has tensors from the beginning; bytes are converted after."""
    step = v1.RandomErasing(1.0, value=(9, 99, 255))
    bytes_of = PackedDataset(packed, transform=[T.Resize((HEIGHT, WIDTH)), step], seed=SEED)
    plain = PackedDataset(packed, transform=[T.Resize((HEIGHT, WIDTH))], seed=SEED)
    floats = PackedDataset(packed, transform=[T.Resize((HEIGHT, WIDTH)), step, T.ToFloat()], seed=SEED)
    assert bytes_of.plan.native
    assert floats.plan.native
    for index in range(10):
        want = erased(plain[index][0], step, index)
        assert torch.equal(bytes_of[index][0], want)
        assert torch.equal(floats[index][0], want / torch.tensor(255.0))


HALVES = [
    (0.1, -2.3, 1.0 / 3.0),
    (65504.0, 65519.99, 65520.0),
    (-1e6, 1e6, -0.0),
    (2.0**-24, 2.0**-25, 1.5 * 2.0**-24),
    (2.0**-14 - 2.0**-26, 2.0**-14, -(2.0**-14) - 2.0**-25),
    (1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23),
    (1 + 2.0**-8, 1 + 3 * 2.0**-8, 2 - 2.0**-20),
    (1e-9, -1e-38, 1e-45),
    (2047.5, 2048.5, 4098.0),
]
"""Values whose rounding to 16 bits is exact, a tie, subnormal or infinite."""


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats_of_every_dtype_and_layout(
    packed: Path, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """The loader's dtype is made of torchvision's float32, and what is erased is rounded as torch rounds."""
    before = [v2.Resize((30, 37)), *forms(v2)["normalized"]]
    plain = epoch_of(packed, 1, transform=before)
    for value in HALVES if layout == torch.channels_last else HALVES[:2]:
        step = v2.RandomErasing(1.0, value=value)
        got = epoch_of(packed, 1, transform=[*before, step], memory_format=layout, dtype=dtype)
        assert got.is_contiguous(memory_format=layout)
        want = torch.stack([erased(image, step, index) for index, image in enumerate(plain)]).to(dtype)
        assert got.dtype == dtype
        assert torch.equal(got.contiguous().view(torch.uint8), want.view(torch.uint8)), value


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
def test_bytes_of_every_dtype_and_layout(
    packed: Path, dtype: torch.dtype | None, layout: torch.memory_format
) -> None:
    """Bytes become floats after they are erased, as those of images do; in one list with augmentations, and
    with a warp and flips on either side of it."""
    steps = [
        *(T.Resize((30, 37)), v2.ColorJitter(0.4), v2.RandomRotation(30), v2.RandomHorizontalFlip()),
        *(v2.ToImage(), v2.RandomErasing(0.8, value=(5, 77, 200)), v2.RandomVerticalFlip()),
    ]
    codes = epoch_of(packed, 1, transform=steps)
    assert codes.dtype == torch.uint8
    got = epoch_of(packed, 2, transform=steps, memory_format=layout, dtype=dtype)
    assert got.is_contiguous(memory_format=layout)
    want = codes if dtype is None else (codes.float() / 255).to(dtype)
    assert torch.equal(got, want)


def test_a_list_is_its_steps_one_after_the_other(packed: Path) -> None:
    """Flips, conversions, Normalize and further boxes after a box: torchvision's own functions, each at its
    own draws."""
    first, second = (
        v2.RandomErasing(0.8, value=(10, 20, 30)),
        v2.RandomErasing(0.8, (0.1, 0.5), value=(-1, 0.5, 2)),
    )
    third = v2.RandomErasing(0.8, value=3.5)
    mirror, upside_down = v2.RandomHorizontalFlip(0.5), v2.RandomVerticalFlip(0.5)
    norm, floats = v2.Normalize(MEAN, STD), v2.ToDtype(torch.float32, scale=True)
    before = [v2.Resize((HEIGHT, WIDTH)), v2.ToImage()]
    steps = [*before, first, mirror, floats, second, upside_down, mirror, norm, third, upside_down]
    plain = PackedDataset(packed, transform=before, seed=SEED)
    dataset = PackedDataset(packed, transform=steps, seed=SEED)
    assert dataset.plan.native
    assert dataset.plan.augmented == 7

    def flipped(image: torch.Tensor, axis: int, number: int, index: int) -> torch.Tensor:
        return image.flip(axis) if len(drawn(number, 2, index, 0).chance(0.5)) else image

    for index in range(len(dataset)):
        image = erased(plain[index][0], first, index, 0)
        image = flipped(image, -1, 1, index)
        image = erased(image * torch.tensor(1 / 255), second, index, 2)
        image = flipped(flipped(image, -2, 3, index), -1, 4, index)
        image = erased(F.normalize(image, MEAN, STD), third, index, 5)
        image = flipped(image, -2, 6, index)
        assert torch.equal(dataset[index][0].as_subclass(torch.Tensor), image), index


@pytest.mark.usefixtures("no_leaks")
def test_threads_forms_and_places_make_no_difference(
    packed: Path, image_folder: Path, tmp_path: Path
) -> None:
    """One seed: the same bytes by 1 or 4 threads, of JPEGs, of the form without Huffman codes and of files in
    place, from dataset[i], and after a resume."""
    steps = [
        *(v1.RandomResizedCrop(40), v1.RandomHorizontalFlip(), v1.TrivialAugmentWide()),
        *(*forms(v1)["normalized"], v1.RandomErasing(0.7, value=(1, 2, 3))),
    ]
    check_same_everywhere(steps, packed, image_folder, tmp_path, SEED)


def test_a_file_that_pillow_opens_is_erased_as_any_other(tmp_path: Path) -> None:
    """A TIFF by the name of a PNG, in place: the pixels are those of the PNG."""
    steps = [v1.CenterCrop(24), v1.ToTensor(), v1.RandomErasing(1.0, value=0.5)]
    images = check_same_by_pillow(steps, tmp_path, SEED)
    assert bool((images == 0.5).all(1).flatten(1).any(1).all())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_rows_of_their_own_sizes(packed: Path, layout: torch.memory_format) -> None:
    """A box lies in the image, not in the frame around it, of which the rest stays zeros."""
    steps = [v2.RandomShortestSize([20, 30, 40]), *forms(v2)["float"], v2.RandomErasing(1.0, value=7.0)]
    dataset = PackedDataset(packed, transform=steps, seed=SEED)
    plain = PackedDataset(packed, transform=steps[:-1], seed=SEED)
    given: dict[str, Any] = {"seed": SEED, "num_workers": 2, "memory_format": layout, "dtype": torch.float16}
    with FastLoader(dataset, 10, collate="padded", pad_to=16, **given) as loader:
        padded = [(images.values.clone(), images.mask.clone()) for images, _ in loader]
    with FastLoader(dataset, 10, collate="list", **given) as loader:
        listed = [image.clone() for images, _ in loader for image in images]
    for index, image in enumerate(listed):
        want = erased(plain[index][0].as_subclass(torch.Tensor), steps[-1], index).half()
        values, mask = (each[index % 10] for each in padded[index // 10])
        assert torch.equal(image, want)
        assert torch.equal(values[:, : want.shape[1], : want.shape[2]], want)
        assert not values.masked_select(~mask).any()


def test_boxes_are_those_of_a_device(packed: Path) -> None:
    """The same batch, whatever is left to a device; what batch_transform= has goes on with the numbers."""
    crop = [v2.RandomResizedCrop(32), v2.RandomSolarize(100, 0.5)]
    for tail in (
        [v2.ToImage(), v2.RandomErasing(0.6, value=[9, 8, 7]), v2.RandomHorizontalFlip()],
        [*forms(v2)["float"], v2.RandomErasing(0.6)],
        [*forms(v2)["normalized"], v2.RandomErasing(0.6, ratio=(2.0, 2.0)), v2.RandomErasing(0.6)],
    ):
        steps = [*crop, *tail]
        further = A.AugmentBatch([A.RandomErasing(0.8), A.RandomHorizontalFlip()])
        for given in ({}, {"batch_transform": further}):
            native, on_device = (
                epoch_of(packed, 1, transform=steps, **given, **where) for where in ({}, {"device": "cpu"})
            )
            torch.testing.assert_close(native, on_device, atol=1e-6, rtol=1e-6)
            assert torch.equal((native == 0).all(1), (on_device == 0).all(1))
        with FastLoader(packed, 8, transform=steps, device="cpu", num_workers=0) as loader:
            assert "RandomErasing" in [row.split()[1].split("(")[0] for row in device_rows(loader)]


def device_rows(loader: Any) -> list[str]:
    """The rows of explain() that are a device's."""
    return [row for row in str(loader.explain(all=True)).splitlines() if "  device" in row]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 40), (2, 3), (9, 300)])
def test_boxes_in_images_of_any_sides(packed: Path, height: int, width: int) -> None:
    """Thin and small images, where a box may be empty, or none fits."""
    step = v1.RandomErasing(1.0, (0.0, 1.0), (0.01, 100.0), value=1.0)
    plain = PackedDataset(packed, transform=[T.Resize((height, width)), T.ToFloat()], seed=SEED)
    dataset = PackedDataset(packed, transform=[T.Resize((height, width)), T.ToFloat(), step], seed=SEED)
    for index in range(len(dataset)):
        assert torch.equal(dataset[index][0], erased(plain[index][0], step, index))


def test_ten_thousand_boxes_are_those_of_augment(tmp_path: Path) -> None:
    """Natively box after box by the C library's exp, in fastload.augment by NumPy's."""

    class One(Numbered):
        title, count, fields = "one", 2, ()

        def read(self, position: int) -> Item:
            return Item(self.name(position), np.zeros((24, 32, 3), np.uint8), {})

    pack(One(), tmp_path / "one.fl", workers=1)
    step = v2.RandomErasing(1.0, (0.0, 1.0), (0.2, 5.0), value=1)
    dataset = PackedDataset(tmp_path / "one.fl", transform=[v2.ToImage(), step])
    count, spec = 10_000, A.RandomErasing(1.0, (0.0, 1.0), (0.2, 5.0))
    with FastLoader(dataset, count, sampler=[1] * count, seed=SEED, num_workers=1) as loader:
        (batch,) = loader
        got = (batch["image"] == 1).all(1).numpy()
    draw = Draw(
        words_of(
            SEED, 0, as_indices([1] * count), [(OP_STREAM, spec.words)], np.arange(count, dtype=np.uint32)
        )[0]
    )
    draw.words(4)
    fits, boxes = spec.boxes(draw, 24, 32)
    want = np.zeros((count, 24, 32), bool)
    for filled, wanted, (top, left, bottom, right) in zip(want, fits, boxes, strict=True):
        filled[top:bottom, left:right] = wanted
    assert np.array_equal(got, want)
    assert not fits.all()


def test_random_apply_of_one_step(packed: Path) -> None:
    """The step with the product of both probabilities."""
    before = [v1.Resize((HEIGHT, WIDTH)), v1.ToTensor()]
    inner = v1.RandomErasing(0.9)
    dataset = PackedDataset(packed, transform=[*before, v1.RandomApply([inner], 0.5)], seed=SEED)
    plain = PackedDataset(packed, transform=before, seed=SEED)
    assert dataset.plan.native
    step = v1.RandomErasing(0.5 * 0.9)
    for index in range(len(dataset)):
        assert torch.equal(dataset[index][0], erased(plain[index][0], step, index))
    inner.p = 0.0
    assert torch.equal(dataset[3][0], plain[3][0])


def test_crops_of_an_image_have_one_box(packed: Path) -> None:
    """v2 draws once for FiveCrop's images, which are of one size."""
    steps = [v2.ToImage(), v2.Resize((40, 40)), v2.FiveCrop(20), v2.RandomErasing(1.0, value=1)]
    dataset = PackedDataset(packed, transform=steps, seed=SEED)
    plain = PackedDataset(packed, transform=steps[:-1], seed=SEED)
    assert dataset.plan.native
    for index in range(10):
        for got, before in zip(dataset[index][0], plain[index][0], strict=True):
            assert torch.equal(got, erased(before, steps[-1], index))


def test_views_have_boxes_of_their_own(packed: Path) -> None:
    """Draws go on from one view to the next, as a device's do."""
    entry = [v2.Resize((24, 24)), *forms(v2)["normalized"], v2.RandomErasing(1.0)]
    made = []
    for where in ({}, {"device": "cpu"}):
        with FastLoader(
            packed, 8, transform=T.Views([entry, entry]), seed=SEED, num_workers=2, **where
        ) as loader:
            assert loader._fastload.plan.native is not None
            made.append([[view.clone() for view in images] for images, _ in loader])
    for native, on_device in zip(*made, strict=True):
        assert all(map(torch.equal, native, on_device))
        assert not torch.equal(native[0] == 0, native[1] == 0)


@BOTH
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda v: [v.ToTensor(), v.RandomErasing(value="random")], "value='random'"),
        (lambda v: [v.ToTensor(), v.RandomErasing(value=(1, 2))], "value="),
        (lambda v: [v.ToTensor(), v.RandomErasing(value=math.nan)], "value="),
        (lambda v: [v.ToTensor(), v.RandomErasing(value=1e7)], "value="),
        (lambda v: [v.PILToTensor(), v.RandomErasing(value=256)], "in bytes"),
        (lambda v: [v.PILToTensor(), v.RandomErasing(value=(1, 2, -1))], "in bytes"),
        (lambda v: [v.PILToTensor(), v.RandomErasing(value=255.9999999)], "in bytes"),
        (lambda v: [v.ToTensor(), v.RandomErasing(ratio=(0.0, 1.0))], "ratio="),
        (lambda v: [v.RandomErasing(), v.ToTensor()], "natively it erases tensors"),
        (lambda v: [v.PILToTensor(), v.RandomErasing(), v.ColorJitter(0.4)], "put RandomErasing last"),
        (lambda v: [v.PILToTensor(), v.RandomErasing(), v.RandomRotation(9)], "put RandomErasing last"),
        (lambda v: [v.ToTensor(), v.RandomErasing(), v.CenterCrop(9)], "after an augmentation"),
    ],
)
def test_what_is_not_native_is_python_with_its_reason(packed: Path, v: Any, build: Any, reason: str) -> None:
    """The reason stands in explain()'s table."""
    with FastLoader(packed, 4, transform=[v.Resize((24, 24)), *build(v)], num_workers=0) as loader:
        assert loader._fastload.plan.native is None
        assert reason in " ".join(str(loader.explain()).split())


class Boxed(Numbered):
    """Images with one box each, a mask, and a second image."""

    title, count = "boxed", 24
    fields = (Field("boxes", "boxes", format="xyxy"), Field("mask", "mask"), Field("right", "image"))

    def read(self, position: int) -> Item:
        image = np.full((20, 30, 3), 20 + 9 * position, np.uint8)
        boxes = np.array([[1, 2, 11, 12]], np.float32)
        mask = np.full((20, 30), position, np.uint8)
        return Item(self.name(position), image, {"boxes": boxes, "mask": mask, "right": image + 1})


def test_what_lies_in_the_image_stays_as_it_is(tmp_path: Path) -> None:
    """Boxes and masks do not change; a second image is erased by the same draw."""
    out = tmp_path / "boxed.fl"
    pack(Boxed(), out, workers=1)
    dataset = PackedDataset(out, transform=[v2.ToImage(), v2.RandomErasing(1.0, value=1)], seed=SEED)
    assert dataset.plan.native
    for index, sample in enumerate(dataset):
        assert sample["boxes"].tolist() == [[1, 2, 11, 12]]
        assert sample["mask"].unique().tolist() == [index]
        assert sample["image"].unique().tolist() == [1, 20 + 9 * index]
        assert torch.equal(sample["image"] == 1, sample["right"] == 1)


def test_images_of_another_form_are_pythons(tmp_path: Path) -> None:
    """Natively they stay as they are: the reason names the field."""

    class Grey(Boxed):
        title = "grey"
        fields = (Field("depth", "image", "uint8", (1,)),)

        def read(self, position: int) -> Item:
            item = super().read(position)
            return Item(item.name, item.image, {"depth": item.image[:, :, :1].copy()})

    pack(Grey(), tmp_path / "grey.fl", workers=1)
    steps = [v2.ToImage(), v2.RandomErasing()]
    stage = PackedDataset(tmp_path / "grey.fl", transform=steps).plan.stages[1]
    assert stage.where == "python"
    assert "it changes 8-bit RGB, and 'depth' is other" in stage.why
    assert PackedDataset(tmp_path / "grey.fl", transform=steps, fields=["image"]).plan.native
