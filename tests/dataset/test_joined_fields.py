"""Joined datasets whose fields have one name and are not alike: nothing is read as what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_source import COUNT, packed
from torch.utils.data import ConcatDataset

import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload.errors import ArgumentError
from fastload.store import Field


@pytest.mark.parametrize("fields", [["image", "value"], {"x": "image", "value": "value"}])
def test_columns_of_several_dtypes(tmp_path: Path, fields: Any) -> None:
    """Datasets whose fields have one name and several dtypes are collated as torch does it, and no value
    is cut off."""
    whole = packed(tmp_path / "a", np.arange(2), Field("value", "array", "int64", (2,)))
    half = packed(tmp_path / "b", np.array([0.5, 1.5], np.float32), Field("value", "array", "float32", (2,)))
    dataset: ConcatDataset[Any] = ConcatDataset(
        [PackedDataset(whole, fields=fields), PackedDataset(half, fields=fields)]
    )
    with FastLoader(dataset, 2 * COUNT, num_workers=0) as loader:
        (batch,) = loader
    assert batch["value"][-1].tolist() == [0.5, 1.5]


def test_boxes_of_several_formats(tmp_path: Path) -> None:
    """Boxes of a batch are moved in one format: datasets of several are refused, unless their transforms
    make one of them."""
    box = np.array([[2, 3, 9, 8]], np.float32)
    paths = [packed(tmp_path / form, box, Field("boxes", "boxes", format=form)) for form in ("xyxy", "xywh")]

    def loader(*transform: Any) -> FastLoader[Any]:
        parts: ConcatDataset[Any] = ConcatDataset([PackedDataset(path, list(transform)) for path in paths])
        return FastLoader(
            parts,
            4,
            num_workers=0,
            collate="padded",
            batch_transform=A.AugmentBatch([A.RandomAffine((90, 90))]),
        )

    with pytest.raises(ArgumentError, match="xyxy in one packed dataset and xywh in another"):
        loader()
    with loader(T.ConvertBoundingBoxFormat("xyxy")) as converted:
        assert len(list(converted)) == COUNT * 2 // 4
