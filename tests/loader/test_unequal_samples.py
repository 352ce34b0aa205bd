"""Samples of one batch that differ in shape, without collate=: the error names the part, the samples and
the way out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset

import fastload
from fastload import FastLoader, PackedDataset
from fastload.errors import BatchShapeError
from fastload.packing import Item
from fastload.store import Field

COUNT = 6
BOXES = (2, 2, 0, 2, 3, 3)
"""Boxes of each sample."""
ADVICE = (
    r' of one batch, and without collate= a batch has one tensor for it: pass collate="list", "padded" '
    r'or "flat" to FastLoader'
)
ENGINES = [("python", 0), ("python", 2), ("auto", 0), ("auto", 2)]


class Objects:
    """A source of images of one size, with boxes of several numbers, and lists of as many numbers."""

    title, classes, concurrent = "objects", None, True
    fields = (Field("boxes", "boxes", format="xyxy"), Field("notes", "json"))

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return f"{position}.png"

    def read(self, position: int) -> Item:
        count = BOXES[position]
        boxes = np.tile(np.float32([1, 2, 3, 4]), (count, 1))
        return Item(
            self.name(position),
            np.zeros((8, 8 + 2 * (position == 5), 3), np.uint8),
            {"boxes": boxes, "notes": [1] * count},
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unequal") / "d"
    fastload.pack(Objects(), out, workers=1)
    return out


def failure(dataset: Any, **options: Any) -> RuntimeError:
    """What the first epoch ends with."""
    with FastLoader(dataset, **{"batch_size": 3, **options}) as loader, pytest.raises(RuntimeError) as caught:
        list(loader)
    return caught.value


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["image", "boxes"], r"sample\['boxes'\] has the shape \(2, 4\) at index 0 and \(0, 4\) at index 2"),
        (
            ("image", {"b": "boxes"}),
            r"sample\[1\]\['b'\] has the shape \(2, 4\) at index 0 and \(0, 4\) at index 2",
        ),
        (("image", ["notes"]), r"sample\[1\]\['notes'\] has 2 entries at index 0 and 0 entries at index 2"),
    ],
)
def test_packed_data(folder: Path, fields: Any, words: str, engine: str, workers: int) -> None:
    """Every engine says the same of packed data."""
    error = failure(PackedDataset(folder, fields=fields), engine=engine, num_workers=workers)
    assert type(error) is BatchShapeError
    with pytest.raises(BatchShapeError, match=words + ADVICE):
        raise error
    assert [
        len(batch)
        for batch in FastLoader(PackedDataset(folder, fields=("image", "boxes")), batch_size=1, num_workers=0)
    ] == [2] * COUNT


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_python_makes(folder: Path, workers: int) -> None:
    """Images of several sizes are told how to become one size, too; the samples are named by what the
    batch holds."""
    dataset = Subset(PackedDataset(folder, [lambda image: image], fields=["image"]), [4, 3, 5])
    error = failure(dataset, num_workers=workers)
    assert type(error) is BatchShapeError
    assert r"sample['image'] has the shape (3, 8, 8) at index 0 and (3, 8, 10) at index 2" in str(error)
    assert "with pad_to= as these are images" in str(error)


class Own:
    """Samples of one's own, of which number 1 cannot be read."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise OSError("damaged")
        return torch.zeros(3, 4, 4), {"boxes": torch.zeros(BOXES[index], 4), "id": index}


class Stream(IterableDataset[Any]):
    """The same without indices."""

    def __iter__(self) -> Any:
        return iter([Own()[index] for index in (3, 4)])


def advice_in(error: BaseException) -> str:
    """The advice that goes with an error: of a worker process, in the line below torch's first one, and no
    line of code with it."""
    first, *others = str(error).splitlines()
    if first.startswith("Caught"):
        assert not [line for line in others if line.startswith("  File")]
        return others[0]
    if sys.version_info < (3, 11):
        assert isinstance(error.__cause__, BatchShapeError)
        return str(error.__cause__)
    [note] = error.__notes__
    return str(note)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("dataset", "options", "named"),
    [
        (Subset(Own(), [3, 0, 5]), {}, r"(2, 4) at index 0 and (3, 4) at index 2"),
        (Own(), {"on_error": "skip", "batch_size": 4}, "(2, 4) at index 0 and (0, 4) at index 2"),
        (Stream(), {}, "(2, 4) at row 0 and (3, 4) at row 1"),
    ],
)
def test_own_datasets(dataset: Any, options: dict[str, Any], named: str, workers: int) -> None:
    """The error of one's own Dataset is torch's, with the advice beside it."""
    error = failure(dataset, num_workers=workers, **options)
    assert type(error) is RuntimeError
    assert "stack expects each tensor to be equal size" in str(error)
    assert f"sample[1]['boxes'] has the shape {named}" in advice_in(error)
    if not options:
        with pytest.raises(RuntimeError) as theirs:
            list(DataLoader(dataset, batch_size=3, num_workers=workers))
        assert str(theirs.value).splitlines()[-1] == str(error).splitlines()[-1]


def test_other_errors_stay() -> None:
    """Where no part differs in shape, and in what the user's own function collates, nothing is added."""
    for samples, options in (
        ([{1}, {2}], {}),
        ([torch.zeros(2), torch.zeros(3)], {"collate_fn": torch.stack}),
    ):
        with (
            FastLoader(samples, batch_size=2, **options) as loader,
            pytest.raises((RuntimeError, TypeError)) as caught,
        ):  # type: ignore[arg-type]
            list(loader)
        assert not getattr(caught.value, "__notes__", [])
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{}, {"seed_by": "sample"}])
@pytest.mark.parametrize(
    ("samples", "advice"),
    [
        (
            [(1, None), (2, None)],
            "sample[1] at index 0 is None: return a number or a tensor there, or leave that part out",
        ),
        ([{"a": 1.5}, {"a": None}], "sample['a'] at index 1 is None"),
        ([torch.zeros(2), None], "sample at index 1 is None"),
        (
            [(Image.new("L", (2, 2)), 1)] * 2,
            "sample[0] at index 0 is a Pillow image: end the transform with ToTensor()",
        ),
    ],
)
def test_what_is_no_number(samples: Any, options: dict[str, Any], advice: str, workers: int) -> None:
    """A part that is None or a Pillow image is named, with what to do, beside torch's error."""
    with (
        FastLoader(samples, batch_size=2, num_workers=workers, **options) as loader,
        pytest.raises(TypeError) as caught,
    ):
        list(loader)
    assert advice in advice_in(caught.value)
    with pytest.raises(TypeError) as theirs:
        list(DataLoader(samples, batch_size=2))
    assert str(theirs.value) in str(caught.value)
