"""shard="auto" on two and four ranks, as torchrun starts them, over gloo, on a bucket of a server on this
machine."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from integration_helpers import HERE, reports, run_program, two_ranks_of
from numbers_data import COUNT
from ranks_program import BEFORE, EPOCHS, TIMEOUT
from servers.process import free_ports
from servers.seaweedfs import SeaweedFS

from fastload import add_columns, push

EVERY = list(range(COUNT))
BATCH = 5
Bucket = tuple[str, str]


@pytest.fixture(scope="module")
def bucket(numbered: Path, seaweedfs: SeaweedFS) -> Bucket:
    """The packed dataset in a bucket: its URL, and the storage options as JSON."""
    push(numbered, "s3://fastload/numbered.fl", storage_options=seaweedfs.options())
    return "s3://fastload/numbered.fl", json.dumps(seaweedfs.options())


def run(bucket: Bucket, out: Path, ranks: int, state: Path) -> list[dict[str, Any]]:
    """What each rank reports."""
    out.mkdir()
    run_program("ranks_program.py", *bucket, out, state, ranks=ranks)
    found = reports(out)
    assert len(found) == ranks
    return found


def together(ranks: list[dict[str, Any]], name: str) -> list[int]:
    return sorted(label for report in ranks for label in report[name])


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_ranks_share_epochs_and_others_go_on(bucket: Bucket, tmp_path: Path, before: int, after: int) -> None:
    """Each epoch has every sample once over the ranks, in an order of its own that set_epoch repeats; the
    state of one rank is all ranks', and another number of them has the rest of the epoch, once, and then a
    whole one."""
    state = tmp_path / "state.json"
    first = run(bucket, tmp_path / "first", before, state)
    for epoch in range(EPOCHS):
        assert sorted(label for report in first for label in report["epochs"][epoch]) == EVERY
    for report in first:
        assert report["epochs"][0] != report["epochs"][1]
        assert report["again"] == report["epochs"][0]
        assert report["state"] == first[0]["state"]
    assert together(first, "evaluated") == EVERY
    begun = together(first, "begun")
    assert len(begun) == before * BATCH * BEFORE
    second = run(bucket, tmp_path / "second", after, state)
    rest = together(second, "rest")
    assert set(begun) | set(rest) == set(EVERY)
    assert not set(begun) & set(rest)
    assert len(rest) - len(set(rest)) == -(COUNT - len(begun)) % after  # DistributedSampler's padding
    assert together(second, "next") == EVERY


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_is_killed(bucket: Bucket, tmp_path: Path, ranks: int) -> None:
    """The others end with an error, within the process group's timeout, and leave no process."""
    out = tmp_path / "out"
    out.mkdir()
    (port,) = free_ports(1)
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    common = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    program = HERE / "ranks_program.py", *bucket, out, "killed"
    children = [
        warm.Program(*program, environment=common | warm.rank_variables(rank, ranks, port))
        for rank in range(ranks)
    ]
    try:
        assert children[-1].wait(2 * TIMEOUT) == -9
        killed = time.monotonic()
        assert [child.wait(TIMEOUT) for child in children[:-1]] == [1] * (ranks - 1)
        assert time.monotonic() - killed < TIMEOUT
    finally:
        for child in children:
            child.kill()
            child.communicate()
    errors = [report["error"] for report in reports(out)]
    assert len(errors) == ranks - 1
    assert all(errors)


