"""fastload: a loader backend for PyTorch. Iterate FastLoader in place of DataLoader, over image files or a
packed dataset."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fastload import errors, transforms
    from fastload.batch.containers import Flat, Padded, PatchedImages
    from fastload.batch.sequences import PackSequences
    from fastload.dataset.in_place.hugging_face import OnImages
    from fastload.dataset.in_place.images import Images
    from fastload.dataset.mixture import Mixture
    from fastload.dataset.packed import PackedDataset
    from fastload.health import HealthMonitor
    from fastload.lazy.imread import imread
    from fastload.loader import FastLoader, accelerate
    from fastload.packing import attach, convert, export, index, pack
    from fastload.packing.read import read
    from fastload.sampling.buckets import BucketBatchSampler
    from fastload.sampling.keyed import KeyedSampler
    from fastload.sampling.token_batches import TokenBatches
    from fastload.sampling.window import WindowSampler
    from fastload.transfer import pull, push
    from fastload.transforms.processor import processor
    from fastload.versions import add_columns, add_tokens, append, concat, drop, drop_columns, prune

__all__ = [
    "BucketBatchSampler",
    "FastLoader",
    "Flat",
    "HealthMonitor",
    "Images",
    "KeyedSampler",
    "Mixture",
    "OnImages",
    "PackSequences",
    "PackedDataset",
    "Padded",
    "PatchedImages",
    "TokenBatches",
    "WindowSampler",
    "__version__",
    "accelerate",
    "add_columns",
    "add_tokens",
    "append",
    "attach",
    "concat",
    "convert",
    "drop",
    "drop_columns",
    "errors",
    "export",
    "imread",
    "index",
    "pack",
    "processor",
    "prune",
    "pull",
    "push",
    "read",
    "transforms",
]

_HOMES = {
    "BucketBatchSampler": ("fastload.sampling.buckets", "BucketBatchSampler"),
    "FastLoader": ("fastload.loader", "FastLoader"),
    "Flat": ("fastload.batch.containers", "Flat"),
    "HealthMonitor": ("fastload.health", "HealthMonitor"),
    "Images": ("fastload.dataset.in_place.images", "Images"),
    "KeyedSampler": ("fastload.sampling.keyed", "KeyedSampler"),
    "Mixture": ("fastload.dataset.mixture", "Mixture"),
    "OnImages": ("fastload.dataset.in_place.hugging_face", "OnImages"),
    "PackSequences": ("fastload.batch.sequences", "PackSequences"),
    "PackedDataset": ("fastload.dataset.packed", "PackedDataset"),
    "Padded": ("fastload.batch.containers", "Padded"),
    "PatchedImages": ("fastload.batch.containers", "PatchedImages"),
    "TokenBatches": ("fastload.sampling.token_batches", "TokenBatches"),
    "WindowSampler": ("fastload.sampling.window", "WindowSampler"),
    "accelerate": ("fastload.loader", "accelerate"),
    "add_columns": ("fastload.versions", "add_columns"),
    "add_tokens": ("fastload.versions", "add_tokens"),
    "append": ("fastload.versions", "append"),
    "attach": ("fastload.packing", "attach"),
    "concat": ("fastload.versions", "concat"),
    "convert": ("fastload.packing", "convert"),
    "drop": ("fastload.versions", "drop"),
    "drop_columns": ("fastload.versions", "drop_columns"),
    "processor": ("fastload.transforms.processor", "processor"),
    "prune": ("fastload.versions", "prune"),
    "pull": ("fastload.transfer", "pull"),
    "push": ("fastload.transfer", "push"),
    "export": ("fastload.packing", "export"),
    "imread": ("fastload.lazy.imread", "imread"),
    "index": ("fastload.packing", "index"),
    "pack": ("fastload.packing", "pack"),
    "read": ("fastload.packing.read", "read"),
    "errors": ("fastload.errors", None),
    "transforms": ("fastload.transforms", None),
}

if sys.platform in ("darwin", "win32"):  # See NOTE [ portable: one door ].
    from fastload import portable

    portable.open_door()
    _HOMES |= {name: ("fastload.portable", name) for name in portable.NATIVE_ONLY}


def __getattr__(name: str) -> Any:
    """Imports on first use, so that `fastload pack` and `fastload info` never wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fastload' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    value = import_module(module)
    value = value if attribute is None else getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names that are imported on first use among the others."""
    return sorted({*globals(), *__all__})
