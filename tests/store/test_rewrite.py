"""DatasetRewriter: replaced records, everything else as it was, and nothing half done."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from store_helpers import SCHEMA, contents, values_of, write

from fastload._native import core
from fastload.errors import ArgumentError, DatasetError
from fastload.store import DatasetReader, DatasetRewriter, DatasetWriter, Field, Manifest, Schema, file_crc32c
from fastload.store import rewrite as rewrite_module

pytestmark = pytest.mark.usefixtures("no_leaks")
NOBODY = b"another record"


def test_replaced_records_and_all_else_the_same(tmp_path: Path) -> None:
    """Some records of two shards: they are the new ones, all others and every column are equal, and file
    checksums hold."""
    write(tmp_path, 100)
    records, columns = contents(tmp_path)
    before = Manifest.load(tmp_path)
    assert len(before.shards) > 3
    new = {}
    with DatasetRewriter(tmp_path, "go on") as rewriter:
        for number in (0, 2):
            shard = before.shards[number]
            with rewriter.shard(number) as rewrite:
                for index in range(shard.first + 1, shard.first + shard.count, 3):
                    new[index] = core.build_record([(0, core.KIND_JPEG, values_of(index)["image"] * 2)])
                    rewrite.replace(index, *new[index])
                assert rewrite.commit()
        with rewriter.shard(1) as rewrite:
            assert not rewrite.commit()
        rewriter.describe({"encode": "other"}, {"samples": 100, "more": 1})
    found, same = contents(tmp_path)
    assert found == [new[i][0] if i in new else record for i, record in enumerate(records)]
    crcs = columns.pop("__crc32c__")
    assert same.pop("__crc32c__") == [new[i][1] if i in new else crc for i, crc in enumerate(crcs)]
    assert same == columns
    after = Manifest.load(tmp_path)
    assert (after.classes, after.options, after.summary) == (
        before.classes,
        {"encode": "other"},
        {"samples": 100, "more": 1},
    )
    assert [shard.file in {s.file for s in before.shards} for shard in after.shards[:4]] == [
        False,
        True,
        False,
        True,
    ]
    for shard in after.shards:
        assert (tmp_path / shard.file).stat().st_size == shard.bytes
        assert file_crc32c(tmp_path / shard.file) == shard.crc32c
    assert sorted(os.listdir(tmp_path)) == [
        "index-00000.bin",
        "manifest.json",
        *sorted(shard.file for shard in after.shards),
    ]


def test_without_commit_nothing_happens(tmp_path: Path) -> None:
    """Left half-way, in order or by an exception: the files are those from before."""
    write(tmp_path, 40)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with DatasetRewriter(tmp_path, "go on") as rewriter:
        with rewriter.shard(1) as rewrite:
            rewrite.replace(Manifest.load(tmp_path).shards[1].first + 2, NOBODY, core.crc32c(NOBODY))
            assert len(os.listdir(tmp_path)) == len(before) + 1
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        with pytest.raises(KeyError), rewriter.shard(0) as rewrite:
            rewrite.replace(0, NOBODY, core.crc32c(NOBODY))
            raise KeyError
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_order_is_checked(tmp_path: Path) -> None:
    """A sample of another shard, one before the last, one twice: ArgumentError, and the shard can go on."""
    write(tmp_path, 40)
    shard = Manifest.load(tmp_path).shards[1]
    with DatasetRewriter(tmp_path, "go on") as rewriter, rewriter.shard(1) as rewrite:
        rewrite.replace(shard.first + 2, NOBODY, core.crc32c(NOBODY))
        for index in (shard.first - 1, shard.first + 1, shard.first + 2, shard.first + shard.count):
            with pytest.raises(ArgumentError, match=f"sample {index} "):
                rewrite.replace(index, NOBODY, core.crc32c(NOBODY))
        assert rewrite.commit()
    with DatasetReader(tmp_path) as reader:
        assert [i for i in range(len(reader)) if reader.record(i) == NOBODY] == [shard.first + 2]


def test_records_that_outgrow_the_map(tmp_path: Path) -> None:
    """New records a hundred times larger than the shard was, beside a column of large rows."""
    schema = Schema((Field("data", "bytes"), Field("v", "array", "float64", (1000,))))
    with DatasetWriter(tmp_path, schema, shard_size=1 << 20, options={}) as writer:
        for i in range(60):
            writer.append({"data": bytes([i]) * 9, "v": np.full(1000, i)})
        writer.finish(None, {})
    large = {i: core.build_record([(0, core.KIND_BYTES, bytes([i]) * 3_000_000)]) for i in range(0, 60, 5)}
    with DatasetRewriter(tmp_path, "go on") as rewriter, rewriter.shard(0) as rewrite:
        for i, record in large.items():
            rewrite.replace(i, *record)
        assert rewrite.commit()
    with DatasetReader(tmp_path) as reader:
        assert np.array_equal(reader.column("v")[:, 7], np.arange(60.0))
        for i in range(60):
            assert reader.record_fields(i)[0][2] == bytes([i]) * (3_000_000 if i in large else 9)


def test_a_name_is_not_soon_another_file(tmp_path: Path) -> None:
    """Each new shard is numbered after all that there are; where numbers end, the first free one is taken."""
    write(tmp_path, 40)
    count = len(Manifest.load(tmp_path).shards)
    for turn in range(3):
        with DatasetRewriter(tmp_path, "go on") as rewriter, rewriter.shard(0) as rewrite:
            rewrite.replace(0, NOBODY, core.crc32c(NOBODY))
            assert rewrite.commit()
        assert Manifest.load(tmp_path).shards[0].file == f"shard-{count + turn:05d}.lmdb"
    (tmp_path / "shard-999999999.lmdb").mkdir()
    with DatasetRewriter(tmp_path, "go on") as rewriter, rewriter.shard(0) as rewrite:
        rewrite.replace(0, NOBODY, core.crc32c(NOBODY))
        assert rewrite.commit()
    assert Manifest.load(tmp_path).shards[0].file == "shard-00000.lmdb"
    assert len(contents(tmp_path)[0]) == 40


def test_readers_follow_only_the_same_samples(tmp_path: Path) -> None:
    """A manifest of other rows in place of the one that a reader began with is not taken for a rewrite of
    it."""
    write(tmp_path / "a", 40)
    write(tmp_path / "b", 41)
    a, b = Manifest.load(tmp_path / "a"), Manifest.load(tmp_path / "b")
    assert a.same_samples(a)
    assert not a.same_samples(b)
    assert not a.same_samples(Manifest(Schema((*SCHEMA.fields[:-1], Field("other", "json"))), a.shards))
    assert not a.same_samples(dataclasses.replace(a, shards=a.shards[:-1]))
    with DatasetReader(tmp_path / "a") as reader:
        for path in (tmp_path / "b").iterdir():
            path.replace(tmp_path / "a" / path.name.replace("shard-0", "shard-1"))
        for shard in a.shards:
            (tmp_path / "a" / shard.file).unlink()
        child = os.fork()
        if child == 0:
            try:
                reader.record(0)
                os._exit(1)
            except DatasetError:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("end", ["done", "error", "kill"])
def test_commits_of_many_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Of many shards several are committed at once, so that the manifest is not written for each: no one is
    lost but by a kill, after which the dataset is whole and nothing is left over."""
    write(tmp_path, 300)
    count = len(Manifest.load(tmp_path).shards)
    assert count > 14
    monkeypatch.setattr(rewrite_module, "COMMITS", 4)
    written = []
    put = DatasetRewriter.put_manifest
    monkeypatch.setattr(
        DatasetRewriter, "put_manifest", lambda self, manifest: (written.append(1), put(self, manifest))
    )
    turns = count if end == "done" else count - 1

    def replaced() -> None:
        with DatasetRewriter(tmp_path, "go on") as rewriter:
            for number in range(turns):
                with rewriter.shard(number) as rewrite:
                    rewrite.replace(rewrite.samples.start, NOBODY, core.crc32c(NOBODY))
                    assert rewrite.commit()
            if end == "kill":
                os._exit(9)
            if end == "error":
                raise KeyError

    if end == "kill":
        child = os.fork()
        if not child:
            replaced()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        with DatasetRewriter(tmp_path, "go on"):
            pass
    elif end == "error":
        with pytest.raises(KeyError):
            replaced()
    else:
        replaced()
        assert len(written) == 4
    manifest = Manifest.load(tmp_path)
    with DatasetReader(tmp_path) as reader:
        new = [number for number, shard in enumerate(manifest.shards) if reader.record(shard.first) == NOBODY]
    assert new == list(range(len(new)))
    assert len(new) == turns if end != "kill" else turns - count / 4 <= len(new) < turns
    files = {shard.file for shard in manifest.shards} | {sidecar.file for sidecar in manifest.sidecars}
    assert set(os.listdir(tmp_path)) == files | {"manifest.json"}
