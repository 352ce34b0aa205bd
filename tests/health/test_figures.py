"""The figures equal a naive recomputation from everything that was observed."""

from __future__ import annotations

import json
import math
import pickle
import statistics
import subprocess
import sys
import threading
from typing import Any

import pytest
from health_helpers import FULL_STATS, figures_of, steady
from hypothesis import given
from hypothesis import strategies as st

from fastload import HealthMonitor
from fastload.errors import ArgumentError
from fastload.health.ring import steps_of

seconds = st.floats(0, 1e4, allow_subnormal=False)
steps = st.lists(st.tuples(seconds, seconds, st.integers(0, 10**6), st.booleans()), max_size=60)


def naive_quantile(values: list[float], part: float) -> float:
    """Linear interpolation between the order statistics around (n - 1) * part."""
    ordered = sorted(values)
    below = math.floor((len(ordered) - 1) * part)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * ((len(ordered) - 1) * part - below)


def near(value: float | None, wanted: float | None) -> bool:
    """Equal up to the rounding of sums taken in another order."""
    if value is None or wanted is None:
        return value is wanted
    return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-12)


def check_waits(found: dict[str, Any], values: list[float]) -> None:
    assert found["count"] == len(values)
    assert near(found["p50"], statistics.median(values) if values else None)
    assert near(found["p99"], naive_quantile(values, 0.99) if values else None)
    assert found["max"] == (max(values) if values else None)
    assert found["last"] == (values[-1] if values else None)


@given(observed=steps, window=st.integers(1, 70))
def test_figures_are_those_of_the_last_steps_and_totals_of_all(
    observed: list[tuple[float, float, int, bool]], window: int
) -> None:
    """For any steps and any window, every figure equals the one computed from plain lists."""
    monitor: HealthMonitor[Any] = HealthMonitor(window=window)
    for step in observed:
        monitor.observe(*step)
    found, kept = monitor.as_dict(), observed[-window:]
    waits, works = [s[0] for s in kept], [s[1] for s in kept]
    whole = sum(waits) + sum(works)
    firsts = [s[0] for s in kept if s[3]]

    assert (found["steps"], found["window_steps"]) == (len(observed), len(kept))
    assert (found["epochs"], found["samples"]) == (sum(s[3] for s in observed), sum(s[2] for s in observed))
    assert near(found["all_wait_s"], math.fsum(s[0] for s in observed))
    assert near(found["all_step_s"], math.fsum(s[1] for s in observed))
    assert near(found["waiting"], sum(waits) / whole if whole else None)
    assert near(found["waiting_first"], sum(firsts) / whole if whole else None)
    assert near(found["load_step_ratio"], sum(waits) / sum(works) if sum(works) else None)
    assert near(found["samples_per_s"], sum(s[2] for s in kept) / whole if whole else None)
    assert near(found["step_s"], sum(works) / len(works) if works else None)
    check_waits(found["wait_s"], [s[0] for s in kept if not s[3]])
    check_waits(found["first_wait_s"], firsts)


@given(waits=st.lists(seconds, min_size=20, max_size=200), workers=st.integers(0, 40))
def test_the_tail_is_the_share_of_the_slowest_steps(waits: list[float], workers: int) -> None:
    """tail: the slowest 5% of steps, never more than a quarter of one in `workers`, at least one step."""
    found = figures_of([(wait, 0.1, 1, False) for wait in waits], {"workers": workers})
    slowest = max(1, int(len(waits) * min(0.05, 0.25 / max(1, workers))))
    wanted = sum(sorted(waits)[-slowest:]) / sum(waits) if sum(waits) else None
    assert near(found.tail, wanted)


def test_few_steps_have_no_tail() -> None:
    """Below twenty steps the slowest 5% are not one step."""
    assert figures_of([(0.1, 0.1, 1, False)] * 19).tail is None


