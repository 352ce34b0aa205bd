"""What goes wrong while a dataset in a bucket is read ends in the right samples or in one error at the
batch's turn; nothing hangs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reading
import warm
from reading import CROP, ENGINES, URL, batches, flipped, same, steps_of
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

from fastload import FastLoader, PackedDataset, push
from fastload.errors import RemoteError, SampleError
from fastload.remote.client import open_objects

HERE = Path(__file__).resolve().parent
PAIR = ("image", "label")


@pytest.fixture(scope="module")
def expected(photos: Path) -> list[Any]:
    """The local dataset's batches."""
    return batches(PackedDataset(photos, CROP, fields=PAIR))


Open = Callable[..., PackedDataset]


@pytest.fixture
def opened(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, tmp_path: Path, no_leaks: None
) -> Iterator[Open]:
    """Opens URL, or another, by way of the proxy, with nothing cached; closed at the end, when no native
    object may be left."""
    found: list[PackedDataset] = []

    def open_(transform: Any = CROP, url: str = URL, timeout: float = 30.0, **more: Any) -> PackedDataset:
        cache = tmp_path / f"cache-{len(found)}"
        given = {
            "cache": cache,
            "storage_options": seaweedfs.options(proxy.endpoint),
            "fields": PAIR,
            "timeout": timeout,
            **more,
        }
        found.append(PackedDataset(url, transform, **given))
        return found[-1]

    yield open_
    for dataset in found:
        dataset.close()
    found.clear()


@pytest.fixture
def own(seaweedfs: SeaweedFS, photos: Path, s3_url: str) -> str:
    """A URL with a copy of the dataset that a test may spoil."""
    push(photos, s3_url, storage_options=seaweedfs.options())
    return s3_url


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("status", {"status": 503, "retry_after": "1", "count": 3}),
        ("status", {"status": 429, "retry_after": "1", "count": 3}),
        ("cut", {"count": 5}),
        ("flip", {"count": 5}),
        ("reset", {"count": 5}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.get("status", "")),
)
def test_what_passes_is_healed(
    proxy: Proxy, opened: Open, expected: list[Any], kind: str, more: dict[str, Any]
) -> None:
    """Refusals, bodies cut short, flipped bytes, lost connections: some of each, and batches are the local
    ones."""
    dataset = opened()
    proxy.spoil(kind, method="GET", part="shard-", **more)
    assert same(batches(dataset), expected)
    assert proxy.counts()["faults"] == more["count"]


def test_silence_is_given_up(proxy: Proxy, opened: Open, expected: list[Any]) -> None:
    """Requests that are never answered are made again long before the timeout ends."""
    dataset = opened(timeout=6.0)
    proxy.spoil("silence", 3, method="GET", part="shard-", seconds=60.0)
    assert same(batches(dataset), expected)


@pytest.mark.long
def test_a_server_killed_and_restarted_in_mid_epoch(
    seaweedfs: SeaweedFS, opened: Open, expected: list[Any]
) -> None:
    """Batches under way wait for it."""
    dataset = opened(timeout=60.0)
    loader = FastLoader(dataset, batch_size=16, shuffle=True, seed=1, num_workers=2, prefetch_factor=1)
    iterator = iter(loader)
    got = [reading.copied(next(iterator))]
    seaweedfs.kill()
    restart = threading.Timer(1.0, seaweedfs.start)
    restart.start()
    got += [reading.copied(batch) for batch in iterator]
    restart.join()
    assert same(got, expected)
    loader.close()
    objects = open_objects(URL, seaweedfs.options())  # for a moment after its start the server answers 500
    reading.until(lambda: _answers(objects))
    objects.close()


def _answers(objects: Any) -> bool:
    objects.get_range("shard-00000.lmdb", 0, 100_000)
    return True


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_that_is_gone_is_an_error_at_the_batch_s_turn(
    proxy: Proxy, opened: Open, engine: str, expected: list[Any]
) -> None:
    """RemoteError, of that type on every engine, names URL, range and tries; batches after it come once
    the server is back."""
    steps = steps_of(ENGINES[engine])
    dataset = opened(steps, timeout=1.0)
    loader = FastLoader(dataset, batch_size=16, seed=1, shuffle=True, **ENGINES[engine])
    proxy.refuse()
    iterator = iter(loader)
    got: list[Any] = []
    while len(got) < len(expected):
        try:
            got.append(reading.copied(next(iterator)))
        except RemoteError as error:  # its own, and those of batches that were on their way then
            assert type(error) is RemoteError
            assert f"{URL}/" in str(error)
            assert "failed after" in str(error)
            assert error.tries > 1
            assert error.url.startswith(URL)
            if engine != "spawned":  # whose workers cannot even open the dataset
                assert re.search(
                    r"reading bytes \d+-\d+ of s3://\S+/(shard-\d+.lmdb|index-\d+.bin) failed", str(error)
                )
            got.append(None)
            proxy.refuse(False)
    with pytest.raises(StopIteration):
        next(iterator)
    assert got[0] is None
    for batch, (images, labels) in zip(got, expected, strict=True):
        if batch is not None:
            assert same(batch[1], labels)
            assert same(batch[0], flipped(images) if "engine" in ENGINES[engine] else images)
    if "engine" in ENGINES[engine]:
        assert got[-1] is not None  # each worker has one batch on its way at a time
    loader.close()
    assert [len(labels) for _, labels in batches(dataset)] == [len(labels) for _, labels in expected]


