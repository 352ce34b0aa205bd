"""WebDataset: a tar of the JPEGs on the local disk, a shuffle buffer, Pillow's pixels. uint8, antialiased."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import turn
import webdataset
from pixels import augmented, resized

BUFFER = 1000  # samples, as in WebDataset's own examples
SHARDS = 4


def make(task: turn.Task) -> None:
    """Tar files: with fewer than workers, some of those would have nothing to read."""
    Path(task.data).mkdir()
    for shard in range(SHARDS):
        with webdataset.TarWriter(f"{task.data}/{shard}.tar") as writer:
            for number, (path, label) in list(enumerate(task.files))[shard::SHARDS]:
                writer.write(
                    {"__key__": f"{number:08d}", "jpg": Path(path).read_bytes(), "cls": str(label).encode()}
                )


def load(task: turn.Task) -> Any:
    """Batches made in the workers, of shards drawn without end; an epoch is as many as the images fill."""

    def sample(found: tuple[bytes, bytes]) -> tuple[Any, int]:
        return augmented(found[0], task.size), int(found[1])

    tars = [f"{task.data}/{shard}.tar" for shard in range(SHARDS)]
    dataset = (
        webdataset.WebDataset(tars, resampled=True, shardshuffle=False, seed=task.seed)
        .shuffle(BUFFER)
        .to_tuple("jpg", "cls")
    )
    batches = dataset.map(sample).batched(task.batch, partial=False)
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=task.workers, persistent_workers=True)
    return turn.Stream(iter(loader), task.batches)


def crops(task: turn.Task) -> Iterator[Any]:
    """Pillow's resize of what is in the tars, in the order of the files."""
    found = {}
    for shard in range(SHARDS):
        with tarfile.open(f"{task.data}/{shard}.tar") as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    found[member.name] = resized(archive.extractfile(member).read(), task.size)
    return (found[name] for name in sorted(found))


if __name__ == "__main__":
    turn.run(load, crops, make)
