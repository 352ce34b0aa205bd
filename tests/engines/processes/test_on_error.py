"""on_error= where samples are made by Python: in the caller and in worker processes, over any map-style
Dataset and over packed data."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from torch.utils.data import Dataset, IterableDataset, Subset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.common.rng import substitutes
from fastload.errors import ArgumentError, ClosedError, SampleError
from fastload.store.schema import Field, Schema
from fastload.store.writer import DatasetWriter

ENGINES: dict[str, dict[str, Any]] = {
    "caller": {"num_workers": 0},
    "caller by sample": {"num_workers": 0, "seed_by": "sample"},
    "processes": {"num_workers": 2},
    "processes kept": {"num_workers": 2, "persistent_workers": True},
    "any free process": {"num_workers": 2, "in_order": False},
    "rows": {"num_workers": 2, "seed_by": "sample"},
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten packed samples, of which 3, 5 and 7 cannot be decoded."""
    out = tmp_path_factory.mktemp("broken") / "broken.fl"
    writer = DatasetWriter(
        out, Schema((Field("image", "image"), Field("label", "int"))), shard_size=1 << 30, options={}
    )
    for label in range(10):
        jpeg = io.BytesIO()
        photo(label, 120, 160).save(jpeg, "JPEG", quality=90)
        data = jpeg.getvalue() if label not in (3, 5, 7) else b"not a JPEG at all" * 20
        writer.append({"image": data, "label": label}, image_kind="jpeg", height=120, width=160, state={})
    writer.finish(None, {})
    return out


by_engine = pytest.mark.parametrize("engine", list(ENGINES))
BY_SAMPLE = [name for name, arguments in ENGINES.items() if "seed_by" in arguments]


class Files(Dataset[Any]):
    """`count` samples, of which those in `bad` cannot be read."""

    def __init__(self, bad: Any = (3, 5, 7), count: int = 12, kind: type[Exception] = ValueError) -> None:
        self.bad, self.count, self.kind = frozenset(bad), count, kind

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        if index in self.bad:
            raise self.kind(f"file {index} is broken")
        return {
            "x": torch.full((2, 3), index),
            "y": index,
            "name": f"file {index}",
            "z": np.float32(index) * np.ones(2, np.float32),
        }


class Several(Files):
    """Samples are fetched batch by batch."""

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("__getitems__ is there")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [Files.__getitem__(self, index) for index in indices]


def loader(dataset: Any, engine: str = "caller", **arguments: Any) -> FastLoader[Any]:
    return FastLoader(dataset, **{"batch_size": 4, "on_error": "skip", **ENGINES[engine], **arguments})


def labels(batches: Any) -> list[list[int]]:
    """The samples of each batch, of which every part tells the same."""
    out = []
    for batch in batches:
        rows = batch["y"].tolist()
        assert batch["x"][:, 1, 2].tolist() == rows
        assert batch["z"][:, 0].tolist() == rows
        assert batch["name"] == [f"file {row}" for row in rows]
        assert batch["x"].shape == (len(rows), 2, 3)
        out.append(rows)
    return out


@by_engine
def test_skip_shortens_the_batch(engine: str) -> None:
    """on_error="skip" leaves bad samples out of every epoch's batches, with all that belongs to them, and
    counts them."""
    with loader(Files(), engine) as under:
        for epoch in (1, 2):
            assert sorted(labels(under)) == [[0, 1, 2], [4, 6], [8, 9, 10, 11]]
            assert (under.skipped, under.replaced) == (3 * epoch, 0)
        assert under.stats()["skipped"] == 6
        assert sorted(under.stats()["bad_samples"])[0] == "sample 3: ValueError: file 3 is broken"


@by_engine
@pytest.mark.parametrize("last", [False, True])
def test_a_batch_of_bad_samples_is_passed_over(engine: str, last: bool) -> None:
    """When no sample of a batch is left, the loop goes on with the next, also where that is the end."""
    batches = [[3, 5], [0], [7]] if last else [[0], [3, 5], [7], [1]]
    with loader(Files(), engine, batch_sampler=batches, batch_size=1) as under:
        assert sorted(labels(under)) == ([[0]] if last else [[0], [1]])
        assert under.skipped == 3


def test_replaced_by_the_same_samples_on_every_engine() -> None:
    """Substitutes follow from (seed, epoch, index): whole samples, never a bad one, the same on every
    engine, others in each epoch."""
    runs = []
    for engine in ENGINES:
        with loader(Files(), engine, on_error="replace", seed=5) as under:
            runs.append([sorted(labels(under)) for _ in range(2)])
            assert (under.skipped, under.replaced) == (0, 6)
    assert all(run == runs[0] for run in runs)
    first, second = ([row for batch in epoch for row in batch] for epoch in runs[0])
    assert len(first) == 12
    assert first != second
    good = [at for at in substitutes(5, 0, 3, 12) if at not in (3, 5, 7)]
    assert first[3] == good[0]


