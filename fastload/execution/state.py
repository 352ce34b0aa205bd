"""What a FastLoader holds besides DataLoader's attributes: its settings, and its state from epoch to epoch.

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
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from fastload.bad_sample_counts import Counts
from fastload.descriptors import Computed
from fastload.device.batch_transform import BatchStage, Factories, form_of
from fastload.device.image_form import collate_of
from fastload.device.stage_call import StageCall
from fastload.device.timing import StageTimer
from fastload.device.to_float import DTYPES, FORMATS
from fastload.device.transfer import TransferPlan
from fastload.errors import ArgumentError
from fastload.execution.transfer_plan import shown_steps, transfer_plan_of
from fastload.packed_view import Draws
from fastload.processes.iterator import WorkerIterator
from fastload.processes.scheduler import WorkerCounts
from fastload.resume.epoch_state import EpochState
from fastload.rng import order_seed
from fastload.threads.epochs import PackedEpochs, why_not_device

if TYPE_CHECKING:
    from fastload.health import HealthMonitor

OnError = Literal["raise", "replace", "skip"]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """FastLoader's arguments that DataLoader does not have, checked. See FastLoader for what they mean.

    Raises:
        ArgumentError: one is out of range.
    """

    device: torch.device | None
    device_prefetch: int
    batch_transform: Any
    memory_format: torch.memory_format | None
    dtype: torch.dtype | None
    seed: int | None
    on_error: OnError
    seed_by: Literal["sample"] | None
    snapshot_every_n_steps: int | None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "replace", "skip"):
            raise ArgumentError(f'on_error={self.on_error!r}: choose "raise", "replace" or "skip"')
        if self.seed_by not in (None, "sample"):
            raise ArgumentError(f'seed_by={self.seed_by!r}: choose "sample", or None for torch\'s seeds per worker')
        if self.dtype not in (None, torch.uint8, *DTYPES):
            raise ArgumentError(f"dtype={self.dtype}: images are torch.uint8, float32, float16 or bfloat16")
        if self.memory_format not in (None, *FORMATS):
            raise ArgumentError(f"memory_format={self.memory_format}: use torch.channels_last or torch.contiguous_format")
        if isinstance(self.device_prefetch, bool) or not isinstance(self.device_prefetch, int) or self.device_prefetch < 0:
            raise ArgumentError(f"device_prefetch={self.device_prefetch!r}: give a number of batches, 0 or more")

        steps = self.snapshot_every_n_steps
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 0):
            raise ArgumentError(f"snapshot_every_n_steps={steps!r}: give a number of batches, or 0 or None for never")

    def show_on(self, loader: Any) -> None:
        """Makes the arguments attributes of the loader, but for those that a subclass has set or defined itself."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given["transform"] = None  # the dataset carries it: whoever makes another loader passes both
        for name, value in given.items():
            if not hasattr(type(loader), name):
                loader.__dict__.setdefault(name, value)


class LoaderState:
    """A loader's own state; the loader's alone. See NOTE [ loader state: one private name ].

    Attributes:
        settings: the arguments.
        own_generator: the order follows (seed, epoch), from a generator that the loader made.
        packed: the epochs of packed data.
        epoch_state: where the pass stands that was begun last.
        pending: a loaded state that the next pass begins with.
        next_epoch: the number of the next pass.
        alive: iterators of worker processes that were not collected.
        steps: what is done to whole batches, after what it was made from.
        losses: samples that on_error replaced or skipped.
        timer, worker_counts, health: figures for reports.
    """

    def __init__(self, settings: Settings, own_generator: bool, factories: Factories, health: HealthMonitor[Any], loader: Any) -> None:
        self.settings = settings
        self.own_generator = own_generator
        self.worker_counts = WorkerCounts()
        self.next_epoch = 0
        self.pending: dict[str, Any] | None = None
        self._factories = factories
        self.begin(loader, health)

    def begin(self, loader: Any, health: HealthMonitor[Any]) -> None:
        """Makes anew what belongs to one loader in one process."""
        self.health = health
        self.losses = Counts()
        self.packed = PackedEpochs(loader)
        self.timer = StageTimer()
        self.alive: weakref.WeakSet[WorkerIterator] = weakref.WeakSet()
        self.epoch_state: EpochState | None = None
        self.steps: tuple[Any, tuple[StageCall, ...]] | None = None

    def for_copy(self) -> LoaderState:
        """What goes into a copy or a pickle of the loader; begin() completes it."""
        other = copy.copy(self)
        for name in ("health", "losses", "packed", "timer", "alive", "epoch_state", "steps"):
            delattr(other, name)
        return other

    def read_dataset(self, loader: Any) -> None:
        """Looks at the loader's dataset and its transforms as they are now, for what comes next."""
        self.packed.read(loader.dataset, why_not_device(loader) is None)

    def python_dataset(self, loader: Any) -> tuple[Any, Draws | None]:
        """The dataset as engines that run Python per sample read it in the pass that begins, and, if packed, what its draws follow from."""
        if self.packed.data is None:
            return loader.dataset, None
        draws = self.settings.seed, self.next_epoch - 1
        return self.packed.for_python(loader.dataset, draws), draws

    def collate_fn(self, loader: Any) -> Any:
        """What engines that run Python per sample call on the samples of a batch, or on the one sample where there are no batches."""
        return collate_of(loader, form_of(loader), self.transfer_plan(loader).fields)

    def count_epoch(self) -> int:
        """The number of the pass that begins now."""
        self.next_epoch += 1
        return self.next_epoch - 1

    def transfer_plan(self, loader: Any) -> TransferPlan:
        """Where the next pass's batches go and what is done to them there."""
        return transfer_plan_of(loader, self._factories)

    def shown_steps(self, loader: Any) -> list[tuple[BatchStage, StageCall]]:
        """The steps on whole batches, for explain()."""
        return shown_steps(loader, self._factories)

    def seed_order(self, loader: Any, epoch: int) -> None:
        """Seeds the loader's own generator for that epoch."""
        if self.own_generator and self.settings.seed is not None:
            loader.generator.manual_seed(order_seed(self.settings.seed, epoch))


def shown(get: Callable[[LoaderState], _T], doc: str) -> Any:
    """An attribute of FastLoader that shows what `get` finds in its state."""
    return Computed(lambda loader: get(loader._fastload), doc)
