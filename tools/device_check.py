"""Device check: builds, tests and measures fastload on a machine with a GPU and no network.

    sh tools/device_pack.sh                        here, first: fills .device/, which goes with the checkout
    python3 tools/device_check.py                  there: every section, at most 5 minutes
    python3 tools/device_check.py --only probes    one section again, while the machine is there
    python3 tools/device_check.py --rehearse       anywhere: every section on the CPU, in tiny sizes

Results are device_check.json, which is written anew after each section, and device_check.log, in --out. A
short table is printed last. Each section is a process of its own with a time limit. One that fails does not
stop the others, except the build. This file and the sections that come before the build need nothing but
Python.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from device_sections.environment import ROOT, environment
from device_sections.report import CRASHED, Report, failed, in_words, read, write_json

TOTAL_S = 300
LATEST_S = 250
"""Seconds after which the sections that may be left out are."""
REHEARSAL_PATIENCE = 8
"""Factor of every limit in a rehearsal, which may run beside other tests."""
LEAST_S = 10
"""Seconds that have to be left of a section's limit to start it again."""
TAIL_CHARACTERS = 100_000
"""Most characters of a section's output that the log keeps."""


Started = tuple[int, Callable[[float | None], int]]
"""A process that leads a group: its PID, and a function that waits for its code, so many seconds at most."""
Starter = Callable[[Sequence[str], dict[str, str], IO[str]], Started]


@dataclass(frozen=True)
class Section:
    """A section.

    Attributes:
        name: its name on the command line.
        function: module of device_sections and function in it, which takes a Report, and whether this is a
            rehearsal.
        limit: seconds after which it is killed, with all that it started.
        title: its content in words.
        left_out: True if it is left out of a run that is late.
        restarts: times that it is started again after it died in one of its parts: the parts that it has
            reported are not done again.
    """

    name: str
    function: str
    limit: float
    title: str
    left_out: bool = False
    restarts: int = 0


SECTIONS = (
    Section("facts", "facts:run", 20, "driver, versions, compiler, headers"),
    Section("build", "build:run", 85, "the native module, in place"),
    Section(
        "probes",
        "probes:run",
        75,
        "order of streams, pinned memory, graphs, Triton's cache, waits",
        restarts=3,
    ),
    Section("step", "training:step", 70, "a ResNet-50 step, fed and resident"),
    Section("tests", "suite:run", 80, "pytest tests/gpu"),
    Section("kernels", "kernels:run", 45, "kernels against Kornia and torchvision on the device"),
    Section("loader", "training:loader", 60, "delivery alone: images/s, use of the device", left_out=True),
    Section("sanitizer", "sanitizer:run", 50, "compute-sanitizer memcheck, one case a kernel", left_out=True),
)


class Check:
    """One run of sections, and its results.

    Args:
        out: folder of the results.
        rehearse: sections run on the CPU, in tiny sizes.
        start: starts a command with an environment and a file for its output, as started() does, which is the
            default.
    """

    def __init__(self, out: Path, rehearse: bool, start: Starter | None = None) -> None:
        self._began = time.monotonic()
        self._out, self._rehearse = out, rehearse
        self._log = out / "device_check.log"
        self.results: dict[str, Any] = {"rehearsal": rehearse, "sections": {}}
        out.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")
        self._start = started if start is None else start

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def env(self) -> dict[str, str]:
        """The variables of every section."""
        return environment(self._rehearse)

    def run(self, section: Section, env: dict[str, str], chosen: bool) -> None:
        """Runs a section, or leaves it out, and writes the results. chosen: it was asked for by name."""
        reason = None if chosen else self._left_out(section)
        self.results["sections"][section.name] = (
            {"verdict": "left out", "reason": reason} if reason else self._ran(section, env)
        )
        self.results["seconds"] = round(self.seconds, 1)
        write_json(self._out / "device_check.json", self.results)

    def _left_out(self, section: Section) -> str | None:
        seconds = 0 if self._rehearse else self.seconds
        if section.left_out and seconds > LATEST_S:
            return f"{LATEST_S} s have gone: --only {section.name}"
        if seconds > TOTAL_S - 5:
            return f"{TOTAL_S} s have gone"
        built = self.results["sections"].get("build", {"verdict": "ok"})
        return None if built["verdict"] == "ok" else "there is no native module"

    def _ran(self, section: Section, env: dict[str, str]) -> dict[str, Any]:
        began = time.monotonic()
        limit = (
            section.limit * REHEARSAL_PATIENCE
            if self._rehearse
            else min(section.limit, TOTAL_S - self.seconds)
        )
        with tempfile.TemporaryDirectory(prefix="device-check-") as folder:
            file = Path(folder) / "report.json"
            for _ in range(section.restarts + 1):
                code, tail = self._process(section, env, file, limit - (time.monotonic() - began))
                report = read(file)
                if report["running"] is not None:
                    report["parts"][report["running"]] = {
                        "verdict": CRASHED,
                        "said": f"the process ended with {code}",
                        "tail": tail[-40:],
                    }
                    write_json(file, report | {"running": None})
                if code == 0 or limit - (time.monotonic() - began) < LEAST_S:
                    break
        bad = code != 0 or failed(report["parts"])
        ended = {
            "verdict": "FAILED" if bad else "ok",
            "seconds": round(time.monotonic() - began, 1),
            "code": code,
            "parts": report["parts"],
        }
        return ended | ({"tail": tail[-60:]} if code else {})

    def _process(
        self, section: Section, env: dict[str, str], file: Path, limit: float
    ) -> tuple[int | str, list[str]]:
        """Runs a section's process. Returns its code, or words if it was killed, and the last lines of its
        output."""
        command = [sys.executable, __file__, "--section", section.name, "--report", str(file)]
        code: int | str
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            pid, wait = self._start([*command, *(["--rehearse"] if self._rehearse else [])], env, output)
            try:
                code = wait(max(limit, 0))
            except subprocess.TimeoutExpired:
                code = f"a kill after {limit:.0f} s"
            end_group(pid)
            wait(None)
            output.seek(0)
            text = output.read()
        with self._log.open("a") as log:
            log.write(f"==== {section.name}: {code}\n{text[-TAIL_CHARACTERS:]}\n")
        return code, text.splitlines()


