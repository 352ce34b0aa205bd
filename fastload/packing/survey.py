"""A look at a source's images before, or in the midst of, packing it: how many of them cannot be stored at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fastload.errors import FastloadError
from fastload.packing.pillow_images import DeepImageError
from fastload.packing.pixels import check_depth
from fastload.packing.sources.protocol import IMAGE_EXTENSIONS, Source

SAMPLES = 4096
BYTES = 256 << 20
"""Limits on what is read: a look must cost nothing beside the pack, whatever the source."""

_OTHERS = tuple(extension for extension in IMAGE_EXTENSIONS if extension not in (".jpg", ".jpeg"))


@dataclass(frozen=True, slots=True)
class Survey:
    """What a look at some samples found.

    Attributes:
        looked: how many images were looked at.
        deep: how many of them have more than 8 bits a channel.
        first: the name of the first such image, "" for none.
        reason: why it is refused.
    """

    looked: int
    deep: int
    first: str
    reason: str


def survey(source: Source, positions: Iterable[int], *, by_name: bool) -> Survey:
    """Looks at the headers of at most `SAMPLES` images and `BYTES` bytes, evenly spread over the positions.

    Args:
        source: where to read; one that only one thread may ask is not looked at.
        positions: the samples that count.
        by_name: only those whose name is that of a picture other than a JPEG.
    """
    if not source.concurrent:
        return Survey(0, 0, "", "")
    chosen = [p for p in map(int, positions) if not by_name or os.path.splitext(source.name(p))[1].lower() in _OTHERS]
    looked = size = 0
    deep: dict[int, str] = {}
    # in random order, so that what has been looked at is spread evenly wherever the limit on bytes ends it
    for place in map(int, np.random.default_rng(0).permutation(len(chosen))[:SAMPLES]):
        try:
            image = source.read(chosen[place]).image
            looked += 1
            size += len(image)
            if isinstance(image, bytes):
                check_depth(image)
        except DeepImageError as error:
            deep[place] = error.reason
        except (FastloadError, OSError):
            continue  # what cannot be read is for the pack to say, or to leave out
        if size > BYTES:
            break
    first = min(deep, default=-1)
    return Survey(looked, len(deep), source.name(chosen[first]) if deep else "", deep.get(first, ""))
