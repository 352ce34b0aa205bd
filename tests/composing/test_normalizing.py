"""torchvision's normalize in one pass: its bits, strides and errors; in worker processes alone, and never
in place of other code."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import _functional_tensor as module
from torchvision.transforms import functional as F

from fastload import FastLoader
from fastload._native import core
from fastload.composing import normalizing
from fastload.errors import ArgumentError

OWN: Callable[..., Any] = module.normalize
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
numbers = st.floats(-10, 10, width=64)


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """The function is exchanged, as in a worker."""
    normalizing.exchange()
    yield
    module.normalize = OWN


def image(channels: int, height: int, width: int, layout: str, seed: int = 0) -> torch.Tensor:
    """Values of all magnitudes, infinities and subnormal numbers among them, in a layout."""
    raw = torch.randint(
        -(2**31), 2**31 - 1, (channels, height, width), generator=torch.Generator().manual_seed(seed)
    ).to(torch.int32)
    found = raw.view(torch.float32)
    found = torch.where(raw % 3 == 0, found, raw % 256 / 255)
    if layout == "interleaved":
        return found.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    return found.transpose(1, 2).contiguous().transpose(1, 2) if layout == "transposed" else found


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.stride() == b.stride()
        and torch.equal(a.isnan(), b.isnan())
        and torch.equal(a[~a.isnan()], b[~b.isnan()])
    )


@given(
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(1, 40),
    st.sampled_from(["planar", "interleaved", "transposed"]),
    st.lists(st.tuples(numbers, numbers.filter(bool)), min_size=5, max_size=5),
)
def test_bits_and_strides(
    channels: int, height: int, width: int, layout: str, given_numbers: list[tuple[float, float]]
) -> None:
    """Equal to torchvision's for any values, numbers, sizes and layouts; the input stays as it was."""
    mean, std = ([pair[part] for pair in given_numbers[:channels]] for part in (0, 1))
    tensor = image(channels, height, width, layout, height)
    before = tensor.clone()
    try:
        expected = OWN(tensor, mean, std)
    except ValueError as error:  # a number rounds to zero
        with pytest.raises(ValueError, match="division by zero"):
            F.normalize(tensor, mean, std)
        assert "division by zero" in str(error)
        return
    found = F.normalize(tensor, mean, std)
    assert same(found, expected)
    assert same(tensor, before)
    assert found.data_ptr() != tensor.data_ptr() or not tensor.numel()


ODD: dict[str, tuple[Any, Any, Any]] = {
    "bytes": (torch.zeros(3, 4, 4, dtype=torch.uint8), MEAN, STD),
    "two dimensions": (torch.zeros(4, 4), MEAN, STD),
    "a batch": (torch.rand(2, 3, 4, 4), MEAN, STD),
    "float64": (torch.rand(3, 4, 4, dtype=torch.float64), MEAN, STD),
    "half": (torch.rand(3, 4, 4).half(), MEAN, STD),
    "a gradient": (torch.rand(3, 4, 4, requires_grad=True), MEAN, STD),
    "a subclass": (tv_tensors.Image(torch.rand(3, 4, 4)), MEAN, STD),
    "one number": (torch.rand(3, 4, 4), [0.5], [0.25]),
    "tensors": (torch.rand(3, 4, 4), torch.tensor(MEAN), torch.tensor(STD)),
    "integers": (torch.rand(3, 4, 4), [0, 1, 2], [1, 2, 3]),
    "zero": (torch.rand(3, 4, 4), MEAN, (0.2, 0.0, 0.2)),
    "too small for float32": (torch.rand(3, 4, 4), MEAN, (0.2, 1e-60, 0.2)),
    "too large for float32": (torch.rand(3, 4, 4), (1e300, 0.0, 0.0), STD),
    "channels differ": (torch.rand(4, 4, 4), MEAN, STD),
    "no tensor": ([1.0], MEAN, STD),
    "meta": (torch.rand(3, 4, 4, device="meta"), MEAN, STD),
}


