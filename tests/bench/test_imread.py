"""benchmarks/bench_imread.py: what it makes of the runs of its harness."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="no checkout")


@pytest.fixture
def imread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module bench_imread."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "peers"))
    return importlib.import_module("bench_imread")


def test_ratios_are_by_repetition(imread: Any) -> None:
    """A decoder's rate is divided by Pillow's in the same repetition, and the median is taken."""
    runs = [
        {"decoder_id": decoder, "workers": workers, "repetition": each, "rate": rate}
        for decoder, workers, rates in (
            ("pillow", None, (1, 2, 4)),
            ("a", None, (3, 4, 20)),
            ("a", 2, (1, 1, 1)),
        )
        for each, rate in enumerate(rates)
    ]
    rates = imread.rows_of(runs, "torch")
    assert imread.ratios(rates, "a", "memory", "pillow/memory") == 3
    assert imread.ratios(rates, "a", "torch2", "pillow/torch2") is None


def test_plans_are_the_harness_own(imread: Any) -> None:
    """A plan names each decoder once, and in the calling process only where it is asked for."""
    for alone in (True, False):
        plan = imread._plan("x", ["a", "b"], imread.profiles([2, 4], alone), 3)
        assert json.loads(json.dumps(plan)) == plan
        profiles = plan["matrix"]["protocols"]["loader-supply"]["worker_profiles"]
        assert [each["workers"] for each in profiles] == [[0]] * alone + [[2, 4]]
        assert set(plan["matrix"]["decoders"]) == {"a", "b"}
