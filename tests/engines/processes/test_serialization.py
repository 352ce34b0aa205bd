"""A batch comes out of its slot and envelope as it went in; its slot is held as long as anything views it,
and never handed out before."""

from __future__ import annotations

import gc
import itertools
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worker_values import PLAIN, Pair, arrays, containers, numbers, odd_tensors, plain, plain_tensors, same

from fastload._native import core
from fastload.engines.processes.serialization import ALIGN, Arena, BatchPickler, unpack
from fastload.errors import ClosedError

quick = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
# torch says once per process that nested tensors are a prototype, and quantized ones deprecated
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
anything = containers(st.one_of(plain_tensors(), odd_tensors(), arrays(), plain))


def carried(batch: Any, room: int = 1 << 20) -> tuple[Any, core.SharedSlot, BatchPickler]:
    """The batch after its way through a slot, which must not be too small."""
    slot, packer = core.SharedSlot(room), BatchPickler()
    arena = Arena(slot)
    envelope = packer.pack(batch, arena)
    assert not arena.overflowed
    return unpack(envelope, core.SharedSlot(fd=os.dup(slot.fd))), slot, packer


@quick
@given(anything)
def test_round_trip(batch: Any) -> None:
    """Any structure of tensors, arrays and objects arrives equal: types, dtypes, shapes, and strides where
    dense."""
    got, _, _ = carried(batch)
    assert same(batch, got)


@quick
@given(anything)
def test_too_small_a_slot(batch: Any) -> None:
    """Where the slot is too small, nothing is written beyond it, and packing again into `needed` bytes
    gives the batch."""
    packer = BatchPickler()
    for slot in (None, core.SharedSlot(1)):
        arena = Arena(slot)
        envelope = packer.pack(batch, arena)
        if arena.overflowed:
            slot = core.SharedSlot(arena.needed)
            again = Arena(slot)
            envelope = packer.pack(batch, again)
            assert not again.overflowed
            assert again.needed == arena.needed
        assert same(batch, unpack(envelope, slot))


@quick
@given(st.lists(plain_tensors(), max_size=6))
def test_tensors_are_aligned_views_of_the_slot(tensors: list[torch.Tensor]) -> None:
    """Dense tensors lie in the slot, each at a multiple of ALIGN, apart from each other, and none goes by
    value."""
    slot, packer = core.SharedSlot(1 << 20), BatchPickler()
    got = unpack(packer.pack(tensors, Arena(slot)), slot)
    assert packer.by_value == 0
    spans = []
    for tensor in got:
        if tensor.numel():
            at = tensor.data_ptr() - slot.address
            assert at % ALIGN == 0
            spans.append((at, at + tensor.numel() * tensor.element_size()))
            assert 0 <= at < spans[-1][1] <= slot.bytes
    spans.sort()
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_arena_tensors_are_not_copied(dtype: torch.dtype) -> None:
    """A tensor made by Arena.empty is where it was when it is unpacked, and takes its room once."""
    slot = core.SharedSlot(1 << 16)
    arena = Arena(slot)
    made = arena.empty((3, 5), dtype)
    made.copy_(numbers((3, 5), dtype, 1))
    taken = arena.needed
    body = BatchPickler().pack({"x": made, "same": made, "part": made[1]}, arena)
    assert arena.needed == taken
    got = unpack(body, slot)
    assert got["x"].data_ptr() == made.data_ptr()
    assert got["part"].data_ptr() == made[1].data_ptr()
    assert torch.equal(got["x"], numbers((3, 5), dtype, 1))


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), max_size=3).map(tuple), st.sampled_from(PLAIN)), max_size=12
    )
)
@quick
def test_arena_gives_room_once(asked: list[tuple[tuple[int, ...], torch.dtype]]) -> None:
    """Tensors of an arena never overlap, whether the slot has room or not, and all arrive with their
    values."""
    slot = core.SharedSlot(8192)
    arena = Arena(slot)
    made = [arena.empty(shape, dtype) for shape, dtype in asked]
    for number, tensor in enumerate(made):
        tensor.copy_(numbers(tuple(tensor.shape), tensor.dtype, number))
    envelope = BatchPickler().pack(made, arena)
    if arena.overflowed:
        slot = core.SharedSlot(arena.needed)
        envelope = BatchPickler().pack(made, Arena(slot))
    for number, (tensor, (shape, dtype)) in enumerate(zip(unpack(envelope, slot), asked, strict=True)):
        assert torch.equal(tensor, numbers(shape, dtype, number))


def test_identity_is_kept() -> None:
    """The same tensor, array or list twice in a batch is one object afterwards, placed once."""
    tensor, array, inner = torch.arange(9), np.zeros(5000), [1]
    got, _, _ = carried([tensor, array, inner, {"again": tensor}, Pair(array, inner)])
    assert got[3]["again"] is got[0]
    assert got[4].first is got[1]
    assert got[4].second is got[2]


def test_local_things_travel() -> None:
    """Lambdas and objects of local classes travel as well, with their tensors in the slot."""

    class Local:
        def __init__(self) -> None:
            self.tensor = torch.arange(7)

    got, _, packer = carried({"f": lambda x: x + 1, "local": Local(), "t": torch.ones(3, 4)})
    assert got["f"](1) == 2
    assert torch.equal(got["local"].tensor, torch.arange(7))
    assert torch.equal(got["t"], torch.ones(3, 4))
    assert packer.by_value == 0
    large = {"f": lambda x: x, "t": torch.ones(3, 1 << 12)}
    assert len(packer.pack(large, Arena(core.SharedSlot(1 << 20)))) < large["t"].nbytes // 8


