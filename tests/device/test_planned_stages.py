"""What a transform leaves to the device: the same meaning as op by op, reproducible per sample, and when
it is not left there."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload.augment.philox import Draw, as_indices, words_of
from fastload.common.rng import OP_STREAM
from fastload.errors import ArgumentError

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.filterwarnings("ignore:The transform `ToTensor"),
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SEED = 20261121
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


def draw(op: int, words: int, index: int, epoch: int = 0, seed: int = SEED) -> Draw:
    """The words of one sample for op number `op` of the list."""
    return Draw(words_of(seed, epoch, as_indices([index]), [(OP_STREAM + op, words)])[0])


def batches(
    path: Path, transform: Any, batch_size: int = 8, **kwargs: Any
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch on the CPU as the device."""
    common: dict[str, Any] = {"seed": SEED, "num_workers": 1, "device": "cpu", **kwargs}
    with FastLoader(path, batch_size, transform=transform, **common) as loader:
        assert loader._fastload.plan.native is not None
        return [(images.clone(), labels.clone()) for images, labels in loader]


def images_of(path: Path, transform: Any, **kwargs: Any) -> torch.Tensor:
    return torch.cat([images for images, _ in batches(path, transform, **kwargs)])


def test_a_compose_is_what_its_parameters_give_op_by_op(packed: Path) -> None:
    """The native part's bytes, torchvision's own functions with each sample's factors, order and box, then
    its Normalize.

    Tolerance as for the jitter of bytes (tests/augment/test_ops.py): 99% of the values within 1 level, all
    within 8; equal in erased boxes.
    """
    F = v2.functional
    steps = [v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    compose = v2.Compose([*steps, *FLOATS, v2.Normalize(MEAN, STD), v2.RandomErasing(0.5)])
    native, jitter, erasing = (
        PackedDataset(packed, transform=compose).snapshot(device=True),
        A.ColorJitter(0.4, 0.4, 0.4, 0.1),
        A.RandomErasing(0.5),
    )
    ops = F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue
    got = images_of(packed, compose)
    assert got.dtype == torch.float32
    want, erased = [], 0
    for index in range(len(got)):
        image = native.decode(index, SEED, 0)
        assert image.dtype == torch.uint8
        _, factors, order = jitter.factors(draw(0, jitter.words, index))
        for op in order[0]:
            image = ops[op](image, float(np.float32(factors[0, op])))
        image = F.normalize(F.to_dtype(image, torch.float32, scale=True), MEAN, STD)
        numbers = draw(1, erasing.words, index)
        happens = numbers.uniform()[0] < 0.5
        numbers.words(2)
        fits, ((top, left, bottom, right),) = erasing.boxes(numbers, 48, 48)
        if happens and fits[0]:
            image = F.erase(image, top, left, bottom - top, right - left, torch.zeros(3, 1, 1))
            assert not got[index, :, top:bottom, left:right].any()
            erased += 1
        want.append(image)
    assert 10 < erased < 40
    apart = (got - torch.stack(want)).mul(torch.tensor(STD).view(3, 1, 1)).mul(255).abs()
    assert float((apart > 1.01).float().mean()) <= 0.01
    assert float(apart.max()) <= 8.01
    assert not torch.equal(got[:8], native_floats(native, range(8)))


def native_floats(native: PackedDataset, indices: Any) -> torch.Tensor:
    """The native part's images, normalised."""
    images = torch.stack([native.decode(index, SEED, 0) for index in indices])
    return v2.functional.normalize(images * torch.tensor(1 / 255), MEAN, STD)


LIGHT = v2.Compose(
    [
        v2.RandomResizedCrop(32),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        v2.RandAugment(),
        *FLOATS,
        v2.ColorJitter(0.2),
        v2.Normalize(MEAN, STD),
        v2.RandomErasing(0.5),
    ]
)


def test_the_same_bytes_whatever_the_batches_and_threads(packed: Path) -> None:
    """(seed, epoch, index) decides: not the batch size, its order, the number of threads, nor how far
    ahead; another epoch differs."""
    want = images_of(packed, LIGHT)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1)).tolist()
    for changed in (
        {"batch_size": 5, "num_workers": 2},
        {"batch_size": 13, "num_workers": 0},
        {"batch_size": 50, "device_prefetch": 0},
    ):
        assert torch.equal(images_of(packed, LIGHT, **changed), want)
    assert torch.equal(images_of(packed, LIGHT, batch_size=7, num_workers=2, sampler=order), want[order])
    assert not torch.equal(images_of(packed, LIGHT, seed=SEED + 1), want)
    with FastLoader(packed, 8, transform=LIGHT, seed=SEED, device="cpu", num_workers=1) as loader:
        first = torch.cat([images for images, _ in loader])
        second = torch.cat([images for images, _ in loader])
        loader.set_epoch(1)
        again = torch.cat([images for images, _ in loader])
    assert torch.equal(first, want)
    assert not torch.equal(second, first)
    assert torch.equal(again, second)


