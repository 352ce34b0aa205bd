"""AnnotatedFiles: base of sources of images in files of their own, whose other values lie in files beside
them; label maps; and splits.

A label map is a picture whose pixels are numbers of classes or objects. It is read as the numbers that the
file has, not as colours. Splits are the parts of a dataset of which a pack takes one, each with its folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import read_regular
from fastload.common.folders import is_folder
from fastload.common.limits import checked_max_pixels
from fastload.errors import FastloadError, PackError, SampleError
from fastload.sources.notices import Notice
from fastload.sources.pixels import MissingLibrary, opened_image
from fastload.sources.protocol import FIRST_TRIES, DrawnOn, ImageFiles, Item, Place, Value, file_stamp
from fastload.store import BOX_SIDES, Field
from fastload.store.labels import LABELS

if TYPE_CHECKING:
    from PIL import Image

MASK_EXTENSIONS = (".png", ".tif", ".tiff", ".bmp", ".gif", ".pgm", ".webp")
"""Files that may hold labels: of formats that can be lossless."""

LabelMap = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

_LOSSY = ("JPEG", "AVIF", "HEIF", "JPEG2000", "JXL")
_SPREAD = {"L;2": 85, "L;4": 17}
"""Factor by which Pillow multiplies grey values of 2 and 4 bits, to spread them over 8."""


def read_label_map(data: bytes) -> LabelMap:
    """The labels (height, width) in a picture's file: the indices of one with a palette, the values of a grey
    one.

    Raises:
        MissingLibrary: Pillow is not installed.
        SampleError: it is no picture, is one of colours, of a lossy format, or has values beyond 16 bits. The
            message is the reason alone.
    """
    with opened_image(data) as image:
        if image.width * image.height > checked_max_pixels(None):
            raise _refused(
                f"{image.width} x {image.height} pixels are more than the limit (FASTLOAD_MAX_PIXELS)"
            )
        if image.format in _LOSSY:
            raise _refused(
                f"a {image.format}, which changes labels when it is compressed; convert it to PNG "
                "from what it was made of"
            )
        if image.mode not in ("P", "L", "1") and not image.mode.startswith("I"):
            raise _refused(
                f"a picture of colours ({image.mode}), where a mask has one number for each pixel: "
                "convert it to grey or palette labels"
            )
        spread = next((_SPREAD[raw] for raw in _raw_modes(image) if raw in _SPREAD), 1)
        pixels: npt.NDArray[Any] = np.array(image)
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8)
    if pixels.dtype == np.uint8:
        return pixels // np.uint8(spread) if spread > 1 else pixels
    if pixels.min(initial=0) < 0 or pixels.max(initial=0) > 65535:
        raise _refused("it has labels outside 0 to 65535")
    return pixels.astype(np.uint16)


def label_map_of(path: str, owner: str, dtype: str) -> LabelMap:
    """The labels in a file, as uint8 or uint16. Raises PackError, which names the file and its sample, or
    MissingLibrary."""
    try:
        data = read_regular(path)
    except OSError as error:
        raise PackError(f"{owner}: its mask {path} cannot be read: {error.strerror or error}") from error
    return label_map_in(data, f"{owner}: its mask {path}", dtype)


def label_map_in(data: bytes, what: str, dtype: str) -> LabelMap:
    """The labels in a file's bytes, as uint8 or uint16. Raises PackError, which begins with `what`, or
    MissingLibrary."""
    try:
        return fitted(read_label_map(data), dtype)
    except MissingLibrary:
        raise
    except SampleError as error:
        raise PackError(f"{what}: {error.reason or error}") from error


def fitted(labels: LabelMap, dtype: str) -> LabelMap:
    """Labels of a dtype. Raises SampleError if they are beyond it."""
    if labels.dtype == dtype:
        return labels
    if dtype == "uint8" and int(labels.max(initial=0)) > 255:
        raise _refused(f"it has the label {int(labels.max())}, where other masks have 8 bits")
    return labels.astype(np.uint8) if dtype == "uint8" else labels.astype(np.uint16)


def some_are_deep(paths: Sequence[str]) -> bool:
    """Returns True if one of some files, spread over all, has pixels of 16 bits, by its header; one that
    cannot be read is skipped."""
    there = [path for path in paths if path]
    for path in there[:: max(1, len(there) // FIRST_TRIES)]:
        try:
            if is_deep(read_regular(path)):
                return True
        except (FastloadError, OSError):  # noqa: PERF203
            continue  # the sample's own error, when it is packed
    return False


def is_deep(data: bytes) -> bool:
    """Returns True if a picture's file has grey pixels of more than 8 bits, by its header. Raises as
    `read_label_map` does."""
    if data[:2] == b"\xff\xd8":  # a JPEG
        return False
    with opened_image(data) as image:
        return image.mode.startswith("I")


def _raw_modes(image: Image.Image) -> list[str]:
    """Pillow's names of how the file has its pixels."""
    arguments = [entry[3] for entry in getattr(image, "tile", ())]
    return [
        raw
        for each in arguments
        for raw in (each if isinstance(each, tuple) else (each,))
        if isinstance(raw, str)
    ]


