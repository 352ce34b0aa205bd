"""Mixture: a map-style dataset by its order, on every engine of FastLoader, resumed with its weights, and
what is refused."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from fastload import FastLoader, Mixture, PackedDataset
from fastload import transforms as T
from fastload.common.rng import occurring
from fastload.errors import ArgumentError
from fastload.store import DatasetWriter, Field, Schema

FIRST, SECOND = 40, 15
ENGINES = ["threads", "threads, 0", "packed", "packed, 0", "map", "map, 0"]


class Numbers(Dataset[int]):
    """The labels of the packed datasets, without their images."""

    def __init__(self, count: int, first: int) -> None:
        self.count, self.first = count, first

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return range(self.first, self.first + self.count)[index]


def unchanged(image: torch.Tensor) -> torch.Tensor:
    """A step of Python."""
    return image


def write(path: Path, count: int, first: int, kind: str = "int") -> Path:
    writer = DatasetWriter(
        path, Schema((Field("image", "image"), Field("label", kind))), shard_size=1 << 20, options={}
    )
    for label in range(first, first + count):
        jpeg = io.BytesIO()
        photo(label, 24, 24).save(jpeg, "JPEG")
        value = label if kind == "int" else str(label)
        writer.append(
            {"image": jpeg.getvalue(), "label": value}, image_kind="jpeg", height=24, width=24, state={}
        )
    writer.finish(None, {})
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two packed datasets, whose labels are disjoint."""
    root = tmp_path_factory.mktemp("mixture")
    return write(root / "a.fl", FIRST, 0), write(root / "b.fl", SECOND, 100)


def mixture_on(
    engine: str, paths: tuple[Path, Path], weights: tuple[float, float] = (0.7, 0.3), **options: Any
) -> Mixture:
    kind = engine.partition(",")[0]
    if kind == "map":
        sources: list[Any] = [Numbers(FIRST, 0), Numbers(SECOND, 100)]
    else:
        transform = [T.RandomCrop(16), *([unchanged] if kind == "packed" else [])]
        sources = [PackedDataset(path, transform=transform) for path in paths]
    return Mixture(
        list(zip(sources, weights, strict=True)), **{"samples_per_epoch": 50, "seed": 9, **options}
    )


def loader_of(engine: str, mixture: Mixture, **options: Any) -> FastLoader[Any]:
    return FastLoader(
        mixture, **{"batch_size": 7, "num_workers": 0 if engine.endswith("0") else 2, "seed": 3, **options}
    )


def labels(batches: Any) -> list[int]:
    return [int(label) for batch in batches for label in (batch[1] if isinstance(batch, list) else batch)]


def expected(epochs: int, weights: dict[int, tuple[float, float]] | None = None) -> list[list[int]]:
    """The labels of the epochs, by the mixture's own samples."""
    mixture = Mixture([(Numbers(FIRST, 0), 0.7), (Numbers(SECOND, 100), 0.3)], samples_per_epoch=50, seed=9)
    for epoch, values in (weights or {}).items():
        mixture.set_weights(values, epoch)
    found = []
    for epoch in range(epochs):
        mixture.set_epoch(epoch)
        found.append([mixture[i] for i in range(50)])
        assert found[-1] == mixture.__getitems__(range(50)) == [mixture[i - 50] for i in range(50)]
    return found


