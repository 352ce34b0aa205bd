"""Lightning's Trainer over a FastLoader: fit, validate, predict, overfit, DDP, checkpoints."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from extras import needed
from integration_helpers import two_ranks_of
from numbers_data import COUNT, FORMS, WITH_FILES, loader_of, runs_as_it_should
from torch.utils.data import SequentialSampler

from fastload import FastLoader

needed("lightning", "torchvision")

pytestmark = [
    # Lightning's advice on numbers of workers and the like, and torch's on Lightning's own calls.
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
]
stateful = pytest.mark.skipif(
    not hasattr(FastLoader, "state_dict"), reason="FastLoader has no state_dict yet"
)
EVERY = list(range(COUNT))


def models() -> Any:
    """The module of models and trainers; it imports Lightning, which takes seconds, for those tests alone."""
    import lightning_models

    return lightning_models


@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("hook", [False, True])
def test_fit(numbered: Path, tmp_path: Path, form: str, hook: bool, no_children: None) -> None:
    """fit() trains and validates on every sample once an epoch, reshuffled, from loaders given or made in
    hooks."""
    trainer = models().trainer_of(tmp_path, max_epochs=3, num_sanity_val_steps=1)
    if hook:
        model: Any = models().SelfFed(form, numbered)
        trainer.fit(model)
    else:
        model = models().Recorder()
        trainer.fit(model, loader_of(form, numbered, shuffle=True), loader_of(form, numbered))
    assert [sorted(epoch) for epoch in model.trained] == [EVERY] * 3
    assert len({tuple(epoch) for epoch in model.trained}) == 3
    assert model.validated == [EVERY[:5]] + [EVERY] * 3
    assert type(trainer.train_dataloader) is FastLoader
    assert runs_as_it_should(form, trainer.train_dataloader)
    trainer.train_dataloader.close()
    trainer.val_dataloaders.close()


def test_data_module_of_files(numbered: Path, tmp_path: Path, no_children: None) -> None:
    """A LightningDataModule's loader over an ImageFolder, asked for anew at every epoch, reads it in place
    each time."""
    model, data = models().Recorder(), models().FolderData(numbered)
    trainer = models().trainer_of(tmp_path, max_epochs=3, reload_dataloaders_every_n_epochs=1)
    trainer.fit(model, datamodule=data)
    assert data.made == 3
    assert [sorted(epoch) for epoch in model.trained] == [EVERY] * 3
    assert runs_as_it_should("files", trainer.train_dataloader)
    trainer.train_dataloader.close()


@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("hook", [False, True])
def test_predict_rebuilds_the_loader(numbered: Path, tmp_path: Path, form: str, hook: bool) -> None:
    """predict() makes a new loader out of the attributes: a FastLoader of the same settings, whose
    predictions are in order."""

    class Predicting(models().Recorder):
        def predict_dataloader(self) -> Any:
            return loader_of(form, numbered, **options)

    options: dict[str, Any] = {"seed": 4, "prefetch_factor": 3, "drop_last": True}
    if form == "packed":
        options |= {"dtype": torch.float16, "memory_format": torch.contiguous_format}
    trainer = models().trainer_of(tmp_path)
    given = None if hook else loader_of(form, numbered, **options)
    predictions = trainer.predict(Predicting() if hook else models().Recorder(), given)
    assert predictions is not None
    assert [label for batch in predictions for label in batch] == EVERY
    made = trainer.predict_dataloaders
    assert type(made) is FastLoader
    assert made is not given
    assert runs_as_it_should(form, made)
    for name in options.keys() - {"drop_last"}:
        assert getattr(made, name) == options[name], name
    made.close()


@pytest.mark.parametrize("form", FORMS)
def test_overfit_batches(numbered: Path, tmp_path: Path, form: str) -> None:
    """overfit_batches puts a SequentialSampler in place of the shuffling one: the same two batches every
    epoch."""
    model = models().Recorder()
    trainer = models().trainer_of(tmp_path, max_epochs=2, overfit_batches=2)
    with pytest.warns(UserWarning, match="turning off the"):
        trainer.fit(model, loader_of(form, numbered, shuffle=True))
    assert model.trained == [EVERY[:10]] * 2
    assert type(trainer.train_dataloader) is FastLoader
    assert isinstance(trainer.train_dataloader.sampler, SequentialSampler)
    trainer.train_dataloader.close()


@pytest.mark.parametrize("form", FORMS)
def test_limited_epochs_begin_anew(numbered: Path, tmp_path: Path, form: str, no_children: None) -> None:
    """limit_train_batches breaks an epoch off; the next begins at its start, and nothing of the broken one
    is left."""
    model = models().Recorder()
    trainer = models().trainer_of(tmp_path, max_epochs=3, limit_train_batches=3)
    loader = loader_of(form, numbered)
    trainer.fit(model, loader)
    assert model.trained == [EVERY[:15]] * 3
    loader.close()


@stateful
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_checkpoint_resumes_in_mid_epoch(
    numbered: Path, tmp_path: Path, form: str, shuffle: bool, workers: int
) -> None:
    """A checkpoint of mid-epoch holds the loader's state; a new Trainer and loader go on with the batch
    after it."""
    whole = models().Recorder()
    models().trainer_of(tmp_path, max_epochs=2).fit(whole, loader_of(form, numbered, shuffle=shuffle, seed=5))
    first = models().Recorder()
    path = tmp_path / "middle.ckpt"
    models().trainer_of(tmp_path, max_epochs=1, callbacks=[models().StopAt(4, path)]).fit(
        first, loader_of(form, numbered, shuffle=shuffle, seed=5)
    )
    states = torch.load(path, weights_only=False)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert len(states) == 1
    second = models().Recorder()
    resumed = loader_of(
        form, numbered, shuffle=shuffle, seed=5, num_workers=workers, prefetch_factor=4 if workers else None
    )
    models().trainer_of(tmp_path, max_epochs=2).fit(second, resumed, ckpt_path=path, weights_only=False)
    assert first.trained[0][:20] == whole.trained[0][:20]
    assert second.trained == [whole.trained[0][20:], whole.trained[1]]
    resumed.close()


@pytest.fixture(scope="module")
def two_ranks(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of lightning_program.py saw."""
    imports = (*warm.TRAINING, "lightning")
    return two_ranks_of(
        "lightning_program.py",
        numbered,
        tmp_path_factory.mktemp("lightning"),
        launched=False,
        imports=imports,
    )


