"""JPEGs of which the DCT form is kept while the loop is busy: later epochs are decoded from it, to the same
pixels."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from kept_helpers import (
    COUNT,
    come,
    crops_of,
    expected,
    folder_of,
    forms,
    images,
    kept_of,
    known,
    loader_of,
    of_kind,
    used,
)
from PIL import Image


def test_later_epochs_are_decoded_from_the_form(tree: Path, tmp_path: Path) -> None:
    """In this run and in the next, with the pixels of the files; explain() says how far it is."""
    cache, wanted = tmp_path / "cache", expected(tree)
    with loader_of(tree, cache) as first:
        assert torch.equal(images(first), wanted)
        assert come(first)
        assert torch.equal(images(first), wanted)  # the next epoch had begun
        before = used(first)
        assert torch.equal(images(first), wanted)
        assert used(first) > before
        assert f"{COUNT} are there in a form that decodes faster" in " ".join(first.explain(all=True).split())
    size = sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    assert sum(path.stat().st_size for path in of_kind(cache, "log")) < 1.1 * size
    with loader_of(tree, cache) as second:
        assert torch.equal(images(second), wanted)
        assert used(second) >= COUNT
        assert not kept_of(second)._table.counts()["forms_put"]


def replaced(path: Path) -> None:
    Image.fromarray(np.full((50, 60, 3), 40, np.uint8)).save(path)


def written(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2] + b"\xff\xd9")


@pytest.mark.parametrize("change", [replaced, written])
def test_a_file_that_changed_is_read(tree: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    """And converted again, when it was proved sound again."""
    with loader_of(tree, tmp_path / "cache") as loader:
        images(loader)
        assert come(loader)
        change(sorted(tree.rglob("*.jpg"))[3])
        assert torch.equal(images(loader), expected(tree))
        deadline = time.monotonic() + 30
        while kept_of(loader)._table.counts()["forms_put"] == COUNT and time.monotonic() < deadline:
            time.sleep(0.01)
        assert kept_of(loader)._table.counts()["forms_put"] == COUNT + 1
        for _ in range(2):
            assert torch.equal(images(loader), expected(tree))


def test_files_that_have_no_form(tree: Path, tmp_path: Path) -> None:
    """A WebP, and a JPEG in CMYK."""
    paths = sorted(tree.rglob("*.jpg"))
    with Image.open(paths[0]) as image:
        image.save(paths[0].with_suffix(".webp"), lossless=True)
        image.convert("CMYK").save(paths[1])
    wanted = expected(tree)
    with loader_of(tree, tmp_path / "cache") as loader:
        for _ in range(3):
            assert torch.equal(images(loader), wanted)
            assert come(loader, COUNT - 1)


def test_progressive_files_and_grey_ones(tree: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted(tree.rglob("*.jpg"))):
        with Image.open(path) as image:
            image.convert("L" if number % 2 else "RGB").save(path, progressive=number % 3 > 0, quality=90)
    wanted = expected(tree)
    with loader_of(tree, tmp_path / "cache") as loader:
        assert torch.equal(images(loader), wanted)
        assert come(loader)
        assert torch.equal(images(loader), wanted)


@pytest.mark.parametrize("damage", ["bytes", "cut", "gone", "table"])
def test_a_damaged_form_counts_as_none(tree: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    with loader_of(tree, cache) as loader:
        images(loader)
        assert come(loader)
    for log in of_kind(cache, "table" if damage == "table" else "log"):
        data = bytearray(log.read_bytes())
        if damage == "gone":
            log.unlink()
            continue
        for at in range(64, len(data), 97):
            data[at] ^= 0x10
        log.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
    with loader_of(tree, cache) as loader:
        for _ in range(2):
            assert torch.equal(images(loader), expected(tree))


def test_no_room_for_forms(tree: Path, tmp_path: Path) -> None:
    """Facts are kept, and all indexes of the others, a few forms, and no byte above the limit."""
    cache = tmp_path / "cache"
    size = sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    with loader_of(tree, cache, cache_size=size // 2) as loader:
        for _ in range(3):
            assert torch.equal(images(loader), expected(tree))
            time.sleep(0.6)
        assert 0 < forms(loader) < COUNT
        assert known(loader)[0] == COUNT
        assert of_kind(cache, "log")[1].stat().st_size  # what others need has not gone
    held = sum(path.stat().st_blocks * 512 for path in cache.rglob("*") if path.is_file())
    assert held <= size // 2


def test_crops_and_scales_have_the_files_pixels(tree: Path, tmp_path: Path) -> None:
    """Random crops of both forms are equal, in every epoch."""
    plain, kept = crops_of(tree, None), crops_of(tree, tmp_path / "cache")
    with plain, kept:
        for _ in range(4):
            assert torch.equal(images(kept), images(plain))
            assert come(kept)
        assert used(kept) > COUNT


def test_a_fork_and_a_close_while_files_are_converted(tree: Path, tmp_path: Path) -> None:
    """A child ends without the parent's threads; a loader ends at once."""
    for _ in range(5):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        loader = loader_of(tree, tmp_path / "cache")
        images(loader)
        time.sleep(0.008)
        if (child := os.fork()) == 0:
            del loader
            os._exit(0)
        loader.close()
        assert os.waitpid(child, 0)[1] == 0
        assert folder_of(tmp_path / "cache")
