"""kill -9 at every request and disk call of push, pull and pack to a URL: the old dataset, none or the new
one, and a rerun ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm
from pictures import write_folder
from remote_kill_points import packed_from
from servers.seaweedfs import SeaweedFS

import fastload
from fastload.store import Manifest


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "points", "part"),
    [
        ("pack", 30, (1, 3)),
        ("pack", 30, (2, 3)),
        ("pack", 30, (3, 3)),
        ("overwrite", 10, (1, 1)),
        ("pull", 10, (1, 1)),
        ("push", 10, (1, 1)),
    ],
)
def test_killed_at_every_call(
    scenario: str, points: int, part: tuple[int, int], seaweedfs: SeaweedFS, s3_url: str, tmp_path: Path
) -> None:
    """See remote_kill_points.Scenarios; the points of a pack, which are many, come in three parts."""
    source = write_folder(
        tmp_path / "src", 18, size=lambda index: (400 + 37 * index % 200, 480 + 53 * index % 220)
    )
    packed_from(source, tmp_path / "one")
    assert len(Manifest.load(tmp_path / "one").shards) == 3
    fastload.pack(source, tmp_path / "two", shard_size="1MiB", limit=12)
    script = Path(__file__).with_name("remote_kill_points.py")
    done = warm.run(
        script, scenario, tmp_path, s3_url, json.dumps(seaweedfs.options()), *map(str, part), timeout=280
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) >= points
