"""A state of mid-epoch, loaded where the dataset was changed since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Subset
from versions_helpers import Shapes, packed

import fastload
from fastload.errors import ArgumentError

RESIZE = [fastload.transforms.Resize((8, 8))]


def loader_of(path: Path, part: bool = False, **options: Any) -> Any:
    """A loader of a packed dataset, or of a part of it, in a shuffled order."""
    dataset: Any = fastload.PackedDataset(path, RESIZE, **options)
    if part:
        dataset = Subset(dataset, range(16))
    return fastload.FastLoader(dataset, batch_size=4, shuffle=True, seed=3, num_workers=2)


def values(batch: dict[str, Any]) -> list[Any]:
    """What says which samples a batch has."""
    return [batch["label"].tolist(), batch["caption"]]


@pytest.mark.parametrize("part", [False, True])
def test_another_version(tmp_path: Path, part: bool) -> None:
    """A resume on a version with other samples is refused with the version to open; on that one, and on one
    with the same samples and other fields, it goes on where it was."""
    out = packed(tmp_path / "ds", 0, 20)
    loader = loader_of(out, part)
    batches = iter(loader)
    next(batches), next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [values(batch) for batch in batches]
    (tmp_path / "more.csv").write_text("rank\n" + "3\n" * 20)
    fastload.add_columns(out, tmp_path / "more.csv")
    resumed = loader_of(out, part)
    resumed.load_state_dict(state)
    assert [values(batch) for batch in resumed] == rest
    fastload.drop(out, indices=[3])
    fastload.append(
        out,
        type(
            "Ranked", (Shapes,), {"__getitem__": lambda self, i: {**Shapes.__getitem__(self, i), "rank": 1}}
        )(20, 1),
    )
    with pytest.raises(
        ArgumentError,
        match=r"version 1 of .*, this loader has version 4, whose samples are others: .*version=1",
    ):
        loader_of(out, part).load_state_dict(state)
    older = loader_of(out, part, version=1)
    older.load_state_dict(state)
    assert [values(batch) for batch in older] == rest


def test_between_epochs(tmp_path: Path) -> None:
    """A state between epochs is of no version: the next epoch has the new samples. A damaged list of
    versions is refused."""
    out = packed(tmp_path / "ds", 0, 8)
    loader = loader_of(out)
    assert sum(len(batch["label"]) for batch in loader) == 8
    state = loader.state_dict()
    fastload.append(out, Shapes(8, 4))
    resumed = loader_of(out)
    resumed.load_state_dict(state)
    assert sum(len(batch["label"]) for batch in resumed) == 12
    for wrong in (None, [[1]], [["1", "x"]], {}):
        with pytest.raises(ArgumentError, match="packed is no list"):
            loader_of(out).load_state_dict({**state, "packed": wrong})
    old = {name: value for name, value in state.items() if name != "packed"}
    loader_of(out).load_state_dict(old)
