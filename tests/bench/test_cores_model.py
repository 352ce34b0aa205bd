"""The simulation of cores in benchmarks: never above a part's own limit, near the closed form where one
part decides, and monotone."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="no checkout")


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    """The module cores_model."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("cores_model")
    sys.path.remove(str(ROOT / "benchmarks"))


MACHINES = st.fixed_dictionaries(
    {
        "cores": st.integers(1, 24),
        "batch": st.sampled_from([1, 7, 64, 256]),
        "loop_s": st.floats(1e-6, 1e-3),
        "row_s": st.floats(1e-6, 1e-3),
        "lock_s": st.floats(0, 2e-5),
        "line_s": st.floats(0, 2e-5),
        "row_bytes": st.floats(0, 1e6),
        "memory": st.floats(1e9, 1e12),
        "body_s": st.floats(0, 1e-3),
    }
)


@settings(max_examples=60)
@given(given_=MACHINES)
def test_never_above_a_limit(model: Any, given_: dict[str, Any]) -> None:
    """No more images a second than any part alone allows."""
    machine = model.Machine(**given_)
    found = model.rate(machine, 200 + 40 * machine.cores)  # with batch size 1 each core holds one
    for part, bound in machine.bounds().items():
        # Of the batches in flight at both ends of the run.
        slack = 1.05 if part != "cores" or machine.cores > 1 else 1.1
        assert found <= bound * slack, part


@settings(max_examples=30)
@given(row_s=st.floats(1e-6, 1e-3), loop_s=st.floats(1e-6, 1e-3), batch=st.sampled_from([16, 64, 256]))
def test_one_core_does_all(model: Any, row_s: float, loop_s: float, batch: int) -> None:
    """On one core the times of a row and of the loop's thread add up."""
    found = model.rate(model.Machine(1, batch, loop_s, row_s), 100)
    assert found == pytest.approx(1 / (row_s + loop_s / batch), rel=0.05)


@pytest.mark.parametrize(
    ("part", "given_"),
    [
        ("loop", {"loop_s": 1e-3}),
        ("loop", {"body_s": 1e-3}),
        ("lock", {"lock_s": 2e-4}),
        ("line_s", {"line_s": 1e-4}),
        ("memory", {"row_bytes": 1e5, "memory": 1e9}),
        ("cores", {"row_s": 1e-2}),
    ],
)
def test_the_least_bound_is_reached(model: Any, part: str, given_: dict[str, Any]) -> None:
    """Where one part is much slower than the others the closed form is exact, and the limit is that part."""
    machine = model.Machine(**{"cores": 16, "batch": 64, "loop_s": 1e-5, "row_s": 5e-6, **given_})
    assert machine.limit == {"line_s": "lines"}.get(part, part)
    assert model.rate(machine, 300) == pytest.approx(min(machine.bounds().values()), rel=0.05)


def test_more_cores_are_never_slower(model: Any) -> None:
    """A core more, and all else the same: as many images or more, until a serial part ends it."""
    rates = [
        model.rate(model.Machine(cores, 256, 2e-4, 1e-5, 3e-7, 3e-7, 1e4, 2e11))
        for cores in (1, 2, 3, 4, 8, 16, 32, 64)
    ]
    assert all(more >= less * 0.98 for less, more in itertools.pairwise(rates))
    assert rates[-1] == pytest.approx(256 / 2e-4, rel=0.02)


@settings(max_examples=30)
@given(given_=MACHINES, part=st.sampled_from(["loop_s", "row_s", "lock_s", "line_s", "row_bytes"]))
def test_a_slower_part_is_never_faster(model: Any, given_: dict[str, Any], part: str) -> None:
    """The closed form falls, or stays, as any part takes longer; but for the lock, whose turns are shorter
    where rows are slow."""
    machine = model.Machine(**given_)
    slower = dataclasses.replace(machine, **{part: given_[part] * 2})
    for name, bound in machine.bounds().items():
        assert slower.bounds()[name] <= bound, name


def test_a_turn_is_the_pools(model: Any) -> None:
    """The numbers of rows and nanoseconds that a turn has in C."""
    source = (ROOT / "csrc" / "engine" / "pool.c").read_text()
    assert f"TURN_NS = {round(model.TURN_S * 1e9)}," in source
    assert f"TURN_MOST = {model.TURN_MOST}," in source
    turns = {row_s: model.Machine(8, 64, 1e-5, row_s).turn for row_s in (1e-7, 4e-6, 1e-5, 1e-3)}
    assert turns == {1e-7: 16, 4e-6: 5, 1e-5: 2, 1e-3: 1}
