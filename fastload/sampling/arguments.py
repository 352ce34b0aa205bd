"""order_of: the samplers that a loader's arguments about order ask for, made where torch's DataLoader does
not make them."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import DistributedSampler, IterableDataset

from fastload.errors import ArgumentError
from fastload.sampling.known import shuffle_class
from fastload.sampling.sampler import Sharded, ShardedBatchSampler, ShardedSampler, ShardSampler
from fastload.sampling.sharding import Shard


@dataclass(frozen=True)
class OrderArguments:
    """Arguments about order, as torch's DataLoader takes them.

    Attributes:
        shuffle, sampler, batch_sampler, generator, drop_last: DataLoader's arguments of those names.
        own_generator: the generator was made here, for an order that follows (seed, epoch).
    """

    shuffle: bool | str | None
    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    generator: torch.Generator | None
    drop_last: bool
    own_generator: bool = False


def order_of(
    dataset: object,
    *,
    shuffle: bool | str | None,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Any] | None,
    generator: torch.Generator | None,
    seed: int | None,
    drop_last: bool,
    shard: Shard | None,
    even: bool,
) -> OrderArguments:
    """Makes the sampler of a loader that shards, or shuffles in another way than torch's; everything else is
    left to torch.

    Raises:
        ArgumentError: `shuffle` is a text that names no order; or `shard` contradicts another argument.
    """
    named = shuffle_class(shuffle)
    if shard is not None:
        given = OrderArguments(shuffle, sampler, batch_sampler, generator, drop_last)
        return _sharded(dataset, given, seed, shard, even)
    if not even:
        raise ArgumentError(
            "even=False is about the samples that ranks cannot share evenly: give shard= as well"
        )
    own_generator = seed is not None and generator is None and bool(shuffle)
    generator = torch.Generator() if own_generator else generator
    if (
        named is not None
        and sampler is None
        and batch_sampler is None
        and not isinstance(dataset, IterableDataset)
    ):
        sampler, shuffle = named(cast("Sized", dataset), generator), None
    return OrderArguments(shuffle, sampler, batch_sampler, generator, drop_last, own_generator)


def _sharded(
    dataset: object, given: OrderArguments, seed: int | None, shard: Shard, even: bool
) -> OrderArguments:
    """The arguments of a loader with shard=. What torch refuses is left to torch, such as a sampler beside
    a batch sampler."""
    if isinstance(dataset, IterableDataset):
        raise ArgumentError(
            f"shard={shard!r} shares out samples by their index, and {type(dataset).__name__} is an "
            "IterableDataset, which has none: "
            "split it in its own __iter__, by torch.distributed.get_rank()"
        )
    inside = list(_chain(given.batch_sampler if given.sampler is None else given.sampler))
    if any(isinstance(each, Sharded) for each in inside):
        return given  # a loader is made again of another's attributes: its sampler shards
    found = next((each for each in inside if isinstance(each, DistributedSampler)), None)
    if found is not None:
        raise ArgumentError(
            f"shard={shard!r} and a {type(found).__name__} would both split the samples: leave one "
            "of them out "
            '(shard= alone gives the same indices, and with shuffle="window" those of a WindowSampler)'
        )
    stateful = next((each for each in inside if callable(getattr(each, "load_state_dict", None))), None)
    if stateful is not None:
        raise ArgumentError(
            f"shard={shard!r} with a {type(stateful).__name__}, which has a state of its own: ranks "
            "that resume would each need "
            "another one. Split the samples in that sampler"
        )
    drop_last = given.drop_last
    if given.batch_sampler is not None and given.sampler is None and not given.shuffle:
        batches = ShardedBatchSampler(given.batch_sampler, shard, drop_last=drop_last, even=even)
        return OrderArguments(None, None, batches, given.generator, False)
    if given.sampler is not None and given.batch_sampler is None and not given.shuffle:
        sampler: Iterable[Any] = ShardedSampler(dataset, given.sampler, shard, drop_last=drop_last, even=even)
        return OrderArguments(None, sampler, None, given.generator, drop_last)
    if given.sampler is not None or given.batch_sampler is not None:
        return given
    sampler = ShardSampler(dataset, shard, shuffle=given.shuffle, seed=seed, drop_last=drop_last, even=even)
    return OrderArguments(None, sampler, None, given.generator, drop_last)


class AccelerateMark:
    """The attribute by which Accelerate's prepare() takes a loader as it is: False on a class, with a
    warning where prepare() asks."""

    def __get__(self, loader: object, kind: type) -> bool:
        accelerator = getattr(sys.modules.get("accelerate"), "Accelerator", None)
        prepares = inspect.unwrap(getattr(accelerator, "prepare_data_loader", AccelerateMark.__get__))
        builds = getattr(sys.modules.get("accelerate.data_loader"), "DataLoader", kind)
        keeps = any(self is value for base in builds.__mro__ for value in vars(base).values())
        if loader is not None and not keeps and sys._getframe(1).f_code is prepares.__code__:
            warnings.warn(
                "Accelerate's prepare() builds a plain DataLoader from a FastLoader: use "
                "fastload.accelerate(accelerator, loader), which "
                "keeps it",
                stacklevel=2,
            )
        return False


def show_sharded(loader: Any, shard: Shard) -> None:
    """Shows frameworks that a loader shards by itself.

    Accelerate's prepare() takes it as it is. Lightning leaves alone what has a DistributedSampler; torch puts
    a sampler that nobody asks beside a user's batch sampler, and that is one here.
    """
    loader._is_accelerate_prepared = True
    if isinstance(loader.batch_sampler, ShardedBatchSampler):
        vars(loader)["sampler"] = ShardSampler(
            loader.dataset, shard, shuffle=False, seed=None, drop_last=False, even=True
        )


def _chain(sampler: object) -> Iterator[Any]:
    """A sampler, and those that it is made of."""
    found: list[Any] = []
    while sampler is not None and all(sampler is not each for each in found):
        found.append(sampler)
        yield sampler
        inner = getattr(sampler, "sampler", None)
        sampler = inner if inner is not None else getattr(sampler, "batch_sampler", None)
