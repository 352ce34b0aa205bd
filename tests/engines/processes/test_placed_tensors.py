"""Large tensors of samples that a collate function hands on as they are: each is copied into the slot when
its sample is made, unless somebody keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from process_helpers import Made, engine_marks, slots_of
from torch.utils.data import DataLoader
from worker_values import same

from fastload import FastLoader
from fastload._native import core
from fastload.engines.processes.placed_rows import PlacedTensors, plain_tensors
from fastload.engines.processes.serialization import Arena

pytestmark = engine_marks
SIDES = st.lists(st.just(1) | st.integers(1, 90), min_size=1, max_size=4)


def image(index: int) -> torch.Tensor:
    """Of a shape and of strides of its own."""
    side = 80 + index % 5
    made = (torch.arange(3 * side * 90) % 251 + index).float().view(side, 90, 3)
    return made.permute(2, 0, 1) if index % 2 else made.permute(2, 0, 1).contiguous()


@given(SIDES, st.permutations(range(4)), st.sampled_from([torch.uint8, torch.float32, torch.complex64]))
@example([10, 35, 47, 1], [0, 3, 2, 1], torch.uint8)
@example([90, 1, 90, 1], [3, 2, 1, 0], torch.float32)
def test_a_placed_tensor_is_as_it_was(sides: list[int], order: list[int], dtype: torch.dtype) -> None:
    """Its numbers, shape, strides and dtype; one that has no room is left as it is."""
    order = [each for each in order if each < len(sides)]
    tensor = torch.arange(int(np.prod(sides))).to(dtype).view(sides).permute(order)
    slot = core.SharedSlot(1 << 20)
    placed = PlacedTensors(Arena(slot))
    made, number = placed.place((tensor, 7))
    inside = slot.address <= made.data_ptr() < slot.address + slot.bytes
    assert inside == placed.used == (1 << 14 <= tensor.nbytes <= slot.bytes)
    assert (made.stride(), made.dtype, number) == (tensor.stride(), tensor.dtype, 7)
    assert torch.equal(made, tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 100, 100)[:, ::2],
        torch.ones(100, 1).expand(100, 100),
        torch.ones(100, 100, dtype=torch.complex64).conj(),
        torch.ones(100, 100, dtype=torch.complex64).conj().imag,
        torch.ones(3, 100, 100).requires_grad_(),
    ],
)
def test_tensors_that_are_more_than_their_numbers_in_order(tensor: torch.Tensor) -> None:
    assert not plain_tensors([tensor])


def test_a_tensor_with_attributes_stays() -> None:
    tensor = torch.ones(3, 100, 100)
    tensor.name_of_file = "a.jpg"  # type: ignore[attr-defined]
    assert not plain_tensors({"image": tensor})


def sample(index: int) -> Any:
    return image(index), {"boxes": torch.ones(index % 3, 4), "mask": image(-index)}


HANDED: dict[str, Callable[[list[Any]], Any]] = {
    "zipped": lambda batch: tuple(zip(*batch, strict=True)),
    "as they are": lambda batch: batch,
    "columns": lambda batch: {"x": [x for x, _ in batch], "y": [y["mask"] for _, y in batch]},
    "the first": lambda batch: batch[0],
    "doubled": lambda batch: [(x * 2, y) for x, y in batch],
    "views": lambda batch: [(x.permute(1, 2, 0), y["mask"].T) for x, y in batch],
    "in place": lambda batch: [(x.add_(1), y["mask"].mul_(2)) for x, y in batch],
    "twice": lambda batch: (batch, [x for x, _ in batch]),
}


@pytest.mark.parametrize("name", HANDED)
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
def test_batches_are_torchs(name: str) -> None:
    """Values, structure and strides, whatever the function makes of the samples."""
    given = {"batch_size": 4, "num_workers": 2, "collate_fn": HANDED[name]}
    expected = list(DataLoader(Made(sample, 90), **given))  # type: ignore[arg-type]
    for batch, theirs in zip(FastLoader(Made(sample, 90), **given), expected, strict=True):
        assert same(batch, theirs)
        assert strides(batch) == strides(theirs)


def strides(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value.stride()]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [each for part in parts for each in strides(part)]


class Keeping:
    """Hands tensors on, and keeps one of each tenth batch in some form; says whether all are as they were."""

    def __init__(self, form: Callable[[torch.Tensor], Any], read: Callable[[Any], Any]) -> None:
        self.form, self.read = form, read
        self.kept: list[tuple[Any, np.ndarray[Any, Any]]] = []
        self.calls = 0

    def __call__(self, batch: list[torch.Tensor]) -> Any:
        self.calls += 1
        if self.calls % 10 == 5:
            self.kept.append((self.form(batch[1]), batch[1].numpy().copy()))
        whole = all(np.array_equal(np.asarray(self.read(held)), was) for held, was in self.kept)
        return batch, whole


FORMS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], Any]]] = {
    "tensor": (lambda tensor: tensor, lambda held: held),
    "view": (lambda tensor: tensor[None], lambda held: held[0]),
    "array": (lambda tensor: tensor.numpy(), lambda held: held),
    "storage": (
        lambda tensor: (tensor.untyped_storage(), tensor.shape),
        lambda held: torch.empty(0).set_(held[0], 0, held[1]).numpy(),
    ),
    "cycle": (lambda tensor: [tensor, []], lambda held: held[1].append(held) or held[0]),
    "capsule": (lambda tensor: [torch.utils.dlpack.to_dlpack(tensor)], lambda held: unwrapped(held)),
}


def unwrapped(held: list[Any]) -> torch.Tensor:
    """The tensor of a capsule, which can be taken once."""
    if not isinstance(held[0], torch.Tensor):
        held[0] = torch.utils.dlpack.from_dlpack(held[0])
    found: torch.Tensor = held[0]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_what_a_collate_function_keeps_is_never_written_to(form: str) -> None:
    """In any form; neither by its own worker nor by the other, in later batches and epochs."""
    with FastLoader(
        Made(lambda index: torch.full((3, 80, 90), float(index)), 200),
        batch_size=4,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Keeping(*FORMS[form]),
    ) as loader:
        for _ in range(2):
            for number, (images, whole) in enumerate(loader):
                assert whole
                assert [float(each.min()) for each in images] == [4 * number + row for row in range(4)]
                assert all(float(each.max()) == float(each.min()) for each in images)


def failing(batch: list[torch.Tensor]) -> Any:
    if float(batch[0].min()) % 20 == 8:
        raise ValueError(batch)
    return batch


def test_a_collate_function_that_fails_with_its_samples() -> None:
    """The exception holds the samples while the batch is given up; the next ones are whole."""
    loader = FastLoader(
        Made(lambda index: torch.full((3, 80, 90), float(index)), 200),
        batch_size=4,
        num_workers=2,
        collate_fn=failing,
    )
    iterator, number = iter(loader), 0
    while True:
        try:
            images = next(iterator)
        except ValueError:
            assert number % 5 == 2
        except StopIteration:
            break
        else:
            assert [float(each.max()) for each in images] == [4 * number + row for row in range(4)]
        number += 1
    assert number == 50


def slow(index: int) -> torch.Tensor:
    time.sleep(0.02)
    return torch.full((3, 200, 200), float(index))


@pytest.mark.parametrize("collate", [None, list])
def test_the_slot_of_the_batch_before_is_filled_again(collate: Any) -> None:
    """One worker has two slots where the loop takes its batches at once: it chooses one when it has made the
    first sample."""
    iterator = iter(FastLoader(Made(slow, 60), batch_size=3, num_workers=1, collate_fn=collate))
    for _ in range(18):
        batch = next(iterator)
    assert len(slots_of(iterator).all) <= 2
    del batch, iterator


class Streaming(Made):
    """Gives a batch's samples as they are asked for."""

    def __getitems__(self, indices: list[int]) -> Any:
        return (self[index] for index in indices)


def test_samples_that_come_one_by_one_are_left_to_the_collate_function() -> None:
    """A generator of samples is not looked at before."""
    batches = FastLoader(Streaming(image, 20), batch_size=4, num_workers=2, collate_fn=list)
    assert [len(batch) for batch in batches] == [4] * 5
