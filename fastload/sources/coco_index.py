"""CocoIndex: places of each image's annotations in an annotation file of COCO's form; MergedIndex: several
such files as one.

NOTE [ coco: what is held in memory ]
The annotations of a large dataset are gigabytes as Python objects. So the file is read once, object after
object, and for each annotation only its place, its id and its image are kept: 48 bytes. The annotations of an
image are read again, from their places, when the image is. A fault in one place of the file concerns only its
images: they are samples that cannot be read, each with its own message, and so are annotations of an image
that is not in the file. `on_error="skip"` leaves them out and counts them.

The text is decoded as Latin-1, so that a place in it is a place in the file. A caller that keeps an object's
text parses it again from the object's own bytes, which are UTF-8 (`parse_json`).

NOTE [ coco: merged files ]
Images are one by their id, and must then be one file on the disk, which has no other id in another file.
Annotations of objects are one if they have the same id and the same image: COCO's person_keypoints has the
objects of instances again, with keypoints. Values in both must be equal. Captions are never merged, for their
ids are counted anew. Categories are one by their id, and must have one name.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import open_regular
from fastload.errors import PackError
from fastload.sources.notices import EXAMPLES, Notice
from fastload.sources.protocol import FileRanges, file_stamp
from fastload.sources.row_files import leads_out
from fastload.store.checked import JSON_BYTES, parse_json, shown
from fastload.store.field import is_point_name

_BLOCK = 4 << 20
"""Bytes that are read at once: some thousand objects."""
_NUMBER_GOES_ON = 3
"""Characters after a number that tell whether it ends there: 1, but 1.5 and 1e+5."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder().raw_decode


def list_entries(path: str) -> Iterator[tuple[str, int, bytes, Any]]:
    """(key, offset, bytes, object) of each object of each list in the file's outermost object; other values
    are passed over.

    Strings in `object` are decoded as Latin-1; numbers and the structure are what they are.

    Raises:
        PackError: the file cannot be read, is no such JSON, or one of its values is larger than `JSON_BYTES`.
    """
    try:
        descriptor, _ = open_regular(path)
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        yield from _entries(_Window(path, descriptor))
    finally:
        os.close(descriptor)


def _entries(window: _Window) -> Iterator[tuple[str, int, bytes, Any]]:
    if window.next() != "{":
        raise window.error("it does not begin with an object, as an annotation file does")
    window.skip()
    seen: set[str] = set()
    while window.next() != "}":
        if seen:
            window.take(",")
        key = window.value()
        if not isinstance(key, str) or key in seen:
            raise window.error(f"the key {key!r} is {'there twice' if key in seen else 'no text'}")
        seen.add(key)
        window.take(":")
        if window.next() != "[":
            window.value()
            continue
        window.skip()
        first = True
        while window.next() != "]":
            if not first:
                window.take(",")
                window.next()
            first = False
            offset, entry = window.offset, window.value()
            if isinstance(entry, dict):
                yield key, offset, window.taken(offset), entry
        window.skip()


