"""Samples of any number of images, delivered: equal on every engine, in each form, with one draw or one
each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from documents import (
    COUNTS,
    Documents,
    documents,
    table,
    write_arrow,
    write_json,
    write_parquet,
)
from torch.utils.data import ConcatDataset, Subset

import fastload
from fastload import FastLoader, Flat, Mixture, PackedDataset, Padded, PatchedImages, TokenBatches
from fastload import transforms as T
from fastload.augment import AugmentBatch, ColorJitter
from fastload.batch.sequences import PackSequences
from fastload.errors import ArgumentError, BatchShapeError, SampleError, TransformError
from fastload.store import DatasetReader

ENGINES = (
    {"num_workers": 2},
    {"num_workers": 0},
    {"num_workers": 2, "engine": "python"},
    {"num_workers": 0, "engine": "python"},
)
CROP = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToFloat()]
PATCHES = [T.Patches(max_pixels=70 * 70, dct_scale=False)]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    fastload.pack(write_parquet(folder / "a.parquet"), folder / "documents.fl", encode="keep")
    return folder / "documents.fl"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def epochs(dataset: Any, batch: int = 4, count: int = 2, **options: Any) -> list[Any]:
    """All batches of some epochs."""
    given = {"seed": 5, "shuffle": True, **options}
    with FastLoader(dataset, batch, **given) as loader:
        return [batch for _ in range(count) for batch in loader]


@pytest.mark.parametrize("draws", ["sample", "image"])
@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
@pytest.mark.parametrize(
    "steps", [CROP, PATCHES, None, [T.RandomCrop(20)]], ids=["crop", "patches", "none", "cut"]
)
def test_every_engine_gives_the_same(steps: Any, collate: str, draws: str, packed: Path) -> None:
    """And dataset[i] with the loader's seed does."""
    dataset = PackedDataset(packed, steps, seed=5, draws=draws)
    first, *others = (epochs(dataset, collate=collate, **engine) for engine in ENGINES)
    assert all(same(first, other) for other in others)
    with FastLoader(dataset, 1, collate="list", num_workers=2, seed=5) as loader:
        assert loader._fastload.plan.native is not None
        assert same([sample for (sample,) in loader], list(dataset))


def test_the_forms_of_images(packed: Path) -> None:
    """One tensor where the transform gives them one size, patches, or a list; of no image, empty ones."""
    for index, row in enumerate(documents()):
        count = len(row["images"])
        images = PackedDataset(packed, CROP)[index]["images"]
        assert images.shape == (count, 3, 24, 24)
        assert images.dtype == torch.float32
        patched = PackedDataset(packed, PATCHES)[index]["images"]
        assert isinstance(patched, PatchedImages)
        assert len(patched.image_grid_thw) == count
        assert patched.pixel_values.shape == (int(patched.image_grid_thw.prod(dim=1).sum()), 1176)
        assert len(PackedDataset(packed)[index]["images"]) == count


def test_batches_flat_and_padded(packed: Path) -> None:
    """Lengths are those of the samples; flat batches lie as they were made, without a copy."""
    dataset = PackedDataset(packed, CROP, seed=5)
    (flat,) = epochs(dataset, len(dataset), 1, collate="flat", shuffle=False, num_workers=2)
    (padded,) = epochs(dataset, len(dataset), 1, collate="padded", shuffle=False, num_workers=2)
    counts = [len(row["images"]) for row in documents()]
    assert isinstance(flat["images"], Flat)
    assert isinstance(padded["images"], Padded)
    assert flat["images"].offsets.diff().tolist() == padded["images"].lengths.tolist() == counts
    assert padded["images"].values.shape == (len(counts), max(counts), 3, 24, 24)
    assert torch.equal(padded["images"].values[padded["images"].mask], flat["images"].values)
    assert flat["images"].values.untyped_storage().nbytes() >= flat["images"].values.nbytes
    assert flat["text"] == [row["text"] for row in documents()]
    assert flat["ids"].values.tolist() == [token for row in documents() for token in row["ids"]]
    with pytest.raises(ArgumentError, match="Resize"):
        epochs(PackedDataset(packed), 3, 1, collate="padded", pad_to=8)


def test_without_collate_it_is_as_torch_stacks_them(packed: Path) -> None:
    """Samples of as many images are stacked; else the error says what to pass."""
    dataset = PackedDataset(packed, CROP, fields=["images", "n"], seed=5)
    one = Subset(dataset, [1, 6, 8, 13])
    for engine in ENGINES:
        (batch,) = epochs(one, 4, 1, shuffle=False, **engine)
        assert batch["images"].shape == (4, 1, 3, 24, 24)
        with pytest.raises((BatchShapeError, RuntimeError), match="collate="):
            epochs(dataset, 4, 1, shuffle=False, **engine)


