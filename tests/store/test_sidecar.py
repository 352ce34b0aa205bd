"""Sidecars: a dataset opened by them is the one that a walk opens, and whatever is wrong with them gives
no other bytes."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_helpers import contents, values_of, write
from test_manifest import sealed
from version_helpers import changed

import fastload
from fastload._native import core
from fastload.errors import DatasetError, SampleError
from fastload.packing import verify
from fastload.store import DatasetChange, DatasetReader, DatasetRewriter, Manifest
from fastload.store import reader as reader_module
from fastload.store import sidecar as sidecar_module
from fastload.store.sidecar import PLACES as PLACE_TABLE
from fastload.store.sidecar import open_sidecars

COUNT = 60
EXAMPLES = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
pytestmark = pytest.mark.usefixtures("no_leaks", "always")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small datasets are opened by their sidecars too."""
    monkeypatch.setattr(sidecar_module, "WALKED_SAMPLES", 0)


@pytest.fixture(scope="module")
def expected(dataset: Path) -> tuple[list[bytes], dict[str, list[Any]]]:
    """Every record and column, as a walk reads them."""
    with walked(dataset) as reader:
        records = [reader.record(i) for i in range(COUNT)]
        return records, {name: reader.column(name).tolist() for name in reader.schema.columns}


def walked(path: Path) -> DatasetReader:
    """The dataset, opened by a walk."""
    return DatasetReader(path, manifest=replace(Manifest.load(path), sidecars=()))


def known(path: Path) -> list[bool]:
    """Whether a sidecar has a section that holds, for each shard."""
    manifest = Manifest.load(path)
    sidecars = open_sidecars(path, manifest.sidecars)
    return [sidecars.get(shard) is not None for shard in manifest.shards]


@contextmanager
def without_trees(path: Path) -> Iterator[None]:
    """Has every shard in the folder lose the page without which no tree is found."""
    kept = {}
    for shard in path.glob("shard-*.lmdb"):
        kept[shard] = shard.read_bytes()
        shard.write_bytes(bytes(152) + kept[shard][152:])
    yield
    for shard, data in kept.items():
        shard.write_bytes(data)


def relied_on(path: Path, data: bytes) -> None:
    """Puts other bytes in the place of a dataset's one sidecar, with the checksums that fit."""
    manifest = Manifest.load(path)
    part = manifest.sidecars[0]
    assert part.directory is not None
    (path / part.file).write_bytes(data)
    size = max(1, min(part.directory[0], len(data)))
    directory = size, core.crc32c(data[-size:])
    new = replace(part, bytes=max(1, len(data)), crc32c=core.crc32c(data), directory=directory)
    replace(manifest, sidecars=(new,)).write(path)


def blamed(path: Path) -> list[str]:
    """Problems that verify finds."""
    return list(verify(path, workers=1).problems)


def test_no_tree_is_read(copy: Path, expected: Any) -> None:
    """Every record and column is there, though no shard's trees can be walked; in a forked child too."""
    assert len(Manifest.load(copy).shards) > 4
    assert all(known(copy))
    with without_trees(copy):
        with pytest.raises(DatasetError, match="LMDB file"):
            walked(copy)
        assert contents(copy) == expected
        with DatasetReader(copy) as reader:
            child = os.fork()
            if child == 0:
                os._exit(0 if [reader.record(i) for i in range(COUNT)] == expected[0] else 1)
            assert os.waitpid(child, 0)[1] == 0


