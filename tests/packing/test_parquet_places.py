"""Places of images in Parquet files (fastload/store/parquet_pages.py): pyarrow writes the files, and its
values are the oracle."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_files import IMAGE, jpeg, pa, pq
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import PackedDataset, attach, pack
from fastload.errors import FastloadError
from fastload.sources import Placed, open_source
from fastload.store.pages import POINTED, Page, PageSlots, pointed_in
from fastload.store.parquet_pages import chunk_of, content_of, pointer_places, value_places

BYTES = [jpeg(number) for number in range(20)]


def column(values: list[bytes | None], paths: list[str | None] | None = None) -> Any:
    if paths is None:
        return pa.array(values, pa.binary())
    return pa.array(
        [{"bytes": value, "path": path} for value, path in zip(values, paths, strict=True)], IMAGE
    )


def check(path: Path) -> int:
    """Compares the bytes at every place with those that pyarrow reads; returns the number of places."""
    source, found = open_source(path), 0
    assert isinstance(source, Placed)
    for position in range(len(source)):
        place = source.place(position)
        if place is not None:
            with open(place.path, "rb") as file:
                file.seek(place.offset)
                assert file.read(place.size) == source.read(position).image
            found += 1
        assert source.read_fields(position) == source.read(position).values  # type: ignore[attr-defined]
    return found


def check_pages(path: Path) -> None:
    """Compares what the pages of a column of images have at its places, by lengths and by pointers, with what
    pyarrow reads."""
    data = path.read_bytes()
    file = pq.ParquetFile(path)
    images = file.read(columns=["image"]).column("image").to_pylist()
    values = [each["bytes"] if isinstance(each, dict) else each for each in images]

    def read(at: int, size: int) -> bytes:
        return data[at : at + size]

    for slots in (PageSlots(), PageSlots(pointed=True)):
        places: list[tuple[int, int]] = []
        for group in range(file.metadata.num_row_groups):
            chunk = chunk_of(file.metadata, group, "image.bytes") or chunk_of(file.metadata, group, "image")
            assert chunk is not None
            found = (pointer_places if slots.pointed else value_places)(read, chunk, slots)
            assert found is not None
            places += zip(found[0].tolist(), found[1].tolist(), strict=True)
        shard = bytearray(slots.bytes)
        rows = np.frombuffer(slots.packed(), "<u8").reshape(-1, 5)
        for page in (Page(*row) for row in rows.tolist()):
            shard[page.start : page.start + page.length] = content_of(
                page, data[page.offset : page.offset + page.size]
            )
        for (offset, size), value in zip(places, values, strict=True):
            place = memoryview(shard)[offset : offset + max(size, 0)]
            if value is None:
                assert size < 0 or not pointed_in(place)
            else:
                assert (pointed_in(place) if slots.pointed else place) == value


FORMS = list(itertools.product(("1.0", "2.0"), (True, False), (7, 1000), (30_000, 1 << 20), (True, False)))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_that_pyarrow_writes(form: tuple[str, bool, int, int, bool], tmp_path: Path) -> None:
    """Pages of both versions, with and without dictionaries, small and large, equal and different values,
    with nulls."""
    version, dictionary, rows, page, few = form
    images: list[bytes | None] = [BYTES[number % (4 if few else 20)] for number in range(60)]
    nulls, paths = list(images), [None] * 60
    for number in (3, 4, 17, 59):
        (tmp_path / f"{number}.jpg").write_bytes(BYTES[0])
        nulls[number], paths[number] = None, str(tmp_path / f"{number}.jpg")  # type: ignore[call-overload]
    for name, images_of in (
        ("plain", column(images)),
        ("struct", column(images, [None] * 60)),
        ("nulls", column(nulls, paths)),
    ):  # type: ignore[arg-type]
        rows_of = pa.table({"image": images_of, "label": pa.array([number % 3 for number in range(60)])})
        path = tmp_path / f"{name}.parquet"
        options = {"use_dictionary": dictionary, "row_group_size": rows, "data_page_size": page}
        pq.write_table(
            rows_of, path, compression="none", data_page_version=version, write_page_index=few, **options
        )
        assert check(path) == 60
        check_pages(path)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_compressed_columns_have_none(compression: str, tmp_path: Path) -> None:
    """But in their pages, once these are decompressed."""
    path = tmp_path / "a.parquet"
    for version, dictionary in itertools.product(("1.0", "2.0"), (True, False)):
        pq.write_table(
            pa.table({"image": column([*BYTES, *BYTES])}),
            path,
            compression=compression,
            data_page_version=version,
            use_dictionary=dictionary,
            data_page_size=20_000,
            write_batch_size=1,
        )
        assert check(path) == 0
        check_pages(path)


@pytest.mark.parametrize("kind", [b"\x04\x15\x08\x15\x08\x4c", b"\x00\x15\x08\x15\x08\x2c"])
def test_counts_without_bound(kind: bytes) -> None:
    """A page, of a dictionary or of data, that says it has more values than it has room for."""
    count = bytes([0x80, 0x80, 0x80, 0x80, 0x80, 0x40])  # 2^40, as zigzag
    data = b"\x15" + kind + b"\x15" + count + b"\x15\x00\x00\x00" + bytes(4)
    with pytest.raises(ValueError, match=r"values"):
        content_of(Page(0, 12, 0, len(data), POINTED), data)


def test_other_encodings_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    encoding = {"image": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(
        pa.table({"image": column(list(BYTES))}),
        path,
        compression="none",
        use_dictionary=False,
        column_encoding=encoding,
    )
    assert check(path) == 0


def test_only_the_images_need_be_uncompressed(tmp_path: Path) -> None:
    """As Hugging Face's library writes them: other columns are compressed."""
    rows = pa.table({"image": column(list(BYTES), [None] * 20), "text": pa.array(["a" * 100] * 20)})
    pq.write_table(
        rows,
        tmp_path / "a.parquet",
        compression={"image.bytes": "none", "image.path": "snappy", "text": "zstd"},
    )
    assert check(tmp_path / "a.parquet") == 20


