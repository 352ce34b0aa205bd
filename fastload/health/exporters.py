"""Exporters of the figures to TensorBoard and Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from fastload.common.distribution import pip_install
from fastload.errors import ArgumentError, FastloadError
from fastload.health.figures import Figures

if TYPE_CHECKING:
    from types import ModuleType

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OUR_LABELS = ("stage", "quantile")
_COUNTERS = {
    "steps": ("steps", "Batches that the loop has worked on."),
    "epochs": ("epochs", "Epochs begun."),
    "samples": ("samples", "Samples that the loop has worked on."),
    "wait_seconds": ("all_wait_s", "Time that the loop has waited for data."),
    "step_seconds": ("all_step_s", "Time that the loop has worked on batches."),
    "batches": ("batches", "Batches that the loader has delivered."),
    "bytes": ("bytes", "Bytes that the loader has delivered through slots."),
    "envelope_batches": ("envelope_batches", "Batches that travelled pickled."),
    "envelope_bytes": ("envelope_bytes", "Bytes that travelled pickled."),
    "restarts": ("restarts", "Workers that were started anew."),
    "replaced_samples": ("replaced", "Samples that on_error put another in place of."),
    "skipped_samples": ("skipped", "Samples that on_error left out."),
}
_GAUGES = {
    "waiting_ratio": ("waiting", "Part of the loop's recent time spent waiting for data."),
    "waiting_first_ratio": (
        "waiting_first",
        "Part of the loop's recent time spent on the first waits of epochs.",
    ),
    "samples_per_second": ("samples_per_s", "Samples a second of the whole loop, recently."),
    "workers": ("workers", "Workers of the loader."),
    "worker_busy_ratio": ("worker_busy", "Part of the workers' recent time that the stages account for."),
    "ready_batches": ("ready", "Finished batches that wait to be taken."),
    "depth_batches": ("depth", "Batches in flight at most."),
}


class MissingLibrary(FastloadError, ImportError):
    """An exporter needs a library that is not installed; the message says how to install it."""


class ScalarWriter(Protocol):
    """Interface that to_tensorboard() requires of a writer; torch.utils.tensorboard.SummaryWriter has it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Adds one point."""


def to_tensorboard(figures: Figures, writer: ScalarWriter, step: int, prefix: str) -> None:
    """Adds every known number as `prefix/name`, nested ones as `prefix/name/part`; times are in seconds."""
    for name, value in _numbers(figures.as_dict()):
        writer.add_scalar(f"{prefix}/{name}", value, step)


def _numbers(tree: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{part}", number) for part, number in _numbers(value))
        elif isinstance(value, int | float):
            yield name, float(value)


class HealthCollector:
    """A Prometheus collector of figures, computed at each scrape.

    Args:
        figures: returns the current figures.
        labels: labels of every sample.

    Raises:
        ArgumentError: a label's name is one that Prometheus forbids, "stage" or "quantile".
    """

    def __init__(self, figures: Callable[[], Figures], labels: Mapping[str, str] | None = None) -> None:
        self._figures = figures
        self._labels = {name: str(value) for name, value in (labels or {}).items()}
        for name in self._labels:
            if not _LABEL.fullmatch(name) or name.startswith("__") or name in _OUR_LABELS:
                raise ArgumentError(
                    f"label {name!r}: a label's name is letters, digits and _, begins with no digit "
                    f"nor __, and is none of {_OUR_LABELS}"
                )

    def collect(self) -> Iterator[Metric]:
        """The metrics, as the client library asks for them.

        Raises:
            MissingLibrary: prometheus-client is not installed.
        """
        core = _client().core
        found = self._figures()
        for kind, table in ((core.CounterMetricFamily, _COUNTERS), (core.GaugeMetricFamily, _GAUGES)):
            for name, (attribute, meaning) in table.items():
                value = getattr(found, attribute)
                if value is not None:
                    yield self._family(kind, name, meaning, {"": value})
        within, first = found.wait_s, found.first_wait_s
        waits = {"0.5": within.p50, "0.99": within.p99, "1": within.max}
        yield self._family(
            core.GaugeMetricFamily, "wait_window_seconds", "Recent waits within epochs.", waits, "quantile"
        )
        waits = {"0.5": first.p50, "0.99": first.p99, "1": first.max}
        yield self._family(
            core.GaugeMetricFamily,
            "first_wait_window_seconds",
            "Recent first waits of epochs.",
            waits,
            "quantile",
        )
        meaning = "Time a sample takes in each stage, summed over workers."
        yield self._family(
            core.GaugeMetricFamily, "stage_seconds_per_sample", meaning, found.stage_s, "stage"
        )

    def _family(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        meaning: str,
        values: Mapping[str, float | None],
        own: str | None = None,
    ) -> Metric:
        made = kind(f"fastload_{name}", meaning, labels=[*self._labels, *([own] if own else [])])
        for which, value in values.items():
            if value is not None:
                made.add_metric([*self._labels.values(), *([which] if own else [])], value)
        return made


def prometheus_text(collector: HealthCollector) -> str:
    """The collector's metrics in Prometheus' text format.

    Raises:
        MissingLibrary: prometheus-client is not installed.
    """
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(collector)
    text: bytes = client.generate_latest(registry)
    return text.decode()


def _client() -> ModuleType:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise MissingLibrary(f"Prometheus text needs prometheus-client: {pip_install('monitor')}") from error
    return prometheus_client
