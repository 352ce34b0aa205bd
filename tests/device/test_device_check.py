"""tools/device_check.py: its driver, and a rehearsal: every section runs without a GPU, and each probe
notices what is planted for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

import device_check
import pytest
import torch
from device_sections import build, environment, report, sanitizer, suite

PRELOADED = ["torch._dynamo", "kornia", "fastload.augment"]
"""Modules that most sections import, some of them only by way of torchvision: they take ten seconds, of
each process that imports them."""


def become(command: Sequence[str], env: dict[str, str], output: Any) -> None:
    """Makes this process, which has imported PRELOADED, the command's."""
    os.setsid()
    multiprocessing.set_start_method("fork", force=True)  # a program's default where Linux's still is
    fd = output.detach()
    for stream in (1, 2):
        os.dup2(fd, stream)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [str(Path(command[1]).parent), *env["PYTHONPATH"].split(os.pathsep)]
    sys.argv[:] = command[1:]
    runpy.run_path(command[1], run_name="__main__")


def started(command: Sequence[str], env: dict[str, str], output: IO[str]) -> device_check.Started:
    """The command in a process that was forked off one that has imported what most sections need. Not for the
    section that runs Triton's interpreter, which is chosen before Triton is imported."""
    if "sanitizer" in command:
        return device_check.started(command, env, output)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=become, args=(list(command), env, DupFd(output.fileno())))
    process.start()
    assert process.pid is not None

    def wait(seconds: float | None) -> int:
        process.join(seconds)
        if process.exitcode is None:
            raise subprocess.TimeoutExpired(command, seconds or 0.0)
        return process.exitcode

    return process.pid, wait


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real device")
def test_every_section_is_rehearsed(tmp_path: Path) -> None:
    """Every section runs to its end, and every part of it is as it should be."""
    assert device_check.run(device_check.Check(tmp_path, rehearse=True, start=started), None) == 0
    sections = json.loads((tmp_path / "device_check.json").read_text())["sections"]
    assert list(sections) == [each.name for each in device_check.SECTIONS]
    for found in sections.values():
        assert found["verdict"] == "ok", json.dumps(found, indent=1)[:4000]
        assert found["parts"]


# ---- the driver


def by_shell(script: str) -> device_check.Starter:
    """Starts a shell's script in a section's place; $1 is the section, $2 the file of its report."""

    def start(command: Sequence[str], env: dict[str, str], output: IO[str]) -> device_check.Started:
        section, file = (command[command.index(name) + 1] for name in ("--section", "--report"))
        return device_check.started(["sh", "-c", script, "sh", section, file], env, output)

    return start


def checked(out: Path, script: str, *sections: device_check.Section) -> dict[str, Any]:
    """The results of sections, each of which is a script."""
    check = device_check.Check(out, rehearse=False, start=by_shell(script))
    for section in sections:
        check.run(section, dict(os.environ), chosen=False)
    assert sorted(each.name for each in out.iterdir()) == ["device_check.json", "device_check.log"]
    found: dict[str, Any] = json.loads((out / "device_check.json").read_text())["sections"]
    return found


def test_a_section_beyond_its_limit_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """It fails, its part and its output are kept, and the next section runs."""
    script = f"""
        if [ $1 = second ]; then
            echo '{{"parts": {{"a": {{"verdict": "right"}}}}, "running": null}}' > $2; exit
        fi
        echo '{{"parts": {{"a": {{"verdict": "right"}}}}, "running": "b"}}' > $2
        echo before; sleep 1000 & echo $! > {tmp_path}/pid; wait"""
    slow, second = (device_check.Section(name, "", 2, "") for name in ("slow", "second"))
    found = checked(tmp_path / "out", script, slow, second)
    assert found["slow"]["verdict"] == "FAILED"
    assert [part["verdict"] for part in found["slow"]["parts"].values()] == ["right", report.CRASHED]
    assert found["slow"]["tail"] == ["before"]
    assert found["second"]["verdict"] == "ok"
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_parts_after_a_crash_are_done_by_another_process(tmp_path: Path) -> None:
    """A section that may be started again goes on after the part in which it died."""
    script = """
        if [ -e $2 ]; then sed -i 's/"parts": {/"parts": {"c": {"verdict": "right"}, /' $2; exit; fi
        echo '{"parts": {"a": {"verdict": "right"}}, "running": "b"}' > $2; kill -SEGV $$"""
    found = checked(tmp_path, script, device_check.Section("probes", "", 60, "", restarts=2))["probes"]
    assert {name: part["verdict"] for name, part in found["parts"].items()} == {
        "a": "right",
        "b": report.CRASHED,
        "c": "right",
    }
    assert found["verdict"] == "FAILED"


