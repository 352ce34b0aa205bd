"""The native build: Cython and csrc into one extension, against libjpeg-turbo, libwebp, libdeflate and zlib
found by pkg-config.

Settings come from the environment, so that pip, make and an editor build alike:

- ``FASTLOAD_SANITIZE=address|undefined|thread`` (or several, with commas) builds under those sanitizers.
- ``FASTLOAD_WERROR=1`` turns warnings in csrc into errors, as CI does.

Nothing is built for the machine it is built on: the code for later CPUs is compiled by function attributes
and chosen at run time, so that one wheel serves every x86-64.

On macOS and Windows nothing is built: the wheel is Python alone (fastload/portable). Its tag names the system
all the same, since pip would take a wheel of any system on Linux as well.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PORTABLE = sys.platform in ("darwin", "win32")
"""True on systems without the native module."""
MACOS = "macosx_11_0_universal2"
"""The platform of the wheel for macOS: 11 is the oldest that torch supports, on both kinds of CPUs."""
SANITIZERS = ("address", "undefined", "thread")
WARNINGS = ["-Wall", "-Wextra"]
CALLERS = re.compile(
    r"csrc/(engine/(?!fields|objects|polygons)\w+"
    r"|store/(attached|files|in_flight|kept|open_files|page_cache|place|store|tree|varying)"
    r"|jpeg/(dct|decoder|dct_form|entropy_index|exif|header|libjpeg|libjpeg_io|markers|transcode|turn)"
    r"|png/chunks|resize/(axis|exact|resize)|webp/webp)\.c"
)
"""Sources without inner loops of their own: they call those of others. Those of resize/axis, which makes two
tables for an image, take 6.0 us instead of 5.7."""
# What Cython writes is not ours to tidy.
GENERATED = ["-Wno-unused-parameter", "-Wno-unused-function", "-Wno-sign-compare", "-Wno-maybe-uninitialized"]

UNROLLED = re.compile(
    r"csrc/(colour/(box|gaussian|sharpen)|common/rng|jpeg/(dct_scan|dct_write|entropy|huffman_tables)"
    r"|resize/(patches|sink)|store/planes_zlib)\.c"
)
"""Sources that -O3 makes half as large again, and no faster: box and Gaussian blur take 102 and 208 us of a
224 x 224 image instead of 129 and 235; 8 words of the generator take 62 ns instead of 58."""
PLAIN = re.compile(r"csrc/(jpeg/baseline|resize/exact|resize/kernels)_scalar\.c")
"""Kernels of plain C, which run where a CPU has no others. On x86-64 CPUs without AVX2 are from before 2013:
made as UNROLLED, they take 5 KB less of a wheel."""
FAST = ["-O3"]
ROLLED = ["-O2", "-fvect-cost-model=dynamic"]
# What Cython writes calls csrc; made for size, the wheel is a tenth smaller. Its strings are smaller in a
# wheel if Cython has not compressed them before, and its calls without shortcuts for methods. Only what other
# modules of Cython do not share may be set so: they have its types in common. Versions of dicts, by which it
# remembers where a name of the module was, are gone from Python 3.12 on: a look-up takes some 10 ns more.
SMALL = [
    "-Os",
    "-DCYTHON_COMPRESS_STRINGS=0",
    "-DCYTHON_UNPACK_METHODS=0",
    "-DCYTHON_USE_PYLONG_INTERNALS=0",
    "-DCYTHON_USE_UNICODE_INTERNALS=0",
    "-DCYTHON_USE_DICT_VERSIONS=0",
]
SMALLEST = [
    "-Oz",
    "-fno-plt",
    "-fconserve-stack",
    "-DCYTHON_USE_FREELISTS=0",
    "-DCYTHON_FAST_THREAD_STATE=0",
    "-DCYTHON_VECTORCALL=0",
]
"""Flags of what Cython writes, in a wheel."""
FOR_WHEEL = os.environ.get("FASTLOAD_FOR_WHEEL", "") not in ("", "0")
"""True: the module has no docstrings, which nobody sees but who reads the sources, and is made as small as
can be."""


class Need(NamedTuple):
    """Something that the build needs: its name for a reader, and the package that brings it on each
    system."""

    title: str
    debian: str
    fedora: str
    homebrew: str
    conda: str


# Debian's names are Ubuntu's too: where the packages are called otherwise, they provide these names.
LIBRARIES = {
    "libjpeg": Need("libjpeg-turbo", "libjpeg-dev", "libjpeg-turbo-devel", "jpeg-turbo", "libjpeg-turbo"),
    "libwebp": Need("libwebp", "libwebp-dev", "libwebp-devel", "webp", "libwebp"),
    "libdeflate": Need("libdeflate", "libdeflate-dev", "libdeflate-devel", "libdeflate", "libdeflate"),
    "zlib": Need("zlib", "zlib1g-dev", "zlib-devel", "zlib", "zlib"),
}
"""The native libraries, by pkg-config's names for them."""
PKG_CONFIG = Need("pkg-config", "pkg-config", "pkgconf-pkg-config", "pkgconf", "pkg-config")
COMPILER = Need("a C compiler", "gcc libc6-dev", "gcc", "gcc", "c-compiler")
PYTHON_HEADERS = Need("Python.h", "python3-dev", "python3-devel", "python", "python")


