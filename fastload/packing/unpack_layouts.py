"""The layouts of files that `unpack` writes, but for COCO's: class folders with fields.jsonl, and two folders of images and masks.

NOTE [ unpack: names ]
Class names come from an untrusted manifest. So a safe folder name is made of each: without separators, control characters or "..", not
too long, and different from all others. So it is with the folders of further images and masks, which have their fields' names. Files are
written by UnpackFolder alone, which replaces none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any, Protocol

import numpy as np

from fastload.packing.field_json import as_json, as_line
from fastload.packing.sample_files import File, SampleFiles, StoredSample
from fastload.packing.sources.declaration import LABEL, declaration, is_label
from fastload.packing.sources.layouts import is_telling
from fastload.packing.sources.unpacked import FIELDS_NAME, SCHEMA_NAME, UNFINISHED
from fastload.packing.unpack_folder import UnpackFolder
from fastload.store import Field

_NAME_BYTES = 200
_RESERVED = '<>:"/\\|?*'


class UnpackLayout(Protocol):
    """What writes samples as files of one layout. `open` comes first, `close` last, after the last sample."""

    folders: int
    """Class folders."""

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
    """A file for each image, in class folders; further images and masks in a folder of their field's name; and other fields as JSON.

    Files are ``class/00000012.jpg``. Without an int field `label` they lie in the target itself. Unless the class folders alone give the
    dataset again, every value is in fields.jsonl, one line a sample, and fastload.json says which fields there are.
    """

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder
        schema = samples.reader.schema
        labelled = any(map(is_label, schema))
        used = {FIELDS_NAME.casefold(), SCHEMA_NAME.casefold(), UNFINISHED.casefold()}
        self._labels = samples.reader.column(LABEL) if labelled else None
        self._classes = self._name_classes(used)
        self.folders = len(self._classes)
        self._pictures = {
            field.name: _unused(safe_name(field.name.replace(".", "_")), used)
            for field in samples.others
            if field.kind in ("image", "mask")
        }
        self._is_plain = samples.image.is_rgb and len(samples.others) == 1 and self._are_in_order()
        self._key = "path"
        while any(field.name == self._key for field in schema):
            self._key += "_"
        self._lines: IO[str] | None = None

    def _name_classes(self, used: set[str]) -> dict[int, str]:
        """The folder name of each label that occurs."""
        if self._labels is None:
            return {}
        classes = self._samples.reader.manifest.classes
        present = [int(label) for label in np.unique(self._labels)]
        # Padded, so that folders sort like the labels, and packing them again gives the same numbers.
        digits = len(str(max(0, *present))) if present else 1
        folders: dict[int, str] = {}
        for label in present:
            named = classes is not None and 0 <= label < len(classes)
            name = safe_name(classes[label]) if named and classes is not None else f"{label:0{digits}d}"
            folders[label] = _unused(f"{name}-{label}" if name.casefold() in used else name, used)
        return folders

    def _are_in_order(self) -> bool:
        """Whether class folders, in the order of their names, are samples, labels and class names in the order of the dataset.

        They are not where `pack` would take their names for those of another layout.
        """
        classes = self._samples.reader.manifest.classes
        if self._labels is None or classes is None or list(self._classes) != list(range(len(classes))):
            return False
        if any(is_telling(name) for name in self._classes.values()):
            return False
        return list(self._classes.values()) == sorted(classes) and bool((self._labels[1:] >= self._labels[:-1]).all())

    def open(self) -> None:
        for name in (*self._classes.values(), *self._pictures.values()):
            self._folder.make(name)
        if not self._is_plain:
            self._lines = self._folder.open_text(FIELDS_NAME)

    def write(self, sample: StoredSample) -> tuple[int, str]:
        stem, image = self._samples.stem(sample.index), self._samples.image.name
        below = "" if self._labels is None else self._classes[int(self._labels[sample.index])]
        paths = {image: _path(below, stem, sample.files[image])}
        paths |= {name: _path(folder, stem, sample.files[name]) for name, folder in self._pictures.items()}
        for name, path in paths.items():
            self._folder.write(path, sample.files[name].content)
        size = sum(len(file.content) for file in sample.files.values())
        if self._is_plain:
            return size, ""
        values = {f.name: paths[f.name] if f.name in paths else as_json(f, sample.values[f.name]) for f in self._samples.others}
        return size, as_line({self._key: paths[image], **values}, sample.index, "export to .parquet") + "\n"

    def add(self, entry: str) -> None:
        if self._lines is not None:
            self._lines.write(entry)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            about = {"path": self._key, **declaration(self._samples.image, self._samples.others, self._samples.reader.manifest.classes)}
            self._folder.write(SCHEMA_NAME, json.dumps(about, indent=1).encode() + b"\n")

    def abort(self) -> None:
        if self._lines is not None:
            self._lines.close()


class Pairs:
    """images/00000012.jpg, and its mask masks/00000012.png."""

    folders = 0

    def __init__(self, samples: SampleFiles, folder: UnpackFolder) -> None:
        self._samples = samples
        self._folder = folder

    @staticmethod
    def missing(image: Field, others: Iterable[Field]) -> list[str]:
        """Fields that the layout has no place for, and what it needs and the dataset lacks."""
        masks = [field.name for field in others if field.kind == "mask"]
        left = [f"the field {field.name!r} ({field})" for field in others if field.name not in masks[:1]]
        return [*([] if image.is_rgb else [f"images of {image}"]), *left, *([] if masks else ["images without a mask"])]

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
    """A folder name made of any text, which every file system takes as a plain name. See NOTE [ unpack: names ]."""
    plain = "".join("_" if c in _RESERVED or not c.isprintable() else c for c in name).strip()
    encoded = plain.encode("utf-8", "replace")[:_NAME_BYTES]
    plain = encoded.decode("utf-8", "ignore").rstrip(" .")
    return plain if plain.strip(".") and plain not in (FIELDS_NAME, SCHEMA_NAME) else "_" + plain.replace(".", "_")
