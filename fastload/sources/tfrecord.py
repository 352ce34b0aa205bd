"""TFRecord files of tf.train.Example records: TensorFlow's own, those of TensorFlow Datasets, and those of
the package tfrecord.

The parser of the protocol buffer tf.train.Example reads no other. It reads no value until asked, so that an
image can be skipped.

An Example holds a map of features by name; each is a list of bytes, of floats (32 bit) or of integers (64
bit). The wire format is that of https://protobuf.dev/programming-guides/encoding. Sizes are checked before
use, and nothing here recurses.
"""

from __future__ import annotations

import marshal
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, overload

import numpy as np

from fastload._native import core
from fastload.common.files import FILE_BYTES, read_regular
from fastload.common.spill import Texts
from fastload.errors import ArgumentError, PackError, RemoteError
from fastload.remote.foreign import ForeignURL, Walk
from fastload.sources.names import HEAD, field_name, image_name, is_picture, label_name
from fastload.sources.protocol import (
    Choice,
    FileRanges,
    Files,
    Given,
    Item,
    Listed,
    NumberedInFiles,
    Place,
    Source,
    Value,
    file_stamp,
)
from fastload.sources.tar import COMPRESSIONS, expand_all
from fastload.store import Field
from fastload.store.labels import is_label

BYTES, FLOATS, INTS = 1, 2, 3

VALUES_MOST = 1 << 20
"""Limit on the values of one feature."""
_FEATURES_MOST = 1000
_NAME_MOST = 1000
_FIRST, _SECOND = 1 << 3 | 2, 2 << 3 | 2
"""Tags of a message's first and second field, where that has a size."""
_LISTS = {BYTES << 3 | 2: BYTES, FLOATS << 3 | 2: FLOATS, INTS << 3 | 2: INTS}
_FIRST_VARINT, _FIRST_FIXED32 = 1 << 3, 1 << 3 | 5


