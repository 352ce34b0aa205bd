"""Memory that worker processes keep between batches (fastload/engines/processes/worker.py)."""

from __future__ import annotations

import os
import resource

import pytest
import warm

PAGES = 3 * 224 * 224 * 4 // resource.getpagesize()  # of one sample
PROGRAM = """
import ctypes, resource, statistics, torch
from fastload import FastLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * 40
    def __getitem__(self, index):
        return torch.ones(3, 224, 224), resource.getrusage(resource.RUSAGE_SELF).ru_minflt

# Where M_MMAP_THRESHOLD stands at first; given, so that it stays there: every sample is a mapping of its own.
ctypes.CDLL(None).mallopt(-3, 128 * 1024)
faults = [int(batch[0]) for _, batch in FastLoader(Samples(), batch_size=16, num_workers=1)]
# A slot is faulted in when it is first written; how many there are hangs on how far the worker gets ahead.
print(statistics.median(after - before for before, after in zip(faults[20:], faults[21:])) / 16)
"""


def faults_per_sample(**environment: str) -> float:
    """Page faults of a worker for a sample of the median batch in the second half of an epoch."""
    done = warm.run(PROGRAM, environment=os.environ | environment)
    assert (done.stderr, done.returncode) == ("", 0)
    return float(done.stdout)


def test_a_worker_keeps_the_memory_of_a_batch_for_the_next() -> None:
    assert faults_per_sample() < PAGES / 10


@pytest.mark.parametrize(
    "variable",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"},
    ],
)
def test_what_the_user_set_stays(variable: dict[str, str]) -> None:
    assert faults_per_sample(**variable) > PAGES / 2


HELD = """
import torch
from fastload import FastLoader

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * 12
    def __getitem__(self, index):
        return torch.ones(3, 224, 224), anonymous()

kib = [batch.clone() for _, batch in FastLoader(Samples(), batch_size=64, num_workers=1)]
print(int(kib[0].max() - kib[0].min()), int(kib[-1].max() - kib[0].min()))
"""


def test_a_worker_holds_few_samples_at_a_time() -> None:
    """In its first batch, which has no slot yet, it holds them all; in later ones less than a quarter."""
    done = warm.run(HELD)
    assert (done.stderr, done.returncode) == ("", 0)
    first, last = map(int, done.stdout.split())
    batch = 64 * 3 * 224 * 224 * 4 // 1024
    assert first > 0.9 * batch
    assert last < 0.25 * batch
