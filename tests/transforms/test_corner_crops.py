"""torchvision's FiveCrop and TenCrop, planned as views of one decoded image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import SampleError, TransformError
from fastload.transforms.compiler import compile_plan

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
pytestmark = pytest.mark.usefixtures("no_leaks")

CROPS = [v2.FiveCrop(48), v2.FiveCrop((30, 70)), v2.TenCrop(40), v2.TenCrop((50, 20), vertical_flip=True)]


@pytest.mark.parametrize("crops", CROPS, ids=repr)
def test_crops_are_torchvisions(packed: Path, crops: Any) -> None:
    """Each crop is native, and torchvision's to the byte, in its order."""
    ds = PackedDataset(packed, transform=[v2.ToImage(), crops], seed=3)
    whole = PackedDataset(packed)
    assert ds.plan.native
    for index in range(0, len(ds), 6):
        theirs = crops(whole[index][0])
        mine = ds[index][0]
        assert len(mine) == len(theirs)
        assert all(map(torch.equal, mine, theirs))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_boxes_of_any_size(width: int, height: int, data: st.DataObject) -> None:
    """The boxes are those that torchvision cuts out of numbered pixels, up to the crop that is the whole
    image."""
    size = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    numbered = torch.arange(height * width).reshape(1, height, width)
    for view, theirs in zip(
        compile_plan([v2.ToImage(), v2.FiveCrop(size)]).views, v2.FiveCrop(size)(numbered), strict=True
    ):
        x, y, w, h = view.program.resolve(width, height, 0, 0, 0)["window"]
        assert torch.equal(numbered[:, y : y + h, x : x + w], theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_dataloaders(packed: Path, workers: int) -> None:
    """The evaluation of ten crops: native on threads, the values and types that DataLoader has of the
    dataset's samples."""
    steps = [
        v2.Resize(80),
        v2.TenCrop(64),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]
    with FastLoader(packed, 4, num_workers=workers, transform=v2.Compose(steps)) as loader:
        assert loader.stats()["engine"] == "threads"
        for got, want in zip(
            loader, DataLoader(PackedDataset(packed, transform=v2.Compose(steps)), 4), strict=True
        ):
            assert [tuple(view.shape[1:]) for view in got[0]] == [(3, 64, 64)] * 10
            assert type(got[0]) is list
            assert all(map(torch.equal, got[0], want[0]))
            assert torch.equal(got[1], want[1])


def test_later_steps_draw_once(packed: Path) -> None:
    """v2 gives all crops of an image the same draw of what comes after them."""
    plain = PackedDataset(packed, transform=[v2.ToImage(), v2.FiveCrop(40)], seed=1)
    ds = PackedDataset(
        packed, transform=[v2.ToImage(), v2.FiveCrop(40), v2.RandomHorizontalFlip(0.5)], seed=1
    )
    assert ds.plan.native
    flipped = []
    for index in range(len(ds)):
        crops, mine = plain[index][0], ds[index][0]
        flips = [
            torch.equal(a, b.flip(2)) and not torch.equal(a, b) for a, b in zip(mine, crops, strict=True)
        ]
        assert all(flips) or all(map(torch.equal, mine, crops))
        flipped.append(flips[0])
    assert 0.2 < sum(flipped) / len(flipped) < 0.8


def test_fastloads_own_steps_may_follow(packed: Path) -> None:
    """What fastload's transforms make of each crop is what they make of it alone."""
    ds = PackedDataset(packed, transform=[T.Resize(80), v2.FiveCrop(64), T.ToFloat()])
    alone = PackedDataset(packed, transform=[T.Resize(80), T.CenterCrop(64), T.ToFloat()])
    assert torch.equal(ds[3][0][4], alone[3][0])


def stacked(crops: Any) -> torch.Tensor:
    """The usual Lambda after v1's FiveCrop."""
    return torch.stack([v1.functional.to_tensor(crop) for crop in crops])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_gets_torchvisions_tuple(packed: Path, workers: int) -> None:
    """Where something after the crops is not native they are torchvision's own, of Pillow images, and the
    function gets its tuple."""
    transform = v1.Compose([v1.Resize(80), v1.FiveCrop(64), v1.Lambda(stacked)])
    ds = PackedDataset(packed, transform=transform)
    assert [stage.where for stage in ds.plan.stages] == ["native", "python", "python"]
    native = PackedDataset(
        packed,
        transform=[v2.Resize(80), v2.FiveCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    )
    with FastLoader(ds, 4, num_workers=workers) as loader:
        images = next(iter(loader))[0]
    assert images.shape == (4, 5, 3, 64, 64)
    torch.testing.assert_close(images[2], torch.stack(tuple(native[2][0])), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "after",
    [v1.ToTensor(), v2.RandomChannelPermutation(), v2.RandomErasing(1.0, value="random")],
    ids=lambda step: type(step).__name__,
)
def test_what_is_not_native_leaves_the_crops_to_python(after: Any) -> None:
    """v1's steps take no tuple, and native threads do not do the others: the plan leaves all to
    torchvision."""
    for device in (False, True):
        plan = compile_plan([v2.ToImage(), v2.FiveCrop(20), after], device=device)
        assert not plan.views
        assert [stage.where for stage in plan.stages][1:] == ["python", "python"]


def test_crops_larger_than_the_image(packed: Path) -> None:
    """torchvision refuses them; here the error names the sample and both sizes."""
    ds = PackedDataset(packed, transform=[v2.ToImage(), v2.FiveCrop(4000)])
    with pytest.raises(
        (SampleError, TransformError), match=r"sample 2.*corner crop.*4000 x 4000 is larger than the image of"
    ):
        ds[2]
