"""The wheel carries its native libraries: it does the main job where the system has none of them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed import install, run_tests

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # the wheel is compiled first

# Packs argv[1] into argv[2] and prints where fastload and its libraries come from, and a digest of one epoch.
MAIN_JOB = """
import ctypes, hashlib, sys

for name in ("libjpeg.so.62", "libjpeg.so.8", "libturbojpeg.so.0", "liblmdb.so.0", "libdeflate.so.0",
    "libwebp.so.7"):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    sys.stdout.write(f"{name} of the system can be loaded\\n")

import fastload
from fastload import FastLoader, PackedDataset, pack, transforms as T

pack(sys.argv[1], sys.argv[2])
train = PackedDataset(sys.argv[2], transform=[T.RandomResizedCrop(96), T.RandomHorizontalFlip()])
digest = hashlib.sha256()
with FastLoader(train, batch_size=16, shuffle=True, seed=3) as loader:
    for images, labels in loader:
        digest.update(images.contiguous().numpy().tobytes() + labels.numpy().tobytes())
maps = {line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps") if ".so" in line}
for path in sorted(each for each in maps if each.rpartition("/")[2].startswith(("libjpeg", "liblmdb",
    "libdeflate"))):
    sys.stdout.write(f"loaded {path}\\n")
sys.stdout.write(f"package {fastload.__file__}\\n")
sys.stdout.write(f"digest {digest.hexdigest()}\\n")
"""

# Covers every copy of these libraries that the loader could find on this system, then runs the rest as a
# command.
HIDE = """
set -eu
copies='/lib(jpeg|turbojpeg|lmdb|deflate|webp)[.]so'
for file in $(ldconfig -p | sed -n 's/.*=> //p' | grep -E "$copies" | xargs -r readlink -f | sort -u)
do mount --bind /dev/null "$file"
done
exec "$@"
"""

# Libraries that every Linux has.
SYSTEM = r"(libc|libm|libpthread|libz)\.so\.|ld-linux-"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make wheel` makes."""
    if not sys.platform.startswith("linux"):
        pytest.skip("wheels are built for Linux only")
    out = tmp_path_factory.mktemp("wheel")
    # Test processes may come to this at the same time, and the checkout has one folder to build in.
    with open(ROOT / "build" / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, f"{ROOT}/tools/build_wheel.py", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, and what it depends on lent by this one."""
    return install(wheel, tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def native(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The module and the bundled libraries, taken out of the wheel, by their names in it."""
    folder = tmp_path_factory.mktemp("native")
    with zipfile.ZipFile(wheel) as archive:
        return {name: Path(archive.extract(name, folder)) for name in archive.namelist() if ".so" in name}


def of_tool(*command: str | Path) -> str:
    """Output of a program of binutils."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_holds_what_a_user_needs_and_nothing_else(wheel: Path) -> None:
    """Types, licence and the bundled libraries, and neither sources nor tests."""
    assert re.fullmatch(r"torch_fastload-[\d.]+-cp3\d+-cp3\d+-manylinux_\S+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("fastload/py.typed", "fastload/_native/core.pyi", "fastload/cli/main.py"):
        assert wanted in names
    for text in (
        "LICENSE",
        "licenses/libjpeg-turbo/LICENSE.md",
        "licenses/libjpeg-turbo/README.ijg",
        "licenses/libjpeg-turbo/SIMD-zlib.txt",
        "licenses/libdeflate/COPYING",
        "licenses/libwebp/COPYING",
        "licenses/libwebp/PATENTS",
    ):
        assert any(name.endswith(f".dist-info/licenses/{text}") for name in names), text
    roots = {name.split("/")[0] for name in names}
    assert {root for root in roots if "-" not in root} - {"torch_fastload.libs"} == {"fastload"}
    assert not [name for name in names if name.endswith((".pyx", ".pxi", ".c", ".h", ".o"))]
    packaged = {name for name in names if name.startswith("fastload/") and name.endswith(".py")}
    assert packaged == {str(each.relative_to(ROOT)) for each in ROOT.glob("fastload/**/*.py")}


def test_it_is_stripped(wheel: Path, native: dict[str, Path]) -> None:
    """Neither the module nor a bundled library has debug sections, and the wheel takes less than 2 MiB."""
    assert wheel.stat().st_size < 2 << 20
    for name, path in native.items():
        assert ".debug_" not in of_tool("readelf", "-S", path), name


def test_it_needs_and_shows_nothing_else(native: dict[str, Path]) -> None:
    """The module needs libraries that every Linux has and those in the wheel: libjpeg-turbo, unless its
    archive was linked. It exports its own entry alone, and no name of a library."""
    bundled = {name.rpartition("/")[2]: path for name, path in native.items() if ".libs/" in name}
    assert {re.split("[-.]", name)[0] for name in bundled} <= {"libjpeg"}
    (module,) = (path for name, path in native.items() if name.startswith("fastload/"))
    needed = {
        each
        for path in native.values()
        for each in re.findall(r"\(NEEDED\).*\[(.+)\]", of_tool("readelf", "-d", path))
    }
    assert {each for each in needed if not re.match(SYSTEM, each)} == set(bundled)
    shown = of_tool("nm", "-D", "--defined-only", module).split()[2::3]
    assert shown == ["PyInit_core"]


def test_its_licence_names_all_that_is_in_it(wheel: Path) -> None:
    """It covers fastload, libjpeg-turbo, libdeflate and libwebp; the rest is the system's."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert "License-Expression: Apache-2.0 AND IJG AND BSD-3-Clause AND Zlib AND MIT" in text


def test_it_does_the_main_job_where_its_libraries_are_absent(
    installed: Path, native: dict[str, Path], image_folder: Path, tmp_path: Path
) -> None:
    """Pack and train-loader with the system's libraries covered, and liblmdb, which py-lmdb brings for
    packing: this build's very bytes."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*unshare, "mount", "--bind", "/dev/null", __file__], capture_output=True
        ).returncode
    ):
        pytest.skip("no mount namespace here (needs root or user namespaces)")

    def run(*prefix: str, python: str | Path, out: str) -> dict[str, list[str]]:
        done = subprocess.run(
            [*prefix, str(python), "-c", MAIN_JOB, str(image_folder), str(tmp_path / out)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={
                key: value
                for key, value in os.environ.items()
                if key not in ("PYTHONPATH", "LD_LIBRARY_PATH")
            },
        )
        assert done.returncode == 0, done.stdout + done.stderr
        facts: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            facts.setdefault(line.split()[0], []).append(line.split(maxsplit=1)[1])
        return facts

    bare = run(*unshare, "sh", "-c", HIDE, "sh", python=installed, out="bare.fl")
    assert not [name for name in bare if name.startswith("lib")], "the system's libraries were not hidden"
    environment = str(installed.parent.parent)
    assert bare["package"][0].startswith(environment)
    # Pillow's wheel has a libjpeg of its own too.
    loaded = bare.get("loaded", [])
    assert all(Path(path).parent.name.endswith(".libs") for path in loaded)
    ours = [Path(path).name for path in loaded if path.startswith(f"{environment}/")]
    assert sorted(ours) == sorted(name.rpartition("/")[2] for name in native if ".libs/" in name)
    here = run(python=sys.executable, out="here.fl")
    assert bare["digest"] == here["digest"]


def test_its_command_starts(installed: Path) -> None:
    done = subprocess.run(
        [installed.with_name("fastload"), "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+\.\d+\.\d+", done.stdout)


def test_its_suites_pass_from_elsewhere(installed: Path, tmp_path: Path) -> None:
    """One of the loader, one of the dataset and one of the store, as a sample; `make test-installed` runs
    the rest."""
    chosen = ["store/test_reader.py", "loader/test_packed.py", "dataset/test_packed_dataset.py"]
    assert run_tests(installed, tmp_path, "-q", *(f"tests/{each}" for each in chosen)) == 0