def spoil_record(server: SeaweedFS, url: str, index: int, local: Path, **more: Any) -> str:
    """Writes other bytes into a record of a dataset's object, for good; returns the object's name."""
    dataset = PackedDataset(local)
    reader = dataset.opened.reader
    record, name = reader.record(index), reader.shard_of(index)
    data = bytearray((local / name).read_bytes())
    at = data.find(record)
    data[at + 50 : at + 60] = bytes(byte ^ 0xFF for byte in data[at + 50 : at + 60])
    objects = open_objects(url, server.options())
    objects.put(name, bytes(data))
    objects.close()
    dataset.close()
    return name


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_record_that_stays_wrong_is_that_sample_s_error(
    seaweedfs: SeaweedFS, opened: Open, photos: Path, own: str, expected: list[Any], engine: str
) -> None:
    """SampleError, as of a damaged disk; on_error= applies to that sample alone, and its neighbours in the
    group are right."""
    spoil_record(seaweedfs, own, 20, photos)
    steps = steps_of(ENGINES[engine])
    dataset = opened(steps, own)
    with pytest.raises(SampleError, match=r"sample 20 of s3://.*not those that were packed.*CRC32C"):
        batches(dataset, shuffle=False, **ENGINES[engine])
    with pytest.raises(SampleError, match="sample 20"):
        dataset[20]
    local = PackedDataset(photos, steps, fields=PAIR, seed=1)
    assert same(
        opened(steps, own, seed=1).__getitems__([18, 19, 21, 22]), local.__getitems__([18, 19, 21, 22])
    )
    skipped = batches(dataset, shuffle=False, on_error="skip", **ENGINES[engine])
    assert sum(len(labels) for _, labels in skipped) == reading.COUNT - 1


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_dataset_that_is_replaced_or_deleted_while_it_is_open(
    seaweedfs: SeaweedFS, opened: Open, own: str, tmp_path: Path, how: str, engine: str
) -> None:
    """RemoteError says which of the two it was, whatever on_error says; never a sample of the other
    dataset."""
    steps = steps_of(ENGINES[engine])
    dataset = opened(steps, own, timeout=3.0)
    if how == "replaced":
        other = reading.write_photos(tmp_path / "other.fl", 160, shard_size=500_000)
        push(other, own, overwrite=True, storage_options=seaweedfs.options())
    else:
        objects = open_objects(own, seaweedfs.options())
        for info in objects.list():
            objects.delete(info.name)
        objects.close()
    with pytest.raises(RemoteError, match=f"the dataset there was {how}.* after it was opened") as caught:
        batches(dataset, on_error="skip", **ENGINES[engine])
    assert own in str(caught.value)
    with pytest.raises(RemoteError, match=f"was {how}"):
        dataset.column("wide")


def test_credentials_that_expire(
    seaweedfs: SeaweedFS, opened: Open, proxy: Proxy, expected: list[Any]
) -> None:
    """Denied once, they are asked for anew; where that does not help, they are tried within the timeout,
    and the error says so."""
    dataset = opened(timeout=60.0)
    proxy.spoil("status", 1, method="GET", part="shard-", status=403)
    assert same(batches(dataset), expected)
    dataset = opened(timeout=2.0)
    proxy.spoil("status", 10_000, method="GET", part="shard-", status=403)
    with pytest.raises(RemoteError, match=r"access denied.*credentials"):
        batches(dataset)


def test_the_loader_s_own_timeout_ends_a_wait(opened: Open, proxy: Proxy) -> None:
    """timeout= of the loader is shorter than the bucket's: TimeoutError, and the loader can be closed at
    once."""
    dataset = opened(timeout=60.0)
    proxy.silence(30.0)
    loader = FastLoader(dataset, batch_size=16, num_workers=2, timeout=0.5)
    with pytest.raises(TimeoutError):
        next(iter(loader))
    loader.close()


@pytest.mark.parametrize("engine", ["threads", "calling thread", "prefetcher", "python"])
def test_dropped_while_fetches_are_under_way(opened: Open, proxy: Proxy, engine: str) -> None:
    """The loader, or the dataset under it, goes away at once; `no_leaks` counts what is left."""
    steps = steps_of(ENGINES[engine])
    dataset = opened(steps, timeout=60.0)
    loader = FastLoader(dataset, batch_size=16, **ENGINES[engine])
    if engine == "threads":
        next(iter(loader))
    proxy.silence(60.0)
    if engine in ("threads", "prefetcher"):
        iterator = iter(loader)
        began = time.monotonic()
        del iterator
        loader.close()
        dataset.close()
        assert time.monotonic() - began < 20
        return
    closing = threading.Timer(0.5, dataset.close)
    closing.start()
    with pytest.raises((RemoteError, RuntimeError)):
        next(iter(loader))
    closing.join()
    loader.close()


