"""What TensorBoard and Prometheus read back is what was measured."""

from __future__ import annotations

import builtins
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from health_helpers import FULL_STATS

from fastload import HealthMonitor
from fastload.errors import ArgumentError, FastloadError
from fastload.health import MissingLibrary

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def monitor() -> HealthMonitor[Any]:
    """100 steps in two epochs, and every counter."""
    made: HealthMonitor[Any] = HealthMonitor(stats=lambda: FULL_STATS)
    for i in range(100):
        made.observe(0.5 if i % 50 == 0 else 0.01 + i * 1e-4, 0.05, 64, i % 50 == 0)
    return made


def parsed(text: str) -> Samples:
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_text_reads_back(monitor: HealthMonitor[Any]) -> None:
    """Each metric has the figure's value and the labels asked for; counters are counters."""
    found, figures = parsed(monitor.prometheus_text({"run": 'a "b"\n\\', "rank": "0"})), monitor.figures()
    asked = (("rank", "0"), ("run", 'a "b"\n\\'))

    def value(name: str, *own: tuple[str, str]) -> float:
        return found[f"fastload_{name}", tuple(sorted([*asked, *own]))]

    assert value("steps_total") == 100
    assert value("epochs_total") == 2
    assert value("samples_total") == 6400
    assert value("wait_seconds_total") == figures.all_wait_s
    assert value("step_seconds_total") == figures.all_step_s
    assert value("waiting_ratio") == figures.waiting
    assert value("waiting_first_ratio") == figures.waiting_first
    assert value("samples_per_second") == figures.samples_per_s
    for name, waits in (
        ("wait_window_seconds", figures.wait_s),
        ("first_wait_window_seconds", figures.first_wait_s),
    ):
        for quantile, wanted in (("0.5", waits.p50), ("0.99", waits.p99), ("1", waits.max)):
            assert value(name, ("quantile", quantile)) == wanted
    for stage, seconds in figures.stage_s.items():
        assert value("stage_seconds_per_sample", ("stage", stage)) == seconds
    counted = {
        "batches": 200,
        "bytes": 1000000,
        "envelope_batches": 50,
        "envelope_bytes": 20000,
        "restarts": 1,
    }
    counted |= {"replaced_samples": 2, "skipped_samples": 3}
    assert {name: value(f"{name}_total") for name in counted} == counted
    assert (value("workers"), value("ready_batches"), value("depth_batches")) == (2, 1, 4)
    assert value("worker_busy_ratio") == figures.worker_busy


def test_unknown_figures_are_absent() -> None:
    """A monitor that knows nothing says zero steps, and no gauge at all."""
    found = parsed(HealthMonitor[Any]().prometheus_text())
    assert {name for name, _ in found} == {
        f"fastload_{name}_total" for name in ("steps", "epochs", "samples", "wait_seconds", "step_seconds")
    }
    assert set(found.values()) == {0.0}


def test_a_registry_of_the_users_own_scrapes_live(monitor: HealthMonitor[Any]) -> None:
    """collector() in a registry that describes on registration: each scrape sees the steps made since."""
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry(auto_describe=True)
    registry.register(monitor.collector({"rank": "1"}))
    monitor.observe(0.1, 0.1, 1)
    assert registry.get_sample_value("fastload_steps_total", {"rank": "1"}) == 101
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(monitor.collector())


@pytest.mark.parametrize("name", ["1a", "a-b", "", "__a", "stage", "quantile", "ä"])
def test_labels_that_prometheus_forbids_are_refused(monitor: HealthMonitor[Any], name: str) -> None:
    """Text that a server would reject is not written."""
    with pytest.raises(ArgumentError, match="label"):
        monitor.prometheus_text({name: "x"})


def test_without_the_client_library_the_error_says_how_to_install_it(
    monitor: HealthMonitor[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """prometheus_client is asked for at its first use only; its absence names the command."""
    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    assert monitor.report()
    with pytest.raises(MissingLibrary, match=r"pip install 'torch-fastload\[monitor\]'") as caught:
        monitor.prometheus_text()
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, FastloadError)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own imports
def test_tensorboard_reads_back(monitor: HealthMonitor[Any], tmp_path: Path) -> None:
    """Each known number is a scalar under the prefix, at the step given, to float32's precision; text and
    unknowns are none."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        monitor.to_tensorboard(writer, 10)
        wanted = monitor.as_dict()
        monitor.observe(0.1, 0.1, 64)
        monitor.to_tensorboard(writer, 11, prefix="val/data")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {tag.rpartition("fastload/")[2] for tag in tags if tag.startswith("fastload/")} == {
        tag.partition("val/data/")[2] for tag in tags if tag.startswith("val/data/")
    }

    def scalar(name: str) -> float:
        (event,) = events.Scalars(f"fastload/{name}")
        assert event.step == 10
        return float(event.value)

    assert scalar("steps") == 100
    assert math.isclose(scalar("waiting"), wanted["waiting"], rel_tol=1e-6)
    assert math.isclose(scalar("wait_s/p99"), wanted["wait_s"]["p99"], rel_tol=1e-6)
    assert math.isclose(scalar("first_wait_s/max"), 0.5, rel_tol=1e-6)
    assert math.isclose(scalar("stage_s/python"), 1e-3, rel_tol=1e-6)
    assert math.isclose(scalar("stage_share/collate"), 0.1 / 1.11, rel_tol=1e-6)
    assert scalar("envelope_share") == 0.25
    assert events.Scalars("val/data/steps")[0].value == 101
    assert events.Scalars("val/data/steps")[0].step == 11
    assert not {
        "fastload/engine",
        "fastload/seed_by",
        "fastload/slow",
        "fastload/advice",
        "fastload/image_side",
    } & set(tags)