def test_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a native module nothing runs, and late sections are left out of a late run, unless they are
    asked for."""
    build_, step = device_check.only("build"), device_check.only("step")
    found = checked(tmp_path, "exit 1", build_, step)
    assert found["build"]["verdict"] == "FAILED"
    assert found["step"] == {"verdict": "left out", "reason": "there is no native module"}
    monkeypatch.setattr(device_check, "LATEST_S", -1)
    found = checked(tmp_path, "exit 0", step, device_check.only("loader"))
    assert [found["step"]["verdict"], found["loader"]["verdict"]] == ["ok", "left out"]
    check = device_check.Check(tmp_path, rehearse=False, start=by_shell("exit 0"))
    assert device_check.run(check, ["loader"]) == 0
    assert check.results["sections"]["loader"]["verdict"] == "ok"


def test_a_report_survives_its_process(tmp_path: Path) -> None:
    """Each part is on the disk when it ends, with what it raised; a second process does not do it again."""
    done: list[str] = []

    def fails() -> dict[str, Any]:
        done.append("b")
        raise ValueError("no\nsecond line")

    for _ in range(2):
        found = report.Report(tmp_path / "report.json")
        found.run("a", lambda: done.append("a") or {"figure": 1})
        found.run("b", fails)
    parts = report.read(tmp_path / "report.json")["parts"]
    assert done == ["a", "b"]
    assert (parts["a"]["verdict"], parts["a"]["figure"]) == (report.RIGHT, 1)
    assert (parts["b"]["verdict"], parts["b"]["said"]) == (report.ERROR, "ValueError: no")
    assert report.failed(parts)


# ---- sections


def test_a_build_that_fails_takes_the_packed_module(tmp_path: Path) -> None:
    """The native module is built if it can be, else the packed one is put in its place; without one, the
    output is reported."""
    from fastload._native import core

    target, packed = tmp_path / "target", tmp_path / "packed"
    target.mkdir()
    packed.mkdir()
    with pytest.raises(report.Wrong, match="no packed core") as error:
        build.made(["sh", "-c", "echo no compiler; exit 1"], packed, target)
    assert error.value.details["tail"] == ["no compiler"]
    module = Path(core.__file__)
    (packed / module.name).write_bytes(module.read_bytes())
    found = build.made(["sh", "-c", "sleep 1000"], packed, target, limit=0.1)
    assert (found["made"], (target / module.name).read_bytes() == module.read_bytes()) == ("packed", True)
    assert build.made(["true"], packed, target)["made"] == "built"


def test_the_pack_is_for_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed wheels come before what is installed, under the Python that they are for alone."""
    monkeypatch.setattr(environment, "PACK", tmp_path)
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "a.whl", "w") as wheel:
        wheel.writestr("a/__init__.py", "")
    site = str(tmp_path / "site")
    assert (
        site not in environment.environment(rehearse=False)["PYTHONPATH"].split(os.pathsep)
        or sys.version_info[:2] == environment.PYTHON
    )
    monkeypatch.setattr(environment, "PYTHON", sys.version_info[:2])
    found = environment.environment(rehearse=False)
    assert site in found["PYTHONPATH"].split(os.pathsep)
    assert (tmp_path / "site" / "a" / "__init__.py").exists()
    assert found["LD_LIBRARY_PATH"].split(os.pathsep)[0] == str(tmp_path / "lib")


LAUNCHED = "launched: _planar _apply\n"
OVERRUN = "========= Invalid __global__ write of size 4 bytes\n=========     at {}+0x90 in /tmp/x.py:3\n"


@pytest.mark.parametrize(
    ("output", "verdict"),
    [
        (LAUNCHED + OVERRUN.format("planted_overrun"), report.RIGHT),
        (LAUNCHED, report.WRONG),
        (LAUNCHED + OVERRUN.format("_apply") + OVERRUN.format("planted_overrun"), report.WRONG),
        ("Traceback\n", report.WRONG),
        ("========= Error: Device not supported. Please refer to the documentation\n", report.SKIPPED),
    ],
)
def test_memchecks_verdict(output: str, verdict: str) -> None:
    """Only the planted overrun may be invalid, and it has to be seen; where the tool refuses the device,
    that is said."""
    assert report.verdict(lambda: sanitizer.judged(output))["verdict"] == verdict


def test_tests_that_did_not_pass(tmp_path: Path) -> None:
    """Each has its verdict and its message."""
    file = tmp_path / "junit.xml"
    file.write_text(
        "<testsuites><testsuite><testcase classname='m' name='a'/><testcase classname='m' "
        "name='b'><failure message='no'>trace</failure>"
        "</testcase><testcase classname='m' name='c'><skipped message='one "
        "device'>at</skipped></testcase></testsuite></testsuites>"
    )
    assert suite.outcomes(file) == [
        ("m::a", report.RIGHT, ""),
        ("m::b", report.WRONG, "no\ntrace"),
        ("m::c", report.SKIPPED, "one device"),
    ]
