"""A dataset of a billion samples opens, and a process holds a fraction of a byte for each: its files are
forged, and sparse."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from fastload._native import core
from fastload.store import Field, Manifest, Schema, Segment
from fastload.store.entries import ShardEntry

SHARDS, STORED = 100, 10_000_000
FILE_BYTES = 1 << 36
COLUMNS = (("__height__", 4), ("__width__", 4), ("label", 8), ("__crc32c__", 0))
"""Name of each column, and bytes of a row where the sidecar has a copy."""


def padded(data: bytes, multiple: int) -> bytes:
    """Data with zeros up to a multiple of some bytes."""
    return data + bytes(-len(data) % multiple)


def block_crcs(width: int) -> bytes:
    """CRC32C of each block of a table of zeros."""
    rows = 4096 // width
    whole, rest = divmod(STORED, rows)
    crcs = struct.pack("<I", core.crc32c(bytes(rows * width))) * whole
    return crcs + (struct.pack("<I", core.crc32c(bytes(rest * width))) if rest else b"")


def section_head(shard: ShardEntry) -> tuple[bytes, int]:
    """The head of a shard's section as docs/format.md has it, and the bytes of its tables: all places and
    values are zeros."""
    widths = [16, *(width for _, width in COLUMNS if width)]
    tables = sum(STORED * width + -(STORED * width) % 8 for width in widths)
    columns = b"".join(
        struct.pack("<QIHH", 4096, (width or 4) * STORED, len(name), width) for name, width in COLUMNS
    )
    names = padded(b"".join(name.encode() for name, _ in COLUMNS), 4)
    body = columns + names + b"".join(map(block_crcs, widths))
    fixed = struct.Struct("<4sIQQQIIIIQ")
    body = padded(bytes(fixed.size) + body, 8)[fixed.size :]
    identity = shard.key, shard.stored, shard.bytes, shard.crc32c
    return fixed.pack(
        b"FLX2", fixed.size + len(body), *identity, len(COLUMNS), STORED, 1, tables
    ) + body, tables


def forge(folder: Path) -> None:
    """Makes a dataset of SHARDS * STORED samples, all of whose bytes but the directory's are holes."""
    folder.mkdir()
    shards, heads, tables = [], [], 0
    for number in range(SHARDS):
        first, name = number * STORED, f"shard-{number:05d}.lmdb"
        with open(folder / name, "wb") as file:
            file.truncate(FILE_BYTES)
        shards.append(
            ShardEntry(
                name, first, STORED, FILE_BYTES, number, dict.fromkeys((name for name, _ in COLUMNS), 0)
            )
        )
        head, size = section_head(shards[-1])
        heads += [struct.pack("<Q", tables), head]
        tables += size
    directory = struct.pack("<4sIQ", b"FLXD", 2, SHARDS) + b"".join(heads)
    with open(folder / "index-00000.bin", "wb") as file:
        file.seek(tables)
        file.write(directory)
    segment = Segment(
        "index-00000.bin", 0, tables + len(directory), 0, None, (len(directory), core.crc32c(directory))
    )
    schema = Schema((Field("image", "image"), Field("label", "int")))
    Manifest(schema, tuple(shards), None, {}, {"samples": SHARDS * STORED}, sidecars=(segment,)).write(folder)


PROGRAM = """
import sys
from itertools import islice
import numpy as np
from fastload import FastLoader, PackedDataset
from fastload.errors import SampleError

def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))

before = private()
dataset = PackedDataset(sys.argv[1])
assert len(dataset) == 10**9
for index in (0, 123_456_789, 10**9 - 1):
    assert dataset.opened.reader.take("label", np.array([index])).tolist() == [0]
    try:
        dataset[index]
        raise SystemExit("a record of nothing was read")
    except SampleError as error:
        assert error.index == index
for shuffle in ("window", "huge"):
    loader = FastLoader(dataset, batch_size=4, shuffle=shuffle, seed=1, num_workers=1)
    assert len(list(islice(iter(loader.sampler), 1000))) == 1000
    loader.close()
print(private() - before)
"""


def test_a_billion_samples(tmp_path: Path) -> None:
    """Opened, asked for samples at both ends, and drawn by two orders: under a tenth of a byte for each
    sample."""
    forge(tmp_path / "d")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10**8