def started(command: Sequence[str], env: dict[str, str], output: IO[str]) -> Started:
    """Starts a command in the checkout, in a group of processes of its own."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, **streams, cwd=ROOT, env=env, start_new_session=True)
    return process.pid, process.wait


def end_group(pid: int) -> None:
    """Ends what is left of a group of processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def table(results: dict[str, Any]) -> str:
    """The results in words: a line for each section, and one for each of their parts that failed."""
    lines = []
    for section in SECTIONS:
        found = results["sections"].get(section.name)
        if found is None:
            continue
        parts = found.get("parts", {})
        told = found.get("reason") or in_words(parts)
        lines.append(f"{section.name:<10} {found['verdict']:<9} {found.get('seconds', 0):6.1f} s  {told}")
        for name, part in parts.items():
            if failed({name: part}):
                lines.append(f"    {name}: {part['verdict']}: {' '.join(part.get('said', '').split())[:300]}")
        if isinstance(found.get("code"), str):
            lines.append(f"    ended by {found['code']}")
    return "\n".join([*lines, f"{results['seconds']:.0f} s in all"])


def only(name: str) -> Section:
    """The section of a name.

    Raises:
        SystemExit: there is none.
    """
    found = next((section for section in SECTIONS if section.name == name), None)
    if found is None:
        raise SystemExit(
            f"there is no section {name!r}: use one of {', '.join(section.name for section in SECTIONS)}"
        )
    return found


def parsed() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--out",
        type=Path,
        default=Path(os.environ.get("OUT", ROOT / "build" / "device")),
        help="folder of the results",
    )
    made.add_argument(
        "--only", metavar="SECTION", action="append", help="only this section; may be given several times"
    )
    made.add_argument("--rehearse", action="store_true", help="on the CPU, in tiny sizes")
    made.add_argument("--list", action="store_true", help="list the sections")
    made.add_argument("--section", help=argparse.SUPPRESS)
    made.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    return made.parse_args()


def main() -> int:
    arguments = parsed()
    if arguments.list:
        sys.stdout.writelines(
            f"{section.name:<10} {section.limit:4.0f} s  {section.title}\n" for section in SECTIONS
        )
        return 0
    if arguments.section:
        module, _, name = only(arguments.section).function.partition(":")
        function = getattr(importlib.import_module(f"device_sections.{module}"), name)
        function(
            Report(arguments.report, REHEARSAL_PATIENCE if arguments.rehearse else 1), arguments.rehearse
        )
        return 0
    return run(Check(arguments.out, arguments.rehearse), arguments.only)


def run(check: Check, names: Sequence[str] | None) -> int:
    """Runs the sections of these names, or all, and prints the table. Returns 1 if one failed."""
    env = check.env
    for section in map(only, names) if names else SECTIONS:
        check.run(section, env, chosen=bool(names))
        sys.stderr.write(
            f"{section.name}: {check.results['sections'][section.name]['verdict']} ({check.seconds:.0f} s)\n"
        )
    sys.stdout.write(table(check.results) + "\n")
    return int(any(found["verdict"] == "FAILED" for found in check.results["sections"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
