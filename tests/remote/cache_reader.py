"""A program that reads a dataset in a bucket through a cache and prints what it read: a process of its own,
without torch.

Its argument is JSON: `files` (arguments of RemoteFiles), `seed` of the order, and for those that are killed
`kill_at`: the name of a call, "create", "claim", "write" or "mark", and the number of the one at which the
process kills itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from typing import Any

from fastload._native import core
from fastload.remote import dataset_cache
from fastload.remote.files import RemoteFiles
from fastload.store import DatasetReader


def kill_at(name: str, count: int) -> None:
    """Makes the process kill itself, as by kill -9, right after a call."""
    left = count

    def counted(*arguments: Any) -> Any:
        nonlocal left
        result = real(*arguments)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    if name == "claim":
        real = dataset_cache.DatasetCache.claim
        dataset_cache.DatasetCache.claim = counted  # type: ignore[method-assign]
    elif name == "mark":
        real = dataset_cache.CachedShard.take_state  # type: ignore[assignment]
        dataset_cache.CachedShard.take_state = counted  # type: ignore[method-assign]
    elif name == "create":
        real = dataset_cache.CachedShard.create  # type: ignore[assignment]
        dataset_cache.CachedShard.create = counted  # type: ignore[method-assign]
    else:
        assert name == "write"
        real = os.pwrite  # type: ignore[assignment]
        os.pwrite = counted  # type: ignore[assignment]


def main() -> None:
    given = json.loads(sys.argv[1])
    if "kill_at" in given:
        kill_at(*given["kill_at"])
    files = RemoteFiles(**given["files"])
    with DatasetReader(files) as reader:
        sys.stdout.write("open\n")
        sys.stdout.flush()
        order = list(range(len(reader)))
        random.Random(given["seed"]).shuffle(order)
        crcs = {}
        for start in range(0, len(order), 16):
            part = order[start : start + 16]
            with files.held(part):
                crcs |= {index: core.crc32c(reader.record(index)) for index in part}
        status = files.status()
        found = {
            "crc": [crcs[index] for index in range(len(order))],
            "fetched": status.fetched,
            "cached": status.cached,
        }
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
