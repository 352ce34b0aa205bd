"""add_columns and drop_columns: fields of every sample, without a sample written anew."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from versions_helpers import Shapes, check_shapes, check_whole, packed, samples

import fastload
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.store import DatasetReader, Manifest


def table(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    """A table with a header line."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def row(number: int) -> dict[str, Any]:
    """New values of sample `number`."""
    return {
        "grade": number * 7,
        "score": number / 8,
        "note": f"note {number}, \N{SNOWMAN}",
        "tags": json.dumps([number]),
    }


def test_rows_in_order(tmp_path: Path) -> None:
    """Kinds follow from the cells; every sample has its row's values and all that it had; no shard is
    written."""
    out = packed(tmp_path / "ds", 0, 25)
    shards = Manifest.load(out).shards
    summary = fastload.add_columns(out, table(tmp_path / "more.csv", [row(number) for number in range(25)]))
    assert (summary.version, summary.samples, summary.names, summary.unused) == (
        2,
        25,
        ("grade", "score", "note", "tags"),
        0,
    )
    now = Manifest.load(out)
    assert [field.kind for field in now.schema][-4:] == ["int", "float", "text", "json"]
    assert [(shard.file, shard.crc32c) for shard in now.shards] == [
        (shard.file, shard.crc32c) for shard in shards
    ]
    check_shapes(out, list(range(25)))
    for number, sample in enumerate(samples(out)):
        assert {**row(number), "tags": [number]} == {name: sample[name] for name in row(number)}
    check_whole(out)
    assert "note" not in samples(out, 1)[0]