def stop(what: str, needs: Iterable[Need]) -> SystemExit:
    """Returns the exit that ends the build, with one line that has a command for each system."""
    needs = list(needs)
    debian, fedora, homebrew, conda = (
        " ".join(dict.fromkeys(names)) for names in list(zip(*needs, strict=True))[1:]
    )
    return SystemExit(
        f"fastload: {what}; install it and build again: Debian, Ubuntu: `sudo apt install {debian}` | "
        f"Fedora: `sudo dnf install {fedora}` | Homebrew: `brew install {homebrew}` | conda: `conda "
        f"install {conda}`"
    )


def pkg_config(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pkg-config (or what PKG_CONFIG names); ends the build where there is none."""
    command = [*shlex.split(os.environ.get("PKG_CONFIG", "pkg-config")), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise stop(
            f"{command[0]} is missing, which finds the native libraries", [PKG_CONFIG, *LIBRARIES.values()]
        ) from None


def library_flags() -> tuple[list[str], list[str]]:
    """Returns (compile, link) flags of the native libraries; ends the build when one is missing."""
    missing = {
        module: need for module, need in LIBRARIES.items() if pkg_config("--exists", module).returncode
    }
    if missing:
        named = " and no ".join(f"{need.title} ({module}.pc)" for module, need in missing.items())
        raise stop(f"pkg-config finds no {named}", missing.values())
    modules = list(LIBRARIES)
    outputs = []
    for option in ("--cflags", "--libs"):
        done = pkg_config(option, *modules)
        if done.returncode:
            raise SystemExit(
                f"fastload: pkg-config {option} {' '.join(modules)} failed: {done.stderr.strip()}"
            )
        outputs.append(shlex.split(done.stdout))
    return outputs[0], outputs[1]


def check_compiler(command: str) -> None:
    """Ends the build where there is no C compiler or no header of Python."""
    if shutil.which(command) is None:
        raise stop(
            f"there is no C compiler {command} here",
            [COMPILER, PYTHON_HEADERS, PKG_CONFIG, *LIBRARIES.values()],
        )
    if not any(Path(sysconfig.get_path(each), "Python.h").exists() for each in ("include", "platinclude")):
        raise stop("Python.h, which belongs to this Python, is missing", [PYTHON_HEADERS])


def sanitizer_flags() -> list[str]:
    """Returns the flags that FASTLOAD_SANITIZE asks for, which replace the optimisation level."""
    wanted = [each for each in os.environ.get("FASTLOAD_SANITIZE", "").split(",") if each]
    unknown = [each for each in wanted if each not in SANITIZERS]
    if unknown:
        raise SystemExit(f"fastload: FASTLOAD_SANITIZE={unknown[0]!r} is none of {', '.join(SANITIZERS)}")
    if not wanted:
        return []
    return [
        f"-fsanitize={','.join(wanted)}",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
        "-g",
        "-O1",
    ]


class BuildNative(build_ext):
    """Compiles the stale objects only, side by side, and writes generated C under build/.

    An object is stale when its source, any header of csrc, or the flags are newer than it. Those of
    `pip install -e` are those of `setup.py build_ext --inplace`: neither compiles what the other has.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.editable_mode:  # pip gives it a folder that is gone afterwards
            usual = build(self.distribution)
            usual.ensure_finalized()
            self.build_temp = usual.build_temp

    def build_extension(self, ext: Extension) -> None:
        check_compiler(self.compiler.compiler[0])
        cflags, libs = library_flags()
        sanitizers = sanitizer_flags()
        # Contraction into fused multiply-adds would give other pixels on CPUs that have them. How to unwind
        # the code stands in what strip takes away, so that a wheel is smaller.
        ext.extra_compile_args = ["-std=gnu11", "-fvisibility=hidden", "-ffp-contract=off", "-pthread"]
        ext.extra_compile_args += ["-fno-asynchronous-unwind-tables", "-ffunction-sections"]
        ext.extra_compile_args += [*sanitizers, *cflags]
        # The module has what it calls of a library's archive, and shows none of its names to other libraries.
        archives = ["-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"]
        ext.extra_link_args = ["-pthread", *sanitizers[:1], *archives, *libs, "-lm"]
        self._werror = ["-Werror"] if os.environ.get("FASTLOAD_WERROR", "") not in ("", "0") else []
        levels = [*FAST, *SMALL, *SMALLEST, CALLERS.pattern, *ROLLED, UNROLLED.pattern, PLAIN.pattern]
        stamp = self._flags_stamp("flags.txt", [*levels, *ext.extra_compile_args, *self._werror])
        Options.docstrings = not FOR_WHEEL
        written = Path(self.build_temp) / ("cython-bare" if FOR_WHEEL else "cython")
        generated = cythonize([ext], build_dir=str(written), quiet=True)[0]
        ext.sources = generated.sources
        headers = [each for each in ext.depends if each.endswith(".h")]
        ext.depends = [*ext.depends, stamp, self._flags_stamp("link_flags.txt", ext.extra_link_args)]
        self._compile_stale(ext, [*headers, stamp])
        super().build_extension(ext)

    def _flags_stamp(self, name: str, flags: list[str]) -> str:
        """Returns a file that is rewritten only when the flags change."""
        path = Path(self.build_temp) / name
        text = "\n".join([os.environ.get("CC", ""), os.environ.get("CFLAGS", ""), *flags, ""])
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(path)

    def _compile_stale(self, ext: Extension, shared: list[str]) -> None:
        """Compiles now, side by side; what setuptools compiles afterwards is only what it links."""
        compiler: Any = self.compiler
        newest = max(os.path.getmtime(each) for each in shared)

        def compile_one(source: str) -> list[str]:
            (path,) = compiler.object_filenames([source], output_dir=self.build_temp)
            if not self.force and os.path.exists(path):
                if os.path.getmtime(path) > max(newest, os.path.getmtime(source)):
                    return [path]
            of_csrc = source.startswith("csrc")
            warnings = WARNINGS + (self._werror if of_csrc else GENERATED)
            # What Cython writes calls csrc, and these call its inner loops.
            level = FAST if of_csrc and not CALLERS.fullmatch(source) else SMALL
            plain = PLAIN.fullmatch(source) and platform.machine() == "x86_64"
            level = ROLLED if UNROLLED.fullmatch(source) or plain else level
            if FOR_WHEEL and not of_csrc:
                level = [*level, *SMALLEST]
            return list(
                whole(
                    [source],
                    output_dir=self.build_temp,
                    include_dirs=ext.include_dirs,
                    debug=self.debug,
                    extra_postargs=[*level, *ext.extra_compile_args, *warnings],
                )
            )

        whole = compiler.compile
        jobs = max(
            1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )

        def compile_all(sources: list[str], **_: object) -> list[str]:
            # The largest first: the generated module takes as long as the rest together.
            order = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(jobs) as pool:
                done = dict(zip(order, pool.map(compile_one, order), strict=True))
            return [path for source in sources for path in done[source]]

        compiler.compile = compile_all


class PortableWheel(bdist_wheel):
    """A wheel of Python alone, for one system."""

    def get_tag(self) -> tuple[str, str, str]:
        own = re.sub(r"[-.]", "_", sysconfig.get_platform())
        return "py3", "none", MACOS if sys.platform == "darwin" else own


def files(*patterns: str) -> list[str]:
    """Returns the matching files, sorted, relative to the project's root as setuptools wants them."""
    return sorted(str(each.relative_to(ROOT)) for pattern in patterns for each in ROOT.glob(pattern))


def readme() -> str:
    """Returns README.md with links to the repository, at this version's tag: on PyPI there are no files
    beside it.

    A picture's link gives the file itself (raw), any other the page that shows it (blob).
    """
    source = re.search(
        r'^Source = "(\S+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    version = re.search(
        r'^__version__ = "(\S+)"$', (ROOT / "fastload/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    if source is None or version is None:
        raise SystemExit("fastload: pyproject.toml names no Source, or fastload/__init__.py no __version__")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = r"\]\((?!https?://|#|mailto:)"
    text = re.sub(rf"(!\[[^\]]*){relative}", rf"\1]({source[1]}/raw/v{version[1]}/", text)
    return re.sub(relative, f"]({source[1]}/blob/v{version[1]}/", text)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=[]
    if PORTABLE
    else [
        Extension(
            "fastload._native.core",
            ["fastload/_native/core.pyx", *files("csrc/*/*.c")],
            include_dirs=["csrc"],
            depends=files("csrc/*/*.h", "fastload/_native/*.pxi", "fastload/_native/*.pxd"),
        )
    ],
    cmdclass={"bdist_wheel": PortableWheel} if PORTABLE else {"build_ext": BuildNative},
)
