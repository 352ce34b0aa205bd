"""The part that all programs of benchmarks/peers share: a task of bench_peers.py comes as JSON, and one line
of JSON answers it.

    PYTHON peer_NAME.py '{"task": "rate", ...}'

Tasks: ``make`` writes the peer's own dataset of the tree; ``rate`` measures a loader of random crops;
``crops`` writes whole square images, resized by the peer's own code, as an .npy file. Of fastload only what
imports no torch is used, because not every peer has torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastload.bench.runner import Consumer, rate_of

Json = dict[str, Any]
VIEWS = ((224, (0.4, 1.0), 2), (96, (0.05, 0.4), 6))
"""Views of the work ``views``: side, share of the area, and how many of them, as DINO's."""
SIDE = 512
"""Side of the images of the work ``detection``: they are squeezed to a square, and their boxes with them."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A task for one peer.

    Attributes:
        task: ``make``, ``rate`` or ``crops``.
        tree: the CLASS/IMAGE tree of the photographs.
        listing: a JSON file with the path and class number of every image of it, in ImageFolder's order.
        data: file or folder of the peer's own dataset, made of that tree; it need not have one.
        form: one of the peer's ways to read, where it has several.
        work: ``crop``, ``views`` or ``detection``: what a batch holds. See `check_batch`.
        coco: for ``detection`` the folder in COCO's layout whose images the listing names.
        workers: threads or processes that decode.
        batch: images a batch.
        size: pixels of a crop's side.
        seconds: least time that is measured.
        seed: of shuffles and draws.
        memory: true to read memory, too, in an epoch of its own.
        out: the .npy file of ``crops``, uint8 N x size x size x 3 in the order of the listing.
    """

    task: str
    tree: str
    listing: str
    data: str
    form: str = ""
    work: str = "crop"
    coco: str = ""
    workers: int = 2
    batch: int = 64
    size: int = 224
    seconds: float = 3.0
    seed: int = 0
    memory: bool = False
    out: str = ""

    @property
    def batches(self) -> int:
        """Whole batches of an epoch."""
        return len(self.files) // self.batch

    @property
    def files(self) -> list[tuple[str, int]]:
        """What the listing says."""
        return [(path, label) for path, label in json.loads(Path(self.listing).read_text(encoding="utf-8"))]

    @property
    def boxes(self) -> list[Any]:
        """Boxes of each file of the listing, float32 n x 4: x, y, width and height in pixels of the file."""
        known = json.loads(
            Path(self.coco, "annotations", "instances_train2017.json").read_text(encoding="utf-8")
        )
        number = {image["id"]: k for k, image in enumerate(known["images"])}
        found: list[list[Any]] = [[] for _ in number]
        for each in known["annotations"]:
            found[number[each["image_id"]]].append(each["bbox"])
        return [np.array(boxes, np.float32).reshape(-1, 4) for boxes in found]


Load = Callable[[Task], Iterable[Any]]


class Stream:
    """A loader whose batches never end, cut into epochs of so many batches; what it reads ahead serves the
    next epoch."""

    def __init__(self, batches: Iterator[Any], each: int) -> None:
        self._batches = batches
        self._each = each

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._batches, self._each)


class Epochs:
    """A loader whose every epoch is a generator that ``begin`` starts, with the epoch's number."""

    def __init__(self, begin: Callable[[int], Iterator[Any]]) -> None:
        self._begin = begin
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self._epoch += 1
        return self._begin(self._epoch)


def check_batch(batch: Any, task: Task) -> None:
    """Raises RuntimeError unless the batch holds as many samples of the task's work as agreed.

    ``crop``: (images, labels). ``views``: (a list of images of all VIEWS, labels). ``detection``: (images,
    boxes of each, ...).
    """
    images, second = batch[0], batch[1]
    if task.work == "views":
        sides = [side for side, _, count in VIEWS for _ in range(count)]
        if len(images) != len(sides):
            raise RuntimeError(f"a batch has {len(images)} views, not {len(sides)}")
    else:
        sides = [SIDE if task.work == "detection" else task.size]
        images = [images]
    for each, side in zip(images, sides, strict=True):
        shape = (len(each), *each[0].shape)  # of one tensor, or of a list of them
        planes, pixels = (task.batch, 3, side, side), (task.batch, side, side, 3)
        if shape not in (planes, pixels):
            raise RuntimeError(f"a batch has the shape {shape}, not {planes} or {pixels}")
    if len(second) != task.batch:
        raise RuntimeError(f"a batch of {task.batch} images has {len(second)} labels")


def squeezed(boxes: Any, width: int, height: int, *, mirrored: bool) -> Any:
    """The boxes of an image of width x height pixels once it is SIDE x SIDE, and mirrored."""
    boxes = boxes * np.tile(np.array([SIDE / width, SIDE / height], np.float32), 2)
    if mirrored:
        boxes[:, 0] = SIDE - boxes[:, 0] - boxes[:, 2]
    return boxes


def write_crops(crops: Iterable[Any], task: Task) -> Json:
    """Writes the crops of all files; they come as HWC pixels, uint8."""
    found = np.stack([np.asarray(each) for each in crops])
    wanted = (len(task.files), task.size, task.size, 3)
    if found.dtype != np.uint8 or found.shape != wanted:
        raise RuntimeError(f"crops are {found.dtype} of the shape {found.shape}, not uint8 {wanted}")
    np.save(task.out, found)
    return {}


def unit_pixels(images: Any) -> Any:
    """The uint8 HWC pixels of floats 0..1, N x 3 x H x W."""
    return np.rint(np.asarray(images) * 255).clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


def run_alone(take: Callable[[Task], Json], arguments: Sequence[str]) -> None:
    """Answers one task and ends the process at once: what a peer leaves running is the parent's to end."""
    try:
        answer = {"ok": True, **take(Task(**json.loads(arguments[0])))}
    except Exception as error:  # a row of the table
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        answer = {"ok": False, "reason": f"{type(error).__name__}: {lines[-1]}"[:300]}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


def run(
    load: Load,
    crops: Callable[[Task], Iterable[Any]],
    make: Callable[[Task], None] | None = None,
    *,
    views: Load | None = None,
    detection: Load | None = None,
) -> None:
    """The main program of a peer.

    Args:
        load: makes the loader: whole batches only, (images, labels), shuffled, RandomResizedCrop and flip.
        crops: gives every file of the tree, all of them square, whole and resized to ``size``, as HWC pixels.
        make: writes the peer's own dataset to ``data``, which does not exist; None: it reads the tree.
        views: makes the loader of VIEWS: every file is read once, cropped, resized and flipped for each of
            them.
        detection: makes the loader of whole images with boxes: resized to SIDE x SIDE and flipped, boxes too.
    """
    loads = {"crop": load, "views": views, "detection": detection}

    def take(task: Task) -> Json:
        if task.task == "crops":
            return write_crops(crops(task), task)
        if task.task == "rate":
            build = loads[task.work]
            if build is None:
                raise RuntimeError(f"has no program for {task.work}")
            return rate_of(
                lambda: build(task),
                lambda loader: Consumer(loader, lambda batch: check_batch(batch, task)),
                task.batch,
                task.seconds,
                least_epochs=1,
                memory=task.memory,
            )
        if make is not None:
            shutil.rmtree(task.data, ignore_errors=True)
            Path(task.data).unlink(missing_ok=True)
            make(task)
        return {}

    run_alone(take, sys.argv[1:])
