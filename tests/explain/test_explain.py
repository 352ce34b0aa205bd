"""loader.explain(): the stages of a sample, where each runs, why nowhere faster, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kornia
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload.transforms.compiler import compile_plan, label

v1 = pytest.importorskip("torchvision.transforms")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def invert(image: Any) -> Any:
    """A Python step."""
    return image


def stages(text: str) -> list[str]:
    """The table's lines, without its head."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("stage")) + 1 :]


def line(text: str, start: str) -> str:
    """The one line of the table that begins so."""
    (found,) = [row for row in stages(text) if row.startswith(start)]
    return found


def test_a_native_list(packed: Path) -> None:
    """Every step runs on native threads; what makes it slower than it might be is said."""
    steps = v1.Compose(
        [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    )
    with FastLoader(packed, batch_size=8, num_workers=2, transform=steps) as loader:
        text = loader.explain(all=True)
    assert "2 native threads" in text
    assert len(stages(text)) == 6
    assert all("native thread" in row for row in stages(text))
    assert "dct_scale" in line(text, "1 RandomResizedCrop")
    with FastLoader(packed, batch_size=8, num_workers=2, transform=T.RandomResizedCrop(32)) as loader:
        assert "dct_scale" not in "".join(stages(loader.explain(all=True))).replace("dct_scale=True", "")


def test_python_is_named_with_its_position(packed: Path) -> None:
    """The first Python step is the reason for all after it, and the table says where a Pillow image has to
    be made."""
    steps = [v1.Resize(40), v1.CenterCrop(32), v1.Lambda(invert), v1.ColorJitter(0.1), v1.ToTensor()]
    with FastLoader(packed, batch_size=8, num_workers=2, transform=steps) as loader:
        text = loader.explain(all=True)
    assert "Lambda at position 3" in line(text, "3 Lambda")
    assert "native, in the worker process" in line(text, "2 CenterCrop")
    assert line(text, "4 ColorJitter").endswith("comes after position 3; before it, it might be native")
    assert "it might be native" in line(text, "5 ToTensor")
    order = [row.split()[0] for row in stages(text)]
    assert order == ["read", "decode", "1", "2", "to", "3", "4", "5", "collate"]


def test_reasons_for_known_classes() -> None:
    """Where a class is known and has no native meaning at its place, the reason is given; functions go by
    their names."""
    nearest = v1.Resize(8, interpolation=v1.InterpolationMode.NEAREST)
    assert "not native" in compile_plan([nearest]).stages[0].why
    assert compile_plan([T.CenterCrop(8), invert]).stages[1].name == "invert"
    (only,) = compile_plan([invert]).stages
    assert only.why == "invert at position 1 is Python"


def costs(rows: Sequence[str]) -> list[float]:
    """The numbers of the column of microseconds."""
    return [
        float(cell)
        for row in rows
        for cell in row.split("  ")
        if cell.strip().replace(".", "", 1).isdigit() and "." in cell
    ]


def test_measured_costs(packed: Path, no_leaks: None) -> None:
    """measure=True adds a cost and a share to each stage, and the shares are those of the whole."""
    steps = [v1.CenterCrop(32), v1.Lambda(invert), v1.ToTensor()]
    with FastLoader(packed, batch_size=8, num_workers=0, transform=steps) as loader:
        text = loader.explain(measure=True, all=True)
        assert "mean of 50 samples" in text
        shares = [int(cell.rstrip("%")) for row in stages(text) for cell in row.split() if cell.endswith("%")]
        assert len(shares) == 7
        assert abs(sum(shares) - 100) <= 4
        assert len(costs(stages(text))) == 7
    with FastLoader(packed, batch_size=8, num_workers=1, transform=T.CenterCrop(32)) as loader:
        assert len(costs(stages(loader.explain(measure=True, all=True)))) == 3
        assert len(list(loader)) == 7
    # Both in one pass.
    with FastLoader(packed, batch_size=8, transform=[T.CenterCrop(32), T.RandomHorizontalFlip()]) as loader:
        text = loader.explain(measure=True, all=True)
        assert len(costs(stages(text))) == 3
        assert [row.split()[0] for row in stages(text) if "″" in row and "us:" not in row] == ["2"]


class Drawn(Dataset[torch.Tensor]):
    """Draws from all three global generators."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(2) + random.random() + float(np.random.rand())


class Stream(IterableDataset[int]):
    """May be iterated once."""

    def __iter__(self) -> Any:
        yield from range(4)


def test_measuring_leaves_generators_and_streams_alone() -> None:
    """The global generators go on as if nothing had been measured; an iterable dataset is not touched."""
    loader: Any = FastLoader(Drawn(), batch_size=10)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(3)
    expected = torch.rand(1).item(), random.random(), np.random.rand()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(3)
    text = loader.explain(measure=True, all=True)
    assert (torch.rand(1).item(), random.random(), np.random.rand()) == expected
    assert "mean of 64 samples" in text
    assert len(costs(stages(text))) == 2
    stream: Any = FastLoader(Stream(), batch_size=2)
    assert "use up the iterable" in stream.explain(measure=True, all=True)
    assert "use up" not in stream.explain(all=True)


def blend(images: torch.Tensor) -> torch.Tensor:
    """A batch transform that may draw from anything."""
    return images + 0


def test_device_stages_are_shown(packed: Path, no_leaks: None) -> None:
    """What runs on whole batches has its rows, in order, after the copy: of the plan and of
    batch_transform=; and they are measured."""
    steps = [
        v1.CenterCrop(32),
        v1.ColorJitter(0.4),
        v1.RandomInvert(),
        v1.ToTensor(),
        v1.Normalize(MEAN, STD),
        v1.RandomErasing(),
    ]
    own = [A.AugmentBatch([A.RandomGrayscale(), A.RandomHorizontalFlip()]), blend, A.MixUp(num_classes=3)]
    with FastLoader(
        packed, batch_size=8, num_workers=1, transform=steps, device="cpu", batch_transform=own
    ) as loader:
        text, measured = loader.explain(all=True), loader.explain(measure=True, all=True)
        assert len(list(loader)) == 7
    order = [row.split("(")[0].split("  ")[0].strip() for row in stages(text)]
    planned = ["2 ColorJitter", "3 RandomInvert", "4 ToTensor", "5 Normalize", "6 RandomErasing"]
    given = ["RandomGrayscale", "RandomHorizontalFlip", "blend", "MixUp"]
    assert order == ["read", "decode", "1 CenterCrop", "to cpu", *planned, *given]
    assert all("  device" in row for row in stages(text)[4:])
    assert "native but for what the device does" in text
    for name in ("blend", "MixUp"):
        assert "blend" in line(text, name)
        assert "global generators" in line(text, name)
    assert "of 8 where it is whole batches" in measured
    assert "″" in line(measured, "5 Normalize")
    assert len(costs(stages(measured)[:-1])) == len(order) - 1
    with FastLoader(
        packed,
        batch_size=8,
        num_workers=1,
        transform=T.CenterCrop(32),
        batch_transform=T.Normalize(MEAN, STD),
    ) as loader:
        row = line(loader.explain(all=True), "Normalize")
    assert "host, whole batches" in row
    assert row.endswith("no device= is given")


def test_measuring_batches_of_python(packed: Path) -> None:
    """Of a Dataset of Python as well, and of batches whose samples run in Python."""
    for dataset in (
        Drawn(),
        PackedDataset(packed, transform=[v1.CenterCrop(32), v1.Lambda(invert), v1.ToTensor()]),
    ):
        loader: Any = FastLoader(dataset, batch_size=10, device="cpu", num_workers=0, batch_transform=blend)
        measured = loader.explain(measure=True, all=True)
        assert "of 10 where it is whole batches" in measured
        assert len(costs([line(measured, "blend")])) == 1


def test_one_step_of_python_keeps_the_rest_from_the_device(packed: Path) -> None:
    """The step that no device does is named, at the first Python stage and at its own."""
    middle = [
        v1.RandomResizedCrop(32),
        v1.RandomHorizontalFlip(),
        v1.Lambda(invert),
        v1.ColorJitter(0.4),
        v1.ToTensor(),
    ]
    with FastLoader(packed, batch_size=8, num_workers=0, transform=middle, device="cpu") as loader:
        text = loader.explain(all=True)
    assert "Lambda at position 3" in line(text, "3 Lambda")
    assert "comes after position 3" in line(text, "4 ColorJitter")
    assert "calling process" in line(text, "5 ToTensor")
    later = [v1.RandomResizedCrop(32), v1.ColorJitter(0.4), v1.Lambda(invert), v1.ToTensor()]
    with FastLoader(packed, batch_size=8, num_workers=0, transform=later, device="cpu") as loader:
        text = loader.explain(all=True)
    assert "native" in line(text, "2 ColorJitter")
    assert "Lambda at position 3" in line(text, "3 Lambda")
    on_floats = [
        v1.RandomResizedCrop(32),
        v1.ColorJitter(0.4),
        v1.ToTensor(),
        v1.ColorJitter(0.2),
        v1.Lambda(invert),
    ]
    with FastLoader(packed, batch_size=8, num_workers=0, transform=on_floats, device="cpu") as loader:
        text = loader.explain(all=True)
    assert "with device= it would run there, but for Lambda at position 5" in line(text, "4 ColorJitter")
    assert "everything from position 4 on is Python" in line(text, "5 Lambda")


def test_long_names_are_cut_where_they_are_known() -> None:
    """What a wrapper holds is still named, on one line."""
    name = label(A.KorniaOp(kornia.augmentation.RandomGaussianBlur((5, 5), (0.3, 2.0), p=0.4)))
    assert name.startswith("KorniaOp(RandomGaussianBlur(")
    assert name.endswith("...")
    assert len(name) <= 60


def test_no_advice_that_is_refused() -> None:
    """seed_by="sample" is named where it is allowed: an IterableDataset has no indices."""
    with FastLoader(Drawn(), num_workers=1) as indexed, FastLoader(Stream(), num_workers=1) as stream:
        assert 'seed_by="sample"' in indexed.explain(all=True)
        assert "seed_by" not in stream.explain(all=True)
