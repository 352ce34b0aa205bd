"""WebDataset tars: members that share a name up to the first dot make one sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError, SampleError
from fastload.packing.sources.annotated import BOXES, MASK_NAMES
from fastload.packing.sources.exported_tar import ExportedTar, declaration_of
from fastload.packing.sources.label_maps import is_deep, label_map_in
from fastload.packing.sources.protocol import FIRST_TRIES, Item, Place, Source, Value, first_readable
from fastload.packing.sources.tar_members import IMAGES, Tars, TarSamples, member_value
from fastload.store import Field

_LOSSLESS = ("png", "webp")


def tar_source(patterns: list[str]) -> Source:
    """The source of tars: of those that `fastload export` wrote, all alike, with the fields that they say; else by their members' names.

    Raises:
        PackError: no such tar, a damaged one, or samples that are not alike.
    """
    tars = Tars(patterns)
    about = declaration_of(tars)
    return TarSource(tars) if about is None else ExportedTar(tars, *about)


class TarSource(TarSamples):
    """One or many .tar files, read in the order given, by offset.

    A member's extension is all that follows the first dot of its base name, and the last part of it says what it
    holds: jpg, jpeg, png, webp (the image), cls (an integer, the field ``label``), txt (text), json, npy (an array of one dtype, and of one
    shape but for the first side); anything else is a bytes field. Each field is named by the extension. Beside the image, right.jpg is a
    further image, the field ``right``; mask.png (or seg.png, of `MASK_NAMES`) a mask, the field ``mask``; and boxes.npy with rows of four
    are boxes (xyxy), the field ``boxes``. Every sample has the same fields as the first.

    Raises:
        PackError: no such tar, a damaged one, a sample without an image, or with other fields than the first.
    """

    classes: tuple[str, ...] | None = None

    def __init__(self, tars: Tars) -> None:
        super().__init__(tars)
        self._image, self._others = self._layout(0)
        for position in range(1, len(self.samples)):
            if self._layout(position) != (self._image, self._others):
                have, need = set(self._extensions(position)), set(self._extensions(0))
                if self._image_of(have) == "" or have - {self._image_of(have)} != need - {self._image}:
                    raise PackError(
                        f"{self.name(position)}: its members are {', '.join(sorted(have))}, but the first sample has "
                        f"{', '.join(sorted(need))}; every sample needs the same"
                    )
        self._kinds: dict[str, Field] = {}
        for extension in self._others:
            self._kinds[extension] = self._field(extension)
        self.fields = tuple(self._kinds.values())
        if len({field.name for field in self.fields}) < len(self.fields):
            raise PackError(f"{self.title}: two members of a sample are one field among {', '.join(self._others)}; rename one")

    @staticmethod
    def _image_of(extensions: set[str]) -> str:
        for wanted in IMAGES:
            if wanted in extensions:
                return wanted
        return next((e for e in sorted(extensions) if e.rpartition(".")[2] in IMAGES), "")

    def _layout(self, position: int) -> tuple[str, tuple[str, ...]]:
        extensions = set(self._extensions(position))
        image = self._image_of(extensions)
        if not image:
            raise PackError(f"{self.name(position)}: no image among its members ({', '.join(sorted(extensions))})")
        return image, tuple(sorted(extensions - {image}))

    def _field(self, extension: str) -> Field:
        stem, _, kind = extension.rpartition(".")
        name = _field_name(extension)
        if stem and kind in IMAGES:
            return self._picture(extension, stem, kind)
        if kind == "cls":
            return Field(name, "int")
        if kind == "txt":
            return Field(name, "text")
        if kind == "json":
            return Field(name, "json")
        if kind == "npy":
            return self._array_field(extension, stem)
        return Field(name, "bytes")

    def _picture(self, extension: str, stem: str, kind: str) -> Field:
        """The field of a picture beside the image: a mask by its name, or else a further image."""
        deep = kind == "png" and self._is_deep(extension)
        if stem in MASK_NAMES and kind in _LOSSLESS:
            return Field(stem, "mask", "uint16" if deep else "uint8")
        return Field(stem.replace(".", "_"), "image", "uint16" if deep else "", (1,) if deep else ())

    def _is_deep(self, extension: str) -> bool:
        """Whether the first picture that can be read has 16 bits."""

        def deep(position: int) -> bool:
            try:
                return is_deep(self._member(position, extension))
            except SampleError as error:
                raise PackError(f"{self.name(position)}: its .{extension}: {error.reason}") from error

        return first_readable(deep, len(self))

    def _array_field(self, extension: str, stem: str) -> Field:
        """The field of arrays: some of them, spread over all samples, tell whether their first sides differ."""
        first = first_readable(lambda position: self._array(position, extension), len(self))
        shapes = {first.shape}
        for position in range(0, len(self), max(1, len(self) // FIRST_TRIES)):
            try:
                shapes.add(self._array(position, extension).shape)
            except (PackError, OSError):  # noqa: PERF203
                continue
        if stem == BOXES and first.ndim == 2 and first.shape[1] == 4:
            return Field(BOXES, "boxes", format="xyxy")
        varies = len(shapes) > 1 and len({shape[1:] for shape in shapes}) == 1 and first.ndim > 0
        return Field(_field_name(extension), "array", str(first.dtype), (None, *first.shape[1:]) if varies else first.shape)

    def _array(self, position: int, extension: str) -> npt.NDArray[Any]:
        value = member_value(self.name(position), extension, self._member(position, extension))
        assert isinstance(value, np.ndarray)
        return value

    def place(self, position: int) -> Place:
        number, _, parts = self.samples[position]
        image = self._image_of({extension for extension, _, _ in parts})
        offset, size = next((offset, size) for extension, offset, size in parts if extension == image)
        return Place(self.paths[number], offset, size)

    def read(self, position: int) -> Item:
        number, _, parts = self.samples[position]
        name = self.name(position)
        image_extension = self._image_of({extension for extension, _, _ in parts})
        image = b""
        values: dict[str, Value] = {}
        for extension, offset, size in parts:
            data = self._part(position, number, extension, offset, size)
            if extension == image_extension:
                image = data
            elif (field := self._kinds[extension]).kind == "mask":
                values[field.name] = label_map_in(data, f"{name}: its .{extension}", field.dtype)
            else:
                values[field.name] = data if field.kind == "image" else member_value(name, extension, data)
        return Item(name, image, values)


def _field_name(extension: str) -> str:
    return "label" if extension == "cls" else extension.replace(".", "_")
