"""The suite without the optional packages: every test file is collected, or skipped with the package that
it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from extras import EXTRAS, missing_extra

HERE = Path(__file__).parent


@pytest.mark.long
def test_the_suite_without_extras(tmp_path: Path) -> None:
    """Collecting all tests where none of the extras can be imported fails nowhere."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({sorted(EXTRAS)}))"
    settings = ["-p", "no:cacheprovider", "-p", "pytest_timeout", "-c", str(HERE.parent / "pyproject.toml")]
    collect = ["--collect-only", "-qq", *settings, str(HERE)]
    script = f"{hidden}; import pytest; raise SystemExit(pytest.main({collect}))"
    # Other packages' plugins need extras.
    environment = {
        **os.environ,
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, "\n".join(
        line for line in told.splitlines() if line.startswith(("ERROR", "E  "))
    )


def test_other_errors_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a package of EXTRAS that is not installed is a reason to skip: no module of the tests' own, or
    of fastload, or of an extra."""

    def importing(name: str) -> str | None:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            return missing_extra(error)
        pytest.fail(f"{name} was imported")

    assert importing("fastload.no_such_module") is None
    assert importing("no_such_helper") is None
    monkeypatch.setitem(sys.modules, "kornia", None)
    assert importing("kornia.no_such_module") == "kornia"
    monkeypatch.undo()
    pytest.importorskip("kornia")
    assert importing("kornia.no_such_module") is None
