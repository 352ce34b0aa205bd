"""The distribution's name: in one constant, in pyproject.toml, and in every sentence that says what to
install."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastload.common.distribution import DISTRIBUTION, pip_install

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("fastload", "docs", "examples", "tools", "benchmarks", ".github", "tests")


def texts() -> dict[str, str]:
    """Every text of the checkout that a user may read, by its path."""
    found = [each for folder in FOLDERS for each in (ROOT / folder).rglob("*")]
    found += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    kinds = {".py", ".md", ".toml", ".yml", ".sh", ".pyx", ".pxi", ".pyi", ""}
    return {
        str(each.relative_to(ROOT)): each.read_text(encoding="utf-8", errors="ignore")
        for each in found
        if each.is_file()
        and each.suffix in kinds
        and "__pycache__" not in each.parts
        and each != Path(__file__)
    }


def test_the_constant_is_the_name_in_pyproject(project: dict[str, Any]) -> None:
    assert project["name"] == DISTRIBUTION


def test_no_text_installs_another_project() -> None:
    """PyPI's `fastload` is somebody else's: no text asks pip for it, alone or with extras."""
    wrong = re.compile(
        r"""(?<![-\w])(?:pip3? (?:install|download)(?: -\S+)* ['"]?|['"`])fastload\\?\["""
        r"""|pip3? install ['"]?fastload\b(?!-)"""
    )
    assert [(name, match[0]) for name, text in texts().items() for match in wrong.finditer(text)] == []


def test_extras_that_name_extras_name_this_distribution(project: dict[str, Any]) -> None:
    """An extra made of others asks for this distribution's, which exist."""
    extras = project["optional-dependencies"]
    own = [
        (name, each) for name, needs in extras.items() for each in needs if re.match(r"[\w-]*fastload", each)
    ]
    assert len(own) >= 3
    for name, each in own:
        match = re.fullmatch(rf"{DISTRIBUTION}\[([\w,-]+)\]", each)
        assert match, (name, each)
        assert set(match[1].split(",")) <= set(extras)


def test_messages_name_extras_that_exist(project: dict[str, Any]) -> None:
    """Each extra of a message is one of pyproject.toml."""
    calls = re.compile(r"(?:pip_install\(|extra: str = )['\"](\w+)['\"]")
    named = {
        match
        for name, text in texts().items()
        if name.startswith("fastload/")
        for match in calls.findall(text)
    }
    assert named >= {"augment", "query", "remote"}
    assert named <= set(project["optional-dependencies"])


def test_the_command_is_quoted_for_a_shell() -> None:
    assert pip_install("query") == "pip install 'torch-fastload[query]'"
    assert pip_install("pack", "query") == "pip install 'torch-fastload[pack,query]'"
    assert pip_install() == "pip install torch-fastload"
