"""GatheredRanges: asks for small ranges of one object, which several tasks want at the same moment, by one call of obstore.

Awaiting a call of obstore takes as much CPU as the request itself, 110 to 140 us: a task of tokio, a thread that waits for the GIL, and a
wake-up of the asyncio loop. One call for up to MOST ranges, which obstore asks for at the same time, takes that once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypeAlias

from typing_extensions import Buffer

SMALL_BYTES = 256 << 10
"""Ranges of fewer bytes are gathered: of larger ones the request takes most, and each is to be used as soon as it has come."""
MOST = 10
"""Ranges that one call asks for: obstore has as many under way at once, and would ask for others after them."""

_Wanted: TypeAlias = "tuple[int, int, asyncio.Future[Buffer]]"


class GatheredRanges:
    """Small ranges that are wanted, and the calls that ask for them.

    1. `fetch` is called on a running asyncio loop; ranges that are wanted in one iteration of it are gathered, by store and object.
    2. A call that fails is the failure of each of its ranges.
    3. A call ends when all that wait for its ranges were cancelled.

    Args:
        obstore: the package.
    """

    def __init__(self, obstore: Any) -> None:
        self._obstore = obstore
        self._closed = False
        self._wanted: dict[tuple[asyncio.AbstractEventLoop, int, str], tuple[Any, list[_Wanted]]] = {}
        self._calls: dict[asyncio.Future[Any], list[_Wanted]] = {}

    async def fetch(self, store: Any, name: str, start: int, stop: int) -> Buffer:
        """Bytes start .. stop-1 of an object, or as many of them as it has."""
        loop = asyncio.get_running_loop()
        key = loop, id(store), name
        found = self._wanted.get(key)
        if found is None:
            found = self._wanted[key] = store, []
            loop.call_soon(self._ask, key)
        future: asyncio.Future[Buffer] = loop.create_future()
        found[1].append((start, stop, future))
        try:
            return await future
        except asyncio.CancelledError:
            self._drop(future)
            raise

    def close(self) -> list[asyncio.Future[Any]]:
        """Makes no more calls; returns those under way, for the caller to cancel."""
        self._closed = True
        return list(self._calls)

    def _ask(self, key: tuple[asyncio.AbstractEventLoop, int, str]) -> None:
        """Asks for what was wanted of an object in this iteration of the loop."""
        store, wanted = self._wanted.pop(key)
        for group in _groups([each for each in wanted if not each[2].done()]):
            if self._closed:
                _cancel(group)
                continue
            try:
                call = self._call(store, key[2], group)
            except Exception as error:
                _fail(group, error)
                continue
            self._calls[call] = group
            call.add_done_callback(self._came)

    def _call(self, store: Any, name: str, group: list[_Wanted]) -> asyncio.Future[Any]:
        if len(group) == 1:
            return self._obstore.get_range_async(store, name, start=group[0][0], end=group[0][1])  # type: ignore[no-any-return]
        starts, ends = [each[0] for each in group], [each[1] for each in group]
        return self._obstore.get_ranges_async(store, name, starts=starts, ends=ends, coalesce=0)  # type: ignore[no-any-return]

    def _came(self, call: asyncio.Future[Any]) -> None:
        """Hands out what a call came to."""
        group = self._calls.pop(call)
        if call.cancelled():
            return _cancel(group)
        error = call.exception()
        if error is not None:
            return _fail(group, error)
        bodies = [call.result()] if len(group) == 1 else call.result()
        for (_, _, future), body in zip(group, bodies, strict=True):
            if not future.done():
                future.set_result(body)

    def _drop(self, future: asyncio.Future[Buffer]) -> None:
        """Cancels the call of a range that nobody waits for any more, unless somebody waits for another one of the call."""
        for call, group in self._calls.items():
            if any(each[2] is future for each in group):
                if all(each[2].done() for each in group):
                    call.cancel()
                return


def _groups(wanted: list[_Wanted]) -> Iterator[list[_Wanted]]:
    """Groups of at most MOST ranges, of which no two touch: obstore makes one of such, and panics if the object ends before the second."""
    group: list[_Wanted] = []
    for each in sorted(wanted, key=lambda each: each[0]):
        if group and (len(group) == MOST or each[0] <= group[-1][1]):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _cancel(group: list[_Wanted]) -> None:
    for _, _, future in group:
        future.cancel()


def _fail(group: list[_Wanted], error: BaseException) -> None:
    for _, _, future in group:
        if not future.done():
            future.set_exception(error)
