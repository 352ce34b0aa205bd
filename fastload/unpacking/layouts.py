"""The layouts of files that `unpack` writes: class folders with fields.jsonl, two folders of images and
masks, and COCO's.

NOTE [ unpack: names ]
Class names come from an untrusted manifest. So a safe folder name is made of each: without separators,
control characters or "..", not too long, and different from all others. So it is with the folders of further
images and masks, which have their fields' names. Files are written by UnpackFolder alone, which replaces
none.

NOTE [ unpack: coco ]
The file is written in one pass: annotations first, as samples come, then images and categories. Ids of
annotations are numbered from 1. The id of a category is that of the field `category_id`, else its label + 1.
A label that no object has gets an id between those of its neighbours, so that labels, which follow the order
of the ids, are the same when the file is packed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.sources.annotated import BOXES, rows
from fastload.sources.coco import CATEGORY_ID
from fastload.sources.declaration import as_line, declaration, finite
from fastload.sources.layouts import is_telling
from fastload.sources.unpacked import FIELDS_NAME, SCHEMA_NAME, UNFINISHED
from fastload.store import COUNT_COLUMN, DatasetReader, Field
from fastload.store.kinds.base import decimals
from fastload.store.labels import LABEL, LABELS, is_label
from fastload.unpacking.folder import UnpackFolder
from fastload.unpacking.sample_files import File, SampleFiles, StoredSample

_IMAGE_ID, _AREA, _CROWD, _CAPTIONS = "image_id", "area", "iscrowd", "captions"
_OWN = ("id", "file_name", "width", "height", "bbox", "segmentation", "num_keypoints", "caption", "license")
_OF_OBJECTS = (LABELS, CATEGORY_ID, _AREA, _CROWD)
_LABEL_MOST = 1 << 20
"""Limit on a label, as each up to the largest one is a category of the file."""
_ONLY_CATEGORY: dict[str, Any] = {"id": 1, "name": "object"}
"""The category of objects that have keypoints and no label: a category names the points."""


def exact(reader: DatasetReader) -> bool:
    """Returns True if packing COCO gives a dataset's fields, so that all come back when the layout is
    packed again."""
    schema, names = reader.schema, {field.name for field in reader.schema}
    points = next((field.shape for field in schema if field.handler.has_points), ())
    boxes = BOXES if BOXES in names else ""
    known = (
        Field(_IMAGE_ID, "int"),
        Field(BOXES, "boxes", format="xywh"),
        *(
            rows(name, dtype, boxes)
            for name, dtype in (
                (LABELS, "int64"),
                (CATEGORY_ID, "int64"),
                (_AREA, "float32"),
                (_CROWD, "int64"),
            )
        ),
        Field("instances", "instances", of=boxes),
        *([Field("keypoints", "keypoints", shape=points, of=boxes)] if points[1:] == (3,) else []),
        Field(_CAPTIONS, "json"),
    )
    if (
        schema.image != schema.fields[0]
        or not schema.image.is_rgb
        or schema.fields[1:] != tuple(f for f in known if f.name in names)
    ):
        return False
    if (
        not {_IMAGE_ID} < names
        or (LABELS in names) != (reader.manifest.classes is not None)
        or (_AREA in names) != bool(boxes)
    ):
        return False
    objects = [reader.column(f"{COUNT_COLUMN}:{field.name}") for field in schema if field.is_varying]
    return _unique(reader.column(_IMAGE_ID)) is not None and all(bool(counts.any()) for counts in objects)


class CocoLayout:
    """images/00000012.jpg, and annotations/instances.json. See NOTE [ unpack: coco ].

    Boxes of any upright format become [x, y, width, height]. Numbers for each object, and other values of a
    sample, are further keys of its annotation, or of its image.
    """

    folders = 0
    renumbered = False

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder
        self._fields = {field.name: field for field in samples.others}
        parts = {field.handler.coco_part: field for field in samples.others}
        self._boxes, self._points, self._outline = (
            parts.get(part) for part in ("bbox", "keypoints", "segmentation")
        )
        self._captions = next((field for field in samples.others if field == Field(_CAPTIONS, "json")), None)
        taken = [self._boxes, self._points, self._outline, self._captions]
        rest = [field for field in samples.others if field not in taken]
        self._of_objects = [field for field in rest if self._is_of_objects(field)]
        self._of_images = [
            field for field in rest if field not in self._of_objects and field.name != _IMAGE_ID
        ]
        self._is_labelled = any(field.name == LABELS for field in self._of_objects)
        self._image_ids = (
            _unique(samples.reader.column(_IMAGE_ID))
            if _IMAGE_ID in samples.reader.schema.own_columns
            else None
        )
        self._images: list[str] = []
        self._ids: dict[int, int] = {}
        self._count = 0
        self._file: IO[str] | None = None

    def _is_of_objects(self, field: Field) -> bool:
        """Returns True if a field has one row for each annotation."""
        if self._boxes is not None:
            return field.of == self._boxes.name
        return self._outline is not None and field.handler.is_array and field.name in _OF_OBJECTS

    @staticmethod
    def missing(image: Field, others: Sequence[Field]) -> list[str]:
        """Fields that the layout has no place for, and what it needs and the dataset lacks."""
        seen: set[str] = set()
        left = [] if image.is_rgb else [f"images of {image}"]
        for field in others:
            part = field.handler.coco_part
            fits = field.handler.fits_coco(field) and field.name not in _OWN and _is_of_its_name(field)
            if not fits or (part and part in seen):
                left.append(f"the field {field.name!r} ({field})")
            seen.add(part)
        return [
            *left,
            *(
                []
                if seen & {"bbox", "segmentation"} or _CAPTIONS in {field.name for field in others}
                else ["images without objects"]
            ),
        ]

    def open(self) -> None:
        for name in ("images", "annotations"):
            self._folder.make(name)
        self._file = self._folder.open_text("annotations/instances.json")
        self._file.write('{"annotations": [')

    def write(self, sample: StoredSample) -> tuple[int, Any]:
        picture = sample.files[self._samples.image.name]
        name = f"{self._samples.stem(sample.index)}.{picture.extension}"
        self._folder.write(f"images/{name}", picture.content)
        sizes = [self._samples.reader.column(column) for column in ("__height__", "__width__")]
        height, width = (int(column[sample.index]) for column in sizes)
        own = sample.index if self._image_ids is None else int(self._image_ids[sample.index])
        image = {"id": own, "file_name": name, "height": height, "width": width}
        image |= {
            field.name: finite(field.handler.to_json(sample.values[field.name])) for field in self._of_images
        }
        return len(picture.content), (sample.index, json.dumps(image), self._annotations(sample, own))

    def _annotations(self, sample: StoredSample, own: int) -> list[dict[str, Any]]:
        """The annotations of a sample, without ids."""
        columns: dict[str, list[Any]] = {}
        if self._boxes is not None:
            boxes = sample.values[self._boxes.name]
            columns["bbox"] = _xywh(boxes, self._boxes.format)
            if _AREA not in self._fields:
                columns[_AREA] = [box[2] * box[3] for box in columns["bbox"]]
            if _CROWD not in self._fields:
                columns[_CROWD] = [0] * len(boxes)
        if self._outline is not None:
            columns["segmentation"] = self._outline.handler.to_json(sample.values[self._outline.name])
        if self._points is not None:
            points = sample.values[self._points.name]
            columns["keypoints"] = decimals(points.reshape(len(points), points[0].size if len(points) else 0))
            columns["num_keypoints"] = (points[:, :, 2] > 0).sum(1).tolist()
        for field in self._of_objects:
            columns[field.name] = finite(field.handler.to_json(sample.values[field.name]))
        if self._is_labelled and CATEGORY_ID not in columns:
            columns[CATEGORY_ID] = [label + 1 for label in columns[LABELS]]
        elif self._points is not None and CATEGORY_ID not in columns:
            columns[CATEGORY_ID] = [_ONLY_CATEGORY["id"]] * len(columns["keypoints"])
        count = len(next(iter(columns.values()), []))
        if other := next((key for key, values in columns.items() if len(values) != count), None):
            numbers = f"{len(columns[other])} of {other} and {count} of {next(iter(columns))}"
            raise PackError(
                f"sample {sample.index}: it has {numbers}, of which COCO's form has one for each "
                "object; choose the layout folders"
            )
        found = [
            {"image_id": own} | {key: values[row] for key, values in columns.items()} for row in range(count)
        ]
        captions = [] if self._captions is None else json.loads(sample.values[_CAPTIONS])
        if not isinstance(captions, list) or not all(isinstance(text, str) for text in captions):
            raise PackError(
                f"sample {sample.index}: its {_CAPTIONS!r} is no list of texts, as COCO has "
                "captions; choose another layout"
            )
        return [*found, *({"image_id": own, "caption": text} for text in captions)]

    def add(self, entry: tuple[int, str, list[dict[str, Any]]]) -> None:
        assert self._file is not None
        index, image, annotations = entry
        self._images.append(image)
        for each in annotations:
            label = each.pop(LABELS, None) if self._is_labelled else None
            if label is not None and label > _LABEL_MOST:
                raise PackError(
                    f"sample {index}: the label {label} is larger than {_LABEL_MOST:,}; choose the "
                    "layout folders"
                )
            if label is not None and (
                label < 0 or self._ids.setdefault(label, each[CATEGORY_ID]) != each[CATEGORY_ID]
            ):
                ids = (
                    f"the label {label} has the category ids {self._ids.get(label, '')} and "
                    f"{each[CATEGORY_ID]}"
                )
                raise PackError(
                    f"sample {index}: {ids}, which COCO's form cannot hold; choose the layout folders"
                )
            self._count += 1
            self._file.write(f"{',' if self._count > 1 else ''}\n" + json.dumps({"id": self._count, **each}))

    def close(self) -> None:
        assert self._file is not None
        self._file.write('\n],\n"images": [\n' + ",\n".join(self._images) + "\n]")
        if self._is_labelled or self._points is not None:
            self._file.write(
                ',\n"categories": [\n' + ",\n".join(json.dumps(each) for each in self._categories()) + "\n]"
            )
        self._file.write("}\n")
        self._file.close()

    def _categories(self) -> list[dict[str, Any]]:
        classes = self._samples.reader.manifest.classes
        most = max([*self._ids, -1 if classes is None else len(classes) - 1], default=-1)
        names = [
            classes[label] if classes is not None and label < len(classes) else str(label)
            for label in range(most + 1)
        ]
        points = {} if self._points is None else {"keypoints": _point_names(self._points)}
        if not self._is_labelled:
            return [_ONLY_CATEGORY | points]
        return [
            {"id": own, "name": name, **points}
            for own, name in zip(self._category_ids(most + 1), names, strict=True)
        ]

    def _category_ids(self, count: int) -> list[int]:
        """The id of each label, ascending: those of objects are known, and others lie between. Raises
        PackError if they do not ascend."""
        found: list[int] = []
        for label in range(count):
            least = found[-1] + 1 if found else min([1, *(own - at for at, own in self._ids.items())])
            found.append(self._ids.get(label, least))
            if found[-1] < least:
                raise PackError(
                    f"the category ids {found} of labels 0, 1, ... do not ascend, as in COCO's form; "
                    "choose the layout folders"
                )
        return found

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()


def _point_names(field: Field) -> list[str]:
    """Names of a field's keypoints: its own, or numbers, where those of a pair say left and right, so that
    packing them again finds it."""
    names = [str(number) for number in range(field.shape[0] or 0)]
    for left, right in field.pairs:
        names[left], names[right] = f"left_{left}_{right}", f"right_{left}_{right}"
    return list(field.names) or names


def _is_of_its_name(field: Field) -> bool:
    """Returns True if a field whose name is a key of COCO's holds what COCO has under it."""
    if field.name in (LABELS, CATEGORY_ID) and field.is_varying:
        return field.handler.is_array and field.shape == (None,) and np.dtype(field.dtype).kind in "iu"
    if field.name == _IMAGE_ID:
        return field == Field(_IMAGE_ID, "int")
    return field.name != "keypoints" or field.handler.has_points


