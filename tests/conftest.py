"""Fixtures shared by all rooms: real JPEG files made here, packed datasets, the shared corpus where there
is one."""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from extras import TestFile, missing_extra, skip_without
from handles import none_left
from hypothesis import HealthCheck, settings
from pictures import write_folder
from servers.process import Unavailable
from servers.seaweedfs import SeaweedFS

import fastload
from fastload.common.system import available_cpus, available_memory

pytest_plugins = ["cpu_ledger"]
# No test is about how fast this machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
PROCESS_MEMORY = 2 << 30  # bytes that a test process takes at most, with what it starts

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a background job of a shell: programs started from here would never hear of the Ctrl-C that tests
    # send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup, the same of hang-ups
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure() -> None:
    """tools/installed.py asks for an installed package: the checkout's in its place is an error."""
    if os.environ.get("FASTLOAD_TEST_INSTALLED") and (Path(fastload.__file__).parents[1] / "csrc").is_dir():
        raise pytest.UsageError(f"the fastload of the checkout would be tested: {fastload.__file__}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: a process more than CPUs, which computes while another waits, where there is memory for it;
    two of long tests, which wait for a quarter of their time. Each costs ten seconds of imports."""
    room = (available_memory() or PROCESS_MEMORY) // PROCESS_MEMORY
    return max(1, min(available_cpus() + (2 if config.option.markexpr == "long" else 1), room))


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """A test file that needs a package which is not installed is skipped."""
    return TestFile.from_parent(parent, path=module_path)


def _unless_extra_is_missing() -> Iterator[None]:
    try:
        return (yield)
    except Exception as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        traceback.clear_frames(error.__traceback__)  # they hold what the test had made
    skip_without(missing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """A test whose fixtures need a package which is not installed is skipped."""
    return (yield from _unless_extra_is_missing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """So is one that imports it itself."""
    return (yield from _unless_extra_is_missing())


LONG_FIXTURES = {"ray_environment", "chromium", "two_ranks", "disagreements", "resumed_runs"}
"""Ray's daemons take minutes of CPU time, a browser half a minute, and two ranks of a framework ten
seconds."""
_LONG = re.compile("|".join((r"\bmark\.long\b", *LONG_FIXTURES)))


@cache
def may_have_long(file: Path) -> bool:
    """Returns True if the text of a file of tests names the mark `long`, or a fixture that stands for it."""
    return _LONG.search(file.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m long` does not import the files without a long test, which are most of them."""
    if (
        config.option.markexpr == "long"
        and collection_path.match("test_*.py")
        and not may_have_long(collection_path)
    ):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with such a fixture are long. A file with long tests says so in its text."""
    for item in items:
        if not LONG_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") and not may_have_long(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} is long by a fixture of its fixtures: mark it by pytest.mark.long"
            )


class SetAside:
    """Objects that stay to the end, frozen: neither the collections that tests ask for nor those in forked
    workers go through them.

    With the modules of every framework, one collection takes most of a second.
    """

    modules = 0  # imported at the last freeze

    @classmethod
    def freeze(cls) -> None:
        gc.collect()
        gc.freeze()
        cls.modules = len(sys.modules)


def pytest_collection() -> None:
    """Next to nothing of what is imported is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Test files and what they import are set aside."""
    SetAside.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """So are modules that a test was the first to import."""
    if len(sys.modules) > SetAside.modules:
        SetAside.freeze()


# Libraries that count what is left of them at the interpreter's end find all of it collected.
atexit.register(gc.unfreeze)


def shared_folder() -> Path | None:
    """The folder of shared material: $FASTLOAD_SHARED, else `shared` beside the checkout; None where there
    is none."""
    named = os.environ.get("FASTLOAD_SHARED")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared material, or a skip."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("no shared corpus: set FASTLOAD_SHARED")
    return folder


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    """A SeaweedFS with the bucket `fastload`; tests that kill it start it again."""
    try:
        server = SeaweedFS()
    except Unavailable as error:
        pytest.skip(str(error))
    with server:
        server.make_bucket("fastload")
        yield server


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 JPEGs of mixed sizes in three classes."""
    return write_folder(tmp_path_factory.mktemp("photos"), 50)


@pytest.fixture(scope="session")
def packed(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """image_folder, packed into several shards."""
    from fastload import pack

    out = tmp_path_factory.mktemp("packed") / "photos.fl"
    pack(image_folder, out, shard_size=1 << 20, workers=2)
    return out


@pytest.fixture(scope="session")
def packed_same_size(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 images of 60 x 80, so that batches need no resize."""
    from fastload import pack

    root = tmp_path_factory.mktemp("same")
    out = root / "same.fl"
    pack(write_folder(root / "src", 30, size=lambda i: (60, 80)), out)
    return out


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for each of torch's ops: on small images, threads of several test processes wait for each
    other most of the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if not file.exists():
        pytest.skip("no checkout here")
    found: dict[str, Any] = tomllib.loads(file.read_text())["project"]
    return found


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves no more native objects than it found."""
    with none_left(within=20):
        yield
