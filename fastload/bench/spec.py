"""TurnSpec: the task of one turn of one loader, plain data that travels to the child process as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

from fastload.common.positions import evenly
from fastload.errors import ArgumentError

LoaderKind = Literal["fastload", "pillow", "packed", "handwritten"]
Mode = Literal["rate", "latency", "growth", "once", "trace"]

TITLES: dict[str, str] = {
    "fastload": "fastload",
    "pillow": "torch DataLoader + Pillow",
    "packed": "torch DataLoader + PackedDataset",
    "handwritten": "torch DataLoader + LMDB + TurboJPEG + cv2",
}
SHORT: dict[str, str] = {
    "fastload": "fastload",
    "pillow": "torch, Pillow",
    "packed": "torch, PackedDataset",
    "handwritten": "torch, LMDB, cv2",
}
"""Titles for a table of 80 columns."""
NEEDS: dict[str, tuple[str, ...]] = {
    "fastload": (),
    "pillow": ("PIL", "numpy"),
    "packed": (),
    "handwritten": ("cv2", "lmdb", "turbojpeg"),
}


@dataclasses.dataclass(frozen=True)
class TurnSpec:
    """One turn. Validated once, on construction, here and again in the child.

    Attributes:
        kind: kind of the loader.
        source: the packed dataset, the JSON list of files (pillow), or the LMDB (handwritten).
        mode: ``rate`` (everything the table shows), ``latency`` (first batches of fresh and of persistent
            loaders), ``growth``
            (memory after each of many epochs), ``once`` (one epoch after a line on stdin, for cold caches),
            ``trace`` (a trace of the second epoch, of a FastLoader).
        images: samples the source holds; ``limit`` of them, evenly spaced, are used (0: all).
        seconds: a rate is measured over whole epochs for at least this long, two epochs at least.
        epochs: epochs of growth, repeats of latency.
        step_ms: the consumer sleeps this long on each batch, as a training step that runs on a device does.
        persistent: torch's persistent_workers.
        rehearsal: for ``once``: another packed dataset of one batch or more; a batch of it is delivered
            before the epoch, so that the program's own code (torch's, numpy's, this package's), evicted too,
            is not what is measured.
        trace: for ``trace``: the file to write.
    """

    kind: LoaderKind
    source: str
    mode: Mode = "rate"
    images: int = 0
    limit: int = 0
    batch_size: int = 64
    workers: int = 2
    size: int = 224
    seconds: float = 3.0
    epochs: int = 2
    step_ms: float = 0.0
    persistent: bool = True
    seed: int = 0
    rehearsal: str = ""
    trace: str = ""

    def __post_init__(self) -> None:
        if self.kind not in TITLES:
            raise ArgumentError(f"no loader is called {self.kind!r}: choose from {', '.join(TITLES)}")
        for name in ("batch_size", "workers", "size", "epochs"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.used < self.batch_size:
            raise ArgumentError(
                f"{self.used} images do not fill one batch of {self.batch_size}: lower --batch-size "
                "or use more images"
            )

    @property
    def used(self) -> int:
        """Number of samples from which an epoch draws (drop_last then cuts the last batch)."""
        return min(self.limit, self.images) if self.limit else self.images

    def indices(self) -> list[int] | None:
        """The samples used, ascending and evenly spaced; None for all."""
        return None if self.used == self.images else evenly(self.images, self.used)

    def to_json(self) -> str:
        """One line that ``from_json`` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TurnSpec:
        """The spec that ``to_json`` wrote."""
        return cls(**json.loads(text))
