"""Settings: every argument of a FastLoader, validated, in one frozen value."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, cast, get_origin

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, _DatasetKind, default_collate
from torch.utils.data._utils import collate
from torch.utils.data._utils.collate import default_convert
from typing_extensions import TypeVar

from fastload import portable
from fastload.batch.collate import Collate, CollateForm
from fastload.batch.containers import joined_patches
from fastload.common.originals import OwnCode, original
from fastload.common.rng import checked_seed, order_seed
from fastload.device.to_float import DTYPES, FORMATS
from fastload.errors import ArgumentError
from fastload.lazy.opening import Exactness
from fastload.remote.kept_table import CachePlace
from fastload.sampling.known import DrawTimes, SamplerFacts, facts_of
from fastload.sampling.sharding import Shard
from fastload.transforms.ops import Normalize, ToFloat

OnError = Literal["raise", "replace", "skip"]
EngineChoice = Literal["auto", "native", "python"]
_DERIVED = {"kind": "_dataset_kind", "auto_collation": "_auto_collation", "index_sampler": "_index_sampler"}
_T = TypeVar("_T", covariant=True, default=Any)
_P = ParamSpec("_P")
_Loader = TypeVar("_Loader")
_Given = TypeVar("_Given")


class Samples(Protocol[_T]):
    """A sequence of samples that is no Dataset, such as a list."""

    def __getitem__(self, index: int, /) -> _T: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Arguments(Generic[_T]):
    """The arguments of FastLoader as they are given: the one place that declares them.

    The signature of FastLoader, the fields of Settings, and what a loader shows to frameworks follow from it.
    FastLoader documents them.
    """

    dataset: str | os.PathLike[str] | Dataset[_T] | Samples[_T]
    batch_size: int | None = 1
    shuffle: bool | Literal["window", "huge"] | None = None
    sampler: Sampler[Any] | Iterable[Any] | None = None
    batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None
    num_workers: int | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    drop_last: bool = False
    timeout: float = 0
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    generator: torch.Generator | None = None
    _: KW_ONLY
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory_device: str = ""
    in_order: bool = True
    engine: EngineChoice | None = None
    cache: str | os.PathLike[str] | None = None
    cache_size: int | str | None = None
    cache_side: int | None = None
    transform: object = None
    device: torch.device | str | int | None = None
    device_prefetch: int = 2
    batch_transform: object = None
    memory_format: torch.memory_format | None = None
    dtype: torch.dtype | None = None
    seed: int | None = None
    on_error: OnError = "raise"
    seed_by: Literal["sample"] | None = None
    snapshot_every_n_steps: int | None = 1
    shard: Shard | None = None
    even: bool = True
    collate: CollateForm | None = None
    pad_to: int | None = None
    lazy: Literal["exact", "fast", False] | None = None


def further_of(loader: type) -> dict[str, inspect.Parameter]:
    """Arguments of a later torch's DataLoader that `Arguments` does not have: they are taken, with their
    defaults alone."""
    known = {each.name for each in fields(Arguments)} | {"self"}
    parameters = inspect.signature(loader).parameters
    return {
        name: each.replace(kind=each.KEYWORD_ONLY) for name, each in parameters.items() if name not in known
    }


def _with(signature: inspect.Signature, further: dict[str, inspect.Parameter]) -> inspect.Signature:
    return signature.replace(parameters=[*signature.parameters.values(), *further.values()])


def takes(
    arguments: Callable[_P, _Given],
) -> Callable[[Callable[[_Loader, _Given], None]], Callable[Concatenate[_Loader, _P], None]]:
    """Gives an `__init__` that takes `arguments` as one value their signature: for callers, `inspect` and
    type checkers."""
    kind: Any = get_origin(arguments) or arguments
    declared = kind.__init__
    further = further_of(DataLoader)

    def signed(init: Callable[[_Loader, _Given], None]) -> Callable[Concatenate[_Loader, _P], None]:
        def __init__(self: _Loader, /, *args: _P.args, **options: _P.kwargs) -> None:
            for name, known in further.items():
                if (value := options.pop(name, known.default)) != known.default:
                    raise ArgumentError(
                        f"{name}={value!r}: of this argument of torch {torch.__version__} FastLoader "
                        f"takes {known.default!r} alone"
                    )
            init(self, kind(*args, **options))

        made: Any = __init__
        made.__qualname__, made.__module__, made.__doc__ = init.__qualname__, init.__module__, init.__doc__
        made.__annotations__, made.__signature__ = (
            declared.__annotations__,
            _with(inspect.signature(declared), further),
        )
        declared.__qualname__ = init.__qualname__  # a TypeError about arguments names the loader
        return __init__

    return signed


_TORCHS = tuple(
    each.name for each in fields(Arguments) if each.name in inspect.signature(DataLoader.__init__).parameters
)
"""Arguments that this release of torch's DataLoader has."""
SHOWN = tuple(each.name for each in fields(Arguments) if each.name not in _TORCHS)
"""Arguments that DataLoader does not have; they are attributes of the loader as well."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings(Arguments[Any]):
    """The arguments of a FastLoader as they are in force, and what torch's DataLoader derives from them.

    `torch.utils.data.DataLoader` lets most of its attributes be assigned between epochs; `in_force` reads
    them. FastLoader's own arguments stay as they were given.

    Attributes:
        dataset, transform: the dataset itself, also where a path was given; it carries the transform, so that
            there is none here.
        shuffle: as DataLoader is given it; None where the loader has made the sampler itself.
        num_workers, engine, device: resolved from what was given.
        collate_fn: set by collate= and pad_to= as well.
        own_generator: the order follows (seed, epoch), by a generator that the loader made.
        kind: torch's _DatasetKind.
        auto_collation: batches are made of samples; False for batch_size=None.
        index_sampler: gives the indices of a batch, or of a sample without auto_collation.
        collate_replaced: clause that names the parts of torch's default_collate that are not its own; "" if
            all are.
        order: facts about the sampler, as it was when the attributes were read.

    Raises:
        ArgumentError: an argument is out of range, or has nothing to act on.
    """

    dataset: Any
    num_workers: int
    collate_fn: Any
    engine: EngineChoice
    device: torch.device | None
    own_generator: bool = False
    kind: int = _DatasetKind.Map
    auto_collation: bool = True
    index_sampler: Any = None
    collate_replaced: str = ""
    order: SamplerFacts = field(default_factory=SamplerFacts)

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_dataset()

    def _check_choices(self) -> None:
        checked_seed(self.seed)
        if self.engine not in ("auto", "native", "python"):
            raise ArgumentError(
                f'engine={self.engine!r}: choose "auto", "native" or "python" (FASTLOAD_ENGINE where '
                "it is not given)"
            )
        if self.on_error not in ("raise", "replace", "skip"):
            raise ArgumentError(f'on_error={self.on_error!r}: choose "raise", "replace" or "skip"')
        if self.seed_by not in (None, "sample"):
            raise ArgumentError(
                f'seed_by={self.seed_by!r}: choose "sample", or None for torch\'s seeds per worker'
            )
        if self.lazy not in (None, "exact", "fast") and self.lazy is not False:
            raise ArgumentError(f'lazy={self.lazy!r}: choose "exact", "fast", or False to leave Pillow alone')
        if self.lazy:
            portable.check(f'lazy="{self.lazy}"')
        if self.dtype not in (None, torch.uint8, *DTYPES):
            raise ArgumentError(
                f"dtype={self.dtype!r}: give torch.uint8, torch.float32, torch.float16 or torch.bfloat16"
            )
        if self.memory_format not in (None, *FORMATS):
            raise ArgumentError(
                f"memory_format={self.memory_format}: use torch.channels_last or torch.contiguous_format"
            )
        if not _is_count(self.device_prefetch):
            raise ArgumentError(
                f"device_prefetch={self.device_prefetch!r}: give a number of batches, 0 or more"
            )
        if self.snapshot_every_n_steps is not None and not _is_count(self.snapshot_every_n_steps):
            raise ArgumentError(
                f"snapshot_every_n_steps={self.snapshot_every_n_steps!r}: give a number of batches, "
                "or 0 or None for never"
            )

    def _check_dataset(self) -> None:
        """Refuses arguments that have nothing to act on with this dataset."""
        iterable = isinstance(self.dataset, IterableDataset)
        if self.on_error != "raise" and iterable:
            raise ArgumentError(
                f'on_error="{self.on_error}" leaves out samples by their index, and an '
                "IterableDataset has none: an iterator that has "
                "raised is at its end. Catch the error inside __iter__, and go on there"
            )
        if self.on_error == "replace" and not hasattr(self.dataset, "__len__"):
            raise ArgumentError(
                'on_error="replace" chooses substitutes among the samples, and '
                f"{type(self.dataset).__name__} has no __len__: "
                'add it, or use "skip"'
            )
        if self.seed_by is not None and iterable:
            raise ArgumentError('seed_by="sample" needs indices: an IterableDataset has none')
        if self.num_workers == 0 and isinstance(self.timeout, int | float) and self.timeout > 0:
            raise ArgumentError(
                f"timeout={self.timeout} bounds the wait for workers, and num_workers=0 has none: "
                "drop one of them"
            )
        batched = self.batch_size is not None or self.batch_sampler is not None
        if self.batch_transform is not None and not batched:
            raise ArgumentError("batch_transform= acts on batches, and batch_size=None makes none")
        if self.collation is not None and not batched:
            raise ArgumentError("collate= makes batches of samples, and batch_size=None makes none")
        if self.batch_transform is not None and self.collation is not None and self.collation.form == "list":
            raise ArgumentError(
                'batch_transform= takes the images of a batch as one tensor, and collate="list" '
                'makes none: use "padded"'
            )

    def check_python(self) -> None:
        """Refuses what acts on packed data and files in place only, for a dataset that is neither.

        Raises:
            ArgumentError: memory_format= or dtype= without floats in batch_transform=.
        """
        for name in ("memory_format", "dtype"):
            if getattr(self, name) is not None and not self.has_floats:
                raise ArgumentError(
                    f"{name}= acts on packed data and on files in place only, or with Normalize or "
                    "ToFloat in batch_transform=; "
                    "this dataset is neither"
                )

    def torch_arguments(self) -> dict[str, Any]:
        """The arguments for DataLoader's constructor."""
        return {name: getattr(self, name) for name in _TORCHS}

    def in_force(self, loader: DataLoader[Any]) -> Settings:
        """These settings with the attributes that torch's DataLoader has now; itself where none has
        changed."""
        now = {name: getattr(loader, name) for name in _TORCHS if name != "shuffle"} | {
            name: getattr(loader, theirs) for name, theirs in _DERIVED.items()
        }
        now["collate_replaced"] = _collate_replaced()
        order = facts_of(now["index_sampler"], now["generator"] if self._seeds_order else None)
        same = all(_is_same(value, getattr(self, name)) for name, value in now.items())
        if same and order.is_same(self.order):
            return self
        return replace(self, **now, order=order)

    def show_on(self, loader: DataLoader[Any]) -> None:
        """Makes FastLoader's own arguments attributes of the loader, but for those that a subclass has set
        or defined itself."""
        for name in SHOWN:
            if not hasattr(type(loader), name):
                loader.__dict__.setdefault(name, getattr(self, name))

    @staticmethod
    def engine_of(given: EngineChoice | None) -> EngineChoice:
        """The argument engine=; where it is not given, FASTLOAD_ENGINE, or "auto". Where there is no native
        module "auto" is "python".

        Raises:
            UnavailableError: it is "native", and there is no native module.
        """
        asked = (
            given if given is not None else cast(EngineChoice, os.environ.get("FASTLOAD_ENGINE") or "auto")
        )
        if asked == "native":
            portable.check('engine="native"')
        return "python" if portable.LACKING and asked == "auto" else asked

    @property
    def batch_transforms(self) -> list[Any]:
        """batch_transform= as a list; a list of the user's as it is now."""
        given = self.batch_transform
        if given is None:
            return []
        return list(given) if isinstance(given, list | tuple) else [given]

    @property
    def has_floats(self) -> bool:
        """True if batch_transform= has a Normalize or ToFloat."""
        return any(isinstance(each, ToFloat | Normalize) for each in self.batch_transforms)

    @property
    def by_default_collate(self) -> bool:
        """True if torch's default_collate makes the batches, and is torch's own."""
        return self.auto_collation and self.collate_fn is default_collate and not self.collate_replaced

    @property
    def own_collate_fn(self) -> Callable[[Any], Any] | None:
        """The user's collate_fn, or a default of torch's that was replaced; None for torch's defaults."""
        return None if self._is_default and not self.collate_replaced else self.collate_fn

    @property
    def default_replaced(self) -> bool:
        """True if one of torch's defaults makes the batches, and is not torch's own any more."""
        return self._is_default and bool(self.collate_replaced)

    @property
    def _is_default(self) -> bool:
        return self.collate_fn is (default_collate if self.auto_collation else default_convert)

    @property
    def collation(self) -> Collate | None:
        """The collate_fn that collate= and pad_to= mean; None for any other."""
        return self.collate_fn if isinstance(self.collate_fn, Collate) else None

    @property
    def stacks_images(self) -> bool:
        """True if the images of a batch are one tensor, of one size."""
        collation = self.collation
        return self.by_default_collate or (
            collation is not None and collation.form != "list" and collation.pad_to is None
        )

    @property
    def iterable(self) -> bool:
        """True if the dataset is an IterableDataset."""
        return self.kind == _DatasetKind.Iterable

    @property
    def depth(self) -> int:
        """Batches in flight that prefetch_factor asks for on native threads."""
        return self.prefetch_factor or 1

    @property
    def rows(self) -> int | None:
        """Samples of a batch, as far as the batch sampler tells."""
        size = (
            self.batch_size
            if self.batch_size is not None
            else getattr(self.batch_sampler, "batch_size", None)
        )
        return size if isinstance(size, int) else None

    @property
    def drawn_at_iter(self) -> int:
        """Index batches that torch's DataLoader draws at iter(); 0: it draws each at its own next()."""
        return self.depth * self.num_workers

    @property
    def lazy_images(self) -> Exactness | None:
        """Exactness of the lazy images that worker processes, or the calling process, open by Pillow;
        None: Pillow is left alone."""
        if self.engine == "python" or self.lazy is False:
            return None
        return self.lazy or ("exact" if self.num_workers else None)

    @cached_property
    def cache_place(self) -> CachePlace | None:
        """The cache folder; None: there is none. Raises ArgumentError."""
        return CachePlace.of(self.cache, self.cache_size, self.cache_side)

    @property
    def may_draw_ahead(self) -> bool:
        """True if no user code can see how far ahead the sampler is drawn. See NOTE [ samplers: drawn when
        torch draws them ]."""
        return self.order.draws is not DrawTimes.ANY

    @cached_property
    def ordered_by_seed(self) -> bool:
        """True if the order follows from (seed, epoch) alone, with no draw from a generator that others
        use."""
        return (
            self._seeds_order and self.order.draws is DrawTimes.NOTHING
        ) or self.order.follows_seed_and_epoch

    @property
    def _seeds_order(self) -> bool:
        """True if the loader's generator is its own, and is seeded anew for every pass."""
        return self.own_generator and self.seed is not None

    def seed_order(self, epoch: int) -> None:
        """Seeds the loader's own generator for that epoch."""
        if self.own_generator and self.seed is not None and self.generator is not None:
            self.generator.manual_seed(order_seed(self.seed, epoch))


