"""Packing Parquet files (fastload/sources/parquet.py): every column as pyarrow reads it, and what is
refused."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_files import FEATURES, IMAGE, jpeg
from PIL import Image

import fastload
from fastload import PackedDataset
from fastload.errors import PackError
from fastload.sources import open_source

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def hub(path: Path, numbers: range, *, group: int = 4, **columns: Any) -> Path:
    """A file as Hugging Face's library writes it to the hub."""
    table = pa.table(
        {
            "image": pa.array([{"bytes": jpeg(n), "path": f"{n}.jpg"} for n in numbers], IMAGE),
            "label": pa.array([n % 3 for n in numbers], pa.int64()),
            **columns,
        }
    ).replace_schema_metadata({"huggingface": json.dumps(FEATURES)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group, compression="zstd")
    return path


def pixels(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"shuffle": True, "seed": 3}])
def test_images_labels_and_class_names_of_several_files(tmp_path: Path, options: dict[str, Any]) -> None:
    hub(tmp_path / "data" / "train-0.parquet", range(10))
    hub(tmp_path / "data" / "train-1.parquet", range(10, 17))
    fastload.pack(str(tmp_path / "data" / "train-*.parquet"), tmp_path / "out.fl", **options)
    dataset = PackedDataset(tmp_path / "out.fl")
    assert (len(dataset), dataset.classes) == (17, ["cat", "dog", "owl"])
    by_height = {image.shape[1]: (image, label) for image, label in dataset}
    order = [image.shape[1] - 40 for image, _ in dataset]
    assert (order == list(range(17))) is not options.get("shuffle", False)
    for number in range(17):
        image, label = by_height[40 + number]
        assert label == number % 3
        assert torch.equal(image, pixels(jpeg(number)))


def test_a_folder_of_parquet_files_is_a_source(tmp_path: Path) -> None:
    hub(tmp_path / "data" / "b.parquet", range(3, 5))
    hub(tmp_path / "data" / "a.parquet", range(3))
    assert [item.values["label"] for item in map(open_source(tmp_path / "data").read, range(5))] == [
        0,
        1,
        2,
        0,
        1,
    ]
    assert len(open_source([tmp_path / "data" / "b.parquet", tmp_path / "data" / "a.parquet"])) == 5


def test_columns_keep_their_types(tmp_path: Path) -> None:
    """Values of every type arrive as what they are; lists of numbers are arrays, with 32-bit or 64-bit
    offsets (Polars)."""
    day = datetime.date(2020, 1, 2)
    columns = {
        "caption": pa.array(["ein Hund", "", "\u72ac"]),
        "score": pa.array([0.5, -1.0, 3.0], pa.float32()),
        "seen": pa.array([True, False, True]),
        "box": pa.array([[1, 2, 3, 4]] * 3, pa.list_(pa.int32(), 4)),
        "raw": pa.array([b"\x00\x01", b"", b"x"]),
        "tags": pa.array([["a", "b"], [], None]),
        "ids": pa.array([[1, 2], [], [3]], pa.list_(pa.int64())),
        "large": pa.array([[1, 2], [], [3]], pa.large_list(pa.int64())),
        "day": pa.array([day] * 3),
        "more": pa.array([{"x": 1, "when": day}] * 3),
    }
    hub(tmp_path / "d.parquet", range(3), **columns)
    fastload.pack(tmp_path / "d.parquet", tmp_path / "out.fl")
    dataset = PackedDataset(tmp_path / "out.fl")
    found = dataset[0]
    assert found["caption"] == "ein Hund"
    assert dataset[2]["caption"] == "\u72ac"
    assert (found["score"], found["seen"], found["raw"], found["day"]) == (0.5, 1, b"\x00\x01", "2020-01-02")
    assert found["box"].dtype == torch.int32
    assert found["box"].tolist() == [1, 2, 3, 4]
    assert [dataset[n]["tags"] for n in range(3)] == [["a", "b"], [], None]
    for name in ("ids", "large"):
        lists = [dataset[n][name] for n in range(3)]
        assert [(each.dtype, each.tolist()) for each in lists] == [
            (torch.int64, each) for each in ([1, 2], [], [3])
        ]
    assert found["more"] == {"x": 1, "when": "2020-01-02"}


