"""merge_traces: a loader's trace and torch.profiler's lie in one time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import Dataset
from trace_helpers import end, named, read_trace

from fastload import FastLoader
from fastload.errors import ArgumentError
from fastload.health import merge_traces


class Slow(Dataset[int]):
    """Samples that take a while."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        time.sleep(0.05)
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_waits_lie_within_torch_profilers_regions(tmp_path: Path, workers: int) -> None:
    """A region of the user's around next(loader) encloses our wait, to the accuracy of torch's clock, and
    each another one."""
    ours, theirs, both = (tmp_path / name for name in ("ours.json", "theirs.json.gz", "both.json"))
    with (
        FastLoader(Slow(), batch_size=1, num_workers=workers) as loader,
        profile(activities=[ProfilerActivity.CPU]) as profiler,
    ):
        with loader.trace(ours):
            iterator = iter(loader)
            for _ in range(3):
                with record_function("region"):
                    next(iterator)
            del iterator
    profiler.export_chrome_trace(str(theirs))
    merge_traces([theirs, ours], both)
    merged = json.loads(both.read_text())
    assert merged["baseTimeNanoseconds"] == json.loads(ours.read_text())["baseTimeNanoseconds"]
    found = sorted(
        (each for each in merged["traceEvents"] if each["ph"] == "X"), key=lambda each: float(each["ts"])
    )
    regions = [each for each in found if each["name"] == "region"]
    waits = named(found, "wait")
    tolerance_us = 2000
    assert len(regions) == len(waits) == 3
    for region, wait in zip(regions, waits, strict=True):
        assert (region["pid"], region["tid"]) == (wait["pid"], wait["tid"])
        assert region["ts"] - tolerance_us <= wait["ts"]
        assert end(wait) <= end(region) + tolerance_us
    assert sum(wait["dur"] for wait in waits) >= 50_000


def test_merging_shifts_another_base(tmp_path: Path) -> None:
    """Files of one base are joined as they are; one of another base is shifted; a row has one name."""
    name = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "a"}}
    stage = {"ph": "X", "name": "s", "pid": 1, "tid": 2, "ts": 5.5, "dur": 1}
    for file, base in (("a", 10**9), ("b", 10**9 + 4000)):
        (tmp_path / file).write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": [name, stage]}))
    merge_traces([tmp_path / "a", tmp_path / "b", tmp_path / "a"], tmp_path / "out.json.gz")
    out = read_trace(tmp_path / "out.json.gz")
    assert out["traceEvents"].count(name) == 1
    assert [float(each["ts"]) for each in out["traceEvents"] if each["ph"] == "X"] == [5.5, 9.5, 5.5]
    for body in ("{", "[]", '{"traceEvents": 3}'):
        (tmp_path / "bad").write_text(body)
        with pytest.raises(ArgumentError, match="bad is no trace"):
            merge_traces([tmp_path / "a", tmp_path / "bad"], tmp_path / "out.json")
    with pytest.raises(ArgumentError, match="give the files"):
        merge_traces([], tmp_path / "out.json")
