"""Several views of one image: each is what the entry alone makes, on every engine, in every place where
one image would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastload import FastLoader, Mixture, PackedDataset, pack
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, BatchShapeError, SampleError, TransformError
from fastload.transforms.spec import outputs_of

pytestmark = pytest.mark.usefixtures("no_leaks")


def crops(*, scaled: bool = False) -> list[Any]:
    large = [T.RandomResizedCrop(64, scale=(0.4, 1.0), dct_scale=scaled), T.RandomHorizontalFlip()]
    small = [T.RandomResizedCrop(24, scale=(0.05, 0.4), dct_scale=scaled), T.RandomHorizontalFlip()]
    return [large] * 2 + [small] * 3


def alone(ds: PackedDataset, index: int, view: int, seed: int, epoch: int) -> torch.Tensor:
    """One view by a decode of its own."""
    plan = ds.plan.views[view]
    assert plan.fixed_size is not None
    height, width = plan.fixed_size
    source = core.Source(ds.opened.reader.store, [plan.program], ds.opened.image_field, ds.max_pixels)
    out = torch.empty((3, height, width), dtype=torch.uint8)
    outputs = outputs_of(plan, None, "CHW")
    ds.opened.decoder.decode(
        source, index, seed, epoch, outputs, [out.reshape(-1).numpy()], [(width, height)]
    )
    return out


def same(a: Any, b: Any) -> bool:
    """Whether two batches ([views], labels) are equal."""
    return len(a[0]) == len(b[0]) and all(map(torch.equal, a[0], b[0])) and torch.equal(a[1], b[1])


def test_views_are_the_separate_crops(packed: Path) -> None:
    """Without dct_scale every view is, byte for byte, what a decode for it alone gives; no two views of
    one entry draw the same."""
    ds = PackedDataset(packed, transform=T.Views(crops()), seed=3)
    for index in range(len(ds)):
        views, _ = ds[index]
        assert [tuple(view.shape[1:]) for view in views] == [(64, 64)] * 2 + [(24, 24)] * 3
        for number, view in enumerate(views):
            assert torch.equal(view, alone(ds, index, number, 3, 0)), (index, number)
        assert not torch.equal(views[0], views[1])
        assert not torch.equal(views[2], views[3])


def test_raw_images_have_views_too(image_folder: Path, tmp_path: Path) -> None:
    """The same of images that are stored as pixels."""
    pack(image_folder, tmp_path / "raw", encode="raw")
    ds = PackedDataset(tmp_path / "raw", transform=T.Views(crops(scaled=True)), seed=3)
    for index in range(0, len(ds), 5):
        for number, view in enumerate(ds[index][0]):
            assert torch.equal(view, alone(ds, index, number, 3, 0))


def test_scaled_views_are_near_the_unscaled(packed: Path) -> None:
    """With dct_scale a view is a function of the sample's draws, and the picture is the same one."""
    exact, scaled = (
        PackedDataset(packed, transform=T.Views(crops(scaled=each)), seed=3) for each in (False, True)
    )
    for index in range(len(exact)):
        for a, b in zip(exact[index][0], scaled[index][0], strict=True):
            assert (a.float() - b.float()).abs().mean() < 6


def test_small_views_beside_large_ones_are_as_near_as_alone(packed: Path) -> None:
    """A view that allows a smaller scale than another is no further from the unscaled view than with that
    scale; the other is as alone."""
    entries = [[T.Resize((120, 120), dct_scale=scaled), T.RandomHorizontalFlip()] for scaled in (True, False)]
    small = [[T.RandomResizedCrop(9, scale=(0.5, 1.0), dct_scale=scaled)] for scaled in (True, False)]
    halved, exact = (
        PackedDataset(packed, transform=T.Views([entries[i], small[i]]), seed=3) for i in range(2)
    )
    error = torch.zeros(2)
    for index in range(len(exact)):
        want = exact[index][0][1].float()
        assert torch.equal(halved[index][0][0], alone(halved, index, 0, 3, 0))
        error += torch.stack(
            [
                (got.float() - want).square().mean()
                for got in (halved[index][0][1], alone(halved, index, 1, 3, 0))
            ]
        )
    assert 0 < error[0] < 1.2 * error[1]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batches_are_the_collated_samples(packed: Path, threads: int) -> None:
    """A batch is [[view 1, ..., view N], labels] with default_collate's values, for any number of threads,
    over two epochs."""
    reference = PackedDataset(packed, transform=T.Views(crops(scaled=True)), seed=11)
    with FastLoader(packed, 8, num_workers=threads, transform=T.Views(crops(scaled=True)), seed=11) as loader:
        assert loader.stats()["engine"] == "threads"
        for epoch in range(2):
            reference.set_epoch(epoch)
            for got, want in zip(loader, DataLoader(reference, 8), strict=True):
                assert type(got) is list
                assert type(got[0]) is list
                assert same(got, want)


