"""What is said where default_collate finds samples of one batch that differ in shape: which part differs, and in which samples.

NOTE [ unequal samples: which error ]
Samples of packed data and of files in place make a BatchShapeError. A Dataset of the user's own gets torch's error, as under DataLoader,
with the same words as a note on it (where Python has notes, from 3.11; before, as its cause).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate

from fastload.batch_tree import Path
from fastload.errors import BatchShapeError, FastloadError


class Difference(NamedTuple):
    """A part that differs between two samples of a batch.

    Attributes:
        path: where it is in a sample.
        rows: of the two samples in the batch.
        sizes: what each has there, in words.
        is_image: whether it has three dimensions, of which the last two differ.
    """

    path: Path
    rows: tuple[int, int]
    sizes: tuple[str, str]
    is_image: bool = False


def difference(samples: Sequence[Any], path: Path = ()) -> Difference | None:
    """The first part of some samples that default_collate cannot stack; None if they agree in shape."""
    first = samples[0]
    if isinstance(first, Mapping):
        inner = ((key, [each[key] for each in samples]) for key in first if all(isinstance(s, Mapping) and key in s for s in samples))
        return next((found for key, parts in inner if (found := difference(parts, (*path, key)))), None)
    if isinstance(first, list | tuple):
        if not all(isinstance(each, list | tuple) for each in samples):
            return None
        counts = [len(each) for each in samples]
        if (row := _other(counts)) is not None:
            return Difference(path, (0, row), (_entries(counts[0]), _entries(counts[row])))
        return next((found for at, parts in enumerate(zip(*samples, strict=True)) if (found := difference(parts, (*path, at)))), None)
    if not all(isinstance(each, Tensor | np.ndarray) for each in samples):
        return None
    shapes = [tuple(each.shape) for each in samples]
    if (row := _other(shapes)) is None:
        return None
    is_image = len(shapes[0]) == len(shapes[row]) == 3 and shapes[0][0] == shapes[row][0]
    return Difference(path, (0, row), (f"the shape {shapes[0]}", f"{shapes[row]}"), is_image)


def _other(values: Sequence[Any]) -> int | None:
    """The position of the first value that is not the first one."""
    return next((row for row, value in enumerate(values) if value != values[0]), None)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def what_differs(samples: Sequence[Any], indices: Sequence[Any] | None) -> str:
    """One sentence on the first part that default_collate cannot stack, and what to do; "" if there is none.

    Args:
        samples: of the batch.
        indices: theirs in the dataset; None where it has none.
    """
    found = difference(samples)
    if found is None:
        return ""
    named = [f"row {row}" if indices is None or len(indices) != len(samples) else f"index {indices[row]}" for row in found.rows]
    part = "sample" + "".join(f"[{key!r}]" for key in found.path)
    one, other = (f"{size} at {name}" for size, name in zip(found.sizes, named, strict=True))
    way = ", with pad_to= as these are images, or end the transform at one size, such as Resize((224, 224))" if found.is_image else ""
    return (
        f"{part} has {one} and {other} of one batch, and without collate= a batch has one tensor for it: pass "
        f'collate="list", "padded" or "flat" to FastLoader{way}'
    )


def advice_on(error: RuntimeError, samples: Sequence[Any], indices: Sequence[Any] | None, *, packed: bool) -> str:
    """What to add to an error of default_collate; "": nothing.

    Args:
        error: what it has raised for these samples.
        samples, indices: as for what_differs().
        packed: whether they are packed data, or files in place.

    Raises:
        BatchShapeError: they are, and differ. See NOTE [ unequal samples: which error ].
    """
    try:
        advice = "" if isinstance(error, FastloadError) else what_differs(samples, indices)
    except Exception:  # samples of a stranger's classes must not hide what torch says of them
        return ""
    if advice and packed:
        raise BatchShapeError(advice) from None
    return advice


def advise(error: BaseException, advice: str) -> None:
    """Lets an error's traceback end with advice; its class and text stay. Nothing for ""."""
    if advice and hasattr(error, "add_note"):
        error.add_note(advice)
    elif advice:
        error.__cause__ = BatchShapeError(advice)


class AdvisedError(ExceptionWrapper):
    """An exception on its way out of a worker process, and advice on it."""

    def __init__(self, advice: str, where: str) -> None:
        super().__init__(where=where)  # type: ignore[no-untyped-call]
        self.advice = advice

    def reraise(self) -> None:
        """Raises it in the loop's process."""
        try:
            super().reraise()  # type: ignore[no-untyped-call]
        except Exception as error:
            advise(error, self.advice)
            raise


class AdvisedCollate:
    """default_collate in the calling process, with advice on its errors.

    Attributes:
        indices: of the samples of the next batch; None where they have none.
    """

    def __init__(self, packed: bool) -> None:
        self.indices: Sequence[Any] | None = None
        self._packed = packed

    def __call__(self, samples: Sequence[Any]) -> Any:
        try:
            return default_collate(samples)  # type: ignore[arg-type]
        except RuntimeError as error:
            advise(error, advice_on(error, samples, self.indices, packed=self._packed))
            raise
