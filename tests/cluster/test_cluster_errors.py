"""What cannot be packed on a cluster ends in one sentence that says what to do, and within a limit."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import COUNT, EACH, folder
from sources import KillsAlways

import fastload
from fastload.errors import ArgumentError, PackError, ResourceError
from fastload.packing.cluster import driver
from fastload.sources.folder import FolderSource

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("address", ["nix", "http://", "127.0.0.1", "host:port"])
def test_bad_addresses(tmp_path: Path, ray_environment: Path, address: str) -> None:
    with pytest.raises(ArgumentError, match="no address of a Ray cluster"):
        fastload.pack(folder(tmp_path / "src", count=2), tmp_path / "out", ray=address)
    assert not (tmp_path / "out").exists()


def test_no_cluster(tmp_path: Path, ray_environment: Path) -> None:
    """Nothing listens at the address; nothing is made."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(PackError, match="there is no Ray cluster at 127"):
            fastload.pack(folder(tmp_path / "src", count=2), tmp_path / "out", ray=address)
    assert not (tmp_path / "out").exists()


def test_ray_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest)
    )
    with pytest.raises(ArgumentError, match=r"pip install 'torch-fastload\[ray\]'"):
        fastload.pack(folder(tmp_path / "src", count=2), tmp_path / "out", ray=True)


@pytest.mark.parametrize(
    "given", [{"shard_size": "1GiB"}, {"staging": "."}, {"storage_options": {"endpoint": "x"}}]
)
def test_options_without_meaning(tmp_path: Path, cluster: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(given))):
        fastload.pack(folder(tmp_path / "src", count=2), tmp_path / "out", ray=cluster.address, **given)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path that leads to a folder of this process alone, as a local disk's does: each process has
    another working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("/proc/self/cwd")


def test_out_that_nodes_do_not_share(tmp_path: Path, cluster: Any, own_folder: Path) -> None:
    source = folder(tmp_path / "src")
    with pytest.raises(
        PackError, match=r"is not the same folder on node .*: give a folder that all nodes share, or a URL"
    ):
        fastload.pack(source, own_folder / "out", shard_samples=EACH, ray=cluster.address)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_source_that_only_the_driver_sees(
    tmp_path: Path, cluster: Any, own_folder: Path, on_error: Any
) -> None:
    """By its path, and as an object whose files are only here: nothing is left out as bad samples."""
    folder(tmp_path / "src")
    for source in (own_folder / "src", FolderSource(str(own_folder / "src"))):
        with pytest.raises(
            PackError,
            match=r"node .* cannot read the source, .*: every node has to see the source under the same path",
        ):
            fastload.pack(
                source,
                tmp_path / f"out-{type(source).__name__}",
                shard_samples=EACH,
                on_error=on_error,
                ray=cluster.address,
            )


def test_a_source_that_cannot_be_sent(tmp_path: Path, cluster: Any) -> None:
    source = FolderSource(str(folder(tmp_path / "src")))
    source.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(PackError, match="a FolderSource, cannot be sent to the nodes"):
        fastload.pack(source, tmp_path / "out", ray=cluster.address)


def test_no_node_for_a_task(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that want more CPUs than any node has are given up after a while."""
    monkeypatch.setattr(driver, "NO_NODE_LIMIT", 1.0)
    with pytest.raises(PackError, match="no node with 7 CPUs"):
        fastload.pack(folder(tmp_path / "src"), tmp_path / "out", workers=7, ray=cluster.address)


def test_a_worker_that_is_killed_each_time(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose process the kernel kills is run again so many times, by another process each; then the
    error names its shard."""
    monkeypatch.setattr(driver, "RETRIES", 1)
    root, killed = folder(tmp_path / "src"), tmp_path / "killed"
    killed.mkdir()
    with pytest.raises(PackError, match=r"shard-00002\.lmdb.* 2 times.*memory.*resume=True") as caught:
        fastload.pack(
            KillsAlways(root, 2 * EACH + 3, killed), tmp_path / "out", shard_samples=EACH, ray=cluster.address
        )
    assert "\n" not in str(caught.value)
    assert len(list(killed.iterdir())) == 2
    summary = fastload.pack(
        FolderSource(str(root)), tmp_path / "out", shard_samples=EACH, ray=cluster.address, resume=True
    )
    assert summary.samples == COUNT


def test_a_node_without_memory(
    tmp_path: Path, ray_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that Ray's memory monitor ends are run again so many times, and not for ever: then the error
    says that memory is short."""
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(driver, "RETRIES", 1)
    # Any machine uses more than that.
    short = {
        "memory_usage_threshold": 0.001,
        "memory_monitor_refresh_ms": 100,
    }
    node = {
        "num_cpus": 1,
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
        "_system_config": short,
    }
    started = Cluster(initialize_head=True, head_node_args=node)
    try:
        with pytest.raises(
            ResourceError,
            match=r"no memory for the task of shard-0000.\.lmdb.* 2 times.*max_pixels.*resume=True",
        ):
            fastload.pack(folder(tmp_path / "src"), tmp_path / "out", shard_samples=EACH, ray=started.address)
    finally:
        started.shutdown()


def test_folders_in_the_way(tmp_path: Path, cluster: Any) -> None:
    """A pack begun on one machine is not resumed on a cluster; other files are left alone; shards without
    a journal are none of its."""
    source, out = folder(tmp_path / "src", bad=(20,)), tmp_path / "out"
    with pytest.raises(PackError):
        fastload.pack(source, out, shard_samples=EACH)
    with pytest.raises(PackError, match="was begun on one machine"):
        fastload.pack(source, out, shard_samples=EACH, ray=cluster.address, resume=True)
    os.unlink(out / "progress.json")
    with pytest.raises(PackError, match="lost"):
        fastload.pack(source, out, shard_samples=EACH, ray=cluster.address, resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(PackError, match="holds other files"):
            fastload.pack(source, other, ray=cluster.address, **how)  # type: ignore[arg-type]
    assert os.listdir(other) == ["notes.txt"]
