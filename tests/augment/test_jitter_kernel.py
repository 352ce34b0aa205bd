"""The jitter's kernel for GPUs, without one: in Triton's interpreter, on the CPU, and as what its compiler
makes for an H100 or H200."""

from __future__ import annotations

import os
import sys

import pytest
import warm

triton = pytest.importorskip("triton", reason="Triton is not installed")
fuses = pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9),
    reason="its interpreter rounds fused steps twice",
)

INTERPRETED = """
import sys
sys.path[:0] = sys.argv[1].split(":")
import numpy as np, torch
from augment_helpers import pictures
from fastload import augment as A
from fastload.augment import batch, jitter_kernel

jitter_kernel.prove(torch.device("cpu"))
ops = [A.ColorJitter(0.4, 0.4, 0.4, 0.1), A.ColorJitter(0.8, 0.9, 1.5, 0.5, p=0.7), A.ColorJitter(0.4, 0,
    0.4)]
first, last = torch.contiguous_format, torch.channels_last
kinds = (torch.uint8, first), (torch.uint8, last), (torch.float16, last), (torch.float32, first)
key = {"seed": 5, "epoch": 1, "indices": range(12)}
grouped = batch.Frame
pairs = [(ops[0], kind) for kind in kinds] + [(ops[1], kind) for kind in kinds[::2]] + [(ops[2],
    kind) for kind in kinds[1::2]]
for op, (dtype, form) in pairs:
    x = pictures(12, 37, 41)
    x = (x if dtype == torch.uint8 else (x / 255).to(dtype)).contiguous(memory_format=form)
    augment = A.AugmentBatch([op])
    want = augment(x, **key)
    batch.Frame = lambda *values: grouped(*values[:4], True)
    got = augment(x, **key)
    batch.Frame = grouped
    assert got.stride() == want.stride() == x.stride()
    if dtype == torch.float32:
        torch.testing.assert_close(got, want, rtol=0, atol=2e-6)
    else:
        assert torch.equal(got, want), (op, dtype, form, (got != want).float().mean())
one_row = torch.full((1, 3, 5, 7), 90, dtype=torch.uint8)
batch.Frame = lambda *values: grouped(*values[:4], True)
assert A.AugmentBatch(ops)(one_row, seed=5, epoch=1, indices=[3]).shape == one_row.shape
print("same")
"""

COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from fastload.augment import jitter_kernel

for name, dtype, last in ("_sums", "u8", True), ("_sums", "bf16", False), ("_apply", "u8", True), ("_apply",
    "bf16", False):
    kernel = getattr(jitter_kernel, name)
    values = {"WHOLE": dtype == "u8", "LAST": last, "PIXELS": jitter_kernel.PIXELS}
    kinds = {"source": "*" + dtype, "out": "*" + dtype, "codes": "*i32", "factors": "*fp32", "sums": "*fp64",
        "means": "*fp32"}
    kinds |= {"plane": "i32", "white": "fp32"}
    signature = {each: "constexpr" if each in values else kinds[each] for each in kernel.arg_names}
    constants = {(at,): values[each] for at, each in enumerate(kernel.arg_names) if each in values}
    made = compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32),
        options={"enable_fp_fusion": False})
    assert made.asm["cubin"]
    assert ".local" not in made.asm["ptx"], "registers are spilled"
print("made")
"""


def run(program: str, interpret: bool) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = warm.run(program, ":".join(sys.path), environment=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
@fuses
def test_the_same_pixels() -> None:
    """Op by op on the CPU or at once: bytes and float16 equal, float32 but for the order in which the mean
    is added up."""
    assert run(INTERPRETED, True).split() == ["same"]


def test_it_compiles() -> None:
    """For bytes and floats, in either layout, without spilling."""
    assert run(COMPILED, False).split() == ["made"]
