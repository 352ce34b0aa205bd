"""Ranges that are wanted at once come each with its own bytes, by few calls; a failure or a cancellation
reaches those it belongs to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

pytest.importorskip("obstore")
from fastload.remote.objects import MOST
from fastload.remote.obstore import GatheredRanges
from fastload.remote.obstore_process import own_obstore

BODY = random.Random(5).randbytes(100_000)
R = TypeVar("R")


class Counting:
    """obstore, and the ranges of each call that was made of it."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._obstore: Any = own_obstore()

    def get_range_async(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append(1)
        return self._obstore.get_range_async(*arguments, **more)

    def get_ranges_async(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append(len(more["starts"]))
        return self._obstore.get_ranges_async(*arguments, **more)


def in_a_store(do: Callable[[GatheredRanges, Any, Counting], Awaitable[R]]) -> R:
    """What a coroutine comes to that has a store with the objects a and b, which are BODY."""
    obstore: Any = own_obstore()
    store = obstore.store.MemoryStore()
    for name in "ab":
        obstore.put(store, name, BODY)
    counting = Counting()

    async def run() -> R:
        return await asyncio.wait_for(do(GatheredRanges(counting), store, counting), 20)

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_each_gets_its_own_bytes(seed: int) -> None:
    """Whatever is wanted at once, in any order, touching or overlapping, of several objects: each range is
    what the object has there."""
    rng = random.Random(seed)
    wanted = [
        (rng.choice("ab"), start, start + rng.randrange(1, 3000))
        for start in rng.choices(range(99_000), k=200)
    ]
    wanted += [("a", at, at + 100) for at in range(0, 3000, 100)] + [("b", 7, 20), ("b", 7, 20)]
    rng.shuffle(wanted)

    async def read(gathered: GatheredRanges, store: Any, _: Counting) -> list[bytes]:
        return [
            bytes(each) for each in await asyncio.gather(*(gathered.fetch(store, *each) for each in wanted))
        ]

    assert in_a_store(read) == [BODY[start:stop] for _, start, stop in wanted]


def test_one_call_is_made_for_many() -> None:
    """Ranges of an object that do not touch come by calls of MOST, those of another by calls of their own;
    a range alone is a call."""

    async def read(gathered: GatheredRanges, store: Any, counting: Counting) -> list[int]:
        starts = range(0, 2500 * MOST, 1000)
        await asyncio.gather(
            *(gathered.fetch(store, "a", at, at + 10) for at in starts), gathered.fetch(store, "b", 0, 10)
        )
        return sorted(counting.calls)

    assert in_a_store(read) == sorted([MOST, MOST, MOST // 2, 1])


def test_an_object_that_ends_cuts_ranges_short() -> None:
    """A range that goes beyond the end gives what is there, beside others that are whole."""

    async def read(gathered: GatheredRanges, store: Any, _: Counting) -> list[int]:
        end = len(BODY)
        return [
            len(each)
            for each in await asyncio.gather(
                gathered.fetch(store, "a", 0, 10), gathered.fetch(store, "a", end - 4, end + 4)
            )
        ]  # type: ignore[arg-type]

    assert in_a_store(read) == [10, 4]


def test_a_failure_is_that_of_each_range() -> None:
    """All ranges of a call that fails hear of it; those of another object do not."""

    async def read(gathered: GatheredRanges, store: Any, _: Counting) -> list[type]:
        wanted = [("none", 0, 10), ("a", 0, 10), ("none", 100, 110)]
        return [
            type(each)
            for each in await asyncio.gather(
                *(gathered.fetch(store, *each) for each in wanted), return_exceptions=True
            )
        ]

    first, good, last = in_a_store(read)
    assert issubclass(first, FileNotFoundError)
    assert issubclass(last, FileNotFoundError)
    assert not issubclass(good, BaseException)


def test_a_call_ends_with_the_last_who_waits() -> None:
    """One cancelled range leaves the others of its call; after the last one the call is cancelled too."""

    async def read(gathered: GatheredRanges, store: Any, counting: Counting) -> None:
        silent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        counting.get_ranges_async = lambda *_, **__: silent  # type: ignore[method-assign]
        first, last = (asyncio.ensure_future(gathered.fetch(store, "a", at, at + 10)) for at in (0, 100))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        assert not silent.done()
        last.cancel()
        await asyncio.wait([last])
        assert silent.cancelled()

    in_a_store(read)


@pytest.mark.parametrize("who", range(3))
def test_a_range_that_nobody_awaits_any_more(who: int) -> None:
    """The others of its call get their bytes, whichever was cancelled."""

    async def read(gathered: GatheredRanges, store: Any, counting: Counting) -> list[bytes]:
        tasks = [asyncio.ensure_future(gathered.fetch(store, "a", at, at + 10)) for at in (0, 100, 200)]
        while not counting.calls:
            await asyncio.sleep(0)
        tasks.pop(who).cancel()
        return [bytes(each) for each in await asyncio.gather(*tasks)]

    assert in_a_store(read) == [BODY[at : at + 10] for at in (0, 100, 200) if at != 100 * who]


def test_closed_it_asks_for_nothing() -> None:
    """What is wanted after the close, or was wanted and not asked for before it, is cancelled."""

    async def read(gathered: GatheredRanges, store: Any, counting: Counting) -> list[int]:
        before = asyncio.ensure_future(gathered.fetch(store, "a", 0, 10))
        await asyncio.sleep(0)
        assert gathered.close() == []
        after = asyncio.ensure_future(gathered.fetch(store, "a", 0, 10))
        await asyncio.wait([before, after])
        assert before.cancelled()
        assert after.cancelled()
        return counting.calls

    assert in_a_store(read) == []
