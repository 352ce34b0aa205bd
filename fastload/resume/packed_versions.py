"""Which samples a loader's packed datasets have, for a state that is loaded where the dataset was changed since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastload.dataset.mixture import Mixture
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError


def packed_state(dataset: Any) -> dict[str, Any]:
    """The part of a state about the loader's datasets, as JSON values: [version, digest of the samples] of each packed dataset, in Subsets
    and the like too, as "packed", and what the order of a Mixture follows from, as "mixture"; {} without any."""
    found = _versions(dataset)
    mixture = {"mixture": dataset.described()} if isinstance(dataset, Mixture) else {}
    return ({"packed": found} if found else {}) | mixture


def check_mixture(dataset: Any, stored: Any) -> None:
    """Checks that a state, which holds `stored` as its mixture, goes with a dataset.

    Raises:
        ArgumentError: one is of a Mixture and the other is not, or they differ in more than weights, or the state is damaged.
    """
    if not isinstance(dataset, Mixture):
        if stored is not None:
            raise ArgumentError(f"the state was taken with a Mixture, and this loader's dataset is a {type(dataset).__name__}: give it one")
        return
    if stored is None:
        raise ArgumentError("the state was taken without a Mixture, and this loader's dataset is one: resume with the same dataset")
    why = dataset.fits(stored)
    if why:
        raise ArgumentError(
            f"the state does not fit this loader's Mixture: {why}. Resume with the same sources, samples_per_epoch and seed"
        )


def _versions(dataset: Any) -> list[list[Any]]:
    return [[packed.version, packed.opened.reader.manifest.samples_digest] for packed in _leaves(dataset)]


def _leaves(dataset: Any) -> Iterator[PackedDataset]:
    if isinstance(dataset, PackedDataset):
        yield dataset
    elif type(dataset) is Subset:
        yield from _leaves(dataset.dataset)
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from _leaves(source)
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
