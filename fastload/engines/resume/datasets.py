"""State of a loader's datasets: the own state of a stateful one after a batch, and which samples packed
datasets have."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import _DatasetKind

from fastload.dataset.mixture import mixture_state, parts_of
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.sampling.known import is_stateful


@dataclass
class DatasetState:
    """State of one copy of an iterable or stateful dataset, after the batches already returned to the caller.

    Attributes:
        batches: number of these batches in this pass.
        state: the dataset's own state; None if it has none.
        at: number of `batches` that came before that state was taken. 0: it was taken before the pass, which
            begins from it.
        ended: True if the dataset was exhausted in making the last of them.
    """

    batches: int = 0
    state: dict[str, Any] | None = None
    at: int = 0
    ended: bool = False


def create_fetcher(
    kind: int, dataset: object, auto_collation: bool, collate_fn: object, drop_last: bool
) -> Any:
    """torch's fetcher of batches for a kind of dataset."""
    create: Callable[..., Any] = _DatasetKind.create_fetcher
    return create(kind, dataset, auto_collation, collate_fn, drop_last)


def dataset_state_of(dataset: object, fetcher: object = None) -> DatasetState:
    """The state of a dataset and of its iterator in torch's `fetcher`, as far as they have one."""
    walk: object = getattr(fetcher, "dataset_iter", None)
    state: dict[str, Any] = {}
    if is_stateful(walk):
        state["iterator"] = _own_state(walk)
    if dataset is not walk and is_stateful(dataset):
        state["dataset"] = _own_state(dataset)
    return DatasetState(state=state or None, ended=bool(getattr(fetcher, "ended", False)))


def _own_state(thing: Any) -> object:
    try:
        return copy.deepcopy(thing.state_dict())
    except StopIteration as error:  # it would say that the dataset is exhausted
        raise RuntimeError(f"{type(thing).__name__}.state_dict() raised StopIteration") from error


def load_at_start(past: DatasetState, dataset: object, make: Callable[[], Any]) -> None:
    """Loads a state that was taken before the pass began. The pass's own fetcher is made afterwards.

    The state of an iterator is loaded into an iterator that is then dropped: loading it may also set the
    dataset, or random generators.
    """
    if past.state is not None and not past.at:
        _restored(past.state, dataset, make if "iterator" in past.state else lambda: None)


def fetcher_at(past: DatasetState, batch_size: int, dataset: object, make: Callable[[], Any]) -> object:
    """A fetcher that continues after `past`: the dataset's own state is loaded, and the samples after that
    are drawn and dropped.

    A state from before the pass was loaded already: see load_at_start().

    Raises:
        ArgumentError: there is a state, and no object here has load_state_dict().
    """
    fetcher = _restored(past.state, dataset, make) if past.state is not None and past.at else make()
    samples = (past.batches - past.at) * batch_size
    if samples and hasattr(fetcher, "dataset_iter"):
        next(itertools.islice(fetcher.dataset_iter, samples, samples), None)
    return fetcher


def state_after(dataset: object, fetcher: object, batches: int, every: int) -> DatasetState | None:
    """The state that a worker sends after its batch number `batches`, or None.

    A stateful dataset's is sent after every `every` batches (0: never), any dataset's once it is exhausted.
    """
    ended = getattr(fetcher, "ended", False)
    if not ended and (not every or batches % every):
        return None
    stands = dataset_state_of(dataset, fetcher)
    return stands if ended or stands.state is not None else None


def fetched(fetcher: Any, index: Any, again: Callable[[], Any] | None) -> object:
    """The next batch of an iterable dataset. If it is exhausted and `again` is given, the first batch of the
    fetcher that `again` makes.

    Raises:
        StopIteration: the dataset is exhausted.
    """
    try:
        return fetcher.fetch(index)
    except StopIteration:
        if again is None:
            raise
    return again().fetch(index)


def _restored(state: dict[str, Any], dataset: object, make: Callable[[], Any]) -> object:
    if "dataset" in state:
        _load(dataset, state["dataset"])
    fetcher = make()
    if "iterator" in state:
        _load(getattr(fetcher, "dataset_iter", None), state["iterator"])
    return fetcher


def _load(thing: Any, state: Any) -> None:
    if not is_stateful(thing):
        raise ArgumentError(
            f"the state to resume from holds a state of the dataset, and {type(thing).__name__} has "
            "no load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    thing.load_state_dict(copy.deepcopy(state))


def packed_state(dataset: object) -> dict[str, Any]:
    """The part of a state about the loader's datasets, as JSON values: [version, digest of the samples] of
    each packed dataset, in Subsets and the like too, as "packed", and what the order of a Mixture follows
    from, as "mixture"; {} without any."""
    found = _versions(dataset)
    return ({"packed": found} if found else {}) | mixture_state(dataset)


def _versions(dataset: object) -> list[list[Any]]:
    return [[packed.version, packed.opened.reader.manifest.samples_digest] for packed in _packed(dataset)]


def _packed(dataset: object) -> list[PackedDataset]:
    return [each for each in parts_of(dataset) if isinstance(each, PackedDataset)]


def check_versions(dataset: object, stored: list[Any]) -> None:
    """Checks that positions in a state mean the same samples now. Fields may have been added or taken away.

    Raises:
        ArgumentError: a packed dataset is of another version than it was, with other samples.
    """
    leaves, versions = _packed(dataset), _versions(dataset)
    if len(stored) != len(leaves):
        return
    for packed, (before, digest), (now, samples) in zip(leaves, stored, versions, strict=True):
        if before != now and digest != samples:
            raise ArgumentError(
                f"the state was taken in mid-epoch with version {before} of {packed.path}, this "
                f"loader has version {now}, "
                f"whose samples are others: resume with PackedDataset(..., version={before})"
            )


def is_versions(value: object) -> bool:
    """Returns True if a value of a state has the form that `packed_state` makes."""
    return isinstance(value, list) and all(
        isinstance(each, list) and [type(part) for part in each] == [int, str] for each in value
    )
