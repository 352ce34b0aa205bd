"""Commands on a dataset whose samples have any number of images: they speak of the images, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm
from documents import documents, write_json

COUNT = sum(len(row["images"]) for row in documents())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    source = write_json(folder, "a.jsonl")
    done = warm.fastload("pack", str(source), str(folder / "documents.fl"))
    assert done.returncode == 0, done.stderr
    assert "JSON with lists of images" in done.stdout
    return folder / "documents.fl"


def said(*arguments: str) -> str:
    done = warm.fastload(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_info_counts_the_images(packed: Path) -> None:
    """With their size; the cost of an epoch is theirs."""
    assert f"{COUNT}, " in next(
        line for line in said("info", str(packed)).splitlines() if "  images " in line
    )
    document = json.loads(said("info", "--json", "--cost", str(packed)))
    assert (document["samples"], document["images"]["samples"]) == (len(documents()), COUNT)
    assert document["cost"] == json.loads(said("info", "--json", "--cost", str(packed / "images")))["cost"]


def test_others_look_at_the_images(packed: Path) -> None:
    """doctor decodes some, tune tries them, verify and index go through all of them."""
    found = "".join(warm.fastload("doctor", str(packed)).stdout.split())
    assert f"{packed}/images:{COUNT}samples" in found
    assert "gooddecoding" in found
    assert "default" in said("tune", str(packed), "--batch-size", "4", "--seconds", "1", "--size", "32")
    assert "2 shards hold" in said("verify", str(packed))
    assert "have an entropy index" in said("index", str(packed))


def test_view_shows_every_image(packed: Path, tmp_path: Path) -> None:
    assert f"{COUNT} samples" in said("view", str(packed), "--html", str(tmp_path / "x.html"))
    assert "all images of samples" in (tmp_path / "x.html").read_text()
