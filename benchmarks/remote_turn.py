"""The child process of bench_remote.py for fastload: ``python remote_turn.py SPEC`` takes one turn.

It speaks in lines of JSON. Before each line it has done what the line says, and after an event ("opened",
"epoch") it waits for an answer: meanwhile the parent reads what the proxy and the server have counted. The
last line is the turn's result.

Clocks. "open_s" and "first_s" begin when the dataset is made, after `import torch, fastload`; importing
obstore is in them. An epoch's time begins with the last batch of the epoch before it, the first one's with
iter(). CPU is this process's, all threads.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from remote_lines import event, say

Json = dict[str, Any]
RANGE_BYTES = 2 << 20
BATCH = 64
SINGLES_AT_ONCE = 96
RANGES_AT_ONCE = 8
SINGLES_THREADS = 8  # of obstore's blocking calls, without latency: more do not make it faster
RANGES_THREADS = 4
RANGES_BATCH = (
    512  # samples that are asked for together: so many that few ranges are cut short by the batch's ends
)
AHEAD = 4


@dataclasses.dataclass(frozen=True)
class Spec:
    """One turn.

    Attributes:
        mode: "train", "fetch", "obstore" or "awaited".
        source: a dataset's folder or URL.
        cache: folder of the cache, emptied before and after; "" where the source is local.
        cache_size: of it, bytes.
        options: storage_options.
        epochs: of training; 0: the first batch only.
        pattern: of fetching: "ranges" or "singles"; of training: "window" for a WindowSampler, whose next
            epoch does not begin early.
        seed: of the order and the crops.
        workers: decoders' threads.
        settle_s: seconds after each epoch in which what is fetched ahead of the next one may come.
        loader: more arguments of FastLoader.
    """

    mode: str
    source: str
    cache: str = ""
    cache_size: int = 0
    options: Json = dataclasses.field(default_factory=dict)
    epochs: int = 1
    pattern: str = ""
    seed: int = 0
    workers: int = 2
    settle_s: float = 0.0
    loader: Json = dataclasses.field(default_factory=dict)


def memory(name: str) -> int:
    """A line of /proc/self/status, bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def opened(spec: Spec) -> Any:
    """The dataset, opened."""
    from fastload import PackedDataset
    from fastload import transforms as T

    remote: Json = (
        {"cache": spec.cache, "cache_size": spec.cache_size, "storage_options": spec.options}
        if spec.cache
        else {}
    )
    dataset = PackedDataset(
        spec.source, transform=[T.RandomResizedCrop(224), T.RandomHorizontalFlip()], **remote
    )
    len(dataset)
    return dataset


def train(spec: Spec) -> Json:
    """Epochs of a FastLoader; nothing is done with a batch."""
    import torch

    from fastload import FastLoader, WindowSampler

    torch.set_num_threads(1)
    began = time.perf_counter()
    dataset = opened(spec)
    open_s = time.perf_counter() - began
    event("opened")
    options: Json = {
        "batch_size": BATCH,
        "shuffle": True,
        "num_workers": spec.workers,
        "seed": spec.seed,
        **spec.loader,
    }
    if spec.pattern == "window":
        options |= {"shuffle": None, "sampler": WindowSampler(dataset, seed=spec.seed)}
    epochs: list[Json] = []
    first_s, anonymous, classes = 0.0, 0, []
    with FastLoader(dataset, **options) as loader:
        start, cpu = time.perf_counter(), time.process_time()
        for number in range(spec.epochs or 1):
            images, arrived = 0, start
            loader.set_epoch(number)
            for at, (_, labels) in enumerate(loader):
                arrived = time.perf_counter()
                if number == 0 and at == 0:
                    first_s = open_s + arrived - start
                    if not spec.epochs:
                        return {"open_s": open_s, "first_s": first_s}
                images += len(labels)
                if len(labels) == BATCH:
                    classes.append(len(set(labels.tolist())))
                if at % 8 == 0:
                    anonymous = max(anonymous, memory("RssAnon"))
            now = time.process_time()
            epochs.append({"images": images, "wall_s": arrived - start, "cpu_s": now - cpu})
            time.sleep(spec.settle_s)
            start, cpu = arrived, now
            event("epoch")
    peak = memory("VmHWM")
    return {
        "open_s": open_s,
        "first_s": first_s,
        "epochs": epochs,
        "anon_bytes": anonymous,
        "peak_bytes": peak,
        "classes": sum(classes) / len(classes),
    }


def order_of(count: int, pattern: str, seed: int) -> list[int]:
    """The order in which samples are fetched.

    "ranges": as they lie. "singles": in random order, those at even places first, so that no two neighbours
    are ever wanted together.
    """
    if pattern == "ranges":
        return list(range(count))
    rng = random.Random(seed)
    even, odd = list(range(0, count, 2)), list(range(1, count, 2))
    rng.shuffle(even)
    rng.shuffle(odd)
    return even + odd


