"""The documentation's pages and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block: its language, the rest of the line that opens it, and its text."""

    language: str
    attributes: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(language, attributes.strip(), text)
        for language, attributes, text in _BLOCK.findall(page.read_text())
    ]


def name_of(page: Path) -> str:
    """A page's path inside the project."""
    return page.relative_to(ROOT).as_posix()


def side(diff: str, sign: str) -> str:
    """The program before ("-") or after ("+") a diff, whose every line begins with a blank, - or +."""
    lines = diff.splitlines()
    assert all(line[:1] in (" ", "-", "+") for line in lines), diff
    return "\n".join(line[1:] for line in lines if line[0] in (" ", sign)) + "\n"
