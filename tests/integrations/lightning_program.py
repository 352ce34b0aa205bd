"""Lightning's DDP on two gloo processes, which Lightning starts itself: loaders given to fit(), and made
in hooks."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from lightning_models import Recorder, SelfFed, trainer_of
from numbers_data import WITH_FILES, dataset_of, loader_of, runs_as_it_should, write_report
from torch.utils.data import BatchSampler, SequentialSampler

from fastload import FastLoader, WindowSampler

EPOCHS = 2


def described(loader: Any) -> dict[str, Any]:
    """What Lightning made of a loader."""
    return {
        "type": type(loader).__name__,
        "sampler": type(loader.sampler).__name__,
        "seed": loader.seed,
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "persistent_workers": loader.persistent_workers,
    }


def windows(packed: str, out: str) -> dict[str, Any]:
    """What Lightning makes of shuffle="window", and of a WindowSampler that was made before there was a
    process group."""
    report: dict[str, Any] = {}
    data = dataset_of("packed", packed)
    for name, options in {
        "window": {"shuffle": "window"},
        "sampler": {"sampler": WindowSampler(data, block=4, buffer=12, seed=1)},
    }.items():
        trainer = trainer_of(out, strategy="ddp", devices=2, max_epochs=EPOCHS, num_sanity_val_steps=0)
        model = Recorder()
        trainer.fit(model, FastLoader(data, batch_size=5, num_workers=1, seed=9, **options))
        train: Any = trainer.train_dataloader
        report[name] = {
            "trained": model.trained,
            "sampler": type(train.sampler).__name__,
            "shuffled": train.sampler.shuffle,
        }
        train.close()
    return report


def sharded(packed: str, out: str, form: str) -> dict[str, Any]:
    """What Lightning makes of loaders that shard themselves: of fit(), and of predict(), which makes them
    again."""
    trainer = trainer_of(out, strategy="ddp", devices=2, max_epochs=EPOCHS, num_sanity_val_steps=0)
    model = Recorder()
    train, validation = (
        loader_of(form, packed, seed=9, shard="auto", **options)
        for options in ({"shuffle": True}, {"even": False})
    )
    trainer.fit(model, train, validation)
    made: Any = trainer.train_dataloader
    predicted = trainer.predict(model, loader_of(form, packed, seed=9, shard="auto"))
    report = {
        "trained": model.trained,
        "validated": model.validated,
        "sampler": type(made.sampler).__name__,
        "same": made is train,
    }
    train.close()
    validation.close()
    return {**report, "predicted": [label for batch in predicted or [] for label in batch]}


def sharded_batches(packed: str, out: str) -> dict[str, Any]:
    """What Lightning makes of a loader with a batch sampler that shards itself."""
    trainer = trainer_of(out, strategy="ddp", devices=2, max_epochs=EPOCHS, num_sanity_val_steps=0)
    model, data = Recorder(), dataset_of("packed", packed)
    batches = BatchSampler(SequentialSampler(data), 5, drop_last=False)
    loader = FastLoader(data, batch_sampler=batches, num_workers=1, seed=9, shard="auto")
    trainer.fit(model, loader)
    made: Any = trainer.train_dataloader
    report = {"trained": model.trained, "sampler": type(made.batch_sampler).__name__, "same": made is loader}
    made.close()
    return report


def main(packed: str, out: str) -> None:
    report: dict[str, Any] = {}
    for form in WITH_FILES:
        options: dict[str, Any] = {"seed": 9, "persistent_workers": True}
        for way in ("given", "hook"):
            trainer = trainer_of(out, strategy="ddp", devices=2, max_epochs=EPOCHS, num_sanity_val_steps=0)
            if way == "given":
                model = Recorder()
                loaders = loader_of(form, packed, shuffle=True, **options), loader_of(form, packed, **options)
                trainer.fit(model, *loaders)
            else:
                model = SelfFed(form, packed, **options)
                trainer.fit(model)
            train = trainer.train_dataloader
            validation = trainer.val_dataloaders
            assert isinstance(train, FastLoader)
            assert runs_as_it_should(form, train)
            report[f"{form} {way}"] = {
                "trained": model.trained,
                "validated": model.validated,
                "train": described(train),
                "validation": described(validation),
            }
            train.close()
            validation.close()
        report[f"{form} shard"] = sharded(packed, out, form)
    report["batches"] = sharded_batches(packed, out)
    report["window"] = windows(packed, out)
    write_report(out, int(os.environ.get("LOCAL_RANK", "0")), report)
    trainer.strategy.barrier()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    main(*sys.argv[1:])
