"""A dataset's own state: asked for after batches, loaded before a pass that goes on from it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.errors import ArgumentError


@dataclass
class DatasetState:
    """One copy of a dataset that is iterable, or has a state of its own, as far as its batches were returned to the caller.

    Attributes:
        batches: how many, of this pass.
        state: the dataset's own state; None where it has none.
        at: how many of `batches` came before that state was taken. 0: it was taken before the pass, which begins anew from it.
        ended: it was exhausted in making the last of them.
    """

    batches: int = 0
    state: dict[str, Any] | None = None
    at: int = 0
    ended: bool = False


def is_stateful(thing: Any) -> bool:
    """Whether it has both methods of a state."""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def dataset_state_of(dataset: Any, fetcher: Any = None) -> DatasetState:
    """Where a dataset stands: its own state and that of its iterator in torch's `fetcher`, as far as they have one."""
    walk: Any = getattr(fetcher, "dataset_iter", None)
    state: dict[str, Any] = {}
    if is_stateful(walk):
        state["iterator"] = copy.deepcopy(walk.state_dict())
    if dataset is not walk and is_stateful(dataset):
        state["dataset"] = copy.deepcopy(dataset.state_dict())
    return DatasetState(state=state or None, ended=bool(getattr(fetcher, "ended", False)))


def load_at_start(past: DatasetState, dataset: Any, make: Callable[[], Any]) -> None:
    """Sets the dataset to a state that was taken before the pass began; the pass's own fetcher is made afterwards.

    The state of an iterator is loaded into one that is then dropped: it may count for the dataset, or for generators of random numbers.
    """
    if past.state is not None and not past.at:
        _restored(past.state, dataset, make if "iterator" in past.state else lambda: None)


def fetcher_at(past: DatasetState, batch_size: int, dataset: Any, make: Callable[[], Any]) -> Any:
    """A fetcher that goes on where `past` stands: by the dataset's own state, and by drawing and dropping what came after that.

    A state from before the pass is in the dataset already: see load_at_start().

    Raises:
        ArgumentError: there is a state, and nothing that loads it.
    """
    fetcher = _restored(past.state, dataset, make) if past.state is not None and past.at else make()
    samples = (past.batches - past.at) * batch_size
    if samples and hasattr(fetcher, "dataset_iter"):
        next(itertools.islice(fetcher.dataset_iter, samples, samples), None)
    return fetcher


def told_after(dataset: Any, fetcher: Any, batches: int, every: int) -> DatasetState | None:
    """What a worker tells after its batch number `batches`: at each `every`-th where a stateful dataset stands; that one is exhausted."""
    ended = getattr(fetcher, "ended", False)
    if not ended and (not every or batches % every):
        return None
    stands = dataset_state_of(dataset, fetcher)
    return stands if ended or stands.state is not None else None


def fetched(fetcher: Any, index: Any, again: Callable[[], Any] | None) -> Any:
    """A batch of an iterable dataset. Where nothing is left, and `again` makes another fetcher, that one's first batch.

    Raises:
        StopIteration: nothing is left.
    """
    try:
        return fetcher.fetch(index)
    except StopIteration:
        if again is None:
            raise
    return again().fetch(index)


def _restored(state: dict[str, Any], dataset: Any, make: Callable[[], Any]) -> Any:
    if "dataset" in state:
        _load(dataset, state["dataset"])
    fetcher = make()
    if "iterator" in state:
        _load(getattr(fetcher, "dataset_iter", None), state["iterator"])
    return fetcher


def _load(thing: Any, state: Any) -> None:
    if not is_stateful(thing):
        raise ArgumentError(
            f"the state to resume from holds a state of the dataset, and {type(thing).__name__} has no load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    thing.load_state_dict(copy.deepcopy(state))
