"""ExecutionPlan: how a loader's next epoch runs, decided once from its settings, its dataset and this
machine.

NOTE [ plan: decided at iter() ]
iter() reads what the user may have changed since (the sampler, batch sizes, a Subset's indices, transforms,
torch's attributes of the loader) into a plan. Engines run the plan and explain() prints it; neither looks at
the loader. Where nothing has changed it is the same plan, so that comparing plans by identity tells whether
work that was begun early, or an engine, may be used.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Literal, cast

import torch
from torch.utils.data import IterableDataset

from fastload._native import core
from fastload.common.distribution import pip_install
from fastload.dataset.copies import DrawBasis
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.native_data import NativeData
from fastload.dataset.native_source import NativeSource
from fastload.dataset.resolver import NativeDataReader, draws_of, in_epoch, same_objects
from fastload.dataset.view import NativeView
from fastload.device.pinning import HostMemory, host_memory
from fastload.device.stages import BatchFields, FormedSamples
from fastload.device.to_float import Floats
from fastload.device.transfer import Lanes, StageTimer, TransferPlan
from fastload.engines.batch_stages import BatchStages, form_of
from fastload.engines.of_kornia import check_keys, fields_by_keys, settings_of
from fastload.engines.settings import EngineChoice, Settings
from fastload.errors import ArgumentError
from fastload.portable import LACKING
from fastload.remote.kept_table import CachePlace
from fastload.transforms.spec import stored_output

Engine = Literal["threads", "processes", "caller"]
_DTYPE_NAMES = {
    torch.uint8: "uint8",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_LAYOUTS = {None: "CHW", torch.channels_last: "HWC", torch.contiguous_format: "CHW"}


@dataclass(frozen=True)
class EpochSize:
    """The size of an epoch, as far as it can be known before its first batch is pulled: what slots are made
    for in advance.

    An expectation, which no batch has to meet: a larger batch, or one more, is given a slot of its size when
    its turn comes.

    Attributes:
        rows: samples in its largest batch, at least 1.
        batches: batches of the epoch, at least 1.
    """

    rows: int
    batches: int

    def in_flight(self, depth: int) -> int:
        """Batches of one pass to keep in flight where `depth` are asked for: no more than there are, and
        one of the next epoch."""
        return min(depth, self.batches + 1)

    def slots(self, depth: int) -> int:
        """Slots for `depth` batches: no more than this epoch and the next, begun early, have batches."""
        return min(depth, 2 * self.batches)


@dataclass(frozen=True, eq=False)
class ExecutionPlan:
    """Plan of an epoch: engine, data, transfer and outputs. See NOTE [ plan: decided at iter() ].

    Attributes:
        settings: the loader's settings that are in force.
        engine: the engine that makes the batches: native threads, worker processes, or the calling process.
        why: the reason for that engine, as explain() prints it.
        mend: the change after which native threads make the batches; "" if they do, or no such change is
            known.
        data: the packed data; None for any other dataset.
        transfer: the device of finished batches, and the stages that run there.
        collate_fn: function that worker processes, or the calling process, call on the samples of a batch.
        outputs: form in which native threads write each tensor of a batch; None on other engines.
        size: size of the epoch on native threads, as far as it is known.
    """

    settings: Settings
    engine: Engine
    why: str
    mend: str
    data: NativeData | None
    transfer: TransferPlan
    collate_fn: Callable[[Any], Any]
    outputs: list[core.Output] | None
    size: EpochSize

    @property
    def native(self) -> NativeView | None:
        """The rows that native threads read; None on other engines."""
        return None if self.data is None else self.data.native

    @property
    def asked_in_flight(self) -> int:
        """Batches in flight that prefetch_factor= asks for; 0 in the calling process."""
        return self.settings.depth if self.engine == "threads" else self.settings.drawn_at_iter

    @cached_property
    def depth(self) -> int:
        """Batches that an epoch keeps in flight."""
        return self.size.in_flight(self.asked_in_flight) if self.engine == "threads" else self.asked_in_flight

    @cached_property
    def transfers(self) -> bool:
        """True if batches are moved or changed on their way to the loop."""
        return not self.transfer.idle

    @property
    def finished_ahead(self) -> bool:
        """True if a thread finishes native batches ahead of the loop. Not if a user's collate_fn does: it
        may draw random numbers."""
        return self.transfer.threaded and (
            self.settings.own_collate_fn is None or self.settings.collation is not None
        )

    @cached_property
    def slots(self) -> int:
        """Slots that native threads start with, beside the one that is being filled."""
        return self.size.slots(self.depth + self.transfer.ahead * self.transfers)

    @cached_property
    def host_memory(self) -> HostMemory:
        """The memory that batches lie in on the host."""
        return host_memory(self.transfer.pin, self.transfer.device, self.engine)

    @property
    def transform_seed(self) -> int | None:
        """Seed of random transforms: the loader's, else that of its packed datasets; None: one is drawn for
        each epoch.

        Raises:
            ArgumentError: the datasets have different seeds.
        """
        if self.settings.seed is not None or self.data is None:
            return self.settings.seed
        seeds = {each.seed for each in self.data.view.datasets}
        if len(seeds) > 1:
            shown = ", ".join(str(seed) for seed in sorted(seeds, key=str))
            raise ArgumentError(
                f"the packed datasets have different seeds ({shown}), and a batch has one: give "
                "seed= to the loader"
            )
        return seeds.pop()

    @property
    def draws_base_seed(self) -> bool:
        """True if an epoch draws a base seed, as torch's does."""
        return self.native is None or self.settings.seed is None

    def python_view(self, epoch: int) -> NativeView | None:
        """Rows of packed data that Python makes samples of, in an epoch; None: other data, or rows that
        only the user's code can tell."""
        return None if self.data is None or self.data.view.is_asked else self.data.view.at(epoch)

    def python_dataset(self, epoch: int) -> tuple[Any, DrawBasis | None]:
        """The dataset as worker processes, or the calling process, read it; and the basis of its draws, if
        it is packed or a Mixture."""
        dataset, seed = self.settings.dataset, self.settings.seed
        if self.data is None:
            return in_epoch(dataset, seed, epoch)
        draws = draws_of(dataset, seed, epoch)
        return self.data.for_python(dataset, draws), draws


