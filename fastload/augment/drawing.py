"""Parameters of Kornia's modules for the rows of a batch, from a key for each row.

NOTE [ kornia: three ways to draw ]
Kornia draws from torch's global generators, which the loop uses at the same time in another thread. So draws
inside forward_parameters() are answered by modes of torch's, which act in the thread that enters them alone:
1. As words: if every draw is torch.rand() of so many numbers a row, all rows are asked at once, and each gets
   the words of its key.
2. By generators: if the others are permutations, which hold for the whole batch. All rows are asked at once,
   and each gets its share from a generator seeded with its key.
3. Row by row, if anything else is drawn, or whole images: each row alone, from a generator seeded with its
   key.
2 and 3 give a row the numbers that it has alone after torch.manual_seed(key). What is drawn for a whole batch
differs from row to row, so rows go in batches of their own by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fastload._native import core
from fastload.augment.philox import Ints
from fastload.augment.steps import Array, Frame
from fastload.batch.private_draws import PrivateDraws, takes_generator

GATE, SHAPE = "batch_prob", "forward_input_shape"
"""Parameters of all modules: which rows they change, and the shape that the parameters were drawn for."""
_LEAST_ROWS = 61
"""Parameters are drawn for at least so many rows: more than a constant of Kornia's has values, which would
be taken for one a row."""
_MOST = 1 << 18
"""Numbers a row in one draw: those of one stream."""
_FIELD = 4096
"""Numbers a row in one draw of a generator: more take longer at once than row by row, for they leave the
caches."""

Params = dict[str, Tensor]
Keys = npt.NDArray[np.uint64]


class _Module(Protocol):
    """A module of Kornia's, as far as it is asked here."""

    def forward_parameters(self, batch_shape: torch.Size) -> Params: ...


class Drawn(NamedTuple):
    """Rows that a module changes in one call: their parameters, and those that Kornia has once for a
    batch."""

    rows: Ints
    own: dict[str, Array]
    shared: Params


def parameters(module: _Module, keys: Keys, frame: Frame, shared: Sequence[str] = ()) -> list[Drawn]:
    """Parameters of the rows on which Kornia's gate is open; see NOTE [ kornia: three ways to draw ].

    Args:
        module: a module of Kornia's.
        keys: a key for each row.
        frame: size of the batch.
        shared: names of parameters that are one a row, and of which the module reads the first row's alone.
    """
    if not len(keys):
        return []
    ways = () if shared else (_RowsOfWords, _RowsOfGenerators)
    together = (drawn for way in ways if (drawn := _together(module, keys, frame, way)) is not None)
    found = next(together, None)
    return _row_by_row(module, keys, frame, shared) if found is None else found


def _together(
    module: _Module, keys: Keys, frame: Frame, way: Callable[[Keys, int], _Rows]
) -> list[Drawn] | None:
    """All rows asked at once; None if something is drawn that this way has no numbers for."""
    rows = max(len(keys), _LEAST_ROWS)
    while rows in (frame.height, frame.width):
        rows += 1
    try:
        with way(keys, rows) as draws:
            params: Params = module.forward_parameters(
                torch.Size((rows, frame.channels, frame.height, frame.width))
            )
    except _OtherDraw:
        return None
    open_rows = np.flatnonzero(params.pop(GATE)[: len(keys)].numpy() > 0.5)
    differing = {
        name: each
        for name, value in params.items()
        for first, each in draws.of_batch
        if value.data_ptr() == first.data_ptr()
    }
    if len(differing) < len(draws.of_batch):  # something was made of a draw for the whole batch
        return None
    own = {
        name: _array(value)
        for name, value in params.items()
        if name not in differing and value.ndim and len(value) == rows
    }
    shared = {name: value for name, value in params.items() if name not in own}
    return [
        Drawn(
            group,
            {name: array[group] for name, array in own.items()},
            {**shared, **{name: each[group[0]] for name, each in differing.items()}},
        )
        for group in _alike(open_rows, [[each[row] for each in differing.values()] for row in open_rows])
    ]


