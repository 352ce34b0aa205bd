"""Build: the native module in place, for this Python; where that fails, the module that the pack carries."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from device_sections.environment import PACK, ROOT
from device_sections.report import Details, Report, Wrong

LIMIT_S = 70
_PROVES = "from fastload._native import core; print(core.__file__); print(core.cpu_features())"


def run(report: Report, rehearse: bool) -> None:
    """Reports which module is in place. A rehearsal takes the one that is there: other tests use it at the
    same time."""
    command = (
        [sys.executable, "-c", "pass"]
        if rehearse
        else [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    )
    report.run("module", lambda: made(command, PACK / "native", ROOT / "fastload" / "_native"), LIMIT_S + 20)


def made(command: Sequence[str], packed: Path, target: Path, limit: float = LIMIT_S) -> Details:
    """Builds the module; takes the packed one if the build fails or lasts too long, or what it built cannot
    be imported.

    Args:
        command: builds the module.
        packed: folder of modules that were built elsewhere.
        target: folder of the module.
        limit: seconds for the build.

    Raises:
        Wrong: neither can be imported.
    """
    built, told = succeeds(command, limit)
    found, proof = succeeds([sys.executable, "-c", _PROVES], 20) if built else (False, told)
    if found:
        return {"made": "built", "module": proof.splitlines(), "table": "built"}
    name = f"core{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not (packed / name).exists():
        raise Wrong(f"the build failed, and there is no packed {name}", tail=proof.splitlines()[-30:])
    shutil.copyfile(packed / name, target / name)
    found, packed_proof = succeeds([sys.executable, "-c", _PROVES], 20)
    if not found:
        raise Wrong(
            "the build failed, and the packed module cannot be imported",
            tail=[*proof.splitlines()[-30:], packed_proof],
        )
    return {
        "made": "packed",
        "module": packed_proof.splitlines(),
        "tail": proof.splitlines()[-30:],
        "table": "packed: the build failed",
    }


def succeeds(command: Sequence[str], limit: float) -> tuple[bool, str]:
    """Runs a command in the checkout. Returns whether it ended well, and its output."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as error:
        return False, f"{error.stdout or ''}\nended after {limit:.0f} s"
    return done.returncode == 0, done.stdout
