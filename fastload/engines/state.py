"""LoaderState: the state that a FastLoader keeps from epoch to epoch.

NOTE [ loader state: one private name ]
Subclasses of DataLoader call their own attributes `device`, `epoch`, `seed`, `_view`, and set them before or
after super().__init__(). So everything of FastLoader's lies in one object under one private name,
`_fastload`, and the library's own code reads nothing else. The public attributes are for users and
frameworks: arguments as they were given, which frameworks read to make another loader of that class, and
read-only attributes such as `epoch`. A subclass's own attribute of the same name replaces them and changes
nothing else.
"""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
from torch.utils.data import DataLoader

from fastload.dataset.native_data import NativeData
from fastload.dataset.resolver import same_objects
from fastload.device.transfer import StageTimer
from fastload.engines.indices import Progress, begin
from fastload.engines.iterator import LoaderIterator
from fastload.engines.plan import ExecutionPlan, Planner
from fastload.engines.processes.in_process import InProcessIterator
from fastload.engines.processes.iterator import ProcessIterator, WorkerIterator
from fastload.engines.processes.opened_indexes import OpenedIndexes
from fastload.engines.processes.scheduler import LoaderCounters
from fastload.engines.settings import Settings
from fastload.engines.threads.epochs import NativeIterator, ThreadEpochs
from fastload.errors import ClosedError, Computed
from fastload.health import tracing
from fastload.portable import LACKING

if TYPE_CHECKING:
    from fastload.health import HealthMonitor

_T = TypeVar("_T")


