"""The child process of bench_hosts.py: one rank that trains from a bucket: ``python hosts_rank.py SPEC``,
with SPEC as JSON.

It says "opened", and "epoch" after each epoch, and waits for an answer after each: meanwhile the parent reads
what the proxy has counted.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from remote_lines import event, say

from fastload import FastLoader, PackedDataset, WindowSampler
from fastload import transforms as T


def main() -> None:
    """Trains: a step sleeps as long as it computes in the simulation."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    train = PackedDataset(
        spec["url"],
        [T.CenterCrop(64)],
        cache=spec["cache"],
        cache_size=spec["cache_size"],
        storage_options=spec["options"],
    )
    shard = spec["rank"], spec["ranks"]
    given: dict[str, Any] = {
        "batch_size": spec["batch"],
        "num_workers": 2,
        "prefetch_factor": spec["depth"],
        "seed": spec["seed"],
    }
    if spec["order"] == "window":
        sampler = WindowSampler(
            train,
            block=spec["block"],
            buffer=spec["buffer"],
            seed=spec["seed"],
            rank=shard[0],
            num_replicas=shard[1],
        )
        given |= {"sampler": sampler}
    else:
        given |= {"shuffle": True if spec["order"] == "shuffle" else spec["order"], "shard": shard}
    len(train)
    event("opened")
    for epoch in range(spec["epochs"]):
        with FastLoader(train, **given) as loader:  # a loader of its own: none begins the next epoch early
            loader.set_epoch(epoch)
            for _ in loader:
                time.sleep(spec["step_s"])
        event("epoch")
    say(result="done")


if __name__ == "__main__":
    main()
