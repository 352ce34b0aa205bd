"""The documentation's own tools, and the helpers of the store's tests, are modules for its tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "store")]
