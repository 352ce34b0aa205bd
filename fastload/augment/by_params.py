"""Kornia's own modules inside an AugmentBatch: parameters per sample from our generator, handed over by Kornia's `params=`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fastload._native import core
from fastload.augment.philox import Draw, Ints
from fastload.augment.specs import Op, fail
from fastload.augment.steps import Array, Frame, Step
from fastload.batch.bad_samples import kept_state
from fastload.errors import TransformError

ROWWISE = frozenset(
    """
    ColorJiggle ColorJitter RandomAffine RandomAutoContrast RandomBoxBlur RandomBrightness RandomChannelShuffle RandomClahe RandomContrast
    RandomEqualize RandomErasing RandomFisheye RandomGamma RandomGaussianBlur RandomGaussianIllumination RandomGaussianNoise RandomGrayscale
    RandomHorizontalFlip RandomHue RandomInvert RandomLinearCornerIllumination RandomLinearIllumination RandomMedianBlur RandomPerspective
    RandomPlanckianJitter RandomPlasmaBrightness RandomPlasmaContrast RandomPlasmaShadow RandomPosterize RandomRGBShift RandomRotation
    RandomRotation90 RandomSaltAndPepperNoise RandomSaturation RandomSharpness RandomShear RandomSnow RandomSolarize RandomThinPlateSpline
    RandomTranslate RandomVerticalFlip
    """.split()
)
"""Classes of kornia.augmentation for which holds, and is tested: what they do to a row follows from that row's parameters alone, nothing is
drawn after forward_parameters(), and the size stays."""

_MOVING = frozenset(
    """
    RandomAffine RandomFisheye RandomHorizontalFlip RandomPerspective RandomRotation RandomRotation90 RandomShear RandomThinPlateSpline
    RandomTranslate RandomVerticalFlip
    """.split()
)
"""Names of the classes that move pixels."""

_READ_ON_HOST = frozenset({"ColorJiggle", "ColorJitter", "RandomGaussianBlur"})
"""Names of the classes that read their parameters before they queue anything: on a device, each would wait for it."""

_GATE, _SHAPE = "batch_prob", "forward_input_shape"
_LEAST_ROWS = 61
"""Parameters are drawn for at least so many rows: more than a constant of Kornia's has values, which would be taken for one a row."""

_MOST = 1 << 18
"""Numbers a row in one draw: those of one stream."""

Params = dict[str, Tensor]
Keys = npt.NDArray[np.uint64]
Drawn = tuple[Ints, dict[str, Array], Params]
"""Rows, their parameters, and the parameters that are Kornia's of a whole batch."""


