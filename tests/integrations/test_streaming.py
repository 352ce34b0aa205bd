"""Mosaic's and LitData's StreamingDataset, whose state_dict() needs arguments, and their own loaders made
of FastLoader."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data
from torch.utils.data import DataLoader

from fastload import FastLoader

COUNT = 40


class Library:
    """A library: its dataset, and its loader over a base.

    Attributes:
        opened: opens a folder of COUNT numbers, shuffled.
        module: the module that defines StreamingDataLoader.
    """

    def __init__(self, opened: Callable[[], Any], module: Any) -> None:
        self.opened, self.module = opened, module

    def loader_over(self, base: type, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The library's StreamingDataLoader, from a copy of its module in which DataLoader is `base`, as
        `fastload run` has it."""
        with monkeypatch.context() as patched:
            patched.setattr(torch.utils.data, "DataLoader", base)
            patched.setattr(torch.utils.data.dataloader, "DataLoader", base)
            spec = importlib.util.spec_from_file_location(
                f"{self.module.__name__}_over_{base.__name__}", self.module.__file__
            )
            assert spec is not None
            assert spec.loader is not None
            copy = importlib.util.module_from_spec(spec)
            patched.setitem(sys.modules, spec.name, copy)
            spec.loader.exec_module(copy)
        assert issubclass(copy.StreamingDataLoader, base)
        return copy.StreamingDataLoader


@pytest.fixture
def mosaic(tmp_path: Path) -> Iterator[Library]:
    streaming = pytest.importorskip("streaming")
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns={"x": "int"}, size_limit=1 << 8) as writer:
        for x in range(COUNT):
            writer.write({"x": x})

    def opened() -> Any:
        streaming.base.util.clean_stale_shared_memory()  # as a new program finds it
        return streaming.StreamingDataset(
            local=str(tmp_path / "mds"), shuffle=True, shuffle_seed=3, batch_size=4, num_canonical_nodes=1
        )

    yield Library(opened, streaming.base.dataloader)
    streaming.base.util.clean_stale_shared_memory()


@pytest.fixture
def litdata(tmp_path: Path) -> Library:
    litdata = pytest.importorskip("litdata")
    folder = tmp_path / "chunks"
    os.mkdir(folder)
    writer = importlib.import_module("litdata.streaming.writer").BinaryWriter(str(folder), chunk_size=10)
    for x in range(COUNT):
        writer.add_item(x, {"x": x})
    writer.done()
    writer.merge()
    return Library(
        lambda: litdata.StreamingDataset(str(folder), shuffle=True, seed=3),
        sys.modules["litdata.streaming.dataloader"],
    )


@pytest.fixture(params=["mosaic", "litdata"])
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.getfixturevalue(request.param)
    return found


def epochs(loader: Any, number: int = 2) -> list[list[list[int]]]:
    return [[batch["x"].tolist() for batch in loader] for _ in range(number)]


def test_batches_are_torchs(library: Library) -> None:
    """Two epochs are those of DataLoader; the state of the loader says that it holds none of the dataset."""
    for workers, options in ((0, {}), (2, {}), (2, {"engine": "python"})):
        expected = epochs(DataLoader(library.opened(), batch_size=4, num_workers=workers))
        with FastLoader(library.opened(), batch_size=4, num_workers=workers, **options) as loader:
            assert epochs(loader) == expected
            with pytest.warns(UserWarning, match=r"StreamingDataset.state_dict\(\) needs arguments"):
                state = loader.state_dict()
        assert json.loads(json.dumps(state))["epoch"] == 2


def resumed(kind: Any, library: Library, workers: int) -> tuple[list[list[int]], list[list[int]]]:
    """The first four batches of a loader, and the rest, from a new loader that has its state."""
    first = kind(library.opened(), batch_size=4, num_workers=workers)
    batches = iter(first)
    had = [batch["x"].tolist() for batch in islice(batches, 4)]
    state = json.loads(json.dumps(first.state_dict()))
    batches.close()
    second = kind(library.opened(), batch_size=4, num_workers=workers)
    second.load_state_dict(state)
    return had, epochs(second, 1)[0]


def test_its_own_loader_resumes(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's loader made of FastLoader goes on from its state of mid-epoch in a new loader, as it
    does over torch's."""
    ours, theirs = (library.loader_over(base, monkeypatch) for base in (FastLoader, DataLoader))
    for workers in (0, 2):
        had, rest = resumed(ours, library, workers)
        assert (had, rest) == resumed(theirs, library, workers)
        assert sorted(x for batch in had + rest for x in batch) == list(range(COUNT))