def test_one_draw_of_a_sample_or_one_each(tmp_path: Path) -> None:
    """Of images that are alike, one draw makes them alike; drawn each, they differ."""
    alike = [{"images": [Documents()[2]["images"][0]] * 4} for _ in range(6)]
    fastload.pack(alike, tmp_path / "out.fl")
    for draws, alone in (("sample", 1), ("image", 4)):
        for engine in ENGINES:
            batches = epochs(
                PackedDataset(tmp_path / "out.fl", CROP, draws=draws), 2, collate="list", **engine
            )
            for images in (sample["images"] for batch in batches for sample in batch):
                assert len({image.numpy().tobytes() for image in images}) == alone
    with pytest.raises(ArgumentError, match="draws='each'"):
        PackedDataset(tmp_path / "out.fl", draws="each")
    with pytest.raises(ArgumentError, match=r"which .* has not"):
        PackedDataset(tmp_path / "out.fl" / "images", draws="image")


def test_an_index_that_comes_again_is_drawn_anew(packed: Path) -> None:
    """On every engine alike: the draws follow from the occurrence, too."""
    dataset = Subset(PackedDataset(packed, CROP), [2, 2, 5, 2])
    found = [epochs(dataset, 4, 1, collate="flat", shuffle=False, **engine)[0] for engine in ENGINES]
    assert all(same(found[0], other) for other in found[1:])
    images = found[0]["images"].values
    assert not torch.equal(images[:3], images[3:6])


def test_mixtures_ranks_and_resume(packed: Path) -> None:
    """Each sample once, with its images, also of several datasets and of the ranks; and after a stop."""
    dataset = PackedDataset(packed, CROP, seed=5)
    joined = ConcatDataset([dataset, Subset(dataset, [3, 2])])
    assert same(*(epochs(joined, 4, 1, collate="flat", **engine) for engine in ENGINES[:3:2]))
    mixed = Mixture([(dataset, 1), (PackedDataset(packed, CROP, seed=5), 2)])
    assert same(*(epochs(mixed, 4, 1, collate="flat", shuffle=None, **engine) for engine in ENGINES[:3:2]))
    ranks = [epochs(dataset, 2, 1, collate="list", num_workers=2, shard=(rank, 2)) for rank in range(2)]
    assert sorted(sample["n"] for rank in ranks for batch in rank for sample in batch) == list(
        range(len(dataset))
    )
    with FastLoader(dataset, 3, collate="flat", num_workers=2, shuffle=True, seed=1) as loader:
        whole = list(loader)
    with FastLoader(dataset, 3, collate="flat", num_workers=2, shuffle=True, seed=1) as loader:
        iterator = iter(loader)
        began = [next(iterator), next(iterator)]
        state = loader.state_dict()
    with FastLoader(dataset, 3, collate="flat", num_workers=0, shuffle=True, seed=1) as loader:
        loader.load_state_dict(state)
        assert same([*began, *loader], whole)


@pytest.fixture
def damaged(packed: Path, tmp_path: Path) -> Path:
    """The second image of sample 2 is damaged."""
    shutil.copytree(packed, tmp_path / "bad.fl")
    shard = tmp_path / "bad.fl" / "images" / "shard-00000.lmdb"
    data = bytearray(shard.read_bytes())
    data[data.index(documents()[2]["images"][1][-60:]) + 9] ^= 255
    shard.write_bytes(data)
    return tmp_path / "bad.fl"


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_a_damaged_image_is_its_samples_error(engine: dict[str, Any], damaged: Path) -> None:
    """Raised by the sample's number and the image's, left out with its sample, or replaced by another one."""
    dataset = PackedDataset(damaged, CROP, seed=5)
    with pytest.raises(SampleError, match=r"sample 2 of .*: image 1: "):
        epochs(dataset, collate="flat", **engine)
    options = {"collate": "list", "shuffle": False, **engine}
    left = [sample["n"] for batch in epochs(dataset, 4, 1, on_error="skip", **options) for sample in batch]
    assert left == [0, 1, *range(3, len(dataset))]
    with FastLoader(dataset, 4, seed=5, on_error="replace", **options) as loader:
        batches = [sample for batch in loader for sample in batch]
    assert len(batches) == len(dataset)
    (instead,) = (sample for at, sample in enumerate(batches) if sample["n"] != at)
    assert len(instead["images"]) == COUNTS[instead["n"] % len(COUNTS)]
    flat = epochs(dataset, 4, 1, on_error="replace", collate="flat", shuffle=False, **engine)
    assert flat[0]["images"].offsets.diff().tolist()[2] == len(instead["images"])


