"""CPUs, memory and kills are read from the process's own control group and all above it, in versions 1 and
2; the tightest limit counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import pytest
from control_groups import groups

from fastload.common import system

GIB = 1 << 30
UNLIMITED = 9223372036854771712  # as version 1 writes "no limit"

V2_MOUNT = (
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 "
    "rw,nsdelegate,memory_recursiveprot"
)
V1_MEMORY = (
    "35 31 0:32 {shown} /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup "
    "rw,memory"
)
V1_CPU = (
    "33 31 0:30 {shown} /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup "
    "cgroup rw,cpu,cpuacct"
)
# What `systemd-run --user --scope` gave on Debian 12, shortened.
SCOPE = "user.slice/user-1000.slice/user@1000.service/app.slice/run-r83.scope"
# memory.stat after `cat` of a dataset twice: some of the cache is active, some is of tmpfs.
V2_STAT = """anon 104857600
file 3435973836
shmem 214748364
inactive_file 2147483648
active_file 1073741824
unevictable 0
slab_reclaimable 1000"""


def tree(root: Path, cgroup: str, mounts: list[str], files: dict[str, str], free: int = 64 * GIB) -> Path:
    """A file system with these of the kernel's files; names in `files` are below sys/fs/cgroup."""
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    files["proc/self/cgroup"] = cgroup
    files["proc/self/mountinfo"] = "\n".join(["22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw", *mounts])
    files["proc/meminfo"] = f"MemTotal: {free // 512} kB\nMemFree: 1000 kB\nMemAvailable: {free // 1024} kB\n"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def test_page_cache_is_not_used_memory(tmp_path: Path) -> None:
    """Version 2, a full page cache: files' pages, read once or often, count as free; anonymous and tmpfs
    pages do not."""
    files = {"memory.max": str(4 * GIB), "memory.current": str(4 * GIB - 4096), "memory.stat": V2_STAT}
    root = tree(tmp_path, "0::/", [V2_MOUNT], files)
    assert system.available_memory(root) == 4096 + 3 * GIB + 1000


def test_page_cache_in_version_1(tmp_path: Path) -> None:
    """Version 1: the total_ lines, which the groups below are counted in as in the usage."""
    stat = (
        "cache 5\ninactive_file 7\nactive_file 7\ntotal_cache 9000\ntotal_shmem 100\ntotal_inactive_file "
        "3000\ntotal_active_file 1000"
    )
    files = {
        "memory/memory.limit_in_bytes": "1000000",
        "memory/memory.usage_in_bytes": "999000",
        "memory/memory.stat": stat,
    }
    # A container without a namespace of its own: the mount shows its group as the root
    shown = "/kubepods/burstable/pod1f/ab12"
    root = tree(tmp_path, f"4:memory:{shown}", [V1_MEMORY.format(shown=shown)], files)
    assert system.available_memory(root) == 1000 + 4000


def test_the_tightest_of_all_groups_above(tmp_path: Path, eight_cpus: None) -> None:
    """A process far down a hierarchy is held by its ancestors' limits as well as its own."""
    files = {
        "user.slice/memory.max": str(2 * GIB),
        "user.slice/memory.current": str(1 * GIB),
        "user.slice/user-1000.slice/cpu.max": "250000 100000",
        "user.slice/user-1000.slice/memory.max": "max",
        "user.slice/user-1000.slice/memory.current": str(1 * GIB),
        f"{SCOPE}/memory.max": str(8 * GIB),
        f"{SCOPE}/memory.current": "0",
        f"{SCOPE}/cpu.max": "max 100000",
    }
    root = tree(tmp_path, f"0::/{SCOPE}", [V2_MOUNT], files)
    assert system.available_memory(root) == 1 * GIB
    assert system.available_cpus(root) == 3


def test_own_group_not_only_the_root(tmp_path: Path, eight_cpus: None) -> None:
    """The root of version 2 has no limit files at all: the process's own group is asked."""
    files = {
        "job/memory.max": "5000",
        "job/memory.current": "1000",
        "job/cpu.max": "200000 100000",
        "job/memory.events": "oom 3\noom_kill 2",
    }
    root = tree(tmp_path, "0::/job", [V2_MOUNT], files)
    assert (system.available_memory(root), system.available_cpus(root), system.oom_kills(root)) == (
        4000,
        2,
        2,
    )


def test_both_versions_side_by_side(tmp_path: Path, eight_cpus: None) -> None:
    """Hybrid: memory and CPU under version 1, an empty version 2 beside them; -1 and a huge number are no
    limits."""
    files = {
        "memory/memory.limit_in_bytes": str(UNLIMITED),
        "memory/memory.usage_in_bytes": "12345",
        "memory/job/memory.limit_in_bytes": "9000",
        "memory/job/memory.usage_in_bytes": "4000",
        "memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
        "cpu,cpuacct/job/cpu.cfs_period_us": "50000",
        "unified/cgroup.procs": "1",
    }
    mounts = [
        V1_CPU.format(shown="/"),
        V1_MEMORY.format(shown="/"),
        V2_MOUNT.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
    ]
    root = tree(tmp_path, "4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/job", mounts, files)
    assert (system.available_memory(root), system.available_cpus(root), system.oom_kills(root)) == (
        5000,
        3,
        1,
    )


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("10000 100000", 1), ("100000 100000", 1), ("150000 100000", 2), ("900000 100000", 8), ("max 1", 8)],
)
def test_a_quota_is_rounded_up(tmp_path: Path, eight_cpus: None, quota: str, cpus: int) -> None:
    """One rule for threads and for pack's workers: all of what is granted can be used, and at least one
    CPU is."""
    assert system.available_cpus(tree(tmp_path, "0::/", [V2_MOUNT], {"cpu.max": quota})) == cpus