@pytest.mark.parametrize("engine", BY_SAMPLE)
def test_replacement_by_sample_draws_anew(engine: str) -> None:
    """With seed_by="sample" a substitute is no copy of the sample in its own row, nor of the substitute
    for another sample."""

    class Noise(Files):
        def __getitem__(self, index: int) -> Any:
            super().__getitem__(index)
            return index, torch.rand(()), random.random(), float(np.random.rand())

    with loader(Noise(), engine, on_error="replace", seed=5) as under:
        rows = [row for batch in under for row in zip(*(column.tolist() for column in batch), strict=True)]
    assert len(rows) > len({row[0] for row in rows})
    assert len(rows) == len({row[1:] for row in rows})


@by_engine
def test_nothing_to_replace_with_is_an_error(engine: str) -> None:
    """When every substitute is bad too, the error names the sample, its own error, and what was tried: the
    first of the batch that comes first."""
    first = "[048]" if engine == "any free process" else "0"
    with (
        loader(Files(range(12)), engine, on_error="replace") as under,
        pytest.raises(SampleError, match=f"{first}: ValueError: .*substitutes"),
    ):
        list(under)


@by_engine
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_samples_without_batches(engine: str, on_error: str) -> None:
    """batch_size=None: a bad sample is passed over, or another comes in its place."""
    with loader(Files(), engine, batch_size=None, on_error=on_error, seed=5) as under:
        got = sorted(sample["y"] for sample in under)
    if on_error == "skip":
        assert got == [0, 1, 2, 4, 6, 8, 9, 10, 11]
    else:
        assert len(got) == 12
        assert not set(got) & {3, 5, 7}


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in BY_SAMPLE])
def test_getitems(engine: str) -> None:
    """A dataset's __getitems__ is called for the batch; where that fails, for each sample, so that one bad
    one costs no other."""
    with loader(Several(), engine) as under:
        assert sorted(labels(under)) == [[0, 1, 2], [4, 6], [8, 9, 10, 11]]
    with loader(Subset(Files(), [11, 3, 0, 5, 5, 1]), engine) as under:
        assert sorted(labels(under)) == [[1], [11, 0]]


def test_getitems_that_returns_no_samples() -> None:
    """Where __getitems__ returns whole batches its bad sample cannot be found: that is said, with the
    error."""

    class Whole(Several):
        def __getitems__(self, indices: list[int]) -> Any:
            return torch.tensor([Files.__getitem__(self, index)["y"] for index in indices])

    with pytest.raises(ArgumentError, match=r"__getitems__ with one index at a time.*file 3 is broken"):
        list(loader(Whole(), collate_fn=lambda batch: batch))


@by_engine
def test_collate_fn_of_the_user(engine: str) -> None:
    """It gets the samples that are there; what it raises itself is no bad sample."""
    with loader(Files(), engine, collate_fn=len) as under:
        assert sorted(under) == [2, 3, 4]

    def fails(samples: list[Any]) -> Any:
        raise ValueError("of the program")

    with (
        loader(Files(), engine, collate_fn=fails) as under,
        pytest.raises(ValueError, match="of the program"),
    ):
        list(under)


@by_engine
def test_what_is_no_bad_sample(engine: str) -> None:
    """An index that the dataset lacks, and fastload's own errors, end the loop whatever on_error says; an
    IndexError of a sample's own does not."""
    with loader(Files(), engine, batch_sampler=[[0, 12]], batch_size=1) as under, pytest.raises(IndexError):
        list(under)
    with loader(Files(kind=ClosedError), engine) as under, pytest.raises(ClosedError):
        list(under)
    with loader(Files(kind=IndexError), engine) as under:
        assert sorted(labels(under)) == [[0, 1, 2], [4, 6], [8, 9, 10, 11]]


@by_engine
def test_all_skipped_is_an_error(engine: str) -> None:
    """An epoch of which nothing is left ends in one error: how many, the first reason, what to do. After
    it the iterator is at its end."""
    with loader(Files(range(12)), engine) as under:
        for _ in range(2):
            iterator = iter(under)
            with pytest.raises(
                SampleError, match=r"all 12 samples of the epoch .*: ValueError: file .* is broken.*on_error="
            ):
                next(iterator)
            assert list(iterator) == []
        assert under.skipped == 24
        assert re.search(
            r"advice:\n- samples that could not be made: 24 skipped \(100% of all\); sample \d+: ValueError",
            under.health.report(),
        )