def fetch(spec: Spec) -> Json:
    """Fetches all samples into the cache, and decodes none."""
    import numpy as np

    from fastload.remote.files import RemoteFiles
    from fastload.store import DatasetReader

    files = RemoteFiles(spec.source, spec.cache, spec.cache_size, spec.options)
    with DatasetReader(files) as reader:
        order = np.array(order_of(len(reader), spec.pattern, spec.seed))
        ahead: deque[Any] = deque()
        files.session.wait(files.request(order[:1]))  # connections and the loop are there
        event("opened")
        start, cpu = time.perf_counter(), time.process_time()
        size = RANGES_BATCH if spec.pattern == "ranges" else BATCH
        for batch in np.array_split(order, max(1, len(order) // size)):
            ahead.append(files.request(batch))
            if len(ahead) > AHEAD:
                wait(files, ahead.popleft())
        while ahead:
            wait(files, ahead.popleft())
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        event("fetched")
        fetcher = files.session.fetcher
        return {"wall_s": wall, "cpu_s": cpu, "bytes": fetcher.fetched, "ranges": fetcher.ranges}


def wait(files: Any, request: Any) -> None:
    """Waits for a request, if there is one."""
    if request is not None:
        files.session.wait(request)


def obstore_alone(spec: Spec) -> Json:
    """The same ranges by obstore alone, and dropped: by blocking calls in threads, or awaited on one asyncio
    loop.

    Awaiting a call takes 110 to 140 us more than a blocking one, whatever its size: a range is asked for by
    one call in either.
    """
    import asyncio
    import threading

    import obstore

    from fastload.remote.files import RemoteFiles
    from fastload.remote.obstore import StoreMaker
    from fastload.store import DatasetReader

    files = RemoteFiles(spec.source, spec.cache, spec.cache_size, spec.options)
    with DatasetReader(files):
        ranges = ranges_of(files.session.shards, spec)
    store: Any = StoreMaker(obstore, spec.source, dict(spec.options), 60.0).reader()
    ranged = spec.pattern == "ranges"
    event("opened")

    def blocking() -> int:
        left, sizes = deque(ranges), []

        def run() -> None:
            while left:
                try:
                    name, start, stop = left.popleft()
                except IndexError:  # another thread took the last one
                    return
                sizes.append(len(obstore.get_range(store, name, start=start, end=stop)))

        threads = [threading.Thread(target=run) for _ in range(RANGES_THREADS if ranged else SINGLES_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(sizes)

    async def one(limit: asyncio.Semaphore, name: str, start: int, stop: int) -> int:
        async with limit:
            return len(await obstore.get_range_async(store, name, start=start, end=stop))

    async def all_of_them() -> int:
        limit = asyncio.Semaphore(RANGES_AT_ONCE if ranged else SINGLES_AT_ONCE)
        return sum(await asyncio.gather(*(one(limit, *each) for each in ranges)))

    start, cpu = time.perf_counter(), time.process_time()
    size = blocking() if spec.mode == "obstore" else asyncio.run(all_of_them())
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    event("fetched")
    return {"wall_s": wall, "cpu_s": cpu, "bytes": size, "ranges": len(ranges)}


def ranges_of(shards: Any, spec: Spec) -> list[tuple[str, int, int]]:
    """(object, start, stop) of the ranges of a pattern, in its order."""
    ranges: list[tuple[str, int, int]] = []
    for shard in shards:
        count = shard.grouped
        if spec.pattern == "ranges":
            low, high = shard.range_of(0)[0], shard.range_of(count - 1)[1]
            ranges += [
                (shard.entry.file, at, min(at + RANGE_BYTES, high)) for at in range(low, high, RANGE_BYTES)
            ]
        else:
            ranges += [(shard.entry.file, *shard.range_of(unit)) for unit in range(count)]
    if spec.pattern == "singles":
        random.Random(spec.seed).shuffle(ranges)
    return ranges


def main() -> int:
    """Takes the turn."""
    spec = Spec(**json.loads(sys.argv[1]))
    turn = {"train": train, "fetch": fetch, "obstore": obstore_alone, "awaited": obstore_alone}[spec.mode]
    if spec.cache:
        shutil.rmtree(spec.cache, ignore_errors=True)
        os.makedirs(spec.cache)
    if spec.mode == "train":
        import torch  # noqa: F401  (before the clocks begin)

        import fastload  # noqa: F401
    result: Json
    try:
        result = {"ok": True, **turn(spec)}
    except Exception as error:  # a row of the table
        result = {"ok": False, "reason": f"{type(error).__name__}: {error}"}
    if spec.cache:
        shutil.rmtree(spec.cache, ignore_errors=True)
    say(result=result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
