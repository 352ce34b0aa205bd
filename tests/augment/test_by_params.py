"""Kornia's modules in AugmentBatch: parameters per sample from (seed, epoch, index), handed over by
`params=`; no generator is touched."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
import torch
from augment_helpers import DRAWS, EPOCH, SEED, assert_frequencies, assert_uniform, draws, pictures
from torch import Tensor
from torch.utils.data import TensorDataset

from fastload import FastLoader
from fastload import augment as A
from fastload.augment.kornia_classes import ROWWISE
from fastload.augment.philox import words
from fastload.augment.steps import Frame
from fastload.common.rng import OP_STREAM
from fastload.errors import TransformError

P = 0.6
MEAN, STD = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.2])
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "CenterCrop": ((24, 28),),
    "ColorJiggle": (0.4, 0.4, 0.4, 0.1),
    "ColorJitter": (0.4, 0.4, 0.4, 0.1),
    "Denormalize": (MEAN, STD),
    "LongestMaxSize": (30,),
    "Normalize": (MEAN, STD),
    "PadTo": ((40, 47),),
    "RandomAffine": (20.0, (0.1, 0.2), (0.8, 1.2), 10.0),
    "RandomBoxBlur": ((3, 3),),
    "RandomBrightness": ((0.5, 1.5),),
    "RandomContrast": ((0.5, 1.5),),
    "RandomCrop": ((24, 28), (2, 3)),
    "RandomFisheye": (torch.tensor([-0.3, 0.3]), torch.tensor([-0.3, 0.3]), torch.tensor([0.9, 1.0])),
    "RandomGamma": ((0.5, 2.0),),
    "RandomGaussianBlur": ((5, 5), (0.3, 2.0)),
    "RandomHue": ((-0.3, 0.3),),
    "RandomJPEG": ((20.0, 90.0),),
    "RandomMedianBlur": ((3, 3),),
    "RandomMotionBlur": ((3, 7), 35.0, 0.5),
    "RandomPosterize": ((2, 6),),
    "RandomResizedCrop": ((24, 28),),
    "RandomRotation": (30.0,),
    "RandomRotation90": ((-1, 2),),
    "RandomSaturation": ((0.2, 2.0),),
    "RandomShear": (10.0,),
    "RandomTranslate": ((0.1, 0.2), (0.1, 0.2)),
    "Resize": ((24, 28),),
    "SmallestMaxSize": (30,),
}
PICTURES = pictures(16, 36, 40)


def module(name: str, p: float = P) -> Any:
    """A module of a class, with the probability p if it can have one for each sample."""
    chance = {} if name == "PadTo" else {"p": 1.0 if ROWWISE[name].resizes or ROWWISE[name].fixed else p}
    return getattr(K, name)(*ARGUMENTS.get(name, ()), **chance)


CASES = [
    (name, dtype)
    for name in sorted(ROWWISE)
    for dtype in (torch.uint8, torch.float32)
    if dtype != torch.uint8 or not ROWWISE[name].floats
]


def states() -> tuple[Any, ...]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        np.random.get_state()[2],
    )


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_rows_do_not_depend_on_the_batch(name: str, dtype: torch.dtype) -> None:
    """The same (seed, epoch, index) gives the same pixels bit for bit whatever the batch's size and order,
    for every class that is taken, and the global generators stand where they stood; the input is left
    alone."""
    augment = A.AugmentBatch([module(name)])
    x = PICTURES if dtype == torch.uint8 else PICTURES / 255
    copy, before = x.clone(), states()
    together = augment(x, seed=SEED, epoch=EPOCH, indices=range(16))
    assert together.dtype == dtype
    assert torch.equal(x, copy)
    assert (together.shape != x.shape) == ROWWISE[name].resizes
    assert not torch.equal(together, x)
    order = np.random.Generator(np.random.PCG64(5)).permutation(16)
    assert torch.equal(augment(x[order], seed=SEED, epoch=EPOCH, indices=order), together[order])
    torch.rand(3)
    between = states()
    for i in (0, 6, 15):  # the others were in another place above
        assert torch.equal(augment(x[i : i + 1], seed=SEED, epoch=EPOCH, indices=[i])[0], together[i]), i
    assert states() == between != before
    for seed, epoch in ((SEED + 1, EPOCH), (SEED, EPOCH + 1)):
        assert (
            torch.equal(augment(x, seed=seed, epoch=epoch, indices=range(16)), together)
            == ROWWISE[name].fixed
        )


def test_through_a_loader() -> None:
    """A FastLoader's batches of four and of seven hold the same pixels, a list with ops of ours and of
    Kornia's."""
    rows = TensorDataset(PICTURES, torch.arange(16))

    def epoch(batch_size: int) -> Tensor:
        augment = A.AugmentBatch([A.RandomHorizontalFlip(), module("RandomAffine"), module("ColorJitter")])
        with FastLoader(
            rows, batch_size=batch_size, seed=SEED, batch_transform=augment, device="cpu"
        ) as loader:
            return torch.cat([images for images, _ in loader])

    assert torch.equal(epoch(4), epoch(7))
    assert not torch.equal(epoch(4), PICTURES)