def _refused(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)


def chosen_split(title: str, splits: Iterable[str], wanted: str | None, where: str) -> str:
    """The split that the user named, or the only one.

    Raises:
        PackError: there is no such split, or there are several to choose from; the message names them.
    """
    known = sorted(splits)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted in known:
        return str(wanted)
    names = f"{', '.join(known[:20]) or 'none'} ({where})"
    if wanted is not None:
        raise PackError(f"{title}: there is no split {wanted!r}; there are: {names}")
    raise PackError(f"{title}: name one of its splits with --split (split= in Python): {names}")


def subfolders(folder: str) -> set[str]:
    """Names of the folders in a folder; empty if it is none."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if is_folder(entry)}
    except OSError:
        return set()


def files_in(folder: str, *endings: str) -> list[str]:
    """Sorted names of the files in a folder that end so, in any case; empty if it is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.name.lower().endswith(endings) and not is_folder(entry)
            )
    except OSError:
        return []


BOXES = "boxes"
MASK = "mask"
INSTANCE_MASK = "instance_mask"
"""Names of fields that mean the same in every layout: boxes, the class of each, a class for each pixel,
and the number of an object."""
MASK_NAMES = (MASK, "seg", "segmentation", "label_map", "annotation", INSTANCE_MASK)
"""Names by which a picture beside the image is taken for a mask, in tars, Parquet and Arrow files."""
VOID = 255
"""Label of a pixel that is of no class, in an 8-bit mask: what segmenters are told to ignore."""
LARGEST = 1e30
"""Limit on a coordinate or an area, far within float32."""


Values = tuple[dict[str, Value], tuple[str, ...]]
"""The fields of a sample, and what to call its objects in messages."""
NOT_SAID = DrawnOn()


_SIDES = re.compile(r"left|right|(?<![a-z])[lr](?![a-z])", re.IGNORECASE)
"""Words in names of keypoints that a mirror exchanges: left_eye, EyeLeft, l-shoulder, R_hip."""
_MIRRORED = {"left": "right", "right": "left", "l": "r", "r": "l"}