class Planner:
    """Makes the plans of one loader.

    Attributes:
        reads_packed: True if the dataset that was read last is packed, or files in place.
    """

    def __init__(self, timer: StageTimer) -> None:
        self._timer, self._lanes = timer, Lanes()
        self._reader = NativeDataReader()
        self._stages = BatchStages()
        self._last: ExecutionPlan | None = None
        self._listed: tuple[Any, ...] = ()
        self._told: tuple[Any, ...] = ()
        self.reads_packed = False

    def is_packed(
        self,
        dataset: object,
        engine: EngineChoice,
        cache: CachePlace | None,
        *,
        device: bool,
    ) -> bool:
        """Returns True if a dataset is packed data, or files that native threads read in place."""
        self.reads_packed = (
            self._reader.read(dataset, device, engine != "python", cache, _missing_ops()) is not None
        )
        return self.reads_packed

    @property
    def kinds(self) -> object:
        """Kinds of the parts of a sample of the dataset that was read last, for Collate; None: it is
        neither packed nor in place."""
        return None if self._reader.data is None else self._reader.data.kinds

    def plan(self, settings: Settings) -> ExecutionPlan:
        """The plan for these settings and the dataset as it is now: the last one, if nothing that it follows
        from has changed.

        Raises:
            ArgumentError: arguments contradict each other or the transform.
            Whatever reading the dataset raises.
        """
        device, allowed = why_not_device(settings) is None, settings.engine != "python"
        data = self._reader.read(settings.dataset, device, allowed, settings.cache_place, _missing_ops())
        self.reads_packed = data is not None
        size = EpochSize(1, 1) if data is None or data.native is None else epoch_size(settings, data.view)
        last, listed = self._last, tuple(settings.batch_transforms)
        told = (
            self._reader.why_not,
            self._reader.replaced,
            settings_of(listed) if "kornia.augmentation" in sys.modules else (),
        )
        if (
            last is not None
            and last.settings is settings
            and last.data is data
            and last.size == size
            and same_objects(self._listed, listed)
            and self._told == told
        ):
            return last
        self._listed, self._told = listed, told
        transfer = self._transfer(settings, data)
        native = None if data is None else data.native
        engine: Engine = "processes" if settings.num_workers else "caller"
        if native is not None:
            engine = "threads"
        why, mend = self._why(settings, data)
        if settings.engine == "native" and native is None:
            raise ArgumentError(f'engine="native" was asked for: {why}')
        if settings.cache_side is not None and (data is None or data.native is None or not data.in_place):
            other = why if data is None or data.native is None else _PACKED
            raise ArgumentError(f"cache_side= is for images in place on native threads: {other}")
        if data is None:
            settings.check_python()
        elif data.in_place:
            _say_once(cast(InPlaceDataset, data.view.datasets[0]).kind)
        form, outputs = (
            form_of(settings, data),
            None if native is None else outputs_for(settings, native, transfer),
        )
        collate = settings.collate_fn
        if form is not None and not settings.by_default_collate:
            collate = FormedSamples(settings.collate_fn, form, transfer.fields, settings.auto_collation)
        self._last = ExecutionPlan(settings, engine, why, mend, data, transfer, collate, outputs, size)
        return self._last

    def _transfer(self, settings: Settings, data: NativeData | None) -> TransferPlan:
        pin = settings.pin_memory and torch.accelerator.is_available()
        stages = self._stages.calls(settings, data)
        if data is not None and any(stage.objects for stage in stages):
            _check_formats(data)
        fields = fields_by_keys(settings.batch_transforms) if data is None else _fields_of(data)
        for stage in stages:
            check_keys(stage.call, fields)
        return TransferPlan(
            settings.device, pin, stages, fields, settings.device_prefetch, self._timer, self._lanes
        )

    def _why(self, settings: Settings, data: NativeData | None) -> tuple[str, str]:
        """The reason for the engine, and what to change so that native threads make the batches."""
        if LACKING:
            return LACKING, ""
        if settings.engine == "python":
            other = "" if data is None else _to_native(data)
            return (
                'engine="python" was asked for',
                other or 'leave out engine="python", or FASTLOAD_ENGINE=python',
            )
        if data is None and self._reader.replaced:
            why = f"{type(settings.dataset).__name__} is not read by native threads: {self._reader.replaced}"
            return why, f"{why}; take that back, so that native threads do the work"
        if data is None and self._reader.why_not:
            why = f"{type(settings.dataset).__name__} is not read in place: {self._reader.why_not}"
            return why, why + (_OR_BATCHES if self._reader.by_transform else _OR_PACK)
        why = _why(settings, data)
        if settings.iterable:
            return why, "make it a map-style Dataset, and " + _PACK
        if data is None:
            return why, _PACK
        return why, "" if data.native is not None else _to_native(data)


