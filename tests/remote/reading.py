"""What tests of reading from a bucket share: datasets of real photos with every kind of field, and
comparisons with the local one."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pictures import photo
from servers.seaweedfs import SeaweedFS

import fastload
from fastload import FastLoader, PackedDataset
from fastload.store import DatasetWriter, Field, Schema
from fastload.transforms import RandomResizedCrop

COUNT = 150
URL = "s3://fastload/photos.fl"
"""Where the dataset of the fixture `photos` is; tests that spoil or replace objects push one of their own."""
HERE = Path(__file__).resolve().parent
SCHEMA = Schema(
    (
        Field("image", "image"),
        Field("label", "int"),
        Field("weight", "float"),
        Field("wide", "array", "float32", (40,)),  # too wide for a sidecar: it is fetched on first use
        Field("raw", "bytes"),
        Field("caption", "text"),
        Field("meta", "json"),
    )
)
CROP = [RandomResizedCrop(32)]


def flipped(image: torch.Tensor) -> torch.Tensor:
    """A step that only Python can do."""
    return image.flip(-1).contiguous()


ENGINES: dict[str, dict[str, Any]] = {
    "threads": {"num_workers": 2},
    "calling thread": {"num_workers": 0},
    "prefetcher": {"num_workers": 2, "device": "cpu"},
    "processes": {"num_workers": 2, "engine": "python"},
    "spawned": {"num_workers": 2, "engine": "python", "multiprocessing_context": "spawn"},
    "python": {"num_workers": 0, "engine": "python"},
}
"""Arguments of a FastLoader for each way that a dataset is read; `steps_of` has their transform."""


def steps_of(arguments: Mapping[str, Any]) -> list[Any]:
    """A transform that is native where native threads are to make the samples, and is not where Python is."""
    return [*CROP, flipped] if "engine" in arguments else CROP


def values_of(index: int) -> dict[str, Any]:
    """Sample index, whose image is a real JPEG of 5 to 60 KB."""
    rng = np.random.default_rng(index)
    file = io.BytesIO()
    photo(index, 90 + 29 * index % 180, 100 + 41 * index % 230).save(file, "JPEG", quality=85 + index % 10)
    return {
        "image": file.getvalue(),
        "label": index * 3 - 7,
        "weight": index / 3,
        "wide": rng.random(40, np.float32),
        "raw": rng.bytes(index % 50),
        "caption": f"No. {index} \u2603",
        "meta": {"n": index, "text": f"{index}"},
    }


def write_photos(out: Path, count: int = COUNT, shard_size: int = 600_000) -> Path:
    """A dataset of photos with every kind of field, in several shards."""
    with DatasetWriter(out, SCHEMA, shard_size=shard_size, options={}) as writer:
        for index in range(count):
            height, width = 90 + 29 * index % 180, 100 + 41 * index % 230
            writer.append(values_of(index), image_kind="jpeg", height=height, width=width)
        writer.finish(None, {"samples": count})
    return out


def write_raw(out: Path, count: int, height: int, width: int, shard_size: int) -> Path:
    """A dataset of raw images of noise with their number as label."""
    with DatasetWriter(
        out, Schema((Field("image", "image"), Field("label", "int"))), shard_size=shard_size, options={}
    ) as writer:
        for index in range(count):
            image = np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)
            writer.append({"image": image, "label": index}, image_kind="raw", height=height, width=width)
        writer.finish(None, {"samples": count})
    return out


def write_tiny(out: Path, count: int = 2000) -> Path:
    """A dataset of raw images of 32 x 32, as CIFAR's: ten records in a group."""
    schema = Schema((Field("image", "image"), Field("label", "int")))
    with DatasetWriter(out, schema, shard_size=2_000_000, options={}) as writer:
        for index in range(count):
            image = np.random.default_rng(index).integers(0, 256, (32, 32, 3), np.uint8)
            writer.append({"image": image, "label": index % 10}, image_kind="raw", height=32, width=32)
        writer.finish(None, {"samples": count})
    return out


def size_of(folder: Path) -> int:
    """Bytes of a packed dataset's files."""
    return sum(file.stat().st_size for file in folder.iterdir())


def on_disk(folder: Path) -> int:
    """Bytes that a folder takes on the disk, as du counts them; files may come and go meanwhile."""
    total = 0
    for path, folders, names in os.walk(folder):
        for name in [".", *folders[:0], *names]:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def same(first: Any, second: Any) -> bool:
    """Whether two batches, samples or values are equal, bit for bit, and of the same types."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, Mapping):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)


def batches(dataset: Any, epochs: int = 1, **arguments: Any) -> list[Any]:
    """The batches of some epochs of a shuffled loader over two threads, unless arguments say otherwise;
    tensors copied."""
    given = {"batch_size": 16, "shuffle": True, "seed": 1, "num_workers": 2, **arguments}
    loader = FastLoader(dataset, **given)
    try:
        return [copied(batch) for _ in range(epochs) for batch in loader]
    finally:
        loader.close()


def copied(batch: Any) -> Any:
    """A batch that keeps no slot."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, Mapping):
        return {key: copied(value) for key, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*map(copied, batch))
    return type(batch)(copied(each) for each in batch) if isinstance(batch, (list, tuple)) else batch


def data_files(cache: Path, end: str = ".lmdb") -> list[Path]:
    """The shards, or other files, in a cache folder."""
    return sorted(path for path in cache.rglob(f"*{end}"))


def until(holds: Callable[[], bool], limit: float = 20.0) -> None:
    """Waits until something holds; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, "it did not come within the limit"
        time.sleep(0.01)


def fetched(dataset: PackedDataset) -> int:
    """Bytes of records that this process has fetched for a dataset."""
    return dataset.opened.reader.files.status().fetched  # type: ignore[attr-defined, no-any-return]


def secrets_in(folder: Path, *secrets: str) -> list[str]:
    """Files below a folder that hold a secret, in their name or content."""
    found = []
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        found += [str(path) for secret in secrets if secret in str(path) or secret.encode() in data]
    return found


class Reader:
    """A process that reads all of a dataset in a bucket: see cache_reader."""

    def __init__(
        self, server: SeaweedFS, cache: Path, seed: int, url: str, prelude: str = "", **more: Any
    ) -> None:
        files = {
            "url": url,
            "cache": str(cache),
            "storage_options": server.options(),
            "cache_size": more.pop("cache_size", None),
        }
        given = json.dumps({"files": files, "seed": seed, **more})
        source = (
            f"import sys; sys.path.insert(0, {str(HERE)!r}); import "
            f"cache_reader\n{prelude}\ncache_reader.main()"
        )
        command = [sys.executable, "-W", "error", "-c", source, given]
        environment = {**os.environ, "PYTHONPATH": str(Path(fastload.__file__).parents[1])}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def result(self, limit: float = 60.0) -> dict[str, Any]:
        """What it read; it ends well."""
        out, err = self.process.communicate(timeout=limit)
        assert (self.process.returncode, err) == (0, ""), err
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def killed(self, limit: float = 60.0) -> str:
        """Its standard error, after it was killed, or had ended before."""
        _, err = self.process.communicate(timeout=limit)
        assert self.process.returncode in (-signal.SIGKILL, 0), err
        return err
