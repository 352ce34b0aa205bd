"""Augmentations of torchvision's on native threads: Pillow's pixels at the parameters that fastload.augment
draws for the same op, whoever makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import native_epochs
import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from native_epochs import check_same_by_pillow, check_same_everywhere
from PIL import Image
from small_source import Numbered

from fastload import FastLoader, PackedDataset, pack
from fastload import augment as A
from fastload import transforms as T
from fastload.augment.philox import Draw, as_indices, words_of
from fastload.augment.policies import OPS
from fastload.common.rng import OP_STREAM
from fastload.errors import SampleError
from fastload.packing import Item
from fastload.store import Field

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
datasets = pytest.importorskip("torchvision.datasets")
autoaugment = pytest.importorskip("torchvision.transforms.autoaugment")
F = pytest.importorskip("torchvision.transforms.functional")

pytestmark = pytest.mark.filterwarnings("ignore:The transform `ToTensor")
BOTH = pytest.mark.parametrize("v", [v1, v2], ids=["v1", "v2"])
Pillow = Image.Image
NEAREST, BILINEAR, BICUBIC = (v1.InterpolationMode[name] for name in ("NEAREST", "BILINEAR", "BICUBIC"))
SEED, EPOCH, WIDTH, HEIGHT = 77, 3, 61, 45
epoch_of = functools.partial(native_epochs.epoch_of, seed=SEED)


def drawn(number: int, words: int, index: int, seed: int = SEED, epoch: int = EPOCH) -> Draw:
    """The words of one sample for op `number` of its loader."""
    return Draw(words_of(seed, epoch, as_indices([index]), [(OP_STREAM + number, words)])[0])


def jittered(image: Pillow, draw: Draw, step: Any, p: float = 1.0) -> Pillow:
    names = "brightness", "contrast", "saturation", "hue"
    spec = A.ColorJitter(*(getattr(step, name) or 0.0 for name in names), p=p)
    rows, factors, order = spec.factors(draw)
    if not len(rows):
        return image
    adjust = F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue
    for op in order[0]:
        if op in spec.active():
            image = adjust[op](image, float(factors[0, op]))
    return image


def by_chance(change: Callable[[Pillow, Any], Pillow]) -> Callable[[Pillow, Draw, Any], Pillow]:
    return lambda image, draw, step: change(image, step) if len(draw.chance(step.p)) else image


def mode_of(step: Any) -> Any:
    """The interpolation, which v2 may have by name."""
    return v1.InterpolationMode(step.interpolation)


def rotated(image: Pillow, draw: Draw, step: Any) -> Pillow:
    draw.chance(1.0)
    angle = float(draw.uniform(*step.degrees)[0])
    return F.rotate(image, angle, mode_of(step), fill=step.fill)


def mapped(image: Pillow, draw: Draw, step: Any) -> Pillow:
    draw.chance(1.0)
    angle = float(draw.uniform(*step.degrees)[0])
    most = step.translate or (0.0, 0.0)
    shift = [
        int(np.rint(draw.uniform(-share * side, share * side)[0]))
        for share, side in zip(most, (WIDTH, HEIGHT), strict=True)
    ]
    scale = float(draw.uniform(*(step.scale or (1.0, 1.0)))[0])
    given = list(step.shear or ())
    ranges = (given + [0.0] * 4)[:4]
    shear = [float(draw.uniform(*ranges[at : at + 2])[0]) for at in (0, 2)]
    return F.affine(image, angle, shift, scale, shear, mode_of(step), fill=step.fill)


def seen_aslant(image: Pillow, draw: Draw, step: Any) -> Pillow:
    if not len(draw.chance(step.p)):
        return image
    start, end = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]], []
    for corner in start:
        moved = []
        for at, side in zip(corner, (WIDTH, HEIGHT), strict=True):
            bound = int(step.distortion_scale * (side // 2)) + 1
            moved.append(int(draw.below(bound)[0]) + (side - bound if at else 0))
        end.append(moved)
    return F.perspective(image, start, end, mode_of(step), step.fill)


def by_policy(spec: Callable[[Any], Any]) -> Callable[[Pillow, Draw, Any], Pillow]:
    """torchvision's own code for each op at the magnitudes of fastload.augment."""

    def change(image: Pillow, draw: Draw, step: Any) -> Pillow:
        for kinds, values in spec(step).choices(draw, HEIGHT, WIDTH):
            name, value = OPS[kinds[0]], float(values[0])
            image = autoaugment._apply_op(image, name, value, mode_of(step), step.fill)
        return image

    return change


