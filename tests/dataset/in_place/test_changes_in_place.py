"""What a program may change of a dataset of files between epochs, and what is left alone of it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from handles import descriptors, none_left, opened_since
from in_place_helpers import EXACT, assert_as_torch, folder
from pictures import photo
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

from fastload import FastLoader
from fastload._native import core

SMALL = transforms.Compose([transforms.CenterCrop(16), transforms.PILToTensor()])


def assert_same_now(loader: Any, dataset: Any) -> None:
    ours, theirs = list(loader), list(DataLoader(dataset, batch_size=4))
    assert len(ours) == len(theirs)
    assert all(
        torch.equal(x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True)
    )


def test_lists_and_transforms_are_read_at_every_pass(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=2, engine="native")
    assert_same_now(loader, dataset)
    dataset.transform = SMALL
    assert_same_now(loader, dataset)
    dataset.samples = [(path, label + 10) for path, label in reversed(dataset.samples)]
    assert_same_now(loader, dataset)
    dataset.samples[2] = dataset.samples[0]
    assert_same_now(loader, dataset)
    SMALL.transforms.append(transforms.RandomVerticalFlip(p=1))
    try:
        assert_same_now(loader, dataset)
    finally:
        SMALL.transforms.pop()


def test_a_change_that_python_has_to_make_changes_the_engine(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=1)
    assert loader.stats()["engine"] == "threads"
    dataset.target_transform = lambda label: label + 1
    assert_same_now(loader, dataset)
    assert loader.stats()["engine"] == "processes"
    dataset.target_transform = None
    assert_same_now(loader, dataset)
    assert loader.stats()["engine"] == "threads"


def test_the_reason_is_that_of_the_dataset_as_it_is_now(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    dataset.target_transform = str
    loader = FastLoader(dataset, batch_size=4)
    assert "target_transform" in loader.explain(all=True)
    dataset.target_transform, dataset.transform = None, None
    assert "Pillow images" in loader.explain(all=True)


def test_the_same_engine_goes_on_while_nothing_changes(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(Subset(dataset, range(8)), batch_size=4, num_workers=2)
    list(loader)
    engine = loader._fastload.epochs.running
    list(loader)
    assert loader._fastload.epochs.running is engine


def test_nothing_is_written_into_the_dataset(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    before, files = dict(vars(dataset)), sorted(os.walk(tmp_path))
    list(FastLoader(dataset, batch_size=4, num_workers=2, seed=1, shuffle=True))
    assert vars(dataset).keys() == before.keys()
    assert all(vars(dataset)[name] is value for name, value in before.items())
    assert sorted(os.walk(tmp_path)) == files


def test_a_loader_goes_through_pickle_and_fork(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=2)
    first = list(loader)
    assert all(
        torch.equal(a[0], b[0]) for a, b in zip(first, pickle.loads(pickle.dumps(loader)), strict=True)
    )
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # as workers do: OpenMP's pool did not come along
        same = all(torch.equal(a[0], b[0]) for a, b in zip(first, loader, strict=True))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_resume_in_mid_epoch(tmp_path: Path) -> None:
    dataset = folder(
        tmp_path, transform=transforms.Compose([transforms.RandomResizedCrop(24), transforms.ToTensor()])
    )

    def make() -> Any:
        return FastLoader(dataset, batch_size=4, shuffle=True, seed=2, num_workers=2, engine="native")

    whole = [batch[0] for batch in make()]
    loader = make()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert all(torch.equal(a, b[0]) for a, b in zip(whole[1:], resumed, strict=True))


def test_no_file_and_no_handle_stays(tmp_path: Path) -> None:
    with none_left("files") as before:
        opened = descriptors()
        loader = assert_as_torch(folder(tmp_path, transform=EXACT))
        assert core.live_handles()["files"] == before["files"] + 1
        loader.close()
        assert not opened_since(opened)
        del loader


def test_relative_paths_and_names_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "tree", transform=EXACT)
    os.rename(
        os.fsencode(tmp_path / "tree" / "class0" / "000.jpg"),
        os.fsencode(tmp_path / "tree" / "class0") + b"/\xff\xfe name.jpg",
    )
    monkeypatch.chdir(tmp_path)
    from torchvision import datasets

    assert_as_torch(datasets.ImageFolder("tree", EXACT))


def test_indexes_are_learnt_once(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=2, engine="native")
    list(loader)
    files = loader._fastload.read(loader).native.datasets[0].source.data
    learnt = files.learnt()
    list(loader)
    assert learnt == files.learnt()


def test_what_is_learnt_outlives_a_change_of_the_transform(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    loader = FastLoader(dataset, batch_size=4, num_workers=2, engine="native")
    files = loader._fastload.read(loader).native.datasets[0].source.data
    dataset.transform = SMALL
    assert loader._fastload.read(loader).native.datasets[0].source.data is files


def test_indexes_stay_within_their_room() -> None:
    files = core.Files(b"/none/", b"a\0b\0", 2, 10)
    assert (len(files), files.learnt()) == (2, (0, 0))


@pytest.mark.parametrize(
    ("prefix", "names", "count"),
    [
        (b"", b"a\0b\0", 3),
        (b"", b"a\0b\0", 1),
        (b"", b"a", 1),
        (b"x" * 4090, b"long.jpg\0", 1),
        (b"", b"", 1),
    ],
)
def test_lists_of_names_that_do_not_hold(prefix: bytes, names: bytes, count: int) -> None:
    with pytest.raises(ValueError, match=r"path|bytes"):
        core.Files(prefix, names, count, 0)


def test_proving_a_file_counts_as_decoding(tmp_path: Path) -> None:
    """Otherwise the health report of a first epoch would blame the disk."""
    shares = []
    for turn in range(3):  # a busy machine may stop a read, but not each time
        dataset = folder(tmp_path / str(turn), transform=EXACT)
        for number, (path, _) in enumerate(dataset.samples):
            photo(number, 900, 1200).save(path)
        loader = FastLoader(dataset, batch_size=4, num_workers=1, engine="native")
        list(loader)
        stages = loader.stats()["stage_seconds"]
        shares.append(stages["read"] / stages["decode"])
    assert min(shares) < 0.3, shares  # the proof of a file takes twenty times as long as reading it