@pytest.fixture(scope="module")
def disagreements(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of disagree_program.py were told, with a dataset of two versions that have the same
    samples."""
    packed = tmp_path_factory.mktemp("versions") / "packed.fl"
    shutil.copytree(numbered, packed)
    np.save(packed.parent / "more.npy", np.arange(COUNT))
    add_columns(packed, packed.parent / "more.npy")
    return two_ranks_of("disagree_program.py", packed, tmp_path_factory.mktemp("disagree"))


@pytest.mark.parametrize(
    ("case", "steps", "said"),
    [
        ("version", 1, "a dataset of the versions ["),
        ("length", 1, "a dataset of length"),
        ("packed length", 1, "a dataset of length"),
        ("seed", 1, "seed"),
        ("batch_size", 1, "batch_size"),
        ("shuffle", 1, "shuffle"),
        ("drop_last", 1, "drop_last"),
        ("world", 1, "a world of"),
        ("epoch", 1, "epoch"),
        ("state", 1, "a state with"),
        ("one batch", 1, "seed"),
        ("processes", 1, "seed"),
        ("mixture seed", 1, "a Mixture with the seed"),
        ("mixture weights", 1, "a Mixture with the weights [1.0, "),
        ("mixture lengths", 1, "a Mixture with sources of the lengths [2"),
        ("mixture or none", 1, "a Mixture with the seed"),
        ("subset", 1, "a Subset with the indices ["),
        ("subset of a part", 1, "a Subset with the indices"),
        ("one index of many", 1, "a Subset with the indices"),
        ("one weight of many", 1, "a WeightedRandomSampler with the weights"),
        ("sampler class", 1, "a sampler of the class torch.utils.data.sampler."),
        ("sampler generator", 1, "a RandomSampler that draws from a generator in the state"),
        ("global generator", 1, "a SubsetRandomSampler that draws from a generator in the state"),
        ("sampler indices", 1, "a SubsetRandomSampler with the indices"),
        ("sampler weights", 1, "a WeightedRandomSampler with the weights"),
        ("batch sampler generator", 1, "a RandomSampler that draws from a generator in the state"),
        ("bucket seed", 1, "a BucketBatchSampler with the seed"),
        ("buckets", 1, "a BucketBatchSampler with the buckets"),
    ],
)
def test_ranks_that_differ_all_end(
    disagreements: list[dict[str, Any]], case: str, steps: int, said: str
) -> None:
    """Every rank ends with the same error, which says what differs where, at the same step: none hangs
    another."""
    first, second = (report[case] for report in disagreements)
    assert first == second
    assert first["steps"] == steps
    assert f"has {said}" in first["error"]
    assert "rank 0 has" in first["error"]
    assert "rank 1 has" in first["error"]


@pytest.mark.parametrize(
    "case",
    [
        *(
            "alike",
            "alike, packed",
            "on purpose",
            "alike, mixture",
            "weights of an epoch to come",
            "alike, subset",
            "alike, sampler",
        ),
        "alike, indices as an array",
        *(
            "alike, global generator",
            "alike, batch sampler",
            "a sampler by a seed of its own, and other torch seeds",
        ),
        *("each its own subset", "each its own seed"),
    ],
)
def test_ranks_that_may_differ(disagreements: list[dict[str, Any]], case: str) -> None:
    """Ranks that are alike end their loop, and so do those with a (rank, world) of their own and other
    data."""
    assert [report[case]["error"] for report in disagreements] == [None, None]


@pytest.fixture(scope="module")
def resumed_runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of dropout_program.py report."""
    out = tmp_path_factory.mktemp("dropout")
    run_program("dropout_program.py", out, ranks=2)
    return reports(out)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("moment", ["mid-epoch", "epoch's end"])
@pytest.mark.parametrize(
    "name", ["distributed", "own class", "shard", "own class that draws", "shard of a sampler"]
)
def test_a_state_leaves_other_ranks_generators_alone(
    resumed_runs: list[dict[str, Any]], name: str, moment: str, workers: int
) -> None:
    """A state of rank 0 that all ranks load gives each the rest of the order, and leaves it a generator of
    its own: dropout differs.

    An order that is drawn from the global generator, by ranks seeded alike, goes on as well, and keeps these
    alike.
    """
    runs = [report[f"{name}, {workers} workers"][f"{moment}, rank 0's"] for report in resumed_runs]
    assert all(each["order"] for each in runs)
    assert (runs[0]["masks"] == runs[1]["masks"]) == (name in ("own class that draws", "shard of a sampler"))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("moment", ["mid-epoch", "epoch's end"])
def test_a_rank_goes_on_with_its_own_generator(
    resumed_runs: list[dict[str, Any]], moment: str, workers: int
) -> None:
    """A rank that loads the state that it saved itself draws what it would have drawn without the
    interruption."""
    runs = [report[f"distributed, {workers} workers"][f"{moment}, its own"] for report in resumed_runs]
    assert all(each["order"] and each["repeated"] for each in runs)
