"""The distribution's name, and the sentence that names what to install.

The package, the command and the folder are called fastload. The distribution is not: that name belongs to
another project on PyPI.
"""

from __future__ import annotations

DISTRIBUTION = "torch-fastload"
"""Name under which pip knows this package: `project.name` in pyproject.toml."""


def pip_install(*extras: str) -> str:
    """The command that installs the package with extras, as a shell takes it: ``pip install
    'torch-fastload[query]'``."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'" if extras else f"pip install {DISTRIBUTION}"
