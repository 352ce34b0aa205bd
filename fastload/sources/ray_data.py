"""ray.data.Dataset as a map-style Dataset: its rows by position, read from the blocks in Ray's object
store."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sized
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from fastload.errors import PackError

if TYPE_CHECKING:
    import ray.data
    from ray.data.block import Block

_BLOCKS = 2
"""Blocks that a process holds at a time: rows are read mostly in their order, from one block after
another."""


class RayDataset:
    """The rows of a ray.data.Dataset, in its order, each a dict of its columns.

    It may be sent to the tasks of the cluster that holds the blocks: they fetch what they read. One thread
    reads.
    """

    def __init__(self, dataset: ray.data.Dataset) -> None:
        """Executes the dataset, if that was not done yet; its blocks stay in Ray's object store as long as
        this object is there."""
        import ray

        options = dataset.context.execution_options
        before, options.preserve_order = options.preserve_order, True
        try:
            count = ray.remote(_rows)
            self._blocks: list[Any] = dataset.to_arrow_refs()
            counts = ray.get([count.remote(block) for block in self._blocks])
        except Exception as error:
            raise PackError(
                f"the ray.data.Dataset could not be read: {type(error).__name__}: {str(error).strip()}"
            ) from error
        finally:
            options.preserve_order = before
        self._stops = list(accumulate(counts))
        self._held: OrderedDict[int, Block] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": OrderedDict()}

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        from ray.data.block import BlockAccessor

        number = bisect_right(self._stops, position)
        row = position - (self._stops[number - 1] if number else 0)
        table = self._block(number).slice(row, 1)
        return dict(next(iter(BlockAccessor.for_block(table).iter_rows(True))))

    def _block(self, number: int) -> Block:
        if number not in self._held:
            import ray

            if len(self._held) >= _BLOCKS:
                self._held.popitem(last=False)
            self._held[number] = ray.get(self._blocks[number])
        self._held.move_to_end(number)
        return self._held[number]


def _rows(table: Sized) -> int:
    return len(table)


def with_rows(source: object) -> object:
    """The source itself, or a RayDataset of it where it is a ray.data.Dataset. It does not import ray.
    Raises PackError."""
    of_ray = any(
        kind.__name__ == "Dataset" and kind.__module__.startswith("ray.data.")
        for kind in type(source).__mro__
    )
    return RayDataset(source) if of_ray else source
