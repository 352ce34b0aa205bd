"""Steps of a transform as planning reads them: torchvision's are recognised without importing it, by class,
attributes and code.

A subclass, an attribute that the class does not have, a hook, or a replaced function may change what an
object does, so none of those is recognised; it runs in Python as the callable it is. See NOTE [ originals:
how replaced code is found ]. lightly's transforms of several views are recognised in the same way.
TransformedDataset plans a transform anew where anything of that has changed.
"""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeGuard

from typing_extensions import Self

from fastload import transforms as T
from fastload.common.originals import OwnCode
from fastload.transforms.library import LIBRARY, Known
from fastload.transforms.spec import Plan

_PREFIX = "torchvision.transforms."
_READ = frozenset((*LIBRARY, "Compose", "RandomApply"))
"""Names of the classes whose code is looked at."""
_CONVERSIONS = ("ToTensor", "PILToTensor", "ToImage")
_LIGHTLY = "lightly.transforms."
_BASE = ("lightly.transforms.multi_view_transform", "MultiViewTransform")
_ONE_VIEW = re.compile(r"\w*View\d?Transform|ToTensor")
"""lightly's classes that only call the torchvision transform that they hold as `transform`."""
_MIXES = ("MixUp", "CutMix")
_CALLERS = ("Lambda", "RandomApply", "RandomChoice", "RandomOrder")
"""torchvision's v1 classes that only call what they were given."""

_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")
"""Methods of torch's Module that a call of one comes through."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_PILLOW: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("PIL.Image:Image", ("convert", "crop", "load", "resize", "transpose")),
    ("PIL.ImageOps", ("expand",)),
)
"""Functions of Pillow that torchvision calls for the steps that run natively."""
_AUGMENTING = OwnCode(
    ("PIL.Image:Image", ("copy", "filter", "histogram", "point", "rotate", "split", "transform")),
    ("PIL.Image", ("blend", "fromarray", "merge", "new")),
    ("PIL.ImageOps", ("_lut", "autocontrast", "equalize", "invert", "posterize", "solarize")),
    "PIL.ImageEnhance",
)
"""Further ones, that it calls for augmentations."""
_AUGMENTATIONS = frozenset(
    ("RandomPerspective", *(name for name, row in LIBRARY.items() if row.batch is not None))
)


def known(step: object) -> Known | None:
    """The step, if it is exactly what torchvision made of one of the known classes, and does what it does
    there."""
    if (alone := _applied_alone(step)) is not None:
        return alone
    kind = type(step)
    name = kind.__name__
    if not _ours(kind) or name not in LIBRARY or replaced(step):
        return None
    values = {
        key: value for key, value in vars(step).items() if not key.startswith("_") and key != "training"
    }
    table = values.pop("policies", vars(step).get("_policies"))
    if name == "AutoAugment" and not _unchanged(step, values, table):
        return None
    if set(values) != set(LIBRARY[name].attributes) or (name != "AutoAugment" and table is not None):
        return None
    return Known(name, _is_v2(kind), values)


def _applied(step: object) -> list[Any] | None:
    """The steps of a RandomApply of torchvision's; None for any other."""
    if not _ours(type(step)) or type(step).__name__ != "RandomApply" or replaced_on(step):
        return None
    held = vars(step).get("transforms")
    return flatten(held) if isinstance(held, list | tuple) else None


def _applied_alone(step: object) -> Known | None:
    """The one step of a RandomApply, with the probability of both."""
    held, p = _applied(step), vars(step).get("p") if hasattr(step, "__dict__") else None
    found = known(held[0]) if held is not None and len(held) == 1 else None
    if found is None or not found.row.has_chance or not isinstance(p, int | float) or not 0 <= p <= 1:
        return None
    return Known(found.name, found.v2, {**found.values, "p": p * found.values.get("p", 1.0)})


def replaced(step: object) -> str:
    """The reason why a step of a known class does not do torchvision's work, as a clause; "" if it does,
    or its class is unknown."""
    return replaced_on(step) or (functions_replaced([step]) if type(step).__name__ in LIBRARY else "")


def replaced_on(step: object) -> str:
    """The reason of replaced(), without the functions that the class calls: parts of the object or its
    class that are not torchvision's."""
    kind = type(step)
    if not _ours(kind) or kind.__name__ not in _READ:
        return ""
    if getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
        return "its class only has the name of torchvision's"
    own = vars(step)
    if any(own.get(hooks) for hooks in _HOOKS):
        return "it has forward hooks"
    if not _class_names(kind).isdisjoint(own):
        return f"its own {min(_class_names(kind).intersection(own))} was replaced"
    return _own_code(kind).replaced() or _global_hooks(kind)


