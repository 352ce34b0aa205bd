"""Which samples a loader's packed datasets have, for a state that is loaded where the dataset was changed since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastload.dataset import PackedDataset
from fastload.errors import ArgumentError


def packed_state(dataset: Any) -> dict[str, list[list[Any]]]:
    """The part of a state about packed datasets, in Subsets and ConcatDatasets too: [version, digest of the samples] of each as
    "packed", as JSON values; {} without any."""
    found = _versions(dataset)
    return {"packed": found} if found else {}


def _versions(dataset: Any) -> list[list[Any]]:
    return [[packed.version, packed.opened.reader.manifest.samples_digest] for packed in _leaves(dataset)]


def _leaves(dataset: Any) -> Iterator[PackedDataset]:
    if isinstance(dataset, PackedDataset):
        yield dataset
    elif type(dataset) is Subset:
        yield from _leaves(dataset.dataset)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            yield from _leaves(part)


def check_versions(dataset: Any, stored: list[Any]) -> None:
    """Checks that positions in a state mean the same samples now. Fields may have been added or taken away.

    Raises:
        ArgumentError: a packed dataset is of another version than it was, with other samples.
    """
    leaves, versions = list(_leaves(dataset)), _versions(dataset)
    if len(stored) != len(leaves):
        return
    for packed, (before, digest), (now, samples) in zip(leaves, stored, versions, strict=True):
        if before != now and digest != samples:
            raise ArgumentError(
                f"the state was taken in mid-epoch with version {before} of {packed.path}, this loader has version {now}, "
                f"whose samples are others: resume with PackedDataset(..., version={before})"
            )


def is_versions(value: object) -> bool:
    """Whether a value of a state has the form that `packed_state` gives it."""
    return isinstance(value, list) and all(isinstance(each, list) and [type(part) for part in each] == [int, str] for each in value)
