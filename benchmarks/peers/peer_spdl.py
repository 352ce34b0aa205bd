"""SPDL: a pipeline of threads around FFmpeg's decoder and filters (crop, scale, hflip). uint8.

FFmpeg's scaler widens its bilinear filter when it shrinks, so it antialiases. Images are decoded whole, then
cropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import spdl.io
import turn
from spdl.pipeline import PipelineBuilder

from fastload.bench.boxes import random_box

AHEAD = 3
"""Batches that wait for the loop."""


def filters(box: tuple[int, int, int, int], size: int, *, mirrored: bool) -> str:
    """FFmpeg's description of a crop (x, y, width, height) that is resized to a square."""
    x, y, w, h = box
    steps = [
        f"crop={w}:{h}:{x}:{y}:exact=1",
        f"scale={size}:{size}:flags=bilinear",
        *(["hflip"] if mirrored else []),
        "format=rgb24",
    ]
    return ",".join(steps)


def load(task: turn.Task) -> Any:
    """Decoding with the task's number of threads, batches in a thread of their own."""

    def decode(item: tuple[str, int]) -> tuple[Any, int]:
        packets = spdl.io.demux_image(item[0])
        box = random_box(packets.width, packets.height)
        return spdl.io.decode_packets(
            packets, filter_desc=filters(box, task.size, mirrored=random.random() < 0.5)
        ), item[1]

    def batch(items: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
        return spdl.io.to_numpy(spdl.io.convert_frames([frames for frames, _ in items])), [
            label for _, label in items
        ]

    def epoch(number: int) -> Iterator[Any]:
        files = task.files
        random.Random(task.seed * 1000 + number).shuffle(files)
        builder = (
            PipelineBuilder()
            .add_source(files)
            .pipe(decode, concurrency=task.workers)
            .aggregate(task.batch, drop_last=True)
        )
        built = builder.pipe(batch).add_sink(AHEAD).build(num_threads=task.workers)
        with built.auto_stop():
            yield from built

    return turn.Epochs(epoch)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same filters on the whole image."""
    for path, _ in task.files:
        packets = spdl.io.demux_image(path)
        wanted = filters((0, 0, packets.width, packets.height), task.size, mirrored=False)
        yield spdl.io.to_numpy(spdl.io.convert_frames(spdl.io.decode_packets(packets, filter_desc=wanted)))


if __name__ == "__main__":
    turn.run(load, crops)
