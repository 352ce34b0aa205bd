"""Section 8: compute-sanitizer's memcheck over one launch of each kernel of Triton's, and of one with a
planted overrun."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from device_sections.environment import ROOT
from device_sections.report import Details, Report, Skipped, Wrong

LIMIT_S = 45
PLANTED = "planted_overrun"
REFUSALS = ("Device not supported", "Unable to", "not supported on this", "error while loading")
"""Sentences with which compute-sanitizer gives up."""


def run(report: Report, rehearse: bool) -> None:
    """A rehearsal launches the kernels in Triton's interpreter."""
    report.run("memcheck", interpreted if rehearse else checked, LIMIT_S + 5)


def interpreted() -> Details:
    """The kernels in the interpreter of Triton's, on the CPU."""
    if importlib.util.find_spec("triton") is None:
        raise Skipped("Triton is not installed")
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    from device_sections import launches

    return {"kernels": launches.all_of("cpu")}


def checked() -> Details:
    """The kernels on the device, under memcheck, each tensor in memory of its own."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        raise Skipped("there is no compute-sanitizer")
    command = [program, "--tool", "memcheck", sys.executable, "-m", "device_sections.launches"]
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, **streams, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Skipped(f"not done after {LIMIT_S} s") from None
    return judged(done.stdout)


def judged(output: str) -> Details:
    """The verdict on memcheck's output.

    Raises:
        Skipped: compute-sanitizer does not work here.
        Wrong: it found an error in a kernel, or did not find the planted one.
    """
    lines = output.splitlines()
    details: Details = {"tail": [line[:200] for line in lines[-60:]]}
    refusal = next(
        (line for line in lines if line.startswith("=========") and any(each in line for each in REFUSALS)),
        None,
    )
    if refusal is not None:
        raise Skipped(refusal.strip("= "), **details)
    launched = next((line.partition(":")[2].split() for line in lines if line.startswith("launched:")), None)
    if launched is None:
        raise Wrong("the kernels were not launched", **details)
    # "Invalid __global__ write of size 4 bytes", and in the line after it the kernel's name
    places = [
        after.strip("= ")
        for line, after in itertools.pairwise(lines)
        if line.startswith("========= Invalid ")
    ]
    details |= {"launched": launched, "invalid": len(places)}
    others = [place for place in places if PLANTED not in place]
    if others:
        raise Wrong(f"invalid accesses: {', '.join(others[:5])}", **details)
    if not places:
        raise Wrong("memcheck did not see the planted overrun", **details)
    return details | {"table": f"{len(launched)} kernels without invalid accesses"}
