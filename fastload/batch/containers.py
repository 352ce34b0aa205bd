"""Containers of a batch: its tensors one by one, a change of each, its parts by their places, and the way to
a device.

A batch is a tensor, or a mapping, list, tuple or named tuple of batches, or an object of any other kind.
Containers keep their type. An object that has a method `to` of its own (transformers' BatchEncoding,
PackedSequence, a graph of PyG) moves itself to a device; any other stays as it is. torch.utils._pytree is not
used: it takes a subclass of dict or list for a single object, so its tensors would stay where they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from fastload.errors import BatchShapeError
from fastload.store.form import Path


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


class PatchedImages(NamedTuple):
    """The patches of an image, or of those of a batch, one after another.

    Attributes:
        pixel_values: (P, channels * temporal * patch * patch).
        image_grid_thw: int64 (I, 3): 1, and the patches down and across, of each image.
    """

    pixel_values: torch.Tensor
    image_grid_thw: torch.Tensor

    @classmethod
    def of(
        cls, values: torch.Tensor, form: tuple[int, int, int], channels: int, sizes: npt.NDArray[np.int64]
    ) -> PatchedImages:
        """The images in flat values.

        Args:
            values: all values, one after another.
            form: (patch, merge, temporal).
            channels: number of channels of the images.
            sizes: width and height of each, pixels, (I, 2).
        """
        patch, _, temporal = form
        grids = np.ones((len(sizes), 3), np.int64)
        grids[:, 1:] = sizes[:, ::-1] // patch
        size = channels * temporal * patch * patch
        return cls(values.view(values.numel() // size, size), torch.from_numpy(grids))

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor]) -> PatchedImages:
        """The images with `change` of all values, which it gets as RGB images (P, 3, rest, 1)."""
        values = self.pixel_values
        images = values.view(len(values), 3, values.shape[1] // 3, 1)
        return self._replace(pixel_values=change(images).view(values.shape))


def joined_patches(images: Sequence[PatchedImages], **_: object) -> PatchedImages:
    """The images of several samples as those of a batch; also for torch's default_collate, which hands in its
    table of functions. Raises BatchShapeError where their patches differ."""
    forms = {(each.pixel_values.shape[1], str(each.pixel_values.dtype)) for each in images}
    if len(forms) > 1:
        shown = [f"{count} values of {dtype}" for count, dtype in sorted(forms)]
        raise BatchShapeError(
            f"samples of one batch have patches of {shown[0]} and of {shown[1]}: give all datasets "
            "the same Patches"
        )
    return PatchedImages(*(torch.cat(each) for each in zip(*images, strict=True)))


default_collate_fn_map[PatchedImages] = joined_patches  # as its documentation tells to extend it


def to_device(batch: object, device: torch.device, *, closed: bool = True) -> object:
    """Moves every tensor of a batch, and every object that moves itself. To CUDA the host does not wait: what
    is not pinned yet is pinned for it.

    Args:
        batch: the batch.
        device: the device that it goes to.
        closed: also objects that move themselves and do not show which tensors they hold (is_closed).
    """

    def change(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return _moved(value, device)
        return _moved_by_itself(value, device) if closed or not is_closed(value) else value

    return _each(batch, change, _moves_itself)


def each_tensor(batch: object, change: Callable[[torch.Tensor], Any]) -> object:
    """The batch with `change` of each tensor in its containers; the rest as it is."""
    return _each(
        batch, lambda value: change(value) if isinstance(value, torch.Tensor) else value, lambda value: False
    )


def _each(batch: object, change: Callable[[Any], Any], is_leaf: Callable[[Any], bool]) -> object:
    """The batch with `change` of everything that is no container, or that `is_leaf` takes for none."""
    if isinstance(batch, torch.Tensor) or is_leaf(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: _each(value, change, is_leaf) for key, value in batch.items()})
    if isinstance(batch, list | tuple):
        return sequence_like(type(batch), [_each(value, change, is_leaf) for value in batch])
    return change(batch)


def tensors_of(batch: object) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, in order."""
    return (leaf for leaf in leaves_of(batch) if isinstance(leaf, torch.Tensor))


def leaves_of(batch: object) -> Iterator[Any]:
    """Everything in a batch that is no container, in order."""
    if isinstance(batch, Mapping | list | tuple):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves_of(value)
    else:
        yield batch


def is_closed(value: object) -> bool:
    """Returns True if an object moves itself to a device, and nobody can tell which stream uses its
    memory."""
    shown = isinstance(value, torch.Tensor | Mapping | list | tuple) or callable(
        getattr(type(value), "record_stream", None)
    )
    return not shown and _moves_itself(value)


def record_stream(batch: object, stream: object) -> None:
    """Tells torch's allocator that a stream uses a batch's memory on its device."""
    for leaf in leaves_of(batch):
        if isinstance(leaf, torch.Tensor):
            recorded = leaf.is_cuda
        else:
            recorded = callable(getattr(type(leaf), "record_stream", None))
        if recorded:
            leaf.record_stream(stream)


def _moves_itself(value: object) -> bool:
    return type(value) not in (dict, list, tuple) and callable(getattr(type(value), "to", None))


def _moved_by_itself(value: Any, device: torch.device) -> object:
    """The object on a device, by its own `to`, which may also change the object and return nothing."""
    if not _moves_itself(value):
        return value
    try:
        moved = value.to(device, non_blocking=True)
    except TypeError:  # its `to` knows no non_blocking
        moved = value.to(device)
    return value if moved is None else moved


def _mapping_like(mapping: Mapping[Any, Any], values: dict[Any, Any]) -> object:
    """The values in a mapping of the same type, as torch's pin_memory makes one: a copy that is updated,
    else a new one; else a dict."""
    if type(mapping) is dict:
        return values
    try:
        if isinstance(mapping, MutableMapping):
            other = copy.copy(mapping)
            other.update(values)
            return other
        kind: type[Any] = type(mapping)
        return kind(values)
    except TypeError:
        return values


def sequence_like(kind: type[Any], values: Iterable[Any]) -> object:
    """The values as a list, tuple or named tuple of this type."""
    return kind(*values) if issubclass(kind, tuple) and hasattr(kind, "_fields") else kind(values)


def has_part(batch: object, path: Path) -> bool:
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


def with_part(batch: Any, path: Path, value: Any) -> object:
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
