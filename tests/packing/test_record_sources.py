"""TFRecord, MDS, LitData and LMDB sources, each written by hand here: which field a value becomes, and what is refused, with the reason."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from test_places import bytes_at_places

from fastload._native import core
from fastload.errors import ArgumentError, PackError
from fastload.packing import open_source, pack
from fastload.packing.options import LmdbOptions
from fastload.packing.sources import Source
from fastload.packing.sources.column_codecs import pil_pixels

JPEGS = [encoded(picture(seed, 24, 32 + seed)) for seed in range(6)]


def values(source: Source) -> list[dict[str, Any]]:
    return [source.read(position).values for position in range(len(source))]


def kinds(source: Source) -> dict[str, str]:
    return {field.name: field.kind for field in source.fields}


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def sized(number: int, data: bytes) -> bytes:
    """A field with a size, of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Any, packed: bool = True) -> bytes:
    """A feature of a list of bytes, floats or integers."""
    if value and isinstance(value[0], bytes):
        return sized(1, b"".join(sized(1, each) for each in value))
    if value and isinstance(value[0], float):
        return sized(
            2, sized(1, struct.pack(f"<{len(value)}f", *value)) if packed else b"".join(b"\x0d" + struct.pack("<f", v) for v in value)
        )
    return sized(3, sized(1, b"".join(map(varint, value))) if packed else b"".join(b"\x08" + varint(v) for v in value))


def example(packed: bool = True, **features: Any) -> bytes:
    """A tf.train.Example."""
    return sized(1, b"".join(sized(1, sized(1, name.encode()) + sized(2, feature(value, packed))) for name, value in features.items()))


def masked(data: bytes) -> bytes:
    crc = core.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord(path: Path, *records: bytes) -> Path:
    lengths = [struct.pack("<Q", len(record)) for record in records]
    path.write_bytes(b"".join(n + masked(n) + record + masked(record) for n, record in zip(lengths, records, strict=True)))
    return path


