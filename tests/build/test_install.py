"""tools/install.py installs what pip would, from where pip would: by uv, and by pip where uv does not get
there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from install import settings

ROOT = Path(__file__).resolve().parents[2]


def test_settings_of_pip_are_uvs() -> None:
    """All that is listed, with lists apart as uv wants them; the environment's before a file's; nothing
    else."""
    listed = """\
:env:.find-links='/wheels /more'
:env:.no-input='1'
global.cert='/etc/roots.pem'
global.constraint='/etc/constraints.txt'
global.extra-index-url='https://one/simple\\nhttps://two/simple'
global.find-links='/other'
install.trusted-host='one'"""
    sources = ["--index", "https://one/simple", "--index", "https://two/simple"]
    others = [
        "--find-links",
        "/wheels",
        "--find-links",
        "/more",
        "--constraints",
        "/etc/constraints.txt",
        "--allow-insecure-host",
        "one",
    ]
    assert settings(listed) == ([*sources, *others], {"SSL_CERT_FILE": "/etc/roots.pem"})
    assert settings(f"{listed}\nglobal.no-index='true'")[0] == ["--no-index", *others]


def write_wheel(folder: Path) -> None:
    """A wheel of one module, tiny."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")


@pytest.mark.parametrize("has_uv", [True, False])
def test_it_installs(has_uv: bool, tmp_path: Path) -> None:
    """A package of a folder that pip's configuration names, without an index, into the environment that runs
    it; with uv, and where pip finds none."""
    write_wheel(tmp_path / "wheels")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    seen = tmp_path / "seen"
    seen.mkdir()
    for name in ("pip", *(["uv"] if has_uv else [])):
        given = Path(metadata.distribution(name).locate_file(""))
        for found in (given / name, *given.glob(f"{name}-*.dist-info")):
            (seen / found.name).symlink_to(found)
    scripts = tmp_path / "venv" / "bin"
    if has_uv:
        (program,) = (each for each in metadata.files("uv") or () if each.parts[-2:] == ("bin", "uv"))
        (scripts / "uv").symlink_to(Path(program.locate()).resolve())
    environment = {
        **os.environ,
        "PYTHONPATH": str(seen),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [scripts / "python", ROOT / "tools" / "install.py", "tiny"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "venv").glob("lib/*/site-packages/tiny-1.0.dist-info/INSTALLER")
    assert record.read_text().strip() == ("uv" if has_uv else "pip")
    assert ("uv" in done.stderr) != has_uv
