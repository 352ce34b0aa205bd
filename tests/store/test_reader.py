"""DatasetReader: right bytes or an error that names the file; safe over fork, spawn, threads and close."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from handles import descriptors, none_left, opened_since
from store_helpers import contents, values_of

from fastload._native import core
from fastload.errors import ArgumentError, ClosedError, DatasetError, SampleError
from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema
from fastload.store import reader as reader_module

COUNT = 60
pytestmark = pytest.mark.usefixtures("no_leaks")


def test_missing_and_truncated_shard(copy: Path) -> None:
    """Each names the dataset, the shard and what to do."""
    shard = copy / "shard-00001.lmdb"
    data = shard.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        shard.write_bytes(data[:size])
        with pytest.raises(DatasetError, match=r"copy.*shard-00001\.lmdb.*bytes long.*copy it again"):
            DatasetReader(copy)
    shard.write_bytes(data + b"\0")
    with pytest.raises(DatasetError, match="bytes long"):
        DatasetReader(copy)
    shard.unlink()
    with pytest.raises(DatasetError, match=r"copy.*shard-00001\.lmdb is missing"):
        DatasetReader(copy)


def test_swapped_shards(copy: Path) -> None:
    """Two shards in each other's place are noticed even when sizes and counts would fit."""
    manifest = Manifest.load(copy)
    a, b = copy / manifest.shards[0].file, copy / manifest.shards[1].file
    one, two = a.read_bytes(), b.read_bytes()
    size = max(len(one), len(two))
    a.write_bytes(two[:size])
    b.write_bytes(one[:size])
    with pytest.raises(DatasetError):
        DatasetReader(copy)


def test_flipped_bytes(copy: Path) -> None:
    """One byte changed anywhere in a shard: an error that names it, or exactly the packed values."""
    records, columns = contents(copy)
    shard = copy / "shard-00000.lmdb"
    data = shard.read_bytes()
    rng = random.Random(11)
    refused = 0
    for _ in range(400):
        at, change = rng.randrange(len(data)), rng.randrange(1, 256)
        bad = bytearray(data)
        bad[at] ^= change
        shard.write_bytes(bad)
        try:
            with DatasetReader(copy) as reader:
                assert {name: reader.column(name).tolist() for name in reader.schema.columns} == columns
                for i in range(COUNT):
                    try:
                        assert reader.record(i) == records[i], (at, change)
                    except SampleError as error:
                        assert (error.index, error.shard) == (i, "shard-00000.lmdb")
                        refused += 1
        except DatasetError as error:
            assert "shard-00000.lmdb" in str(error), (at, change)
            refused += 1
    assert refused > 100


def test_damaged_record_is_named(copy: Path) -> None:
    """A flipped byte inside a record: SampleError with index, shard, reason; its neighbours still read."""
    shard = copy / "shard-00000.lmdb"
    data = bytearray(shard.read_bytes())
    at = data.find(values_of(2)["image"])
    data[at] ^= 1
    shard.write_bytes(data)
    with DatasetReader(copy) as reader:
        with pytest.raises(
            SampleError, match=r"sample 2 of .*shard-00000\.lmdb.*not those that were packed.*verify"
        ) as caught:
            reader.record_fields(2)
        assert (caught.value.index, caught.value.shard) == (2, "shard-00000.lmdb")
        assert caught.value.reason
        assert reader.record_fields(3)[0][2] == values_of(3)["image"]


