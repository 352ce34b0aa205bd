"""Datasets in a bucket: `fastload doctor` measures the store itself, by the loader's fetcher, and leaves
the user's cache alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from examined import bad, doctor
from servers.seaweedfs import SeaweedFS

from fastload import push

URL = "s3://fastload/doctor.fl"


def options(server: SeaweedFS) -> list[str]:
    """The options by which a command reaches the server."""
    given = {**server.options(), "client_options.allow_http": "true"}
    return [part for name, value in given.items() for part in ("--storage-option", f"{name}={value}")]


@pytest.mark.long
def test_a_dataset_in_a_bucket(packed: Path, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    """Samples are fetched in order and at random, checked and decoded; the user's cache folder is not
    made."""
    push(packed, URL, storage_options=seaweedfs.options())
    cache = tmp_path / "cache"
    arguments = [URL, *options(seaweedfs), "--size", "64", "--batch-size", "4", "--step-ms", "60000"]
    _, found = doctor(*arguments, env={"FASTLOAD_CACHE": str(cache), "TMPDIR": str(tmp_path)})
    assert bad(found) == set()
    assert not cache.exists()
    assert list(tmp_path.iterdir()) == []
    assert found["dataset"]["value"]["path"] == URL
    assert found["dataset"]["value"]["samples"] == 50
    assert found["bucket"]["value"]["in_order"] > 0
    assert found["bucket"]["value"]["at_random"] > 0
    assert 16 <= found["bucket"]["value"]["samples"] <= 50
    assert found["bucket"]["verdict"] == "good"
    assert found["records"]["value"]["bad"] == []
    assert found["decoding"]["value"]["failed"] == 0
    assert found["step"]["verdict"] == "good"
    assert {"disk", "page cache"}.isdisjoint(found)


def test_a_bucket_without_the_dataset(seaweedfs: SeaweedFS) -> None:
    """A URL at which nothing is, is one bad line; secrets of the options are in none."""
    status, found = doctor("s3://fastload/nothing.fl", *options(seaweedfs))
    assert status == 1
    assert bad(found) == {"dataset"}
    assert "s3://fastload/nothing.fl" in found["dataset"]["text"]
    assert seaweedfs.secret not in str(found)


def test_a_store_that_is_not_there(seaweedfs: SeaweedFS) -> None:
    """A store that does not answer is bad once --timeout has passed."""
    given = [
        "--storage-option",
        "endpoint=http://127.0.0.1:1",
        "--storage-option",
        "client_options.allow_http=true",
        "--timeout",
        "2s",
    ]
    status, found = doctor(
        URL, *given, "--storage-option", "access_key_id=x", "--storage-option", "secret_access_key=y"
    )
    assert status == 1
    assert bad(found) == {"dataset"}
    assert URL in found["dataset"]["text"]
