"""Repositories on the Hugging Face Hub: attached at the commit that they have, read by HTTP, listed by the
Hub's API; the real huggingface_hub asks a stand-in for the Hub."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
import torch
from servers.hub import Hub
from test_attach_url import MIDDLE
from test_pack_from_url import EACH, TARS, files, picture

from fastload import FastLoader, PackedDataset, read
from fastload.errors import ArgumentError, FastloadError, RemoteError
from fastload.packing import attach, pack
from fastload.remote.hub_urls import pinned
from fastload.store import Manifest

URL = "hf://datasets/owner/name"


def in_data(kind: str) -> dict[str, bytes]:
    return {"README.md": b"#", **{f"data/{name}": content for name, content in files(kind).items()}}


@pytest.mark.parametrize("kind", ["tar", "arrow"])
def test_attached(kind: str, tmp_path: Path) -> None:
    """By pattern, by name and by folder; a later commit changes nothing until it is attached again; the token
    stays with the Hub."""
    for name, data in files(kind).items():
        (tmp_path / name).write_bytes(data)
    attach(str(tmp_path / f"train-*.{kind}"), tmp_path / "local.fl")
    expected = [
        tuple(each) for each in PackedDataset(tmp_path / "local.fl", MIDDLE, fields=("image", "label"))
    ]
    with Hub(in_data(kind), "secret") as hub:
        options: dict[str, Any] = {"storage_options": {"token": "secret", "endpoint": hub.endpoint}}
        (commit,) = hub.commits
        ways = [
            f"{URL}/data/train-*.{kind}",
            f"{URL}@main/data/",
            [f"{URL}@{commit}/data/train-{number:03}.{kind}" for number in range(TARS)],
        ]
        for number, way in enumerate(ways):
            assert attach(way, tmp_path / f"{number}.fl", **options).samples == TARS * EACH
            shards = Manifest.load(tmp_path / f"{number}.fl").shards
            assert [shard.foreign.url for shard in shards if shard.foreign] == [
                f"{URL}@{commit}/data/train-{each:03}.{kind}" for each in range(TARS)
            ]
        assert hub.commit({}) != commit
        found = PackedDataset(
            tmp_path / "0.fl", MIDDLE, fields=("image", "label"), cache=tmp_path / "cache", **options
        )
        loader = FastLoader(found, batch_size=None, num_workers=2)
        for (image, label), (other, its) in zip(loader, expected, strict=True):
            assert torch.equal(image, other)
            assert label == its
        found.close()
        assert not hub.leaked
        with pytest.raises(FastloadError, match="no object matches"):
            attach(ways[0], tmp_path / "later.fl", **options)


def test_packed(tmp_path: Path) -> None:
    """What can be attached is packed, too."""
    with Hub(in_data("parquet")) as hub:
        options: dict[str, Any] = {"storage_options": {"endpoint": hub.endpoint}}
        for command in (attach, pack):
            summary = command(f"{URL}/data/*.parquet", tmp_path / f"{command.__name__}.fl", **options)
            assert summary.samples == TARS * EACH


STREAM = """
import sys
import datasets, datasets.distributed, numpy, fastload
from fastload.errors import ArgumentError

datasets.disable_progress_bars()
stream = datasets.load_dataset("owner/name", split="train", streaming=True)
found = fastload.read(stream, cache=sys.argv[1])
assert found.classes == stream.features["label"].names, found.classes
count = 0
for (image, label), theirs in zip(found, stream, strict=True):
    assert label == theirs["label"]
    assert numpy.array_equal(image.permute(1, 2, 0), theirs["image"].convert("RGB"))
    count += 1
