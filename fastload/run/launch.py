"""Start of a drop-in run: this process becomes `python train.py`, with an environment by which FastLoader is
found.

NOTE [ run: how a program is met ]
A program must have its own `__main__`, sys.argv, sys.path[0], signals, exit status and tracebacks, and so
must the processes that it starts. So nothing of fastload stands around it:
1. `fastload run train.py` ends in execve of `python train.py`, with the interpreter's own options. The
   process keeps its id, which torchrun and shells know.
2. PYTHONPATH gets the folder `fastload/run/startup`, whose `sitecustomize.py` each Python process imports
   before its program. It takes the folder off sys.path, imports the `sitecustomize` that it hides, if there
   is one, and waits for the import of torch by an import hook. A process that never imports torch pays a few
   milliseconds.
3. When torch has been imported, fastload.loader is, and the name DataLoader in torch.utils.data and
   torch.utils.data.dataloader is set to the stand-in. Nobody but torch itself can have imported the name
   before.
4. Child processes inherit the environment: those of multiprocessing's spawn and forkserver, which import the
   program again as `__mp_main__`, those of torchrun and accelerate, and others. A child with another
   interpreter, or without the environment, has torch's own DataLoader.
5. The copy of fastload that was started is the one that is used, wherever sys.path would find another.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from fastload.common.streams import flush_streams
from fastload.errors import ArgumentError

VARIABLE = "FASTLOAD_RUN"
"""Variable of the environment that holds the options of a run, as JSON."""
PROGRAM_HELP = "A script, a module after -m, or a command such as torchrun; and its arguments."
MODULE_HELP = "PROGRAM is a module, as after `python -m`."
QUIET_HELP = "Say nothing at the end."
COMPARE_HELP = (
    "Before each loader's first epoch, N batches by torch's DataLoader and N others by FastLoader are timed."
)
STARTUP = Path(__file__).parent / "startup"


@dataclass(frozen=True)
class RunOptions:
    """Options of a drop-in run.

    Attributes:
        compare: batches that each loader makes both ways before its first epoch.
        quiet: nothing is said at the end.
        main: id of the process that was started.
        prefix, version: interpreter that the run is for.
    """

    compare: int = 0
    quiet: bool = False
    main: int = 0
    prefix: str = ""
    version: str = ""

    @classmethod
    def in_force(cls) -> RunOptions | None:
        """The options of the run that this process belongs to; None if there is none, or it is of another
        interpreter."""
        try:
            found = cls(**json.loads(os.environ[VARIABLE]))
        except (KeyError, TypeError, ValueError):
            return None
        return found if (found.prefix, found.version) == (sys.prefix, sys.version) else None

    def environment(self) -> dict[str, str]:
        """The environment of the program's process."""
        here = RunOptions(self.compare, self.quiet, os.getpid(), sys.prefix, sys.version)
        others = [
            path
            for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if path not in ("", str(STARTUP))
        ]
        path = os.pathsep.join([str(STARTUP), *others])
        return {**os.environ, VARIABLE: json.dumps(asdict(here)), "PYTHONPATH": path}


def start(options: RunOptions, program: Sequence[str], *, module: bool) -> NoReturn:
    """Replaces this process by the program's. See NOTE [ run: how a program is met ].

    Raises:
        ArgumentError: there is no such program.
        SystemExit: the interpreter was started so that it ignores the environment.
        OSError: the program cannot be started.
    """
    if sys.flags.ignore_environment or sys.flags.no_site:
        sys.exit("fastload run: Python's options -E, -I and -S hide the run from the program: leave them out")
    name, *_ = program
    there = module or os.path.exists(name)
    command = None if there else shutil.which(name)
    if not there and command is None:
        raise ArgumentError(
            f"{name}: there is no such file, and no command of this name: check the path, or, for a "
            f"module, write -m {name}"
        )
    flush_streams()
    if command is not None:
        os.execve(command, list(program), options.environment())
    arguments = [sys.executable, *_interpreter_options(), *(["-m"] if module else []), *program]
    os.execve(sys.executable, arguments, options.environment())


def _interpreter_options() -> list[str]:
    """Options that this interpreter was started with, such as -u or -X dev."""
    ours = len(sys.orig_argv) - len(sys.argv[1:])
    before = sys.orig_argv[1:ours]
    return before[:-2] if before[-2:-1] in (["-m"], ["-c"]) else before[:-1]
