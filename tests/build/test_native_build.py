"""What the build promises: a clear stop where a library is missing, other processors, and a quick rebuild."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastload._native import core

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("libjpeg", "libwebp", "libdeflate", "zlib")


def run_build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs build_ext with all its output under `folder`."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", f"{folder}/temp", "--build-lib"]
    return subprocess.run(
        [*command, f"{folder}/lib"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def found_by_pkg_config(module: str) -> str:
    """The text of a library's .pc file."""
    done = subprocess.run(
        ["pkg-config", "--variable=pcfiledir", module], capture_output=True, text=True, check=True
    ).stdout.strip()
    return (Path(done) / f"{module}.pc").read_text()


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        (
            LIBRARIES,
            (
                "apt install libjpeg-dev libwebp-dev libdeflate-dev zlib1g-dev`",
                "libwebp-devel libdeflate-devel zlib-devel`",
            ),
        ),
        (
            ("libjpeg",),
            (
                "apt install libjpeg-dev`",
                "dnf install libjpeg-turbo-devel`",
                "brew install jpeg-turbo`",
                "conda",
            ),
        ),
        (
            ("libdeflate",),
            ("apt install libdeflate-dev", "brew install libdeflate", "conda install libdeflate"),
        ),
        (("zlib",), ("apt install zlib1g-dev", "brew install zlib", "conda install zlib")),
    ],
)
def test_a_missing_library_stops_the_build_with_one_line(
    missing: tuple[str, ...], names: tuple[str, ...], tmp_path: Path
) -> None:
    """The line names the packages of Debian, Fedora, Homebrew and conda, as commands to paste, and no
    library that is there."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config here")
    folder = tmp_path / "pc"
    folder.mkdir()
    for module in set(LIBRARIES) - set(missing):
        (folder / f"{module}.pc").write_text(found_by_pkg_config(module))
    done = run_build(tmp_path, PKG_CONFIG_LIBDIR=str(folder), PKG_CONFIG_PATH="")
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).strip().splitlines()
    assert line.startswith("fastload: ")
    for name in (*missing, *names):
        assert name in line
    for module in set(LIBRARIES) - set(missing):
        assert f"{module}.pc" not in line
    assert not list(tmp_path.glob("lib/**/*.so"))


def test_a_missing_pkg_config_stops_the_build_with_one_line(tmp_path: Path) -> None:
    """It names pkg-config and the libraries that it would have found."""
    done = run_build(tmp_path, PKG_CONFIG=str(tmp_path / "absent-pkg-config"))
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).strip().splitlines()
    for name in (
        "absent-pkg-config is missing",
        "apt install pkg-config",
        "dnf install pkgconf-pkg-config",
        "brew install pkgconf",
        "libdeflate-dev",
    ):
        assert name in line


def test_a_missing_compiler_stops_the_build_with_one_line(tmp_path: Path) -> None:
    """It names the compiler that was looked for, and all that the build needs."""
    done = run_build(tmp_path, CC=str(tmp_path / "absent-cc"))
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).strip().splitlines()
    for name in (
        "absent-cc",
        "apt install gcc libc6-dev python3-dev pkg-config libjpeg-dev",
        "dnf install gcc python3-devel",
    ):
        assert name in line


def test_an_unknown_sanitizer_is_refused(tmp_path: Path) -> None:
    done = run_build(tmp_path, FASTLOAD_SANITIZE="adress")
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).strip().splitlines()
    assert "'adress' is none of address, undefined, thread" in line


EDITABLE = """
import setuptools
from distutils.core import run_setup
builds = []
for editable in (False, True):
    distribution = run_setup("setup.py", stop_after="init")
    if editable:  # as setuptools prepares `pip install -e`
        distribution.get_command_obj("build").build_temp = "gone-afterwards"
        distribution.get_command_obj("build_ext").editable_mode = True
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.ensure_finalized()
    builds.append(command.build_temp)
