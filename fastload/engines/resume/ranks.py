"""Comparison of ranks as a pass begins: all that its order follows from. See NOTE [ agreement: no rank
waits for another ]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import distributed
from torch.utils.data import Subset

from fastload.common.positions import summary_of
from fastload.dataset.mixture import mixture_facts, parts_of
from fastload.engines.resume.datasets import packed_state
from fastload.engines.settings import Settings
from fastload.sampling.known import drawn_by
from fastload.sampling.sampler import Sharded
from fastload.sampling.sharding import Split


def begin_agreement(
    settings: Settings, sharded: Sharded, epoch: int, splits: Sequence[Split], default: torch.Tensor | None
) -> None:
    """Compares the pass that begins with those of other ranks: all that has to be equal on each, by name.

    A rank with shard=(0, 1) shares with nobody: of it, only that is compared. `epoch` and `splits` are the
    pass's, `default` the state of torch's global generator, where the order may be drawn from it.
    """

    def found() -> dict[str, Any]:
        world: dict[str, Any] = {"a world of": sharded.num_replicas}
        if sharded.shard == "auto" or sharded.num_replicas > 1:
            world |= _shared(settings, sharded, epoch, splits, default)
        return world

    sharded.agreement.begin(sharded.length, sharded.shard == "auto", found)


def _shared(
    settings: Settings, sharded: Sharded, epoch: int, splits: Sequence[Split], default: torch.Tensor | None
) -> dict[str, Any]:
    """Values by the names that an error gives them, the plainest cause first."""
    packed = packed_state(settings.dataset).get("packed", [])
    return {
        "a dataset of the versions": [version for version, _ in packed],
        "a dataset with the samples": [samples for _, samples in packed],
        "shuffle": sharded.kind,
        "seed": getattr(sharded, "seed", settings.seed),
        "epoch": epoch,
        "batch_size": settings.rows,
        "drop_last and even": [bool(settings.drop_last), sharded.rule],
        "a state with (ranks, samples had)": [[each.world, each.had] for each in splits],
        **dict(mixture_facts(settings.dataset)),
        **_gathered(drawn_by(sharded, default)),
        # Groups of ranks with a (rank, world) of their own may divide the data between them.
        **(
            _gathered(_of_subsets(settings.dataset))
            if sharded.num_replicas == distributed.get_world_size()
            else {}
        ),
    }


def _of_subsets(dataset: object) -> Iterator[tuple[str, Any]]:
    for each in parts_of(dataset):
        if type(each) is Subset and (told := summary_of(each.indices)) is not None:
            yield "a Subset with the indices", told


def _gathered(found: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name; those of one name as a list, unless there is one alone."""
    out: dict[str, list[Any]] = {}
    for name, value in found:
        out.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in out.items()}