@pytest.mark.parametrize("engine", [name for name in ENGINES if ENGINES[name].get("in_order", True)])
def test_resumed_where_batches_were_passed_over(engine: str) -> None:
    """A state counts batches that were passed over as done: the resumed loop has what was left, once."""
    batches = [[3], [0, 1], [5, 7], [2], [3, 4], [7]]
    with loader(Files(), engine, batch_sampler=batches, batch_size=1) as first:
        iterator = iter(first)
        assert labels([next(iterator)]) == [[0, 1]]
        state = first.state_dict()
    with loader(Files(), engine, batch_sampler=batches, batch_size=1) as second:
        second.load_state_dict(state)
        assert labels(second) == [[2], [4]]


def test_batch_transform_gets_the_indices_that_are_there() -> None:
    """Random steps on whole batches see the indices of the rows as they are: left out, or the
    substitute's."""

    class Keep:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def __call__(self, batch: Any, *, seed: int, epoch: int, indices: Any) -> Any:
            self.seen.append([int(index) for index in indices])
            return batch

    for on_error in ("skip", "replace"):
        for engine in ("caller", "processes", "rows"):
            keep = Keep()
            with loader(Files(), engine, on_error=on_error, batch_transform=keep, seed=5) as under:
                assert keep.seen == labels(under)


def test_refused() -> None:
    """What cannot be: skipping in a stream, and replacing where nobody knows how many samples there are."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    class Endless(Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    for on_error in ("skip", "replace"):
        with pytest.raises(ArgumentError, match=r"IterableDataset has none.*__iter__"):
            FastLoader(Stream(), on_error=on_error)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no __len__"):
        FastLoader(Endless(), sampler=[1], on_error="replace")


class Step:
    """A step of Python that changes nothing."""

    def __call__(self, image: Any) -> Any:
        return image


@by_engine
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_packed_data_with_a_python_step(broken: Path, engine: str, on_error: str) -> None:
    """One Python step in the transform leaves on_error what it is on native threads: the same samples, the
    same counts."""
    results = []
    for transform, arguments in (
        (T.CenterCrop(100), {"num_workers": 2}),
        ([T.CenterCrop(100), Step()], ENGINES[engine]),
    ):
        data = Subset(PackedDataset(broken, transform=transform), [9, 3, 0, 5, 5, 1, 2, 7])
        with FastLoader(data, batch_size=3, seed=5, on_error=on_error, **arguments) as under:  # type: ignore[arg-type]
            results.append(
                (sorted(([*y.tolist()], x.sum().item()) for x, y in under), under.skipped, under.replaced)
            )
    assert results[0] == results[1]
    assert results[0][1] + results[0][2] == 4


@by_engine
def test_the_error_knows_its_sample_outside_a_worker(broken: Path, engine: str) -> None:
    data = PackedDataset(broken, transform=[T.Resize((32, 32)), torch.clone])
    with (
        FastLoader(data, batch_size=4, **ENGINES[engine], seed=1) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    # Without an order the batch of samples 4 to 7 may be the first to fail, by its sample 5.
    first = {3, 5} if engine == "any free process" else {3}
    assert caught.value.index in first
    assert caught.value.shard == "shard-00000.lmdb"
    assert caught.value.reason
    assert caught.value.reason in str(caught.value)


def test_errors_of_a_python_step_are_the_programs(broken: Path) -> None:
    """On packed data a bad sample is one whose record cannot be made; what a Python step raises ends the
    loop."""

    def fails(image: Any) -> Any:
        raise ValueError("of the program")

    with (
        loader(PackedDataset(broken, transform=fails)) as under,
        pytest.raises(ValueError, match="of the program"),
    ):
        list(under)


def test_all_skipped_on_native_threads(broken: Path) -> None:
    """The error of an epoch without a sample names the first on native threads too, and when batches are
    moved ahead."""
    for arguments in ({}, {"device": "cpu", "batch_transform": torch.clone}):
        data = Subset(PackedDataset(broken, transform=T.CenterCrop(100)), [3, 5, 7, 3])
        with FastLoader(data, batch_size=2, on_error="skip", num_workers=2, **arguments) as under:  # type: ignore[arg-type]
            for _ in range(2):
                iterator = iter(under)
                with pytest.raises(
                    SampleError, match=r"all 4 samples of the epoch.*sample 3 of shard-00000\.lmdb: "
                ):
                    next(iterator)
                assert list(iterator) == []
            assert (
                "advice:\n- samples that could not be made: 8 skipped (100% of all); sample 3 of "
                in under.health.report()
            )
