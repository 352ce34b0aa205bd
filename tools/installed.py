"""Runs tests against fastload as it is installed from its wheel:
`python tools/installed.py [PYTEST ARGUMENTS]`.

The wheel goes into an environment of its own, which borrows torch and the tools of the one that runs this.
With `--as-it-is` first, the fastload that this interpreter has installed is tested. The tests run in a copy
of the checkout that has no package, so that none of them, and no program that they start, can import the
checkout's; tests/conftest.py refuses to run them on it all the same. Tests of the checkout itself are left
out: its build, its pages and its recipes. `make test-installed` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from build_wheel import ROOT, build_wheel

OF_THE_CHECKOUT = (
    *(
        "build",
        "docs",
        "examples",
        "fuzz",
        "bench/test_bench_device.py",
        "cli/test_hostile_names.py",
        "common/test_distribution.py",
    ),
    *("native/test_parts.py", "test_readme.py"),
)
COPIED = ("tests", "tools", "docs", "examples", "benchmarks", "pyproject.toml", "README.md")
"""What tests read of the checkout: all but the package and its C sources."""
AS_IT_IS = "--as-it-is"


def outside() -> dict[str, str]:
    """This environment's variables without those that lead to a checkout."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")
    }


def install(wheel: Path, folder: Path) -> Path:
    """Makes an environment in `folder` with the wheel, and what it depends on lent by this one. Returns its
    interpreter.

    Raises:
        subprocess.CalledProcessError: the wheel does not install.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, env=outside())
    (site,) = folder.glob("lib/python*/site-packages")
    # After the environment's own; a path file does not run the lender's path files, so no editable fastload
    # comes along.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_tests(python: Path, folder: Path, *arguments: str) -> int:
    """Runs pytest with an interpreter in a copy of the tests in `folder`. Paths among the arguments begin
    with tests/. Returns its code."""
    folder.mkdir(exist_ok=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    environment = outside() | {"FASTLOAD_TEST_INSTALLED": "1"}
    if (ROOT.parent / "shared").is_dir():
        environment.setdefault("FASTLOAD_SHARED", str(ROOT.parent / "shared"))
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    """Builds, installs, tests. Returns pytest's exit code."""
    as_it_is = arguments[:1] == [AS_IT_IS]
    arguments = arguments[1:] if as_it_is else arguments
    if not arguments:
        left_out = [f"--ignore=tests/{each}" for each in OF_THE_CHECKOUT]
        arguments = ["-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal", *left_out, "tests"]
    with tempfile.TemporaryDirectory() as scratch:
        if as_it_is:
            return run_tests(Path(sys.executable), Path(scratch) / "elsewhere", *arguments)
        wheel = build_wheel(Path(scratch) / "dist")
        return run_tests(
            install(wheel, Path(scratch) / "environment"), Path(scratch) / "elsewhere", *arguments
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
