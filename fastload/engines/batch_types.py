"""Types of batches by the type of a sample, for type checkers: what torch's default_collate makes of it.

A sample's type is that of its Dataset, as in `Dataset[tuple[Tensor, int]]`. Where it leaves open what a batch
is, the batch is Any: for Dataset[Any], a packed dataset, whose schema decides, strings, nested containers,
named tuples.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import TypeVar

from fastload.engines.settings import Arguments, Samples

_T = TypeVar("_T", covariant=True, default=Any)


class Batches:
    """Batches of any type: a loader's second type parameter where nothing more is known."""


class DefaultBatches(Batches):
    """Batches that torch's default_collate makes, and nothing changes."""


if TYPE_CHECKING:

    @dataclass(frozen=True, eq=False)
    class DefaultArguments(Arguments[_T]):
        """Arguments that give DefaultBatches."""

        dataset: Dataset[_T] | Samples[_T]
        batch_size: int = 1
        collate_fn: None = None
        _: KW_ONLY
        transform: None = None
        batch_transform: None = None
        collate: None = None
        pad_to: None = None

    @final
    class _Nothing:
        """A type that no value has: only Any takes its place."""

    class _Named(Protocol):
        """A named tuple: its batch is one too, of another type."""

        def _asdict(self) -> dict[str, Any]: ...

    Value: TypeAlias = Tensor | float | np.number[Any] | npt.NDArray[Any]
    """A value whose samples become one Tensor."""
    Unread: TypeAlias = (
        _Nothing
        | _Named
        | tuple[_Nothing, ...]
        | tuple[_Nothing, Value]
        | tuple[Value, _Nothing]
        | dict[Any, _Nothing]
    )
    """A sample whose type does not say what its batch is, such as `tuple[Any, Any]`."""
