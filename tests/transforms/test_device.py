"""Ops that the plan leaves to the device: which, in which order, with which arguments; and when none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fastload import PackedDataset
from fastload import transforms as T
from fastload.transforms.compiler import compile_plan
from fastload.transforms.spec import DeviceOp, Plan

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BOTH = pytest.mark.parametrize("v", [v1, v2], ids=["v1", "v2"])
pytestmark = pytest.mark.filterwarnings("ignore:The transform `ToTensor")
_FLOATS = ("ToFloat", "Normalize")


def names(plan: Plan) -> list[str]:
    """The ops left to the device, in order."""
    return [op.name for op in plan.device]


def augment_specs(plan: Plan) -> list[Any]:
    """The ops as fastload.augment makes them from the plan's data."""
    augment = pytest.importorskip("fastload.augment")
    return [getattr(augment, op.name)(**op.arguments) for op in plan.device if op.name not in _FLOATS]


def every_op(v: Any) -> list[Any]:
    """Each op on bytes that the augment package has."""
    bilinear = v1.InterpolationMode.BILINEAR
    return [
        v.ColorJitter(0.4, (0.5, 1.5), 0.2, 0.1),
        v.ColorJitter(),
        v.RandomGrayscale(0.2),
        v.GaussianBlur((3, 5), sigma=(0.2, 1.0)),
        v.RandomSolarize(128, p=0.3),
        v.RandomPosterize(4),
        v.RandomEqualize(),
        v.RandomAutocontrast(),
        v.RandomInvert(),
        v.RandomAdjustSharpness(2.0),
        v.RandomRotation((-20, 40), interpolation=bilinear, fill=(1, 2, 3)),
        v.RandomAffine(10, translate=(0.1, 0.2), scale=(0.8, 1.2), shear=(-5, 5), fill=7),
        v.RandomAffine(10, shear=(-5, 5, -3, 3)),
        v.RandAugment(2, 9),
        v.TrivialAugmentWide(fill=[5, 6, 7]),
        v.AutoAugment(),
        v.RandomHorizontalFlip(0.4),
        v.RandomCrop(20, padding=2, fill=(1, 2, 3)),
    ]


@BOTH
def test_every_op_on_bytes_becomes_the_spec_of_its_parameters(v: Any) -> None:
    """A list of all of them is the device's, in its order; the augment package takes each one's arguments
    and keeps their values."""
    steps = every_op(v)
    plan = compile_plan([v.RandomResizedCrop(32), v.RandomVerticalFlip(), *steps], device=True)
    assert plan.native
    assert names(plan) == [type(step).__name__ for step in steps]
    assert [op.position for op in plan.device] == list(range(3, 3 + len(steps)))
    assert [stage.where for stage in plan.stages] == ["native"] * 2 + ["device"] * len(steps)
    jitter, none, grey, blur, solarize, *_ = made = augment_specs(plan)
    assert (jitter.brightness, jitter.contrast, jitter.hue) == (
        pytest.approx((0.6, 1.4)),
        (0.5, 1.5),
        (-0.1, 0.1),
    )
    assert none.active() == []
    assert (grey.p, blur.kernel_size, blur.sigma) == (0.2, (3, 5), (0.2, 1.0))
    assert (solarize.threshold, solarize.p) == (128, 0.3)
    rotation, affine, sheared = made[10:13]
    assert (rotation.degrees, rotation.interpolation, rotation.fill) == ((-20, 40), "bilinear", (1, 2, 3))
    assert (affine.translate, affine.scale, affine.shear, affine.fill) == (
        (0.1, 0.2),
        (0.8, 1.2),
        (-5, 5, 0, 0),
        (7, 7, 7),
    )
    assert sheared.shear == (-5, 5, -3, 3)
    assert made[14].fill == (5, 6, 7)
    assert made[-1] == T.RandomCrop(20, padding=2, fill=(1, 2, 3))


