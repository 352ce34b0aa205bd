"""What a user changes after the loader was made holds from the next iter(), and nothing is written into
the user's objects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, SequentialSampler, Subset

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T
from fastload.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("no_leaks")
TRAIN = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]
SMALL = [T.Resize((8, 8))]


def same(image: Any) -> Any:
    """A step that only Python knows: the image's tensor as it is."""
    return (
        image
        if isinstance(image, torch.Tensor)
        else torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    )


def rows(loader: Any) -> list[bytes]:
    return [row.contiguous().numpy().tobytes() for batch in loader for row in batch[0]]


def labels(loader: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize("seed_by", [None, "sample"])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_has_draws_of_its_own(packed: Path, workers: int, seed_by: Any) -> None:
    """With a Python step, over persistent workers: each epoch, and one set by set_epoch, has the bytes of
    native threads."""
    native = FastLoader(PackedDataset(packed, transform=TRAIN), batch_size=8, seed=5, num_workers=0)
    ds = PackedDataset(packed, transform=[*TRAIN, same])
    with FastLoader(
        ds, batch_size=8, seed=5, num_workers=workers, persistent_workers=workers > 0, seed_by=seed_by
    ) as loader:
        assert loader._fastload.plan.native is None
        for epoch in (0, 1, 7):
            loader.set_epoch(epoch)
            native.set_epoch(epoch)
            assert rows(loader) == rows(native)
        assert loader.stats().get("restarts", 0) == 0
    native.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_over_one_dataset_do_not_disturb_each_other(packed: Path, workers: int) -> None:
    """Two loaders with different seeds, side by side, each give what they give alone; the dataset is as it
    was."""
    ds = PackedDataset(packed, transform=[*TRAIN, same])
    before = copy.copy(vars(ds))
    alone = [rows(FastLoader(ds, batch_size=8, seed=seed, num_workers=workers)) for seed in (1, 2)]
    pairs = list(
        zip(*(FastLoader(ds, batch_size=8, seed=seed, num_workers=workers) for seed in (1, 2)), strict=True)
    )
    assert [[row for pair in pairs for row in rows([pair[which]])] for which in (0, 1)] == alone
    first = iter(FastLoader(ds, batch_size=8, seed=1, num_workers=workers))
    got = rows([next(first)])
    rows(FastLoader(ds, batch_size=8, seed=2, num_workers=workers))
    assert got + rows(first) == alone[0] != alone[1]
    assert (ds.seed, ds.epoch) == (None, 0)
    assert {name for name, value in before.items() if vars(ds)[name] is not value} <= {"_source"}


@pytest.mark.parametrize("transform", [SMALL, [*SMALL, same]], ids=["native", "python"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_subset_is_read_at_iter(packed: Path, transform: list[Any], workers: int) -> None:
    """Subset.indices, replaced, extended or changed in place, and Subset.dataset hold from the next
    iter()."""
    ds = PackedDataset(packed, transform=transform)
    subset = Subset(ds, [0, 1, 2])
    with FastLoader(
        subset, batch_size=4, num_workers=workers, persistent_workers=workers > 0, shuffle=False
    ) as loader:
        for change in (
            lambda: setattr(subset, "indices", [5, 6, 7]),
            lambda: subset.indices.extend([9, 11, 13]),  # type: ignore[attr-defined]
            lambda: subset.indices.__setitem__(0, 40),  # type: ignore[attr-defined]
            lambda: setattr(subset, "indices", np.arange(20, 30)),
            lambda: setattr(
                subset,
                "dataset",
                PackedDataset(
                    packed, transform=[T.Resize((8, 8)), T.RandomHorizontalFlip(1.0), *transform[1:]]
                ),
            ),
            lambda: subset.indices.__setitem__(slice(0, 2), 3),  # type: ignore[attr-defined]
        ):
            change()
            expected = list(DataLoader(subset, batch_size=4))
            assert len(loader) == len(expected)
            for _ in range(2):
                assert rows(loader) == rows(expected)


def test_a_subset_changed_in_mid_epoch_leaves_the_pass_alone(packed: Path) -> None:
    """What is under way goes on over the rows that it began with, also while another pass begins."""
    subset = Subset(PackedDataset(packed, transform=SMALL), list(range(20)))
    expected = rows(DataLoader(subset, batch_size=2))
    with FastLoader(subset, batch_size=2, num_workers=2) as loader:
        running = iter(loader)
        got = rows([next(running)])
        subset.indices = [30, 31]
        assert rows(loader) == rows(DataLoader(subset, batch_size=2))
        assert got + rows(running) == expected


def _transform() -> Any:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    return v2.Compose([v2.RandomResizedCrop((24, 24)), v2.RandomHorizontalFlip(0.0)])


CHANGES: dict[str, Callable[[Any, Any], None]] = {
    "an attribute": lambda compose, ds: setattr(compose.transforms[0], "size", (40, 40)),
    "a step": lambda compose, ds: compose.transforms.__setitem__(0, T.CenterCrop(16)),
    "a probability": lambda compose, ds: setattr(compose.transforms[1], "p", 1.0),
    "a step more": lambda compose, ds: compose.transforms.append(same),
    "the transform": lambda compose, ds: setattr(ds, "transform", SMALL),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("python", [False, True], ids=["native", "python"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_changed_in_place_holds(packed: Path, change: str, python: bool, workers: int) -> None:
    """From the next iter(), with persistent workers as well, and for ds[i] at once."""
    compose = _transform()
    ds = PackedDataset(packed, transform=[compose, same] if python else compose)
    with FastLoader(ds, batch_size=8, seed=3, num_workers=workers, persistent_workers=workers > 0) as loader:
        before = rows(loader)
        CHANGES[change](compose, ds)
        after = rows(loader)
        loader.set_epoch(0)
        again = rows(loader)
    fresh = PackedDataset(packed, transform=ds.transform, seed=3)
    assert again == [fresh[i][0].numpy().tobytes() for i in range(len(ds))]
    fresh.set_epoch(1)
    assert after == [fresh[i][0].numpy().tobytes() for i in range(len(ds))]
    assert (before == again) == (change == "a step more")


def test_a_list_of_transforms_changed_in_place_holds(packed: Path) -> None:
    """ds.transform[0] = ... changes ds[i] at once, and the next epoch."""
    ds = PackedDataset(packed, transform=[T.Resize((8, 8))])
    with FastLoader(ds, batch_size=8) as loader:
        assert next(iter(loader))[0].shape[2:] == (8, 8)
        ds.transform[0] = T.Resize((10, 12))
        assert ds[0][0].shape[1:] == (10, 12)
        assert next(iter(loader))[0].shape[2:] == (10, 12)


SAMPLERS: dict[str, Callable[[Any], None]] = {
    "batch_size": lambda loader: setattr(loader.batch_sampler, "batch_size", 5),
    "drop_last": lambda loader: setattr(loader.batch_sampler, "drop_last", True),
    "sampler": lambda loader: setattr(loader.batch_sampler, "sampler", SequentialSampler(range(7))),
    "data_source": lambda loader: setattr(loader.sampler, "data_source", range(9)),
    "num_samples": lambda loader: setattr(loader.sampler, "_num_samples", 11),
    "replacement": lambda loader: setattr(loader.sampler, "replacement", True),
    "generator": lambda loader: setattr(loader.sampler, "generator", torch.Generator().manual_seed(8)),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("change", SAMPLERS)
def test_a_sampler_changed_between_epochs_holds_at_once(packed: Path, change: str, shuffle: bool) -> None:
    """The order of every epoch is DataLoader's, although the next epoch had begun when the sampler was
    changed."""
    if change in ("num_samples", "replacement", "generator") and not shuffle:
        pytest.skip("RandomSampler's")
    orders = []
    for kind in (DataLoader, FastLoader):
        torch.manual_seed(4)
        loader = kind(
            PackedDataset(packed, transform=SMALL),
            batch_size=6,
            shuffle=shuffle,
            num_workers=0 if kind is DataLoader else 2,
        )
        order = [labels(loader)]
        SAMPLERS[change](loader)
        orders.append([*order, labels(loader), labels(loader)])
    loader.close()  # type: ignore[attr-defined]
    assert orders[0] == orders[1]


def test_settings_of_the_engine_changed_between_epochs_hold(packed: Path) -> None:
    """dtype, memory_format and num_workers are read at iter()."""
    with FastLoader(PackedDataset(packed, transform=SMALL), batch_size=4, num_workers=1) as loader:
        assert next(iter(loader))[0].dtype == torch.uint8
        loader.num_workers = 2
        assert len(list(loader)) == len(loader)
        assert loader.stats()["workers"] == 2


@pytest.mark.parametrize(
    "bad",
    [
        [True, False, True],
        np.array([True, False, True]),
        [1.5],
        ["3"],
        [None],
        torch.tensor([True]),
        [np.True_],
    ],
)
@pytest.mark.parametrize("transform", [SMALL, [*SMALL, same]], ids=["native", "python"])
def test_what_is_no_integer_is_no_index(packed: Path, bad: Any, transform: list[Any]) -> None:
    """In a Subset, from a sampler and for ds[...]: TypeError, whose text names the value or its dtype."""
    ds = PackedDataset(packed, transform=transform)
    with pytest.raises(TypeError, match="integers"):
        list(FastLoader(Subset(ds, bad), batch_size=4))
    with pytest.raises(TypeError, match="integers"):
        list(FastLoader(ds, batch_sampler=[bad]))
    with pytest.raises(TypeError, match="integers"):
        list(FastLoader(ds, sampler=bad))
    with pytest.raises(TypeError, match="integers"):
        ds[bad[0]]
    with pytest.raises(TypeError, match="integers"):
        ds.__getitems__(bad)


@pytest.mark.parametrize(
    "good",
    [
        [3, 1],
        (3, 1),
        np.array([3, 1], np.int16),
        torch.tensor([3, 1]),
        [np.uint8(3), torch.tensor(1)],
        range(3, 0, -2),
    ],
)
def test_any_integer_is_an_index(packed: Path, good: Any) -> None:
    """Whatever has __index__ goes, in a Subset and from a batch sampler."""
    ds = PackedDataset(packed, transform=SMALL)
    expected = [ds[3][0].numpy().tobytes(), ds[1][0].numpy().tobytes()]
    assert rows(FastLoader(Subset(ds, good), batch_size=4)) == expected
    assert rows(FastLoader(ds, batch_sampler=[good])) == expected


def test_a_concat_dataset_keeps_the_lengths_it_noted(packed: Path) -> None:
    """As torch reads it: a part that grew shows its first samples, one that shrank is an error that says
    so."""
    ds = PackedDataset(packed, transform=SMALL)
    part = Subset(ds, [0, 1])
    both = ConcatDataset([part, ds])
    with FastLoader(both, batch_size=8) as loader:
        part.indices = [4, 5, 6]
        assert rows(loader) == rows(DataLoader(both, batch_size=8))
        part.indices = [4]
        with pytest.raises(ArgumentError, match="make it anew"):
            iter(loader)


@pytest.mark.parametrize("transform", [TRAIN, [*TRAIN, same]], ids=["native", "python"])
def test_the_seed_of_a_dataset_is_honoured(packed: Path, transform: list[Any]) -> None:
    """A loader without a seed draws from the dataset's; the loader's own takes its place; different ones
    are refused by name."""
    ds = PackedDataset(packed, transform=transform, seed=9)
    expected = rows(FastLoader(PackedDataset(packed, transform=transform), batch_size=8, seed=9))
    assert rows(FastLoader(ds, batch_size=8)) == expected != rows(FastLoader(ds, batch_size=8, seed=1))
    other = PackedDataset(packed, transform=TRAIN, seed=8)
    if transform is TRAIN:
        with pytest.raises(ArgumentError, match="different seeds"):
            list(FastLoader(ConcatDataset([ds, other]), batch_size=8))


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("transform", [SMALL, [*SMALL, same]], ids=["native", "python"])
def test_batches_have_the_types_and_memory_of_dataloaders(
    packed: Path, batch_size: int | None, transform: list[Any]
) -> None:
    """A list, contiguous: batch[0] can be assigned, x.view(len(x), -1) works."""
    ds = PackedDataset(packed, transform=transform)
    ours, theirs = (
        next(iter(FastLoader(ds, batch_size=batch_size))),
        next(iter(DataLoader(ds, batch_size=batch_size))),
    )
    assert type(ours) is type(theirs)
    assert [type(each) for each in ours] == [type(each) for each in theirs]
    assert (ours[0].shape, ours[0].dtype, ours[0].stride()) == (
        theirs[0].shape,
        theirs[0].dtype,
        theirs[0].stride(),
    )
    ours[0] = ours[0].view(len(ours[0]), -1)
    assert torch.equal(ours[0], theirs[0].view(len(theirs[0]), -1))


def test_unused_arguments_are_warned_of_only_where_they_are_unused(packed: Path) -> None:
    """worker_init_fn and multiprocessing_context act where a Python step needs processes: no warning
    there."""
    with FastLoader(
        PackedDataset(packed, transform=[*SMALL, same]),
        num_workers=1,
        worker_init_fn=print,
        multiprocessing_context="spawn",
    ):
        pass
    with pytest.warns(UserWarning, match="worker_init_fn"):
        FastLoader(PackedDataset(packed, transform=SMALL), num_workers=1, worker_init_fn=print).close()


def test_attributes_of_torchvisions_folders(packed: Path, image_folder: Path, tmp_path: Path) -> None:
    """targets is the label column as a list; samples and imgs where names were packed; else
    AttributeError, and a user's own stays."""
    ds = PackedDataset(packed)
    assert ds.targets == ds.column("label").tolist()
    assert not hasattr(ds, "samples")
    assert not hasattr(ds, "imgs")
    ds.targets = [1]
    assert ds.targets == [1]
    image = next(image_folder.rglob("*.jpg"))
    (tmp_path / "list.csv").write_text(
        f"path,label,name\n{image},1,first\n{image},0,second\n", encoding="utf-8"
    )
    pack(tmp_path / "list.csv", tmp_path / "named.fl")
    named = PackedDataset(tmp_path / "named.fl")
    assert named.samples == named.imgs == [("first", 1), ("second", 0)]


def test_batch_samplers_of_another_kind_are_left_alone(packed: Path) -> None:
    """A batch sampler that is no BatchSampler is iterated once an epoch, at its iter()."""
    ds = PackedDataset(packed, transform=SMALL)
    batches = [[0, 1], [2]]
    with FastLoader(ds, batch_sampler=batches) as loader:
        assert len(rows(loader)) == 3
        batches.append([4, 5])
        assert rows(loader) == rows(
            DataLoader(ds, batch_sampler=BatchSampler([0, 1, 2, 4, 5], 2, drop_last=False))
        )
    assert isinstance(FastLoader(ds, shuffle=True).sampler, RandomSampler)
