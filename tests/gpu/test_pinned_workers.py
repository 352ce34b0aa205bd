"""Pinned slots of worker processes, on a real device."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset

from fastload import FastLoader
from fastload.device import cuda_runtime

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


class Constant(Dataset[torch.Tensor]):
    """Sample i is a large tensor full of i."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 20,), index, dtype=torch.int32)


def test_batches_are_pinned_where_they_lie() -> None:
    """The tensors are pinned, and without a pin thread; where the driver can record contexts without a
    copy: explain() says which."""
    with FastLoader(Constant(), batch_size=4, num_workers=2, pin_memory=True) as loader:
        for batch in loader:
            assert batch.is_pinned()
        registered = loader._fastload.plan.host_memory == "registered"
        assert registered == cuda_runtime.runtime().records_contexts
        assert ("registered with the driver" in loader.explain(all=True)) == registered


@pytest.mark.parametrize("inside", [True, False])
def test_dropped_batch_is_copied_whole(inside: bool) -> None:
    """A batch dropped right after its copy was queued, on that stream or outside of it, reaches the device
    unchanged, however soon the slot could be refilled."""
    with FastLoader(Constant(), batch_size=4, num_workers=2, pin_memory=True) as loader:
        stalled = torch.cuda.Stream()
        copies = []
        for batch in loader:
            with torch.cuda.stream(stalled):
                torch.cuda._sleep(20_000_000)
                copies.append(batch.to("cuda", non_blocking=True))
                if inside:
                    del batch
            if not inside:
                del batch
        torch.cuda.synchronize()
    for k, copied in enumerate(copies):
        expected = torch.arange(4 * k, 4 * k + 4, device="cuda", dtype=torch.int32)
        assert torch.equal(copied, expected[:, None].expand_as(copied))