class TestTFRecord:
    def test_kinds_follow_from_all_surveyed_records(self, tmp_path: Path) -> None:
        """One number is a number, several of the same count an array, a varying count JSON; bytes are text where all are UTF-8."""
        records = [
            example(
                image=[JPEGS[n]],
                label=[n],
                w=[n / 2],
                box=[0.5, float(n)],
                ids=[1, -n],
                tags=[b"a"] * n,
                more=[1] * n,
                t=[b"x"],
                b=[b"\xff"],
            )
            for n in range(3)
        ]
        source = open_source(tfrecord(tmp_path / "x.tfrecord", *records))
        assert kinds(source) == {
            "label": "int", "w": "float", "box": "array", "ids": "array", "tags": "json", "more": "json", "t": "text", "b": "bytes",
        }  # fmt: skip
        found = source.read(2).values
        assert (found["label"], found["w"], found["tags"], found["more"], found["t"], found["b"]) == (
            2,
            1.0,
            ["a", "a"],
            [1, 1],
            "x",
            b"\xff",
        )
        assert found["ids"].tolist() == [1, -2]
        assert found["box"].dtype == np.float32
        assert bytes_at_places(source) == JPEGS[:3]

    def test_lists_that_are_not_packed(self, tmp_path: Path) -> None:
        """Both forms that protocol buffers have for a list of numbers give the same values."""
        both = [example(packed, image=[JPEGS[0]], ids=[3, -1, 2**63 - 1], w=[0.5, 2.0]) for packed in (True, False)]
        first, second = values(open_source(tfrecord(tmp_path / "x.tfrecord", *both)))
        assert first["ids"].tolist() == second["ids"].tolist() == [3, -1, 2**63 - 1]
        assert first["w"].tolist() == second["w"].tolist() == [0.5, 2.0]

    @pytest.mark.parametrize(
        ("names", "image", "label"),
        [
            (("image/encoded", "image/class/label"), "image/encoded", "image/class/label"),
            (("image", "label", "image/class/label"), "image", "label"),
            (("photo", "target"), "photo", "target"),
        ],
    )
    def test_the_usual_names(self, tmp_path: Path, names: tuple[str, ...], image: str, label: str) -> None:
        """The image is found by a usual name or by being the only picture; the label by a usual name."""
        records = [example(**{name: [JPEGS[n]] if name == image else [n + (name == label)] for name in names}) for n in range(3)]
        source = open_source(tfrecord(tmp_path / "train-00000-of-00001", *records))
        assert [each["label"] for each in values(source)] == [1, 2, 3]
        assert bytes_at_places(source) == JPEGS[:3]

    def test_one_records_fault_is_its_own(self, tmp_path: Path) -> None:
        """A damaged record, one without image, and one with another feature are left out by name."""
        records = [example(image=[JPEGS[0]], label=[n]) for n in range(300)]
        records[4] = example(label=[1])
        records[7] = example(image=[JPEGS[0]], label=[1], odd=[1])
        records[8] = example(image=[JPEGS[0]], label=[1, 2])
        path = tfrecord(tmp_path / "x.tfrecord", *records)
        data = bytearray(path.read_bytes())
        data[40] ^= 1  # in the data of record 0
        path.write_bytes(data)
        summary = pack(path, tmp_path / "out", on_error="skip")
        assert [name for name, _ in summary.skipped] == [f"{path}: record {n}" for n in (0, 4, 7, 8)]
        reasons = " | ".join(reason for _, reason in summary.skipped)
        for part in ("checksum does not match", "0 values of 'image'", "the feature 'odd'", "2 values of 'label'"):
            assert part in reasons

    def test_many_files_and_patterns(self, tmp_path: Path) -> None:
        """A pattern, a list and a folder give the records of all files in order."""
        for n in range(3):
            tfrecord(tmp_path / f"a-{n:05d}-of-00003", *(example(image=[JPEGS[n]], label=[10 * n + m]) for m in range(2)))
        paths = sorted(map(str, tmp_path.iterdir()))
        for given in (tmp_path, f"{tmp_path}/a-*", f"{tmp_path}/a-{{00000..00002}}-of-00003", paths):
            source = open_source(given)
            assert [each["label"] for each in values(source)] == [0, 1, 10, 11, 20, 21]
        tfrecord(tmp_path / "b-00000-of-00001", example(image=[JPEGS[0]]))
        with pytest.raises(PackError, match=r"several sets \(a, b\)"):
            open_source(tmp_path)

    def test_class_names(self, tmp_path: Path) -> None:
        """TensorFlow Datasets writes them beside the files."""
        path = tfrecord(tmp_path / "x-train.tfrecord-00000-of-00001", *(example(image=[JPEGS[n]], label=[n]) for n in range(2)))
        assert open_source(path).classes is None
        (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
        (tmp_path / "features.json").write_text("{}")
        assert open_source(tmp_path).classes == ("cat", "dog")

    def test_more_files_than_may_be_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files are closed and opened again beyond a limit."""
        monkeypatch.setattr("fastload.packing.sources.ranges._OPEN_MOST", 2)
        for n in range(6):
            tfrecord(tmp_path / f"{n}.tfrecord", example(image=[JPEGS[n]]))
        assert bytes_at_places(open_source(tmp_path)) == JPEGS

    def test_compressed_ones(self, tmp_path: Path) -> None:
        """They cannot be read at any position: said so, by name and by content."""
        path = tfrecord(tmp_path / "x.tfrecord", example(image=[JPEGS[0]]))
        packed = gzip.compress(path.read_bytes())
        for name in ("y.tfrecord", "y.tfrecord.gz", "train-00000-of-00001.gz"):
            (tmp_path / name).write_bytes(packed)
            with pytest.raises(PackError, match=r"a compressed TFRecord file .* unpack it"):
                open_source(tmp_path / name)

    @pytest.mark.parametrize(
        ("record", "message"),
        [
            (b"", "can be the image"),
            (example(label=[1]), "can be the image"),
            (example(image=[bytes(3072)], label=[1]), "none of image, label is a picture's file"),
            (example(image=[JPEGS[0]]) + sized(2, b""), "SequenceExample"),
            (example(a=[JPEGS[0]], b=[JPEGS[1]]), "several of a, b can be the image"),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "no tf.train.Example"),
        ],
    )
    def test_what_is_no_example_with_an_image(self, tmp_path: Path, record: bytes, message: str) -> None:
        with pytest.raises(PackError, match=message):
            open_source(tfrecord(tmp_path / "x.tfrecord", record))


def rows(path: Path, *samples: bytes, head: bytes = b"") -> None:
    """A file of rows, as MDS and LitData have it."""
    begin = 4 * (len(samples) + 2) + len(head)
    offsets = np.cumsum([begin, *map(len, samples)]).astype("<u4")
    path.write_bytes(struct.pack("<I", len(samples)) + offsets.tobytes() + head + b"".join(samples))


def mds(root: Path, encodings: dict[str, str], sizes: dict[str, int], *samples: bytes, **changed: Any) -> Path:
    """A folder of one shard."""
    rows(root / "shard.mds", *samples, head=b"{}")
    names = list(encodings)
    shard = {
        "format": "mds", "version": 2, "column_names": names, "column_encodings": [encodings[name] for name in names],
        "column_sizes": [sizes.get(name) for name in names], "samples": len(samples), "compression": None, "zip_data": None,
        "raw_data": {"basename": "shard.mds", "bytes": 0, "hashes": {}}, **changed,
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return root


class TestMDS:
    @pytest.mark.parametrize(
        ("encoding", "reason"),
        [("pkl", "would run code"), ("str_decimal", "is not read"), ("jpeg_array", "is not read"), ("ndarray:x", "no array")],
    )
    def test_encodings_that_are_refused(self, tmp_path: Path, encoding: str, reason: str) -> None:
        """By the column's name, before anything is read."""
        with pytest.raises(PackError, match=rf"index\.json: the column 'more' is of encoding '{encoding}', which .*{reason.split()[-1]}"):
            open_source(mds(tmp_path, {"image": "jpeg", "more": encoding}, {}))

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"compression": "zstd"}, "compressed"),
            ({"zip_data": {"basename": "shard.mds.zstd"}, "raw_data": {"basename": "shard.mds"}}, "compressed"),
            ({"format": "csv"}, "only mds is read"),
            ({"samples": 2}, "it has 1 samples where the index says 2|cannot hold"),
            ({"raw_data": {"basename": "../shard.mds"}}, "not in the folder"),
            ({"raw_data": {"basename": "gone.mds"}}, "gone.mds: cannot be read"),
            ({"column_sizes": [8]}, "has a size of 8, not None"),
        ],
    )
    def test_shards_that_are_refused(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(PackError, match=message):
            open_source(mds(tmp_path, {"image": "jpeg"}, {}, struct.pack("<I", len(JPEGS[0])) + JPEGS[0], **changed))

    def test_a_row_of_other_lengths(self, tmp_path: Path) -> None:
        """A row whose values do not fill it is one sample's error."""
        good = struct.pack("<I", len(JPEGS[0])) + JPEGS[0]
        (tmp_path / "in").mkdir()
        source = mds(tmp_path / "in", {"image": "jpeg"}, {}, good, good + b"x", b"", good)
        summary = pack(source, tmp_path / "out", on_error="skip")
        assert (summary.samples, [name[-8:] for name, _ in summary.skipped]) == (2, ["sample 1", "sample 2"])

    def test_a_text_called_image(self, tmp_path: Path) -> None:
        """It is a field of another name where the image itself has another."""
        source = mds(tmp_path, {"image": "str", "jpg": "jpeg"}, {}, struct.pack("<II", 3, len(JPEGS[0])) + b"a/b" + JPEGS[0])
        assert values(open_source(source)) == [{"image_field": "a/b"}]
        assert pack(source, tmp_path / "out").samples == 1

    def test_an_index_json_of_other_things(self, tmp_path: Path) -> None:
        """Beside class folders it is one of the other files, whatever it holds."""
        tree(tmp_path, {"cat/1.jpg": JPEGS[0]})
        for content in ("no JSON", "[]", "{}"):
            (tmp_path / "index.json").write_text(content)
            assert open_source(tmp_path).classes == ("cat",)

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
        config = {"data_format": formats, "data_spec": json.dumps([1, spec]), "compression": None, "encryption": None, **changed}
        (root / "index.json").write_text(json.dumps({"chunks": [{"filename": "chunk-0-0.bin", "chunk_size": 1}], "config": config}))
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
            ({"data_spec": json.dumps([1, {"type": "torch.Size", "context": "", "children_spec": []}])}, "'torch.Size', which is not read"),
        ],
    )
    def test_chunks_that_are_refused(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(PackError, match=rf"index\.json: .*{message}"):
            open_source(self.config(tmp_path, ["jpeg", "int"], None, **changed))


def write_lmdb(path: Path, items: dict[bytes, bytes], **options: Any) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, lock=False, **options) as env, env.begin(write=True) as transaction:
        for key, value in items.items():
            transaction.put(key, value)
    return path


