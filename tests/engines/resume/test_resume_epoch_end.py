"""States taken about an epoch's end: no epoch is repeated or skipped by
`for epoch in range(saved_epoch, epochs)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from resume_helpers import Counting, Epochs, Numbers, check_resumes, plain, saved_after, through_json

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.augment import Seeded

# More workers than this machine's CPUs.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def python_step(image: Any) -> Any:
    return image


def noise(images: Any) -> Any:
    return images + torch.rand(1)


ENGINES: dict[str, dict[str, Any]] = {
    "threads": {"num_workers": 2},
    "caller's thread": {"num_workers": 0},
    "device thread": {"num_workers": 1, "device": "cpu", "batch_transform": [T.ToFloat(), noise]},
    "python step": {"num_workers": 0, "step": True},
    "python step, processes": {"num_workers": 2, "step": True},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_packed(packed: Path, engine: str, shuffle: bool) -> None:
    """After the last batch an epoch of no batches follows, then the next; after the loop the next one
    does; on every engine."""
    options = dict(ENGINES[engine])
    transform = [T.RandomResizedCrop(8), *([python_step] if options.pop("step", False) else [])]
    data = PackedDataset(packed, transform=transform)

    def make() -> Any:
        return FastLoader(data, batch_size=16, shuffle=shuffle, seed=5, **options)

    check_resumes(make, 1, -1, None)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_map_style(workers: int, persistent: bool, shuffle: bool) -> None:
    """The same in Python, where the order comes from torch's global generator; a short last batch is
    dropped where shuffled."""
    options = {
        "num_workers": workers,
        "persistent_workers": persistent,
        "drop_last": shuffle,
        "shuffle": shuffle,
    }
    check_resumes(lambda: FastLoader(Numbers(), batch_size=5, **options), 1, -1, None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("batch_size", [4, None])
def test_iterable(workers: int, lazy: bool, batch_size: int | None) -> None:
    """An iterable dataset that counts epochs goes on counting, one that starts anew as the next epoch begins
    does so, whether its last batch was a whole one or not."""

    def make() -> Any:
        return FastLoader(
            Epochs(lazy), batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0
        )

    check_resumes(make, 1, 3, -1, None)


def test_a_loop_over_saved_epochs() -> None:
    """Saved in the loop with its epoch, after every step: what is trained before and after adds up to each
    sample once an epoch."""

    def trained(saved: dict[str, Any] | None, stop: int) -> tuple[list[Any], dict[str, Any]]:
        loader = FastLoader(Numbers(), batch_size=6, shuffle=True, seed=1)
        done: list[Any] = []
        if saved is not None:
            loader.load_state_dict(saved["loader"])
        for epoch in range(0 if saved is None else saved["epoch"], 3):
            loader.set_epoch(epoch)
            for batch in loader:
                done.append((epoch, plain(batch)))
                saved = through_json({"epoch": epoch, "loader": loader.state_dict()})
                if len(done) == stop:
                    return done, saved
        assert saved is not None
        return done, saved

    whole, _ = trained(None, -1)
    assert len(whole) == 12
    for stop in range(1, 13):
        before, saved = trained(None, stop)
        assert before + trained(saved, -1)[0] == whole


def test_an_empty_rest_is_an_epoch_of_its_own() -> None:
    """A state of after the last batch survives being asked for again: before the empty epoch, in it and
    after it."""
    state = saved_after(lambda: FastLoader(Numbers(), batch_size=4), 0, 6)
    assert (state["epoch"], state["batches"]) == (0, 6)
    loader = FastLoader(Numbers(), batch_size=4)
    loader.load_state_dict(state)
    assert through_json(loader.state_dict()) == state
    batches = iter(loader)
    assert through_json(loader.state_dict()) == state
    assert list(batches) == []
    after = loader.state_dict()
    assert (after["epoch"], after["batches"]) == (1, 0)
    assert len(list(loader)) == 6


def test_counting_dataset_at_an_epochs_end() -> None:
    """A map-style dataset's own state goes over the epoch's end in the calling process and in persistent
    workers."""
    check_resumes(lambda: FastLoader(Counting(), batch_size=4), 1, -1, None)
    check_resumes(
        lambda: FastLoader(Counting(), batch_size=4, num_workers=2, persistent_workers=True), 1, -1, None
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_transforms_of_an_iterable_dataset(workers: int) -> None:
    """Random steps on whole batches of an iterable dataset are those of the uninterrupted epoch."""

    def make() -> Any:
        data = Epochs()
        return FastLoader(
            data,
            batch_size=4,
            num_workers=workers,
            seed=2,
            batch_transform=Seeded(noise),
            persistent_workers=workers > 0,
        )

    check_resumes(make, 0, 3)