@BOTH
def test_without_a_device_they_are_native(v: Any) -> None:
    """Nothing goes to a device that nobody asked for; what could go there is said to be movable, and counted
    among its ops."""
    for step in every_op(v)[:-2]:
        plan = compile_plan([v.CenterCrop(9), step, v.ToTensor()])
        assert plan.native
        assert [stage.where for stage in plan.stages] == ["native"] * 3
        assert plan.device == ()
        assert (plan.movable, plan.augmented, plan.random) == (True, 1, True)
        assert compile_plan([v.ToTensor(), step]).stages[1].where == "python"


@BOTH
def test_order_keeps_the_meaning(v: Any) -> None:
    """Colours before ToTensor act on bytes, so the conversion follows them; erasing with 0 after Normalize
    stays after it."""
    erase, jitter, floats = v.RandomErasing(0.25), v.ColorJitter(0.4), [v.ToTensor(), v.Normalize(MEAN, STD)]
    before = compile_plan([v.RandomResizedCrop(32), jitter, *floats, erase], device=True)
    assert names(before) == ["ColorJitter", "ToFloat", "Normalize", "RandomErasing"]
    assert not before.to_float
    assert before.device[2] == DeviceOp("Normalize", (("mean", MEAN), ("std", STD)), 4)
    between = compile_plan([v.RandomResizedCrop(32), floats[0], jitter, floats[1]], device=True)
    assert names(between) == ["ColorJitter", "Normalize"]
    assert between.to_float
    assert between.mean is None
    after = compile_plan([v.RandomResizedCrop(32), *floats, erase], device=True)
    assert names(after) == ["RandomErasing"]
    assert (after.to_float, after.mean) == (True, MEAN)
    assert augment_specs(after)[0].value == (0, 0, 0)


@BOTH
def test_random_apply_of_one_op_is_the_op_with_a_probability(v: Any) -> None:
    """Of a step that has one, the product of both."""
    steps = [v.RandomApply([v.ColorJitter(0.4)], 0.8), v.RandomApply([v.RandomSolarize(9, p=0.5)], 0.4)]
    plan = compile_plan([v.CenterCrop(20), *steps, v.RandomApply([v.RandomRotation(9)])], device=True)
    assert names(plan) == ["ColorJitter", "RandomSolarize", "RandomRotation"]
    assert [op.p for op in augment_specs(plan)] == [0.8, 0.2, 0.5]
    assert not compile_plan([v.CenterCrop(20), v.RandomApply([v.RandAugment()])], device=True).device


@BOTH
def test_units_are_those_of_augment(v: Any) -> None:
    """torchvision's values are in the image's unit, augment's in bytes whatever the image."""
    on_floats = compile_plan([v.ToTensor(), v.RandomErasing(value=(0.2, 0.4, 1.0))], device=True)
    assert augment_specs(on_floats)[0].value == pytest.approx((51, 102, 255))
    on_bytes = compile_plan([v.PILToTensor(), v.RandomErasing(value=51)], device=True)
    assert augment_specs(on_bytes)[0].value == (51, 51, 51)


