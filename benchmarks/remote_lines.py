"""Lines of JSON that a turn of bench_remote.py, a process of its own, writes to its parent; without
fastload, which peers do not have."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(**what: Any) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def event(name: str) -> None:
    """One line to the parent, and its answer."""
    say(event=name)
    sys.stdin.readline()
