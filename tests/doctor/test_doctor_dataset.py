"""Datasets of `fastload doctor`: one that is sound, damaged ones, what is none; and nothing of them is
changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from examined import bad, doctor
from pictures import write_folder

from fastload import attach
from fastload.cli import main as main_module
from fastload.doctor.dataset import dataset_findings
from fastload.doctor.disk import DiskSpeed, cached_share, disk_finding, measure_disk
from fastload.doctor.finding import Finding
from fastload.doctor.job import Job
from fastload.doctor.rate import Rate, step_finding


def content(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Digest, mode and time of the last change of each file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = [(path, path.stat()) for path in files]
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), stat.st_mode, stat.st_mtime_ns)
        for path, stat in found
    }


def on(dataset: Path, job: Job) -> dict[str, Finding]:
    """Findings about a dataset alone, by name."""
    return {each.name: each for each in dataset_findings(job, str(dataset))}


def faults(found: dict[str, Finding]) -> set[str]:
    """Names of the bad ones."""
    return {name for name, each in found.items() if each.verdict == "bad"}


SMALL = Job(size=64, batch_size=4, num_workers=2)


def test_a_sound_dataset(packed: Path) -> None:
    """All that is measured of a sound dataset has a figure, none of it is bad, and the dataset is what it
    was."""
    before = content(packed)
    status, found = doctor(packed, "--step-ms", "60000", "--batch-size", "8", "--size", "64")
    assert content(packed) == before
    assert bad(found) == set()
    assert status == (found["torchvision"]["verdict"] == "bad")
    assert found["dataset"]["value"]["samples"] == 50
    assert found["records"]["value"] == {"read": 50, "bad": []}
    assert found["decoding"]["value"]["samples_per_s"] > 0
    assert found["disk"]["value"]["sequential"] > 0
    assert found["disk"]["value"]["random"] > 0
    assert found["page cache"]["verdict"] == "good"
    assert found["step"]["value"]["needed_per_s"] == pytest.approx(8 / 60)
    assert found["step"]["verdict"] == "good"
    assert found["open files"]["value"]["shards"] == found["dataset"]["value"]["shards"] > 1


def test_a_step_that_is_too_fast(packed: Path) -> None:
    """Of a step of a microsecond, the loop would wait nearly all the time; beside other programs that is
    unknown."""
    found = on(packed, replace(SMALL, step_ms=0.001, batch_size=64))["step"]
    assert found.verdict in ("bad", "unknown")
    assert found.remedy
    assert found.value["needed_per_s"] == pytest.approx(64_000_000)


@pytest.mark.parametrize(
    ("there", "others", "verdict"),
    [
        (1000, 0.0, "good"),
        (840, 0.0, "unknown"),
        (500, 0.0, "bad"),
        (500, 0.5, "unknown"),
        (1000, 0.5, "good"),
        (500, None, "bad"),
    ],
)
def test_a_step_against_a_rate(there: float, others: float | None, verdict: str) -> None:
    """A step that takes 800 samples a second: clearly more is good, clearly less bad, unless others took
    the CPUs; else unknown."""
    found = step_finding(Rate(there, 0.02, 0, 100, 0.0, others), Job(step_ms=80), 800.0)
    assert found.verdict == verdict
    assert bool(found.remedy) == (verdict != "good")


def test_a_disk_against_a_need() -> None:
    """A disk that is too slow is bad only where the data do not fit the page cache; reads that may come
    from there decide nothing."""
    slow = DiskSpeed(True, 1e8, 100.0, 131072, 1 << 20)

    def found(speed: DiskSpeed, needed: float | None, fits: bool) -> Finding:
        return disk_finding(speed, needed, "the step takes", fits=fits)

    assert found(slow, 50, False).verdict == "good"
    assert found(slow, 500, True).verdict == "good"
    assert found(slow, 500, False).verdict == "bad"
    assert 'shuffle="window"' in found(slow, 500, False).remedy
    assert found(slow, None, False).verdict == "unknown"
    assert found(DiskSpeed(False, 1e9, 1e6, 131072, 1 << 20), 500, False).verdict == "unknown"


def test_the_share_in_the_page_cache(tmp_path: Path) -> None:
    """Of a file that was just written all is in the page cache, of one that was dropped little; measuring
    the disk brings nothing in."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    files = [(path, 8 << 20)]
    if cached_share(files) is None:
        pytest.skip("this file system does not say")
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    assert cached_share(files) == 1.0
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    share = cached_share(files)
    if share == 1.0:
        pytest.skip("this file system keeps its pages")
    speed = measure_disk(files, 10_000)
    assert speed.random_bytes == 12_288
    assert speed.sequential > 0
    assert speed.read_bytes >= 8 << 20
    if speed.direct:
        assert share < 0.1
        assert (cached_share(files) or 0.0) < 0.3  # the pages that were asked for


