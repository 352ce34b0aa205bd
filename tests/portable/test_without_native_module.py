"""Without the native module fastload is imported, and refuses what needs it in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest
from test_same_batches import HERE, HIDDEN, LINUX, environment

ROOT = HERE.parents[1]
SENTENCE = " needs fastload's native module, which there is for Linux alone, and this is "

NAMES = """
import sys, fastload
from fastload import errors
from fastload.errors import ArgumentError, UnavailableError
from fastload.portable import NATIVE_ONLY

assert "torch" not in vars(fastload)
for name in fastload.__all__:
    found = getattr(fastload, name)
    if name in NATIVE_ONLY:
        assert not isinstance(3, found)
        try:
            found("a", key="b")
        except UnavailableError as error:
            print(error)
        else:
            raise AssertionError(name)
print(len(NATIVE_ONLY))
for attempt in (
    lambda: fastload.FastLoader("packed"),
    lambda: fastload.FastLoader([1], engine="native"),
    lambda: fastload.FastLoader([1], lazy="fast"),
):
    try:
        attempt()
    except UnavailableError as error:
        print(error)
loader = fastload.FastLoader([1, 2, 3])
print(loader.explain(all=True))
with loader.trace("trace.json"):
    print(list(loader))
"""

STATEFUL = """
import sys
sys.path.insert(0, sys.argv[1])
from cases import Counting
from fastload import FastLoader

if __name__ == "__main__":
    loader = FastLoader(Counting(), num_workers=1, multiprocessing_context="spawn")
    iterator = iter(loader)
    print(next(iterator))
    try:
        loader.state_dict()
    except NotImplementedError as error:
        print(error)
"""

CORE = """
import inspect
import fastload._native.core as real
from fastload.portable import core
import numpy as np

skipped = {"ArgumentError"}
for name, value in vars(core).items():
    if name.startswith("_") or getattr(value, "__module__", core.__name__) != core.__name__:
        continue
    if inspect.ismodule(value) or name in ("Any", "annotations"):
        continue
    assert hasattr(real, name), name
    if name.isupper():
        assert value == getattr(real, name), name
rng = np.random.default_rng(5)
indices = rng.integers(0, 1 << 64, 50, np.uint64)
seeds = rng.integers(0, 1 << 64, 50, np.uint64)
wants = [(0, 1), (7, 9), (65535, 262144 // 4096)]
for keys in (None, seeds):
    assert (core.random_rows(3, 1 << 33, indices, wants, keys)
        == real.random_rows(3, 1 << 33, indices, wants, keys)).all()
assert core.random_rows(3, 4, indices, []).shape == real.random_rows(3, 4, indices, []).shape
for seed, epoch, index, stream in ((0, 0, 0, 0), ((1 << 64) - 1, 1 << 40, (1 << 64) - 1, 0xFFFF)):
    key = seed, epoch, index, stream
    assert core.random_words(*key, 11) == real.random_words(*key, 11)
again = rng.integers(0, 3, 50).astype(np.uint32)
assert (core.occurrence_seeds(9, 2, 5, again) == real.occurrence_seeds(9, 2, 5, again)).all()
counts = [np.zeros(4, np.uint32) for _ in range(2)]
where = rng.integers(0, 4, 30)
assert (core.count_occurrences(counts[0], where) == real.count_occurrences(counts[1], where)).all()
assert (counts[0] == counts[1]).all()
for values in (where, where[:0]):
    assert core.extremes(values) == real.extremes(values)
rings = [each.StepRing(3) for each in (core, real)]
for step in range(5):
    for ring in rings:
        ring.add(step / 4, step / 8, step, step % 2 == 0)
assert rings[0].copy() == rings[1].copy()
"""


def run(hidden: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process that looks like another system."""
    return subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        env=environment(hidden),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("hidden", HIDDEN)
def test_public_names(hidden: str, tmp_path: Path) -> None:
    """Each public name is found; those that need native code, and such arguments, are refused when they are
    used. explain() says so, and a loop can be traced."""
    done = run(hidden, "-c", NAMES, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    refusals, count, rest = done.stdout.split("\n"), 0, []
    count = sum(SENTENCE in line for line in refusals)
    rest = [line for line in refusals if SENTENCE not in line]
    assert count == int(rest[0]) + 3
    assert any("has no native module on" in line for line in rest)
    assert rest[-2] == "[tensor([1]), tensor([2]), tensor([3])]"
    assert '"wait"' in (tmp_path / "trace.json").read_text()


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("arguments", [["--help"], ["pack", "a", "b"]])
def test_the_command(hidden: str, arguments: list[str], tmp_path: Path) -> None:
    """It says that it needs the native module, in one line, and fails."""
    done = run(hidden, "-m", "fastload", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fastload: this command{SENTENCE}")
    assert done.stderr.count("\n") == 1


def test_a_stateful_dataset_in_workers(tmp_path: Path) -> None:
    """Its state stays in the workers, so that the loader's state is refused; its batches come."""
    (tmp_path / "program.py").write_text(STATEFUL)
    done = run(HIDDEN[-1], "program.py", HERE, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    batch, refusal = done.stdout.splitlines()
    assert batch == "tensor([0])"
    assert "num_workers > 0" in refusal
    assert SENTENCE in refusal


@pytest.mark.skipif(not LINUX, reason="there is no native module to compare with")
def test_the_stand_in(tmp_path: Path) -> None:
    """Each name of the stand-in is one of core's, and its numbers, draws, counts and steps are core's."""
    done = run("", "-c", CORE, folder=tmp_path)
    assert done.returncode == 0, done.stderr


WHEEL = """
import runpy, sys, sysconfig
import setuptools, setuptools.command.bdist_wheel, setuptools.command.build_ext, Cython.Build
system, out = sys.argv[1:]
sys.platform = system
sysconfig.get_platform = {"darwin": "macosx-14.0-arm64", "win32": "win-amd64"}[system].__str__
sys.argv = ["setup.py", "-q", "bdist_wheel", "-d", out]
runpy.run_path("setup.py", run_name="__main__")
"""


@pytest.mark.skipif(not (ROOT / "fastload").is_dir(), reason="the checkout's package is not there")
@pytest.mark.parametrize(
    ("system", "tag"), [("darwin", "py3-none-macosx_11_0_universal2"), ("win32", "py3-none-win_amd64")]
)
def test_the_wheel(system: str, tag: str, tmp_path: Path) -> None:
    """It is for that system alone, so that pip never takes it on Linux, and holds no native code, even where
    some lies in the source tree."""
    pytest.importorskip("Cython")
    tree = tmp_path / "tree"
    copytree(ROOT / "fastload", tree / "fastload", ignore=ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        copy(ROOT / name, tree / name)
    copytree(ROOT / "licenses", tree / "licenses")
    (tree / "fastload" / "_native" / "core.so").write_bytes(b"native")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", WHEEL, system, str(tmp_path / "out")],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name.endswith(f"-{tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (info,) = [name for name in names if name.endswith(".dist-info/WHEEL")]
        text = archive.read(info).decode()
    assert f"Tag: {tag}\n" in text
    assert "Root-Is-Purelib: true" in text
    assert "fastload/portable/core.py" in names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".dylib", ".c", ".pyx"))]
