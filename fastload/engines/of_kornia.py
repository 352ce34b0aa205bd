"""Modules and sequences of Kornia's in batch_transform=: an AugmentBatch of their modules if they run per
sample, else seeded per batch.

Where the program has not imported Kornia, no transform is Kornia's, and nothing is imported to find that out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fastload.device.stages import LABEL, BatchFields
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.store.kinds import KINDS
from fastload.transforms.compiler import label

_KIND_OF_KEY = {"mask": "mask", "bbox_xyxy": "boxes", "bbox_xywh": "boxes", "keypoints": "keypoints"}
"""Kind of the field that a data key stands for."""


def is_of_kornia(transform: object) -> bool:
    """Returns True for a module or a sequence of Kornia's."""
    if "kornia.augmentation" not in sys.modules:
        return False
    from fastload.augment import sequences

    return sequences.is_of_kornia(transform)


def why_per_batch(transform: object, settings: Settings, fields_known: bool) -> str:
    """The reason why a module or sequence of Kornia's is seeded per batch, as a clause; "" if it runs per
    sample, or is not Kornia's.

    Args:
        transform: an element of batch_transform=.
        settings: settings of the loader.
        fields_known: True if it is known which fields a batch has: the data are packed, or in place.
    """
    found = _taken_apart(transform, settings, fields_known) if is_of_kornia(transform) else ""
    return found if isinstance(found, str) else ""


def per_sample(transform: object, settings: Settings, fields_known: bool) -> object:
    """The transform, as an AugmentBatch if it is Kornia's and runs per sample. Arguments: see
    why_per_batch().

    Raises:
        ArgumentError: a sequence with several data_keys does not run per sample, and would get the images
            alone.
    """
    if not is_of_kornia(transform):
        return transform
    found = _taken_apart(transform, settings, fields_known)
    if isinstance(found, str) and len(keys := _data_keys(transform)) > 1:
        raise ArgumentError(
            f"batch_transform: {label(transform, brief=True)} has data_keys {', '.join(keys)}, but "
            f"gets the images alone, since {found}: "
            "call it in the loop"
        )
    return transform if isinstance(found, str) else found


def _taken_apart(transform: object, settings: Settings, fields_known: bool) -> object:
    """An AugmentBatch of the modules, or a clause that says why there is none."""
    from fastload.augment import AugmentBatch
    from fastload.augment.by_params import NotPerSample
    from fastload.augment.sequences import takes_dicts

    if settings.iterable:
        return "samples of an IterableDataset have no indices"
    if takes_dicts(transform) and not fields_known:
        return "data_keys=None takes whole dicts"
    try:
        return AugmentBatch([transform])
    except NotPerSample as error:
        return error.clause


def settings_of(transforms: Sequence[Any]) -> tuple[str, ...]:
    """Settings of Kornia's modules among transforms, as they are now: a plan has copies of the modules."""
    return tuple(repr(transform) for transform in transforms if is_of_kornia(transform))


def fields_by_keys(transforms: Sequence[Any]) -> BatchFields:
    """Places of the fields in tuples of unknown datasets: the first AugmentationSequential with several
    data_keys names them in order. Without one, the images and the labels are in their usual places.

    Raises:
        ArgumentError: a data key whose values are not moved on whole batches.
    """
    keys = next((found for each in transforms if len(found := _data_keys(each)) > 1), ())
    named = {"image": "image", "label": LABEL}
    names = [named.get(key, f"{key} {place}") for place, key in enumerate(keys)]
    objects = []
    for name, key in zip(names, keys, strict=True):
        if key == "bbox":
            raise ArgumentError(
                "batch_transform: data_keys have 'bbox', corners that are not moved on whole "
                "batches: give 'bbox_xyxy'"
            )
        if key in _KIND_OF_KEY:
            objects.append(
                (name, _KIND_OF_KEY[key], key.removeprefix("bbox_") if key.startswith("bbox_") else "")
            )
    return BatchFields(
        objects=tuple(objects), paths=tuple((name, (place,)) for place, name in enumerate(names))
    )


def check_keys(call: object, fields: BatchFields) -> None:
    """Raises ArgumentError if data_keys of a stage's modules contradict the fields of a batch, as far as
    these are known."""
    given: dict[str, set[str]] = {}
    for name, kind, form in fields.objects:
        if (moved_as := KINDS[kind].moved_as) and fields.path(name) is not None:
            given.setdefault(moved_as, set()).add(form)
    if hasattr(call, "check_objects"):
        call.check_objects(given)


def _data_keys(transform: object) -> tuple[str, ...]:
    if not is_of_kornia(transform):
        return ()
    from fastload.augment.sequences import data_keys_of

    return data_keys_of(transform) or ()