def functions_replaced(steps: Iterable[Any]) -> str:
    """The first function that torchvision's steps among these may call and that was replaced, as a clause;
    "" where there is none."""
    kinds = {type(step) for step in steps if _ours(type(step))}
    found = [_functions(v2) for v2 in sorted({_is_v2(kind) for kind in kinds})]
    if any(kind.__name__ in _AUGMENTATIONS for kind in kinds):
        found.append(_AUGMENTING)
    return next(filter(None, (code.replaced() for code in found)), "")


@cache
def _functions(v2: bool) -> OwnCode:
    """The functions of torchvision.transforms; those of v2 call v1's as well."""
    modules = [name for name in sys.modules if name.startswith(_PREFIX) and (v2 or not _in_v2(name))]
    return OwnCode(*modules, *_OF_PILLOW)


@cache
def _class_names(kind: type) -> frozenset[str]:
    """Names that a class has, methods among them: an object that has one of its own takes it from the
    class."""
    return frozenset(dir(kind))


@cache
def _own_code(kind: type) -> OwnCode:
    """The code of a torchvision class: its own, its bases', and the code that a call of it runs through."""
    module = [each for each in kind.__mro__ if each.__module__ == "torch.nn.modules.module"]
    return OwnCode(*(each for each in kind.__mro__ if _ours(each)), *((each, _CALLS) for each in module))


def _global_hooks(kind: type) -> str:
    """Hooks that torch calls for every module, as a clause; "" where there are none, or the class is no
    module."""
    torch_module = sys.modules.get("torch.nn.modules.module")
    if torch_module is None or not issubclass(kind, torch_module.Module):
        return ""
    found = getattr(torch_module, "_global_forward_hooks", None) or getattr(
        torch_module, "_global_forward_pre_hooks", None
    )
    return "torch calls global forward hooks for every module" if found else ""


def _unchanged(step: object, values: Mapping[str, Any], table: object) -> bool:
    """Returns True if AutoAugment holds the table that its policy names."""
    made = getattr(step, "_get_policies", None)
    return callable(made) and bool(made(values.get("policy")) == table)


def _ours(kind: type) -> bool:
    return f"{kind.__module__}.".startswith(_PREFIX)


def _is_v2(kind: type) -> bool:
    return _in_v2(kind.__module__)


def _in_v2(module: str) -> bool:
    return ".v2." in f"{module}."


class _Compose(Protocol):
    """torchvision's Compose, as far as it is read here."""

    transforms: Sequence[Any]


def _is_compose(step: object) -> TypeGuard[_Compose]:
    return _ours(type(step)) and type(step).__name__ == "Compose"


def class_mistake(step: object) -> str:
    """Text about a class that was given instead of an object, alone or in a container of torchvision's; ""
    if there is none."""
    if isinstance(step, type):
        name = step.__name__
        return (
            f"{name} is the class, not a transform made of it: write {name}(...), or a function that "
            "calls it with the image"
        )
    held = getattr(step, "transforms", None)
    return next(filter(None, map(class_mistake, held)), "") if isinstance(held, list | tuple) else ""


def flatten(transform: object) -> list[Any]:
    """The steps of None, one step, lists, tuples, torchvision's Compose and lightly's transforms of one view,
    nested as they may be.

    Other containers (RandomApply, RandomChoice, a Compose of another library or with replaced code) have a
    meaning of their own and stay whole.
    """
    if transform is None:
        return []
    if _is_compose(transform) and not replaced_on(transform):
        return flatten(transform.transforms)
    if (held := held_by(transform)) is not None:
        return flatten(held)
    if isinstance(transform, Sequence) and not isinstance(transform, str | T.Transform):
        return [step for inner in transform for step in flatten(inner)]
    return [transform]


def entries_of(step: object) -> tuple[Any, ...] | None:
    """The transform of each view that a step makes of an image; None for a step that makes no list of views.

    lightly's MultiViewTransform counts, and what derives from it, unless it calls its transforms in a way of
    its own.
    """
    if isinstance(step, T.Views):
        return tuple(step.transforms)
    base: Any = getattr(sys.modules.get(_BASE[0]), _BASE[1], None)
    held = getattr(step, "transforms", None)
    if (
        base is None
        or not isinstance(step, base)
        or type(step).__call__ is not base.__call__
        or not isinstance(held, list | tuple)
    ):
        return None
    if _own_call(base).replaced():
        return None
    return tuple(held)


def held_by(step: object) -> object:
    """The transform that one of lightly's classes for one view only passes images to; None for any other
    step."""
    kind: type = type(step)
    if (
        not kind.__module__.startswith(_LIGHTLY)
        or not _ONE_VIEW.fullmatch(kind.__name__)
        or set(vars(step)) != {"transform"}
    ):
        return None
    if (
        getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind
        or _own_call(kind).replaced()
    ):
        return None
    held: object = vars(step)["transform"]
    return held


@cache
def _own_call(kind: type) -> OwnCode:
    """A call of one of lightly's classes."""
    return OwnCode(*((each, ("__call__",)) for each in kind.__mro__ if each is not object))


