"""Batches moved ahead of the loop: the same batches, in order, bounded, and nothing left behind. The CPU
stands for the device."""

from __future__ import annotations

import gc
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from pictures import photo
from torch.utils.data import Sampler

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, ClosedError, LoaderTimeout, SampleError
from fastload.store.schema import Field, Schema
from fastload.store.writer import DatasetWriter

pytestmark = pytest.mark.usefixtures("no_leaks", "no_threads")
TRAIN = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]


EARLIER: set[threading.Thread] = set()
"""Threads that were there when the test began: another one's."""


def movers() -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread.name == "fastload-ahead" and thread not in EARLIER
    ]


@pytest.fixture
def no_threads() -> Iterator[None]:
    """The test leaves no thread of ours."""
    EARLIER.clear()
    EARLIER.update(threading.enumerate())
    yield
    gc.collect()
    assert not movers()


@pytest.fixture
def packed_broken(tmp_path: Path) -> Path:
    """Sixteen images, of which number 5 is cut off half-way."""
    schema = Schema((Field("image", "image"), Field("label", "int")))
    writer = DatasetWriter(tmp_path / "broken.fl", schema, shard_size=1 << 30, options={})
    for label in range(16):
        out = io.BytesIO()
        photo(label, 60, 80).save(out, "JPEG", quality=90)
        data = out.getvalue() if label != 5 else out.getvalue()[: len(out.getvalue()) // 2]
        writer.append({"image": data, "label": label}, image_kind="jpeg", height=60, width=80, state={})
    writer.finish(None, {})
    return tmp_path / "broken.fl"


def epochs(loader: FastLoader, count: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels.clone()) for _ in range(count) for images, labels in loader]


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Noted:
    """A transform that draws from nothing, and notes by which thread and when it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = []
        self.given: list[list[int]] = []

    def __call__(self, images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
        self.calls.append((epoch, threading.current_thread().name))
        self.given.append([int(i) for i in indices])
        return images


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("in_order", [True, False])
def test_same_batches_as_without_a_device(packed: Path, prefetch: int, in_order: bool) -> None:
    """Order and bytes are those of device=None, over epochs, for any device_prefetch."""
    common: dict[str, Any] = {
        "batch_size": 8,
        "shuffle": True,
        "num_workers": 2,
        "transform": TRAIN,
        "seed": 7,
        "in_order": in_order,
    }
    with (
        FastLoader(packed, **common) as plain,
        FastLoader(packed, **common, device="cpu", device_prefetch=prefetch) as moved,
    ):
        want, got = epochs(plain), epochs(moved)
    if not in_order:
        want.sort(key=lambda batch: batch[0].sum().item())
        got.sort(key=lambda batch: batch[0].sum().item())
    assert len(want) == 14
    assert all(same(a, b) for a, b in zip(want, got, strict=True))


class Drawing(Sampler[int]):
    """Draws one index at a time from torch's global generator."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(40):
            yield int(torch.randint(50, ()))

    def __len__(self) -> int:
        return 40


def test_draws_are_made_in_the_loops_thread_and_repeat(packed: Path) -> None:
    """Whatever the threads' timing, sampler and loop draw the same numbers in the same order in every run."""

    def run(delay: float) -> tuple[list[Any], list[float]]:
        torch.manual_seed(5)
        mine = []
        with FastLoader(
            packed, 4, sampler=Drawing(), num_workers=2, transform=TRAIN, device="cpu", device_prefetch=2
        ) as loader:
            labels = []
            for images, own in loader:
                time.sleep(delay)
                mine.append(torch.rand(()).item())
                labels.append((images.sum().item(), own.tolist()))
        return labels, mine

    assert run(0.0) == run(0.02)


