"""Agreement: whether all ranks of a process group share out the same samples in the same way, found out without a wait.

NOTE [ agreement: no rank waits for another ]
Ranks that differ (in world size, dataset, seed, batch size, epoch, or in the state that they have loaded) would give samples twice or
never, and nobody would notice. A collective would tell, and hang the group where a rank does not come to it. So the first rank that begins
a pass writes down what it is, in the store that the process group was made with, and each other rank compares. One that differs says so in
the store and goes on. All ranks look for that after their 2nd, 4th, 8th ... batch, and at the end of the pass, and raise the same error
there. In a training loop every rank that comes to its second batch has been in the first step's collective with all others, which had
begun by then. So all ranks end together, and a rank that never comes is left to the training's own collectives, and their timeout.
Passes are matched by their number among the passes of a loader, and loaders by their number among those of the process that have shard=.
With shard=(rank, world) ranks may have loaders that differ on purpose: only passes over datasets of one length are compared.
fastload/resume/rank_agreement.py lists what is compared.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from torch import distributed

from fastload.errors import ArgumentError
from fastload.window.ranks import grouped

_LENGTH = "a dataset of length"
_NOTHING = "(none)"
_numbers = itertools.count()


class Agreement:
    """Compares one loader's passes with those of the same loader on other ranks. See NOTE [ agreement: no rank waits for another ].

    Without a process group, and where the group's store cannot be asked, nothing is compared.
    """

    def __init__(self) -> None:
        self._loader = next(_numbers)
        self._passes = itertools.count()
        self._store: Any = None
        self._key = ""
        self._batches = 0

    def begin(self, length: int, strict: bool, found: Callable[[], Mapping[str, Any]]) -> None:
        """Begins a pass.

        Args:
            length: of the dataset.
            strict: whether that, too, has to be equal on every rank.
            found: returns all that has to be equal on every rank, by the names that an error gives it, as JSON can hold it. A rank may lack
                a name that others have. Called only where there are other ranks.
        """
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._key, self._batches = f"fastload/{attempt}/{self._loader}/{next(self._passes)}", 0
        group = distributed.group.WORLD if grouped() and distributed.get_world_size() > 1 else None
        self._store = None if group is None else group.get_group_store()
        if self._store is None:
            return
        rank, mine = distributed.get_rank(), {_LENGTH: str(length)} | {name: _told(value) for name, value in found().items()}
        try:
            whose, first = json.loads(self._store.compare_set(self._key, "", json.dumps([rank, mine])))
            differs = next((name for name in {**mine, **first} if first.get(name) != mine.get(name)), None)
            if differs is not None and (strict or differs != _LENGTH):
                # set() of a TCPStore does not wait for the server: another rank could look before it is there. The first to differ is told.
                told = f"rank {whose} has {differs} {first.get(differs, _NOTHING)}, rank {rank} has {mine.get(differs, _NOTHING)}"
                self._store.compare_set(f"{self._key}/differs", "", told)
        except (RuntimeError, ValueError):  # the store is gone, or its text is another program's
            self._store = None

    def step(self) -> None:
        """Notes a batch that reaches the loop.

        Raises:
            ArgumentError: ranks differ.
        """
        self._batches += 1
        if self._store is not None and self._batches > 1 and not self._batches & (self._batches - 1):
            self.check()

    def check(self) -> None:
        """Asks the store whether a rank has found a difference.

        Raises:
            ArgumentError: ranks differ.
        """
        if self._store is None:
            return
        try:
            found = self._store.get(f"{self._key}/differs").decode() if self._store.check([f"{self._key}/differs"]) else None
        except RuntimeError:
            self._store = found = None
        if found is not None:
            raise ArgumentError(
                f"ranks share out samples in different ways: {found}. Give shard= and all that the order follows from alike"
            )


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
