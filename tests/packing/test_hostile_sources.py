"""Sources that somebody else made: what no source should hold is one sample's error, and never a wait, a
flood or a traceback."""

from __future__ import annotations

import io
import itertools
import json
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_helpers import encoded, picture, tree

from fastload import PackedDataset, export
from fastload.common import folders
from fastload.common.files import read_regular
from fastload.common.folders import walk
from fastload.errors import FastloadError, PackError, ResourceError
from fastload.packing import open_source, pack
from fastload.sources import Source
from fastload.sources import tar as tar_members
from fastload.sources.pixels import read_npy
from fastload.store import checked

JPEG = encoded(picture(0, 24, 32))
DEEP = 100_000
GIB = 1 << 30


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npy_of(header: str) -> bytes:
    """A .npy of any header, without values."""
    data = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.arange(3))
    return out.getvalue()


def tar_of(path: Path, extension: str, *contents: bytes) -> Path:
    """A tar of samples 0, 1, ..., each a JPEG and a member of its own content."""
    with tarfile.open(path, "w") as tar:
        for number, content in enumerate(contents):
            for name, data in ((f"{number}.jpg", JPEG), (f"{number}.{extension}", content)):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return path


GOOD = npy(np.zeros(3, np.float32))
BAD_MEMBERS = {
    "a zip in name": ("npy", b"PK\x03\x04" + bytes(60), GOOD),
    "an npz": ("npy", npz(), GOOD),
    "a header that is no literal": ("npy", npy_of("{'descr': '<f4', 'shape': (3,"), GOOD),
    "a header of brackets": ("npy", npy_of("(" * 9000), GOOD),
    "one TiB of values": (
        "npy",
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,)}"),
        GOOD,
    ),
    "a negative side": ("npy", npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}"), GOOD),
    "an unknown version": ("npy", b"\x93NUMPY\x09\x00" + GOOD[8:], GOOD),
    "values of no size": ("npy", npy_of("{'descr': '|V0', 'fortran_order': False, 'shape': (3,)}"), GOOD),
    "an empty one": ("npy", b"", GOOD),
    "deep lists": ("json", b"[" * DEEP, b"[]"),
    "deep lists that end": ("json", b"[" * 400 + b"]" * 400, b"[]"),
    "a long number": ("json", b"1" * 5000, b"1"),
    "no UTF-8": ("txt", b"\xff", b"x"),
}