def test_a_slot_is_held_by_any_of_its_views(packed: Path) -> None:
    """The last view that is alive keeps its bytes, whatever batches come after it."""
    with FastLoader(packed, 4, num_workers=2, transform=T.Views(crops()), seed=1) as loader:
        kept = [(batch[0][4], batch[0][4].clone()) for batch in loader]
        for _ in loader:
            pass
        assert all(torch.equal(view, copy) for view, copy in kept)


@pytest.mark.parametrize("workers", [0, 2])
def test_python_steps_in_entries(packed: Path, workers: int) -> None:
    """What is not native runs per sample in Python, for its view alone; the other views are the native
    ones."""
    entries = crops()
    entries[1] = [*entries[1], invert]
    native, mixed = (PackedDataset(packed, transform=T.Views(each), seed=5) for each in (crops(), entries))
    with FastLoader(mixed, 8, num_workers=workers) as loader:
        assert loader.stats()["engine"] == ("processes" if workers else "caller")
        for got, want in zip(loader, DataLoader(native, 8), strict=True):
            want[0][1] = 255 - want[0][1]
            assert same(got, want)


def invert(image: torch.Tensor) -> torch.Tensor:
    return 255 - image


def test_steps_before_are_drawn_once(packed: Path) -> None:
    """A flip before Views is the same for every view; positions of the list say what draws."""
    entry = T.Resize((40, 40), dct_scale=False)
    ds = PackedDataset(packed, transform=[T.RandomHorizontalFlip(), T.Views([entry, entry])], seed=2)
    one = PackedDataset(packed, transform=[T.RandomHorizontalFlip(), entry], seed=2)
    for index in range(len(ds)):
        first, second = ds[index][0]
        assert torch.equal(first, second)
        assert torch.equal(first, one[index][0])


def test_resume_in_mid_epoch(packed: Path) -> None:
    """The rest of an epoch after load_state_dict is what the first loader went on with."""
    arguments: dict[str, Any] = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "transform": T.Views(crops()),
        "seed": 7,
    }
    with FastLoader(packed, **arguments) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        rest = [([view.clone() for view in views], labels) for views, labels in batches]
    with FastLoader(packed, **arguments) as other:
        other.load_state_dict(state)
        again = list(other)
        assert len(again) == len(rest) > 0
        assert all(map(same, again, rest))


