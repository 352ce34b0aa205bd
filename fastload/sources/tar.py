"""WebDataset tars: members that share a name up to the first dot make one sample. Members are listed first,
and read later, by place. A tar that `fastload export` wrote names its fields, and the member of each.
"""

from __future__ import annotations

import glob
import marshal
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fastload.common.files import FILE_BYTES
from fastload.common.spill import Texts
from fastload.errors import PackError, RemoteError, SampleError
from fastload.remote.foreign import ForeignURL
from fastload.sources.annotated import BOXES, MASK_NAMES, is_deep, label_map_in
from fastload.sources.declaration import declared, image_of, list_of
from fastload.sources.foreign import existing_urls
from fastload.sources.notices import MEMBERS, Notice, Notices
from fastload.sources.options import NO_COLUMNS, ColumnOptions
from fastload.sources.pixels import read_npy
from fastload.sources.protocol import (
    FIRST_TRIES,
    Choice,
    FileRanges,
    Files,
    Given,
    Item,
    Listed,
    Place,
    Source,
    Value,
    file_stamp,
    first_readable,
    listed_file,
    title_of,
)
from fastload.store import Field, Schema
from fastload.store.checked import Bad, get_object, parse_json
from fastload.store.form import Form
from fastload.store.kinds.codecs import CODECS
from fastload.store.labels import is_label

IMAGES = tuple(dict.fromkeys(("jpg", "jpeg", *(codec.ending for codec in CODECS.values() if codec.ending))))
"""Extensions of pictures."""
HEADER_BYTES = 1 << 20
"""Limit on a tar header: long names and pax records take some hundred bytes."""
NOTED_BYTES = 16 << 10
"""Bytes of a member beside an image up to which it is read with the headers, where the tar lies in a store:
it lies between two of them."""

Member = tuple[str, int, int]
"""(extension, offset of the data, size) of a member."""

_AT_ONCE = 16
"""Tars in stores that are listed at the same time: their headers are waited for."""
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LISTS = re.compile(r"\{([^{}]*,[^{}]*)\}")


class Tars:
    """The samples of one or many .tar files, in the order given.

    Attributes:
        title: name of the source as the user gave it.
        paths: the files.
        rows: a row for each sample, (number of the file, key, members, bytes of members that were read with
            the headers, by extension), as `marshal` writes them.
        comments: comment of each file's global pax header; "" if it has none.
        left_out: members that belong to no sample.

    Raises:
        PackError: no such tar, a damaged one, or none with a sample.
    """

    def __init__(self, patterns: list[str]) -> None:
        self.title = title_of(patterns)
        self.paths = expand_all(patterns, "tar file")
        self.left_out = Notices()
        self.rows = Texts()
        self.comments: set[str] = set()
        for number, path in enumerate(self.paths):
            if not isinstance(path, ForeignURL):
                self.comments.add(_index(path, number, self.left_out, self.rows))
        self._list_foreign()
        self.rows.seal()
        if not len(self.rows):
            raise PackError(
                f"{self.title}: no sample in it; a sample is an image and files of the same base name"
            )

    def _list_foreign(self) -> None:
        """Lists the tars that lie in stores, some at a time."""
        foreign = [number for number, path in enumerate(self.paths) if isinstance(path, ForeignURL)]
        with ThreadPoolExecutor(_AT_ONCE, "fastload-list") as pool:
            for start in range(0, len(foreign), _AT_ONCE):
                numbers = foreign[start : start + _AT_ONCE]
                for comment, left_out, rows in pool.map(self._listed, numbers):
                    self.comments.add(comment)
                    self.left_out.merge(left_out)
                    for at in range(len(rows)):
                        self.rows.append(rows[at])

    def _listed(self, number: int) -> tuple[str, Notices, Texts]:
        left_out, rows = Notices(), Texts()
        comment = _index(self.paths[number], number, left_out, rows)
        rows.seal()
        return comment, left_out, rows


