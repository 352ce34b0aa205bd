"""BucketPass: what one pass of a loader asks for of datasets in buckets, told to their fetchers ahead of its batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload.remote.files import RemoteFiles, begin_pass
from fastload.remote.requests import PassShare, Unit

if TYPE_CHECKING:
    from fastload.dataset.view import PackedView
    from fastload.threads.coverage import Coverage

_Positions = npt.NDArray[np.int64]


class BucketPass:
    """One pass over a view with datasets in buckets. What is fetched ahead for it goes with the last reference to it.

    Args:
        view: what the loader's positions are.
        remote: the datasets in buckets, by source.
        coverage: of the pass.
    """

    def __init__(self, view: PackedView, remote: Mapping[int, RemoteFiles], coverage: Coverage) -> None:
        self._view = view
        self._remote = remote
        self._block = coverage.block
        if self._block:
            self._needed = coverage.needed
            self._opened = np.zeros(-(-len(view) // self._block), bool)
            self._passes = {source: begin_pass(files, self, None, coverage.buffer) for source, files in remote.items()}
        else:
            self._passes = {source: begin_pass(files, self, self._of(source, coverage.positions)) for source, files in remote.items()}

    def _of(self, source: int, positions: _Positions) -> _Positions:
        """The samples of a source that lie at some positions."""
        sources, indices = self._view.rows(self._view.existing(positions))  # type: ignore[arg-type]
        found: _Positions = indices[sources == source].astype(np.int64)
        return found

    def opens(self, positions: _Positions) -> _Positions:
        """The positions of all blocks in which these, those of a batch, are the first."""
        if not self._block:
            return positions[:0]
        blocks = np.unique(positions // self._block)
        new = blocks[~self._opened[blocks]]
        self._opened[new] = True
        found = (new[:, None] * self._block + np.arange(self._block)).ravel()
        found = found[found < len(self._needed)]
        needed: _Positions = found[self._needed[found]]
        return needed

    def share(self, source: int, opens: _Positions, asks: _Positions) -> PassShare:
        """What a batch is of the pass over one source.

        Args:
            source: the dataset's.
            opens: what `opens` says of the batch.
            asks: the batch's samples of the source.
        """
        of, files = self._passes[source], self._remote[source]
        if not self._block:
            return PassShare(of)
        shards, _, units = files.units(asks)
        used: list[Unit] = list(zip(shards.tolist(), units.tolist(), strict=True))
        return PassShare(of, files.missing(self._of(source, opens)) if len(opens) else (), used)
