"""YOLO's layout: images/ and labels/ with a .txt for each image, and a data.yaml that names the folders
and the classes."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.distribution import pip_install
from fastload.common.files import read_regular
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.limits import checked_max_pixels
from fastload.errors import PackError
from fastload.sources.annotated import (
    BOXES,
    AnnotatedFiles,
    Values,
    chosen_split,
    files_in,
    mirrored_pairs,
    rows,
    subfolders,
)
from fastload.sources.masked import by_stem
from fastload.sources.options import LayoutOptions
from fastload.sources.pixels import MissingLibrary, opened_image, orientation_of
from fastload.sources.protocol import FIRST_TRIES, DrawnOn, Value
from fastload.store import Field
from fastload.store.checked import shown
from fastload.store.field import is_point_name
from fastload.store.labels import LABELS

YAML_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
_TEXT_BYTES = 64 << 20
_SPLITS = ("train", "val", "valid", "test")
_UPRIGHT = DrawnOn(upright=True)


@dataclass(frozen=True, slots=True)
class YoloConfig:
    """Content of a data.yaml.

    Attributes:
        root: the folder to which its paths are relative.
        splits: for each split, the folders, lists or images that it names.
        classes: names of the labels; None: it has none.
        keypoints: (K, 2) or (K, 3); None: it has none.
        points: names of the keypoints; (): it has none.
        pairs: numbers of the keypoints that mirror each other.
    """

    root: str
    splits: dict[str, list[str]]
    classes: tuple[str, ...] | None
    keypoints: tuple[int, int] | None
    points: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


class YoloSource(AnnotatedFiles):
    """Boxes, outlines or keypoints in YOLO's label files. An image without one has no objects.

    The fields: `boxes` (cxcywh, float32, in pixels) and the `labels` of them; `polygons`, where lines are
    outlines (then a box is what encloses them); `keypoints`, where data.yaml has a kpt_shape.

    Raises:
        PackError: no image in it.
    """

    layout = "YOLO"

    def __init__(self, title: str, images: list[str], config: YoloConfig) -> None:
        super().__init__(title, images)
        if not images:
            raise PackError(f"{title}: no image in it")
        self._texts = [_label_file(image) for image in images]
        self.classes = config.classes
        self._keypoints = config.keypoints
        self._outlines = config.keypoints is None and self._has_outlines()
        fields = [Field(BOXES, "boxes", format="cxcywh"), rows(LABELS, "int64", BOXES)]
        if self._outlines:
            fields.append(Field("polygons", "polygons", of=BOXES))
        if self._keypoints is not None:
            fields.append(
                Field(
                    "keypoints",
                    "keypoints",
                    shape=self._keypoints,
                    of=BOXES,
                    names=config.points,
                    pairs=config.pairs,
                )
            )
        self.fields = tuple(fields)

    def _has_outlines(self) -> bool:
        """Returns True if one of some label files, spread over all, has more than a box in a line."""
        there = [path for path in self._texts if os.path.isfile(path)]
        if not there:
            raise PackError(
                f"{self.title}: none of its {len(self._images)} images has a label file; "
                f"{self._texts[0]} would be the first"
            )
        for path in there[:: max(1, len(there) // FIRST_TRIES)]:
            try:
                if any(len(cells) > 5 for _, cells in _lines(path)):
                    return True
            except (PackError, OSError):  # noqa: PERF203
                continue
        return False

    def beside(self, position: int) -> list[str]:
        return [path for path in (self._texts[position],) if os.path.exists(path)]

    def values(self, position: int, image: bytes) -> Values:
        path = self._texts[position]
        try:
            lines = _lines(path)
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise PackError(
                f"{self.name(position)}: its labels {path} cannot be read: {error.strerror or error}"
            ) from error
        size = np.array(image_size(image, self.name(position)) if lines else (1, 1), np.float64)
        boxes, labels, polygons = np.zeros((len(lines), 4)), np.zeros(len(lines), np.int64), []
        points = np.zeros((len(lines), *(self._keypoints or (0, 0))), np.float32)
        for row, (number, cells) in enumerate(lines):
            what = f"{path}, line {number}"
            labels[row], values = self._parsed(what, cells)
            if self._outlines:
                outline = values.reshape(-1, 2) * size
                low, high = outline.min(0), outline.max(0)
                boxes[row] = *((low + high) / 2), *(high - low)
                polygons.append([outline.reshape(-1).tolist()])
            else:
                boxes[row] = values[:4] * np.tile(size, 2)
            if self._keypoints is not None:
                points[row] = values[4:].reshape(self._keypoints)
                points[row, :, :2] *= size
        found: dict[str, Value] = {BOXES: boxes.astype(np.float32), LABELS: labels}
        found |= {"polygons": polygons} if self._outlines else {}
        found |= {"keypoints": points} if self._keypoints else {}
        return found, tuple(f"{path}, line {number}" for number, _ in lines)

    def drawn_on(self, position: int) -> DrawnOn:
        return _UPRIGHT

    def _parsed(self, what: str, cells: list[str]) -> tuple[int, npt.NDArray[np.float64]]:
        """The label of a line, and its numbers; checked."""
        try:
            label, values = float(cells[0]), np.array([float(cell) for cell in cells[1:]])
        except ValueError as error:
            raise PackError(f"{what}: {error}") from None
        if not 0 <= label < (len(self.classes) if self.classes else 2**31) or label != int(label):
            raise PackError(
                f"{what}: the class {cells[0]} is none of "
                f"{len(self.classes) if self.classes else 'the'} classes, from 0"
            )
        per_point = self._keypoints[1] if self._keypoints is not None else 2
        wanted = 4 + self._keypoints[0] * per_point if self._keypoints is not None else 4
        if (len(values) < 6 or len(values) % 2) if self._outlines else len(values) != wanted:
            need = "x and y of three points or more" if self._outlines else f"{wanted} numbers"
            raise PackError(f"{what}: {len(values)} numbers after the class, where the dataset has {need}")
        places = values if per_point == 2 else np.append(values[:4], values[4:].reshape(-1, 3)[:, :2])
        if not (np.isfinite(values).all() and (places >= 0).all() and (places <= 1).all()):
            raise PackError(
                f"{what}: a coordinate is outside 0 to 1; they are fractions of the image's width and height"
            )
        return int(label), values


def image_size(data: bytes, name: str) -> tuple[int, int]:
    """(width, height) of the upright picture in an image's file, by its header."""
    if data[:2] == b"\xff\xd8":
        header = core.jpeg_header(data, checked_max_pixels(None))
        size = header.width, header.height
    else:
        with opened_image(data) as image:
            size = image.size
    return size if orientation_of(data) < 5 else size[::-1]


