"""Members of tars: where each lies, and which of them are one sample. Data are read later, by their places."""

from __future__ import annotations

import glob
import os
import re
import tarfile
from typing import BinaryIO

from fastload.common.files import FILE_BYTES, open_regular
from fastload.errors import PackError
from fastload.packing.notices import MEMBERS, Notice, Notices
from fastload.packing.npy import read_npy
from fastload.packing.sources.numbered import title_of
from fastload.packing.sources.protocol import Value, file_stamp
from fastload.packing.sources.ranges import FileRanges
from fastload.store.checked import parse_json

IMAGES = ("jpg", "jpeg", "png", "webp")
"""Extensions of pictures."""
HEADER_BYTES = 1 << 20
"""Limit on a tar header: long names and pax records take some hundred bytes."""

Part = tuple[str, int, int]
"""(extension, offset of the data, size) of a member."""

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LISTS = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Tars:
    """The samples of one or many .tar files, in the order given.

    Attributes:
        title: what the user named.
        paths: the files.
        samples: (number of the file, key, members) of each.
        comments: of the files' global pax headers; "" of one without.
        left_out: members that belong to no sample.

    Raises:
        PackError: no such tar, a damaged one, or none with a sample.
    """

    def __init__(self, patterns: list[str]) -> None:
        self.title = title_of(patterns)
        self.paths = [path for pattern in patterns for path in expand(pattern)]
        self.left_out = Notices()
        self.samples: list[tuple[int, str, tuple[Part, ...]]] = []
        self.comments: set[str] = set()
        for number, path in enumerate(self.paths):
            found, comment = _index(path, self.left_out)
            self.samples.extend((number, key, parts) for key, parts in found)
            self.comments.add(comment)
        if not self.samples:
            raise PackError(f"{self.title}: no sample in it; a sample is an image and files of the same base name")


class TarSamples:
    """What the sources of tars have in common: they read the samples of `tars`."""

    concurrent = True

    def __init__(self, tars: Tars) -> None:
        self.title, self.paths, self.samples = tars.title, tars.paths, tars.samples
        self._left_out = tars.left_out
        self._ranges = FileRanges(self.paths)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Members that belong to no sample."""
        return self._left_out.all()

    def _extensions(self, position: int) -> list[str]:
        return [extension for extension, _, _ in self.samples[position][2]]

    def _member(self, position: int, extension: str) -> bytes:
        """The bytes of a sample's member."""
        number, _, parts = self.samples[position]
        _, offset, size = next(part for part in parts if part[0] == extension)
        return self._part(position, number, extension, offset, size)

    def _part(self, position: int, number: int, extension: str, offset: int, size: int) -> bytes:
        if size > FILE_BYTES:
            raise PackError(f"{self.name(position)}: its .{extension} has {size:,} bytes, more than the limit of {FILE_BYTES:,}")
        return self._ranges.read(number, offset, size)

    def __len__(self) -> int:
        return len(self.samples)

    def name(self, position: int) -> str:
        number, key, _ = self.samples[position]
        return f"{self.paths[number]}:{key}"

    def key(self, position: int) -> str:
        number, key, _ = self.samples[position]
        return f"{number}:{key}"

    def stamp(self, position: int) -> tuple[int, int]:
        number, _, parts = self.samples[position]
        return sum(size for _, _, size in parts), file_stamp(self.paths[number])[1]

    def fields_of(self, position: int) -> None:
        """None: its members have to be read."""


