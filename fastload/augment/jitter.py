"""Colour jitter: brightness, contrast, saturation and hue, by factors and in an order drawn for each sample.

NOTE [ colour jitter: grouped or at once ]
Brightness, contrast and saturation are linear in colour, but each clamps (and truncates uint8) before the
next, hue is not linear, and contrast needs the mean of what came before it. One colour matrix per sample
would therefore not give torchvision's pixels: it is off by tens of levels wherever a value was clamped. So
there are two forms of the same calculation:
- grouped: for each of four places in the order, the rows that have this op there go through its kernel. Best
  on a CPU; a batch of 256 x 3 x 224 x 224 moves 12.7 GB that way, in 310 kernels.
- at once: a kernel in Triton (jitter_kernel.py) that does each row's ops in its order and moves 0.12 GB for
  the same batch, with the same values. What GPUs do where Triton is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from types import ModuleType

import numpy as np
import torch

from fastload.augment import kernels
from fastload.augment.philox import Doubles, Draw, Ints
from fastload.augment.specs import Op, fail, keep, span
from fastload.augment.steps import Frame, Step
from fastload.device.gpu import working

ORDERS = np.array(list(permutations(range(4))))
"""All orders of brightness 0, contrast 1, saturation 2 and hue 3."""
_NAMES = "brightness", "contrast", "saturation", "hue"
_CONTRAST, _NONE = 1, 4
_KERNELS = kernels.brightness, kernels.contrast, kernels.saturation, kernels.hue


@dataclass(frozen=True)
class ColorJitter(Op):
    """Changes brightness, contrast, saturation and hue by random factors, in a random order.

    Args:
        brightness, contrast, saturation: b for factors 1-b..1+b (not below 0), or the range of factors.
        hue: h for -h..h, or the range; in turns, within -0.5..0.5.
        p: probability.
    """

    brightness: float | Sequence[float] = 0.0
    contrast: float | Sequence[float] = 0.0
    saturation: float | Sequence[float] = 0.0
    hue: float | Sequence[float] = 0.0
    p: float = 1.0

    words = 11

    def __post_init__(self) -> None:
        self.check_p()
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            if isinstance(value, (int, float)):
                if value < 0:
                    raise fail(self, f"{name}={value!r}; give at least 0")
                value = (max(0.0, 1.0 - value), 1.0 + value)
            keep(self, **{name: span(self, name, value, low=0.0)})
        keep(self, hue=span(self, "hue", self.hue, low=-0.5, high=0.5))

    @property
    def _ranges(self) -> tuple[float | Sequence[float], ...]:
        return self.brightness, self.contrast, self.saturation, self.hue

    def factors(self, draw: Draw) -> tuple[Ints, Doubles, Ints]:
        """The rows that are changed, their four factors (G, 4), and the order of their ops (G, 4)."""
        rows = draw.chance(self.p)
        ranges = [span(self, name, value) for name, value in zip(_NAMES, self._ranges, strict=True)]
        drawn = np.stack([draw.uniform(*each) for each in ranges], axis=1)
        return rows, drawn[rows], ORDERS[draw.below(24)][rows]

    def active(self) -> list[int]:
        """Numbers of the four ops that change anything."""
        neutral = (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0)
        return [number for number, each in enumerate(self._ranges) if each != neutral[number]]

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows, factors, order = self.factors(draw)
        if frame.triton:
            kernel = _kernel().jitter
            codes = np.array([op if op in self.active() else _NONE for op in range(4)], np.int32)[order]
            arrays = {"codes": codes, "factor": np.take_along_axis(factors, order, 1).astype(np.float32)}
            if self.active():
                return [Step(kernel, rows, arrays, {"contrasts": _CONTRAST in self.active()})]
            return []
        steps = []
        for place in range(4):
            for op in self.active():
                here = order[:, place] == op
                steps.append(Step(_KERNELS[op], rows[here], {"factor": factors[here, op].astype(np.float32)}))
        return steps


def at_once(device: torch.device) -> bool:
    """Returns True if the kernel in Triton runs on a device."""
    return device.type == "cuda" and working(_kernel, device) is not None


def _kernel() -> ModuleType:
    from fastload.augment import jitter_kernel

    return jitter_kernel
