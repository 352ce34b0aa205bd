"""looked_at(): the dataset that a command looks at, which may be a folder of class folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastload.cli.output import say

DATASET_HELP = "A packed dataset; or a folder of class folders, which is attached in memory."


@contextmanager
def looked_at(dataset: str, most: int | None = None) -> Iterator[str]:
    """The path or URL of a packed dataset, until the block ends; says what was attached. `most`: as of
    `in_memory`."""
    from fastload.packing.in_memory import IMAGES, in_memory

    with in_memory(dataset, IMAGES if most is None else most) as found:
        if found.said:
            say(found.said, err=True)
        yield found.path
