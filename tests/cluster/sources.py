"""Sources that do harm: modules of their own, so that the processes of a cluster import them."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from pathlib import Path

from fastload.packing import Item
from fastload.sources.folder import FolderSource


class Kills(FolderSource):
    """A folder whose reading kills the process that reads a certain sample, the first time."""

    def __init__(self, folder: Path, position: int, flag: Path) -> None:
        super().__init__(str(folder))
        self.position = position
        self.flag = flag

    def read(self, position: int) -> Item:
        if position == self.position and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(position)


class KillsAlways(FolderSource):
    """A folder of which one sample kills every process but the driver that reads it, as the kernel does
    for want of memory."""

    def __init__(self, folder: Path, position: int, killed: Path) -> None:
        super().__init__(str(folder))
        self.driver = os.getpid()
        self.position = position
        self.killed = killed

    def read(self, position: int) -> Item:
        if position == self.position and os.getpid() != self.driver:
            (self.killed / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(position)


DEATHS = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
"""Ends of a process in a foreign decoder; SIGKILL is the kernel's for want of memory."""


class Deadly(FolderSource):
    """A folder of which some samples end every process but the driver that reads them, each in its own way
    of `DEATHS`."""

    def __init__(self, folder: Path, deaths: dict[int, str], killed: Path) -> None:
        super().__init__(str(folder))
        self.driver = os.getpid()
        self.deaths = deaths
        self.killed = killed

    def read(self, position: int) -> Item:
        if position in self.deaths and os.getpid() != self.driver:
            (self.killed / f"{position}-{os.getpid()}").touch()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file in the working directory
            DEATHS[self.deaths[position]]()
        return super().read(position)


class Waits(FolderSource):
    """A folder that is read from some sample on once a flag is there; who waits writes the id of its node."""

    def __init__(self, folder: Path, waiting: Path, flag: Path, start: int = 0) -> None:
        super().__init__(str(folder))
        self.driver = os.getpid()
        self.waiting = waiting
        self.flag = flag
        self.start = start

    def read(self, position: int) -> Item:
        if position >= self.start and os.getpid() != self.driver and not self.flag.exists():
            import ray

            (self.waiting / ray.get_runtime_context().get_node_id()).touch()
            end = time.monotonic() + 120
            while not self.flag.exists() and time.monotonic() < end:
                time.sleep(0.05)
        return super().read(position)