def warn_unused(worker_init_fn: object, multiprocessing_context: object) -> None:
    """Warns of arguments that native threads do not need."""
    if worker_init_fn is not None:
        warnings.warn(
            "worker_init_fn is not called where native threads make the samples: they run no Python, "
            "and random transforms follow seed=",
            stacklevel=3,
        )
    if multiprocessing_context is not None:
        warnings.warn(
            "multiprocessing_context is not used where native threads make the samples: they need no "
            "start method",
            stacklevel=3,
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_same(a: object, b: object) -> bool:
    """Returns True if two values are the same object, or an equal number or text."""
    return a is b or (type(a) is type(b) and isinstance(a, int | float | str) and a == b)


_COLLATE = OwnCode("torch.utils.data._utils.collate")
_TABLE = {
    torch.Tensor: "collate_tensor_fn",
    np.ndarray: "collate_numpy_array_fn",
    float: "collate_float_fn",
    int: "collate_int_fn",
    str: "collate_str_fn",
    bytes: "collate_str_fn",
}
"""By type, torch's function for a list of such values."""
_COLLATED: tuple[type, ...] = (*_TABLE, np.generic, bool, tuple, list, dict)
"""Types that values of a batch have here. A program may have entries for other types, which change no
batch of these."""


def _collate_replaced() -> str:
    """Clause that names the parts of default_collate and default_convert that are not torch's own; "" if all
    are.

    If a part was replaced, torch's function is called, whatever it does now. See NOTE [ originals: how
    replaced code is found ].
    """
    return _COLLATE.replaced() or _table_changed()


def _table_changed() -> str:
    table: dict[Any, Any] = collate.default_collate_fn_map
    others = [kind for kind, name in _TABLE.items() if table.get(kind) is not getattr(collate, name)]
    changed = next(
        (kind for kind in others if original(table.get(kind)) is not getattr(collate, _TABLE[kind])), None
    )
    if changed is not None:
        return f"default_collate_fn_map has another function for {changed.__name__}"
    for key, function in table.items():
        if key not in _TABLE and function not in (collate.collate_numpy_scalar_fn, joined_patches):
            for kind in key if isinstance(key, tuple) else (key,):
                if any(issubclass(kind, each) or issubclass(each, kind) for each in _COLLATED):
                    return f"default_collate_fn_map has a function for {kind.__name__}"
    return ""
