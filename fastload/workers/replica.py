"""An iterable dataset's own state: asked for after each batch, loaded before a pass that goes on in mid-epoch."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from fastload.errors import ArgumentError
from fastload.sampling import Replica


def is_stateful(thing: Any) -> bool:
    """Whether it has both methods of a state."""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def replica_of(fetcher: Any) -> Replica:
    """Where a fetcher of torch's stands: the states of its dataset and of the dataset's iterator, as far as they have one."""
    state: dict[str, Any] = {}
    if is_stateful(fetcher.dataset_iter):
        state["iterator"] = copy.deepcopy(fetcher.dataset_iter.state_dict())
    if fetcher.dataset is not fetcher.dataset_iter and is_stateful(fetcher.dataset):
        state["dataset"] = copy.deepcopy(fetcher.dataset.state_dict())
    return Replica(state=state or None, ended=bool(fetcher.ended))


def fetcher_after(past: Replica, samples: int, dataset: Any, make: Callable[[], Any]) -> Any:
    """A fetcher that goes on where `past` stands: by the dataset's own state, else by drawing `samples` samples and dropping them.

    Raises:
        ArgumentError: there is a state, and nothing that loads it.
    """
    state = past.state or {}
    if "dataset" in state:
        _load(dataset, state["dataset"])
    fetcher = make()
    if "iterator" in state:
        _load(fetcher.dataset_iter, state["iterator"])
    if past.state is None:
        next(itertools.islice(fetcher.dataset_iter, samples, samples), None)
    return fetcher


def _load(thing: Any, state: Any) -> None:
    if not is_stateful(thing):
        raise ArgumentError(
            f"the state to resume from holds a state of the dataset, and {type(thing).__name__} has no load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    thing.load_state_dict(copy.deepcopy(state))
