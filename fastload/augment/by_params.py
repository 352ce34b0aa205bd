"""Kornia's own modules inside an AugmentBatch: parameters per sample from our generator, handed over by
Kornia's `params=`."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastload.augment.drawing import GATE, SHAPE, Drawn, Params, parameters
from fastload.augment.kornia_classes import Traits, traits_of, why_whole
from fastload.augment.philox import Draw
from fastload.augment.specs import Op, fail
from fastload.augment.steps import Array, Frame, Step
from fastload.batch.bad_samples import kept_state
from fastload.batch.private_draws import GlobalDraw
from fastload.errors import ArgumentError, TransformError

_BOX_KEYS = ("bbox", "bbox_xyxy", "bbox_xywh")
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("input", "image", "class", "label"), ""),
    "mask": "masks",
    **dict.fromkeys(_BOX_KEYS, "boxes"),
    "keypoints": "keypoints",
}
"""All data keys, and the kind of objects that each names."""
_ADVICE = {"masks": "'mask'", "boxes": "'bbox_xyxy' or 'bbox_xywh'", "keypoints": "'keypoints'"}


def named(keys: Sequence[str]) -> frozenset[str]:
    """Kinds of objects that data keys name."""
    return frozenset(KINDS[key] for key in keys) - {""}


def contradiction(keys: Sequence[str], moves: bool, given: Mapping[str, Collection[str]]) -> str:
    """A clause that says how the objects of a batch contradict data keys; "" if they do not.

    Args:
        keys: the data keys.
        moves: True if pixels are moved, so that objects without a key would be left behind.
        given: the kinds of objects that the batch has, with the formats of its boxes.
    """
    if missing := sorted(named(keys) - given.keys()):
        return f"data_keys name {missing[0]}, and the batch has none: leave them out of data_keys"
    if moves and (left := sorted(given.keys() - named(keys))):
        return (
            f"the batch has {left[0]}, which would stay where they are: add {_ADVICE[left[0]]} to data_keys"
        )
    written = {key.removeprefix("bbox_") for key in keys if key in _BOX_KEYS}
    formats = sorted({"xyxy", "xywh"} & set(given.get("boxes", ())) - written) if written else []
    return f"the batch's boxes are {formats[0]}: write 'bbox_{formats[0]}' in data_keys" if formats else ""


class NotPerSample(TransformError):
    """A module of Kornia's, or a sequence of modules, cannot be given parameters per sample.

    Attributes:
        clause: name of its class, and why.
    """

    def __init__(self, module: object, reason: str) -> None:
        self.clause = f"{type(module).__name__} does not run per sample: {reason}"
        super().__init__(
            f"KorniaOp: {self.clause}: {module!r}; give it as batch_transform, which seeds it per batch"
        )


_TRIAL = 120
"""Height and width of the images with which an op is tried, if none larger are needed."""
_TRIED = ((1, 2), (1, 2), (3, 4))
"""Words of the rows with which it is tried: two are given the same parameters, and go together whatever
these are."""


class KorniaOp(Op):
    """A copy of a module of kornia.augmentation, run with parameters per sample.

    module.forward_parameters() draws on the host (NOTE [ kornia: three ways to draw ]). The module sees
    float32 in 0..1; uint8 is divided by 255 before and rounded after. Rows that differ in a parameter that
    Kornia has per batch, such as the order in ColorJitter, run apart.

    Args:
        module: one that runs per sample, without same_on_batch, and with p_batch 1.
        data_keys: kinds of objects that each call has, as in AugmentationSequential; None: any.

    Raises:
        TransformError: the module draws per batch (give it as batch_transform=), or Kornia has no such data
            key.
    """

    def __init__(self, module: Any, data_keys: Sequence[str] | None = None) -> None:
        self.data_keys = None if data_keys is None else tuple(str(key).lower() for key in data_keys)
        if unknown := sorted(set(self.data_keys or ()) - KINDS.keys()):
            raise fail(self, f"data_keys={data_keys!r}: {unknown[0]!r} is none of {', '.join(KINDS)}")
        if reason := why_whole(module):
            raise NotPerSample(module, reason)
        try:
            self.module = copy.deepcopy(module)
            self.module.set_rng_device_and_dtype(torch.device("cpu"), self.module.dtype)
        except Exception as error:  # such as tensors with a history, where ranges are learnt
            raise NotPerSample(module, f"it cannot be copied: {error}") from error
        if reason := _why_not(self):
            raise NotPerSample(module, reason)

    @property
    def _traits(self) -> Traits:
        traits = traits_of(self.module)
        assert traits is not None
        return traits

    @property
    def moves(self) -> bool:
        """True if the module moves pixels."""
        return self._traits.moves

    @property
    def objects(self) -> frozenset[str]:
        """Kinds of objects that it changes. Where nothing moves, masks are erased only if data_keys name
        them."""
        changed = self._traits.objects
        return changed if self.moves else changed & named(self.data_keys or ())

    def check(self, given: Mapping[str, Collection[str]]) -> None:
        """Raises ArgumentError if a batch's objects contradict data_keys, or cannot follow; `given`: their
        kinds, and boxes' formats."""
        clause = "" if self.data_keys is None else contradiction(self.data_keys, self.moves, given)
        if not clause and self.moves and (left := sorted(given.keys() - self.objects)):
            clause = (
                f"it moves pixels, and Kornia does not move {left[0]} with them: leave them out of the "
                "batch, or this step"
            )
        if clause:
            raise ArgumentError(f"{self!r}: {clause}")

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        """One step for all rows on which Kornia's gate is open, or one for each set of values that are
        Kornia's of a whole batch."""
        words = draw.words(2).astype(np.uint64)
        keys = words[:, 0] | words[:, 1] << np.uint64(32)
        traits = self._traits
        if traits.floats and not frame.floating:
            raise fail(
                self,
                f"{self.module!r} makes values that bytes cannot hold: make floats of the images "
                "first (T.ToFloat())",
            )
        return [
            Step(
                self.run,
                drawn.rows,
                drawn.own,
                {"shared": drawn.shared},
                self._size(drawn, frame),
                on_host=traits.on_host,
                masks=self.masks if "masks" in self.objects else None,
                centres=self.centres if "boxes" in self.objects else None,
            )
            for drawn in parameters(self.module, keys, frame, traits.shared)
        ]

    def _size(self, drawn: Drawn, frame: Frame) -> tuple[int, int] | None:
        """(height, width) afterwards, if it may change."""
        if not self._traits.resizes:
            return None
        if "output_size" in drawn.own:
            height, width = drawn.own["output_size"][0].tolist()
            return height, width
        flags = self.module.flags  # PadTo's
        least = (0, 0) if flags.get("crop_if_exceeds", True) else (frame.height, frame.width)
        return max(flags["size"][0], least[0]), max(flags["size"][1], least[1])

    def run(self, x: Tensor, shared: Params, **own: Tensor) -> Tensor:
        """The module on rows with these parameters, each (rows, ...); those of a whole batch stay on the
        host, where Kornia reads them."""
        if self._traits.alone and len(x) > 1:
            return _one_by_one(self.run, x, own, shared=shared)
        if x.dtype == torch.uint8:
            wide = x / 255
        else:
            wide = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
        out: Tensor = self.module(wide, params=self._given(len(x), shared, own))
        if out.shape[:2] != x.shape[:2] or (out.shape != x.shape and not self._traits.resizes):
            raise TransformError(
                f"{self!r} made {tuple(out.shape)} of {tuple(x.shape)}; a batch keeps its size"
            )
        return (out * 255).round_().clamp_(0, 255).to(x.dtype) if x.dtype == torch.uint8 else out.to(x.dtype)

    def _given(self, rows: int, shared: Params, own: Params) -> Params:
        """Parameters as the module takes them."""
        numbers = self._traits.numbers
        given = {
            **own,
            **shared,
            GATE: torch.ones(rows),
            SHAPE: torch.tensor([rows, *shared[SHAPE][1:].tolist()]),
        }
        return {**given, numbers: torch.arange(rows)[:, None]} if numbers else given

    def masks(self, x: Tensor, shared: Params, fill: int, **own: Tensor) -> Tensor:
        """Masks (rows, any number, height, width) by the module's own code, by the nearest pixel, with `fill`
        where it has nothing of them.

        A further mask of ones goes with them: it is zero there.
        """
        if self._traits.alone and len(x) > 1:
            return _one_by_one(self.masks, x, own, shared=shared, fill=fill)
        wide, flags = x if x.dtype == torch.float64 else x.float(), self.module.flags
        kornia = sys.modules["kornia.augmentation"]  # there, since the module is of a class in it
        sequence = kornia.AugmentationSequential(self.module)
        own_flags = {
            name: _zero(flags[name])
            for name in ("fill", "fill_value", "pad_value")
            if flags.get(name) is not None
        }
        own_flags |= {name: flags[name] for name in ("align_corners",) if name in flags}
        sequence.extra_args = {key: {**extra, **own_flags} for key, extra in sequence.extra_args.items()}
        (name, _), *_ = sequence.named_children()
        params = [kornia.container.params.ParamItem(name, self._given(len(x), shared, own))]
        out = sequence(
            torch.cat((wide, torch.ones_like(wide[:, :1])), dim=1), params=params, data_keys=["mask"]
        )
        return torch.where(out[:, -1:] > 0.5, out[:, :-1], fill).to(x.dtype)

    def centres(self, step: Step, size: tuple[int, int]) -> Array:
        """Matrices (R, 3, 3), float64, of a step's rows, from pixels' centres to pixels' centres; `size`:
        (height, width) before it."""
        shared: Params = step.constants["shared"]
        given = self._given(
            len(step.rows), shared, {name: torch.tensor(array) for name, array in step.arrays.items()}
        )
        image = torch.empty((), dtype=torch.float64).expand(len(step.rows), int(shared[SHAPE][1]), *size)
        found: Array = self.module.generate_transformation_matrix(image, given, self.module.flags).numpy()
        return found

    def __repr__(self) -> str:
        keys = "" if self.data_keys is None else f", data_keys={list(self.data_keys)}"
        return f"KorniaOp({self.module!r}{keys})"

    def __eq__(self, other: object) -> bool:
        """Returns True for modules that Kornia prints alike."""
        return isinstance(other, KorniaOp) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _zero(fill: object) -> Tensor | float:
    return torch.zeros((), dtype=fill.dtype) if isinstance(fill, Tensor) else 0.0


