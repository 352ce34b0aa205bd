"""Collate: makes batches of samples whose parts differ in size: as lists, padded to the largest, or one after
another.

| part of a sample | "list" | "padded" | "flat" |
|---|---|---|---|
| numbers, arrays of fixed shape | a list | one tensor, as default_collate makes it | the same |
| rows of any number: boxes, keypoints, instances, arrays | a list | Padded (B, N, ...) | Flat (T, ...) |
| images and masks | a list | one tensor; with pad_to= Padded (B, C, H, W) or (B, H, W) | the same |
| texts, bytes, JSON values, polygons | a list | a list | a list |

The schema of packed data says what each part is. In other datasets it follows from the sample alone, so that
all batches are alike:
- The image has three dimensions. In a tuple it stands first; in a dict it has the key "image", or else stands
  first.
- A list or tuple of such images is the image's views.
- A further part with the dtype and the channels of the image is an image too if it has floats; with integers,
  if the sample has no rows (two dimensions or one) beside it and no key calls it a mask. So is each entry of
  a tuple that has nothing else.
- Of the other parts, a tensor (height, width) as large as the image is a mask, and (number, height, width)
  are instances.
- Every other tensor or array of one dimension or more has rows of any number; an empty list among tensors has
  none.
- torchvision's tv_tensors say themselves what they are.
- Numbers that are None in a sample of the batch become a list.

`what_differs` words the error for samples of one batch that differ in shape where default_collate stacks
them.

NOTE [ unequal samples: which error ]
Samples of packed data and of files in place make a BatchShapeError. A Dataset of the user's own gets torch's
error, as under DataLoader, with the same words: from a worker process below torch's first line, without a
traceback, which would show torch's code alone; in the calling process as a note on it (where Python has
notes, from 3.11; before, as its cause).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from fastload.batch.containers import Flat, Padded, PatchedImages, joined_patches, sequence_like
from fastload.errors import ArgumentError, BatchShapeError, FastloadError
from fastload.store.form import Path
from fastload.store.kinds.base import Collated


class Difference(NamedTuple):
    """A part that differs between two samples of a batch.

    Attributes:
        path: path of the part in a sample.
        rows: rows of the two samples in the batch.
        sizes: shape or type of the part in each of the two, in words.
        is_image: True if it has three dimensions, the last two of which differ.
    """

    path: Path
    rows: tuple[int, int]
    sizes: tuple[str, str]
    is_image: bool = False


def difference(samples: Sequence[Any], path: Path = ()) -> Difference | None:
    """The first part of some samples that default_collate cannot stack; None if they agree in shape."""
    first = samples[0]
    if isinstance(first, Mapping):
        inner = (
            (key, [each[key] for each in samples])
            for key in first
            if all(isinstance(s, Mapping) and key in s for s in samples)
        )
        return next((found for key, parts in inner if (found := difference(parts, (*path, key)))), None)
    if isinstance(first, list | tuple):
        if not all(isinstance(each, list | tuple) for each in samples):
            return None
        counts = [len(each) for each in samples]
        if (row := _other(counts)) is not None:
            return Difference(path, (0, row), (_entries(counts[0]), _entries(counts[row])))
        return next(
            (
                found
                for at, parts in enumerate(zip(*samples, strict=True))
                if (found := difference(parts, (*path, at)))
            ),
            None,
        )
    if not all(isinstance(each, Tensor | np.ndarray) for each in samples):
        return None
    shapes = [tuple(each.shape) for each in samples]
    if (row := _other(shapes)) is None:
        return None
    is_image = len(shapes[0]) == len(shapes[row]) == 3 and shapes[0][0] == shapes[row][0]
    return Difference(path, (0, row), (f"the shape {shapes[0]}", f"{shapes[row]}"), is_image)


def _other(values: Sequence[Any]) -> int | None:
    """The position of the first value that is not the first one."""
    return next((row for row, value in enumerate(values) if value != values[0]), None)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def what_differs(samples: Sequence[Any], indices: Sequence[Any] | None) -> str:
    """One sentence on the first part that default_collate cannot stack, and what to do; "" if there is none.

    Args:
        samples: samples of the batch.
        indices: their indices in the dataset; None if it has none.
    """
    found = difference(samples)
    if found is None:
        return ""
    one, other = (
        f"{size} at {_named_row(row, samples, indices)}"
        for size, row in zip(found.sizes, found.rows, strict=True)
    )
    way = (
        ", with pad_to= as these are images, or end the transform at one size, such as Resize((224, 224))"
        if found.is_image
        else ""
    )
    return (
        f"{_part(found.path)} has {one} and {other} of one batch, and without collate= a batch has "
        "one tensor for it: pass "
        f'collate="list", "padded" or "flat" to FastLoader{way}'
    )


def _named_row(row: int, samples: Sequence[Any], indices: Sequence[Any] | None) -> str:
    return f"row {row}" if indices is None or len(indices) != len(samples) else f"index {indices[row]}"


def _part(path: Path) -> str:
    return "sample" + "".join(f"[{key!r}]" for key in path)


def what_is_no_number(samples: Sequence[Any], indices: Sequence[Any] | None) -> str:
    """One sentence on the first Pillow image or None in some samples, of which default_collate makes no
    tensor; "" if there is none."""
    pillow = getattr(sys.modules.get("PIL.Image"), "Image", ())
    for row, sample in enumerate(samples):
        for path, leaf in _leaves(sample):
            at = f"{_part(path)} at {_named_row(row, samples, indices)}"
            if leaf is None:
                return f"{at} is None: return a number or a tensor there, or leave that part out"
            if isinstance(leaf, pillow):
                return f"{at} is a Pillow image: end the transform with ToTensor()"
    return ""


def _leaves(part: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(part, Mapping | list | tuple):
        for key, inner in part.items() if isinstance(part, Mapping) else enumerate(part):
            yield from _leaves(inner, (*path, key))
    else:
        yield path, part


def advice_on(
    error: Exception, samples: Sequence[Any], indices: Sequence[Any] | None, *, packed: bool
) -> str:
    """Advice to add to an error of default_collate; "" if there is none.

    Args:
        error: the error that it has raised for these samples.
        samples, indices: as for what_differs().
        packed: True if they are packed data, or files in place.

    Raises:
        BatchShapeError: they are packed or in place, and differ. See NOTE [ unequal samples: which error ].
    """
    try:
        advice = "" if isinstance(error, FastloadError) else what_differs(samples, indices)
        strange = "" if advice or isinstance(error, FastloadError) else what_is_no_number(samples, indices)
    except Exception:  # samples of a stranger's classes must not hide what torch says of them
        return ""
    if advice and packed:
        raise BatchShapeError(advice) from None
    return advice or strange


def advise(error: BaseException, advice: str) -> None:
    """Lets an error's traceback end with advice; its class and text stay. Nothing for ""."""
    if advice and hasattr(error, "add_note"):
        error.add_note(advice)
    elif advice:
        error.__cause__ = BatchShapeError(advice)