class Bytes(Protocol):
    """Bytes, or something that reads them when it is asked."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...


class Malformed(ValueError):
    """Bytes that are no Example; the message says why."""


class Feature(NamedTuple):
    """One feature, not read yet: its kind and the range of its list within the message."""

    kind: int
    begin: int
    end: int


def features(data: bytes, size: int, wanted: str | None = None) -> dict[str, Feature]:
    """The features of an Example of `size` bytes, by name. A feature without a list is left out.

    Args:
        data: the Example, or its beginning.
        size: its size in bytes.
        wanted: stop at the feature of this name.

    Raises:
        Malformed: these bytes are no Example.
        IndexError: `data` ends before all features, or the one wanted, were found.
    """
    found: dict[str, Feature] = {}
    for name, feature in _entries(data, size):
        if name in found or len(found) == _FEATURES_MOST:
            raise Malformed(
                f"the feature {name!r} twice" if name in found else f"more than {_FEATURES_MOST} features"
            )
        if feature is not None:
            found[name] = feature
            if name == wanted:
                return found
    return found


def _entries(data: Bytes, size: int) -> Iterator[tuple[str, Feature | None]]:
    """(name, feature) of each entry of the map; None: it has no list. Raises as `features`."""
    at = 0
    while at < size:
        at, end = _field(data, at, size, _FIRST, "an Example (a SequenceExample cannot be packed)")
        while at < end:
            at, entry_end = _field(data, at, end, _FIRST, "the features")
            yield _entry(data, at, entry_end)
            at = entry_end


def _entry(data: Bytes, at: int, end: int) -> tuple[str, Feature | None]:
    """The name and the feature of one entry of the map."""
    name, feature = "", None
    while at < end:
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        inner_end = at + size
        if inner_end > end:
            raise Malformed(f"a feature of {size:,} bytes, where {end - at:,} are left")
        if tag == _FIRST:
            if size > _NAME_MOST:
                raise Malformed(f"a name of {size:,} bytes")
            if inner_end > len(data):
                raise IndexError
            name = data[at:inner_end].decode("utf-8")
        elif tag != _SECOND or feature is not None:
            raise Malformed(f"a feature with the tag {tag}")
        elif size:
            kind, at = _varint(data, at)
            size, at = _varint(data, at)
            if kind not in _LISTS or at + size != inner_end:
                raise Malformed("a feature that is not one list")
            feature = Feature(_LISTS[kind], at, inner_end)
        at = inner_end
    return name, feature


def bytes_of(data: Bytes, feature: Feature) -> list[tuple[int, int]]:
    """(offset, size) of each value of a feature of kind BYTES. IndexError where `data` ends before the
    last of them begins."""
    found: list[tuple[int, int]] = []
    at = feature.begin
    while at < feature.end:
        at, end = _field(data, at, feature.end, _FIRST, "a list of bytes")
        found.append((at, end - at))
        at = end
        _limit(len(found))
    return found


def floats_of(data: bytes, feature: Feature) -> list[float]:
    """The values of a feature of kind FLOATS."""
    found: list[float] = []
    at = feature.begin
    while at < feature.end:
        if data[at] == _FIRST_FIXED32:
            at, end = at + 1, at + 5
        else:
            at, end = _field(data, at, feature.end, _FIRST, "a list of floats")
        if end > feature.end or (end - at) % 4:
            raise Malformed("a list of floats that are not of 4 bytes")
        _limit(len(found) + (end - at) // 4)
        found += np.frombuffer(data[at:end], "<f4").tolist()
        at = end
    return found


def ints_of(data: bytes, feature: Feature) -> list[int]:
    """The values of a feature of kind INTS."""
    found: list[int] = []
    at = feature.begin
    while at < feature.end:
        packed = data[at] != _FIRST_VARINT
        at, end = _field(data, at, feature.end, _FIRST, "a list of integers") if packed else (at + 1, at + 2)
        while at < end:
            value, at = _varint(data, at)
            found.append(value - (1 << 64) if value >> 63 else value)
            _limit(len(found))
        if at > (end if packed else feature.end):
            raise Malformed("a list that is longer than its feature")
    return found


def _field(data: Bytes, at: int, end: int, wanted: int, what: str) -> tuple[int, int]:
    """Begin and end of the content of a field with a size, whose tag is at `at`."""
    tag, at = _varint(data, at)
    if tag != wanted:
        raise Malformed(f"the tag {tag} in {what}")
    size, at = _varint(data, at)
    if size > end - at:
        raise Malformed(f"{size:,} bytes in {what}, where {max(end - at, 0):,} are left")
    return at, at + size


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    """A number below 2**64 and the offset after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = shift = 0
    while True:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")
        byte = data[at]
    if value >> 64:
        raise Malformed("a number of more than 64 bits")
    return value, at


def _limit(count: int) -> None:
    if count > VALUES_MOST:
        raise Malformed(f"a feature of more than {VALUES_MOST:,} values")


SURVEYED = 100
"""Records, spread evenly over the source, that settle which features there are and of which kinds."""

_NAMES = re.compile(r".*\.(tfrecords?|tfrec)|.*-\d{5,6}-of-\d{5,6}", re.IGNORECASE | re.DOTALL)
_SHARD = re.compile(r"-\d{5,6}-of-\d{5,6}$")
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_PIECE = 64
"""Bytes of a record in a store that are read together, at least."""
_HEAD = 4096
"""Bytes of a record in which most have the beginning of the image."""
_IMAGE_NAMES = ("image/encoded", "encoded", "image_bytes", "image_raw")
_NAMES_BYTES = 1 << 20
_LABEL_NAMES = ("image/class/label", "image/label", "class")
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")


def is_tfrecord(path: str) -> bool:
    """Returns True if a file has a name as TFRecords have: x.tfrecord, x.tfrecords, x.tfrec,
    train-00000-of-00010."""
    return _NAMES.fullmatch(os.path.basename(path)) is not None


