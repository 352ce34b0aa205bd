"""Repositories on the Hugging Face Hub: attached at the commit that they have, read by HTTP, listed by the
Hub's API; the real huggingface_hub asks a stand-in for the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from servers.hub import Hub
from test_attach_url import MIDDLE
from test_pack_from_url import EACH, TARS, files

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
    """What cannot be attached, as compressed pages, is packed."""
    with Hub(in_data("parquet")) as hub:
        options: dict[str, Any] = {"storage_options": {"endpoint": hub.endpoint}}
        with pytest.raises(FastloadError, match="fastload pack"):
            attach(f"{URL}/data/*.parquet", tmp_path / "out.fl", **options)
        assert pack(f"{URL}/data/*.parquet", tmp_path / "packed.fl", **options).samples == TARS * EACH


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
