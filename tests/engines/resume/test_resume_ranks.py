"""States under shard=: saved by N ranks, loaded by M: the rest of the epoch is every sample not had yet,
exactly once over all ranks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import write_folder
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler

from fastload import FastLoader, PackedDataset, pack
from fastload import transforms as T
from fastload.errors import ArgumentError

SHUFFLES: list[Any] = [False, True, "window", "huge"]


class Numbers(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


def ranks(world: int, count: int = 0, **options: Any) -> list[FastLoader[Any]]:
    """A loader for each rank."""
    return [
        FastLoader(**{"dataset": Numbers(count), "seed": 3, **options}, shard=(rank, world))
        for rank in range(world)
    ]


def numbers(batch: Any) -> list[int]:
    """The samples of a batch."""
    return (batch[1] if isinstance(batch, list) else batch).tolist()


def after(
    loaders: list[FastLoader[Any]], steps: int, state: Any = None
) -> tuple[list[list[list[int]]], list[Any]]:
    """Each rank's batches of that many steps, or as many as it has, and its state then; from a state,
    where one is given."""
    had, states = [], []
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        had.append([numbers(batch) for batch in itertools.islice(batches, steps)])
        states.append(json.loads(json.dumps(loader.state_dict())))
    return had, states


def rest(loaders: list[FastLoader[Any]], state: Any) -> list[list[list[int]]]:
    """What each rank has of the rest of the epoch."""
    for loader in loaders:
        loader.load_state_dict(state)
    return [[numbers(batch) for batch in loader] for loader in loaders]


def flat(parts: list[list[list[int]]]) -> list[int]:
    return [number for part in parts for batch in part for number in batch]


def steps_of(loaders: list[FastLoader[Any]], most: int) -> int:
    """Steps that every rank has a batch for."""
    return min(most, *(len(loader) for loader in loaders))


@settings(max_examples=120)
@given(
    count=st.integers(0, 60),
    shuffle=st.sampled_from(SHUFFLES),
    even=st.booleans(),
    drop_last=st.booleans(),
    runs=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(0, 6)), min_size=2, max_size=4),
    epoch=st.integers(0, 2),
    data=st.data(),
)
def test_any_ranks_go_on(
    count: int,
    shuffle: Any,
    even: bool,
    drop_last: bool,
    runs: list[tuple[int, int, int]],
    epoch: int,
    data: st.DataObject,
) -> None:
    """Several resumes in a row, each by other ranks, with another batch size, from the state of any rank; all
    states are equal, and small.

    Every sample comes once, but for padding at the very end of a run that ends the epoch, and for what
    drop_last leaves out there. Under "window" the last rank's blocks have its padding anywhere among them.
    """
    options = {"count": count, "shuffle": shuffle, "even": even, "drop_last": drop_last}
    anywhere = shuffle == "window" and even and not drop_last
    had: list[int] = []
    state, padded = None, 0
    for world, batch, steps in runs[:-1]:
        loaders = ranks(world, **options, batch_size=batch)
        for loader in loaders:
            loader.set_epoch(epoch)
        left = count - len(set(had))
        full = left // world // batch  # steps in which no rank pads
        seen, states = after(loaders, min(steps, full), state)
        assert all(each == states[0] for each in states)
        assert len(json.dumps(states)) < 1500 * world
        state = data.draw(st.sampled_from(states))
        had += flat(seen)
        again = len(had) - len(set(had))
        assert again == 0 or (anywhere and again < padded + world)
        padded = again
        if state["exhausted"]:
            assert drop_last or len(set(had)) == count
            break
    world, batch, _ = runs[-1]
    parts = rest(ranks(world, **options, batch_size=batch), state)
    left, counted = count - len(set(had)), Counter(flat(parts))
    if state is not None and state["exhausted"]:
        assert not counted
        return
    new = counted.keys() - set(had)
    went = [each for each, samples in state["split"]["ranks"] if samples] if state is not None else []
    # As many ranks as had a batch last: they pad as if nothing had been between.
    goes_on = went[-1:] == [world] and not drop_last
    assert len(new) == len(counted) or anywhere or goes_on
    if even:
        assert len({sum(map(len, part)) for part in parts}) == 1  # of equal length
    if drop_last:
        shares = [left // world if even else len(range(rank, left, world)) for rank in range(world)]
        assert counted.total() == len(counted) == sum(share // batch * batch for share in shares)
    else:
        assert set(had) | new == set(range(count))
        again = counted.total() - len(new)
        assert again < world if anywhere else again == (-left % world if even else 0)


@pytest.mark.parametrize("epoch", range(3))
@pytest.mark.parametrize("steps", range(4))
def test_padding_that_came_early_is_no_sample(epoch: int, steps: int) -> None:
    """Under "window" three ranks have had padding before their last round, then one rank goes on, and one
    after it.

    No state ends the epoch before every sample was had, and no sample comes again.
    """
    options: dict[str, Any] = {"count": 37, "shuffle": "window"}
    loaders = ranks(3, batch_size=3, **options)
    for loader in loaders:
        loader.set_epoch(epoch)
    seen, (state, *_) = after(loaders, 4)
    had = flat(seen)
    left = set(range(37)) - set(had)
    assert len(left) == 3  # of 36 places two were padding: what the test is about
    seen, (state,) = after(ranks(1, **options), steps, state)
    assert state["exhausted"] == (steps == 3)
    assert state["split"]["ranks"] == [[3, 12], [1, steps]]
    had = flat(seen)
    (loader,) = ranks(1, **options)
    loader.load_state_dict(state)
    assert loader.state_dict()["split"] == state["split"]
    had += flat(rest(ranks(1, batch_size=2, **options), loader.state_dict()))
    assert sorted(had) == sorted(left)


def test_ranks_that_had_nothing_change_nothing() -> None:
    """A resume by one rank that stops before its first batch: the three ranks that began go on as if it
    had not been."""
    whole = [[numbers(batch) for batch in loader] for loader in ranks(3, 4)]
    _, states = after(ranks(3, 4), 1)
    _, (state,) = after(ranks(1, 4), 0, states[0])
    assert rest(ranks(3, 4), state) == [batches[1:] for batches in whole]


@settings(max_examples=60)
@given(
    count=st.integers(1, 40),
    world=st.integers(1, 4),
    batch=st.integers(1, 5),
    steps=st.integers(0, 12),
    shuffle=st.sampled_from(SHUFFLES),
    even=st.booleans(),
    drop_last=st.booleans(),
)
def test_as_many_ranks_go_on_as_if_never_interrupted(
    count: int, world: int, batch: int, steps: int, shuffle: Any, even: bool, drop_last: bool
) -> None:
    """The same number of ranks and batch size: the very batches of a run that was not interrupted, padding
    too; then the next epoch."""
    options = {"count": count, "shuffle": shuffle, "even": even, "drop_last": drop_last, "batch_size": batch}
    whole = [[[numbers(each) for each in loader] for _ in range(2)] for loader in ranks(world, **options)]
    loaders = ranks(world, **options)
    seen, states = after(loaders, steps_of(loaders, steps))
    assert all(each == states[0] for each in states)
    resumed = ranks(world, **options)
    parts = rest(resumed, states[-1])
    assert [[one + other] for one, other in zip(seen, parts, strict=True)] == [each[:1] for each in whole]
    assert [[[numbers(each) for each in loader]] for loader in resumed] == [each[1:] for each in whole]


def test_a_state_is_kept_until_it_is_begun() -> None:
    """A loaded state is given back by state_dict() as it was, by any number of ranks; set_epoch with
    another epoch drops it."""
    _, (state, *_) = after(ranks(2, 20, batch_size=2), 3)
    (loader,) = ranks(1, 20, batch_size=2)
    loader.load_state_dict(state)
    assert loader.state_dict()["split"] == state["split"]
    loader.set_epoch(1)
    assert sorted(numbers(torch.cat(list(loader)))) == list(range(20))


def engines(packed: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    data = PackedDataset(packed, transform=[T.RandomResizedCrop(8)])
    yield "threads", {"dataset": data, "num_workers": 2}
    yield "threads, 0", {"dataset": data, "num_workers": 0}
    yield "processes", {"dataset": Numbers(23), "num_workers": 2}
    yield "persistent", {"dataset": Numbers(23), "num_workers": 1, "persistent_workers": True}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 images, each its own class."""
    root = tmp_path_factory.mktemp("ranks")
    pack(write_folder(root / "src", 23, classes=23, size=lambda i: (40 + i % 9, 50)), root / "out.fl")
    return root / "out.fl"


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_every_engine(packed: Path, shuffle: Any) -> None:
    """Three ranks go on where two were, on every engine, with the samples that the calling process has;
    then whole epochs follow."""
    options: dict[str, Any] = {"shuffle": shuffle, "even": False}
    seen, (expected, *_) = after(ranks(2, 23, batch_size=3, **options), 2)
    parts = rest(ranks(3, 23, batch_size=2, **options), expected)
    assert sorted(flat(seen) + flat(parts)) == list(range(23))
    whole = [[numbers(batch) for batch in loader] for loader in ranks(3, 23, batch_size=2, **options)]
    for engine, given_ in engines(packed):
        mine = {**options, **given_}
        if shuffle == "window" and "threads" in engine:
            # Blocks are of other sizes, by the packed samples': the order is another, and the property the
            # same.
            seen, (state, *_) = after(ranks(2, batch_size=3, **mine), 2)
            assert sorted(flat(seen) + flat(rest(ranks(3, batch_size=2, **mine), state))) == list(range(23))
            continue
        first = ranks(2, batch_size=3, **mine)
        _, states = after(first, 2)
        assert [each["split"] for each in states] == [expected["split"]] * 2
        loaders = ranks(3, batch_size=2, **mine)
        assert rest(loaders, states[1]) == parts, engine
        for loader in loaders:
            loader.set_epoch(0)
        assert [[numbers(batch) for batch in loader] for loader in loaders] == whole, engine
        for loader in (*first, *loaders):
            loader.close()


