"""CPU seconds of a run of tests, a pytest plugin: those of the test processes, and of the child processes
that they waited for.

`--cpu-ledger=FILE` writes them as JSON, by test. `--cpu-budget=SECONDS` fails a run that takes more, and
names the files that take most. What a process takes to import and collect the test files counts for its first
test; a server that outlives the run is not counted.

The same work takes half as many CPU seconds again where neighbours use the other halves of the cores, or the
clock is lower. So a fixed computation is timed beside the tests: towards the budget, the seconds of a machine
that is slow just then count for less.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROPERTY = "CPU seconds"
NAMED = 12  # files in the message


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("CPU seconds")
    group.addoption(
        "--cpu-budget",
        type=float,
        metavar="SECONDS",
        help="fail if the tests take more CPU seconds than this",
    )
    group.addoption("--cpu-ledger", type=Path, metavar="FILE", help="write each test's CPU seconds as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(
        Ledger(config.option.cpu_budget, config.option.cpu_ledger, hasattr(config, "workerinput"))
    )


PACE_SECONDS = 0.016
"""CPU seconds of the computation below at the pace that the budgets are for."""


def computation_seconds() -> float:
    """CPU seconds that a fixed computation takes now: some ten milliseconds."""
    began = time.thread_time()
    found = {}
    for number in range(60_000):
        found[number % 5003] = (number * 31, str(number))
    return time.thread_time() - began


class Pace:
    """How fast the machine is, measured now and then.

    Args:
        measure: computation_seconds, or another clock of the machine.
        every: seconds from one measurement to the next.
    """

    def __init__(self, measure: Callable[[], float] = computation_seconds, every: float = 5.0) -> None:
        self._measure = measure
        self._every = every
        self._measured = -every
        self._share = 1.0

    @property
    def share(self) -> float:
        """What a second counts for: 0.5 where the machine takes twice as long, at most 1. Between
        measurements the last one holds."""
        if time.monotonic() >= self._measured + self._every:
            self._share = min(1.0, PACE_SECONDS / self._measure())
            self._measured = time.monotonic()
        return self._share


class Ledger:
    """The CPU seconds of each test. Under pytest-xdist a worker's reports carry them to the process that the
    user started.

    Args:
        budget: CPU seconds of all tests; None: as many as they take.
        file: where the seconds of each test go.
        worker: this process runs tests for another one, which has the sum.
    """

    def __init__(self, budget: float | None, file: Path | None, worker: bool) -> None:
        self.budget = budget
        self.file = file
        self.worker = worker
        self.tests: Counter[str] = Counter()
        self.counted = 0.0
        self._pace = Pace()
        self._until = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        took = sum(os.times()[:4]) - self._until
        report.user_properties.append((PROPERTY, (took, took * self._pace.share)))
        self._until = sum(os.times()[:4])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for took, counted in (each for name, each in report.user_properties if name == PROPERTY):
            self.tests[report.nodeid] += took
            self.counted += counted

    @property
    def over(self) -> bool:
        """Returns True if the tests took more than their budget."""
        return not self.worker and self.budget is not None and self.counted > self.budget

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.file is not None and not self.worker:
            self.file.write_text(json.dumps(dict(self.tests.most_common()), indent=0))
        if self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        budget = f", which count for {self.counted:,.0f} s of {self.budget:,.0f} s" if self.budget else ""
        terminalreporter.write_line(f"CPU: {self.tests.total():,.0f} s{budget}")
        if not self.over:
            return
        files: Counter[str] = Counter()
        for test, seconds in self.tests.items():
            files[test.partition("::")[0]] += seconds
        named = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in files.most_common(NAMED))
        terminalreporter.write_line(
            f"FAILED: the tests take more CPU seconds than their budget. Most take {named}", red=True
        )
