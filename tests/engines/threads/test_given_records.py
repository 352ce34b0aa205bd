"""Records given to rows of a batch, as those are for which a bucket's cache has no room, in place of the
ones in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastload import FastLoader
from fastload import transforms as T
from fastload.engines.threads.engine import ThreadEngine

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_a_row_made_again_forgets_the_record_it_was_given(packed: Path) -> None:
    """Given another sample's record, a row fails. It is made again of the store's, or of one given then,
    never of the first."""
    with FastLoader(packed, batch_size=3, transform=T.Resize((16, 16)), num_workers=1) as loader:
        plan = loader._fastload.plan
        assert plan.native is not None
        assert plan.outputs is not None
        engine = ThreadEngine(plan.native, 0, plan.outputs, 2, 3)
        store = plan.native.datasets[0].opened.reader.store

    def images(batch: Any) -> Any:
        return np.frombuffer(batch.lease(), np.uint8).reshape(batch.rows, -1)

    want = engine.announce([0, 4, 5], 0, 0)
    want.make()
    batch = engine.announce(range(3), 0, 0)
    batch.give(0, store.get(0))
    for row in (1, 2):
        batch.give(row, store.get(7))
    batch.make()
    assert [row for row, *_ in batch.failures()] == [1, 2]
    assert batch.redo(1, 0, 4)
    assert batch.redo(2, 0, 5, store.get(5))
    assert np.array_equal(images(batch), images(want))
    engine.close()
