"""What a loop shows of an exception in a worker process: torch's words, the program's own frames, and the
index."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fastload import FastLoader


class Broken:
    """Sample 5 raises."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("labels/5.txt is broken")
        return index


def failing_collate(samples: list[Any]) -> Any:
    raise KeyError("weight")


def shown(dataset: Any, **options: Any) -> tuple[str, str]:
    """(str() of the exception, its traceback as Python prints it) of a loop over two workers."""
    with (
        FastLoader(dataset, batch_size=4, num_workers=2, **options) as loader,
        pytest.raises((ValueError, KeyError, RuntimeError), match="Caught") as caught,
    ):
        list(loader)
    return str(caught.value), "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("options", [{}, {"seed_by": "sample"}, {"persistent_workers": True}])
def test_the_programs_frames_and_the_index(options: dict[str, Any]) -> None:
    """No line of the loader's stands in the worker's traceback, which ends at the user's line; the last
    line names the sample."""
    text, whole = shown(Broken(), **options)
    assert text.splitlines()[0].startswith("Caught ValueError in DataLoader worker process ")
    worker = text.split("Original Traceback (most recent call last):\n")[1]
    assert worker.count("  File ") == 1
    raised = Broken.__getitem__.__code__.co_firstlineno + 2
    assert f'test_error_text.py", line {raised}, in __getitem__' in worker
    assert worker.rstrip().endswith("ValueError: labels/5.txt is broken")
    assert whole.rstrip().splitlines()[-1] == "It was raised by Broken[5]."


def test_the_text_begins_as_torchs() -> None:
    """The first lines and the last are those of torch's DataLoader."""
    with pytest.raises(ValueError, match="labels") as caught:
        list(DataLoader(Broken(), batch_size=4, num_workers=2))  # type: ignore[arg-type]
    torchs, ours = str(caught.value).splitlines(), shown(Broken())[0].splitlines()
    assert torchs[:2] == ours[:2]
    assert [line for line in torchs if line][-1] == [line for line in ours if line][-1]


def test_an_error_that_no_sample_raised() -> None:
    """Of a collate_fn no sample is named, and none that was replaced before it."""
    text, whole = shown(Broken(), collate_fn=failing_collate, on_error="replace")
    assert text.startswith("Caught KeyError in DataLoader worker process ")
    assert "It was raised by" not in whole


def test_a_frame_of_a_library_stays() -> None:
    """Frames below the program's are not cut off."""

    class Stacks(Broken):
        def __getitem__(self, index: int) -> Any:
            return torch.stack([])

    text, _ = shown(Stacks(), multiprocessing_context="fork")
    assert "Stacks" not in text
    assert ", in __getitem__" in text
