"""A device that copies from pinned slots; to the slots it is the guard of core.Ring or core.SharedSlot,
and notes what it is asked."""

from __future__ import annotations


class Copies:
    """A device whose copies end when the test says so."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.pins = 0
        self.events: list[Copies.Event] = []
        self.refuse = False

    class Event:
        def __init__(self) -> None:
            self.done, self.waited = False, False

        def query(self) -> bool:
            return self.done

        def synchronize(self) -> None:
            self.waited = True

    def pin(self, address: int, size: int) -> bool:
        if self.refuse:
            return False
        assert address not in self.pinned
        self.pinned[address] = size
        self.pins += 1
        return True

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def end_of_lease(self) -> Copies.Event:
        self.events.append(Copies.Event())
        return self.events[-1]
