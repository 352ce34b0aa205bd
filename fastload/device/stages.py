"""Batch stages: the work on whole batches, as values and as calls. The ops that the plan leaves to the device
come first, then batch_transform=.

NOTE [ forms: where ]
dtype= and memory_format= of images that Python transforms made from packed data are converted here; elsewhere
the native pass does it. With default_collate the images of a whole batch are converted on the batch's device,
by the first batch stage. With the user's collate_fn, or with batch_size=None, each image is converted before
it is collated, in the process that made it. So such a function receives converted images, as it does from
native threads.

NOTE [ stages: one list, one numbering ]
The ops of all AugmentBatch objects of a loader, made from the plan or given by the user, are numbered on
through the whole list of stages. So equal ops at two places draw different numbers, and the draws of a sample
do not depend on how the list is split into calls. Steps that native threads do in place of such ops have the
first numbers.

NOTE [ batch stages: which thread ]
A stage with the keyword-only parameters `seed`, `epoch` and `indices` (fastload.augment's AugmentBatch,
MixUp, CutMix) draws its random numbers from these alone, so it may run in the transfer's thread, ahead of the
loop. Any other stage takes a `batch` parameter, of its own or because it is wrapped in fastload.augment's
Seeded, which seeds the global generators for the time of the call. The loop uses these generators too, so
such a stage runs in the loop's own thread, when the loop asks for the batch. So does a stage that has
parameters of a module, such as a teacher's: the loop may write them, and on a device only the loop's own
stream comes after that.

NOTE [ batch stages: what goes with the images ]
A stage that also has the keyword-only parameters `masks`, `boxes`, `keypoints` and `box_format`
(AugmentBatch) gets the batch's fields of these kinds by name, and returns them moved as the images are. With
`keypoint_pairs` it also gets the keypoints that mirror each other, by name of the field. The schema of packed
data says which kind each field has. A stage that moves pixels (its attribute `moves`) is refused if a field
lies in the image that it cannot move: the field would be left behind.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.batch.containers import Flat, Padded, PatchedImages, has_part, part_at, with_part
from fastload.device.to_float import Floats, TensorForm
from fastload.errors import ArgumentError
from fastload.store.form import Path
from fastload.store.kinds import KINDS
from fastload.transforms.compiler import label
from fastload.transforms.spec import DeviceOp
from fastload.transforms.steps import class_mistake, mixes


@dataclass(frozen=True)
class BatchStage:
    """One stage of the work on whole batches.

    Attributes:
        names: the names that explain() shows for it.
        call: the callable that takes a batch's images; None until it is made from `ops`.
        ops: the plan's ops that it runs, one for each name; empty for any other stage.
        view: number of the view, from 0, if an image becomes several; else None.
    """

    names: tuple[str, ...]
    call: Any = None
    ops: tuple[DeviceOp, ...] = ()
    view: int | None = None


def numbered(
    stages: Sequence[BatchStage], augment: Callable[[Sequence[DeviceOp]], Any], first: int = 0
) -> list[BatchStage]:
    """The stages with their callables, whose ops are numbered; `augment` makes an AugmentBatch of a plan's
    ops, and `first` is the number of ops that native threads do.

    See NOTE [ stages: one list, one numbering ].
    """
    out = []
    for stage in stages:
        call = augment(stage.ops) if stage.ops else stage.call
        if has_numbers(call):
            call = call.numbered(first)
            first += len(call.ops)
        out.append(replace(stage, call=call))
    return out


def one_by_one(stages: Sequence[BatchStage]) -> list[BatchStage]:
    """Splits numbered stages so that each runs at most one op, for explain()."""
    return list(chain.from_iterable(_apart(stage) for stage in stages))


def _apart(stage: BatchStage) -> list[BatchStage]:
    if not has_numbers(stage.call):
        return [stage]
    parts = stage.call.apart()
    names = stage.names if stage.ops else [label(part.ops[0]) for part in parts]
    return [replace(stage, names=(name,), call=part, ops=()) for name, part in zip(names, parts, strict=True)]


def has_numbers(call: object) -> bool:
    """Returns True if a callable numbers its ops: it is an AugmentBatch, whose class this package must not
    import."""
    return callable(getattr(call, "numbered", None)) and callable(getattr(call, "apart", None))


IMAGE, LABEL = "image", "label"
_VIEW_BITS = 40
"""A stage of a view is given a number of the batch in which the view stands above these bits: no two of
them draw the same."""


@dataclass(frozen=True)
class BatchFields:
    """Places of the fields in a batch: its keys, if it is a dict.

    Attributes:
        image, label: names of the images and the labels.
        objects: (name, kind, format) of the fields that lie in the images: kinds are those of a schema,
            format is that of boxes.
        further: names of images beside the first.
        paths: (name, keys and positions that lead to it) of all fields, of batches of another structure.
        pairs: (name, numbers of the keypoints that mirror each other) of each field that names such pairs.
    """

    image: str = IMAGE
    label: str = LABEL
    objects: tuple[tuple[str, str, str], ...] = ()
    further: tuple[str, ...] = ()
    paths: tuple[tuple[str, Path], ...] = ()
    pairs: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    def path(self, name: str) -> Path | None:
        """Path of a field in a batch; None if it is not delivered."""
        return dict(self.paths).get(name) if self.paths else (name,)

    def images_in(self, batch: object) -> list[Path]:
        """Paths of the images in a batch or a sample that are there; a batch of images alone has the empty
        path."""
        at = places(batch, self)
        paths = (self.path(name) for name in self.further)
        return [
            () if at is None else at[0],
            *(path for path in paths if path is not None and has_part(batch, path)),
        ]

    def objects_in(self, batch: object) -> dict[str, Path]:
        """Paths of the fields that lie in the images, by name, in a batch that has them."""
        found = {name: self.path(name) for name, *_ in self.objects}
        return {name: path for name, path in found.items() if path is not None and has_part(batch, path)}


@dataclass(frozen=True)
class BatchKey:
    """Key that determines the random numbers of a batch.

    Attributes:
        seed, epoch: the seed and the number of the pass.
        number: the batch's number in its pass.
        indices: each row's index in the dataset; None if the samples have no indices.
        occurrences: number of times that each index came before in the pass, uint32; None: none did.
    """

    seed: int
    epoch: int
    number: int
    indices: Sequence[int] | npt.NDArray[np.int64] | None
    occurrences: npt.NDArray[np.uint32] | None = None


@dataclass(frozen=True)
class StageCall:
    """A batch stage's callable, and the arguments that it takes.

    Attributes:
        call: takes images, or images and labels, and returns the same.
        labels: True if it takes labels.
        keys: its keyword arguments among seed, epoch, indices, occurrences and batch.
        view: the view that it takes, from 0, where images are lists of views; None: it takes what is in their
            place.
        objects: True if it takes masks, boxes and keypoints.
        pairs: True if it takes the pairs of keypoints that mirror each other.
        trained: True if it has parameters of a module.
    """

    call: Callable[..., Any]
    labels: bool = False
    keys: tuple[str, ...] = ()
    view: int | None = None
    objects: bool = False
    pairs: bool = False
    trained: bool = False

    @property
    def ahead(self) -> bool:
        """True if it may run in another thread, ahead of the loop; see NOTE [ batch stages: which thread
        ]."""
        return "batch" not in self.keys and not self.trained

    def __call__(self, batch: object, key: BatchKey, fields: BatchFields) -> object:
        number = key.number if self.view is None else key.number + (self.view << _VIEW_BITS)
        given = {
            "seed": key.seed,
            "epoch": key.epoch,
            "batch": number,
            "indices": key.indices,
            "occurrences": key.occurrences,
        }
        if "indices" in self.keys and key.indices is None:
            raise ArgumentError(
                f"batch_transform: {self.call!r} needs the samples' indices, and this batch has "
                "none: wrap it in Seeded"
            )
        keyed = {name: given[name] for name in self.keys}
        if isinstance(self.call, TensorForm):
            return self._formed(batch, fields)
        at = places(batch, fields)
        if self.view is not None:
            return self._of_view(batch, at, keyed)
        if at is None:
            return self.call(batch, **keyed)
        image, label = at
        images = part_at(batch, image)
        if self.objects and (objects := fields.objects_in(batch)):
            return self._with_objects(batch, image, objects, keyed, fields)
        if isinstance(images, PatchedImages) and isinstance(self.call, Floats):
            return changed(batch, (image,), (images.changed(self.call),))
        if isinstance(images, list) and isinstance(self.call, Floats):
            raise ArgumentError(
                f"batch_transform: {self.call!r} takes tensors, and samples have lists of images of their "
                "own sizes: end the transform at one size"
            )
        if isinstance(images, Padded | Flat) and isinstance(self.call, Floats):
            return changed(batch, (image,), (_floats_of(images, self.call),))
        if not self.labels:
            return changed(batch, (image,), (self.call(images, **keyed),))
        if label is None or not has_part(batch, label):
            raise ArgumentError(f"batch_transform: {self.call!r} takes labels, and this batch has none")
        return changed(batch, (image, label), self.call(images, part_at(batch, label), **keyed))

    def _formed(self, batch: object, fields: BatchFields) -> object:
        """The batch with all of its images, or of each the one view, in the form that they are asked for."""
        for path in fields.images_in(batch):
            images = part_at(batch, path)
            if self.view is None:
                formed = self.call(images)
            else:
                formed = [
                    self.call(view) if number == self.view else view for number, view in enumerate(images)
                ]
            batch = with_part(batch, path, formed)
        return batch

    def _of_view(self, batch: Any, at: tuple[Path, Path | None] | None, keyed: dict[str, Any]) -> object:
        """The batch with its one view changed; a batch without an image's place is the list of views."""
        views = list(batch if at is None else part_at(batch, at[0]))
        assert self.view is not None
        views[self.view] = self.call(views[self.view], **keyed)
        return views if at is None else changed(batch, at[:1], (views,))

    def _with_objects(
        self,
        batch: object,
        image: Path,
        objects: Mapping[str, Path],
        keyed: dict[str, Any],
        fields: BatchFields,
    ) -> object:
        """See NOTE [ batch stages: what goes with the images ]. `objects`: where the fields are that lie
        in the images."""
        given: dict[str, dict[str, Any]] = {}
        formats = {name: form for name, _, form in fields.objects if form}
        for name, kind, _ in fields.objects:
            if name in objects and (moved_as := KINDS[kind].moved_as):
                given.setdefault(moved_as, {})[name] = part_at(batch, objects[name])
            elif name in objects and getattr(self.call, "moves", True):
                raise ArgumentError(
                    f"batch_transform: {self.call!r} moves the pixels of {fields.image!r}, and "
                    f"{name!r} ({kind}) cannot follow it on whole "
                    "batches: do that step in the transform, or leave the field out (fields=)"
                )
        if not given:
            return changed(batch, (image,), (self.call(part_at(batch, image), **keyed),))
        if self.pairs:
            keyed = {**keyed, "keypoint_pairs": dict(fields.pairs)}
        images, *moved = self.call(part_at(batch, image), **keyed, **given, box_format=formats)
        found = {objects[name]: value for each in moved if each is not None for name, value in each.items()}
        return changed(batch, (image, *found), (images, *found.values()))


