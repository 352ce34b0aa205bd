"""Everything: a Dataset with each kind of field that has one value, packed for tests of queries and
tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastload import pack

COUNT = 400


class Everything:
    """Samples with every kind of field."""

    classes = ("cat", "dog", "emu")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng(index)
        return {
            "image": np.full((8 + index % 5, 9 + index % 7, 3), index % 251, np.uint8),
            "label": int(rng.integers(-3, 9)),
            "weight": float(rng.choice([0.0, -1.5, rng.normal(), np.nan, np.inf])),
            "caption": str(rng.choice(["a dog", "Ein Hund", "the dog's cat", "100 % cat", "", "\u732b"]))
            + f" {index % 10}",
            "meta": {"author": ["me", None, "you"][index % 3], "n": index} if index % 4 else {},
            "box": rng.integers(0, 9, 4).astype(np.int16),
            "grid": rng.random((2, 3)).astype(np.float16),
            "raw": bytes([index % 7]),
            "odd name": index,
        }


def packed_everything(out: Path) -> Path:
    """Everything, packed into several shards."""
    pack(Everything(), out, encode="raw", shard_size=1 << 20)
    return out


def rows_of_everything() -> list[dict[str, Any]]:
    """Its samples, each with the height and width of its image."""
    samples = [Everything()[index] for index in range(COUNT)]
    return [
        sample | {"height": sample["image"].shape[0], "width": sample["image"].shape[1]} for sample in samples
    ]
