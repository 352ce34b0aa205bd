"""The log line of files in place: once in a process, whatever is read (fastload/engines/plan.py)."""

from __future__ import annotations

from pathlib import Path

import warm
from in_place_helpers import image_folder

HERE = Path(__file__).parent
PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
import torchvision_ops
import logging
from in_place_helpers import EXACT
from torchvision.datasets import ImageFolder
from fastload import FastLoader

class Lines(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.getMessage())

logging.getLogger("fastload").addHandler(Lines())
logging.getLogger("fastload").propagate = False
for engine in ("python", "native", "native", None):
    dataset = ImageFolder(sys.argv[1], EXACT)
    print("engine", engine)
    for epoch in range(2):
        print(sum(len(labels) for _, labels in FastLoader(dataset, batch_size=4, num_workers=0,
            engine=engine)), "samples")
"""


def test_it_is_said_once_in_a_process(tmp_path: Path) -> None:
    """The first loader that reads files in place says it, and none after it; engine="python" says nothing."""
    done = warm.run(PROGRAM, image_folder(tmp_path), HERE, HERE.parents[1])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("WARNING")]
    assert len(said) == 1, lines
    assert lines.index("engine native") + 1 == lines.index(said[0])
    assert said[0].startswith("WARNING ImageFolder is read in place by native threads")
    assert all(
        part in said[0]
        for part in (
            "(seed, epoch, index)",
            "within 1 of Pillow's",
            'engine="python"',
            "FASTLOAD_ENGINE=python",
        )
    )
    assert lines.count("12 samples") == 8


def test_a_program_may_silence_it(tmp_path: Path) -> None:
    done = warm.run(
        PROGRAM.replace("for engine", 'logging.getLogger("fastload").setLevel("ERROR")\nfor engine'),
        image_folder(tmp_path),
        HERE,
        HERE.parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout
    assert "read in place" not in done.stderr