@pytest.mark.parametrize("workers", ["fresh", "persistent"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_epochs(paths: tuple[Path, Path], engine: str, workers: str) -> None:
    """Epochs are told by the loader, weights hold from theirs on, and each engine has the samples that the
    mixture itself has."""
    if workers == "persistent" and engine in ("threads, 0", "packed, 0", "map, 0"):
        pytest.skip("no workers")
    mixture = mixture_on(engine, paths)
    with loader_of(engine, mixture, persistent_workers=workers == "persistent") as loader:
        assert len(loader) == 8
        found = [labels(loader), labels(loader)]
        assert mixture.epoch == 1
        mixture.set_weights((0.2, 0.8))
        found += [labels(loader), labels(loader)]
        loader.set_epoch(1)
        again = labels(loader)
    epochs = expected(4, {2: (0.2, 0.8)})
    assert found == epochs
    assert again == epochs[1]
    assert [sum(label < 100 for label in each) for each in epochs] == [35, 35, 10, 10]


@pytest.mark.parametrize("engine", ["threads", "packed, 0"])
def test_pixels(paths: tuple[Path, Path], engine: str) -> None:
    """Images belong to their labels: the same as those of the sources alone, by the loader's seed and
    epoch, and the source's pass."""
    mixture = mixture_on(engine, paths)
    sources = [PackedDataset(path, transform=[T.RandomCrop(16)], seed=3) for path in paths]
    with loader_of(engine, mixture) as loader:
        assert loader.explain(all=True).count("native" if engine == "threads" else "Python")
        for epoch in range(2):
            turns = mixture.order.samples(epoch, np.arange(len(mixture))).turns.tolist()
            rows = [row for images, numbers in loader for row in zip(images, numbers.tolist(), strict=True)]
            for (image, label), turn in zip(rows, turns, strict=True):
                source = sources[label >= 100]
                source.set_epoch(epoch)
                with occurring(turn, resolved=True):
                    assert torch.equal(image, source[label % 100][0])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_resumed_in_mid_epoch(paths: tuple[Path, Path], engine: str, shuffle: bool) -> None:
    """A state, through JSON, of mid-epoch goes on with the rest, with the weights that were set, in
    another mixture of the same sources."""
    options: dict[str, Any] = {"shuffle": True} if shuffle else {}
    mixture = mixture_on(engine, paths)
    mixture.set_weights((0.5, 0.5), 1)
    with loader_of(engine, mixture, **options) as loader:
        list(loader)
        batches = iter(loader)
        had = labels(next(batches) for _ in range(3))
        mixture.set_weights([1, 3], 2)
        state = json.loads(json.dumps(loader.state_dict()))
        rest, after = labels(batches), labels(loader)
    assert sorted(had + rest) == sorted(expected(2, {1: (0.5, 0.5)})[1])
    other = mixture_on(engine, paths)
    with loader_of(engine, other, **options) as loader:
        loader.load_state_dict(state)
        assert other.changes == mixture.changes
        assert [labels(loader), labels(loader)] == [rest, after]


def test_states_that_do_not_fit(paths: tuple[Path, Path]) -> None:
    """A state of another mixture, of none, or damaged, is refused with the difference, and changes
    nothing."""
    mixture = mixture_on("map", paths)
    with loader_of("map, 0", mixture) as loader:
        next(iter(loader))
        state = loader.state_dict()
    changed = {
        "seed 9, this one 8": mixture_on("map", paths, seed=8),
        "samples_per_epoch 50, this one 51": mixture_on("map", paths, samples_per_epoch=51),
        "taken with a Mixture, and this loader's dataset is a Numbers": Numbers(50, 0),
    }
    changed[r"lengths of the sources \[40, 15\], this one \[40, 14\]"] = Mixture(
        [(Numbers(40, 0), 1), (Numbers(14, 0), 1)], samples_per_epoch=50, seed=9
    )
    for message, dataset in changed.items():
        with FastLoader(dataset, 7, seed=3) as loader, pytest.raises(ArgumentError, match=message):
            loader.load_state_dict(state)
    with FastLoader(Numbers(50, 0), 7, seed=3) as loader:
        next(iter(loader))
        plain = loader.state_dict()
    damaged: list[Any] = [
        [],
        [[0, [1.0]]],
        [[1, [1, 1]]],
        [[0, [1, float("nan")]]],
        [[0, [0, 0]]],
        [[0, [1, 1]], [0, [1, 2]]],
        [3],
        "no",
    ]
    with loader_of("map, 0", mixture) as loader:
        with pytest.raises(ArgumentError, match="without a Mixture"):
            loader.load_state_dict(plain)
        for weights in damaged:
            with pytest.raises(ArgumentError, match="are damaged"):
                loader.load_state_dict({**state, "mixture": {**state["mixture"], "weights": weights}})
        with pytest.raises(ArgumentError, match="it holds no mixture"):
            loader.load_state_dict({**state, "mixture": 3})
        assert mixture.weights() == (0.7, 0.3)


def test_sources_of_parts(paths: tuple[Path, Path]) -> None:
    """Subsets and ConcatDatasets are sources, read natively; one dataset may be in two; a Subset that
    grows makes another order."""
    a, b = (PackedDataset(path, transform=[T.CenterCrop(16)]) for path in paths)
    picked = Subset(a, [3, 5, 7])
    both: Any = ConcatDataset([b, Subset(a, [9])])
    mixture = Mixture([(picked, 1), (both, 2)], samples_per_epoch=30, seed=1)
    with FastLoader(mixture, batch_size=8, num_workers=1, engine="native") as loader:
        first = labels(loader)
        counts = {label: first.count(label) for label in (3, 5, 7)}
        assert sum(counts.values()) == 10
        assert max(counts.values()) - min(counts.values()) <= 1
        assert {label for label in first if label not in counts} == {9, *range(100, 115)}
        picked.indices = [3, 5, 7, 11, 13]
        assert {label for label in labels(loader) if label < 100} >= {9} | set(picked.indices)
    assert len(Mixture({a: 1, b: 1})) == FIRST + SECOND


def test_under_dataloader(paths: tuple[Path, Path]) -> None:
    """torch's DataLoader has the same samples where set_epoch is called; pickled and copied, a mixture is
    the same."""
    mixture = mixture_on("map", paths)
    epochs = expected(2)
    for epoch in range(2):
        mixture.set_epoch(epoch)
        assert labels(DataLoader(mixture, batch_size=8, num_workers=1)) == epochs[epoch]
        copied = pickle.loads(pickle.dumps(mixture))
        assert [copied[i] for i in range(50)] == epochs[epoch]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(tmp_path: Path, paths: tuple[Path, Path], on_error: Any) -> None:
    """on_error acts on the samples of a mixture; substitutes are the mixture's."""
    path = write(tmp_path / "bad.fl", 12, 200)
    shard = next(path.glob("*.lmdb"))
    data = bytearray(shard.read_bytes())
    at = data.index(b"\xff\xd8\xff")
    data[at : at + 64] = bytes(64)
    shard.write_bytes(data)
    sources = [PackedDataset(each, transform=[T.CenterCrop(16)]) for each in (paths[0], path)]
    mixture = Mixture([(sources[0], 1), (sources[1], 1)], samples_per_epoch=48)
    with FastLoader(mixture, batch_size=8, num_workers=1, seed=1, on_error=on_error) as loader:
        found = labels(loader)
        assert (loader.skipped, loader.replaced) == ((2, 0) if on_error == "skip" else (0, 2))
    assert len(found) == (46 if on_error == "skip" else 48)


class Stream(IterableDataset[int]):
    """No map-style dataset."""

    def __iter__(self) -> Any:
        return iter(range(3))


def test_what_is_refused(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    """Weights that are none, sources that cannot be mixed, and mixtures inside others, each with its
    reason."""
    one, two = Numbers(4, 0), Numbers(5, 0)
    nan = float("nan")
    for weight in (-1, nan, float("inf"), "1", True, None):
        with pytest.raises(
            ArgumentError,
            match=r"the weight of source 1 of the Mixture \(Numbers\) is .*: give a number of 0 or more",
        ):
            Mixture([(one, 1), (two, weight)])  # type: ignore[list-item]
    mixture = Mixture({one: 1, two: 0})
    assert set(mixture.rows(range(9))[0].tolist()) == {0}
    for bad, message in (
        ([0, 0], "all weights of the Mixture are zero"),
        ([1], "1 weights for 2 sources"),
        ({one: 1}, "give a weight for each of the Mixture's 2 datasets"),
        ({one: 1, Numbers(5, 0): 1}, "and no other"),
        ([1, nan], "source 1 of the Mixture"),
    ):
        with pytest.raises(ArgumentError, match=message):
            mixture.set_weights(bad)  # type: ignore[arg-type]
    assert mixture.weights() == (1, 0)
    for sources, message in (
        ([], "a Mixture has sources"),
        ([one, two], "a Mixture has sources"),
        ([(Numbers(0, 0), 1)], "source 0 .* has no samples"),
        ([(Stream(), 1)], "is no map-style dataset"),
        ([(mixture, 1)], "holds a Mixture"),
        ([(Subset(mixture, [1]), 1)], "holds a Mixture"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Mixture(sources)  # type: ignore[arg-type]
    for samples in (0, -3, 1 << 31, 1.5):
        with pytest.raises(ArgumentError, match="samples_per_epoch="):
            Mixture({one: 1}, samples_per_epoch=samples)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="seed="):
        Mixture({one: 1}, seed=-1)
    for outer in (Subset(mixture, [1, 2]), ConcatDataset([mixture, one])):
        with pytest.raises(ArgumentError, match="make a Mixture of Subsets"):
            FastLoader(outer)
    for position in (9, -10):
        with pytest.raises(IndexError, match=f"index {position} is out of range for 9 samples"):
            mixture[position]
    other = PackedDataset(write(tmp_path / "text.fl", 3, 0, "text"))
    with pytest.raises(
        ArgumentError, match=r"has the fields image \(image\), label \(text\), and source 0 .* label \(int\)"
    ):
        Mixture([(PackedDataset(paths[0]), 1), (other, 1)])


def test_weights_by_epoch() -> None:
    """Without an epoch, weights hold from the one that begins next; later ones that were set before are
    forgotten."""
    one, two = Numbers(4, 0), Numbers(5, 0)
    mixture = Mixture([(one, 1), (two, 3)], samples_per_epoch=8)
    assert mixture.counts() == (2, 6)
    mixture.set_weights({two: 1, one: 1}, 5)
    mixture.set_weights([3, 1])
    assert mixture.changes == ((0, (3.0, 1.0)),)
    mixture.set_epoch(4)
    mixture.set_weights([1, 1])
    assert [mixture.counts(epoch) for epoch in (0, 4, 5, 99)] == [(6, 2), (6, 2), (4, 4), (4, 4)]
    assert mixture.weights(4) == (3, 1)
    assert np.bincount(mixture.rows(range(8))[0]).tolist() == [6, 2]


@pytest.mark.parametrize("engine", ["threads", "map", "map, 0"])
def test_shared_out_and_resumed_by_other_ranks(paths: tuple[Path, Path], engine: str) -> None:
    """With shard= ranks have an epoch's positions together, and a state of two ranks goes on with three:
    each sample of the epoch once."""
    weights = {1: (0.5, 0.5)}
    had: list[int] = []
    for rank in range(2):
        mixture = mixture_on(engine, paths)
        mixture.set_weights((0.5, 0.5), 1)
        with loader_of(engine, mixture, shard=(rank, 2), batch_size=5, even=False) as loader:
            first = labels(loader)
            assert first == expected(1)[0][rank::2]
            batches = iter(loader)
            had += labels(next(batches) for _ in range(2))
            state = loader.state_dict()
            del batches
    for rank in range(3):
        mixture = mixture_on(engine, paths)
        with loader_of(engine, mixture, shard=(rank, 3), batch_size=5, even=False) as loader:
            loader.load_state_dict(state)
            had += labels(loader)
    assert sorted(had) == sorted(expected(2, weights)[1])


@pytest.mark.parametrize("engine", ["native", "python"])
def test_images_in_place(tmp_path: Path, engine: Any) -> None:
    """torchvision's ImageFolders are read where they lie, by native threads, and as Python gives them, in
    the same order."""
    folders, v2 = (
        pytest.importorskip("torchvision.datasets"),
        pytest.importorskip("torchvision.transforms.v2"),
    )
    for name, count in (("a", 9), ("b", 4)):
        for label in range(count):
            place = tmp_path / name / f"{label:02d}"
            place.mkdir(parents=True)
            photo(label, 24, 24).save(place / "image.jpg", "JPEG")
    transform = v2.Compose([v2.CenterCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    one, two = (folders.ImageFolder(tmp_path / name, transform) for name in ("a", "b"))
    mixture = Mixture({one: 1, two: 1}, samples_per_epoch=20)
    with FastLoader(mixture, 5, num_workers=0, engine=engine, seed=1) as loader:
        assert (
            "images in place" in loader.explain(all=True) or "files in place" in loader.explain(all=True)
        ) == (engine == "native")
        found = [labels(loader) for _ in range(2)]
    plain = Mixture([(range(9), 1), (range(4), 1)], samples_per_epoch=20)
    for epoch in range(2):
        plain.set_epoch(epoch)
        assert found[epoch] == [plain[i] for i in range(20)]
