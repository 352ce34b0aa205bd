"""What a loader shows of itself at a prompt and in a notebook: two lines, and the reports as lines of
text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, Sampler, SequentialSampler, TensorDataset

from fastload import FastLoader, Mixture, PackedDataset
from fastload import transforms as T
from fastload.common.text import Text

DATA = TensorDataset(torch.zeros(1200, 2))


class Numbers(IterableDataset[int]):
    """Five numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


class EverySecond(Sampler[int]):
    """Samples 0, 2, 4 and 6."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(0, 8, 2))


class Angry(TensorDataset):
    """Its length cannot be asked, nor its repr."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"dataset": DATA, "batch_size": 4, "shuffle": True},
            "TensorDataset of 1,200, batches of 4, RandomSampler)\n  calling process",
        ),
        (
            {"dataset": DATA, "batch_size": None},
            "TensorDataset of 1,200, samples one by one, SequentialSampler)\n  calling process",
        ),
        (
            {
                "dataset": DATA,
                "batch_sampler": BatchSampler(SequentialSampler(DATA), 3, drop_last=False),
                "num_workers": 2,
            },
            "TensorDataset of 1,200, batches by BatchSampler, SequentialSampler)\n"
            "  2 worker processes, anew for every epoch, over shared slots",
        ),
        ({"dataset": Numbers(), "batch_size": 2}, "Numbers, batches of 2)\n  calling process"),
        (
            {"dataset": Angry(torch.zeros(3)), "sampler": [0], "batch_size": 2},
            "Angry, batches of 2, list)\n  calling process",
        ),
    ],
)
def test_two_lines(arguments: dict[str, Any], said: str) -> None:
    """The data, how it is batched and ordered; and who makes the batches."""
    with FastLoader(**arguments) as loader:
        assert repr(loader) == f"FastLoader({said}"
        assert loader._repr_html_() == f"<pre>{loader!r}</pre>"


def test_packed(packed: Path) -> None:
    """A packed dataset is shown by the first line of its own repr."""
    photos = PackedDataset(packed)
    with FastLoader(photos, batch_size=4, num_workers=2) as loader:
        assert (
            repr(loader) == f"FastLoader({photos.title}, batches of 4, SequentialSampler)\n  2 native threads"
        )


def test_notebook(packed: Path) -> None:
    """Datasets and the health report are shown in a notebook as the lines that a prompt shows."""
    photos = PackedDataset(packed)
    for shown in (photos, Mixture({photos: 1.0}, samples_per_epoch=4)):
        assert html.unescape(shown._repr_html_()) == f"<pre>{shown!r}</pre>"
    with FastLoader(photos, batch_size=4) as loader:
        assert html.unescape(loader.health._repr_html_()) == f"<pre>{loader.health.report()}</pre>"


def test_names_of_a_packed_dataset(packed: Path) -> None:
    """dir() has what users may ask, with a subclass's own and what was set on the object, and nothing that
    only engines ask."""

    class Mine(PackedDataset):
        """A dataset with a method and an attribute of its own."""

        def mine(self) -> None:
            """A method."""

    photos = Mine(packed)
    photos.tag = "x"  # type: ignore[attr-defined]
    names = {name for name in dir(photos) if not name.startswith("_")}
    assert {
        "mine",
        "tag",
        "path",
        "fields",
        "classes",
        "targets",
        "transform",
        "column",
        "where",
        "show",
        "set_epoch",
        "close",
    } <= names
    assert names.isdisjoint(
        {"before_python", "assemble", "source", "native_fields", "plan", "opened", "row_fields", "snapshot"}
    )
    assert all(
        getattr(type(photos), name, "").__doc__
        for name in names - {"tag", "epoch", "max_pixels", "path", "seed", "samples", "imgs"}
    )


WIDE = [
    T.RandomResizedCrop(32, scale=(0.08, 1.0)),
    T.RandomHorizontalFlip(),
    T.Normalize((0.5,) * 3, (0.5,) * 3),
]


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        {"transform": WIDE},
        {"transform": WIDE, "num_workers": 2, "sampler": EverySecond()},
        {"transform": [*WIDE, torch.clone], "num_workers": 2, "engine": "python"},
        {"transform": [*WIDE, torch.clone], "collate_fn": list},
    ],
)
def test_a_screen_of_explain(packed: Path, arguments: dict[str, Any], measure: bool) -> None:
    """Four lines at most before the table, all within 100 columns; what is cut or left out is named there,
    and whole in all=True."""
    with FastLoader(packed, batch_size=4, **arguments) as loader:
        short, whole = loader.explain(measure=measure), loader.explain(measure=measure, all=True)
    head, _, table = short.partition("\n\n")
    entries = [line.partition(" ") for line in whole.partition("\n\n")[0].splitlines()]
    assert len(head.splitlines()) <= 4
    assert max(map(len, short.splitlines())) <= 100
    named = [line.split()[0] for line in head.splitlines() if line[0] != " "]
    *_, last = head.splitlines()
    assert all(name in named or name in last for name, _, _ in entries)
    together = " ".join(head.split())
    assert all(
        text.strip() in together or (last.startswith("more") and name in last) for name, _, text in entries
    )
    reasons = [re.split(r"\s{2,}", line)[-1] for line in whole.partition("\n\n")[2].splitlines()]
    assert measure or all(reason in " ".join(table.split()) for reason in reasons)


def test_before_it_is_made() -> None:
    """A subclass that shows itself before it has called this class has object's repr."""
    assert repr(FastLoader.__new__(FastLoader)).startswith("<fastload.loader.FastLoader object at ")


def test_reports_are_lines() -> None:
    """explain() and health.report() are text, whose repr is the text."""
    with FastLoader(DATA, batch_size=4) as loader:
        for report in (loader.explain(), loader.health.report()):
            assert isinstance(report, str)
            assert repr(report) == str(report)
            assert report.count("\n") > 1
    assert Text("a < b")._repr_html_() == "<pre>a &lt; b</pre>"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["packed", "plain"])
def test_after_the_first_epoch(
    form: str, workers: int, packed_same_size: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, at INFO, by the logger `fastload`: the share of the time that the loop waited, and what to
    change; no sooner."""
    caplog.set_level("INFO", "fastload")
    data = PackedDataset(packed_same_size) if form == "packed" else DATA
    with FastLoader(data, batch_size=4, num_workers=workers) as loader:
        iterator = iter(loader)
        next(iterator)
        assert not caplog.messages
        list(iterator)
        list(loader)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the first epoch: ")
    assert "% of the time" in caplog.messages[0]


def test_nothing_is_counted_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Where INFO is not logged nothing is; a loop that is left has no end."""
    caplog.set_level("WARNING", "fastload")
    with FastLoader(DATA, batch_size=4) as loader:
        list(loader)
        caplog.set_level("INFO", "fastload")
        next(iter(loader))
    assert not caplog.messages
