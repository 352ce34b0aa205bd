"""A forked worker computes with whatever its parent has computed with: no library waits for threads that
the fork did not copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("forked_pools.py")
NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


@pytest.mark.long
@pytest.mark.parametrize(
    "variables",
    [{}, {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}, dict.fromkeys(NAMES, "2")],
    ids=["unset", "omp=1", "omp=2", "all=2"],
)
def test_libraries_that_the_parent_has_used(packed: Path, variables: dict[str, str]) -> None:
    """torch's OpenMP ops, MKL's and OpenBLAS's matrices, OpenCV's filters and fastload's decoder, whose
    threads are at work during the fork, give in two rounds of forked workers what they give in the parent,
    for every setting of the variables that count threads."""
    clean = {name: value for name, value in os.environ.items() if name not in NAMES}
    # A worker ends with its parent.
    done = subprocess.run(
        [sys.executable, PROGRAM, packed],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for row in told["there"]:
        assert dict(zip(told["names"], row, strict=True)) == pytest.approx(
            dict(zip(told["names"], told["here"], strict=True))
        )
