"""MDS, LitData and LMDB sources, each written by hand here: which field a value becomes, and what is
refused, with the reason."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from record_helpers import JPEGS, kinds, values
from test_places import bytes_at_places

from fastload.errors import ArgumentError, PackError
from fastload.packing import open_source, pack
from fastload.sources.options import LmdbOptions, SourceOptions
from fastload.sources.row_files import pil_pixels


def rows(path: Path, *samples: bytes, head: bytes = b"") -> None:
    """A file of rows, as MDS and LitData have it."""
    begin = 4 * (len(samples) + 2) + len(head)
    offsets = np.cumsum([begin, *map(len, samples)]).astype("<u4")
    path.write_bytes(struct.pack("<I", len(samples)) + offsets.tobytes() + head + b"".join(samples))


def mds(
    root: Path, encodings: dict[str, str], sizes: dict[str, int], *samples: bytes, **changed: Any
) -> Path:
    """A folder of one shard."""
    rows(root / "shard.mds", *samples, head=b"{}")
    names = list(encodings)
    shard = {
        "format": "mds", "version": 2, "column_names": names,
        "column_encodings": [encodings[name] for name in names],
        "column_sizes": [sizes.get(name) for name in names], "samples": len(samples), "compression": None,
        "zip_data": None,
        "raw_data": {"basename": "shard.mds", "bytes": 0, "hashes": {}}, **changed,
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return root


class TestMDS:
    @pytest.mark.parametrize(
        ("encoding", "reason"),
        [
            ("pkl", "would run code"),
            ("str_decimal", "is not read"),
            ("jpeg_array", "is not read"),
            ("ndarray:x", "no array"),
        ],
    )
    def test_encodings_that_are_refused(self, tmp_path: Path, encoding: str, reason: str) -> None:
        """By the column's name, before anything is read."""
        with pytest.raises(
            PackError,
            match=(
                rf"index\.json: the column 'more' is of encoding '{encoding}', which "
                rf".*{reason.split()[-1]}"
            ),
        ):
            open_source(mds(tmp_path, {"image": "jpeg", "more": encoding}, {}))

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"compression": "zstd"}, "compressed"),
            (
                {"zip_data": {"basename": "shard.mds.zstd"}, "raw_data": {"basename": "shard.mds"}},
                "compressed",
            ),
            ({"format": "csv"}, "only mds is read"),
            ({"samples": 2}, "it has 1 samples where the index says 2|cannot hold"),
            ({"raw_data": {"basename": "../shard.mds"}}, "not in the folder"),
            ({"raw_data": {"basename": "gone.mds"}}, "gone.mds: cannot be read"),
            ({"column_sizes": [8]}, "has a size of 8, not None"),
        ],
    )
    def test_shards_that_are_refused(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(PackError, match=message):
            open_source(
                mds(tmp_path, {"image": "jpeg"}, {}, struct.pack("<I", len(JPEGS[0])) + JPEGS[0], **changed)
            )

    def test_a_row_of_other_lengths(self, tmp_path: Path) -> None:
        """A row whose values do not fill it is one sample's error."""
        good = struct.pack("<I", len(JPEGS[0])) + JPEGS[0]
        (tmp_path / "in").mkdir()
        source = mds(tmp_path / "in", {"image": "jpeg"}, {}, good, good + b"x", b"", good)
        summary = pack(source, tmp_path / "out", on_error="skip")
        assert (summary.samples, [name[-8:] for name, _ in summary.skipped]) == (2, ["sample 1", "sample 2"])

    def test_a_text_called_image(self, tmp_path: Path) -> None:
        """It is a field of another name where the image itself has another."""
        source = mds(
            tmp_path,
            {"image": "str", "jpg": "jpeg"},
            {},
            struct.pack("<II", 3, len(JPEGS[0])) + b"a/b" + JPEGS[0],
        )
        assert values(open_source(source)) == [{"image_field": "a/b"}]
        assert pack(source, tmp_path / "out").samples == 1

    def test_an_index_json_of_other_things(self, tmp_path: Path) -> None:
        """Beside class folders it is one of the other files, whatever it holds."""
        tree(tmp_path, {"cat/1.jpg": JPEGS[0], "dog/1.jpg": JPEGS[0]})
        for content in ("no JSON", "[]", "{}"):
            (tmp_path / "index.json").write_text(content)
            assert open_source(tmp_path).classes == ("cat", "dog")

    def test_pixels(self) -> None:
        """Pixels of other modes, or of another size than they say, are refused."""
        head = struct.pack("<III", 2, 3, 3) + b"RGB"
        assert pil_pixels(head + bytes(18)).shape == (3, 2, 3)
        for data in (
            b"",
            head,
            head + bytes(19),
            struct.pack("<III", 2, 3, 4) + b"CMYK" + bytes(24),
            struct.pack("<III", 2**31, 2**31, 2**31),
        ):
            with pytest.raises(ValueError, match="pixels"):
                pil_pixels(data)


class TestLitData:
    def config(self, root: Path, formats: list[str], spec: Any, **changed: Any) -> Path:
        rows(root / "chunk-0-0.bin", struct.pack("<II", len(JPEGS[0]), 8) + JPEGS[0] + struct.pack("<q", 5))
        leaf = {"type": None, "context": None, "children_spec": []}
        spec = spec or {"type": "builtins.tuple", "context": "null", "children_spec": [leaf] * len(formats)}
        config = {
            "data_format": formats,
            "data_spec": json.dumps([1, spec]),
            "compression": None,
            "encryption": None,
            **changed,
        }
        (root / "index.json").write_text(
            json.dumps({"chunks": [{"filename": "chunk-0-0.bin", "chunk_size": 1}], "config": config})
        )
        return root

    def test_a_tuple(self, tmp_path: Path) -> None:
        """Its values are the image, the label and more fields."""
        assert values(open_source(self.config(tmp_path, ["jpeg", "int"], None))) == [{"label": 5}]

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"compression": "zstd"}, "compressed"),
            ({"compression_level": "batch"}, "compressed"),
            ({"encryption": {"algorithm": "fernet"}}, "encrypted"),
            ({"item_loader": "TokensLoader"}, "TokensLoader"),
            ({"data_format": ["jpeg", "pickle"]}, "'pickle', which would run code"),
            ({"data_format": ["jpeg", "video"]}, "'video', which is not read"),
            ({"data_format": ["jpeg", "no_header_tensor:10"]}, "arrays of type 10"),
            ({"data_format": ["jpeg"]}, "names 2 values, where its data_format has 1"),
            (
                {"data_spec": json.dumps([1, {"type": "torch.Size", "context": "", "children_spec": []}])},
                "'torch.Size', which is not read",
            ),
        ],
    )
    def test_chunks_that_are_refused(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(PackError, match=rf"index\.json: .*{message}"):
            open_source(self.config(tmp_path, ["jpeg", "int"], None, **changed))


def write_lmdb(path: Path, items: dict[bytes, bytes], **options: Any) -> Path:
    with (
        lmdb.open(str(path), map_size=1 << 26, lock=False, **options) as env,
        env.begin(write=True) as transaction,
    ):
        for key, value in items.items():
            transaction.put(key, value)
    return path


class TestLMDB:
    def test_every_key_is_an_image(self, tmp_path: Path) -> None:
        """Without a pattern: in the order of keys, of a folder or a file, with small values and large
        ones."""
        items = {
            f"k/{n:03d}".encode(): encoded(picture(n, 8, 8 + n), "PNG")
            if n % 3
            else JPEGS[n % 6] + bytes(7000)
            for n in range(300)
        }
        for path, subdir in ((tmp_path / "folder.lmdb", True), (tmp_path / "file.lmdb", False)):
            source = open_source(write_lmdb(path, items, subdir=subdir))
            assert bytes_at_places(source) == [items[key] for key in sorted(items)]
            assert source.fields == ()
            assert source.name(1).endswith(": k/001")

    @pytest.mark.parametrize(
        ("pattern", "first", "count"), [("image-%09d", 1, 40), ("%d", 0, 120), ("%06d.jpg", 98, 30)]
    )
    def test_keys_that_count(self, tmp_path: Path, pattern: str, first: int, count: int) -> None:
        """By number, not by the order of keys; the first missing number ends them, and what follows is
        counted."""
        items = {
            (pattern % n).encode(): b"\xff\xd8\xff" + b"%d" % n
            for n in [*range(first, first + count), first + count + 3]
        }
        items |= {b"label-%d" % n: b"%d\n" % (n % 7) for n in range(first, first + count)} | {
            b"num-samples": b"40",
            b"image-1": b"x",
        }
        path = write_lmdb(tmp_path / "x.lmdb", items)
        source = open_source(path, SourceOptions(lmdb=LmdbOptions(pattern, "label-%d")))
        assert [source.read(n).image for n in range(len(source))] == [
            b"\xff\xd8\xff%d" % n for n in range(first, first + count)
        ]
        assert [each["label"] for each in values(source)] == [n % 7 for n in range(first, first + count)]
        assert [(notice.count, notice.examples) for notice in source.notices] == [
            (1, (pattern % (first + count + 3),))
        ]  # type: ignore[attr-defined]

    def test_labels(self, tmp_path: Path) -> None:
        """Integers where all are, else text, else bytes; a missing one is its sample's error."""
        for labels, kind in (
            ((b"1", b"-2"), "int"),
            ((b"1", "ü".encode()), "text"),
            ((b"\xff", b"1"), "bytes"),
        ):
            path = tmp_path / kind
            source = write_lmdb(
                path, {b"i0": JPEGS[0], b"i1": JPEGS[1], b"i2": JPEGS[2], b"l0": labels[0], b"l2": labels[1]}
            )
            summary = pack(
                source, tmp_path / f"{kind}.fl", key_pattern="i%d", label_pattern="l%d", on_error="skip"
            )
            assert kinds(open_source(source, SourceOptions(lmdb=LmdbOptions("i%d", "l%d")))) == {
                "label": kind
            }
            assert summary.skipped == ((f"{path}/data.mdb: i1", "there is no key 'l1' for its label"),)

    def test_the_newest_snapshot_is_read(self, tmp_path: Path) -> None:
        """After values were replaced and removed, also where pages were used again."""
        with lmdb.open(str(tmp_path / "x"), map_size=1 << 26) as env:
            for turn in range(6):
                with env.begin(write=True) as transaction:
                    for n in range(50):
                        transaction.put(b"%03d" % n, JPEGS[turn] + bytes(5000 * (n % 2)))
                    transaction.delete(b"%03d" % turn)
        with lmdb.open(str(tmp_path / "x"), readonly=True) as env, env.begin() as transaction:
            theirs = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
        assert len(theirs) == 49
        source = open_source(tmp_path / "x")
        assert [
            (source.name(n)[-3:].encode(), image) for n, image in enumerate(bytes_at_places(source))
        ] == theirs

    @pytest.mark.parametrize(
        ("items", "options", "message"),
        [
            ({}, {}, "no key in it"),
            ({b"0": b"\x80\x04\x95"}, {}, r"b'0' is a pickle, which is never loaded.*--key-pattern"),
            ({b"0": JPEGS[0], b"__len__": b"1"}, {}, r"b'__len__' is no picture's file.*--key-pattern"),
            (
                {b"0": JPEGS[0]},
                {"key_pattern": "image-%09d"},
                "no key is of the pattern 'image-%09d'; its first key is b'0'",
            ),
        ],
    )
    def test_what_is_refused(
        self, tmp_path: Path, items: dict[bytes, bytes], options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(PackError, match=message):
            open_source(write_lmdb(tmp_path / "x", items), SourceOptions(lmdb=LmdbOptions(**options)))

    def test_named_databases_and_several_values(self, tmp_path: Path) -> None:
        """Neither can be packed; both are said."""
        with lmdb.open(str(tmp_path / "named"), max_dbs=1) as env, env.begin(write=True) as transaction:
            transaction.put(b"0", JPEGS[0], db=env.open_db(b"inner", transaction))
        with pytest.raises(PackError, match=r"b'inner' is a named database"):
            open_source(tmp_path / "named")
        path = write_lmdb(tmp_path / "x.mdb", {b"0": JPEGS[0]}, subdir=False)
        data = bytearray(path.read_bytes())
        data[92] |= 4  # the flags of the main database, in both metas
        data[4096 + 92] |= 4
        path.write_bytes(data)
        with pytest.raises(PackError, match="several values a key"):
            open_source(path)

    @pytest.mark.parametrize("pattern", ["image", "%d-%d", "%s", "image-%9d", "%%d", "%00d", "%0999d", ""])
    def test_patterns_that_are_none(self, pattern: str) -> None:
        with pytest.raises(ArgumentError, match="has not one number"):
            LmdbOptions(pattern)

    def test_options_for_another_source(self, tmp_path: Path) -> None:
        """They are refused, as those of tables are; a label needs an image."""
        tree(tmp_path, {"a/1.jpg": JPEGS[0]})
        with pytest.raises(ArgumentError, match="are for an LMDB file"):
            pack(tmp_path, tmp_path / "out", key_pattern="%d")
        with pytest.raises(ArgumentError, match="needs a key_pattern"):
            LmdbOptions(None, "%d")