class AdvisedCollate:
    """default_collate in the calling process, with advice on its errors.

    Attributes:
        indices: indices of the samples in the next batch; None if they have none.
    """

    def __init__(self, packed: bool) -> None:
        self.indices: Sequence[Any] | None = None
        self._packed = packed

    def __call__(self, samples: Sequence[Any]) -> object:
        try:
            return default_collate(samples)  # type: ignore[arg-type]
        except (RuntimeError, TypeError) as error:
            advise(error, advice_on(error, samples, self.indices, packed=self._packed))
            raise


CollateForm = Literal["list", "padded", "flat"]
FORMS: tuple[str, ...] = get_args(CollateForm)
IMAGE = "image"
"""Key of the image in samples that are dicts, where no schema says it."""
_MASKS = ("mask", "instance", "segment")
"""Words by which a dict's key says that integers are no image."""
_TV_CLASSES: dict[str, Collated] = {"Image": "picture", "BoundingBoxes": "rows", "KeyPoints": "rows"}


@dataclass(frozen=True)
class Collate:
    """A collate_fn that makes batches of one form; see the table above.

    With form="list" a tuple of parts becomes a list with a list for each part, `[images, targets]` for
    detection's `(image, target)`, and samples of any other kind stay one by one in a list. With the others
    the structure of a sample is kept, and tuples become lists, as default_collate does it. A sample's own
    lists stay as they are, in a list, but for the list of an image's views.

    Attributes:
        form: "list", "padded" or "flat".
        pad_to: images and masks of different sizes are padded with zeros below and on the right, to the
            largest height and width of the batch, each rounded up to a multiple of pad_to. None: all have one
            size.
        kinds: forms of joining of a sample's parts, in its structure: `fastload.store.kinds.base.Collated`
            has them. None, for all or a part: the form follows from the samples.

    Raises:
        ArgumentError: no such form; pad_to is no positive number, or goes with "list".
    """

    form: CollateForm
    pad_to: int | None = None
    kinds: object = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ArgumentError(f'collate={self.form!r}: choose "list", "padded" or "flat"')
        if self.pad_to is None:
            return
        if isinstance(self.pad_to, bool) or not isinstance(self.pad_to, int) or self.pad_to < 1:
            raise ArgumentError(f"pad_to={self.pad_to!r}: give a number of pixels, 1 or more")
        if self.form == "list":
            raise ArgumentError(
                'pad_to= pads the images of a batch, and collate="list" leaves each as it is: drop '
                'it, or use "padded"'
            )

    def __str__(self) -> str:
        """The form as the loader's arguments name it."""
        return f'collate="{self.form}"' + ("" if self.pad_to is None else f", pad_to={self.pad_to}")

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The batch of these samples.

        Raises:
            BatchShapeError: images or masks have different sizes, and pad_to is None.
            ArgumentError: rows of one part have different shapes, or a part is a tensor in one sample and
                none in another.
        """
        if self.form == "list":
            return _listed(samples)
        return self.finish(self._collated(samples, self.kinds, (), _Image.of(samples)), samples)

    def finish(
        self, batch: Any, samples: Sequence[Any] | None = None, counts: Sequence[int] | None = None
    ) -> Any:
        """The batch, of one that is made of whole fields in this form.

        Args:
            batch: whole fields.
            samples: the samples that they were made of; None: native threads made the fields.
            counts: number of images of each of their samples; None: one.
        """
        return batch

    def _collated(self, values: Sequence[Any], kinds: object, path: tuple[Any, ...], image: _Image) -> object:
        values = _without_lists(values)
        first = values[0]
        if isinstance(first, PatchedImages):
            return joined_patches(values)
        if isinstance(kinds, str) and (kinds == "list" or not isinstance(first, Mapping)):
            return self._part(values, kinds, path)
        if image.has_views(values, path):
            return self._part(values, "picture", path)
        if isinstance(first, Mapping):
            inner = kinds if isinstance(kinds, Mapping) else {}
            return {
                key: self._collated(_at(values, key, path), inner.get(key), (*path, key), image)
                for key in first
            }
        if isinstance(first, tuple) or (isinstance(first, list) and not path):
            known = (
                kinds if isinstance(kinds, list | tuple) and len(kinds) == len(first) else [None] * len(first)
            )
            parts = [
                self._collated(_at(values, at, path), each, (*path, at), image)
                for at, each in enumerate(known)
            ]
            return sequence_like(type(first), parts) if hasattr(first, "_fields") else parts
        return self._part(values, _collated_as(values, path, image), path)

    def joined(self, values: Sequence[Any], kind: Collated, name: str) -> object:
        """One part of a batch whose form of joining is known."""
        return self._part(values, kind, (name,))

    def _part(self, values: Sequence[Any], form: str, path: tuple[Any, ...]) -> object:
        """One part of the batch."""
        if form == "list":
            return list(values)
        if form == "picture":
            if isinstance(values[0], list | tuple):
                return [
                    self._images(_tensors(views, (*path, at)), (*path, at))
                    for at, views in enumerate(_views_of(values, path))
                ]
            return self._images(_tensors(values, path), path)
        if form == "image_rows" and isinstance(values[0], list):
            if self.pad_to is not None:
                raise ArgumentError(
                    f"{_named(path)}: any number of images is padded where the transform gives them "
                    "one size: end it with Resize((height, width)), or leave out pad_to="
                )
            return list(values)
        if form in ("rows", "masks", "image_rows"):
            tensors = _as_rows(_tensors(values, path))
            tail = self._tail(tensors, form == "masks", path)
            return _flat(tensors, tail) if self.form == "flat" else _padded(tensors, tail)
        return default_collate(list(values))

    def _images(self, images: Sequence[Tensor], path: tuple[Any, ...]) -> Tensor | Padded:
        if self.pad_to is None:
            _require_one_size(images, path)
            stacked = torch.stack(list(images))
            if _are_last(stacked.shape, images):
                return stacked.contiguous(memory_format=torch.channels_last)
            return stacked
        height, width = self._frame(images)
        if len({image.shape[:-2] for image in images}) > 1:
            raise ArgumentError(
                f"{_named(path)}: images of one batch have different channels: "
                f"{_two(each.shape for each in images)}"
            )
        values = _zeros((len(images), *images[0].shape[:-2], height, width), images)
        mask = values.new_zeros((len(images), height, width), dtype=torch.bool)
        for row, image in enumerate(images):
            _copy(image, values[row])
            mask[row, : image.shape[-2], : image.shape[-1]] = True
        return Padded(
            values, mask, torch.tensor([image.shape[-2:] for image in images], device=values.device)
        )

    def _frame(self, images: Sequence[Tensor]) -> tuple[int, int]:
        """The largest height and width, each rounded up to a multiple of pad_to."""
        step = self.pad_to or 1
        height, width = (max(image.shape[side] for image in images) for side in (-2, -1))
        return -(-height // step) * step, -(-width // step) * step

    def _tail(self, rows: Sequence[Tensor], pictures: bool, path: tuple[Any, ...]) -> tuple[int, ...]:
        """The shape of a row in the batch: of pictures their frame."""
        if pictures and self.pad_to is not None:
            return self._frame(rows)
        tails = [each.shape[1:] for each in rows]
        if len(set(tails)) > 1:
            way = "; pad_to=1 pads them, as images, to the largest of the batch" if pictures else ""
            raise ArgumentError(
                f"{_named(path)}: rows of one batch have different shapes: {_two(tails)}{way}"
            )
        return tuple(tails[0])


def _padded(rows: Sequence[Tensor], tail: tuple[int, ...]) -> Padded:
    lengths = torch.tensor([len(each) for each in rows], device=rows[0].device)
    most = int(lengths.max())
    values = _zeros((len(rows), most, *tail), rows)
    for row, each in enumerate(rows):
        _copy(each, values[row])
    return Padded(values, torch.arange(most, device=lengths.device) < lengths[:, None], lengths)


def _flat(rows: Sequence[Tensor], tail: tuple[int, ...]) -> Flat:
    offsets = torch.tensor([0, *(len(each) for each in rows)], device=rows[0].device).cumsum(0)
    values = _zeros((int(offsets[-1]), *tail), rows)
    for start, each in zip(offsets.tolist(), rows, strict=False):
        _copy(each, values[start:])
    return Flat(values, offsets)


def _listed(samples: Sequence[Any]) -> object:
    """One level of tuples turned over; other samples one by one."""
    first = samples[0]
    if not isinstance(first, list | tuple):
        return list(samples)
    parts = [_at(samples, number, ()) for number in range(len(first))]
    return sequence_like(type(first), parts) if hasattr(first, "_fields") else parts


def _at(values: Sequence[Any], key: object, path: tuple[Any, ...]) -> list[Any]:
    """The part `key` of each value. Raises ArgumentError where they differ in their parts."""
    first = values[0]
    for each in values:
        alike = (
            each.keys() == first.keys()
            if isinstance(first, Mapping) and isinstance(each, Mapping)
            else type(each) is type(first)
        )
        if not alike or len(each) != len(first):
            raise ArgumentError(
                f"{_named(path)}: samples of one batch have different parts: {_parts(first)} and "
                f"{_parts(each)}"
            )
    return [each[key] for each in values]


def _parts(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(str, value))}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, list | tuple) else "")


class _Image(NamedTuple):
    """The image of samples that no schema describes.

    Attributes:
        path: path of the image in a sample; () for the sample itself.
        sizes: (height, width) by sample; None if the part has not three dimensions.
        like: dtype and number of channels, of its first view where it is a list or tuple of views; None where
            it is neither.
        views: True if it is a list of views.
        integers: True if a further image may have integers: only the sample around it, and its key, tell it
            from instances.
    """

    path: tuple[Any, ...]
    sizes: list[tuple[int, ...]] | None
    like: tuple[str, int] | None
    views: bool
    integers: bool

    @classmethod
    def of(cls, samples: Sequence[Any]) -> _Image:
        """The image of these samples, found in the first of them."""
        first = samples[0]
        path: tuple[Any, ...] = ()
        if isinstance(first, Mapping):
            found = (key for key, value in first.items() if _has_dims(value, 3) or _all_images(value))
            path = (IMAGE,) if IMAGE in first else tuple(islice(found, 1))
        elif isinstance(first, list | tuple):
            path = (0,)
        images = list(samples)
        for key in path:
            images = [_part_of(image, key) for image in images]
        sizes = (
            [tuple(image.shape[-2:]) for image in images]
            if all(_has_dims(image, 3) for image in images)
            else None
        )
        views = bool(path) and _all_images(images[0])
        like = _like(images[0][0] if views else images[0]) if views or sizes is not None else None
        parts: Iterable[object] = ()
        if isinstance(first, Mapping):
            parts = first.values()
        elif isinstance(first, list | tuple):
            parts = first
        integers = not any(_has_dims(each, 1) or _has_dims(each, 2) for each in parts)
        return cls(path, sizes, like, views, integers)

    def has_views(self, values: Sequence[Any], path: tuple[Any, ...]) -> bool:
        """Returns True if a part is views of the image: a list or tuple in its place, or beside it if it
        has views; or another tuple."""
        if len(path) != 1 or not all(_all_images(each) for each in values):
            return False
        if path == self.path:
            return True
        expected = self.views or isinstance(values[0], tuple)
        return expected and all(_like(view) == self.like for views in values for view in views)

    def is_image(self, values: Sequence[Any], path: tuple[Any, ...]) -> bool:
        """Returns True if a part, a tensor in the first sample, is the image or a further one."""
        if path == self.path:
            return bool(values[0].ndim == 3)
        if len(path) != 1 or self.like is None:
            return False
        is_mask = isinstance(path[0], str) and any(word in path[0].lower() for word in _MASKS)
        known = "float" in self.like[0] or (self.integers and not is_mask)
        return known and all(_has_dims(each, 3) and _like(each) == self.like for each in values)


def _all_images(value: object) -> bool:
    """Returns True if a value is a list or tuple of images alone."""
    return (
        isinstance(value, list | tuple)
        and not hasattr(value, "_fields")
        and bool(value)
        and all(_has_dims(each, 3) for each in value)
    )


def _like(image: Tensor | np.ndarray[Any, Any]) -> tuple[str, int]:
    """Name of an image's dtype, and its channels: images of one kind have both in common."""
    return str(image.dtype).removeprefix("torch."), int(image.shape[0])


