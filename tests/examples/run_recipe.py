"""python run_recipe.py SCRIPT ARGUMENT...: the script as it is, where torchvision may need torchvision_ops
beside a CPU build of torch."""

from __future__ import annotations

import runpy
import sys

import torchvision_ops  # noqa: F401  (before anything imports torchvision)

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
