"""What is done to whole batches, in order: what the transform leaves to the device, then batch_transform=.

NOTE [ entries: one list, one numbering ]
Every AugmentBatch of a loader, made from the plan or given by the user, counts its ops on from those before it, over the whole list:
equal ops at two places draw different numbers, and what a sample gets does not depend on how the list is cut into calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from fastload.plan import DeviceOp
from fastload.plan.compiler import label


@dataclass(frozen=True)
class BatchStage:
    """One thing done to whole batches.

    Attributes:
        names: of the stages that it stands for, as explain() shows them.
        call: what is called with them; None where that is still to be made of `ops`.
        ops: of a plan, one for each name.
    """

    names: tuple[str, ...]
    call: Any = None
    ops: tuple[DeviceOp, ...] = ()


def numbered(entries: Sequence[BatchStage], augment: Callable[[Sequence[DeviceOp]], Any]) -> list[BatchStage]:
    """The entries with their calls; `augment` makes an AugmentBatch of a plan's ops. See NOTE [ entries: one list, one numbering ]."""
    out, first = [], 0
    for entry in entries:
        call = augment(entry.ops) if entry.ops else entry.call
        if _counts(call):
            call = call.numbered(first)
            first += len(call.ops)
        out.append(BatchStage(entry.names, call, entry.ops))
    return out


def one_by_one(entries: Sequence[BatchStage]) -> list[BatchStage]:
    """Numbered entries with one op each, for explain()."""
    return list(chain.from_iterable(_apart(entry) for entry in entries))


def _apart(entry: BatchStage) -> list[BatchStage]:
    if not _counts(entry.call):
        return [entry]
    parts = entry.call.apart()
    names = entry.names if entry.ops else [label(part.ops[0]) for part in parts]
    return [BatchStage((name,), part) for name, part in zip(names, parts, strict=True)]


def _counts(call: Any) -> bool:
    """An AugmentBatch, which this floor does not import."""
    return callable(getattr(call, "numbered", None)) and callable(getattr(call, "apart", None))
