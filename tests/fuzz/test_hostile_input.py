"""Manifests, tables and tar files by their grammar, with wrong values: they are read, or one of fastload's
own exceptions says why not.

FUZZ_EXAMPLES sets how many inputs each test tries; `run_atheris.py` runs the same functions under Atheris,
guided by coverage.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload import PackedDataset, pack
from fastload.errors import FastloadError, SampleError
from fastload.packing import open_source
from fastload.packing.encode import Encoder
from fastload.packing.options import PackOptions
from fastload.sources import Item, Source
from fastload.sources.options import SourceOptions
from fastload.store import checked
from fastload.store.manifest import MANIFEST_NAME

HERE = Path(__file__).parent
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
SETTINGS = settings(max_examples=EXAMPLES)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**32 - 1, 2**53, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(
        [
            "",
            "..",
            "../x",
            "/etc/passwd",
            "image",
            "label",
            "jpeg",
            "int64",
            "\0",
            "\ud800",
            "shard-00000.lmdb",
        ]
    ),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this input's own."""
    path = Path(tempfile.mkdtemp(prefix="fastload-fuzz-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@cache
def jpeg() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (24, 16), (200, 40, 90)).save(out, "JPEG")
    return out.getvalue()


@cache
def packed() -> tuple[Path, dict[str, Any]]:
    """A small dataset, and its manifest without the checksum. Lives as long as this process."""
    root = Path(tempfile.mkdtemp(prefix="fastload-fuzz-"))
    for name in ("a/0.jpg", "a/1.jpg", "b/2.jpg"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_bytes(jpeg())
    pack(root, root / "out")
    content = json.loads((root / "out" / MANIFEST_NAME).read_bytes())
    return root / "out", checked.unseal(content, "manifest")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, below in inner for found in ((*path, key), *places(below, (*path, key)))]


def change(content: dict[str, Any], where: float, how: str, value: Any) -> None:
    """Replaces, removes, repeats or adds to one value of a JSON object, in place."""
    paths = places(content)
    if not paths:
        return
    *head, last = paths[int(where * len(paths))]
    parent: Any = content
    for key in head:
        parent = parent[key]
    if how == "remove":
        del parent[last]
    elif how == "repeat" and isinstance(parent, list):
        parent.append(parent[last])
    elif how == "add" and isinstance(parent, dict):
        parent[str(value)[:20]] = value
    else:
        parent[last] = value


CHANGES = st.lists(
    st.tuples(
        st.floats(0, 0.999),
        st.sampled_from(["replace", "replace", "replace", "remove", "repeat", "add"]),
        VALUES,
    ),
    min_size=1,
    max_size=3,
)


@given(changes=CHANGES)
@SETTINGS
def test_only_our_own_exceptions_leave_a_manifest(changes: list[tuple[float, str, Any]]) -> None:
    """A manifest whose checksum holds and whose values do not opens, or is a FastloadError, and so is each
    of its samples."""
    source, content = packed()
    hostile = json.loads(json.dumps(content))
    for where, how, value in changes:
        change(hostile, where, how, value)
    try:
        sealed = checked.seal(hostile)
    except (ValueError, TypeError):
        return  # no JSON has such a value
    with folder() as root:
        for shard in source.glob("*.lmdb"):
            (root / shard.name).symlink_to(shard)
        (root / MANIFEST_NAME).write_bytes(sealed)
        try:
            dataset = PackedDataset(root)
            for index in range(min(len(dataset), 4)):
                try:
                    dataset[index]
                except SampleError:
                    pass
        except FastloadError:
            pass


def drain(source: Source) -> None:
    """Reads all that a source has, by the source's own rules."""
    for position in range(len(source)):
        assert source.name(position)
        try:
            source.read(position)
        except (FastloadError, OSError):
            pass


WORDS = (
    "a.jpg|b.jpg|a.jpg\0|../a.jpg|path|\ufeffpath|label|box:json|n:int|x:float|x:nope|Unnamed: 0|| "
    "|0|-1|1_0|\u0661|1e999|nan|NaN|inf"
)
CELLS = st.sampled_from(
    [*WORDS.split("|"), "9" * 30, "x" * 300, "[1", "[1,2]", "{}", '"', "'", "\\", "ü", "\ud800"]
)
TABLES = st.lists(st.lists(CELLS, max_size=4), max_size=5)
COLUMNS = st.one_of(st.none(), st.integers(0, 5), st.sampled_from(["path", "label", "n", "none"]))


@given(
    rows=TABLES,
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1"]),
    options=st.fixed_dictionaries(
        {"path_column": COLUMNS, "label_column": COLUMNS, "header": st.sampled_from([None, True, False])}
    ),
)
@SETTINGS
def test_only_our_own_exceptions_leave_a_table(
    rows: list[list[str]], delimiter: str, end: str, encoding: str, options: dict[str, Any]
) -> None:
    """Tables of every delimiter, line end and encoding, with every choice of columns."""
    text = end.join(delimiter.join(row) for row in rows)
    with folder() as root:
        (root / "a.jpg").write_bytes(jpeg())
        for name in ("x.csv", "x.tsv"):
            (root / name).write_bytes(
                text.encode(encoding, "surrogatepass" if encoding != "latin-1" else "replace")
            )
            try:
                drain(open_source(root / name, SourceOptions.of(**options)))
            except FastloadError:
                pass


MEMBERS = st.tuples(
    st.sampled_from(
        [
            "0.jpg",
            "0.cls",
            "0.json",
            "0.txt",
            "0.npy",
            "1.jpg",
            "1.cls",
            "d/0.jpg",
            ".jpg",
            "0",
            "0.seg.png",
            "../0.jpg",
            "ü" * 60,
            "x" * 200,
        ]
    ),
    st.sampled_from([b"", b"1", b"[1]", b"{", b"\xff\xfe", b"\x93NUMPY\x01\x00", b"-9" * 40, jpeg()]),
    st.sampled_from(
        [
            tarfile.REGTYPE,
            tarfile.DIRTYPE,
            tarfile.SYMTYPE,
            tarfile.LNKTYPE,
            tarfile.FIFOTYPE,
            tarfile.CHRTYPE,
            b"S",
            b"x",
            b"L",
        ]
    ),
)
HEADER_FIELDS = {
    "name": (0, 100),
    "mode": (100, 8),
    "size": (124, 12),
    "time": (136, 12),
    "check": (148, 8),
    "type": (156, 1),
    "magic": (257, 8),
}


@given(
    members=st.lists(MEMBERS, max_size=6),
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    changes=st.lists(
        st.tuples(
            st.integers(0, 20),
            st.sampled_from(sorted(HEADER_FIELDS)),
            st.binary(min_size=1, max_size=12),
            st.booleans(),
        ),
        max_size=2,
    ),
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
)
@SETTINGS
def test_only_our_own_exceptions_leave_a_tar(
    members: list[tuple[str, bytes, bytes]],
    form: int,
    changes: list[tuple[int, str, bytes, bool]],
    cut: float,
) -> None:
    """Tars of every format and kind of member, with header fields changed, their checksums put right or
    not, and cut."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data, kind in members:
            entry = tarfile.TarInfo(
                name if form == tarfile.PAX_FORMAT else name.encode()[:60].decode("utf-8", "ignore")
            )
            entry.size, entry.type, entry.linkname = len(data), kind, "0.jpg"
            tar.addfile(entry, io.BytesIO(data))
    content = bytearray(out.getvalue())
    for block, name, value, right in changes:
        start, size = HEADER_FIELDS[name]
        at = block * 512
        if at + 512 > len(content):
            continue
        content[at + start : at + start + size] = value[:size].ljust(size, b"\0")
        if right:
            content[at + 148 : at + 156] = b" " * 8
            content[at + 148 : at + 156] = b"%06o\0 " % (sum(content[at : at + 512]))
    with folder() as root:
        (root / "x.tar").write_bytes(content[: int(len(content) * cut)])
        try:
            drain(open_source(str(root / "x.tar")))
        except FastloadError:
            pass


def test_what_pack_stores_of_the_corpus_decodes_to_the_originals_pixels() -> None:
    """Of every JPEG of the fuzzers' corpora that decodes, under every way to store it without loss."""
    from fastload._native import core

    files = sorted(
        itertools.chain.from_iterable(
            (HERE / part / name).iterdir() for part in ("corpus", "found") for name in ("jpeg", "pack")
        )
    )
    encoders = [
        Encoder(PackOptions(encode=encode, optimize_huffman=optimize))
        for encode, optimize in (("lossless", False), ("lossless", True), ("keep", False), ("raw", False))
    ]
    compared = 0
    for path, encoder in itertools.product(files, encoders):
        data = path.read_bytes()
        try:
            expected = core.jpeg_decode(data, None, 8, 1 << 20)
            stored = encoder(Item(path.name, data))
        except FastloadError:
            continue
        if "cmyk" in stored.how:
            continue  # encoded anew, as RGB
        pixels = (
            core.jpeg_decode(bytes(stored.data), None, 8, 1 << 20) if stored.kind == "jpeg" else stored.data
        )
        assert (pixels == expected).all(), path.name
        compared += 1
    assert compared > 100
