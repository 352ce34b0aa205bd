"""Queries over a packed dataset: its fields as Arrow columns, and the rows for which an SQL condition holds."""

from fastload.query.columns import Columns, arrow_array
from fastload.query.condition import ConditionEngine
from fastload.query.optional import optional

__all__ = ["Columns", "ConditionEngine", "arrow_array", "optional"]
