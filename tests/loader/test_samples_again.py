"""A sample that comes again in one pass is drawn anew, the same way on every engine: by (seed, epoch,
index, occurrence)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, RandomSampler, Sampler, Subset, WeightedRandomSampler

from fastload import FastLoader, Mixture, PackedDataset
from fastload import augment as A
from fastload import transforms as T

CROP = T.RandomResizedCrop(24, scale=(0.05, 0.9))
ENGINES = {"threads": {"num_workers": 3}, "calling thread": {"num_workers": 0}} | {
    f"python, {workers}": {"num_workers": workers, "engine": "python"} for workers in (0, 2)
}
by_engine = pytest.mark.parametrize("engine", ENGINES)


class Endless(Sampler[int]):
    """The dataset in order, again and again, as ultralytics' and timm's loaders have it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(self.count))


class Repeated(Sampler[int]):
    """Each sample three times in a row: repeated augmentation."""

    def __iter__(self) -> Iterator[int]:
        return (index for index in [4, 9, 2, 7] for _ in range(3))

    def __len__(self) -> int:
        return 12


class Standing(Endless):
    """An endless sampler with a state of its own, that is not drawn again."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self.at += 1
            yield (self.at - 1) % self.count

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


Row = tuple[int, bytes]


def rows_of(batch: Any, names: Any = None) -> list[Row]:
    images, labels = batch
    return [(int(label), image.numpy().tobytes()) for image, label in zip(images, labels, strict=True)]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten photographs, each the only one of its class, so that labels name samples."""
    from pictures import write_folder

    from fastload import pack

    root = tmp_path_factory.mktemp("again")
    folder = write_folder(root / "from", 10)
    for number, file in enumerate(sorted(folder.rglob("*.jpg"))):
        (root / "by" / f"{number:02}").mkdir(parents=True)
        file.rename(root / "by" / f"{number:02}" / "a.jpg")
    pack(root / "by", root / "again.fl")
    return root / "again.fl"


def loader_of(data: Any, engine: str, **kwargs: Any) -> FastLoader[Any]:
    if isinstance(data, Path):
        data = PackedDataset(data, CROP)
    return FastLoader(data, **{"batch_size": 4, "seed": 5, **ENGINES[engine], **kwargs})


def drawn(data: Any, engine: str, batches: int, **kwargs: Any) -> list[Row]:
    with loader_of(data, engine, **kwargs) as loader:
        return [row for batch in itertools.islice(loader, batches) for row in rows_of(batch)]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