def one_split(folder: str, names: Sequence[str]) -> None:
    """Refuses files of several splits in one folder, as TensorFlow Datasets writes them.

    Raises:
        PackError: the names before -00000-of-00010 differ.
    """
    splits = sorted({_SHARD.sub("", name) for name in names if _SHARD.search(name)})
    if len(splits) > 1:
        raise PackError(
            f"{folder}: it holds several sets ({', '.join(splits[:5])}); give one of them as a "
            f"pattern: '{folder}/{splits[0]}-*'"
        )


_ROW = struct.Struct("<IQQQ")  # file, record in the file, offset of its data, size


class _Sparse:
    """The data of a record in a store, read from front to back, but for pictures: of these only the first
    HEAD bytes, as far as nobody asks for more; the others are 0.

    Attributes:
        data: the data.
        holes: begin and end of what is left out.
    """

    def __init__(self, walk: Walk, offset: int, size: int) -> None:
        self._walk, self._offset = walk, offset
        self.data = bytearray(size)
        self._first = self._last = 0  # what was read last
        self.holes: list[tuple[int, int]] = []
        for _, feature in _entries(self, size):
            if feature is not None:
                self._take(feature)

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...
    def __getitem__(self, at: int | slice) -> int | bytes:
        start, stop = (at.start, at.stop) if isinstance(at, slice) else (at, at + 1)
        if not self._first <= start <= stop <= self._last:
            self._first, self._last = start, min(max(stop, start + _PIECE), len(self.data))
            self.data[start : self._last] = self._walk.part(self._offset + start, self._last - start)
        return bytes(self.data[at]) if isinstance(at, slice) else self.data[at]

    def _take(self, feature: Feature) -> None:
        """Reads the values of a feature."""
        if feature.kind != BYTES:
            self[feature.begin : feature.end]
            return
        for at, size in bytes_of(self, feature):
            if size > _PIECE and is_picture(self[at : at + HEAD]):
                self.holes.append((max(at + HEAD, self._last), at + size))
            else:
                self[at : at + size]

    def packed(self) -> bytes:
        """The bytes that were read, as `unpacked` takes them."""
        edges = [0, *(edge for hole in self.holes for edge in hole), len(self.data)]
        parts = [bytes(self.data[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
        return marshal.dumps((self.holes, parts))

    @staticmethod
    def unpacked(packed: bytes) -> bytes:
        """The data."""
        holes, parts = marshal.loads(packed)
        gaps = [bytes(stop - start) for start, stop in holes]
        return b"".join(part for both in zip(parts, [*gaps, b""], strict=True) for part in both)


class TFRecordSource(Listed, NumberedInFiles):
    """One or many uncompressed TFRecord files, read in the order given, by offset.

    The image is the feature ``image/encoded``, or one of a usual name (image, jpeg, ...), or the only one
    that holds pictures. The label is ``label``, ``image/class/label``, or an integer of another usual name;
    its values stay as they are. Names of classes come from a label.labels.txt in the folder, as TensorFlow
    Datasets writes it.

    Each other feature is a field of its name. `SURVEYED` records settle the kinds: one integer or float a
    record is a number, several, always as many, an array (int64 or float32), and a number of them that varies
    JSON. One bytes value is text if it is UTF-8 in all of them, else bytes; several are JSON if they are
    text. A record that has another feature, or one of another kind, is that sample's error.

    Raises:
        PackError: a file is missing, compressed or damaged, or its records are not tf.train.Examples with a
            picture.
    """

    layout = "TFRecord files"
    concurrent = True
    lists_files = True

    def __init__(self, paths: list[str]) -> None:
        super().__init__(paths, "record")
        self._ranges = FileRanges(paths)
        rows = Texts()
        for number in range(len(paths)):
            _index(self._ranges, number, rows)
        rows.seal()
        if not len(rows):
            raise PackError(f"{self.title}: no record in it")
        self._rows = rows
        survey = _Survey(self)
        self._image = survey.image
        self._names = survey.names
        self.fields = survey.fields
        self._kinds = {field.name: field for field in self.fields}
        counted = any(map(is_label, self.fields))
        self.classes: tuple[str, ...] | None = (
            _class_names(paths[0]) if counted and "label" in self._names else None
        )

    def _record(self, position: int) -> tuple[int, int, int, int]:
        """(file, record in the file, offset of its data, size) of a sample."""
        found: tuple[int, int, int, int] = _ROW.unpack_from(self._rows[position])
        return found

    def numbered(self, position: int) -> tuple[int, int]:
        return self._record(position)[:2]

    def stamp(self, position: int) -> tuple[int, int]:
        number, _, _, size = self._record(position)
        return size, file_stamp(self.paths[number])[1]

    def place(self, position: int) -> Place:
        number, _, offset, size = self._record(position)
        known = self._known(position)
        head = self._ranges.read(number, offset, min(size, _HEAD)) if known is None else known
        try:
            try:
                at, length = self._only(head, features(head, size, self._image))
            except IndexError:  # other values before the image are longer than the head
                head = self._ranges.read(number, offset, size)
                at, length = self._only(head, features(head, size, self._image))
        except (ValueError, IndexError) as error:
            raise self._malformed(position, error) from error
        return Place(self.paths[number], offset + at, length)

    def read(self, position: int) -> Item:
        data = self.data(position)
        (at, size), values = self._read(position, data)
        return Item(self.name(position), data[at : at + size], values)

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        return self._read(position, self.surveyed(position))[1]

    def _read(self, position: int, data: bytes) -> tuple[tuple[int, int], dict[str, Value]]:
        """(offset and size of the image in a record's data, the other fields)."""
        try:
            found = features(data, len(data))
            place = self._only(data, found)
            more = found.keys() - self._names.keys() - {self._image}
            if more:
                raise ValueError(
                    f"the feature {min(more)!r}, which the {SURVEYED} records looked at first have not"
                )
            values = {
                field: _value(data, found.get(feature), self._kinds[field])
                for feature, field in self._names.items()
            }
        except (ValueError, IndexError) as error:
            raise self._malformed(position, error) from error
        return place, values

    def _known(self, position: int) -> bytes | None:
        """The data of a record in a store without its pictures, as they were read with the headers; None: its
        file lies on a disk."""
        packed = self._rows[position][_ROW.size :]
        return _Sparse.unpacked(packed) if packed else None

    def surveyed(self, position: int) -> bytes:
        """The data of a record, but for pictures of one in a store."""
        known = self._known(position)
        return self.data(position) if known is None else known

    def data(self, position: int) -> bytes:
        """The data of a record, checked by its checksum."""
        number, _, offset, size = self._record(position)
        data = self._ranges.read(number, offset, size + _CRC.size)
        if _masked(data[:size]) != _CRC.unpack(data[size:])[0]:
            raise PackError(
                f"{self.name(position)}: it is damaged (its checksum does not match); copy the file again"
            )
        return data[:size]

    def _malformed(self, position: int, error: Exception) -> PackError:
        reason = "it ends inside a feature" if isinstance(error, IndexError) else error
        return PackError(f"{self.name(position)}: its tf.train.Example is not as it should be: {reason}")

    def _only(self, data: bytes, found: dict[str, Feature]) -> tuple[int, int]:
        """(offset, size) of the image."""
        feature = found.get(self._image)
        values = bytes_of(data, feature) if feature is not None and feature.kind == BYTES else []
        if len(values) != 1:
            raise ValueError(f"{len(values)} values of {self._image!r}, where there should be one of bytes")
        return values[0]


def _value(data: bytes, feature: Feature | None, field: Field) -> Value:
    values = values_of(data, feature)
    if field.handler.takes_null:
        return [value.decode("utf-8") if isinstance(value, bytes) else value for value in values]
    wanted = field.shape[0] if field.handler.is_array else 1
    stored = {"": BYTES, "int64": INTS}.get(field.dtype, FLOATS)
    if feature is None or len(values) != wanted or feature.kind != stored:
        raise ValueError(
            f"{len(values)} values of {field.name!r}, which is {field.kind} of {wanted} in the others"
        )
    if field.handler.is_array:
        return np.array(values, field.dtype)
    value = values[0]
    return value.decode("utf-8") if field.handler.is_text and isinstance(value, bytes) else value


def values_of(data: bytes, feature: Feature | None) -> list[int] | list[float] | list[bytes]:
    """The values of a feature, none of one that is not there."""
    if feature is None:
        return []
    if feature.kind == BYTES:
        return [data[offset : offset + size] for offset, size in bytes_of(data, feature)]
    return floats_of(data, feature) if feature.kind == FLOATS else ints_of(data, feature)


def _class_names(file: str) -> tuple[str, ...] | None:
    """The lines of the label.labels.txt beside a file; None if there is no such file that is text."""
    path = os.path.join(os.path.dirname(file), "label.labels.txt")
    try:
        if isinstance(file, ForeignURL):
            url = ForeignURL(path, file.objects)
            data = url.whole() if url.size <= _NAMES_BYTES else b""
        else:
            data = read_regular(path, _NAMES_BYTES)
        return tuple(data.decode("utf-8").splitlines()) or None
    except RemoteError as error:
        if not error.sure:
            raise
    except (OSError, UnicodeDecodeError):
        pass
    return None


class _Survey:
    """Common properties of some records of a source: the feature that is the image, and the fields of the
    others."""

    def __init__(self, source: TFRecordSource) -> None:
        self._kinds: dict[str, set[int]] = {}
        self._counts: dict[str, set[int]] = {}
        self._text: dict[str, bool] = {}
        self._pictures: Counter[str] = Counter()
        self._looked = 0
        failure: PackError | None = None
        for position in np.unique(np.linspace(0, len(source) - 1, SURVEYED).astype(np.int64)).tolist():
            try:
                self._look(source.surveyed(position))
            except (PackError, OSError) as error:  # noqa: PERF203
                failure = failure or (
                    error
                    if isinstance(error, PackError)
                    else PackError(f"{source.name(position)}: {error.strerror}")
                )
            except (ValueError, IndexError) as error:
                reason = "it ends inside a feature" if isinstance(error, IndexError) else error
                failure = failure or PackError(
                    f"{source.name(position)}: it is no tf.train.Example: {reason}"
                )
        if not self._looked:
            assert failure is not None
            raise failure
        names = sorted(self._kinds)
        pictures = [name for name, count in self._pictures.items() if 2 * count >= self._looked]
        if self._pictures and not pictures:
            raise PackError(
                f"{source.title}: none of {', '.join(names)} is a picture's file (JPEG, PNG, ...); "
                "raw pixels have no size or layout that "
                "fastload knows: read them in a Dataset of your own, and pack that"
            )
        self.image = image_name(source.title, names, pictures, pictures, _IMAGE_NAMES)
        integers = [name for name in names if self._kinds[name] == {INTS} and self._counts[name] == {1}]
        label = label_name(integers, names, _LABEL_NAMES)
        self.names = {name: field_name(name, label) for name in names if name != self.image}
        try:
            self.fields = tuple(self._field(source.title, name, field) for name, field in self.names.items())
        except ArgumentError as error:
            raise PackError(f"{source.title}: a feature that cannot be stored: {error}") from error

    def _look(self, data: bytes) -> None:
        found = features(data, len(data))
        read = {name: values_of(data, feature) for name, feature in found.items()}
        for name, feature in found.items():
            values = read[name]
            self._counts.setdefault(name, {0} if self._looked else set()).add(len(values))
            kinds = self._kinds.setdefault(name, set())
            if not values:
                continue
            kinds.add(feature.kind)
            if feature.kind == BYTES:
                self._text[name] = self._text.get(name, True) and all(_is_text(value) for value in values)
                self._pictures[name] += (
                    len(values) == 1 and isinstance(values[0], bytes) and is_picture(values[0][:HEAD])
                )
        for name in self._counts.keys() - found.keys():
            self._counts[name].add(0)
        self._looked += 1

    def _field(self, title: str, name: str, field: str) -> Field:
        kinds, counts = self._kinds[name], self._counts[name]
        if len(kinds) > 1:
            raise PackError(
                f"{title}: the feature {name!r} is of several kinds; they must be the same in all records"
            )
        same = len(counts) == 1 and counts != {0}
        if kinds == {BYTES} and (counts == {1} or not self._text[name]):
            return Field(field, "text" if self._text[name] else "bytes")
        if same and kinds != {BYTES}:
            if counts == {1}:
                return Field(field, "int" if kinds == {INTS} else "float")
            return Field(field, "array", shape=(*counts,), dtype="int64" if kinds == {INTS} else "float32")
        return Field(field, "json")


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, bytes) and "\0" not in value.decode("utf-8")
    except UnicodeDecodeError:
        return False


def _masked(data: bytes) -> int:
    """TensorFlow's checksum of bytes: a CRC32C, turned by 15 bits, plus a constant."""
    crc = core.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _index(ranges: FileRanges, number: int, rows: Texts) -> None:
    """Adds the row of each record of a file, whose data are not read; of one in a store all but pictures is
    read at the same time, so that nothing has to be fetched twice."""
    path, end = ranges.paths[number], ranges.size(number)
    walk = Walk(path) if isinstance(path, ForeignURL) else None
    read = partial(ranges.read, number) if walk is None else walk.part
    at = record = 0
    while at < end:
        if end - at < _HEADER.size + _CRC.size:
            raise PackError(f"{path}: it ends inside record {record}; copy it again")
        header = read(at, _HEADER.size)
        size, crc = _HEADER.unpack(header)
        if _masked(header[:8]) != crc:
            if at == 0 and header.startswith(_COMPRESSED):
                raise PackError(
                    f"{path}: a compressed TFRecord file cannot be read at any position; unpack it "
                    "first (gunzip)"
                )
            what = "not a TFRecord file" if at == 0 else f"damaged at byte {at:,}: copy it again"
            raise PackError(f"{path}: {what} (the checksum of a record's length does not match)")
        if size > end - at - _HEADER.size - _CRC.size:
            raise PackError(f"{path}: it ends inside a record of {size:,} bytes; copy it again")
        row = _ROW.pack(number, record, at + _HEADER.size, size)
        if walk is not None:
            row += _sparse(walk, at + _HEADER.size, size)
        rows.append(row)
        record += 1
        at += _HEADER.size + size + _CRC.size


def _sparse(walk: Walk, offset: int, size: int) -> bytes:
    """The data of a record as `_Sparse.packed` has them; b"": it is no Example, which its reading says."""
    try:
        return _Sparse(walk, offset, size).packed() if size <= FILE_BYTES else b""
    except (ValueError, IndexError):
        return b""


def _open_folder(given: Given) -> Source:
    names = [name for name in given.files if is_tfrecord(name)]
    one_split(given.path, names)
    return TFRecordSource([str(Path(given.path, name)) for name in names])


def _refuse_compressed(given: Given) -> Source:
    raise PackError(
        f"{given.path}: a compressed TFRecord file cannot be read at any position; unpack it first (gunzip)"
    )


FILES = Files(is_tfrecord, lambda patterns, _: TFRecordSource(expand_all(patterns, "TFRecord file")))
FOLDER = Choice(lambda given: not given.folders and any(map(is_tfrecord, given.files)), _open_folder)
COMPRESSED = Choice(
    lambda given: given.path.lower().endswith(COMPRESSIONS) and is_tfrecord(os.path.splitext(given.path)[0]),
    _refuse_compressed,
)
