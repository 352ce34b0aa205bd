"""FastLoader on packed data against torch's DataLoader over the same dataset: same bytes, same order,
nothing lost."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T
from fastload.errors import ArgumentError, BatchShapeError, ClosedError

pytestmark = pytest.mark.usefixtures("no_leaks")
TRAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]


def batches_equal(a: Any, b: Any) -> bool:
    return torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def epoch(loader: Any) -> list[Any]:
    return [(images.clone(), labels.clone()) for images, labels in loader]


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
@pytest.mark.parametrize("prefetch", [None, 1, 5])
def test_bytes_do_not_depend_on_threads_or_prefetch(packed: Path, threads: int, prefetch: int | None) -> None:
    """Each batch equals the stacked samples ds[i] of torch's DataLoader, for two epochs."""
    if threads == 0 and prefetch is not None:
        pytest.skip("prefetch_factor needs threads, as in torch")
    reference = PackedDataset(packed, transform=TRAIN, seed=11)
    ds = PackedDataset(packed, transform=TRAIN)
    with FastLoader(ds, batch_size=8, num_workers=threads, prefetch_factor=prefetch, seed=11) as loader:
        for number in range(2):
            reference.set_epoch(number)
            expected = list(DataLoader(reference, batch_size=8))
            got = epoch(loader)
            assert len(got) == len(expected) == len(loader)
            for a, b in zip(got, expected, strict=True):
                assert batches_equal(a, b)


def test_fallbacks_count_what_libjpeg_turbo_decodes(tmp_path: Path) -> None:
    """None of baseline photographs, each progressive one in each epoch: a slow path is seen in stats()."""
    for kind in ("baseline", "progressive"):
        folder = tmp_path / kind / "one"
        folder.mkdir(parents=True)
        for i in range(12):
            photo(i, 90, 120).save(
                folder / f"{i:02d}.jpg", quality=90, progressive=kind == "progressive" and i % 4 == 0
            )
        out = tmp_path / f"{kind}.fl"
        pack(folder.parent, out, encode="keep")
        for threads in (0, 2):
            with FastLoader(
                PackedDataset(out, transform=TRAIN), batch_size=4, num_workers=threads, seed=1
            ) as loader:
                for _ in range(2):
                    list(loader)
                told = loader.stats()
                expected = 6 if kind == "progressive" else 0
                if threads and expected:  # threads are ahead, in the next epoch
                    assert expected <= told["fallbacks"] <= told["samples"] // 2
                else:
                    assert told["fallbacks"] == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_dataset_under_torch_workers(packed: Path, method: str) -> None:
    """PackedDataset in torch's worker processes gives the same bytes, under fork and spawn."""
    ds = PackedDataset(packed, transform=TRAIN, seed=5)
    ds[0]  # opened before the fork
    torch_loader = DataLoader(ds, batch_size=8, num_workers=2, multiprocessing_context=method)
    with FastLoader(PackedDataset(packed, transform=TRAIN), batch_size=8, num_workers=2, seed=5) as loader:
        for a, b in zip(loader, torch_loader, strict=True):
            assert batches_equal(a, b)