@pytest.mark.parametrize("name", ["RandomAffine", "ColorJitter"])
@pytest.mark.parametrize(("rows", "height", "width"), [(61, 8, 9), (70, 61, 62), (4, 61, 8), (62, 62, 63)])
def test_batches_as_long_as_something_else(name: str, rows: int, height: int, width: int) -> None:
    """Also where the number of rows is the image's height or width, or that of a constant, none is taken
    for the other."""
    x = pictures(4, height, width).repeat(18, 1, 1, 1)[:rows]
    augment = A.AugmentBatch([module(name)])
    together = augment(x, seed=SEED, epoch=EPOCH, indices=range(rows))
    for i in (0, rows // 2, rows - 1):
        assert torch.equal(augment(x[i : i + 1], seed=SEED, epoch=EPOCH, indices=[i])[0], together[i])


def test_kornia_alone_does_the_same_with_these_parameters() -> None:
    """What is done is Kornia's module with the parameters of the plan as `params=`, on the rows of the
    plan; the others stay."""
    op = A.KorniaOp(module("RandomAffine"))
    x = PICTURES / 255
    got = A.AugmentBatch([op])(x, seed=SEED, epoch=EPOCH, indices=range(16))
    (step,) = op.plan(draws(16, op.words), Frame(16, 36, 40, True))
    assert 0 < len(step.rows) < 16
    want = x.clone()
    params = {name: torch.from_numpy(array) for name, array in step.arrays.items()}
    want[step.rows] = module("RandomAffine", 1.0)(x[step.rows], params=params)
    assert torch.equal(got, want)


@pytest.mark.parametrize(
    "name",
    [
        "ColorJiggle",
        "ColorJitter",
        "RandomGaussianNoise",
        "RandomJigsaw",
        "RandomMotionBlur",
        "RandomPlasmaContrast",
    ],
)
def test_other_draws_are_kornias_after_the_rows_seed(name: str) -> None:
    """A module that draws a permutation, a normal field, or one value a batch does to a row what it does
    alone after torch.manual_seed of the row's first two words."""
    x = PICTURES / 255
    got = A.AugmentBatch([module(name)])(x, seed=SEED, epoch=EPOCH, indices=range(16))
    seeds = words(SEED, EPOCH, range(16), OP_STREAM, 2).astype(np.uint64)
    with torch.random.fork_rng(devices=[]):
        for i, (low, high) in enumerate(seeds.tolist()):
            torch.default_generator.manual_seed(low | high << 32)
            assert torch.equal(module(name)(x[i : i + 1])[0], got[i])


def test_parameters_are_uniform() -> None:
    """Over 10,000 samples the gate opens as often as p says, and what is drawn is uniform over its range
    and independent."""
    op = A.KorniaOp(module("RandomAffine"))
    (step,) = op.plan(draws(DRAWS, op.words), Frame(DRAWS, 50, 80, True))
    assert_frequencies([len(step.rows), DRAWS - len(step.rows)], [P, 1 - P])
    angle, scale = (step.arrays["angle"] + 20) / 40, (step.arrays["scale"][:, 0] - 0.8) / 0.4
    shift = step.arrays["translations"] / [2 * 0.1 * 80, 2 * 0.2 * 50] + 0.5
    for each in (angle, scale, *shift.T):
        assert_uniform(each)
    cells = np.floor(np.stack((angle, scale, *shift.T)).clip(0, 0.9999) * 2).astype(int)
    assert_frequencies(np.bincount(cells.T @ [8, 4, 2, 1], minlength=16), np.ones(16))


def test_places_in_the_list_draw_apart() -> None:
    """Two equal modules draw different numbers; others before them are not disturbed; a module and its
    KorniaOp are the same op."""
    turn = module("RandomRotation", 1.0)
    x = PICTURES / 255
    first, second = (
        op.plan(draws(16, 2, OP_STREAM + i), Frame(16, 36, 40, True))
        for i, op in enumerate([A.KorniaOp(turn)] * 2)
    )
    assert not np.array_equal(first[0].arrays["degrees"], second[0].arrays["degrees"])
    mixed = A.AugmentBatch([A.RandomInvert(), turn, A.RandomErasing()])
    assert (
        mixed
        == A.AugmentBatch([A.RandomInvert(), A.KorniaOp(turn), A.RandomErasing()])
        != A.AugmentBatch([turn])
    )
    got = mixed(x, seed=SEED, epoch=EPOCH, indices=range(16))
    again = pickle.loads(pickle.dumps(mixed))
    assert again == mixed
    assert hash(again) == hash(mixed)
    assert torch.equal(again(x, seed=SEED, epoch=EPOCH, indices=range(16)), got)
    assert "RandomRotation" in repr(mixed)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_dtype_and_format_are_kept(dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    """Whatever the batch is in, Kornia sees float32 in 0..1, and the result is as the batch was; identity
    is exact."""
    x = (PICTURES if dtype == torch.uint8 else (PICTURES / 255).to(dtype)).contiguous(
        memory_format=memory_format
    )
    seen: list[Tensor] = []
    turn = module("RandomAffine", 1.0)
    turn.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    got = A.AugmentBatch([turn])(x, seed=SEED, epoch=EPOCH, indices=range(16))
    assert got.dtype == dtype
    assert got.is_contiguous(memory_format=memory_format)
    assert {rows.dtype for rows in seen} == {torch.float32}
    assert max(float(rows.max()) for rows in seen) <= 1.0
    still = A.AugmentBatch([K.RandomBrightness((1.0, 1.0), p=1.0)])
    assert torch.equal(still(x, seed=SEED, epoch=EPOCH, indices=range(16)), x)


class Subclass(K.RandomAffine):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: K.RandomAffine(10.0, same_on_batch=True),
        lambda: K.RandomErasing(same_on_batch=True),
        lambda: K.RandomCrop((8, 8), p=0.5),
        lambda: K.Normalize(MEAN, STD, p=0.5),
        lambda: K.RandomMixUpV2(),
        lambda: Subclass(10.0),
    ],
)
def test_modules_that_are_of_batches_are_refused(make: Callable[[], Any]) -> None:
    """What draws or acts once per batch, or may have other code, is named, with the way that there is for
    it."""
    given = make()
    with pytest.raises(TransformError, match=f"(?s){type(given).__name__}.*batch_transform") as caught:
        A.AugmentBatch([given])
    assert "KorniaOp" in str(caught.value)
    with pytest.raises(TransformError, match="KorniaOp"):
        A.KorniaOp(torch.nn.Identity())


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (random.random, "it draws from a global generator"),
        (np.random.random, "it draws from a global generator"),
        (lambda: torch.nn.functional.gumbel_softmax(torch.ones(3)).sum(), "it draws from a global generator"),
        (lambda: torch.dropout(torch.ones(3), 0.5, True).sum(), r"dropout\(\) draws from a global generator"),
    ],
)
def test_a_trial_finds_draws_from_global_generators(draw: Callable[[], Any], said: str) -> None:
    """A module that draws its parameters where the loop draws its numbers is refused when the op is made,
    and the trial leaves no trace."""
    gamma = module("RandomGamma")
    own = gamma.generate_parameters
    gamma.generate_parameters = lambda shape: {**own(shape), "gain": torch.full(shape[:1], 1 + float(draw()))}
    before = states()
    with pytest.raises(TransformError, match=said):
        A.KorniaOp(gamma)
    assert states() == before


