"""How well a loop is fed: what it waits for, how long, and which knob to turn."""

from fastload.health.advice import advise, report
from fastload.health.exporters import HealthCollector, MissingLibrary
from fastload.health.figures import Figures
from fastload.health.monitor import HealthMonitor
from fastload.health.samples import count_samples

__all__ = ["Figures", "HealthCollector", "HealthMonitor", "MissingLibrary", "advise", "count_samples", "report"]
