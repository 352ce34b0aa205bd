"""quiet(): takes back what a loop has set for its thread, for the time of a stage.

NOTE [ stages: settings of the loop ]
A thread of its own has torch's default settings, so the loop's must not reach the stages that run in the
loop's thread: autocast would round, inference mode would make tensors that nobody may write to, another
default device would make them elsewhere. quiet() takes these back for the time of a stage. The default dtype
is of the whole process; fastload's own stages name every dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def quiet(device: torch.device | None) -> Iterator[None]:
    """Takes back what the loop may have set for its thread; see NOTE [ stages: settings of the loop ].

    Args:
        device: the device of the work; None: the CPU.
    """
    with ExitStack() as stack:
        for kind in {"cpu", "cpu" if device is None else device.type}:
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
