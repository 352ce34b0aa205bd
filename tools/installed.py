"""Runs tests against fastload as it is installed from its wheel: `python tools/installed.py [PYTEST ARGUMENTS]`.

The wheel goes into an environment of its own, which borrows torch and the tools of the one that runs this. The tests start in an empty
folder; tests/conftest.py refuses to run them on the checkout's package. Tests of the checkout itself are left out: its build, its pages
and its recipes. `make test-installed` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from build_wheel import ROOT, build_wheel

OF_THE_CHECKOUT = ("build", "docs", "examples", "fuzz", "bench/test_bench_device.py", "cli/test_hostile_names.py", "test_readme.py")


def outside() -> dict[str, str]:
    """This environment's variables without those that lead to a checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}


def install(wheel: Path, folder: Path) -> Path:
    """Makes an environment in `folder` with the wheel, and what it depends on lent by this one. Returns its interpreter.

    Raises:
        subprocess.CalledProcessError: the wheel does not install.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, env=outside())
    (site,) = folder.glob("lib/python*/site-packages")
    # After the environment's own; a path file does not run the lender's path files, so no editable fastload comes along.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_tests(python: Path, folder: Path, *arguments: str) -> int:
    """Runs pytest with the environment's interpreter, from `folder`. Returns its exit code."""
    folder.mkdir(exist_ok=True)
    environment = outside() | {"FASTLOAD_TEST_INSTALLED": "1"}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    """Builds, installs, tests. Returns pytest's exit code."""
    if not arguments:
        left_out = [f"--ignore={ROOT}/tests/{each}" for each in OF_THE_CHECKOUT]
        arguments = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal", *left_out, f"{ROOT}/tests"]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch) / "dist")
        return run_tests(install(wheel, Path(scratch) / "environment"), Path(scratch) / "elsewhere", *arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
