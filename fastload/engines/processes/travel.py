"""Pickles that cloudpickle makes: of what a spawned worker is given, and of batches that plain pickle cannot
handle."""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from typing import IO, Any, Generic, TypeVar

import torch

_Content = TypeVar("_Content")
_Reducer = Callable[[Any], Any]


def cloud_pickler(out: IO[bytes], reducers: MutableMapping[type, _Reducer]) -> pickle.Pickler:
    """A pickler of cloudpickle's with more reducers, which come before its own.

    They are an attribute of its class: cloudpickle's has one, so that an instance's would not be looked at.
    """
    import cloudpickle

    table = ChainMap(reducers, cloudpickle.Pickler.dispatch_table)
    made: pickle.Pickler = type("_Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})(
        out, pickle.HIGHEST_PROTOCOL
    )
    return made


class Travel(Generic[_Content]):
    """Wrapper that pickles an object for a spawned process with cloudpickle, so that it may contain
    lambdas and classes of a notebook.

    What multiprocessing shares (values, arrays, queues, locks, connections) is shared with the process, and
    so are tensors in shared memory. Other tensors are copied, where torch's DataLoader moves them to shared
    memory: /dev/shm may be small, and the user's tensors stay where they are.
    """

    def __init__(self, content: _Content) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        out = io.BytesIO()
        cloud_pickler(out, _reducers()).dump(self.content)
        return _unpacked, (out.getvalue(),)


def _unpacked(pickled: bytes) -> Travel[Any]:
    return Travel(pickle.loads(pickled))


def _reducers() -> dict[type, _Reducer]:
    """multiprocessing's reducers; those that torch has added to them act on what is shared already."""
    from multiprocessing.reduction import ForkingPickler

    found: Mapping[type, _Reducer] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    made = dict(found)
    for kind, reducer in found.items():
        if issubclass(kind, torch.Tensor):
            made[kind] = _if(_is_shared, reducer)
        elif issubclass(kind, torch.TypedStorage):  # in which a tensor's own pickle has its memory
            made[kind] = _if(lambda storage: storage._untyped_storage.is_shared(), reducer)
    return made


def _is_shared(tensor: Any) -> bool:
    return bool(tensor.layout is torch.strided and not tensor.is_nested and tensor.is_shared())


def _if(condition: Callable[[Any], bool], reducer: _Reducer) -> _Reducer:
    return lambda value: reducer(value) if condition(value) else value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
