"""LoaderState: what a FastLoader keeps from epoch to epoch.

NOTE [ loader state: one private name ]
Subclasses of DataLoader call their own attributes `device`, `epoch`, `seed`, `_view`, and set them before or after super().__init__().
So everything of FastLoader's lies in one object under one private name, `_fastload`, and the library's own code reads nothing else.
The public attributes are for users and frameworks: arguments as they were given, which frameworks read to make another loader of that
class, and read-only attributes such as `epoch`. A subclass's own attribute of the same name replaces them and changes nothing else.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import DataLoader

from fastload.base_iterator import LoaderIterator
from fastload.descriptors import Computed
from fastload.device.timing import StageTimer
from fastload.execution.packed_data import SentToWorkers
from fastload.execution.plan import ExecutionPlan, Planner
from fastload.execution.settings import Settings
from fastload.processes.in_process import InProcessIterator
from fastload.processes.iterator import WorkerIterator
from fastload.processes.scheduler import LoaderCounters
from fastload.resume.epoch_start import begin
from fastload.resume.epoch_state import Progress
from fastload.threads.epochs import ThreadEpochs

if TYPE_CHECKING:
    from fastload.health import HealthMonitor

_T = TypeVar("_T")


class LoaderState:
    """The state of one loader, and its alone. See NOTE [ loader state: one private name ].

    Attributes:
        settings: the arguments, as they were in force when they were read last.
        plan: how the epoch that was begun last runs, or how the first one will.
        progress: how far the loader has come.
        counters: what is counted over all epochs.
        timer: seconds spent on moving batches, and on their stages.
        epochs: the epochs on native threads.
        workers: iterators of worker processes that were not collected.
        health: the monitor of the loader's loops.
    """

    settings: Settings
    plan: ExecutionPlan

    def __init__(self) -> None:
        self.progress = Progress()
        self.counters = LoaderCounters()
        self._start()

    def _start(self) -> None:
        self.timer = StageTimer()
        self.planner = Planner(self.timer)
        self.epochs = ThreadEpochs(self.progress, self.counters.losses)
        self.workers: weakref.WeakSet[WorkerIterator] = weakref.WeakSet()
        self._sent = SentToWorkers()

    def watch(self, health: HealthMonitor[Any]) -> None:
        """Sets the monitor of the loader's loops."""
        self.health = health

    def for_copy(self) -> LoaderState:
        """What goes into a copy or a pickle of the loader: its settings, and the number of its next epoch or a state loaded for it."""
        other = copy.copy(self)
        for name in ("plan", "planner", "epochs", "workers", "timer", "health", "_sent"):
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

    def new_iterator(self, plan: ExecutionPlan, length_called: int | None, *, kept: bool) -> LoaderIterator:
        """The iterator of the next epoch. `kept`: another iterator's persistent workers stay; see epoch_start.begin()."""
        if plan.engine == "threads":
            return self.epochs.iterate(plan)
        if plan.data is not None and plan.settings.persistent_workers:
            self._sent.note(plan.data)
        self._begin(plan, kept=kept)
        if plan.engine == "caller":
            return InProcessIterator(plan, self.progress, self.counters.losses, length_called)
        iterator = WorkerIterator(plan, self.progress, self.counters, length_called)
        self.workers.add(iterator)
        return iterator

    def goes_on(self, plan: ExecutionPlan, iterator: WorkerIterator) -> bool:
        """Whether an iterator's persistent workers make the next epoch; if they cannot, they are ended."""
        if plan.engine == "threads":
            return False
        stale = plan.data is not None and self._sent.note(plan.data)
        if iterator.usable and not stale:
            return True
        self.counters.workers.restarts += not iterator.usable
        iterator.close()
        return False

    def go_on(self, plan: ExecutionPlan, iterator: WorkerIterator, length_called: int | None) -> None:
        """Begins the next epoch of persistent workers."""
        self._begin(plan, kept=True)
        iterator.begin_epoch(plan, self.progress, length_called)

    def _begin(self, plan: ExecutionPlan, *, kept: bool) -> None:
        epoch = self.progress.count_epoch()
        plan.settings.seed_order(epoch)
        begin(plan.settings, self.progress, epoch, kept=kept)

    def close(self) -> None:
        """Ends threads and worker processes; idempotent."""
        for iterator in list(self.workers):
            iterator.close()
        self.epochs.close()


def shown(get: Callable[[LoaderState], _T], doc: str) -> Any:
    """An attribute of FastLoader that shows what `get` finds in its state."""
    return Computed(lambda loader: get(loader._fastload), doc)
