"""NVIDIA DALI on the CPU: the file reader, the decoder that crops, resize and mirror, in its threads. uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import turn
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def pipeline(task: turn.Task, area: tuple[float, float], aspect: tuple[float, float], mirrored: float, *, shuffle: bool) -> Any:
    """The documented pipeline of ImageNet, without its normalisation."""
    files = task.files
    paths, labels = [path for path, _ in files], [label for _, label in files]
    data, label = fn.readers.file(files=paths, labels=labels, random_shuffle=shuffle, initial_fill=len(files), name="reader")
    images = fn.decoders.image_random_crop(data, random_area=area, random_aspect_ratio=aspect, output_type=types.RGB)
    images = fn.resize(images, size=(task.size, task.size), interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip(probability=mirrored)), label


def load(task: turn.Task) -> Any:
    """Whole batches; the pipeline runs on from epoch to epoch."""
    options = {"batch_size": task.batch, "num_threads": task.workers, "device_id": None, "seed": task.seed + 1}
    built = pipeline(task, (0.08, 1.0), (3 / 4, 4 / 3), 0.5, shuffle=True, **options)
    built.build()

    def batches() -> Iterator[Any]:
        while True:
            images, labels = built.run()
            yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor())

    return turn.Stream(batches(), task.batches)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same operators, whose crop is all of the square image."""
    built = pipeline(task, (1.0, 1.0), (1.0, 1.0), 0.0, shuffle=False, batch_size=1, num_threads=1, device_id=None, seed=1)
    built.build()
    for _ in task.files:
        yield np.array(built.run()[0].as_tensor())[0]


if __name__ == "__main__":
    turn.run(load, crops)
