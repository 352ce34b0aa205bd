"""Trace: each engine's stages, in a file that is sound however the loop ends, in the time base of
torch.profiler."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scenes import Scenes
from torch.utils.data import Dataset, IterableDataset
from trace_helpers import Event, end, events, named, read_trace

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError
from fastload.health import tracing

CROP = [T.RandomResizedCrop(32)]
NATIVE = {"sample", "read", "decode", "resize"}


class Numbers(Dataset[torch.Tensor]):
    """A Dataset of Python, whose sample 9 cannot be made."""

    def __init__(self, count: int = 24, bad: int = -1) -> None:
        self.count, self.bad = count, bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            raise KeyError(index)
        return torch.full((3,), index)


class Stream(IterableDataset[torch.Tensor]):
    """24 samples, in as many parts as there are workers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = torch.utils.data.get_worker_info()
        yield from (torch.tensor(n) for n in range(24) if info is None or n % info.num_workers == info.id)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """No test leaves a trace that is taken."""
    yield
    assert tracing.active is None


def taken(loader: Any, path: Path) -> list[Event]:
    """The trace of one epoch."""
    with loader.trace(path):
        for _ in loader:
            pass
    return events(path)


ENGINES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "native threads": ({"num_workers": 2}, {"announce", "assemble", *NATIVE}),
    "the loop's thread": ({"num_workers": 0}, {"announce", "assemble", *NATIVE}),
    "worker processes": (
        {"num_workers": 2, "engine": "python"},
        {"python", "collate", "write", "assemble", *NATIVE},
    ),
    "rows": (
        {"num_workers": 2, "engine": "python", "seed_by": "sample"},
        {"python", "write", "assemble", *NATIVE},
    ),
    "the calling process": ({"num_workers": 0, "engine": "python"}, {"python", "collate", *NATIVE}),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_waits_and_its_stages(packed: Path, tmp_path: Path, engine: str) -> None:
    """Each wait and step once, and every sample of the epoch decoded exactly once."""
    options, stages = ENGINES[engine]
    with FastLoader(str(packed), batch_size=8, transform=CROP, shuffle=True, seed=3, **options) as loader:
        found = taken(loader, tmp_path / "run.json")
    assert {each["name"] for each in found} >= {"iter", "wait", "step", *stages}
    assert len(named(found, "wait")) == 8
    assert len(named(found, "wait", ended="StopIteration")) == 1
    assert len(named(found, "step")) == 7
    for name in NATIVE:
        assert sorted(each["args"]["index"] for each in named(found, name, epoch=0)) == list(range(50))
    assert not named(found, "sample", failed=True)


def test_workers_are_processes_of_their_own(packed: Path, tmp_path: Path) -> None:
    """Stages of a sample are in the worker that made it, waits in the loop's process, and all processes
    have names."""
    with FastLoader(str(packed), batch_size=8, transform=CROP, engine="python", num_workers=2) as loader:
        found = taken(loader, tmp_path / "run.json")
    made = {each["pid"] for each in named(found, "decode")}
    assert len(made) == 2
    assert made == {each["pid"] for each in named(found, "python")}
    assert {each["pid"] for each in named(found, "wait")} == {os.getpid()}
    names = {
        each["args"]["name"]
        for each in read_trace(tmp_path / "run.json")["traceEvents"]
        if each["name"] == "process_name"
    }
    assert {"fastload worker 0", "fastload worker 1"} < names


def test_waits_and_steps_take_turns(tmp_path: Path) -> None:
    """A step begins when a batch came and ends when the next is asked for."""
    with FastLoader(Numbers(), batch_size=4) as loader:
        found = taken(loader, tmp_path / "run.json")
    waits, steps = named(found, "wait"), named(found, "step")
    assert [end(wait) for wait in waits[:-1]] == [step["ts"] for step in steps]
    assert [wait["ts"] for wait in waits[1:]] == [end(step) for step in steps]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_python_dataset(tmp_path: Path, workers: int) -> None:
    """Each sample is one stage, with its index; an iterable dataset's batch is one."""
    with FastLoader(Numbers(), batch_size=4, num_workers=workers) as loader:
        found = taken(loader, tmp_path / "map.json")
    assert sorted(each["args"]["index"] for each in named(found, "python")) == list(range(24))
    assert len(named(found, "collate")) == 6
    with FastLoader(Stream(), batch_size=4, num_workers=workers) as loader:
        found = taken(loader, tmp_path / "stream.json")
    assert len(named(found, "python")) >= 6


