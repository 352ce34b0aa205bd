"""examples/pack_on_ray.py packs what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import COUNT, folder, path_of
from packing_helpers import stored_samples

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pack_on_ray.py"


@pytest.mark.parametrize("more", [(), ("--least-bytes", "100")], ids=["files", "ray.data"])
def test_example(tmp_path: Path, cluster: Any, more: tuple[str, ...]) -> None:
    """A bad file is left out, by fastload or by the example's own function; images are kept as they are."""
    source, out = folder(tmp_path / "src", bad=(9,)), tmp_path / "out"
    command = [
        sys.executable,
        SCRIPT,
        source,
        out,
        "--address",
        cluster.address,
        "--shard-samples",
        "16",
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT - 1} samples in 3 shards, {0 if more else 1} left out" in done.stdout
    good = [path_of(source, number).read_bytes() for number in range(COUNT) if number != 9]
    assert sorted(sample.data for sample in stored_samples(out)) == sorted(good)
