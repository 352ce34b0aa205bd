"""OpenedDataset: a packed dataset as one process has it open, on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import Buffer

from fastload._native import core
from fastload.batch.containers import PatchedImages
from fastload.common.urls import is_remote, shown
from fastload.dataset.other_formats import decoded
from fastload.dataset.query import Columns, ConditionEngine
from fastload.dataset.sample_form import SampleForm
from fastload.errors import ArgumentError, DatasetError, SampleError
from fastload.remote.files import folder_files, remote_files
from fastload.store.form import Parts, same_fields
from fastload.store.labels import LABEL
from fastload.store.reader import DatasetFiles, DatasetReader

TORCH_DTYPES = {
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
"""By the name of a core.Output's dtype."""


class OpenedDataset:
    """One process's view of a packed dataset: reader, decoder, the columns that are always needed.

    Attributes:
        form: form of samples with all fields.
        handlers: behaviour of each field's kind, by name.
        in_records: names of the fields that lie in records, but for the first image.
        spatial: names of the fields that lie in the image or beside it: further images, masks, boxes and what
            else has any number of rows; and the image, where it is not of 8-bit RGB.
        in_image: those of them that Python steps get as tv_tensors, with the image: what lies in it, and
            further images.
        has_boxes: True if some spatial field has boxes.
        is_list: True if samples have any number of images.
    """

    def __init__(self, files: DatasetFiles, version: int | None, inherited: OpenedDataset | None) -> None:
        self.pid = os.getpid()
        self.reader: DatasetReader = DatasetReader(files, version) if inherited is None else inherited.reader
        self.columns: Columns = Columns(self.reader) if inherited is None else inherited.columns
        fields = self.reader.schema.fields
        self.kinds = {f.name: f.kind for f in fields}
        self.handlers = {f.name: f.handler for f in fields}
        self.form = self._form_of_all()
        image = self.reader.schema.image or self.reader.schema.images
        if image is None:
            raise DatasetError(f"{files.name} has no image field; this version reads datasets with one")
        self.image_name = image.name
        self.in_records = {f.name for f in fields if f != image and not f.is_column}
        others = [f for f in fields if f != image]
        self.is_list = image.handler.is_list
        # These lie in the samples' records, where these have the image: rows that were added do not.
        added = {name for shard in self.reader.manifest.shards for name in shard.added}
        self.spatial = {
            f.name
            for f in fields
            if not self.is_list
            and f.handler.in_native_row
            and (f in others or not f.is_rgb)
            and f.name not in added
        }
        self.in_image = {f.name for f in others if f.handler.follows_image or f.handler.is_image}
        self.has_boxes = any(f.handler.owns_objects for f in fields)
        self.image_field = (
            self.reader.schema.number(image.name) if self.is_list else self.reader.manifest.image_number
        )
        self._decoder: core.Decoder | None = None
        self._conditions: ConditionEngine | None = None

    def _form_of_all(self) -> SampleForm:
        """The form of samples with all fields: the one that was packed, a pair of an image and its label
        or mask, or names alone."""
        schema, form = self.reader.schema, self.reader.manifest.form
        names = tuple(field.name for field in schema)
        if form is not None and same_fields(form, self.kinds):
            return SampleForm.structured(form)
        return self.own_form(SampleForm(names, is_tuple=names[1:] == (LABEL,)))

    def own_form(self, form: SampleForm) -> SampleForm:
        """The form, but for names alone that become a pair: an image and a mask, and a tuple of an image and
        one value.

        Further images, and values of any number of rows, stay in a dict; a pair with an int is one without a
        structure.
        """
        if form.root is not None or len(form.names) != 2:
            return form
        image, other = (self.handlers.get(name) for name in form.names)
        if (
            image is None
            or other is None
            or not image.is_image
            or other.is_image
            or other.is_varying
            or other.can_label
        ):
            return form
        return SampleForm(form.names, Parts(form.names)) if form.is_tuple or other.holds_labels else form

    def make_row(
        self,
        source: core.Source,
        index: int,
        seed: int,
        epoch: int,
        outputs: list[core.Output],
        sizes: Sequence[tuple[int, int]],
        bounded: bool = False,
        drawn_as: int | None = None,
    ) -> tuple[list[torch.Tensor | PatchedImages], list[tuple[npt.NDArray[np.uint8], int] | None]]:
        """Makes a sample in the calling thread: its parts, and what core.Decoder makes of the source's items.

        A record in a cache that does not hold is fetched anew.

        Args:
            source: the dataset as the engine reads it.
            index: index of the sample.
            seed, epoch: seed and epoch of its draws.
            outputs, sizes: output and (height, width) of each part of the row.
            bounded: True if the sizes are upper bounds of the parts' sizes.
            drawn_as: index of its draws; None: its own.

        Raises:
            SampleError: it cannot be made; with the reason alone.
        """
        images = [
            torch.empty(
                (o.channels * (1 if o.patches is None else o.patches[2]), *size),
                dtype=TORCH_DTYPES[o.dtype],
                device="cpu",
            )
            for size, o in zip(sizes, outputs, strict=True)
        ]
        into = [image.view(torch.uint8).reshape(-1).numpy() for image in images]
        wide, files = [(width, height) for height, width in sizes], self.reader.files
        record = files.record(index) if files.remote else None
        found: list[tuple[int, int]] | None = [] if bounded else None

        def made(record: Buffer | None, pixels: npt.NDArray[np.uint8] | None = None) -> list[Any]:
            return self.decoder.decode(
                source, index, seed, epoch, outputs, into, wide, record, found, pixels, drawn_as
            )

        try:
            items = made(record)
        except SampleError:
            try:
                record = self.reader.healed(index) if record is None else None
                if record is None:
                    raise
                items = made(record)
            except SampleError:
                if not self.reader.is_foreign(index):
                    raise
                items = made(None, self.load(index, source.max_pixels))
        if found is not None:
            images = [_first_pixels(image, *size) for image, size in zip(images, found, strict=True)]
        return [_shaped(*each) for each in zip(images, outputs, strict=True)], items

    def load(self, index: int, max_pixels: int) -> npt.NDArray[np.uint8]:
        """The image of a foreign file that native threads do not decode, (height, width, 3), RGB. Raises
        SampleError with the reason alone."""
        try:
            ((_, _, data),) = self.reader.record_fields(index)
        except SampleError as error:
            raise SampleError(error.reason, reason=error.reason) from None
        return decoded(data, max_pixels)

    @property
    def conditions(self) -> ConditionEngine:
        if self._conditions is None:
            self._conditions = ConditionEngine(self.columns)
        return self._conditions

    @property
    def decoder(self) -> core.Decoder:
        if self._decoder is None:
            self._decoder = core.Decoder()
        return self._decoder

    @property
    def knows_sizes(self) -> bool:
        """True if heights and widths of all images are known; of foreign ones they may not be."""
        return self.reader.manifest.knows_sizes

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return self.reader.column("__height__"), self.reader.column("__width__")