class TarSamples(Listed):
    """Base of the sources of tars: they read the samples of `tars`."""

    layout = "tar files (WebDataset)"
    concurrent = True
    lists_files = True

    def __init__(self, tars: Tars) -> None:
        self.title, self.paths, self._rows = tars.title, tars.paths, tars.rows
        self._left_out, self.folder = tars.left_out, os.path.dirname(tars.paths[0])
        self._ranges = FileRanges(self.paths)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Members that belong to no sample."""
        return self._left_out.all()

    def _sample(self, position: int) -> tuple[int, str, tuple[Member, ...]]:
        """(number of the file, key, members) of a sample."""
        number, key, parts, _ = marshal.loads(self._rows[position])
        return number, key, parts

    def _extensions(self, position: int) -> list[str]:
        return [extension for extension, _, _ in self._sample(position)[2]]

    def _member(self, position: int, extension: str) -> bytes:
        """The bytes of a sample's member."""
        number, _, parts = self._sample(position)
        _, offset, size = next(part for part in parts if part[0] == extension)
        return self._part(position, number, extension, offset, size)

    def _part(self, position: int, number: int, extension: str, offset: int, size: int) -> bytes:
        noted: bytes | None = marshal.loads(self._rows[position])[3].get(extension)
        if noted is not None:
            return noted
        if size > FILE_BYTES:
            raise PackError(
                f"{self.name(position)}: its .{extension} has {size:,} bytes, more than the limit of "
                f"{FILE_BYTES:,}"
            )
        return self._ranges.read(number, offset, size)

    def _images(self, position: int) -> list[Member]:
        """The numbered pictures of a sample, in order."""
        parts = [part for part in self._sample(position)[2] if _is_listed(part[0])]
        return sorted(parts, key=lambda part: int(part[0].partition(".")[0]))

    def places(self, position: int) -> list[Place]:
        """Places of these pictures."""
        path = self.paths[self._sample(position)[0]]
        return [Place(path, offset, size) for _, offset, size in self._images(position)]

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        raise NotImplementedError

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its numbered pictures."""
        return self.read_fields(position), len(self._images(position))

    def _listed(self, position: int) -> list[bytes]:
        """The files of these pictures."""
        number = self._sample(position)[0]
        return [self._part(position, number, *part) for part in self._images(position)]

    def name(self, position: int) -> str:
        number, key, _ = self._sample(position)
        return f"{self.paths[number]}:{key}"

    def key(self, position: int) -> str:
        number, key, _ = self._sample(position)
        return f"{number}:{key}"

    def stamp(self, position: int) -> tuple[int, int]:
        number, _, parts = self._sample(position)
        return sum(size for _, _, size in parts), file_stamp(self.paths[number])[1]

    def fields_of(self, position: int) -> None:
        """Returns None: the fields are known only when the members are read."""


def expand(pattern: str, what: str = "tar file") -> list[str]:
    """The files a pattern stands for: ``{000..003}`` counts (zeros kept), ``{a,b}`` lists, ``* ? []`` match.

    Raises:
        PackError: nothing matches, or a file that the pattern spells out is not there.
        RemoteError: a store does not list what is there.
    """
    if isinstance(pattern, ForeignURL):
        return [*expanded_urls([pattern], what)]
    return [path for each in _braced(pattern, pattern) for path in _existing(each, what)]


def expanded_urls(patterns: Iterable[ForeignURL], what: str = "") -> list[ForeignURL]:
    """The objects that patterns stand for, looked up some at a time; without `what` one that a pattern spells
    out need not be there. Raises as `expand`."""
    urls = [
        url
        for each in patterns
        for url in (
            [each] if each.is_known else [ForeignURL(url, each.objects) for url in _braced(each.url, each)]
        )
    ]
    return existing_urls(urls, what)


def _braced(pattern: str, title: str) -> list[str]:
    """The texts that a pattern's braces stand for. Raises PackError."""
    if match := _RANGE.search(pattern):
        first, last = match.groups()
        width = len(first) if first.startswith("0") else 0
        numbers = range(int(first), int(last) + 1)
        if not numbers or len(numbers) > 1_000_000:
            raise PackError(f"{title}: {{{first}..{last}}} counts no sensible range of shards")
        choices = [f"{n:0{width}d}" for n in numbers]
    elif match := _LISTS.search(pattern):
        choices = match[1].split(",")
    else:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [text for choice in choices for text in _braced(before + choice + after, title)]


