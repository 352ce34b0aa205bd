"""MixUp and CutMix: every image and its label mixed with another of the batch.

NOTE [ augment: mixing is of a batch ]
Which images meet is decided by the batch, so that the result cannot be a function of single samples. It is
one of (seed, epoch, the batch's indices in their order, and their occurrences): one share per batch, keyed by
a hash of these (philox.batch_key), and the partner of each row is the row before it (of the first, the last),
as in torchvision; a shuffled sampler makes that a random one. Sources: Zhang et al., "mixup"
(arXiv:1710.09412); Yun et al., "CutMix" (arXiv:1905.04899).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastload.augment.philox import BETA_WORDS, Draw, as_indices, as_occurrences, batch_key, beta, words_of
from fastload.common.rng import MIX_STREAM
from fastload.errors import ArgumentError, TransformError

_MIXUP, _CUTMIX, _CHOICE = MIX_STREAM, MIX_STREAM + 1, MIX_STREAM + 2
Indices = Sequence[int] | npt.ArrayLike


def batch_draw(
    seed: int, epoch: int, indices: Indices, stream: int, count: int, occurrences: Indices | None = None
) -> Draw:
    """A batch's own words."""
    rows = as_indices(indices)
    return Draw(
        words_of(seed, epoch, batch_key(rows, as_occurrences(occurrences, len(rows))), [(stream, count)])[0]
    )


def probabilities(labels: Tensor, num_classes: int | None) -> Tensor:
    """Labels as class probabilities, float (B, num_classes): whole numbers become ones and zeros, floats
    stay.

    Raises:
        ArgumentError: neither classes (B,) nor probabilities (B, num_classes).
    """
    if labels.ndim == 1 and not labels.is_floating_point():
        if num_classes is None:
            raise ArgumentError("MixUp and CutMix need num_classes for labels that are class numbers")
        # Not one_hot(), which reads the largest label back to the host.
        return (labels[:, None] == torch.arange(num_classes, device=labels.device)).float()
    if labels.ndim != 2 or not labels.is_floating_point() or num_classes not in (None, labels.shape[1]):
        raise ArgumentError(
            f"labels: {labels.dtype} of {tuple(labels.shape)}; give class numbers (B,) or "
            "probabilities (B, num_classes)"
        )
    return labels


@dataclass(frozen=True)
class _Mix:
    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise TransformError(f"{type(self).__name__}: alpha={self.alpha!r}; give more than 0")
        if self.num_classes is not None and self.num_classes < 1:
            raise TransformError(f"{type(self).__name__}: num_classes={self.num_classes!r}; give at least 1")

    def _check(self, images: Tensor, labels: Tensor, indices: Indices) -> None:
        if images.ndim != 4 or not len(images) == len(labels) == len(as_indices(indices)):
            got = f"images {tuple(images.shape)}, {len(labels)} labels, {len(as_indices(indices))} indices"
            raise ArgumentError(f"{type(self).__name__}: {got}; give (B, C, H, W), B labels and B indices")

    def _mix_labels(self, labels: Tensor, share: float) -> Tensor:
        given = probabilities(labels, self.num_classes)
        return torch.lerp(given.roll(1, 0), given, share)


class MixUp(_Mix):
    """Mixes each image with a partner: share * image + (1 - share) * partner, and their labels likewise.

    The share, drawn from Beta(alpha, alpha), is the batch's. A call takes images (B, C, H, W), uint8
    (rounded) or float; labels, class numbers (B,) or probabilities (B, num_classes); and seed, epoch and
    indices as AugmentBatch. It returns new images like these, and labels, float (B, num_classes).

    Args:
        num_classes: number of classes; for class numbers.
    """

    def share(self, seed: int, epoch: int, indices: Indices, occurrences: Indices | None = None) -> float:
        """Share of each row's own image in this batch."""
        return float(beta(batch_draw(seed, epoch, indices, _MIXUP, BETA_WORDS, occurrences), self.alpha)[0])

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Indices,
        occurrences: Indices | None = None,
    ) -> tuple[Tensor, Tensor]:
        self._check(images, labels, indices)
        if not len(images):
            return images, probabilities(labels, self.num_classes)
        share = self.share(seed, epoch, indices, occurrences)
        whole = not images.is_floating_point()
        values = images.float() if whole else images
        mixed = torch.lerp(values.roll(1, 0), values, share)
        return mixed.round_().to(images.dtype) if whole else mixed, self._mix_labels(labels, share)


class CutMix(_Mix):
    """Replaces a box of each image by its partner's, and mixes the labels by the box's share of the area.

    The batch's box has the share 1 - Beta(alpha, alpha) of the area and a uniform centre, and ends at the
    image's sides. A call is as MixUp's.

    Args:
        alpha, num_classes: see MixUp.
    """

    def box(
        self,
        seed: int,
        epoch: int,
        indices: Indices,
        height: int,
        width: int,
        occurrences: Indices | None = None,
    ) -> tuple[int, int, int, int]:
        """top, left, bottom, right in this batch."""
        draw = batch_draw(seed, epoch, indices, _CUTMIX, 2 + BETA_WORDS, occurrences)
        x, y = int(draw.below(width)[0]), int(draw.below(height)[0])
        half = 0.5 * math.sqrt(1.0 - float(beta(draw, self.alpha)[0]))
        across, down = int(half * width), int(half * height)
        return max(y - down, 0), max(x - across, 0), min(y + down, height), min(x + across, width)

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Indices,
        occurrences: Indices | None = None,
    ) -> tuple[Tensor, Tensor]:
        self._check(images, labels, indices)
        if not len(images):
            return images, probabilities(labels, self.num_classes)
        height, width = images.shape[2:]
        top, left, bottom, right = self.box(seed, epoch, indices, height, width, occurrences)
        out = images.clone()
        out[:, :, top:bottom, left:right] = images[:, :, top:bottom, left:right].roll(1, 0)
        return out, self._mix_labels(labels, 1.0 - (bottom - top) * (right - left) / (height * width))


@dataclass(frozen=True)
class RandomChoice:
    """One of several mixes, chosen per batch.

    Args:
        mixes: MixUp and CutMix.
        p: weights; None: equal ones.
    """

    mixes: tuple[MixUp | CutMix, ...]
    p: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mixes", tuple(self.mixes))
        weights = (1.0,) * len(self.mixes) if self.p is None else tuple(float(w) for w in self.p)
        if not self.mixes or len(weights) != len(self.mixes) or min(weights) < 0 or not sum(weights) > 0:
            raise TransformError(
                f"RandomChoice: {len(self.mixes)} mixes with weights {self.p!r}; give a weight of at "
                "least 0 for each"
            )
        object.__setattr__(self, "p", weights)

    def chosen(
        self, seed: int, epoch: int, indices: Indices, occurrences: Indices | None = None
    ) -> MixUp | CutMix:
        """The mix that is chosen for a batch."""
        assert self.p is not None
        point = batch_draw(seed, epoch, indices, _CHOICE, 2, occurrences).uniform()[0] * sum(self.p)
        below = np.cumsum(self.p)
        return self.mixes[int(np.searchsorted(below[:-1], point, side="right"))]

    def __call__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        seed: int,
        epoch: int,
        indices: Indices,
        occurrences: Indices | None = None,
    ) -> tuple[Tensor, Tensor]:
        mix = self.chosen(seed, epoch, indices, occurrences)
        return mix(images, labels, seed=seed, epoch=epoch, indices=indices, occurrences=occurrences)
