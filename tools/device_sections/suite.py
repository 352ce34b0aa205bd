"""Section 5: pytest tests/gpu; each test that did not pass is a part, with its message."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from device_sections.environment import ROOT
from device_sections.report import ERROR, RIGHT, SKIPPED, WRONG, Details, Report, Wrong

PROCESSES = 8
_PLUGINS = {"xdist": "xdist.plugin", "pytest_timeout": "pytest_timeout"}
"""By package: plugins that the tests need. Others that a machine has, such as one for benchmarks, warn of
what warnings are errors here."""


def run(report: Report, rehearse: bool) -> None:
    """Runs tests/gpu; a rehearsal collects them, and they are skipped."""
    with tempfile.TemporaryDirectory(prefix="suite-") as folder:
        file = Path(folder) / "junit.xml"
        report.run("pytest", lambda: tests(file, rehearse), 78)
        for name, verdict, said in outcomes(file) if file.exists() else ():
            if verdict != RIGHT:
                report.add(name, verdict, said=said)


def tests(file: Path, rehearse: bool) -> Details:
    """Runs pytest in this process, and its workers. Raises Wrong if a test failed, or none passed."""
    plugins = [plugin for package, plugin in _PLUGINS.items() if importlib.util.find_spec(package)]
    command = [
        str(ROOT / "tests" / "gpu"),
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        f"--junitxml={file}",
        f"--rootdir={ROOT}",
    ]
    command += [word for plugin in plugins for word in ("-p", plugin)]
    command += ["-o", "timeout=50"] if "pytest_timeout" in plugins else []
    command += ["-n", str(PROCESSES)] if "xdist.plugin" in plugins and not rehearse else []
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    code = int(pytest.main(command))
    counts = Counter(verdict for _, verdict, _ in outcomes(file)) if file.exists() else Counter()
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    details: Details = {"code": code, "counts": counts, "table": f"tests: {told}"}
    if code or not (counts[RIGHT] or (rehearse and counts[SKIPPED])):
        raise Wrong(f"pytest ended with {code}", **details)
    return details


def outcomes(junit: Path) -> list[tuple[str, str, str]]:
    """(name, verdict, message) of each test in pytest's JUnit file."""
    found = []
    for case in ElementTree.parse(junit).iter("testcase"):
        name, verdict, said = f"{case.get('classname')}::{case.get('name')}", RIGHT, ""
        for kind, its in (("skipped", SKIPPED), ("failure", WRONG), ("error", ERROR)):
            for each in case.findall(kind):
                text = "" if its == SKIPPED else each.text or ""
                verdict, said = its, f"{each.get('message', '')}\n{text[-3000:]}".strip()
        found.append((name, verdict, said))
    return found
