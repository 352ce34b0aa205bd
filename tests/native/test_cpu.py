"""FASTLOAD_CPU: one override of the instruction sets, for the whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fastload._native import core
from fastload.errors import ArgumentError


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    core.use_cpu("")


def test_features_are_those_named_that_the_cpu_has() -> None:
    """Nothing, all and a list; a name is used only where the CPU has it."""
    core.use_cpu("")
    here = core.cpu_features().split(",")
    core.use_cpu("plain")
    assert core.cpu_features() == "plain"
    core.use_cpu("avx2,crc32c")
    assert core.cpu_features() == (",".join(name for name in ("crc32c", "avx2") if name in here) or "plain")


@pytest.mark.parametrize("names", ["sse9", "avx2,", ",", "plain,avx2", "AVX2", "x" * 500])
def test_an_unknown_name_is_refused(names: str) -> None:
    before = core.cpu_features()
    with pytest.raises(ArgumentError, match="neither plain nor a list of crc32c"):
        core.use_cpu(names)
    assert core.cpu_features() == before


@pytest.mark.parametrize("size", [0, 1, 7, 8, 767, 768, 3 * 4096, 50_001])
def test_checksums_are_those_of_plain_c(size: int) -> None:
    data = os.urandom(size)
    best = core.crc32c(data, 5)
    core.use_cpu("plain")
    assert core.crc32c(data, 5) == best


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [("plain", 0, "plain"), ("avx1024", 1, "FASTLOAD_CPU='avx1024' is neither plain")],
)
def test_the_variable_is_read_when_the_module_is_loaded(value: str, code: int, said: str) -> None:
    """It is followed from the start, and a wrong value ends the import with what to do."""
    program = "from fastload._native import core; import sys; sys.stdout.write(core.cpu_features())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FASTLOAD_CPU": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in (done.stderr if code else done.stdout)
