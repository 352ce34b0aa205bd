"""Datasets of more shards than files may be open: every engine reads them, descriptors stay few, and what
was replaced is an error."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warm

from fastload.store import DatasetWriter, Field, Manifest, Schema
from fastload.store.entries import shard_name

SHARDS, EACH, LIMIT = 2000, 3, 256
SCHEMA = Schema((Field("image", "image"), Field("label", "int")))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 shards that are links to one, of three samples: no sidecar knows them."""
    out = tmp_path_factory.mktemp("many") / "data.fl"
    with DatasetWriter(out, SCHEMA, shard_size=1 << 30, options={}) as writer:
        for index in range(EACH):
            pixels = np.full((4, 4, 3), 40 * index, np.uint8)
            writer.append({"image": pixels, "label": index}, image_kind="raw", height=4, width=4)
        packed = writer.finish(None, {})
    (one,) = packed.shards
    for number in range(1, SHARDS):
        (out / shard_name(number)).hardlink_to(out / one.file)
    shards = tuple(
        replace(one, file=shard_name(number), first=EACH * number, key=0) for number in range(SHARDS)
    )
    replace(packed, shards=shards, sidecars=()).write(out)
    return out


PRELUDE = f"""
import os, resource, sys, time
import numpy as np
from fastload import FastLoader, PackedDataset
from fastload.store import DatasetReader

COUNT, EACH, LIMIT = {SHARDS * EACH}, {EACH}, {LIMIT}
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def shards_open():
    links = [f"/proc/self/fd/{{name}}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link).endswith(".lmdb") for link in links)

def settles_at(count):
    # threads that read ahead for the next epoch close one file and open another meanwhile
    until = time.monotonic() + 20
    while (found := shards_open()) != count and time.monotonic() < until:
        time.sleep(0.01)
    assert found == count, (found, count)

def check(batches):
    labels = np.concatenate([labels.numpy() for _, labels in batches])
    shades = np.concatenate([images.reshape(len(images), -1)[:, 0].numpy() for images, _ in batches])
    assert len(labels) == COUNT and np.array_equal(np.bincount(labels), [COUNT // EACH] * EACH)
    assert np.array_equal(shades, 40 * labels)
"""

BODY = """
class Python:
    seen = 0

    def __call__(self, image):
        self.seen += 1
        assert self.seen % 500 or shards_open() <= LIMIT // 2  # a worker's own, and those that it inherits
        return np.asarray(image)

path = sys.argv[1]
dataset = PackedDataset(path, **({} if sys.argv[2] == "native" else {"transform": Python()}))
assert shards_open() == LIMIT // 4
with FastLoader(dataset, batch_size=50, shuffle=True, seed=1, num_workers=int(sys.argv[3])) as loader:
    for _ in range(2):
        check(list(loader))
        settles_at(LIMIT // 4)
dataset.close()
del dataset, loader
assert shards_open() == 0
"""


@pytest.mark.parametrize(("transform", "workers"), [("native", 2), ("python", 2), ("python", 0)])
def test_every_engine_reads_them_through_few_descriptors(many: Path, transform: str, workers: int) -> None:
    """All samples of 2,000 shards come, twice, where 256 files may be open, and a quarter of them is
    shards: in forked workers too."""
    done = warm.run(PRELUDE + BODY, many, transform, str(workers))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


FORKED = """
dataset = PackedDataset(sys.argv[1])
assert dataset[7][1] == 7 % EACH
child = os.fork()
if child == 0:
    right = all(dataset[index][1] == index % EACH for index in range(0, COUNT, 17))
    os._exit(0 if right and shards_open() <= LIMIT // 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
readers = [DatasetReader(sys.argv[1]) for _ in range(3)]
assert all(reader.record(index) for reader in readers for index in range(0, COUNT, 17))
assert shards_open() == LIMIT // 4 + 3 * 16
"""


def test_forks_and_other_readers_have_their_share(many: Path) -> None:
    """A forked child opens as many files as its parent has; readers beyond the first share what is left,
    16 files each at least."""
    done = warm.run(PRELUDE + FORKED, many)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


CHANGED = """
from fastload.errors import DatasetError, SampleError
path = sys.argv[1]
reader = DatasetReader(path)
for number in range(200):
    reader.record(EACH * number)
gone, other, copied = (os.path.join(path, f"shard-{number:05d}.lmdb") for number in (1, 2, 3))
content = open(gone, "rb").read()
for file in (gone, other, copied):
    os.unlink(file)
open(other, "wb").write(bytes(len(content)))
open(copied, "wb").write(content)
for number in range(300, 500):
    reader.record(EACH * number)
found = {}
for number in (1, 2, 3):
    try:
        found[number] = reader.record_fields(EACH * number)[0][2][12]
    except SampleError as error:
        found[number] = error.reason
assert "was removed while it was open" in found[1], found
assert "was replaced while it was open" in found[2], found
assert found[3] == 0, found
"""


def test_a_shard_that_is_replaced_is_an_error(many: Path, tmp_path: Path) -> None:
    """If a closed shard was removed or replaced meanwhile, its samples are SampleErrors that say so; an
    identical copy is as good."""
    copy = tmp_path / "data.fl"
    copy.mkdir()
    for name in os.listdir(many):
        (copy / name).hardlink_to(many / name)
    done = warm.run(PRELUDE + CHANGED, copy)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_few_shards_stay_open(tmp_path: Path) -> None:
    """A dataset whose shards all fit is read to the end after its files are removed."""
    out = tmp_path / "data.fl"
    with DatasetWriter(out, SCHEMA, shard_size=1, options={}) as writer:
        for index in range(20):
            writer.append({"image": bytes([index] * 3), "label": index}, image_kind="raw", height=1, width=1)
        writer.finish(None, {})
    assert len(Manifest.load(out).shards) == 20
    body = """
reader = DatasetReader(sys.argv[1])
for name in os.listdir(sys.argv[1]):
    os.unlink(os.path.join(sys.argv[1], name))
assert [reader.record_fields(index)[0][2][12] for index in range(20)] == list(range(20))
"""
    done = warm.run(PRELUDE + body, out)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
