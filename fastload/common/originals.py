"""OwnCode: decides whether functions of another library are still that library's own, by the code in the
library's files.

NOTE [ originals: how replaced code is found ]
fastload knows what a library's transform or dataset does for as long as its code is what was installed. A
name proves nothing: functools.wraps copies it, and anybody can set it. So code is compared:
1. The loader of a module gives its compiled code again (`get_code`, mostly from the .pyc file that the import
   used). It holds the code object of every function that the module defines, as the library was imported. A
   function is the library's own if it has one of these code objects, and runs in that module's globals.
2. So a replaced function is found whenever it was replaced: before fastload was imported, before the first
   plan, or between two epochs; and one that was given another code object in place is found too.
3. That comparison is made once. Later ones compare the identities of the functions, and of their code
   objects, with what they were in the last two comparisons: with stand-ins in their places, and without. This
   takes some microseconds, so that every plan can ask.
4. No library is imported for this, and nothing is written into one. A module that is not imported has nothing
   to replace. A module whose code cannot be read again counts as replaced.
5. Only functions are compared, and that the class of a name is the one that its module defines. Of a
   library's constants those count that a plan reads itself: torch's default dtype, torchvision's image
   backend, Pillow's MAX_IMAGE_PIXELS.
6. A function of a compiled module is its own if it is a built-in function bound to that module under its
   name.
7. fastload puts functions of its own into places of torchvision, torch and Pillow, which do there what the
   library's do. They are declared (`stand_in`), and count as the function that they stand for: by identity,
   and for as long as they have their code.
"""

from __future__ import annotations

import builtins
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ExtensionFileLoader
from itertools import chain
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any, NamedTuple, TypeAlias

from fastload._native import core

Holder = ModuleType | type
Place: TypeAlias = tuple[Holder | dict[str, Any], Sequence[str] | None]
_FUNCTION = 0x1
"""CO_OPTIMIZED: a flag that the code of a function has, and that of a class body has not."""
_OF_OBJECTS = (
    "__init__",
    "__init_subclass__",
    "__repr__",
    "extra_repr",
    "__prepare_scriptable__",
    "_extract_params_for_v1_transform",
)
"""Methods that act when an object is made, printed or scripted: they change no sample."""


class _StandIn(NamedTuple):
    """A stand-in, its code when it was declared, and the object that it stands for."""

    itself: weakref.ref[Any]
    code: CodeType | None
    own: object


_stand_ins: dict[int, _StandIn] = {}
"""By the stand-in's id()."""


def stand_in(ours: object, own: object) -> None:
    """Declares that an object of fastload's, put into a place of another library, does there what `own`
    does."""
    key = id(ours)
    reference = weakref.ref(ours, lambda _: _stand_ins.pop(key, None))
    _stand_ins[key] = _StandIn(reference, getattr(ours, "__code__", None), original(own))


def exchange(holder: Holder, name: str, met: Callable[[Any], object]) -> None:
    """Puts `met` of a function into the function's place in a module or class, as a stand-in for it; nothing,
    where there is no such function."""
    own = getattr(holder, name, None)
    if callable(own):
        ours = met(own)
        setattr(holder, name, ours)
        stand_in(ours, own)


def original(value: object) -> object:
    """The library's object that a stand-in stands for; any other value as it is."""
    found = _stand_ins.get(id(value))
    if found is None or found.itself() is not value or getattr(value, "__code__", None) is not found.code:
        return value
    return found.own


class OwnCode:
    """Functions of modules and classes, compared with what their library defines. See NOTE [ originals: how
    replaced code is found ].

    Args:
        places: the name of a module: the functions that it defines at its own level, or imports by name from
            its own library; "module:Class", or a class: its methods; (place, names): those functions alone.
            Modules that are not imported are left out.
    """

    def __init__(self, *places: str | type | tuple[str | type, Sequence[str]]) -> None:
        self._places = [place if isinstance(place, tuple) else (place, None) for place in places]
        self._seen: tuple[tuple[Callable[[], bool], str], ...] = ()

    def replaced(self) -> str:
        """A clause that names the first function that is not the library's own; "" where all are."""
        for holds, clause in self._seen:
            if holds():
                return clause
        snapshot = core.Snapshot(*self._looked_at())
        clause = self._compare()
        self._seen = ((snapshot.holds, clause), *self._seen[:1])
        return clause

    def _looked_at(self) -> tuple[list[Place], list[FunctionType]]:
        """Places and functions that are compared again only once one of them is another."""
        imported: Place = (
            sys.modules,
            [place.partition(":")[0] for place, _ in self._places if isinstance(place, str)],
        )
        named: list[Place] = [(module, [name]) for module, name, _ in self._classes()]
        holders = self._holders()
        functions = chain.from_iterable(_own_functions(holder, only) for holder, only in holders)
        return [imported, *named, *holders], list({id(each): each for each in functions}.values())

    def _compare(self) -> str:
        verdicts = chain(
            map(_class_verdict, self._classes()), (_verdict(holder, only) for holder, only in self._holders())
        )
        return next(filter(None, verdicts), "")

    def _classes(self) -> list[tuple[ModuleType, str, Any]]:
        return [each for place, _ in self._places if (each := _class_at(place)) is not None]

    def _holders(self) -> list[tuple[Holder, Sequence[str] | None]]:
        found = [(_holder(place), only) for place, only in self._places]
        return [(holder, only) for holder, only in found if isinstance(holder, Holder)]


