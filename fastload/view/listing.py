"""Listing: the samples that a page shows, by position, all or those for which a condition holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import ArgumentError
from fastload.store import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.view.subject import Kept, Subject

ROWS_MOST = 500
"""Samples of one answer."""
_CONDITIONS = 8
"""Conditions whose samples are kept: 8 bytes each."""


class Listing:
    """Samples of a dataset by position, in the order of the dataset. Any thread may call."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._found: Kept[Sequence[int]] = Kept(_CONDITIONS)

    def indices(self, where: str) -> Sequence[int]:
        """Indices of the images of samples for which an SQL condition is true, ascending: an int64 array or
        a range; of all for "".

        Raises:
            ArgumentError: it is no condition; see PackedDataset.where(), which lets it read nothing but the
                dataset.
            SampleError: a record that it needs is damaged.
        """
        subject, dataset = self._subject, self._subject.whole.dataset
        every = not where.strip()
        if every and subject.samples is None:
            return range(len(dataset))

        def find() -> Sequence[int]:
            chosen = range(len(dataset)) if every else dataset.where(where).indices
            return chosen if subject.samples is None else subject.images(chosen)

        return self._found.get(where, find)

    def rows(self, where: str, start: int, count: int) -> dict[str, Any]:
        """Samples at positions start .. start+count-1: `total`, and `rows` of [index, label, width, height].

        Raises as `indices`.
        """
        if not 0 <= start or not 1 <= count <= ROWS_MOST:
            raise ArgumentError(
                f"a listing has 1 to {ROWS_MOST} samples from position 0 on, not {count} from {start}"
            )
        found = self.indices(where)
        chosen = np.asarray(found[start : start + count], np.int64)
        reader, label = self._subject.dataset.opened.reader, self._subject.label
        if not len(chosen):
            return {"total": len(found), "start": start, "rows": []}
        widths, heights = (
            reader.take(WIDTH_COLUMN, chosen).tolist(),
            reader.take(HEIGHT_COLUMN, chosen).tolist(),
        )
        labels = (
            [""] * len(chosen)
            if label is None
            else [self._subject.label_text(each) for each in reader.take(label, chosen).tolist()]
        )
        rows = [list(row) for row in zip(chosen.tolist(), labels, widths, heights, strict=True)]
        return {"total": len(found), "start": start, "rows": rows}

    def neighbours(self, where: str, index: int) -> tuple[int, int | None, int | None]:
        """(position, index before, index after) of a sample among those of a condition; the position is
        where it would be."""
        found = self.indices(where)
        at = index if isinstance(found, range) else int(np.searchsorted(found, index))
        here = at < len(found) and int(found[at]) == index
        after = at + 1 if here else at
        return at, int(found[at - 1]) if at else None, int(found[after]) if after < len(found) else None
