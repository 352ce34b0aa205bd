"""Draws: the samples that a transform makes of one stored sample in several epochs, as a FastLoader with the
same seed delivers them.

NOTE [ view: whose draws they are ]
A draw is `dataset.drawing(seed, epoch)[index]` of a PackedDataset with the page's transform, which gives the
pixels that native threads give for the same (seed, epoch, index). Steps in Python draw from global
generators: here these are seeded as a loader with `seed_by="sample"` seeds them, one draw at a time, since
they belong to the process.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import quote

import torch

from fastload.batch.bad_samples import kept_state, seed_sample
from fastload.common.rng import checked_epoch, checked_seed
from fastload.dataset.drawing import ShownImage, painted_masks, shown_image
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError, FastloadError, SampleError, TransformError
from fastload.transforms import RandomHorizontalFlip, RandomResizedCrop
from fastload.view.layers import layers_of
from fastload.view.png import label_png, png
from fastload.view.subject import Kept, Subject

DEFAULT = (RandomResizedCrop(224), RandomHorizontalFlip())
DEFAULT_TEXT = "RandomResizedCrop(224), RandomHorizontalFlip()"
EPOCHS_MOST = 16
"""Epochs of one answer."""
_KEPT = 32


def transform_of(name: str) -> Any:
    """The transform that `MODULE:NAME` names: an object, or the result of a function without arguments.

    Raises:
        ArgumentError: there is no such module or name, or importing it fails.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ArgumentError(
            f"--transform {name!r}: give MODULE:NAME, as in train:transform, the transform in "
            "train.py of this folder"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found() if isinstance(found, types.FunctionType) and not found.__code__.co_argcount else found
    except Exception as error:  # of the user's module, whatever it is
        raise ArgumentError(f"--transform {name}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class _Draw:
    """One draw.

    Attributes:
        values: its fields by name.
        images: the images that are shown: one, or all views.
        plan_format: format of its boxes; "": as they are stored.
    """

    values: Mapping[str, Any]
    images: tuple[torch.Tensor, ...]
    plan_format: str


class SampleDraws:
    """Draws of a dataset's samples. Any thread may call.

    Attributes:
        note: the reason why the image alone goes through the transform; "": all fields in it do.

    Raises:
        TransformError: the transform cannot be planned.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._lock = threading.Lock()  # of the global generators
        self._kept: Kept[_Draw] = Kept(_KEPT)
        transform = DEFAULT if subject.settings.transform is None else subject.settings.transform
        self.note = ""
        self._dataset = self._moving(transform if not isinstance(transform, tuple) else list(transform))

    def _moving(self, transform: object) -> PackedDataset:
        """The dataset with the transform: with all that lies in the image, or the image alone where the
        transform does not take more."""
        dataset = self._subject.whole.dataset
        names = [
            name for name in dataset.fields if name == dataset.image_field or name in dataset.opened.spatial
        ]
        try:
            found = dataset.delivering({name: name for name in names}, transform)
            found.check_fields(found.plan)
        except TransformError as error:
            found = dataset.delivering({dataset.image_field: dataset.image_field}, transform)
            found.check_fields(found.plan)
            self.note = f"the image alone: {error}"
        return found

    @property
    def steps(self) -> list[str]:
        """Steps of the transform, with the place where each runs."""
        return [
            f"{stage.name} ({'in Python' if stage.where == 'python' else 'native'})"
            for stage in self._dataset.plan.stages
        ]

    def sample(self, index: int, seed: int, epoch: int) -> Any:
        """The sample as the dataset makes it, a dict by field; of a list the one that has it. Raises
        SampleError, and whatever steps in Python raise."""
        drawing = self._dataset.drawing(checked_seed(seed), checked_epoch(epoch))
        if self._subject.samples is not None:
            index, _ = self._subject.place(index)
        if not drawing.plan.python:
            return drawing[index]
        with self._lock, kept_state():
            seed_sample(seed, epoch, index)
            return drawing[index]

    def document(self, index: int, seed: int, epoch: int, count: int) -> dict[str, Any]:
        """The draws of epochs epoch .. epoch+count-1 for a page: `steps`, `note`, and for each a dict of
        `epoch` and `pictures`.

        Of a draw that fails there is `error`. A picture is {path, width, height, note}; the first has
        `layers` too.

        Raises:
            ArgumentError: seed, epoch or count is out of range.
        """
        if not 1 <= count <= EPOCHS_MOST:
            raise ArgumentError(f"a page has the draws of 1 to {EPOCHS_MOST} epochs, not {count}")
        draws = [
            self._described(index, checked_seed(seed) or 0, checked_epoch(each))
            for each in range(epoch, epoch + count)
        ]
        return {"index": index, "seed": seed, "steps": self.steps, "note": self.note, "draws": draws}

    def _described(self, index: int, seed: int, epoch: int) -> dict[str, Any]:
        query = f"seed={seed}&epoch={epoch}"
        try:
            draw = self._draw(index, seed, epoch)
        except FastloadError as error:
            return {"epoch": epoch, "error": str(error)}
        pictures = []
        for view in range(len(draw.images)):
            shown = self.shown(index, seed, epoch, view)
            height, width = shown.pixels.shape[:2]
            path = f"draw/{index}.png?{query}&view={view}"
            pictures.append(
                {"path": path, "width": width, "height": height, "note": shown.note, "layers": []}
            )
        if len(pictures) == 1:
            others = {name: value for name, value in draw.values.items() if name != self._dataset.image_field}
            pictures[0]["layers"] = layers_of(
                self._subject,
                others,
                lambda name: f"draw-layer/{index}.png?{query}&field={quote(name, safe='')}",
                draw.plan_format,
            )
        return {"epoch": epoch, "pictures": pictures}

    def shown(self, index: int, seed: int, epoch: int, view: int = 0) -> ShownImage:
        """The image of a draw, or one of its views, as pixels. Raises ArgumentError, SampleError."""
        draw = self._draw(index, seed, epoch)
        if not 0 <= view < len(draw.images):
            raise ArgumentError(
                f"the transform makes {len(draw.images)} views of an image, and view {view} is none of them"
            )
        plan = self._dataset.plan
        return shown_image(draw.images[view], plan.views[view] if plan.views else plan)

    def picture(self, index: int, seed: int, epoch: int, view: int = 0) -> bytes:
        """The PNG of it. Raises ArgumentError, SampleError."""
        return png(self.shown(index, seed, epoch, view).pixels)

    def layer(self, index: int, seed: int, epoch: int, name: str) -> bytes:
        """The transparent PNG of a mask or of instances of a draw. Raises ArgumentError, SampleError."""
        value, field = (
            self._draw(index, seed, epoch).values.get(name),
            self._subject.dataset.opened.reader.schema[name],
        )
        if value is None or not field.handler.is_as_large:
            raise ArgumentError(f"the draws have no mask or instances called {name!r}")
        plain = value.as_subclass(torch.Tensor)
        return label_png(plain.cpu().numpy() if field.handler.holds_labels else painted_masks(plain))

    def _draw(self, index: int, seed: int, epoch: int) -> _Draw:
        return self._kept.get((index, seed, epoch), lambda: self._make(index, seed, epoch))

    def _make(self, index: int, seed: int, epoch: int) -> _Draw:
        try:
            sample = self.sample(index, seed, epoch)
        except FastloadError:
            raise
        except Exception as error:  # of a step in Python, whatever it is
            reason = f"a step of the transform failed: {type(error).__name__}: {error}"
            raise SampleError(f"sample {index}: {reason}", index=index, reason=reason) from error
        image = sample.get(self._dataset.image_field) if isinstance(sample, dict) else None
        if self._subject.samples is not None and isinstance(image, list | torch.Tensor):
            image = image[self._subject.place(index)[1]]
        images = tuple(image) if isinstance(image, list | tuple) else (image,)
        if not all(isinstance(each, torch.Tensor) and each.ndim == 3 for each in images):
            raise SampleError(
                f"sample {index}: the transform makes no image tensor (channels, height, width) of it",
                index=index,
            )
        return _Draw(
            sample, tuple(each.as_subclass(torch.Tensor) for each in images), self._dataset.plan.box_format
        )
