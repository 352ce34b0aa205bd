"""`make demo-remote`'s script: it packs into a bucket, fetches each byte once over two epochs, and leaves
no server behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pictures import write_folder
from servers.process import Unavailable, accepts
from servers.seaweedfs import weed

pytest.importorskip("obstore")

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "demo_remote.py"


@pytest.mark.long
def test_the_demo_trains_from_a_bucket(tmp_path: Path) -> None:
    """Epoch 1 fetches what is in the bucket, epoch 2 nothing; the server has ended with the script."""
    try:
        weed()
    except Unavailable as error:
        pytest.skip(str(error))
    photos = write_folder(tmp_path / "photos", 60)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-W", "error", str(SCRIPT), str(photos)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    fetched = [
        float(found) for found in re.findall(r"fetched from s3://demo/photos\.fl: ([\d.]+) MB", done.stdout)
    ]
    stored = sum(path.stat().st_size for path in photos.rglob("*.jpg")) / 1e6
    assert fetched[0] == pytest.approx(stored, rel=0.1)
    assert fetched[1:] == [0.0]
    assert len(re.findall(r"^epoch \d: loss", done.stdout, re.MULTILINE)) == 2
    port = re.search(r"http://127\.0\.0\.1:(\d+), bucket demo", done.stdout)
    assert port is not None
    assert not accepts(int(port[1]))
