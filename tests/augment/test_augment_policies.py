"""RandAugment, TrivialAugmentWide and AutoAugment: torchvision's tables, torchvision's pixels, and the
frequencies they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.v2 as v2
from augment_helpers import DRAWS, EPOCH, SEED, assert_frequencies, assert_levels, draws, pictures
from torchvision.transforms import InterpolationMode

from fastload import augment as A
from fastload.augment.policies import NARROW, OPS, SIGNED, WIDE, magnitude_table, slot_steps, sub_policies
from fastload.augment.steps import Frame, run

SIZES = [(32, 32), (224, 224), (192, 331), (45, 52)]
GEOMETRIC = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("scales", "bins", "theirs"),
    [
        (NARROW, 31, v2.RandAugment._AUGMENTATION_SPACE),
        (NARROW, 10, v2.AutoAugment._AUGMENTATION_SPACE),
        (WIDE, 31, v2.TrivialAugmentWide._AUGMENTATION_SPACE),
    ],
    ids=["RandAugment", "AutoAugment", "TrivialAugmentWide"],
)
def test_tables(scales: Any, bins: int, theirs: Any, size: tuple[int, int]) -> None:
    """Every op of torchvision's space has its magnitudes and its sign here, and there is no other."""
    table = magnitude_table(scales, bins, *size)
    assert set(theirs) <= set(OPS)
    for name, (of, signed) in theirs.items():
        row = table[OPS.index(name)]
        want = of(bins, *size)
        want = np.zeros(bins) if want is None else want.numpy() * (255.0 if name == "Solarize" else 1.0)
        np.testing.assert_allclose(row, want, rtol=1e-6, atol=1e-5, err_msg=name)
        assert SIGNED[OPS.index(name)] == signed
        if name.startswith("Translate"):
            assert (np.trunc(row) == np.trunc(want)).mean() > 0.95


def test_spaces_in_torchvisions_order() -> None:
    """The 14 ops that are drawn from are torchvision's 14."""
    assert (
        list(v2.RandAugment._AUGMENTATION_SPACE)
        == list(v2.TrivialAugmentWide._AUGMENTATION_SPACE)
        == list(OPS[:14])
    )


def test_imagenet_policy() -> None:
    """AutoAugment's 25 pairs are torchvision's."""
    kinds, chances, bins = sub_policies("imagenet")
    theirs = v1.AutoAugment(v1.AutoAugmentPolicy.IMAGENET).policies
    ours = [
        tuple((OPS[k], p, int(b)) for k, p, b in zip(ks, ps, bs, strict=True))
        for ks, ps, bs in zip(kinds, chances, bins, strict=True)
    ]
    assert ours == [tuple((name, p, b or 0) for name, p, b in pair) for pair in theirs]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("wide", [False, True])
def test_every_op_at_every_bin_is_torchvisions(wide: bool, dtype: torch.dtype) -> None:
    """A batch in which every row has an op, bin and sign of its own gives what torchvision gives for them:
    the tolerances of test_ops."""
    policy = v2.TrivialAugmentWide() if wide else v2.RandAugment()
    table = magnitude_table(WIDE if wide else NARROW, 31, 45, 52)
    cases = [
        (k, b, s) for k in range(14) for b in (0, 1, 9, 16, 30) for s in ((1, -1) if SIGNED[k] else (1,))
    ]
    x = pictures(8).repeat(len(cases) // 8 + 1, 1, 1, 1)[: len(cases)]
    x = x if dtype == torch.uint8 else x.to(dtype) / 255
    kinds = np.array([k for k, _, _ in cases])
    values = np.array([table[k, b] * s for k, b, s in cases], np.float64)
    got = run(x, slot_steps(kinds, values, Frame(len(x), 45, 52, dtype != torch.uint8), "nearest", (0, 0, 0)))
    for i, (k, _, _) in enumerate(cases):
        magnitude = values[i] / 255 if OPS[k] == "Solarize" else values[i]
        want = policy._apply_image_or_video_transform(
            x[i], OPS[k], float(magnitude), InterpolationMode.NEAREST, {torch.Tensor: None}
        )
        moved = OPS[k] in GEOMETRIC
        try:
            assert_levels(
                got[i], want, 0.01 if moved or dtype != torch.uint8 else 1, share=0.005 if moved else 0.0
            )
        except AssertionError as error:
            raise AssertionError(f"{OPS[k]} at {values[i]}: {error}") from None


def test_randaugment_frequencies() -> None:
    """Over 10,000 samples both slots choose each of 14 ops equally often and independently, at one
    magnitude of either sign."""
    spec = A.RandAugment(2, 9)
    (first, one), (second, _) = spec.choices(draws(DRAWS, spec.words), 224, 224)
    for kinds in (first, second):
        assert_frequencies(np.bincount(kinds, minlength=14), np.ones(14))
    assert_frequencies(np.bincount(first * 14 + second, minlength=196), np.ones(196))
    table = magnitude_table(NARROW, 31, 224, 224)[:, 9].astype(np.float64)
    assert np.array_equal(np.abs(one), table[first])
    signed = one[SIGNED[first] & (one != 0)]
    assert_frequencies([(signed > 0).sum(), (signed < 0).sum()], [1, 1])


def test_trivialaugment_frequencies() -> None:
    """Over 10,000 samples ops, bins and signs are uniform."""
    spec = A.TrivialAugmentWide()
    ((kinds, values),) = spec.choices(draws(DRAWS, spec.words), 224, 224)
    assert_frequencies(np.bincount(kinds, minlength=14), np.ones(14))
    rotated = values[kinds == OPS.index("Rotate")]
    assert_frequencies(np.bincount((np.abs(rotated) / 4.5).round().astype(int), minlength=31), np.ones(31))
    assert_frequencies([(rotated > 0).sum(), (rotated < 0).sum()], [1, 1])


def test_autoaugment_frequencies() -> None:
    """Over 10,000 samples each pair of ops occurs 1/25 of the time, each op of it with its probability."""
    spec = A.AutoAugment()
    both = spec.choices(draws(DRAWS, spec.words), 224, 224)
    kinds, chances, _ = sub_policies("imagenet")
    for slot in range(2):
        share = np.zeros(len(OPS))
        np.add.at(share, kinds[:, slot], chances[:, slot] / 25)
        share[0] = 1 - share.sum()
        assert_frequencies(np.bincount(both[slot][0], minlength=len(OPS)), share)


def test_ops_are_chosen_per_sample() -> None:
    """In one batch, samples of the same picture come out in many ways."""
    x = pictures(1).expand(64, -1, -1, -1)
    got = A.AugmentBatch([A.RandAugment()])(x, seed=SEED, epoch=EPOCH, indices=range(64))
    assert len({row.numpy().tobytes() for row in got}) > 30