def test_small_datasets_are_walked(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limits the sidecar is not even looked for."""
    monkeypatch.setattr(sidecar_module, "WALKED_SAMPLES", COUNT + 1)
    monkeypatch.setattr(sidecar_module, "WALKED_SHARDS", 100)
    with without_trees(copy), pytest.raises(DatasetError):
        DatasetReader(copy)


def test_large_columns_stay_in_the_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is not copied is read from the place that the sidecar names; the records' checksums
    are with their places."""
    monkeypatch.setattr(sidecar_module, "ROW_MOST", 3)
    write(tmp_path / "d", COUNT)
    manifest = Manifest.load(tmp_path / "d")
    section = open_sidecars(tmp_path / "d", manifest.sidecars).get(manifest.shards[0])
    assert section is not None
    assert set(section.widths) == {PLACE_TABLE}
    with walked(tmp_path / "d") as reader:
        boxes = reader.column("box").tolist()
    assert boxes[7] == values_of(7)["box"].tolist()
    with without_trees(tmp_path / "d"), DatasetReader(tmp_path / "d") as reader:
        assert reader.column("box").tolist() == boxes


def test_missing_cut_or_no_file(copy: Path, expected: Any) -> None:
    """A sidecar that cannot be read is passed over; verify says so, and index makes it anew."""
    file = copy / Manifest.load(copy).sidecars[0].file
    data = file.read_bytes()
    for make in (
        lambda: None,
        lambda: file.write_bytes(data[:-1]),
        lambda: os.mkfifo(file),
        file.mkdir,
        lambda: file.symlink_to(file),
    ):
        file.unlink(missing_ok=True)
        make()
        assert contents(copy) == expected
        assert any(
            file.name in problem and "fastload index" in problem
            for problem in verify(copy, workers=1).problems
        )
        if file.is_dir():
            file.rmdir()
            file.touch()
    with DatasetRewriter(copy, "") as rewriter:
        rewriter.renew_sidecar()
    assert verify(copy, workers=1).problems == ()
    assert all(known(copy))
    now = Manifest.load(copy)
    with DatasetRewriter(copy, "") as rewriter:
        rewriter.renew_sidecar()
    assert Manifest.load(copy) == now
    assert sorted(os.listdir(copy)) == sorted(
        ["manifest.json", *(part.file for part in (*now.shards, *now.sidecars))]
    )


@EXAMPLES
@given(data=st.data())
def test_flipped_byte(copy: Path, expected: Any, data: st.DataObject) -> None:
    """One byte changed anywhere: the dataset has every value, by a walk where the directory is damaged;
    verify finds it."""
    file = copy / Manifest.load(copy).sidecars[0].file
    good = file.read_bytes()
    at, change = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(1, 255))
    part = Manifest.load(copy).sidecars[0]
    assert part.directory is not None
    file.write_bytes(good[:at] + bytes([good[at] ^ change]) + good[at + 1 :])
    try:
        assert contents(copy) == expected
        assert any(known(copy)) == (at < len(good) - part.directory[0])
        assert any(file.name in problem and "fastload index" in problem for problem in blamed(copy))
    finally:
        file.write_bytes(good)


WORDS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 8, 48, 2**31, 2**32 - 8, 2**32 - 1]))


@EXAMPLES
@given(data=st.data())
def test_lies(copy: Path, expected: Any, data: st.DataObject) -> None:
    """Words of it replaced, parts cut or put twice, under a checksum that fits: every value is right, or
    an error that is fastload's."""
    kept = (copy / "manifest.json").read_bytes()
    file = copy / Manifest.load(copy).sidecars[0].file
    good = file.read_bytes()
    lie = np.frombuffer(good, "<u4").copy()
    part = Manifest.load(copy).sidecars[0]
    assert part.directory is not None
    begins = (len(good) - part.directory[0]) // 4
    head = st.integers(begins, begins + 60)  # of the directory and its first section: where the lengths are
    for place in data.draw(st.lists(st.one_of(head, st.integers(0, len(lie) - 1)), min_size=1, max_size=4)):
        lie[place] = data.draw(WORDS)
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(good)), st.integers(0, len(good)))))
    changed_bytes = {
        "words": lambda: lie.tobytes(),
        "cut": lambda: lie.tobytes()[: end + 1],
        "twice": lambda: good[:begin] + good[begin:end] * 2 + good[end:] + b"\0",
    }[data.draw(st.sampled_from(["words", "words", "words", "cut", "twice"]))]()
    try:
        relied_on(copy, changed_bytes)
        with DatasetReader(copy) as reader:
            assert {name: reader.column(name).tolist() for name in reader.schema.columns} == expected[1]
            for i in range(COUNT):
                try:
                    assert reader.record(i) == expected[0][i]
                except SampleError as error:
                    assert error.index == i
            every = np.arange(COUNT)
            assert {name: reader.take(name, every).tolist() for name in reader.schema.columns} == expected[1]
    except DatasetError as error:
        assert "column" in str(error)
    finally:
        file.write_bytes(good)
        (copy / "manifest.json").write_bytes(kept)


