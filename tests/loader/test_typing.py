"""A user's training script passes type checkers without an annotation, and batches have the types that
mypy infers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import inferred_batches
import pytest

import fastload

SCRIPT = Path(__file__).with_name("user_script.py")
ROOT = Path(fastload.__file__).parents[1]


# Of mypy's --strict, what can be switched off for one module.
RELAXED = """
[[tool.mypy.overrides]]
module = "default"
disallow_any_generics = false
disallow_subclassing_any = false
disallow_untyped_calls = false
disallow_untyped_defs = false
disallow_incomplete_defs = false
check_untyped_defs = false
disallow_untyped_decorators = false
warn_return_any = false
warn_unused_ignores = false
strict_equality = false
extra_checks = false
"""


def linted() -> str:
    """The settings of `make lint`, without the packages that it looks at: with all of them, what it has
    found out of torch holds here."""
    sections = re.split(
        r"^(?=\[)", (Path(__file__).parents[2] / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    ours = "".join(each for each in sections if each.startswith(("[tool.mypy]", "[[tool.mypy.")))
    return re.sub(r"^packages = .*$", "", ours, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says, in one run over torch: of the script, as default.py in its default mode and as
    strict.py in its strict one, and of inferred_batches.py."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typing")
    names = {
        "default.py": SCRIPT,
        "strict.py": SCRIPT,
        "inferred_batches.py": Path(inferred_batches.__file__),
    }
    for name, source in names.items():
        shutil.copy(source, folder / name)
    (folder / "pyproject.toml").write_text(linted() + RELAXED)
    if (kept := ROOT / ".mypy_cache").is_dir():
        shutil.copytree(kept, folder / "cache")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "pyproject.toml",
        "--cache-dir",
        "cache",
        *names,
    ]
    # A checkout is found as an installed package is: what is checked is the script. mypy refuses a PYTHONPATH
    # that has installed ones.
    environment = (
        dict(os.environ) if ROOT.name == "site-packages" else {**os.environ, "PYTHONPATH": str(ROOT)}
    )
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert re.search(r"3 (source )?files", done.stdout), done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("mode", ["default", "strict"])
def test_mypy(mode: str, told: str) -> None:
    """mypy accepts it, in the default mode and in the strict one."""
    assert f"{mode}.py:" not in told, told


@pytest.mark.long
def test_inferred_types(told: str) -> None:
    """mypy infers what inferred_batches.py states."""
    assert "inferred_batches.py:" not in told, told


def test_batches_have_the_inferred_types() -> None:
    """A batch is in fact of the type that a checker infers."""
    inferred_batches.check()


@pytest.mark.long
@pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_pyright(tmp_path: Path) -> None:
    """pyright accepts it in strict mode."""
    settings = {"typeCheckingMode": "strict", "include": [str(SCRIPT)], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--project",
        str(tmp_path),
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
