"""Colour jitter: brightness, contrast, saturation and hue, by factors and in an order drawn for each sample.

NOTE [ colour jitter: grouped, at once or fused ]
Brightness, contrast and saturation are linear in colour, but each clamps (and truncates uint8) before the next, hue is not linear, and
contrast needs the mean of what came before it. One colour matrix per sample would therefore not give torchvision's pixels: it is off by
tens of levels wherever a value was clamped. So there are three forms of the same calculation:
- grouped: for each of four places in the order, the rows that have this op there go through its kernel. Best on a CPU; a batch of
  256 x 3 x 224 x 224 moves 12.7 GB that way, in 310 kernels.
- at once: a kernel in Triton (jitter_kernel.py) that does each row's ops in its order and moves 0.12 GB for the same batch, with the same
  values. What GPUs do where Triton is installed.
- fused: every row goes through three linear slots, hue, and three more, those it does not need being neutral, once for the mean and once
  for the pixels. For torch.compile, which makes two passes over memory of it; by itself it is slower than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from types import ModuleType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastload.augment import kernels
from fastload.augment.philox import Doubles, Draw, Ints
from fastload.augment.specs import Op, fail, keep, span
from fastload.augment.steps import Frame, Step
from fastload.device.gpu import working

ORDERS = np.array(list(permutations(range(4))))
"""All orders of brightness 0, contrast 1, saturation 2 and hue 3."""
_CONTRAST, _HUE, _NONE = 1, 3, 4
_KERNELS = kernels.brightness, kernels.contrast, kernels.saturation, kernels.hue


@dataclass(frozen=True)
class ColorJitter(Op):
    """Brightness, contrast, saturation and hue by random factors, in a random order, each drawn per sample: torchvision's draws.

    Args:
        brightness, contrast, saturation: b for factors 1-b..1+b (not below 0), or the range of factors.
        hue: h for -h..h, or the range; in turns, within -0.5..0.5.
        p: torchvision's has none: 1.
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

    def factors(self, draw: Draw) -> tuple[Ints, Doubles, Ints]:
        """The rows that are changed, their four factors (G, 4), and the order of their ops (G, 4)."""
        rows = draw.chance(self.p)
        ranges = self.brightness, self.contrast, self.saturation, self.hue
        drawn = np.stack([draw.uniform(*r) for r in ranges], axis=1)  # type: ignore[misc]
        return rows, drawn[rows], ORDERS[draw.below(24)][rows]

    def active(self) -> list[int]:
        """Numbers of the four ops that change anything."""
        neutral = (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0)
        return [i for i, r in enumerate((self.brightness, self.contrast, self.saturation, self.hue)) if r != neutral[i]]

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows, factors, order = self.factors(draw)
        if frame.triton:
            kernel = _kernel().jitter
            codes = np.array([op if op in self.active() else _NONE for op in range(4)], np.int32)[order]
            arrays = {"codes": codes, "factor": np.take_along_axis(factors, order, 1).astype(np.float32)}
            return [Step(kernel, rows, arrays, {"contrasts": _CONTRAST in self.active()})] if self.active() else []
        steps = []
        for place in range(4):
            for op in self.active():
                here = order[:, place] == op
                steps.append(Step(_KERNELS[op], rows[here], {"factor": factors[here, op].astype(np.float32)}))
        return steps

    def plan_fused(self, draw: Draw, frame: Frame) -> list[Step]:
        """The other form, on every row; see the note."""
        rows, factors, order = self.factors(draw)
        neutral = np.tile([1.0, 1.0, 1.0, 0.0], (frame.rows, 1))
        neutral[rows] = factors
        whole_order = np.tile(ORDERS[0], (frame.rows, 1))
        whole_order[rows] = order
        turns = np.zeros(frame.rows, bool)
        turns[rows] = _HUE in self.active()
        return [Step(fused, np.arange(frame.rows), slots(neutral, whole_order, turns))]


