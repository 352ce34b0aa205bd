"""Workers are seeded as torch's are; a sample's random state is a function of (seed, epoch, index);
numeric libraries get one thread."""

from __future__ import annotations

import json
import linecache
import os
import random
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fastload import FastLoader
from fastload.batch.bad_samples import kept_state, seed_sample, seed_worker


def drawn() -> tuple[Any, ...]:
    """The next numbers of the three generators."""
    return (
        torch.rand(3).tolist(),
        torch.randint(0, 2**60, (2,)).tolist(),
        random.random(),
        random.getrandbits(64),
        np.random.rand(3).tolist(),
    )


class Draws(Dataset[Any]):
    """What a torch worker's generators give first, and the seed that it was told."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.id, info.seed, drawn()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("seed_of_all", [0, 2**62 + 12345])
def test_as_torchs_workers(seed_of_all: int) -> None:
    """seed_worker leaves torch, random and NumPy as torch does in the worker of that number."""
    generator = torch.Generator()
    generator.manual_seed(seed_of_all)
    loader = DataLoader(Draws(), batch_size=None, num_workers=3, generator=generator)
    for (worker, seed, theirs), expected in zip(loader, range(3), strict=True):
        assert worker == expected
        with kept_state():
            assert seed_worker(seed - worker, worker) == seed
            assert list(drawn()) == theirs  # batch_size=None makes lists of tuples


def test_seeding_a_worker_reads_no_source() -> None:
    """torch keeps the text of the stack for each kind of device that is not in use, for which it would
    read the callers' source files."""
    with kept_state():
        linecache.clearcache()
        seed_worker(3, 1)
        assert torch.initial_seed() == 4
    assert not linecache.cache
    assert not hasattr(sys, "tracebacklimit")


indices = (
    st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.tuples(st.integers(0, 9), st.text(max_size=3))
)


@settings(max_examples=60)
@given(st.integers(0, 2**63 - 1), st.integers(0, 1000), indices, st.integers(0, 2**32 - 1))
def test_a_sample_is_a_pure_function(seed: int, epoch: int, index: Any, before: int) -> None:
    """Whatever was drawn before, the same (seed, epoch, index) gives the same numbers in all three
    generators."""
    with kept_state():
        seed_sample(seed, epoch, index)
        first = drawn()
        seed_worker(before, 1)
        drawn()
        seed_sample(seed, epoch, index)
        assert drawn() == first


def test_samples_differ() -> None:
    """No two of (seed, epoch, index) near each other share their numbers, in any generator."""
    keys = [(s, e, i) for s in range(4) for e in range(4) for i in [*range(16), -1, "a", "b", (0, 1)]]
    seen: list[tuple[Any, ...]] = []
    with kept_state():
        for key in keys:
            seed_sample(*key)
            seen.append((torch.rand(2).tolist(), random.random(), np.random.rand()))
    for column in zip(*seen, strict=True):
        assert len({str(value) for value in column}) == len(keys)


@pytest.mark.parametrize(
    ("index", "same"),
    [
        (3, np.int32(3)),
        (3, np.uint64(3)),
        (3, torch.tensor(3)),
        (-3, np.int64(-3)),
        (-3, torch.tensor(-3)),
        (1, True),
        (2**64 - 1, np.uint64(2**64 - 1)),
    ],
)
def test_the_kind_of_integer_does_not_matter(index: int, same: Any) -> None:
    """A sampler may give Python's, NumPy's or torch's integers."""
    with kept_state():
        seed_sample(5, 1, index)
        first = drawn()
        seed_sample(5, 1, same)
        assert drawn() == first


def test_kept_state() -> None:
    """After the block, and after an exception in it, the generators go on as if it had not been."""
    with kept_state():
        seed_worker(1, 2)
        expected = [drawn() for _ in range(3)]
        seed_worker(1, 2)
        got = [drawn()]
        with kept_state():
            seed_sample(3, 4, 5)
            drawn()
        got.append(drawn())
        with pytest.raises(KeyError), kept_state():
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            raise KeyError
        got.append(drawn())
        assert got == expected


NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def held(**env: str) -> dict[str, Any]:
    """What hold_threads leaves in a fresh process that has this environment."""
    code = """
        import json, os
        import numpy as np
        import torch
        from threadpoolctl import threadpool_info
        np.ones((8, 8)) @ np.ones((8, 8))
        from fastload.engines.thread_limits import hold_threads
        hold_threads()
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
        print(json.dumps({
            "env": {name: os.environ.get(name) for name in names},
            "torch": torch.get_num_threads(),
            "openblas": [i["num_threads"] for i in threadpool_info() if i["internal_api"] == "openblas"],
        }))
    """
    clean = {key: value for key, value in os.environ.items() if key not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_threads_are_held_to_one() -> None:
    """Torch and BLAS compute with one thread, and so will what is loaded later."""
    told = held()
    assert told["env"] == dict.fromkeys(NAMES, "1")
    assert told["torch"] == 1
    assert told["openblas"]
    assert set(told["openblas"]) == {1}


def test_the_users_threads_stay() -> None:
    """A variable that the user set keeps its value, and its library as many threads; but torch's OpenMP pool
    may be the parent's, copied by a fork without its threads, so torch computes with one, as in its own
    workers."""
    told = held(OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    assert told["env"] == {**dict.fromkeys(NAMES, "1"), "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    assert told["torch"] == 1
    assert set(told["openblas"]) == {2}


class Threads(Dataset[int]):
    """The number of threads of the process that makes the sample."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS has no threads of its own on one CPU")
def test_openblas_has_no_threads_in_a_worker() -> None:
    """A forked worker that holds OpenBLAS to one thread has none of its others, which would spin for a tenth
    of a second, also once it has multiplied matrices; more threads are there for whoever sets another
    limit."""
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def multiplies(worker: int) -> None:
        assert (np.ones((300, 300)) @ np.ones((300, 300)))[0, 0] == 300

    def multiplies_in_two(worker: int) -> None:
        threadpoolctl.threadpool_limits(2, "blas")
        multiplies(worker)

    multiplies(0)  # the parent's threads run
    # One is Python's, one waits for the parent's end.
    for init, threads in (
        (None, 2),
        (multiplies, 2),
        (multiplies_in_two, 3),
    ):
        assert list(FastLoader(Threads(), batch_size=None, num_workers=1, worker_init_fn=init)) == [
            threads,
            threads,
        ]
