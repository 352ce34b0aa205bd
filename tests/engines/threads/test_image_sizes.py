"""Batches of images of different sizes: in a list, padded, or refused, on native threads as by Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from handles import none_left
from hypothesis import HealthCheck, settings
from hypothesis import given as by_hypothesis
from hypothesis import strategies as st
from PIL import Image
from scenes import Scenes
from torch.utils.data import DataLoader

import fastload
from fastload import BucketBatchSampler, FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.batch.collate import Collate
from fastload.engines.threads import engine as engine_module
from fastload.engines.threads.assemble import memory_of
from fastload.engines.threads.image_sizes import ImageLayout, batch_sizes
from fastload.engines.threads.native_batch import SlotImages
from fastload.errors import ArgumentError, BatchShapeError, ResourceError, SampleError

COUNT = 30
JITTER = [T.ScaleJitter((48, 64)), T.RandomHorizontalFlip(0.5)]
LISTS: dict[str, Any] = {
    "stored": None,
    "flips": [T.RandomHorizontalFlip(0.5), T.RandomVerticalFlip(0.5)],
    "shorter side": T.Resize(24, max_size=40),
    "jitter": JITTER,
    "zoom out": [T.RandomZoomOut(fill=(9, 8, 7), p=0.8), T.RandomShortestSize((20, 24, 30), max_size=50)],
    "floats": [*JITTER, T.ToFloat(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))],
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of about as many sizes as there are images."""
    root = tmp_path_factory.mktemp("sizes")
    draw = np.random.default_rng(5)
    for i in range(COUNT):
        folder = root / "images" / f"class{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = draw.integers(8, 90, 2)
        Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8)).save(folder / f"{i:02}.png")
    fastload.pack(root / "images", root / "packed")
    return root / "packed"


def samples_of(samples: list[Any]) -> list[Any]:
    """A collate_fn that gives the samples themselves, copied."""
    return [(image.clone(), image.stride(), label) for image, label in samples]


