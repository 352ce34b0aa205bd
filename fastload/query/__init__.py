"""Queries over a packed dataset: its fields as Arrow columns, and the rows for which an SQL condition holds."""

from fastload.common.optional import optional
from fastload.query.columns import Columns
from fastload.query.condition import ConditionEngine
from fastload.query.record_columns import arrow_array, arrow_type

__all__ = ["Columns", "ConditionEngine", "arrow_array", "arrow_type", "optional"]
