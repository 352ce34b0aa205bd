"""batch_transform=: what it is called with, by which engine, and that its random numbers follow (seed,
epoch, index or batch)."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from fastload import FastLoader
from fastload import augment as A
from fastload import transforms as T
from fastload.engines.processes.iterator import WorkerIterator
from fastload.errors import ArgumentError, ClosedError

pytestmark = pytest.mark.usefixtures("no_leaks")
CROP = [T.RandomResizedCrop(32)]
AUGMENT = A.AugmentBatch([A.RandomHorizontalFlip(), A.ColorJitter(0.4, 0.4, 0.4), A.RandomErasing(0.5)])


def noisy(images: torch.Tensor) -> torch.Tensor:
    """Draws from every global generator."""
    return images + torch.rand(()) + random.random() + float(np.random.random())


def epoch(loader: FastLoader) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels.clone()) for images, labels in loader]


def same(a: list[Any], b: list[Any]) -> bool:
    return all(
        torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)
    )


def test_torchvisions_mixes_get_labels(packed: Path) -> None:
    """MixUp and CutMix of torchvision, alone, derived and in containers, mix the labels too, and repeat with
    the seed; what is beside them is called as ever."""
    v2 = pytest.importorskip("torchvision.transforms.v2")

    class Mine(v2.MixUp):  # type: ignore[misc, name-defined]
        pass

    mix = v2.MixUp(num_classes=5)
    for transform in mix, Mine(num_classes=5), v2.RandomChoice([mix, v2.Compose([v2.CutMix(num_classes=5)])]):
        found = []
        for _ in range(2):
            with FastLoader(
                packed,
                8,
                transform=CROP,
                batch_transform=[v2.RandomInvert(0.5), transform],
                dtype=torch.float32,
                seed=4,
            ) as loader:
                found.append(epoch(loader))
        assert all(labels.shape == (len(images), 5) for images, labels in found[0])
        assert any(((labels > 0) & (labels < 1)).any() for _, labels in found[0])
        assert same(*found)


class Numbers(Dataset[Any]):
    """Small images of Python, with labels."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), 20 * index, dtype=torch.uint8), index


class Named(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"image": super().__getitem__(index)[0], "label": index, "text": "x"}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([Numbers()[i] for i in range(12)])


