"""PackedDataset: a packed folder as an ordinary torch Dataset, and as native threads read it.

`dataset[i]` and a FastLoader's batches come out of one C function, so both give the same pixels for the same
(seed, epoch, index). FolderAttributes are the attributes that torchvision's ImageFolder has beside its
samples.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, Subset
from typing_extensions import Buffer

from fastload._native import core
from fastload.batch.containers import PatchedImages
from fastload.common.files import expanded
from fastload.common.limits import checked_max_pixels
from fastload.common.originals import OwnCode
from fastload.common.positions import evenly_spaced, position_in
from fastload.common.rng import checked_epoch, checked_seed, current_occurrence, row_seed
from fastload.common.text import ShownAsText
from fastload.dataset.contact_sheet import contact_sheet
from fastload.dataset.image_lists import ImageLists
from fastload.dataset.native_row import NativeFields, NativeImages, exchanged_pairs
from fastload.dataset.native_source import NativeSource
from fastload.dataset.opened import OpenedDataset, OpenOnUse, files_of
from fastload.dataset.sample_form import SampleForm
from fastload.dataset.values import StoredValues, check_transform, finished, word_flips
from fastload.errors import ArgumentError, Computed, DatasetError, RemoteError, SampleError, TransformError
from fastload.portable import check as check_native
from fastload.remote.files import RemoteFiles
from fastload.store import Schema
from fastload.store.class_counts import class_counts, class_lines
from fastload.store.columns import Values
from fastload.store.entries import checked_base
from fastload.store.kinds.base import Collated
from fastload.store.labels import label_field, object_labels
from fastload.store.lists import images_path
from fastload.transforms.spec import Plan
from fastload.transforms.steps import TransformedDataset, fingerprint

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image

    from fastload.store.form import Form

_NAMES = ("path", "name", "file", "filename")
_SHARDS = 4
"""Limit on the shards whose columns are read for `longer_sides`."""


class FolderAttributes:
    """Classes, targets and samples of a dataset that has its values by field."""

    path: str | Path

    @property
    @abstractmethod
    def opened(self) -> OpenedDataset:
        """The open reader of this process."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Names of the delivered fields."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a field of fixed size."""

    @abstractmethod
    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of a sample's fields that lie in its record, by name."""

    @property
    def classes(self) -> list[str]:
        """Class names by label, as the source had them; empty where it had none."""
        return list(self.opened.reader.manifest.classes or [])

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: i for i, name in enumerate(self.classes)}

    @Computed
    def targets(self) -> list[int]:
        """The label of every sample, as torchvision's folders have them: of the field `label`, or of the one
        int field that is no id.

        Raises:
            AttributeError: samples have no class, or several int fields may be it. Objects have their classes
                in a field of their own.
        """
        schema = self.opened.reader.schema
        field = label_field(schema, self.fields)
        if field is None:
            of_objects = "".join(f"; those of objects are in {each.name!r}" for each in object_labels(schema))
            raise AttributeError(
                f"{self.path} has no targets: none of its fields {', '.join(self.fields)} is a class "
                f"of an image{of_objects}"
            )
        labels: list[int] = self.column(field.name).tolist()
        return labels

    @Computed
    def samples(self) -> list[tuple[str, int]]:
        """(name, label) of every sample, as torchvision's folders have them, where names were packed. Reads
        every record.

        Raises:
            AttributeError: there are no targets, or none of the text fields `path`, `name`, `file` and
                `filename`.
        """
        texts = {
            field.name
            for field in self.opened.reader.schema
            if field.handler.is_text and field.handler.finds_samples
        }
        named = next((name for name in _NAMES if name in texts), None)
        if named is None:
            raise AttributeError(
                f"{self.path} has no samples: no names were packed, as a text field "
                f"{' or '.join(map(repr, _NAMES))}"
            )
        targets = self.targets
        names = [self.stored_values(i, [named])[named] for i in range(len(self))]
        return list(zip(names, targets, strict=True))

    @Computed
    def imgs(self) -> list[tuple[str, int]]:
        """(path, label) pairs, as `samples`."""
        return self.samples


SHOWN_MOST = 1024
"""Most thumbnails of show()."""


class _MadeSource(NamedTuple):
    """A source that the engine reads, what it was made of, and the fields of its rows beside the image."""

    opened: OpenedDataset
    plan: Plan
    source: core.Source
    fields: NativeFields | None


