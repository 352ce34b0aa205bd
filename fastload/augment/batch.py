"""AugmentBatch: applies a list of specs to a whole batch, each sample by its own random numbers. Seeded:
makes any batch transform reproducible: the generators that it draws from are seeded for the call and
restored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, overload

import numpy as np
import numpy.random
import numpy.typing as npt
import torch
from torch import Tensor

from fastload import transforms as T
from fastload.augment import space
from fastload.augment.annotations import Annotations, Augmented
from fastload.augment.by_params import KorniaOp
from fastload.augment.jitter import ColorJitter, at_once
from fastload.augment.labels import LABEL_MOST
from fastload.augment.philox import Draw, as_indices, as_occurrences, words, words_of
from fastload.augment.policies import AutoAugment, RandAugment, TrivialAugmentWide
from fastload.augment.sequences import is_of_kornia, ops_of
from fastload.augment.specs import Op, RandomAffine, RandomRotation
from fastload.augment.steps import Frame, Step, run
from fastload.batch.bad_samples import kept_state
from fastload.batch.containers import Padded, tensors_of
from fastload.common.rng import MIX_STREAM, OP_STREAM
from fastload.device.quiet import quiet
from fastload.errors import ArgumentError, TransformError
from fastload.transforms.steps import class_mistake

_STREAM = MIX_STREAM + 3


def first_device(value: object) -> torch.device:
    """Device of the first tensor of a batch that is not on the CPU; the CPU where there is none."""
    return next((tensor.device for tensor in tensors_of(value) if not tensor.is_cpu), torch.device("cpu"))


@contextmanager
def generators(seed_words: list[int], device: torch.device) -> Iterator[None]:
    """torch's generators of the CPU and of `device`, random's and NumPy's start from these words, and
    afterwards are as they were.

    Not torch.manual_seed, which would seed every device. A device's generator keeps its state on the host:
    nothing waits.
    """
    wide = seed_words[0] | seed_words[1] << 32
    ahead = None if device.type == "cpu" else torch.get_device_module(device)
    on_device: Tensor | None = None
    if ahead is not None:
        on_device = ahead.get_rng_state() if device.type == "mps" else ahead.get_rng_state(device)
    with kept_state():
        try:
            torch.default_generator.manual_seed(wide)
            random.seed(wide)
            np.random.seed(seed_words)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(wide)
            elif ahead is not None:
                ahead.manual_seed(wide)
            yield
        finally:
            if ahead is not None and on_device is not None:
                where = () if device.type == "mps" else (device,)
                ahead.set_rng_state(on_device, *where)


class Seeded:
    """A module or function of a batch, whose random numbers follow from (seed, epoch, number of the batch).

    The global generators of torch (CPU and the batch's device), random and NumPy are set for the call, and
    put back after it. A sample's result depends on the batch around it.

    Args:
        transform: gets the arguments of the call.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform

    def __call__(self, *args: object, seed: int, epoch: int, batch: int, **kwargs: object) -> Any:
        """transform(*args, **kwargs) under this batch's generators. batch: its number in the epoch, from
        0."""
        drawn = [int(word) for word in words(seed, epoch, [batch], _STREAM, 4)[0]]
        with generators(drawn, first_device((*args, kwargs))):
            return self.transform(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Seeded({self.transform!r})"


_Plan = Callable[[Any, Draw, Frame], list[Step]]
_NATIVE: dict[type, tuple[int, _Plan]] = {
    T.RandomHorizontalFlip: (space.FLIP_WORDS, space.plan_hflip),
    T.RandomVerticalFlip: (space.FLIP_WORDS, space.plan_vflip),
    T.RandomCrop: (space.CROP_WORDS, space.plan_crop),
}
_MOVING = RandomAffine, RandomRotation, RandAugment, TrivialAugmentWide, AutoAugment
DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)


# Parameters cross to the device in one copy: NOTE [ augment: drawn on the host, sent once ].
class AugmentBatch:
    """Augments a batch on its device, each sample by random numbers of its own.

    1. A sample's result is a pure function of (seed, epoch, index, occurrence, ops), whatever the batch, the
       rank and the device.
    2. The input is never written to. The result has its dtype, device and memory format, and may be the input
       itself.
    3. No call waits for the device, unless a module of Kornia does. Global generators stay as they are.
    4. Masks, boxes and keypoints move with the pixels as in torchvision, by modules of Kornia as in Kornia.
    5. It is picklable and comparable.

    Args:
        ops: ops of this page, flips, RandomCrop, and modules or sequences of kornia.augmentation, in order.
        first: number of ops already done to these batches, so that equal ops of two lists draw other numbers.
            A FastLoader sets it.
        mask_fill: label of masks outside the image.

    Raises:
        TransformError: an op does not run on a batch, or `first` or `mask_fill` is out of range.
    """

    def __init__(self, ops: Sequence[Any], *, first: int = 0, mask_fill: int = 0) -> None:
        self.ops = tuple(chain.from_iterable(ops_of(op) if is_of_kornia(op) else [op] for op in ops))
        self.first = first
        self.mask_fill = mask_fill
        if not isinstance(mask_fill, int) or not -LABEL_MOST <= mask_fill <= LABEL_MOST:
            raise TransformError(f"AugmentBatch: mask_fill={mask_fill!r}; give a label, such as 0 or 255")
        if not 0 <= first <= MIX_STREAM - OP_STREAM - len(self.ops):
            raise TransformError(
                f"AugmentBatch: first={first} with {len(self.ops)} ops; give 0 to "
                f"{MIX_STREAM - OP_STREAM}, both counted"
            )
        for position, op in enumerate(self.ops):
            if mistake := class_mistake(op):
                raise TransformError(f"AugmentBatch: {mistake}")
            if not isinstance(op, Op) and type(op) not in _NATIVE:
                raise TransformError(
                    f"AugmentBatch: {op!r} at position {position} does not run on a batch per sample; "
                    "give specs of fastload.augment, or give the module itself as batch_transform"
                )

    @overload
    def __call__(
        self,
        images: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Sequence[int] | npt.ArrayLike,
        occurrences: Sequence[int] | npt.ArrayLike | None = ...,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        images: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Sequence[int] | npt.ArrayLike,
        occurrences: Sequence[int] | npt.ArrayLike | None = ...,
        masks: object = ...,
        boxes: object = ...,
        keypoints: object = ...,
        box_format: str | Mapping[str, str] = ...,
        keypoint_pairs: Mapping[str, Any] | None = ...,
    ) -> Augmented: ...
    def __call__(
        self,
        images: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Sequence[int] | npt.ArrayLike,
        occurrences: Sequence[int] | npt.ArrayLike | None = None,
        masks: object = None,
        boxes: object = None,
        keypoints: object = None,
        box_format: str | Mapping[str, str] = "xyxy",
        keypoint_pairs: Mapping[str, Any] | None = None,
    ) -> Tensor | Augmented:
        """Augments one batch.

        Args:
            images: (B, 3, H, W): uint8, or float16, bfloat16 or float32 in 0..1, before Normalize; contiguous
                or channels_last. Kornia's modules alone take any number of channels, and float64.
            seed, epoch: those of the loader.
            indices: indices of the samples in their dataset, (B,), at least 0.
            occurrences: number of times that each index came before in the pass, (B,).
            masks: labels: (B, H, W), (B, N, H, W), `Padded`, `Flat`, or a list of B tensors.
            boxes: (B, N, 4), `Padded`, `Flat`, or a list of B tensors (N, 4). A box that leaves the image
                stays, with no area.
            keypoints: x, y and perhaps a visibility, as boxes, with any dimensions between, such as
                (B, N, K, 3). Points of visibility 0 stay.
            box_format: "xyxy", "xywh" or "cxcywh". Masks, boxes, keypoints and this may be dicts by name.
            keypoint_pairs: by name of keypoints, the pairs for flips with keypoint_pairs="auto". A FastLoader
                over packed data passes them.

        Returns:
            The images, (B, 3, H, W) or of the last RandomCrop's size; with masks, boxes or keypoints an
            `Augmented`, whose objects have the form that they came in.

        Raises:
            ArgumentError: a shape, dtype or device is wrong; or an op cannot move the objects, or has
                data_keys that name others.
            BatchShapeError: a crop is larger than the images.
        """
        rows = as_indices(indices)
        if isinstance(images, Padded):
            raise ArgumentError(
                "AugmentBatch takes images of one size, and these are padded: end the transform at "
                "one size, without pad_to="
            )
        if not isinstance(images, torch.Tensor):
            raise ArgumentError(
                f"AugmentBatch takes an image a sample, and these are {type(images).__name__}: draw in the "
                "transform, which native threads run"
            )
        modules = sum(isinstance(op, KorniaOp) for op in self.ops)
        of_kornia = 0 < modules == len(self.ops)  # which takes any channels, and float64
        known = images.dtype in DTYPES or (of_kornia and images.dtype == torch.float64)
        if images.ndim != 4 or (images.shape[1] != 3 and not of_kornia) or not known:
            raise ArgumentError(
                f"AugmentBatch takes uint8 or float images (B, 3, H, W), not {images.dtype} of "
                f"{tuple(images.shape)}"
            )
        if len(rows) != len(images):
            raise ArgumentError(
                f"AugmentBatch got {len(rows)} indices for {len(images)} images; give the dataset "
                "index of every row"
            )
        objects = Annotations(masks, boxes, keypoints, box_format, self.mask_fill, keypoint_pairs or {})
        if modules:
            self.check_objects(objects.given)
        if not len(rows) and not any(isinstance(op, T.RandomCrop) for op in self.ops):
            return Augmented(images, masks, boxes, keypoints) if objects else images
        with quiet(images.device):
            steps = self._drawn(images, seed, epoch, rows, as_occurrences(occurrences, len(rows)))
            out = run(images, space.fold_flips(steps)).contiguous(memory_format=_format(images))
            return Augmented(out, *objects.moved(images, steps)) if objects else out

    def check_objects(self, given: Mapping[str, Collection[str]]) -> None:
        """Raises ArgumentError if a batch's objects contradict data_keys, or cannot follow an op; `given`:
        kinds, and formats of boxes."""
        for op in self.ops:
            if isinstance(op, KorniaOp):
                op.check(given)

    @property
    def moves(self) -> bool:
        """True if an op moves pixels."""
        return any(
            op.moves if isinstance(op, KorniaOp) else isinstance(op, _MOVING) or type(op) in _NATIVE
            for op in self.ops
        )

    def numbered(self, first: int) -> AugmentBatch:
        """A copy with the same ops and another `first`."""
        other: AugmentBatch = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.first = first
        return other

    def apart(self) -> list[AugmentBatch]:
        """One for each op, with the same draws: done after each other, they do what this does, in more
        passes. A flip before a resampling is then no part of it, so that pixels half-way between two values
        may round the other way."""
        parts = [self.numbered(self.first + i) for i in range(len(self.ops))]
        for part, op in zip(parts, self.ops, strict=True):
            part.ops = (op,)
        return parts

    def steps(self, images: Tensor, seed: int, epoch: int, indices: npt.NDArray[np.uint64]) -> list[Step]:
        """The steps for this batch in order, with their parameters drawn and derived."""
        return space.fold_flips(self._drawn(images, seed, epoch, indices))

    def _drawn(
        self,
        images: Tensor,
        seed: int,
        epoch: int,
        indices: npt.NDArray[np.uint64],
        occurrences: npt.NDArray[np.uint32] | None = None,
    ) -> list[Step]:
        """The steps as the ops plan them, one after another, before flips are folded."""
        streams = range(OP_STREAM + self.first, OP_STREAM + self.first + len(self.ops))
        wants = [
            (n, op.words if isinstance(op, Op) else _NATIVE[type(op)][0])
            for n, op in zip(streams, self.ops, strict=True)
        ]
        height, width = images.shape[2:]
        steps: list[Step] = []
        triton = any(isinstance(op, ColorJitter) for op in self.ops) and at_once(images.device)
        for op, drawn in zip(self.ops, words_of(seed, epoch, indices, wants, occurrences), strict=True):
            frame = Frame(len(images), height, width, images.dtype != torch.uint8, triton, images.shape[1])
            if isinstance(op, Op):
                done = op.plan(Draw(drawn), frame)
            else:
                done = _NATIVE[type(op)][1](op, Draw(drawn), frame)
            height, width = next((step.size for step in reversed(done) if step.size), (height, width))
            steps += done
        return steps

    def __repr__(self) -> str:
        fill = f", mask_fill={self.mask_fill}" if self.mask_fill else ""
        ops, first = ", ".join(map(repr, self.ops)), f", first={self.first}" if self.first else ""
        return f"AugmentBatch([{ops}]{first}{fill})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AugmentBatch) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._value()

    def _value(self) -> tuple[tuple[Any, ...], int, int]:
        return self.ops, self.first, self.mask_fill


def _again(ops: tuple[Any, ...], first: int, mask_fill: int = 0) -> AugmentBatch:
    return AugmentBatch(ops, first=first, mask_fill=mask_fill)


def _format(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format
