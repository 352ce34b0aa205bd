"""Forms of stored JPEGs: some samples of a dataset, packed in each form into a temporary folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastload.bench.spec import TurnSpec
from fastload.common.positions import evenly
from fastload.packing.convert import PackedSamples
from fastload.packing.options import Encode
from fastload.packing.packer import pack
from fastload.remote.files import folder_files
from fastload.sources import Item
from fastload.store import DatasetReader
from fastload.store.field import Field
from fastload.store.kinds.codecs import DCT, JPEG
from fastload.tune.trials import Setting

FORM = "encode"
"""Name of the setting, which is an option of `fastload convert`."""
ENCODES: dict[str, Encode] = {"jpeg": "keep", "dct": "dct"}
"""The option of `pack` and `convert` that stores JPEGs in a form."""
SAMPLES = 512
"""Most samples that are packed: as many as take a second or two."""
_LOOKED_AT = 32


class SomeImages:
    """The first images of some samples of a packed dataset, as a `Source` without other fields."""

    concurrent = True
    classes: tuple[str, ...] | None = None
    fields: tuple[Field, ...] = ()

    def __init__(self, reader: DatasetReader, positions: Sequence[int]) -> None:
        self._samples, self._positions = PackedSamples(reader), positions
        self.title = self._samples.title

    def __len__(self) -> int:
        return len(self._positions)

    def name(self, position: int) -> str:
        """The dataset and the number that the sample has there."""
        return self._samples.name(self._positions[position])

    def read(self, position: int) -> Item:
        """The image of a sample. Raises SampleError."""
        return Item(self.name(position), self._samples.read(self._positions[position]).image)


def forms(dataset: Path) -> tuple[Setting | None, str]:
    """The forms to try, the present one first; None, and the reason, if the samples looked at are not all
    JPEGs.

    Raises:
        DatasetError: it cannot be opened.
        SampleError: a record, or an attached file, cannot be read.
    """
    with DatasetReader(folder_files(dataset)) as reader:
        schema = reader.schema
        if not schema.fields or schema.image is not schema.fields[0] or not schema.image.is_rgb:
            return None, "the first field of its samples is no RGB image"
        looked_at = evenly(reader.count, min(reader.count, _LOOKED_AT))
        kinds = {
            reader.read_image(position, *reader.stored_fields(position).get(0, (-1, b"")))[0]
            for position in looked_at
        }
    if not kinds <= {JPEG.entry, DCT.entry}:
        return None, "not all of its images are stored as JPEGs"
    stored = "dct" if kinds == {DCT.entry} else "jpeg"
    return Setting(FORM, (stored, *(form for form in ENCODES if form != stored)), stored), ""


def pack_forms(spec: TurnSpec, values: Sequence[str], folder: Path) -> dict[str, tuple[Path, int]]:
    """Packs the same evenly spaced samples of a spec's dataset in each form. Returns each form's dataset, and
    its number of samples.

    Raises:
        SampleError, PackError: a sample cannot be read or packed.
    """
    packed: dict[str, tuple[Path, int]] = {}
    with DatasetReader(folder_files(spec.source)) as reader:
        source = SomeImages(reader, evenly(reader.count, min(reader.count, SAMPLES)))
        for value in values:
            pack(source, folder / value, encode=ENCODES[value], progress=False)
            packed[value] = folder / value, len(source)
    return packed
