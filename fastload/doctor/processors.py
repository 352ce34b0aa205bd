"""Checks of the processors: which of them this process may use, NUMA nodes, SIMD level."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from fastload._native import core
from fastload.common.system import ROOT, available_cpus, cpu_quota, local_ranks, throttled_share
from fastload.doctor.finding import Finding, judged
from fastload.doctor.job import Job

THROTTLED = 0.25
"""Share of the quota's periods with a stop from which the quota is named as a fault."""


def processor_findings(job: Job) -> Iterator[Finding]:
    """Findings about the processors."""
    yield _cpus(job)
    yield _workers(job)
    yield numa()
    yield _simd()


def _cpus(job: Job) -> Finding:
    machine, affinity, quota, throttled = (
        os.cpu_count() or 1,
        len(os.sched_getaffinity(0)),
        cpu_quota(),
        throttled_share(),
    )
    usable = available_cpus()
    text = f"{_counted(usable)} for this process: {affinity} of {machine} by affinity, " + (
        "no quota" if quota is None else f"a quota of {float(quota):.3g}"
    )
    faults: dict[str, str] = {}
    if usable == 1 and machine > 1:
        if affinity == 1:
            faults["bound to one CPU, the loader and the training loop take turns"] = (
                "unbind it (taskset, numactl, sched_setaffinity, the scheduler's --cpus-per-task)"
            )
        else:
            faults["with one CPU the loader and the training loop take turns"] = (
                "ask for a larger quota (docker --cpus, Kubernetes limits.cpu)"
            )
    if throttled is not None and throttled > THROTTLED:
        faults[f"the kernel has stopped the group in {throttled:.0%} of the quota's periods"] = (
            "raise the quota, or start fewer threads"
        )
    value = {
        "usable": usable,
        "affinity": affinity,
        "machine": machine,
        "quota": None if quota is None else float(quota),
        "throttled": throttled,
    }
    return judged("cpus", faults, text, value)


def _counted(cpus: int) -> str:
    return f"{cpus} CPU{'s' * (cpus != 1)}"


def _workers(job: Job) -> Finding:
    usable, ranks = available_cpus(), local_ranks()
    chosen = "the loader's own choice" if job.num_workers is None else "as asked"
    text = f"num_workers={job.workers}, {chosen}, on {_counted(usable)}"
    faults = {}
    # Each rank is bound to CPUs of its own.
    own = len(os.sched_getaffinity(0)) * ranks <= (os.cpu_count() or 1)
    if job.workers > usable:
        faults["threads beyond the CPUs only take them from each other"] = (
            f"num_workers={usable}, or none: the loader chooses"
        )
    elif ranks > 1 and not own and job.workers * ranks > usable:
        faults[f"{ranks} processes of this job share the CPUs"] = (
            "leave num_workers out: each then takes its share"
        )
    return judged("workers", faults, text, {"workers": job.workers, "cpus": usable, "ranks": ranks})


def numa(root: Path = ROOT) -> Finding:
    """The NUMA nodes that this process uses; `root` is that of the file system."""
    nodes = {
        path.name[4:]: _numbers(path / "cpulist")
        for path in (root / "sys/devices/system/node").glob("node[0-9]*")
    }
    mine = os.sched_getaffinity(0)
    used = sorted(int(node) for node, cpus in nodes.items() if cpus & mine)
    memory = sorted(_allowed_nodes(root) & {int(node) for node in nodes})
    value = {"nodes": len(nodes), "cpus_on": used, "memory_on": memory}
    if not used:
        return Finding("numa", "unknown", "the system does not say which NUMA nodes there are", value=value)
    text = f"{len(nodes)} NUMA node{'s' * (len(nodes) != 1)}; this process runs on {_list(used)}"
    if memory and not set(memory) & set(used):
        remedy = f"numactl --cpunodebind={used[0]} --membind={used[0]}"
        return Finding(
            "numa",
            "bad",
            f"{text}, and all its memory is on {_list(memory)}: each access goes to another node",
            remedy,
            value,
        )
    if len(used) > 1:
        remedy = (
            "one process for each node, under numactl --cpunodebind=N --membind=N; compare both by "
            "`fastload bench`"
        )
        return Finding(
            "numa",
            "unknown",
            f"{text}: what it costs that batches cross nodes depends on the machine",
            remedy,
            value,
        )
    return Finding("numa", "good", text, value=value)


def _list(nodes: list[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))


def _allowed_nodes(root: Path) -> set[int]:
    try:
        lines = (root / "proc/self/status").read_text().splitlines()
    except OSError:
        return set()
    return next(
        (_parsed(line.partition(":")[2]) for line in lines if line.startswith("Mems_allowed_list:")), set()
    )


def _numbers(path: Path) -> set[int]:
    try:
        return _parsed(path.read_text())
    except OSError:
        return set()


def _parsed(text: str) -> set[int]:
    """The numbers in a list of the kernel's, as 0-3,8."""
    ranges = [part.partition("-") for part in text.strip().split(",") if part.strip()]
    return {number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)}


def _simd() -> Finding:
    used = core.cpu_features()
    try:
        core.use_cpu("")
        there = core.cpu_features()
    finally:
        core.use_cpu(used)
    named = os.environ.get("FASTLOAD_CPU", "")
    lacking = sorted(set(there.split(",")) - set(used.split(",")) - {"plain"})
    value = {"used": used, "there": there, "FASTLOAD_CPU": named or None}
    text = f"the decoder uses {used.replace(',', ', ')}"
    faults = {}
    if lacking:
        faults[f"FASTLOAD_CPU={named} keeps it from {', '.join(lacking)}"] = "unset FASTLOAD_CPU"
    elif platform.machine() in ("x86_64", "AMD64") and "avx2" not in there.split(","):
        faults["this CPU, or the virtual machine, has no AVX2"] = (
            "choose another machine, or a CPU model of the hypervisor that has AVX2"
        )
    return judged("simd", faults, text, value)