print(*builds)
"""


def test_an_editable_install_and_the_build_in_place_share_their_objects() -> None:
    """What `pip install -e` has compiled, `make build` does not compile again."""
    done = subprocess.run(
        [sys.executable, "-c", EDITABLE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    in_place, editable = done.stdout.split()
    assert editable == in_place != "gone-afterwards"


def test_nothing_generated_lies_in_the_source_tree() -> None:
    """Generated C goes under build/."""
    assert not list(ROOT.glob("fastload/**/*.c"))
    assert not list(ROOT.glob("csrc/**/*.o"))


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static library of csrc, compiled for aarch64 with warnings as errors."""
    if shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)")
    folder = tmp_path_factory.mktemp("aarch64")
    include = folder / "include"
    include.mkdir()
    # The headers of the libraries say the same for every 64-bit Linux; the rest of /usr/include does not.
    for name in ("jpeglib.h", "jmorecfg.h", "jerror.h", "jconfig.h", "turbojpeg.h", "zlib.h", "zconf.h"):
        places = [Path("/usr/include") / name, *Path("/usr/include").glob(f"*-linux-gnu/{name}")]
        header = next((each for each in places if each.is_file()), None)
        if header is None:
            pytest.skip(f"{name} is not under /usr/include")
        shutil.copy(header, include / name)
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread"]

    def compiled(source: Path) -> subprocess.CompletedProcess[str]:
        command = [
            "aarch64-linux-gnu-gcc",
            *flags,
            f"-I{include}",
            f"-I{ROOT}/csrc",
            "-c",
            str(source),
            "-o",
            f"{folder}/{source.stem}.o",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(compiled, sorted(ROOT.glob("csrc/*/*.c"))):
            assert done.returncode == 0, done.stderr
    subprocess.run(["aarch64-linux-gnu-ar", "rcs", "libcsrc.a", *folder.glob("*.o")], cwd=folder, check=True)
    return folder / "libcsrc.a"


@pytest.mark.long
def test_csrc_compiles_for_aarch64(aarch64: Path) -> None:
    """Every file, with warnings as errors."""
    members = subprocess.run(
        ["aarch64-linux-gnu-ar", "t", aarch64], capture_output=True, text=True, check=True
    ).stdout
    assert sorted(members.split()) == sorted(f"{each.stem}.o" for each in ROOT.glob("csrc/*/*.c"))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["test_rng", "test_resize", "test_ring_pool", "test_kernels", "test_dct_stored"]
)
def test_c_tests_pass_on_aarch64(name: str, aarch64: Path) -> None:
    """The C tests that need neither library, emulated."""
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("no qemu-aarch64 (Debian: qemu-user)")
    program = aarch64.with_name(name)
    command = [
        "aarch64-linux-gnu-gcc",
        "-std=gnu11",
        "-O2",
        "-static",
        "-pthread",
        "-ffp-contract=off",
        f"-I{ROOT}/csrc",
    ]
    command += [f"{ROOT}/tests/c/{name}.c", str(aarch64), "-lm", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        ["qemu-aarch64", str(program), "emulated"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


RESIZE = """
import hashlib, sys
import numpy as np
from fastload._native import core

rng = np.random.default_rng(7)
image = rng.integers(0, 256, (211, 307, 3), dtype=np.uint8)
digest = hashlib.sha256()
for size in ((224, 224), (97, 61), (300, 400)):
    for name in ("bilinear", "bicubic"):
        digest.update(core.resize(image, (3.5, 2.0, 301.0, 200.25), size, name).tobytes())
digest.update(str(core.crc32c(image.tobytes())).encode())
sys.stdout.write(core.cpu_features() + " " + digest.hexdigest())
"""


@pytest.mark.long
@pytest.mark.parametrize("processor", ["SandyBridge", "Nehalem"])
def test_a_processor_without_avx2_runs_it_with_the_same_pixels(processor: str) -> None:
    """The module as built, on an emulated x86-64 of 2011 (AVX) and of 2008 (none), gives the bytes that
    this machine gives."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None or platform.machine() != "x86_64":
        pytest.skip("no qemu-x86_64 (Debian: qemu-user) on an x86-64 here")
    emulated = [emulator, "-cpu", processor]
    if (
        processor == "Nehalem"
        and subprocess.run([*emulated, sys.executable, "-c", "import numpy"], capture_output=True).returncode
    ):
        pytest.skip("NumPy itself does not run there: its wheels of 2.4.6 need AVX")
    here, old = (
        subprocess.run(
            [*prefix, sys.executable, "-c", RESIZE],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        ).stdout.split()
        for prefix in ([], emulated)
    )
    assert here[0] == core.cpu_features()
    assert "avx2" not in old[0].split(",")
    assert old[1] == here[1]


def test_the_best_kernels_of_this_processor_are_chosen() -> None:
    """AVX2 is used where /proc/cpuinfo has it, though the module is built for any x86-64."""
    info = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not info.exists():
        pytest.skip("no x86-64 Linux")
    flags = re.search(r"^flags\s*:(.*)$", info.read_text(), re.MULTILINE)
    assert flags is not None
    core.use_cpu("")
    assert ("avx2" in core.cpu_features().split(",")) == ("avx2" in flags[1].split())