def test_native_batches_have_them(tmp_path: Path) -> None:
    """FastLoader on native threads, ds[i], table() and where() deliver added fields."""
    out = packed(tmp_path / "ds", 0, 20)
    fastload.add_columns(out, table(tmp_path / "more.tsv", [row(number) for number in range(20)], "\t"))
    ds = fastload.PackedDataset(out, [fastload.transforms.Resize((8, 8))])
    assert ds[3]["note"] == row(3)["note"]
    loader: Any = fastload.FastLoader(ds, batch_size=10, num_workers=2, shuffle=True)
    seen = {}
    for batch in loader:
        for note, grade, score in zip(
            batch["note"], batch["grade"].tolist(), batch["score"].tolist(), strict=True
        ):
            seen[grade // 7] = (note, score)
    assert seen == {number: (row(number)["note"], row(number)["score"]) for number in range(20)}
    assert ds.table()["note"].to_pylist() == [row(number)["note"] for number in range(20)]
    assert list(ds.where("note like 'note 1%' and grade > 70").indices) == list(range(11, 20))


def test_texts_and_keys_keep_their_spaces(tmp_path: Path) -> None:
    """Cells of added texts come back byte for byte, and keys that differ by a space alone are different
    ones."""
    out = packed(tmp_path / "ds", 0, 3)
    notes = [" note", "note ", 'no "note"\n ']
    fastload.add_columns(out, table(tmp_path / "notes.csv", [{"note": note} for note in notes]))
    by_note = [
        {"note": note, "grade": f" {number} ", "tags": f" [{number}]"} for number, note in enumerate(notes)
    ]
    fastload.add_columns(
        out, table(tmp_path / "more.csv", [*by_note, {"note": "note", "grade": 7, "tags": "[]"}]), key="note"
    )
    found = [(sample["note"], sample["grade"], sample["tags"]) for sample in samples(out)]
    assert found == [(note, number, [number]) for number, note in enumerate(notes)]


@pytest.mark.parametrize("key", ["caption", "weight_key"])
def test_rows_by_key(tmp_path: Path, key: str) -> None:
    """Rows in any order find their samples by a text or int field; rows of no sample are counted."""
    out = packed(tmp_path / "ds", 0, 20)
    if key == "weight_key":
        fastload.add_columns(
            out, table(tmp_path / "keys.csv", [{key: 1000 - number} for number in range(20)])
        )
    of = {number: samples(out)[number][key] for number in range(20)}
    rows = [{"grade": number, key: of[number], "note": f"n{number}"} for number in reversed(range(20))]
    rows += [{"grade": 5, key: "7777", "note": "nobody"}]
    summary = fastload.add_columns(
        out, table(tmp_path / "more.csv", rows), key=key, columns=["note", "grade:float"]
    )
    assert summary.unused == 1
    assert [(sample["note"], sample["grade"]) for sample in samples(out)] == [
        (f"n{number}", float(number)) for number in range(20)
    ]
    check_whole(out)


def test_arrays(tmp_path: Path) -> None:
    """A .npy is one column of its name: rows of an array, or int and float for plain numbers."""
    out = packed(tmp_path / "ds", 0, 9)
    vectors = np.random.default_rng(0).normal(size=(9, 3, 2)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    np.save(tmp_path / "ids.npy", np.arange(9))
    fastload.add_columns(out, tmp_path / "vectors.npy")
    fastload.add_columns(out, tmp_path / "ids.npy", columns=["number"])
    with DatasetReader(out) as reader:
        assert np.array_equal(reader.column("vectors"), vectors)
        assert reader.column("number").tolist() == list(range(9))
        assert reader.schema["number"].kind == "int"
    assert Manifest.load(out).version == 3
    check_whole(out)


def test_refused(tmp_path: Path) -> None:
    """What does not fit is said with the row or the column, and nothing is written."""
    out = packed(tmp_path / "ds", 0, 4)
    files = sorted(os.listdir(out))
    captions = [sample["caption"] for sample in samples(out)]

    def given(rows: list[dict[str, Any]]) -> Path:
        return table(tmp_path / "more.csv", rows)

    note = [{"note": str(number)} for number in range(4)]
    keyed = [{"caption": caption, "note": "x"} for caption in captions]
    cases: list[tuple[list[dict[str, Any]], dict[str, Any], type[Exception], str]] = [
        (note[:3], {}, PackError, r"3 rows, and .* 4 samples"),
        ([{"label": 1}] * 4, {}, ArgumentError, "'label' already"),
        (note, {"key": "caption"}, ArgumentError, "no column 'caption'"),
        (note, {"columns": ["other"]}, ArgumentError, "no column 'other'"),
        ([{"__x": 1}] * 4, {}, ArgumentError, "begin with __"),
        (
            [{"note": "1"}, {"note": "x"}] * 2,
            {"columns": ["note:int"]},
            PackError,
            r"line 3: column 'note': 'x' is not int",
        ),
    ]
    for rows, options, error, match in cases:
        with pytest.raises(error, match=match):
            fastload.add_columns(out, given(rows), **options)
    for name, match in (("none.csv", "cannot be read"), ("more.txt", r"\.csv, \.tsv or \.npy")):
        with pytest.raises(PackError, match=match):
            fastload.add_columns(out, tmp_path / name)
    for rows, match in (
        ([*keyed, keyed[0]], r"line 6: the key shape 0 .* is on line 2 already"),
        (keyed[:2] + keyed[3:], r"no row for sample 2 of .* caption is shape 2"),
    ):
        with pytest.raises(PackError, match=match):
            fastload.add_columns(out, given(rows), key="caption")
    with pytest.raises(ArgumentError, match="is float"):
        fastload.add_columns(out, given([{"weight": 1, "note": 2}]), key="weight")
    with pytest.raises(PackError, match="no whole number"):
        fastload.add_columns(out, given([{"label": "x", "note": 2}]), key="label")
    assert sorted(os.listdir(out)) == files


def test_dropped_and_added_again(tmp_path: Path) -> None:
    """A packed field that is taken away is gone, the others are as they were, and its name may be used
    again for other values."""
    out = packed(tmp_path / "ds", 0, 12)
    fastload.drop_columns(out, "caption", "weight")
    found = samples(out)
    assert set(found[0]) == {"image", "label", "box", "meta"}
    assert [sample["meta"] for sample in found] == [{"number": number} for number in range(12)]
    check_whole(out)
    fastload.add_columns(
        out, table(tmp_path / "a.csv", [{"caption": f"c{number}", "weight": number} for number in range(12)])
    )
    assert [(sample["caption"], sample["weight"]) for sample in samples(out)] == [
        (f"c{number}", number) for number in range(12)
    ]
    fastload.drop_columns(out, "caption")
    assert set(samples(out)[0]) == {"image", "label", "box", "meta", "weight"}
    check_whole(out)
    check_shapes(out, list(range(12)), version=1)
    with pytest.raises(ArgumentError, match="is the image"):
        fastload.drop_columns(out, "image")
    with pytest.raises(ArgumentError, match="no field 'caption'"):
        fastload.drop_columns(out, "caption")


def test_append_after_columns(tmp_path: Path) -> None:
    """After a column was added, appended samples have it packed; without it, an append is refused with
    what to do; both can be dropped."""
    out = packed(tmp_path / "ds", 0, 6)
    fastload.add_columns(
        out, table(tmp_path / "a.csv", [{"note": f"n{number}", "rank": number} for number in range(6)])
    )
    with pytest.raises(
        PackError,
        match=(
            r"no field 'note' \(text\); give the source one, or take it away first: `fastload columns .* "
            r"drop note`"
        ),
    ):
        fastload.append(out, Shapes(6, 2))

    class Noted(Shapes):
        def __getitem__(self, index: int) -> dict[str, Any]:
            found = super().__getitem__(index)
            return {**found, "note": f"n{self.begin + index}", "rank": self.begin + index}

    fastload.append(out, Noted(6, 5))
    check_shapes(out, list(range(11)))
    assert [(sample["note"], sample["rank"]) for sample in samples(out)] == [
        (f"n{number}", number) for number in range(11)
    ]
    fastload.drop_columns(out, "note")
    assert [sample["rank"] for sample in samples(out)] == list(range(11))
    fastload.add_columns(out, table(tmp_path / "b.csv", [{"note": f"m{number}"} for number in range(11)]))
    assert [sample["note"] for sample in samples(out)] == [f"m{number}" for number in range(11)]
    check_shapes(out, list(range(11)))
    check_whole(out)


def test_verify_finds_damage(tmp_path: Path) -> None:
    """A byte of added values that is changed is found by verify, and by whoever reads it."""
    out = packed(tmp_path / "ds", 0, 6)
    fastload.add_columns(out, table(tmp_path / "a.csv", [{"note": "some note", "rank": 3}] * 6))
    for name, bad in (("values-00000.bin", SampleError), ("values-00001.bin", DatasetError)):
        data = (out / name).read_bytes()
        (out / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        report = fastload.packing.verify(out)
        assert any(name in problem for problem in report.problems)
        with pytest.raises(bad, match=name), DatasetReader(out) as reader:
            reader.stored_values(0, ["note"])
        (out / name).write_bytes(data)
    check_whole(out)
