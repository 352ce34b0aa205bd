"""docs/format.md is enough to read a packed dataset: its reader, plain Python, gives what fastload gives."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs_helpers import ROOT, blocks
from pictures import photo, write_folder
from PIL import Image
from version_helpers import changed

from fastload import pack
from fastload._native import core
from fastload.store.reader import DatasetReader

READER = next(block.text for block in blocks(ROOT / "docs" / "format.md") if block.language == "python")

_RUN = """
import builtins, pickle, sys
real = builtins.__import__
def only(name, globals=None, locals=None, fromlist=(), level=0):
    if name.partition(".")[0] in {"fastload", "lmdb", "numpy", "torch"}:
        raise ImportError(f"the page's reader imports {name}")
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = only
exec(sys.stdin.read())
sys.stdout.buffer.write(pickle.dumps(read_dataset(sys.argv[1])))
"""


def read_by_the_page(path: Path) -> list[dict[str, Any]]:
    """What the page's reader makes of a dataset, in a process that can import neither fastload nor lmdb."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _RUN, path],
        input=READER.encode(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    samples: list[dict[str, Any]] = pickle.loads(done.stdout)
    return samples


class Everything:
    """A map-style dataset with every kind of field."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % 3:
            image: Any = np.asarray(photo(index, 9 + index, 12))
        else:
            buffer = io.BytesIO()
            photo(index, 40, 56).save(buffer, "JPEG", quality=80, progressive=index % 2 == 1)
            image = buffer.getvalue()
        return {
            "image": image,
            "label": -index,
            "weight": index / 7,
            "box": np.arange(6, dtype=np.int16).reshape(2, 3) * index,
            "mask": np.array([index % 2 == 0, True]),
            "half": np.array([index / 2], np.float16),
            "raw": bytes([index]) * index,
            "name": f"Bild {index} \u00fc\u732b",
            "meta": {"index": index, "list": [1.5, None, "\u00e9"]},
        }


def same_as_fastload(path: Path) -> list[dict[str, Any]]:
    """The page's samples of a dataset, each compared with DatasetReader's."""
    samples = read_by_the_page(path)
    with DatasetReader(path) as reader:
        assert len(samples) == len(reader)
        schema = reader.schema
        for index, sample in enumerate(samples):
            stored = [(number, kind, data) for number, (kind, data) in reader.stored_fields(index).items()]
            for name in schema.columns:
                assert np.array_equal(np.ravel(sample[name]), np.ravel(reader.column(name)[index])), name
            for number, kind, data in stored:
                if kind == core.KIND_INDEX:
                    assert sample["__index__"] == data
                elif kind == core.KIND_JPEG:
                    assert sample["image"] == ("jpeg", data)
                elif kind == core.KIND_RAW:
                    _, height, width, pixels = sample["image"]
                    assert (height, width, 3) == tuple(np.frombuffer(data, "<u4", 3))
                    assert pixels == data[12:]
                else:
                    field = schema.fields[number]
                    assert sample[field.name] == reader.stored_values(index, [field.name])[field.name]
            assert {"__index__", *schema.columns, *(field.name for field in schema)} >= sample.keys()
    return samples


def test_the_reader_is_the_rules() -> None:
    """The reader imports json, math, struct and pathlib, nothing else."""
    imports = [line.split()[1] for line in READER.splitlines() if line.startswith(("import", "from"))]
    assert sorted(imports) == ["json", "math", "pathlib", "struct"]


def test_every_kind_of_field(tmp_path: Path) -> None:
    """Values, by kind, are those that were packed."""
    source = Everything()
    pack(source, tmp_path / "all.fl")
    for index, sample in enumerate(same_as_fastload(tmp_path / "all.fl")):
        given = source[index]
        assert sample["label"] == -index
        assert sample["weight"] == index / 7
        assert sample["box"] == tuple(given["box"].reshape(-1).tolist())
        assert sample["mask"] == (index % 2 == 0, True)
        assert sample["half"] == (index / 2,)
        assert (sample["raw"], sample["name"], sample["meta"]) == (given["raw"], given["name"], given["meta"])
        if index % 3:
            assert sample["image"] == ("raw", 9 + index, 12, given["image"].tobytes())
        else:
            assert (
                Image.open(io.BytesIO(sample["image"][1])).size
                == (56, 40)
                == (sample["__width__"], sample["__height__"])
            )


def test_several_shards_of_deep_trees(packed: Path, tmp_path: Path) -> None:
    """Samples lie in several shards; a shard of many samples has trees with branches."""
    assert len(list(packed.glob("*.lmdb"))) > 1
    same_as_fastload(packed)

    class Many:
        def __len__(self) -> int:
            return 1500

        def __getitem__(self, index: int) -> Any:
            return np.full((3, 4, 3), index % 251, np.uint8), index

    pack(Many(), tmp_path / "many.fl")
    same_as_fastload(tmp_path / "many.fl")


def test_a_changed_dataset(tmp_path: Path) -> None:
    """Samples elsewhere, samples left out, fields added and fields hidden: the page's reader reads what
    fastload does."""
    path, of = changed(tmp_path)
    samples = same_as_fastload(path)
    assert [sample["note"] for sample in samples] == [f"note {number}" for number in of]


def _groups_by_the_page(places: list[tuple[int, int]]) -> tuple[int, int]:
    """(groups, whether each is one record) of records' (offset, size)."""
    apart = all(offset >= sum(before) for before, (offset, _) in pairwise(places))
    if apart and min(size for _, size in places) >= 32768:
        return len(places), 1
    groups, bytes_before, last = 0, 0, None
    for offset, size in sorted(places):
        if (
            last is None
            or bytes_before // 32768 != (bytes_before - last[1]) // 32768
            or offset > sum(last) + 32768
            or offset // 262144 != last[0] // 262144
        ):
            groups += 1
        bytes_before, last = bytes_before + size, (offset, size)
    return groups, 0


def test_a_sidecar(packed: Path) -> None:
    """By the page's rules, the directory leads to tables; places lead to the records' bytes, and copies
    are those of the shard."""
    manifest = json.loads((packed / "manifest.json").read_bytes())
    part = manifest["sidecars"][0]
    data = (packed / part["file"]).read_bytes()
    at = part["bytes"] - part["directory"]["bytes"]
    assert core.crc32c(data[at:]) == part["directory"]["crc32c"]
    magic, version, sections = struct.unpack_from("<4sIQ", data, at)
    assert (magic, version, sections) == (b"FLXD", 2, len(manifest["shards"]))
    at += 16
    for _ in range(sections):
        (tables,) = struct.unpack_from("<Q", data, at)
        at += 8
        magic, length, key, stored, size, crc, count, groups, single, tables_size = struct.unpack_from(
            "<4sIQQQIIIIQ", data, at
        )
        assert (magic, length % 8) == (b"FLX2", 0)
        shard = next(each for each in manifest["shards"] if each["crc32c"] == crc)
        assert (key, stored, size) == (shard["first"], shard["count"], shard["bytes"])
        content = (packed / shard["file"]).read_bytes()
        columns = [struct.unpack_from("<QIHH", data, at + 56 + 16 * each) for each in range(count)]
        names_at = at + 56 + 16 * count
        crcs_at = names_at + (sum(column[2] for column in columns) + 3) // 4 * 4
        found = []
        for width, chunk in [(16, None), *((column[3], column) for column in columns if column[3])]:
            rows = data[tables : tables + stored * width]
            for block in range(0, len(rows), 4096 // width * width):
                assert (
                    core.crc32c(rows[block : block + 4096 // width * width])
                    == struct.unpack_from("<I", data, crcs_at)[0]
                )
                crcs_at += 4
            assert chunk is None or rows == content[chunk[0] : chunk[0] + chunk[1]]
            found.append(rows)
            tables += (len(rows) + 7) // 8 * 8
            tables_size -= (len(rows) + 7) // 8 * 8
        assert tables_size == 0
        assert not any(data[crcs_at : at + length])
        for offset, chunk_size, name_length, copied in columns:
            name = data[names_at : names_at + name_length].decode()
            names_at += name_length
            assert core.crc32c(content[offset : offset + chunk_size]) == shard["columns"][name]
            assert bool(copied) == (chunk_size // stored <= 64 and name != "__crc32c__")
        places = list(struct.iter_unpack("<QII", found[0]))
        for offset, record, record_sum in places:
            assert core.crc32c(content[offset : offset + record]) == record_sum
        assert (groups, single) == _groups_by_the_page([place[:2] for place in places])
        at += length
    assert at == len(data)
    assert sections > 1


def damages() -> Iterator[tuple[str, str]]:
    """(file, what is done to it)"""
    yield "manifest.json", "changed"
    yield "shard-00000.lmdb", "changed"
    yield "shard-00000.lmdb", "cut"


@pytest.mark.parametrize(("file", "how"), list(damages()))
def test_the_reader_refuses_damage(tmp_path: Path, file: str, how: str) -> None:
    """A byte that is changed, or a file that is cut, ends the page's reader by one of its own checks."""
    pack(write_folder(tmp_path / "photos", 3), tmp_path / "photos.fl")
    path = tmp_path / "photos.fl" / file
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[-4096:]
    elif file == "manifest.json":
        data[:] = json.dumps({**json.loads(data), "count": 4}).encode()
    else:
        data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(AssertionError, match="damaged"):
        read_by_the_page(tmp_path / "photos.fl")


# ---- the entropy index, against a walk of the JPEG's Huffman codes by the rules of ITU-T T.81 --------------


def _segments(jpeg: bytes) -> Iterator[tuple[int, bytes, int]]:
    """(marker, content, offset behind it) up to the scan's header."""
    at = 2
    while True:
        marker, size = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        yield marker, jpeg[at + 4 : at + 2 + size], at + 2 + size
        if marker == 0xDA:
            return
        at += 2 + size


def _codes(content: bytes) -> Iterator[tuple[int, dict[str, int]]]:
    """(class and number, symbols by code) of the Huffman tables of a DHT segment."""
    while content:
        code, at, table = 0, 17, {}
        for length, count in enumerate(content[1:17], 1):
            for _ in range(count):
                table[f"{code:0{length}b}"] = content[at]
                code, at = code + 1, at + 1
            code <<= 1
        yield content[0], table
        content = content[at:]


def marks_of(jpeg: bytes) -> tuple[int, int, list[tuple[int, ...]]]:
    """MCUs across and down, and for each MCU its first bit and the DC coefficients before it."""
    tables: dict[int, dict[str, int]] = {}
    interval, blocks_of, start = 0, [], 0
    across = down = 0
    for marker, content, end in _segments(jpeg):
        if marker == 0xC4:
            tables.update(_codes(content))
        elif marker == 0xDD:
            interval = int.from_bytes(content, "big")
        elif marker == 0xC0:
            height, width = int.from_bytes(content[1:3], "big"), int.from_bytes(content[3:5], "big")
            factors = {content[6 + 3 * i]: divmod(content[7 + 3 * i], 16) for i in range(content[5])}
            most = (
                [max(pair[side] for pair in factors.values()) for side in (0, 1)]
                if len(factors) > 1
                else [1, 1]
            )
            across, down = -(-width // (8 * most[0])), -(-height // (8 * most[1]))
            counts = [h * v if len(factors) > 1 else 1 for h, v in factors.values()]
        elif marker == 0xDA:
            chosen = [content[2 + 2 * i] for i in range(content[0])]
            blocks_of = [
                (i, chosen[i] >> 4, chosen[i] & 15) for i, count in enumerate(counts) for _ in range(count)
            ]
            start = end
    bits, places = [], []  # of the coded data without stuffed zeros and markers; where each byte lies
    at, after_restart = start, []
    while not (jpeg[at] == 0xFF and jpeg[at + 1] not in (0, *range(0xD0, 0xD8))):
        if jpeg[at] == 0xFF and jpeg[at + 1]:
            after_restart.append(len(places))
            at += 2
            continue
        places.append(at - start)
        bits.append(f"{jpeg[at]:08b}")
        at += 2 if jpeg[at] == 0xFF else 1
    text, at, dc, found = "".join(bits), 0, [0, 0, 0], []

    def symbol(table: dict[str, int]) -> int:
        nonlocal at
        length = next(length for length in range(1, 17) if text[at : at + length] in table)
        at += length
        return table[text[at - length : at]]

    for mcu in range(across * down):
        if interval and mcu and mcu % interval == 0:
            at, dc = 8 * after_restart[mcu // interval - 1], [0, 0, 0]
        found.append((8 * places[at // 8] + at % 8, *dc))
        for component, dc_table, ac_table in blocks_of:
            size = symbol(tables[dc_table])
            if size:
                value = int(text[at : at + size], 2)
                dc[component] += value if value >> (size - 1) else value - (1 << size) + 1
                at += size
            k = 1
            while k < 64:
                run, size = divmod(symbol(tables[16 | ac_table]), 16)
                if size == 0 and run != 15:
                    break
                k, at = k + run + 1, at + size
    return across, down, found


@pytest.mark.parametrize("form", ["4:4:4", "4:2:0", "grey", "restarts"])
def test_the_entropy_index(form: str) -> None:
    """Every mark of an index, read by the page, is where the walk of the codes finds that MCU."""
    buffer = io.BytesIO()
    picture = photo(5, 150, 210).convert("L" if form == "grey" else "RGB")
    options: dict[str, Any] = (
        {} if form == "grey" else {"subsampling": "4:4:4" if form == "4:4:4" else "4:2:0"}
    )
    picture.save(
        buffer, "JPEG", quality=97, **options, **({"restart_marker_rows": 1} if form == "restarts" else {})
    )
    jpeg = buffer.getvalue()
    index = core.JpegPreparer().index(jpeg)
    assert index
    across, down, marks = marks_of(jpeg)
    space: dict[str, Any] = {}
    exec(READER, space)
    rows = space["read_index"](index, across, down)
    every = index[1]
    assert [len(row) for row in rows] == [-(-across // every)] * down
    for number, row in enumerate(rows):
        assert row == marks[number * across : (number + 1) * across : every], number
    assert any(jpeg[at] == 0xFF and jpeg[at + 1] == 0 for at in range(len(jpeg) - 1))