def test_places_of_others(copy: Path, expected: Any) -> None:
    """Two samples' places swapped, under a checksum that fits: both are errors; verify says what lies, and
    index makes it anew."""
    manifest = Manifest.load(copy)
    data = bytearray((copy / manifest.sidecars[0].file).read_bytes())
    section = open_sidecars(copy, manifest.sidecars).get(manifest.shards[0])
    assert section is not None
    places = section.rows().tobytes()
    at = data.find(places)
    data[at : at + 32] = places[16:28] + places[12:16] + places[:12] + places[28:32]
    head = data.find(section.part(PLACE_TABLE).crcs.tobytes())
    data[head : head + 4] = core.crc32c(bytes(data[at : at + len(places)])).to_bytes(4, "little")
    relied_on(copy, bytes(data))
    with DatasetReader(copy) as reader:
        for i in (0, 1):
            with pytest.raises(SampleError, match="not those that were packed"):
                reader.record(i)
        assert [reader.record(i) for i in range(2, COUNT)] == expected[0][2:]
    assert any("other places" in problem for problem in verify(copy, workers=1).problems)
    fastload.index(copy)
    assert contents(copy) == expected
    assert verify(copy, workers=1).problems == ()


def test_stale_sections(copy: Path, expected: Any) -> None:
    """After a shard was written anew its section is no shard's, the others hold; the next `index` covers
    it again."""
    record = core.build_record([(0, core.KIND_JPEG, b"other")])
    with DatasetRewriter(copy, "") as rewriter, rewriter.shard(1) as shard:
        first = shard.samples.start
        shard.replace(first, *record)
        shard.commit()
    assert [number for number, found in enumerate(known(copy)) if not found] == [1]
    records = list(expected[0])
    records[first] = record[0]
    assert contents(copy)[0] == records
    fastload.index(copy)
    assert all(known(copy))
    assert contents(copy)[0] == records
    assert len(list(copy.glob("index-*.bin"))) == 1


def test_added_where_there_is_none(copy: Path, expected: Any) -> None:
    """`index` adds it to a dataset of an earlier fastload; nothing else changes."""
    bare = replace(Manifest.load(copy), sidecars=())
    for file in copy.glob("index-*.bin"):
        file.unlink()
    bare.write(copy)
    assert not any(known(copy))
    summary = fastload.index(copy)
    assert (summary.added, summary.shards) == (0, 0)
    assert all(known(copy))
    assert contents(copy) == expected


