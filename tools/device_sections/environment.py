"""Environment of the sections: what tools/device_pack.sh has packed, in front of what the machine has."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / ".device"
PYTHON = (3, 12)
"""The Python that the pack's packages are for."""


def environment(rehearse: bool) -> dict[str, str]:
    """The variables of every section, with the pack's packages and libraries if there is a pack for this
    Python."""
    found = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        **({"OMP_NUM_THREADS": "1"} if rehearse else {}),
    }
    paths = [str(ROOT / folder) for folder in ("", "tools", "benchmarks", "tests")]
    if PACK.is_dir() and sys.version_info[:2] == PYTHON:
        paths.append(str(unpacked(PACK)))
        found["PKG_CONFIG"] = f"sh {PACK / 'pkg-config'}"
        found["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, [str(PACK / "lib"), os.environ.get("LD_LIBRARY_PATH")])
        )
        found.setdefault("FASTLOAD_SHARED", str(PACK))
    found["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return found


def unpacked(pack: Path) -> Path:
    """The folder of the pack's wheels, unpacked."""
    site = pack / "site"
    if not site.is_dir():
        for wheel in sorted((pack / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(site)
    return site