_PACKED = "packed images have the size that they were packed with (max_side=, min_side=)"
_PACK = "pack the dataset (fastload pack) and use fastload.transforms, so that native threads do the work"
_OR_PACK = "; change that, or pack the dataset (fastload pack), so that native threads do the work"
_OR_BATCHES = (
    "; replace that by transforms that are native (loader.explain() shows which are), or apply it to "
    "whole batches (batch_transform=)"
)


def _to_native(data: NativeData) -> str:
    """The change after which native threads make batches of packed data; "" if none is known."""
    for dataset in data.view.datasets:
        if not dataset.plan.native:
            return next(stage.why for stage in dataset.plan.stages if stage.where == "python") + _OR_BATCHES
        if dataset.image_field not in dataset.fields:
            return ""
    if data.native is not None or len(data.view.datasets) == 1:
        return ""
    return "give all datasets the same fields and transform"


def _say_once(name: str) -> None:
    """Logs, once in a process, how the samples differ from the dataset's own."""
    if not _said:
        _said.append(name)
        logging.getLogger("fastload").warning(
            "%s is read in place by native threads: the same samples in the same order; random "
            "transforms draw from (seed, epoch, index), "
            'and bilinear pixels are within 1 of Pillow\'s. engine="python", or '
            "FASTLOAD_ENGINE=python, gives the numbers and pixels of "
            "the dataset's own code",
            name,
        )


_said: list[str] = []


def why_not_device(settings: Settings) -> str | None:
    """The reason why no step of the transform is left to a device; None if steps are."""
    if settings.device is None:
        return "no device= is given"
    if not settings.auto_collation:
        return "batch_size=None makes no batches"
    if not settings.stacks_images:
        collation = settings.collation
        if settings.default_replaced:
            return f"default_collate takes finished samples: {settings.collate_replaced}"
        if collation is None:
            return "your collate_fn takes finished samples"
        return f"{collation} leaves images of several sizes"
    return None


OF_KORNIA = frozenset({"GaussianBlur"})
"""Names of the ops on whole batches that run in Kornia."""


@cache
def _missing_ops() -> frozenset[str]:
    """Names of the ops that need Kornia, where it is not installed."""
    return OF_KORNIA if find_spec("kornia") is None else frozenset()


