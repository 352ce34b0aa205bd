"""BatchStage: one stage of the work on whole batches. The ops that the plan leaves to the device come first, then batch_transform=.

NOTE [ stages: one list, one numbering ]
The ops of all AugmentBatch objects of a loader, made from the plan or given by the user, are numbered on through the whole list of
stages. So equal ops at two places draw different numbers, and the draws of a sample do not depend on how the list is split into calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fastload.transforms.compiler import label
from fastload.transforms.spec import DeviceOp


@dataclass(frozen=True)
class BatchStage:
    """One stage of the work on whole batches.

    Attributes:
        names: the names that explain() shows for it.
        call: the callable that takes a batch's images; None until it is made from `ops`.
        ops: the plan's ops that it runs, one for each name; empty for any other stage.
        view: which view it is for, from 0, where an image becomes several; else None.
    """

    names: tuple[str, ...]
    call: Any = None
    ops: tuple[DeviceOp, ...] = ()
    view: int | None = None


def numbered(stages: Sequence[BatchStage], augment: Callable[[Sequence[DeviceOp]], Any]) -> list[BatchStage]:
    """The stages with their callables, whose ops are numbered; `augment` makes an AugmentBatch of a plan's ops.

    See NOTE [ stages: one list, one numbering ].
    """
    out, first = [], 0
    for stage in stages:
        call = augment(stage.ops) if stage.ops else stage.call
        if has_numbers(call):
            call = call.numbered(first)
            first += len(call.ops)
        out.append(replace(stage, call=call))
    return out


def one_by_one(stages: Sequence[BatchStage]) -> list[BatchStage]:
    """Splits numbered stages so that each runs at most one op, for explain()."""
    return list(chain.from_iterable(_apart(stage) for stage in stages))


def _apart(stage: BatchStage) -> list[BatchStage]:
    if not has_numbers(stage.call):
        return [stage]
    parts = stage.call.apart()
    names = stage.names if stage.ops else [label(part.ops[0]) for part in parts]
    return [replace(stage, names=(name,), call=part, ops=()) for name, part in zip(names, parts, strict=True)]


def has_numbers(call: Any) -> bool:
    """Whether a callable numbers its ops: it is an AugmentBatch, whose class this package must not import."""
    return callable(getattr(call, "numbered", None)) and callable(getattr(call, "apart", None))
