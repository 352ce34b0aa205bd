"""Check of records: some at random are read and compared with their checksums."""

from __future__ import annotations

from collections.abc import Sequence

from fastload.doctor.finding import Finding, judged
from fastload.errors import DatasetError, SampleError
from fastload.store.reader import DatasetReader


def records_finding(reader: DatasetReader, indices: Sequence[int], dataset: str) -> tuple[Finding, list[int]]:
    """Reads samples, and of attached images the files too. Returns the finding, and the samples that hold.

    Args:
        reader: the open dataset.
        indices: the samples.
        dataset: the dataset's name, for commands.
    """
    try:
        bad = {index: reason for index in indices if (reason := _fault(reader, index))}
    except DatasetError as error:
        return Finding("records", "bad", str(error), f"`fastload verify {dataset}` lists all"), []
    good = [index for index in indices if index not in bad]
    faults = {}
    if bad:
        index, reason = next(iter(bad.items()))
        faults[f"sample {index} does not: {reason}"] = (
            f"`fastload verify {dataset}` lists all; copy the dataset again, or pack it again"
        )
    value = {"read": len(indices), "bad": sorted(bad)}
    return judged("records", faults, f"{len(good):,} of {len(indices):,} read at random hold", value), good


def _fault(reader: DatasetReader, index: int) -> str:
    """The reason why a sample cannot be read; "" if it can. Raises DatasetError."""
    image = reader.schema.image
    try:
        fields = reader.stored_fields(index)
        if image is not None and (stored := fields.get(reader.schema.number(image.name))) is not None:
            reader.read_image(index, *stored)
    except SampleError as error:
        return error.reason or str(error)
    return ""