class _Window:
    """The part of the file that is in memory: from the value that is being read to the end of the last block.

    Attributes:
        offset: place in the file of the next character.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._text = ""
        self._first = 0  # offset in the file of the text's first character
        self._at = 0
        self._ended = False

    @property
    def offset(self) -> int:
        return self._first + self._at

    def error(self, why: str) -> PackError:
        return PackError(f"{self._path}, byte {self.offset:,}: {why}")

    def next(self) -> str:
        """The next character that is no blank; it is not taken."""
        while True:
            match = _BLANKS.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(_BLOCK):
                raise self.error("the file ends in the midst of its JSON; copy it again")

    def skip(self) -> None:
        """Takes the character that `next` gave."""
        self._at += 1

    def take(self, wanted: str) -> None:
        found = self.next()
        if found != wanted:
            raise self.error(f"{found!r} where {wanted!r} is needed: it is no JSON")
        self._at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        block = _BLOCK
        while True:
            try:
                value, end = _DECODE(self._text, self._at)
            except RecursionError:
                raise self.error("lists and objects lie too deep in each other") from None
            except ValueError as error:  # it may end after this block
                held = len(self._text) - self._at
                if held > JSON_BYTES:
                    raise self.error(f"no JSON value in the next {held:,} bytes: {error}") from None
                if not self._more(block):
                    raise self.error(f"it is no JSON: {error}") from None
                block *= 2
                continue
            if end + _NUMBER_GOES_ON <= len(self._text) or not self._more(_BLOCK):
                self._at = end
                return value

    def taken(self, offset: int) -> bytes:
        """The bytes from `offset`, where the last value began, up to here."""
        return self._text[offset - self._first : self._at].encode("latin-1")

    def _more(self, size: int) -> bool:
        """Reads on, and forgets what was taken. False at the end of the file."""
        try:
            data = b"" if self._ended else os.read(self._descriptor, size)
        except OSError as error:
            raise PackError(f"{self._path}: cannot be read: {error.strerror}") from error
        if not data:
            self._ended = True
            return False
        self._text = self._text[self._at :] + data.decode("latin-1")
        self._first += self._at
        self._at = 0
        return True


_ID_LIMIT = 2**63
_NAMES_SHOWN = 3
_CONTENTS = ("bbox", "segmentation", "keypoints", "caption", "segments_info")


@dataclass(slots=True)
class CocoImage:
    """An entry of the list `images`.

    Attributes:
        id: its id; -1 for annotations without an image.
        file: its file_name; "" for annotations without an image.
        height, width: size that the file gives; 0 if it gives none.
        wrong: reason why it cannot be packed; "" if none is known.
    """

    id: int
    file: str
    height: int
    width: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Category:
    """An entry of the list `categories`.

    Attributes:
        name: its name.
        keypoints: the number of its keypoints; 0: it has none.
        points: their names; (): they have none, or some that are no texts.
    """

    name: str
    keypoints: int
    points: tuple[str, ...] = ()


class CocoIndex:
    """The index of one annotation file.

    Attributes:
        path: the file.
        images: its images, in its order, and after them an entry for each image id that only annotations
            have.
        categories: the categories by their ids, in ascending order.
        keys: number of annotations that have each of the keys bbox, segmentation, keypoints, caption and
            segments_info, and not empty.

    Raises:
        PackError: the file cannot be read, is no such file, has no images, or has a category twice.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.images: list[CocoImage] = []
        self.categories: dict[int, Category] = {}
        self.keys: Counter[str] = Counter()
        self._ranges = FileRanges([path])
        self._ids, self._image_ids, self._offsets, self._sizes = (
            array("q"),
            array("q"),
            array("q"),
            array("q"),
        )
        self._read()
        if not self.images:
            raise PackError(f"{path}: it has no list of images, as an annotation file of COCO's form has")
        self.categories = dict(sorted(self.categories.items()))
        self._order, self._starts = self._by_image()

    def _read(self) -> None:
        for key, offset, text, entry in list_entries(self.path):
            if key == "annotations":
                self._add_annotation(offset, len(text), entry)
            elif key == "images":
                self._add_image(self._parsed(text, f"image {len(self.images)}"))
            elif key == "categories":
                self._add_category(self._parsed(text, f"category {len(self.categories)}"))

    def _parsed(self, text: bytes, what: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = parse_json(text)
        except ValueError as error:
            raise PackError(f"{self.path}: {what} is no JSON: {error}") from None
        return value

    def _add_annotation(self, offset: int, size: int, entry: dict[str, Any]) -> None:
        number = len(self._ids)
        image_id = entry.get("image_id")
        if not isinstance(image_id, int) or not _is_id(image_id):
            raise PackError(
                f"{self.path}: annotation number {number} (from 0) has the image_id "
                f"{shown(image_id)}, which is no whole number"
            )
        own = entry.get("id")
        self._ids.append(own if isinstance(own, int) and _is_id(own) else -1 - number)
        self._image_ids.append(image_id)
        self._offsets.append(offset)
        self._sizes.append(size)
        for key in _CONTENTS:
            if entry.get(key):
                self.keys[key] += 1

    def _add_image(self, entry: dict[str, Any]) -> None:
        own, file = entry.get("id"), entry.get("file_name")
        if not isinstance(own, int) or not _is_id(own):
            raise PackError(
                f"{self.path}: image number {len(self.images)} (from 0) has the id {shown(own)}, "
                "which is no whole number"
            )
        wrong = wrong_name(file)
        sides = [entry.get(side) for side in ("height", "width")]
        height, width = (side if isinstance(side, int) and 0 < side < 2**31 else 0 for side in sides)
        self.images.append(CocoImage(own, file if isinstance(file, str) else "", height, width, wrong))

    def _add_category(self, entry: dict[str, Any]) -> None:
        own, name = entry.get("id"), entry.get("name")
        if not isinstance(own, int) or not _is_id(own) or not isinstance(name, str):
            raise PackError(f"{self.path}: a category has the id {shown(own)} and the name {shown(name)}")
        if own in self.categories:
            raise PackError(
                f"{self.path}: the category id {own} is there twice ({self.categories[own].name!r} "
                f"and {name!r}); correct it"
            )
        points = entry.get("keypoints")
        names = (
            tuple(points) if isinstance(points, list) and all(is_point_name(each) for each in points) else ()
        )
        self.categories[own] = Category(name, len(points) if isinstance(points, list) else 0, names)

    def _by_image(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Annotations in the order of their images, and the first of each image; marks the images that
        something is wrong with."""
        position: dict[int, int] = {}
        for number, image in enumerate(self.images):
            if (first := position.setdefault(image.id, number)) != number:
                other = self.images[first]
                for one in (other, image):
                    one.wrong = (
                        one.wrong
                        or f"the image id {image.id} is there twice ({other.file!r} and {image.file!r})"
                    )
        image_numbers = np.empty(len(self._image_ids), np.int64)
        absent = 0
        for number, own in enumerate(self._image_ids):
            found = position.get(own)
            if found is None:
                found = position[own] = len(self.images)
                self.images.append(CocoImage(-1, "", 0, 0, str(own)))
                absent += 1
            image_numbers[number] = found
        order = np.argsort(image_numbers, kind="stable")
        starts = np.searchsorted(image_numbers[order], np.arange(len(self.images) + 1))
        for number in range(len(self.images) - absent, len(self.images)):
            ids = [int(self._ids[each]) for each in order[starts[number] : starts[number + 1]]]
            names = ", ".join(map(str, ids[:_NAMES_SHOWN])) + (
                f" and {len(ids) - _NAMES_SHOWN} more" if len(ids) > _NAMES_SHOWN else ""
            )
            which = f"annotation{'s' if len(ids) > 1 else ''} {names}"
            self.images[
                number
            ].wrong = f"{which} of image {self.images[number].wrong}, which is not among its images"
        self._mark_twice(image_numbers)
        return order, starts

    def _mark_twice(self, image_numbers: npt.NDArray[np.int64]) -> None:
        """Marks the images of annotations with an id that another annotation has."""
        ids = np.array(self._ids, np.int64)
        by_id = np.argsort(ids, kind="stable")
        same = np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1])
        for first, second in zip(by_id[same], by_id[same + 1], strict=True):
            for each in (first, second):
                image = self.images[image_numbers[each]]
                image.wrong = image.wrong or f"the annotation id {ids[each]} is there twice"

    def annotations(self, position: int) -> list[tuple[str, dict[str, Any]]]:
        """(what to call it in messages, annotation) of each annotation of an image, in the order of the file.

        Raises:
            PackError: something is wrong with the image or with the file.
        """
        image = self.images[position]
        if image.wrong:
            raise PackError(f"{self.path}: {image.wrong}; correct the file, or pack with on_error='skip'")
        found = []
        for number in self._order[self._starts[position] : self._starts[position + 1]]:
            text = self._ranges.read(0, self._offsets[number], self._sizes[number])
            what = (
                f"annotation {self._ids[number]}"
                if self._ids[number] >= 0
                else f"annotation number {number} (from 0)"
            )
            entry = self._parsed(text, what)
            if not isinstance(entry, dict) or entry.get("image_id") != image.id:
                raise PackError(f"{self.path}: it has changed since it was opened: begin again")
            found.append((f"{self.path}: {what} of image {image.id} ({os.path.basename(image.file)})", entry))
        return found

    @property
    def is_panoptic(self) -> bool:
        """True if its annotations are segments, whose pixels are in PNGs."""
        return bool(self.keys["segments_info"]) and not self.keys["bbox"]

    def file_of(self, position: int) -> str:
        """The file that has an image, for messages."""
        return self.path

    def time(self) -> int:
        """Time of the file's last change, in nanoseconds. Raises OSError."""
        return file_stamp(self.path)[1]


def wrong_name(file: object) -> str:
    """The reason why a file_name names no file below the folder of the images, or of the masks; "" if it
    names one."""
    if isinstance(file, str) and not leads_out(file):
        return ""
    return (
        f"its file_name is {shown(file)}, which is no path below the folder of its files: write it "
        "relative to that folder"
    )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_ID_LIMIT <= value < _ID_LIMIT


_SHARED = ("category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints")
_KINDS = {
    "objects": ("bbox", "segmentation", "keypoints"),
    "captions": ("caption",),
    "segments": ("segments_info",),
}
"""Kinds of annotations, each with the keys that tell them."""
UNNAMED = "unnamed images"


class MergedIndex:
    """Several `CocoIndex`es, with the attributes and methods of one. Annotations of panoptic files are left
    to `segments_at`.

    Args:
        indices: indices of the files, in order.
        folders: folder of the images of each file.

    Raises:
        PackError: a category id has two names, or keypoints of two numbers or names.
    """

    def __init__(self, indices: Sequence[CocoIndex], folders: Sequence[str]) -> None:
        self._indices = indices
        self.path = ", ".join(index.path for index in indices)
        self._panoptic = {number for number, index in enumerate(indices) if index.is_panoptic}
        self.keys = sum((index.keys for index in indices if not index.is_panoptic), Counter[str]())
        self.categories = merged_categories(indices)
        self.images: list[CocoImage] = []
        self.paths: list[str] = []
        self._places: list[dict[int, int]] = []  # for each image, its position in each file that has it
        self._merge_images(folders)

    def _merge_images(self, folders: Sequence[str]) -> None:
        position: dict[int, int] = {}
        of_path: dict[str, int] = {}
        for number, (index, folder) in enumerate(zip(self._indices, folders, strict=True)):
            # Ids of this file: one that is there twice is two samples, each with its error.
            own: set[int] = set()
            for place, image in enumerate(index.images):
                path = os.path.normpath(os.path.join(folder, image.file)) if image.file else ""
                at = position.get(image.id, -1) if image.file and image.id not in own else -1
                own.add(image.id)
                if at < 0:
                    at = position[image.id] = len(self.images)
                    self.images.append(replace(image))
                    self.paths.append(path)
                    self._places.append({number: place})
                    self._refuse_other_id(of_path.setdefault(path, at), at, number)
                    continue
                self._places[at][number] = place
                self._merge_image(at, number, image, path)

    def _refuse_other_id(self, first: int, at: int, number: int) -> None:
        """Marks an image, and the first one of the same path, if that is of another file and id: parts in
        folders of their own, perhaps."""
        one, other = self.images[first], self.images[at]
        if one.id == other.id or not other.file or number in self._places[first]:
            return
        ids = f"{other.id} in {self._indices[number].path} and {one.id} in {self.file_of(first)}"
        wrong = (
            f"{self.paths[at]!r} has the image id {ids}; where parts have the same file names, give the "
            "folder above theirs as the source"
        )
        one.wrong, other.wrong = one.wrong or wrong, other.wrong or wrong

    def _merge_image(self, at: int, number: int, image: CocoImage, path: str) -> None:
        """Adds what a further file says of an image."""
        known, first = self.images[at], self._indices[min(self._places[at])].path
        here = f"in {self._indices[number].path}, and in {first}"
        if path != self.paths[at]:
            known.wrong = known.wrong or (
                f"the image id {image.id} is {path!r} {here} {self.paths[at]!r}; images of several "
                "files are one by id"
            )
        elif all(size for size in (known.height, known.width, image.height, image.width)) and (
            (image.height, image.width) != (known.height, known.width)
        ):
            sizes = (f"{one.width} x {one.height}" for one in (image, known))
            known.wrong = (
                known.wrong or f"the image id {image.id} has {next(sizes)} pixels {here} {next(sizes)}"
            )
        known.height, known.width = known.height or image.height, known.width or image.width
        known.wrong = known.wrong or image.wrong

    def notices(self) -> tuple[Notice, ...]:
        """Images that no file with annotations of one kind names, where other files do: maybe files of
        different parts were given."""
        found = []
        for kind, keys in _KINDS.items():
            files = [
                number for number, index in enumerate(self._indices) if any(index.keys[key] for key in keys)
            ]
            without = [
                self.paths[at]
                for at, places in enumerate(self._places)
                if files and not places.keys() & set(files)
            ]
            if without:
                names = ", ".join(os.path.basename(self._indices[number].path) for number in files)
                found.append(
                    Notice(
                        f"{UNNAMED}: {kind}",
                        f"images that {names} (their {kind}) do not name",
                        len(without),
                        tuple(without[:EXAMPLES]),
                    )
                )
        return tuple(found)

    def file_of(self, position: int) -> str:
        """The first file that has an image, for messages."""
        return self._indices[min(self._places[position])].path

    def annotations(self, position: int) -> list[tuple[str, dict[str, Any]]]:
        """The annotations of an image in all files; see `CocoIndex.annotations`. Raises PackError also if
        files contradict each other."""
        if self.images[position].wrong:
            raise PackError(
                f"{self.file_of(position)}: {self.images[position].wrong}; correct the file, or pack "
                "with on_error='skip'"
            )
        found: list[tuple[str, dict[str, Any]]] = []
        objects: dict[int, int] = {}
        for number, place in self._places[position].items():
            if number in self._panoptic:
                continue
            seen = dict(objects)
            for what, entry in self._indices[number].annotations(place):
                own = entry.get("id") if "caption" not in entry else None
                if not isinstance(own, int) or own not in seen:
                    if isinstance(own, int):
                        objects[own] = len(found)
                    found.append((what, entry))
                    continue
                first, known = found[seen[own]]
                found[seen[own]] = first, _merged(first, known, what, entry)
        return found

    def segments_at(self, position: int) -> tuple[int, int] | None:
        """The number of the panoptic file that has an image, and its position there; None if none has it.

        Raises:
            PackError: several have it.
        """
        found = [
            (number, place) for number, place in self._places[position].items() if number in self._panoptic
        ]
        if len(found) > 1:
            files = " and ".join(self._indices[number].path for number, _ in found)
            raise PackError(
                f"{files}: both have the image {self.images[position].id}; an image has segments of one file"
            )
        return found[0] if found else None

    def time(self) -> int:
        """Time of the last change of any of the files, in nanoseconds. Raises OSError."""
        return max(index.time() for index in self._indices)


def merged_categories(indices: Sequence[CocoIndex]) -> dict[int, Category]:
    """The categories of several files by their ids, in ascending order.

    Raises:
        PackError: an id has two names, or keypoints of two numbers or names.
    """
    found: dict[int, tuple[Category, str]] = {}
    for index in indices:
        for own, category in index.categories.items():
            known, path = found.get(own, (category, index.path))
            if known.name != category.name:
                raise PackError(
                    f"{index.path}: the category id {own} is {category.name!r}, and {known.name!r} "
                    f"in {path}; pack them apart"
                )
            if known.keypoints and category.keypoints and known.keypoints != category.keypoints:
                raise PackError(
                    f"{index.path}: the category {category.name!r} has {category.keypoints} "
                    f"keypoints, and {known.keypoints} in {path}; "
                    "pack them apart"
                )
            if known.points and category.points and known.points != category.points:
                raise PackError(
                    f"{index.path}: the keypoints of the category {category.name!r} are others than "
                    f"in {path}; pack them apart"
                )
            found[own] = (known, path) if known.keypoints else (category, index.path)
    return {own: category for own, (category, _) in sorted(found.items())}


def _merged(first: str, known: dict[str, Any], what: str, entry: dict[str, Any]) -> dict[str, Any]:
    """One annotation of two. Raises PackError where they contradict each other."""
    for key in _SHARED:
        if _says(known.get(key)) and _says(entry.get(key)) and known[key] != entry[key]:
            raise PackError(
                f"{what}: its {key} is another one than that of {first}; annotations of one image "
                "and one id are one object"
            )
    return {
        **entry,
        **{key: value for key, value in known.items() if _says(value) or not _says(entry.get(key))},
    }


def _says(value: object) -> bool:
    """Returns True if a value of an annotation says something: an empty list does not."""
    return value is not None and value != [] and value != {}
