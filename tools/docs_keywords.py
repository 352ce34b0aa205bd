"""Extension of griffe, which reads the code for the reference: functions that take options by ``**options`` are shown as help() shows them.

The keywords and their docs are made when the module is imported (`fastload.packing.keywords`); griffe reads only its text.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class Keywords(griffe.Extension):
    """Gives each such function the parameters of its ``__signature__``, and the docstring that goes with them."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called by griffe with each function that it has read."""
        if not any(str(each.value).endswith("takes_options") for each in func.decorators) or func.docstring is None:
            return
        loaded = getattr(importlib.import_module(func.module.path), func.name)
        shown = [each for each in inspect.signature(loaded).parameters.values() if each.name not in func.parameters]
        del func.parameters["options"]
        for each in shown:
            default = repr(each.default)
            func.parameters.add(
                griffe.Parameter(each.name, annotation=each.annotation, kind=griffe.ParameterKind.keyword_only, default=default)
            )
        func.docstring.value = inspect.getdoc(loaded) or ""
