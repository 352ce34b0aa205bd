"""kill -9 at every request and disk call of push, pull and pack to a URL: the old dataset, none or the new one, and a rerun ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pictures import write_folder
from remote_kill_points import packed_from
from servers.seaweedfs import SeaweedFS

import fastload


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "points"), [("push", 10), ("overwrite", 10), ("pull", 10), ("pack", 30)])
def test_killed_at_every_call(scenario: str, points: int, seaweedfs: SeaweedFS, s3_url: str, tmp_path: Path) -> None:
    """See remote_kill_points.Scenarios."""
    source = write_folder(tmp_path / "src", 60)
    packed_from(source, tmp_path / "one")
    fastload.pack(source, tmp_path / "two", shard_size="1MiB", limit=40)
    script = Path(__file__).with_name("remote_kill_points.py")
    command = [sys.executable, str(script), scenario, str(tmp_path), s3_url, json.dumps(seaweedfs.options())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) >= points
