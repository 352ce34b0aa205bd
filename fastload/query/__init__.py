"""Queries over a packed dataset: its fields as Arrow columns, and the rows for which an SQL condition holds."""

from fastload.query.columns import Columns
from fastload.query.condition import ConditionEngine

__all__ = ["Columns", "ConditionEngine"]
