"""Caches of a dataset in a bucket: the sizes to try."""

from __future__ import annotations

from fastload.tune.trials import Setting

SHARES = {"25%": 0.25, "50%": 0.5, "100%": 1.0}
"""Sizes of a cache, as shares of what the samples take in it."""
CACHE = Setting("cache size", tuple(SHARES), "100%")
FETCHED = 512
"""Most samples that are tried: each is fetched once for every cache, and what a cache lacks once an epoch."""