def _existing(pattern: str, what: str) -> list[str]:
    """The files that a pattern without braces matches, or the one that it names. Raises PackError."""
    if not os.path.exists(pattern) and any(mark in pattern for mark in "*?["):
        found = sorted(glob.glob(pattern))
        if not found:
            raise PackError(f"{pattern}: no file matches")
        return found
    if not os.path.isfile(pattern):
        raise PackError(f"{pattern}: no such {what}")
    return [pattern]


def expand_all(patterns: list[str], what: str) -> list[str]:
    """The files that patterns stand for, as `expand` has them."""
    return [path for pattern in patterns for path in expand(pattern, what)]


def member_value(name: str, extension: str, data: bytes) -> Value:
    """The value of a member, by the last part of its extension. Raises PackError, which names sample and
    member."""
    ending = extension.rpartition(".")[2]
    try:
        if ending == "cls":
            return int(data)
        if ending == "txt":
            return data.decode("utf-8")
        if ending == "json":
            value: Value = parse_json(data)
            return value
        if ending == "npy":
            return read_npy(data)
    except ValueError as error:
        what = {
            "cls": "label that is an integer",
            "txt": "UTF-8 text",
            "json": "JSON",
            "npy": "array without pickle",
        }
        shown = f" {data[:40]!r}" if ending == "cls" else ""
        raise PackError(f"{name}: its .{extension}{shown} is no {what[ending]}: {error}") from error
    return data


