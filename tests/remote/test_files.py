"""Files of a manifest: each is listed once with all its parts, and their checksums are told from a stream
cut anywhere."""

from __future__ import annotations

import random
from dataclasses import replace

from fastload._native import core
from fastload.remote.manifest import DataFile, Part, PartCheck, data_files, missing
from fastload.remote.objects import ObjectInfo
from fastload.store import Field, Manifest, Schema, Segment, ShardEntry

SCHEMA = Schema((Field("note", "text"),))


def test_parts_of_any_stream() -> None:
    """Parts that overlap, touch or leave gaps, in chunks of any size: right data have no fault, and a
    flipped bit in a part has."""
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    for _ in range(200):
        data = bytearray(draw.randbytes(draw.randint(1, 400)))
        spans = sorted(
            {
                (start, draw.randint(1, len(data) - start))
                for start in draw.choices(range(len(data)), k=draw.randint(1, 5))
            }
        )
        parts = tuple(Part(start, size, core.crc32c(data[start : start + size])) for start, size in spans)
        file = DataFile(None, "values-00000.bin", parts, whole=False)
        flipped = draw.randrange(file.bytes)
        for bad in (False, True):
            if bad:
                data[flipped] ^= 1 << draw.randrange(8)
            check, at = PartCheck(file), 0
            while at < file.bytes:
                step = draw.randint(1, 90)
                check.add(at, data[at : min(at + step, file.bytes)])
                at += step
            inside = any(part.offset <= flipped < part.offset + part.bytes for part in parts)
            assert bool(check.wrong()) == (bad and inside), f"seed {seed}"


def test_files_of_a_manifest() -> None:
    """Sidecar, rows and values once each, with the parts of all shards; shards have one part, and exactly
    its size."""
    shards = []
    for number in range(2):
        rows = Segment("rows-00000.bin", 8 * number, 8, number)
        values = {"note": Segment("values-00000.bin", 100 * number, 50, number)}
        entry = ShardEntry(
            f"shard-0000{number}.lmdb",
            2 * number,
            2,
            1000 + number,
            number,
            {},
            stored=3,
            rows=rows,
            added=values,
        )
        shards.append(entry)
    manifest = Manifest(SCHEMA, tuple(shards), sidecars=(Segment("index-00000.bin", 0, 64, 7),))
    files = {file.name: file for file in data_files(manifest)}
    assert {name: (file.bytes, len(file.parts), file.whole) for name, file in files.items()} == {
        "index-00000.bin": (64, 1, False),
        "rows-00000.bin": (16, 2, False),
        "values-00000.bin": (150, 2, False),
        "shard-00000.lmdb": (1000, 1, True),
        "shard-00001.lmdb": (1001, 1, True),
    }
    assert files["shard-00000.lmdb"].digest != replace(files["shard-00000.lmdb"], whole=False).digest
    listed = [
        ObjectInfo("rows-00000.bin", 17),
        ObjectInfo("shard-00000.lmdb", 1001),
        ObjectInfo("index-00000.bin", 63),
    ]
    assert {file.name: what for file, what in missing(files.values(), listed)} == {
        "index-00000.bin": "63 bytes where the manifest says 64",
        "values-00000.bin": "there is no such object",
        "shard-00000.lmdb": "1,001 bytes where the manifest says 1,000",
        "shard-00001.lmdb": "there is no such object",
    }
