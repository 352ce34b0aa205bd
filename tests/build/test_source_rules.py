"""Rules that all Python files keep, read from their syntax trees."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import fastload

ROOT = Path(fastload.__path__[0]).parent


def test_images_are_opened_in_one_place() -> None:
    """`Image.open`, which takes any format unless they are named, is called once in all that is shipped and
    run, and once where a benchmark imitates other people's programs; those of other loaders, in environments
    of their own, call it as their users do."""
    files = [
        path
        for folder in ("fastload", "benchmarks", "examples", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    files = [path for path in files if path.parent != ROOT / "benchmarks" / "peers"]
    nodes = [
        (path.name, node) for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    names = ("Image", "PIL")
    calls = [
        name
        for name, node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "open" and getattr(node.value, "id", "") in names
    ]
    assert calls == ["images.py", "program_boxes.py"]


def test_names_of_test_files_are_unique() -> None:
    """pytest imports each by its name alone, and so do helpers that stand beside them."""
    found = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in found.items() if count > 1 and name != "__init__.py"] == []
