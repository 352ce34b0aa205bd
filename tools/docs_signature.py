"""Extension of `make docs` (mkdocs.yml): FastLoader's page has the parameters that Arguments declares."""

from __future__ import annotations

from typing import Any

import griffe


class DeclaredArguments(griffe.DataclassesExtension):
    """Gives FastLoader's constructor the parameters of the dataclass that `takes()` gives it when it is imported."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Changes the package as griffe has read it from its files."""
        super().on_package(pkg=pkg, **kwargs)
        pkg["loader.FastLoader.__init__"].parameters = pkg["engines.settings.Arguments.__init__"].parameters
