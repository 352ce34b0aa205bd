"""Prints which files of fastload one iter() and two batches go through, in which order:
`python tools/walks.py`.

A walk is taken with sys.setprofile in the thread that iterates. A file is entered when a function of it is
called from another file of fastload; returning to the caller's file is no entry. docs/architecture.md names
the rooms in the order of these walks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T

ROOT = Path(fastload.__file__).parent


class Walk:
    """The files of fastload that a call goes through.

    Attributes:
        files: each once, in the order of its first entry.
        entries: how often a file was entered from another one.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.entries = 0
        self._names: dict[str, str | None] = {}

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._names:
            path = Path(name)
            self._names[name] = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else None
        return self._names[name]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (here := self._file(frame)) is None:
            return
        caller = frame.f_back
        while caller is not None and self._file(caller) is None:
            caller = caller.f_back
        if caller is not None and self._file(caller) == here:
            return
        self.entries += 1
        if here not in self.files:
            self.files.append(here)

    @contextlib.contextmanager
    def taken(self) -> Iterator[Walk]:
        """Notes what is called in this block."""
        sys.setprofile(self._note)
        try:
            yield self
        finally:
            sys.setprofile(None)


class Squares(Dataset[Any]):
    """Tensors made in Python."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 8, 8), float(index)), index


class _Pictures(Squares):
    def __getitem__(self, index: int) -> Any:
        return Image.fromarray(
            np.random.default_rng(index).integers(0, 255, (48, 48, 3), dtype=np.uint8)
        ), index % 4


def _loaders(folder: Path) -> dict[str, Callable[[], FastLoader[Any]]]:
    packed = folder / "walks.fl"
    with contextlib.redirect_stdout(io.StringIO()):
        fastload.pack(_Pictures(), packed)

    def data() -> PackedDataset:
        return PackedDataset(packed, transform=[T.RandomResizedCrop(32)])

    return {
        "packed": lambda: FastLoader(data(), batch_size=8, shuffle=True, num_workers=1),
        "processes": lambda: FastLoader(Squares(), batch_size=8, shuffle=True, num_workers=1),
        "device": lambda: FastLoader(
            data(), batch_size=8, shuffle=True, num_workers=1, device="cpu", batch_transform=[T.ToFloat()]
        ),
    }


def walks() -> dict[str, Walk]:
    """The walks of iter() and two batches, by kind of loader; for "packed", its construction as well."""
    out: dict[str, Walk] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in _loaders(Path(folder)).items():
            make().close()  # what is imported and read once
            with Walk().taken() as built:
                loader = make()
            out[f"{name}: construction"] = built
            for _ in loader:
                pass
            with Walk().taken() as walk:
                batches = iter(loader)
                next(batches)
                next(batches)
            out[f"{name}: iter() and two batches"] = walk
            loader.close()
    return out


def main() -> None:
    """Prints the walks."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name, walk in walks().items():
        sys.stdout.write(
            f"{name}: {len(walk.files)} files, {walk.entries} entries\n  {' -> '.join(walk.files)}\n"
        )


if __name__ == "__main__":
    main()