loader = fastload.FastLoader(
    fastload.read(stream, transform=fastload.transforms.CenterCrop(48), cache=sys.argv[1]),
    batch_size=4, shuffle=True, num_workers=2,
)
labels = sorted(label for _, labels in loader for label in labels.tolist())
assert labels == sorted(each["label"] for each in stream)
for step in (
    lambda: stream.map(lambda each: each), lambda: stream.filter(bool), lambda: stream.shuffle(),
    lambda: stream.take(2), lambda: stream.with_format("torch"), lambda: stream.select_columns(["image"]),
    lambda: stream.cast_column("image", datasets.Image(decode=False)),
    lambda: datasets.distributed.split_dataset_by_node(stream, 0, 2),
):
    try:
        fastload.read(step(), cache=sys.argv[1])
    except ArgumentError as error:
        assert "give the dataset as load_dataset(..., streaming=True) returns it" in str(error)
    else:
        raise AssertionError("taken")
print(count)
"""


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_streamed(compression: str, tmp_path: Path) -> None:
    """A dataset that Hugging Face's library streams is read as its files, with its classes and pixels; one
    with a step of its own is refused."""
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]))
    content = {"README.md": b"#"}
    for number in range(TARS):
        images = [{"bytes": picture(EACH * number + each), "path": None} for each in range(EACH)]
        table = datasets.Dataset.from_dict(
            {"image": images, "label": [each % 2 for each in range(EACH)]}, features=features
        )
        data = io.BytesIO()
        if compression == "none":
            table.to_parquet(data)
        else:
            rows = table.with_format("arrow")[:].cast(features.arrow_schema)
            pq.write_table(rows, data, compression=compression)
        content[f"data/train-{number:05}-of-{TARS:05}.parquet"] = data.getvalue()
    with Hub(content) as hub:
        places = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-c", STREAM, str(tmp_path / "cache")],
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(TARS * EACH)]


def test_read_again(tmp_path: Path) -> None:
    """The dataset that is read follows its branch, and asks for nothing that it has."""
    with Hub(in_data("tar")) as hub:
        options: dict[str, Any] = {"storage_options": {"endpoint": hub.endpoint}, "cache": tmp_path}
        source = f"{URL}/data/*.tar"
        first = read(source, transform=MIDDLE, label=".cls", **options)
        assert [label for _, label in first] == list(range(TARS * EACH))
        first.close()
        hub.requests.clear()
        again = read(source, transform=MIDDLE, label=".cls", **options)
        assert [label for _, label in again] == list(range(TARS * EACH))
        assert not any("resolve" in path for _, path in hub.requests)
        again.close()
        hub.commit({"data/a.tar": files("tar")["train-001.tar"]})
        assert [label for _, label in read(source, transform=MIDDLE, label=".cls", **options)] == [
            *range(EACH, 2 * EACH)
        ]


def test_what_is_wrong(tmp_path: Path) -> None:
    """A URL without a repository, one that is not there, and one that wants a token are named."""
    with Hub(in_data("tar"), "secret") as hub:
        options: dict[str, Any] = {"storage_options": {"endpoint": hub.endpoint, "token": "secret"}}
        for url, kind, reason in (
            ("hf://datasets/alone", ArgumentError, "names no repository"),
            ("hf://datasets/owner/other/a.tar", RemoteError, "owner/other.*does not give it"),
            (f"{URL}@gone/a.tar", RemoteError, "does not give it"),
            (f"{URL}/gone.tar", FastloadError, "gone.tar: no such"),
        ):
            for command in (attach, pack):
                with pytest.raises(kind, match=reason):
                    command(url, tmp_path / "out.fl", **options)
        with pytest.raises(RemoteError, match="gated"):
            attach(f"{URL}/a.tar", tmp_path / "out.fl", storage_options={"endpoint": hub.endpoint})


@pytest.mark.parametrize("revision", ["", "@main", "@refs/convert/parquet", "@v1%2F2"])
def test_pinned(revision: str) -> None:
    """A commit stays in the URL; repositories are asked for once."""
    commit = "a" * 40
    known = {f"datasets/owner/name@{revision[1:].replace('%2F', '/') or 'main'}": commit}
    assert pinned(f"{URL}{revision}/data/0.tar", {}, known) == f"{URL}@{commit}/data/0.tar"
    assert pinned(f"{URL}@{commit}/data/0.tar", {}, {}) == f"{URL}@{commit}/data/0.tar"
