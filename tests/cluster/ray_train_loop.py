"""What a worker of Ray Train runs in test_ray_train.py: a module of its own, so that workers import it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def loop(config: dict[str, Any]) -> None:
    """Notes the labels of three epochs of a sharded loader, and of one that Ray Train shards, and what it
    made of each."""
    import ray.train
    from ray.train.torch import prepare_data_loader

    from fastload import FastLoader, PackedDataset
    from fastload.transforms import RandomResizedCrop

    data = PackedDataset(config["data"], [RandomResizedCrop(16)])
    ours = prepare_data_loader(FastLoader(data, 4, shuffle=True, shard="auto", seed=5, num_workers=1))
    plain = prepare_data_loader(FastLoader(data, 4, shuffle=True, num_workers=0))
    found = {
        "ours": type(ours._dataloader).__name__,
        "plain": type(plain._dataloader).__name__,
        "epochs": [[int(label) for batch in ours for label in batch[1]] for _ in range(3)],
        "theirs": [int(label) for batch in plain for label in batch[1]],
        "engine": ours._dataloader.stats()["engine"],
    }
    rank = ray.train.get_context().get_world_rank()
    (Path(config["out"]) / f"{rank}.json").write_text(json.dumps(found))
