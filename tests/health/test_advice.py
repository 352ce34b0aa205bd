"""Advice for constructed figures: the knob that each situation calls for, and none that it does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from health_helpers import FULL_STATS, Step, figures_of, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import HealthMonitor
from fastload.health import advise, report

WAITS_41 = steady(0.041, 0.059)
SPIKES: list[Step] = [(0.5 if i % 50 == 49 else 0.001, 0.05, 64, False) for i in range(200)]


def stats(engine: str, workers: int, /, **stage_seconds: float) -> dict[str, Any]:
    return {
        "engine": engine,
        "workers": workers,
        "samples": 1000,
        "batches": 16,
        "bytes": 1000,
        "stage_seconds": stage_seconds,
    }


def test_decode_bound_with_free_cpus() -> None:
    """The figures in the text are the ones that were measured: waiting, stage, workers, CPUs, the side
    that the crop asks for, pixels."""
    found = figures_of(
        WAITS_41, stats("threads", 2, read=0.1, decode=2.0, resize=0.4), side=224, longer_sides=(400, 1500)
    )
    assert advise(found) == [
        "waiting for data 41% of the time, decode-bound (80% of a sample's time): raise num_workers "
        "from 2 to 4, "
        "or pack with --max-side 500, which leaves out 83% of the pixels"
    ]


@pytest.mark.parametrize(
    ("wait_s", "workers", "cpus", "wanted"),
    [
        (0.041, 2, 4, "raise num_workers from 2 to 4"),
        (0.041, 2, 16, "raise num_workers from 2 to 4"),  # 2 / (1 - 0.41) suffice
        (0.041, 4, 16, "raise num_workers from 4 to 7"),
        (0.091, 2, 16, "raise num_workers from 2 to 16"),
        (0.006, 2, 16, "raise num_workers from 2 to 3"),
    ],
)
def test_workers_are_advised_as_far_as_they_help(wait_s: float, workers: int, cpus: int, wanted: str) -> None:
    """No more workers than would end the waiting if they scale, and no more than CPUs."""
    (text,) = advise(
        figures_of(steady(wait_s, 0.1 - wait_s), {"engine": "threads", "workers": workers}, cpus=cpus)
    )
    assert wanted in text


@pytest.mark.parametrize(
    ("engine", "stages", "wanted"),
    [
        (
            "threads",
            {"read": 2.0, "decode": 1.0},
            ("read-bound (67% of a sample's time)", "faster disk", "--max-side 500"),
        ),
        ("threads", {"decode": 1.0, "resize": 2.0}, ("resize-bound", "--max-side 500")),
        ("processes", {"python": 2.0, "collate": 1.0}, ("python-bound", "fastload pack")),
        ("processes", {"python": 1.0, "collate": 2.0}, ("collate-bound", "default_collate")),
        ("threads", {"decode": 1.0, "copy": 2.0}, ("copy-bound", "pin_memory=True")),
        ("threads", {"decode": 1.0, "augment": 2.0}, ("augment-bound", "transform=")),
        ("processes", {}, ("fastload pack",)),
        ("threads", {}, ("all 4 CPUs have a worker",)),
        ("threads", {"warp": 1.0}, ("warp-bound", "all 4 CPUs have a worker")),
    ],
)
def test_the_stage_that_takes_longest_names_the_knob(
    engine: str, stages: dict[str, float], wanted: tuple[str, ...]
) -> None:
    """With a worker for each CPU, num_workers is not advised; the slowest stage's own knob is."""
    counted = stats(engine, 4, **stages)
    counted["samples"] = 500  # so that the workers are busy
    (text,) = advise(figures_of(WAITS_41, counted, side=224, longer_sides=(4000,), may_pin=True))
    assert all(part in text for part in wanted)
    assert "num_workers" not in text


def test_loading_in_the_loop_asks_for_workers() -> None:
    """num_workers=0 is named as the cause, with spikes and without."""
    for steps in (WAITS_41, SPIKES):
        (text,) = advise(figures_of(steps, {"workers": 0}))
        assert "set num_workers to 2: num_workers=0 loads in the loop itself" in text


def test_an_iterable_without_settings_is_told_the_cpus() -> None:
    """Where nothing is known of workers, the CPUs are the figure."""
    assert "set num_workers to 4, the CPUs there are" in advise(figures_of(WAITS_41))[0]


def test_idle_workers_are_not_multiplied() -> None:
    """Workers that are busy a tenth of the time, while the loop waits, need batches to work on, not
    company."""
    (text,) = advise(figures_of(WAITS_41, stats("processes", 2, python=0.3), prefetch_factor=3))
    assert "raise prefetch_factor from 3 to 6 (workers are busy only 9.6% of the time" in text
    assert "num_workers" not in text


