"""Survey of a source's images before or during a pack: how many have more than 8 bits a channel, and cannot be stored."""

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
"""Limits on what a survey reads, so that its cost is small beside the pack's for any source."""

_OTHERS = tuple(extension for extension in IMAGE_EXTENSIONS if extension not in (".jpg", ".jpeg"))


@dataclass(frozen=True, slots=True)
class Survey:
    """Result of a survey of some samples.

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
        source: the source; one that only one thread may use is not surveyed.
        positions: the samples to choose from.
        by_name: choose only samples that are pictures of another format than JPEG, by their file names.
    """
    if not source.concurrent:
        return Survey(0, 0, "", "")
    chosen = [p for p in map(int, positions) if not by_name or os.path.splitext(source.name(p))[1].lower() in _OTHERS]
    looked = size = 0
    deep: dict[int, str] = {}
    # in random order, so that the samples are spread evenly wherever the limit on bytes ends the survey
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
            continue  # the pack itself reports or skips unreadable samples
        if size > BYTES:
            break
    first = min(deep, default=-1)
    return Survey(looked, len(deep), source.name(chosen[first]) if deep else "", deep.get(first, ""))