class KorniaOp(Op):
    """A module of kornia.augmentation, done to each sample with parameters of its own.

    1. module.forward_parameters() draws them on the host, and they are given to the module as `params=`. Its uniform draws, of so many
       numbers a row, are answered from each row's words of our generator. A module that draws otherwise (a permutation, a normal field) is
       asked row by row, torch's CPU generator seeded by the row's words and put back afterwards: some 0.2 ms a sample instead of 0.01.
    2. So they depend neither on the batch, nor on its order, nor on the device.
    3. The module sees float32 in 0..1, as Kornia's ops want it; uint8 is divided by 255 before and rounded after.
    4. Rows that differ in what Kornia takes once per batch, such as the order in ColorJitter, go in batches of their own.
    5. Nothing is read back from the device while the module runs, as of Kornia 0.9; the copies that it makes itself are its own.

    Args:
        module: an instance of a class in ROWWISE, with its own p; not same_on_batch, and with p_batch 1, which would draw for whole
            batches.

    Raises:
        TransformError: another module. Given as batch_transform=, it runs under Seeded.
    """

    def __init__(self, module: Any) -> None:
        kind = type(module)
        if not is_kornia(module) or kind.__name__ not in ROWWISE:
            raise fail(self, f"{module!r}: its parameters cannot be given per sample; give it as batch_transform, which seeds it per batch")
        if module.same_on_batch or module.p_batch != 1:
            raise fail(self, f"{module!r}: same_on_batch and p_batch are of batches; drop them, or give it as batch_transform")
        self.module = module

    @property
    def moves(self) -> bool:
        """True if the module moves pixels."""
        return type(self.module).__name__ in _MOVING

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        """One step for all rows on which Kornia's gate is open, or one for each set of values that are Kornia's of a whole batch."""
        words = draw.words(2).astype(np.uint64)
        keys = words[:, 0] | words[:, 1] << np.uint64(32)
        return [
            Step(self.run, rows, arrays, {"of_batch": of_batch}, on_host=type(self.module).__name__ in _READ_ON_HOST)
            for rows, arrays, of_batch in self._at_once(keys, frame) or self._row_by_row(keys, frame)
        ]

    def _at_once(self, keys: Keys, frame: Frame) -> list[Drawn] | None:
        """Parameters of all rows, drawn at once; None unless every draw is uniform and has one number a row."""
        rows = max(len(keys), _LEAST_ROWS)
        while rows in (frame.height, frame.width):
            rows += 1
        padded = np.zeros(rows, np.uint64)
        padded[: len(keys)] = keys
        try:
            with _RowsOfUniforms(padded):
                params: Params = self.module.forward_parameters(torch.Size((rows, 3, frame.height, frame.width)))
        except _OtherDraw:
            return None
        open_rows = np.flatnonzero(params.pop(_GATE)[: len(keys)].numpy() > 0.5)
        del params[_SHAPE]
        arrays = {name: _array(value)[open_rows] for name, value in params.items() if value.ndim and len(value) == rows}
        return [(open_rows, arrays, {name: value for name, value in params.items() if name not in arrays})]

    def _row_by_row(self, keys: Keys, frame: Frame) -> list[Drawn]:
        shape = torch.Size((1, 3, frame.height, frame.width))
        groups: dict[tuple[bytes, ...], list[tuple[int, Params, Params]]] = {}
        with kept_state():
            for row, key in enumerate(keys.tolist()):
                torch.default_generator.manual_seed(key)
                params: Params = self.module.forward_parameters(shape)
                if float(params.pop(_GATE)) > 0.5:
                    del params[_SHAPE]
                    of_batch = {name: value for name, value in params.items() if not value.ndim or len(value) != 1}
                    own = {name: value for name, value in params.items() if name not in of_batch}
                    groups.setdefault(tuple(value.numpy().tobytes() for value in of_batch.values()), []).append((row, own, of_batch))
        return [
            (
                np.array([row for row, _, _ in group]),
                {name: _array(torch.cat([own[name] for _, own, _ in group])) for name in first},
                of_batch,
            )
            for group in groups.values()
            for _, first, of_batch in group[:1]
        ]

    def run(self, x: Tensor, of_batch: Params, **params: Tensor) -> Tensor:
        """The module on rows with these parameters, each (rows, ...); those of a whole batch stay on the host, where Kornia reads them."""
        wide = x / 255 if x.dtype == torch.uint8 else x.to(torch.float32, copy=True)
        given = {**params, **of_batch, _GATE: torch.ones(len(x)), _SHAPE: torch.tensor(x.shape)}
        out: Tensor = self.module(wide, params=given)
        if out.shape != x.shape:
            raise TransformError(f"{self!r} made {tuple(out.shape)} of {tuple(x.shape)}; a batch keeps its size")
        return (out * 255).round_().clamp_(0, 255).to(x.dtype) if x.dtype == torch.uint8 else out.to(x.dtype)

    def __repr__(self) -> str:
        return f"KorniaOp({self.module!r})"

    def __eq__(self, other: object) -> bool:
        """Returns True for modules that Kornia prints alike."""
        return isinstance(other, KorniaOp) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def is_kornia(module: object) -> bool:
    """Returns True if the module's class is defined among Kornia's own augmentations."""
    return type(module).__module__.startswith("kornia.augmentation.")


def _array(value: Tensor) -> Array:
    return (value.float() if value.is_floating_point() else value).detach().numpy()


class _OtherDraw(Exception):
    """Something was drawn that is not uniform numbers for every row."""


class _RowsOfUniforms(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch.rand() of so many numbers a row gives every row the words of its own key: call number c takes those of epoch c, to 24 bits."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._keys = keys
        self._calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        size = tuple(args[0]) if func is torch.ops.aten.rand.default else ()
        of_float = kwargs.get("dtype") in (None, torch.float32) and torch.device(kwargs.get("device") or "cpu").type == "cpu"
        count = math.prod(size[1:])
        if not size or size[0] != len(self._keys) or not of_float or count > _MOST:
            raise _OtherDraw
        words = core.random_rows(0, self._calls, self._keys, [(0, count)])
        self._calls += 1
        return torch.from_numpy((words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).view(size)
