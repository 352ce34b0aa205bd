"""Several annotation files of COCO's form as one: parts of a dataset, and instances, keypoints and captions of the same images.

NOTE [ coco: merged files ]
Images are one by their id, and must then be one file on the disk, which has no other id in another file. Annotations of objects are one
where they have the same id and are of the same image: COCO's person_keypoints has the objects of instances again, with keypoints. What both
have must be equal. Captions are never merged, for their ids are counted anew. Categories are one by their id, and must have one name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastload.errors import PackError
from fastload.packing.notices import EXAMPLES, Notice
from fastload.packing.sources.coco_index import Category, CocoImage, CocoIndex

_SHARED = ("category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints")
_KINDS = {"objects": ("bbox", "segmentation", "keypoints"), "captions": ("caption",), "segments": ("segments_info",)}
"""Kinds of annotations, each with the keys that tell them."""
UNNAMED = "unnamed images"


class MergedIndex:
    """Several `CocoIndex`es, with the attributes and methods of one. Annotations of panoptic files are left to `segments_at`.

    Args:
        indices: of the files, in order.
        folders: of the images of each file.

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
        self._places: list[dict[int, int]] = []  # of each image, its position in each file that has it
        self._merge_images(folders)

    def _merge_images(self, folders: Sequence[str]) -> None:
        position: dict[int, int] = {}
        of_path: dict[str, int] = {}
        for number, (index, folder) in enumerate(zip(self._indices, folders, strict=True)):
            own: set[int] = set()  # ids of this file: one that is there twice is two samples, each with its error
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
        """Marks an image, and the first one of the same path, if that is of another file and id: parts in folders of their own, perhaps."""
        one, other = self.images[first], self.images[at]
        if one.id == other.id or not other.file or number in self._places[first]:
            return
        ids = f"{other.id} in {self._indices[number].path} and {one.id} in {self.file_of(first)}"
        wrong = (
            f"{self.paths[at]!r} has the image id {ids}; where parts have the same file names, give the folder above theirs as the source"
        )
        one.wrong, other.wrong = one.wrong or wrong, other.wrong or wrong

    def _merge_image(self, at: int, number: int, image: CocoImage, path: str) -> None:
        """Adds what a further file says of an image."""
        known, first = self.images[at], self._indices[min(self._places[at])].path
        here = f"in {self._indices[number].path}, and in {first}"
        if path != self.paths[at]:
            known.wrong = (
                known.wrong or f"the image id {image.id} is {path!r} {here} {self.paths[at]!r}; images of several files are one by id"
            )
        elif all(size for size in (known.height, known.width, image.height, image.width)) and (
            (image.height, image.width) != (known.height, known.width)
        ):
            sizes = (f"{one.width} x {one.height}" for one in (image, known))
            known.wrong = known.wrong or f"the image id {image.id} has {next(sizes)} pixels {here} {next(sizes)}"
        known.height, known.width = known.height or image.height, known.width or image.width
        known.wrong = known.wrong or image.wrong

    def notices(self) -> tuple[Notice, ...]:
        """Images that no file with annotations of one kind names, where other files do: maybe files of different parts were given."""
        found = []
        for kind, keys in _KINDS.items():
            files = [number for number, index in enumerate(self._indices) if any(index.keys[key] for key in keys)]
            without = [self.paths[at] for at, places in enumerate(self._places) if files and not places.keys() & set(files)]
            if without:
                names = ", ".join(os.path.basename(self._indices[number].path) for number in files)
                found.append(
                    Notice(f"{UNNAMED}: {kind}", f"images that {names} (their {kind}) do not name", len(without), tuple(without[:EXAMPLES]))
                )
        return tuple(found)

    def file_of(self, position: int) -> str:
        """The first file that has an image, for messages."""
        return self._indices[min(self._places[position])].path

    def annotations(self, position: int) -> list[tuple[str, dict[str, Any]]]:
        """As `CocoIndex.annotations`, of all files. Raises PackError also where files contradict each other."""
        if self.images[position].wrong:
            raise PackError(f"{self.file_of(position)}: {self.images[position].wrong}; correct the file, or pack with on_error='skip'")
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
        found = [(number, place) for number, place in self._places[position].items() if number in self._panoptic]
        if len(found) > 1:
            files = " and ".join(self._indices[number].path for number, _ in found)
            raise PackError(f"{files}: both have the image {self.images[position].id}; an image has segments of one file")
        return found[0] if found else None

    def time(self) -> int:
        """When the last of the files was changed, in nanoseconds. Raises OSError."""
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
                raise PackError(f"{index.path}: the category id {own} is {category.name!r}, and {known.name!r} in {path}; pack them apart")
            if known.keypoints and category.keypoints and known.keypoints != category.keypoints:
                raise PackError(
                    f"{index.path}: the category {category.name!r} has {category.keypoints} keypoints, and {known.keypoints} in {path}; "
                    "pack them apart"
                )
            if known.points and category.points and known.points != category.points:
                raise PackError(f"{index.path}: the keypoints of the category {category.name!r} are others than in {path}; pack them apart")
            found[own] = (known, path) if known.keypoints else (category, index.path)
    return {own: category for own, (category, _) in sorted(found.items())}


def _merged(first: str, known: dict[str, Any], what: str, entry: dict[str, Any]) -> dict[str, Any]:
    """One annotation of two. Raises PackError where they contradict each other."""
    for key in _SHARED:
        if _says(known.get(key)) and _says(entry.get(key)) and known[key] != entry[key]:
            raise PackError(f"{what}: its {key} is another one than that of {first}; annotations of one image and one id are one object")
    return {**entry, **{key: value for key, value in known.items() if _says(value) or not _says(entry.get(key))}}


def _says(value: object) -> bool:
    """Whether a value of an annotation says something: an empty list is as none."""
    return value is not None and value != [] and value != {}
