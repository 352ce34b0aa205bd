"""Orders of shuffle="window", blocks of consecutive samples mixed through a buffer of bounded size, and of shuffle="huge"."""

from fastload.window.choice import SHUFFLES, shuffle_class
from fastload.window.coverage import blocks_of, coverage
from fastload.window.keyed import KeyedSampler, RandomKeyedSampler
from fastload.window.order import WindowOrder
from fastload.window.sampler import RandomWindowSampler, WindowSampler

__all__ = [
    "SHUFFLES",
    "KeyedSampler",
    "RandomKeyedSampler",
    "RandomWindowSampler",
    "WindowOrder",
    "WindowSampler",
    "blocks_of",
    "coverage",
    "shuffle_class",
]