def _without_lists(values: Sequence[Any]) -> Sequence[Any]:
    """Values with empty lists among tensors made tensors without rows: Hugging Face's datasets write no
    rows so."""
    like = next((each for each in values if isinstance(each, Tensor | np.ndarray)), None)
    if like is None or not any(isinstance(each, list) and not each for each in values):
        return values
    empty = torch.as_tensor(like).new_zeros(0)
    return [empty if isinstance(each, list) and not each else each for each in values]


def _views_of(values: Sequence[Any], path: tuple[Any, ...]) -> Iterable[Sequence[Any]]:
    """The first view of each sample, the second, and so on. Raises ArgumentError where samples have
    different numbers of them."""
    counts = sorted({len(views) for views in values})
    if len(counts) > 1:
        raise ArgumentError(
            f"{_named(path)}: samples of one batch have different numbers of views: {counts[0]} and "
            f"{counts[-1]}"
        )
    return zip(*values, strict=True)


def _part_of(sample: Any, key: Any) -> Any:
    """A part of a sample; None if it has none such."""
    try:
        return sample[key]
    except (LookupError, TypeError):
        return None


def _collated_as(values: Sequence[Any], path: tuple[Any, ...], image: _Image) -> Collated:
    """The form of joining of a part that no schema names."""
    first = values[0]
    if isinstance(first, list):
        return "list"
    if isinstance(first, int | float) or (
        isinstance(first, np.generic | Tensor | np.ndarray) and first.ndim == 0
    ):
        # No tensor has a value that is missing.
        return "list" if any(each is None for each in values) else "stack"
    if not isinstance(first, Tensor | np.ndarray) or (
        isinstance(first, np.ndarray) and first.dtype.kind not in "biufc"
    ):
        return "list"
    name = next(
        (
            kind.__name__
            for kind in type(first).__mro__
            if kind.__module__.startswith("torchvision.tv_tensors")
        ),
        "",
    )
    if name == "Mask":
        return "picture" if first.ndim == 2 else "masks"
    if name:
        return _TV_CLASSES.get(name, "rows")
    if image.is_image(values, path):
        return "picture"
    if image.sizes is None or any(not isinstance(each, Tensor | np.ndarray) for each in values):
        return "rows"
    # No rows may lack their shape.
    some = [(each, size) for each, size in zip(values, image.sizes, strict=True) if each.shape != (0,)]
    as_large = all(tuple(each.shape[-2:]) == size for each, size in some)
    forms: dict[int, Collated] = {2: "picture", 3: "masks"}
    return forms.get(some[0][0].ndim, "rows") if some and as_large else "rows"