Seeding = Callable[[Callable[..., Any]], Callable[..., Any]]


def stage_calls(transforms: Sequence[Any], seeded: Seeding) -> tuple[StageCall, ...]:
    """The StageCall of each transform of whole batches.

    Args:
        transforms: callables, in order; Floats and Form run as they are.
        seeded: wraps a callable that draws from the global generators (fastload.augment's Seeded).

    Raises:
        ArgumentError: a transform is not callable.
    """
    return tuple(_stage_call(transform, seeded) for transform in transforms)


def _stage_call(transform: object, seeded: Seeding) -> StageCall:
    if isinstance(transform, Floats | TensorForm):
        return StageCall(transform)
    if mistake := class_mistake(transform):
        raise ArgumentError(f"batch_transform: {mistake}")
    if not callable(transform):
        raise ArgumentError(f"batch_transform: {transform!r} cannot be called")
    keys = _keys(transform)
    if {"seed", "epoch", "indices"} <= set(keys) and "batch" not in keys:
        takes = {"objects": _takes(transform, *_OBJECTS), "pairs": _takes(transform, *_PAIRS)}
        return StageCall(
            transform, _takes_labels(transform), keys, **takes, trained=has_parameters(transform)
        )
    if {"seed", "epoch", "batch"} <= set(keys):
        return StageCall(transform, _takes_labels(getattr(transform, "transform", transform)), keys)
    return StageCall(seeded(transform), _takes_labels(transform), ("seed", "epoch", "batch"))