def _one_by_one(kernel: Callable[..., Tensor], x: Tensor, own: Params, **constants: object) -> Tensor:
    """A kernel on rows that go in one by one."""
    each = [slice(row, row + 1) for row in range(len(x))]
    return torch.cat(
        [kernel(x[row], **constants, **{name: value[row] for name, value in own.items()}) for row in each]
    )


def _why_not(op: KorniaOp) -> str:
    """The reason why the installed Kornia does not do to rows what KorniaOp promises, as a clause, found
    by trial; "" if it does."""
    height, width = np.broadcast_to(np.maximum(_TRIAL, op.module.flags.get("size") or 0), 2).tolist()
    images = torch.rand((len(_TRIED), 3, height, width), generator=torch.Generator().manual_seed(0))
    always = copy.copy(op)
    always.module = copy.deepcopy(op.module)
    always.module.p = 1.0
    with kept_state():
        before = _states()
        try:
            steps = always.plan(Draw(np.array(_TRIED, np.uint32)), Frame(len(_TRIED), height, width, True))
            same = all(
                torch.equal(
                    _run(step, images, [range(len(step.rows))]),
                    _run(step, images, ([place] for place in range(len(step.rows)))),
                )
                for step in steps
            )
        except Exception as error:
            if isinstance(error, GlobalDraw):
                return str(error)
            return f"trying that, Kornia raised {type(error).__name__}: {error}"
        if _states() != before:
            return "it draws from a global generator"
    return "" if same else "what a row becomes depends on those beside it"


def _run(step: Step, images: Tensor, batches: Iterable[Sequence[int]]) -> Tensor:
    """A step on batches of its rows."""
    own = {name: torch.from_numpy(array) for name, array in step.arrays.items()}
    found = [
        step.kernel(
            images[step.rows[places]],
            **{name: value[places] for name, value in own.items()},
            **step.constants,
        )
        for places in map(list, batches)
    ]
    return torch.cat(found)


def _states() -> bytes:
    return pickle.dumps((torch.get_rng_state().numpy(), random.getstate(), np.random.get_state()))
