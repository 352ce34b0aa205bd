"""Layers over an image: boxes, points, outlines, masks and instances in its pixels, as a page draws them.

A layer is a JSON object: `name` and `kind` of the field, `count` of its objects, and by `form` what is drawn:

| form | content |
|---|---|
| "shapes" | `shapes`: of each object a list of closed lines, each [[x, y], ...]; `texts`: its label, or "" |
| "points" | `points`: of each object [[x, y, visibility], ...]; `names` of the points, or [] |
| "picture" | `picture`: the path of a transparent PNG |

An object has the colour of its number in all layers of its boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.dataset.drawing import COLOURS, OBJECTS_MOST, box_corners, colour_of
from fastload.store import Field
from fastload.store.labels import labels_of
from fastload.view.subject import Subject

_ORDER = ("picture", "shapes", "points")
"""Forms from the lowest layer to the highest."""
POINTS_MOST = 20_000
"""Points of one layer of outlines or keypoints."""


def layers_of(
    subject: Subject, values: Mapping[str, Any], picture: Callable[[str], str], box_format: str = ""
) -> list[dict[str, Any]]:
    """Layers of a sample.

    Args:
        subject: the dataset.
        values: values of fields by name, as the dataset delivers them; those of masks and instances are not
            looked at.
        picture: gives the path of the transparent PNG of a mask or of instances, by the name of its field.
        box_format: format of all boxes; "": as their fields have it.
    """
    found = []
    for field in subject.dataset.opened.reader.schema:
        if field.name not in values or field.handler.is_image:
            continue
        if field.handler.is_as_large:
            found.append(_layer(field, None, form="picture", picture=picture(field.name)))
        elif field.handler.owns_objects:
            shapes = [
                [corners]
                for corners in _numbers(
                    box_corners(_array(values[field.name])[:OBJECTS_MOST], box_format or field.format)
                )
            ]
            found.append(
                _layer(
                    field,
                    values[field.name],
                    form="shapes",
                    shapes=shapes,
                    texts=_texts(subject, field, values),
                )
            )
        elif field.handler.has_points:
            points = _numbers(_few(_array(values[field.name])))
            found.append(
                _layer(field, values[field.name], form="points", points=points, names=list(field.names))
            )
        elif field.handler.is_ragged and field.handler.follows_image:
            found.append(
                _layer(
                    field, values[field.name], form="shapes", shapes=_outlines(values[field.name]), texts=[]
                )
            )
    return sorted(found, key=lambda layer: _ORDER.index(layer["form"]))


def is_marked(field: Field) -> bool:
    """Returns True if a field lies in the image, so that it is drawn over it."""
    return field.handler.follows_image and not field.handler.is_image


def colours() -> list[str]:
    """Colours of objects by number, as CSS has them."""
    return ["#{:02x}{:02x}{:02x}".format(*colour_of(number)) for number in range(1, COLOURS + 1)]


def _layer(field: Field, value: Sized | None, **content: object) -> dict[str, Any]:
    return {
        "name": field.name,
        "kind": field.kind,
        "of": field.of,
        "count": None if value is None else len(value),
        **content,
    }


def _texts(subject: Subject, boxes: Field, values: Mapping[str, Any]) -> list[str]:
    labels = labels_of(subject.dataset.opened.reader.schema, boxes.name)
    if labels is None or labels.name not in values:
        return []
    return [subject.label_text(int(each)) for each in values[labels.name][:OBJECTS_MOST]]


def _array(value: npt.ArrayLike | torch.Tensor) -> npt.NDArray[np.float64]:
    return torch.as_tensor(value).as_subclass(torch.Tensor).double().numpy()


def _few(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Points (number, K, ...) of the first objects."""
    return points[: min(OBJECTS_MOST, max(1, POINTS_MOST // max(1, points.shape[1])))]


def _outlines(objects: Sequence[Sequence[torch.Tensor]]) -> list[list[Any]]:
    left, out = POINTS_MOST, []
    for parts in objects[:OBJECTS_MOST]:
        lines = [_array(part).reshape(-1, 2) for part in parts]
        left -= sum(map(len, lines))
        out.append([_numbers(line) for line in lines] if left >= 0 else [])
    return out


def _numbers(array: npt.NDArray[np.float64]) -> list[Any]:
    """Nested lists, of two decimals: no screen shows more."""
    out: list[Any] = np.round(np.clip(np.nan_to_num(array), -1e7, 1e7), 2).tolist()
    return out
