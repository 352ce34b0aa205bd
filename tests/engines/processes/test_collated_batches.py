"""Batches that workers collate into slots: default_collate's layouts, views and kept results come out as
they were made."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from process_helpers import MODES, Made, engine_marks, ones
from torch.utils.data import Dataset, default_collate
from torch.utils.data._utils import collate as torch_collate
from worker_values import Custom, same

from fastload import FastLoader

pytestmark = engine_marks


@pytest.mark.parametrize("mode", MODES)
def test_samples_that_change_kind(mode: str) -> None:
    """Batches of another layout than the first are collated as default_collate does."""
    if "collate_fn" in MODES[mode]:
        pytest.skip("of default_collate")

    def make(index: int) -> Any:
        batch = index // 4
        return [
            {"x": torch.ones(2), "n": index},
            [index, index / 2],
            {"x": torch.ones(2).double(), "n": index},
            (str(index),),
        ][batch % 4]

    expected = [default_collate([make(index) for index in range(at, at + 4)]) for at in range(0, 64, 4)]
    got = list(FastLoader(Made(make, 64), batch_size=4, num_workers=2, **MODES[mode]))
    if mode == "any order":
        assert Counter(map(repr, got)) == Counter(map(repr, expected))
    else:
        assert same(expected, got)


class Caching(Dataset[Any]):
    """Collates for itself, and keeps what it made."""

    def __init__(self) -> None:
        self.cache: dict[int, Any] = {}

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        key = index % 40
        if key not in self.cache:
            self.cache[key] = default_collate([ones(key), ones(key)])
        return self.cache[key]


@pytest.mark.parametrize("collate", [None, lambda samples: samples])
def test_what_a_dataset_collates_stays_its_own(collate: Any) -> None:
    """A dataset that calls default_collate and keeps the result finds it as it was, however often the
    slots are filled again."""
    for number, batch in enumerate(FastLoader(Caching(), batch_size=2, num_workers=2, collate_fn=collate)):
        for at, sample in enumerate(batch):
            assert bool((sample == (2 * number + at) % 40).all())


def test_views_of_collated_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collate function of a class that gives a tensor and views of it: right also where the slot is too
    small and all are copied."""

    def both(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
        stacked = torch_collate.collate([each.content for each in batch], collate_fn_map=collate_fn_map)
        return [stacked, *stacked.unbind(), torch.ones(1_000_000 if int(stacked[0, 0]) == 60 else 0)]

    monkeypatch.setitem(torch_collate.default_collate_fn_map, Custom, both)
    dataset = Made(lambda i: Custom(ones(i)), 80)
    for number, batch in enumerate(FastLoader(dataset, batch_size=4, num_workers=2)):
        whole, *parts, more = batch
        assert bool(more.eq(1).all())
        assert whole[:, 0].tolist() == [4.0 * number + at for at in range(4)]
        assert all(map(torch.equal, whole, parts))