@BOTH
@pytest.mark.parametrize(
    "build",
    [
        lambda v, f: [v.ColorJitter(0.4), v.Resize(20)],
        lambda v, f: [v.ColorJitter(0.4), v.Lambda(len)],
        lambda v, f: [v.ColorJitter(0.4), v.CenterCrop(20), v.ToTensor()],
        lambda v, f: [v.ColorJitter(0.4), v.ToTensor(), v.RandomPerspective()],
        lambda v, f: [*f, v.ColorJitter(0.4)],
        lambda v, f: [*f, v.RandomErasing(value=1), v.Lambda(len)],
        lambda v, f: [*f, v.RandomRotation(10, fill=1.0)],
        lambda v, f: [v.ColorJitter(0.4), *f, v.RandomCrop(20, padding=2)],
        lambda v, f: [v.ColorJitter(0.4), *f, f[1]],
        lambda v, f: [f[0], v.RandomErasing(value="random")],
        lambda v, f: [f[0], v.RandomErasing(value=3), v.Lambda(len)],
        lambda v, f: [v.RandomErasing()],
        lambda v, f: [f[0], v.RandomSolarize(0.5)],
        lambda v, f: [f[0], v.RandAugment()],
        lambda v, f: [v.RandomRotation(10, expand=True)],
        lambda v, f: [v.RandomRotation(10, center=(1, 1))],
        lambda v, f: [v.RandomAffine(10, interpolation=v1.InterpolationMode.BICUBIC), v.Lambda(len)],
        lambda v, f: [v.AutoAugment(v1.AutoAugmentPolicy.CIFAR10)],
    ],
)
def test_what_does_not_run_on_batches_leaves_nothing_to_the_device(v: Any, build: Any) -> None:
    """One step that the device cannot do in its place, and nothing is the device's: the plan is that
    without a device."""
    steps = build(v, [v.ToTensor(), v.Normalize(MEAN, STD)])
    with_device, without = compile_plan(steps, device=True), compile_plan(steps)
    assert with_device.device == ()
    assert not without.movable
    assert with_device.python == without.python
    assert with_device.stages == without.stages
    assert with_device.python


@BOTH
def test_erasing_is_native_and_movable_where_a_device_has_its_value(v: Any) -> None:
    """Alone, before Normalize and before a flip; values that no device writes there leave it native."""
    floats, norm = v.ToTensor(), v.Normalize(MEAN, STD)
    for steps in (
        [v.PILToTensor(), v.RandomErasing(value=9)],
        [floats, norm, v.RandomErasing()],
        [floats, v.RandomErasing(value=0.5), norm],
        [floats, v.RandomErasing(), v.RandomHorizontalFlip()],
        [floats, norm, v.RandomApply([v.RandomErasing()])],
    ):
        plan = compile_plan([v.CenterCrop(9), *steps])
        assert {stage.where for stage in plan.stages} <= {"native", "nothing"}
        assert (plan.native, plan.movable, plan.device, plan.random) == (True, True, (), True)
        moved = compile_plan([v.CenterCrop(9), *steps], device=True)
        assert "RandomErasing" in names(moved)
        assert plan.augmented == len([name for name in names(moved) if name not in _FLOATS])
    for steps in (
        [floats, norm, v.RandomErasing(value=1)],
        [floats, v.RandomErasing(value=3)],
        [v.ColorJitter(0.4), floats, norm, v.RandomErasing(value=1)],
    ):
        for device in (False, True):
            plan = compile_plan(steps, device=device)
            assert (plan.native, plan.movable, plan.device) == (True, False, ())


def test_autoaugment_with_another_table_is_not_autoaugment() -> None:
    """A policy whose table somebody changed is not the one that its name says."""
    changed = v2.AutoAugment()
    changed._policies = changed._policies[:1]
    assert not compile_plan([changed], device=True).device
    assert compile_plan([v2.AutoAugment()], device=True).device


@BOTH
def test_the_dataset_for_a_device_ends_where_the_device_begins(packed: Path, v: Any) -> None:
    """snapshot(device=True) gives the native part's samples; the dataset itself still gives whole ones."""
    dataset = PackedDataset(
        packed, transform=v.Compose([v.CenterCrop(40), v.RandomInvert(1.0), v.ToTensor()])
    )
    left = dataset.snapshot(device=True)
    assert names(left.plan) == ["RandomInvert", "ToFloat"]
    assert left.transform is dataset.transform
    native, whole = left[5][0], dataset[5][0]
    assert native.dtype == torch.uint8
    assert torch.equal((255 - native).to(torch.float32) / 255, whole)
    plain = PackedDataset(packed, transform=T.CenterCrop(40))
    assert plain.snapshot(device=True).plan is plain.plan
