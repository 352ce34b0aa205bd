"""Health report of a training loop: how long it waits for data, why, and which setting to change."""

from fastload.health.advice import advise, report
from fastload.health.exporters import HealthCollector, MissingLibrary
from fastload.health.figures import Figures
from fastload.health.monitor import HealthMonitor, count_samples
from fastload.health.trace_file import merge_traces
from fastload.health.tracing import Trace

__all__ = [
    "Figures",
    "HealthCollector",
    "HealthMonitor",
    "MissingLibrary",
    "Trace",
    "advise",
    "count_samples",
    "merge_traces",
    "report",
]
