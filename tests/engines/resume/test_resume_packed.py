"""Resumed over packed data: the same pixels, and nothing decoded twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resume_helpers import check_rest, plain, through_json, trained

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
TRAIN = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    steps=st.integers(0, 13),
    epochs=st.integers(0, 1),
    workers=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    prefetch=st.integers(1, 5),
    options=st.sampled_from(
        [
            {},
            {"shuffle": True},
            {"shuffle": True, "seed": 7},
            {"seed": 7},
            {"shuffle": True, "drop_last": True},
        ]
    ),
)
def test_packed(
    packed: Path, steps: int, epochs: int, workers: tuple[int, int], prefetch: int, options: dict[str, Any]
) -> None:
    """On packed data the pixels are the same as well."""
    data = PackedDataset(packed, transform=TRAIN)

    def make(workers: int, prefetch: int) -> Any:
        more = {"prefetch_factor": prefetch} if workers else {}
        return FastLoader(data, batch_size=4, num_workers=workers, **options, **more)

    check_rest(lambda: make(workers[0], 2), lambda: make(workers[1], prefetch), epochs, steps)


def test_packed_reads_only_what_is_left(packed: Path) -> None:
    """Nothing that was consumed is decoded again."""
    data = PackedDataset(packed, transform=TRAIN)
    first = FastLoader(data, batch_size=4, num_workers=1, shuffle=True, seed=1)
    trained(first, 10)
    resumed = FastLoader(data, batch_size=4, num_workers=1, shuffle=True, seed=1, prefetch_factor=1)
    resumed.load_state_dict(through_json(first.state_dict()))
    batches = iter(resumed)
    next(batches)
    assert resumed.stats()["samples"] <= 8
    assert sum(len(labels) for _, labels in batches) == len(data) - 44
    first.close()
    resumed.close()


def test_packed_load_while_the_next_epoch_is_under_way(packed: Path) -> None:
    """The epoch begun early is not taken for the one that a state asks for."""
    loader = FastLoader(
        PackedDataset(packed, transform=TRAIN), batch_size=4, num_workers=2, shuffle=True, seed=2
    )
    batches = iter(loader)
    next(batches)
    state = through_json(loader.state_dict())
    rest = [plain(batch) for batch in batches]
    for _ in range(2):
        loader.load_state_dict(state)
        batches = iter(loader)
        assert [plain(batch) for batch in batches] == rest
    loader.load_state_dict(state)
    loader.set_epoch(5)
    assert len(trained(loader)) == len(rest) + 1
    loader.close()
