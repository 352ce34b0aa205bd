"""word_flips: lets steps in Python flip tensors of 16-bit integers, of which releases of torch before 2.15 have no flip on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FLIPS = (
    *(torch.flip, torch.fliplr, torch.flipud, torch.rot90),
    *(torch.Tensor.flip, torch.Tensor.fliplr, torch.Tensor.flipud, torch.Tensor.rot90),
)


class WordFlips(TorchFunctionMode):
    """While it is entered, uint16 tensors are flipped as int16 ones, which have the same bytes."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in _FLIPS and args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.uint16:
            words = args[0].as_subclass(torch.Tensor).view(torch.int16)
            return func(words, *args[1:], **given).view(torch.uint16)
        return func(*args, **given)


@cache
def torch_flips_words() -> bool:
    """Whether the installed torch flips uint16 tensors itself, along every axis: it has a kernel for each form of memory."""
    words = torch.zeros(3, 2, 2, dtype=torch.uint16)
    try:
        for each in (words, words[..., 0], words[0, 0], words.permute(1, 2, 0), words.transpose(1, 2)):
            for axis in range(each.ndim):
                each.flip(axis)
            each.flip(tuple(range(each.ndim)))
    except RuntimeError:
        return False
    return True


def word_flips(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """Context for the steps of a sample of these values."""
    wide = any(isinstance(each, torch.Tensor) and each.dtype == torch.uint16 for each in values)
    return WordFlips() if wide and not torch_flips_words() else nullcontext()
