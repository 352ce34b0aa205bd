"""fastload's decoder for the harness of ternaus/imread_benchmark: whole JPEGs in memory, without an index."""

from __future__ import annotations

from typing import Any

import numpy as np
from imread_benchmark.decoders import BaseDecoder


class FastloadDecoder(BaseDecoder):
    """One RegionDecoder a process, made at the first image so that the object can be pickled before."""

    name = "fastload"
    package_name = "torch-fastload"

    def __init__(self) -> None:
        self._decoder: Any = None

    def decode(self, data: bytes) -> np.ndarray:
        """Decodes a JPEG to uint8 RGB (height, width, 3)."""
        if self._decoder is None:
            from fastload._native.core import RegionDecoder

            self._decoder = RegionDecoder()
        self._decoder.open(data)
        self._decoder.decode()
        return self._decoder.pixels()