def test_pixels_do_not_depend_on_the_ranks(packed: Path) -> None:
    """With a seed, the samples that other ranks go on with have the pixels of an uninterrupted epoch."""

    def pixels(loader: Any) -> dict[int, torch.Tensor]:
        return {
            int(label): image.clone()
            for images, labels in loader
            for image, label in zip(images, labels, strict=True)
        }

    data = PackedDataset(packed, transform=[T.RandomResizedCrop(8)])
    with FastLoader(data, batch_size=4, seed=3, shuffle=True) as loader:
        whole = pixels(loader)
    first = ranks(2, dataset=data, batch_size=3, shuffle=True)
    _, (state, *_) = after(first, 2)
    for loader in (*first, *(others := ranks(3, dataset=data, batch_size=2, shuffle=True))):
        loader.load_state_dict(state)
    for loader in others:
        for label, image in pixels(loader).items():
            assert torch.equal(image, whole[label])
    for loader in (*first, *others):
        loader.close()


def test_samplers_of_the_users() -> None:
    """A user's sampler is drawn again and its first samples left out; of a batch sampler whole batches are
    shared out."""

    def sampled(world: int) -> list[FastLoader[Any]]:
        return [
            FastLoader(
                Numbers(20),
                batch_size=2,
                shard=(r, world),
                sampler=RandomSampler(range(20), generator=_generator()),
            )
            for r in range(world)
        ]

    seen, states = after(sampled(2), 3)
    assert [each["split"] for each in states] == [states[0]["split"]] * 2
    assert sorted(flat(seen) + flat(rest(sampled(4), states[1]))) == list(range(20))
    batches = BatchSampler(SequentialSampler(range(20)), 2, False)
    seen, (state, *_) = after(ranks(2, 20, batch_sampler=batches), 2)
    parts = rest(ranks(3, 20, batch_sampler=batches), state)
    assert sorted(flat(seen) + flat(parts)) == list(range(20))
    assert all(each[1] == each[0] + 1 for part in parts for each in part)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(8)


