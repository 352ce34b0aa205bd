"""No step of a transform leaves a delivered field behind its image, on no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import Scenes
from small_source import COUNT, packed

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.errors import TransformError
from fastload.store import Field


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes") / "d"
    fastload.pack(Scenes(COUNT), out, workers=1)
    return out


@pytest.mark.parametrize("engine", ["auto", "python"])
@pytest.mark.parametrize("name", ["mask", "boxes", "points", "masks"])
def test_views_leave_nothing_behind(scenes: Path, name: str, engine: Any) -> None:
    """Views of an image with masks or objects are refused on every engine, as dataset[i] refuses them."""
    dataset = PackedDataset(scenes, T.Views([[T.RandomCrop(8)], [T.RandomCrop(8)]]), fields=["image", name])
    with pytest.raises(TransformError, match=name):
        dataset[0]
    with (
        pytest.raises(TransformError, match=name),
        FastLoader(dataset, 3, num_workers=0, engine=engine, collate="padded") as loader,
    ):
        list(loader)


def test_views_with_arrays(scenes: Path) -> None:
    """Arrays of any number of rows do not lie in the image: views go with them."""
    dataset = PackedDataset(
        scenes,
        T.Views([[T.RandomResizedCrop(8)], [T.RandomResizedCrop(6)]]),
        fields=["image", "tokens"],
        seed=1,
    )
    whole = PackedDataset(scenes, fields=["tokens"])
    for engine in ("auto", "python"):
        with FastLoader(dataset, COUNT, num_workers=0, engine=engine, collate="flat", seed=1) as loader:
            (batch,) = loader
        assert [view.shape[2] for view in batch["image"]] == [8, 6]
        assert torch.equal(batch["tokens"].values, torch.cat([whole[i]["tokens"] for i in range(COUNT)]))


def test_python_steps_without_the_image(scenes: Path) -> None:
    """A Python step would move a mask with its image: without the image it is refused, and not left out."""
    with pytest.raises(TransformError, match="add the image"):
        PackedDataset(scenes, [T.RandomCrop(8), lambda sample: sample], fields=["mask"])[0]
    assert len(PackedDataset(scenes, [lambda sample: 1 / 0], fields=["tokens", "number"])[0]) == 2


@pytest.mark.parametrize(
    ("channels", "dtype", "mode"), [(1, "uint8", "L"), (4, "uint8", "RGBA"), (1, "uint16", "I;16")]
)
def test_steps_get_the_image_alone(tmp_path: Path, channels: int, dtype: str, mode: str) -> None:
    """Where nothing lies in the image a Python step gets the image alone, of any kind, and beside arrays
    of any number of rows."""
    fields = (Field("label", "int"),) if channels > 1 else (Field("label", "array", "int64", (None,)),)
    path = packed(
        tmp_path / "d", 3 if channels > 1 else np.arange(3), *fields, channels=channels, dtype=dtype
    )
    got: list[Any] = []

    def keep(image: Any) -> Any:
        got.append(image)
        return image

    dataset = PackedDataset(path, [T.CenterCrop(8), keep])
    dataset[0]
    assert got[0].shape == (channels, 8, 8)
    v1 = pytest.importorskip("torchvision.transforms")
    dataset.transform = v1.Compose([v1.CenterCrop(8), v1.Lambda(keep)])
    dataset[0]
    assert (got[1].mode, got[1].size) == (mode, (8, 8))


def test_transform_assigned_without_the_image(tmp_path: Path) -> None:
    """What is delivered does not depend on what was read under another transform."""
    path = packed(tmp_path / "d", np.zeros((16, 16, 1), np.uint16), Field("depth", "image", "uint16", (1,)))
    dataset = PackedDataset(path, fields=["depth"])
    dataset.image_sizes(0)
    dataset.transform = T.RandomCrop(8)
    assert dataset[0]["depth"].shape == (1, 8, 8)