def at_once(device: torch.device) -> bool:
    """Returns True if the kernel in Triton runs on a device."""
    return device.type == "cuda" and working(_kernel, device) is not None


def _kernel() -> ModuleType:
    from fastload.augment import jitter_kernel

    return jitter_kernel


def slots(factors: Doubles, order: Ints, turns: npt.NDArray[np.bool_]) -> dict[str, npt.NDArray[np.float32]]:
    """The fused form's parameters: of all ops (`full`), and of those before the contrast (`before`), whose mean it needs.

    Each is float32 (B, 20): (factor, weight of luma, weight of the mean) of three slots before the hue and three after it, the turn, and
    whether there is one.
    """
    rows = np.arange(len(factors))
    at = np.argsort(order, axis=1)  # [row, op] -> its place
    out = {}
    for name in ("full", "before"):
        table = np.tile(np.array([1.0, 0.0, 0.0], np.float32), (len(factors), 6, 1))
        for op in range(3):
            kept = np.ones(len(rows), bool) if name == "full" else at[:, op] < at[:, _CONTRAST]
            # Before the hue, an op's own place is its slot; after it, the hue does not count.
            slot = np.where(at[:, op] < at[:, _HUE], at[:, op], at[:, op] - 1 + 3)
            table[rows[kept], slot[kept], 0] = factors[kept, op]
            table[rows[kept], slot[kept], 1 if op == 2 else 2] = float(op != 0)
        turned = turns if name == "full" else turns & (at[:, _HUE] < at[:, _CONTRAST])
        hue = np.stack([factors[:, _HUE], turned], axis=1).astype(np.float32)
        out[name] = np.concatenate([table.reshape(len(rows), 18), hue], axis=1)
    return out


def _sequence(values: Tensor, table: Tensor, mean: Tensor | float, white: float) -> Tensor:
    whole = white == 255.0
    for slot in range(7):
        if slot == 3:
            turned = _turn(values, table[:, 18].view(-1, 1, 1, 1), whole, white)
            values = torch.where(table[:, 19].view(-1, 1, 1, 1) > 0.5, turned, values)
            continue
        start = 3 * (slot if slot < 3 else slot - 1)
        factor, grey, middle = (table[:, start + i].view(-1, 1, 1, 1) for i in range(3))
        level = kernels.luma(values, whole)
        values = (values * factor + (1.0 - factor) * (grey * level + middle * mean)).clamp(0.0, white)
        values = values.floor() if whole else values
    return values


def _turn(values: Tensor, factor: Tensor, whole: bool, white: float) -> Tensor:
    """kernels.hue without its savings of memory, which would only be in a compiler's way."""
    r, g, b = values[:, 0:1], values[:, 1:2], values[:, 2:3]
    top, low = torch.maximum(torch.maximum(r, g), b), torch.minimum(torch.minimum(r, g), b)
    chroma = top - low
    scale = 1.0 / chroma.clamp(min=1e-12)
    sector = torch.where(top == r, (g - b) * scale, torch.where(top == g, (b - r) * scale + 2.0, (r - g) * scale + 4.0)) + 6.0 * factor
    bands = [torch.remainder(sector + n, 6.0) for n in (5.0, 3.0, 1.0)]
    out = torch.cat([top - torch.minimum(k, 4.0 - k).clamp(0.0, 1.0) * chroma for k in bands], 1)
    out = out * ((256.0 - 1e-3) / 255.0) if whole else out
    out = out.clamp(0.0, white)
    return out.floor() if whole else out


def fused(x: Tensor, full: Tensor, before: Tensor) -> Tensor:
    """Every op of the jitter over all rows; full, before: as slots() makes them."""
    white = kernels.bound(x)
    values = x.float()
    mean = kernels.luma(_sequence(values, before, 0.0, white), white == 255.0).mean(dim=(1, 2, 3), keepdim=True)
    return kernels.back(_sequence(values, full, mean, white), x)
