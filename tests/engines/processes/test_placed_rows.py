"""Large tensors of samples that are copied into the slot one by one: the batches are default_collate's, and
nothing of the Dataset's own lies in a slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from process_helpers import Made, engine_marks
from torch.utils.data import DataLoader, Dataset, default_collate
from worker_values import same

from fastload import FastLoader
from fastload._native import core
from fastload.engines.processes.placed_rows import PlacedRows
from fastload.engines.processes.serialization import Arena

pytestmark = engine_marks

LARGE = (3, 80, 80)  # 19,200 bytes of uint8


def image(index: int, dtype: torch.dtype = torch.uint8, layout: str = "CHW") -> torch.Tensor:
    made = (torch.arange(3 * 80 * 80) % 251 + index).to(dtype).view(LARGE)
    return made.permute(1, 2, 0).contiguous().permute(2, 0, 1) if layout == "HWC" else made


FORMS: dict[str, Callable[[int], Any]] = {
    "lone": image,
    "tuple": lambda index: (image(index), index),
    "list": lambda index: [index, image(index, torch.float32, "HWC"), image(-index)],
    "dict": lambda index: {"id": str(index), "x": image(index, torch.float64), "y": torch.tensor(index)},
    "pair of lists": lambda index: ([image(index), image(index + 1)], image(index)),
    "views": lambda index: ([image(index), [image(index + 1), "a"]], {"deep": {"x": image(3)}}, index),
    "too deep": lambda index: ([[[image(index)]]], image(index)),
    "numpy beside": lambda index: (image(index).numpy(), image(index, layout="HWC")),
}


def in_a_slot(tensor: torch.Tensor, slot: core.SharedSlot) -> bool:
    return slot.address <= tensor.data_ptr() < slot.address + slot.bytes


@given(st.sampled_from(sorted(FORMS)), st.integers(1, 6), st.integers(0, 6), st.booleans())
def test_collated_rows(form: str, made: int, left_out: int, roomy: bool) -> None:
    """The collated samples are those of default_collate, of a batch in which samples were left out, too; a
    stacked tensor is in the slot, if there is room."""
    count = made + left_out
    slot = core.SharedSlot(count * 200_000 if roomy else 100)
    rows = PlacedRows(Arena(slot), count)
    samples = [FORMS[form](index) for index in range(made)]
    placed = [rows.place(sample) for sample in samples]
    assert same(default_collate(placed), default_collate(samples))
    large = [each for each in _tensors(placed[0]) if in_a_slot(each, slot)]
    assert rows.used == bool(large) == (roomy and any(t.nbytes > 1 << 14 for t in _tensors(samples[0])))
    for at, tensor in enumerate(_tensors(placed[0])):
        stack = rows.stacked([_tensors(sample)[at] for sample in placed])
        if stack is None:
            assert not in_a_slot(tensor, slot)
            continue
        assert in_a_slot(stack, slot)
        assert stack.is_contiguous()
        assert torch.equal(stack, torch.stack([_tensors(sample)[at] for sample in samples]))


def _tensors(value: Any, depth: int = 3) -> list[torch.Tensor]:
    """The tensors of a sample, as deep as they have rows."""
    parts = value.values() if type(value) is dict else value if type(value) in (tuple, list) else None
    if parts is None:
        return [value] if type(value) is torch.Tensor else []
    return [tensor for each in parts for tensor in _tensors(each, depth - 1)] if depth else []


def test_other_lists_than_the_rows_in_order() -> None:
    """Rows in another order, a row twice, or another tensor among them, are stacked as they are."""
    slot = core.SharedSlot(1 << 20)
    rows = PlacedRows(Arena(slot), 3)
    a, b, c = (rows.place(image(index)) for index in range(3))
    assert rows.stacked([a, b, c]) is not None
    for batch in ([b, a, c], [a, a, c], [a, b, image(2)], [image(0), b, c], [b, c], [a, b, c, a]):
        assert rows.stacked(batch) is None


def test_samples_unlike_the_first_keep_their_tensors() -> None:
    """Another shape, dtype or number of tensors; what is placed before and behind them stays right."""
    slot = core.SharedSlot(1 << 22)
    rows = PlacedRows(Arena(slot), 5)
    odd = [(image(0)[:, :70], 1), (image(0).float(), 1), (image(0), image(1)), image(0)]
    assert rows.place((image(7), 0))[0].data_ptr() >= slot.address
    for sample in odd:
        assert rows.place(sample) is sample


class Odd:
    def __init__(self, content: Any) -> None:
        self.content = content


@pytest.mark.parametrize(
    "sample",
    [
        image(0, torch.float32).requires_grad_(),
        (image(0).to_sparse(), 1),
        (torch.nn.Parameter(image(0, torch.float32)),),
        (image(0, torch.complex64).conj(),),
        {"small": torch.ones(3)},
        (np.ones(100_000, np.uint8),),
        Odd(image(0)),
        torch.ones(0, 5),
        "text",
    ],
)
def test_samples_without_rows(sample: Any) -> None:
    """Tensors of other kinds, small ones, and values of the program's own classes are left as they are."""
    slot = core.SharedSlot(1 << 22)
    placed = PlacedRows(Arena(slot), 4).place(sample)
    if isinstance(sample, tuple) and sample[0].dtype is torch.complex64:
        assert torch.equal(placed[0], sample[0])
    else:
        assert placed is sample


class Keeping(Dataset[Any]):
    """Keeps each sample that it has made, returns it again, and says whether it is as it was."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> Any:
        key = index % 12
        found = self.kept.setdefault(key, image(key))
        return found, torch.equal(found, image(key))


def test_what_a_dataset_keeps_is_never_in_a_slot() -> None:
    with FastLoader(Keeping(), batch_size=4, num_workers=2, persistent_workers=True) as loader:
        for _ in range(2):
            for batch, (images, whole) in enumerate(loader):
                assert bool(whole.all())
                for row, each in enumerate(images):
                    assert torch.equal(each, image((4 * batch + row) % 12))


def changing(index: int) -> Any:
    """Samples whose shapes change from batch to batch, and within the last one."""
    side = 60 + 10 * (index // 4 % 3) + (index == 46)
    return torch.full((3, side, side), float(index)), index


def test_shapes_that_change() -> None:
    """Between batches: batches are torch's. Within one: torch's error."""
    loaders = [
        kind(Made(changing, 48), batch_size=4, num_workers=2)  # type: ignore[operator]
        for kind in (DataLoader, FastLoader)
    ]
    found: list[list[Any]] = [[], []]
    errors = []
    for loader, batches in zip(loaders, found, strict=True):
        with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as met:
            for batch in loader:
                batches.append([each.clone() for each in batch])
        errors.append(str(met.value).splitlines()[-1])
    assert len(found[0]) == 11
    assert same(*found)


def failing(index: int) -> Any:
    if index % 5 == 3:
        raise ValueError("bad")
    return image(index), index


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_bad_samples(policy: str) -> None:
    """Rows and indices belong together where samples are left out or replaced."""
    with FastLoader(Made(failing, 100), batch_size=10, num_workers=2, on_error=policy) as loader:
        seen = 0
        for images, indices in loader:
            assert len(images) == len(indices)
            for each, index in zip(images, indices, strict=True):
                assert torch.equal(each, image(int(index)))
                seen += 1
    assert seen == (80 if policy == "skip" else 100)