def test_generators_end_where_they_do_without(packed: Path) -> None:
    """An unseeded shuffled run leaves torch's generator where a run without a device leaves it."""
    states = []
    for device in (None, "cpu"):
        torch.manual_seed(9)
        with FastLoader(packed, 8, shuffle=True, num_workers=1, transform=TRAIN, device=device) as loader:
            epochs(loader)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_moved_ahead_and_bounded(packed: Path) -> None:
    """While the loop holds one batch, exactly device_prefetch more are transformed, by another thread, and
    no more."""
    for most in (1, 3):
        noted = Noted()
        with FastLoader(
            packed,
            5,
            num_workers=2,
            transform=TRAIN,
            batch_transform=noted,
            device="cpu",
            device_prefetch=most,
            seed=0,
        ) as loader:
            iterator = iter(loader)
            for taken in range(1, 4):
                next(iterator)
                until = time.monotonic() + 20
                while len(noted.calls) < taken + most and time.monotonic() < until:
                    time.sleep(0.005)
                time.sleep(0.05)
                assert len(noted.calls) == taken + most
            assert {name for _, name in noted.calls} == {"fastload-ahead"}


def test_transforms_get_the_rows_indices(packed: Path) -> None:
    """indices are those of the rows, in order, in both threads' ways; seed and epoch are the loader's."""
    for prefetch in (0, 2):
        noted = Noted()
        with FastLoader(
            packed,
            8,
            shuffle=True,
            num_workers=2,
            transform=TRAIN,
            batch_transform=noted,
            device_prefetch=prefetch,
            seed=4,
        ) as loader:
            labels = [own for _, own in loader]
            column = PackedDataset(packed).column("label")
            assert [column[given].tolist() for given in noted.given] == [own.tolist() for own in labels]
            assert sorted(i for given in noted.given for i in given) == list(range(50))
            assert {epoch for epoch, _ in noted.calls} == {0}


def test_a_failed_sample_is_its_own_batchs(packed_broken: Path) -> None:
    """An undecodable sample raises at its batch's turn, and the batches after it come."""
    with FastLoader(
        packed_broken, 4, num_workers=2, transform=T.Resize((16, 16)), device="cpu", device_prefetch=3
    ) as loader:
        iterator, got = iter(loader), []
        while True:
            try:
                got.append(len(next(iterator)[0]))
            except SampleError as error:
                got.append(type(error))
            except StopIteration:
                break
    assert got == [4, SampleError, 4, 4]


@pytest.mark.parametrize("how", ["replace", "skip"])
def test_on_error_counts_what_the_loop_has_had(packed_broken: Path, how: Any) -> None:
    """replace and skip work ahead of the loop as they do in it, and are counted at delivery."""
    counted = []
    for prefetch in (0, 2):
        with FastLoader(
            packed_broken,
            4,
            num_workers=2,
            transform=T.Resize((16, 16)),
            device="cpu",
            device_prefetch=prefetch,
            on_error=how,
            seed=1,
        ) as loader:
            iterator = iter(loader)
            next(iterator)
            first = loader.replaced + loader.skipped
            sizes = [len(images) for images, _ in iterator]
            counted.append((first, sizes, loader.replaced, loader.skipped))
    assert counted[0] == counted[1]
    assert counted[0][0] == 0
    assert sum(counted[0][2:]) == 1


def test_a_transforms_error_is_its_own_batchs(packed: Path) -> None:
    """What a batch transform raises comes at its batch's turn; those after it come."""

    class Fails(Noted):
        def __call__(self, images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
            if 10 in list(indices):
                raise RuntimeError("in the second batch")
            return images

    for prefetch in (0, 3):
        with FastLoader(
            packed, 10, num_workers=2, transform=TRAIN, batch_transform=Fails(), device_prefetch=prefetch
        ) as loader:
            iterator = iter(loader)
            next(iterator)
            with pytest.raises(RuntimeError, match="in the second batch"):
                next(iterator)
            assert len(list(iterator)) == 3


def test_broken_off_loops_leave_nothing(packed: Path) -> None:
    """Dropping an iterator in mid-pass, by break or by an exception, ends its thread at once; the loader
    goes on."""
    with FastLoader(packed, 4, num_workers=2, transform=TRAIN, device="cpu") as loader:
        for _ in range(3):
            for _ in loader:
                break
        with pytest.raises(ZeroDivisionError):
            for _ in loader:
                _ = 1 / 0
        gc.collect()
        assert not movers()
        assert len(list(loader)) == 13
        assert not movers()


def test_close_in_mid_pass(packed: Path) -> None:
    """close() ends the thread; the pass that was cut short says so, a new one begins anew."""
    loader = FastLoader(packed, 4, num_workers=2, transform=TRAIN, device="cpu")
    iterator = iter(loader)
    next(iterator)
    assert movers()
    loader.close()
    assert not movers()
    with pytest.raises(ClosedError):
        next(iterator)
    assert len(list(loader)) == 13
    loader.close()


def test_end_stays_the_end(packed: Path) -> None:
    """After StopIteration there is no thread, and next() raises it again."""
    with FastLoader(packed, 25, num_workers=1, transform=TRAIN, device="cpu") as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == 2
        assert not movers()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iterator)