SAMPLERS = {
    "endless": lambda: Endless(10),
    "repeated": Repeated,
    "replacement": lambda: RandomSampler(range(10), replacement=True, num_samples=40, generator=generator()),
    "more than once": lambda: RandomSampler(range(10), num_samples=40, generator=generator()),
    "weighted": lambda: WeightedRandomSampler([1.0, 5.0] * 5, 40, generator=generator()),
    "stateful": lambda: Standing(10),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_time_is_drawn_anew(numbered: Path, sampler: str) -> None:
    """No two rows of a pass are alike; the first of each sample has the bytes that it has where each comes
    once; engines agree."""
    made = {engine: drawn(numbered, engine, 10, sampler=SAMPLERS[sampler]()) for engine in ENGINES}
    first = made["threads"]
    assert all(rows == first for rows in made.values())
    assert drawn(numbered, "threads", 40, sampler=SAMPLERS[sampler](), batch_size=1)[: len(first)] == first
    assert len(set(first)) == len(first) > len({label for label, _ in first})
    once = dict(drawn(numbered, "threads", 3))
    assert all(image == once[label] for label, image in reversed(dict(reversed(first)).items()))


@by_engine
def test_batches_by_generators(numbered: Path, engine: str) -> None:
    """A batch sampler may give a generator as a batch, as torch takes it, and the same indices again in
    it."""
    batches = [[1, 2, 1], [2, 2, 3]]
    made = drawn(numbered, engine, 2, batch_size=1, batch_sampler=[iter(batch) for batch in batches])
    assert made == drawn(numbered, engine, 2, batch_size=1, batch_sampler=batches)
    assert [label for label, _ in made] == [1, 2, 1, 2, 2, 3]
    assert len(set(made)) == 6


VIEWS = {
    "subset": lambda data: Subset(data, [3, 3, 5, 3, -1, 9]),
    "joined": lambda data: ConcatDataset([data] * 3),
    "joined by parts": lambda data: ConcatDataset([Subset(data, [1, 2]), Subset(data, range(4)), data]),
    "opened twice": lambda data: ConcatDataset([data, PackedDataset(data.path, CROP)]),
    "subset of subset": lambda data: Subset(Subset(data, [7, 8, 7]), [0, 2, 1, 0]),
}


@by_engine
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_counts_its_repeats_once(numbered: Path, view: str, engine: str) -> None:
    """A sample at several positions is drawn anew at each, whatever the order; in later rounds of an
    endless sampler too."""
    data = VIEWS[view](PackedDataset(numbered, CROP))
    count = len(data)
    made = drawn(data, engine, count, batch_size=1)
    assert len(set(made)) == count > len({label for label, _ in made})
    assert drawn(data, engine, count, batch_size=1, sampler=list(range(count))[::-1]) == made[::-1]
    endless = drawn(data, engine, 3 * count, batch_size=1, sampler=Endless(count))
    assert endless[:count] == made
    assert len(set(endless)) == 3 * count


def test_views_without_repeats_need_no_table(numbered: Path) -> None:
    """Subsets and joined datasets in which each sample stands once are not counted, and have the samples'
    own bytes."""
    data = PackedDataset(numbered, CROP)
    view = ConcatDataset(
        [Subset(data, [8, 9]), Subset(PackedDataset(numbered, CROP, fields=("image", "label")), range(0))]
    )
    with loader_of(Subset(view, [1, 0]), "threads") as loader:
        native = loader._fastload.plan.native
        assert native is not None
        assert native.repeats is None
        (rows,) = map(rows_of, loader)
    once = dict(drawn(numbered, "threads", 3))
    assert rows == [(label, once[label]) for label in (9, 8)]


@by_engine
def test_a_mixture_counts_its_passes(numbered: Path, engine: str) -> None:
    """A source that is gone through several times in an epoch is drawn anew each time, and mixture[i] is
    the loader's sample."""
    data = PackedDataset(numbered, CROP, seed=5)
    mixture = Mixture([(Subset(data, range(4)), 3), (Subset(data, [7, 8, 7]), 1)], samples_per_epoch=32)
    made = drawn(mixture, engine, 8)
    assert len(set(made)) == 32
    if engine == "threads":
        assert drawn(mixture, "python, 2", 8) == made
        again = drawn(mixture, engine, 16, sampler=Endless(32))
        assert again[:32] == made
        assert len(set(again)) == 64
    alone = Mixture([(data, 1)], samples_per_epoch=25)
    with loader_of(alone, engine) as loader:
        for epoch in range(2):
            rows = [row for batch in loader for row in rows_of(batch)]
            alone.set_epoch(epoch)
            data.epoch = epoch
            assert rows == [
                (int(label), image.numpy().tobytes()) for image, label in (alone[i] for i in range(25))
            ]


@by_engine
@pytest.mark.parametrize("sampler", ["endless", "replacement", "repeated", "stateful"])
def test_a_resume_draws_as_without(numbered: Path, sampler: str, engine: str) -> None:
    """The rest of a pass is the same after a resume, whether its sampler is drawn again or stands where it
    stood."""
    taken = 2 if sampler == "repeated" else 5
    with loader_of(numbered, engine, sampler=SAMPLERS[sampler]()) as loader:
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        state = loader.state_dict()
        want = [row for batch in itertools.islice(iterator, 4) for row in rows_of(batch)]
    assert ("occurrences" in state) == (sampler == "stateful")
    with loader_of(numbered, engine, sampler=SAMPLERS[sampler]()) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert [row for batch in itertools.islice(loader, 4) for row in rows_of(batch)] == want


def test_ranks_that_share_an_order_count_it_whole(numbered: Path) -> None:
    """Under shard= the rows of all ranks are those of one rank, in mid-epoch of any number of ranks as
    well."""
    whole = drawn(numbered, "threads", 10, sampler=Repeated(), batch_size=1, shard=(0, 1))
    assert len(set(whole)) == 10
    parts = [
        drawn(numbered, "threads", 3, sampler=Repeated(), batch_size=2, shard=(rank, 2)) for rank in range(2)
    ]
    assert [row for pair in zip(*parts, strict=True) for row in pair][:10] == whole
    with loader_of(numbered, "threads", sampler=Repeated(), batch_size=2, shard=(0, 2)) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(numbered, "threads", sampler=Repeated(), batch_size=2, shard=(0, 1)) as loader:
        loader.load_state_dict(state)
        assert [row for batch in loader for row in rows_of(batch)][:6] == whole[4:10]
    batches = [[1, 1], [2, 1], [2, 2], [1, 2]]
    parts = [
        drawn(numbered, "threads", 2, batch_sampler=batches, batch_size=1, shard=(rank, 2))
        for rank in range(2)
    ]
    one = drawn(numbered, "threads", 4, batch_sampler=batches, batch_size=1)
    assert [row for n in range(0, 4, 2) for part in parts for row in part[n : n + 2]] == one


@by_engine
def test_ranks_with_samplers_of_their_own_draw_apart(
    numbered: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeiT's sampler puts copies of a sample on several ranks: no two are alike, and rank 0's first are as
    ever."""
    made = {}
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        made[rank] = drawn(numbered, engine, 3, sampler=Repeated())
    rows = [row for part in made.values() for row in part]
    assert len(set(rows)) == len(rows) == 36
    monkeypatch.delenv("RANK")
    once = dict(drawn(numbered, "threads", 3))
    assert all(image == once[label] for label, image in made[0][::3])


STAGES = [
    A.AugmentBatch([A.ColorJitter(0.5), A.RandomErasing(1.0)]),
    T.ToFloat(),
    A.MixUp(0.4, num_classes=10),
]


@pytest.mark.parametrize("view", [False, True])
def test_stages_of_whole_batches_draw_anew(numbered: Path, view: bool) -> None:
    """AugmentBatch and MixUp draw by the occurrence, on every engine alike; the ops that device= takes
    over as well."""
    data: Any = PackedDataset(numbered, T.Resize((16, 16)))
    data = Subset(data, [4, 2, 4, 4, 9, 2]) if view else data
    made = []
    for engine in ENGINES:
        for prefetch in (0, 2):
            sampler = Endless(len(data))
            with loader_of(
                data, engine, sampler=sampler, device="cpu", device_prefetch=prefetch, batch_transform=STAGES
            ) as loader:
                batches = list(itertools.islice(loader, 12))
                made.append(torch.cat([images.flatten(1) for images, _ in batches]))
                assert len({targets.numpy().tobytes() for _, targets in batches}) == 12
    assert all(torch.equal(images, made[0]) for images in made)
    assert len({row.numpy().tobytes() for row in made[0]}) == 48


class Noise(Dataset[Any]):
    """A Dataset of Python that draws: under seed_by="sample" from (seed, epoch, index, occurrence)."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: Any) -> Any:
        return torch.rand(3), torch.tensor(np.random.rand()), index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_python_datasets_by_sample(workers: int, in_order: bool) -> None:
    """Seeds of samples follow from the occurrence too, on any number of workers."""
    common: dict[str, Any] = {"batch_size": 4, "sampler": [*range(10)] * 4, "seed_by": "sample", "seed": 1}
    seen: list[tuple[float, ...]] = []
    with FastLoader(Noise(), **common, num_workers=workers, in_order=in_order) as loader:
        for values, more, index in loader:
            seen += [(int(i), *v.tolist(), float(m)) for v, m, i in zip(values, more, index, strict=True)]
    assert len(set(seen)) == 40
    with FastLoader(Noise(), **common, num_workers=0) as loader:
        alone = [
            (int(i), *v.tolist(), float(m))
            for values, more, index in loader
            for v, m, i in zip(values, more, index, strict=True)
        ]
    assert sorted(seen) == sorted(alone)


def test_images_of_drawn_sizes(numbered: Path) -> None:
    """Where the draw decides the size, a sample that comes again has another size, and the engine makes
    room for it."""
    data = PackedDataset(numbered, T.RandomShortestSize([30, 40, 50, 60, 70]))
    sizes = []
    for engine in ENGINES:
        with loader_of(data, engine, sampler=Endless(2), collate="list") as loader:
            sizes.append(
                [tuple(image.shape) for images, _ in itertools.islice(loader, 8) for image in images]
            )
    assert all(found == sizes[0] for found in sizes)
    assert len(set(sizes[0][::2])) > 2