@pytest.mark.parametrize(
    "transform", [AUGMENT, noisy, K.AugmentationSequential(K.RandomErasing(p=1.0)), [AUGMENT, noisy]]
)
def test_function_of_seed_and_epoch(packed: Path, transform: Any) -> None:
    """Two runs are equal, whatever threads and prefetch; another seed, and another epoch, are not. Global
    generators do not notice."""
    runs = []
    floats = [T.ToFloat(), transform] if not isinstance(transform, list) else [T.ToFloat(), *transform]
    for threads, prefetch, seed in [(1, 0, 3), (2, 2, 3), (2, 3, 3), (2, 2, 4)]:
        with FastLoader(
            packed,
            8,
            num_workers=threads,
            transform=CROP,
            batch_transform=floats,
            device_prefetch=prefetch,
            seed=seed,
        ) as loader:
            state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
            runs.append((epoch(loader), epoch(loader)))
            assert torch.equal(state[0], torch.get_rng_state())
            assert state[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert all(same(runs[0][e], runs[k][e]) for e in (0, 1) for k in (1, 2))
    assert not same(runs[0][0], runs[3][0])
    assert not same(runs[0][0], runs[0][1])


def test_a_samples_pixels_depend_on_no_batch(packed: Path) -> None:
    """With AugmentBatch a sample is the same in batches of 8 and of 5, shuffled or not."""

    def by_label(batch_size: int, shuffle: bool) -> torch.Tensor:
        with FastLoader(
            packed,
            batch_size,
            shuffle=shuffle,
            num_workers=2,
            transform=T.Resize((16, 16)),
            batch_transform=AUGMENT,
            seed=1,
        ) as loader:
            images = torch.cat([images for images, _ in loader]).flatten(1)
        return images[np.lexsort(images.numpy().T)]

    assert torch.equal(by_label(8, False), by_label(5, True))


def test_mixing_takes_labels(packed: Path) -> None:
    """What needs two arguments gets images and labels, after what gets images alone; fewer rows at the end
    are no matter."""
    steps = [AUGMENT, T.Normalize((0.5,) * 3, (0.5,) * 3), A.MixUp(0.4, num_classes=3)]
    with FastLoader(
        packed, 8, num_workers=2, transform=CROP, batch_transform=steps, seed=1, dtype=torch.bfloat16
    ) as loader:
        batches = list(loader)
    assert [labels.shape for _, labels in batches] == [(8, 3)] * 6 + [(2, 3)]
    assert all(images.dtype == torch.bfloat16 for images, _ in batches)
    assert torch.allclose(torch.cat([labels for _, labels in batches]).sum(1), torch.ones(50))

    def swapped(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images.flip(0), labels.flip(0)

    with FastLoader(packed, 10, num_workers=2, transform=CROP, seed=1) as plain:
        want = epoch(plain)
    with FastLoader(packed, 10, num_workers=2, transform=CROP, batch_transform=swapped, seed=1) as loader:
        assert all(
            torch.equal(x, a.flip(0)) and torch.equal(y, b.flip(0))
            for (x, y), (a, b) in zip(loader, want, strict=True)
        )


@pytest.mark.parametrize("workers", [0, 2])
def test_any_dataset(workers: int) -> None:
    """On Python datasets too: images in a tuple, or under "image" in a dict; the indices are the
    sampler's; labels pass through."""
    common: dict[str, Any] = {
        "batch_size": 5,
        "shuffle": True,
        "num_workers": workers,
        "seed": 2,
        "batch_transform": AUGMENT,
    }
    with FastLoader(Numbers(), **common, device="cpu") as loader:
        batches = list(loader)
    with FastLoader(Named(), **common) as loader:
        named = list(loader)
    for (images, labels), batch in zip(batches, named, strict=True):
        plain = torch.stack([Numbers()[int(i)][0] for i in labels])
        assert torch.equal(images, AUGMENT(plain, seed=2, epoch=0, indices=labels.numpy()))
        assert torch.equal(images, batch["image"])
        assert torch.equal(labels, batch["label"])
        assert batch["text"] == ["x"] * len(images)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets_have_no_indices(workers: int) -> None:
    """What draws by index says so; what draws by batch runs."""
    with (
        FastLoader(Stream(), 4, num_workers=workers, batch_transform=AUGMENT) as loader,
        pytest.raises(ArgumentError, match="Seeded"),
    ):
        list(loader)
    with FastLoader(Stream(), 4, num_workers=workers, batch_transform=[T.ToFloat(), noisy], seed=1) as loader:
        first, second = list(loader), list(loader)
    assert first[0][0].is_floating_point()
    assert not same(first, second)


def test_workers_failures_keep_their_turn() -> None:
    """A transform that raises for one batch leaves the others deliverable, with workers as without."""

    def fails(images: torch.Tensor) -> torch.Tensor:
        if images.max() == 20 * 7:
            raise RuntimeError("second batch")
        return images

    for workers in (0, 2):
        with FastLoader(Numbers(), 4, num_workers=workers, batch_transform=fails) as loader:
            iterator = iter(loader)
            assert next(iterator)[1].tolist() == [0, 1, 2, 3]
            with pytest.raises(RuntimeError, match="second batch"):
                next(iterator)
            assert next(iterator)[1].tolist() == [8, 9, 10, 11]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker batches are moved ahead as they are to CUDA, whose queue the CPU has not."""
    use = WorkerIterator._use

    def ahead(self: WorkerIterator, plan: Any) -> None:
        use(self, plan)
        self._ahead = plan.transfer.ahead

    monkeypatch.setattr(WorkerIterator, "_use", ahead)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_batches_moved_ahead(queued: None, in_order: bool, persistent: bool) -> None:
    """The batches of worker processes, moved ahead: the same ones, in order, at most device_prefetch of
    them."""
    common: dict[str, Any] = {
        "batch_size": 2,
        "num_workers": 2,
        "device": "cpu",
        "in_order": in_order,
        "persistent_workers": persistent,
    }
    with FastLoader(Numbers(), **common, device_prefetch=2) as loader:
        for _ in range(2):
            iterator, seen = iter(loader), []
            for _, labels in iterator:
                assert len(iterator._transferred) <= 2
                seen.append(labels.tolist())
            assert (seen if in_order else sorted(seen)) == [[2 * k, 2 * k + 1] for k in range(6)]


class Dies(Numbers):
    """Ends its worker at index 7, when the batches before have long been ready."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 7:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_death_of_a_worker_comes_after_the_moved_batches(queued: None) -> None:
    """What was ready before a worker died is delivered; then the death is told, and that the iterator is
    closed."""
    with FastLoader(Dies(), 2, num_workers=1, prefetch_factor=3, device="cpu", device_prefetch=3) as loader:
        iterator, seen = iter(loader), []
        with pytest.raises(RuntimeError, match="SIGKILL"):
            while True:
                seen.append(next(iterator)[1].tolist())
                time.sleep(0.4)
        assert seen == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(ClosedError):
            next(iterator)


def test_draws_of_workers_repeat_when_moved_ahead(queued: None) -> None:
    """How many batches are ready does not decide how far the sampler has drawn."""

    class Drawing(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return (int(torch.randint(12, ())) for _ in range(24))

    def run(delay: float) -> list[Any]:
        torch.manual_seed(3)
        out = []
        with FastLoader(
            Numbers(), 2, sampler=Drawing(), num_workers=2, device="cpu", device_prefetch=2
        ) as loader:
            for _, labels in loader:
                time.sleep(delay)
                out.append((labels.tolist(), torch.rand(()).item()))
        return out

    assert run(0.0) == run(0.03)


def test_dtype_without_packed_data() -> None:
    """dtype= goes with Normalize in batch_transform= on any dataset, and is refused without."""
    steps = T.Normalize((0.5,) * 3, (0.5,) * 3)
    with FastLoader(
        Numbers(), 4, batch_transform=steps, dtype=torch.float16, memory_format=torch.contiguous_format
    ) as loader:
        images, _ = next(iter(loader))
    assert images.dtype == torch.float16
    assert images.is_contiguous()
    with pytest.raises(ArgumentError, match="packed data"):
        FastLoader(Numbers(), 4, dtype=torch.float16)


def test_what_cannot_run_is_said(packed: Path) -> None:
    """Neither callable, nor without batches, nor mixing without labels."""
    with pytest.raises(ArgumentError, match="cannot be called"):
        FastLoader(packed, 4, transform=CROP, batch_transform=[3])
    with pytest.raises(ArgumentError, match="batch_size=None"):
        FastLoader(packed, None, transform=CROP, batch_transform=AUGMENT)

    class Bare(Numbers):
        def __getitem__(self, index: int) -> Any:
            return {"image": super().__getitem__(index)[0]}

    with pytest.raises(ArgumentError, match="takes labels"):
        list(FastLoader(Bare(), 4, batch_transform=A.MixUp(0.2, num_classes=12)))


def test_loader_with_a_transform_is_picklable(packed: Path) -> None:
    """As without one; the copy makes the same batches."""
    loader = FastLoader(
        packed,
        8,
        num_workers=1,
        transform=CROP,
        batch_transform=AUGMENT,
        seed=1,
        device="cpu",
        device_prefetch=1,
    )
    with loader, pickle.loads(pickle.dumps(loader)) as copy:
        assert copy.device_prefetch == 1
        assert same(epoch(copy), epoch(loader))


@pytest.mark.parametrize("data", ["packed", "Python"])
@pytest.mark.parametrize("step", [AUGMENT, noisy], ids=["ahead", "in the loop"])
def test_its_time_is_counted(packed: Path, data: str, step: Any) -> None:
    """stats() and the health report tell what steps on whole batches took, of each engine; nothing where
    there are none."""
    source: Any = packed if data == "packed" else Numbers()
    common: dict[str, Any] = {
        "batch_size": 4,
        "num_workers": 2,
        "transform": CROP if data == "packed" else None,
    }
    with FastLoader(
        source, **common, device="cpu", batch_transform=[A.AugmentBatch([A.ColorJitter(0.4)]), step]
    ) as loader:
        began = time.perf_counter()
        for _ in loader:
            pass
        stages = loader.stats()["stage_seconds"]
        # The one ahead, and beside it the loop's with what has to wait for it.
        threads = 2 if step is noisy else 1
        assert 0 < stages["augment"] < threads * (time.perf_counter() - began)
        assert "augment" in loader.health.report()
        before = stages["augment"]
        for _ in loader:
            pass
        assert loader.stats()["stage_seconds"]["augment"] > before
    with FastLoader(source, **common) as plain:
        for _ in plain:
            pass
        assert not {"copy", "augment"} & set(plain.stats()["stage_seconds"])
