"""after_import(): calls a function once a module has been imported by somebody else."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def after_import(name: str, call: Callable[[], None]) -> None:
    """Calls a function when the import of a module ends; at once if it was imported already. The module is
    not imported for it."""
    if name in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _Awaited(name, call))


class _Awaited(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that waits for one module, and is gone once that runs. A program may ask for the module's
    spec before, and import it later, or never."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name, self._call = name, call
        self._loader: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec as the finders behind this one have it, with this object as its loader. Where
        several wait for one module, each has the next one as its own loader."""
        if fullname != self._name:
            return None
        finders: list[Any] = sys.meta_path
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        finds = (find for each in behind if (find := getattr(each, "find_spec", None)) is not None)
        specs = (find(fullname, path, target) for find in finds)
        found: importlib.machinery.ModuleSpec | None = next(
            (spec for spec in specs if spec is not None), None
        )
        if found is None or found.loader is None:
            return found
        self._loader, found.loader = found.loader, self
        return found

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The module that the own loader makes."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module by its own loader, which its spec has again, and then calls the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._call()

    def __getattr__(self, name: str) -> Any:
        """Attributes of the own loader, for a program that asks the spec for them."""
        return getattr(self.__dict__.get("_loader"), name)
