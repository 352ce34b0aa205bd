"""COCO's layout as `unpack` writes it: images in a folder, and one JSON file of boxes, instances, keypoints and captions.

NOTE [ unpack: coco ]
The file is written in one pass: annotations first, as samples come, then images and categories. Ids of annotations are numbered from 1. The
id of a category is that of the field `category_id`, else its label + 1. A label that no object has gets an id between those of its
neighbours, so that labels, which follow the order of the ids, are the same when the file is packed again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.field_json import as_json, decimals, finite
from fastload.packing.sample_files import SampleFiles, StoredSample
from fastload.packing.sources.annotated import BOXES, LABELS, rows
from fastload.packing.sources.coco import CATEGORY_ID
from fastload.packing.unpack_folder import UnpackFolder
from fastload.store import COUNT_COLUMN, DatasetReader, Field

_IMAGE_ID, _AREA, _CROWD, _CAPTIONS = "image_id", "area", "iscrowd", "captions"
_OWN = ("id", "file_name", "width", "height", "bbox", "segmentation", "num_keypoints", "caption", "license")
_OF_OBJECTS = (LABELS, CATEGORY_ID, _AREA, _CROWD)
_LABEL_MOST = 1 << 20
"""Limit on a label, as each up to the largest one is a category of the file."""
_ONLY_CATEGORY: dict[str, Any] = {"id": 1, "name": "object"}
"""The category of objects that have keypoints and no label: a category names the points."""
_UPRIGHT = ("xyxy", "xywh", "cxcywh")


def exact(reader: DatasetReader) -> bool:
    """Whether a dataset's fields are those that packing COCO gives, so that all come back when the layout is packed again."""
    schema, names = reader.schema, {field.name for field in reader.schema}
    points = next((field.shape for field in schema if field.kind == "keypoints"), ())
    of = BOXES if BOXES in names else ""
    known = (
        Field(_IMAGE_ID, "int"),
        Field(BOXES, "boxes", format="xywh"),
        *(rows(name, dtype, of) for name, dtype in ((LABELS, "int64"), (CATEGORY_ID, "int64"), (_AREA, "float32"), (_CROWD, "int64"))),
        Field("instances", "instances", of=of),
        *([Field("keypoints", "keypoints", shape=points, of=of)] if points[1:] == (3,) else []),
        Field(_CAPTIONS, "json"),
    )
    if schema.image != schema.fields[0] or not schema.image.is_rgb or schema.fields[1:] != tuple(f for f in known if f.name in names):
        return False
    if not {_IMAGE_ID} < names or (LABELS in names) != (reader.manifest.classes is not None) or (_AREA in names) != bool(of):
        return False
    objects = [reader.column(f"{COUNT_COLUMN}:{field.name}") for field in schema if field.is_varying]
    return _unique(reader.column(_IMAGE_ID)) is not None and all(bool(counts.any()) for counts in objects)


