"""FileDataset: the files and labels of another library's dataset, as the native engine reads them.

NOTE [ in place: who opens a file ]
Native threads read and decode every file that is a whole and sound JPEG. Any other file is opened by the dataset's own loader, in the
calling process, for that row alone: a PNG, a JPEG that is cut or damaged. What the loader raises is what the dataset raises. So the
pixels before the resample are Pillow's for every file, and errors are those that the program had before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, SampleError, TransformError
from fastload.in_place.index_cache import IndexCache
from fastload.in_place.known import KnownDataset, NotInPlaceError, recognised
from fastload.limits import default_max_pixels
from fastload.plan import Plan
from fastload.plan.changes import TransformedDataset
from fastload.plan.torchvision import converts, flatten
from fastload.system import available_memory
from fastload.transforms import Transform

JPEGS = 0.9
"""Part of the files that must be JPEGs by name: the others are decoded one after the other, in the calling process."""
_INDEX_SHARE = 32
_INDEX_LEAST, _INDEX_USUAL, _INDEX_MOST = 16 << 20, 256 << 20, 4 << 30
BLOCK = 4096
_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif")


class FileDataset(TransformedDataset):
    """Samples (image, label) of image files; what PackedDataset is for packed ones. Made and kept by FileDatasets.

    Raises:
        NotInPlaceError: the lists are not paths and integers, or few of the files are JPEGs.
        TransformError: the transform cannot be planned.
    """

    fields = ("image", "label")
    kinds: Mapping[str, str] = {"image": "image", "label": "int"}
    image_field = "image"
    stored_fields: tuple[str, ...] = ()
    seed: int | None = None

    def __init__(self, dataset: Any, known: KnownDataset, cache: str | os.PathLike[str] | None = None) -> None:
        super().__init__(known.transform)
        self.dataset = dataset
        self.max_pixels = _most_pixels()
        self._lists = tuple(list(each) for each in known.lists)
        self._open = known.open
        self._paths, self._labels, self._plain = _divided(known)
        self._listed = _Listed(self._paths, cache)

    @property
    def kind(self) -> str:
        """The class of the dataset that it was made of."""
        return type(self.dataset).__name__

    def is_of(self, dataset: Any, known: KnownDataset) -> bool:
        """Whether it is that dataset, with the lists that it has now."""
        same = dataset is self.dataset and known.open == self._open and len(known.lists) == len(self._lists)
        return same and all(now == kept for now, kept in zip(known.lists, self._lists, strict=True))

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def source(self) -> core.Source:
        """The dataset as the engine reads it."""
        plan = self.plan
        if self._source is None or self._source[0] is not plan:
            self._source = plan, core.Source(self._listed.files, plan.program, 0, self.max_pixels)
        return self._source[1]  # type: ignore[no-any-return]

    def save_learnt(self) -> None:
        """Writes what was learnt of the files to the index cache, if there is one; at the end of an epoch."""
        self._listed.save()

    def learnt(self) -> tuple[int, int]:
        """(files, bytes): the entropy indexes that are held in memory."""
        return self._listed.files.learnt()

    @property
    def room(self) -> int:
        """Bytes of memory that they may take."""
        return self._listed.room

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Heights and widths of the stored images: not known before they are read; nobody asks, since all end at one size."""
        return np.empty(0, np.int32), np.empty(0, np.int32)

    def column(self, name: str) -> npt.NDArray[Any]:
        """The labels."""
        return {"label": self._labels}[name]

    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The labels of some samples, as the dataset gives them: Python's integers, or NumPy's where its list has those."""
        labels = self._labels[np.asarray(indices, np.int64)]
        return {"label": labels.tolist() if self._plain else list(labels)}

    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Nothing: there are no other fields."""
        return {}

    def assemble(self, values: dict[str, Any]) -> Any:
        """The pair of a sample's, or a batch's, image and label."""
        return values["image"], values["label"]

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) of every image after the transform."""
        assert self.plan.fixed_size is not None  # refusal() saw to that
        return self.plan.fixed_size

    def load(self, index: int) -> npt.NDArray[np.uint8]:
        """Sample index's whole image as the dataset's own loader opens it: (height, width, 3), RGB.

        Raises:
            Whatever the loader raises, with a note that names the file.
        """
        path = self._paths[index]
        try:
            return np.ascontiguousarray(np.asarray(self._open(path)))
        except Exception as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(f"sample {index}: {path}")
            raise

    def sample_error(self, index: int, reason: str) -> SampleError:
        """A SampleError that names the sample and its file."""
        return SampleError(f"sample {index} ({self._paths[index]}): {reason}", index=index, reason=reason)

    def refusal(self) -> str | None:
        """Why the native engine does not make its samples; None where it does."""
        plan = self.plan
        if not plan.native:
            return _first_of_python(plan)
        if not _gives_tensors(self._transform):
            return "it gives Pillow images, of which no batch is made: end its transform with ToTensor"
        return None if plan.fixed_size is not None else "its transform leaves images of different sizes: end it at one size"


class _Listed:
    """The paths as the engine has them, made on first use; shared by a dataset and its snapshots, and what is learnt of them with it."""

    def __init__(self, paths: list[str], cache: str | os.PathLike[str] | None) -> None:
        self._paths = paths
        self._folder = cache
        self.room = _index_room()
        self._cache: IndexCache | None = None
        self._files: core.Files | None = None

    @property
    def files(self) -> core.Files:
        """The list, with what the index cache holds of it."""
        if self._files is None:
            first, last = (min(self._paths), max(self._paths)) if self._paths else ("", "")
            prefix = first[: next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))]
            names = bytearray()
            for start in range(0, len(self._paths), BLOCK):  # a million short texts at once would take more memory than all else
                block = [path[len(prefix) :] + "\0" for path in self._paths[start : start + BLOCK]]
                names += os.fsencode("".join(block))
            self._files = core.Files(os.fsencode(prefix), bytes(names), len(self._paths), self.room)
            if self._folder is not None:
                self._cache = IndexCache(self._folder, os.fsencode(prefix), bytes(names))
                self._cache.load(self._files)
        return self._files

    def save(self) -> None:
        """Writes what was learnt to the index cache, if there is one."""
        if self._cache is not None and self._files is not None:
            self._cache.save(self._files)


class FileDatasets:
    """The FileDatasets of one loader, by the datasets that they were made of.

    Attributes:
        cache: the folder of index caches; None: what is learnt stays in memory.
        asked: whether this pass has asked for a dataset.
        why_not: why a dataset that was asked for in this pass is not read in place; "" where there is none of a known kind.
    """

    def __init__(self) -> None:
        self.cache: str | os.PathLike[str] | None = None
        self._before: dict[int, FileDataset] = {}
        self._kept: dict[int, FileDataset] = {}
        self.why_not = ""
        self.asked = False

    def begin(self) -> None:
        """A pass begins: what it does not ask for is forgotten."""
        self._before, self._kept, self.why_not, self.asked = self._kept, {}, "", False

    def find(self, dataset: Any) -> FileDataset | None:
        """The FileDataset of a dataset as it is now, the same while its lists are; None where it is not read in place."""
        self.asked = True
        try:
            known = recognised(dataset)
            if known is None:
                return None
            kept = self._kept.get(id(dataset)) or self._before.get(id(dataset))
            if kept is None or not kept.is_of(dataset, known):
                kept = FileDataset(dataset, known, self.cache)
            elif kept.transform is not known.transform:
                kept.transform = known.transform
        except (NotInPlaceError, TransformError, ArgumentError) as error:
            self.why_not = str(error)
            return None
        self._kept[id(dataset)] = kept
        return kept


def _index_room() -> int:
    """Memory for the entropy indexes of a dataset, bytes: a 32nd of what is free. A JPEG of 100 KB has an index of about 1.4 KB."""
    free = available_memory()
    return _INDEX_USUAL if free is None else min(max(free // _INDEX_SHARE, _INDEX_LEAST), _INDEX_MOST)


def _most_pixels() -> int:
    """The limit of native decoding: beyond Pillow's own it warns or raises, as the program is used to."""
    from PIL import Image

    return min(default_max_pixels(), Image.MAX_IMAGE_PIXELS or default_max_pixels())


