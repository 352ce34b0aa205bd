"""PackedDataset: a packed folder as an ordinary torch Dataset, and as what the native engine reads.

`dataset[i]` and a FastLoader's batches come out of one C function, so both give the same pixels for the same
(seed, epoch, index).
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from fastload._native import core
from fastload.errors import ArgumentError, DatasetError, SampleError
from fastload.plan import Plan, compile_plan, output_of
from fastload.store.reader import DatasetReader

MAX_PIXELS = int(os.environ.get("FASTLOAD_MAX_PIXELS", 1 << 28))
"""Images of more pixels are refused before anything is allocated (Pillow draws its line at 179 million)."""

_TORCH_DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class PackedDataset(Dataset[Any]):
    """Samples of a dataset made by `fastload pack`.

    `ds[i]` is `(image, label)` where those are the fields, else a dict of field name to value. The image is a uint8
    tensor (3, height, width), contiguous, or a float one where the transform ends in ToFloat or Normalize; ints and floats are
    Python's, arrays are tensors, json is parsed.

    1. Opened on first use in each process; pickling carries the path and the settings, so any start method works.
    2. With a seed, a sample is a pure function of (seed, epoch, index); without one, each access draws anew from torch's global generator.
    3. A FastLoader's own seed takes the place of this one.

    Args:
        path: the packed folder.
        transform: of `fastload.transforms`, of torchvision (v1 or v2, Compose included), or a list that mixes them; callables may follow.
            What the decoder does not do runs per sample in Python; `fastload.plan.compile_plan` has the rules.
        fields: names of the fields to deliver, in order; default: all.
        seed: of the random transforms.
        max_pixels: images above this are refused.

    Raises:
        DatasetError: not a packed dataset, unfinished, damaged, or of a later version.
        TransformError: the transform cannot be planned.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Any = None,
        *,
        fields: Sequence[str] | None = None,
        seed: int | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.path = Path(path).absolute()
        self.seed = seed
        self.epoch = 0
        self.max_pixels = max_pixels
        self._fields = None if fields is None else tuple(fields)
        self._opened: _Opened | None = None
        self._transform: Any = transform
        self._leaves = False  # whether the plan leaves ops to the device
        self._left: PackedDataset | None = None  # for_device()'s
        self._plan: Plan = compile_plan(transform)
        _ = self.fields  # opens the dataset and checks the names now, not in a worker later

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_plan": None, "_left": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plan = compile_plan(self._transform, device=self._leaves)

    def __repr__(self) -> str:
        return f"PackedDataset({str(self.path)!r}, {len(self)} samples, fields={list(self.fields)})"

    @property
    def transform(self) -> Any:
        """The transform as it was given; assigning plans the new one."""
        return self._transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        self._plan = compile_plan(transform, device=self._leaves)
        self._transform = transform
        self._left = None
        if self._opened is not None:
            self._opened.source = None

    @property
    def plan(self) -> Plan:
        """The transform, planned."""
        return self._plan

    @property
    def opened(self) -> _Opened:
        """This process's open reader and decoder; opened anew after a fork."""
        if self._opened is None or self._opened.pid != os.getpid():
            self._opened = _Opened(self.path)
        return self._opened

    @property
    def source(self) -> core.Source:
        """The dataset as the engine reads it."""
        opened = self.opened
        if opened.source is None:
            opened.source = core.Source(opened.reader.store, self._plan.program, opened.image_field, self.max_pixels)
        return opened.source

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the delivered fields."""
        opened = self.opened
        if opened.delivered is None:
            known = [f.name for f in opened.reader.schema.fields]
            for name in self._fields or ():
                if name not in known:
                    raise ArgumentError(f"{self.path} has no field {name!r}; it has {', '.join(known)}")
            opened.delivered = tuple(known) if self._fields is None else self._fields
        return opened.delivered

    @property
    def image_field(self) -> str:
        """Name of the field that holds the image."""
        return self.opened.image_name

    @property
    def classes(self) -> list[str]:
        """Class names by label, as the source had them; empty where it had none."""
        return list(self.opened.reader.manifest.classes or [])

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: i for i, name in enumerate(self.classes)}

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a fixed-size field at once: a read-only array (len, *shape), not copied where one shard holds it all."""
        return self.opened.reader.column(name)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that random transforms draw for."""
        self.epoch = int(epoch)

    def close(self) -> None:
        """Lets go of files and memory; the next access opens them again."""
        self._opened = None
        if self._left is not None:
            self._left._opened = None

    def __len__(self) -> int:
        return int(self.opened.reader.count)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        return self.sample(_position(index, len(self)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[i] for i in indices]

    def for_device(self) -> PackedDataset:
        """The same samples as far as the native part of a plan that leaves ops to the device (Plan.device); this one if there are none.

        The same object at every call, until the transform changes. A FastLoader with `device=` reads from it, and does those ops there.
        """
        if not self._plan.movable:
            return self
        if self._left is None:
            self._left = copy.copy(self)
            self._left._opened, self._left._leaves = copy.copy(self.opened), True
            self._left._opened.source = None
            self._left._plan = compile_plan(self._transform, device=True)
        return self._left

    def sample(self, index: int) -> Any:
        """Sample index (0 .. len-1), decoded in the calling thread."""
        seed = self.seed or 0
        if self.seed is None and self._plan.random:
            seed = int(torch.empty((), dtype=torch.int64).random_())
        row = self.values([index])
        name = self.image_field
        if name in self.fields:
            image: Any = self.decode(index, seed, self.epoch)
            row[name] = [self._plan.finish(image)]
        return self.assemble({field: row[field][0] for field in self.fields})

    def assemble(self, values: dict[str, Any]) -> Any:
        """A sample (or a batch) of the dataset's form from values by field: a pair for (image, label), else the dict."""
        if self.is_pair:
            image, label = self.fields
            return values[image], values[label]
        return values

    @property
    def is_pair(self) -> bool:
        """Whether samples are (image, label) pairs: an image and one int, and nothing else."""
        kinds, fields = self.opened.kinds, self.fields
        return len(fields) == 2 and kinds[fields[0]] == "image" and kinds[fields[1]] == "int"

    def decode(self, index: int, seed: int, epoch: int) -> torch.Tensor:
        """The image of sample index: (3, height, width), uint8 or the plan's float dtype."""
        opened = self.opened
        plan = self._plan
        output = output_of(plan, None, "CHW")
        try:
            height, width = self.image_size(index)
            image = torch.empty((3, height, width), dtype=_TORCH_DTYPES[output.dtype])
            into = image.view(torch.uint8).reshape(-1).numpy()
            opened.decoder.decode(self.source, index, seed, epoch, output, into, width, height)
        except SampleError as error:
            raise self.sample_error(index, error.reason) from None
        except ArgumentError as error:
            raise self.sample_error(index, str(error)) from None
        return image

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) of sample index after the native transforms."""
        if self._plan.fixed_size is not None:
            return self._plan.fixed_size
        heights, widths = self.opened.sizes
        width, height = self._plan.program.size(int(widths[index]), int(heights[index]))
        return height, width

    def sample_error(self, index: int, reason: str) -> SampleError:
        """A SampleError that names the sample, its file, the reason and the way on."""
        shard = self.opened.reader.shard_of(index)
        return SampleError(
            f"sample {index} of {self.path} ({shard}): {reason}. "
            f'Run "fastload verify {self.path} --decode" to list every bad sample; on_error="skip" or "replace" goes on without it.',
            index=index,
            shard=shard,
            reason=reason,
        )

    def values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Every delivered field but the image, by name: a list with one Python value per index."""
        opened = self.opened
        names = [f for f in self.fields if opened.kinds[f] != "image"]
        out: dict[str, list[Any]] = {}
        for name in names:
            if opened.kinds[name] in ("int", "float", "array"):
                rows = opened.reader.column(name)[np.asarray(indices)]
                out[name] = [torch.from_numpy(r.copy()) for r in rows] if opened.kinds[name] == "array" else rows.tolist()
        stored = [n for n in names if n not in out]
        if stored:
            records = [self._record(i) for i in indices]
            for name in stored:
                number = opened.numbers[name]
                out[name] = [
                    _parse(opened.kinds[name], self._stored(record, number, name, i)) for record, i in zip(records, indices, strict=True)
                ]
        return out

    def _record(self, index: int) -> dict[int, bytes]:
        try:
            return {number: data for number, _, data in self.opened.reader.record_fields(index)}
        except SampleError as error:
            raise self.sample_error(index, error.reason or str(error)) from None

    def _stored(self, record: dict[int, bytes], number: int, name: str, index: int) -> bytes:
        if number not in record:
            raise self.sample_error(index, f"its record lacks the field {name!r}")
        return record[number]