def test_a_pass_goes_on_where_it_was(packed: Path) -> None:
    """After load_state_dict() the rest of the epoch has the same bytes, with other threads."""
    want = batches(packed, LIGHT, shuffle=True)
    common: dict[str, Any] = {"transform": LIGHT, "seed": SEED, "shuffle": True, "device": "cpu"}
    with FastLoader(packed, 8, num_workers=1, **common) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
    with FastLoader(packed, 8, num_workers=2, **common) as loader:
        loader.load_state_dict(state)
        for (images, labels), (same, same_labels) in zip(loader, want[3:], strict=True):
            assert torch.equal(images, same)
            assert torch.equal(labels, same_labels)


def test_equal_ops_draw_different_numbers(packed: Path) -> None:
    """Ops are numbered over the whole list: before and after the conversion, and on through every
    AugmentBatch of batch_transform=."""
    halves = [v2.Resize((16, 16)), v2.RandomInvert(0.5), *FLOATS, v2.RandomInvert(0.5)]
    invert = A.AugmentBatch([A.RandomInvert(0.5)])
    got = images_of(packed, halves, batch_transform=[invert, invert])
    plain = images_of(packed, [v2.Resize((16, 16)), *FLOATS])
    happens = np.array([[len(draw(op, 2, index).chance(0.5)) for op in range(4)] for index in range(50)])
    assert len({tuple(column) for column in happens.T.tolist()}) == 4
    turned = torch.from_numpy(happens.sum(1) % 2 == 1).view(-1, 1, 1, 1)
    assert torch.allclose(got, torch.where(turned, 1 - plain, plain), atol=1e-6)


