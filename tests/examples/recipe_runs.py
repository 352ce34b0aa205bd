"""Runs of the recipes of examples/ on small datasets, without a GPU."""

from __future__ import annotations

import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import warm
from servers.process import free_ports

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
PROGRAM = HERE / "run_recipe.py"
IMPORTS = (*warm.TRAINING, "timm")


def environment() -> dict[str, str]:
    """The variables of a recipe's process."""
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def printed(folder: Path, script: str, *words: str, imports: tuple[str, ...] = IMPORTS) -> str:
    """The output of a recipe that ran to its end in a folder."""
    done = warm.run(
        PROGRAM,
        EXAMPLES / script,
        *words,
        folder=folder,
        environment=environment(),
        imports=imports,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def printed_by_ranks(folder: Path, ranks: int, script: str, *words: str) -> str:
    """The output of a recipe on so many ranks, which are told what torchrun tells them."""
    (port,) = free_ports(1)
    programs = [
        warm.Program(
            *(PROGRAM, EXAMPLES / script, *words),
            folder=folder,
            environment=environment() | warm.rank_variables(rank, ranks, port),
            imports=IMPORTS,
        )
        for rank in range(ranks)
    ]
    try:
        with ThreadPoolExecutor(ranks) as pool:
            written = list(pool.map(lambda program: program.communicate(120), programs))
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert not any(program.returncode for program in programs), written
    return "".join(out for out, _ in written)


def losses(folder: Path, script: str, *words: str) -> list[float]:
    """The losses of one run, step by step; all of them finite."""
    text = printed(folder, script, *words)
    found = [float(value) for value in re.findall(r"^epoch \d+ step \d+ loss (\S+)$", text, re.MULTILINE)]
    assert all(map(math.isfinite, found))
    return found
