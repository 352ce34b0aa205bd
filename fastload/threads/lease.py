"""A finished slot as tensors. The tensors own the lease: the slot is refilled only after the last view of it is freed."""

from __future__ import annotations

import torch

from fastload._native import core

_DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def images_of(batch: core.Batch, output: core.Output) -> torch.Tensor:
    """Leases a ready batch: (rows, 3, height, width), channels_last memory for layout "HWC", contiguous for "CHW". No copy."""
    rows, (width, height) = batch.rows, batch.size
    flat = torch.frombuffer(batch.lease(), dtype=_DTYPES[output.dtype])
    if output.layout == "CHW":
        return flat.view(rows, 3, height, width)
    return flat.view(rows, height, width, 3).permute(0, 3, 1, 2)