def test_a_replaced_sample_is_the_same_on_every_engine(damaged: Path) -> None:
    found = [
        epochs(PackedDataset(damaged, steps, seed=5), collate="flat", on_error="replace", **engine)
        for steps in (CROP, PATCHES)
        for engine in ENGINES
    ]
    assert all(same(found[0], other) for other in found[1:4])
    assert all(same(found[4], other) for other in found[5:])


def test_batches_without_any_image(packed: Path) -> None:
    """On every engine, patches and tensors of none."""
    for steps in (CROP, PATCHES):
        none = Subset(PackedDataset(packed, steps), [0, 4, 7])
        found = [epochs(none, 3, 1, collate="flat", shuffle=False, **engine)[0] for engine in ENGINES]
        assert all(same(found[0], other) for other in found[1:])
        assert len(found[0]["images"][0]) == 0


def test_python_steps_get_each_image(packed: Path) -> None:
    """Native threads leave them to workers; samples have lists."""
    dataset = PackedDataset(packed, [T.Resize((20, 20)), lambda image: image.float().mean()], seed=5)
    found = [epochs(dataset, 4, 1, collate="list", **engine) for engine in ENGINES]
    assert all(same(found[0], other) for other in found[1:])
    assert [len(sample["images"]) for sample in dataset] == [len(row["images"]) for row in documents()]


@pytest.mark.parametrize(
    "more",
    [
        {"dtype": torch.float16},
        {"memory_format": torch.channels_last},
        {"batch_transform": T.Normalize((0.5,) * 3, (0.2,) * 3)},
        {"batch_transform": [T.ToFloat()], "dtype": torch.bfloat16},
    ],
    ids=str,
)
@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
def test_forms_and_floats_of_batches(more: dict[str, Any], collate: str, packed: Path) -> None:
    """dtype=, memory_format= and floats of whole batches are honoured on every engine, or refused alike."""
    for steps in ([T.Resize((20, 20))], PATCHES, None):
        if "batch_transform" in more and (collate == "list" or steps is None):
            with pytest.raises(ArgumentError, match=r"as one tensor|of their own sizes"):
                epochs(PackedDataset(packed, steps), num_workers=2, collate=collate, **more)
            continue
        first, *others = (
            epochs(PackedDataset(packed, steps), count=1, collate=collate, **more, **engine)
            for engine in ENGINES
        )
        assert all(same(first, other) for other in others)


@pytest.mark.parametrize("more", [{"dtype": torch.float16}, {"memory_format": torch.channels_last}], ids=str)
def test_floats_of_lists_of_one_length(more: dict[str, Any], packed: Path) -> None:
    """Without collate= they are one tensor (B, N, C, H, W), on every engine; lists of other lengths are an
    error that says what to give."""
    dataset = PackedDataset(packed, [T.Resize((20, 20))], fields=("images", "n"))
    for chosen in ([1, 6, 8, 13], [0, 4, 7]):
        first, *others = (epochs(Subset(dataset, chosen), 4, 1, **more, **engine) for engine in ENGINES)
        assert first[0]["images"].shape == (len(chosen), len(dataset[chosen[0]]["images"]), 3, 20, 20)
        for other in others:
            assert same(first, other)
            assert first[0]["images"].stride() == other[0]["images"].stride()
    for engine in ENGINES:
        with pytest.raises(BatchShapeError, match="collate="):
            epochs(dataset, **more, **engine)


def test_what_augments_batches_says_what_it_takes(packed: Path) -> None:
    augments = AugmentBatch([ColorJitter(brightness=0.5)])
    with pytest.raises(ArgumentError, match="takes an image a sample, and these are Flat"):
        epochs(PackedDataset(packed, CROP), collate="flat", num_workers=2, batch_transform=augments)


def test_reports_know_them(packed: Path) -> None:
    """explain() measures the images, also with Python steps; health and show() work as ever."""
    for steps in (CROP, [T.Resize((20, 20)), lambda image: image.float().mean()]):
        with FastLoader(PackedDataset(packed, steps), 4, collate="list", num_workers=2) as loader:
            assert len(list(loader)) == 4
            assert "decode" in loader.explain(measure=True)
            assert "samples/s" in str(loader.health.report())
    assert PackedDataset(packed).show(4, side=32).size[0] > 6 * 32


