"""The kernel for GPUs, without one: in Triton's interpreter, on the CPU, and as what its compiler makes
for an H100 or H200."""

from __future__ import annotations

import os
import re

import pytest
import warm

triton = pytest.importorskip("triton", reason="Triton is not installed")
fuses = pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9),
    reason="its interpreter rounds fused steps twice",
)

INTERPRETED = """
import itertools, sys, torch
from fastload.device import to_float_kernel as float_kernel
from fastload.device.to_float import FORMATS, eager

if sys.argv[1] == "divide":
    float_kernel.divides = lambda *constants: True
constants = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), (None, None)
shapes = (1, 1, 1), (2, 37, 41), (1, 48, 64)
float_kernel.prove(torch.device("cpu"))
cases = 0
for dtype, source, out, shape in itertools.product((torch.float32, torch.float16), FORMATS, FORMATS, shapes):
    rows, height, width = shape
    x = torch.randint(0, 256, (rows, 3, height, width), dtype=torch.uint8).contiguous(memory_format=source)
    for (mean, std), reciprocal in itertools.product(constants, (False, True)):
        want = eager(x, dtype, mean, std, out, reciprocal)
        got = float_kernel.to_float(x, dtype, mean, std, out, reciprocal)
        assert got.stride() == want.stride()
        assert torch.equal(got, want), (dtype, source, out, shape, mean, reciprocal)
        cases += 1
print(cases, "cases")
"""


@fuses
@pytest.mark.parametrize("way", ["divide", "corrected"])
def test_interpreted(way: str) -> None:
    """In every layout and size the values of torch's ops, bit for bit. The interpreter's bfloat16
    truncates, and is left out."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = warm.run(INTERPRETED, way, environment=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["96", "cases"]


COMPILED = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from fastload.device import to_float_kernel as float_kernel

name, out, reciprocal, divide = sys.argv[1], sys.argv[2], sys.argv[3] == "True", sys.argv[4] == "True"
kernel = getattr(float_kernel, name)
sizes = {"BLOCK": float_kernel.BLOCK, "RUNS": float_kernel.RUNS, "PIXELS": float_kernel.PIXELS}
values = {"RECIPROCAL": reciprocal, "NORMALIZE": True, "DIVIDE": divide, **sizes}
kinds = {"source": "*u8", "out": "*" + out, "count": "i32", "plane": "i32"}
kinds |= {each: "constexpr" if each in values else "fp32" for each in kernel.arg_names if each not in kinds}
signature = {each: kinds[each] for each in kernel.arg_names}
constants = {(at,): values[each] for at, each in enumerate(kernel.arg_names) if each in values}
aligned = {(at,): [["tt.divisibility", 16]] for at, each in enumerate(kernel.arg_names) if each in ("source",
    "out", "plane")}
source = ASTSource(kernel, signature, constants, aligned)
made = compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})
assert made.asm["cubin"]
print(made.asm["ptx"])
"""


def compiled(*arguments: object) -> str:
    """The kernel's PTX for compute capability 9.0."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = warm.run(COMPILED, *map(str, arguments), environment=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def count(pattern: str, ptx: str) -> int:
    return len(re.findall(pattern, ptx))


@pytest.mark.parametrize("name", ["_innermost", "_planar", "_to_last", "_to_planar"])
def test_compiled(name: str) -> None:
    """It compiles; the usual way has no division and stores 16 bytes at once; bfloat16 is rounded to
    nearest."""
    ptx = compiled(name, "bf16", False, False)
    assert not count(r"\bdiv\.", ptx)
    assert count(r"\bfma\.rn\.f32", ptx)
    assert count(r"\bst\.global[.\w]*\.v4\.b32", ptx)
    assert count(r"\bcvt\.rn\.bf16", ptx)
    if name in ("_innermost", "_planar"):
        assert count(r"\bld\.global[.\w]*\.v4\.b32", ptx)


def test_nothing_is_fused_that_torch_rounds() -> None:
    """byte * (1 / 255) - mean stays two roundings."""
    assert not count(r"\bfma\.", compiled("_planar", "fp32", True, True))