def _class_at(place: str | type) -> tuple[ModuleType, str, Any] | None:
    """The module of a place "module:Class", the name, and what the module has by this name; None where it
    is not imported or has none."""
    name, _, kind = place.partition(":") if isinstance(place, str) else ("", "", "")
    module = sys.modules.get(name)
    return (module, kind, vars(module)[kind]) if module is not None and kind in vars(module) else None


def _class_verdict(found: tuple[ModuleType, str, Any]) -> str:
    """A clause about a class that is none, or that another library has put into its place."""
    module, name, kind = found
    same = isinstance(kind, type) and _library(kind.__module__) == _library(module.__name__)
    return "" if same else f"{module.__name__}.{name} was replaced"


def _holder(place: str | type) -> Any:
    """The module or class; None where it is not imported, or has no such class."""
    if isinstance(place, type):
        return place
    found = _class_at(place)
    return sys.modules.get(place) if found is None else found[2]


def _own_functions(holder: Holder, only: Sequence[str] | None) -> Iterator[FunctionType]:
    """The functions whose code is looked at again: of a module those that run in its globals; of all those
    named in `only`, if given.

    Of a stand-in that is its own, and the function that it stands for.
    """
    for name, value in vars(holder).items():
        if only is None or name in only:
            own = original(value)
            for function in _functions(own):
                if isinstance(holder, type) or function.__globals__ is vars(holder):
                    yield function
            if own is not value:
                yield from _functions(value)


def _verdict(holder: Holder, only: Sequence[str] | None) -> str:
    module = holder if isinstance(holder, ModuleType) else sys.modules.get(holder.__module__)
    parts = None if module is None else _parts(holder, module, only)
    if module is None or parts is None:
        return f"the code of {getattr(holder, '__module__', holder.__name__)} cannot be read again"
    found = next((name for name, is_own in parts if not is_own), None)
    foreign = f"{module.__name__}.{holder.__qualname__}" if isinstance(holder, type) else module.__name__
    return "" if found is None else f"{foreign}.{found} was replaced"


def _parts(
    holder: Holder, module: ModuleType, only: Sequence[str] | None
) -> Iterator[tuple[str, bool]] | None:
    """Names in a module or a class of it, and whether each has the library's own function; None where that
    cannot be told."""
    if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), ExtensionFileLoader):
        return _compiled(module, only or ())
    defined = _definitions(module)
    if defined is None:
        return None
    if isinstance(holder, type):
        return _methods(holder, defined, only)
    return _module_functions(module, defined, only)


