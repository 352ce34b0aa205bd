"""Runs PyTorch's own test_dataloader.py twice, with torch's DataLoader and with FastLoader in its place, and
compares test by test.

torchdata's test/stateful_dataloader/test_state_dict.py goes as well (it needs parameterized): FastLoader also
stands for StatefulDataLoader. Its tests that look into a state's layout fail, since a FastLoader's state has
its own.

The file is not part of this project: take it from a PyTorch source tree near the installed version and name
its path. It needs expecttest (and psutil for its exit tests), which `--path` can add from a folder made by
`pip install --target`.

    python tests/conformance/run_pytorch_suite.py test_dataloader.py [--path FOLDER] [--only WORD] [--baseline
    OLD.json] [--json NEW.json]

FastLoader takes the name `torch.utils.data.DataLoader` in every process that the suite starts, by a
sitecustomize module on PYTHONPATH: spawned children and `python -c` see it too. A test that takes longer than
--limit seconds is killed with its children and counts as "hang". The exit status is 1 when a test that
torch's DataLoader passes is failed by FastLoader.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import fastload

PACKAGE_FOLDER = Path(fastload.__file__).parents[1]

# Patched when `import torch` has ended: fastload itself needs a whole torch, and torch's real DataLoader as
# its base.
SITECUSTOMIZE = """
import importlib.abc
import importlib.util
import sys


class _AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        self.real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.real.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.real
        self.real.exec_module(module)
        if any(name.startswith("fastload.") for name in sys.modules):
            return  # a worker of FastLoader's: fastload is half imported, and starts no loader there
        import torch.utils.data
        from fastload import FastLoader
        torch.utils.data.DataLoader = FastLoader


sys.meta_path.insert(0, _AfterTorch())
"""


class _Lines(unittest.TestResult):
    """Writes one JSON line when a test begins and one when it has ended."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out
        self.outcome, self.detail, self.began = "ok", "", 0.0

    def _write(self, **line: Any) -> None:
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome, self.detail, self.began = "ok", "", time.monotonic()
        self._write(begin=test.id())

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write(
            end=test.id(),
            outcome=self.outcome,
            detail=self.detail,
            seconds=round(time.monotonic() - self.began, 2),
        )

    def _bad(self, outcome: str, error: Any, test: unittest.TestCase) -> None:
        self.outcome, self.detail = outcome, self._exc_info_to_string(error, test)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._bad("error", err, test)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._bad("fail", err, test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcome, self.detail = "skip", reason

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.outcome = "ok"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.outcome = "unexpected success"

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._bad("fail", err, subtest)


def _cases(module: Any) -> list[Any]:
    """Every test of the module, class by class; its load_tests is passed by, for it looks at the running
    script's name."""
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase)
    ]
    here = [kind for kind in classes if kind.__module__ == module.__name__]
    return [kind(name) for kind in here for name in unittest.defaultTestLoader.getTestCaseNames(kind)]


def _stand_for_torchdata() -> None:
    """Where FastLoader has DataLoader's name, it gets StatefulDataLoader's as well."""
    import torch.utils.data

    if torch.utils.data.DataLoader.__name__ == "FastLoader":
        stateful: Any = importlib.import_module("torchdata.stateful_dataloader")
        stateful.StatefulDataLoader = torch.utils.data.DataLoader


def inside(file: Path, only: str, seen: set[str], out: Path) -> None:
    """The process that runs tests: every test of the file not yet seen, in the file's order of classes."""
    sys.path.insert(0, str(file.parent))
    if importlib.util.find_spec("torchdata") is not None:
        _stand_for_torchdata()
    module = __import__(file.stem)
    cases = [case for case in _cases(module) if only in case.id() and case.id() not in seen]
    with out.open("a") as lines:
        result = _Lines(lines)
        for case in cases:
            case.run(result)
        result._write(finished=True)


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            found += [int(child), *_descendants(int(child))]
    return found


def _kill(process: subprocess.Popen[Any]) -> None:
    for pid in [*_descendants(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def run(file: Path, fast: bool, only: str, limit: float, path: str) -> dict[str, dict[str, Any]]:
    """Outcomes by test id; the process is started anew after a test that hung or took the process down."""
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "sitecustomize.py").write_text(SITECUSTOMIZE if fast else "")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [scratch, str(PACKAGE_FOLDER), path])),
        }
        out = Path(scratch) / "lines.json"
        out.touch()
        while True:
            seen = Path(scratch) / "seen.json"
            seen.write_text(json.dumps(sorted(results)))
            command = [
                sys.executable,
                __file__,
                str(file),
                "--inside",
                str(out),
                "--seen",
                str(seen),
                "--only",
                only,
            ]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=scratch
            )
            if _follow(process, out, results, limit, "FastLoader" if fast else "DataLoader"):
                return results


def _follow(
    process: subprocess.Popen[Any], out: Path, results: dict[str, dict[str, Any]], limit: float, who: str
) -> bool:
    """Reads the lines as they come; True when the run has come to its end."""
    current, since, read = "", time.monotonic(), out.stat().st_size
    while True:
        gone = process.poll() is not None
        with out.open() as lines:
            lines.seek(read)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        read += len(whole.encode())
        for line in map(json.loads, whole.splitlines()):
            if "begin" in line:
                current, since = line["begin"], time.monotonic()
            elif "end" in line:
                results[line["end"]] = line
                current = ""
                sys.stderr.write(f"{who} {line['outcome']:6} {line['seconds']:7.2f} s {line['end']}\n")
            else:
                process.wait()
                return True
        if gone:
            if not current:
                raise SystemExit(
                    f"the suite cannot be started: exit status {process.returncode}; run it with "
                    "--inside to see why"
                )
            results[current] = {
                "outcome": "crash",
                "detail": f"exit status {process.returncode}",
                "seconds": 0.0,
            }
            return False
        if current and time.monotonic() - since > limit:
            _kill(process)
            results[current] = {"outcome": "hang", "detail": f"more than {limit} s", "seconds": limit}
            return False
        threading.Event().wait(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--path", default="", help="folders to add to PYTHONPATH")
    parser.add_argument("--only", default="", help="tests whose id contains this")
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument(
        "--baseline",
        type=Path,
        help="the --json of an earlier run: its DataLoader outcomes are taken, not run again",
    )
    parser.add_argument("--json", type=Path, help="where to write both runs' outcomes")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seen", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    file = options.file.resolve()
    if options.inside:
        inside(
            file,
            options.only,
            set(json.loads(options.seen.read_text())) if options.seen else set(),
            options.inside,
        )
        return 0
    if options.baseline:
        base = {
            name: line
            for name, line in json.loads(options.baseline.read_text())["torch"].items()
            if options.only in name
        }
    else:
        base = run(file, False, options.only, options.limit, options.path)
    fast = run(file, True, options.only, options.limit, options.path)
    if options.json:
        options.json.write_text(json.dumps({"torch": base, "fastload": fast}, indent=1))
    worse = 0
    for name in sorted(base.keys() | fast.keys()):
        before, after = (runs.get(name, {"outcome": "missing", "detail": ""}) for runs in (base, fast))
        if before["outcome"] != after["outcome"]:
            worse += before["outcome"] == "ok"
            sys.stdout.write(
                f"{name}: DataLoader {before['outcome']}, FastLoader {after['outcome']}\n{after['detail']}\n"
            )
    passed = [sum(line["outcome"] == "ok" for line in runs.values()) for runs in (base, fast)]
    sys.stdout.write(
        f"{len(base)} tests: DataLoader passes {passed[0]}, FastLoader {passed[1]}; {worse} passed "
        "by DataLoader only\n"
    )
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
