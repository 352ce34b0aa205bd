"""What a release needs: a dated changelog, addresses of the repository that makes it, and a README whose
links work on PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fastload import __version__

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from release_notes import check_address, notes  # noqa: E402

PACKAGE = '__version__ = "1.2.3"\n'


def test_notes_are_the_section_of_the_tag() -> None:
    changelog = "# Changelog\n\n## 1.2.3 (2026-01-31)\n\n- New.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n"
    assert notes("v1.2.3", PACKAGE, changelog) == "- New.\n"


@pytest.mark.parametrize(
    ("tag", "head", "message"),
    [
        ("v1.2.4", "1.2.3 (2026-01-31)", "tag v1.2.3"),
        ("v1.2.3", "1.2.3 (unreleased)", "write `## 1.2.3"),
        ("v1.2.3", "1.2.2 (2026-01-31)", "write `## 1.2.3"),
        ("v1.2.3", "1.2.3 (2026-02-31)", "which is none"),
        ("v1.2.3", "1.2.3", "write `## 1.2.3"),
    ],
)
def test_what_is_not_ready_is_refused(tag: str, head: str, message: str) -> None:
    """Another version, no date, or a day that never was."""
    with pytest.raises(SystemExit, match=re.escape(message)):
        notes(tag, PACKAGE, f"# Changelog\n\n## {head}\n\n- New.\n")


def test_a_fork_changes_its_addresses() -> None:
    """All addresses lead to the repository that makes the release."""
    project = (ROOT / "pyproject.toml").read_text()
    (source,) = re.findall(r'^Source = "(\S+)"$', project, re.MULTILINE)
    check_address(project, source)
    with pytest.raises(SystemExit, match=re.escape("change [project.urls]")):
        check_address(project, f"{source}-fork")


def test_the_changelog_has_this_version() -> None:
    """Dated once it is released, and first."""
    head = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert head is not None
    assert re.fullmatch(rf"{re.escape(__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", head[1]), head[1]


def test_a_release_is_told_in_a_page() -> None:
    """At most 25 points, under the usual headings."""
    first = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert set(re.findall(r"^### (.+)$", first, re.MULTILINE)) <= {
        "Added",
        "Changed",
        "Fixed",
        "Removed",
        "Known limits",
    }
    assert len(re.findall(r"^- ", first, re.MULTILINE)) <= 25


def test_metadata(tmp_path: Path) -> None:
    """README's links are absolute and lead to files that exist; author, keywords, licence and addresses
    are there."""
    code = (
        "from setuptools.build_meta import prepare_metadata_for_build_wheel as make; import sys; "
        "make(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.dist-info/METADATA")
    head, _, readme = path.read_text(encoding="utf-8").partition("\n\n")
    for line in (
        "Name: torch-fastload",
        f"Version: {__version__}",
        "Author: fastload developers",
        "Description-Content-Type: text/markdown",
    ):
        assert line in head.splitlines()
    for name in ("Source", "Issues", "Security", "Changelog", "Documentation"):
        assert f"Project-URL: {name}, https://" in head
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", readme)
    assert pictures
    assert all(f"/raw/v{__version__}/" in link for link in pictures), (
        "a page that shows a picture is no picture"
    )
    links = re.findall(r"\]\(([^)]*)\)", readme)
    assert len(links) > 20
    for link in links:
        assert link.startswith("https://"), link
        if ours := re.search(rf"/(?:blob|raw)/v{re.escape(__version__)}/([^#]*)", link):
            assert (ROOT / ours[1]).exists(), link


def test_the_source_distribution_builds_by_itself(tmp_path: Path) -> None:
    """It holds every source of the package, and no test: tests need the rest of the checkout."""
    checkout = tmp_path / "checkout"
    for name in ("csrc", "fastload", "licenses", "tests/build"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    files = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
    for name in (*files, "tests/test_slips.py"):
        shutil.copy(ROOT / name, checkout / name)
    code = "from setuptools.build_meta import build_sdist; import sys; build_sdist(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    sources = {
        str(each.relative_to(checkout))
        for name in ("csrc", "fastload", "licenses")
        for each in (checkout / name).rglob("*")
        if each.is_file()
    }
    generated = {"PKG-INFO", "setup.cfg"}
    assert {each for each in held if not each.startswith("torch_fastload.egg-info/")} == (
        sources | set(files) | generated
    )