@pytest.mark.parametrize("name", ODD)
def test_everything_else_is_torchvisions(name: str) -> None:
    """Types, gradients and exceptions."""
    try:
        expected = OWN(*ODD[name])
    except Exception as error:
        with pytest.raises(type(error)) as caught:
            module.normalize(*ODD[name])
        assert str(caught.value) == str(error)
        return
    found = module.normalize(*ODD[name])
    assert type(found) is type(expected)
    assert (found.dtype, found.requires_grad, found.device) == (
        expected.dtype,
        expected.requires_grad,
        expected.device,
    )
    assert found.device.type == "meta" or torch.equal(found, expected)


def test_in_place_and_under_a_mode() -> None:
    """inplace=True changes the tensor itself; a mode of torch's sees torch's operators, and vmap works."""
    tensor = torch.rand(3, 5, 5)
    expected = OWN(tensor, MEAN, STD)
    with torch.device("cpu"):
        assert torch.equal(F.normalize(tensor, MEAN, STD), expected)
    assert torch.equal(torch.vmap(lambda each: module.normalize(each, MEAN, STD))(tensor[None])[0], expected)
    assert F.normalize(tensor, MEAN, STD, inplace=True) is tensor
    assert torch.equal(tensor, expected)


def test_the_native_pass_checks_shapes() -> None:
    """Shapes and numbers that do not fit are an error, and nothing is written."""
    pixels = np.zeros((3, 4, 5), np.float32)
    for out, mean, interleaved in (
        ((3, 4, 4), MEAN, False),
        ((3, 4, 5), MEAN[:2], False),
        ((3, 4, 5), MEAN, True),
    ):
        with pytest.raises(ArgumentError, match="normalize: "):
            core.normalize(pixels, np.zeros(out, np.float32), mean, STD, interleaved)


def test_plain_c_gives_the_same_bits() -> None:
    """Without AVX2."""
    program = (
        "import sys, zlib, numpy as np; from fastload._native import core\n"
        "x = np.random.default_rng(1).standard_normal((3, 37, 29)).astype('f4'); out = np.empty_like(x)\n"
        "core.normalize(x, out, [.4, .5, .6], [.2, .3, .4]); a = zlib.crc32(out)\n"
        "y = np.ascontiguousarray(x.transpose(1, 2, 0)); out = np.empty_like(y)\n"
        "core.normalize(y, out, [.4, .5, .6], [.2, .3, .4], True); print(a, "
        "zlib.crc32(np.ascontiguousarray(out.transpose(2, 0, 1))))"
    )
    path = os.pathsep.join(sys.path)
    said = {
        cpu: subprocess.check_output(
            [sys.executable, "-c", program], env={**os.environ, **cpu_of(cpu), "PYTHONPATH": path}, text=True
        )
        for cpu in ("", "plain")
    }
    assert said[""] == said["plain"]
    assert len(set(said[""].split())) == 1


def cpu_of(name: str) -> dict[str, str]:
    return {"FASTLOAD_CPU": name} if name else {}


class Told(Dataset[Any]):
    """Which function torchvision's is, where samples are made; whether its pickle is torchvision's name."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[bool, bool]:
        return hasattr(module.normalize, "__wrapped__"), pickle.loads(
            pickle.dumps(module.normalize)
        ) is module.normalize


@pytest.mark.parametrize(
    ("options", "lazy"), [({}, True), ({"lazy": False}, False), ({"engine": "python"}, False)]
)
def test_in_workers_alone(options: dict[str, Any], lazy: bool) -> None:
    """Where images are lazy, and in no other process."""
    module.normalize = OWN
    try:
        with FastLoader(
            Told(), batch_size=None, num_workers=1, multiprocessing_context="fork", **options
        ) as loader:
            assert [tuple(each) for each in loader] == [(lazy, True)] * 2
        assert module.normalize is OWN
    finally:
        normalizing.exchange()


def test_code_that_a_program_replaced_stays(tmp_path: Path) -> None:
    """A function of the program's own is not exchanged."""

    def mine(tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
        return tensor

    module.normalize = mine
    try:
        normalizing.exchange()
        assert module.normalize is mine
    finally:
        module.normalize = OWN
        normalizing.exchange()
