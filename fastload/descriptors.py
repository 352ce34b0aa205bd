"""Computed: a read-only attribute of a class that users derive from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Computed(Generic[T]):
    """A computed attribute that gives way: where an instance, or a subclass, sets an attribute of that name, theirs is found.

    A property would raise AttributeError at the assignment.
    """

    def __init__(self, get: Callable[[Any], T], doc: str | None = None) -> None:
        self._get = get
        self.__doc__ = get.__doc__ if doc is None else doc

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        return self if instance is None else self._get(instance)  # type: ignore[return-value]
