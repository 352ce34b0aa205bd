"""Augmentation of whole batches on their device, reproducible per sample. GaussianBlur needs the extra
`augment` (Kornia).

from fastload import augment as A

augment = A.AugmentBatch([A.RandomHorizontalFlip(), A.RandAugment(2, 9), A.RandomErasing(0.25)])
images = augment(images, seed=0, epoch=3, indices=indices)
images, targets = A.MixUp(0.2, num_classes=1000)(images, labels, seed=0, epoch=3, indices=indices)
"""

from __future__ import annotations

from fastload.augment.annotations import Augmented
from fastload.augment.batch import AugmentBatch, Seeded
from fastload.augment.by_params import KorniaOp
from fastload.augment.jitter import ColorJitter
from fastload.augment.kornia_ops import MissingKornia
from fastload.augment.mix import CutMix, MixUp, RandomChoice
from fastload.augment.policies import AutoAugment, RandAugment, TrivialAugmentWide
from fastload.augment.specs import (
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
)
from fastload.batch.containers import Flat, Padded
from fastload.transforms.ops import RandomCrop, RandomHorizontalFlip, RandomVerticalFlip

__all__ = [
    "AugmentBatch",
    "Augmented",
    "AutoAugment",
    "ColorJitter",
    "CutMix",
    "Flat",
    "GaussianBlur",
    "KorniaOp",
    "MissingKornia",
    "MixUp",
    "Padded",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPosterize",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Seeded",
    "TrivialAugmentWide",
]
