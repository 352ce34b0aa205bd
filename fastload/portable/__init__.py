"""Portable: fastload without its native module, on macOS and Windows, where people debug programs that run on
Linux.

NOTE [ portable: one door ]
The native module is built for Linux alone: its slots are memfds, its waits futexes. On the systems of
SYSTEMS, `fastload/__init__.py` puts `fastload.portable.core` into its place, before any other module of
fastload is imported, and gives the names that need native code other homes. No other module asks which of
the two it has, but for those that choose engines: `LACKING` says why native code is none.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from fastload.errors import UnavailableError

SYSTEMS = {"darwin": "macOS", "win32": "Windows"}
"""Systems without the native module, by sys.platform."""
LACKING = (
    f"fastload has no native module on {SYSTEMS[sys.platform]}, where it only tries programs out"
    if sys.platform in SYSTEMS
    else ""
)
"""Clause that says why nothing runs natively; "" where the native module is."""

NATIVE_ONLY = (
    "Images",
    "Mixture",
    "OnImages",
    "PackedDataset",
    "add_columns",
    "add_tokens",
    "append",
    "attach",
    "concat",
    "convert",
    "drop",
    "drop_columns",
    "export",
    "imread",
    "index",
    "pack",
    "prune",
    "pull",
    "push",
    "read",
)
"""Public names of fastload that need native code."""


def open_door() -> None:
    """Puts the stand-in into the place of the native module. See NOTE [ portable: one door ]."""
    from fastload.portable import core

    sys.modules["fastload._native.core"] = core


def __getattr__(name: str) -> Any:
    """The public names in NATIVE_ONLY, as classes whose call is refused."""
    if name not in NATIVE_ONLY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, refused(name))


def refusal(needs: str) -> UnavailableError:
    """The error of something that native code does: `needs` names it."""
    system = SYSTEMS.get(sys.platform, sys.platform)
    return UnavailableError(
        f"{needs} needs fastload's native module, which there is for Linux alone, and this is {system}: run "
        "it on Linux, such as in a container or under WSL 2"
    )


def check(needs: str) -> None:
    """Refuses something that native code does, where there is none. Raises UnavailableError."""
    if LACKING:
        raise refusal(needs)


def refused(name: str, needs: str | None = None) -> Any:
    """A class in the place of a class or function that needs native code: its call is refused, and nothing
    is an instance of it. `needs`: its name in the error; None: that of a public name of fastload."""

    def __new__(cls: type, /, *_: object, **__: object) -> NoReturn:
        raise refusal(needs or f"fastload.{name}")

    text = f"{name} of a system without fastload's native module. Raises UnavailableError."
    return type(name, (), {"__new__": __new__, "__module__": "fastload", "__doc__": text})


def command() -> NoReturn:
    """The command `fastload` where there is no native module: prints why it does nothing, and exits with
    status 2."""
    sys.stderr.write(f"fastload: {refusal('this command')}\n")
    raise SystemExit(2)