def same(a: Any, b: Any) -> bool:
    """Whether two batches are equal, in types, strides of images and values."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """Every native object of a test is gone after it."""
    with none_left("batches", "leases", "engines"):
        yield


@pytest.mark.parametrize("name", list(LISTS))
@pytest.mark.parametrize("threads", [0, 3])
def test_own_collate_fn_gets_samples_of_their_sizes(packed: Path, name: str, threads: int) -> None:
    """A collate_fn gets the samples that ds[i] gives, whatever their sizes and however many threads made
    them."""
    ds = PackedDataset(packed, transform=LISTS[name], seed=3)
    want = list(DataLoader(ds, batch_size=7, collate_fn=samples_of))
    with FastLoader(
        ds, batch_size=7, collate_fn=samples_of, seed=3, num_workers=threads, engine="native"
    ) as loader:
        got = list(loader)
    assert same(got, want)
    if name != "stored":
        return
    assert len({image.shape for batch in got for image, _, _ in batch}) > COUNT // 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "collate", [{"collate": "list"}, {"collate": "padded", "pad_to": 1}, {"collate": "padded", "pad_to": 16}]
)
def test_every_type_and_layout_equals_the_python_engine(
    packed: Path, dtype: torch.dtype, memory_format: torch.memory_format, collate: dict[str, Any]
) -> None:
    """Lists and padded batches are equal to those that Collate makes of single samples, of each dtype and
    memory format."""
    ds = PackedDataset(packed, transform=LISTS["floats"], seed=3)
    given: dict[str, Any] = {
        "batch_size": 8,
        "dtype": dtype,
        "memory_format": memory_format,
        "seed": 3,
        "shuffle": True,
        **collate,
    }
    with (
        FastLoader(ds, num_workers=2, engine="native", **given) as native,
        FastLoader(ds, engine="python", **given) as python,
    ):
        for got, want in zip(native, python, strict=True):
            assert same(got, want)
            if collate["collate"] == "padded":
                values = got[0].values
                assert values.is_contiguous(memory_format=memory_format)
                assert not values.masked_select(~got[0].mask[:, None]).any()
                assert all(side % collate["pad_to"] == 0 for side in values.shape[2:])


@pytest.mark.parametrize("kind", ["list", "padded"])
def test_the_same_bytes_by_any_number_of_threads(packed: Path, kind: str) -> None:
    """Batches do not depend on the threads, over several epochs in which slots of other sizes are used
    again."""
    given: dict[str, Any] = {
        "batch_size": 5,
        "seed": 8,
        "shuffle": True,
        "collate": kind,
        "pad_to": 8 if kind == "padded" else None,
    }
    runs = []
    for threads in (0, 1, 4):
        with FastLoader(
            PackedDataset(packed, transform=JITTER), num_workers=threads, engine="native", **given
        ) as loader:
            runs.append([batch for _ in range(3) for batch in loader])
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


@pytest.mark.parametrize("kind", ["list", "padded"])
def test_resumed_in_mid_epoch(packed: Path, kind: str) -> None:
    """A loader that goes on from a state gives the batches that were left, of sizes drawn for the same
    epoch."""
    given: dict[str, Any] = {
        "batch_size": 4,
        "seed": 8,
        "shuffle": True,
        "collate": kind,
        "pad_to": 8 if kind == "padded" else None,
    }
    ds = PackedDataset(packed, transform=JITTER)
    with (
        FastLoader(ds, num_workers=2, engine="native", **given) as loader,
        FastLoader(ds, num_workers=1, engine="native", **given) as other,
    ):
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        left = list(batches)
        other.load_state_dict(state)
        assert same(list(other), left)
        assert len(left) == -(-COUNT // 4) - 3


def test_images_that_happen_to_have_one_size(packed: Path) -> None:
    """Padded batches are Padded, and lists are lists, also where all images have one size."""
    ds = PackedDataset(packed, transform=T.RandomResizedCrop((20, 24)), seed=1)
    with FastLoader(ds, batch_size=4, collate="padded", pad_to=16, seed=1, engine="native") as loader:
        images, _ = next(iter(loader))
    assert images.values.shape == (4, 3, 32, 32)
    assert images.lengths.tolist() == [[20, 24]] * 4
    assert all(torch.equal(images.values[i, :, :20, :24], ds[i][0]) for i in range(4))
    with FastLoader(ds, batch_size=4, collate="list", seed=1, engine="native") as loader:
        assert same(next(iter(loader))[0], [ds[i][0] for i in range(4)])


def test_views_of_different_sizes(packed: Path) -> None:
    """Each view of a sample has its own size, and its own frame."""
    ds = PackedDataset(packed, transform=T.Views([T.RandomResizedCrop(16), T.Resize(20), JITTER]), seed=2)
    for given in ({"collate": "list"}, {"collate": "padded", "pad_to": 4}):
        with (
            FastLoader(ds, batch_size=6, seed=2, num_workers=2, engine="native", **given) as native,
            FastLoader(ds, batch_size=6, seed=2, engine="python", **given) as python,
        ):
            assert same(list(native), list(python))


def test_without_collate_the_error_names_the_ways_out(packed: Path) -> None:
    """A batch of different sizes that has to be stacked is an error that says which samples, and what to
    do."""
    with (
        FastLoader(PackedDataset(packed), batch_size=4) as loader,
        pytest.raises(
            BatchShapeError,
            match=r'index 0 is \d+ x \d+ and index 1 is .*collate="list".*collate="padded" with pad_to=1',
        ),
    ):
        next(iter(loader))


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("given", [{"collate": "list"}, {"collate": "padded", "pad_to": 8}])
def test_bad_rows_are_left_out_or_replaced(packed: Path, on_error: str, given: dict[str, Any]) -> None:
    """Samples that the transform does not fit are skipped, or replaced by others of any size, as Python
    does it; frames follow."""
    heights, widths = PackedDataset(packed).sizes
    crop = T.RandomCrop(30)
    bad = int(((heights < 30) | (widths < 30)).sum())
    assert 2 < bad < COUNT - 2
    ds = PackedDataset(packed, transform=[crop, T.ScaleJitter((40, 40), (0.5, 1.5))], seed=4)
    both = []
    for engine in ("native", "python"):
        with FastLoader(
            ds, batch_size=6, seed=4, on_error=on_error, engine=engine, num_workers=2, **given
        ) as loader:
            both.append(list(loader))
            assert (loader.skipped if on_error == "skip" else loader.replaced) == bad
    assert same(both[0], both[1])


def test_a_bad_row_is_raised_in_its_turn(packed: Path) -> None:
    """A sample that the transform does not fit is a SampleError that names it; the batches before it are
    delivered."""
    heights, widths = PackedDataset(packed).sizes
    first = int(np.flatnonzero((heights < 30) | (widths < 30))[0])
    ds = PackedDataset(packed, transform=T.RandomCrop(30, padding=0))
    order = [*[i for i in range(COUNT) if min(heights[i], widths[i]) >= 30][:4], first]
    with FastLoader(
        torch.utils.data.Subset(ds, order), batch_size=2, collate="list", engine="native"
    ) as loader:
        batches = iter(loader)
        assert len(next(batches)[0]) == len(next(batches)[0]) == 2
        with pytest.raises(SampleError, match=rf"sample {first} of .*RandomCrop\(30, 30\) is larger"):
            next(batches)


def test_slots_do_not_grow_beyond_the_largest_batch(packed: Path) -> None:
    """Over many batches of different sizes there are as many slots as ever, none larger than the largest
    batch and an eighth."""
    ds = PackedDataset(packed, transform=[T.ScaleJitter((60, 60), (0.1, 2.0))], seed=5)
    most = 3 * (120 * 120 * 3 + 64)
    with FastLoader(
        ds,
        batch_size=3,
        shuffle=True,
        seed=5,
        num_workers=2,
        collate="list",
        prefetch_factor=3,
        engine="native",
    ) as loader:
        for _ in range(8):
            for _, _ in loader:
                engine = loader._fastload.epochs.running
                assert engine is not None
                counts = engine.ring.counts()
                assert counts["slots"] <= 6
                assert counts["bytes"] <= counts["slots"] * (most * 9 // 8 + 4096)


def test_a_batch_that_memory_does_not_hold_is_refused(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a batch larger than all before is made, it is asked whether there is memory for it; the error
    says how much it needs."""
    monkeypatch.setattr(engine_module, "ASKED_FROM", 10_000)
    monkeypatch.setattr(engine_module, "available_memory", lambda: 20_000)
    with (
        FastLoader(packed, 8, collate="padded", pad_to=1, engine="native") as loader,
        pytest.raises(
            ResourceError, match=r"a batch .* needs \d+ bytes and 20000 are available: lower batch_size"
        ),
    ):
        list(loader)


