"""Each check of TFRecord, MDS, LitData and LMDB sources refuses its own damage, with its own reason."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from record_helpers import JPEGS
from test_record_sources import mds, write_lmdb
from tfrecord_maker import example, feature, sized, tfrecord, varint

from fastload.errors import PackError
from fastload.packing import open_source
from fastload.sources import litdata, row_files
from fastload.sources import mds as mds_module
from fastload.sources.tfrecord import BYTES, FLOATS, INTS, Feature, bytes_of, features, floats_of, ints_of

PAGE = 4096


def poked(path: Path, *changes: tuple[int, bytes]) -> Path:
    data = bytearray(path.read_bytes())
    for at, content in changes:
        data[at : at + len(content)] = content
    path.write_bytes(data)
    return path


def both_metas(at: int, content: bytes) -> list[tuple[int, bytes]]:
    return [(at, content), (PAGE + at, content)]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """An LMDB file whose tree has a branch page, with values on pages of their own."""
    return write_lmdb(
        tmp_path / "x.mdb", {b"%04d" % n: JPEGS[0] + bytes(4000) for n in range(300)}, subdir=False
    )


def pages(path: Path, kind: int) -> list[int]:
    data = path.read_bytes()
    return [
        page
        for page in range(2, len(data) // PAGE)
        if struct.unpack_from("<QHH", data, page * PAGE)[::2] == (page, kind)
    ]


class TestLMDB:
    def branch(self, path: Path) -> tuple[int, list[int]]:
        """The offset of the root, and those of its nodes."""
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env:
            assert env.stat()["depth"] == 2
        data = path.read_bytes()
        newer = max((0, PAGE), key=lambda at: struct.unpack_from("<Q", data, at + 144)[0])
        root = struct.unpack_from("<Q", data, newer + 128)[0] * PAGE
        count = (struct.unpack_from("<H", data, root + 12)[0] - 16) // 2
        return root, [root + at for at in struct.unpack_from(f"<{count}H", data, root + 16)]

    def test_a_page_that_is_used_twice(self, large: Path) -> None:
        """Also where it leads back to the root, which would never end."""
        root, nodes = self.branch(large)
        data = large.read_bytes()
        for page, reason in (
            (data[nodes[0] : nodes[0] + 6], "used twice"),
            (struct.pack("<IH", root // PAGE, 0), "used twice"),
        ):
            large.write_bytes(data)
            with pytest.raises(PackError, match=rf"x\.mdb: damaged .*{reason}"):
                open_source(poked(large, (nodes[1], page)))

    def test_a_page_that_is_not_there(self, large: Path) -> None:
        _, nodes = self.branch(large)
        with pytest.raises(PackError, match=r"page 4294967295 is not in the file"):
            open_source(poked(large, (nodes[1], b"\xff\xff\xff\xff\0\0")))

    def test_a_value_that_is_not_there(self, large: Path) -> None:
        """The page number of a large value, and its size."""
        leaf = pages(large, 2)[0] * PAGE
        data = large.read_bytes()
        node = leaf + struct.unpack_from("<H", data, leaf + 16)[0]
        for change in ((node + 8 + 4, b"\xff" * 8), (node, b"\xff" * 4)):
            large.write_bytes(data)
            with pytest.raises(PackError, match="does not end in the file"):
                open_source(poked(large, change))

    @pytest.mark.parametrize(
        ("at", "content", "reason"),
        [
            (40, struct.pack("<I", 3), "pages of 3 bytes"),
            (40, struct.pack("<I", 1 << 20), "pages of 1,048,576 bytes"),
            (120, struct.pack("<Q", 5), "300 keys where it says 5"),
            (94, struct.pack("<H", 60), "60 pages deep"),
            (94, struct.pack("<H", 1), "is not the one it should be"),
            (16, bytes(4), "not an LMDB file"),
            (20, struct.pack("<I", 2), "not an LMDB file of data version 1"),
        ],
    )
    def test_metas(self, large: Path, at: int, content: bytes, reason: str) -> None:
        with pytest.raises(PackError, match=rf"x\.mdb: .*{reason}"):
            open_source(poked(large, *both_metas(at, content)))


class TestTFRecord:
    @pytest.mark.parametrize("left", [1, 5, 30, 700])
    def test_a_file_that_was_cut(self, tmp_path: Path, left: int) -> None:
        """In a header, in the data, before the last checksum: refused when it is opened."""
        path = tfrecord(tmp_path / "x.tfrecord", example(image=[JPEGS[0]]), example(image=[JPEGS[0]]))
        size = path.stat().st_size
        for keep in (left, size // 2 + left, size - left % 7 - 1):
            path.write_bytes(
                tfrecord(path, example(image=[JPEGS[0]]), example(image=[JPEGS[0]])).read_bytes()[:keep]
            )
            with pytest.raises(PackError, match=r"x\.tfrecord: it ends inside"):
                open_source(path)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"\x0a\x7f" + bytes(9), "127 bytes in an Example"),
            (sized(1, b"\x0a\x7f"), "127 bytes in the features"),
            (sized(1, sized(1, b"\x0a\x7f")), "a feature of 127 bytes"),
            (sized(1, sized(1, sized(3, b""))), "tag 26"),
            (sized(1, sized(1, sized(1, b"a") + sized(2, sized(4, b"")))), "not one list"),
            (sized(1, sized(1, sized(2, feature([1]) + feature([1])))), "not one list"),
            (sized(1, sized(1, sized(2, feature([1])) * 2)), "tag 18"),
            (sized(1, sized(1, sized(1, b"a") + sized(2, feature([1]))) * 2), "'a' twice"),
            (sized(1, sized(1, sized(1, b"a" * 2000))), "a name of 2,000 bytes"),
            (b"\x0a" + b"\xff" * 10 + b"\1", "more than 64 bits"),
            (b"\x0a" + b"\xff" * 9 + b"\2", "more than 64 bits"),
            (
                b"".join(
                    sized(1, sized(1, sized(1, b"%d" % n) + sized(2, feature([n])))) for n in range(1001)
                ),
                "more than 1000 features",
            ),
        ],
    )
    def test_examples(self, data: bytes, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            features(data, len(data))

    @pytest.mark.parametrize(
        ("kind", "data", "message"),
        [
            (BYTES, b"\x0a\x05abc", "5 bytes in a list of bytes"),
            (BYTES, b"\x12\1a", "tag 18"),
            (FLOATS, b"\x0a\x03abc", "not of 4 bytes"),
            (FLOATS, b"\x0dabc", "not of 4 bytes"),
            (INTS, b"\x0a\x02\x01\xff" + b"\x01", "longer than its feature"),
            (INTS, b"\x0a\x81\x80\x40" + b"\1" * (2**20 + 1), "more than 1,048,576 values"),
            (BYTES, b"\x0a\0" * (2**20 + 1), "more than 1,048,576 values"),
        ],
    )
    def test_lists(self, kind: int, data: bytes, message: str) -> None:
        read: Any = {BYTES: bytes_of, FLOATS: floats_of, INTS: ints_of}[kind]
        with pytest.raises(ValueError, match=message):
            read(data, Feature(kind, 0, len(data)))

    @pytest.mark.parametrize("value", [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)])
    def test_integers(self, value: int) -> None:
        """Any of 64 bits, with its sign."""
        data = b"\x08" + varint(value)
        assert ints_of(data, Feature(INTS, 0, len(data))) == [value]


class TestRows:
    def test_a_shard_that_was_cut(self, tmp_path: Path) -> None:
        """In its table of offsets, or after it."""
        row = struct.pack("<I", len(JPEGS[0])) + JPEGS[0]
        mds(tmp_path, {"image": "jpeg"}, {}, row, row)
        data = (tmp_path / "shard.mds").read_bytes()
        for keep, message in (
            (0, "cannot hold"),
            (11, "cannot hold"),
            (100, "lie outside"),
            (len(data) - 1, "lie outside"),
        ):
            (tmp_path / "shard.mds").write_bytes(data[:keep])
            with pytest.raises(PackError, match=rf"shard\.mds: .*{message}"):
                open_source(tmp_path)

    @pytest.mark.parametrize(
        ("decode", "data", "message"),
        [
            (row_files.number("q"), bytes(7), "7 bytes, where a number has 8"),
            (row_files.flat_array(np.dtype("float32")), bytes(7), "7 bytes for an array"),
            (lambda data: mds_module._array(data, None, None), b"", "0 stands for no dtype"),
            (lambda data: mds_module._array(data, None, None), b"\x08", "ends before its shape"),
            (lambda data: mds_module._array(data, None, None), b"\x08\x0b\1", "ends inside its shape"),
            (lambda data: mds_module._array(data, np.dtype("u1"), (3,)), bytes(4), "4 bytes for an array"),
            (lambda data: litdata._array(data, "<", litdata._NUMPY), bytes(7), "ends inside its header"),
            (
                lambda data: litdata._array(data, "<", litdata._NUMPY),
                struct.pack("<II", 0, 2**32 - 1),
                "a shape of 4,294,967,295 sides",
            ),
            (
                lambda data: litdata._array(data, ">", litdata._TORCH),
                struct.pack(">III", 0, 1, 2**31),
                "0 bytes for an array",
            ),
            (
                lambda data: litdata._array(data, ">", litdata._TORCH),
                struct.pack(">II", 10, 0),
                "arrays of type 10",
            ),
        ],
    )
    def test_values(self, decode: Any, data: bytes, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            decode(data)
