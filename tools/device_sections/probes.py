"""Section 3: the probes, on the device; in a rehearsal on a fake device whose streams run late, each also
with its planted defects."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from fake_cuda import FakeCuda

from device_sections import memory, order, starts
from device_sections.probing import Probe, Setting, write_packed
from device_sections.report import WRONG, Report, failed, verdict

PROBES: list[Probe] = [*memory.PROBES, *order.PROBES, *starts.PROBES]
BROKEN = 3
"""Exit code of a process whose device answers no more: another one does the probes that are left."""


def run(report: Report, rehearse: bool) -> None:
    """Runs every probe."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probes-")))
        if rehearse:
            fake = stack.enter_context(FakeCuda().installed())
            setting = Setting(
                write_packed(folder, 24, 16),
                24,
                4,
                16,
                12,
                8,
                1,
                512,
                fake.run_others,
                fake.faults,
                timed=False,
            )
        else:
            setting = Setting(
                write_packed(folder, 64, 224),
                64,
                16,
                224,
                60,
                40,
                20_000_000,
                20 << 20,
                lambda: None,
                [],
                timed=True,
            )
        for probe in PROBES:
            found = report.run(probe.name, partial(probe.run, setting), probe.limit)
            if rehearse:
                plant(report, probe, setting)
            elif failed({probe.name: found}) and not answers():
                sys.stdout.flush()
                os._exit(BROKEN)


def answers() -> bool:
    """Returns True if the device still computes."""
    try:
        torch.cuda.synchronize()
        return float(torch.ones(2, device="cuda").sum()) == 2.0
    except RuntimeError:
        return False


TRIES = 4
"""Runs of a probe in which it has to notice a defect: the loader's threads may have nothing to do at the
moment that counts."""


def plant(report: Report, probe: Probe, setting: Setting) -> None:
    """Runs a probe under each of its planted defects, and reports it as wrong if it does not notice one."""
    noticed = {}
    for name, defect in probe.planted.items():
        for _ in range(TRIES):
            with defect():
                found = verdict(partial(probe.run, setting))
                torch.cuda.synchronize()
            setting.faults.clear()
            if failed({name: found}):
                break
        if not failed({name: found}):
            report.add(probe.name, WRONG, said=f"does not notice the planted defect {name!r}", found=found)
            return
        noticed[name] = found["said"]
    report.note(probe.name, planted=noticed)
