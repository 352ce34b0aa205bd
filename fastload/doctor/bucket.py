"""Check of a bucket: the speed of requests, as the loader's fetcher makes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fastload.common.progress import human_bytes
from fastload.doctor.finding import Finding
from fastload.store.reader import DatasetReader

FIRST = 8
"""Samples of the first request."""
SECONDS = 2.0
"""Seconds of requests after which no larger one follows."""
BYTES = 32 << 20
"""Most bytes of one request: as many as the loader has under way."""


@dataclass(frozen=True)
class BucketSpeed:
    """Speed of a bucket, in samples a second; and the number of samples that were read for it."""

    in_order: float
    at_random: float
    samples: int


def measure_bucket(
    reader: DatasetReader, in_order: Sequence[int], at_random: Sequence[int]
) -> tuple[BucketSpeed, Sequence[int]]:
    """Fetches samples that no cache has, some consecutive and some at random. Returns the speed, and the
    random ones that were fetched.

    Raises:
        RemoteError: the store does not answer.
    """
    fetched, ordered = _fetch(reader, in_order)
    also, random = _fetch(reader, at_random)
    return BucketSpeed(ordered, random, fetched + also), at_random[:also]


def _fetch(reader: DatasetReader, indices: Sequence[int]) -> tuple[int, float]:
    """Requests more and more samples at once, until that takes long. Returns how many, and the last
    request's samples a second."""
    mean, done, count, rate = reader.manifest.mean_bytes or 1.0, 0, FIRST, 0.0
    began = time.perf_counter()
    while True:
        wanted = indices[done : done + count]
        asked = time.perf_counter()
        with reader.files.held(wanted):
            now = time.perf_counter()
        rate, done, left = len(wanted) / (now - asked), done + len(wanted), SECONDS - (now - began)
        following = int(min(4 * count, left * rate, BYTES / mean, len(indices) - done))
        if following < len(wanted):
            return done, rate
        count = following


def bucket_finding(speed: BucketSpeed, mean: float, needed: float | None, who: str) -> Finding:
    """The finding about a bucket's speed.

    Args:
        speed: its measured speed.
        mean: mean bytes of a sample.
        needed: samples a second that it has to give; None: unknown.
        who: who takes them, in words.
    """
    value = asdict(speed) | {"mean_bytes": mean}
    text = (
        f"{speed.in_order:,.0f} samples/s in order ({human_bytes(speed.in_order * mean)}/s), "
        f"{speed.at_random:,.0f} at random "
        f"({human_bytes(speed.at_random * mean)}/s), without a cache"
    )
    if needed is None:
        return Finding(
            "bucket", "unknown", text, "give --step-ms, to compare with what the step takes", value
        )
    text += f"; {who} {needed:,.0f}/s"
    if speed.at_random >= needed:
        return Finding("bucket", "good", text, value=value)
    remedy = (
        "fill a cache as large as the dataset (`fastload cache URL`) before the job; or "
        'shuffle="window", which reads in order'
    )
    return Finding("bucket", "bad", text, remedy, value)
