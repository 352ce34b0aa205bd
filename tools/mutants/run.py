"""How many of eighty small faults (faults.toml) does the suite catch?

    python tools/mutants/run.py check
    python tools/mutants/run.py reach --tree TREE --out reach.json -- -n 4 --dist worksteal
    python tools/mutants/run.py try --tree TREE --tree OTHER --reach reach.json --out results.json [--known
    BEFORE.json] python tools/mutants/run.py survivors --tree TREE --out results.json -- -n 4 --dist worksteal
    python tools/mutants/run.py report results.json [BEFORE.json ...]

A tree is a git worktree with a built environment in .venv, in which nobody else works: sources are changed in
it, and restored.

1. `reach` runs the suite once with a probe before each fault's line, and notes which tests reach it: also in
   threads, and in processes that a test forks or starts. C programs of tests/c are tests too
   (`ctest:test_ring`).
2. `try` applies one fault in each tree at a time, and runs the tests that reach it, the shortest first, up to
   the first that fails. That one has to fail once more with the fault and to pass without it; else it is left
   out. A test that hangs or takes pytest with it fails. Faults that the results have already are not tried
   again. What caught a fault in the results of another suite is tried first.
3. `survivors` applies all faults that nothing caught at once, runs the whole suite once, and tries each fault
   alone on what failed.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import faults as lists
from checkout import CTEST, HANG_S, Changed, Checkout
from faults import Fault

PROGRAM_S = 300
"""Seconds after which a C program hangs; sanitizers make it slow."""
Outcome = dict[str, Any]
"""Of a fault: "caught" by a test, or None; tests "ran"; tests "left_out"; "seconds"; "stopped": the time
was up."""


def say(text: str) -> None:
    """Prints a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


# ---- check


def check(faults: Sequence[Fault], root: Path) -> int:
    """Prints the mistakes in a list, and how it is spread; 1 if there are any."""
    found = lists.problems(faults, root)
    for text in found:
        say(text)
    for title, counts in (
        ("room", Counter(fault.room for fault in faults)),
        ("kind", Counter(fault.kind for fault in faults)),
    ):
        say(
            f"{len(faults)} faults by {title}: "
            + ", ".join(f"{name} {count}" for name, count in counts.most_common())
        )
    return 1 if found else 0


# ---- reach


def reach(
    faults: Sequence[Fault], checkout: Checkout, arguments: Sequence[str], limit: float, out: Path
) -> None:
    """Writes which tests reach which fault, and how long each test takes."""
    by_number = {fault.number: fault.id for fault in faults}
    found: dict[str, Any] = {"reached": {fault.id: [] for fault in faults}, "seconds": {}}
    with tempfile.TemporaryDirectory() as scratch, checkout.with_probes(faults):
        report = Path(scratch, "report")
        run = checkout.pytest(arguments, limit=limit, reach=report)
        say(f"{len(run.ended)} tests in {run.seconds:.0f} s" + (", up to the limit" if run.stopped else ""))
        told = json.loads(report.read_text())
        for test, seconds in told["seconds"].items():
            _note(found, test, seconds, told["reached"].get(test, ()), by_number)
        in_c = any(fault.file.endswith(".c") for fault in faults)
        for program, (target, *_) in checkout.ctests().items() if in_c else ():
            checkout.make(target, limit)  # built, so that the time is its own
            seconds, numbers = _hits_of(checkout, target, limit, Path(scratch, "hits"))
            _note(found, CTEST + program, seconds, numbers, by_number)
    _write(out, found)
    for test in told["failed"]:
        say(f"failed without a fault: {test}")
    for fault in faults:
        say(f"{len(found['reached'][fault.id]):6} tests reach {fault.id}")


def _hits_of(checkout: Checkout, target: str, limit: float, hits: Path) -> tuple[float, list[int]]:
    """(seconds, probes reached) of a target of make."""
    hits.write_bytes(bytes(4096))
    start = time.monotonic()
    if not checkout.make(target, limit, {"MUTANT_HITS": str(hits)}):
        say(f"failed without a fault: {target}")
    return time.monotonic() - start, [number for number, byte in enumerate(hits.read_bytes()) if byte]


def _note(
    found: dict[str, Any], test: str, seconds: float, numbers: Iterable[int], by_number: dict[int, str]
) -> None:
    found["seconds"][test] = round(seconds, 3)
    for number in numbers:
        found["reached"][by_number[number]].append(test)


# ---- try