def test_ranks_of_uneven_length() -> None:
    """even=False: a rank that has no batch for the last step says the same as one that is about to have
    one."""
    loaders = ranks(2, 5, batch_size=2, even=False)
    seen, states = after(loaders, 1)
    assert states[0] == states[1]
    assert not states[0]["exhausted"]
    assert flat(rest(ranks(1, 5, batch_size=2, even=False), states[1])) == [4]
    assert sorted(flat(seen)) == [0, 1, 2, 3]


class Ahead(Numbers):
    """Sample 0 takes its time, so that others overtake it where they may."""

    def __getitem__(self, index: int) -> int:
        import time

        time.sleep(2.0 * (index == 0))
        return index


def test_batches_out_of_turn_are_one_ranks() -> None:
    """With in_order=False a rank may have had batches ahead of its turn; then its state is for that rank
    of as many, and says so."""

    def made(rank: int, world: int) -> FastLoader[Any]:
        return FastLoader(Ahead(24), batch_size=2, num_workers=2, in_order=False, shard=(rank, world), seed=1)

    first = made(0, 2)
    batches = iter(first)
    had = [numbers(next(batches)) for _ in range(2)]
    state = json.loads(json.dumps(first.state_dict()))
    assert state["beyond"]
    for other in (made(1, 2), made(0, 3)):
        with pytest.raises(ArgumentError, match="in_order=False, when rank 0 of 2 had batches ahead"):
            other.load_state_dict(state)
    again = made(0, 2)
    again.load_state_dict(state)
    assert sorted([*itertools.chain(*had), *itertools.chain(*map(numbers, again))]) == list(range(0, 24, 2))
    first.close()
    again.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 4}, "seed"),
        ({"count": 21}, "length"),
        ({"even": False}, "drop_last and even"),
        ({"drop_last": True}, "drop_last and even"),
        ({"shuffle": True}, "shuffle"),
        ({"sampler": list(range(20))}, "shuffle"),
    ],
)
def test_another_order_is_refused(changed: dict[str, Any], said: str) -> None:
    """A state of mid-epoch of another order, dataset or rule is refused, on every rank."""
    _, (state, *_) = after(ranks(2, 20, batch_size=2), 3)
    for loader in ranks(3, **{"count": 20, "batch_size": 2, **changed}):
        with pytest.raises(ArgumentError, match=f"another.*{said}|mid-epoch.*{said}|ShardSampler"):
            loader.load_state_dict(state)


