"""TuneOrder: the order by which a drop-in run tries settings of the program's first loader, and ends the
program there.

NOTE [ tune: how a program's loader is tried ]
1. The program runs as under `fastload run`, in a process of its own, with an order in its environment. Its
   stdout goes to stderr.
2. The first `iter()` of one of its loaders runs the trials, writes their document into the order's file, and
   ends the process at once, by os._exit: no `finally` and no atexit of the program runs, which might save a
   model that was never trained.
3. A loader that cannot be tried ends the program in the same way, with the reason in the file: nobody asked
   for a training run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastload.common.files import scratch_folder
from fastload.common.streams import flush_streams
from fastload.tune.trials import TuneError

VARIABLE = "FASTLOAD_TUNE"
"""Variable of the environment that holds an order, as JSON."""

_STDERR = 2
"""Descriptor of this process's stderr."""


@dataclass(frozen=True, slots=True)
class TuneOrder:
    """An order to try settings.

    Attributes:
        seconds: time of all trials.
        step_ms: milliseconds of a training step, for which the trials' loop sleeps.
        file: file for the document; not yet there.
    """

    seconds: float
    step_ms: float
    file: str = ""

    @classmethod
    def in_force(cls) -> TuneOrder | None:
        """The order that this process is under; None: none."""
        text = os.environ.get(VARIABLE)
        return cls(**json.loads(text)) if text else None

    def tried(self, program: Sequence[str]) -> dict[str, Any]:
        """The document of a program's first loader. See NOTE [ tune: how a program's loader is tried ].

        Args:
            program: the script and its arguments.

        Raises:
            TuneError: the program ended before it iterated a loader, or its loader cannot be tried.
        """
        with scratch_folder("tune") as folder:
            file = folder / "document.json"
            order = TuneOrder(self.seconds, self.step_ms, str(file))
            environment = {**os.environ, VARIABLE: json.dumps(asdict(order))}
            command = [sys.executable, "-m", "fastload.run", "--quiet", *program]
            done = subprocess.run(command, env=environment, stdout=_STDERR, check=False)
            if not file.exists():
                raise TuneError(
                    f"{program[0]} ended with status {done.returncode} before it iterated a loader: "
                    "what it says itself is above; "
                    "tune needs a script that trains"
                )
            document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if "failed" in document:
            raise TuneError(f"{program[0]}: {document['failed']}")
        return document

    def end(self, document: dict[str, Any]) -> None:
        """Writes the document, whole or not at all, and ends this process."""
        path = Path(self.file)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(path)
        flush_streams()
        os._exit(0)
