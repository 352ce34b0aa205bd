"""AugmentBatch: a list of specs, done to a whole batch, each sample by its own random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastload import transforms as T
from fastload.augment import space
from fastload.augment.by_params import KorniaOp, is_kornia
from fastload.augment.jitter import ColorJitter, at_once, fused
from fastload.augment.philox import Draw, as_indices, words_of
from fastload.augment.specs import Op
from fastload.augment.steps import Frame, Step, run
from fastload.errors import ArgumentError, TransformError
from fastload.plan.torchvision import class_mistake
from fastload.rng import MIX_STREAM, OP_STREAM

_Plan = Callable[[Any, Draw, Frame], list[Step]]
_NATIVE: dict[type, tuple[int, _Plan]] = {
    T.RandomHorizontalFlip: (space.FLIP_WORDS, space.plan_hflip),
    T.RandomVerticalFlip: (space.FLIP_WORDS, space.plan_vflip),
    T.RandomCrop: (space.CROP_WORDS, space.plan_crop),
}
DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)


class AugmentBatch:
    """Augments a batch on its device, reproducibly.

    1. What happens to a sample is a pure function of (seed, epoch, its index, the list of ops): not of the other samples, of the batch's
       size, of the rank, nor of the device. Op number i draws from the stream OP_STREAM + first + i of the native generator.
    2. The input is never written to. The result has its dtype, device and memory format, and may be the input where nothing was to do.
    3. No call waits for the device, unless a module of Kornia's does; parameters cross in one copy (NOTE [ augment: drawn on the host,
       sent once ]).
    4. Plain value: picklable, comparable, repr is what makes it again. Global generators are as they were.

    Args:
        ops: specs of this package, in the order in which they are done; of `fastload.transforms`, both flips and RandomCrop; modules of
            kornia.augmentation, as KorniaOp does them.
        compile: colour jitter through torch.compile, once per device, dtype and image size, for any number of samples (NOTE
            [ colour jitter: grouped, at once or fused ]). A compiler rounds differently: a uint8 value may then differ by one.
        first: how many ops come before these ones, in others done to the same batches: equal ops of two would else draw equal numbers.
            A FastLoader sets it in what it is given, counting from 0.

    Raises:
        TransformError: an op that does not run on a batch, or `first` is no such number.
    """

    def __init__(self, ops: Sequence[Any], *, compile: bool = False, first: int = 0) -> None:
        self.ops = tuple(KorniaOp(op) if is_kornia(op) else op for op in ops)
        self.compile = bool(compile)
        self.first = first
        if not 0 <= first <= MIX_STREAM - OP_STREAM - len(self.ops):
            raise TransformError(f"AugmentBatch: first={first} with {len(self.ops)} ops; give 0 to {MIX_STREAM - OP_STREAM}, both counted")
        for position, op in enumerate(self.ops):
            if mistake := class_mistake(op):
                raise TransformError(f"AugmentBatch: {mistake}")
            if not isinstance(op, Op) and type(op) not in _NATIVE:
                raise TransformError(
                    f"AugmentBatch: {op!r} at position {position} does not run on a batch per sample; "
                    "give specs of fastload.augment, or give the module itself as batch_transform"
                )

    def __call__(self, images: Tensor, *, seed: int, epoch: int, indices: Sequence[int] | npt.ArrayLike) -> Tensor:
        """Augments one batch.

        Args:
            images: (B, 3, H, W): uint8, or float16, bfloat16 or float32 in 0..1 (so: before Normalize); on any device, contiguous or
                channels_last.
            seed, epoch: of the loader.
            indices: of the samples in their dataset, (B,), at least 0.

        Returns:
            (B, 3, H, W), or the size of the last RandomCrop.

        Raises:
            ArgumentError: images or indices of another shape or dtype.
            BatchShapeError: a crop larger than the images.
        """
        rows = as_indices(indices)
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype not in DTYPES:
            raise ArgumentError(f"AugmentBatch takes uint8 or float images (B, 3, H, W), not {images.dtype} of {tuple(images.shape)}")
        if len(rows) != len(images):
            raise ArgumentError(f"AugmentBatch got {len(rows)} indices for {len(images)} images; give the dataset index of every row")
        if not len(rows) and not any(isinstance(op, T.RandomCrop) for op in self.ops):
            return images
        out = run(images, self.steps(images, seed, epoch, rows))
        return out.contiguous(memory_format=_format(images))

    def numbered(self, first: int) -> AugmentBatch:
        """The same ops with another `first`."""
        other: AugmentBatch = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.first = first
        return other

    def apart(self) -> list[AugmentBatch]:
        """One for each op, with the same draws: done after each other, they do what this does, in more passes. A flip before a resampling
        is then no part of it, so that pixels half-way between two values may round the other way."""
        parts = [self.numbered(self.first + i) for i in range(len(self.ops))]
        for part, op in zip(parts, self.ops, strict=True):
            part.ops = (op,)
        return parts

    def steps(self, images: Tensor, seed: int, epoch: int, indices: npt.NDArray[np.uint64]) -> list[Step]:
        """What is to be done to this batch, drawn and derived, in order."""
        streams = range(OP_STREAM + self.first, OP_STREAM + self.first + len(self.ops))
        wants = [(n, op.words if isinstance(op, Op) else _NATIVE[type(op)][0]) for n, op in zip(streams, self.ops, strict=True)]
        height, width = images.shape[2:]
        steps: list[Step] = []
        triton = not self.compile and any(isinstance(op, ColorJitter) for op in self.ops) and at_once(images.device)
        for op, drawn in zip(self.ops, words_of(seed, epoch, indices, wants), strict=True):
            frame = Frame(len(images), height, width, images.dtype != torch.uint8, triton)
            done = self._plan(op, Draw(drawn), frame)
            height, width = next((step.size for step in reversed(done) if step.size), (height, width))
            steps += done
        return space.fold_flips(steps)

    def _plan(self, op: Any, draw: Draw, frame: Frame) -> list[Step]:
        if self.compile and isinstance(op, ColorJitter):
            return [Step(self._compiled, step.rows, step.arrays) for step in op.plan_fused(draw, frame)]
        return op.plan(draw, frame) if isinstance(op, Op) else _NATIVE[type(op)][1](op, draw, frame)

    @cached_property
    def _jitter(self) -> Callable[..., Tensor]:
        return torch.compile(fused, fullgraph=True)

    def _compiled(self, x: Tensor, full: Tensor, before: Tensor) -> Tensor:
        if len(x) == 1:  # a size of 1 is compiled apart, whatever is said of it
            return self._compiled(*(torch.cat((tensor, tensor)) for tensor in (x, full, before)))[:1]
        for tensor in (x, full, before):
            torch._dynamo.mark_dynamic(tensor, 0)
        return self._jitter(x, full, before)

    def __repr__(self) -> str:
        compiled = ", compile=True" if self.compile else ""
        return f"AugmentBatch([{', '.join(map(repr, self.ops))}]{compiled}{f', first={self.first}' if self.first else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AugmentBatch) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._value()

    def _value(self) -> tuple[tuple[Any, ...], bool, int]:
        return self.ops, self.compile, self.first


def _again(ops: tuple[Any, ...], compile: bool, first: int) -> AugmentBatch:
    return AugmentBatch(ops, compile=compile, first=first)


def _format(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format