@given(
    seed=st.integers(0, 2**32),
    edits=st.integers(1, 4),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
)
@settings(max_examples=150)
def test_damaged_pages(
    seed: int, edits: int, dictionary: bool, version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever their headers say: a place within the file, none, or one of fastload's errors."""
    root = tmp_path_factory.mktemp("damaged")
    path, drawn = root / "a.parquet", random.Random(seed)
    options = {"use_dictionary": dictionary, "data_page_version": version, "data_page_size": 4000}
    pq.write_table(pa.table({"image": column(BYTES[:8], [None] * 8)}), path, compression="none", **options)
    data = bytearray(path.read_bytes())
    # Of the pages; a damaged footer ends the process within pyarrow.
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    heads = [at for at in range(end) if data[at : at + 1] == b"\x15"]  # most of which begin a header
    for _ in range(edits):
        at = (
            min(drawn.choice(heads) + drawn.randrange(24), end - 1)
            if drawn.random() < 0.8
            else drawn.randrange(end)
        )
        data[at] = drawn.choice([0, 1, 2, 0x7F, 0x80, 0xFF, data[at] ^ 1 << drawn.randrange(8)])
    path.write_bytes(data)
    try:
        source: Any = open_source(path)
    except FastloadError:  # the footer
        return
    for position in range(len(source)):
        try:
            place = source.place(position)
        except FastloadError:
            continue
        assert place is None or 0 <= place.offset <= place.offset + place.size <= len(data)


def test_attached(tmp_path: Path) -> None:
    """An attached file holds what a pack of it holds; its images stay where they are."""
    rows = pa.table(
        {"image": column(list(BYTES), [None] * 20), "label": pa.array([number % 3 for number in range(20)])}
    )
    pq.write_table(rows, tmp_path / "a.parquet", compression="none", row_group_size=7)
    assert attach(tmp_path / "a.parquet", tmp_path / "index").attached == 20
    pack(tmp_path / "a.parquet", tmp_path / "packed", encode="keep")
    ours, theirs = PackedDataset(tmp_path / "index"), PackedDataset(tmp_path / "packed")
    assert all(
        torch.equal(ours[number][0], theirs[number][0]) and ours[number][1] == theirs[number][1]
        for number in range(20)
    )
