"""OpenedIndexes: the entropy indexes of the JPEGs that a Dataset of Python opens, for all processes and
epochs of a loader."""

from __future__ import annotations

from fastload._native import core
from fastload.dataset.index_cache import KIND, IndexCache, index_room, url_of
from fastload.dataset.kept_folder import shares_of
from fastload.dataset.opened_forms import FormsPlace
from fastload.errors import FastloadError
from fastload.remote.kept_table import CachePlace


class OpenedIndexes:
    """Memory in which the workers of a loader share entropy indexes, and the file that keeps them for other
    runs.

    The memory belongs to the loader: workers that persist, those of another epoch, and those that are started
    in the place of others find what was made before. See NOTE [ indexes: by a file's bytes ].

    Attributes:
        memory: the memory; None: there is none.
        why_not: the reason why there is none; "" if there is.
        forms: the place of forms of these images that decode faster; None without a cache.

    Raises:
        ArgumentError: the cache folder is none.
        DatasetError: another host, or another user, has it.
    """

    def __init__(self, dataset: object, cache: CachePlace | None) -> None:
        self.memory: core.SharedIndexes | None = None
        self.why_not = ""
        purpose, images = _purpose(dataset)
        self._cache = None if cache is None else IndexCache(cache, purpose)
        self.forms = None if cache is None else FormsPlace(cache, url_of(purpose), KIND, images)
        try:
            self.memory = core.SharedIndexes(index_room())
        except FastloadError as error:  # pixels are the same without
            self.why_not = str(error)
        else:
            if self._cache is not None:
                self._cache.load(self.memory)

    def save(self) -> None:
        """Writes what was learnt to the index cache, if there is one; at the end of an epoch."""
        if self._cache is not None and self.memory is not None:
            self._cache.save(self.memory)

    def report(self) -> str:
        """Text on the indexes: how many are held, where, and how often they were of use."""
        if self.memory is None:
            return f"none: {self.why_not}{self._forms()}"
        files, held = self.memory.learnt()
        room, found = self.memory.room, self.memory.found
        place = "" if self._cache is None else f", and in {self._cache.path}"
        return (
            f"of {files:,} files, {held / 2**20:,.1f} MiB of memory ({room >> 20:,} MiB at most){place}; "
            f"learnt when a file is first decoded, found {found:,} times{self._forms()}"
        )

    def _forms(self) -> str:
        """A clause on forms that decode faster; "" if there are none."""
        there = 0 if self._cache is None else sum(s.forms for s in shares_of(self._cache.path.parent))
        return f"; {there:,} files are there in a form that decodes faster, too" if there else ""


_IMAGES = 1 << 16
"""Images of a dataset that does not tell its length."""


def _purpose(dataset: object) -> tuple[str, int]:
    """Text by which the files of two datasets, such as those of training and validation, are told apart, and
    the number of files."""
    kind, images = type(dataset), _IMAGES
    try:
        images = len(dataset)  # type: ignore[arg-type]
        length = str(images)
    except Exception:  # the user's code, or an iterable dataset
        length = ""
    return f"{kind.__module__}.{kind.__qualname__}/{length}", images