class LoaderState:
    """State that belongs to one loader alone. See NOTE [ loader state: one private name ].

    Attributes:
        settings: the arguments, as they were in force when they were read last.
        plan: plan of the epoch that was begun last, or of the first one.
        progress: the caller's position in the loader's epochs.
        counters: counts over all epochs.
        timer: seconds spent on moving batches, and on their stages.
        epochs: the epochs on native threads.
        workers: iterators of worker processes that were not collected.
        health: the monitor of the loader's loops.
        opened: entropy indexes of the images that the dataset opens; None: it has opened none yet.
        fresh: the plan that an iter() under way has read for the iterator it gets, and when that began.
    """

    settings: Settings
    plan: ExecutionPlan

    def __init__(self) -> None:
        self.progress = Progress()
        self.counters = LoaderCounters()
        self._start()

    def _start(self) -> None:
        tracing.trace_process()
        self.timer = StageTimer()
        self.planner = Planner(self.timer)
        self.epochs = ThreadEpochs(self.progress, self.counters.losses)
        self.workers: weakref.WeakSet[ProcessIterator] = weakref.WeakSet()
        self._sent = SentToWorkers()
        self.opened: OpenedIndexes | None = None
        self.fresh: tuple[ExecutionPlan, float] | None = None
        self._made: weakref.ref[LoaderIterator] | None = None
        self._kept: weakref.ref[LoaderIterator] | None = None

    def watch(self, health: HealthMonitor[Any]) -> None:
        """Sets the monitor of the loader's loops."""
        self.health = health

    def for_copy(self) -> LoaderState:
        """The state of a copy or a pickle of the loader: its settings, and the number of its next epoch or
        a state loaded for it."""
        other = copy.copy(self)
        for name in (
            "plan",
            "planner",
            "epochs",
            "workers",
            "timer",
            "health",
            "_sent",
            "opened",
            "fresh",
            "_made",
            "_kept",
        ):
            other.__dict__.pop(name, None)
        other.progress = Progress(next_epoch=self.progress.next_epoch, pending=self.progress.pending)
        other.counters = LoaderCounters()
        return other

    def restart(self) -> None:
        """Makes anew what belongs to one loader in one process; for a copy."""
        self._start()

    def read(self, loader: DataLoader[Any]) -> ExecutionPlan:
        """The plan for the loader as it is now. See NOTE [ plan: decided at iter() ]."""
        self.settings = self.settings.in_force(loader)
        self.plan = self.planner.plan(self.settings)
        return self.plan

    def new_iterator(self, plan: ExecutionPlan, began: float, length_called: int | None) -> LoaderIterator:
        """The iterator of the next epoch, whose steps are timed from `began`."""
        iterator = self._new_iterator(plan, length_called)
        self._made = weakref.ref(iterator)
        iterator.at_end = weakref.WeakMethod(self.health.log_once)
        self.health.time(iterator, began)
        return iterator

    def _new_iterator(self, plan: ExecutionPlan, length_called: int | None) -> LoaderIterator:
        iterator: NativeIterator | ProcessIterator
        if plan.engine == "threads":
            iterator = self.epochs.iterate(plan)
        else:
            if plan.data is not None and plan.settings.persistent_workers:
                self._sent.note(plan.data)
            self._begin(plan, kept=False)
            indexes = self.indexes(plan)
            if plan.engine == "caller":
                return InProcessIterator(plan, self.progress, self.counters, indexes, length_called)
            if LACKING:
                from fastload.engines.processes.torch_workers import TorchWorkerIterator

                iterator = TorchWorkerIterator(plan, self.progress, self.counters, length_called)
            else:
                iterator = WorkerIterator(plan, self.progress, self.counters, indexes, length_called)
            self.workers.add(iterator)
        iterator.begin_again = weakref.WeakMethod(self.reset)
        return iterator

    def indexes(self, plan: ExecutionPlan) -> OpenedIndexes | None:
        """The entropy indexes of images that the dataset opens, of all epochs; None where Pillow is left
        alone.

        Raises:
            ArgumentError, DatasetError: the folder of cache= cannot be had.
        """
        settings = plan.settings
        if plan.engine == "threads" or settings.lazy_images is None:
            return None
        if self.opened is None:
            self.opened = OpenedIndexes(settings.dataset, settings.cache_place)
        return self.opened

    def keep(self) -> None:
        """Notes that the loader keeps the iterator that was made last, for all its epochs: its workers
        persist."""
        self._kept = self._made

    @property
    def kept(self) -> NativeIterator | ProcessIterator | None:
        """The iterator that the loader keeps, maybe within one of a subclass's; None: one that the loader
        has not made."""
        found = None if self._kept is None else self._kept()
        return found if isinstance(found, NativeIterator | ProcessIterator) else None

    def goes_on(self, plan: ExecutionPlan) -> bool:
        """Returns True if the kept iterator can make the next epoch; if its workers cannot, they are
        ended."""
        iterator = self.kept
        if iterator is None:
            return True  # the loader keeps an iterator of a subclass
        if isinstance(iterator, NativeIterator):
            return plan.engine == "threads" and iterator.usable
        if plan.engine == "threads":
            return False
        stale = (plan.data is not None and self._sent.note(plan.data)) or not iterator.has_slots_for(plan)
        if iterator.usable and not stale:
            return True
        self.counters.workers.restarts += not iterator.usable
        iterator.close()
        return False

    def reset(self, iterator: NativeIterator | ProcessIterator, loader: DataLoader[Any]) -> None:
        """Begins the next epoch in an iterator of this loader.

        Raises:
            ClosedError: its workers are gone, or another engine runs by now.
        """
        began = time.perf_counter()
        fresh, self.fresh = self.fresh, None
        plan, began = fresh or (self.read(loader), began)
        engine = "threads" if isinstance(iterator, NativeIterator) else "processes"
        if plan.engine != engine or not iterator.usable:
            raise ClosedError("this iterator cannot begin another epoch: iterate the loader anew")
        if isinstance(iterator, NativeIterator):
            iterator.drop()
            iterator.go_on_as(self.epochs.iterate(plan, iterator))
        else:
            self._begin(plan, kept=True)
            iterator.begin_epoch(plan, self.progress, loader._IterableDataset_len_called)
        self.health.time(iterator, began)

    def _begin(self, plan: ExecutionPlan, *, kept: bool) -> None:
        epoch = self.progress.count_epoch()
        plan.settings.seed_order(epoch)
        begin(plan.settings, self.progress, epoch, kept=kept)

    def close(self) -> None:
        """Ends threads and worker processes, and frees the memory that these shared; idempotent."""
        for iterator in list(self.workers):
            iterator.close()
        self.opened = None
        self.epochs.close()
        tracing.save_process()


class SentToWorkers:
    """Rows and transforms with which persistent workers were started: they tell whether the workers have
    the dataset as it is now."""

    def __init__(self) -> None:
        self._sent: tuple[Any, ...] | None = None

    def note(self, data: NativeData) -> bool:
        """Notes the rows and transforms. Returns True if they differ from those noted before."""
        view = data.view
        try:
            steps = cloudpickle.dumps([dataset.plan.python for dataset in view.datasets])
        # An object that cannot be pickled cannot be compared: its changes stay unseen, as in torch's workers
        except Exception:
            steps = b""
        before, self._sent = self._sent, ((view.tree,), view.datasets, steps)
        if before is None:
            return False
        same = (
            same_objects(before[0], self._sent[0])
            and same_objects(before[1], self._sent[1])
            and before[2] == steps
        )
        return not same


def shown(get: Callable[[LoaderState], _T], doc: str) -> Any:
    """An attribute of FastLoader that shows what `get` finds in its state."""
    return Computed(lambda loader: get(loader._fastload), doc)
