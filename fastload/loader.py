"""FastLoader: a torch DataLoader whose batches of packed data are made by native threads."""

from __future__ import annotations

import inspect
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

import torch
from torch.utils.data import DataLoader, IterableDataset
from typing_extensions import Self, TypeVar

from fastload._native import core
from fastload.batch.collate import CollateForm, advise, collate_fn_of
from fastload.common.files import expanded
from fastload.common.rng import checked_epoch, checked_seed
from fastload.common.system import share_of_cpus
from fastload.common.text import Text
from fastload.dataset.packed import PackedDataset
from fastload.engines.batch_types import Batches, DefaultBatches
from fastload.engines.iterator import LoaderIterator, uncompiled
from fastload.engines.plan import ExecutionPlan
from fastload.engines.resume.state_dict import load, state_of
from fastload.engines.settings import Arguments, EngineChoice, OnError, Settings, takes, warn_unused
from fastload.engines.state import LoaderState, shown
from fastload.errors import ArgumentError
from fastload.explain.report import advised_settings, brief, explain, stats
from fastload.health import HealthMonitor, Trace, tracing
from fastload.remote.kept_table import CachePlace
from fastload.sampling.arguments import AccelerateMark, order_of, show_sharded
from fastload.sampling.sharding import Shard, checked_shard

if TYPE_CHECKING:
    from fastload.engines.batch_types import DefaultArguments, Unread, Value

    _Key = TypeVar("_Key")
    _Value = TypeVar("_Value", bound=Value)

_T = TypeVar("_T", covariant=True, default=Any)
_Batches = TypeVar("_Batches", bound=Batches, covariant=True, default=Batches)


