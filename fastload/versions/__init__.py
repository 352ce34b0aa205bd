"""Versions: changes of a packed dataset, each of which makes a new version: append, add and drop columns, drop samples, concat, prune."""

from fastload.versions.append import AppendSummary, append

__all__ = ["AppendSummary", "append"]
