"""WebDataset tars: members that share a name up to the first dot make one sample."""

from __future__ import annotations

import glob
import os
import re
import tarfile
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError, SampleError
from fastload.files import FILE_BYTES, open_regular
from fastload.packing.notices import MEMBERS, Notice, Notices
from fastload.packing.npy import read_npy
from fastload.packing.sources.annotated import BOXES, MASK_NAMES
from fastload.packing.sources.label_maps import is_deep, label_map_in
from fastload.packing.sources.numbered import title_of
from fastload.packing.sources.protocol import FIRST_TRIES, Item, Place, Value, file_stamp, first_readable
from fastload.packing.sources.ranges import FileRanges
from fastload.store import Field
from fastload.store.checked import parse_json

_IMAGES = ("jpg", "jpeg", "png", "webp")
_LOSSLESS = ("png", "webp")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LISTS = re.compile(r"\{([^{}]*,[^{}]*)\}")

HEADER_BYTES = 1 << 20
"""Limit on a tar header: long names and pax records take some hundred bytes."""

_Part = tuple[str, int, int]  # (extension, offset of the data, size)


class TarSource:
    """One or many .tar files, read in the order given, by offset.

    A member's extension is all that follows the first dot of its base name, and the last part of it says what it
    holds: jpg, jpeg, png, webp (the image), cls (an integer, the field ``label``), txt (text), json, npy (an array of one dtype, and of one
    shape but for the first side); anything else is a bytes field. Each field is named by the extension. Beside the image, right.jpg is a
    further image, the field ``right``; mask.png (or seg.png, of `MASK_NAMES`) a mask, the field ``mask``; and boxes.npy with rows of four
    are boxes (xyxy), the field ``boxes``. Every sample has the same fields as the first.

    Raises:
        PackError: no such tar, a damaged one, a sample without an image, or with other fields than the first.
    """

    classes: tuple[str, ...] | None = None
    concurrent = True

    def __init__(self, patterns: list[str]) -> None:
        self.title = title_of(patterns)
        self._paths = [path for pattern in patterns for path in expand(pattern)]
        self._left_out = Notices()
        self._samples: list[tuple[int, str, tuple[_Part, ...]]] = []
        for number, path in enumerate(self._paths):
            self._samples.extend((number, key, parts) for key, parts in _index(path, self._left_out))
        if not self._samples:
            raise PackError(f"{self.title}: no sample in it; a sample is an image and files of the same base name")
        self._ranges = FileRanges(self._paths)
        self._image, self._others = self._layout(0)
        for position in range(1, len(self._samples)):
            if self._layout(position) != (self._image, self._others):
                have, need = set(self._extensions(position)), set(self._extensions(0))
                if self._image_of(have) == "" or have - {self._image_of(have)} != need - {self._image}:
                    raise PackError(
                        f"{self.name(position)}: its members are {', '.join(sorted(have))}, but the first sample has "
                        f"{', '.join(sorted(need))}; every sample needs the same"
                    )
        self._kinds: dict[str, Field] = {}
        for extension in self._others:
            self._kinds[extension] = self._field(extension)
        self.fields = tuple(self._kinds.values())
        if len({field.name for field in self.fields}) < len(self.fields):
            raise PackError(f"{self.title}: two members of a sample are one field among {', '.join(self._others)}; rename one")

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Members that belong to no sample."""
        return self._left_out.all()

    def _extensions(self, position: int) -> list[str]:
        return [extension for extension, _, _ in self._samples[position][2]]

    @staticmethod
    def _image_of(extensions: set[str]) -> str:
        for wanted in _IMAGES:
            if wanted in extensions:
                return wanted
        return next((e for e in sorted(extensions) if e.rpartition(".")[2] in _IMAGES), "")

    def _layout(self, position: int) -> tuple[str, tuple[str, ...]]:
        extensions = set(self._extensions(position))
        image = self._image_of(extensions)
        if not image:
            raise PackError(f"{self.name(position)}: no image among its members ({', '.join(sorted(extensions))})")
        return image, tuple(sorted(extensions - {image}))

    def _field(self, extension: str) -> Field:
        stem, _, kind = extension.rpartition(".")
        name = _field_name(extension)
        if stem and kind in _IMAGES:
            return self._picture(extension, stem, kind)
        if kind == "cls":
            return Field(name, "int")
        if kind == "txt":
            return Field(name, "text")
        if kind == "json":
            return Field(name, "json")
        if kind == "npy":
            return self._array_field(extension, stem)
        return Field(name, "bytes")

    def _picture(self, extension: str, stem: str, kind: str) -> Field:
        """The field of a picture beside the image: a mask by its name, or else a further image."""
        deep = kind == "png" and self._is_deep(extension)
        if stem in MASK_NAMES and kind in _LOSSLESS:
            return Field(stem, "mask", "uint16" if deep else "uint8")
        return Field(stem.replace(".", "_"), "image", "uint16" if deep else "", (1,) if deep else ())

    def _is_deep(self, extension: str) -> bool:
        """Whether the first picture that can be read has 16 bits."""

        def deep(position: int) -> bool:
            try:
                return is_deep(self._member(position, extension))
            except SampleError as error:
                raise PackError(f"{self.name(position)}: its .{extension}: {error.reason}") from error

        return first_readable(deep, len(self))

    def _array_field(self, extension: str, stem: str) -> Field:
        """The field of arrays: some of them, spread over all samples, tell whether their first sides differ."""
        first = first_readable(lambda position: self._array(position, extension), len(self))
        shapes = {first.shape}
        for position in range(0, len(self), max(1, len(self) // FIRST_TRIES)):
            try:
                shapes.add(self._array(position, extension).shape)
            except (PackError, OSError):  # noqa: PERF203
                continue
        if stem == BOXES and first.ndim == 2 and first.shape[1] == 4:
            return Field(BOXES, "boxes", format="xyxy")
        varies = len(shapes) > 1 and len({shape[1:] for shape in shapes}) == 1 and first.ndim > 0
        return Field(_field_name(extension), "array", str(first.dtype), (None, *first.shape[1:]) if varies else first.shape)

    def _array(self, position: int, extension: str) -> npt.NDArray[Any]:
        value = _value(self.name(position), extension, self._member(position, extension))
        assert isinstance(value, np.ndarray)
        return value

    def _member(self, position: int, extension: str) -> bytes:
        """The bytes of a sample's member."""
        number, _, parts = self._samples[position]
        _, offset, size = next(part for part in parts if part[0] == extension)
        return self._part(position, number, extension, offset, size)

    def _part(self, position: int, number: int, extension: str, offset: int, size: int) -> bytes:
        if size > FILE_BYTES:
            raise PackError(f"{self.name(position)}: its .{extension} has {size:,} bytes, more than the limit of {FILE_BYTES:,}")
        return self._ranges.read(number, offset, size)

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, position: int) -> str:
        number, key, _ = self._samples[position]
        return f"{self._paths[number]}:{key}"

    def key(self, position: int) -> str:
        number, key, _ = self._samples[position]
        return f"{number}:{key}"

    def stamp(self, position: int) -> tuple[int, int]:
        number, _, parts = self._samples[position]
        return sum(size for _, _, size in parts), file_stamp(self._paths[number])[1]

    def fields_of(self, position: int) -> None:
        """None: its members have to be read."""

    def place(self, position: int) -> Place:
        number, _, parts = self._samples[position]
        image = self._image_of({extension for extension, _, _ in parts})
        offset, size = next((offset, size) for extension, offset, size in parts if extension == image)
        return Place(self._paths[number], offset, size)

    def read(self, position: int) -> Item:
        number, _, parts = self._samples[position]
        name = self.name(position)
        image_extension = self._image_of({extension for extension, _, _ in parts})
        image = b""
        values: dict[str, Value] = {}
        for extension, offset, size in parts:
            data = self._part(position, number, extension, offset, size)
            if extension == image_extension:
                image = data
            elif (field := self._kinds[extension]).kind == "mask":
                values[field.name] = label_map_in(data, f"{name}: its .{extension}", field.dtype)
            else:
                values[field.name] = data if field.kind == "image" else _value(name, extension, data)
        return Item(name, image, values)


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


class _Headers:
    """A tar as tarfile reads it, header by header. A header may claim any length, which tarfile would read at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _index(path: str, left_out: Notices) -> list[tuple[str, tuple[_Part, ...]]]:
    """The samples of one tar, without reading their data: neighbouring members of one base name.

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


def _members(path: str, file: BinaryIO, size: int, left_out: Notices) -> list[tuple[str, tuple[_Part, ...]]]:
    samples: list[tuple[str, tuple[_Part, ...]]] = []
    key, parts = "", list[_Part]()
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
    if parts:
        samples.append((key, tuple(parts)))
    return samples


def _field_name(extension: str) -> str:
    return "label" if extension == "cls" else extension.replace(".", "_")


def _value(name: str, extension: str, data: bytes) -> Value:
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