class Trial:
    """The tests of one fault, in a tree that has it."""

    def __init__(
        self, fault: Fault, checkout: Checkout, reached: dict[str, Any], limit: float, known: str | None
    ) -> None:
        self._fault, self._checkout, self._limit = fault, checkout, limit
        self._seconds: dict[str, float] = reached["seconds"]
        many = Counter(test for tests in reached["reached"].values() for test in tests)
        # By powers of two of their seconds: neighbours of a file stay together, and share its fixtures.
        self._tests = sorted(
            reached["reached"][fault.id],
            key=lambda test: (
                test != known,
                math.ceil(math.log2(max(self._seconds[test], 0.05))),
                many[test],
                test,
            ),
        )
        self._outcome: Outcome = {
            "caught": None,
            "ran": 0,
            "reached": len(self._tests),
            "left_out": [],
            "stopped": False,
        }

    def run(self) -> Outcome:
        """Tries the fault."""
        start = time.monotonic()
        if self._tests:
            with self._checkout.with_faults([self._fault]) as change:
                begun = time.monotonic()  # builds do not count
                self._outcome["caught"] = self._by_program(change, begun) or self._by_pytest(change, begun)
        self._outcome["seconds"] = round(time.monotonic() - start, 1)
        return self._outcome

    def _left(self, begun: float) -> float:
        """Seconds that are left."""
        left = begun + self._limit - time.monotonic()
        self._outcome["stopped"] = left <= 0
        return left

    def _by_program(self, change: Changed, begun: float) -> str | None:
        """The target of a C program that catches it."""
        targets = self._checkout.ctests() if self._fault.file.endswith(".c") else {}
        for test in self._tests:
            for target in targets.get(test.removeprefix(CTEST), ()) if test.startswith(CTEST) else ():
                if self._left(begun) <= 0:
                    return None
                self._outcome["ran"] += 1
                if self._program_fails(target) and self._holds(
                    target, change, partial(self._program_fails, target)
                ):
                    return target
        return None

    def _by_pytest(self, change: Changed, begun: float) -> str | None:
        """The test that catches it."""
        tests = [test for test in self._tests if not test.startswith(CTEST)]
        while tests and (left := self._left(begun)) > 0:
            run = self._checkout.pytest(["-x"], tests, limit=left, hang=self._hang(tests))
            self._outcome["ran"] += len({*run.ended, *run.failed})
            for test in run.failed:
                if self._holds(test, change, partial(self._test_fails, test)):
                    return test
            if not run.failed:
                self._outcome["stopped"] = run.stopped
                break
            over = {*run.ended, *run.failed}
            tests = [test for test in tests if test not in over and test.split("::")[0] not in over]
        return None

    def _program_fails(self, target: str) -> bool:
        return not self._checkout.make(target, PROGRAM_S)

    def _test_fails(self, test: str) -> bool:
        """Returns True if a test fails, alone, in the tree as it is."""
        return bool(self._checkout.pytest([], [test], limit=self._limit, hang=self._hang([test])).failed)

    def _hang(self, tests: Iterable[str]) -> float:
        return max(HANG_S, 3 * max(self._seconds.get(test, 0.0) for test in tests))

    def _holds(self, test: str, change: Changed, fails: Callable[[], bool]) -> bool:
        """Returns True if a test that failed does so again, and passes without the fault; else it is left
        out."""
        if fails():
            change.undo()
            passes = not fails()
            change.make()
            if passes:
                return True
        self._outcome["left_out"].append(test)
        return False


def try_all(
    faults: Sequence[Fault],
    checkouts: Sequence[Checkout],
    reached: dict[str, Any],
    limit: float,
    out: Path,
    known: dict[str, Outcome],
) -> None:
    """Tries faults, one at a time in each tree, and keeps the results up to date."""
    results: dict[str, Outcome] = json.loads(out.read_text()) if out.exists() else {}
    queue: SimpleQueue[Fault] = SimpleQueue()
    # What takes long to build comes last.
    for fault in sorted(faults, key=lambda each: (each.file.endswith(".pxi"), each.is_native)):
        if fault.id not in results:
            queue.put(fault)
    lock = threading.Lock()  # of the results

    def work_on(fault: Fault, checkout: Checkout) -> None:
        try:
            outcome = Trial(fault, checkout, reached, limit, known.get(fault.id, {}).get("caught")).run()
        except Exception as error:  # the others go on
            say(f"{fault.id}: no result: {error!r}")
            return
        with lock:
            results[fault.id] = outcome
            _write(out, results)
            caught = outcome["caught"]
            say(
                f"{fault.id}: {'caught by ' + caught if caught else 'survives'} ({outcome['ran']} "
                f"tests, {outcome['seconds']:.0f} s)"
            )

    def work(checkout: Checkout) -> None:
        while not checkout.stopped:
            try:
                fault = queue.get_nowait()
            except Empty:
                return
            work_on(fault, checkout)

    with ThreadPoolExecutor(len(checkouts)) as pool:
        try:
            for done in [pool.submit(work, checkout) for checkout in checkouts]:
                done.result()
        finally:  # after Ctrl-C the trees are restored at once
            for checkout in checkouts:
                checkout.stopped = True


# ---- survivors


