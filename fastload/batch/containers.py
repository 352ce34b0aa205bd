"""Containers of a batch: its tensors one by one, a change of each, its parts by their places, and the way to a device.

A batch is a tensor, or a dict, list, tuple or named tuple of batches, or an object of any other kind, which stays as it is. Lists, tuples
and named tuples keep their type, and dicts of any type become dict. torch.utils._pytree is not used: it takes a subclass of dict or list
for a single object, so its tensors would stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

Path = tuple[Any, ...]
"""Keys and positions that lead to a part of a sample or a batch."""


class Padded(NamedTuple):
    """Rows of a batch's samples, each sample filled up to the most rows of one.

    Attributes:
        values: (B, N, ...).
        mask: bool (B, N): which rows are a sample's own.
        lengths: int64 (B,): how many they are; they come first.
    """

    values: torch.Tensor
    mask: torch.Tensor
    lengths: torch.Tensor


class Flat(NamedTuple):
    """Rows of a batch's samples one after another: torch.nested's form.

    Attributes:
        values: (T, ...).
        offsets: int64 (B + 1,): sample i has the rows from offsets[i] to offsets[i + 1].
    """

    values: torch.Tensor
    offsets: torch.Tensor


def to_device(batch: Any, device: torch.device) -> Any:
    """Moves every tensor of a batch of the usual containers. To CUDA the host does not wait: what is not pinned yet is pinned for it."""
    return each_tensor(batch, lambda tensor: _moved(tensor, device))


def each_tensor(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The batch with `change` of each tensor in its dicts, lists, tuples and named tuples; the rest as it is."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: each_tensor(value, change) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return sequence_like(type(batch), [each_tensor(value, change) for value in batch])
    return batch


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, in order."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict | list | tuple):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_of(value)


def sequence_like(kind: type[Any], values: Iterable[Any]) -> Any:
    """The values as a list, tuple or named tuple of this type."""
    return kind(*values) if issubclass(kind, tuple) and hasattr(kind, "_fields") else kind(values)


def has_part(batch: Any, path: Path) -> bool:
    """Returns True if a batch has a part at a path."""
    for key in path:
        if isinstance(batch, dict):
            if key not in batch:
                return False
        elif not isinstance(batch, list | tuple) or not isinstance(key, int) or key >= len(batch):
            return False
        batch = batch[key]
    return True


def part_at(batch: Any, path: Path) -> Any:
    """The part of a batch at a path."""
    for key in path:
        batch = batch[key]
    return batch


def with_part(batch: Any, path: Path, value: Any) -> Any:
    """A batch of the same type with another value at that place."""
    if not path:
        return value
    key, *rest = path
    value = with_part(batch[key], tuple(rest), value)
    if isinstance(batch, dict):
        return {**batch, key: value}
    return sequence_like(type(batch), [value if at == key else each for at, each in enumerate(batch)])


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
