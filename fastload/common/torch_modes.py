"""is_watched(): finds out whether other code sees torch's operators."""

from __future__ import annotations

import torch


def is_watched() -> bool:
    """Returns True where other code sees each of torch's operators, or they run in another way."""
    return bool(
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.maybe_current_level()
    )