@pytest.mark.parametrize("kind", BAD_MEMBERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_tar_member_is_one_samples_error(tmp_path: Path, kind: str, first: bool) -> None:
    """With on_error="skip" the sample is left out by name, also where it is the first, which otherwise
    settles the fields."""
    extension, bad, good = BAD_MEMBERS[kind]
    source = tar_of(tmp_path / "x.tar", extension, *((bad, good, good) if first else (good, good, bad)))
    with pytest.raises(PackError, match=rf"x\.tar:{0 if first else 2}"):
        pack(str(source), tmp_path / "raised")
    summary = pack(str(source), tmp_path / "out", on_error="skip")
    assert (summary.samples, [name for name, _ in summary.skipped]) == (2, [f"{source}:{0 if first else 2}"])


def test_npy_equals_numpys(tmp_path: Path) -> None:
    """What numpy wrote is read as numpy reads it: orders, shapes, dtypes, both versions of the header."""
    arrays = [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(3, np.uint8),
        np.zeros((0, 4), bool),
    ]
    for array in arrays:
        for version in ((1, 0), (2, 0)):
            out = io.BytesIO()
            np.lib.format.write_array(out, array, version)
            read = read_npy(out.getvalue())
            assert read.dtype == array.dtype
            assert np.array_equal(read, array)


@pytest.mark.parametrize(
    "row",
    ["bad\0.jpg,1", '"' + "a" * 200_000 + '",1', "a/" * 5000 + "x.jpg,1"],
    ids=["NUL", "a cell of 200,000 characters", "a path that is too long"],
)
def test_a_bad_csv_path_is_one_error(tmp_path: Path, row: str) -> None:
    """A path that cannot be one is its sample's error, or the table's, that names the file."""
    tree(tmp_path, {"a.jpg": JPEG})
    (tmp_path / "list.csv").write_text(f"path,label\na.jpg,0\n{row}\n", encoding="utf-8")
    try:
        summary = pack(tmp_path / "list.csv", tmp_path / "out", on_error="skip")
    except PackError as error:
        assert "list.csv, line " in str(error)
    else:
        assert (summary.samples, summary.skipped_count) == (1, 1)


def test_deep_json_in_a_table(tmp_path: Path) -> None:
    """Brackets without end are a cell that is no JSON, not a RecursionError."""
    deep = "[" * 90_000
    tree(tmp_path, {"a.jpg": JPEG})
    (tmp_path / "given.csv").write_text(f"path,label,box:json\na.jpg,0,{deep}\n")
    with pytest.raises(PackError, match=r"line 2: column 'box'"):
        open_source(tmp_path / "given.csv")
    (tmp_path / "guessed.csv").write_text(f"path,label,box\na.jpg,0,{deep}\n")
    assert open_source(tmp_path / "guessed.csv").fields[1].kind == "text"


def test_deep_json_from_a_dataset(tmp_path: Path) -> None:
    """Values are stored, and read again, up to 200 lists deep; what would not be read again is not stored."""
    deep: list[Any] = []
    for _ in range(checked.JSON_DEPTH - 1):
        deep = [deep]
    pack(Items([{"image": JPEG, "box": deep}]), tmp_path / "out")
    assert PackedDataset(tmp_path / "out")[0]["box"] == deep
    export(tmp_path / "out", tmp_path / "out.parquet")
    assert open_source(tmp_path / "out.parquet").read(0).values["box"] == deep
    with pytest.raises(PackError, match="nested more than 200 deep"):
        pack(Items([{"image": JPEG, "box": [deep]}]), tmp_path / "deeper")


class Items:
    """A map-style Dataset of given items; an exception among them is raised."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.items[index], BaseException):
            raise self.items[index]
        return self.items[index]


class Odd:
    """Looks like a tensor, and fails as one may."""

    def detach(self) -> Odd:
        raise TypeError("cannot be converted")

    numpy = detach


@pytest.mark.parametrize(
    "bad", [OSError("gone"), KeyError("gone"), (Odd(), 1), (object(), 1)], ids=lambda bad: type(bad).__name__
)
def test_a_bad_item_is_one_samples_error(tmp_path: Path, bad: Any) -> None:
    """Whatever a Dataset raises or gives, also for its first item, is left out by name under
    on_error="skip"."""
    summary = pack(Items([bad, (JPEG, 1), bad, (JPEG, 2)]), tmp_path / "out", on_error="skip")
    assert (summary.samples, [name for name, _ in summary.skipped]) == (2, ["Items[0]", "Items[2]"])


def test_a_lack_of_memory_is_nobodys_skipped_sample(tmp_path: Path) -> None:
    """A MemoryError says nothing of the sample: it ends the pack, with on_error="skip" too, as fastload's
    own error."""
    with pytest.raises(ResourceError, match=r"Items\[1\]"):
        pack(Items([(JPEG, 1), MemoryError()]), tmp_path / "out", on_error="skip")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(16 * GIB)


def make_folder(path: Path) -> None:
    path.mkdir()


IRREGULAR = {"a FIFO": make_fifo, "a link to /dev/zero": link_to_zero, "16 GiB of nothing": make_sparse}


@pytest.mark.parametrize("kind", IRREGULAR)
@pytest.mark.timeout(20)
def test_an_irregular_image_is_one_samples_error(tmp_path: Path, kind: str) -> None:
    """In a class folder and in a table: refused at once by name, neither waited for nor read."""
    tree(tmp_path / "src", {"cat/a.jpg": JPEG})
    IRREGULAR[kind](tmp_path / "src" / "cat" / "x.jpg")
    (tmp_path / "list.csv").write_text("path,label\nsrc/cat/a.jpg,0\nsrc/cat/x.jpg,0\n")
    for number, source in enumerate((tmp_path / "src", tmp_path / "list.csv")):
        summary = pack(source, tmp_path / f"out{number}", on_error="skip")
        assert summary.samples == 1
        ((name, reason),) = summary.skipped
        assert name == str(tmp_path / "src" / "cat" / "x.jpg")
        assert "cannot be read: " in reason


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.tar"])
@pytest.mark.parametrize("kind", [*IRREGULAR, "a folder"])
@pytest.mark.timeout(20)
def test_an_irregular_source_is_an_error(tmp_path: Path, kind: str, name: str) -> None:
    """A table or tar that is none is refused at once, by name."""
    {**IRREGULAR, "a folder": make_folder}[kind](tmp_path / name)
    with pytest.raises(PackError, match=name.replace(".", r"\.")):
        pack(str(tmp_path / name), tmp_path / "out")


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """At the limit it is read; one byte more is an error that gives both numbers."""
    (tmp_path / "x").write_bytes(bytes(1000))
    assert read_regular(tmp_path / "x", 1000) == bytes(1000)
    with pytest.raises(OSError, match="1,000 bytes are more than the limit of 999"):
        read_regular(tmp_path / "x", 999)
    assert b"processor" in read_regular("/proc/cpuinfo", 1 << 24)  # its size is 0


@pytest.mark.timeout(20)
def test_two_links_to_themselves_are_refused_before_they_are_walked(tmp_path: Path) -> None:
    """Two self-links name 2**40 paths before the system says that a path is too long."""
    tree(tmp_path, {"cat/1.jpg": JPEG})
    for name in ("a", "b"):
        (tmp_path / "cat" / name).symlink_to(".")
    with pytest.raises(PackError, match=r"\blink\b"):
        open_source(tmp_path)


@pytest.mark.timeout(20)
def test_links_in_a_circle(tmp_path: Path) -> None:
    """Two folders that link to each other, and one that links above the source, hold themselves too."""
    tree(tmp_path, {"src/cat/1.jpg": JPEG, "elsewhere/2.jpg": JPEG})
    (tmp_path / "src" / "cat" / "there").symlink_to(tmp_path / "elsewhere")
    assert len(open_source(tmp_path / "src")) == 2
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "src" / "cat")
    with pytest.raises(PackError, match=r"\blink\b"):
        open_source(tmp_path / "src")
    (tmp_path / "elsewhere" / "back").unlink()
    (tmp_path / "src" / "cat" / "up").symlink_to("/")
    with pytest.raises(PackError, match=r"\blink\b"):
        open_source(tmp_path / "src")


@pytest.mark.timeout(20)
def test_links_that_multiply(tmp_path: Path) -> None:
    """Each of 40 folders links twice to the next: no loop, and 2**40 paths, refused after a thousand."""
    for number in range(40):
        (tmp_path / f"{number}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"{number}" / name).symlink_to(tmp_path / f"{number + 1}")
    tree(tmp_path, {"40/1.jpg": JPEG})
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "cat").symlink_to(tmp_path / "0")
    with pytest.raises(PackError, match=r"more than 1,000 paths lead to this folder"):
        open_source(tmp_path / "src")


def test_the_walk_is_os_walks(tmp_path: Path) -> None:
    """The folders, their order and their files are those of sorted(os.walk), dangling and circular file
    links included."""
    tree(tmp_path, {"b/2.jpg": b"", "b-c/1.jpg": b"", "b/d/e/3": b"", "a": b""})
    (tmp_path / "dangling.jpg").symlink_to("nowhere")
    (tmp_path / "self.jpg").symlink_to("self.jpg")
    (tmp_path / "b-c" / "link").symlink_to(tmp_path / "b" / "d")
    assert walk(str(tmp_path)) == [
        (path, sorted(files)) for path, _, files in sorted(os.walk(tmp_path, followlinks=True))
    ]
    assert folders.VISITS >= 1000


def test_a_tar_header_of_any_length(tmp_path: Path) -> None:
    """A header that claims 8 GiB of name, in a sparse file that has them, is refused unread; so is one of
    negative size."""
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 8 * GIB - 1
    with open(tmp_path / "long.tar", "wb") as file:
        file.write(entry.tobuf(tarfile.GNU_FORMAT))
        file.truncate(16 * GIB)
    with pytest.raises(PackError, match=r"long\.tar: not a whole plain tar: a header of"):
        open_source(str(tmp_path / "long.tar"))
    block = bytearray(tarfile.TarInfo("0.jpg").tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 11 + b"\x00"  # -256 in base 256: where the next header would be, back
    block[148:156] = b"%06o\0 " % (sum(block) - sum(block[148:156]) + 8 * 32)
    (tmp_path / "back.tar").write_bytes(bytes(1024) + bytes(block) + bytes(10240))
    (tmp_path / "back2.tar").write_bytes(bytes(block) + bytes(10240))
    for name in ("back.tar", "back2.tar"):
        with pytest.raises(PackError, match=name):
            open_source(str(tmp_path / name))


def test_a_large_member_is_one_samples_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member above the limit is not read."""
    monkeypatch.setattr(tar_members, "FILE_BYTES", 5000)
    source = tar_of(tmp_path / "x.tar", "bin", bytes(10), bytes(5001))
    summary = pack(str(source), tmp_path / "out", on_error="skip")
    assert summary.skipped_count == 1
    assert "5,001 bytes, more than the limit of 5,000" in summary.skipped[0][1]


def drain(source: Source) -> None:
    """Reads all that a source has, by the source's own rules."""
    for position in range(len(source)):
        try:
            source.read(position)
        except (FastloadError, OSError):
            pass


FLIPS = st.lists(st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=12)), min_size=1, max_size=6)