def test_the_op_has_a_module_of_its_own() -> None:
    """What the user does to a module afterwards, such as moving it to where its draws would be of a
    device, changes no pixel."""
    gamma = module("RandomGamma")
    augment = A.AugmentBatch([gamma])
    before = augment(PICTURES, seed=SEED, epoch=EPOCH, indices=range(16))
    gamma.set_rng_device_and_dtype(torch.device("meta"), torch.float32)
    gamma.p = 0.0
    assert torch.equal(augment(PICTURES, seed=SEED, epoch=EPOCH, indices=range(16)), before)
    gamma.p = P
    assert torch.equal(A.AugmentBatch([gamma])(PICTURES, seed=SEED, epoch=EPOCH, indices=range(16)), before)


def test_bytes_hold_no_normalised_values() -> None:
    """Normalize of bytes is an error that says what to do, not a batch of clipped values; floats are as
    Kornia alone makes them."""
    normalize = module("Normalize")
    with pytest.raises(TransformError, match="ToFloat"):
        A.AugmentBatch([normalize])(PICTURES, seed=SEED, epoch=EPOCH, indices=range(16))
    x = PICTURES / 255
    assert torch.equal(
        A.AugmentBatch([normalize])(x, seed=SEED, epoch=EPOCH, indices=range(16)), normalize(x)
    )


def test_every_class_that_is_taken_has_parameters_here() -> None:
    """The arguments above are of classes in the table, and every class in it is Kornia's."""
    assert set(ARGUMENTS) <= set(ROWWISE)
    assert all(isinstance(module(name), K.AugmentationBase2D | K.RandomJigsaw) for name in ROWWISE)
