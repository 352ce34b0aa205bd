"""Faults of faults.toml: how each is put into a source, and how a probe is put before its line."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tomllib

FAULTS = Path(__file__).with_name("faults.toml")
KINDS = ("operator", "bound", "lock", "return", "line")
HEADER = "common/mutant_hits.h"
"""The header of probes, in csrc."""
HITS = "_mutant_hits"
"""The module of probes, in the package."""


@dataclass(frozen=True)
class Fault:
    """A fault, as faults.toml describes it; `number` is its place there, and its byte among the hits."""

    number: int
    id: str
    file: str
    kind: str
    old: str
    new: str
    probe: str = ""

    @property
    def room(self) -> str:
        """The room of its file: `packing`, `loader.py`, `csrc/jpeg`."""
        parts = self.file.split("/")
        return "/".join(parts[:2]) if parts[0] == "csrc" else parts[1]

    @property
    def is_native(self) -> bool:
        """True if the native module has to be built for it."""
        return not self.file.endswith(".py")

    def applied(self, text: str) -> str:
        """The source with the fault. Raises ValueError where the source does not have the place once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.id}: `old` occurs {count} times in {self.file}: restore the file, or mend the list"
            )
        return text.replace(self.old, self.new)

    def line(self, text: str) -> int:
        """The line (from 0) before which its probe goes."""
        lines = text.splitlines()
        if self.probe:
            if lines.count(self.probe) != 1:
                raise ValueError(
                    f"{self.id}: {self.file} has the line of `probe` {lines.count(self.probe)} times"
                )
            return lines.index(self.probe)
        differ = next(
            (at for at, (old, new) in enumerate(zip(self.old, self.new, strict=False)) if old != new),
            len(self.new),
        )
        line = text.count("\n", 0, text.index(self.old) + differ)
        return line if self.is_native else _statement(text, line)


def load(path: Path = FAULTS) -> list[Fault]:
    """The faults of a list."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    return [Fault(number, **entry) for number, entry in enumerate(entries)]


def problems(faults: Iterable[Fault], root: Path) -> list[str]:
    """Mistakes in a list, for the sources below `root`; none: each fault can be applied, and changes
    something."""
    found, ids = [], set[str]()
    for fault in faults:
        try:
            text = (root / fault.file).read_text(encoding="utf-8")
            changed = fault.applied(text)
            fault.line(text)
            if fault.file.endswith(".py"):
                ast.parse(changed)
        except (OSError, ValueError, SyntaxError) as error:
            found.append(f"{fault.id}: {error}")
        if fault.old == fault.new or fault.kind not in KINDS or fault.id in ids:
            found.append(f"{fault.id}: it changes nothing, is of no known kind, or is there twice")
        ids.add(fault.id)
    return found


def _statement(text: str, line: int) -> int:
    """The first line of the innermost Python statement at a line, of those that begin one."""
    lines = text.splitlines()
    first = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno - 1 <= line < (node.end_lineno or node.lineno):
            if not lines[node.lineno - 1][: node.col_offset].strip():
                first = max(first, node.lineno - 1)
    return first


def probed(text: str, faults: Iterable[Fault]) -> str:
    """A source with a probe for each of its faults, and what the probes need."""
    lines = text.splitlines(keepends=True)
    file = ""
    for fault in sorted(faults, key=lambda each: each.line(text), reverse=True):
        file, at = fault.file, fault.line(text)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines.insert(at, indent + (_PROBES[Path(file).suffix] % fault.number) + "\n")
    if file.endswith(".py"):
        lines.insert(_after_future(text), f"from {file.split('/')[0]}.{HITS} import HITS as _MUTANT_HITS\n")
    else:
        lines.insert(0, _NEEDS[Path(file).suffix])
    return "".join(lines)


_PROBES = {".py": "_MUTANT_HITS[%d] = 1", ".c": "MUTANT_HIT(%d);", ".pxi": "MUTANT_HIT(%d)"}
_NEEDS = {
    ".c": f'#include "{HEADER}"\n',
    ".pxi": f'cdef extern from "{HEADER}" nogil:\n    void MUTANT_HIT(int number) noexcept\n\n',
}


def _after_future(text: str) -> int:
    """The line after a module's docstring and its imports from __future__."""
    after = 0
    for node in ast.parse(text).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        after = node.end_lineno or 0
    return after