def _compiled(module: ModuleType, names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Functions of a compiled module by name, and whether each is the module's own."""
    for name in names:
        value = original(vars(module).get(name))
        yield (
            name,
            isinstance(value, BuiltinFunctionType) and value.__self__ is module and value.__name__ == name,
        )


def _module_functions(
    module: ModuleType, defined: _Definitions, only: Sequence[str] | None
) -> Iterator[tuple[str, bool]]:
    """Functions of a module by name, and whether each is the library's own. Of all of a module those that
    are gone are left out."""
    held = vars(module)
    for name in defined.functions:
        if name in held if only is None else name in only:
            yield name, _is_own(held.get(name), module, defined.codes[name])
    sources, names = _imported(module, defined)
    for name in names:
        if name in held and (only is None or name in only):
            yield (
                name,
                any(
                    vars(source).get(name) is held[name] or _defines(source, name, held[name])
                    for source in sources
                ),
            )
    for name in held.keys() & vars(builtins).keys() if only is None else ():
        if not name.startswith("__") and name not in defined.names:
            yield name, False  # hides a built-in function from the module


def _methods(kind: type, defined: _Definitions, only: Sequence[str] | None) -> Iterator[tuple[str, bool]]:
    """(name, True if the code is the library's own) of each part of a class that acts when an attribute is
    read."""
    prefix = f"{kind.__qualname__}."
    whole = [code for name, codes in defined.codes.items() if name.startswith(prefix) for code in codes]
    for name in only or ():
        if prefix + name in defined.codes and name not in vars(kind):
            yield name, False  # it is gone
    for name, value in vars(kind).items():
        if (name in _OF_OBJECTS) if only is None else (name not in only):
            continue
        mangled = f"_{kind.__name__.lstrip('_')}__"
        plain = name[len(mangled) - 2 :] if name.startswith(mangled) else name
        module, codes = sys.modules[kind.__module__], defined.codes.get(prefix + plain)
        if codes is not None:
            yield name, _is_own(value, module, codes)
        elif _is_own(value, module, whole):
            yield name, True  # another name of one of its methods, such as nn.Module's __call__
        elif (only is not None or hasattr(type(value), "__get__")) and not isinstance(
            value, GetSetDescriptorType | MemberDescriptorType
        ):
            yield name, _is_borrowed(value, kind, name)


def _is_own(value: object, module: ModuleType, codes: Sequence[CodeType]) -> bool:
    """Returns True if a value is a function of a module, or a method, with one of these code objects; or a
    stand-in for one."""
    functions = _functions(original(value))
    return bool(functions) and all(
        each.__globals__ is vars(module) and each.__code__ in codes for each in functions
    )


def _is_borrowed(value: object, kind: type, name: str) -> bool:
    """Returns True if a value is a method of that name of another class of its library; torchvision's v2
    classes borrow get_params so."""
    for each in _functions(value):
        home = sys.modules.get(each.__globals__.get("__name__", ""))
        defined = None
        if home is not None and _library(home.__name__) == _library(kind.__module__):
            defined = _definitions(home)
        if home is None or defined is None:
            return False
        codes = [
            code for path, found in defined.codes.items() if path.rpartition(".")[2] == name for code in found
        ]
        if not _is_own(each, home, codes):
            return False
    return bool(_functions(value))


def _functions(value: Any) -> list[FunctionType]:
    """The functions of which a value is made, as a module or a class holds it; none where it is anything
    but a function or method."""
    if type(value) in (staticmethod, classmethod):
        value = value.__func__
    parts: tuple[object, ...] = (value,)
    if type(value) is property:
        parts = (value.fget, value.fset, value.fdel)
    elif type(value) is cached_property:
        parts = (value.func,)
    found = [part for part in parts if isinstance(part, FunctionType)]
    return found if len(found) == sum(part is not None for part in parts) else []


Codes = Mapping[str, tuple[CodeType, ...]]
"""Code objects of functions and methods by qualified name; several where a name is defined more than once."""


@dataclass(frozen=True)
class _Definitions:
    """Definitions in the file of a module.

    Attributes:
        codes: code objects of its functions and methods.
        names: all names that its own level uses.
        lists: names that it imports from modules by `from`, or may.
    """

    codes: Codes
    names: tuple[str, ...]
    lists: frozenset[str]

    @property
    def functions(self) -> Iterator[str]:
        """Names of the functions at its own level."""
        return (name for name in self.codes if "." not in name and "<" not in name)


_read: dict[str, tuple[Any, _Definitions]] = {}
"""By module: the spec that it was imported by, and what its file defines."""


def _definitions(module: ModuleType) -> _Definitions | None:
    """Definitions in a module's file, read once; None if it cannot be read."""
    spec: Any = getattr(module, "__spec__", None)
    name = module.__name__
    kept = _read.get(name)
    if kept is None or kept[0] is not spec:  # importlib.reload() makes a new spec
        try:
            own = spec.loader.get_code(spec.name)
        except Exception:  # a loader of any kind, and files that are gone
            return None
        if not isinstance(own, CodeType):
            return None
        codes: dict[str, tuple[CodeType, ...]] = {}
        for path, code in _walk(own, ""):
            codes[path] = (*codes.get(path, ()), code)
        lists = chain.from_iterable(const for const in own.co_consts if isinstance(const, tuple))
        kept = _read[name] = (
            spec,
            _Definitions(codes, own.co_names, frozenset(each for each in lists if type(each) is str)),
        )
    return kept[1]


def _walk(code: CodeType, prefix: str) -> Iterator[tuple[str, CodeType]]:
    """Functions in the code of a module or a class body, by qualified name."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            path = prefix + const.co_name
            if const.co_flags & _FUNCTION:
                yield path, const
            else:
                yield from _walk(const, f"{path}.")


def _imported(module: ModuleType, defined: _Definitions) -> tuple[list[ModuleType], list[str]]:
    """The modules of its own library that a module imports from, and the names of functions that it may
    have of them."""
    package = getattr(module, "__package__", "") or ""
    bases = ("", f"{package}.", f"{package.rpartition('.')[0]}.")
    paths = (
        base + name
        for name in defined.names
        for base in bases
        if _library(base + name) == _library(module.__name__)
    )
    sources = [
        found
        for path in dict.fromkeys(paths)
        if (found := sys.modules.get(path)) is not None and found is not module
    ]
    theirs = {
        name for source in sources if (their := _definitions(source)) is not None for name in their.functions
    }
    return sources, sorted(theirs & defined.lists - defined.codes.keys())


def _defines(module: ModuleType, name: str, value: object) -> bool:
    """Returns True if a value is the function that a module's file defines by that name."""
    defined = _definitions(module)
    return defined is not None and _is_own(value, module, defined.codes.get(name, ()))


def _library(name: str) -> str:
    return name.partition(".")[0]
