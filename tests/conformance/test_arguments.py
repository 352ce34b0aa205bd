"""The loader as an object: arguments, their errors, attributes, iterators, typing, pickling: as torch's."""

from __future__ import annotations

import copy
import inspect
import itertools
import multiprocessing
import pickle
from typing import Any

import pytest
import torch
from conformance_helpers import LOADERS, Failure, Rows, agree, attempt, caught, same
from stable_ids import named
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

from fastload import FastLoader
from fastload.engines import settings

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
DATA = TensorDataset(torch.arange(10))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))

    def __repr__(self) -> str:
        return "Stream"


def nothing(worker: int) -> None:
    return None


BAD: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"num_workers": "2"},
    {"timeout": -1},
    {"timeout": "soon"},
    {"prefetch_factor": 2},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"batch_size": 0},
    {"batch_size": -1},
    {"batch_size": 1.5},
    {"batch_size": True},
    {"batch_size": "4"},
    {"drop_last": 1},
    {"batch_size": None, "drop_last": True},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 3},
    {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_sampler": [[1]], "drop_last": True},
    {"batch_sampler": [[1]], "batch_size": None},
    {"multiprocessing_context": "fork"},
    {"multiprocessing_context": multiprocessing.get_context("fork")},
    {"num_workers": 1, "multiprocessing_context": "spoon"},
    {"num_workers": 1, "multiprocessing_context": 3},
    {"shuffle": True, "generator": 4},
    {"nonsense": 1},
    {"dataset": Stream(), "shuffle": True},
    {"dataset": Stream(), "sampler": [1]},
    {"dataset": Stream(), "batch_sampler": [[1]]},
    {"dataset": Stream(), "shuffle": False, "drop_last": True},
    {"dataset": object(), "shuffle": True},
    {"dataset": object()},
]


@pytest.mark.parametrize("arguments", BAD, ids=named)
def test_bad_arguments(arguments: dict[str, Any]) -> None:
    """Each is refused, or let pass, as torch does: the same class (or one of its own that is also torch's)
    and the same words."""
    arguments = {"dataset": DATA, **arguments}
    expected, got = (
        attempt(lambda loader_class=loader_class: len(loader_class(**arguments))) for loader_class in LOADERS
    )
    if isinstance(expected, Failure):
        assert isinstance(got, Failure), f"accepted, but torch says {expected}"
        assert issubclass(got.kind, expected.kind)
        assert got.first.replace("FastLoader", "DataLoader") == expected.first.replace(
            "DataLoader.__init__", "DataLoader.__init__"
        )
    else:
        assert got == expected


def test_prefetch_factor_0_is_refused() -> None:
    """torch finds it by an assertion at iter(); FastLoader raises there or before."""
    with pytest.raises((AssertionError, ValueError), match="prefetch_factor"):
        list(FastLoader(DATA, num_workers=1, prefetch_factor=0))


def test_same_parameters() -> None:
    """Every parameter of DataLoader is FastLoader's, of the same kind, in the same place, with the same
    default (num_workers aside)."""
    ours, theirs = (list(inspect.signature(c.__init__).parameters.values()) for c in (FastLoader, DataLoader))
    positional = [p.name for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD] == positional
    mine = {p.name: p for p in ours}
    for parameter in theirs:
        assert mine[parameter.name].kind is parameter.kind
        assert parameter.name == "num_workers" or mine[parameter.name].default == parameter.default, (
            parameter.name
        )
    assert FastLoader(DATA).num_workers == 0