def test_counters_become_shares_and_times_per_sample() -> None:
    """Everything that stats() tells arrives, per sample where it is a time; unknown stages come last, slow
    samples slowest first."""
    found = figures_of(
        steady(0.02, 0.08), FULL_STATS, prefetch_factor=4, seed_by="sample", in_order=False, pin_memory=True
    ).as_dict()
    assert list(found["stage_s"]) == ["python", "collate", "warp"]
    assert found["stage_s"] == pytest.approx({"python": 1e-3, "collate": 1e-4, "warp": 1e-5})
    assert found["stage_share"] == pytest.approx(
        {"python": 1 / 1.11, "collate": 0.1 / 1.11, "warp": 0.01 / 1.11}
    )
    # 640 samples a second, two workers; warp is none of their stages.
    assert found["worker_busy"] == pytest.approx(640 * 1.1e-3 / 2)
    assert (found["envelope_share"], found["envelope_bytes_share"]) == (0.25, 20_000 / 1_020_000)
    assert (found["ready"], found["depth"], found["restarts"], found["replaced"], found["skipped"]) == (
        1,
        4,
        1,
        2,
        3,
    )
    assert found["slow"] == [
        {"key": "('c', 1)", "seconds": 0.4},
        {"key": 7, "seconds": 0.3},
        {"key": "b.jpg", "seconds": 0.2},
    ]
    assert (found["engine"], found["workers"], found["prefetch_factor"], found["seed_by"]) == (
        "processes",
        2,
        4,
        "sample",
    )
    assert (found["in_order"], found["pin_memory"]) == (False, True)


def test_unknown_is_none_and_json_holds_everything() -> None:
    """Without stats, and with stats that say nothing yet, figures are None; JSON has no NaN and reads back
    equal."""
    for stats in (
        None,
        dict,
        lambda: {"batches": 0, "samples": 0, "stage_seconds": {"read": 0.0}},
        lambda: FULL_STATS,
    ):
        monitor: HealthMonitor[Any] = HealthMonitor(stats=stats)
        for _ in range(2):
            text = monitor.to_json(indent=1)
            assert json.loads(text, parse_constant=pytest.fail) == monitor.as_dict()
            monitor.observe(0.0, 0.0, 0)
    found = HealthMonitor[Any]().as_dict()
    for name in (
        "waiting",
        "engine",
        "workers",
        "ready",
        "envelope_share",
        "worker_busy",
        "restarts",
        "samples_per_s",
    ):
        assert found[name] is None
    assert found["stage_s"] == {}


@pytest.mark.parametrize("window", [0, -1, 1.5, "9", None, True])
def test_a_window_is_a_positive_whole_number(window: Any) -> None:
    """Any other window is refused by name."""
    with pytest.raises(ArgumentError, match="window="):
        HealthMonitor(window=window)


def test_stats_must_be_a_function() -> None:
    """A dict in place of a function is refused."""
    with pytest.raises(ArgumentError, match=r"loader\.stats"):
        HealthMonitor(stats={})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "step", [(-1.0, 0.1, 1), (0.1, -1e-9, 1), (math.nan, 0.1, 1), (0.1, math.inf, 1), (0.1, 0.1, -1)]
)
def test_an_impossible_step_is_refused(step: tuple[float, float, int]) -> None:
    """Times and counts are finite and not negative; a refused step changes nothing."""
    monitor: HealthMonitor[Any] = HealthMonitor()
    with pytest.raises(ArgumentError, match="finite and not negative"):
        monitor.observe(*step)
    assert monitor.figures().steps == 0


def test_whole_steps_are_read_while_others_observe() -> None:
    """Two threads observe steps with wait_s == step_s == samples; every copy holds such steps only, and no
    step is lost."""
    monitor: HealthMonitor[Any] = HealthMonitor(window=50)
    each = 20_000

    def feed() -> None:
        for i in range(each):
            monitor.observe(float(i), float(i), i, i % 7 == 0)

    threads = [threading.Thread(target=feed) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        copy = steps_of(monitor._ring)
        assert (copy.wait_s == copy.step_s).all()
        assert (copy.wait_s == copy.samples).all()
        assert (copy.first == (copy.samples % 7 == 0)).all()
        assert copy.steps >= seen
        seen = copy.steps
    for thread in threads:
        thread.join()
    found = monitor.figures()
    assert (found.steps, found.samples) == (2 * each, each * (each - 1))
    assert found.epochs == 2 * len(range(0, each, 7))


def test_a_copy_watches_anew() -> None:
    """A pickled monitor keeps what it wraps and its window; its steps are its own."""
    monitor: HealthMonitor[Any] = HealthMonitor([1, 2], window=3)
    monitor.observe(0.5, 0.25, 4, True)
    copy = pickle.loads(pickle.dumps(monitor))
    for _ in range(5):
        copy.observe(0.5, 0.5, 1)
    assert (copy.figures().steps, copy.figures().window_steps, monitor.figures().steps) == (5, 3, 1)
    assert list(copy) == [1, 2]


def test_health_imports_without_torch() -> None:
    """Whoever watches another kind of loop need not wait for torch."""
    code = "import sys, fastload; fastload.HealthMonitor([1]).report(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