@pytest.mark.parametrize(
    ("engine", "settings", "wanted", "unwanted"),
    [
        (
            "processes",
            {"seed_by": None},
            ('pass seed_by="sample"', "prefetch_factor from 2 to 4"),
            "use FastLoader",
        ),
        (
            "processes",
            {"seed_by": "sample", "prefetch_factor": 4},
            ("prefetch_factor from 4 to 8",),
            "seed_by",
        ),
        (
            None,
            {"prefetch_factor": 2},
            ("prefetch_factor from 2 to 4", 'use FastLoader with seed_by="sample"'),
            "pass seed_by",
        ),
        (
            "threads",
            {"side": 224, "longer_sides": (300, 900)},
            ("prefetch_factor from 2 to 4", "--max-side 500", "900 pixels"),
            "seed_by",
        ),
    ],
)
def test_spikes_ask_for_samples_to_be_split(
    engine: str, settings: dict[str, Any], wanted: tuple[str, ...], unwanted: str
) -> None:
    """Where 2% of the steps make up nearly all of the waiting, throughput is not what is short."""
    (text,) = advise(figures_of(SPIKES, {"engine": engine, "workers": 2}, **settings))
    assert "91% of it in a few slow batches (p99 500.0 ms, p50 1.0 ms)" in text
    assert all(part in text for part in wanted)
    assert unwanted not in text
    assert "num_workers" not in text


def test_batches_that_arrive_in_bursts_are_no_spikes() -> None:
    """With a batch per worker, every 16th wait is long and the others are nothing: that is throughput."""
    bursts: list[Step] = [(0.4 if i % 16 == 0 else 0.0, 0.01, 64, False) for i in range(320)]
    (text,) = advise(figures_of(bursts, {"workers": 16}, cpus=32))
    assert "slow batches" not in text
    assert "raise num_workers from 16 to 32" in text


def epochs(first_s: float, count: int) -> list[Step]:
    return count * steady(0.0001, 0.01, 10, first_s=first_s)


@pytest.mark.parametrize(
    ("workers", "engine", "persistent", "wanted"),
    [
        (2, None, False, "pass persistent_workers=True"),
        (2, "processes", False, "pass persistent_workers=True"),
        (2, "processes", True, "make epochs longer"),
        (2, "threads", False, "make epochs longer"),
        (0, None, False, "set num_workers to 2"),
    ],
)
def test_first_batches_that_cost_much(
    workers: int, engine: str | None, persistent: bool, wanted: str
) -> None:
    """Waiting that is all on the first batch of each epoch asks for workers that outlive it, where they do
    not yet."""
    (text,) = advise(
        figures_of(epochs(0.1, 5), {"workers": workers, "engine": engine}, persistent_workers=persistent)
    )
    assert "50% of the time goes on the first batch of each epoch (p50 100.0 ms)" in text
    assert wanted in text


def test_one_start_up_is_no_fault() -> None:
    """One epoch's first batch is called a start-up; no knob is named."""
    (text,) = advise(figures_of(epochs(0.1, 1), {"workers": 2}, persistent_workers=False))
    assert "a start-up" in text
    assert "persistent_workers" not in text


def test_a_loader_that_keeps_up_is_left_alone() -> None:
    """Below 5% of waiting no knob is named."""
    (text,) = advise(figures_of(steady(0.004, 0.096), stats("threads", 2, decode=10.0)))
    assert "4.0%" in text
    assert "num_workers" not in text


def test_before_the_first_step() -> None:
    """Nothing seen is said, not guessed."""
    assert advise(figures_of([])) == [
        "no step has been seen yet: iterate the monitor, or feed it by observe()"
    ]


def test_counters_that_call_for_action_are_named_in_any_case() -> None:
    """Envelopes, restarts and substitutions are told though the loader keeps up; each below its bound is
    not."""
    found = advise(figures_of(steady(0.0, 0.1), FULL_STATS))
    assert "25% of batches (2.0% of bytes) travel in pickled envelopes: return tensors" in found[1]
    assert found[2].startswith("1 workers were started anew")
    assert "2 replaced and 3 skipped" in found[3]
    assert "fastload verify --decode" in found[3]
    assert len(found) == 4
    quiet = {**FULL_STATS, "envelope_batches": 19, "restarts": 0, "replaced": 0, "skipped": 0}
    assert len(advise(figures_of(steady(0.0, 0.1), quiet))) == 1


def test_the_report_holds_every_known_figure_and_the_advice() -> None:
    """Line by line, as a user reads it."""
    text = report(figures_of(steady(0.041, 0.059, first_s=1.5), FULL_STATS, prefetch_factor=2))
    lines = text.splitlines()
    assert lines[0] == "loader's health: the last 200 of 200 steps, 1 epochs, 2 worker processes, 4 CPUs"
    body = {line[2:20].strip(): line[20:] for line in lines[1 : lines.index("advice:")]}
    assert body == {
        "waiting for data": "45% of the time (38% within epochs, 7.0% on first batches)",
        "wait": "p50 41.0 ms, p99 41.0 ms, max 41.0 ms",
        "first wait": "p50 1.50 s, p99 1.50 s, max 1.50 s",
        "samples/s": "596.5",
        "queue": "1 of 4 batches ready",
        "a sample's time": "python 1.0 ms (90%), collate 100 us (9.0%), warp 10 us (0.9%)",
        "workers busy": "33%",
        "envelopes": "25% of batches, 2.0% of bytes",
        "counted": "restarts 1, replaced 2, skipped 3",
        "slow samples": "('c', 1) 400.0 ms, 7 300.0 ms, b.jpg 200.0 ms",
    }
    assert [
        f"- {advice}"
        for advice in advise(figures_of(steady(0.041, 0.059, first_s=1.5), FULL_STATS, prefetch_factor=2))
    ] == lines[lines.index("advice:") + 1 :]