def test_parts_of_datasets(packed: Path) -> None:
    """Subset, ConcatDataset and Mixture of datasets with views run natively."""
    ds = PackedDataset(packed, transform=T.Views(crops()), seed=9)
    for tree in (Subset(ds, [3, 1, 2, 7]), ConcatDataset([ds, ds]), Mixture({ds: 1.0}, samples_per_epoch=8)):
        with FastLoader(tree, 4, num_workers=2, seed=9) as loader:
            assert loader.stats()["engine"] == "threads"
            views, labels = next(iter(loader))
            assert [len(view) for view in views] == [4] * 5
            assert len(labels) == 4


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_bad_samples(image_folder: Path, tmp_path: Path, policy: Any) -> None:
    """A sample that cannot be decoded fails for all of its views together, and on_error applies to it as
    to one image."""
    pack(image_folder, tmp_path / "ds", encode="keep")
    [shard] = (tmp_path / "ds").glob("shard-*.lmdb")
    ds = PackedDataset(tmp_path / "ds", transform=T.Views(crops()), seed=1)
    count = len(ds)
    good = [ds[i][0] for i in range(count)]
    ds.close()
    data = bytearray(shard.read_bytes())
    at = data.index(b"\xff\xd8\xff", len(data) // 2)
    data[at : at + 400] = bytes(400)
    shard.write_bytes(data)
    with FastLoader(ds, 4, num_workers=2, on_error=policy) as loader:
        if policy == "raise":
            with pytest.raises(SampleError):
                list(loader)
            return
        batches = list(loader)
    lengths = {tuple(len(view) for view in views) for views, _ in batches}
    rows = sum(len(labels) for _, labels in batches)
    assert rows == count - (policy == "skip")
    assert all(len(set(each)) == 1 for each in lengths)
    delivered = [row for views, _ in batches for row in zip(*views, strict=True)]
    known = {tuple(view.numpy().tobytes() for view in views) for views in good}
    if policy == "skip":
        assert all(tuple(view.numpy().tobytes() for view in row) in known for row in delivered)


def test_floats_layouts_and_dtypes(packed: Path) -> None:
    """ToFloat and Normalize inside entries, with dtype= and memory_format=, as for one image; each entry
    by its own values."""
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    entries = [
        [*entry, T.Normalize(mean, std)] if number else [*entry, T.ToFloat()]
        for number, entry in enumerate(crops())
    ]
    with FastLoader(packed, 8, transform=T.Views(crops()), seed=4) as loader:
        bytes_of = next(iter(loader))
    with FastLoader(
        packed, 8, transform=T.Views(entries), seed=4, dtype=torch.float32, memory_format=torch.channels_last
    ) as loader:
        views, _ = next(iter(loader))
    for number, (got, raw) in enumerate(zip(views, bytes_of[0], strict=True)):
        want = raw.float() / 255
        if number:
            want = (want - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        assert got.is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(got, want, atol=1e-6)


def test_own_collate_gets_lists(packed: Path) -> None:
    """A collate function gets samples ([views], label), as from torch's loader."""
    ds = PackedDataset(packed, transform=T.Views(crops()), seed=4)
    with FastLoader(ds, 4, num_workers=2, collate_fn=lambda samples: samples) as loader:
        for index, (views, label) in enumerate(next(iter(loader))):
            assert all(map(torch.equal, views, ds[index][0]))
            assert label == ds[index][1]


def test_lists_that_mean_nothing(packed: Path) -> None:
    """A step after Views, Python before it, bytes beside floats, and entries of varying size are refused
    with what to do."""
    crop = T.RandomResizedCrop(24)
    with pytest.raises(TransformError, match="not the last step"):
        PackedDataset(packed, transform=[T.Views([crop]), T.ToFloat()])
    with pytest.raises(TransformError, match="put that into each of its entries"):
        PackedDataset(packed, transform=[invert, T.Views([crop])])
    with pytest.raises(TransformError, match="some in bytes"):
        PackedDataset(packed, transform=T.Views([crop, [crop, T.ToFloat()]]))
    with pytest.raises(TransformError, match="view 2: "):
        PackedDataset(packed, transform=T.Views([crop, [crop, T.Resize(20)]]))
    with pytest.raises(TransformError, match="1 to 64"):
        T.Views([])
    with (
        FastLoader(packed, 8, transform=T.Views([crop, T.Resize(20)])) as loader,
        pytest.raises(BatchShapeError, match="view 2 of index"),
    ):
        next(iter(loader))


def test_batch_transforms_act_on_each_view(packed: Path) -> None:
    """A function of images is called for each view, with draws of its own; what mixes labels in is
    refused."""

    def noise(images: torch.Tensor) -> torch.Tensor:
        return torch.rand(len(images))

    with FastLoader(packed, 8, transform=T.Views(crops()), batch_transform=noise, seed=1) as loader:
        first = next(iter(loader))[0]
        assert [tuple(each.shape) for each in first] == [(8,)] * 5
        assert len({each[0].item() for each in first}) == 5
    with FastLoader(
        packed, 8, transform=T.Views(crops()), batch_transform=noise, seed=1, num_workers=2
    ) as loader:
        assert all(map(torch.equal, first, next(iter(loader))[0]))
    with pytest.raises(ArgumentError, match="mixes images and labels"):
        FastLoader(
            packed, 8, transform=T.Views(crops()), batch_transform=lambda images, labels: (images, labels)
        )


def test_changes_in_place_are_seen(packed: Path) -> None:
    """A transform of torchvision inside an entry that is changed between epochs is in the next one."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    crop = v2.RandomResizedCrop(16)
    ds = PackedDataset(packed, transform=T.Views([[v2.ToImage(), crop], T.RandomResizedCrop(24)]), seed=1)
    assert ds[0][0][0].shape[-1] == 16
    crop.size = (20, 20)
    assert ds[0][0][0].shape[-1] == 20


def test_many_views_and_sizes(packed: Path) -> None:
    """64 views of different sizes lie apart in one slot: each is what its samples are."""
    entries = [T.RandomResizedCrop((3 + n, 5 + 2 * n)) for n in range(64)]
    ds = PackedDataset(packed, transform=T.Views(entries), seed=8)
    with FastLoader(ds, 5, num_workers=2) as loader:
        views, _ = next(iter(loader))
    for number, view in enumerate(views):
        assert np.array_equal(view.numpy(), torch.stack([ds[i][0][number] for i in range(5)]).numpy())
    with pytest.raises(TransformError, match="1 to 64"):
        T.Views([T.RandomResizedCrop(8)] * 65)