def _lines(path: str) -> list[tuple[int, list[str]]]:
    """The numbers of the lines that are not blank, and the words of each."""
    try:
        text = read_regular(path, _TEXT_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise PackError(f"{path}: no text of numbers: {error.reason} at byte {error.start}") from error
    return [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _label_file(image: str) -> str:
    """The label file of an image: labels for the last folder called images, and .txt."""
    head, found, tail = image.rpartition(f"{os.sep}images{os.sep}")
    stem = os.path.splitext(os.path.join(head, "labels", tail) if found else image)[0]
    return f"{stem}.txt"


def yolo_source(path: str, options: LayoutOptions) -> YoloSource:
    """The images of a split that a data.yaml names, or of a folder with images and labels; `path` is the
    folder, or the data.yaml."""
    file = path
    if not os.path.isfile(path):
        names = [name for name in files_in(path, *YAML_NAMES) if name in YAML_NAMES]
        file = os.path.join(path, names[0]) if names else ""
    config = read_config(file) if file else _by_folders(path)
    split = chosen_split(
        path, config.splits, options.split, f"in {os.path.basename(file)}" if file else "folders of images"
    )
    images: list[str] = []
    for entry in config.splits[split]:
        images += _images(config.root, entry, file or path)
    return YoloSource(path, images, config)


def _by_folders(path: str) -> YoloConfig:
    """images/SPLIT and labels/SPLIT, SPLIT/images and SPLIT/labels, or images and labels alone."""
    below = subfolders(path)
    inner = [name for name in _SPLITS if {"images", "labels"} <= subfolders(os.path.join(path, name))]
    if inner:
        splits = {name: [os.path.join(name, "images")] for name in inner}
    elif {"images", "labels"} <= below:
        names = subfolders(os.path.join(path, "images"))
        splits = {name: [os.path.join("images", name)] for name in names} or {"images": ["images"]}
    else:
        raise PackError(
            f"{path}: neither a data.yaml nor folders images and labels in it, as YOLO's layout has"
        )
    return YoloConfig(path, splits, _listed_classes(path), None)


def _listed_classes(path: str) -> tuple[str, ...] | None:
    """Names of the classes in classes.txt, as labelling tools write it."""
    for file in (os.path.join(path, "classes.txt"), os.path.join(path, "labels", "classes.txt")):
        try:
            return (
                tuple(
                    line.strip()
                    for line in read_regular(file, 1 << 20).decode("utf-8").splitlines()
                    if line.strip()
                )
                or None
            )
        except (OSError, UnicodeDecodeError):  # noqa: PERF203
            continue
    return None


def read_config(file: str) -> YoloConfig:
    """Reads a data.yaml.

    Raises:
        PackError: it cannot be read, or is none.
        MissingLibrary: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingLibrary(f"reading {file} needs PyYAML: {pip_install('pack')}") from error
    try:
        found = yaml.safe_load(read_regular(file, 1 << 20))
    except OSError as error:
        raise PackError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PackError(f"{file}: no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(found, dict):
        raise PackError(f"{file}: no data.yaml: it has no keys train, val, names")
    top = found.get("path")
    root = os.path.dirname(os.path.abspath(file)) if os.path.isabs(file) else os.path.dirname(file)
    if isinstance(top, str) and os.path.isdir(os.path.join(root, top)):
        root = os.path.join(root, top)
    splits = {name: _texts(found[name]) for name in _SPLITS if found.get(name)}
    if not splits or not all(splits.values()):
        raise PackError(f"{file}: its keys {', '.join(_SPLITS)} name no folder of images")
    shape = _shape(file, found.get("kpt_shape"))
    points = _point_names(found.get("kpt_names"), 0 if shape is None else shape[0])
    pairs = None if shape is None else _pairs(file, found.get("flip_idx"), shape[0])
    pairs = mirrored_pairs(points) if pairs is None else pairs
    return YoloConfig(root, splits, _names(file, found.get("names")), shape, points, pairs)


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return (
        [each for each in values if isinstance(each, str) and each and "\0" not in each]
        if len(values) < 1 << 16
        else []
    )


def _names(file: str, value: object) -> tuple[str, ...] | None:
    if isinstance(value, dict):
        if sorted(value, key=str) != sorted(range(len(value)), key=str):
            raise PackError(f"{file}: its names are not numbered from 0 on")
        value = [value[number] for number in range(len(value))]
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str | int | float) for each in value):
        raise PackError(f"{file}: its names are no list of names")
    return tuple(map(str, value))


def _shape(file: str, value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if (
        not (isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value))
        or value[0] < 1
        or value[1] not in (2, 3)
    ):
        raise PackError(f"{file}: its kpt_shape {value!r} is not [number of keypoints, 2 or 3]")
    return value[0], value[1]


def _point_names(value: object, count: int) -> tuple[str, ...]:
    """Names of the keypoints, as data.yaml has them for each class; () where it has none, or classes have
    different ones."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    names = (
        tuple(lists[0])
        if lists and isinstance(lists[0], list) and all(each == lists[0] for each in lists)
        else ()
    )
    return names if len(names) == count and all(is_point_name(name) for name in names) else ()


def _pairs(file: str, value: object, count: int) -> tuple[tuple[int, int], ...] | None:
    """The pairs of a flip_idx, which has for each keypoint the number of the one in whose place it comes;
    None: there is none."""
    if value is None or value == []:
        return None
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(type(each) is int and 0 <= each < count for each in value)
        or any(value[value[each]] != each for each in range(count))
    ):
        raise PackError(
            f"{file}: its flip_idx {shown(value)} does not name for each of the {count} keypoints "
            "the one that mirrors it"
        )
    return tuple((place, other) for place, other in enumerate(value) if place < other)


def _images(root: str, entry: str, file: str) -> list[str]:
    """The images that an entry of a data.yaml means: those below a folder, or those that a .txt file
    lists."""
    # "../train/images", from a folder that is not there, as Roboflow writes.
    for each in (
        entry,
        entry.removeprefix("../"),
    ):
        path = os.path.normpath(os.path.join(root, each))
        if os.path.isdir(path):
            return list(by_stem(path, IMAGE_EXTENSIONS).values())
        if path.endswith(".txt") and os.path.isfile(path):
            lines = read_regular(path, _TEXT_BYTES).decode("utf-8", "surrogateescape").splitlines()
            return [
                os.path.normpath(os.path.join(os.path.dirname(path), line.strip()))
                for line in lines
                if line.strip()
            ]
    raise PackError(f"{file}: it names {entry}, and there is no such folder in {root or '.'}")
