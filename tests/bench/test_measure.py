"""The counters: against a process whose use of memory and CPU the test knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastload.bench import measure

needs_proc = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")


def test_median_leaves_out_what_is_missing() -> None:
    """None is not a zero: it does not pull a median down."""
    assert measure.median([3.0, None, 1.0, 2.0]) == 2.0
    assert measure.median([None, None]) is None
    assert measure.median([]) is None


def test_spread_is_half_the_range_over_the_median() -> None:
    """Rounds at 90, 100 and 110 lie 10% apart."""
    assert measure.spread([90.0, 110.0, 100.0]) == pytest.approx(0.1)
    assert measure.spread([5.0]) is None
    assert measure.spread([None, 5.0]) is None


# A process with a child that has a child; the innermost holds 48 MiB, then all wait for stdin to close.
FAMILY = """
import subprocess, sys
if int(sys.argv[1]):
    child = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(int(sys.argv[1]) - 1), sys.argv[2]],
        stdin=0)
    child.wait()
else:
    held = b"x" * (48 << 20)
    print("up", flush=True)
    sys.stdin.read()
"""


@needs_proc
def test_tree_counts_grandchildren() -> None:
    """Descendants of descendants are found, and the memory they hold is in the tree's PSS."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY, "2", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == "up\n"
        below = measure.descendants(root.pid)
        total = measure.tree_pss(root.pid)
        assert root.stdin is not None
        root.stdin.close()
    assert len(below) == 2
    assert root.pid not in below
    assert total is not None
    assert 48 << 20 <= total["pss"] < 48 << 23
    assert total["anon"] >= 48 << 20
    assert total["pss"] - sum(total[part] for part in ("anon", "file", "shmem")) == pytest.approx(
        0, abs=64 << 10
    )
    assert measure.descendants(root.pid) == []


@needs_proc
def test_pss_of_no_process_is_unknown() -> None:
    """A process that has ended has no PSS, rather than 0 bytes."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert measure.tree_pss(child.pid) is None


def test_cpu_seconds_include_an_ended_child() -> None:
    """What a child burnt is counted after it has ended."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before = measure.tree_cpu_seconds()
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert measure.tree_cpu_seconds() - before >= 0.29


@needs_proc
def test_cpu_seconds_include_a_live_child() -> None:
    """What a child has burnt is counted while it lives."""
    burn = (
        "import time, sys\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nsys.stdin.read()"
    )
    before = measure.tree_cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used = measure.tree_cpu_seconds() - before
        assert child.stdin is not None
        child.stdin.close()
    assert used >= 0.27  # a tick or two may be missing


def test_machine_facts_name_no_host_and_no_path() -> None:
    """The facts say what the numbers depend on, and nothing that identifies the machine."""
    facts = measure.machine_facts()
    assert facts["cores"] == measure.cores() >= 1
    assert {"cpu", "torch", "libjpeg_turbo", "python", "pillow"} <= facts.keys()
    text = json.dumps(facts)
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text


OPEN = """
import mmap, os, sys
fd = os.memfd_create("unmapped")
os.write(fd, bytes(24 << 20))
mapped = mmap.mmap(fd, 24 << 20) if "untouched" in sys.argv or "half" in sys.argv else None
if "half" in sys.argv:
    sum(mapped[: 12 << 20])
print("up", flush=True)
sys.stdin.read()
"""


@needs_proc
@pytest.mark.parametrize("state", ["unmapped", "untouched", "half"])
def test_shared_memory_that_nobody_has_touched_counts(state: str) -> None:
    """A batch on its way lies in shared memory that is open, and mapped by no process; one that was not read
    yet is mapped."""
    with subprocess.Popen(
        [sys.executable, "-c", OPEN, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        total = measure.tree_pss(child.pid)
        assert child.stdin is not None
        child.stdin.close()
    assert total is not None
    assert 24 << 20 <= total["shmem"] < 25 << 20
    assert total["pss"] >= 24 << 20