def test_batch_form(packed: Path) -> None:
    """A list of uint8 NCHW in contiguous memory, as DataLoader gives it, and int64 labels; channels_last
    when asked."""
    ds = PackedDataset(packed, transform=T.CenterCrop(64))
    batch = next(iter(FastLoader(ds, batch_size=4)))
    assert isinstance(batch, list)
    images, labels = batch
    assert images.shape == (4, 3, 64, 64)
    assert images.dtype == torch.uint8
    assert images.is_contiguous()
    assert labels.dtype == torch.int64
    last, _ = next(iter(FastLoader(ds, batch_size=4, memory_format=torch.channels_last)))
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, images)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_normalize_is_torchs_arithmetic(
    packed: Path, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Float batches equal (x / 255 - mean) / std computed by torch in float32 and rounded once."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    crops = [T.RandomResizedCrop(48), T.RandomVerticalFlip()]
    plain = PackedDataset(packed, transform=crops)
    floats = PackedDataset(packed, transform=[*crops, T.Normalize(mean, std)])
    for (bytes_, _), (got, _) in zip(
        FastLoader(plain, batch_size=10, seed=3),
        FastLoader(floats, batch_size=10, seed=3, dtype=dtype, memory_format=layout),
        strict=True,
    ):
        expected = (bytes_.float() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        assert got.dtype == dtype
        assert torch.equal(got, expected.to(dtype))


def test_shuffle_covers_every_sample_once(packed: Path) -> None:
    """Each epoch is a permutation; epochs differ; the same seed repeats them; set_epoch goes back."""
    ds = PackedDataset(packed, transform=T.Resize((8, 8)), fields=["image", "label"])

    def order(loader: FastLoader) -> list[bytes]:
        return [images[i].contiguous().numpy().tobytes() for images, _ in loader for i in range(len(images))]

    with FastLoader(ds, batch_size=7, shuffle=True, seed=1) as loader:
        first, second = order(loader), order(loader)
        loader.set_epoch(0)
        again = order(loader)
        assert loader.epoch == 1
    assert sorted(first) == sorted(second)
    assert len(set(first)) == len(ds)
    assert first != second
    assert first == again
    with FastLoader(ds, batch_size=5, shuffle=True, seed=1, num_workers=1) as other:
        assert order(other) == first


def test_unseeded_order_is_torchs(packed: Path) -> None:
    """After torch.manual_seed the sampler's order, and torch's generator afterwards, are DataLoader's own,
    over epochs."""
    ds = PackedDataset(packed, transform=T.Resize((8, 8)))

    def labels(loader: Any, epochs: int) -> list[list[int]]:
        torch.manual_seed(42)
        out = []
        for _ in range(epochs):
            out.append([int(x) for _, y in loader for x in y])
            out.append([int(torch.randint(1000, ()))])  # the user's own draws lie in between
        return out

    with FastLoader(ds, batch_size=6, shuffle=True) as loader:
        assert labels(loader, 3) == labels(DataLoader(ds, batch_size=6, shuffle=True), 3)


def test_unseeded_epochs_repeat_under_manual_seed(packed: Path) -> None:
    """torch.manual_seed repeats crops too, with and without draws between the epochs."""
    ds = PackedDataset(packed, transform=TRAIN)

    def run(draws: int) -> list[Any]:
        torch.manual_seed(9)
        with FastLoader(ds, batch_size=16, shuffle=True) as loader:
            first = epoch(loader)
            torch.rand(draws)
            return first + epoch(loader)

    for draws in (0, 3):
        assert all(batches_equal(a, b) for a, b in zip(run(draws), run(draws), strict=True))
    a, b = run(0), run(3)
    assert all(batches_equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
    assert not all(batches_equal(x, y) for x, y in zip(a[4:], b[4:], strict=True))


def test_held_batches_are_never_overwritten(packed: Path) -> None:
    """list(loader) is right: the ring grows while batches are held, and shrinks when they are let go."""
    ds = PackedDataset(packed, transform=TRAIN)
    with FastLoader(ds, batch_size=4, seed=2, num_workers=2) as loader:
        copies = epoch(loader)
        loader.set_epoch(0)
        held = list(loader)
        for a, b in zip(copies, held, strict=True):
            assert batches_equal(a, b)
        ring = loader._fastload.epochs.engine(loader._fastload.plan).ring
        assert ring.counts()["leased"] >= len(held)
        del a, b
        view = held[3][0][1:2, :, 5:9]
        kept = view.clone()
        del held
        epoch(loader)
        assert torch.equal(view, kept)
        assert ring.counts()["slots"] <= 6
        del view
    del ring, loader


def test_tensors_outlive_the_loader(packed: Path) -> None:
    """A batch stays valid after close() and after the loader is gone."""
    ds = PackedDataset(packed, transform=TRAIN, seed=2)
    loader = FastLoader(ds, batch_size=4, seed=2)
    images, _ = next(iter(loader))
    copy = images.clone()
    loader.close()
    del loader
    gc.collect()
    assert torch.equal(images, copy)
    assert torch.equal(images[0], ds[0][0])


def test_subset_and_concat_keep_the_engine(packed: Path, packed_same_size: Path) -> None:
    """Subset, ConcatDataset and slices of packed data run natively, with the pixels of ds[i]."""
    a, b = (
        PackedDataset(packed, transform=TRAIN, seed=4),
        PackedDataset(packed_same_size, transform=TRAIN, seed=4),
    )
    mixed = ConcatDataset(
        [Subset(a, [3, 1, -1, 20]), b[5:9], b[10:30], Subset(ConcatDataset([b, a]), [0, 40, 32])]
    )
    with FastLoader(mixed, batch_size=5, seed=4, num_workers=2) as loader:
        assert loader._fastload.plan.native is not None
        for got, expected in zip(loader, DataLoader(mixed, batch_size=5), strict=True):
            assert batches_equal(got, expected)


def test_batch_sampler_and_sampler(packed: Path) -> None:
    """Custom samplers, batches of changing size and negative indices are followed; a sample that comes
    again is drawn anew."""
    ds = PackedDataset(packed, transform=TRAIN, seed=4)
    batches = [[3], [1, 2, -1, 30], [4], [4]]
    made = list(FastLoader(ds, batch_sampler=batches, seed=4))
    for number, (got, expected) in enumerate(zip(made, DataLoader(ds, batch_sampler=batches), strict=True)):
        assert batches_equal(got, expected) == (number < 3)
    got = epoch(FastLoader(ds, batch_size=3, sampler=[5, 9, 2, 2, 7], drop_last=True, seed=4))
    assert len(got) == 1
    assert batches_equal(got[0], next(iter(DataLoader(ds, batch_size=3, sampler=[5, 9, 2]))))


def test_batch_size_none_gives_samples(packed: Path) -> None:
    """batch_size=None yields single samples as torch does."""
    ds = PackedDataset(packed, transform=TRAIN, seed=4)
    for got, expected in zip(
        FastLoader(ds, batch_size=None, seed=4), DataLoader(ds, batch_size=None), strict=True
    ):
        assert torch.equal(got[0], expected[0])
        assert got[1] == expected[1]
        assert type(got[1]) is type(expected[1])


def test_custom_collate_sees_samples(packed: Path) -> None:
    """collate_fn gets a list of what ds[i] gives."""
    ds = PackedDataset(packed, transform=TRAIN, seed=4)

    def collate(samples: list[Any]) -> Any:
        return [(int(label), image.sum().item(), tuple(image.shape)) for image, label in samples]

    assert list(FastLoader(ds, batch_size=6, collate_fn=collate, seed=4)) == list(
        DataLoader(ds, batch_size=6, collate_fn=collate)
    )


def test_different_sizes_name_both_and_the_fix(packed: Path, packed_same_size: Path) -> None:
    """Without a resizing transform a mixed batch is an error with both sizes; equal sizes and single
    samples pass."""
    ds = PackedDataset(packed)
    heights, widths = ds.column("__height__"), ds.column("__width__")
    with pytest.raises(
        BatchShapeError,
        match=rf"index 0 is {heights[0]} x {widths[0]} and index 1 is {heights[1]} x {widths[1]}.*Resize",
    ):
        next(iter(FastLoader(ds, batch_size=4)))
    assert len(list(FastLoader(ds, batch_size=1))) == len(ds)
    same = PackedDataset(packed_same_size)
    images, _ = next(iter(FastLoader(same, batch_size=30)))
    assert images.shape == (30, 3, 60, 80)
    assert torch.equal(images[7], same[7][0])


def test_breaking_off_and_exceptions_leave_nothing(packed: Path) -> None:
    """A loop left half-way, or by an exception, or two loops at once: the next epoch is whole and right."""
    ds = PackedDataset(packed, transform=TRAIN)
    with FastLoader(ds, batch_size=4, shuffle=True, seed=8, num_workers=2) as loader:
        whole = epoch(loader)
        for stop in (0, 1, 3, 11):
            loader.set_epoch(0)
            for k, _ in enumerate(loader):
                if k == stop:
                    break
        with pytest.raises(RuntimeError, match="mine"):
            for _ in loader:
                raise RuntimeError("mine")
        loader.set_epoch(0)
        one = iter(loader)
        next(one)
        loader.set_epoch(0)
        two = iter(loader)
        for a, b in zip(itertools.islice(one, 3), itertools.islice(two, 1, 4), strict=True):
            assert batches_equal(a, b)
        loader.set_epoch(0)
        assert all(batches_equal(a, b) for a, b in zip(whole, epoch(loader), strict=True))
        del one, two, a, b


def test_out_of_order_delivers_each_batch_once(packed: Path) -> None:
    """in_order=False hands out the same batches, in any order."""
    ds = PackedDataset(packed, transform=T.Resize((8, 8)))

    def contents(in_order: bool) -> list[bytes]:
        loader = FastLoader(ds, batch_size=3, in_order=in_order, num_workers=4, prefetch_factor=6)
        return sorted(images.contiguous().numpy().tobytes() for images, _ in loader)

    assert contents(True) == contents(False)


def test_next_epoch_begins_early_and_is_dropped_when_wrong(packed: Path) -> None:
    """Batches of the next epoch are in flight before iter() asks; set_epoch makes them void; results are
    as without."""
    ds = PackedDataset(packed, transform=TRAIN)
    with FastLoader(ds, batch_size=10, shuffle=True, seed=6, num_workers=2) as loader:
        first = epoch(loader)
        assert loader._fastload.epochs.early is not None
        assert loader._fastload.epochs.early.iterator.epoch_state.epoch == 1
        second = epoch(loader)
        loader.set_epoch(0)
        assert all(batches_equal(a, b) for a, b in zip(first, epoch(loader), strict=True))
        assert all(batches_equal(a, b) for a, b in zip(second, epoch(loader), strict=True))


def test_changing_the_transform_between_epochs(packed: Path) -> None:
    """Progressive resizing: assigning dataset.transform takes effect at the next epoch."""
    ds = PackedDataset(packed, transform=T.RandomResizedCrop(32))
    with FastLoader(ds, batch_size=10, seed=6) as loader:
        assert next(iter(loader))[0].shape[-1] == 32
        ds.transform = [T.RandomResizedCrop(48)]
        assert next(iter(loader))[0].shape[-1] == 48


def test_python_transforms_run_under_torchs_engine(packed: Path) -> None:
    """A callable after native transforms runs per sample, with the same native pixels."""
    native = PackedDataset(packed, transform=TRAIN)
    mixed = PackedDataset(packed, transform=[*TRAIN, torch.Tensor.float])
    for (a, _), (b, _) in zip(
        FastLoader(native, batch_size=9, seed=1), FastLoader(mixed, batch_size=9, seed=1), strict=True
    ):
        assert torch.equal(a.float(), b)


def test_a_path_is_a_dataset(packed: Path) -> None:
    """FastLoader takes a path and a transform."""
    images, labels = next(iter(FastLoader(packed, batch_size=8, transform=T.CenterCrop(224))))
    assert images.shape == (8, 3, 224, 224)
    assert labels.shape == (8,)


def test_rebuilding_from_attributes(packed: Path) -> None:
    """Frameworks rebuild a loader from the attributes named like its arguments: the copy gives the same
    batches."""
    import inspect

    loader = FastLoader(
        packed, batch_size=8, transform=T.CenterCrop(64), seed=3, num_workers=2, prefetch_factor=3
    )
    names = [
        n
        for n in inspect.signature(FastLoader.__init__).parameters
        if n not in ("self", "shuffle", "batch_sampler")
    ]
    copy = FastLoader(**{name: getattr(loader, name) for name in names})
    for a, b in zip(loader, copy, strict=True):
        assert batches_equal(a, b)


def test_other_datasets_run_as_under_torch() -> None:
    """A dataset that is not packed gives what DataLoader gives, with the same generator draws."""
    data = torch.utils.data.TensorDataset(torch.arange(20.0))
    torch.manual_seed(0)
    a = [x for (x,) in FastLoader(data, batch_size=6, shuffle=True)]
    torch.manual_seed(0)
    b = [x for (x,) in DataLoader(data, batch_size=6, shuffle=True)]
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    with pytest.raises(ArgumentError, match="acts on packed data"):
        FastLoader(data, dtype=torch.float32)


def test_arguments_are_checked_or_spoken_of(packed: Path) -> None:
    """torch's own validation holds; what cannot act on packed data warns; contradictions are errors."""
    ds = PackedDataset(packed, transform=TRAIN)
    with pytest.raises(ValueError, match="shuffle"):
        FastLoader(ds, shuffle=True, sampler=[1])
    with pytest.raises(ValueError, match="prefetch_factor"):
        FastLoader(ds, num_workers=0, prefetch_factor=2)
    with pytest.raises(ArgumentError, match="on_error"):
        FastLoader(ds, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="uint8"):
        FastLoader(PackedDataset(packed, transform=[*TRAIN, T.ToFloat()]), dtype=torch.uint8)
    with pytest.raises(ArgumentError, match="transform= goes with a path"):
        FastLoader(ds, transform=TRAIN)
    with pytest.warns(UserWarning, match="worker_init_fn"):
        FastLoader(ds, worker_init_fn=print)
    with pytest.warns(UserWarning, match="multiprocessing_context"):
        FastLoader(ds, num_workers=1, multiprocessing_context="spawn")
    if not torch.accelerator.is_available():
        with pytest.warns(UserWarning, match="pin_memory"):
            next(iter(FastLoader(ds, pin_memory=True)))


def test_closed_engine_refuses(packed: Path) -> None:
    """Waiting on an iterator of a closed loader is an error, not a hang; iterating the loader anew works."""
    ds = PackedDataset(packed, transform=TRAIN)
    loader = FastLoader(ds, batch_size=4, num_workers=2, seed=0)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(ClosedError):
        for _ in iterator:
            pass
    assert len(epoch(loader)) == len(loader)
    loader.close()
    loader.close()


def test_labels_match_the_column(packed: Path) -> None:
    """Labels of all batches are the column, in order."""
    ds = PackedDataset(packed, transform=T.Resize((8, 8)))
    got = torch.cat([labels for _, labels in FastLoader(ds, batch_size=9)])
    assert np.array_equal(got.numpy(), ds.column("label"))
