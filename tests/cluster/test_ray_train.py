"""FastLoader in Ray Train: each worker has its part of every epoch, and prepare_data_loader does not
divide it once more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_helpers import folder
from extras import needed

import fastload
from fastload.store import DatasetWriter, Field, Schema

needed("ray")

ROOT = Path(__file__).resolve().parents[2]
COUNT = 21
EXAMPLE = ROOT / "examples" / "ray_train.py"
_BOTH = """
import sys
from pathlib import Path
import ray
from ray_train_loop import loop
script, data, out, *arguments = sys.argv[1:]
example = {"__name__": "the example"}
exec(compile(Path(script).read_text(), script, "exec"), example)
trains = example["train"]
def both(config):
    loop({"data": data, "out": out})
    trains(config)
example["train"] = both
sys.argv = [script, *arguments]
ray.init(include_dashboard=False)
example["main"]()
"""
"""Runs the example on the arguments after its first two; each worker runs `loop` on these before the
example's own loop."""


def run(folder: Path, *command: str) -> str:
    """Runs a Python program on its own Ray cluster and returns its output. Fails if the exit status is not 0
    or 200 s have passed.

    It starts outside of the checkout, whose fastload may not be built. RAY_ADDRESS keeps it off the cluster
    of the other tests in this process, which kill raylets and drivers.

    Args:
        folder: of Ray's environment.
        command: the arguments of Python.
    """
    own = {**os.environ, "RAY_ADDRESS": "local", "RAY_TMPDIR": str(folder / "own")}
    try:
        ended = subprocess.run(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=200,
            check=False,
            cwd=folder,
            env=own,
        )
    except subprocess.TimeoutExpired as late:
        pytest.fail(
            f"the program ran for more than {late.timeout} s and "
            f"printed:\n{(late.stdout or b'').decode()[-3000:]}"
        )
    printed = ended.stdout.decode()
    assert ended.returncode == 0, printed[-3000:]
    return printed


@pytest.mark.timeout(240)
def test_two_workers(tmp_path: Path, ray_environment: Path) -> None:
    """With shard="auto" the loader is kept, with its engine: every sample once over both workers (and one
    twice, of 21), in another order in each epoch. Without it Ray Train makes a plain DataLoader with a
    DistributedSampler of its own, as of any DataLoader. examples/ray_train.py trains on what it is given,
    half of the samples on each of two workers."""
    schema = Schema((Field("image", "image"), Field("label", "int")))
    with DatasetWriter(tmp_path / "data.fl", schema, shard_size=1 << 20, options={}) as writer:
        for index in range(COUNT):
            writer.append(
                {"image": bytes([index]) * (16 * 16 * 3), "label": index},
                image_kind="raw",
                height=16,
                width=16,
            )
        writer.finish(None, {"samples": COUNT})
    count = fastload.pack(folder(tmp_path / "src"), tmp_path / "train.fl").samples
    options = ["--epochs", "2", "--size", "32", "--batch-size", "8", "--storage", str(tmp_path / "runs")]
    own = [str(tmp_path / "data.fl"), str(tmp_path)]
    printed = run(ray_environment, "-c", _BOTH, str(EXAMPLE), *own, str(tmp_path / "train.fl"), *options)
    both = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [(each["ours"], each["engine"], each["plain"]) for each in both] == [
        ("FastLoader", "threads", "DataLoader")
    ] * 2
    for had in (*zip(*(each["epochs"] for each in both), strict=True), [each["theirs"] for each in both]):
        assert [len(part) for part in had] == [11, 11]
        assert sorted({*had[0], *had[1]}) == list(range(COUNT))
    assert len({tuple(epoch) for epoch in both[0]["epochs"]}) == 3
    for rank in range(2):
        for epoch in range(2):
            assert f"worker {rank}, epoch {epoch}: {-(-count // 2)} samples" in printed, printed[-3000:]