# ---- programs of their own

PROGRAM = """
import json, os, sys, threading, time
from fastload import FastLoader, PackedDataset
from fastload.transforms import RandomResizedCrop
given = json.loads(sys.argv[1])
dataset = PackedDataset(transform=[RandomResizedCrop(32)], fields=("image", "label"), **given)
"""


def program(body: str, server: SeaweedFS, proxy: Proxy, cache: Path, timeout: float = 60.0) -> warm.Program:
    """A program that has the dataset open, by way of the proxy."""
    given = {
        "path": URL,
        "cache": str(cache),
        "storage_options": server.options(proxy.endpoint),
        "timeout": timeout,
    }
    return warm.Program(PROGRAM + body, json.dumps(given), error=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_while_waiting_for_the_network(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, tmp_path: Path, workers: int
) -> None:
    """KeyboardInterrupt at once, in next() and while a dataset is opened, though the server is silent for
    a minute."""
    body = f"""
loader = FastLoader(dataset, batch_size=16, num_workers={workers})
print("open", flush=True)
time.sleep(0.5)
try:
    print("reading", flush=True)
    next(iter(loader))
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    print("opening", flush=True)
    PackedDataset(given["path"] + "/other", storage_options=given["storage_options"], cache=given["cache"])
except KeyboardInterrupt:
    print("interrupted again", flush=True)
"""
    running = program(body, seaweedfs, proxy, tmp_path / "cache")
    assert running.stdout.readline() == "open\n"
    proxy.silence(60.0)
    for doing, line in [("reading\n", "interrupted\n"), ("opening\n", "interrupted again\n")]:
        assert running.stdout.readline() == doing
        time.sleep(0.5)
        began = time.monotonic()
        os.kill(running.pid, signal.SIGINT)
        assert running.stdout.readline() == line
        assert time.monotonic() - began < 8
    assert running.wait(timeout=20) == 0
    running.communicate()


ENDS = {
    "mid-epoch": "iterator = iter(FastLoader(dataset, batch_size=16, num_workers=2)); next(iterator)",
    "waiting": "iterator = iter(FastLoader(dataset, batch_size=16, num_workers=2)); SILENT; time.sleep(0.3)",
    "opened": "pass",
    "workers": (
        "iterator = iter(FastLoader(dataset, batch_size=16, num_workers=2, engine='python')); next(iterator)"
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_in_mid_epoch(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, tmp_path: Path, how: str
) -> None:
    """Status 0, no word, no wait, whatever is on its way; and nothing granted to it stays so."""
    body = ENDS[how].replace("SILENT", 'print("begun", flush=True); sys.stdin')
    proxy.set(round_trip=0.05)
    running = program(body + "\nprint('done', flush=True)\n", seaweedfs, proxy, tmp_path / "cache")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out.splitlines()[-1], err) == (0, "done", "")
    assert not list((tmp_path / "cache").rglob("grant-*")) or how == "workers"


def test_a_fork_in_the_middle_of_fetching(
    seaweedfs: SeaweedFS, photos: Path, proxy: Proxy, tmp_path: Path
) -> None:
    """Children of a process whose threads fetch, and hold locks, read all samples, as their parent goes on
    doing."""
    body = """
import warnings
local = PackedDataset(sys.argv[2], transform=[RandomResizedCrop(32)], fields=("image", "label"), seed=1)
dataset.seed = 1
def all_right(dataset):
    return all((a[0] == b[0]).all() and a[1] == b[1] for a, b in zip(dataset.__getitems__(range(150)),
        local.__getitems__(range(150))))
loader = FastLoader(dataset, batch_size=8, num_workers=2, shuffle=True)
reading = threading.Thread(target=lambda: [dataset.__getitems__(range(k, 150, 7)) for k in range(7)])
iterator = iter(loader)
reading.start()
children = []
for count in range(4):
    next(iterator)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = 0 if all_right(dataset) else 2
        finally:
            os._exit(status)
    children.append(pid)
print(all_right(dataset), len(list(iterator)), [os.waitpid(pid, 0)[1] for pid in children], flush=True)
reading.join()
"""
    proxy.set(round_trip=0.02)
    given = {
        "path": URL,
        "cache": str(tmp_path / "cache"),
        "storage_options": seaweedfs.options(proxy.endpoint),
        "timeout": 30,
    }
    running = warm.Program(PROGRAM + body, json.dumps(given), photos)
    out, err = running.communicate(timeout=100)
    assert (running.returncode, out, err) == (0, "True 15 [0, 0, 0, 0]\n", "")
