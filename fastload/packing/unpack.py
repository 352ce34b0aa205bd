"""unpack: writes the images of a packed dataset back to files, one for each image, in class folders.

NOTE [ unpack: names ]
Class names come from an untrusted manifest. So a safe folder name is made of each: without separators, control characters or "..", not
too long, and different from all others. Every file is created by mode "x", in a folder that was empty.
"""

from __future__ import annotations

import base64
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import core
from fastload.errors import DatasetError, PackError, SampleError
from fastload.files import expanded
from fastload.packing.progress import Progress
from fastload.packing.verify import RAW_HEADER
from fastload.store import DatasetReader, Field, parse_stored
from fastload.system import available_cpus

FIELDS_NAME = "fields.jsonl"
_BLOCK = 64
_NAME_BYTES = 200
_RESERVED = '<>:"/\\|?*'


@dataclass(frozen=True, slots=True)
class UnpackSummary:
    """Result of `unpack`.

    Attributes:
        files: number of image files.
        bytes: size of these files.
        folders: number of class folders.
    """

    files: int
    bytes: int
    folders: int


def unpack(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, workers: int | None = None, progress: bool = False
) -> UnpackSummary:
    """Writes every image of a packed dataset as a file: JPEGs with their stored bytes, raw pixels as PNG (PPM without Pillow).

    Files are ``out/class/00000012.jpg``, numbered by index in the dataset; without an int field ``label`` they lie in `out`
    itself. Fields besides image and label go into ``out/fields.jsonl``, one line a sample: arrays as lists, bytes in base64.

    Args:
        path: the dataset's directory.
        out: a directory that does not exist, or is empty.
        workers: threads; the CPUs this process may use by default.
        progress: show a bar on the terminal.

    Raises:
        DatasetError: the dataset cannot be read.
        SampleError: a sample cannot be read.
        PackError: `out` is not empty, or the disk is full.
    """
    target = Path(expanded(out))
    with DatasetReader(path) as reader:
        job = _Job(reader, target)
        try:
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise PackError(f"{target} is not empty; choose a folder that is, or does not exist")
            return job.run(available_cpus() if workers is None else workers, progress)
        except (FileExistsError, NotADirectoryError) as error:
            raise PackError(f"{target}: {error.filename} is in the way; choose another folder") from error
        except OSError as error:
            if isinstance(error, DatasetError):
                raise
            raise PackError(f"{error.filename or target}: cannot be written: {error.strerror}") from error