def epoch_size(settings: Settings, dataset: Sized) -> EpochSize:
    """Size of an epoch over a dataset, as the samplers tell it; the dataset's length counts if the sampler
    has none."""
    batch_sampler = settings.batch_sampler
    drawn = _length(getattr(batch_sampler, "sampler", settings.sampler))
    samples = max(1, len(dataset) if drawn is None else drawn)
    asked = getattr(batch_sampler, "batch_size", None) or settings.batch_size or 1
    rows = min(samples, asked) if isinstance(asked, int) and asked > 0 else 1
    batches = None if batch_sampler is None else _length(batch_sampler)
    return EpochSize(rows, -(-samples // rows) if batches is None else max(1, batches))


def _length(sampler: Any) -> int | None:
    """A user's sampler may have no length, or none yet."""
    try:
        return len(sampler)
    except Exception:
        return None


def _fields_of(data: NativeData) -> BatchFields:
    """Places of the images, and of fields that lie in them, in a batch."""
    dataset = data.view.datasets[0]
    image = dataset.image_field
    given = (each for each in dataset.schema if each.name in dataset.fields and each.name != image)
    form = dataset.plan.box_format  # the format of converted boxes
    moved = [each for each in given if each.handler.follows_image or each.handler.is_image]
    objects = tuple((each.name, each.kind, each.format and (form or each.format)) for each in moved)
    images = {each.name for each in moved if each.handler.is_image}
    further = tuple(name for name in dataset.fields if name in images)
    return BatchFields(
        image, objects=objects, further=further, paths=tuple(dataset.paths.items()), pairs=_known_pairs(data)
    )


def _known_pairs(data: NativeData) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """(name, pairs of numbers) of the keypoints that mirror each other, if all packed datasets agree."""
    found: dict[str, set[tuple[tuple[int, int], ...]]] = {}
    for dataset in data.view.datasets:
        for field in dataset.schema:
            if field.handler.has_points:
                found.setdefault(field.name, set()).add(field.pairs)
    return tuple((name, pairs.pop()) for name, pairs in found.items() if len(pairs) == 1)


def _check_formats(data: NativeData) -> None:
    """Raises ArgumentError if boxes of one name have several formats: what moves those of whole batches
    reads them all in one."""
    first: dict[str, str] = {}
    for dataset in data.view.datasets:
        for field in (
            each for each in dataset.schema if each.handler.owns_objects and each.name in dataset.fields
        ):
            form = dataset.plan.box_format or field.format
            if first.setdefault(field.name, form) != form:
                raise ArgumentError(
                    f"batch_transform= moves {field.name!r}, which are {first[field.name]} in one "
                    f"packed dataset and {form} in another: "
                    'add ConvertBoundingBoxFormat("xyxy") to their transforms'
                )


def outputs_for(settings: Settings, view: NativeView, transfer: TransferPlan) -> list[core.Output]:
    """Form in which native threads write each tensor of a batch.

    Raises:
        ArgumentError: dtype= contradicts the transform.
    """
    dtype, first = None if settings.dtype is None else _DTYPE_NAMES[settings.dtype], view.datasets[0]
    outputs = first.images.outputs(first.plan, dtype, _LAYOUTS[settings.memory_format])
    # Those stages convert bytes to floats.
    converted = {stage.view for stage in transfer.stages if isinstance(stage.call, Floats)}
    if not converted:
        return outputs
    # The stages convert the first image; others are floats already.
    own, planes = (
        len(first.plan.programs),
        first.images.images[0].planes,
    )
    return [
        stored_output("CHW" if out.patches else out.layout, planes, out.patches)
        if n < own and (None in converted or n in converted)
        else out
        for n, out in enumerate(outputs)
    ]


def _why(settings: Settings, data: NativeData | None) -> str:
    if data is None:
        kind = (
            "an IterableDataset" if isinstance(settings.dataset, IterableDataset) else "a map-style Dataset"
        )
        return (
            f"{type(settings.dataset).__name__} is {kind} of Python: pack it (fastload pack) to have it "
            "read by native threads"
        )
    if data.native is not None and data.in_place:
        datasets = data.native.datasets
        count = sum(len(each) if each.positions is None else len(each.positions) for each in datasets)
        return f"native, on {count:,} {datasets[0].noun} in place: nothing is packed, nothing is written"
    if data.native is not None:
        first = data.native.datasets[0]
        left = " but for what the device does" if first.plan.device else _not_moved(settings, first)
        return f"the dataset is packed and its transform is native{left}"
    for dataset in data.view.datasets:
        if not dataset.plan.native:
            return (
                "the transform has a part that is Python: everything runs per sample in "
                f"Python{_not_moved(settings, dataset)}"
            )
        if dataset.image_field not in dataset.fields:
            return "no image is asked for"
    return (
        "the packed datasets end in different normalisations, or other ops on batches, or their images "
        "or fields are not alike"
    )


def _not_moved(settings: Settings, dataset: NativeSource) -> str:
    """The reason why steps are not left to the device, if they could be."""
    if not dataset.plan.movable or settings.device is None:
        return ""
    lacking = sorted(dataset.snapshot(device=True).plan.device_ops & _missing_ops())
    missing = (
        f"{lacking[0]} needs Kornia, which is not installed: {pip_install('augment')}" if lacking else ""
    )
    return (
        "; the device could do a part of it, but "
        f"{why_not_device(settings) or missing or 'the packed datasets differ in it'}"
    )