def _parse(kind: str, data: bytes) -> Any:
    if kind == "text":
        return data.decode("utf-8")
    if kind == "json":
        return json.loads(data)
    return data


def _position(index: Any, count: int) -> int:
    position = int(index.__index__())
    if not -count <= position < count:
        raise IndexError(f"index {position} is out of range for {count} samples")
    return position % count


class _Opened:
    """One process's view of a packed dataset: reader, decoder, the columns that are always needed."""

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.reader = DatasetReader(path)
        self.source: core.Source | None = None
        self.delivered: tuple[str, ...] | None = None  # the dataset's `fields`, once checked
        fields = self.reader.schema.fields
        self.kinds = {f.name: f.kind for f in fields}
        self.numbers = {f.name: i for i, f in enumerate(fields)}
        images = [f.name for f in fields if f.kind == "image"]
        if len(images) != 1:
            raise DatasetError(f"{path} has {len(images)} image fields; this version reads datasets with one")
        self.image_name = images[0]
        self.image_field = self.numbers[self.image_name]
        self._decoder: core.Decoder | None = None

    @property
    def decoder(self) -> core.Decoder:
        if self._decoder is None:
            self._decoder = core.Decoder()
        return self._decoder

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return self.reader.column("__height__"), self.reader.column("__width__")


