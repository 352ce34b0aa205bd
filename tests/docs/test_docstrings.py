"""Docstrings of the package name their subject: neither they nor their entries open with a word that
leaves it to be guessed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_helpers import ROOT

PACKAGE = sorted(
    path
    for path in (ROOT / "fastload").rglob("*.p*")
    if path.suffix in (".py", ".pyi", ".pyx", ".pxi", ".pxd")
)
_WORDS = "What|Of|How|Where|Which|That|Whether"
_OPENING = re.compile(rf"\s*({_WORDS})\b")
_ENTRY = re.compile(
    rf"^ +(?:\*{{0,2}}\w+(?:, \*{{0,2}}\w+)*: (?:{_WORDS.lower()})\b|Returns:\n +(?:{_WORDS})\b).*",
    re.MULTILINE,
)
_CYTHON = re.compile(r'^ *"""(.*?)"""', re.MULTILINE | re.DOTALL)


def docstrings(path: Path) -> Iterator[str]:
    """Every string that stands alone as a statement: of modules, classes and functions, and those behind a
    value."""
    text = path.read_text("utf-8")
    if path.suffix in (".py", ".pyi"):
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value
    else:
        yield from _CYTHON.findall(text)


def guessed(docstring: str) -> list[str]:
    """The first line, and the entries, that open with one of the words."""
    first = docstring.strip().partition("\n")[0]
    return [first] * bool(_OPENING.match(docstring)) + [
        found[0].strip() for found in _ENTRY.finditer(docstring)
    ]


def test_no_docstring_leaves_its_subject_to_be_guessed() -> None:
    """No docstring opens with "What", "Of" or "Whether", and no entry of Args, Attributes or Returns does."""
    found = {
        path.relative_to(ROOT): [line for text in docstrings(path) for line in guessed(text)]
        for path in PACKAGE
    }
    assert {str(path): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        '"""What a module has."""\n',
        'def f() -> bool:\n    """Whether it is."""\n',
        'LIMIT = 3\n"""Of a part."""\n',
        'class A:\n    """A thing.\n\n    Attributes:\n        size: of it.\n    """\n',
        'def f(a: int, b: int) -> None:\n    """Does it.\n\n    Args:\n        a, b: whether they '
        'are.\n    """\n',
        'def f() -> int:\n    """Counts.\n\n    Returns:\n        How many there are.\n    """\n',
    ],
)
@pytest.mark.parametrize("suffix", [".py", ".pxi"])
def test_the_check_finds_them(suffix: str, text: str, tmp_path: Path) -> None:
    """Each form of such a docstring is found, in Python and in Cython."""
    path = tmp_path / f"module{suffix}"
    path.write_text(text)
    assert len([line for found in docstrings(path) for line in guessed(found)]) == 1


def test_the_check_reads_the_package() -> None:
    """The check sees the package's docstrings: there are thousands."""
    assert sum(1 for path in PACKAGE for _ in docstrings(path)) > 3000