def test_quota_and_limits_themselves(tmp_path: Path) -> None:
    """The tightest quota is a fraction, stopped periods are those of the own group, and the largest number
    of version 1 is no limit."""
    files = {
        "job/cpu.max": "150000 100000",
        "cpu.max": "max 100000",
        "job/cpu.stat": "nr_periods 200\nnr_throttled 50",
    }
    root = tree(
        tmp_path / "2", "0::/job", [V2_MOUNT], {**files, "job/memory.max": "1000", "memory.max": "2000"}
    )
    assert system.cpu_quota(root) == Fraction(3, 2)
    assert system.throttled_share(root) == 0.25
    assert system.memory_limit(root) == 1000
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.stat": "nr_periods 7",
    }
    mounts = [V1_CPU.format(shown="/"), V1_MEMORY.format(shown="/")]
    root = tree(tmp_path / "1", "4:memory:/\n3:cpu,cpuacct:/", mounts, files)
    assert (system.cpu_quota(root), system.throttled_share(root), system.memory_limit(root)) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("cgroup", ["0::/../../other", "0::/of/the/host", "", "nonsense", "0::/"])
@pytest.mark.parametrize("limit", ["300", "max", "", "\x00"])
def test_paths_that_are_not_shown(tmp_path: Path, eight_cpus: None, cgroup: str, limit: str) -> None:
    """A group outside of what is mounted here, or files that hold no numbers, set no limit but the mount's
    own."""
    root = tree(
        tmp_path,
        cgroup,
        [V2_MOUNT],
        {"memory.max": limit, "memory.current": "100", "cpu.max": limit},
        free=1 << 20,
    )
    held = limit == "300" and cgroup.startswith("0::")
    assert system.available_memory(root) == (200 if held else 1 << 20)
    assert system.available_cpus(root) == 8
    assert system.oom_kills(root) == 0


def test_more_used_than_the_limit(tmp_path: Path) -> None:
    """A limit lowered below the usage leaves nothing, not less than nothing; without /proc nothing is
    known."""
    root = tree(tmp_path, "0::/", [V2_MOUNT], {"memory.max": "100", "memory.current": "300"})
    assert system.available_memory(root) == 0
    assert system.available_memory(tmp_path / "none") is None


def test_places_with_spaces(tmp_path: Path) -> None:
    """Mount points are written with octal escapes."""
    root = tree(
        tmp_path,
        "0::/a b",
        [V2_MOUNT.replace("/sys/fs/cgroup ", r"/sys/fs/cgroup/x\040y ")],
        {"x y/a b/memory.events": "oom_kill 7"},
    )
    assert system.oom_kills(root) == 7


INSIDE = """
    import importlib.util, json, os, sys
    spec = importlib.util.spec_from_file_location("system", sys.argv[1])
    system = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(system)
    before = system.available_memory()
    with open(sys.argv[2], "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    usage = int(open(sys.argv[3] + "/memory.usage_in_bytes").read())
    print(json.dumps([before, system.available_memory(), usage, system.available_cpus(),
        len(os.sched_getaffinity(0))]))
"""


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists(),
    reason="no control groups of version 1 here",
)
def test_in_a_real_group(tmp_path: Path) -> None:
    """In a real group of version 1, below one whose limits are tight: reading a file twice as large as the
    limit leaves as much memory available as before, and the quota of the group above holds."""
    limit = 64 << 20
    big = tmp_path / "big"
    big.write_bytes(bytes(2 * limit))
    with big.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    memory, cpu = (Path("/sys/fs/cgroup", kind, f"fastload-test-{os.getpid()}") for kind in ("memory", "cpu"))
    with groups(memory, memory / "below", cpu, cpu / "below"):
        (memory / "memory.limit_in_bytes").write_text(str(limit))
        (cpu / "cpu.cfs_quota_us").write_text("50000")
        procs = [(folder / "below/cgroup.procs").open("w") for folder in (memory, cpu)]
        command = [sys.executable, "-c", textwrap.dedent(INSIDE), system.__file__, str(big), str(memory)]

        def enter() -> None:
            for file in procs:
                file.write(str(os.getpid()))
                file.flush()

        done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, timeout=60)
        for file in procs:
            file.close()
    assert done.returncode == 0, done.stderr
    before, after, usage, cpus, mask = json.loads(done.stdout)
    assert usage > limit * 0.8  # the page cache has filled the group
    assert limit * 0.6 < before <= limit
    assert after > limit * 0.6
    assert cpus == 1 <= mask
