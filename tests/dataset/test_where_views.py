"""A query's view stays native and pickles, forks and threads may share it; a dataset's table is what was
packed, in its own memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from everything import COUNT, packed_everything, rows_of_everything
from torch.utils.data import ConcatDataset, Subset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_everything(tmp_path_factory.mktemp("where") / "all.fl")


@pytest.fixture(scope="module")
def ds(path: Path) -> PackedDataset:
    return PackedDataset(path)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_of_everything()


# ---- the view ----------------------------------------------------------------------------------------------


def test_the_view_stays_native(path: Path) -> None:
    """It is a torch Subset that FastLoader reads natively, also nested and joined, and gives the samples
    of those rows in order."""
    ds = PackedDataset(path, transform=[T.Resize((8, 8))], fields=["image", "label"])
    view = ds.where("label in (3, 7)")
    assert type(view) is Subset
    assert view.dataset is ds
    expected = np.flatnonzero(np.isin(ds.column("label"), (3, 7)))
    assert np.array_equal(view.indices, expected)
    for dataset, rows in (
        (view, expected),
        (Subset(view, [4, 0]), expected[[4, 0]]),
        (ConcatDataset([view, ds.where("label = 0")]), [*expected, *np.flatnonzero(ds.column("label") == 0)]),
    ):
        with FastLoader(dataset, batch_size=16, num_workers=2) as loader:
            assert "the dataset is packed and its transform is native" in str(loader.explain(all=True))
            batches = list(loader)
        assert (
            torch.cat([labels for _, labels in batches]).tolist()
            == ds.column("label")[np.asarray(rows)].tolist()
        )
        assert torch.equal(
            torch.cat([images for images, _ in batches]), torch.stack([ds[int(row)][0] for row in rows])
        )
    assert view[0][1] in (3, 7)
    assert [label for _, label in view.__getitems__([1, 0])] == [view[1][1], view[0][1]]
    with FastLoader(view, batch_size=16, engine="native") as loader:
        assert len(list(loader)) == -(-len(view) // 16)


def test_pickle(ds: PackedDataset) -> None:
    """A dataset that has been queried pickles by its path, and its view by its indices."""
    view = ds.where("caption like '%dog%'")
    assert len(pickle.dumps(ds)) < 2000
    again = pickle.loads(pickle.dumps(view))
    assert np.array_equal(again.indices, view.indices)
    assert np.array_equal(again.dataset.where("caption like '%dog%'").indices, view.indices)


def test_fork(path: Path) -> None:
    """A forked child queries by a connection of its own, with the text that its parent read; neither
    crashes at its end."""
    code = """if True:
        import os, sys
        from fastload import PackedDataset
        ds = PackedDataset(sys.argv[1])
        count, connection = len(ds.where("caption like '%dog%'")), ds.opened.conditions.connection
        texts = ds.opened.columns.table(["caption"])["caption"].chunk(0).buffers()[2].address
        for exits in (os._exit, sys.exit):
            child = os.fork()
            if child == 0:
                assert len(ds.where("caption like '%dog%'")) == count
                assert ds.opened.conditions.connection is not connection
                assert ds.opened.columns.table(["caption"])["caption"].chunk(0).buffers()[2].address == texts
                del connection
                grandchild = os.fork()
                if grandchild == 0:
                    assert len(ds.where("label = 1")) > 0
                    os._exit(0)
                assert os.waitpid(grandchild, 0)[1] == 0
                ds.close()
                exits(0)
            assert os.waitpid(child, 0)[1] == 0, exits
        assert len(ds.where("caption like '%dog%'")) == count
        ds.close()
        assert len(ds.where("label = 1")) > 0
    """
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_threads(path: Path) -> None:
    """Several threads may ask at once, also first."""
    ds = PackedDataset(path)
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(len(ds.where("caption like '%dog%'"))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 8
    assert set(counts) == {len(ds.where("caption like '%dog%'"))}


# ---- the table ---------------------------------------------------------------------------------------------


def test_table(ds: PackedDataset, rows: list[dict[str, Any]]) -> None:
    """All fields but the image, then width and height; values are those that were packed."""
    table = ds.table()
    names = ["label", "weight", "caption", "meta", "box", "grid", "raw", "odd name", "width", "height"]
    assert table.column_names == names
    assert table.num_rows == COUNT
    got = table.to_pylist()
    for ours, row in zip(got, rows, strict=True):
        assert json.loads(ours.pop("meta")) == row["meta"]
        assert np.array_equal(ours.pop("weight"), row["weight"], equal_nan=True)
        assert np.array_equal(ours.pop("grid"), row["grid"])
        assert ours.pop("box") == row["box"].tolist()
        assert ours == {name: row[name] for name in ours}


def test_the_table_shares_memory(ds: PackedDataset) -> None:
    """Numbers and arrays of the table are the reader's columns, not copies; text is read once."""
    table, again = ds.table(), ds.table()
    for name in ("label", "weight", "box", "grid"):
        array = table[name].chunk(0)
        while pa.types.is_fixed_size_list(array.type):
            array = array.values
        assert array.buffers()[1].address == ds.column(name).ctypes.data
    assert table["width"].chunk(0).buffers()[1].address == ds.column("__width__").ctypes.data
    assert table["caption"].chunk(0).buffers()[2].address == again["caption"].chunk(0).buffers()[2].address