def test_what_goes_by_value_is_counted() -> None:
    """Tensors that are more than dense numbers are counted, for each batch anew."""
    packer = BatchPickler()
    odd = [
        torch.ones(2, requires_grad=True),
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, dtype=torch.complex64).conj(),
    ]
    packer.pack([*odd, torch.ones(2)], Arena(core.SharedSlot(4096)))
    assert packer.by_value == 3
    packer.pack([torch.ones(2)], Arena(core.SharedSlot(4096)))
    assert packer.by_value == 0


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_tv_tensors_lie_in_the_slot(dtype: torch.dtype) -> None:
    """torchvision's tensors keep their class and attributes, of every dtype, and view the slot; one that
    is there twice is one object."""
    tv = pytest.importorskip("torchvision.tv_tensors")
    slot, packer, values = core.SharedSlot(1 << 16), BatchPickler(), numbers((6, 4), dtype, 1)
    boxes = tv.BoundingBoxes(values, format="XYWH", canvas_size=(7, 9))
    got = unpack(
        packer.pack([boxes, {"mask": tv.Mask(values)}, tv.Mask(values[:, 1:3]), boxes], Arena(slot)), slot
    )
    assert packer.by_value == 0
    assert (type(got[0]), type(got[1]["mask"])) == (tv.BoundingBoxes, tv.Mask)
    assert got[3] is got[0]
    assert vars(got[0]) == vars(boxes)
    assert got[0].canvas_size == (7, 9)
    for tensor, wanted in ((got[0], values), (got[1]["mask"], values), (got[2], values[:, 1:3])):
        assert slot.address <= tensor.data_ptr() < slot.address + slot.bytes
        assert torch.equal(tensor.as_subclass(torch.Tensor), wanted)


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_lie_in_the_slot(order: Any) -> None:
    """Arrays from ARRAY_LEAST bytes on are views of the slot, writable, in their own order."""
    array = np.asarray(np.arange(6000, dtype=">i4").reshape(20, 300), order=order)
    slot = core.SharedSlot(1 << 16)
    envelope = BatchPickler().pack(array, Arena(slot))
    assert len(envelope) < 500
    got = unpack(envelope, slot)
    assert same(array, got)
    assert got.flags.f_contiguous == array.flags.f_contiguous
    got[0, 0] = 7
    assert slot.leased
    del got
    assert not slot.leased


# ---- leases


@pytest.mark.usefixtures("no_leaks")
def test_leased_until_the_last_view_is_gone() -> None:
    """A slot is leased while a tensor, a view of one, or an array of its batch lives, and only then can be
    unpacked again."""
    slot = core.SharedSlot(1 << 16)
    envelope = BatchPickler().pack({"x": torch.arange(100), "y": np.zeros(3000)}, Arena(slot))
    batch = unpack(envelope, slot)
    assert slot.leased
    part, numpy = batch["x"][3:5], batch["y"][10:]
    del batch
    assert slot.leased
    with pytest.raises(ClosedError):
        unpack(envelope, slot)
    assert part.tolist() == [3, 4]
    del part
    assert slot.leased
    del numpy
    gc.collect()
    assert not slot.leased
    assert unpack(envelope, slot)["x"][7] == 7
    assert not slot.leased
    assert not slot.retired


@pytest.mark.usefixtures("no_leaks")
def test_views_outlive_the_slot_object() -> None:
    """Tensors stay valid when everything else that knew the slot is gone."""
    slot = core.SharedSlot(1 << 16)
    got = unpack(BatchPickler().pack(torch.arange(1000), Arena(slot)), slot)
    del slot
    gc.collect()
    assert torch.equal(got, torch.arange(1000))


def test_a_batch_without_tensors_leases_nothing() -> None:
    """Strings, numbers and tensors by value leave the slot free."""
    slot = core.SharedSlot(4096)
    batch = unpack(
        BatchPickler().pack(["a", 1, torch.ones(3, requires_grad=True), torch.empty(0)], Arena(slot)), slot
    )
    assert not slot.leased
    assert batch[0] == "a"


def test_no_slot_for_an_envelope_that_needs_one() -> None:
    """An envelope whose tensors lie in a slot is refused without it, and leaves nothing leased."""
    slot = core.SharedSlot(4096)
    envelope = BatchPickler().pack([torch.ones(3)], Arena(slot))
    with pytest.raises(RuntimeError, match="without one"):
        unpack(envelope, None)
    assert not slot.leased


def test_unpacking_that_fails_frees_the_slot() -> None:
    """When the rest of a batch cannot be unpickled, its slot is free again."""
    slot = core.SharedSlot(4096)
    envelope = BatchPickler().pack([torch.ones(3), Refused()], Arena(slot))
    with pytest.raises(ValueError, match="no such thing"):
        unpack(envelope, slot)
    gc.collect()
    assert not slot.leased


class Refused:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("no such thing")


def test_retired_after_a_fork() -> None:
    """A slot whose batch was held across a fork is retired: the child may still look at it, and sees what
    was there."""
    slot = core.SharedSlot(4096)
    envelope = BatchPickler().pack(torch.arange(50), Arena(slot))
    batch = unpack(envelope, slot)
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0 if torch.equal(batch, torch.arange(50)) else 1)
    os.close(ready)
    del batch
    assert not slot.leased
    assert slot.retired
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0
    free = core.SharedSlot(4096)
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    unpack(envelope, free)
    assert not free.retired  # no batch of it was held when the process forked
