"""Parquet as `export` writes it: a column for each field."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np

from fastload.common.optional import optional
from fastload.dataset.query import arrow_array, arrow_type
from fastload.packing.sample_files import SampleFiles, StoredSample
from fastload.packing.sources.declaration import LABEL, declaration, is_label
from fastload.store import Field

_ROW_GROUP_BYTES = 64 << 20
"""Bytes of values that make a row group: what a reader of Parquet holds in memory at once."""
_ROW_GROUP_ROWS = 1 << 16


class _Sink(io.RawIOBase):
    """A file as Arrow writes to it, until `dropping`: Arrow completes a file in a destructor, also after an error."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._written = 0
        self.dropping = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if not self.dropping:
            self._file.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        return self._written


def _features(fields: Iterable[Field], classes: Sequence[str] | None) -> dict[str, Any]:
    """What Hugging Face's datasets takes further pictures and the label for, by the column; all others follow from their types."""
    pictures = [field for field in fields if field.kind in ("image", "mask") and (field.channels == 1 or field.dtype != "uint16")]
    found: dict[str, Any] = {field.name: {"_type": "Image"} for field in pictures}
    if classes is not None and len(set(classes)) == len(classes) and any(map(is_label, fields)):
        found[LABEL] = {"names": list(classes), "_type": "ClassLabel"}
    return found


class ParquetWriter:
    """Parquet, row group by row group. Fields and class names are in the schema's metadata."""

    def __init__(self, file: IO[bytes], samples: SampleFiles) -> None:
        self._arrow = optional("pyarrow", "export to Parquet")
        parquet = optional("pyarrow.parquet", "export to Parquet")
        self._image = samples.image.name
        self._fields = tuple(samples.reader.schema)
        classes = samples.reader.manifest.classes
        metadata = {"fastload.fields": json.dumps(declaration(samples.image, samples.others, classes))}
        metadata |= {} if classes is None else {"fastload.classes": json.dumps(list(classes))}
        if features := _features(samples.others, classes):
            metadata["huggingface"] = json.dumps({"info": {"features": features}})
        self._schema = self._arrow.schema([(field.name, self._type(field)) for field in self._fields], metadata=metadata)
        texts = [field.name for field in self._fields if field.kind in ("text", "json")]
        self._sink = _Sink(file)
        self._file = parquet.ParquetWriter(self._sink, self._schema, compression=dict.fromkeys(texts, "zstd"), use_dictionary=texts)
        self._waiting: list[StoredSample] = []
        self._bytes = 0

    def _type(self, field: Field) -> Any:
        arrow = self._arrow
        if field.kind in ("image", "mask"):
            # A further picture is what Hugging Face's Image is, by which it is told from other bytes.
            return arrow.binary() if field.name == self._image else arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        if field.kind in ("instances", "polygons"):
            return arrow_type(field)
        if field.is_column or field.is_varying:
            kind = arrow.from_numpy_dtype(np.dtype(field.dtype))
            for side in reversed(field.row_shape if field.is_varying else field.shape):
                kind = arrow.list_(kind, side)
            return arrow.list_(kind) if field.is_varying else kind
        return arrow.string() if field.kind in ("text", "json") else arrow.binary()

    def add(self, sample: StoredSample) -> None:
        self._waiting.append(sample)
        self._bytes += sample.weight
        if self._bytes >= _ROW_GROUP_BYTES or len(self._waiting) >= _ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        arrays = [self._array(field, kind) for field, kind in zip(self._fields, self._schema.types, strict=True)]
        self._file.write_table(self._arrow.table(arrays, schema=self._schema), row_group_size=max(1, len(self._waiting)))
        self._waiting, self._bytes = [], 0

    def _array(self, field: Field, kind: Any) -> Any:
        """The column of a field, of the samples that wait."""
        name, arrow = field.name, self._arrow
        if field.kind in ("image", "mask"):
            files = [sample.files[name] for sample in self._waiting]
            if name == self._image:
                return arrow.array([file.content for file in files], kind)
            return arrow.array([{"bytes": file.content, "path": f"{name}.{file.extension}"} for file in files], kind)
        values = [sample.values[name] for sample in self._waiting]
        if field.is_column:
            return arrow_array(np.stack(values))
        if field.kind == "polygons":
            values = [[[part.reshape(-1) for part in parts] for parts in value] for value in values]
        elif field.is_varying and field.kind != "instances":
            offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
            return arrow.ListArray.from_arrays(offsets, arrow_array(np.concatenate(values)))
        return arrow.array(values, kind)

    def close(self) -> None:
        if self._waiting:
            self._flush()
        self._file.close()

    def abort(self) -> None:
        self._sink.dropping = True
        with suppress(Exception):
            self._file.close()
