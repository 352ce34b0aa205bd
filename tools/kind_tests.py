"""Counts the places that ask which kind a field is of, or how an image is stored, outside of
fastload/store/kinds.

    python tools/kind_tests.py [FOLDER]

FOLDER: the package, by default fastload. A place is a comparison of a kind (a name `kind`, an attribute
`.kind`, an item of `kinds`) with the name of a kind or of an image codec, with `core.KIND_...`, or with a set
of kinds; or an item that a table has for a kind. The files come with their counts, the most first, and the
sum last.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = frozenset(
    "image int float array bytes text json mask boxes keypoints polygons instances "  # kinds
    "jpeg dct raw planes place".split()  # image codecs
)
REGISTRIES = frozenset(("KINDS", "CODECS", "BY_ENTRY"))
"""Tables of the classes themselves: who looks one up asks it, and not which it is."""
OWN = "store/kinds/"
"""The folder whose files may ask."""


def _is_kind(node: ast.expr) -> bool:
    """Whether an expression's name says that its value is a kind; one of a dtype is another."""
    if isinstance(node, ast.Attribute):
        return node.attr == "kind" and not (
            isinstance(node.value, ast.Attribute) and node.value.attr == "dtype"
        )
    if isinstance(node, ast.Subscript):
        return _last(node.value).endswith("kinds")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return _last(node.func.value).endswith("kinds")
    return isinstance(node, ast.Name) and node.id.endswith("kind")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _named(node: ast.expr) -> bool:
    """Whether an expression has the name of a kind, or `core.KIND_...`, in it; or is a constant that may
    be a set of kinds."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and part.value in NAMES:
            return True
        if isinstance(part, ast.Attribute) and part.attr.startswith("KIND_"):
            return True
    return False


def _set_of_kinds(node: ast.expr, tree_names: frozenset[str]) -> bool:
    return _last(node).lstrip("_").isupper() and _last(node) in tree_names - REGISTRIES


def places(path: Path) -> Iterator[ast.expr]:
    """The places in one file."""
    tree = ast.parse(path.read_text())
    # Names that are bound to something with a kind's name in it, or come from elsewhere: sets and tables of
    # kinds.
    known = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if (
            targets
            and isinstance(node, ast.Assign | ast.AnnAssign)
            and node.value is not None
            and _named(node.value)
        ):
            known |= {_last(target) for target in targets}
    names = frozenset(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = [
                side
                for side in sides
                if any(isinstance(part, ast.expr) and _is_kind(part) for part in ast.walk(side))
            ]
            others = [side for side in sides if side not in asked]
            if asked and any(_named(side) or _set_of_kinds(side, names) for side in others):
                yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name | ast.Attribute):
            if _is_kind(node.slice) and _set_of_kinds(node.value, names):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            if node.args and _is_kind(node.args[0]) and _set_of_kinds(node.func.value, names):
                yield node


def main(folder: Path) -> None:
    """Prints the counts."""
    found = {
        path: sorted({node.lineno for node in places(path)})
        for path in sorted(folder.rglob("*.py"))
        if OWN not in str(path)
    }
    found = {path: lines for path, lines in found.items() if lines}
    for path, lines in sorted(found.items(), key=lambda item: -len(item[1])):
        sys.stdout.write(f"{len(lines):4} {path}: {', '.join(map(str, lines))}\n")
    sys.stdout.write(f"{sum(map(len, found.values()))} lines in {len(found)} files\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "fastload")
