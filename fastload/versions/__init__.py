"""Versions: changes of a packed dataset, each of which makes a new version: append, add and drop columns,
drop samples, concat, prune."""

from fastload.versions.append import AppendSummary, append
from fastload.versions.columns import ColumnsSummary, add_columns, drop_columns
from fastload.versions.concat import ConcatSummary, concat
from fastload.versions.drop import DropSummary, PruneSummary, drop, prune
from fastload.versions.tokens import add_tokens

__all__ = [
    "AppendSummary",
    "ColumnsSummary",
    "ConcatSummary",
    "DropSummary",
    "PruneSummary",
    "add_columns",
    "add_tokens",
    "append",
    "concat",
    "drop",
    "drop_columns",
    "prune",
]
