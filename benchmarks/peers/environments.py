"""The virtual environments of the peers, under build/bench/peers, made from the pins beside this file."""

from __future__ import annotations

import subprocess
import tempfile
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

PINS = Path(__file__).with_name("pins")
STUBBED = ("torchvision", "torchcodec")
"""Packages whose published wheels link to libraries of torch's CUDA build, which its CPU build lacks."""
LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so", "libnvrtc.so.13")
_CUDA = ("_ZN3c104cuda", "_ZNK3c104cuda", "_ZN2at4cuda", "aoti_torch_get_current_cuda", "nvrtc")
_INSTALL = ("-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile")


class CannotInstall(Exception):
    """The pins of a peer could not be installed; the message is the installer's last error."""


def python_of(name: str, root: Path) -> Path:
    """The Python of a peer's environment below root, which is made anew when its pins have changed.

    Raises:
        CannotInstall: the installer failed.
    """
    home, pins = root / name, (PINS / f"{name}.txt").read_text(encoding="utf-8")
    python, done = home / "bin" / "python", home / "installed.txt"
    if done.exists() and done.read_text(encoding="utf-8") == pins:
        return python
    venv.create(home, clear=done.exists(), with_pip=True)
    installed = subprocess.run(
        [python, *_INSTALL, "-r", PINS / f"{name}.txt"], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        raise CannotInstall(last_error(installed.stderr))
    stand_in_for_cuda(next(home.glob("lib/python*/site-packages")))
    done.write_text(pins, encoding="utf-8")
    return python


def last_error(text: str) -> str:
    """The last line that names an exception, or else the last line that says error."""
    lines = [line.strip() for line in text.splitlines()]
    raised = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (raised or [line for line in lines if "error" in line.lower()] or ["pip failed"])[-1]


def stand_in_for_cuda(site: Path) -> None:
    """Gives packages beside torch's CPU build empty libraries in place of the CUDA ones that they link to.

    Their CPU decoders call nothing of these, but the linker wants them. Every function in them ends the
    process.
    """
    if not (site / "torch").is_dir() or (site / "torch" / "lib" / LIBRARIES[0]).exists():
        return
    for package in STUBBED:
        folder = site / f"{package}.libs"
        if folder.is_dir():
            names = {
                name
                for path in [*(site / package).glob("*.so"), *folder.glob("*.so*")]
                for name in undefined(path)
            }
            for library in LIBRARIES:
                compile_empty(sorted(names), folder / library)


def undefined(library: Path) -> Iterable[str]:
    """Names of CUDA's and torch's CUDA functions that a library wants from others."""
    found = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=False
    )
    names = (line.split()[-1].partition("@")[0] for line in found.stdout.splitlines() if line.strip())
    return [name for name in names if name.startswith(_CUDA)]


def compile_empty(names: Sequence[str], library: Path) -> None:
    """Compiles a library with functions of these names."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "empty.c"
        source.write_text(
            "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in names),
            encoding="utf-8",
        )
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, source]
        subprocess.run([str(part) for part in command], check=True)
