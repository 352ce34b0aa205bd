"""attach(ray=...) of objects in a store makes the dataset of an attach by threads, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import files_of, folder
from packing_helpers import encoded, picture
from servers.seaweedfs import SeaweedFS
from test_pack_from_url import files

import fastload
from fastload.errors import ArgumentError, PackError, PackStoppedError
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects
from fastload.store import Manifest

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
URL = "s3://fastload/attached-on-a-cluster"


@pytest.fixture
def put(seaweedfs: SeaweedFS) -> Iterator[Callable[[dict[str, bytes]], Objects]]:
    """Puts objects at URL, which are removed after the test."""
    objects = open_objects(URL, seaweedfs.options(), 20)

    def done(content: dict[str, bytes]) -> Objects:
        for name, data in content.items():
            objects.put(name, data)
        return objects

    yield done
    for each in objects.list():
        objects.delete(each.name)
    objects.close()


def loose() -> dict[str, bytes]:
    return {f"{number % 2}/{number:02}.jpg": encoded(picture(number, 24, 32)) for number in range(9)}


@pytest.mark.parametrize("check", [None, "entropy"])
@pytest.mark.parametrize("kind", ["tar", "parquet", "tfrecord", "loose"])
def test_the_same_bytes(
    kind: str, check: Any, tmp_path: Path, cluster: Any, put: Callable[..., Objects], seaweedfs: SeaweedFS
) -> None:
    put(loose() if kind == "loose" else files(kind))
    source = URL if kind == "loose" else f"{URL}/*.{kind}"
    options: dict[str, Any] = {"check": check, "storage_options": seaweedfs.options()}
    one = fastload.attach(source, tmp_path / "one", **options)
    many = fastload.attach(source, tmp_path / "many", ray=cluster.address, **options)
    found, expected = (files_of(tmp_path / name) for name in ("many", "one"))
    told = Manifest.load(tmp_path / "many")
    assert replace(Manifest.load(tmp_path / "one"), summary=told.summary) == told
    del (
        found["manifest.json"],
        expected["manifest.json"],
    )  # which notes what was read whole, by measured times
    assert found == expected
    assert (many.samples, many.attached, many.skipped) == (one.samples, one.attached, one.skipped)


def test_what_is_wrong(
    tmp_path: Path, cluster: Any, put: Callable[..., Objects], seaweedfs: SeaweedFS
) -> None:
    """Errors are those of threads, in a sentence; a resume goes on; files on a disk are refused."""
    put({**files("tar"), "train-001.tar": b"<html>" * 400})
    options: dict[str, Any] = {"storage_options": seaweedfs.options(), "ray": cluster.address}
    with pytest.raises(PackStoppedError) as caught:
        fastload.attach(f"{URL}/*.tar", tmp_path / "out", **options)
    assert (str(caught.value).count("\n"), "train-001.tar" in str(caught.value)) == (0, True)
    summary = fastload.attach(f"{URL}/*.tar", tmp_path / "out", resume=True, on_error="skip", **options)
    assert (len(summary.skipped), summary.samples) == (1, 10)
    with pytest.raises(ArgumentError, match="ray= is for URLs"):
        fastload.attach(folder(tmp_path / "src", count=2), tmp_path / "local", ray=cluster.address)
    with pytest.raises(PackError, match="no Ray cluster"):
        fastload.attach(f"{URL}/*.tar", tmp_path / "none", **{**options, "ray": "127.0.0.1:9"})