def test_what_export_wrote_is_what_pack_reads(tmp_path: Path) -> None:
    hub(tmp_path / "d.parquet", range(6), caption=pa.array([f"number {n}" for n in range(6)]))
    fastload.pack(tmp_path / "d.parquet", tmp_path / "one.fl")
    fastload.export(tmp_path / "one.fl", tmp_path / "again.parquet")
    fastload.pack(tmp_path / "again.parquet", tmp_path / "two.fl")
    one, two = PackedDataset(tmp_path / "one.fl"), PackedDataset(tmp_path / "two.fl")
    assert (one.fields, one.classes, len(one)) == (two.fields, two.classes, len(two))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a["image"], b["image"])
        assert (a["label"], a["caption"]) == (b["label"], b["caption"])


def test_images_by_path_and_other_names(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").write_bytes(jpeg(7))
    table = pa.table({"photo": pa.array([{"bytes": None, "path": "7.jpg"}], IMAGE), "target": pa.array([4])})
    pq.write_table(table, tmp_path / "d.parquet")
    item = open_source(tmp_path / "d.parquet").read(0)
    assert (item.image, item.values) == (jpeg(7), {"label": 4})


@pytest.mark.parametrize("how", ["cut", "empty", "bytes", "footer", "folder", "gone"])
def test_damaged_files_are_named(tmp_path: Path, how: str) -> None:
    path = hub(tmp_path / "d.parquet", range(12))
    data = bytearray(path.read_bytes())
    if how in ("folder", "gone"):
        path.unlink()
        if how == "folder":
            path.mkdir()
    elif how == "bytes":
        data[300:2000] = bytes(1700)
        path.write_bytes(data)
    elif how == "footer":
        data[-60:-10] = b"\xff" * 50
        path.write_bytes(data)
    else:
        path.write_bytes(data[: len(data) // 2 if how == "cut" else 0])
    with pytest.raises(PackError) as told:
        fastload.pack(path, tmp_path / "out.fl")
    assert "d.parquet" in str(told.value)


def test_what_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "none.parquet")
    pq.write_table(pa.table({"a": [b""], "b": [b""]}), tmp_path / "two.parquet")
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "no_rows.parquet")
    hub(tmp_path / "d.parquet", range(2))
    for source, why in [
        ("none.parquet", "no column"),
        ("two.parquet", "several columns"),
        ("no_rows.parquet", "no row"),
        ("*.parquet", "columns are not those"),
    ]:
        with pytest.raises(PackError, match=why):
            open_source(tmp_path / source)
    with pytest.raises(PackError, match="all are"):
        open_source([tmp_path / "d.parquet", tmp_path / "x.tar"])


def test_a_null_is_that_samples_error(tmp_path: Path) -> None:
    hub(tmp_path / "d.parquet", range(3), caption=pa.array(["a", None, "c"]))
    with pytest.raises(PackError, match="row 1: its caption is null"):
        fastload.pack(tmp_path / "d.parquet", tmp_path / "out.fl")
    summary = fastload.pack(tmp_path / "d.parquet", tmp_path / "out.fl", on_error="skip", overwrite=True)
    assert (summary.samples, summary.skipped_count) == (2, 1)


def test_each_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(tmp_path / "d.parquet", range(20), group=5)
    source = open_source(tmp_path / "d.parquet")
    read: list[int] = []
    real = pq.ParquetFile.read_row_group

    def counted(self: Any, group: int, **options: Any) -> Any:
        read.append(group)
        return real(self, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    for position in range(20):
        source.read(position)
    assert read == [0, 1, 2, 3]
