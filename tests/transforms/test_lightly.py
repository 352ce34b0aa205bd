"""lightly's transforms of several views, planned as the program has them: their crops are native, the rest
runs as lightly's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import photo

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.transforms.compiler import compile_plan

pytest.importorskip("torchvision")
lightly = pytest.importorskip("lightly.transforms")
MultiViewTransform = pytest.importorskip("lightly.transforms.multi_view_transform").MultiViewTransform

NAMES = [
    "DINOTransform",
    "SimCLRTransform",
    "SwaVTransform",
    "BYOLTransform",
    "MSNTransform",
    "SimSiamTransform",
    "VICRegTransform",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_view_begins_natively(packed: Path, name: str) -> None:
    """The crop of each view is native, what comes after it is Python's; a batch has as many views as
    lightly's, of the same sizes."""
    transform = getattr(lightly, name)()
    ds = PackedDataset(packed, transform=transform, seed=1)
    theirs = transform(photo(1, 90, 120))
    assert len(ds.plan.views) == len(theirs) == len(transform.transforms)
    assert all(view.stages[0].where == "native" for view in ds.plan.views)
    with FastLoader(ds, 4, num_workers=2) as loader:
        views, _ = next(iter(loader))
    for got, want in zip(views, theirs, strict=True):
        assert tuple(got.shape) == (4, *want.shape)
        assert got.dtype == want.dtype == torch.float32


def test_native_views_run_on_threads(packed: Path) -> None:
    """A MultiViewTransform of crops and flips alone is native, and means what Views means."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    parts = [
        v2.ToImage(),
        v2.RandomResizedCrop(32),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    one = v2.Compose(parts)
    multi = MultiViewTransform([one, one])
    with (
        FastLoader(packed, 4, num_workers=2, transform=multi, seed=3) as ours,
        FastLoader(packed, 4, transform=T.Views([one, one]), seed=3) as own,
    ):
        assert ours.stats()["engine"] == "threads"
        for (a, _), (b, _) in zip(ours, own, strict=True):
            assert all(map(torch.equal, a, b))
            assert not torch.equal(*a)


def test_what_is_changed_runs_as_it_is() -> None:
    """A subclass that calls its transforms in its own way, and a step after the views, are left to Python
    whole."""

    class First(MultiViewTransform):  # type: ignore[misc]
        def __call__(self, image: Any) -> Any:
            return super().__call__(image)[0]

    crop = T.RandomResizedCrop(8)
    assert compile_plan(First([len])).views == ()
    plan = compile_plan([crop, MultiViewTransform([len, len]), torch.stack])
    assert plan.views == ()
    assert len(plan.python) == 2


def test_a_replaced_call_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was replaced on lightly's own classes is Python's, until it is put back."""
    transform = lightly.SimCLRTransform()
    one = type(transform.transforms[0])
    assert len(compile_plan(transform).views) == 2
    for owner in (MultiViewTransform, one):
        with monkeypatch.context() as patch:
            patch.setattr(owner, "__call__", lambda self, image: [image])
            plan = compile_plan(transform)
            assert plan.python
            assert all(stage.where == "python" for stage in plan.stages)
        assert all(view.stages[0].where == "native" for view in compile_plan(transform).views)
