"""Checks of the page cache against a dataset, and of the disk under it: the speed of reads past the page
cache."""

from __future__ import annotations

import errno
import mmap
import os
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from fastload.common.progress import human_bytes
from fastload.common.system import available_memory
from fastload.doctor.finding import Finding

Sized = Sequence[tuple[Path, int]]
"""Files with their sizes in bytes."""
BLOCK = 4096
PROBES = 256
"""Pages of a dataset for which the page cache is asked."""
SECONDS = 1.0
"""Most seconds of each of the two measurements."""
AT_ONCE = 16
"""Random reads that are under way at once: the loader asks for the records of several batches ahead of
their turn."""
RANDOM_READS = 4096
SEQUENTIAL_READ = 4 << 20
SEQUENTIAL_BYTES = 512 << 20


@dataclass(frozen=True)
class DiskSpeed:
    """Speed of reads.

    Attributes:
        direct: True if the reads went past the page cache; otherwise it may have answered them.
        sequential: bytes a second of one reader of consecutive ranges.
        random: random reads a second, of `random_bytes` bytes each.
        random_bytes: bytes of a random read, a multiple of 4096.
        read_bytes: bytes that were read for the measurement.
    """

    direct: bool
    sequential: float
    random: float
    random_bytes: int
    read_bytes: int


def cached_share(files: Sized) -> float | None:
    """Share of files, given with their sizes, that the page cache holds, 0 to 1; None: the kernel or the file
    system does not say.

    A byte of random pages is asked for by reads that never wait for the disk (preadv2 with RWF_NOWAIT). Some
    kernels then read such a page all the same: up to PROBES pages come into the page cache by this. Raises
    OSError.
    """
    places = _pages(files, PROBES)
    with ExitStack() as opened:
        descriptors = _opened(opened, files, os.O_RDONLY)
        for descriptor in descriptors.values():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # the kernel reads nothing around a page
        try:
            found = sum(_is_cached(descriptors[path], offset) for path, offset in places)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return None
            raise
    return found / len(places) if places else None


