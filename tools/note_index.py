"""The index of NOTEs in docs/architecture.md: `python tools/note_index.py` writes it anew.

A NOTE is a comment or a part of a docstring that explains one hard thing, once: a line `NOTE [ room: topic ]`, then its text. Other places
cite it by that name.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- index of NOTEs -->", "<!-- end of the index -->"

_SUFFIXES = {".py", ".pyx", ".pxi", ".c", ".h"}
_HEAD = re.compile(r"^[\s/*#]*NOTE \[ ([^\]\n]+) \]\s*$", re.MULTILINE)
_CITED = re.compile(r"NOTE \[ ([^\]]+?) \]")


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES)


def notes() -> list[tuple[str, str]]:
    """(name, path) of every NOTE, in the order of names."""
    sources = _sources("fastload", "csrc", "tests")
    found = [(name, path.relative_to(ROOT).as_posix()) for path in sources for name in _HEAD.findall(path.read_text())]
    return sorted(found)


def dangling() -> list[str]:
    """Citations of NOTEs that there are not, and names that two NOTEs have."""
    names = [name for name, _ in notes()]
    wrong = [f"two NOTEs are called {name}" for name in sorted(set(names)) if names.count(name) > 1]
    for path in _sources("fastload", "csrc", "tests", "benchmarks"):
        for cited in _CITED.findall(path.read_text()):
            name = re.sub(r"[\s#*/]+", " ", cited).strip()
            if name not in names:
                wrong.append(f"{path.relative_to(ROOT)} cites {name}")
    return wrong


def with_index(page: str) -> str:
    """The page's text with the index as it is to be."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    rows = [f"| {name} | `{path}` |" for name, path in notes()]
    return "\n".join([f"{before}{BEGIN}", "", "| NOTE | in |", "|---|---|", *rows, "", f"{END}{after}"])


if __name__ == "__main__":
    PAGE.write_text(with_index(PAGE.read_text()))
