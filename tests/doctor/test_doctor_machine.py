"""Faults of a machine, put in for real: `fastload doctor` names each, with its figure and a remedy, and
nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from control_groups import groups
from examined import bad, doctor, findings

from fastload._native import core
from fastload.doctor.examine import examine
from fastload.doctor.files import open_files
from fastload.doctor.job import Job
from fastload.doctor.processors import numa


def few_resources() -> None:
    """Binds the process to one CPU, and lets it open few files."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_each_fault_is_named() -> None:
    """One CPU, 64 open files, plain kernels and a thousand OpenMP threads are four bad lines with what to
    do, and exit status 1."""
    status, found = doctor(env={"FASTLOAD_CPU": "plain", "OMP_NUM_THREADS": "1000"}, before=few_resources)
    assert status == 1
    one_cpu = {"cpus"} if (os.cpu_count() or 1) > 1 else set()
    assert bad(found) == one_cpu | {"open files", "threads"} | (
        {"simd"} if core.cpu_features() != "plain" else set()
    )
    assert all(found[name]["remedy"] for name in bad(found))
    assert found["cpus"]["value"]["affinity"] == 1
    assert found["workers"]["value"]["workers"] == 1
    assert "64 open files" in found["open files"]["text"]
    assert found["open files"]["remedy"] == "ulimit -n 4096"
    assert found["simd"]["value"]["used"] == "plain"
    assert found["simd"]["remedy"] in ("unset FASTLOAD_CPU", "")
    assert found["threads"]["value"]["threads"] == 1000
    assert found["threads"]["remedy"] == "OMP_NUM_THREADS=1"


def test_more_workers_than_cpus() -> None:
    """Threads beyond the CPUs are bad, and the remedy is the number of CPUs."""
    status, found = doctor("--workers", "999", "--batch-size", "8")
    assert status == 1
    assert found["workers"]["remedy"].startswith(f"num_workers={len(os.sched_getaffinity(0))}")


def test_a_tiny_shm() -> None:
    """A /dev/shm of 1 MB is bad: FastLoader needs none of it, and semaphores and NCCL do."""
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            ["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this user may not mount a tmpfs")
    status, found = findings(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *COMMAND])
    assert status == 1
    assert bad(found) == {"/dev/shm"}
    assert found["/dev/shm"]["value"]["size"] == 1 << 20
    assert "--shm-size" in found["/dev/shm"]["remedy"]


COMMAND = (sys.executable, "-m", "fastload", "doctor", "--json")


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists(), reason="no control groups of version 1 here"
)
def test_a_quota_of_a_group() -> None:
    """In a real group with a quota of half a CPU, the quota is told, and one CPU is too few; so are
    torch's threads too many."""
    group = Path("/sys/fs/cgroup/cpu", f"fastload-doctor-{os.getpid()}")
    with groups(group):
        (group / "cpu.cfs_quota_us").write_text("50000")
        procs = (group / "cgroup.procs").open("w")

        def enter() -> None:
            procs.write(str(os.getpid()))
            procs.flush()

        status, found = doctor(before=enter)
        procs.close()
    assert found["cpus"]["value"]["quota"] == 0.5
    assert found["cpus"]["value"]["usable"] == 1
    if (os.cpu_count() or 1) > 1:
        assert status == 1
        assert "quota" in found["cpus"]["remedy"]
        assert found["threads"]["verdict"] == "bad"
        assert found["threads"]["remedy"] == "OMP_NUM_THREADS=1"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libtorch_cpu.so: no such file')", "libtorch_cpu.so: no such file"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
def test_a_broken_torch(tmp_path: Path, source: str, said: str) -> None:
    """A torch that cannot be imported, or ends the process, is one bad line; all else is checked."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(source)
    status, found = doctor(
        env={"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    )
    assert status == 1
    assert bad(found) == {"torch"}
    assert said in found["torch"]["text"]
    assert found["torch"]["remedy"].startswith("pip install")
    assert found["threads"]["verdict"] == "unknown"
    assert found["cpus"]["value"]["usable"] > 0


@pytest.mark.long
def test_ranks_share_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many ranks as CPUs each takes one CPU, with one thread; a number of workers for all CPUs is
    too many then."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        pytest.skip("one CPU")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(cpus))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    found = {each.name: each for each in examine(Job())}
    assert found["workers"].verdict == found["threads"].verdict == "good"
    assert found["workers"].value["workers"] == 1
    found = {each.name: each for each in examine(Job(num_workers=cpus))}
    assert found["workers"].verdict == "bad"


def test_shards_beyond_the_limit() -> None:
    """More shards than a quarter of the limit are bad; the remedy is a limit that holds them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        assert open_files(Job(num_workers=2), 200).verdict == "good"
        found = open_files(Job(num_workers=2), 300)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.verdict == "bad"
    assert "4096" in found.remedy


def nodes(root: Path, cpus: list[str], memory: str) -> Path:
    """A file system whose NUMA nodes have these CPUs."""
    for number, text in enumerate(cpus):
        folder = root / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text + "\n")
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text(f"Name:\tx\nMems_allowed_list:\t{memory}\n")
    return root


def test_numa(tmp_path: Path) -> None:
    """One node is good, CPUs of two are unknown, memory of another node than the CPUs' is bad, and no word
    of nodes is unknown."""
    mine = sorted(os.sched_getaffinity(0))
    all_of_them, half = ",".join(map(str, mine)), ",".join(map(str, mine[: len(mine) // 2]))
    rest = ",".join(map(str, mine[len(mine) // 2 :]))
    assert numa(nodes(tmp_path / "one", [all_of_them], "0")).verdict == "good"
    assert numa(nodes(tmp_path / "far", [all_of_them, "1000-1003"], "1")).verdict == "bad"
    assert numa(tmp_path / "none").verdict == "unknown"
    if half:
        found = numa(nodes(tmp_path / "two", [half, rest], "0-1"))
        assert (found.verdict, found.value["cpus_on"]) == ("unknown", [0, 1])
