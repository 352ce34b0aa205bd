"""FastLoader's arguments against its dataset: what is refused, and what is warned of, when a loader is made."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import IterableDataset

from fastload.device.batch_transform import has_floats
from fastload.errors import ArgumentError


def refuse_without_use(dataset: Any, *, num_workers: int, timeout: Any, seed_by: Any, unbatched: bool, batch_transform: Any) -> None:
    """Refuses arguments that have nothing to act on.

    Raises:
        ArgumentError: seed_by= without indices, timeout= without workers, or batch_transform= without batches.
    """
    if seed_by is not None and isinstance(dataset, IterableDataset):
        raise ArgumentError('seed_by="sample" needs indices: an IterableDataset has none')
    if num_workers == 0 and isinstance(timeout, int | float) and timeout > 0:
        raise ArgumentError(f"timeout={timeout} bounds the wait for workers, and num_workers=0 has none: drop one of them")
    if batch_transform is not None and unbatched:
        raise ArgumentError("batch_transform= acts on batches, and batch_size=None makes none")


def warn_unused(worker_init_fn: Any, multiprocessing_context: Any) -> None:
    """Warns of arguments that native threads do not need."""
    if worker_init_fn is not None:
        warnings.warn(
            "worker_init_fn is not called on packed data: native threads run no Python, and random transforms follow seed=",
            stacklevel=3,
        )
    if multiprocessing_context is not None:
        warnings.warn("multiprocessing_context is not used on packed data: threads need no start method", stacklevel=3)


def refuse_native_only(batch_transform: Any, **arguments: Any) -> None:
    """Refuses the form of batches where fastload does not make them: on a dataset that is not packed, without floats of its own."""
    for name, value in arguments.items():
        if value is not None and not has_floats(batch_transform):
            raise ArgumentError(
                f"{name}= acts on packed data only, or with Normalize or ToFloat in batch_transform=; this dataset is not a PackedDataset"
            )


def refuse_on_error(dataset: Any, on_error: str) -> None:
    """Refuses on_error= where a sample can be neither left out nor replaced."""
    if on_error != "raise" and isinstance(dataset, IterableDataset):
        raise ArgumentError(
            f'on_error="{on_error}" leaves out samples by their index, and an IterableDataset has none: an iterator that has raised is at '
            "its end. Catch the error inside __iter__, and go on there"
        )
    if on_error == "replace" and not hasattr(dataset, "__len__"):
        raise ArgumentError(
            f'on_error="replace" chooses substitutes among the samples, and {type(dataset).__name__} has no __len__: add it, or use "skip"'
        )
