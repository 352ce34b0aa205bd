"""Pinned slots of worker processes, on a real device."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset

from fastload import FastLoader

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


class Constant(Dataset[torch.Tensor]):
    """Sample i is a large tensor full of i."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 20,), index, dtype=torch.int32)


def test_batches_are_pinned_where_they_lie() -> None:
    """The tensors are pinned, and without a pin thread or a copy: their memory is the slot's."""
    with FastLoader(Constant(), batch_size=4, num_workers=2, pin_memory=True) as loader:
        for batch in loader:
            assert batch.is_pinned()


def test_dropped_batch_is_copied_whole() -> None:
    """A batch dropped right after its copy was queued reaches the device unchanged, however soon the slot could be refilled."""
    with FastLoader(Constant(), batch_size=4, num_workers=2, pin_memory=True) as loader:
        stalled = torch.cuda.Stream()
        copies = []
        with torch.cuda.stream(stalled):
            for batch in loader:
                torch.cuda._sleep(20_000_000)
                copies.append(batch.to("cuda", non_blocking=True))
                del batch
        torch.cuda.synchronize()
    for k, copied in enumerate(copies):
        expected = torch.arange(4 * k, 4 * k + 4, device="cuda", dtype=torch.int32)
        assert torch.equal(copied, expected[:, None].expand_as(copied))