def test_arguments_of_a_later_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that a later DataLoader has is FastLoader's from then on, by its default; another value
    is refused by name."""

    class Later(DataLoader[Any]):
        def __init__(self, dataset: Any, *, worker_method: str = "multiprocessing") -> None: ...

    monkeypatch.setattr(settings, "DataLoader", Later)

    class Loader:
        @settings.takes(settings.Arguments[Any])
        def __init__(self, given: settings.Arguments[Any]) -> None:
            self.dataset = given.dataset

    made: Any = Loader
    assert inspect.signature(made).parameters["worker_method"].default == "multiprocessing"
    assert made(DATA, worker_method="multiprocessing").dataset is made(dataset=DATA).dataset is DATA
    with pytest.raises(
        ValueError, match=r"worker_method='thread': .* FastLoader takes 'multiprocessing' alone"
    ):
        made(DATA, worker_method="thread")
    with pytest.raises(TypeError, match="unknown"):
        made(DATA, unknown=1)


def test_worker_info_is_torchs() -> None:
    """A worker knows of itself what it knows under DataLoader, `worker_method` of torch 2.13 too."""
    ours, theirs = (
        next(iter(loader_class(Informed(), batch_size=None, num_workers=1))) for loader_class in LOADERS
    )
    assert ours == theirs
    assert theirs.get("worker_method", "multiprocessing") == "multiprocessing"


class Informed(Dataset[Any]):
    """What a worker knows of itself."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        info: Any = get_worker_info()
        return {
            name: getattr(info, name, None)
            for name in dir(info)
            if name in ("id", "num_workers", "rng", "worker_method")
        }


GOOD: list[dict[str, Any]] = [
    {},
    {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 1,
        "drop_last": True,
        "timeout": 3,
        "worker_init_fn": nothing,
        "in_order": False,
    },
    {
        "batch_size": None,
        "sampler": range(4),
        "pin_memory": False,
        "num_workers": 2,
        "prefetch_factor": 7,
        "persistent_workers": True,
    },
    {
        "batch_sampler": [[1, 2], [3]],
        "collate_fn": list,
        "pin_memory_device": "cpu",
        "generator": torch.Generator(),
    },
    {"num_workers": 1, "multiprocessing_context": "spawn"},
    {"dataset": Stream(), "batch_size": 2},
    {"dataset": Stream(), "batch_size": None},
]
SHOWN = [p for p in inspect.signature(DataLoader.__init__).parameters if p not in ("self", "shuffle")]


@pytest.mark.parametrize("arguments", GOOD, ids=named)
def test_attributes(arguments: dict[str, Any]) -> None:
    """Every argument is an attribute of its name, and what torch's own code touches is there with torch's
    value."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(**{"dataset": DATA, **arguments})
        names = [*SHOWN, "_auto_collation", "_dataset_kind", "_iterator", "_IterableDataset_len_called"]
        shown = {name: getattr(loader, name) for name in names}
        for name in ("sampler", "batch_sampler", "multiprocessing_context", "generator", "dataset"):
            shown[name] = type(shown[name])
        shown["collate_fn"] = shown["collate_fn"].__name__
        return shown, loader._index_sampler is (
            loader.batch_sampler if loader._auto_collation else loader.sampler
        )

    agree(run)


def test_samplers_are_torchs() -> None:
    """sampler and batch_sampler are torch's classes, and the ones given are kept as they are."""
    plain, shuffled = FastLoader(DATA, batch_size=2), FastLoader(DATA, shuffle=True, batch_size=2)
    assert type(plain.sampler) is SequentialSampler
    assert type(shuffled.sampler) is RandomSampler
    assert type(plain.batch_sampler) is BatchSampler
    assert shuffled.batch_sampler.sampler is shuffled.sampler
    given = [3, 1]
    assert FastLoader(DATA, sampler=given).sampler is given
    generator = torch.Generator()
    assert FastLoader(DATA, shuffle=True, generator=generator).sampler.generator is generator


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_attributes_that_may_not_be_set(name: str) -> None:
    """Setting them after the loader is made raises ValueError in torch's words with our name."""
    loader = FastLoader(DATA)
    before = getattr(loader, name)
    with pytest.raises(
        ValueError, match=rf"^{name} attribute should not be set after FastLoader is initialized$"
    ):
        setattr(loader, name, 3)
    assert getattr(loader, name) is before