def test_a_file_system_without_direct_reads() -> None:
    """On a tmpfs, whose reads never go past memory, the disk is measured with what it has, and says so or
    not."""
    path = Path("/dev/shm") / f"fastload-doctor-{os.getpid()}"
    try:
        path.write_bytes(bytes(1 << 20))
        speed = measure_disk([(path, 1 << 20)], 5000)
        assert cached_share([(path, 1 << 20)]) in (None, 1.0)
    finally:
        path.unlink(missing_ok=True)
    assert speed.random > 0


def test_damaged_records(packed: Path, tmp_path: Path) -> None:
    """Records whose bytes were changed are bad, with a reason and the command that lists all; the rest is
    measured."""
    copy = tmp_path / "copy.fl"
    shutil.copytree(packed, copy)
    shard = largest(copy)
    data = bytearray(shard.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8192] = bytes(255 - value for value in data[middle : middle + 8192])
    shard.write_bytes(data)
    status, found = doctor(copy, "--size", "64")
    assert status == 1
    assert bad(found) == {"records"}
    assert 0 < len(found["records"]["value"]["bad"]) < 50
    assert "`fastload verify" in found["records"]["remedy"]
    assert found["decoding"]["value"]["samples_per_s"] > 0


def largest(folder: Path) -> Path:
    """The largest file in a folder."""
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_a_shard_that_was_cut(packed: Path, tmp_path: Path) -> None:
    """A dataset that does not open is one bad line, which names the file."""
    copy = tmp_path / "copy.fl"
    shutil.copytree(packed, copy)
    shard = largest(copy)
    os.truncate(shard, shard.stat().st_size // 2)
    found = on(copy, SMALL)
    assert set(found) == {"dataset", "open files"}
    assert faults(found) == {"dataset"}
    assert shard.name in found["dataset"].text


def test_no_dataset(tmp_path: Path) -> None:
    """A folder of notes, and a path where nothing is, are bad, with the sentence that other commands have;
    the machine is checked all the same."""
    (tmp_path / "notes" / "old").mkdir(parents=True)
    (tmp_path / "notes" / "old" / "1.txt").write_text("a note")
    status, found = doctor(tmp_path / "notes")
    assert status == 1
    assert bad(found) == {"dataset"}
    assert str(tmp_path / "notes") in found["dataset"]["text"]
    assert "cpus" in found
    missing = on(tmp_path / "nothing", SMALL)["dataset"]
    assert missing.verdict == "bad"
    assert str(tmp_path / "nothing") in missing.text


def test_attached_images(tmp_path: Path) -> None:
    """Of a dataset that holds places of files, the files are read and decoded; the disk under them is
    unknown."""
    write_folder(tmp_path / "photos", 12)
    attach(tmp_path / "photos", tmp_path / "index.fl", progress=False)
    found = on(tmp_path / "index.fl", SMALL)
    assert faults(found) == set()
    assert found["records"].value["read"] == 12
    assert found["decoding"].value["failed"] == 0
    assert found["page cache"].verdict == "unknown"
    assert "disk" not in found


def test_the_text_fits_80_columns(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line begins with a verdict, goes on below its text, or is a remedy; the last one counts them."""
    monkeypatch.chdir(packed.parent)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    monkeypatch.setattr(sys, "argv", ["fastload", "doctor", packed.name, "--size", "64"])
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split()[0] for line in lines if line[2] != " "]
    assert set(heads) <= {"good", "bad", "unknown"}
    assert last == f"{heads.count('good')} good, {heads.count('bad')} bad, {heads.count('unknown')} unknown"
    assert any(line.startswith(" " * 23 + "-> ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step-ms", "80"], "--step-ms compares a step with a dataset's samples: name a DATASET"),
        (["--step-ms", "soon", "a.fl"], "--step-ms 'soon': give a number of at least 0.001"),
        (["--batch-size", "0", "a.fl"], "--batch-size '0': give a whole number of at least 1"),
        (["a.fl", "b.fl"], "b.fl is more than `fastload doctor` takes"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong argument is exit status 2 and one sentence, as of the other commands."""
    monkeypatch.setattr(sys, "argv", ["fastload", "doctor", *arguments])
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert message in printed.err