def test_numbering_of_an_augment_batch() -> None:
    """`first` moves the streams, is part of the value, survives a pickle; one op after the other does what
    all do at once (where no flip comes before a resampling, of which it would become a part)."""
    ops = [A.RandomRotation(20, "bilinear"), A.RandomHorizontalFlip(), A.RandomErasing(0.9)]
    whole, later = A.AugmentBatch(ops), A.AugmentBatch(ops, first=2)
    x = torch.randint(0, 256, (6, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    key: dict[str, Any] = {"seed": 1, "epoch": 2, "indices": range(6)}
    assert (
        whole != later == whole.numbered(2) == pickle.loads(pickle.dumps(later)) == eval(repr(later), vars(A))
    )
    assert not torch.equal(whole(x, **key), later(x, **key))
    step_by_step = x
    for part in later.apart():
        step_by_step = part(step_by_step, **key)
    assert torch.equal(step_by_step, later(x, **key))


def test_bytes_become_floats_as_the_list_says(packed: Path) -> None:
    """v2's ToDtype multiplies by the rounded 1/255, ToTensor divides; the device's floats have the same
    bits."""
    for floats, reciprocal in ((FLOATS, True), ([v1.ToTensor()], False)):
        steps = [v2.Resize((20, 20)), v2.RandomInvert(1.0), *floats]
        left = PackedDataset(packed, transform=steps).snapshot(device=True)
        inverted = 255 - torch.stack([left.decode(index, SEED, 0) for index in range(50)])
        want = (
            inverted.float() * torch.tensor(1 / 255) if reciprocal else inverted.float() / torch.tensor(255.0)
        )
        assert torch.equal(images_of(packed, steps), want)


def test_the_dtype_is_that_of_the_last_conversion(packed: Path) -> None:
    """What lies between two conversions is float32; without any, the dtype is made at the end; uint8
    contradicts a conversion."""
    between = [v2.Resize((20, 20)), v1.ToTensor(), v2.ColorJitter(0.4), v2.Normalize(MEAN, STD)]
    wide = images_of(packed, between)
    assert torch.equal(images_of(packed, between, dtype=torch.float16), wide.half())
    bare = [v2.Resize((20, 20)), v2.RandomInvert(1.0)]
    inverted = images_of(packed, bare)
    assert inverted.dtype == torch.uint8
    assert torch.equal(
        images_of(packed, bare, dtype=torch.bfloat16), (inverted / torch.tensor(255.0)).bfloat16()
    )
    for contiguous in (torch.contiguous_format, torch.channels_last):
        ((images, _), *_) = batches(packed, between, memory_format=contiguous, dtype=torch.float16)
        assert images.is_contiguous(memory_format=contiguous)
    for refused in (between, [*bare, *FLOATS]):
        with pytest.raises(ArgumentError, match="uint8"):
            FastLoader(packed, 8, transform=refused, device="cpu", dtype=torch.uint8)
        with pytest.raises(ArgumentError, match="batch_transform"):
            FastLoader(packed, 8, transform=refused, device="cpu", batch_transform=T.ToFloat())


def listed(samples: list[Any]) -> Any:
    """A collate function of one's own."""
    return default_collate(samples)


@pytest.mark.parametrize("kwargs", [{"collate_fn": listed}, {"batch_size": None}, {"device": None}])
def test_where_samples_have_to_be_whole_native_threads_do_it(packed: Path, kwargs: dict[str, Any]) -> None:
    """Without batches, for one's own collate_fn and without a device, samples are finished before;
    explain() says why."""
    steps = [v2.Resize((20, 20)), v2.RandomInvert(1.0), v1.ToTensor()]
    dataset = PackedDataset(packed, transform=steps)
    given = {"batch_size": 10, "num_workers": 0, "device": "cpu", **kwargs}
    with FastLoader(dataset, **given) as loader:
        native = loader._fastload.plan.native
        assert native is not None
        assert not native.datasets[0].plan.device
        got = [images.clone() for images, _ in loader]
        text = loader.explain(all=True)
    flat = torch.stack(got) if kwargs.get("batch_size", 10) is None else torch.cat(got)
    assert torch.equal(flat, torch.stack([dataset[index][0] for index in range(50)]))
    reason = {
        "collate_fn": "but your collate_fn",
        "batch_size": "but batch_size=None",
        "device": "the dataset is packed and its transform is native",
    }
    assert reason[next(iter(kwargs))] in text


def test_lists_that_differ_on_the_device_are_left_to_native_threads(packed: Path) -> None:
    """A ConcatDataset whose parts leave different ops to the device has batches that no one list is right
    for."""
    parts = [
        PackedDataset(packed, transform=[v2.Resize((20, 20)), v2.RandomInvert(p), v1.ToTensor()])
        for p in (0.0, 1.0)
    ]
    with FastLoader(parts[0] + parts[1], 25, num_workers=0, device="cpu") as loader:
        assert loader._fastload.plan.native is not None
        assert "the packed datasets differ" in loader.explain(all=True)
        first, _, third, _ = [images.clone() for images, _ in loader]
    assert torch.allclose(third, 1 - first, atol=1e-6)


def test_a_new_transform_is_the_next_epochs(packed: Path) -> None:
    """Assigning a dataset's transform changes what the device does as well; subsets and pickles of the
    loader follow the plan."""
    dataset = PackedDataset(packed, transform=[v2.Resize((20, 20)), v2.RandomInvert(1.0)])
    with FastLoader(dataset[:20], 10, num_workers=1, device="cpu") as loader:
        inverted = torch.cat([images for images, _ in loader])
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert torch.equal(torch.cat([images for images, _ in copy]), inverted)
        dataset.transform = [v2.Resize((20, 20)), v2.RandomInvert(0.0)]
        assert torch.equal(torch.cat([images for images, _ in loader]), 255 - inverted)
        dataset.transform = T.Resize((20, 20), dct_scale=False)
        assert torch.equal(torch.cat([images for images, _ in loader]), 255 - inverted)