def _row_by_row(module: _Module, keys: Keys, frame: Frame, shared: Sequence[str]) -> list[Drawn]:
    shape = torch.Size((1, frame.channels, frame.height, frame.width))
    generator = torch.Generator()
    drawn: list[Params] = []
    with PrivateDraws(generator):
        for key in keys.tolist():
            generator.manual_seed(key)
            drawn.append(module.forward_parameters(shape))
    open_rows = np.array([row for row, params in enumerate(drawn) if float(params.pop(GATE)) > 0.5], np.int64)
    own = [name for name, value in drawn[0].items() if name not in shared and value.ndim and len(value) == 1]
    rest = [name for name in drawn[0] if name not in own]
    return [
        Drawn(
            group,
            {name: _array(torch.cat([drawn[row][name] for row in group])) for name in own},
            {name: drawn[group[0]][name] for name in rest},
        )
        for group in _alike(open_rows, [[drawn[row][name] for name in rest] for row in open_rows])
    ]


def _alike(rows: Ints, values: Sequence[Sequence[Tensor]]) -> list[Ints]:
    """The rows in groups of equal values, in the order of their first rows."""
    if not len(rows) or not values[0]:
        return [rows] if len(rows) else []
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for row, each in zip(rows.tolist(), values, strict=True):
        groups.setdefault(tuple(value.numpy().tobytes() for value in each), []).append(row)
    return [np.array(group) for group in groups.values()]


def _array(value: Tensor) -> Array:
    return (value.float() if value.is_floating_point() else value).detach().numpy()


class _OtherDraw(Exception):
    """Something was drawn that this way has no numbers for."""


class _Rows(TorchFunctionMode):
    """Answers draws for `rows` rows, of which the first have keys; the others get anything.

    Attributes:
        of_batch: draws without rows: what the first row drew, which Kornia gets, and what each row drew.
    """

    def __init__(self, keys: Keys, rows: int) -> None:
        super().__init__()
        self.keys, self.rows = keys, rows
        self.of_batch: list[tuple[Tensor, list[Tensor]]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if takes_generator(func) is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device, dtype = torch.device(kwargs.get("device") or "cpu"), kwargs.get("dtype")
        if func is torch.randperm and device.type == "cpu":
            return self.permutation(args[0])
        size = tuple(args[0] if args and not isinstance(args[0], int) else args)
        if (
            func is not torch.rand
            or device.type != "cpu"
            or not size
            or size[0] != self.rows
            or dtype not in (None, torch.float32)
        ):
            raise _OtherDraw
        return self.uniform(size)

    def uniform(self, size: tuple[int, ...]) -> Tensor:
        """Uniform numbers, size[1:] of them for each row; float32. Raises _OtherDraw."""
        raise NotImplementedError

    def permutation(self, count: int) -> Tensor:
        """A permutation of `count` numbers for the whole batch. Raises _OtherDraw."""
        raise _OtherDraw


class _RowsOfWords(_Rows):
    """torch.rand() gives every row the words of its own key: call number c takes those of epoch c, to 24
    bits."""

    def __init__(self, keys: Keys, rows: int) -> None:
        super().__init__(np.concatenate((keys, np.zeros(rows - len(keys), np.uint64))), rows)
        self._calls = 0

    def uniform(self, size: tuple[int, ...]) -> Tensor:
        count = math.prod(size[1:])
        if count > _MOST:
            raise _OtherDraw
        words = core.random_rows(0, self._calls, self.keys, [(0, count)])
        self._calls += 1
        return torch.from_numpy((words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).view(size)


class _RowsOfGenerators(_Rows):
    """Each row has a generator of its own, seeded with its key, that is asked for the row's share."""

    def __init__(self, keys: Keys, rows: int) -> None:
        super().__init__(keys, rows)
        self._generators = [torch.Generator().manual_seed(key) for key in keys.tolist()]

    def uniform(self, size: tuple[int, ...]) -> Tensor:
        if math.prod(size[1:]) > _FIELD:
            raise _OtherDraw
        out = torch.zeros(size)
        for number, generator in enumerate(self._generators):
            torch.rand((1, *size[1:]), generator=generator, out=out[number : number + 1])
        return out

    def permutation(self, count: int) -> Tensor:
        each = [torch.randperm(count, generator=generator) for generator in self._generators]
        self.of_batch.append((each[0], each))
        return each[0]
