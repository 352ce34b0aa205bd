"""begin_pass: tells the fetcher of a dataset in a bucket what a pass will ask for, as far as that is known."""

from __future__ import annotations

import weakref
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from fastload.common.system import available_memory
from fastload.errors import ClosedError
from fastload.remote.groups import GROUP_BYTES
from fastload.remote.passes import HELD_BYTES, MEMORY_SHARE, Pass
from fastload.remote.remote_files import RemoteFiles, by_shard
from fastload.remote.session import Session


def begin_pass(files: RemoteFiles, owner: object, indices: npt.NDArray[np.int64] | None, buffer: int = 0) -> Pass:
    """Begins a pass over a dataset in a bucket, which ends with its owner.

    Args:
        files: of the dataset.
        owner: an object to which the pass does not refer.
        indices: the samples that it needs; None: those of blocks, which are told as they are opened.
        buffer: most samples of open blocks that are not asked for yet.

    Raises:
        ClosedError: the dataset was closed.
    """
    session, masks, limit = files.session, None, 0
    if indices is None:
        free = available_memory()
        whole = 2 if files.mean_bytes < GROUP_BYTES else 1
        limit = min(whole * buffer * files.mean_bytes, HELD_BYTES if free is None else int(MEMORY_SHARE * free))
    else:
        masks = [np.zeros(len(shard.state), bool) for shard in files.shards]
        shards, _, units = files.units(indices)
        for number, mine in by_shard(shards):
            masks[number][units[mine]] = True
    begun = Pass(masks, limit, session.room)
    session.call(session.fetcher.begin, begun)
    weakref.finalize(owner, _end, weakref.ref(session), begun).atexit = False
    return begun


def _end(session: weakref.ref[Session], begun: Pass) -> None:
    found = session()
    if found is not None:
        with suppress(ClosedError):  # it has ended with the fetcher
            found.call(begun.end)
