"""What tests of `fastload doctor` share: the command in a process of its own, and its findings by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Found = dict[str, dict[str, Any]]


def doctor(
    *arguments: str | Path, env: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
) -> tuple[int, Found]:
    """Runs ``fastload doctor --json`` in a process for which `before` is called first. Returns the exit
    status, and findings by name."""
    return findings([sys.executable, "-m", "fastload", "doctor", "--json", *map(str, arguments)], env, before)


def findings(
    command: Sequence[str], env: Mapping[str, str] | None = None, before: Callable[[], None] | None = None
) -> tuple[int, Found]:
    """The same, of a whole command."""
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.endswith("_NUM_THREADS") and name != "FASTLOAD_CPU"
    }
    done = subprocess.run(
        command,
        env={**kept, **(env or {})},
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    found = {each["name"]: each for each in document["findings"]}
    assert len(found) == len(document["findings"])
    assert (
        document["ok"] == (done.returncode == 0) == all(each["verdict"] != "bad" for each in found.values())
    )
    return done.returncode, found


def bad(found: Found) -> set[str]:
    """Names of the bad findings; that of torchvision left out, which depends on the environment's wheels."""
    return {name for name, each in found.items() if each["verdict"] == "bad"} - {"torchvision"}