def default_dtype() -> str:
    """Torch's default dtype by name, as in "torch.float32", which ToTensor gives."""
    torch = sys.modules.get("torch")
    return "torch.float32" if torch is None else str(torch.get_default_dtype())


def is_torchvisions(step: object) -> bool:
    """Returns True if the class of a step, or one that it derives from, is torchvision's."""
    return any(_ours(kind) for kind in type(step).__mro__)


def takes_image_alone(step: object) -> bool:
    """Returns True if a step is one of torchvision.transforms (v1) that takes only an image."""
    kind = type(step)
    return _ours(kind) and not _is_v2(kind) and kind.__name__ not in _CALLERS


def makes_floats(step: object) -> bool:
    """Returns True if a step is v2's ToTensor, which makes floats of Pillow images."""
    found = known(step)
    return found is not None and found.v2 and found.name == "ToTensor"


def converts(step: object) -> bool:
    """Returns True if a step turns a Pillow image into a tensor, by its class or a base class, or is a
    Compose with such a step."""
    return _derives(step, _CONVERSIONS) or (_is_compose(step) and any(map(converts, step.transforms)))


def _derives(step: object, names: Sequence[str]) -> bool:
    return any(_ours(kind) and kind.__name__ in names for kind in type(step).__mro__)


def mixes(step: object) -> bool:
    """Returns True if a step wants labels with its images: torchvision's MixUp or CutMix, a derived class,
    or a container with one."""
    if not is_torchvisions(step):
        return False
    if _derives(step, _MIXES):
        return True
    held = getattr(step, "transforms", None)
    return isinstance(held, list | tuple) and any(mixes(each) for each in held)


_TABLE = "_policies"
_LONGEST = 4096
"""Values of an array that are compared one by one; larger ones count as one object."""


@dataclass(frozen=True)
class Fingerprint:
    """Everything that planning reads of a transform; equal fingerprints give equal plans.

    Attributes:
        key: the identity of each step, with the parameters and replaced code of torchvision's own classes;
            then the values that planning reads beside the steps. fastload's transforms cannot change, and a
            step that runs in Python is called as it is.
        steps: keeps the steps alive, so that no other object takes their identity.
    """

    key: tuple[Any, ...]
    steps: tuple[Any, ...] = field(compare=False, repr=False)


def fingerprint(transform: object) -> Fingerprint:
    """The fingerprint of a transform as it is now."""
    steps = flatten(transform)
    key = tuple((id(step), _parameters(step, steps)) for step in tuple(steps))
    theirs = [step for step in steps if _ours(type(step))]
    return Fingerprint(
        (*key, *((functions_replaced(theirs), default_dtype()) if theirs else ())), tuple(steps)
    )


def _parameters(step: object, kept: list[Any]) -> tuple[Any, ...]:
    """The parameters of one step; the steps of several views are added to `kept`."""
    if (entries := entries_of(step)) is not None:
        views = [flatten(entry) for entry in entries]
        kept += [each for view in views for each in view]
        return tuple(tuple((id(each), _parameters(each, kept)) for each in view) for view in views)
    if (held := _applied(step)) is not None:
        kept += held
        return vars(step)["p"], *((id(each), _parameters(each, kept)) for each in held)
    attributes = vars(step) if _ours(type(step)) else {}
    values = (
        (name, _comparable(value))
        for name, value in attributes.items()
        if not name.startswith("_") or name == _TABLE
    )
    return replaced_on(step), *values


def _comparable(value: object) -> object:
    """A copy that compares by value: containers as tuples, small arrays as their values; anything else by
    its own equality."""
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
    """Holds a transform and its plan, which follows the transform wherever it is changed, unless this is a
    snapshot.

    Raises:
        TransformError: the transform cannot be planned.
    """

    def __init__(self, transform: object) -> None:
        self._transform: object = transform
        self._fixed = False  # a snapshot: the plan stays, whatever becomes of the transform
        self._leaves = False  # True if the plan leaves ops to the device
        self._source: tuple[Any, ...] | None = None  # the source that the engine reads, and its ingredients
        self._plan, self._planned = self._compiled(transform), fingerprint(transform)

    @abstractmethod
    def _compiled(self, transform: object) -> Plan:
        """The plan of a transform of samples like these."""

    @property
    def transform(self) -> Any:
        """The transform as it was given; assigning plans the new one."""
        return self._transform

    @transform.setter
    def transform(self, transform: object) -> None:
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
        """A copy that shares all that is open, and whose plan stays as it is now, whatever becomes of the
        transform.

        Args:
            device: leave to the device what Plan.movable says it can do; a FastLoader with `device=` does
                those ops there.
        """
        plan, out = self.plan, self._copied()
        out._fixed, out._leaves, out._source = True, device and plan.movable, None
        out._plan = out._compiled(self._transform) if out._leaves else plan
        return out

    def _copied(self) -> Self:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out
