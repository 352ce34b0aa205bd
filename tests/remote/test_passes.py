"""Pass: it holds what is left of open blocks, each unit until its last sample is asked for, within its
limit and the process's room."""

from __future__ import annotations

import numpy as np

from fastload.remote.requests import HeldRoom, Pass, PassShare, Request, Unit

DATA = memoryview(bytes(range(100)))
A, B, C = (0, 1), (0, 2), (3, 1)


def held(a_pass: Pass, *units: Unit) -> list[Unit]:
    """Those of some units that it holds."""
    return [unit for unit in units if a_pass.held(unit) is not None]


def test_a_unit_is_held_until_its_last_sample() -> None:
    """Two samples of A and one of B: nothing that was asked for is held, nor what is of no open block."""
    room = HeldRoom()
    a_pass = Pass(None, 1000, room)
    PassShare(a_pass, opens=[A, A, B]).note()
    for unit in (A, B, C):
        a_pass.hold(unit, 7, DATA)
    assert held(a_pass, A, B, C) == [A, B]
    assert a_pass.held(A) == (7, bytes(DATA))
    assert (room.size, a_pass.free) == (200, 800)
    assert not a_pass.needs(*A)  # it is there
    a_pass.use([A, B, C])
    assert held(a_pass, A, B) == [A]
    a_pass.use([A])
    assert held(a_pass, A, B) == []
    assert (room.size, a_pass.free, a_pass.holds) == (0, 1000, False)
    a_pass.hold(A, 7, DATA)
    assert not a_pass.holds


def test_the_bytes_are_copies() -> None:
    """A small part of a large range does not keep the range."""
    a_pass, data = Pass(None, 1000, HeldRoom()), bytearray(range(100))
    a_pass.open([A])
    a_pass.hold(A, 0, memoryview(data))
    data[:] = bytes(100)
    assert a_pass.held(A) == (0, bytes(range(100)))


def test_limits() -> None:
    """Of the pass, and of the process; what is reserved counts."""
    room = HeldRoom(250)
    one, other = Pass(None, 150, room), Pass(None, 1000, room)
    for a_pass in (one, other):
        a_pass.open([A, B, C])
        a_pass.hold(A, 0, DATA)
        a_pass.hold(B, 0, DATA)
    assert (held(one, A, B), held(other, A, B), room.size) == ([A], [A], 200)
    other.reserve(50)
    assert other.free == one.free == 0
    other.reserve(-50)
    one.end()
    one.end()
    assert (room.size, one.free) == (100, 0)
    one.open([B])
    one.hold(B, 0, DATA)
    assert not one.holds
    other.hold(B, 0, DATA)
    assert (held(other, A, B), room.size) == ([A, B], 200)


def test_the_first_request() -> None:
    """It is waited for until it is over, or nobody wants it any more; a later one is not."""
    a_pass = Pass([np.ones(3, bool)], 0, HeldRoom())
    assert not a_pass.begun
    first, later = Request([A], 0), Request([B], 0)
    a_pass.start(first)
    a_pass.start(later)
    assert a_pass.waits_first_for(A)
    assert not a_pass.waits_first_for(B)
    assert not a_pass.begun
    first.arrived(A)
    assert a_pass.begun


def test_what_it_needs() -> None:
    """Without blocks, what was told at its beginning; with them, what is open."""
    assert [Pass([np.array([True, False])], 0, HeldRoom()).needs(0, number) for number in (0, 1)] == [
        True,
        False,
    ]
    a_pass = Pass(None, 0, HeldRoom())
    a_pass.open([A])
    assert [a_pass.needs(*unit) for unit in (A, B)] == [True, False]