_LISTED_MOST = 256
"""Values of a list in which parameters are looked for: modules come in short lists, data in long ones."""


def has_parameters(value: object, depth: int = 4) -> bool:
    """Returns True if a callable has parameters of a module: it is one, is bound to one, or holds one in
    attributes, closures or lists."""
    if isinstance(value, torch.nn.Module):
        return next(value.parameters(), None) is not None
    if not depth or isinstance(value, type | types.ModuleType):
        return False
    if isinstance(value, types.FunctionType):
        seen = inspect.getclosurevars(value)
        parts: list[Any] = [*seen.nonlocals.values(), *seen.globals.values(), *(value.__defaults__ or ())]
    elif isinstance(value, types.MethodType):
        parts = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, Mapping | list | tuple):
        parts = list(islice(value.values() if isinstance(value, Mapping) else value, _LISTED_MOST))
    else:
        parts = [*getattr(value, "__dict__", {}).values(), vars(type(value)).get("__call__")]
    return any(has_parameters(part, depth - 1) for part in parts)


def _parameters(transform: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(
            inspect.signature(
                transform.forward if isinstance(transform, torch.nn.Module) else transform
            ).parameters.values()
        )
    except (TypeError, ValueError):  # some C callables have no signature
        return []


def _keys(transform: Callable[..., object]) -> tuple[str, ...]:
    names = {each.name for each in _parameters(transform) if each.kind is inspect.Parameter.KEYWORD_ONLY}
    return tuple(name for name in ("seed", "epoch", "indices", "occurrences", "batch") if name in names)


_OBJECTS = ("masks", "boxes", "keypoints", "box_format")
_PAIRS = (*_OBJECTS, "keypoint_pairs")


def _takes(transform: Callable[..., object], *names: str) -> bool:
    """Returns True if a transform has all of these names as keyword-only parameters."""
    return set(names) <= {
        each.name for each in _parameters(transform) if each.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _takes_labels(transform: Callable[..., object]) -> bool:
    """Returns True if a transform requires two positional arguments, or is a torchvision class that mixes
    images and labels."""
    if mixes(transform):
        return True
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        sum(
            each.kind in by_position and each.default is inspect.Parameter.empty
            for each in _parameters(transform)
        )
        >= 2
    )


def places(batch: object, fields: BatchFields) -> tuple[Path, Path | None] | None:
    """Paths of the images and labels in a batch or a sample; None if a stage takes the batch as a whole."""
    if fields.paths and (image := fields.path(fields.image)) is not None and has_part(batch, image):
        return image, fields.path(fields.label)
    if isinstance(batch, dict):
        return ((fields.image,), (fields.label,)) if fields.image in batch else None
    return ((0,), (1,)) if isinstance(batch, list | tuple) and batch else None


def _floats_of(images: Padded | Flat, floats: Floats) -> Padded | Flat:
    """Images in one frame, or any number of images, as floats; what is padding stays zeros."""
    if isinstance(images, Flat):
        return images._replace(values=floats(images.values))
    if images.values.ndim == 4:
        return images._replace(values=floats(images.values).masked_fill_(~images.mask[:, None], 0))
    values = floats(images.values.flatten(0, 1)).view(images.values.shape)
    return images._replace(values=values.masked_fill_(~images.mask[:, :, None, None, None], 0))


def changed(batch: object, at: Sequence[Path], values: Sequence[Any]) -> object:
    """A batch of the same type, with other values at these places."""
    for path, value in zip(at, values, strict=True):
        batch = with_part(batch, path, value)
    return batch


@dataclass(frozen=True)
class FormedSamples:
    """A collate_fn that first applies a Form to the images of each sample."""

    collate: Callable[[Any], Any]
    form: TensorForm
    fields: BatchFields
    batched: bool

    def __call__(self, samples: Any) -> Any:
        return self.collate(
            [self._formed(sample) for sample in samples] if self.batched else self._formed(samples)
        )

    def _formed(self, sample: object) -> object:
        for path in self.fields.images_in(sample):
            image = part_at(sample, path)
            formed = (
                [self.form.one(view) for view in image] if isinstance(image, list) else self.form.one(image)
            )
            sample = with_part(sample, path, formed)
        return sample
