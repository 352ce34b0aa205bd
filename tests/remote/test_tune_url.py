"""``fastload tune URL``: the loader of a dataset in a bucket, with caches of several sizes; no assertion
on speed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import typer
from reading import URL
from servers.seaweedfs import SeaweedFS
from typer.testing import CliRunner

from fastload.cli.tune import tune
from fastload.tune.choose import choose


def test_sizes_of_the_cache_are_tried(
    seaweedfs: SeaweedFS, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting has its rounds, the cache's among them; the choice follows from them; the user's own
    cache holds no samples of it."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = typer.Typer()
    app.command()(tune)
    options = [f"--storage-option={key}={value}" for key, value in seaweedfs.options().items()]
    done = CliRunner().invoke(
        app,
        [URL, "--json", "--seconds", "3", "--batch-size", "16", "--size", "32", "--limit", "70", *options],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["work"]["dataset"] == URL
    assert document["work"]["limit"] == 64
    (sizes,) = (trial for trial in document["trials"] if trial["setting"] == "cache size")
    rounds = {row["value"]: row["rounds"] for row in sizes["values"]}
    assert list(rounds) == ["25%", "50%", "100%"]
    assert all(rounds.values())
    assert choose(rounds, "100%").value == sizes["chosen"]
    assert document["advice"]["cache_share"] == {"25%": 0.25, "50%": 0.5, "100%": None}[sizes["chosen"]]
    assert set(document["skipped"]) == {"encode"}
    assert not list(tmp_path.glob("fastload-tune*"))
    assert sum(path.stat().st_blocks for path in (tmp_path / "cache").rglob("shard-*")) == 0


def test_fewer_samples_than_a_batch(
    seaweedfs: SeaweedFS, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused by their number: a limit of whole batches would leave none, which means no limit."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    app = typer.Typer()
    app.command()(tune)
    options = [f"--storage-option={key}={value}" for key, value in seaweedfs.options().items()]
    done = CliRunner().invoke(
        app,
        [URL, "--json", "--seconds", "1", "--batch-size", "64", "--size", "32", "--limit", "30", *options],
    )
    assert "30 images do not fill one batch of 64" in str(done.exception)
