"""`fastload cache`: lists, fills and removes what the local disk has of datasets in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pictures import write_folder
from servers.seaweedfs import SeaweedFS
from typer.testing import CliRunner

from fastload import PackedDataset, pack, push
from fastload.cli.main import app


def run(*arguments: str) -> str:
    """What a command writes; it succeeds."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_folder(tmp_path / "photos", 12)
    pack(tmp_path / "photos", tmp_path / "local.fl", progress=False)
    return tmp_path / "local.fl"


def test_filled_listed_removed(dataset: Path, seaweedfs: SeaweedFS, s3_url: str, tmp_path: Path) -> None:
    """A cache that was filled has every sample, nothing is fetched after that, and it is removed only
    while nobody has it open."""
    push(dataset, s3_url, storage_options=seaweedfs.options(), progress=False)
    given = [f"--storage-option={key}={value}" for key, value in seaweedfs.options().items()]
    cache = str(tmp_path / "cache")
    assert "12 of 12 samples are in the cache" in run("cache", s3_url, "--cache", cache, *given)
    listed = run("cache", "--cache", cache)
    assert s3_url in listed
    assert "in use" not in listed
    assert seaweedfs.secret not in listed
    with_bucket = PackedDataset(s3_url, cache=cache, storage_options=seaweedfs.options())
    try:
        assert [label for _, label in with_bucket] == [label for _, label in PackedDataset(dataset)]
        assert with_bucket.opened.reader.files.status().fetched == 0  # type: ignore[attr-defined]
        assert "in use" in run("cache", "--cache", cache)
        assert run("cache", "--remove", "--cache", cache).startswith("0 removed; 1 in use")
    finally:
        with_bucket.close()
    assert run("cache", s3_url, "--remove", "--cache", cache).startswith("1 removed")
    assert "0 datasets" in run("cache", "--cache", cache)


def test_no_room(dataset: Path, seaweedfs: SeaweedFS, s3_url: str, tmp_path: Path) -> None:
    """Where there is no room for all, the command says how much there is."""
    push(dataset, s3_url, storage_options=seaweedfs.options(), progress=False)
    given = [f"--storage-option={key}={value}" for key, value in seaweedfs.options().items()]
    assert "0 of 12 samples are in the cache, which has no room for more" in run(
        "cache", s3_url, "--cache", str(tmp_path / "cache"), "--cache-size", "0", *given
    )


def test_nothing_there(tmp_path: Path) -> None:
    """Removing what is not there is an error that names the cache and the URL."""
    result = CliRunner().invoke(app, ["cache", "s3://bucket/none.fl", "--remove", "--cache", str(tmp_path)])
    assert result.exit_code != 0
    assert "has nothing of s3://bucket/none.fl" in str(result.exception)