@dataclass(frozen=True, eq=False)
class PackedView:
    """Positions of a loader's dataset, resolved: which packed dataset (source) and which index there.

    Attributes:
        datasets: the packed datasets, by source number.
        source, index: by position; None where position i is simply sample i of dataset 0.
    """

    datasets: tuple[PackedDataset, ...]
    source: npt.NDArray[np.uint32] | None
    index: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.datasets[0]) if self.index is None else len(self.index)

    def rows(self, positions: Sequence[int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Source and index of each position; IndexError as a Dataset raises it."""
        where = np.asarray(positions, dtype=np.int64)
        count = len(self)
        low, high = (int(where.min()), int(where.max())) if len(where) else (0, -1)
        if low < -count or high >= count:
            raise IndexError(f"index {low if low < -count else high} is out of range for {count} samples")
        if low < 0:
            where = np.where(where < 0, where + count, where)
        if self.index is None or self.source is None:
            return np.zeros(len(where), np.uint32), where.astype(np.uint64)
        return self.source[where], self.index[where].astype(np.uint64)


def packed_view(dataset: Any) -> PackedView | None:
    """Resolves a PackedDataset, or Subset and ConcatDataset of them (nested), to its rows; None for anything else.

    Subclasses that change how samples are fetched are not packed: their own code has to run.
    """
    datasets: list[PackedDataset] = []
    found = _resolve(dataset, datasets)
    if found is None or not datasets or len({d.fields for d in datasets}) != 1:
        return None
    if found is _ALL:
        return PackedView(tuple(datasets), None, None)
    return PackedView(tuple(datasets), found[0], found[1])


_ALL: Any = object()
"""Stands for every sample of the one dataset found, in order."""


def _resolve(dataset: Any, datasets: list[PackedDataset]) -> Any:
    if isinstance(dataset, PackedDataset):
        if type(dataset).__getitem__ is not PackedDataset.__getitem__ or type(dataset).sample is not PackedDataset.sample:
            return None
        datasets.append(dataset)
        return _ALL
    if type(dataset) is Subset:
        first = len(datasets)
        inner = _resolve(dataset.dataset, datasets)
        if inner is None:
            return None
        picked = np.asarray(dataset.indices, dtype=np.int64)
        source, index = _arrays(inner, datasets, first)
        return source[picked], index[picked]
    if type(dataset) is ConcatDataset:
        parts = []
        for child in dataset.datasets:
            first = len(datasets)
            inner = _resolve(child, datasets)
            if inner is None:
                return None
            parts.append(_arrays(inner, datasets, first))
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    return None


def _arrays(inner: Any, datasets: list[PackedDataset], first: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    if inner is not _ALL:
        source, index = inner
        return source, index
    count = len(datasets[first])
    return np.full(count, first, np.uint32), np.arange(count, dtype=np.int64)