class _Headers:
    """A tar as tarfile reads it, header by header. A header may claim any length, which tarfile would read
    at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def _index(path: str, number: int, left_out: Notices, rows: Texts) -> str:
    """The comment of one tar; adds the rows of its samples, neighbouring members of one base name, without
    reading their data.

    Raises:
        PackError: no regular file, no plain tar, or a damaged one.
    """
    try:
        with listed_file(path) as (file, size):
            return _members(path, number, file, size, left_out, rows)
    except (PackError, RemoteError):
        raise
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except (
        Exception
    ) as error:  # tarfile raises any error on hostile headers: ValueError, OverflowError, RecursionError, ...
        text = str(error) or type(error).__name__
        raise PackError(
            f"{path}: not a whole plain tar: {text}; a compressed one must be unpacked first"
        ) from error


def _members(path: str, number: int, file: BinaryIO, size: int, left_out: Notices, rows: Texts) -> str:
    key, parts, noted = "", list[Member](), dict[str, bytes]()
    last = -1
    with tarfile.open(fileobj=_Headers(file), mode="r:") as tar:  # type: ignore[call-overload]
        for member in tar:
            # A member list as long as the tar would stay in memory otherwise.
            tar.members = []
            # A negative size leads back to a header that was read before, for ever.
            if member.size < 0 or member.offset <= last:
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
                    rows.append(marshal.dumps((number, key, tuple(parts), noted)))
                key, parts, noted = this, [], {}
            if any(extension.lower() == known for known, _, _ in parts):
                raise PackError(f"{path}: {member.name} is there twice in one sample")
            parts.append((extension.lower(), member.offset_data, member.size))
            if isinstance(path, ForeignURL) and member.size <= NOTED_BYTES and not _is_picture(extension):
                file.seek(member.offset_data)
                noted[extension.lower()] = file.read(member.size)
        comment = str(tar.pax_headers.get("comment", ""))
    if parts:
        rows.append(marshal.dumps((number, key, tuple(parts), noted)))
    return comment


def _is_picture(extension: str) -> bool:
    return extension.rpartition(".")[2].lower() in IMAGES


COMMENT_MOST = HEADER_BYTES // 2
"""Characters of a description that a tar has: it is left out where it is longer."""
_PICTURES = (*dict.fromkeys(codec.ending for codec in CODECS.values() if codec.ending), "npy")
"""Endings of the pictures that export writes."""


def member_names(fields: Iterable[Field]) -> dict[str, str]:
    """By the field's name, the text before the last dot in the extension of its member; only fields with
    members of their own."""
    found: dict[str, str] = {}
    for field in fields:
        if field.handler.member:
            name = re.sub(r"[^a-z0-9_-]", "_", field.name.lower())
            while name in found.values():
                name += "_"
            found[field.name] = name
    return found


def declaration_of(tars: Tars) -> tuple[Schema, tuple[str, ...] | None, Form | None] | None:
    """The fields, class names and form that tars say, if all say the same; None: they say none."""
    if len(tars.comments) != 1:
        return None
    try:
        return declared(get_object(parse_json(next(iter(tars.comments))), "the comment").get("fastload"))
    except (Bad, ValueError):
        return None  # somebody else's comment


class ExportedTar(TarSamples):
    """The samples of tars with the fields that they say, each equal to that of the dataset; floats that were
    not finite are NaN.

    A sample that lacks a member, or has another one, is an error of its own; the packer's message begins with
    its name.
    """

    layout = "tar that fastload exported"

    def __init__(
        self, tars: Tars, schema: Schema, classes: tuple[str, ...] | None, form: Form | None
    ) -> None:
        super().__init__(tars)
        self.classes, self.form = classes, form
        self.image_field, self.image_list = image_of(schema), list_of(schema)
        self.fields = schema.fields[1:]
        self._names = member_names(self.fields)
        self._plain = [
            field for field in self.fields if field.name not in self._names and not is_label(field)
        ]

    def _found(self, position: int, name: str, endings: tuple[str, ...]) -> Member:
        """The member whose extension is `name` and one of the endings; raises PackError if there is none."""
        wanted = [f"{name}.{ending}" if name else ending for ending in endings]
        for part in self._sample(position)[2]:
            if part[0] in wanted:
                return part
        raise PackError(
            f"it has no member .{' or .'.join(wanted)}; it has {', '.join(self._extensions(position))}"
        )

    def place(self, position: int) -> Place:
        _, offset, size = self._found(position, "", _PICTURES)
        return Place(self.paths[self._sample(position)[0]], offset, size)

    def _data(self, position: int, name: str, endings: tuple[str, ...]) -> tuple[str, bytes]:
        """(extension, bytes) of a member."""
        extension, offset, size = self._found(position, name, endings)
        return extension, self._part(position, self._sample(position)[0], extension, offset, size)

    def read(self, position: int) -> Item:
        if self.image_list:
            return Item(self.name(position), b"", self.read_fields(position), images=self._listed(position))
        _, image = self._data(position, "", _PICTURES)
        return Item(self.name(position), image, self.read_fields(position))

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        plain = self._value(position, "", ("json",)) if self._plain else {}
        if not isinstance(plain, Mapping):
            raise PackError(f"its .json is no object of {', '.join(self._of_json)}")
        return {field.name: self._field(position, field, plain) for field in self.fields}

    @cached_property
    def _of_json(self) -> list[str]:
        return [field.name for field in self._plain]

    def _value(self, position: int, name: str, endings: tuple[str, ...]) -> Value:
        return member_value(self.name(position), *self._data(position, name, endings))

    def _field(self, position: int, field: Field, plain: Mapping[str, Any]) -> Value:
        if member := field.handler.member:
            if member == "picture":
                return self._data(position, self._names[field.name], _PICTURES)[1]
            value = self._value(position, self._names[field.name], (member,))
            return value if member == "npy" else self._parsed(position, field, value)
        if is_label(field):
            return self._value(position, "", ("cls",))
        if field.name not in plain:
            raise PackError(f"its .json has no value of {field.name!r}")
        value = plain[field.name]
        return self._parsed(position, field, _with_nan(value) if field.dtype.startswith("float") else value)

    def _parsed(self, position: int, field: Field, value: Value) -> Value:
        try:
            found: Value = field.handler.from_json(field, value)
        except (ValueError, OverflowError) as error:
            raise PackError(f"its {field.name!r} is no value of {field}: {error}") from None
        return found


def _with_nan(value: Value) -> Value:
    """Nested lists of numbers with NaN for null."""
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    return float("nan") if value is None else value


_LOSSLESS = ("png", "webp")
_NUMBERED = re.compile(r"[0-9]{1,9}\.[a-z]+")


def _is_listed(extension: str) -> bool:
    return _is_picture(extension) and _NUMBERED.fullmatch(extension) is not None


def tar_source(patterns: list[str], options: ColumnOptions = NO_COLUMNS) -> Source:
    """The source of tars: of those that `fastload export` wrote, all alike, with the fields that they say;
    else by their members' names.

    Raises:
        PackError: no such tar, a damaged one, or samples that are not alike.
    """
    tars = Tars(patterns)
    about = declaration_of(tars)
    return TarSource(tars, options.image) if about is None else ExportedTar(tars, *about)


class TarSource(TarSamples):
    """One or many .tar files, read in the order given, by offset.

    A member's extension is all that follows the first dot of its base name, and the last part of it says what
    it holds: jpg, jpeg, png, webp (the image), cls (an integer, the field ``label``), txt (text), json, npy
    (an array of one dtype, and of one shape but for the first side); anything else is a bytes field. Each
    field is named by the extension. Beside the image, right.jpg is a further image, the field ``right``;
    mask.png (or seg.png, of `MASK_NAMES`) a mask, the field ``mask``; and boxes.npy with rows of four are
    boxes (xyxy), the field ``boxes``. Every sample has the same fields as the first. Where pictures are
    numbered and no other one is there, 0.jpg, 1.jpg, ..., samples have any number: the field ``images``.

    Raises:
        PackError: no such tar, a damaged one, a sample without an image, or with other fields than the first.
    """

    classes: tuple[str, ...] | None = None

    def __init__(self, tars: Tars, image: str | None = None) -> None:
        super().__init__(tars)
        self.image_name = image
        self._named = "" if image is None else image.removeprefix(".").lower()
        self.image_list = self._list_name()
        self._image, self._others = self._layout(0)
        for position in range(1, len(self)):
            if self._layout(position) != (self._image, self._others):
                have, need = set(self._extensions(position)), set(self._extensions(0))
                if (
                    self.image_list
                    or self._image_of(have) == ""
                    or have - {self._image_of(have)} != need - {self._image}
                ):
                    raise PackError(
                        f"{self.name(position)}: its members are {', '.join(sorted(have))}, but the "
                        "first sample has "
                        f"{', '.join(sorted(need))}; every sample needs the same"
                    )
        self._kinds: dict[str, Field] = {}
        for extension in self._others:
            self._kinds[extension] = self._field(extension)
        self.fields = tuple(self._kinds.values())
        if len({field.name for field in self.fields}) < len(self.fields):
            raise PackError(
                f"{self.title}: two members of a sample are one field among "
                f"{', '.join(self._others)}; rename one"
            )

    def _list_name(self) -> str:
        """The name of the field of numbered pictures, if the first sample with a picture has no other; else
        ""."""
        for position in range(0 if self._named else min(FIRST_TRIES, len(self))):
            if found := [each for each in self._extensions(position) if _is_picture(each)]:
                return "images" if all(_NUMBERED.fullmatch(each) for each in found) else ""
        return ""

    def _image_of(self, extensions: set[str]) -> str:
        if self._named:
            return self._named if self._named in extensions else ""
        for wanted in IMAGES:
            if wanted in extensions:
                return wanted
        return next((e for e in sorted(extensions) if e.rpartition(".")[2] in IMAGES), "")

    def _layout(self, position: int) -> tuple[str, tuple[str, ...]]:
        extensions = set(self._extensions(position))
        if self.image_list:
            return "", tuple(sorted(each for each in extensions if not _is_listed(each)))
        image = self._image_of(extensions)
        if not image:
            raise PackError(
                f"{self.name(position)}: no {f'.{self._named}' if self._named else 'image'} among its "
                f"members ({', '.join(sorted(extensions))})"
            )
        return image, tuple(sorted(extensions - {image}))

    def _field(self, extension: str) -> Field:
        stem, _, ending = extension.rpartition(".")
        name = _field_name(extension)
        if (stem or self._named) and ending in IMAGES:
            return self._picture(extension, stem or ending, ending)
        if ending == "cls":
            return Field(name, "int")
        if ending == "txt":
            return Field(name, "text")
        if ending == "json":
            return Field(name, "json")
        if ending == "npy":
            return self._array_field(extension, stem)
        return Field(name, "bytes")

    def _picture(self, extension: str, stem: str, ending: str) -> Field:
        """The field of a picture beside the image: a mask by its name, or else a further image."""
        deep = ending == "png" and self._is_deep(extension)
        if stem in MASK_NAMES and ending in _LOSSLESS:
            return Field(stem, "mask", "uint16" if deep else "uint8")
        return Field(stem.replace(".", "_"), "image", "uint16" if deep else "", (1,) if deep else ())

    def _is_deep(self, extension: str) -> bool:
        """Returns True if the first picture that can be read has 16 bits."""

        def deep(position: int) -> bool:
            try:
                return is_deep(self._member(position, extension))
            except SampleError as error:
                raise PackError(f"{self.name(position)}: its .{extension}: {error.reason}") from error

        return first_readable(deep, len(self))

    def _array_field(self, extension: str, stem: str) -> Field:
        """The field of arrays: some of them, spread over all samples, tell whether their first sides
        differ."""
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
        return Field(
            _field_name(extension),
            "array",
            str(first.dtype),
            (None, *first.shape[1:]) if varies else first.shape,
        )

    def _array(self, position: int, extension: str) -> npt.NDArray[Any]:
        value = member_value(self.name(position), extension, self._member(position, extension))
        assert isinstance(value, np.ndarray)
        return value

    def _image_member(self, position: int) -> Member:
        _, _, parts = self._sample(position)
        image = self._image_of({extension for extension, _, _ in parts})
        return next(part for part in parts if part[0] == image)

    def place(self, position: int) -> Place:
        _, offset, size = self._image_member(position)
        return Place(self.paths[self._sample(position)[0]], offset, size)

    def read(self, position: int) -> Item:
        if self.image_list:
            return Item(self.name(position), b"", self.read_fields(position), images=self._listed(position))
        image = self._part(position, self._sample(position)[0], *self._image_member(position))
        return Item(self.name(position), image, self.read_fields(position))

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        number, _, parts = self._sample(position)
        name = self.name(position)
        values: dict[str, Value] = {}
        for extension, offset, size in parts:
            if extension not in self._kinds:  # the image's
                continue
            data, field = self._part(position, number, extension, offset, size), self._kinds[extension]
            if field.handler.holds_labels:
                values[field.name] = label_map_in(data, f"{name}: its .{extension}", field.dtype)
            else:
                values[field.name] = data if field.handler.is_image else member_value(name, extension, data)
        return values


def _field_name(extension: str) -> str:
    return "label" if extension == "cls" else extension.replace(".", "_")


COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")


def _refuse_compressed(given: Given) -> Source:
    raise PackError(
        f"{given.path}: a compressed tar cannot be read at any position; unpack it to a plain .tar first"
    )


FILES = Files(lambda path: path.lower().endswith(".tar"), tar_source)
FOLDER = FILES.in_folder()
COMPRESSED = Choice(
    lambda given: given.path.lower().endswith((".tgz", *(f".tar{ending}" for ending in COMPRESSIONS))),
    _refuse_compressed,
)
