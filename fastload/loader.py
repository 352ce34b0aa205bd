"""FastLoader: a torch DataLoader whose batches of packed data are made by native threads."""

from __future__ import annotations

import inspect
import os
import time
import warnings
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

import torch
from torch.utils.data import DataLoader, IterableDataset
from typing_extensions import Self, TypeVar

from fastload._native import core
from fastload.batch.collate import CollateForm, advise, collate_fn_of
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

    1. Packed data is a PackedDataset, or Subset and ConcatDataset of them, whose transform is fully native,
       or a path. It is read, decoded, cropped and resized by native threads, which hold no GIL and live as
       long as the loader. So are the files of torchvision's ImageFolder and the like, where they are. Any
       other dataset runs exactly as under torch's DataLoader. Every `iter()` looks at the dataset again:
       changed indices of a Subset, transforms and samplers hold from then on. A running pass is not touched.
       Nothing is written into the dataset.
    2. A batch is `[images, labels]` as default_collate would give it (a dict if the dataset has other
       fields). Nothing overwrites its tensors while you keep them.
    3. Epochs count themselves, from 0, at each `iter()`; `set_epoch` sets the next one. With a seed, sample
       `i` of epoch `e` has the same bytes for any number of threads, any prefetch_factor, in any batch.
       Without one, the seed is drawn from torch's generator where DataLoader draws its base_seed, so
       torch.manual_seed repeats a run.
    4. close(), or leaving the `with` block, stops the threads; so does dropping the last reference. A forked
       child that iterates gets an engine of its own.
    5. Arguments are read once, when the loader is made. They are attributes as well, for frameworks that make
       another loader of them. A subclass that sets such an attribute, or `epoch`, `health` and the like,
       changes nothing in this class.
    6. A type checker infers batches: over a Dataset[tuple[Tensor, int]] they are list[Tensor]. They are Any
       if more than the Dataset's type decides: on packed data, and with collate_fn, collate, batch_transform,
       or batch_size=None.

    Args:
        dataset: a path of a packed dataset, or any Dataset.
        batch_size, sampler, batch_sampler, collate_fn, pin_memory, drop_last, timeout, generator, in_order:
            as DataLoader's. A sampler is drawn as far ahead as by DataLoader; further only if its class is
            known, and its order fixed at its first index.
        shuffle: True: as DataLoader's, a permutation of all samples. "window": blocks of consecutive samples
            (2 MiB) in random order, mixed through 1 GiB of samples, for data in a bucket;
            `fastload.WindowSampler` has other sizes, and ranks. "huge": another random order of all samples,
            computed element by element: it takes no memory and no time in advance, for hundreds of millions
            of samples; `fastload.KeyedSampler` has ranks.
        worker_init_fn, multiprocessing_context, persistent_workers, pin_memory_device: as DataLoader's. On
            packed data the first two have no effect, and a warning says so; threads always persist, and with
            persistent_workers so does the base seed.
        num_workers: native threads on packed data (None: the CPUs this process may use, under torchrun its
            share of them; 0: decode in the calling thread), worker processes otherwise (None and 0: the
            calling process, as torch).
        prefetch_factor: batches in flight (default 2). For native threads, the number of all batches, since
            all threads fill the oldest one. For worker processes, the number for each, as DataLoader's:
            prefetch_factor * num_workers in all. With num_workers=0 a batch is made when it is asked for, and
            prefetch_factor is refused. `device_prefetch` more may wait on their device.
        engine: "auto": native threads if they can make every sample, with its whole transform. "native":
            native threads; if they cannot, ArgumentError says why. "python": the dataset's own code makes
            every sample, in worker processes or the calling process: torch's results bit for bit. None:
            FASTLOAD_ENGINE, or "auto".
        index_cache: a folder that keeps the indexes of files in place, which the first epoch makes, for other
            runs and processes: at most 2 % of their size. None: they stay in memory, in at most a 32nd of the
            free memory for each dataset.
        transform: for a path: transform of the PackedDataset, such as a list of `fastload.transforms`, or
            torchvision's Compose.
        device: the device to which finished batches are moved, ahead of the loop, without a wait of the host;
            None: they are not moved. The steps of a packed dataset's transform that the decoder cannot do run
            there on whole batches, before batch_transform, if all of them can, and batches are collated as
            usual. Each sample's draws follow from (seed, epoch, index, occurrence). See explain().
        device_prefetch: batches that may wait on the device ahead of the loop's (default 2). 0: each is moved
            when it is asked for.
        batch_transform: a callable for whole batches on the device, or a sequence of them. Each is called
            with the images, or with images and labels if it needs two arguments (in a batch without either,
            with the batch). Callables that take seed, epoch and indices (fastload.augment.AugmentBatch,
            MixUp) draw from them; any other is wrapped in fastload.augment.Seeded. `ToFloat` and `Normalize`
            of fastload.transforms work too: they make floats of `dtype` and `memory_format` from bytes.
        memory_format: memory format of uint8 and float image batches: torch.contiguous_format (default, as
            default_collate gives them) or torch.channels_last, with which convolutions on GPUs and the
            decoder are faster.
        dtype: torch.uint8, float32, float16 or bfloat16; None: what the transform implies. Written by the
            native pass on the CPU; with device="cuda" by one pass over the bytes there.
        seed: seed of the order (with shuffle) and of every random transform.
        seed_by: "sample" reseeds torch, random and NumPy for every sample of a Python dataset, from (seed,
            epoch, index): then results depend neither on num_workers nor on timing, and all workers make
            samples of one batch. None: as torch.
        on_error: treatment of a sample that cannot be made: "raise" names it; "replace" puts another sample
            in its row, chosen by (seed, epoch, index), and counts it in `replaced`; "skip" shortens the batch
            and counts in `skipped`. A sample that cannot be made is, on packed data, one that raises
            SampleError; on any other map-style Dataset one whose `__getitem__` raises any Exception. An
            IterableDataset knows "raise" only.
        snapshot_every_n_steps: as torchdata's StatefulDataLoader: worker processes send an iterable dataset's
            own state every that many batches of the loop (0 or None: only at the epoch's end). A loader's
            state is exact after every batch in any case: a resume draws the samples after the dataset's state
            again and drops them. So 1 makes the fastest resume, and more suits large states. Other datasets
            are not affected: the state of a map-style dataset is sent with every batch.
        shard: this process's part of each epoch. "auto": that of its rank in the process group, else by
            torchrun's variables, else all, as found out at each `iter()`; or (rank, world). Indices are those
            of a DistributedSampler of the same seed (None: 0), shuffle and drop_last. With a sampler or
            batch_sampler: every rank draws all, and takes its stride. None: all samples.
        even: with shard, True if ranks have equal numbers of samples: the first ones come again at the end,
            or with drop_last the last ones are left out. False: each sample once, for evaluation.
        collate: form of a batch if boxes, labels or masks of its samples differ in number: "list": a list
            with each sample's, so that `(image, target)` becomes `[images, targets]`; "padded":
            `fastload.Padded`, with a mask and lengths; "flat": `fastload.Flat`, one after another, with
            offsets. `fastload.batch.collate` has the exact rules. None: collate_fn, or torch's
            default_collate.
        pad_to: with "padded" or "flat": images and masks of different sizes are padded to the largest of
            their batch, each side rounded up to a multiple of pad_to, and come as Padded. None: all have one
            size, and come as one tensor.
        lazy: treatment of JPEGs that Python code opens with Pillow: they are decoded only when their pixels
            are read, and only the crop. "exact": the pixels are Pillow's, bit for bit. "fast": if a bilinear
            or bicubic resize makes an image half as large, or less, it is scaled while it is decoded, and
            pixels differ a little. False: Pillow is left alone, as with engine="python". None: "exact" in
            worker processes, False in the calling process.

    Raises:
        SampleError: a sample cannot be made and on_error="raise"; no substitute can be made; or every sample
            of an epoch was skipped.
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
    index_cache: str | os.PathLike[str] | None
    device: torch.device | None
    device_prefetch: int
    batch_transform: Any
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
        if isinstance(dataset, str | os.PathLike):
            dataset = PackedDataset(dataset, transform=given.transform)
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
        packed = state.planner.is_packed(dataset, engine, given.index_cache, device=given.device is not None)
        num_workers = given.num_workers if given.num_workers is not None else share_of_cpus() if packed else 0
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
        """Stops the threads and frees the slots that no tensor holds; idempotent. Iterating again starts
        anew."""
        self._iterator = None
        self._fastload.close()

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch; samplers that have a set_epoch are told as well."""
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
        """State of the last `iter()` as a dict that JSON can hold: its position is after the batches that
        were returned to the loop.

        A state taken after the last batch, before the loop has ended, resumes to a loop that ends at once. A
        state taken before the first `iter()`, or after a loop has ended, resumes to the next epoch. So
        `for epoch in range(saved_epoch, epochs)` neither repeats nor skips an epoch. The state includes the
        state_dict() of a dataset, sampler or batch sampler that has one: that of a dataset as it was in each
        worker after the batches that were returned.
        """
        state = self._fastload
        return state_of(state.plan, state.progress, None if self._iterator is None else state.kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter()` goes on where `state_dict()` was, with the same batches in the same order as if
        never interrupted.

        1. num_workers, prefetch_factor and persistent_workers may change. For a state of mid-epoch,
           batch_size, drop_last, seed, the dataset's length and the kind of sampler may not.
        2. No returned batch is read again: the sampler's draws are repeated, its batches dropped. The
           generators that the order comes from are set as they were, torch's global one among them where it
           is used; with a sampler of your own that keeps no state, random's and NumPy's too.
        3. Random transforms are the same where they follow (seed, epoch, index): on packed data, and with
           seed_by="sample". Otherwise workers are seeded as at the epoch's beginning.
        4. A dataset with a state_dict() and load_state_dict() of its own goes on by them, in each worker;
           num_workers must then be the same (0 counts as 1). In the calling process and in persistent
           workers, copies of it and their states outlive an epoch. An iterable dataset without these goes on
           by making samples and dropping them, in as many workers.
        5. set_epoch() with another epoch drops the position: that epoch runs from its beginning.
        6. It may be called at any time and more than once; the last call holds. A loop that runs goes on
           undisturbed, and its workers end with it.
        7. States of version 1 load: those that it took after an epoch's last batch stand at the beginning of
           the next epoch.

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
        """Counters since the loader was made.

        Keys, of which those that the engine does not count are missing: "engine" ("threads": native threads,
        "processes": worker processes, "caller": the calling process), "workers" (threads or processes),
        "batches", "samples", "bytes" (through slots), "ready" (batches) and "depth" (batches in flight, as
        prefetch_factor sets them), "stage_seconds" (by stage: over all workers, and "copy" and "augment" of
        whole batches, on a GPU as it counts them), "slots", "slot_bytes", "envelope_batches" and
        "envelope_bytes" (batches that went by pickle instead), "fetched_bytes" (of records, from buckets),
        "fallbacks" (JPEGs that native threads left to libjpeg-turbo, the slower decoder: progressive or
        damaged files, and other unusual kinds), "loaded" (files in place that their dataset's own loader
        opened, in the calling process, because native threads do not decode them), "restarts", "replaced",
        "skipped", "slow" (the slowest samples, as (index, seconds)).
        """
        return stats(self._fastload)

    def trace(self, path: str | os.PathLike[str], *, limit: int = tracing.LIMIT) -> Trace:
        """A trace of the loop, for `with loader.trace("run.json"):` or its start() and stop(). It is written
        also where the loop fails.

        It is a file of JSON trace events, which ui.perfetto.dev shows: waits and steps of the loop, and the
        stages of samples and batches in all threads and worker processes. Its times are those of
        torch.profiler; `fastload.health.merge_traces` makes one file of both.

        Args:
            path: the file, which is replaced; compressed where its name ends with ".gz".
            limit: most events that are kept.

        Raises:
            ArgumentError: the file's folder does not exist, or `limit` is no positive number.
        """
        return Trace(path, limit)

    def explain(self, *, measure: bool = False, all: bool = False) -> Text:
        """Text on the running engine and its reason, and a table of a sample's stages: where each runs, and
        why.

        Its head has four lines, and all lines are within 100 columns; `all=True` gives every line whole.

        Steps on whole batches, of the transform and of batch_transform=, have their rows after the copy to
        the device. After an epoch it also says what did not fit the slots. With `measure` up to 64 samples,
        and a batch, are run through the stages in the calling thread, and the table has their cost a sample;
        generators of random numbers are left as they were.
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
    """`accelerator.prepare(loader)` with FastLoader kept: Accelerate's wrapper shards and places batches, a
    FastLoader makes them.

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


def _no_dataset(given: Any) -> TypeError:
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
