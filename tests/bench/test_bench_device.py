"""benchmarks/bench_device.py runs, on the CPU, in sizes that take seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="no checkout")
def test_every_part_is_measured(tmp_path: Path) -> None:
    """One command prints one table and every target; a part that was measured has a figure."""
    (tmp_path / "corpus").mkdir()
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "bench_device.py"),
        "--device",
        "cpu",
        "--tiny",
        "--corpus",
        str(tmp_path / "corpus"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    for line in ("fused", "RandAugment(2, 9)", "ResNet-50 step, fed", "FastLoader, 2 workers", "targets"):
        assert line in done.stdout
    # torch's DataLoader, where torchvision is not for this torch.
    assert done.stdout.count("not measured") <= 1
