"""Fixtures of packing on a cluster: a Ray cluster of two raylets, each with one CPU, which are processes
of this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fastload

_TESTS = Path(__file__).resolve().parents[1]
for each in ("packing", "remote", "store"):  # their helpers are modules for these tests
    sys.path.insert(0, str(_TESTS / each))

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",
}
"""Ray reports to nobody, leaves no token in the home folder and says nothing of GPUs. Its workers run at
normal priority: the default niceness of 15 leaves them a thirtieth of a core beside a test that computes,
where importing torch takes minutes."""


@pytest.fixture(scope="session")
def ray_environment() -> Iterator[Path]:
    """The environment of raylets and drivers, and the folder that Ray has in place of /tmp/ray."""
    pytest.importorskip("ray", reason="packing on a cluster needs torch-fastload[ray]")
    folder = Path(tempfile.mkdtemp(prefix="flray-", dir="/tmp"))  # a short path: sockets lie below it
    paths = [
        str(Path(fastload.__file__).parents[1]),
        str(_TESTS / "cluster"),
        os.environ.get("PYTHONPATH", ""),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RAY_SETTINGS.items():
            patch.setenv(name, value)
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(ray_environment: Path) -> Iterator[Any]:
    """A cluster of two raylets, each with one CPU, shared by all tests; who kills a raylet adds one of its
    own first."""
    import ray
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 1,
        "object_store_memory": 80 << 20,
        "include_dashboard": False,
        "include_log_monitor": False,
    }
    started = Cluster(initialize_head=True, head_node_args=node)
    try:
        started.add_node(**node)
        yield started
    finally:
        ray.shutdown()
        started.shutdown()
