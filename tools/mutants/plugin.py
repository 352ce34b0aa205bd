"""pytest plugin of tools/mutants, which its runner puts into a tree. Variables say what it does; without them
it does nothing.

- ``MUTANTS_REACH``: file that gets, at the end, the probes that each test reached, and each test's seconds. A
  probe reached by a fixture that several tests share counts for each of them.
- ``MUTANTS_ONLY``: file of test ids, one a line: only those run, in this order.
- ``MUTANTS_LOG``: file that gets a line for each test that begins or fails, as it happens: the process may
  not live to the end.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

SIZE = 4096
REACH, ONLY, LOG = (os.environ.get(f"MUTANTS_{name}") for name in ("REACH", "ONLY", "LOG"))
PROPERTY = "mutants"


class Hits:
    """The hits of this process and of those that it starts."""

    def __init__(self) -> None:
        path = f"{REACH}.{os.getpid()}"  # the runner removes its folder
        with open(path, "w+b") as file:
            file.truncate(SIZE)
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._of_fixtures: dict[tuple[str, str], set[int]] = defaultdict(set)
        os.environ["MUTANT_HITS"] = path

    def take(self) -> set[int]:
        """The probes reached since the last call."""
        found = {number for number, byte in enumerate(self._map[:]) if byte}
        self._map[:] = bytes(SIZE)
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before = self.take()
        try:
            return (yield)
        finally:
            own = self.take()
            self._of_fixtures[fixturedef.argname, fixturedef.baseid] |= own
            for number in before | own:
                self._map[number] = 1

    def pytest_runtest_logstart(self) -> None:
        self.take()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            shared = [
                numbers
                for (name, base), numbers in self._of_fixtures.items()
                if name in item.fixturenames and item.nodeid.startswith(base)
            ]
            report.user_properties.append((PROPERTY, sorted(self.take().union(*shared))))
        return report


class ReachReport:
    """What all processes of a run report, written at its end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)
        self._reached: dict[str, list[int]] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] += report.duration
        if numbers := dict(report.user_properties).get(PROPERTY):
            self._reached[report.nodeid] = numbers
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        with open(self._path, "w") as out:
            json.dump(
                {"seconds": self._seconds, "reached": self._reached, "failed": sorted(self._failed)}, out
            )


class ProgressLog:
    """Lines of JSON, each [event, test id]: "start", "end" or "failed"; of a file that cannot be
    collected, "failed"."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a")

    def _note(self, event: str, test: str) -> None:
        self._file.write(json.dumps([event, test]) + "\n")
        self._file.flush()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._note("failed", report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note("start", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._note("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._note("end", nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Registers what the variables ask for; what all processes report goes to the controller of xdist."""
    is_controller = not hasattr(config, "workerinput")
    if REACH:
        config.pluginmanager.register(_hits)
        if is_controller:
            config.pluginmanager.register(ReachReport(REACH))
    if LOG and is_controller:
        config.pluginmanager.register(ProgressLog(LOG))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests that are asked for, in their order."""
    if not ONLY:
        return
    with open(ONLY) as file:
        order = {test: place for place, test in enumerate(file.read().splitlines())}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
    items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


_hits = Hits() if REACH else None  # before anything imports the package, which maps them