def test_forked_child_is_told(packed: Path) -> None:
    """In a forked child the parent's iterator raises, a new one works; the parent's goes on."""
    with FastLoader(packed, 10, num_workers=1, transform=TRAIN, device="cpu") as loader:
        iterator = iter(loader)
        next(iterator)
        if (child := os.fork()) == 0:
            code = 1
            try:
                next(iterator)
            except ClosedError:
                code = 0 if len(list(loader)) == 5 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(iterator)) == 4


def test_interpreter_exit_in_mid_pass(packed: Path) -> None:
    """A program that ends with an iterator in use ends, quietly and with its own status."""
    program = f"""
from fastload import FastLoader, transforms as T
loader = FastLoader({str(packed)!r}, 4, num_workers=2, transform=T.Resize((16, 16)), device="cpu")
iterator = iter(loader)
next(iterator)
raise SystemExit(7)
"""
    done = warm.run(program)
    assert (done.returncode, done.stderr) == (7, "")


def test_timeout_holds(packed: Path) -> None:
    """timeout= bounds the loop's wait for a moved batch, and the batch can still be had."""
    release = threading.Event()

    class Slow(Noted):
        def __call__(self, images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
            assert release.wait(60)
            return images

    with FastLoader(
        packed, 25, num_workers=1, transform=TRAIN, batch_transform=Slow(), timeout=0.2
    ) as loader:
        iterator = iter(loader)
        with pytest.raises(LoaderTimeout):
            next(iterator)
        release.set()
        assert len(list(iterator)) == 2


def test_resumes_where_the_loop_was(packed: Path) -> None:
    """state_dict() counts what the loop has had, not what was moved ahead."""
    common: dict[str, Any] = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "transform": TRAIN,
        "seed": 2,
        "device": "cpu",
    }
    with FastLoader(packed, **common, device_prefetch=3) as loader:
        whole = epochs(loader, 1)
    with FastLoader(packed, **common, device_prefetch=3) as loader:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = loader.state_dict()
        del iterator
    with FastLoader(packed, **common, device_prefetch=1) as loader:
        loader.load_state_dict(state)
        rest = epochs(loader, 1)
    assert all(same(a, b) for a, b in zip(whole[5:], rest, strict=True))


def test_held_batches_stay(packed: Path) -> None:
    """Batches kept on the CPU, which are not copied, are never overwritten."""
    with FastLoader(
        packed, 4, num_workers=2, transform=TRAIN, device="cpu", device_prefetch=3, seed=1
    ) as loader:
        held = list(loader)
        copies = [(images.clone(), labels.clone()) for images, labels in held]
        list(loader)
        assert all(same(a, b) for a, b in zip(held, copies, strict=True))


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "2"])
def test_device_prefetch_is_checked(packed: Path, wrong: Any) -> None:
    """A whole number from 0."""
    with pytest.raises(ArgumentError, match="device_prefetch"):
        FastLoader(packed, device_prefetch=wrong)


def test_ops_ahead_take_the_threads_that_are_left(packed: Path) -> None:
    """In the thread ahead, torch's ops share the CPUs with the native threads; in the loop's thread, and
    in new ones, nothing changes."""
    seen: set[int] = set()

    def counting(images: torch.Tensor, *, seed: int, epoch: int, indices: Any) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return images

    before = torch.get_num_threads()
    with FastLoader(
        packed, 8, num_workers=2, transform=T.Resize((16, 16)), batch_transform=counting
    ) as loader:
        assert len(list(loader)) == 7
    assert seen == {min(before, max(1, available_cpus() - 2))}
    later: list[int] = [torch.get_num_threads()]
    other = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert later == [before, before]