def damaged(data: bytes, flips: list[tuple[float, bytes]]) -> bytes:
    out = bytearray(data)
    for where, content in flips:
        at = int(where * len(out))
        out[at : at + len(content)] = content
    return bytes(out)


@given(flips=FLIPS, cut=st.floats(0.1, 1))
@settings(max_examples=60)
def test_only_our_own_exceptions_leave_a_tar(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[float, bytes]], cut: float
) -> None:
    """Whatever bytes of a tar are changed, it is read, or FastloadError or OSError says why not."""
    root = tmp_path_factory.mktemp("tar")
    with tarfile.open(root / "whole.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        parts = (("jpg", b"\xff\xd8"), ("npy", GOOD), ("json", b'{"a": [1]}'), ("cls", b"1"), ("txt", b"x"))
        for number, (extension, data) in itertools.product(range(2), parts):
            entry = tarfile.TarInfo(f"{number}-ü{'x' * 110 * number}.{extension}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    data = (root / "whole.tar").read_bytes()
    (root / "x.tar").write_bytes(damaged(data, flips)[: int(len(data) * cut)])
    try:
        drain(open_source(str(root / "x.tar")))
    except FastloadError:
        pass


@given(
    text=st.one_of(
        st.binary(max_size=80),
        st.text(alphabet='path,label:\n\r\t"\0[]{}1.-+xüe\ufeff', max_size=80).map(str.encode),
    )
)
@settings(max_examples=150)
def test_only_our_own_exceptions_leave_a_table(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    """Whatever a .csv holds, it is read, or FastloadError or OSError says why not."""
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    for head in (b"", b"path,label,x\n", b"path,box:json,n:int\n"):
        path.write_bytes(head + text)
        try:
            drain(open_source(path))
        except FastloadError:
            pass


@given(
    text=st.recursive(
        st.none() | st.integers(-9, 9), lambda inner: st.lists(inner, max_size=3), max_leaves=20
    )
)
def test_json_within_the_limits_is_json(text: Any) -> None:
    """The limits change nothing of a value within them."""
    assert checked.parse_json(json.dumps(text)) == text
