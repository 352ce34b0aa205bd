"""Steps whose code, attributes or surroundings were replaced run in Python as they are, and explain()
names what was replaced."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from fastload import FastLoader, PackedDataset
from fastload.common.originals import OwnCode
from fastload.transforms.compiler import compile_plan

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
from torchvision.transforms import _functional_pil, autoaugment, functional  # noqa: E402
from torchvision.transforms.v2 import _transform  # noqa: E402
from torchvision.transforms.v2.functional import _geometry, _utils  # noqa: E402

V1 = v1.Compose([v1.CenterCrop(8), v1.ToTensor()])
V2 = v2.Compose([v2.ToImage(), v2.CenterCrop(8), v2.ToDtype(torch.float32, scale=True)])


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that bears another's names, as functools.wraps gives them, and returns something else."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return made * 2 if isinstance(made, torch.Tensor) else made

    return wrapper


@contextmanager
def put(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value of an attribute, for a while."""
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


def python_of(transform: Any) -> str:
    """Why the first step of a plan that is Python is so; "" where all of it is native."""
    plan = compile_plan(transform)
    assert bool(plan.python) == any(stage.where == "python" for stage in plan.stages)
    return next((stage.why for stage in plan.stages if stage.where == "python"), "")


REPLACED: dict[str, tuple[Any, Any, str, Any]] = {
    "a method": (V1, v1.CenterCrop, "forward", "torchvision.transforms.transforms.CenterCrop.forward"),
    "a call": (V1, v1.ToTensor, "__call__", "torchvision.transforms.transforms.ToTensor.__call__"),
    "Compose": (V1, v1.Compose, "__call__", "torchvision.transforms.transforms.Compose.__call__"),
    "a functional": (V1, functional, "center_crop", "torchvision.transforms.functional.center_crop"),
    "for Pillow": (V1, _functional_pil, "crop", "torchvision.transforms._functional_pil.crop"),
    "a conversion": (V1, functional, "to_tensor", "torchvision.transforms.functional.to_tensor"),
    "Pillow": (V1, Image.Image, "crop", "PIL.Image.Image.crop"),
    "v2's method": (
        V2,
        v2.CenterCrop,
        "transform",
        "torchvision.transforms.v2._geometry.CenterCrop.transform",
    ),
    "v2's base": (V2, v2.Transform, "forward", "torchvision.transforms.v2._transform.Transform.forward"),
    "v2's kernels": (
        V2,
        v2.Transform,
        "_call_kernel",
        "torchvision.transforms.v2._transform.Transform._call_kernel",
    ),
    "v2's Compose": (V2, v2.Compose, "forward", "torchvision.transforms.v2._container.Compose.forward"),
    "v2's functional": (V2, v2.functional, "center_crop", "torchvision.transforms.v2.functional.center_crop"),
    "where it is defined": (
        V2,
        _geometry,
        "center_crop",
        "torchvision.transforms.v2.functional._geometry.center_crop",
    ),
    "v2's table": (V2, _utils, "_get_kernel", "torchvision.transforms.v2.functional._utils._get_kernel"),
    "imported by v2": (V2, _transform, "_get_kernel", "torchvision.transforms.v2._transform._get_kernel"),
    "torch's call": (V2, nn.Module, "__call__", "torch.nn.modules.module.Module.__call__"),
}


