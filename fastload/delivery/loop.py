"""LoaderIterator: what iter() of a loader gives, on every engine."""

from __future__ import annotations

from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastload._native import core


class LoaderIterator(core.StepTimer, _BaseDataLoaderIter):
    """torch's iterator class, whose steps the loader's health monitor counts, and which threads may share.

    1. isinstance with `_BaseDataLoaderIter` holds; it takes attributes and weak references; it cannot be copied or pickled, with torch's
       error, so that a program that treats torch's iterators apart (Lightning's CombinedLoader) treats these so.
    2. Each step is an event `enumerate(DataLoader)#<class>.__next__` in a profiler's trace.
    """

    def _advance(self) -> Any:
        """The next batch; StepTimer calls it, one thread at a time."""
        return _BaseDataLoaderIter.__next__(self)