def grey(image: Pillow, step: Any) -> Pillow:
    return F.to_grayscale(image, 3)


def jittered_by_chance(image: Pillow, draw: Draw, step: Any) -> Pillow:
    return jittered(image, draw, step.transforms[0], step.p)


def inverted_by_both(image: Pillow, draw: Draw, step: Any) -> Pillow:
    """Of a RandomApply in a RandomApply: both probabilities."""
    inner = step.transforms[0]
    chance = step.p * inner.p * inner.transforms[0].p
    return F.invert(image) if len(draw.chance(chance)) else image


trivially = by_policy(lambda step: A.TrivialAugmentWide(step.num_magnitude_bins))
randomly = by_policy(lambda step: A.RandAugment(step.num_ops, step.magnitude, step.num_magnitude_bins))
CASES: list[tuple[Callable[[Any], Any], int, Callable[[Pillow, Draw, Any], Pillow]]] = [
    (lambda v: v.ColorJitter(0.4, 0.4, 0.4, 0.1), 11, jittered),
    (lambda v: v.ColorJitter((0.0, 3.0), 0.0, (0.5, 0.5), (-0.5, 0.5)), 11, jittered),
    (lambda v: v.ColorJitter(contrast=1.0), 11, jittered),
    (lambda v: v.RandomApply([v.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.6), 11, jittered_by_chance),
    (lambda v: v.RandomApply([v.RandomApply([v.RandomInvert(0.9)], 0.9)], 0.9), 2, inverted_by_both),
    (lambda v: v.RandomGrayscale(0.4), 2, by_chance(grey)),
    (lambda v: v.RandomSolarize(120, 0.7), 2, by_chance(lambda i, s: F.solarize(i, s.threshold))),
    (lambda v: v.RandomSolarize(99.5, 1.0), 2, by_chance(lambda i, s: F.solarize(i, s.threshold))),
    (lambda v: v.RandomPosterize(3, 0.6), 2, by_chance(lambda i, s: F.posterize(i, s.bits))),
    (lambda v: v.RandomInvert(), 2, by_chance(lambda i, s: F.invert(i))),
    (lambda v: v.RandomEqualize(0.8), 2, by_chance(lambda i, s: F.equalize(i))),
    (lambda v: v.RandomAutocontrast(0.8), 2, by_chance(lambda i, s: F.autocontrast(i))),
    (
        lambda v: v.RandomAdjustSharpness(2.5, 0.8),
        2,
        by_chance(lambda i, s: F.adjust_sharpness(i, s.sharpness_factor)),
    ),
    (lambda v: v.RandomRotation(40), 4, rotated),
    (lambda v: v.RandomRotation((-190, 200), BILINEAR, fill=(9, 80, 255)), 4, rotated),
    (lambda v: v.RandomRotation((180, 180), BICUBIC), 4, rotated),
    (lambda v: v.RandomRotation((90, 90), BICUBIC, fill=3), 4, rotated),
    (lambda v: v.RandomRotation((-360, -360), BILINEAR), 4, rotated),
    (lambda v: v.RandomAffine(0), 14, mapped),
    (lambda v: v.RandomAffine(30, (0.2, 0.4), (0.5, 1.5), 20, NEAREST, 7), 14, mapped),
    (lambda v: v.RandomAffine((10, 50), None, (0.9, 2.5), (-9, 9, -30, 5), BILINEAR), 14, mapped),
    (lambda v: v.RandomAffine(170, (0.5, 0.0), None, None, BICUBIC, (1, 2, 3)), 14, mapped),
    (lambda v: v.RandomPerspective(), 10, seen_aslant),
    (lambda v: v.RandomPerspective(0.0, 1.0, NEAREST), 10, seen_aslant),
    (lambda v: v.RandomPerspective(0.3, 1.0, NEAREST, 9), 10, seen_aslant),
    (lambda v: v.RandomPerspective(1.0, 0.9, BICUBIC, (9, 80, 255)), 10, seen_aslant),
    (lambda v: v.RandAugment(4, 13), 8, randomly),
    (lambda v: v.RandAugment(3, 9, 11, BILINEAR, [7, 8, 9]), 6, randomly),
    (
        lambda v: v.TrivialAugmentWide(),
        3,
        trivially,
    ),
    (
        lambda v: v.TrivialAugmentWide(7, BICUBIC, [200, 0, 9]),
        3,
        trivially,
    ),
    (lambda v: v.AutoAugment(), 7, by_policy(lambda step: A.AutoAugment())),
]
RESIZE = T.Resize((HEIGHT, WIDTH))


@pytest.fixture(scope="module")
def bases(packed: Path) -> list[Pillow]:
    """The samples before they are augmented."""
    plain = PackedDataset(packed, transform=[v1.Resize((HEIGHT, WIDTH))], seed=SEED)
    return [Image.fromarray(plain[i][0].permute(1, 2, 0).numpy()) for i in range(len(plain))]


@BOTH
@pytest.mark.parametrize("case", range(len(CASES)))
def test_pixels_are_pillows_at_the_draws_of_augment(
    packed: Path, bases: list[Pillow], v: Any, case: int
) -> None:
    """torchvision's functions on Pillow images, given the parameters that fastload.augment draws."""
    make, words, change = CASES[case]
    step = make(v)
    dataset = PackedDataset(packed, transform=[v.Resize((HEIGHT, WIDTH)), step], seed=SEED)
    dataset.set_epoch(EPOCH)
    assert dataset.plan.native
    assert [stage.where for stage in dataset.plan.stages] == ["native", "native"]
    for index, base in enumerate(bases):
        want = np.asarray(change(base, drawn(0, words, index), step))
        assert np.array_equal(dataset[index][0].permute(1, 2, 0).numpy(), want), index


@BOTH
@pytest.mark.parametrize("kernel", [1, 3, (5, 23), (39, 1)])
def test_gaussian_blur_is_torchvisions(
    packed: Path, bases: list[Pillow], v: Any, kernel: int | tuple[int, int]
) -> None:
    """Within 1 level, which is the rounding of a sum that is half-way; hardly ever that."""
    step = v.GaussianBlur(kernel, (0.2, 3.0))
    dataset = PackedDataset(packed, transform=[v.Resize((HEIGHT, WIDTH)), step], seed=SEED)
    dataset.set_epoch(EPOCH)
    different, values = 0, 0
    for index, base in enumerate(bases):
        draw = drawn(0, 4, index)
        draw.chance(1.0)
        sigma = float(draw.uniform(0.2, 3.0)[0])
        want = np.asarray(F.gaussian_blur(base, list(step.kernel_size), [sigma, sigma])).astype(int)
        got = dataset[index][0].permute(1, 2, 0).numpy()
        assert np.abs(got - want).max() <= 1
        different, values = different + np.count_nonzero(got != want), values + got.size
    assert different <= values // 1000


def test_a_blur_larger_than_the_image_is_the_samples_error(packed: Path) -> None:
    """As torchvision, which cannot reflect so far."""
    dataset = PackedDataset(packed, transform=[T.Resize((10, 20)), v2.GaussianBlur(21)], seed=SEED)
    with pytest.raises(SampleError, match="21 x 21 weights reflects beyond an image of 20 x 10"):
        dataset[0]


@BOTH
def test_random_apply_of_one_step(packed: Path, bases: list[Pillow], v: Any) -> None:
    """Native with one step that takes a probability, which is read again at each epoch, and the step's own
    attributes too; with others in Python, as everything that a program has changed."""
    jitter = v.ColorJitter(0.4)
    step = v.RandomApply([jitter], 1.0)
    dataset = PackedDataset(packed, transform=[v.Resize((HEIGHT, WIDTH)), step], seed=SEED)
    before = dataset[0][0]
    assert not torch.equal(before, torch.from_numpy(np.array(bases[0])).permute(2, 0, 1))
    jitter.brightness = [0.0, 0.0]
    assert not dataset[0][0].any()
    step.p = 0.0
    assert torch.equal(dataset[0][0], torch.from_numpy(np.array(bases[0])).permute(2, 0, 1))
    assert dataset.plan.native
    jitter.forward = lambda image: image
    assert [stage.where for stage in dataset.plan.stages] == ["native", "python"]
    for held in ([v.ColorJitter(0.4), v.RandomInvert()], [v.RandomPerspective()], [v.Pad(2)]):
        dataset.transform = [v.Resize((HEIGHT, WIDTH)), v.RandomApply(held, 0.5)]
        assert [stage.where for stage in dataset.plan.stages] == ["native", "python"], held


def a_list(v: Any) -> list[Any]:
    """Steps of every sort: of single pixels, of their neighbours, of the whole image's values, and warps."""
    return [
        v.RandomResizedCrop(40),
        v.RandomHorizontalFlip(),
        v.ColorJitter(0.4, 0.4, 0.4, 0.1),
        v.RandomGrayscale(0.2),
        v.RandomVerticalFlip(),
        v.GaussianBlur(5),
        v.RandomEqualize(),
        v.RandAugment(),
        v.RandomHorizontalFlip(),
        v.RandomAdjustSharpness(2),
    ]


def test_a_list_is_its_steps_one_after_the_other(packed: Path) -> None:
    """Flips between colours, and after a warp: the steps' own functions, each at its own draws."""
    steps = a_list(v2)
    dataset = PackedDataset(packed, transform=steps, seed=SEED)
    first = PackedDataset(packed, transform=steps[:2], seed=SEED)
    dataset.set_epoch(EPOCH)
    first.set_epoch(EPOCH)
    mirror, upside_down = by_chance(lambda i, s: F.hflip(i)), by_chance(lambda i, s: F.vflip(i))
    policy = A.RandAugment()
    for index in range(len(dataset)):
        image = Image.fromarray(first[index][0].permute(1, 2, 0).numpy())
        image = jittered(image, drawn(0, 11, index), steps[2])
        image = by_chance(grey)(image, drawn(1, 2, index), steps[3])
        image = upside_down(image, drawn(2, 2, index), steps[4])
        sharp = np.asarray(image).copy()
        blur = PackedDataset(packed, transform=steps[:6], seed=SEED)
        blur.set_epoch(EPOCH)
        image = Image.fromarray(blur[index][0].permute(1, 2, 0).numpy())  # within 1 of torchvision's
        draw = drawn(3, 4, index)
        draw.chance(1.0)
        sigma = float(draw.uniform(0.1, 2.0)[0])
        want = np.asarray(F.gaussian_blur(Image.fromarray(sharp), [5, 5], [sigma, sigma])).astype(int)
        assert np.abs(np.asarray(image) - want).max() <= 1
        image = by_chance(lambda i, s: F.equalize(i))(image, drawn(4, 2, index), steps[6])
        for kinds, values in policy.choices(drawn(5, policy.words, index), 40, 40):
            name, value = OPS[kinds[0]], float(values[0])
            image = autoaugment._apply_op(image, name, value, NEAREST, None)
        image = mirror(image, drawn(6, 2, index), steps[8])
        sharpened = by_chance(lambda i, s: F.adjust_sharpness(i, s.sharpness_factor))
        want = np.asarray(sharpened(image, drawn(7, 2, index), steps[9]))
        assert np.array_equal(dataset[index][0].permute(1, 2, 0).numpy(), want), index


@pytest.mark.usefixtures("no_leaks")
def test_threads_forms_and_places_make_no_difference(
    packed: Path, image_folder: Path, tmp_path: Path
) -> None:
    """One seed: the same bytes by 1 or 4 threads, of JPEGs, of the form without Huffman codes and of files in
    place, from dataset[i], and after a resume."""
    steps = [*a_list(v1), v1.ToTensor()]
    check_same_everywhere(steps, packed, image_folder, tmp_path, SEED)


def test_a_file_that_pillow_opens_is_augmented_as_any_other(tmp_path: Path) -> None:
    """A TIFF by the name of a PNG, in place: the pixels are those of the PNG."""
    steps = [
        v1.RandomResizedCrop(24),
        v1.ColorJitter(0.4, 0.4, 0.4, 0.2),
        v1.RandomRotation(20),
        v1.ToTensor(),
    ]
    check_same_by_pillow(steps, tmp_path, SEED)


@pytest.mark.parametrize("floats", [(), (T.ToFloat(),), (T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)),)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
def test_every_form_of_a_batch(
    packed: Path, floats: tuple[Any, ...], layout: torch.memory_format, dtype: torch.dtype | None
) -> None:
    """Bytes are converted as those of images that were not augmented are."""
    steps = [T.Resize((30, 37)), v2.ColorJitter(0.5, 0.5, 0.5, 0.2), v2.RandomRotation(30)]
    codes = epoch_of(packed, 1, transform=steps)
    got = epoch_of(packed, 2, transform=[*steps, *floats], memory_format=layout, dtype=dtype)
    assert got.is_contiguous(memory_format=layout)
    want = codes
    if floats or dtype is not None:
        want = codes.float() / 255
        if isinstance(floats and floats[0], T.Normalize):
            mean, std = (torch.tensor(each)[None, :, None, None] for each in (floats[0].mean, floats[0].std))
            want = (want - mean) / std
        want = want.to(dtype or torch.float32)
    assert torch.equal(got, want)


EXACT = [
    v2.RandomSolarize(100, 0.5),
    v2.RandomInvert(0.5),
    v2.RandomHorizontalFlip(),
    v2.RandomPosterize(3, 0.5),
    v2.RandomEqualize(0.5),
]
"""Ops whose bytes are the same on a device."""


def test_draws_are_those_of_a_device(packed: Path) -> None:
    """The ops that give the same bytes there give the same batch, whatever is left to it."""
    crop = [T.RandomResizedCrop(32)]
    on_device = epoch_of(packed, 1, transform=[*crop, *EXACT], device="cpu")
    assert torch.equal(epoch_of(packed, 1, transform=[*crop, *EXACT]), on_device)
    # What batch_transform= has comes after them, and goes on with their numbers.
    further = A.AugmentBatch([A.RandomInvert(), A.RandomSolarize(50)])
    both = [
        epoch_of(packed, 1, transform=[*crop, *EXACT], batch_transform=further, **where)
        for where in ({}, {"device": "cpu"})
    ]
    assert torch.equal(*both)
    assert not torch.equal(both[0], on_device)


def test_draws_of_views_are_those_of_a_device(packed: Path) -> None:
    """Every view has its own, which go on from one view to the next."""
    views = T.Views([[T.RandomResizedCrop(24), *EXACT], [T.Resize((20, 20)), *EXACT[:2]]])
    made = []
    for where in ({}, {"device": "cpu"}):
        with FastLoader(packed, 8, transform=views, seed=SEED, num_workers=2, **where) as loader:
            assert loader._fastload.plan.native is not None
            made.append([[view.clone() for view in images] for images, _ in loader])
    for native, on_device in zip(*made, strict=True):
        assert all(map(torch.equal, native, on_device))


def test_an_index_that_comes_again_is_drawn_again(packed: Path) -> None:
    """Occurrences count for these draws as for a crop's."""
    steps = [T.Resize((16, 16)), v2.ColorJitter(0.9, 0.9, 0.9, 0.4)]
    dataset = PackedDataset(packed, transform=steps)
    with FastLoader(dataset, 3, sampler=[4, 4, 4, 5, 4, 5], seed=SEED, num_workers=1) as loader:
        images = torch.cat([batch.clone() for batch, _ in loader])
    assert len({each.numpy().tobytes() for each in images}) == 6


def test_crops_of_an_image_draw_once(packed: Path) -> None:
    """FiveCrop's images have the same factors; in torchvision's order."""
    steps = [v2.Resize((40, 40)), v2.FiveCrop(20), v2.ColorJitter((0.2, 2.0))]
    dataset = PackedDataset(packed, transform=v2.Compose([*steps, v2.PILToTensor()]), seed=SEED)
    plain = PackedDataset(packed, transform=v2.Compose([*steps[:2], v2.PILToTensor()]), seed=SEED)
    assert dataset.plan.native
    for index in range(10):
        _, factors, _ = A.ColorJitter((0.2, 2.0)).factors(drawn(0, 11, index, epoch=0))
        for got, before in zip(dataset[index][0], plain[index][0], strict=True):
            image = Image.fromarray(before.permute(1, 2, 0).numpy())
            want = np.asarray(F.adjust_brightness(image, float(factors[0, 0])))
            assert np.array_equal(got.permute(1, 2, 0).numpy(), want)


def test_images_of_one_colour_and_of_one_pixel(tmp_path: Path) -> None:
    """Histograms with one value, and images that have no inner pixels."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number, colour in enumerate([(0, 0, 0), (255, 255, 255), (7, 130, 130)]):
        Image.new("RGB", (9, 9), colour).save(tmp_path / "photos" / "a" / f"{number}.png")
    pack(tmp_path / "photos", tmp_path / "flat.fl")
    certain = [v1.RandomEqualize(1.0), v1.RandomAutocontrast(1.0), v1.RandomAdjustSharpness(3.0, 1.0)]
    functions = [F.equalize, F.autocontrast, lambda image: F.adjust_sharpness(image, 3.0)]
    for size in [(9, 9), (1, 1), (1, 5), (2, 3)]:
        plain = PackedDataset(tmp_path / "flat.fl", transform=[T.Resize(size)])
        for step, change in zip(certain, functions, strict=True):
            dataset = PackedDataset(tmp_path / "flat.fl", transform=[T.Resize(size), step])
            for index in range(3):
                image = Image.fromarray(plain[index][0].permute(1, 2, 0).numpy())
                got = dataset[index][0].permute(1, 2, 0).numpy()
                assert np.array_equal(got, np.asarray(change(image))), (size, step, index)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([v2.ColorJitter(0.4), v2.CenterCrop(20)], "after an augmentation"),
        ([v1.ToTensor(), v1.ColorJitter(0.4)], "it changes floats"),
        ([v2.RandomRotation(9, expand=True)], "images turn about their centre"),
        ([v2.RandomRotation(9, center=(1, 2))], "images turn about their centre"),
        ([v2.RandomPosterize(0)], "bits=0"),
        ([v2.RandomRotation(9), v2.RandomVerticalFlip(), v2.RandomRotation(9)], "put flips first"),
        ([v2.AutoAugment(v1.AutoAugmentPolicy.CIFAR10)], "policy='cifar10'"),
    ],
)
def test_what_is_not_native_is_python_with_its_reason(packed: Path, steps: list[Any], reason: str) -> None:
    """The reason stands in explain()'s table."""
    with FastLoader(packed, 4, transform=[T.Resize((24, 24)), *steps], num_workers=0) as loader:
        assert loader._fastload.plan.native is None
        assert reason in " ".join(str(loader.explain()).split())


class Boxed(Numbered):
    """Images with one box each, and a second image."""

    title, count = "boxed", 24
    fields = (Field("boxes", "boxes", format="xyxy"), Field("right", "image"))

    def read(self, position: int) -> Item:
        image = np.full((20, 30, 3), 20 + 9 * position, np.uint8)
        boxes = np.array([[1, 2, 11, 12]], np.float32)
        return Item(self.name(position), image, {"boxes": boxes, "right": image + 1})


def test_what_lies_in_the_image_stays_with_it(tmp_path: Path) -> None:
    """Colours leave boxes alone and are native; a warp would have to move them, and is not."""
    out = tmp_path / "boxed.fl"
    pack(Boxed(), out, workers=1)
    jitter = PackedDataset(out, transform=[v2.RandomHorizontalFlip(1.0), v2.RandomInvert(1.0)])
    assert jitter.plan.native
    assert jitter[1]["boxes"].tolist() == [[19, 2, 29, 12]]
    assert jitter[1]["image"].unique().tolist() == [255 - 29]
    both = PackedDataset(out, transform=[v2.RandomSolarize(0)], seed=SEED)
    changed = [(sample["image"].max() < 128, sample["right"].max() < 128) for sample in both]
    assert {(bool(left), bool(right)) for left, right in changed[14:]} == {(True, True), (False, False)}
    turned = PackedDataset(out, transform=[v2.RandomRotation(30)])
    assert turned.plan.stages[0].where == "python"
    assert "'boxes' would have to go with it" in turned.plan.stages[0].why
    assert PackedDataset(out, transform=[v2.RandomRotation(30)], fields=["image", "right"]).plan.native


def test_images_of_another_form_are_pythons(tmp_path: Path) -> None:
    """Grey ones stay as they are natively: the reason names the field."""

    class Grey(Boxed):
        title = "grey"
        fields = (Field("depth", "image", "uint8", (1,)),)

        def read(self, position: int) -> Item:
            item = super().read(position)
            return Item(item.name, item.image, {"depth": item.image[:, :, :1].copy()})

    pack(Grey(), tmp_path / "grey.fl", workers=1)
    stage = PackedDataset(tmp_path / "grey.fl", transform=[v2.RandomInvert()]).plan.stages[0]
    assert stage.where == "python"
    assert "it changes 8-bit RGB, and 'depth' is other" in stage.why
    assert PackedDataset(tmp_path / "grey.fl", transform=[v2.RandomInvert()], fields=["image"]).plan.native
