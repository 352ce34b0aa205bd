"""What frameworks do to a loader: read its attributes, and call its class with them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from numbers_data import COUNT, FORMS, WITH_FILES, Numbers, loader_of, runs_as_it_should
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from fastload import FastLoader

NOT_ATTRIBUTES = {"self", "shuffle"}
"""DataLoader keeps no `shuffle` either: the sampler says it."""


def rebuilt(loader: FastLoader, **changes: Any) -> FastLoader:
    """type(loader)(**kwargs) from same-named attributes, as Lightning makes it: what differs from the
    default, and a given sampler."""
    parameters = inspect.signature(type(loader).__init__).parameters
    held = {name: getattr(loader, name) for name in parameters if name not in NOT_ATTRIBUTES}
    kwargs = {name: value for name, value in held.items() if parameters[name].default is not value}
    return type(loader)(
        **{**kwargs, "shuffle": False, "sampler": loader.sampler, "batch_sampler": None, **changes}
    )


def by_label(loader: Any) -> dict[int, torch.Tensor]:
    """An epoch's images by label, in the order they came."""
    return {
        int(label): image for images, labels in loader for image, label in zip(images, labels, strict=True)
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_argument_is_an_attribute(numbered: Path, form: str) -> None:
    """Each argument of __init__ is an attribute of the same name, with the value given."""
    given: dict[str, Any] = {
        "seed": 3,
        "on_error": "replace",
        "timeout": 50,
        "prefetch_factor": 3,
        "drop_last": True,
        "in_order": False,
    }
    given["generator"] = torch.Generator()
    if form == "packed":
        given |= {"dtype": torch.float16, "memory_format": torch.contiguous_format}
    loader = loader_of(form, numbered, **given)
    for name in inspect.signature(FastLoader.__init__).parameters.keys() - NOT_ATTRIBUTES:
        assert hasattr(loader, name), name
    for name, value in given.items():
        assert getattr(loader, name) == value, name
    loader.close()


@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_rebuilt_loader_gives_the_same_samples(numbered: Path, form: str, shuffle: bool) -> None:
    """A loader made from another's attributes has its class, its settings, its sampler, and the same
    pixels for every sample."""
    options: dict[str, Any] = {"seed": 8, "shuffle": shuffle}
    if form == "packed":
        options |= {"dtype": torch.float16, "memory_format": torch.contiguous_format}
    with loader_of(form, numbered, **options) as loader, rebuilt(loader) as copy:
        assert type(copy) is FastLoader
        assert runs_as_it_should(form, copy)
        assert isinstance(copy.sampler, RandomSampler if shuffle else SequentialSampler)
        mine, theirs = by_label(copy), by_label(loader)
        assert sorted(mine) == list(range(COUNT))
        assert shuffle or list(mine) == list(theirs) == list(range(COUNT))
        for label, image in mine.items():
            assert image.dtype == theirs[label].dtype
            assert image.stride() == theirs[label].stride()
            assert torch.equal(image, theirs[label])


def test_rebuilt_from_a_path(numbered: Path) -> None:
    """A loader made from a path holds a dataset, whose transform is its own: rebuilding gives neither
    twice."""
    from fastload import transforms as T

    with (
        FastLoader(numbered, batch_size=5, num_workers=2, transform=T.CenterCrop(20), seed=1) as loader,
        rebuilt(loader) as copy,
    ):
        assert copy.dataset is loader.dataset
        for (images, _), (expected, _) in zip(copy, loader, strict=True):
            assert images.shape[2:] == (20, 20)
            assert torch.equal(images, expected)


@pytest.mark.parametrize("form", FORMS)
def test_kept_in_plain_dataloader(numbered: Path, form: str, no_children: None) -> None:
    """A plain DataLoader made from the attributes both know gives every sample, in order, with the
    loader's shapes and dtypes."""
    loader = loader_of(form, numbered)
    names = (
        inspect.signature(DataLoader.__init__).parameters.keys()
        - NOT_ATTRIBUTES
        - {"batch_size", "sampler", "drop_last"}
    )
    plain: DataLoader[Any] = DataLoader(**{name: getattr(loader, name) for name in names})
    for (images, labels), (expected, same) in zip(plain, loader, strict=True):
        assert images.shape == expected.shape
        assert images.dtype == expected.dtype
        assert torch.equal(labels, same)
    loader.close()


def test_subscripts_and_is_generic() -> None:
    """FastLoader[T] is a type, and a subclass of it loads."""

    class Typed(FastLoader):
        pass

    assert FastLoader[int] is not None  # type: ignore[misc]
    assert len(list(Typed(Numbers(), batch_size=24))) == 2
