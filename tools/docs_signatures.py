"""Extensions of griffe, which reads the code for `make docs` (mkdocs.yml): signatures made at import are
shown as help() shows them.

griffe reads only the text of a module. `fastload.packing.keywords` makes the keywords of functions that take
options, and their docs; `fastload.engines.settings` makes the parameters of FastLoader.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

from fastload.packing.keywords import keywords


class Keywords(griffe.Extension):
    """Gives `pack` the parameters of its ``__signature__`` with their texts, and others that take
    ``**options`` the names of theirs, or of those of pack's that are not."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called by griffe with each function that it has read."""
        if (
            not any(str(each.value).endswith("takes_options") for each in func.decorators)
            or func.docstring is None
        ):
            return
        loaded = getattr(importlib.import_module(func.module.path), func.name)
        shown = [
            each for each in inspect.signature(loaded).parameters.values() if each.name not in func.parameters
        ]
        if func.name != "pack":  # whose page has the texts
            head, mark, rest = func.docstring.value.partition("\nReturns:")
            func.docstring.value = f"{head.rstrip()}\n    options: {_told(shown)}\n{mark}{rest}"
            func.parameters["options"].annotation = None
            return
        del func.parameters["options"]
        for each in shown:
            default = repr(each.default)
            func.parameters.add(
                griffe.Parameter(
                    each.name,
                    annotation=None,  # their texts say it
                    kind=griffe.ParameterKind.keyword_only,
                    default=default,
                )
            )
        func.docstring.value = inspect.getdoc(loaded) or ""


def _told(shown: list[inspect.Parameter]) -> str:
    """Names of some of pack's options: these, or all others, if these are fewer."""
    taken = [each.name for each in shown]
    left_out = [name for name in keywords("pack") if name not in taken]
    few = left_out if len(left_out) < len(taken) else taken
    names = ", ".join(f"`{name}`" for name in few)
    return f"as `fastload.pack` has them{', all but' if few is left_out else ':'} {names}."


class DeclaredArguments(griffe.DataclassesExtension):
    """Gives FastLoader's constructor the parameters of Arguments, the dataclass that `takes()` gives it
    when it is imported."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Changes the package as griffe has read it from its files."""
        super().on_package(pkg=pkg, **kwargs)
        loader = pkg["loader.FastLoader"]
        loader["__init__"].parameters = pkg["engines.settings.Arguments.__init__"].parameters
        # They are for type checkers: which arguments leave the type of a batch known
        loader.overloads.clear()
        loader["__init__"].overloads = None
