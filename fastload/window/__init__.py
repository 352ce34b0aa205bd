"""Orders for `shuffle="window"`: blocks of consecutive samples in random order, mixed through a buffer of bounded size."""

from fastload.window.coverage import blocks_of, coverage
from fastload.window.order import WindowOrder
from fastload.window.sampler import RandomWindowSampler, WindowSampler, windowed

__all__ = ["RandomWindowSampler", "WindowOrder", "WindowSampler", "blocks_of", "coverage", "windowed"]
