"""Picklers of cloudpickle's: for what a spawned worker is given, and for batches that plain pickle cannot
handle."""

from __future__ import annotations

import pickle
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from typing import IO, Any

import torch

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


def sharing_reducers() -> dict[type, _Reducer]:
    """multiprocessing's reducers, for what crosses to a process that is being started.

    Values, arrays, queues, locks and connections are shared with it, and so are tensors in shared memory.
    Other tensors are copied, where torch's DataLoader moves them to shared memory: /dev/shm may be small, and
    the user's tensors stay where they are.
    """
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