class PackedDataset(NativeSource, FolderAttributes, ShownAsText, Dataset[Any]):
    """Samples of a dataset made by `fastload pack`.

    `ds[i]` has the structure of the packed samples; of other sources it is `(image, label)` or `(image,
    mask)` if those are the fields, else a dict by field. The image is a tensor (3, height, width), uint8, or
    float after ToFloat or Normalize. Ints and floats are Python's, arrays are tensors, JSON is parsed.

    1. Each process opens it on first use; its pickle has the path and the settings.
    2. A changed transform holds from the next access, in a FastLoader from the next `iter()`.
    3. With a seed, a sample is a pure function of (seed, epoch, index); without one, each access draws from
       torch's global generator.
    4. A FastLoader uses its own seed and count of epochs, and writes nothing here.

    Args:
        path: the packed folder, or its URL (``s3://``, ``gs://``, ``az://``, ``https://``, ``file://``, and
            fsspec's).
        transform: a transform of `fastload.transforms` or torchvision (v1 or v2), or a list that mixes them;
            callables may follow. Python does what the decoder cannot.
        fields: names of the fields to deliver, in order; default: all. They may be nested:
            ``("image", ["boxes", "labels"])`` gives ``(image, {"boxes": ..., "labels": ...})``.
        seed: seed of the random transforms.
        max_pixels: limit on an image's pixels; default: FASTLOAD_MAX_PIXELS, or 2**28.
        version: version of a changed dataset, 1 as packed; default: the latest. The object stays with it.
        base: folder of an attached dataset's files; default: the folder that it names.
        cache: folder for bytes fetched from a bucket, shared by the host's processes; default:
            FASTLOAD_CACHE, or fastload in the user's cache folder.
        cache_size: limit on all caches there, in bytes or as "200GiB"; default: their size plus 0.8 of the
            disk's free bytes.
        storage_options: obstore's keys (``endpoint``, ``region``, ``access_key_id``, ...) and
            ``client_options``, or fsspec's options; others come from the environment.
        timeout: time for all tries of a request, in seconds (default 60) or as ``30min``.
        draws: "sample": all images of a sample of any number are transformed with one draw; or "image".

    Raises:
        DatasetError: the dataset or the version is missing, unfinished, damaged, or of a later format, or
            `base` does not fit.
        TransformError: the transform cannot be planned, or leaves fields behind that lie in the image.
        ArgumentError: an argument is wrong, or a field does not exist.
    """

    max_pixels: int
    _source: _MadeSource | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: object = None,
        *,
        fields: Sequence[Any] | Mapping[str, Any] | None = None,
        seed: int | None = None,
        max_pixels: int | None = None,
        version: int | None = None,
        base: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float | str | None = None,
        draws: str = "sample",
    ) -> None:
        check_native("PackedDataset")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 1):
            raise ArgumentError(f"version={version!r} is no number of a version, which are counted from 1")
        self.seed = checked_seed(seed)
        self.epoch = 0
        self.max_pixels = checked_max_pixels(max_pixels)
        self._form = None if fields is None else SampleForm.of(fields)
        own = None if base is None else Path(checked_base(expanded(base))).absolute()
        files = files_of(
            path,
            own,
            {
                "cache": cache,
                "cache_size": cache_size,
                "storage_options": storage_options,
                "timeout": timeout,
            },
            version,
        )
        self.path = files.name
        self._files = OpenOnUse(files, version)
        self._images: tuple[OpenedDataset, NativeImages] | None = None
        opened = self.opened  # now, not in a worker later
        if opened.is_list:
            stored = PackedDataset(
                images_path(path),
                max_pixels=max_pixels,
                base=base,
                cache=cache,
                cache_size=cache_size,
                storage_options=storage_options,
                timeout=timeout,
            )
            self.lists = ImageLists(opened.image_name, stored, draws)
        elif draws != "sample":
            raise ArgumentError(
                f"draws={draws!r} is for samples of any number of images, which {path} has not"
            )
        self.form.check(opened.form, self.path)
        self._form = None if self._form is None else opened.own_form(self._form)
        self._has_boxes = opened.has_boxes
        self._is_whole = self.image_field in self.fields and not opened.in_image.isdisjoint(self.fields)
        self._unaugmented, self._unwarped = _not_rgb(opened, self.fields), _not_alone(opened, self.fields)
        super().__init__(transform)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_files": (self._files.files, self._files.version),
            "_source": None,
            "_images": None,
            "_plan": None,
            "_planned": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._files = OpenOnUse(*state["_files"])
        self._plan, self._planned = self._compiled(self._transform), fingerprint(self._transform)

    def __repr__(self) -> str:
        """The dataset in lines: its path, the layout that it was packed from, its fields with their kinds,
        and its classes with counts."""
        reader = self.opened.reader
        schema, manifest = reader.schema, reader.manifest
        lines = [("layout", str(manifest.summary.get("layout") or ""))]
        lines.append(("fields", ", ".join(f"{name} ({schema[name].describe()})" for name in self.fields)))
        try:
            counts = class_counts(manifest, None if reader.files.remote else reader)
        except DatasetError:  # a damaged column is no reason to show nothing
            counts = class_counts(manifest)
        lines += class_lines(
            [field for field in schema if field.name in self.fields], manifest.classes, counts
        )
        return "\n  ".join([self.title, *(f"{what}: {text}" for what, text in lines if text)])

    def __dir__(self) -> list[str]:
        """Names for users, with those of a subclass; without what the loader's engines ask for."""
        return [name for name in super().__dir__() if name in _FOR_USERS or name not in _DEFINED]

    @property
    def title(self) -> str:
        """The dataset in a line: path, number of samples, names of fields."""
        version = "" if self.version == 1 else f", version={self.version}"
        return f"PackedDataset({str(self.path)!r}, {len(self)} samples, fields={self.form}{version})"

    @property
    def version(self) -> int:
        """Number of the version that is read."""
        return self.opened.reader.manifest.version

    @property
    def opened(self) -> OpenedDataset:
        """This process's open reader and decoder; opened anew after a fork."""
        found = self._files.now
        return found if found is not None and found.pid == os.getpid() else self._files.open()

    @property
    def source(self) -> core.Source:
        """The dataset as the engine reads it."""
        return self._source_for(self.plan)

    def _source_for(self, plan: Plan) -> core.Source:
        return self._made_source(plan).source

    def _made_source(self, plan: Plan) -> _MadeSource:
        opened, found = self.opened, self._source
        if found is None or found.opened is not opened or found.plan is not plan:
            self.check_fields(plan)
            names, fields = self.native_fields, None
            if opened.spatial and (names or plan.of_boxes):
                fields = NativeFields(opened.reader, names, plan)
            further, items = self.images.further(plan), fields.items if fields else ()
            images = self._imaged.opened
            source = core.Source(
                images.reader.store, list(plan.programs), images.image_field, self.max_pixels, further, items
            )
            found = self._source = _MadeSource(opened, plan, source, fields)
        return found

    def row_fields(self, plan: Plan) -> NativeFields | None:
        """The fields that a sample's native row has beside the image; None: it has none."""
        return self._made_source(plan).fields

    @property
    def _imaged(self) -> PackedDataset:
        """The dataset whose samples are the images: this one, or that of its lists."""
        return self if self.lists is None else self.lists.stored

    @property
    def images(self) -> NativeImages:
        """The images of a sample's native row."""
        opened = self.opened
        if self.lists is not None:
            return self.lists.images
        if self._images is None or self._images[0] is not opened:
            # Whatever the transform, which may change.
            names = [name for name in self.fields if name in opened.spatial]
            self._images = opened, NativeImages.of(opened.reader, names)
        return self._images[1]

    @property
    def kinds(self) -> Mapping[str, str]:
        """Kind of each field, by name."""
        return self.opened.kinds

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Heights and widths of the stored images, pixels; empty where they are not known."""
        opened = self._imaged.opened
        return opened.sizes if opened.knows_sizes else (np.empty(0, np.int32), np.empty(0, np.int32))

    @property
    def knows_sizes(self) -> bool:
        """True if the sizes of all stored images are known."""
        return self._imaged.opened.knows_sizes

    @property
    def form(self) -> SampleForm:
        """The structure of a sample, and its fields."""
        return self.opened.form if self._form is None else self._form

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the delivered fields."""
        return self.form.names

    @property
    def schema(self) -> Schema:
        return self.opened.reader.schema

    @property
    def paths(self) -> Mapping[str, tuple[Any, ...]]:
        return self.form.paths

    @property
    def root(self) -> Form | None:
        return self.form.root

    @property
    def alike(self) -> tuple[Any, ...]:
        return PackedDataset, self.form, self.lists is None

    @property
    def alike_in_rows(self) -> tuple[Any, ...]:
        schema, of_boxes = self.schema, bool(self.plan.of_boxes)
        boxes = [str(field) for field in schema if field.handler.owns_objects] if of_boxes else []
        # Which are stacked in one dtype.
        columns = [str(schema[name]) for name in self.fields if name != self.image_field]
        return of_boxes, *boxes, *columns

    @property
    def collated(self) -> Mapping[str, Collated | None]:
        return {name: self.schema[name].handler.collated for name in self.fields}

    @property
    def remote(self) -> RemoteFiles | None:
        files = self._imaged.opened.reader.files
        return files if isinstance(files, RemoteFiles) else None

    @property
    def summary(self) -> Mapping[str, Any]:
        return self.opened.reader.manifest.summary

    @property
    def mean_bytes(self) -> float | None:
        """Mean size of a stored sample, in bytes of its shard; None where images are attached, or there
        are no samples."""
        return self.opened.reader.manifest.mean_bytes

    @property
    def image_field(self) -> str:
        """Name of the field that holds the image."""
        return self.opened.image_name

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a field of fixed size: a read-only array (len, *shape)."""
        return self.opened.reader.column(name)

    def by_sample(self, name: str) -> Values:
        """Values of a fixed-size field, to be indexed by an array of samples: `column`'s array, or a large
        one that stays on the disk."""
        return self.opened.reader.values(name)

    def table(self) -> pa.Table:
        """All fields but the pixels of images and masks, as an Arrow table.

        Numbers share the memory of `column()`. Arrays are lists of fixed size, JSON is text, boxes, keypoints
        and other rows are lists of rows, polygons lists of parts x, y, x, y, ..., instances COCO's RLE. If
        any field is no number or array, the first call reads all records, with their images, and keeps the
        values. The last columns, unless fields have these names, are `width` and `height` of the stored image
        and of further ones (`right_width`), and numbers of rows (`boxes_count`). Needs the extra `query`.

        Raises:
            ArgumentError: pyarrow is not installed.
            SampleError: a record cannot be read.
        """
        return self.opened.columns.table()

    def where(self, condition: str) -> Subset[Any]:
        """Selects the samples for which an SQL condition is true, in order, as a Subset.

        The condition is one expression as behind SQL's WHERE, in DuckDB's dialect, over the columns of
        `table()`: ``label in (3, 7) and caption like '%dog%'``. It reaches nothing but the dataset. All
        records are read for columns that `table()` reads from them. Needs the extra `query`.

        Raises:
            ArgumentError: the condition is no expression that is true or false, cannot be computed, or is
                NULL for every sample; or DuckDB or pyarrow is not installed.
            SampleError: a record is damaged.
        """
        return Subset(self, cast("Sequence[int]", self.opened.conditions.rows(condition)))

    def show(self, n: int = 16, *, indices: Sequence[int] | None = None, side: int = 128) -> Image:
        """Draws thumbnails of the first n samples, or of those at `indices`, as one Pillow image.

        They show images before the transform, in squares of `side` (16 to 1,024) pixels, with index, class
        and delivered boxes, masks and instances; of lists of images all, by their own indices. Needs the
        extra `pack`.

        Raises:
            ArgumentError: Pillow is not installed, or there are more than 1,024 samples.
            SampleError: a sample cannot be decoded.
        """
        chosen: Sequence[int] = range(min(n, len(self)))
        if indices is not None:
            chosen = [position_in(index, len(self)) for index in indices]
        if len(chosen) > SHOWN_MOST or not 16 <= side <= 1024:
            raise ArgumentError(
                f"show() makes at most {SHOWN_MOST:,} thumbnails of 16 to 1,024 pixels, not "
                f"{len(chosen):,} of {side!r}"
            )
        if self.lists is not None:
            images = self.listed(np.asarray(chosen, np.int64))[0].tolist()
            return contact_sheet(self.lists.stored, images[:SHOWN_MOST], side)
        return contact_sheet(self, chosen, side)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that random transforms draw for."""
        self.epoch = checked_epoch(epoch)

    def close(self) -> None:
        """Releases files and memory until the next access."""
        self._files.close()
        self._source = None
        if self.lists is not None:
            self.lists.stored.close()

    def __len__(self) -> int:
        return int(self.opened.reader.count)

    @overload
    def __getitem__(self, index: slice) -> Subset[Any]: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        return self.sample(position_in(index, len(self)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        files = self.opened.reader.files
        if not files.remote:
            return [self[i] for i in indices]
        with files.held([position_in(i, len(self)) for i in indices]):
            return [self[i] for i in indices]

    def drawing(self, seed: int | None, epoch: int) -> PackedDataset:
        """A copy of this snapshot with another epoch and, unless None, another seed."""
        out = self._copied()
        out.seed, out.epoch = self.seed if seed is None else seed, epoch
        return out

    def delivering(self, fields: Sequence[Any] | Mapping[str, Any], transform: object) -> PackedDataset:
        """A copy that shares all that is open, with other fields, as `fields=` has them, and another
        transform.

        Raises:
            ArgumentError: the dataset has not one of the fields.
            TransformError: the transform cannot be planned.
        """
        out = self._copied()
        form, opened = SampleForm.of(fields), self.opened
        form.check(opened.form, self.path)
        out._form, out._images, out._source = opened.own_form(form), None, None
        out._is_whole = out.image_field in out.fields and not opened.in_image.isdisjoint(out.fields)
        out._unaugmented, out._unwarped = _not_rgb(opened, out.fields), _not_alone(opened, out.fields)
        out.transform = transform
        return out

    def sample(self, index: int) -> Any:
        """The sample at `index`, 0 .. len-1, decoded in the calling thread."""
        plan, seed = self.plan, self.seed or 0
        if self.seed is None and plan.random:
            seed = int(torch.empty((), dtype=torch.int64).random_())
        seed = row_seed(seed, self.epoch, current_occurrence()[0])
        values = self.before_python(index, seed, self.epoch)
        if plan.python and self.takes_whole_samples:
            return finished(plan, self.opened.reader.schema, values, self.assemble)
        if (image := self.image_field) in values:
            with word_flips([values[image]]):
                values[image] = (
                    plan.finish(values[image])
                    if self.lists is None or not plan.python
                    else [plan.finish(each) for each in values[image]]
                )
        return self.assemble(values)

    def before_python(self, index: int, seed: int, epoch: int) -> dict[str, Any]:
        """The delivered fields of sample index by name, as the native part of the transform leaves them."""
        row = {name: values[0] for name, values in self.values([index]).items()}
        if self.makes_rows:
            row |= self._row(self.plan, index, seed, epoch)
        return {name: row[name] for name in self.fields}

    @property
    def takes_whole_samples(self) -> bool:
        """True if Python steps get whole samples: fields lie in the image, or are images beside it."""
        return bool(self.plan.python) and self._is_whole

    def assemble(self, values: dict[str, Any]) -> Any:
        """A sample (or a batch) of the dataset's form from values by field: as fields= has it, a pair for
        (image, label), else the dict."""
        form = self.form
        if form.root is not None:
            return form.fill(values)
        if self.is_pair:
            image, label = form.names
            return values[image], values[label]
        return values

    @property
    def is_pair(self) -> bool:
        """True if samples are (image, label) pairs: an image and one int, and nothing else."""
        form = self.form
        if form.root is not None or len(form.names) != 2:
            return False
        handlers, (image, label) = self.opened.handlers, form.names
        return handlers[image].is_image and handlers[label].can_label

    def decode(self, index: int, seed: int, epoch: int) -> Any:
        """The image of sample index: (3, height, width), uint8 or the plan's float dtype; the list of its
        views under Views; of any number of images, what `ImageLists.joined` makes of them."""
        return self._row(self.plan, index, seed, epoch)[self.image_field]

    def _row(
        self, plan: Plan, index: int, seed: int, epoch: int, drawn_as: int | None = None
    ) -> dict[str, Any]:
        """Values in the native row of sample index, by name; an image is the tensor or the list of its
        views. `drawn_as`: index of its draws; None: its own."""
        if self.lists is not None:
            return {self.lists.name: self._listed(self.lists, plan, index, seed, epoch)}
        try:
            source, images = self._source_for(plan), self.images
            sizes = self._sizes(plan, index, seed, epoch, drawn_as)
            outputs = images.outputs(plan, None, "CHW")
            parts, made = self.opened.make_row(
                source, index, seed, epoch, outputs, sizes, plan.boxed_size, drawn_as
            )
        except (RemoteError, TransformError):
            raise
        except (ArgumentError, DatasetError, SampleError) as error:
            raise self.sample_error(index, getattr(error, "reason", None) or str(error)) from None
        fields = self.row_fields(plan) if made else None
        return images.by_name(plan, parts) | (
            {} if fields is None else fields.sample(made, _size_of(parts[0], sizes[0]))
        )

    def listed(
        self, samples: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        assert self.lists is not None
        return self.lists.rows(self.opened.reader, samples)

    def _listed(self, lists: ImageLists, plan: Plan, index: int, seed: int, epoch: int) -> Any:
        """The images of sample index."""
        images, _, drawn = lists.rows(self.opened.reader, np.array([index], np.int64))
        stored, made = lists.stored, []
        self.check_fields(plan)
        try:
            for image, drawn_as in zip(images.tolist(), drawn.tolist(), strict=True):
                made.append(stored._row(plan, image, seed, epoch, drawn_as)[stored.image_field])
        except SampleError as error:
            raise self.sample_error(index, f"image {len(made)}: {error.reason}") from None
        return lists.joined(plan, made)

    def longer_sides(self, most: int) -> list[int]:
        """Longer sides of some shards' images; none of those in a bucket, whose columns would be fetched, and
        none where other fields lie in the pixels, whose sizes `pack` does not change."""
        reader, schema = self.opened.reader, self.schema
        if (
            not len(reader)
            or schema.image is None
            or reader.files.remote
            or any(field.handler.follows_image or field.is_planes for field in schema)
        ):
            return []
        numbers = evenly_spaced(len(reader.manifest.shards), _SHARDS)
        heights, widths = (
            np.concatenate([reader.chunk(number, name) for number in numbers])
            for name in ("__height__", "__width__")
        )
        sides: list[int] = np.maximum(heights, widths)[evenly_spaced(len(heights), most)].tolist()
        return sides

    def healed(self, index: int) -> Buffer | None:
        return self._imaged.opened.reader.healed(index)

    @property
    def opens_images(self) -> bool:  # type: ignore[override]
        return self._imaged.opened.reader.manifest.is_foreign

    def load(self, index: int) -> npt.NDArray[np.uint8]:
        if self.lists is not None:
            return self.lists.stored.load(index)
        try:
            return self.opened.load(index, self.max_pixels)
        except SampleError as error:
            raise self.sample_error(index, error.reason) from None

    def refusal(self) -> str | None:
        if self.opens_images and self.plan.fixed_sizes is None and not self.knows_sizes:
            return "its images lie in a store, and their sizes are not known: end the transform at one size"
        return None

    def check_fields(self, plan: Plan) -> None:
        """Raises TransformError where a plan would change the image and leave a delivered field behind that
        lies in it, or exchange points that a field does not have."""
        if self.lists is not None and plan.views:
            raise TransformError(
                f"Views makes several of one image, and {self.lists.name!r} are any number of images: "
                "take one view"
            )
        if fields := [name for name in self.fields if name in self.opened.in_image]:
            schema = self.opened.reader.schema
            check_transform(plan, schema, fields, self.image_field in self.fields)
            for name in fields:
                if schema[name].handler.has_points:
                    exchanged_pairs(plan, schema[name])

    def image_sizes(self, index: int, seed: int = 0, epoch: int = 0) -> tuple[tuple[int, int], ...]:
        """(height, width) of sample index after the native transforms: of each image, or of each of its
        views. Where RandomIoUCrop makes it depend on the sample's boxes, the largest that it can be."""
        return self._sizes(self.plan, index, seed, epoch)

    def _sizes(
        self, plan: Plan, index: int, seed: int, epoch: int, drawn_as: int | None = None
    ) -> tuple[tuple[int, int], ...]:
        try:
            return self.images.sizes(plan, index, seed, epoch, self.max_pixels, drawn_as)
        except SampleError as error:
            raise self.sample_error(index, error.reason) from None

    def sample_error(self, index: int, reason: str) -> SampleError:
        """A SampleError that names the sample, its file, the reason and the way on."""
        shard = self.opened.reader.shard_of(index)
        return SampleError(
            f"sample {index} of {self.path} ({shard}): {reason}. "
            f'Run "fastload verify {self.path} --decode" to list every bad sample; on_error="skip" '
            'or "replace" goes on without it.',
            index=index,
            shard=shard,
            reason=reason,
        )

    def values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Every delivered field but the image, by name: a list with one Python value per index."""
        out = self.column_values(indices)
        stored = [self.stored_values(i) for i in indices] if self.stored_fields else []
        return out | {name: [row[name] for row in stored] for name in self.stored_fields}

    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The delivered fields that are columns, by name: a list with one Python value per index."""
        opened, out = self.opened, {}
        for name in self.fields:
            if name in opened.reader.schema.own_columns and not opened.handlers[name].is_list:
                rows = opened.reader.take(name, np.asarray(indices, np.int64))
                out[name] = (
                    [torch.from_numpy(r.copy()) for r in rows]
                    if opened.handlers[name].is_array
                    else rows.tolist()
                )
        return out

    @property
    def stored_fields(self) -> list[str]:
        """The delivered fields that lie in records beside the first image, and are not in the native row."""
        native = self.native_fields
        return [name for name in self.fields if name in self.opened.in_records and name not in native]

    @property
    def native_fields(self) -> list[str]:
        """The delivered fields that are in a sample's native row beside its image."""
        return [name for name in self.fields if name in self.opened.spatial] if self.makes_rows else []

    @property
    def makes_rows(self) -> bool:
        """True if samples are native rows: the image is delivered, or the transform moves a delivered
        field that lies in it."""
        return self.image_field in self.fields or (
            self.plan.moves and not self.opened.spatial.isdisjoint(self.fields)
        )

    @property
    def is_batched_natively(self) -> bool:
        """True if native threads can make batches of the delivered fields, whatever the transform."""
        return self.image_field in self.fields

    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of sample index's stored fields, by name. Raises SampleError where one cannot be
        read."""
        try:
            return StoredValues(self.opened.reader, self.max_pixels).read(
                index, self.stored_fields if names is None else names
            )
        except SampleError as error:
            raise self.sample_error(index, error.reason or str(error)) from None


def _size_of(image: torch.Tensor | PatchedImages, known: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of an image; of patches the size that was known before they were made."""
    return known if isinstance(image, PatchedImages) else (image.shape[-2], image.shape[-1])


def _not_rgb(opened: OpenedDataset, names: Sequence[str]) -> str:
    """The reason why native threads do not change finished images, as a clause: one of them is not 8-bit
    RGB; "" where all are."""
    fields = [field for field in opened.reader.schema if field.handler.is_image]
    mine = [field for field in fields if field.name in (opened.image_name, *names)]
    other = next((field.name for field in mine if field.is_planes), "")
    return f"natively it changes 8-bit RGB, and {other!r} is other" if other else ""


def _not_alone(opened: OpenedDataset, names: Sequence[str]) -> str:
    """The reason why they do not move pixels: a delivered field lies in the image; "" where none does."""
    moved = (name for name in names if name in opened.in_image)
    found = next((name for name in moved if not opened.handlers[name].is_image), "")
    return f"{found!r} would have to go with it" if found else ""


_FOR_USERS = frozenset(
    "path version fields kinds classes class_to_idx targets samples imgs transform seed epoch max_pixels "
    "column table where show sample set_epoch close".split()
)
_DEFINED = frozenset(name for name in dir(PackedDataset) if not name.startswith("_"))


_MAKERS = tuple(
    "__getitem__ __getitems__ sample assemble is_pair values column column_values stored_values "
    "stored_fields before_python decode _row "
    "takes_whole_samples image_sizes _sizes images image_field fields form kinds sizes plan source "
    "_source_for opened".split()
)
"""Attributes that make `ds[i]`: if another's code replaces one, native threads do not read the dataset."""
OWN_CODE = OwnCode((PackedDataset, _MAKERS), (TransformedDataset, ("plan", "transform")))


def is_plain(dataset: PackedDataset) -> bool:
    """Returns True if neither a subclass nor the object itself overrides what PackedDataset makes samples
    by."""
    kind, own = type(dataset), vars(dataset)
    return not any(name in own or getattr(kind, name) is not getattr(PackedDataset, name) for name in _MAKERS)
