"""Cells of a text table: the kind of a column's values, and a cell's value. Spaces around a number or a JSON value mean nothing."""

from __future__ import annotations

import math

from fastload.packing.sources.protocol import Value
from fastload.store.checked import parse_json


def parse_cell(cell: str, kind: str) -> Value:
    """The value of a cell in a column of kind int, float, json or text. Raises ValueError if it is not of that kind."""
    if kind == "int":
        number = int(cell)
        if not -(2**63) <= number < 2**63:
            raise ValueError("does not fit 64 bits")
        return number
    if kind == "float":
        return float(cell)
    if kind == "json":
        value: Value = parse_json(cell.strip())
        return value
    return cell


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def guess_kind(cells: list[str]) -> str:
    """The narrowest kind that every cell satisfies."""
    for kind, test in (("int", _is_int), ("float", _is_float), ("json", _is_json)):
        if all(test(cell) for cell in cells):
            return kind
    return "text"


def _is_int(cell: str) -> bool:
    cell = cell.strip()
    # "007" and "1_000" are codes or text to a person: only what prints back the same is a number.
    digits = cell[1:] if cell[:1] in "+-" else cell
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 20


def _is_float(cell: str) -> bool:
    cell = cell.strip()
    if not is_number(cell) and cell.lower().lstrip("+-") not in ("nan", "inf"):
        return False
    digits = cell.lstrip("+-")
    return "_" not in cell and not (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())


def _is_json(cell: str) -> bool:
    cell = cell.strip()
    if cell[:1] not in ("{", "["):
        return False
    try:
        parse_json(cell)
    except ValueError:
        return False
    return True