class CocoLayout:
    """images/00000012.jpg, and annotations/instances.json. See NOTE [ unpack: coco ].

    Boxes of any upright format become [x, y, width, height]. Numbers for each object, and other values of a sample, are further keys of its
    annotation, or of its image.
    """

    folders = 0

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder
        self._fields = {field.name: field for field in samples.others}
        by_kind = {field.kind: field for field in samples.others}
        self._boxes, self._points = by_kind.get("boxes"), by_kind.get("keypoints")
        self._outline = by_kind.get("instances") or by_kind.get("polygons")
        self._captions = next((field for field in samples.others if field.name == _CAPTIONS and field.kind == "json"), None)
        taken = [self._boxes, self._points, self._outline, self._captions]
        rest = [field for field in samples.others if field not in taken]
        self._of_objects = [field for field in rest if self._is_of_objects(field)]
        self._of_images = [field for field in rest if field not in self._of_objects and field.name != _IMAGE_ID]
        self._is_labelled = any(field.name == LABELS for field in self._of_objects)
        self._image_ids = _unique(samples.reader.column(_IMAGE_ID)) if _IMAGE_ID in samples.reader.schema.own_columns else None
        self._images: list[str] = []
        self._ids: dict[int, int] = {}
        self._count = 0
        self._file: IO[str] | None = None

    def _is_of_objects(self, field: Field) -> bool:
        """Whether a field has one row for each annotation."""
        if self._boxes is not None:
            return field.of == self._boxes.name
        return self._outline is not None and field.kind == "array" and field.name in _OF_OBJECTS

    @staticmethod
    def missing(image: Field, others: Sequence[Field]) -> list[str]:
        """Fields that the layout has no place for, and what it needs and the dataset lacks."""
        seen: set[str] = set()
        left = [] if image.is_rgb else [f"images of {image}"]
        for field in others:
            kind = "instances" if field.kind == "polygons" else field.kind
            fits = kind not in ("image", "mask", "bytes") and field.name not in _OWN
            fits &= kind != "boxes" or field.format in _UPRIGHT
            fits &= kind != "keypoints" or field.shape[1:] == (3,)
            fits &= _is_of_its_name(field)
            if not fits or (kind in ("boxes", "keypoints", "instances") and kind in seen):
                left.append(f"the field {field.name!r} ({field})")
            seen.add(kind)
        return [
            *left,
            *([] if seen & {"boxes", "instances"} or _CAPTIONS in {field.name for field in others} else ["images without objects"]),
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
        image |= {field.name: finite(as_json(field, sample.values[field.name])) for field in self._of_images}
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
            columns["segmentation"] = as_json(self._outline, sample.values[self._outline.name])
        if self._points is not None:
            points = sample.values[self._points.name]
            columns["keypoints"] = decimals(points.reshape(len(points), points[0].size if len(points) else 0))
            columns["num_keypoints"] = (points[:, :, 2] > 0).sum(1).tolist()
        for field in self._of_objects:
            columns[field.name] = finite(as_json(field, sample.values[field.name]))
        if self._is_labelled and CATEGORY_ID not in columns:
            columns[CATEGORY_ID] = [label + 1 for label in columns[LABELS]]
        elif self._points is not None and CATEGORY_ID not in columns:
            columns[CATEGORY_ID] = [_ONLY_CATEGORY["id"]] * len(columns["keypoints"])
        count = len(next(iter(columns.values()), []))
        if other := next((key for key, values in columns.items() if len(values) != count), None):
            numbers = f"{len(columns[other])} of {other} and {count} of {next(iter(columns))}"
            raise PackError(
                f"sample {sample.index}: it has {numbers}, of which COCO's form has one for each object; choose the layout folders"
            )
        found = [{"image_id": own} | {key: values[row] for key, values in columns.items()} for row in range(count)]
        captions = [] if self._captions is None else json.loads(sample.values[_CAPTIONS])
        if not isinstance(captions, list) or not all(isinstance(text, str) for text in captions):
            raise PackError(f"sample {sample.index}: its {_CAPTIONS!r} is no list of texts, as COCO has captions; choose another layout")
        return [*found, *({"image_id": own, "caption": text} for text in captions)]

    def add(self, entry: tuple[int, str, list[dict[str, Any]]]) -> None:
        assert self._file is not None
        index, image, annotations = entry
        self._images.append(image)
        for each in annotations:
            label = each.pop(LABELS, None) if self._is_labelled else None
            if label is not None and label > _LABEL_MOST:
                raise PackError(f"sample {index}: the label {label} is larger than {_LABEL_MOST:,}; choose the layout folders")
            if label is not None and (label < 0 or self._ids.setdefault(label, each[CATEGORY_ID]) != each[CATEGORY_ID]):
                ids = f"the label {label} has the category ids {self._ids.get(label, '')} and {each[CATEGORY_ID]}"
                raise PackError(f"sample {index}: {ids}, which COCO's form cannot hold; choose the layout folders")
            self._count += 1
            self._file.write(f"{',' if self._count > 1 else ''}\n" + json.dumps({"id": self._count, **each}))

    def close(self) -> None:
        assert self._file is not None
        self._file.write('\n],\n"images": [\n' + ",\n".join(self._images) + "\n]")
        if self._is_labelled or self._points is not None:
            self._file.write(',\n"categories": [\n' + ",\n".join(json.dumps(each) for each in self._categories()) + "\n]")
        self._file.write("}\n")
        self._file.close()

    def _categories(self) -> list[dict[str, Any]]:
        classes = self._samples.reader.manifest.classes
        most = max([*self._ids, -1 if classes is None else len(classes) - 1], default=-1)
        names = [classes[label] if classes is not None and label < len(classes) else str(label) for label in range(most + 1)]
        points = {} if self._points is None else {"keypoints": _point_names(self._points)}
        if not self._is_labelled:
            return [_ONLY_CATEGORY | points]
        return [{"id": own, "name": name, **points} for own, name in zip(self._category_ids(most + 1), names, strict=True)]

    def _category_ids(self, count: int) -> list[int]:
        """The id of each label, ascending: those of objects are known, and others lie between. Raises PackError if they do not ascend."""
        found: list[int] = []
        for label in range(count):
            least = found[-1] + 1 if found else min([1, *(own - at for at, own in self._ids.items())])
            found.append(self._ids.get(label, least))
            if found[-1] < least:
                raise PackError(f"the category ids {found} of labels 0, 1, ... do not ascend, as in COCO's form; choose the layout folders")
        return found

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()


def _point_names(field: Field) -> list[str]:
    """Names of a field's keypoints: its own, or numbers, where those of a pair say left and right, so that packing them again finds it."""
    names = [str(number) for number in range(field.shape[0] or 0)]
    for left, right in field.pairs:
        names[left], names[right] = f"left_{left}_{right}", f"right_{left}_{right}"
    return list(field.names) or names


def _is_of_its_name(field: Field) -> bool:
    """Whether a field whose name is a key of COCO's is what COCO has under it."""
    if field.name in (LABELS, CATEGORY_ID) and field.is_varying:
        return field.kind == "array" and field.shape == (None,) and np.dtype(field.dtype).kind in "iu"
    return field.kind == {_IMAGE_ID: "int", "keypoints": "keypoints"}.get(field.name, field.kind)


def _unique(ids: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Ids of images, if all differ and none is negative."""
    return ids if ids.ndim == 1 and ids.dtype.kind == "i" and ids.min(initial=0) >= 0 and len(np.unique(ids)) == len(ids) else None


def _xywh(boxes: npt.NDArray[Any], form: str) -> list[list[Any]]:
    """Upright boxes as [x, y, width, height], in double precision."""
    found = np.array(decimals(boxes), np.float64 if form == "cxcywh" else None).reshape(-1, 4)
    if form == "xyxy":
        found[:, 2:] -= found[:, :2]
    elif form == "cxcywh":
        found[:, :2] -= found[:, 2:] / 2
    return found.tolist()