def test_batch_stages_are_in_the_thread_that_does_them(packed: Path, tmp_path: Path) -> None:
    """With a batch transform a thread assembles ahead of the loop; the transform's time is within."""
    options: dict[str, Any] = {
        "batch_size": 10,
        "transform": CROP,
        "num_workers": 1,
        "batch_transform": lambda images: images.float(),
    }
    with FastLoader(str(packed), device="cpu", **options) as loader:
        found = taken(loader, tmp_path / "run.json")
    assert len(named(found, "assemble")) >= 5
    assert len(named(found, "augment")) >= 5
    assert not {each["tid"] for each in named(found, "wait")} & {
        each["tid"] for each in named(found, "decode")
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_fails_leaves_a_whole_file(tmp_path: Path, workers: int) -> None:
    """The wait that failed says how, and the exception is the loop's."""
    path = tmp_path / "run.json"
    with (
        FastLoader(Numbers(bad=9), batch_size=4, num_workers=workers) as loader,
        pytest.raises(KeyError),
        loader.trace(path),
    ):
        for _ in loader:
            pass
    found = events(path)
    assert len(named(found, "wait")) == 3
    assert len(named(found, "wait", failed="KeyError")) == 1
    assert named(found, "python", index=9)


def test_it_may_begin_and_end_in_mid_epoch(tmp_path: Path) -> None:
    """Workers that run already record from then on."""
    with FastLoader(Numbers(400), batch_size=4, num_workers=2, multiprocessing_context="spawn") as loader:
        iterator, trace = iter(loader), loader.trace(tmp_path / "run.json")
        next(iterator)
        trace.start()
        trace.start()
        for _ in range(50):
            next(iterator)
        trace.stop()
        found = events(tmp_path / "run.json")
        assert sum(1 for _ in iterator) == 49
        trace.stop()
    assert len(named(found, "wait")) == 50
    assert len({each["pid"] for each in named(found, "python")}) == 2
    assert len(named(found, "python")) > 100


def test_two_traces_at_a_time(packed: Path, tmp_path: Path) -> None:
    """Each has what was recorded while it was taken."""
    with FastLoader(str(packed), batch_size=10, transform=CROP, num_workers=1, seed=0) as loader:
        with loader.trace(tmp_path / "both.json"):
            first = taken(loader, tmp_path / "first.json")
            for _ in loader:
                pass
        both = events(tmp_path / "both.json")
    assert len(named(first, "step")) == 5
    assert len(named(both, "step")) == 10
    assert len(named(both, "decode", epoch=0)) == len(named(both, "decode", epoch=1)) == 50


def test_a_traced_epoch_has_the_same_batches(packed: Path, tmp_path: Path) -> None:
    """A trace changes nothing in the loop, nor in the random state."""
    batches = []
    for traced in (False, True):
        torch.manual_seed(7)
        with FastLoader(str(packed), batch_size=10, transform=CROP, shuffle=True, num_workers=2) as loader:
            if traced:
                with loader.trace(tmp_path / "run.json"):
                    found = [images for images, _ in loader]
            else:
                found = [images for images, _ in loader]
            batches.append((*found, torch.rand(1)))
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_fields_of_the_row_are_filled(tmp_path: Path) -> None:
    """What goes into the row beside the image is a stage of its own."""
    fastload.pack(Scenes(14), tmp_path / "scenes.fl", workers=1)
    options: dict[str, Any] = {
        "transform": [T.Resize((16, 16))],
        "collate": "list",
        "num_workers": 1,
        "seed": 0,
    }
    with FastLoader(str(tmp_path / "scenes.fl"), batch_size=7, **options) as loader:
        found = taken(loader, tmp_path / "run.json")
    assert sorted(each["args"]["index"] for each in named(found, "fill", epoch=0)) == list(range(14))


# ---- bounds


def test_no_more_than_the_limit_is_kept(
    packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first events stay, the others are counted, in the file, in `dropped` and in a warning."""
    path = tmp_path / "run.json"
    with FastLoader(str(packed), batch_size=10, transform=CROP, num_workers=2) as loader:
        trace = loader.trace(path, limit=30)
        with caplog.at_level(logging.WARNING, "fastload"), trace:
            for _ in loader:
                pass
    assert len(events(path)) == 30
    assert trace.dropped > 50
    assert read_trace(path)["otherData"] == {"producer": "fastload", "dropped": trace.dropped}
    assert f"lacks {trace.dropped} events" in caplog.text


def test_a_full_ring_is_counted(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker could not write is counted too: nothing that a file lacks goes unsaid."""
    monkeypatch.setattr(tracing, "RING", 8)
    with FastLoader(str(packed), batch_size=50, transform=CROP, num_workers=1, seed=0) as loader:
        trace = loader.trace(tmp_path / "run.json")
        with trace:
            for _ in loader:
                pass
    found = [each for name in NATIVE for each in named(events(tmp_path / "run.json"), name, epoch=0)]
    assert len(found) < 200
    assert len(found) + trace.dropped >= 200


def test_rings_go_with_their_owners(packed: Path, tmp_path: Path, no_leaks: None) -> None:
    """A loader that ends within a trace leaves its last events, and nothing else."""
    trace = tracing.Trace(tmp_path / "run.json")
    trace.start()
    with FastLoader(str(packed), batch_size=10, transform=CROP, num_workers=2, seed=0) as loader:
        for _ in loader:
            pass
    del loader
    assert len(PackedDataset(packed, transform=CROP)[3]) == 2
    trace.stop()
    assert len(named(events(tmp_path / "run.json"), "decode", epoch=0)) >= 50
    assert core.traced_events() == []


@pytest.mark.parametrize("path", ["gone/run.json", "."])
def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, path: str) -> None:
    """Not after the loop."""
    with pytest.raises(ArgumentError, match="name a file"):
        FastLoader(Numbers()).trace(tmp_path / path)
    with pytest.raises(ArgumentError, match="at least 1"):
        FastLoader(Numbers()).trace(tmp_path / "run.json", limit=0)


def test_a_failed_write_leaves_the_file_before(tmp_path: Path) -> None:
    """Where the folder is gone by the end, the error names the file."""
    folder = tmp_path / "there"
    folder.mkdir()
    trace = FastLoader(Numbers()).trace(folder / "run.json")
    trace.start()
    folder.rmdir()
    with pytest.raises(ArgumentError, match=r"cannot be written to .*run\.json: No such file"):
        trace.stop()