def survivors(
    faults: Sequence[Fault], checkout: Checkout, arguments: Sequence[str], limit: float, out: Path
) -> None:
    """Runs the whole suite once with all faults that survived, and notes in the results which are caught."""
    results: dict[str, Outcome] = json.loads(out.read_text())
    left = [fault for fault in faults if fault.id in results and results[fault.id]["caught"] is None]
    targets = [target for theirs in checkout.ctests().values() for target in theirs]
    with checkout.with_faults(left):
        programs = [target for target in targets if not checkout.make(target, PROGRAM_S)]
        run = checkout.pytest(arguments, limit=limit)
    say(
        f"{len(left)} faults at once: {len(run.failed)} tests and {len(programs)} C programs fail in "
        f"{run.seconds:.0f} s"
    )
    steady = {target for target in programs if checkout.make(target, PROGRAM_S)}
    if run.failed:
        steady |= {*run.failed} - {*checkout.pytest([], run.failed, limit=limit).failed}
    for test in (*programs, *run.failed):
        say(f"  {test}" + ("" if test in steady else ", and without a fault"))
    if not steady:
        return
    for fault in left:
        with checkout.with_faults([fault]):
            caught = (
                [target for target in programs if target in steady and not checkout.make(target, PROGRAM_S)]
                if fault.file.endswith(".c")
                else []
            )
            tests = [test for test in run.failed if test in steady]
            caught += checkout.pytest([], tests, limit=limit).failed if tests and not caught else []
        if caught:
            results[fault.id] |= {"caught": caught[0], "whole": True}
            _write(out, results)
            say(f"{fault.id}: caught by {', '.join(caught)}")


# ---- report


def report(faults: Sequence[Fault], paths: Sequence[Path]) -> None:
    """Prints how many faults each file of results has caught, by room and kind, and those that survive."""
    results = [json.loads(path.read_text()) for path in paths]
    say("caught of tried: " + ", ".join(path.name for path in paths))
    groups: dict[str, list[Fault]] = {"all": list(faults)}
    for fault in faults:
        groups.setdefault(fault.kind, []).append(fault)
    for fault in faults:
        groups.setdefault(fault.room, []).append(fault)
    for name, group in groups.items():
        say(
            f"  {name:13}"
            + "".join(_share([found[fault.id] for fault in group if fault.id in found]) for found in results)
        )
    for path, found in zip(paths, results, strict=True):
        say(f"survivors of {path.name}:")
        for fault in faults:
            if (outcome := found.get(fault.id)) is not None and outcome["caught"] is None:
                say(f"  {fault.id} ({fault.kind}; {outcome['ran']} of {outcome['reached']} tests ran)")


def _share(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(outcome['caught'] is not None for outcome in outcomes):5} of {len(outcomes):2}"


# ---- the command


def _write(path: Path, content: Any) -> None:
    """Writes JSON whole: who is stopped keeps the old file."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(content, indent=1) + "\n")
    beside.replace(path)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    own, rest = (list(arguments), []) if "--" not in arguments else _split(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=Path, default=lists.FAULTS, help="the list")
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--tree", type=Path, action="append", required=True, help="a prepared worktree; `try` takes several"
    )
    common.add_argument("--python", help="its interpreter, by default .venv/bin/python in it")
    common.add_argument("--only", action="append", metavar="ID", help="a fault; by default all")
    commands.add_parser("check").add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[2], help="a checkout"
    )
    for name, limit in (("reach", 14400.0), ("try", 600.0), ("survivors", 14400.0)):
        command = commands.add_parser(name, parents=[common])
        command.add_argument(
            "--out", type=Path, required=True, help="the file to write; of `survivors`, the results of `try`"
        )
        command.add_argument(
            "--limit", type=float, default=limit, help="seconds: of a fault's tests, or of the suite"
        )
    commands.choices["try"].add_argument(
        "--reach", type=Path, required=True, help="the file that `reach` wrote"
    )
    commands.choices["try"].add_argument(
        "--known", type=Path, metavar="FILE", help="results of another suite"
    )
    commands.add_parser("report").add_argument("results", type=Path, nargs="+")
    options = parser.parse_args(own)
    options.pytest = rest
    return options


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def main(arguments: Sequence[str]) -> int:
    """Runs a command."""
    options = _parsed(arguments)
    faults = lists.load(options.faults)
    if options.command == "check":
        return check(faults, options.root)
    if options.command == "report":
        report(faults, options.results)
        return 0
    chosen = [fault for fault in faults if options.only is None or fault.id in options.only]
    checkouts = [Checkout(tree, options.python) for tree in options.tree]
    try:
        for checkout in checkouts:
            if wrong := lists.problems(chosen, checkout.root):
                raise SystemExit("\n".join(wrong))
        if options.command == "reach":
            reach(chosen, checkouts[0], options.pytest, options.limit, options.out)
        elif options.command == "try":
            known = {} if options.known is None else json.loads(options.known.read_text())
            try_all(
                chosen, checkouts, json.loads(options.reach.read_text()), options.limit, options.out, known
            )
        else:
            survivors(chosen, checkouts[0], options.pytest, options.limit, options.out)
    finally:
        for checkout in checkouts:
            checkout.close()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the sources are restored
    sys.exit(main(sys.argv[1:]))
