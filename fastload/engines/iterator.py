"""LoaderIterator: the iterator of a loader on every engine; IteratorArguments: the attributes that torch's
iterator class reads.

PassLosses counts what on_error left out of a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import torch
from torch._C._autograd import _profiler_enabled
from torch.autograd import profiler
from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter
from typing_extensions import TypeVar

from fastload._native import core
from fastload.batch.bad_samples import Lost
from fastload.dataset.view import NativeView, Occurrences
from fastload.engines.plan import ExecutionPlan
from fastload.errors import SampleError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Batch = TypeVar("_Batch", covariant=True, default=Any)


def uncompiled(function: _Function) -> _Function:
    """Has torch.compile leave a function, and what it calls, to the interpreter where a loop in a compiled
    function comes to it.

    That is what torch.compiler.disable does, without the import of torch._dynamo, which takes seconds. What
    is called there may itself be compiled: a batch_transform is then.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):  # torch 2.7
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


class LoaderIterator(core.StepTimer, _BaseDataLoaderIter, Generic[_Batch]):
    """torch's iterator class, whose steps the loader's health monitor counts, and which threads may share.

    1. isinstance with `_BaseDataLoaderIter` holds; it takes attributes and weak references; it cannot be
       copied or pickled, with torch's error, so that a program that treats torch's iterators apart
       (Lightning's CombinedLoader) treats these so.
    2. `_reset(loader)` begins the loader's next epoch in the same iterator, as DataLoader has it done where
       workers persist.
    3. Each step is an event `enumerate(DataLoader)#<class>.__next__` in a profiler's trace.
    """

    begin_again: Callable[[], Callable[[Any, Any], None] | None] | None = None
    """A weak reference to what _reset() calls, with the iterator and the loader; None: torch's own
    _reset() does it."""

    at_end: Callable[[], Callable[[], None] | None] | None = None
    """A weak reference to what is called when a pass has ended."""

    if TYPE_CHECKING:

        def __init__(self, loader: IteratorArguments) -> None: ...
        def __next__(self) -> _Batch: ...
        def _next_index(self) -> Any: ...

    def _reset(self, loader: object, first_iter: bool = False) -> None:
        begin = None if self.begin_again is None else self.begin_again()
        if begin is None:
            _BaseDataLoaderIter._reset(self, loader, first_iter)
        else:
            begin(self, loader)

    @uncompiled
    def _advance(self) -> object:
        """The next batch; StepTimer calls it, one thread at a time.

        A profiler's event costs more than all else here, so that it is entered only where a profiler runs.
        """
        try:
            if self._dataset_kind != _DatasetKind.Map or _profiler_enabled() or profiler._is_profiler_enabled:
                return _BaseDataLoaderIter.__next__(self)
            batch = self._next_data()
        except StopIteration:
            call = None if self.at_end is None else self.at_end()
            if call is not None:
                call()
            raise
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        raise NotImplementedError

    # NOTE [ sample keys: as on native threads ]
    # Draws of a packed sample that Python makes follow from its place in the packed dataset, as on native
    # threads: not from its position in a Subset or a ConcatDataset. Of any other dataset they follow from the
    # loader's own index.

    def _occurrences(
        self, index: Any, again: Occurrences | None, view: NativeView | None
    ) -> Occurrences | None:
        """Occurrences of the samples at an index of the loader, each of which came `again` times before;
        None: all are 0.

        `view`: rows of packed data; None: another dataset, or one whose rows its own code alone can tell.
        """
        if view is None:
            return again if again is not None and again.any() else None
        try:
            return view.occurrences(index if self._auto_collation else [index], again)
        except (IndexError, TypeError):  # the dataset raises its own error
            return None

    def _keyed(self, index: Any, view: NativeView) -> Any:
        """The places in packed data of the samples at an index of the loader."""
        rows = view.rows(index if self._auto_collation else [index])[1].astype(np.int64)
        return rows if self._auto_collation else int(rows[0])


@dataclass
class IteratorArguments:
    """Attributes of a loader that `_BaseDataLoaderIter` reads, as one plan has them."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    _dataset_kind: int
    _IterableDataset_len_called: int | None
    _auto_collation: bool
    _index_sampler: object
    drop_last: bool
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    pin_memory_device: str
    timeout: float
    generator: torch.Generator | None
    persistent_workers: bool

    @classmethod
    def of(cls, plan: ExecutionPlan, dataset: object, length_called: int | None) -> IteratorArguments:
        """The arguments of a plan, over `dataset`. `length_called`: the length that len(loader) returned
        for an iterable dataset."""
        settings = plan.settings
        return cls(
            dataset=dataset,
            collate_fn=plan.collate_fn,
            _dataset_kind=settings.kind,
            _IterableDataset_len_called=length_called,
            _auto_collation=settings.auto_collation,
            _index_sampler=settings.index_sampler,
            drop_last=settings.drop_last,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=settings.pin_memory,
            pin_memory_device=settings.pin_memory_device,
            timeout=settings.timeout,
            generator=settings.generator,
            persistent_workers=settings.persistent_workers,
        )


_REASONS = 5
"""Reasons that are remembered, of the first bad samples."""


@dataclass
class LossCounts:
    """Samples that on_error replaced or skipped; shared by a loader and its iterators.

    Attributes:
        replaced, skipped: number of samples that were.
        reasons: reasons of the first of them.
        loaded: files in place that their dataset's own loader opened, because native threads could not decode
            them.
    """

    replaced: int = 0
    skipped: int = 0
    loaded: int = 0
    reasons: list[str] = field(default_factory=list)


class PassLosses:
    """The losses of one pass of a loader, added to the loader's own."""

    def __init__(self, counts: LossCounts) -> None:
        self._counts = counts
        self._skipped = 0
        self._reason = ""

    def count_loaded(self) -> None:
        """Counts a file that its dataset's own loader opened."""
        self._counts.loaded += 1

    def add(self, lost: Lost) -> None:
        """Counts what happened to a batch, at its turn in the loop."""
        if not lost.instead:
            return
        self._counts.replaced += lost.replaced
        self._counts.skipped += lost.skipped
        if len(self._counts.reasons) < _REASONS:
            self._counts.reasons.append(lost.reason)
        self._reason = self._reason if self._skipped else lost.reason
        self._skipped += lost.skipped

    def check(self, delivered: int) -> None:
        """At the end of the pass, with the number of batches `delivered` in its epoch.

        Raises:
            SampleError: every sample was skipped.
        """
        skipped, self._skipped = self._skipped, 0
        if skipped and not delivered:
            raise SampleError(
                f'all {skipped} samples of the epoch were skipped (on_error="skip"), so that it has '
                f"no batches; the first: {self._reason}. "
                'Look at what every sample needs, such as the path of the data; on_error="raise" '
                "stops at the first with its own error.",
                reason=self._reason,
            ) from None
