"""TurboLoader as its own documents have it, in three forms. float32, labels by the index of a sample.

Forms: ``tar`` (crops of JPEGs, ``train_aug``), ``antialias`` (the same with its option for antialiased
shrinking), and ``tbl``: images are decoded once, squeezed to 256 x 256 pixels and stored raw; an epoch crops
those pixels and decodes nothing. The number of its threads is the process's CPUs: a task of one worker runs
on one CPU, and so does the loop.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import turn

STORED = 256


def limit_threads(workers: int) -> None:
    """Leaves the process that many CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:workers])


def make(task: turn.Task) -> None:
    """A tar of the files, and for ``tbl`` its pixels."""
    tar = Path(task.data) if task.form != "tbl" else Path(task.data).with_suffix(".tar")
    with tarfile.open(tar, "w") as archive:
        for number, (path, _) in enumerate(task.files):
            archive.add(path, arcname=f"{number:08d}.jpg")
    if task.form == "tbl":
        from turboloader.tbl import preprocess_to_tbl

        preprocess_to_tbl(str(tar), task.data, image_size=STORED)
        tar.unlink()


def loader_of(task: turn.Task, **options: Any) -> Any:
    """Its DataLoader, without normalisation, which would be further work."""
    import turboloader

    return turboloader.DataLoader(
        task.data,
        image_size=task.size,
        output_format="pytorch",
        antialias=task.form == "antialias",
        seed=task.seed,
        **options,
    )


def load(task: turn.Task) -> Any:
    """Its fused crop and flip."""
    limit_threads(task.workers)
    labels = np.array([label for _, label in task.files])
    loader = loader_of(task, batch_size=task.batch, shuffle=True, train_aug=True, drop_last=True)

    def epoch(number: int) -> Iterator[Any]:
        loader.set_epoch(number)
        for images, facts in loader:
            yield images, labels[np.asarray(facts["indices"])]

    return turn.Epochs(epoch)


def crops(task: turn.Task) -> Iterator[Any]:
    """The resize of the whole image: its random crop takes no bounds."""
    for images, _ in loader_of(task, batch_size=1):
        yield turn.unit_pixels(images)[0]


if __name__ == "__main__":
    turn.run(load, crops, make)
