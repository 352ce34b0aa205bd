"""Makes torchvision importable beside torch's CPU build, as the tests do: a peer imports this before it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import torchvision_ops

assert torchvision_ops
