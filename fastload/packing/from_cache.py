"""Image files of a source, read from the cache folder of loaders where they are kept there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from fastload.dataset.kept_bytes import KeptBytes
from fastload.errors import ArgumentError
from fastload.sources.protocol import ImageFiles, Source


@contextmanager
def reading_cache(source: Source, cache: str | os.PathLike[str] | None) -> Iterator[Callable[[], int]]:
    """Has a source read image files from a cache folder, where they are kept; yields a function that tells of
    how many that was so. Without a cache nothing is done.

    Raises:
        ArgumentError: the images of the source are no files of their own; otherwise as KeptBytes.
    """
    if cache is None:
        yield lambda: 0
        return
    if not isinstance(source, ImageFiles):
        raise ArgumentError(
            "from_cache is for folders and tables of image files, and the images of "
            f"{source.title} are parts of other files"
        )
    with closing(KeptBytes(cache)) as kept:
        source.read_file = kept.read
        try:
            yield lambda: kept.taken
        finally:
            del source.read_file
