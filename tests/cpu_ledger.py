"""CPU seconds of a run of tests, a pytest plugin: those of the test processes, and of the child processes that they waited for.

`--cpu-ledger=FILE` writes them as JSON, by test. `--cpu-budget=SECONDS` fails a run that takes more, and names the files that take most.
What a process takes to import and collect the test files counts for its first test; a server that outlives the run is not counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PROPERTY = "CPU seconds"
NAMED = 12  # files in the message


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("CPU seconds")
    group.addoption("--cpu-budget", type=float, metavar="SECONDS", help="fail if the tests take more CPU seconds than this")
    group.addoption("--cpu-ledger", type=Path, metavar="FILE", help="write each test's CPU seconds as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Ledger(config.option.cpu_budget, config.option.cpu_ledger, hasattr(config, "workerinput")))


class Ledger:
    """The CPU seconds of each test. Under pytest-xdist a worker's reports carry them to the process that the user started.

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
        self._until = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = sum(os.times()[:4])
        report.user_properties.append((PROPERTY, now - self._until))
        self._until = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += sum(seconds for name, seconds in report.user_properties if name == PROPERTY)

    @property
    def over(self) -> bool:
        """Returns True if the tests took more than their budget."""
        return not self.worker and self.budget is not None and self.tests.total() > self.budget

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.file is not None and not self.worker:
            self.file.write_text(json.dumps(dict(self.tests.most_common()), indent=0))
        if self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = self.tests.total()
        terminalreporter.write_line(f"CPU: {total:,.0f} s" + (f" of {self.budget:,.0f} s" if self.budget else ""))
        if not self.over:
            return
        files: Counter[str] = Counter()
        for test, seconds in self.tests.items():
            files[test.partition("::")[0]] += seconds
        named = ", ".join(f"{name} {seconds:,.0f} s" for name, seconds in files.most_common(NAMED))
        terminalreporter.write_line(f"FAILED: the tests take more CPU seconds than their budget. Most take {named}", red=True)