@pytest.mark.parametrize("case", REPLACED)
def test_a_replaced_function_makes_its_steps_python(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is, whoever calls it: the plan says which, and is native again when it is put back."""
    transform, owner, name, path = REPLACED[case]
    assert python_of(transform) == ""
    for value in (twice(getattr(owner, name)), functools.partial(getattr(owner, name))):
        with put(monkeypatch, owner, name, value):
            assert f"{path} was replaced" in python_of(transform)
        assert python_of(transform) == ""


def test_code_that_was_put_into_a_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is the same object, and its code object is not: tools that reload a module do so."""

    def hflip(img: Any) -> Any:
        return img

    assert python_of(V1) == ""
    before = functional.hflip.__code__
    with put(monkeypatch, functional.hflip, "__code__", hflip.__code__):
        assert "torchvision.transforms.functional.hflip was replaced" in python_of(V1)
    assert functional.hflip.__code__ is before
    assert python_of(V1) == ""


def test_another_function_of_the_library_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is torchvision's own, and not this function's."""
    flip = v1.Compose([v1.RandomHorizontalFlip(1.0), v1.ToTensor()])
    with put(monkeypatch, functional, "hflip", functional.vflip):
        assert "functional.hflip was replaced" in python_of(flip)
    flip2 = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0)])
    with put(monkeypatch, v2.functional, "horizontal_flip", v2.functional.vertical_flip):
        assert "functional.horizontal_flip was replaced" in python_of(flip2)
    with put(monkeypatch, v1.CenterCrop, "forward", v1.Pad.forward):
        assert "CenterCrop.forward was replaced" in python_of(V1)


def test_a_class_attribute_that_hides_the_objects_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(v1.CenterCrop, "size", property(lambda self: (4, 4)), raising=False)
        assert "CenterCrop.size was replaced" in python_of(V1)
    assert python_of(V1) == ""


def test_a_name_that_hides_a_builtin_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(functional, "len", lambda value: 1, raising=False)
        assert "torchvision.transforms.functional.len was replaced" in python_of(V1)


def test_other_classes_stay_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of one class, and functions that only other kinds of steps call, leave steps of other
    classes native."""
    with put(monkeypatch, v1.RandomRotation, "forward", len):
        assert python_of(V1) == ""
    with put(monkeypatch, v2.functional, "rotate", len):
        assert python_of(V1) == ""
    with (
        put(monkeypatch, v1.CenterCrop, "__repr__", lambda self: "mine"),
        put(monkeypatch, autoaugment.RandAugment, "forward", len),
    ):
        assert python_of(V1) == ""


def test_lookalikes_are_not_taken_for_torchvisions() -> None:
    """Classes and callables that only bear a name of torchvision's, subclasses, and objects with a method
    of their own."""

    class CenterCrop:
        __module__ = "torchvision.transforms.transforms"

        def __init__(self) -> None:
            self.size = (8, 8)

        def __call__(self, image: Any) -> Any:
            return image

    class Mine(v1.CenterCrop):  # type: ignore[misc]
        padding_mode = "edge"

    CenterCrop.__qualname__ = "CenterCrop"
    own = v2.CenterCrop(8)
    own._call_kernel = lambda *args, **kwargs: args[1]
    forward = v1.CenterCrop(8)
    forward.forward = lambda image: image
    wrapped = functools.update_wrapper(functools.partial(v1.CenterCrop(8)), v1.CenterCrop)
    assert "only has the name" in python_of([CenterCrop(), v1.ToTensor()])
    assert "its own _call_kernel was replaced" in python_of([v2.ToImage(), own])
    assert "its own forward was replaced" in python_of([forward, v1.ToTensor()])
    for step in (Mine(8), wrapped, v1.CenterCrop(8).forward):
        assert python_of([step, v1.ToTensor()])


def test_hooks_make_python_of_a_step_and_of_a_compose() -> None:
    """Forward hooks and pre-hooks of a step, of v2's Compose, and those that torch calls for every module."""
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        step, compose = v2.CenterCrop(8), v2.Compose([v2.ToImage(), v2.CenterCrop(8)])
        for hooked, transform in ((step, [v2.ToImage(), step]), (compose, compose)):
            handle = getattr(hooked, register)(lambda *args: None)
            assert "it has forward hooks" in python_of(transform)
            handle.remove()
            assert python_of(transform) == ""
    for every in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = every(lambda *args: None)
        try:
            assert "global forward hooks" in python_of(V2)
        finally:
            handle.remove()
        assert python_of(V2) == ""


def test_the_replaced_code_runs(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and batches are those of the transform as it is now, epoch by epoch, and explain() says why
    they are Python's."""
    dataset = PackedDataset(packed, transform=V1)
    with FastLoader(dataset, 4, num_workers=0) as loader:
        before = [images.clone() for images, _ in loader]
        assert loader.stats()["engine"] == "threads"
        with put(monkeypatch, functional, "to_tensor", twice(functional.to_tensor)):
            for mine, images in zip(before, loader, strict=True):
                assert torch.equal(images[0], mine * 2)
            assert loader.stats()["engine"] == "caller"
            assert "torchvision.transforms.functional.to_tensor was replaced" in loader.explain(all=True)
            assert torch.equal(dataset[0][0], before[0][0] * 2)
        assert torch.equal(next(iter(loader))[0], before[0])
        assert loader.stats()["engine"] == "threads"


def test_a_hooked_compose_after_a_native_step_gets_a_pillow_image(packed: Path) -> None:
    """It is called as one step, which makes a tensor as its own steps do."""
    from fastload import transforms as T

    compose = v2.Compose([v2.ToImage()])
    compose.register_forward_hook(lambda module, args, made: made + 1)
    plain, hooked = (
        PackedDataset(packed, transform=[T.CenterCrop(8), each])[0][0] for each in (v2.ToImage(), compose)
    )
    assert torch.equal(hooked.as_subclass(torch.Tensor), plain.as_subclass(torch.Tensor) + 1)


def test_what_was_replaced_before_fastload_was_imported_is_found(tmp_path: Path) -> None:
    """No state of this process tells what torchvision's function was: its file does."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torchvision_ops
from torchvision import transforms
from torchvision.transforms import functional
import functools
original = functional.center_crop
functional.center_crop = functools.wraps(original)(lambda *args: original(*args))
from fastload.transforms.compiler import compile_plan
print([stage.why for stage in compile_plan(transforms.Compose([transforms.CenterCrop(8),
    transforms.ToTensor()])).stages])
"""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tests],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert "torchvision.transforms.functional.center_crop was replaced" in done.stdout, done.stderr


def test_a_module_whose_code_cannot_be_read_again_counts_as_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fastload.common.originals._read", {})
        patch.setattr(functional.__spec__, "loader", None)
        assert "cannot be read again" in OwnCode("torchvision.transforms.functional").replaced()


def test_modules_are_not_imported_to_look_at_them() -> None:
    assert OwnCode("no_such_module", ("no_such_module:Class", ("method",))).replaced() == ""
    assert "no_such_module" not in sys.modules


def test_a_copy_of_a_function_with_the_same_code_elsewhere_is_not_the_librarys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same code with other globals calls other functions."""
    copy = FunctionType(functional.center_crop.__code__, {**vars(functional), "crop": len}, "center_crop")
    with put(monkeypatch, functional, "center_crop", copy):
        assert "center_crop was replaced" in python_of(V1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [v1.ToTensor, v2.ToTensor])
@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
def test_to_tensor_gives_the_default_dtype(packed: Path, dtype: torch.dtype, make: Any) -> None:
    """torchvision's ToTensor gives torch's default dtype of that moment: so do the next samples and the
    next epoch."""
    transform = v1.Compose([v1.CenterCrop(8), make()])
    dataset = PackedDataset(packed, transform=transform)
    with FastLoader(dataset, 4, num_workers=0) as loader:
        assert next(iter(loader))[0].dtype == torch.float32
        torch.set_default_dtype(dtype)
        try:
            assert next(iter(loader))[0].dtype == dataset[0][0].dtype == dtype
            assert f"default dtype, which is {dtype}" in loader.explain(all=True)
        finally:
            torch.set_default_dtype(torch.float32)
        assert next(iter(loader))[0].dtype == torch.float32
        assert loader.stats()["engine"] == "threads"
