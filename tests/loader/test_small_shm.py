"""A container's /dev/shm of 64 MB: large batches go through memory that does not live there. Needs a mount
namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastload

ROOT = Path(fastload.__file__).parents[1]
LIMITED = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]
# 2 workers x 8 batches ahead x 9.6 MB: 154 MB in flight, and four batches held. A file of its own, so that
# spawn can import it.
PROGRAM = """
import os
import sys

import torch

import fastload

BYTES = 64 * 3 * 224 * 224


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


def whole(samples):
    return torch.full((64, 3, 224, 224), samples[0], dtype=torch.uint8), samples[0]


def run(method):
    stat = os.statvfs("/dev/shm")
    assert stat.f_frsize * stat.f_blocks == 64 << 20, "the limit is not in place"
    loader = fastload.FastLoader(
        Numbers(), collate_fn=whole, num_workers=2, prefetch_factor=8, multiprocessing_context=method,
        timeout=60,
    )
    held = []
    for epoch in range(2):
        for number, (batch, said) in enumerate(loader):
            assert said == number and batch.nbytes == BYTES
            if number % 10 == 9:
                held.append((number, batch))
            assert bool((batch == number).all())
        assert number == 39
    assert len(held) == 8
    kept = [bool((batch == number).all()) for number, batch in held]
    assert all(kept), "a batch that is held was overwritten"
    left = os.statvfs("/dev/shm")
    assert left.f_blocks - left.f_bfree <= 1 << 20 >> 12, "the batches live in /dev/shm after all"
    print("done", method)


if __name__ == "__main__":
    for each in ("fork", "spawn"):
        run(each)
"""


@pytest.fixture(scope="module")
def limited() -> list[str]:
    """What to put before a command so that it finds 64 MB in /dev/shm; or a skip where mount namespaces
    are not permitted."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare on this machine")
    tried = subprocess.run([*LIMITED, "true"], capture_output=True, text=True, timeout=30, check=False)
    if tried.returncode:
        pytest.skip(f"no mount namespace of one's own here (needs CAP_SYS_ADMIN): {tried.stderr.strip()}")
    return LIMITED


@pytest.mark.long
def test_large_batches_with_a_small_dev_shm(limited: list[str], tmp_path: Path) -> None:
    """154 MB of batches in flight, some held, arrive whole and in order where /dev/shm has room for six of
    them: from forked workers, and then from spawned ones."""
    program = tmp_path / "large_batches.py"
    program.write_text(PROGRAM, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        [*limited, sys.executable, program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done fork\ndone spawn\n"