def mirrored_pairs(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Numbers of keypoints whose names differ in left and right alone."""
    places = {name: place for place, name in enumerate(names) if names.count(name) == 1}
    partners = {place: places.get(_SIDES.sub(_other_side, name), place) for name, place in places.items()}
    return tuple(
        (place, partner)
        for place, partner in partners.items()
        if place < partner and partners[partner] == place
    )


def _other_side(found: re.Match[str]) -> str:
    word = found.group()
    other = _MIRRORED[word.lower()]
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other


class AnnotatedFiles(ImageFiles):
    """Images in files of their own, and the files that their other values come from. A derived class says
    what these values are.

    Attributes:
        title: the folder or file that the user named.
        fields, classes, notices: as `Source` has them.
    """

    concurrent = True
    says_drawn_on = True
    classes: tuple[str, ...] | None = None
    fields: tuple[Field, ...] = ()
    notices: tuple[Notice, ...] = ()

    def __init__(self, title: str, images: Sequence[str]) -> None:
        """`images`: the path of each sample's image."""
        self.title = title
        self._images = images

    def values(self, position: int, image: bytes) -> Values:
        """The fields of a sample, of which `image` is the image's file."""
        raise NotImplementedError

    def drawn_on(self, position: int) -> DrawnOn:
        """The picture on which the values of a sample were drawn; by default no file says it."""
        return NOT_SAID

    @property
    def label_limits(self) -> dict[str, int]:
        """The number of classes of fields of labels, as `Source` has it."""
        names = {field.name for field in self.fields} & {LABELS, MASK}
        return dict.fromkeys(sorted(names), len(self.classes)) if self.classes is not None else {}

    def beside(self, position: int) -> Sequence[str]:
        """The files from which the values of a sample come; one that is not there is left out."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._images)

    def name(self, position: int) -> str:
        return self._images[position]

    def key(self, position: int) -> str:
        return os.path.relpath(self.name(position), self.title)

    def stamp(self, position: int) -> tuple[int, int]:
        stamps = [file_stamp(path) for path in (self._images[position], *self.beside(position))]
        return sum(size for size, _ in stamps), max(time for _, time in stamps)

    def fields_of(self, position: int) -> None:
        """Returns None: the fields are known only when the files beside the image are read."""

    def place(self, position: int) -> Place:
        path = self._images[position]
        return Place(path, 0, file_stamp(path)[0])

    def read(self, position: int) -> Item:
        image = self.read_file(self._images[position])
        values, objects = self.values(position, image)
        return Item(self.name(position), image, values, objects=objects, drawn_on=self.drawn_on(position))


def rows(name: str, dtype: str, boxes: str = "") -> Field:
    """The field of one number for each object: labels, areas, ..."""
    return Field(name, "array", dtype, (None,), of=boxes)


def numbers(value: object, count: int | None, what: str) -> npt.NDArray[np.float64]:
    """A list of finite numbers; `count` of them unless it is None.

    Raises:
        PackError: it is something else; the message begins with `what`.
    """
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise PackError(
            f"{what} is no list of {'numbers' if count is None else f'{count} numbers'}: {_brief(value)}"
        )
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise PackError(f"{what} has other values than numbers in it: {_brief(value)}")
    try:
        found = np.array(value, np.float64)
    except OverflowError:
        raise PackError(f"{what} has a number in it that is too large: {_brief(value)}") from None
    if not np.isfinite(found).all() or np.abs(found).max(initial=0.0) > LARGEST:
        raise PackError(f"{what} has a number in it that is NaN, infinite or too large: {_brief(value)}")
    return found


def whole_numbers(value: object, dtype: str, what: str) -> npt.NDArray[Any]:
    """A list of whole numbers, or of truth values where `dtype` is bool, as an array.

    Raises:
        PackError: it is something else, or a number is out of the range of `dtype`; the message begins with
            `what`.
    """
    kind = bool if dtype == "bool" else int
    if kind is int:
        numbers(value, None, what)
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise PackError(
            f"{what}: a number in it is not whole"
            if kind is int
            else f"{what} is no list of true and false: {_brief(value)}"
        )
    try:
        return np.array(value, dtype)
    except OverflowError:
        raise PackError(f"{what} has a number in it that {dtype} does not hold: {_brief(value)}") from None


def box_rows(value: Sequence[object], form: str, what: str) -> npt.NDArray[np.float32]:
    """Boxes of a format, each a list of numbers, as an array with a row a box.

    Raises:
        PackError: one is no such list, or its width or height is negative; the message begins with `what`,
            and names the box.
    """
    sides = BOX_SIDES[form]
    boxes = np.array(
        [numbers(box, sides, f"{what}, box {row} (from 0)") for row, box in enumerate(value)], np.float32
    ).reshape(-1, sides)
    wrong = _turned(boxes, form)
    if len(wrong):
        raise PackError(
            f"{what}, box {wrong[0]} (from 0): {boxes[wrong[0]].tolist()} has x2 < x1 or y2 < y1 ({form})"
        )
    return boxes


def _turned(boxes: npt.NDArray[np.float32], form: str) -> npt.NDArray[np.int64]:
    """The rows of boxes whose width or height is negative."""
    if form == "xyxyxyxy":
        return np.zeros(0, np.int64)
    sides = boxes[:, 2:4] - boxes[:, :2] if form == "xyxy" else boxes[:, 2:4]
    return np.flatnonzero((sides < 0).any(1))


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