class TestLMDB:
    def test_every_key_is_an_image(self, tmp_path: Path) -> None:
        """Without a pattern: in the order of keys, of a folder or a file, with small values and large ones."""
        items = {f"k/{n:03d}".encode(): encoded(picture(n, 8, 8 + n), "PNG") if n % 3 else JPEGS[n % 6] + bytes(7000) for n in range(300)}
        for path, subdir in ((tmp_path / "folder.lmdb", True), (tmp_path / "file.lmdb", False)):
            source = open_source(write_lmdb(path, items, subdir=subdir))
            assert bytes_at_places(source) == [items[key] for key in sorted(items)]
            assert source.fields == ()
            assert source.name(1).endswith(": k/001")

    @pytest.mark.parametrize(("pattern", "first", "count"), [("image-%09d", 1, 40), ("%d", 0, 120), ("%06d.jpg", 98, 30)])
    def test_keys_that_count(self, tmp_path: Path, pattern: str, first: int, count: int) -> None:
        """By number, not by the order of keys; the first missing number ends them, and what follows is counted."""
        items = {(pattern % n).encode(): b"\xff\xd8\xff" + b"%d" % n for n in [*range(first, first + count), first + count + 3]}
        items |= {b"label-%d" % n: b"%d\n" % (n % 7) for n in range(first, first + count)} | {b"num-samples": b"40", b"image-1": b"x"}
        path = write_lmdb(tmp_path / "x.lmdb", items)
        source = open_source(path, None, LmdbOptions(pattern, "label-%d"))
        assert [source.read(n).image for n in range(len(source))] == [b"\xff\xd8\xff%d" % n for n in range(first, first + count)]
        assert [each["label"] for each in values(source)] == [n % 7 for n in range(first, first + count)]
        assert [(notice.count, notice.examples) for notice in source.notices] == [(1, (pattern % (first + count + 3),))]  # type: ignore[attr-defined]

    def test_labels(self, tmp_path: Path) -> None:
        """Integers where all are, else text, else bytes; a missing one is its sample's error."""
        for labels, kind in (((b"1", b"-2"), "int"), ((b"1", "ü".encode()), "text"), ((b"\xff", b"1"), "bytes")):
            path = tmp_path / kind
            source = write_lmdb(path, {b"i0": JPEGS[0], b"i1": JPEGS[1], b"i2": JPEGS[2], b"l0": labels[0], b"l2": labels[1]})
            summary = pack(source, tmp_path / f"{kind}.fl", key_pattern="i%d", label_pattern="l%d", on_error="skip")
            assert kinds(open_source(source, None, LmdbOptions("i%d", "l%d"))) == {"label": kind}
            assert [reason for _, reason in summary.skipped] == [f"{path}/data.mdb: i1: there is no key 'l1' for its label"]

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
        assert [(source.name(n)[-3:].encode(), image) for n, image in enumerate(bytes_at_places(source))] == theirs

    @pytest.mark.parametrize(
        ("items", "options", "message"),
        [
            ({}, {}, "no key in it"),
            ({b"0": b"\x80\x04\x95"}, {}, r"b'0' is a pickle, which is never loaded.*--key-pattern"),
            ({b"0": JPEGS[0], b"__len__": b"1"}, {}, r"b'__len__' is no picture's file.*--key-pattern"),
            ({b"0": JPEGS[0]}, {"key_pattern": "image-%09d"}, "no key is of the pattern 'image-%09d'; its first key is b'0'"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, items: dict[bytes, bytes], options: dict[str, str], message: str) -> None:
        with pytest.raises(PackError, match=message):
            open_source(write_lmdb(tmp_path / "x", items), None, LmdbOptions(**options))

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
