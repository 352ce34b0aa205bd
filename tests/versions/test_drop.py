"""drop: samples taken out, the others as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from versions_helpers import Shapes, check_shapes, check_whole, packed

import fastload
from fastload.errors import ArgumentError, PackError
from fastload.store import DatasetRewriter, Manifest


def small_shards(folder: Path, count: int) -> Path:
    """A dataset of Shapes with seven samples a shard."""
    packed(folder, 0, 7)
    for begin in range(7, count, 7):
        fastload.append(folder, Shapes(begin, min(7, count - begin)))
    fastload.prune(folder)
    return folder


def test_where(tmp_path: Path) -> None:
    """Samples for which the condition is true are gone; the others keep their order, and the old version
    all."""
    out = small_shards(tmp_path / "ds", 30)
    version = Manifest.load(out).version
    shards = {shard.file: shard.crc32c for shard in Manifest.load(out).shards}
    summary = fastload.drop(out, where="label = 1 or caption like '%shape 2%'")
    left = [number for number in range(30) if number % 3 != 1 and not str(number).startswith("2")]
    assert (summary.version, summary.samples, summary.dropped) == (version + 1, len(left), 30 - len(left))
    check_shapes(out, left)
    check_shapes(out, list(range(30)), version=version)
    check_whole(out)
    assert {shard.file: shard.crc32c for shard in Manifest.load(out).shards}.items() <= shards.items()
    fastload.drop(out, where="label = 0")
    check_shapes(out, [number for number in left if number % 3 != 0])


def test_indices_again_and_again(tmp_path: Path) -> None:
    """Any samples, dropped in several steps, with doubles and in any order: exactly those are gone."""
    rng = np.random.default_rng(4)
    out = small_shards(tmp_path / "ds", 40)
    left = np.arange(40)
    for _ in range(5):
        gone = rng.integers(0, len(left), 5)
        fastload.drop(out, indices=gone)
        left = np.delete(left, np.unique(gone))
        check_shapes(out, left.tolist())
    check_whole(out)
    fastload.drop(out, indices=range(len(left) - 1))
    check_shapes(out, left[-1:].tolist())
    assert len(Manifest.load(out).shards) == 1


def test_nothing_and_everything(tmp_path: Path) -> None:
    """Where no sample is meant there is no new version; to take out all is refused; wrong indices are
    named."""
    out = packed(tmp_path / "ds", 0, 5)
    files = sorted(os.listdir(out))
    assert (fastload.drop(out, where="label > 5").version, fastload.drop(out, indices=[]).dropped) == (1, 0)
    with pytest.raises(PackError, match="all 5 samples"):
        fastload.drop(out, where="true")
    options: list[tuple[dict[str, Any], str]] = [
        ({"indices": [5]}, "5 is no sample of 5"),
        ({"indices": [-1]}, "-1 is no sample"),
        ({"indices": [True]}, "True"),
        ({"where": "nothing = 1"}, "nothing"),
        ({}, "either where="),
        ({"where": "true", "indices": []}, "either where="),
    ]
    for arguments, match in options:
        with pytest.raises(ArgumentError, match=match):
            fastload.drop(out, **arguments)
    assert sorted(os.listdir(out)) == files


def test_index_keeps_versions(tmp_path: Path) -> None:
    """A record replaced in a shard some of whose samples were dropped, and to which fields were added,
    changes nothing else; the old version has the old file."""
    out = small_shards(tmp_path / "ds", 14)
    (tmp_path / "more.csv").write_text("note\n" + "".join(f"n{number}\n" for number in range(14)))
    fastload.add_columns(out, tmp_path / "more.csv")
    fastload.drop(out, indices=[1, 8, 9])
    version = Manifest.load(out).version
    left = [number for number in range(14) if number not in (1, 8, 9)]
    with DatasetRewriter(out, "go on") as rewriter, rewriter.shard(1) as shard:
        index = shard.samples.start + 3
        record = rewriter.reader.record(index)
        shard.replace(index, record, int(rewriter.reader.column("__crc32c__")[index]))
        assert shard.commit()
    now, before = Manifest.load(out), Manifest.load(out, version - 1)
    assert now.version == version
    assert now.shards[1].file != before.shards[1].file
    assert (out / before.shards[1].file).exists()
    check_shapes(out, left)
    check_shapes(out, list(range(14)), version=version - 1)
    assert [
        sample["note"] for sample in map(fastload.PackedDataset(out).stored_values, range(len(left)))
    ] == [f"n{n}" for n in left]
    check_whole(out)
    assert fastload.index(out).samples == len(left)
