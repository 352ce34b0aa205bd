"""The lists in docs/architecture.md that follow from the code: `python tools/architecture_lists.py` writes
them anew.

- Rooms by floor: the layers of import-linter in pyproject.toml, each room with the first sentence of its
  docstring.
- The index of NOTEs. A NOTE is a comment or a part of a docstring that explains one hard thing, once: a line
  `NOTE [ room: topic ]`, then its text. Other places cite it by that name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"

_SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".c", ".h"}
_HEAD = re.compile(r"^[\s/*#]*NOTE \[ ([^\]\n]+) \]\s*$", re.MULTILINE)
_CITED = re.compile(r"NOTE \[ ([^\]]+?) \]")
_PART = re.compile(r"(<!-- list: (\w+) -->\n).*?(<!-- end of the list -->)", re.DOTALL)


def _sources(*folders: str) -> list[Path]:
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES
    )


def notes() -> list[tuple[str, str]]:
    """(name, path) of every NOTE, in the order of names."""
    sources = _sources("fastload", "csrc", "tests")
    found = [
        (name, path.relative_to(ROOT).as_posix())
        for path in sources
        for name in _HEAD.findall(path.read_text())
    ]
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


def floors() -> list[list[str]]:
    """Rooms of the Python package, floor by floor from the top, as import-linter holds them."""
    text = (ROOT / "pyproject.toml").read_text()
    layers = re.search(r'type = "layers"\ncontainers = \["fastload"\]\nlayers = \[(.*?)\]', text, re.DOTALL)
    assert layers is not None, "pyproject.toml has no layers"
    return [re.split(r" [|:] ", floor) for floor in re.findall(r'"([^"]+)"', layers[1])]


def _first_paragraph(room: str) -> tuple[str, str]:
    """(path, first paragraph of the docstring) of a room."""
    folder = ROOT / "fastload" / room
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    if room == "_native":  # a Cython module
        return (
            "fastload/_native",
            "csrc as Python sees it: a cdef class for each C handle, one funnel for errors.",
        )
    paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return (folder if folder.is_dir() else path).relative_to(ROOT).as_posix(), " ".join(paragraph.split())


def _rooms() -> list[str]:
    rows = ["| floor | room | what it is |", "|---:|---|---|"]
    for number, rooms in enumerate(reversed(floors()), start=1):
        for room in rooms:
            path, line = _first_paragraph(room)
            rows.append(f"| {number} | `{path}` | {line} |".replace("``", "`"))
    return [*rows[:2], *reversed(rows[2:])]


def _notes() -> list[str]:
    return ["| NOTE | in |", "|---|---|", *(f"| {name} | `{path}` |" for name, path in notes())]


def with_lists(page: str) -> str:
    """The page's text with its lists as they are to be."""

    def part(match: re.Match[str]) -> str:
        rows = {"rooms": _rooms, "notes": _notes}[match[2]]()
        return "\n".join([match[1], *rows, "", match[3]])

    return _PART.sub(part, page)


if __name__ == "__main__":
    PAGE.write_text(with_lists(PAGE.read_text()))