class _Job:
    """The unpacking of one dataset."""

    def __init__(self, reader: DatasetReader, target: Path) -> None:
        self._reader = reader
        self._target = target
        fields = list(reader.schema)
        self._numbers = {field.name: number for number, field in enumerate(fields)}
        images = [field.name for field in fields if field.kind == "image"]
        if not images:
            raise DatasetError(f"{reader.path} has no image field, so there is nothing to unpack")
        self._image = images[0]
        refuse_spatial(reader, "unpacked")
        labelled = any(field.name == "label" and field.kind == "int" for field in fields)
        self._labels = reader.column("label") if labelled else None
        self._others = [f for f in fields if f.name != self._image and not (f.name == "label" and labelled)]
        self._folders = self._name_folders()
        self._digits = max(8, len(str(reader.count - 1)))

    def _name_folders(self) -> dict[int, str]:
        """The folder name of each label that occurs."""
        if self._labels is None:
            return {}
        classes = self._reader.manifest.classes
        present = [int(label) for label in np.unique(self._labels)]
        # Padded, so that folders sort like the labels, and packing them again gives the same numbers.
        digits = len(str(max(0, *present))) if present else 1
        folders: dict[int, str] = {}
        used: set[str] = set()
        for label in present:
            named = classes is not None and 0 <= label < len(classes)
            name = safe_name(classes[label]) if named and classes is not None else f"{label:0{digits}d}"
            if name.casefold() in used:
                name = f"{name}-{label}"
            while name.casefold() in used:
                name += "_"
            used.add(name.casefold())
            folders[label] = name
        return folders

    def run(self, workers: int, progress: bool) -> UnpackSummary:
        count = self._reader.count
        for name in self._folders.values():
            (self._target / name).mkdir()
        written = 0
        with ThreadPoolExecutor(workers, "fastload-unpack") as pool, Progress(count, "unpack", shown=progress) as bar:
            bar.start(0, 0)
            starts = range(0, count, _BLOCK)
            lines = open(self._target / FIELDS_NAME, "x", encoding="utf-8") if self._others else None
            try:
                for start, (size, text) in zip(starts, pool.map(self._block, starts), strict=True):
                    written += size
                    if lines is not None:
                        lines.write(text)
                    bar.update(min(start + _BLOCK, count), written)
            finally:
                if lines is not None:
                    lines.close()
        return UnpackSummary(count, written, len(self._folders))

    def _block(self, start: int) -> tuple[int, str]:
        written = 0
        lines = []
        for index in range(start, min(start + _BLOCK, self._reader.count)):
            record = self._reader.stored_fields(index)
            folder = self._target
            if self._labels is not None:
                folder = folder / self._folders[int(self._labels[index])]
            stem = f"{index:0{self._digits}d}"
            kind, data = self._stored(record, self._image, index)
            extension, content = picture(kind, data, index, self._reader)
            name = f"{stem}.{extension}"
            with open(folder / name, "xb") as file:
                file.write(content)
            written += len(content)
            if self._others:
                values = {field.name: self._value(field, record, index) for field in self._others}
                where = str((folder / name).relative_to(self._target))
                lines.append(json.dumps({"path": where, **values}, ensure_ascii=False) + "\n")
        return written, "".join(lines)

    def _stored(self, record: dict[int, tuple[int, bytes]], name: str, index: int) -> tuple[int, bytes]:
        number = self._numbers[name]
        if number not in record:
            raise self._reader.sample_error(index, f"its record lacks the field {name!r}")
        return record[number]

    def _value(self, field: Field, record: dict[int, tuple[int, bytes]], index: int) -> Any:
        if field.is_column:
            return self._reader.column(field.name)[index].tolist()
        data = self._stored(record, field.name, index)[1]
        if field.kind == "bytes":
            return base64.b64encode(data).decode("ascii")
        try:
            return parse_stored(field, data)
        except SampleError as error:
            raise self._reader.sample_error(index, str(error)) from None


def refuse_spatial(reader: DatasetReader, done: str) -> None:
    """Raises DatasetError if the dataset has fields that files of one image and its values cannot hold; `done` is what would be done."""
    for field in reader.schema:
        if field.is_extended or (field.kind == "image" and field != reader.schema.image):
            drop = f"take the field away: `fastload columns {reader.path} drop {field.name}`"
            raise DatasetError(f"{reader.path} has the field {field.name!r} ({field}), which cannot be {done}: {drop}")


def safe_name(name: str) -> str:
    """A folder name made of any text, which every file system takes as a plain name. See NOTE [ unpack: names ]."""
    plain = "".join("_" if c in _RESERVED or not c.isprintable() else c for c in name).strip()
    encoded = plain.encode("utf-8", "replace")[:_NAME_BYTES]
    plain = encoded.decode("utf-8", "ignore").rstrip(" .")
    return plain if plain.strip(".") and plain != FIELDS_NAME else "_" + plain.replace(".", "_")


def picture(kind: int, data: bytes, index: int, reader: DatasetReader) -> tuple[str, bytes]:
    """A stored image as the extension and content of a file: a JPEG as it is, raw pixels as PNG, or as PPM without Pillow.

    Raises:
        SampleError: it is of another kind, its raw pixels are not those that their header says, or its file is not as it was attached.
    """
    kind, data = reader.read_image(index, kind, data)
    if kind == core.KIND_JPEG:
        return "jpg", data
    if kind != core.KIND_RAW:
        raise reader.sample_error(index, "its image is of a kind this version does not know")
    height, width, channels = (int.from_bytes(data[i : i + 4], "little") for i in (0, 4, 8))
    if channels != 3 or len(data) != RAW_HEADER + height * width * channels:
        raise reader.sample_error(index, "its raw image does not hold")
    try:
        from PIL import Image
    except ImportError:
        return "ppm", b"P6\n%d %d\n255\n" % (width, height) + data[RAW_HEADER:]
    import io

    pixels = np.frombuffer(data, dtype=np.uint8, offset=RAW_HEADER).reshape(height, width, channels)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return "png", out.getvalue()
