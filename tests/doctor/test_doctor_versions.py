"""Versions that `fastload doctor` refuses: the ranges of pyproject.toml, and torch with a torchvision of
another release."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fastload.doctor.software import PYTHONS, RANGES, TORCH, TORCHVISION_AHEAD, packages, parsed, torchvision

ROOT = Path(__file__).resolve().parents[2]
GOOD = {each.name: each.least for each in RANGES}


def test_the_ranges_are_those_of_the_package(project: dict[str, Any]) -> None:
    """Each range is a requirement of pyproject.toml, and all that it requires of a job have one."""
    required, extras = (
        project["dependencies"],
        [*chain.from_iterable(project["optional-dependencies"].values())],
    )
    for each in (TORCH, *RANGES):
        assert each.requirement in (required if each.required else extras)
    # The command itself runs on them.
    names = {re.split(r"[<>=]", line)[0] for line in required} - {
        "typer",
        "rich",
    }
    assert names == {each.name for each in (TORCH, *RANGES) if each.required}
    assert PYTHONS == tuple(
        (3, edge(int(line.rpartition(".")[2]) for line in project["classifiers"] if "Python :: 3." in line))
        for edge in (min, max)
    )


def test_the_pair_of_the_extra_is_a_good_one(project: dict[str, Any]) -> None:
    """The torchvision that pyproject.toml pins is the one that goes with the Makefile's torch."""
    (pinned,) = (
        each for each in project["optional-dependencies"]["integrations"] if each.startswith("torchvision")
    )
    makes = re.search(r"torch==2\.(\d+)", (ROOT / "Makefile").read_text())
    assert makes is not None
    assert pinned == f"torchvision==0.{int(makes[1]) + TORCHVISION_AHEAD}.*"


def test_versions_are_compared_by_their_numbers() -> None:
    """A local part and zeros at the end count for nothing, and 2.10 is later than 2.9."""
    assert parsed("2.13.0+cpu") == parsed("2.13")
    assert parsed("2.10") > parsed("2.9.1")
    assert parsed("3") == parsed("3.0.0")


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("PyTurboJPEG", "2.0", "PyTurboJPEG 2.0 is too new"),
        ("numpy", "1.24.4", "numpy 1.24.4 is too old"),
        ("duckdb", "3.0.0", "duckdb 3.0.0 is too new"),
        ("lmdb", None, "lmdb is missing"),
    ],
)
def test_versions_out_of_range(name: str, version: str | None, words: str) -> None:
    """A version below or above its range, and a missing requirement, are bad; the remedy is pip's line for
    the range."""
    found = packages({**GOOD, name: version})
    (known,) = (each for each in RANGES if each.name == name)
    assert (found.verdict, found.remedy) == ("bad", f"pip install '{known.requirement}'")
    assert words in found.text


def test_a_missing_extra_is_no_fault() -> None:
    """Packages of extras that are not installed, and those within their ranges, are good."""
    assert packages(GOOD).verdict == "good"
    assert packages({**GOOD, "kornia": None, "ray": None}).verdict == "good"


def test_torchvision_of_another_release() -> None:
    """torch 2.6 goes with torchvision 0.21; another one is bad, with pip's line for the right one."""
    assert torchvision("0.21.0+cu124", {"torch": "2.6.0+cu124"}).verdict == "good"
    found = torchvision("0.20.1", {"torch": "2.6.0"})
    assert (found.verdict, found.remedy) == ("bad", "pip install 'torchvision==0.21.*'")
    found = torchvision(
        "0.21.0",
        {"torch": "2.6.0", "torchvision_error": "RuntimeError: operator torchvision::nms does not exist"},
    )
    assert found.verdict == "bad"
    assert "operator torchvision::nms does not exist" in found.text
    assert torchvision("0.21.0", "no module named torch").verdict == "unknown"
    assert torchvision(None, {"torch": "2.6.0"}).verdict == "good"