def test_large_column_is_checked_on_use(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column above the limit costs nothing at open, and is compared with its checksum when it is first
    asked for."""
    with DatasetReader(copy) as reader:
        label = reader.column("label")[:10].tobytes()
    monkeypatch.setattr(reader_module, "HELD_BYTES", 0)
    shard = copy / "shard-00000.lmdb"
    shard.write_bytes(shard.read_bytes().replace(label, b"\7" * len(label)))
    with DatasetReader(copy) as reader:
        assert reader.column("weight")[1] == 1 / 3
        with pytest.raises(DatasetError, match=r"column label in shard-00000\.lmdb"):
            reader.column("label")


def test_values_of_some_samples(dataset: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of neighbours are those of the column, from the shards that have them alone, and nothing is
    kept of them."""
    with DatasetReader(dataset) as reader:
        whole = {name: reader.column(name) for name in reader.schema.columns}
        ends = [shard.first + shard.count for shard in reader.manifest.shards]
    monkeypatch.setattr(reader_module, "HELD_BYTES", 0)
    second = copy / "shard-00001.lmdb"
    label = whole["label"][ends[0] : ends[0] + 10].tobytes()
    second.write_bytes(second.read_bytes().replace(label, b"\7" * len(label)))
    with DatasetReader(dataset) as reader, DatasetReader(copy) as damaged:
        for name, values in whole.items():
            for start, stop in (
                (0, 1),
                (0, COUNT),
                (3, ends[0]),
                (ends[0] - 1, ends[0] + 2),
                (COUNT - 1, COUNT),
            ):
                found = reader.column_range(name, start, stop)
                assert found.tobytes() == values[start:stop].tobytes()
                assert not found.flags.writeable
        assert not np.shares_memory(reader.column_range("label", 0, 9), reader.column_range("label", 0, 9))
        # One that was read whole is not read again.
        assert np.shares_memory(reader.column("label"), reader.column_range("label", 0, 9))
        assert damaged.column_range("label", 0, ends[0]).tobytes() == whole["label"][: ends[0]].tobytes()
        with pytest.raises(DatasetError, match=r"column label in shard-00001\.lmdb"):
            damaged.column_range("label", 0, ends[0] + 1)
        with pytest.raises(ArgumentError, match="no column 'missing'"):
            reader.column_range("missing", 0, 1)


def test_column_is_read_once_into_memory(tmp_path: Path) -> None:
    """Read-only, aligned, the same array each time; nothing of the file is mapped; it outlives reader,
    store and file."""
    with DatasetWriter(
        tmp_path, Schema((Field("v", "array", "float32", (3,)),)), shard_size=1 << 30, options={}
    ) as writer:
        for i in range(2000):
            writer.append({"v": [i, i + 1, i + 2]})
        writer.finish(None, {})
    with none_left("stores"):
        reader = DatasetReader(tmp_path)
        column = reader.column("v")
        assert column is reader.column("v")
        assert column.shape == (2000, 3)
        assert column.dtype == np.float32
        assert column.flags.aligned
        assert not column.flags.writeable
        assert "shard-00000.lmdb" not in Path("/proc/self/maps").read_text()
        reader.close()
        del reader
    os.truncate(tmp_path / "shard-00000.lmdb", 0)
    assert np.array_equal(column[:, 0], np.arange(2000, dtype=np.float32))


def test_unknown_names_and_indices(dataset: Path) -> None:
    """A column or a sample that is not there."""
    with DatasetReader(dataset) as reader:
        for name in ("caption", "none"):
            with pytest.raises(ArgumentError, match=name):
                reader.column(name)
        for index in (-1, COUNT):
            with pytest.raises(IndexError):
                reader.record(index)


def test_shard_of(dataset: Path) -> None:
    """Every sample's file is the one whose range holds it, natively too."""
    with DatasetReader(dataset) as reader:
        for shard_number, shard in enumerate(reader.manifest.shards):
            for index in (shard.first, shard.first + shard.count - 1):
                assert reader.shard_of(index) == shard.file
                assert reader.store.shard_of(index) == shard_number


def test_closed(dataset: Path) -> None:
    """After close everything but the arrays already handed out says so; close may be called again."""
    reader = DatasetReader(dataset)
    label = reader.column("label")
    store = reader.store
    reader.close()
    reader.close()
    for action in (lambda: reader.record(0), lambda: reader.column("label"), lambda: store.get(0)):
        with pytest.raises(ClosedError, match="closed"):
            action()
    assert label[1] == -4


def test_pickle_is_the_path(dataset: Path) -> None:
    """A pickled reader opens the dataset anew."""
    with DatasetReader(dataset) as reader:
        data = pickle.dumps(reader)
    assert len(data) < 1000
    with pickle.loads(data) as again:
        assert again.record_fields(5)[0][2] == values_of(5)["image"]


def test_threads(dataset: Path) -> None:
    """Eight threads read everything through one reader."""
    wrong: list[int] = []
    with DatasetReader(dataset) as reader:

        def work(start: int) -> None:
            for k in range(300):
                i = (start * 7 + k) % COUNT
                if reader.record_fields(i)[0][2] != values[i]:
                    wrong.append(i)

        values = [values_of(i)["image"] for i in range(COUNT)]
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def _in_child(action: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if action() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_fork(dataset: Path) -> None:
    """A forked child reads through the parent's reader, which opens its own store; the parent's store
    refuses; arrays stay valid."""
    with DatasetReader(dataset) as reader:
        expected = reader.record_fields(7)
        label = reader.column("label")
        store = reader.store

        def child() -> bool:
            assert reader.record_fields(7) == expected
            assert reader.store is not store
            assert label[1] == -4
            assert np.array_equal(reader.column("label"), label)
            for call in (
                lambda: store.get(7),
                lambda: store.column_bytes(0, "label"),
                lambda: store.add("x", 0, 1, 1),
            ):
                try:
                    call()
                except ClosedError as error:
                    assert "fork" in str(error)
                else:
                    return False
            reader.close()
            return True

        assert _in_child(child)
        assert reader.record_fields(7) == expected


def _spawned(reader: DatasetReader, index: int) -> bytes:
    return reader.record_fields(index)[0][2]


def test_spawn(dataset: Path) -> None:
    """A spawned process gets the reader by pickle."""
    with DatasetReader(dataset) as reader, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_spawned, (reader, 9)) == values_of(9)["image"]


def test_store_by_hand(dataset: Path) -> None:
    """The native store alone: order of shards, checksums' length, a record that differs from its checksum."""
    manifest = Manifest.load(dataset)
    first, second = manifest.shards[:2]
    store = core.Store()
    with pytest.raises(ArgumentError, match="does not follow"):
        store.add(str(dataset / second.file), second.first, second.count, second.bytes)
    store.add(str(dataset / first.file), first.first, first.count, first.bytes)
    assert (len(store), store.shards) == (first.count, 1)
    with pytest.raises(ArgumentError, match="checksums for"):
        store.set_checksums(0, np.zeros(first.count + 1, np.uint32))
    with pytest.raises(ArgumentError, match="no shard 1"):
        store.set_checksums(1, np.zeros(first.count, np.uint32))
    assert store.get(0)
    store.set_checksums(0, np.zeros(first.count, np.uint32))
    with pytest.raises(SampleError, match="CRC32C"):
        store.get(0)
    with pytest.raises(SampleError, match="no sample"):
        store.get(first.count)
    with pytest.raises(DatasetError, match="no column nothing"):
        store.column_bytes(0, "nothing")
    with pytest.raises(DatasetError, match="no column"):
        store.column(0, "x" * 1000, bytearray(8))
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.column(0, "label", bytearray(8))


def test_opened_and_closed_often(dataset: Path) -> None:
    """A hundred readers leave no descriptor behind."""
    gc.collect()
    before = descriptors()
    for _ in range(100):
        with DatasetReader(dataset) as reader:
            reader.record(3)
    del reader
    gc.collect()
    assert not opened_since(before)
