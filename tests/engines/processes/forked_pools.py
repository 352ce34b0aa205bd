"""python forked_pools.py DATASET: uses each library's threads, then uses it again in forked workers;
prints one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

PACKED = PackedDataset(sys.argv[1], transform=[T.RandomResizedCrop(64)], seed=1)


def convolved() -> float:
    return float(torch.nn.functional.conv1d(torch.ones(16, 64, 4096), torch.ones(64, 64, 9)).mean())


def added() -> float:
    return float((torch.ones(1 << 22) + 1).mean())


def sorted_out() -> float:
    return float(torch.linalg.svdvals(torch.eye(256)).sum())


def multiplied() -> float:
    return float((np.ones((768, 768)) @ np.ones((768, 768))).mean())


def blurred() -> float:
    import cv2

    return float(
        cv2.GaussianBlur(cv2.resize(np.ones((1500, 1500, 3), np.uint8), (2000, 2000)), (9, 9), 2).mean()
    )


def decoded() -> float:
    return float(PACKED[0][0].sum())


def works() -> dict[str, Callable[[], float]]:
    """What is here to be used, by library."""
    found = {
        "torch conv": convolved,
        "torch add": added,
        "torch svd": sorted_out,
        "numpy": multiplied,
        "fastload": decoded,
    }
    try:
        import cv2
    except ImportError:
        return found
    cv2.setNumThreads(4)  # as on a machine of four CPUs, whatever this one has
    return {**found, "cv2": blurred}


class Works(Dataset[Any]):
    """Item i is what the i-th library gives."""

    def __init__(self, functions: list[Callable[[], float]]) -> None:
        self.functions = functions

    def __len__(self) -> int:
        return len(self.functions)

    def __getitem__(self, index: int) -> float:
        return self.functions[index]()


def main() -> None:
    torch.set_num_threads(4)
    functions = works()
    engine = iter(FastLoader(PACKED, batch_size=2, num_workers=2, seed=1))
    next(engine)  # its threads go on while others fork
    here = [function() for function in functions.values()]
    loader = FastLoader(
        Works(list(functions.values())),
        batch_size=None,
        num_workers=2,
        timeout=30,
        multiprocessing_context="fork",
    )
    there = [[float(value) for value in loader] for _ in range(2)]
    sys.stdout.write(json.dumps({"names": list(functions), "here": here, "there": there}) + "\n")


if __name__ == "__main__":
    main()
