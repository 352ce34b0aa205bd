"""collate= survives what frameworks make of a loader: Lightning's and ignite's FastLoaders, Accelerate's
plain DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from numbers_data import COUNT, WITH_FILES, loader_of
from torch.utils.data import DataLoader

from fastload import FastLoader, Padded

pytestmark = [  # Lightning's advice, and torch's on Lightning's own calls
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
]
OPTIONS: dict[str, Any] = {"collate": "padded", "pad_to": 5}


def check(batch: Any) -> list[int]:
    """The labels of a batch whose images of 8 x 8 are padded to multiples of 5, wherever it was moved."""
    images, labels = batch
    assert type(images) is Padded
    assert images.values.shape == (len(labels), 3, 10, 10)
    assert images.mask.sum() == 64 * len(labels)
    assert bool((images.values[:, :, 8:] == 0).all())
    return [int(label) for label in labels]


@pytest.mark.parametrize("form", WITH_FILES)
def test_lightning(numbered: Path, tmp_path: Path, form: str) -> None:
    """predict() makes another loader of the attributes, which batches alike."""
    pytest.importorskip("lightning")
    from lightning_models import Recorder, trainer_of

    class Checking(Recorder):
        def predict_step(self, batch: Any, *_: Any) -> Any:
            return check(batch)

    given = loader_of(form, numbered, **OPTIONS)
    trainer = trainer_of(tmp_path)
    predictions = trainer.predict(Checking(), given)
    assert predictions is not None
    assert [label for batch in predictions for label in batch] == list(range(COUNT))
    made = trainer.predict_dataloaders
    assert type(made) is FastLoader
    assert made is not given
    assert (made.collate, made.pad_to) == ("padded", 5)
    made.close()


@pytest.mark.parametrize("form", WITH_FILES)
def test_ignite(numbered: Path, form: str) -> None:
    """The loader that a DeterministicEngine makes of the public attributes batches alike."""
    deterministic = pytest.importorskip("ignite.engine.deterministic")
    seen: list[int] = []
    trainer = deterministic.DeterministicEngine(lambda _, batch: seen.extend(check(batch)))
    torch.manual_seed(5)
    trainer.run(loader_of(form, numbered, shuffle=True, **OPTIONS), max_epochs=1)
    assert type(trainer.state.dataloader) is FastLoader
    trainer.state.dataloader.close()
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("form", WITH_FILES)
def test_accelerate(numbered: Path, form: str) -> None:
    """The plain DataLoader that prepare() builds has the loader's collate_fn, which batches alike without
    fastload's engines."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState, GradientState, PartialState

    loader = loader_of(form, numbered, **OPTIONS)
    try:
        with pytest.warns(UserWarning, match="builds a plain DataLoader"):
            prepared = accelerate.Accelerator(cpu=True).prepare(loader)
        assert type(prepared.base_dataloader) is DataLoader
        assert [label for batch in prepared for label in check(batch)] == list(range(COUNT))
    finally:
        loader.close()
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