def expand(pattern: str, what: str = "tar file") -> list[str]:
    """The files a pattern stands for: ``{000..003}`` counts (zeros kept), ``{a,b}`` lists, ``* ? []`` match.

    Raises:
        PackError: nothing matches, or a file that the pattern spells out is not there.
    """
    if match := _RANGE.search(pattern):
        first, last = match.groups()
        width = len(first) if first.startswith("0") else 0
        numbers = range(int(first), int(last) + 1)
        if not numbers or len(numbers) > 1_000_000:
            raise PackError(f"{pattern}: {{{first}..{last}}} counts no sensible range of shards")
        return [p for n in numbers for p in expand(f"{pattern[: match.start()]}{n:0{width}d}{pattern[match.end() :]}", what)]
    if match := _LISTS.search(pattern):
        return [p for choice in match[1].split(",") for p in expand(pattern[: match.start()] + choice + pattern[match.end() :], what)]
    if not os.path.exists(pattern) and any(mark in pattern for mark in "*?["):
        found = sorted(glob.glob(pattern))
        if not found:
            raise PackError(f"{pattern}: no file matches")
        return found
    if not os.path.isfile(pattern):
        raise PackError(f"{pattern}: no such {what}")
    return [pattern]


def member_value(name: str, extension: str, data: bytes) -> Value:
    """The value of a member, by the last part of its extension. Raises PackError, which names sample and member."""
    kind = extension.rpartition(".")[2]
    try:
        if kind == "cls":
            return int(data)
        if kind == "txt":
            return data.decode("utf-8")
        if kind == "json":
            value: Value = parse_json(data)
            return value
        if kind == "npy":
            return read_npy(data)
    except ValueError as error:
        what = {"cls": "label that is an integer", "txt": "UTF-8 text", "json": "JSON", "npy": "array without pickle"}
        shown = f" {data[:40]!r}" if kind == "cls" else ""
        raise PackError(f"{name}: its .{extension}{shown} is no {what[kind]}: {error}") from error
    return data


class _Headers:
    """A tar as tarfile reads it, header by header. A header may claim any length, which tarfile would read at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _index(path: str, left_out: Notices) -> tuple[list[tuple[str, tuple[Part, ...]]], str]:
    """The samples of one tar, without reading their data: neighbouring members of one base name; and its comment.

    Raises:
        PackError: no regular file, no plain tar, or a damaged one.
    """
    try:
        descriptor, size = open_regular(path)
        with open(descriptor, "rb") as file:
            return _members(path, file, size, left_out)
    except PackError:
        raise
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # of hostile headers tarfile raises whatever it meets: ValueError, OverflowError, RecursionError, ...
        text = str(error) or type(error).__name__
        raise PackError(f"{path}: not a whole plain tar: {text}; a compressed one must be unpacked first") from error


def _members(path: str, file: BinaryIO, size: int, left_out: Notices) -> tuple[list[tuple[str, tuple[Part, ...]]], str]:
    samples: list[tuple[str, tuple[Part, ...]]] = []
    key, parts = "", list[Part]()
    last = -1
    with tarfile.open(fileobj=_Headers(file), mode="r:") as tar:  # type: ignore[call-overload]
        for member in tar:
            # A member list as long as the tar would stay in memory otherwise.
            tar.members = []
            if member.size < 0 or member.offset <= last:  # a negative size leads back to a header that was read before, for ever
                raise tarfile.ReadError(f"{member.name} has a size of {member.size}")
            last = member.offset
            folder, base = os.path.split(member.name)
            stem, dot, extension = base.partition(".")
            if not member.isreg() or not dot or not stem or not extension:
                if not member.isdir():
                    left_out.add(MEMBERS, f"{path}:{member.name}")
                continue
            if member.issparse():
                raise PackError(f"{path}: {member.name} is stored sparse; write the tar without --sparse")
            if member.offset_data + member.size > size:
                raise PackError(f"{path}: the tar ends inside {member.name}; copy it again")
            this = os.path.join(folder, stem)
            if this != key:
                if parts:
                    samples.append((key, tuple(parts)))
                key, parts = this, []
            if any(extension.lower() == known for known, _, _ in parts):
                raise PackError(f"{path}: {member.name} is there twice in one sample")
            parts.append((extension.lower(), member.offset_data, member.size))
        comment = str(tar.pax_headers.get("comment", ""))
    if parts:
        samples.append((key, tuple(parts)))
    return samples, comment
