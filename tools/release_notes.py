"""Prints the notes of a release, and refuses one that is not ready: `python tools/release_notes.py v1.2.3`.

The tag is the version of the package, and the changelog's first section is that version's, with a date:
`## 1.2.3 (2026-01-31)`. On GitHub, the addresses in pyproject.toml are those of the repository that makes the
release. Runs without fastload installed.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes(tag: str, package: str, changelog: str) -> str:
    """The changelog's section for a tag.

    Args:
        tag: as in `v1.2.3`.
        package: text of `fastload/__init__.py`.
        changelog: text of CHANGELOG.md.

    Raises:
        SystemExit: the tag is not the package's version, or the first section is another's, has no date, or
            is empty.
    """
    found = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    version = found[1] if found else "unknown"
    if tag != f"v{version}":
        raise SystemExit(
            f"the tag is {tag}, and fastload/__init__.py says {version}: tag v{version}, or change "
            "the version"
        )
    _, *sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    title, _, text = sections[0].partition("\n") if sections else ("", "", "")
    dated = re.fullmatch(r"(\S+) \((\d{4}-\d{2}-\d{2})\)", title.strip())
    if dated is None or dated[1] != version:
        raise SystemExit(
            f"CHANGELOG.md begins with {title.strip()!r}: write `## {version} (YYYY-MM-DD)`, with "
            "the day of the release"
        )
    try:
        datetime.date.fromisoformat(dated[2])
    except ValueError:
        raise SystemExit(f"CHANGELOG.md has the date {dated[2]}, which is none") from None
    if not text.strip():
        raise SystemExit(f"CHANGELOG.md says nothing of {version}")
    return text.strip() + "\n"


def check_address(project: str, repository: str) -> None:
    """Raises SystemExit if the addresses in pyproject.toml are not those of the repository that releases."""
    addresses = re.findall(
        r'^(?:Source|Issues|Security|Changelog|Documentation) = "(\S+)"$', project, re.MULTILINE
    )
    for address in addresses:
        if f"{address}/".startswith(f"{repository}/"):
            continue
        raise SystemExit(
            f"pyproject.toml sends users to {address}, and this is {repository}: change [project.urls]"
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} TAG")
    if "GITHUB_REPOSITORY" in os.environ:
        check_address(
            (ROOT / "pyproject.toml").read_text(),
            f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}",
        )
    sys.stdout.write(
        notes(
            sys.argv[1], (ROOT / "fastload" / "__init__.py").read_text(), (ROOT / "CHANGELOG.md").read_text()
        )
    )
