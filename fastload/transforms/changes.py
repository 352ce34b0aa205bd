"""TransformedDataset: a transform with its plan, which is made anew where the transform was changed, in place or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from fastload.transforms.compiler import compile_plan
from fastload.transforms.spec import Plan
from fastload.transforms.torchvision import flatten, read_of, surroundings

_TABLE = "_policies"
_LONGEST = 4096
"""Values of an array that are compared one by one; larger ones count as one object."""


@dataclass(frozen=True)
class Fingerprint:
    """Everything that planning reads of a transform; equal fingerprints give equal plans.

    Attributes:
        key: the identity of each step, with the parameters and replaced code of torchvision's own classes; then the values that planning
            reads beside the steps. fastload's transforms cannot change, and a step that runs in Python is called as it is.
        steps: keeps the steps alive, so that no other object takes their identity.
    """

    key: tuple[Any, ...]
    steps: tuple[Any, ...] = field(compare=False, repr=False)


def fingerprint(transform: Any) -> Fingerprint:
    """The fingerprint of a transform as it is now."""
    steps = flatten(transform)
    key = tuple((id(step), _parameters(step, steps)) for step in tuple(steps))
    return Fingerprint((*key, surroundings(steps)), tuple(steps))


def _parameters(step: Any, kept: list[Any]) -> tuple[Any, ...]:
    """The parameters of one step; the steps of several views are added to `kept`."""
    attributes, entries, why_not = read_of(step)
    if entries is not None:
        views = [flatten(entry) for entry in entries]
        kept += [each for view in views for each in view]
        return tuple(tuple((id(each), _parameters(each, kept)) for each in view) for view in views)
    return why_not, *((name, _comparable(value)) for name, value in attributes.items() if not name.startswith("_") or name == _TABLE)


def _comparable(value: Any) -> Any:
    """A copy that compares by value: containers as tuples, small arrays as their values; anything else by its own equality."""
    if isinstance(value, list | tuple):
        return tuple(_comparable(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _comparable(each)) for key, each in value.items())
    listed = getattr(value, "tolist", None)
    if not callable(listed):
        return value
    return _comparable(listed()) if getattr(value, "size", 0) and _count(value) <= _LONGEST else id(value)


def _count(value: Any) -> int:
    size = value.size
    return int(size) if isinstance(size, int) else int(value.numel())


class TransformedDataset:
    """Holds a transform and its plan, which follows the transform wherever it is changed, unless this is a snapshot.

    Raises:
        TransformError: the transform cannot be planned.
    """

    _has_boxes = False  # True if the engine has the boxes of each sample
    _is_whole = False  # True if Python steps get whole samples

    def __init__(self, transform: Any) -> None:
        self._transform: Any = transform
        self._fixed = False  # a snapshot: the plan stays, whatever becomes of the transform
        self._leaves = False  # True if the plan leaves ops to the device
        self._source: tuple[Any, ...] | None = None  # the source that the engine reads, and its ingredients
        self._plan, self._planned = self._compiled(transform), fingerprint(transform)

    def _compiled(self, transform: Any) -> Plan:
        return compile_plan(transform, device=self._leaves, boxes=self._has_boxes, whole=self._is_whole)

    @property
    def transform(self) -> Any:
        """The transform as it was given; assigning plans the new one."""
        return self._transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        plan = self._compiled(transform)
        self._plan, self._planned, self._transform = plan, fingerprint(transform), transform

    @property
    def plan(self) -> Plan:
        """The transform, planned; anew where it was changed in place since."""
        if not self._fixed:
            seen = fingerprint(self._transform)
            if seen != self._planned:
                self._plan, self._planned = self._compiled(self._transform), seen
        return self._plan

    def snapshot(self, *, device: bool = False) -> Self:
        """A copy that shares all that is open, and whose plan stays as it is now, whatever becomes of the transform.

        Args:
            device: leave to the device what Plan.movable says it can do; a FastLoader with `device=` does those ops there.
        """
        plan, out = self.plan, self._copied()
        out._fixed, out._leaves, out._source = True, device and plan.movable, None
        out._plan = out._compiled(self._transform) if out._leaves else plan
        return out

    def _copied(self) -> Self:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out