def test_the_report_of_an_unknown_loader_is_short() -> None:
    """Lines whose figures are unknown are left out."""
    monitor: HealthMonitor[Any] = HealthMonitor()
    assert monitor.report().splitlines()[1:] == [
        "advice:",
        "- no step has been seen yet: iterate the monitor, or feed it by observe()",
    ]
    monitor.observe(0.0, 0.1, 5)
    assert [line.split()[0] for line in monitor.report().splitlines()[1:-2]] == [
        "waiting",
        "wait",
        "samples/s",
    ]


def test_many_bad_samples_come_first() -> None:
    """Where one sample in a hundred is lost, or there was no step because all were, that is the first
    advice: how many, and why."""
    for steps in (steady(0.001, 0.1), []):
        stats = {
            **FULL_STATS,
            "skipped": 200,
            "replaced": 0,
            "bad_samples": ["sample 3: OSError: cannot identify", "sample 4: ..."],
        }
        first = advise(figures_of(steps, stats))[0]
        assert "200 skipped" in first
        assert "sample 3: OSError: cannot identify" in first
        assert 'on_error="raise"' in first
    assert "(1.5% of all)" in advise(figures_of(steady(0.001, 0.1), stats))[0]


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


FACTS = st.fixed_dictionaries(
    {
        "prefetch_factor": maybe(st.integers(1, 8)),
        "persistent_workers": maybe(st.booleans()),
        "seed_by": maybe(st.just("sample")),
        "longer_sides": st.lists(st.integers(8, 2000), max_size=4).map(lambda sides: tuple(sorted(sides))),
        "mend": maybe(st.sampled_from(["", "step 2 is Python"])),
        "packed": maybe(st.booleans()),
        "splits_batches": maybe(st.booleans()),
        "own_collate": maybe(st.booleans()),
        "epoch_batches": maybe(st.integers(1, 20)),
        "may_pin": maybe(st.booleans()),
        "copied_floats": maybe(st.booleans()),
    }
)
STAGES = st.dictionaries(
    st.sampled_from(["read", "decode", "resize", "python", "collate", "copy", "augment", "warp"]),
    st.floats(0.1, 9.0),
)


@settings(max_examples=80)
@given(
    st.sampled_from(["threads", "processes", "caller", None]), maybe(st.integers(0, 8)), STAGES, FACTS,
    maybe(st.integers(8, 600)),
    st.sampled_from([WAITS_41, SPIKES, 5 * steady(0.0001, 0.01, 10, first_s=0.1)]), st.integers(1, 6),
)  # fmt: skip
def test_no_advice_changes_nothing(
    engine: str | None,
    workers: int | None,
    stages: dict[str, float],
    facts: dict[str, Any],
    side: int | None,
    steps: list[Step],
    cpus: int,
) -> None:
    """A value that is advised differs from the present one, a limit lies below what is there, and nothing
    was done already."""
    counted = {"engine": engine, "workers": workers, "samples": 1000, "stage_seconds": stages}
    text = "\n".join(advise(figures_of(steps, counted, cpus=cpus, side=side, **facts)))
    for found in re.finditer(r"raise num_workers from (\d+) to (\d+)", text):
        assert workers == int(found[1]) < int(found[2]) <= cpus
    if "set num_workers" in text:
        assert not workers
    assert "num_workers=0" not in text or workers == 0
    for found in re.finditer(r"raise prefetch_factor from (\d+) to (\d+)", text):
        assert workers
        assert int(found[1]) == (facts["prefetch_factor"] or 2) < int(found[2])
        assert (
            facts["epoch_batches"] is None
            or int(found[1]) * (1 if engine == "threads" else workers) < facts["epoch_batches"]
        )
    for found in re.finditer(r"--max-side (\d+)", text):
        assert side is not None
        assert side <= int(found[1]) < facts["longer_sides"][-1]
    assert "persistent_workers=True" not in text or (
        facts["persistent_workers"] is False and engine != "threads" and workers != 0
    )
    assert "already outlive" not in text or facts["persistent_workers"] or engine == "threads"
    assert 'pass seed_by="sample"' not in text or (
        engine == "processes"
        and facts["seed_by"] is None
        and facts["splits_batches"] is not False
        and workers != 1
    )
    assert "fastload pack" not in text or (engine != "threads" and facts["mend"] is None)
    assert "pin_memory=True" not in text or facts["may_pin"]
    assert "keep batches uint8" not in text or facts["copied_floats"] is not False
    assert "default_collate" not in text or facts["own_collate"] is not False
    if "CPUs have a worker" in text:
        assert (workers or 0) >= cpus