def _divided(known: KnownDataset) -> tuple[list[str], npt.NDArray[Any], bool]:
    """Paths, labels, and whether those are Python's integers."""
    paths, labels = [], []
    for path, label in known.pairs():
        paths.append(path if type(path) is str else os.fspath(path))
        labels.append(label)
    if not all(type(path) is str and "\0" not in path for path in paths):
        raise NotInPlaceError("its paths are not all text")
    kinds = set(map(type, labels)) or {int}
    kind = kinds.pop()
    if kinds or not (kind is int or issubclass(kind, np.integer)):
        raise NotInPlaceError("its labels are not integers of one type")
    jpegs = sum(path.lower().endswith(_SUFFIXES) for path in paths)
    if jpegs < JPEGS * len(paths):
        raise NotInPlaceError(f"{jpegs} of its {len(paths)} files are JPEGs by their names: pack it (fastload pack)")
    try:
        return paths, np.array(labels, np.int64 if kind is int else kind), kind is int
    except OverflowError:
        raise NotInPlaceError("a label is beyond 64 bits") from None


def _first_of_python(plan: Plan) -> str:
    why = next((stage.why for stage in plan.stages if stage.where == "python"), "a part of its transform")
    return f"{why}: torch's way, as a whole"


def _gives_tensors(transform: Any) -> bool:
    """Whether its own `__getitem__` gives tensors, of which batches can be made; fastload's transforms have no other meaning."""
    steps = flatten(transform)
    return any(converts(step) for step in steps) or (bool(steps) and all(isinstance(step, Transform) for step in steps))
