"""Comparison of two packed datasets by what is stored: entries of records, columns, fields and class
names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastload.store import DatasetReader


def assert_equal_datasets(first: Path, second: Path, *, infinite: bool = True) -> None:
    """Every field of every sample is equal, byte for byte; with infinite=False, floats that are not finite
    are NaN in the second."""
    with DatasetReader(first) as one, DatasetReader(second) as other:
        assert other.schema.fields == one.schema.fields
        assert other.manifest.classes == one.manifest.classes
        assert other.count == one.count
        for name in one.schema.columns:
            if name == "__crc32c__":
                continue
            wanted, found = one.column(name), other.column(name)
            if wanted.dtype.kind == "f" and not infinite:
                wanted = np.where(np.isfinite(wanted), wanted, np.nan)
            assert np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f"), name
        for index in range(one.count):
            assert _entries(one, index) == _entries(other, index), f"sample {index}"


def _entries(reader: DatasetReader, index: int) -> dict[Any, Any]:
    """The entries of a record, by the fields' numbers."""
    return dict(sorted(reader.stored_fields(index).items()))