def _unique(ids: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Ids of images, if all differ and none is negative."""
    if ids.ndim != 1 or ids.dtype.kind != "i" or ids.min(initial=0) < 0:
        return None
    return ids if len(np.unique(ids)) == len(ids) else None


def _xywh(boxes: npt.NDArray[Any], form: str) -> list[list[Any]]:
    """Upright boxes as [x, y, width, height], in double precision."""
    found = np.array(decimals(boxes), np.float64 if form == "cxcywh" else None).reshape(-1, 4)
    if form == "xyxy":
        found[:, 2:] -= found[:, :2]
    elif form == "cxcywh":
        found[:, :2] -= found[:, 2:] / 2
    return found.tolist()


_NAME_BYTES = 200
_RESERVED = '<>:"/\\|?*'


class UnpackLayout(Protocol):
    """Writer of samples as files of one layout. `open` comes first, `close` last, after the last sample."""

    folders: int
    """Class folders."""
    renumbered: bool
    """True if torchvision's ImageFolder gives their images other labels than the dataset's."""

    def open(self) -> None:
        """Makes folders and files."""

    def write(self, sample: StoredSample) -> tuple[int, Any]:
        """Writes a sample's pictures. Returns their bytes, and what `add` takes. Any thread may call it."""

    def add(self, entry: Any) -> None:
        """Adds what `write` returned, sample by sample in order."""

    def close(self) -> None:
        """Completes the files, so that `pack` takes the folder."""

    def abort(self) -> None:
        """Closes files that are incomplete."""


class ClassFolders:
    """A file for each image, in class folders; further images and masks in a folder of their field's name;
    and other fields as JSON.

    Files are ``class/00000012.jpg``. Without an int field `label` they lie in the target itself. Unless the
    class folders alone give the dataset again, every value is in fields.jsonl, one line a sample, and
    fastload.json says which fields there are.
    """

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder
        schema = samples.reader.schema
        labelled = any(map(is_label, schema))
        used = {FIELDS_NAME.casefold(), SCHEMA_NAME.casefold(), UNFINISHED.casefold()}
        self._labels = samples.reader.column(LABEL) if labelled else None
        self._classes = self._name_classes(used)
        self.folders, names = len(self._classes), list(self._classes.values())
        self.renumbered = list(self._classes) != list(range(self.folders)) or names != sorted(names)
        self._pictures = {
            field.name: _unused(safe_name(field.name.replace(".", "_")), used)
            for field in samples.others
            if field.handler.is_picture
        }
        has_form = samples.reader.manifest.form is not None
        self._list = _unused(samples.image.name, used) if samples.images is not None else ""
        self._is_plain = (
            samples.image.is_rgb and len(samples.others) == 1 and not has_form and self._are_in_order()
        )
        self._key = "path"
        while any(field.name == self._key for field in schema):
            self._key += "_"
        self._lines: IO[str] | None = None

    def _name_classes(self, used: set[str]) -> dict[int, str]:
        """The folder name of each class and of each label that occurs, ascending. torchvision numbers a class
        by its place among them, so that one without a sample has a folder too."""
        if self._labels is None:
            return {}
        classes = self._samples.reader.manifest.classes
        present = sorted({*map(int, np.unique(self._labels)), *range(len(classes or ()))})
        # Padded, so that folders sort like the labels, and packing them again gives the same numbers.
        digits = len(str(max(0, *present))) if present else 1
        folders: dict[int, str] = {}
        for label in present:
            named = classes is not None and 0 <= label < len(classes)
            name = safe_name(classes[label]) if named and classes is not None else f"{label:0{digits}d}"
            folders[label] = _unused(f"{name}-{label}" if name.casefold() in used else name, used)
        return folders

    def _are_in_order(self) -> bool:
        """Returns True if class folders, by the order of their names, keep the order of samples, labels and
        class names of the dataset.

        They do not if `pack` would take their names for those of another layout.
        """
        classes = self._samples.reader.manifest.classes
        if (
            self._labels is None
            or classes is None
            or len(np.unique(self._labels)) != len(classes)
            or self.renumbered
        ):
            return False
        if any(is_telling(name) for name in self._classes.values()):
            return False
        return list(self._classes.values()) == sorted(classes) and bool(
            (self._labels[1:] >= self._labels[:-1]).all()
        )

    def open(self) -> None:
        for name in (*self._classes.values(), *self._pictures.values(), self._list):
            if name:
                self._folder.make(name)
        if not self._is_plain:
            self._lines = self._folder.open_text(FIELDS_NAME)

    def write(self, sample: StoredSample) -> tuple[int, str]:
        stem, image = self._samples.stem(sample.index), self._samples.image.name
        below = "" if self._labels is None else self._classes[int(self._labels[sample.index])]
        listed = [_path(self._list, f"{stem}-{number}", file) for number, file in enumerate(sample.images)]
        for path, file in zip(listed, sample.images, strict=True):
            self._folder.write(path, file.content)
        paths = {} if self._list else {image: _path(below, stem, sample.files[image])}
        paths |= {name: _path(folder, stem, sample.files[name]) for name, folder in self._pictures.items()}
        for name, path in paths.items():
            self._folder.write(path, sample.files[name].content)
        size = sum(len(file.content) for file in sample.pictures)
        if self._is_plain:
            return size, ""
        values = {
            f.name: paths[f.name] if f.name in paths else f.handler.to_json(sample.values[f.name])
            for f in self._samples.others
        }
        first = listed if self._list else paths[image]
        return size, as_line({self._key: first, **values}, sample.index, "export to .parquet") + "\n"

    def add(self, entry: str) -> None:
        if self._lines is not None:
            self._lines.write(entry)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            about = {
                "path": self._key,
                **declaration(self._samples.image, self._samples.others, self._samples.reader.manifest),
            }
            self._folder.write(SCHEMA_NAME, json.dumps(about, indent=1).encode() + b"\n")

    def abort(self) -> None:
        if self._lines is not None:
            self._lines.close()


class Pairs:
    """images/00000012.jpg, and its mask masks/00000012.png."""

    folders = 0
    renumbered = False

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder

    @staticmethod
    def missing(image: Field, others: Iterable[Field]) -> list[str]:
        """Fields that the layout has no place for, and what it needs and the dataset lacks."""
        masks = [field.name for field in others if field.handler.holds_labels]
        left = [f"the field {field.name!r} ({field})" for field in others if field.name not in masks[:1]]
        return [
            *([] if image.is_rgb else [f"images of {image}"]),
            *left,
            *([] if masks else ["images without a mask"]),
        ]

    def open(self) -> None:
        for name in ("images", "masks"):
            self._folder.make(name)

    def write(self, sample: StoredSample) -> tuple[int, None]:
        stem = self._samples.stem(sample.index)
        (mask,) = (field.name for field in self._samples.others)
        for folder, name in (("images", self._samples.image.name), ("masks", mask)):
            self._folder.write(_path(folder, stem, sample.files[name]), sample.files[name].content)
        return sum(len(file.content) for file in sample.files.values()), None

    def add(self, entry: None) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def _path(folder: str, stem: str, file: File) -> str:
    """The path of a picture within the target."""
    return f"{folder}/{stem}.{file.extension}" if folder else f"{stem}.{file.extension}"


def _unused(name: str, used: set[str]) -> str:
    """A name that differs from all used ones, also where case does not matter; it is used from now on."""
    while name.casefold() in used:
        name += "_"
    used.add(name.casefold())
    return name


def safe_name(name: str) -> str:
    """A folder name made of any text, which every file system takes as a plain name. See NOTE [ unpack:
    names ]."""
    plain = "".join("_" if c in _RESERVED or not c.isprintable() else c for c in name).strip()
    encoded = plain.encode("utf-8", "replace")[:_NAME_BYTES]
    plain = encoded.decode("utf-8", "ignore").rstrip(" .")
    return (
        plain
        if plain.strip(".") and plain not in (FIELDS_NAME, SCHEMA_NAME)
        else "_" + plain.replace(".", "_")
    )
