"""`fastload cache` of files in place: what it lists, verifies and prunes."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from kept_helpers import (
    COUNT,
    come,
    expected,
    folder_of,
    images,
    kept_of,
    known,
    loader_of,
    log_of,
    logs_are_cut,
    of_kind,
    used,
)
from typer.testing import CliRunner

from fastload import FastLoader
from fastload._native import core
from fastload.cli.main import app
from fastload.dataset import kept_folder
from fastload.dataset.in_place import listed
from fastload.remote.cache_folder import read_used


def run(cache: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["cache", "--cache", str(cache), *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def cache(tree: Path, tmp_path: Path) -> Path:
    """A cache that has everything of the tree."""
    with loader_of(tree, tmp_path / "cache") as loader:
        images(loader)
        assert come(loader)
        assert logs_are_cut(tmp_path / "cache")
    return tmp_path / "cache"


def come_again(loader: FastLoader[Any]) -> bool:
    """Waits until the forms of half of the files, which have changed, are made again."""
    deadline = time.monotonic() + 30
    while kept_of(loader)._table.counts()["forms_put"] < COUNT // 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return kept_of(loader)._table.counts()["forms_put"] >= COUNT // 2


def test_listed(cache: Path) -> None:
    (share,) = kept_folder.shares_of(folder_of(cache))
    assert share == (COUNT, COUNT, 0, COUNT)
    assert f"{COUNT} of {COUNT} images known, {COUNT} in a form that decodes faster" in run(cache)


def test_listed_with_the_files_of_a_slow_disk(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    with loader_of(tree, tmp_path / "cache") as loader:
        images(loader)
    assert f"{COUNT} of {COUNT} images known, the files of {COUNT}" in run(tmp_path / "cache")


def test_what_is_damaged_is_removed(tree: Path, cache: Path) -> None:
    """The others are found as before; what was removed is made again."""
    assert f"{2 * COUNT} entries, 0 damaged" in run(cache, "--verify")
    log = log_of(cache)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    assert f"{2 * COUNT} entries, 1 damaged, which were removed" in run(cache, "--verify")
    assert f"{2 * COUNT - 1} entries, 0 damaged" in run(cache, "--verify")
    with loader_of(tree, cache) as loader:
        assert torch.equal(images(loader), expected(tree))
        assert come(loader)


def test_room_of_files_that_changed_is_given_back(tree: Path, cache: Path) -> None:
    """All that is still right is found afterwards, in the place of the logs that were there."""
    before = sum(log.stat().st_size for log in of_kind(cache, "log"))
    for path in sorted(tree.rglob("*.jpg"))[: COUNT // 2]:
        path.write_bytes(path.read_bytes())
    with loader_of(tree, cache) as loader:
        images(loader)
        assert images(loader) is not None
        assert " 0 B given back" in run(cache, "--prune")  # it is in use
        assert come_again(loader)
    del loader
    gc.collect()
    grown = sum(log.stat().st_size for log in of_kind(cache, "log"))
    assert grown > 1.4 * before
    said = run(cache, "--prune")
    assert "given back" in said
    assert " 0 B given back" not in said
    log = log_of(cache)
    assert log.stat().st_size < 1.02 * before
    assert read_used(folder_of(cache)) < 1.2 * before + (1 << 20)
    with loader_of(tree, cache) as loader:
        assert known(loader) == (COUNT, 0)
        assert torch.equal(images(loader), expected(tree))
        assert used(loader) >= COUNT
        assert not kept_of(loader)._table.counts()["forms_put"]


def test_indexes_of_what_has_a_form_are_given_back(tree: Path, cache: Path) -> None:
    """While the loader lives, and by its successor; images are known to be sound all the same, and are read
    where a form is damaged."""
    log, odd = of_kind(cache, "log")
    forms_alone = sum(
        len(core.DctCoder().encode(path.read_bytes())[0] or b"") for path in tree.rglob("*.jpg")
    )
    assert log.stat().st_size == forms_alone
    odd.write_bytes(b"left by one that was killed")
    with loader_of(tree, cache) as loader:
        assert images(loader) is not None
        assert logs_are_cut(cache)
    log.write_bytes(bytes(forms_alone))
    with loader_of(tree, cache) as loader:
        assert known(loader) == (COUNT, 0)
        assert torch.equal(images(loader), expected(tree))


def test_a_damaged_entry_is_not_made_whole(tree: Path, cache: Path) -> None:
    """Of an image whose form is right: what says that it is sound goes."""
    (table,) = of_kind(cache, "table")
    raw = bytearray(table.read_bytes())
    raw[core.KEPT_HEAD + 20] ^= 1  # the first checksum
    table.write_bytes(raw)
    run(cache, "--prune")
    with loader_of(tree, cache) as loader:
        assert known(loader) == (COUNT - 1, 0)
        assert torch.equal(images(loader), expected(tree))


@pytest.mark.parametrize("option", ["--prune", "--verify"])
def test_a_table_that_ends_within_a_row(tree: Path, cache: Path, option: str) -> None:
    """As that of a list of which the last image has no form yet."""
    (table,) = of_kind(cache, "table")
    size = core.KEPT_HEAD + COUNT * core.KEPT_ROW
    assert table.stat().st_size == size
    os.truncate(table, size - core.KEPT_ROW // core.KEPT_PARTS - 5)
    log = log_of(cache)
    log.write_bytes(bytes(log.stat().st_size))  # so that verify writes, too
    run(cache, option)
    assert table.stat().st_size == size
    with loader_of(tree, cache) as loader:
        assert torch.equal(images(loader), expected(tree))


def test_lists_that_share_entries_share_them_after_it(tree: Path, cache: Path, tmp_path: Path) -> None:
    """The bytes of a file are copied once, whatever number of lists name it."""
    (tree / "class1").rename(tmp_path / "aside")
    with loader_of(tree, cache) as loader:
        images(loader)
    del loader
    gc.collect()
    (tmp_path / "aside").rename(tree / "class1")
    size = log_of(cache).stat().st_size
    assert len(of_kind(cache, "table")) == 2
    run(cache, "--prune")
    log = log_of(cache)
    assert log.stat().st_size <= size
    with loader_of(tree, cache) as loader:
        assert torch.equal(images(loader), expected(tree))
        assert used(loader) >= COUNT


def test_a_kill_while_it_prunes(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps: every image has its form, from the old log or the new one, or is read."""
    steps = ["fsync", "unlink"]
    for step in steps:
        with monkeypatch.context() as patch:

            def killed(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(kept_folder.os, step, killed)
            with pytest.raises(KeyboardInterrupt):
                kept_folder.prune(folder_of(cache))
        with loader_of(tree, cache) as loader:
            assert torch.equal(images(loader), expected(tree))
        del loader
        gc.collect()
    run(cache, "--prune")
    with loader_of(tree, cache) as loader:
        assert torch.equal(images(loader), expected(tree))
        assert used(loader) >= COUNT


def test_arguments(cache: Path) -> None:
    for given, reason in (
        (["--verify", "--prune"], "one of"),
        (["--remove", "--prune"], "one of"),
        (["--verify", "s3://bucket/a.fl"], "leave the URL out"),
    ):
        result = CliRunner().invoke(app, ["cache", "--cache", str(cache), *given])
        assert result.exit_code != 0
        assert reason in result.output + str(result.exception)


def test_a_folder_that_cannot_be_read(cache: Path) -> None:
    """A planted link in the place of a log, or a table of nothing, are no entries."""
    log = log_of(cache)
    log.unlink()
    os.symlink("/etc/passwd", log)
    (folder_of(cache) / f"{'0' * 32}.table").write_bytes(b"nothing")
    assert "in a form that decodes faster" in run(cache)
    assert f"{2 * COUNT} entries, {COUNT} damaged" in run(cache, "--verify")


def test_explain_says_the_share_of_a_host(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job on several hosts, which each have a folder."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with loader_of(tree, tmp_path / "cache") as loader:
        text = " ".join(loader.explain(all=True).split())
    assert "each of 4 hosts has a folder, with about 1/4 after one epoch" in text