class FastLoader(DataLoader[_T], Generic[_T, _Batches]):
    """A `torch.utils.data.DataLoader` whose batches of packed data are made by native threads.

    1. Native threads read, decode, crop and resize packed data, and images in place, if each step of the
       transform is native or runs on `device`. They live as long as the loader. Any other dataset runs
       exactly as under DataLoader.
    2. A batch is `[images, labels]`, or a dict if the dataset has other fields. Nothing overwrites its
       tensors while you keep them.
    3. Every `iter()` begins the next epoch, from 0, and looks at the dataset, its transform and the sampler
       again. Nothing is written into the dataset.
    4. With a seed, sample `i` of epoch `e` has the same bytes for any number of threads, any prefetch_factor,
       in any batch. Without one, torch.manual_seed repeats a run.
    5. close(), leaving the `with` block, or dropping the last reference stops the threads. A forked child
       gets an engine of its own.
    6. Arguments are read once, when the loader is made. They are attributes as well, for frameworks. A
       subclass that sets one, or `epoch`, `health` and the like, changes nothing in this class.
    7. For a type checker, batches over a Dataset[tuple[Tensor, int]] are list[Tensor]. They are Any on packed
       data, and with collate_fn, collate, batch_transform, or batch_size=None.

    Args:
        dataset: a path of a packed dataset, or any Dataset.
        batch_size, sampler, batch_sampler, collate_fn, pin_memory, drop_last, timeout, generator, in_order:
            as DataLoader's.
        shuffle: True: a permutation of all samples. "window": `fastload.WindowSampler`'s order, for data in a
            bucket. "huge": `fastload.KeyedSampler`'s, which takes no memory.
        worker_init_fn, multiprocessing_context, persistent_workers, pin_memory_device: as DataLoader's.
            Native threads always persist.
        num_workers: native threads (None: this process's share of the CPUs; 0: decode in the calling thread),
            or worker processes (None and 0: the calling process).
        prefetch_factor: batches in flight (default 2): of native threads all, else of each process.
        engine: "auto": native threads if they can make every sample. "native": native threads, or an
            ArgumentError. "python": the dataset's own code makes every sample: torch's results bit for bit.
            None: FASTLOAD_ENGINE, or "auto".
        cache: a folder for what was learnt of image files, faster forms, and files of a slow disk; "auto":
            FASTLOAD_CACHE, or the user's. Of a path in a bucket: its PackedDataset's.
        cache_size: most bytes in it, as an int or "200GiB". None: 0.8 of the free ones.
        cache_side: images in place are kept, and used, with that shorter side at most, antialiased, as JPEGs
            of quality 95. None: as they are.
        transform: for a path: the PackedDataset's transform, such as a list of `fastload.transforms`.
        device: device to which finished batches are moved ahead of the loop. Steps of a packed dataset's
            transform that the decoder cannot do run there on whole batches, if all of them can. None: not
            moved.
        device_prefetch: batches that may wait on the device. 0: each is moved when asked for.
        batch_transform: a callable for whole batches on the device, or a sequence of them. Each gets the
            images, or images and labels if it needs two arguments; a batch without either goes as it is.
            One that takes no seed, epoch and indices is wrapped in `fastload.augment.Seeded`.
        memory_format: torch.contiguous_format (default) or torch.channels_last, for images.
        dtype: torch.uint8, float32, float16 or bfloat16, for images; None: what the transform implies.
        seed: seed of the order (with shuffle) and of every random transform.
        seed_by: "sample" reseeds torch, random and NumPy for every sample of a Python dataset, from (seed,
            epoch, index): all workers then make samples of one batch. None: as torch.
        on_error: treatment of a bad sample: "raise" names it; "replace" puts another sample in its row;
            "skip" shortens the batch. `replaced` and `skipped` count them.
        snapshot_every_n_steps: worker processes send an iterable dataset's own state every that many batches
            (0 or None: only at the epoch's end). A resume draws the samples after it again.
        shard: this process's part of each epoch: "auto" (its rank in the process group, else by torchrun's
            variables, else all) or (rank, world). Indices are a DistributedSampler's; of a sampler or
            batch_sampler each rank takes its stride. None: all samples.
        even: with shard: ranks have equal numbers of samples; the first come again, or with drop_last the
            last are left out. False: each sample once.
        collate: form of a batch if boxes, labels or masks of its samples differ in number: "list",
            "padded" (`fastload.Padded`) or "flat" (`fastload.Flat`). None: collate_fn.
        pad_to: with "padded" or "flat": images and masks are padded to the largest of their batch, rounded up
            to a multiple of pad_to, and come as Padded. None: all have one size.
        lazy: treatment of JPEGs that Python code opens with Pillow: "exact" decodes them when their pixels
            are read, and only the crop, bit for bit; "fast" also scales them while decoding; False: Pillow is
            left alone. None: "exact" in worker processes, else False.

    Raises:
        SampleError: a sample, or a substitute, cannot be made; or every sample of an epoch was skipped.
        BatchShapeError: samples of a batch end at different sizes.
        LoaderTimeout: no batch within `timeout` seconds.
        ResourceError: not enough memory for the batches in flight.
        ArgumentError, ValueError: arguments out of range or at odds with each other.
        TypeError: `dataset` has no samples.
    """

    epoch: int = shown(
        lambda state: state.progress.next_epoch, "The number that the next `iter()` will have."
    )
    health: HealthMonitor[Any] = shown(
        lambda state: state.health, "The HealthMonitor of this loader's loops."
    )
    replaced: int = shown(
        lambda state: state.counters.losses.replaced,
        'Samples that on_error="replace" has put another in place of, since the loader was made.',
    )
    skipped: int = shown(
        lambda state: state.counters.losses.skipped,
        'Samples that on_error="skip" has left out, since the loader was made.',
    )
    transform: None
    engine: EngineChoice
    cache: str | os.PathLike[str] | None
    cache_size: int | str | None
    cache_side: int | None
    device: torch.device | None
    device_prefetch: int
    batch_transform: object
    memory_format: torch.memory_format | None
    dtype: torch.dtype | None
    seed: int | None
    on_error: OnError
    seed_by: Literal["sample"] | None
    snapshot_every_n_steps: int | None
    shard: Shard | None
    even: bool
    collate: CollateForm | None
    pad_to: int | None
    lazy: Literal["exact", "fast", False] | None
    _fastload: LoaderState
    _is_accelerate_prepared = AccelerateMark()

    if TYPE_CHECKING:

        @overload
        @takes(DefaultArguments[_T])
        def __init__(self: FastLoader[_T, DefaultBatches], given: DefaultArguments[_T]) -> None: ...
        @overload
        @takes(Arguments[_T])
        def __init__(self: FastLoader[_T, Batches], given: Arguments[_T]) -> None: ...

    @takes(Arguments[_T])
    def __init__(self: FastLoader[_T, Any], given: Arguments[_T]) -> None:
        dataset: Any = given.dataset
        place = CachePlace.of(given.cache, given.cache_size, given.cache_side)
        if isinstance(dataset, str | os.PathLike):
            dataset = PackedDataset(
                dataset, transform=given.transform, cache=place and place.folder, cache_size=given.cache_size
            )
        elif given.transform is not None:
            raise ArgumentError("transform= goes with a path; a dataset object has its own transform")
        elif not (
            isinstance(dataset, IterableDataset)
            or hasattr(type(dataset), "__getitem__")
            or hasattr(type(dataset), "__getitems__")
        ):
            raise _no_dataset(dataset)
        self._fastload = state = LoaderState()
        state.watch(_monitor_of(self))
        engine = Settings.engine_of(given.engine)
        packed = state.planner.is_packed(dataset, engine, place, device=given.device is not None)
        num_workers = given.num_workers
        if num_workers is None:
            num_workers = share_of_cpus() if packed else 0
        seed = checked_seed(given.seed)
        order = order_of(
            dataset,
            shuffle=given.shuffle,
            sampler=given.sampler,
            batch_sampler=given.batch_sampler,
            generator=given.generator,
            seed=seed,
            drop_last=given.drop_last,
            shard=checked_shard(given.shard),
            even=given.even,
        )
        resolved = {
            "dataset": dataset,
            "transform": None,  # the dataset carries it: whoever makes another loader passes both
            "num_workers": num_workers,
            "collate_fn": collate_fn_of(given.collate, given.pad_to, given.collate_fn, state.planner.kinds),
            "multiprocessing_context": None if packed and not num_workers else given.multiprocessing_context,
            "engine": engine,
            "device": None if given.device is None else torch.device(given.device),
            "seed": seed,
        }
        settings = Settings(**{**vars(given), **resolved, **vars(order)})
        settings.show_on(self)
        super().__init__(**settings.torch_arguments())
        state.settings = settings
        if given.shard is not None:
            show_sharded(self, given.shard)
        plan = state.read(self)  # contradictions with the transform are errors here, not in the loop
        if place is not None:
            state.indexes(plan)  # and a folder that cannot be made
            _check_caches(plan, place)
        if plan.engine == "threads":
            warn_unused(given.worker_init_fn, given.multiprocessing_context)
            state.epochs.engine(plan)  # so is a shortage of memory
        elif given.multiprocessing_context is not None and not num_workers:
            raise ArgumentError(
                "multiprocessing_context= starts worker processes, and num_workers=0 has none: drop "
                "one of them"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        type(self).close(self)

    def close(self) -> None:
        """Stops the threads and frees the slots that no tensor holds; idempotent. Iterating starts anew."""
        self._iterator = None
        self._fastload.close()

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, also of samplers that have a set_epoch."""
        self._fastload.progress.next_epoch = checked_epoch(epoch)
        for sampler in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            tell = getattr(sampler, "set_epoch", None)
            if callable(tell):
                tell(epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None, "_fastload": self._fastload.for_copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fastload.restart()
        self._fastload.watch(_monitor_of(self))
        self._fastload.read(self)

    @overload
    def __iter__(self: FastLoader[Unread, DefaultBatches]) -> LoaderIterator[Any]: ...
    @overload
    def __iter__(self: FastLoader[Value, DefaultBatches]) -> LoaderIterator[torch.Tensor]: ...
    @overload
    def __iter__(
        self: FastLoader[tuple[Value, ...], DefaultBatches],
    ) -> LoaderIterator[list[torch.Tensor]]: ...
    @overload
    def __iter__(
        self: FastLoader[dict[_Key, _Value], DefaultBatches],
    ) -> LoaderIterator[dict[_Key, torch.Tensor]]: ...
    @overload
    def __iter__(self) -> LoaderIterator[Any]: ...
    @uncompiled
    def __iter__(self) -> LoaderIterator[Any]:
        state, began = self._fastload, time.perf_counter()
        tracer = tracing.active
        began_ns = 0 if tracer is None else core.clock_ns()
        plan = state.read(self)
        state.fresh = plan, began
        try:
            if not plan.settings.persistent_workers or not plan.settings.num_workers:
                return self._get_iterator()
            if self._iterator is not None and not state.goes_on(plan):
                self._iterator = None
            if self._iterator is None:
                self._iterator = self._get_iterator()
                state.keep()
            else:
                self._iterator._reset(self)
            return cast("LoaderIterator[Any]", self._iterator)
        finally:
            state.fresh = None
            if tracer is not None:
                tracer.add("iter", began_ns)

    @uncompiled
    def _get_iterator(self) -> LoaderIterator:
        """A new iterator over the next epoch, by the engine that fits.

        `iter()` calls it, as DataLoader's does, so that a subclass may put another iterator round it.
        Programs that keep an iterator themselves call it as well.
        """
        state, began = self._fastload, time.perf_counter()
        fresh, state.fresh = state.fresh, None
        plan, began = fresh or (state.read(self), began)
        if plan.engine == "threads":
            _warn_pinning(plan)
        if plan.settings.num_workers:
            self.check_worker_number_rationality()
        return state.new_iterator(plan, began, self._IterableDataset_len_called)

    def state_dict(self) -> dict[str, Any]:
        """State of the last `iter()`, after the batches that were returned to the loop: a dict that JSON can
        hold.

        After a loop's last batch it resumes to a loop that ends at once; before the first `iter()`, and after
        a loop has ended, to the next epoch. It includes the state_dict() of a dataset (in each worker),
        sampler or batch sampler that has one.
        """
        state = self._fastload
        return state_of(state.plan, state.progress, None if self._iterator is None else state.kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next `iter()` go on where `state_dict()` was, with the same batches in the same order.

        1. num_workers, prefetch_factor and persistent_workers may change. For a state of mid-epoch,
           batch_size, drop_last, seed, the dataset's length and the kind of sampler may not.
        2. The sampler's draws are repeated. Generators that the order comes from are set as they were; with a
           sampler of your own that keeps no state, random's and NumPy's too.
        3. Random transforms are the same on packed data, and with seed_by="sample". Otherwise workers are
           seeded as at the epoch's beginning.
        4. A dataset with a state_dict() and load_state_dict() goes on by them, in as many workers (0 counts
           as 1). An iterable dataset without them makes its samples again and drops them.
        5. set_epoch() with another epoch drops the position.
        6. The last call holds. A loop that runs goes on undisturbed.

        Raises:
            ArgumentError: the state is of another version, damaged, or does not fit this loader.
        """
        ours = self._fastload
        load(ours.settings.in_force(self), ours.progress, state)
        self._iterator = None
        ours.epochs.forget_early()

    def check_worker_number_rationality(self) -> None:
        """DataLoader's warning about more processes than CPUs; threads over packed data are not processes."""
        if not self._fastload.planner.reads_packed:
            super().check_worker_number_rationality()

    def stats(self) -> dict[str, Any]:
        """Counters since the loader was made; those that the engine does not count are missing.

        "engine" ("threads": native threads, "processes": worker processes, "caller": the calling process),
        "workers", "batches", "samples", "bytes" (through slots), "ready" (batches that wait), "depth"
        (batches in flight), "stage_seconds" (by stage, over all workers), "slots", "slot_bytes",
        "envelope_batches" and "envelope_bytes" (pickled instead), "fetched_bytes" (from buckets), "fallbacks"
        (JPEGs left to libjpeg-turbo, the slower decoder), "loaded" (files in place that their dataset's own
        loader opened), "restarts", "replaced", "skipped", and "slow" (the slowest samples: (index, seconds)).
        """
        return stats(self._fastload)

    def trace(self, path: str | os.PathLike[str], *, limit: int = tracing.LIMIT) -> Trace:
        """A `fastload.health.Trace` of the loop, for `with loader.trace("run.json"):`. It has waits and steps
        of the loop, and stages of samples and batches in all threads and worker processes."""
        return Trace(path, limit)

    def explain(self, *, measure: bool = False, all: bool = False) -> Text:
        """Text on the running engine and its reason, and a table of a sample's stages: where each runs, and
        why.

        With `measure`, up to 64 samples and a batch run in the calling thread for the cost of each stage, and
        leave generators of random numbers as they were. With `all`, every line is whole; else the head has
        four lines, within 100 columns.
        """
        self._fastload.read(self)
        return Text(explain(self._fastload, measured=measure, whole=all))

    def __repr__(self) -> str:
        state = self.__dict__.get("_fastload")  # a subclass may show itself before it has called this class
        return super().__repr__() if state is None else brief(state, type(self).__name__)

    def _repr_html_(self) -> str:
        return Text(repr(self))._repr_html_()


_ORDER = {
    "self",
    "dataset",
    "transform",
    "shuffle",
    "sampler",
    "batch_sampler",
    "batch_size",
    "drop_last",
    "generator",
    "shard",
    "even",
}
"""Arguments that say which samples come when: those of the loader that Accelerate has built hold."""


def accelerate(accelerator: Any, loader: FastLoader[Any]) -> Any:
    """`accelerator.prepare(loader)` with FastLoader kept in Accelerate's wrapper, which shards and places
    batches.

    Args:
        accelerator: an `accelerate.Accelerator`.
        loader: a loader that is not iterated yet. One with `shard=` is returned as it is.

    Raises:
        ArgumentError: Accelerate has put the loader into a wrapper of another kind, as on XLA devices.
    """
    vars(loader).setdefault("_is_accelerate_prepared", False)  # the class's own would warn
    prepared = accelerator.prepare_data_loader(loader)
    if prepared is loader:
        return loader
    built = vars(prepared).get("base_dataloader")
    if built is None:
        raise ArgumentError(
            f"Accelerate has put the loader into a {type(prepared).__name__}, in which no FastLoader "
            "can be kept"
        )
    order = {"generator": built.generator}
    if isinstance(built.dataset, IterableDataset):
        order |= {"batch_size": built.batch_size, "drop_last": built.drop_last}
    elif built.batch_sampler is None:
        order |= {"batch_size": None, "sampler": built.sampler}
    else:
        order |= {"batch_sampler": built.batch_sampler}
    parameters = inspect.signature(FastLoader.__init__).parameters
    given = {name: getattr(loader, name) for name in parameters if name not in _ORDER}
    kept = {name: value for name, value in given.items() if parameters[name].default is not value}
    prepared.base_dataloader = FastLoader(built.dataset, **kept, **order)
    prepared.dl_state_dict = prepared.base_dataloader.state_dict()
    return prepared


def _check_caches(plan: ExecutionPlan, place: CachePlace) -> None:
    """Refuses a dataset in a bucket whose own cache folder is another one. Raises ArgumentError."""
    asked = Path(expanded(place.folder)).absolute()
    for each in () if plan.data is None else plan.data.view.datasets:
        if each.remote is not None and each.remote.cache_folder != asked:
            own = os.fspath(each.remote.cache_folder)
            raise ArgumentError(
                f"cache={os.fspath(asked)!r}, and the dataset's own is {own!r}: give cache= to one of them"
            )


def _no_dataset(given: object) -> TypeError:
    """The error that torch raises later for what has no samples, with what to do."""
    kind = type(given).__name__
    error = TypeError(
        f"{kind!r} object is not subscriptable"
        if hasattr(given, "__len__")
        else f"object of type {kind!r} has no len()"
    )
    if isinstance(given, type):
        advise(
            error, f"{given.__name__} is the class of a dataset: give an object of it, {given.__name__}(...)"
        )
    else:
        advise(
            error,
            f"{given!r:.60} is no Dataset, for it has no samples [0], [1] ...: give a path or an "
            "object that has them",
        )
    return error


def _monitor_of(loader: FastLoader[Any]) -> HealthMonitor[Any]:
    return HealthMonitor.of(
        loader, lambda each: stats(each._fastload), lambda each: advised_settings(each._fastload)
    )


def _warn_pinning(plan: ExecutionPlan) -> None:
    """Warns as torch's iterators do."""
    if plan.settings.pin_memory and plan.settings.pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated: memory is pinned for the current accelerator", stacklevel=4
        )
    if plan.settings.pin_memory and not torch.accelerator.is_available():
        warnings.warn("pin_memory=True but no accelerator is found: batches are not pinned", stacklevel=4)