def _has_dims(value: object, count: int) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim == count


def _tensors(values: Sequence[Any], path: tuple[Any, ...]) -> list[Tensor]:
    """The values as plain tensors."""
    for each in values:
        if not isinstance(each, Tensor | np.ndarray):
            raise ArgumentError(
                f"{_named(path)} is a {type(each).__name__} in one sample of a batch, where tensors "
                "are collated"
            )
    return [
        each.as_subclass(Tensor) if isinstance(each, Tensor) else torch.as_tensor(each) for each in values
    ]


def _as_rows(tensors: list[Tensor]) -> list[Tensor]:
    """Tensors of rows; an empty tensor of one dimension, which has no rows, gets the shape of the others'
    rows."""
    like = next((each for each in tensors if each.ndim > 1), None)
    return (
        tensors
        if like is None
        else [like.new_zeros((0, *like.shape[1:])) if each.shape == (0,) else each for each in tensors]
    )


def _copy(part: Tensor, whole: Tensor) -> None:
    """Copies a part to the beginning of each dimension of the whole."""
    for dim, side in enumerate(part.shape):
        whole = whole.narrow(dim, 0, side)
    whole.copy_(part)


def _zeros(shape: tuple[int, ...], parts: Sequence[Tensor]) -> Tensor:
    """Zeros of the dtype that all parts have, or are promoted to, on the first one's device; channels_last
    where they are."""
    out = parts[0].new_zeros(shape, dtype=reduce(torch.promote_types, (part.dtype for part in parts)))
    return out.contiguous(memory_format=torch.channels_last) if _are_last(shape, parts) else out


