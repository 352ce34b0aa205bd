"""NVIDIA DALI on the CPU: the file reader, the decoder that crops, resize and mirror, in its threads. uint8,
antialiased.

The form ``dynamic`` calls the same operators one by one, as DALI's dynamic mode has them; the others are a
pipeline.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import turn
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def pipeline(
    task: turn.Task, area: tuple[float, float], aspect: tuple[float, float], mirrored: float, *, shuffle: bool
) -> Any:
    """The documented pipeline of ImageNet, without its normalisation."""
    files = task.files
    paths, labels = [path for path, _ in files], [label for _, label in files]
    data, label = fn.readers.file(
        files=paths, labels=labels, random_shuffle=shuffle, initial_fill=len(files), name="reader"
    )
    images = fn.decoders.image_random_crop(
        data, random_area=area, random_aspect_ratio=aspect, output_type=types.RGB
    )
    images = fn.resize(images, size=(task.size, task.size), interp_type=types.INTERP_LINEAR, antialias=True)
    return fn.flip(images, horizontal=fn.random.coin_flip(probability=mirrored)), label


@pipeline_def
def view_pipeline(task: turn.Task) -> Any:
    """Files decoded whole and once, then a random crop for each view."""
    files = task.files
    paths, labels = [path for path, _ in files], [label for _, label in files]
    data, label = fn.readers.file(
        files=paths, labels=labels, random_shuffle=True, initial_fill=len(files), name="reader"
    )
    whole = fn.decoders.image(data, output_type=types.RGB)
    ratio, linear = (3 / 4, 4 / 3), types.INTERP_LINEAR
    crops = (
        fn.random_resized_crop(
            whole,
            size=(size, size),
            random_area=scale,
            random_aspect_ratio=ratio,
            interp_type=linear,
            antialias=True,
        )
        for size, scale, count in turn.VIEWS
        for _ in range(count)
    )
    return *(fn.flip(crop, horizontal=fn.random.coin_flip()) for crop in crops), label


@pipeline_def
def object_pipeline(task: turn.Task) -> Any:
    """The documented pipeline of COCO: images as squares, boxes as shares of them."""
    annotations = f"{task.coco}/annotations/instances_train2017.json"
    coco = {
        "file_root": f"{task.coco}/train2017",
        "annotations_file": annotations,
        "ltrb": True,
        "ratio": True,
    }
    data, boxes, _ = fn.readers.coco(random_shuffle=True, initial_fill=len(task.files), name="reader", **coco)
    images = fn.resize(
        fn.decoders.image(data, output_type=types.RGB),
        size=(turn.SIDE, turn.SIDE),
        interp_type=types.INTERP_LINEAR,
        antialias=True,
    )
    mirrored = fn.random.coin_flip()
    return fn.flip(images, horizontal=mirrored), fn.bb_flip(boxes, ltrb=True, horizontal=mirrored)


def options(task: turn.Task) -> dict[str, Any]:
    """What a pipeline of the task is built with."""
    return {"batch_size": task.batch, "num_threads": task.workers, "device_id": None, "seed": task.seed + 1}


def endless(built: Any, take: Callable[..., Any], task: turn.Task) -> turn.Stream:
    """Whole batches of a pipeline, which runs on from epoch to epoch; take: a batch of what it puts out."""
    built.build()

    def batches() -> Iterator[Any]:
        while True:
            yield take(*built.run())

    return turn.Stream(batches(), task.batches)


def array(found: Any) -> Any:
    """A batch of equal shapes."""
    return np.asarray(found.as_tensor())


def called(
    reader: Any, task: turn.Task, area: tuple[float, float], aspect: tuple[float, float], mirrored: float
) -> Iterator[Any]:
    """An epoch of dynamic mode: (images, labels) of each whole batch, what `pipeline` gives."""
    for data, label in itertools.islice(reader.next_epoch(batch_size=task.batch), task.batches):
        images = ndd.decoders.image_random_crop(
            data, random_area=area, random_aspect_ratio=aspect, output_type=types.RGB, device="cpu"
        )
        images = ndd.resize(
            images, size=(task.size, task.size), interp_type=types.INTERP_LINEAR, antialias=True
        )
        images = ndd.flip(
            images, horizontal=ndd.random.coin_flip(probability=mirrored, batch_size=task.batch)
        )
        yield np.asarray(ndd.as_tensor(images)), np.asarray(ndd.as_tensor(label))


def dynamic_reader(task: turn.Task, *, shuffle: bool) -> Any:
    """The file reader of dynamic mode, with the task's threads and seed."""
    ndd.set_num_threads(task.workers)
    ndd.random.set_seed(task.seed + 1)
    files = task.files
    return ndd.readers.File(
        files=[path for path, _ in files],
        labels=[label for _, label in files],
        random_shuffle=shuffle,
        initial_fill=len(files),
    )


def load(task: turn.Task) -> Any:
    """Random crops, which its decoder decodes alone."""
    if task.form == "dynamic":
        reader = dynamic_reader(task, shuffle=True)
        return turn.Epochs(lambda _: called(reader, task, (0.08, 1.0), (3 / 4, 4 / 3), 0.5))
    built = pipeline(task, (0.08, 1.0), (3 / 4, 4 / 3), 0.5, shuffle=True, **options(task))
    return endless(built, lambda images, labels: (array(images), array(labels)), task)


def views(task: turn.Task) -> Any:
    """All views of each file."""
    return endless(
        view_pipeline(task, **options(task)),
        lambda *found: ([array(view) for view in found[:-1]], array(found[-1])),
        task,
    )


def detection(task: turn.Task) -> Any:
    """Whole images, and the list of their boxes."""
    built = object_pipeline(task, **options(task))
    return endless(built, lambda images, boxes: (array(images), [np.asarray(each) for each in boxes]), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same operators, whose crop is all of the square image."""
    if task.form == "dynamic":
        alone = dataclasses.replace(task, batch=1, workers=1)
        yield from (
            images[0]
            for images, _ in called(dynamic_reader(alone, shuffle=False), alone, (1.0, 1.0), (1.0, 1.0), 0.0)
        )
        return
    built = pipeline(
        task, (1.0, 1.0), (1.0, 1.0), 0.0, shuffle=False, batch_size=1, num_threads=1, device_id=None, seed=1
    )
    built.build()
    for _ in task.files:
        yield np.array(built.run()[0].as_tensor())[0]


if __name__ == "__main__":
    turn.run(load, crops, views=views, detection=detection)