def test_memory_that_was_given_back_is_asked_for_again(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge batch whose memory went back to the system in the meantime is refused like the first one, if
    there is no room for it now."""
    monkeypatch.setattr(engine_module, "ASKED_FROM", 1_000_000)
    huge = list(range(COUNT)) * 20
    batches = [[0], huge, *[[number % COUNT] for number in range(900)], huge]
    with FastLoader(
        PackedDataset(packed, [T.Resize((32, 32))]), batch_sampler=batches, num_workers=1, engine="native"
    ) as loader:
        batch_of = iter(loader)
        assert [len(next(batch_of)[0]) for _ in range(590)] == [len(rows) for rows in batches[:590]]
        monkeypatch.setattr(engine_module, "available_memory", lambda: 20_000)
        with pytest.raises(ResourceError, match=r"needs \d+ bytes and 20000 are available: lower batch_size"):
            list(batch_of)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@by_hypothesis(st.data())
def test_any_sizes_lie_as_said(packed: Path, data: st.DataObject) -> None:
    """Of any rows, layout and thread count: each image is its sample's, and in a padded frame all else is
    zero."""
    rows = data.draw(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=9))
    layout = data.draw(
        st.sampled_from(
            [ImageLayout("list"), ImageLayout("padded"), ImageLayout("padded", 7), ImageLayout("padded", 32)]
        )
    )
    order = data.draw(st.sampled_from(["CHW", "HWC"]))
    ds = PackedDataset(
        packed, transform=data.draw(st.sampled_from([None, JITTER, LISTS["zoom out"]])), seed=6
    )
    epoch = data.draw(st.integers(0, 3))
    ds.set_epoch(epoch)
    ring = core.Ring(0, 0)
    engine = core.Engine([ds.source], data.draw(st.integers(0, 2)), 64, ring)
    indices = np.array(rows, np.uint64)
    found = batch_sizes((ds,), np.zeros(len(rows), np.uint32), indices, 1, 6, epoch, layout)
    outputs = [core.Output("uint8", order)]
    batch = core.Batch(
        engine, np.zeros(len(rows), np.uint32), indices, found.for_batch, outputs, 6, epoch, *found.layout
    )
    batch.submit()
    assert core.wait_any([batch], 30) == 0
    assert batch.failures() == []
    images = SlotImages(batch, memory_of(batch.lease()), 0, layout, {}, None)
    assert ring.counts()["leased"] == 1
    want = [ds[row][0] for row in rows]
    assert all(torch.equal(got, one) for got, one in zip(images.samples(), want, strict=True))
    if layout.kind == "padded":
        assert same(images.batch(), Collate("padded", layout.pad_to)([(one, 0) for one in want])[0])
    del images
    assert ring.counts()["leased"] == 0
    engine.close()


def test_sizes_of_many_samples_are_those_of_each(packed: Path) -> None:
    """core.image_sizes gives the size that Program.size gives for each sample, and the reason where there
    is none."""
    ds = PackedDataset(packed, transform=[T.RandomCrop(30), T.ScaleJitter((48, 64))])
    (program,) = ds.plan.programs
    heights, widths = (side.copy() for side in ds.sizes)
    heights[3], widths[4] = 0, 5000
    sizes, failed = core.image_sizes(
        [program], heights, widths, np.arange(COUNT, dtype=np.uint64), 4000, 9, 2
    )
    reasons = {row: (unfit, reason) for row, unfit, reason in failed}
    assert reasons[3] == (False, f"its columns say {widths[3]} x 0 pixels, which no image has")
    assert reasons[4] == (False, f"its columns say 5000 x {heights[4]} pixels; the limit is 4000")
    for i in range(COUNT):
        if i in (3, 4):
            continue
        try:
            size = program.size(int(widths[i]), int(heights[i]), 9, 2, i)
        except ArgumentError as error:
            assert reasons[i] == (True, str(error))
            continue
        if size[0] * size[1] > 4000 or heights[i] * widths[i] > 4000:
            assert not reasons[i][0]
            assert "the limit is 4000" in reasons[i][1]
        else:
            assert tuple(sizes[0, i]) == size
    assert all(not sizes[0, row].any() for row in reasons)


def test_padding_wasted_by_buckets_is_small(tmp_path: Path) -> None:
    """Batches of like aspect ratio, their shorter sides resized as detection does, have less than half the
    padding of mixed ones."""
    draw = np.random.default_rng(8)
    for i in range(240):
        folder = tmp_path / "images" / "all"
        folder.mkdir(parents=True, exist_ok=True)
        size = 48 * np.exp(draw.normal(0, 0.3, 2))
        Image.fromarray(np.full((*size.astype(int), 3), i, np.uint8)).save(folder / f"{i:03}.png")
    fastload.pack(tmp_path / "images", tmp_path / "packed")
    ds = PackedDataset(tmp_path / "packed", transform=T.Resize(24, max_size=64))
    wasted = []
    for given in ({"batch_size": 8, "shuffle": True}, {"batch_sampler": BucketBatchSampler(ds, 8, seed=1)}):
        with FastLoader(ds, collate="padded", pad_to=1, seed=1, engine="native", **given) as loader:
            masks = [batch[0].mask for batch in loader]
        assert sum(len(mask) for mask in masks) == len(ds)
        wasted.append(sum(int((~mask).sum()) for mask in masks) / sum(mask.numel() for mask in masks))
    assert wasted[1] < 0.1
    assert wasted[1] < wasted[0] / 2


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("given", [{"collate": "list"}, {"collate": "padded", "pad_to": 8}])
def test_masks_and_objects_lie_as_their_images(tmp_path: Path, given: dict[str, Any], threads: int) -> None:
    """Masks, instances, boxes and rows of images of different sizes are those of engine="python", in lists
    and padded."""
    fastload.pack(Scenes(14), tmp_path / "packed", workers=1)
    ds = PackedDataset(tmp_path / "packed", transform=JITTER, seed=3)
    rows = [i for i in range(14) if i != 2]  # a thousand instances take their time
    subset = torch.utils.data.Subset(ds, rows)
    with (
        FastLoader(subset, 5, seed=3, num_workers=threads, engine="native", **given) as native,
        FastLoader(subset, 5, seed=3, engine="python", **given) as python,
    ):
        for got, want in zip(native, python, strict=True):
            if isinstance(got, dict):
                assert got.keys() == want.keys()
                assert all(same(got[name], want[name]) for name in got)
            else:
                assert all(same(a[name], b[name]) for a, b in zip(got, want, strict=True) for name in b)