def test_attributes_that_may_be_set() -> None:
    """The others may be set, and act from the next iter() on."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(DATA, batch_size=4)
        seen = [list(loader)]
        loader.collate_fn = len
        seen.append(list(loader))
        loader.num_workers, loader.prefetch_factor = 1, 2
        seen.append(list(loader))
        loader.multiprocessing_context = "fork"
        context = type(loader.multiprocessing_context)
        seen.append(list(loader))
        refused = [
            attempt(lambda value=value: setattr(loader, "multiprocessing_context", value))
            for value in ("spoon", 4, None)
        ]
        loader.generator = torch.Generator().manual_seed(1)
        loader.extra = "mine"
        return seen, context, refused, list(loader), loader.extra

    agree(run)


def test_subclasses_and_subscripts() -> None:
    """isinstance and issubclass hold, FastLoader[int] and subclasses of it work, and so does a subclass
    that overrides."""
    assert isinstance(FastLoader(DATA), DataLoader)
    assert issubclass(FastLoader, DataLoader)
    assert list(FastLoader[int]([1, 2])) == [torch.tensor([1]), torch.tensor([2])]

    class Doubling(FastLoader[torch.Tensor]):
        def __iter__(self) -> Any:
            return (x * 2 for x in super().__iter__())

    assert [x.item() for x in Doubling([1, 2], num_workers=1)] == [2, 4]
    annotation: FastLoader[list[torch.Tensor]] = FastLoader(DATA)
    assert len(annotation) == 10


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_iterators(workers: int, persistent: bool) -> None:
    """iter() gives independent iterators, or with persistent workers the same one reset; len and next work
    on them as torch's."""
    if persistent and not workers:
        pytest.skip("persistent_workers needs workers")

    def run(loader_class: Any) -> Any:
        loader = loader_class(DATA, batch_size=3, num_workers=workers, persistent_workers=persistent)
        one = iter(loader)
        seen = [len(one), next(one), len(one)]
        two = iter(loader)
        seen += [
            one is two,
            iter(two) is two,
            next(two),
            len(two),
            loader._iterator is two,
            loader._iterator is None,
        ]
        seen += [next(one), next(two), list(one), list(two), next(one, "end"), next(two, "end"), len(loader)]
        return seen

    agree(run)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_side_by_side(workers: int) -> None:
    """Two iterators of a loader, and iterators of two loaders, drawn in turn, do not touch one another."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(DATA, batch_size=2, shuffle=True, num_workers=workers)
        other = loader_class(Rows(lambda i: -i, 9), batch_size=2, num_workers=workers)
        pairs = list(itertools.zip_longest(loader, loader, other))
        nested = [(a, b) for a in itertools.islice(loader, 2) for b in other]
        return pairs, nested

    agree(run, seed=6)


def test_iterator_cannot_be_pickled_but_loader_can() -> None:
    """A loader pickles and copies, before and after it was used; its iterator does not."""
    for loader_class in LOADERS:
        loader = loader_class(DATA, batch_size=4, num_workers=1)
        expected = list(loader)
        for again in (pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)):
            assert type(again) is loader_class
            same(list(again), expected)
        with pytest.raises((NotImplementedError, TypeError)):
            pickle.dumps(iter(loader))


def test_too_many_workers_warns() -> None:
    """More workers than CPUs: torch's warning, at construction."""

    def run(loader_class: Any) -> Any:
        return caught(lambda: loader_class(DATA, num_workers=1000) and None)

    _, warned = agree(run)
    assert len(warned) == 1


def test_numpy_and_bool_arguments() -> None:
    """Numbers that are not int, where torch takes them."""
    agree(lambda loader_class: list(loader_class(DATA, batch_size=4, num_workers=True)))
    agree(lambda loader_class: list(loader_class(DATA, batch_size=4, num_workers=1, timeout=2.5)))
    agree(
        lambda loader_class: list(
            loader_class(DATA, 4, False, None, None, 0, None, False, True, 0, None, None, None)
        )
    )
