"""The table of Kornia's augmentations in docs/reference/augment.md says of each class of the installed
Kornia how it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
from test_by_params import module

from fastload import augment as A
from fastload.augment import drawing
from fastload.augment.by_params import NotPerSample
from fastload.augment.kornia_classes import ROWWISE, why_whole
from fastload.augment.steps import Frame

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "augment.md"
BASES = K.AugmentationBase2D, K.MixAugmentationBaseV2
CLASSES = [
    name
    for name, kind in sorted((name, getattr(K, name)) for name in K.__all__)
    if isinstance(kind, type)
    and issubclass(kind, BASES)
    and not issubclass(kind, K.AugmentationBase3D)
    and "Base" not in name
]
"""Kornia's augmentations of 2D images, without the bases."""


def runs(name: str) -> str:
    """The first cell of the class's row, as the code has it."""
    if name == "RandomDissolving":  # it needs the weights of a model
        return f"the whole batch: {why_whole(object.__new__(K.RandomDissolving))}"
    try:
        op = A.KorniaOp(module(name) if name in ROWWISE else getattr(K, name)())
    except NotPerSample as error:
        return f"the whole batch: {error.clause.partition(': ')[2]}"

    def together(way: Any) -> Any:
        return drawing._together(op.module, np.arange(2, dtype=np.uint64), Frame(2, 64, 64, True), way)

    shared = ROWWISE[name].shared
    at_once = not shared and any(
        together(way) is not None for way in (drawing._RowsOfWords, drawing._RowsOfGenerators)
    )
    return f"per sample, drawn {'at once' if at_once else 'row by row'}"


@pytest.mark.filterwarnings("ignore:RandomCutMixV2:DeprecationWarning")
def test_the_table_is_true() -> None:
    """Every class is in the table once, in the row that says how it runs."""
    if not PAGE.exists():
        pytest.skip("no checkout here")
    rows = re.findall(
        r"^\| ((?:per sample|the whole batch).*?) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    told = {name: how for how, names in rows for name in names.split()}
    assert sum(len(names.split()) for _, names in rows) == len(told)
    assert told == {name: runs(name) for name in CLASSES}