@pytest.mark.parametrize("source", ["parquet", "arrow", "jsonl", "dataset"])
def test_times_of_images(source: str, tmp_path: Path) -> None:
    """Seconds beside the images, as many of them: float64 rows, whatever names them and on every engine."""
    rows = documents(7)
    times = [[number / 3 for number in range(len(row["images"]))] for row in rows]
    rows = [{**row, "times": each} for row, each in zip(rows, times, strict=True)]
    if source in ("parquet", "arrow"):
        columns = table().slice(0, 7).append_column("times", pa.array(times, pa.list_(pa.float64())))
        given: Any = tmp_path / f"a.{source}"
        pq.write_table(columns, given) if source == "parquet" else write_arrow(given, columns)
    elif source == "jsonl":
        given = write_json(tmp_path, "a.jsonl", rows)
    else:
        given = [{**row, "times": np.array(row["times"])} for row in rows]
    fastload.pack(given, tmp_path / "a.fl", encode="keep")
    dataset = PackedDataset(tmp_path / "a.fl", CROP)
    assert [sample["times"].tolist() for sample in dataset] == times
    for engine in ENGINES:
        for batch in epochs(dataset, collate="flat", **engine):
            assert batch["times"].values.dtype == torch.float64
            assert batch["times"].offsets.tolist() == batch["images"].offsets.tolist()


def test_several_views_are_refused(packed: Path) -> None:
    with pytest.raises(TransformError, match="take one view"):
        PackedDataset(packed, T.Views([T.RandomResizedCrop(20), T.RandomResizedCrop(10)]))[2]


def test_conditions_and_columns_know_the_number_of_images(packed: Path) -> None:
    dataset = PackedDataset(packed, CROP)
    counts = [len(row["images"]) for row in documents()]
    assert list(dataset.where("images_count >= 2").indices) == [
        at for at, count in enumerate(counts) if count >= 2
    ]
    assert dataset.table()["images_count"].to_pylist() == counts
    assert "images" not in dataset.table().column_names
    assert "images (any number of images)" in repr(dataset)
    only = PackedDataset(packed, fields=["n", "text"])
    assert epochs(only, 4, 1, shuffle=False, num_workers=0)[0]["n"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_bins_of_tokens_and_sequences(engine: dict[str, Any], packed: Path) -> None:
    """Tokens are planned from stored sizes: texts and all images of each sample, as the batches have them."""
    dataset = PackedDataset(packed, PATCHES, fields=["images", "ids"], seed=5)
    plan = TokenBatches(dataset, 64, text="ids", seed=1, on_long="drop")
    rows = documents()
    left: list[int] = []
    with FastLoader(
        dataset,
        batch_sampler=plan,
        collate_fn=PackSequences(tokens="ids", image_token=99, mrope=True),
        seed=5,
        **engine,
    ) as loader:
        for samples, batch in zip(list(plan), loader, strict=True):
            left += samples
            tokens = 0
            for sample in samples:
                grids = dataset[sample]["images"].image_grid_thw
                assert len(grids) == len(rows[sample]["images"])
                tokens += (
                    sum(token != 99 for token in rows[sample]["ids"]) + int(grids.prod(dim=1).sum()) // 4
                )
            assert len(batch["input_ids"]) == tokens <= 64
            assert len(batch["image_grid_thw"]) == sum(len(rows[sample]["images"]) for sample in samples)
    assert len(left) == len(set(left)) > 10


def test_a_fork_and_a_pickle_open_the_images_anew(packed: Path) -> None:
    """In worker processes that are started either way."""
    dataset = PackedDataset(packed, CROP, seed=5)
    want = epochs(dataset, 4, 1, collate="flat", num_workers=0)
    for context in ("fork", "spawn"):
        got = epochs(
            dataset, 4, 1, collate="flat", num_workers=1, engine="python", multiprocessing_context=context
        )
        assert same(got, want)


def test_stored_images_are_a_dataset_of_their_own(packed: Path) -> None:
    """Which says of each image its sample."""
    images = PackedDataset(packed / "images", CROP)
    assert len(images) == sum(len(row["images"]) for row in documents())
    with DatasetReader(packed / "images") as reader:
        owners = np.repeat(np.arange(len(documents())), [len(row["images"]) for row in documents()])
        assert reader.column("document").tolist() == owners.tolist()