def _shaped(image: torch.Tensor, output: core.Output) -> torch.Tensor | PatchedImages:
    """An image, or its patches."""
    if output.patches is None:
        return image
    height, width = image.shape[-2:]
    return PatchedImages.of(image, output.patches, output.channels, np.array([[width, height]]))


def _first_pixels(image: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """An image of that size in the first bytes of a larger tensor (channels, ...), in memory of its own
    size."""
    if image.shape[1:] == (height, width):
        return image
    return image.view(-1)[: len(image) * height * width].view(len(image), height, width).clone()


class OpenOnUse:
    """Opened state that a dataset and its snapshots share, in whichever process asks.

    Attributes:
        now: the state that was opened last, maybe by the process that this one was forked from; None: nothing
            is open.
    """

    def __init__(self, files: DatasetFiles, version: int | None) -> None:
        self.files = files
        self._version = version
        self.now: OpenedDataset | None = None

    @property
    def version(self) -> int | None:
        """The version that was asked for, or that was opened first; None before that."""
        return self._version

    def open(self) -> OpenedDataset:
        """Opens it; a forked child goes on with its parent's reader and columns, and shares what they have
        read."""
        self.now = OpenedDataset(self.files, self._version, self.now)
        self._version = self.now.reader.manifest.version
        return self.now

    def close(self) -> None:
        """Lets go of it."""
        self.now = None
        self.files.close()


def files_of(
    path: str | os.PathLike[str], base: Path | None, options: Mapping[str, Any], version: int | None = None
) -> DatasetFiles:
    """The files of a folder or of a URL, of that version.

    Raises:
        ArgumentError: an argument does not go with it.
        DatasetError: there is no finished dataset.
    """
    if isinstance(path, str) and is_remote(path):
        if base is not None:
            raise ArgumentError(
                f"base={os.fspath(base)!r} goes with attached files on a disk: {shown(path)} holds "
                "its images itself"
            )
        return remote_files(path, **options)
    files = folder_files(path, version, base, **options)
    given = [name for name, value in options.items() if value is not None]
    if given and not files.remote:
        raise ArgumentError(
            f"{given[0]} goes with a dataset in a bucket (s3://, https://, ...): {os.fspath(path)!r} "
            "is on a disk"
        )
    return files