def _are_last(shape: tuple[int, ...], parts: Sequence[Tensor]) -> bool:
    """Returns True if the parts are images of channels_last, and the whole is a batch of them."""
    return len(shape) == 4 and parts[0].ndim == 3 and parts[0].stride(0) == 1 and not parts[0].is_contiguous()


def _require_one_size(images: Sequence[Tensor], path: tuple[Any, ...]) -> None:
    shapes = [image.shape for image in images]
    if len(set(shapes)) > 1:
        raise BatchShapeError(
            f"{_named(path)}: images of one batch have different sizes: {_two(shapes)}. pad_to=1 "
            "pads them to the largest, pad_to=32 to a "
            'multiple of 32; collate="list" leaves them as they are; or add a transform that ends at '
            "one size, such as Resize((224, 224))"
        )


def _two(shapes: Iterable[torch.Size]) -> str:
    """Two of the shapes that differ."""
    different = list(dict.fromkeys(tuple(shape) for shape in shapes))
    return " and ".join(map(str, different[:2]))


def _named(path: tuple[Any, ...]) -> str:
    """A part of a sample, for messages."""
    return "sample" + "".join(f"[{key!r}]" for key in path)


def collate_fn_of(
    form: CollateForm | None, pad_to: int | None, collate_fn: Callable[[list[Any]], Any] | None, kinds: object
) -> Callable[[list[Any]], Any] | None:
    """The collate_fn that a loader's arguments collate=, pad_to= and collate_fn= mean.

    Both may be given if they say the same: frameworks make a loader of another one's attributes.

    Raises:
        ArgumentError: they contradict each other, or Collate raises it.
    """
    if form is None:
        if pad_to is not None and not isinstance(collate_fn, Collate):
            raise ArgumentError('pad_to= goes with collate="padded" or collate="flat"')
        return collate_fn
    made = Collate(form, pad_to, kinds)
    if collate_fn is None:
        return made
    if isinstance(collate_fn, Collate) and (collate_fn.form, collate_fn.pad_to) == (form, pad_to):
        return collate_fn
    raise ArgumentError(f"collate={form!r} and collate_fn= both make the batches: drop one of them")