def _is_cached(descriptor: int, offset: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def measure_disk(files: Sized, record: int) -> DiskSpeed:
    """Speed of the disk under files, given with their sizes.

    Reads go past the page cache (O_DIRECT), which keeps what it has. Where the file system does not allow
    that, they are ordinary ones.

    Args:
        files: the files; some of them have a byte or more.
        record: bytes of a random read.

    Raises:
        OSError: a file cannot be read.
    """
    try:
        return _measured(files, record, os.O_DIRECT)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return _measured(files, record, 0)


def _measured(files: Sized, record: int, flag: int) -> DiskSpeed:
    size = max(BLOCK, -(-record // BLOCK) * BLOCK)
    with ExitStack() as opened:
        descriptors = _opened(opened, files, os.O_RDONLY | flag)
        sequential_bytes, sequential_s = _sequential(descriptors, files)
        reads, random_bytes, random_s = _random(descriptors, files, size)
    return DiskSpeed(
        bool(flag), sequential_bytes / sequential_s, reads / random_s, size, sequential_bytes + random_bytes
    )


def _opened(opened: ExitStack, files: Sized, flags: int) -> dict[Path, int]:
    """A descriptor of each file; of many, those of some."""
    found: dict[Path, int] = {}
    for path, _ in _some(files):
        found[path] = os.open(path, flags | os.O_CLOEXEC)
        opened.callback(os.close, found[path])
    return found


_FILES_MOST = 16


def _some(files: Sized) -> Sized:
    """At most 16 of the files, evenly spaced: a limit of open files does not matter then."""
    if len(files) <= _FILES_MOST:
        return files
    return [files[k * len(files) // _FILES_MOST] for k in range(_FILES_MOST)]


def _pages(files: Sized, most: int) -> list[tuple[Path, int]]:
    """Random pages of the files, each as a file and an offset, none twice."""
    known = _some(files)
    firsts = [0, *accumulate(-(-size // BLOCK) for _, size in known)]
    chosen = random.sample(range(firsts[-1]), min(most, firsts[-1]))
    files_of = [bisect_right(firsts, page) - 1 for page in chosen]
    return [
        (known[number][0], (page - firsts[number]) * BLOCK)
        for number, page in zip(files_of, chosen, strict=True)
    ]


def _sequential(descriptors: dict[Path, int], files: Sized) -> tuple[int, float]:
    """(bytes, seconds) of consecutive ranges, from a random place of each file on, once around it."""
    done, began = 0, time.perf_counter()
    with mmap.mmap(-1, SEQUENTIAL_READ) as room:  # O_DIRECT wants memory that begins at a page
        for path, size in random.sample(list(_some(files)), len(_some(files))):
            ranges = -(-size // SEQUENTIAL_READ)
            first = random.randrange(max(1, ranges))
            for number in range(ranges):
                done += os.preadv(descriptors[path], [room], (first + number) % ranges * SEQUENTIAL_READ)
                if done >= SEQUENTIAL_BYTES or time.perf_counter() - began > SECONDS:
                    return done, time.perf_counter() - began
    return done, time.perf_counter() - began


def _random(descriptors: dict[Path, int], files: Sized, size: int) -> tuple[int, int, float]:
    """(reads, bytes, seconds) of random reads, several at once."""
    places = _pages(files, RANDOM_READS)
    began = time.perf_counter()

    def some(first: int) -> tuple[int, int]:
        reads = done = 0
        with mmap.mmap(-1, size) as room:
            for path, offset in places[first::AT_ONCE]:
                done += os.preadv(descriptors[path], [room], offset)
                reads += 1
                if time.perf_counter() - began > SECONDS:
                    break
        return reads, done

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(some, range(AT_ONCE)))
    return sum(reads for reads, _ in found), sum(done for _, done in found), time.perf_counter() - began


def page_cache_finding(files: Sized) -> Finding:
    """The page cache against files: whether they fit the memory, and how much of them is there now. Raises
    OSError."""
    size, free, share = sum(size for _, size in files), available_memory(), cached_share(files)
    value = {"bytes": size, "available": free, "cached_share": share}
    now = (
        "how much of it is there now is unknown" if share is None else f"about {share:.0%} of it is there now"
    )
    if free is None:
        return Finding(
            "page cache", "unknown", f"the system does not say what memory is available; {now}", value=value
        )
    if size <= free:
        return Finding(
            "page cache",
            "good",
            f"{human_bytes(size)} of data fit the {human_bytes(free)} available; {now}",
            value=value,
        )
    text = (
        f"{human_bytes(size)} of data do not fit the {human_bytes(free)} available; {now}: each epoch "
        "reads the disk"
    )
    return Finding("page cache", "unknown", text, 'see the line "disk"', value)


def disk_finding(speed: DiskSpeed, needed: float | None, who: str, *, fits: bool) -> Finding:
    """The finding about a disk's speed.

    Args:
        speed: its measured speed.
        needed: samples a second that it has to give; None: unknown.
        who: who takes them, in words.
        fits: True if the dataset fits the page cache.
    """
    value = asdict(speed)
    text = (
        f"{human_bytes(speed.sequential)}/s in order, {speed.random:,.0f} records/s at random "
        f"({human_bytes(speed.random_bytes)} each), "
        + (
            "past the page cache"
            if speed.direct
            else "maybe from the page cache, which reads of this file system do not go past"
        )
    )
    if not speed.direct:
        return Finding("disk", "unknown", text, "compare the first epoch with later ones", value)
    if needed is None:
        return Finding("disk", "unknown", text, "give --step-ms, to compare with what the step takes", value)
    text += f"; {who} {needed:,.0f}/s"
    if speed.random >= needed:
        return Finding("disk", "good", text, value=value)
    if fits:
        return Finding(
            "disk", "good", f"{text}: the first epoch is slower, later ones read the page cache", value=value
        )
    remedy = (
        'shuffle="window", which reads in order; a faster disk; more memory; smaller images (pack --max-side)'
    )
    return Finding("disk", "bad", text, remedy, value)
