"""Ray is imported where a pack on a cluster is asked for, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster_helpers import folder


def test_nothing_imports_ray(tmp_path: Path) -> None:
    """Neither fastload with all its modules for packing, nor a pack on one machine."""
    script = (
        "import sys, fastload, fastload.cli.main, fastload.packing.cluster.driver, "
        "fastload.packing.cluster.task;"
        "fastload.pack(sys.argv[1], sys.argv[2], shard_samples=3);"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'ray']"
    )
    subprocess.run(
        [sys.executable, "-c", script, folder(tmp_path / "src", count=6), tmp_path / "out"],
        check=True,
        timeout=120,
    )