def test_every_key_of_format_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows left out, fields added and hidden, other keys, shards elsewhere: the same by sidecar as by a
    walk."""
    path, _ = changed(tmp_path)
    with DatasetRewriter(path, "") as rewriter:
        rewriter.renew_sidecar()
    assert all(known(path))
    with walked(path) as reader:
        before = [(reader.record(i), reader.stored_fields(i)) for i in range(len(reader))]
        columns = {name: reader.column(name).tolist() for name in reader.schema.columns}
    monkeypatch.setattr(reader_module, "HELD_BYTES", 0)
    with without_trees(tmp_path / "there"), DatasetReader(path) as reader:
        assert [(reader.record(i), reader.stored_fields(i)) for i in range(len(reader))] == before
        assert {name: reader.column(name).tolist() for name in reader.schema.columns} == columns
        assert [reader.chunk(1, name).tolist() for name in columns]


def test_changes_keep_it(tmp_path: Path) -> None:
    """append adds a sidecar and writes many as one; columns, drop and concat keep what there is; prune
    removes what nothing names."""

    def add(count: int) -> None:
        with DatasetChange(out, "") as change:
            now = change.manifest
            part = write(tmp_path / f"part{count}", 3, shard_size=1 << 20)
            shard = replace(part.shards[0], file=change.unused_name("shard"))
            (tmp_path / f"part{count}" / part.shards[0].file).rename(out / shard.file)
            sidecar = replace(part.sidecars[0], file=change.unused_name("index"))
            (tmp_path / f"part{count}" / part.sidecars[0].file).rename(out / sidecar.file)
            new = replace(now, shards=(*now.shards, shard.at(now.count)), sidecars=(*now.sidecars, sidecar))
            change.commit(change.with_sidecars(new))

    out = tmp_path / "d"
    write(out, 10)
    numbers = []
    for count in range(9):
        add(count)
        numbers.append(len(Manifest.load(out).sidecars))
        assert all(known(out))
    assert numbers == [2, 3, 4, 5, 6, 7, 8, 1, 2]
    before = contents(out)
    fastload.drop(out, indices=list(range(2, 30)))
    (tmp_path / "more.csv").write_text("rank\n" + "3\n" * 9)
    fastload.add_columns(out, tmp_path / "more.csv")
    assert all(known(out))
    found = contents(out)
    assert found[0] == before[0][:2] + before[0][30:]
    assert found[1]["rank"] == [3] * 9
    fastload.concat([out, out], tmp_path / "both")
    assert all(known(tmp_path / "both"))
    assert contents(tmp_path / "both")[0] == found[0] * 2
    fastload.prune(out)
    assert {path.name for path in out.glob("index-*.bin")} == {
        part.file for part in Manifest.load(out).sidecars
    }
    assert contents(out) == found
    assert verify(out, workers=1).problems == ()


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0.5,
    2**63,
    "",
    "../x",
    "rows-00000.bin",
    "index-1.bin",
    {},
    {"a": 1},
    [1],
    [[]],
    [{}],
    [None],
]
PLACES: list[Callable[[dict[str, Any], Any], None]] = [
    lambda content, value: content.update(sidecars=value),
    *[
        lambda content, value, key=key: content["sidecars"][0].update({key: value})
        for key in ("file", "offset", "bytes", "crc32c")
    ],
]


@pytest.mark.parametrize("place", range(len(PLACES)))
def test_hostile_manifest(dataset: Path, place: int) -> None:
    """Every value of the list replaced by every wrong one, under a checksum that fits: DatasetError, never
    another exception."""
    data = Manifest.load(dataset).to_bytes()
    for value in HOSTILE:
        content = json.loads(data)
        PLACES[place](content, value)
        with pytest.raises(DatasetError, match=r"manifest\.json"):
            Manifest.from_bytes(sealed(content), Path("x"))


def test_given_places(copy: Path) -> None:
    """`core.Store.add` refuses another number of places than samples, and columns whose names are too
    long."""
    shard = Manifest.load(copy).shards[0]
    arguments = os.fspath(copy / shard.file), 0, shard.count, shard.bytes, 0, shard.stored
    file = core.TableFile(os.memfd_create("table"), "table")
    for rows, width in ((0, 16), (shard.count + 1, 16), (shard.count, 12)):
        crcs = np.zeros(-(-rows // (4096 // width)), np.uint32)
        with pytest.raises(fastload.errors.ArgumentError, match="places"):
            core.Store().add(*arguments, places=core.Table(file, 0, rows, width, crcs))
    good = core.Table(file, 0, shard.count, 16, np.zeros(-(-shard.count // 256), np.uint32))
    for rows, width, blocks in ((10, 0, 1), (10, 4097, 10), (257, 16, 1), (256, 16, 2)):
        with pytest.raises(fastload.errors.ArgumentError, match="checksums for"):
            core.Table(file, 0, rows, width, np.zeros(blocks, np.uint32))
    with pytest.raises(fastload.errors.ArgumentError, match="512 bytes"):
        core.Store().add(*arguments, places=good, columns=[(b"x" * 512, 0, 1)])
    with pytest.raises(DatasetError, match="column 0"):
        core.Store().add(*arguments, places=good, columns=[(b"x", shard.bytes, 1)])


def test_memory_of_writing(copy: Path) -> None:
    """Sections that are copied are in memory one at a time, also where a head is a view of its whole
    section."""
    size, first = 1 << 20, Manifest.load(copy).shards[0]

    def section(_: object) -> tuple[memoryview, memoryview]:
        data = memoryview(bytes(size))
        return data[:64], data[64:]

    tracemalloc.start()
    try:
        segment = sidecar_module.write_sidecar(
            copy, "other.bin", [replace(first, key=each) for each in range(40)], section
        )
        assert tracemalloc.get_traced_memory()[1] < 4 * size
    finally:
        tracemalloc.stop()
    assert segment.bytes > 40 * (size - 64)