def test_with_and_without_shard() -> None:
    """States of mid-epoch go from sharded loaders to sharded loaders only."""
    _, (state, *_) = after(ranks(2, 20, batch_size=2), 3)
    plain = FastLoader(Numbers(20), batch_size=2, seed=3)
    with pytest.raises(ArgumentError, match="resume with shard="):
        plain.load_state_dict(state)
    next(iter(plain))
    with pytest.raises(ArgumentError, match="without shard="):
        ranks(1, 20, batch_size=2)[0].load_state_dict(plain.state_dict())


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("had", [0, 1])
def test_between_epochs_with_and_without_shard(shuffle: Any, had: int) -> None:
    """A state taken between epochs goes from a loader without shard= to loaders with it, and back.

    The next epoch is that of a loader that was told its number. The loaded state is given back as the
    loader's own, and so are those of that epoch's batches.
    """

    def plain() -> FastLoader[Any]:
        return FastLoader(Numbers(21), batch_size=2, seed=3, shuffle=shuffle)

    for made, loaded in (
        (plain(), ranks(2, 21, batch_size=2, shuffle=shuffle)),
        (ranks(1, 21, shuffle=shuffle)[0], [plain()]),
    ):
        for _ in range(had):
            list(made)
        state = json.loads(json.dumps(made.state_dict()))
        expected = ranks(2, 21, batch_size=2, shuffle=shuffle) if len(loaded) == 2 else [plain()]
        for loader in expected:
            loader.set_epoch(had)
        for loader in loaded:
            loader.load_state_dict(state)
        again = [json.loads(json.dumps(loader.state_dict())) for loader in loaded]
        assert all((each["epoch"], each["batches"]) == (had, 0) for each in again)
        whole = [[numbers(batch) for batch in loader] for loader in expected]
        assert rest(loaded, again[-1]) == whole
        assert sorted({*flat(whole)}) == list(range(21))
        seen, (middle, *_) = after(loaded, 2, again[-1])
        parts = rest(loaded, middle)
        assert [one + other for one, other in zip(seen, parts, strict=True)] == whole
        for loader, other in zip(loaded, expected, strict=True):
            assert [numbers(batch) for batch in loader] == [numbers(batch) for batch in other]


@pytest.mark.parametrize(
    "split",
    [
        [],
        {"order": "sequential"},
        {"order": "sequential", "rule": "pad", "ranks": [[0, 1]]},
        {"order": "sequential", "rule": "pad", "ranks": [[2, -1]]},
        {"order": "sequential", "rule": "pad", "ranks": [[2, 1.5]]},
        {"order": "sequential", "rule": "pad", "ranks": [[2]]},
        {"order": "sequential", "rule": "pad", "ranks": 7},
    ],
)
def test_damaged_splits_are_refused(split: Any) -> None:
    """What is no list of ranks and samples is a damaged state."""
    loaders = ranks(2, 20, batch_size=2)
    _, (state, *_) = after(loaders, 3)
    with pytest.raises(ArgumentError, match="damaged: split"):
        loaders[0].load_state_dict({**state, "split": split})


def test_the_generator_of_a_batch_samplers_sampler() -> None:
    """A batch sampler that is shared out goes on in its order, which its sampler draws from a generator of
    its own."""

    def loader(seed: int) -> FastLoader[Any]:
        sampler = RandomSampler(range(24), generator=torch.Generator().manual_seed(seed))
        return FastLoader(Numbers(24), batch_sampler=BatchSampler(sampler, 4, False), shard=(0, 2))

    whole = [[numbers(batch) for batch in epoch] for epoch in itertools.repeat(loader(1), 2)]
    _, (state,) = after([loader(1)], 1)
    resumed = loader(99)
    resumed.load_state_dict(state)
    assert [[numbers(batch) for batch in epoch] for epoch in itertools.repeat(resumed, 2)] == [
        whole[0][1:],
        whole[1],
    ]