@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("way", ["given", "hook"])
def test_ddp_injects_a_sampler(two_ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """DDP makes a FastLoader with a DistributedSampler out of the given one, and keeps its settings."""
    kept = {
        "type": "FastLoader",
        "sampler": "DistributedSampler",
        "seed": 9,
        "batch_size": 5,
        "num_workers": 2,
        "persistent_workers": True,
    }
    for report in two_ranks:
        assert report[f"{form} {way}"]["train"] == kept
        assert report[f"{form} {way}"]["validation"] == kept


@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("way", ["given", "hook"])
def test_ddp_loses_no_sample(two_ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """Over the ranks every sample is trained and validated on exactly once an epoch; training is
    reshuffled, validation in order."""
    first, second = (report[f"{form} {way}"] for report in two_ranks)
    for kind in ("trained", "validated"):
        assert len(first[kind]) == 2
        for mine, other in zip(first[kind], second[kind], strict=True):
            assert sorted(mine + other) == EVERY
    assert first["trained"][0] != first["trained"][1]
    assert first["validated"] == [EVERY[0::2]] * 2


@pytest.mark.parametrize("form", WITH_FILES)
def test_ddp_does_not_shard_twice(two_ranks: list[dict[str, Any]], form: str) -> None:
    """A loader with shard="auto", made before there was a process group, stays as it is, and its ranks share
    out every sample once; the loader that predict() makes of it does not shard again."""
    first, second = (report[f"{form} shard"] for report in two_ranks)
    assert (first["sampler"], first["same"]) == ("ShardSampler", True)
    for kind in ("trained", "validated"):
        assert [sorted(mine + other) for mine, other in zip(first[kind], second[kind], strict=True)] == [
            EVERY
        ] * 2
    assert first["trained"][0] != first["trained"][1]
    assert sorted(first["predicted"] + second["predicted"]) == EVERY


def test_ddp_does_not_shard_batches_twice(two_ranks: list[dict[str, Any]]) -> None:
    """A loader with shard="auto" and a batch sampler stays as it is, and its ranks share out every batch
    once."""
    first, second = (report["batches"] for report in two_ranks)
    assert (first["sampler"], first["same"]) == ("ShardedBatchSampler", True)
    assert [
        sorted(mine + other) for mine, other in zip(first["trained"], second["trained"], strict=True)
    ] == [EVERY] * 2


@pytest.mark.parametrize(
    ("name", "sampler"), [("window", "DistributedSampler"), ("sampler", "WindowSampler")]
)
def test_ddp_and_windows(two_ranks: list[dict[str, Any]], name: str, sampler: str) -> None:
    """shuffle="window" becomes a DistributedSampler that shuffles; a WindowSampler stays, and finds its
    rank. No sample is lost."""
    first, second = (report["window"][name] for report in two_ranks)
    assert (first["sampler"], first["shuffled"]) == (second["sampler"], second["shuffled"]) == (sampler, True)
    assert len(first["trained"]) == 2
    assert [
        sorted(mine + other) for mine, other in zip(first["trained"], second["trained"], strict=True)
    ] == [EVERY] * 2
    assert first["trained"][0] != first["trained"][1]


@pytest.mark.parametrize("mode", ["max_size_cycle", "min_size", "sequential"])
def test_combined_loader_is_copied_in_mid_fit(numbered: Path, mode: Any, no_children: None) -> None:
    """A CombinedLoader over FastLoaders of both kinds, in the middle of its epoch, is copied, deep-copied and
    pickled as with torch's; it goes on where it was, and the copy begins an epoch of its own."""
    from lightning.pytorch.utilities import CombinedLoader

    parts = {form: loader_of(form, numbered, num_workers=2) for form in FORMS}
    combined = CombinedLoader(parts, mode)
    iter(combined)
    for _ in range(3):
        next(combined)
    whole = len(list(iter(CombinedLoader({form: range(10) for form in FORMS}, mode))))
    copies = [copy.copy(combined), copy.deepcopy(combined), pickle.loads(pickle.dumps(combined))]
    assert sum(1 for _ in iter(lambda: next(combined, None), None)) == whole - 3
    for other in copies[1:]:
        assert len(list(other)) == whole
    for each in [combined, *copies]:
        each.reset()
        for loader in each.flattened:
            loader.close()
