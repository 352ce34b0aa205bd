"""Spaces of magnitudes that are made once: torchvision's own, for torchvision's own forward() alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from pictures import photo
from torchvision import transforms as V

from fastload.composing import spaces

KINDS: tuple[Any, ...] = (V.AutoAugment, V.RandAugment, V.TrivialAugmentWide)
OWN = {kind: kind._augmentation_space for kind in KINDS}


@pytest.fixture(autouse=True)
def exchanged() -> Iterator[None]:
    """The functions are exchanged, as in a worker."""
    spaces.exchange()
    yield
    for kind in KINDS:
        kind._augmentation_space = OWN[kind]


def shown(space: dict[str, tuple[torch.Tensor, bool]]) -> Any:
    return {
        name: (tensor.dtype, tensor.shape, tensor.tolist(), signed)
        for name, (tensor, signed) in space.items()
    }


ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    V.AutoAugment: (10, (61, 83)),
    V.RandAugment: (31, (61, 83)),
    V.TrivialAugmentWide: (31,),
}


@pytest.mark.parametrize("kind", KINDS)
def test_spaces_are_torchvisions(kind: Any) -> None:
    """Equal to torchvision's, the same tensors at each call with the same arguments; the dict is the
    caller's."""
    transform, given = kind(), ARGUMENTS[kind]
    one, two = (transform._augmentation_space(*given) for _ in range(2))
    assert shown(one) == shown(two) == shown(OWN[kind](transform, *given))
    assert list(one) == list(OWN[kind](transform, *given))
    assert all(one[name][0] is two[name][0] for name in one)
    one.clear()
    assert transform._augmentation_space(*given)
    other = (7, *given[1:])
    assert shown(transform._augmentation_space(*other)) == shown(OWN[kind](transform, *other))


def test_a_space_that_was_written_to_is_made_anew() -> None:
    transform = V.TrivialAugmentWide()
    transform._augmentation_space(31)["Rotate"][0].fill_(5.0)
    assert shown(transform._augmentation_space(31)) == shown(OWN[V.TrivialAugmentWide](transform, 31))


def of_a_subclass(space: Callable[[Any], Any]) -> None:
    class Mine(V.TrivialAugmentWide):
        pass

    space(Mine())


def with_doubles(space: Callable[[Any], Any]) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert space(V.TrivialAugmentWide())["Rotate"][0].dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def elsewhere(space: Callable[[Any], Any]) -> None:
    with torch.device("meta"):
        assert space(V.TrivialAugmentWide())["Rotate"][0].device.type == "meta"


def for_inference(space: Callable[[Any], Any]) -> None:
    with torch.inference_mode():
        assert space(V.TrivialAugmentWide())["Rotate"][0].is_inference()


@pytest.mark.parametrize("program", [of_a_subclass, with_doubles, elsewhere, for_inference])
def test_torchvisions_own_function_runs(program: Callable[[Any], Any]) -> None:
    """For subclasses, and where torch makes other tensors; what is kept is not touched by it."""
    first = V.TrivialAugmentWide()._augmentation_space(31)["Rotate"][0]
    program(lambda transform: transform._augmentation_space(31))
    seen: list[torch.Tensor] = []
    program(
        lambda transform: (seen.append((found := transform._augmentation_space(31))["Rotate"][0]), found)[1]
    )
    assert seen[0] is not first
    assert V.TrivialAugmentWide()._augmentation_space(31)["Rotate"][0] is first


@pytest.mark.parametrize("kind", KINDS)
def test_images_and_generator(kind: Any) -> None:
    """Images and the generator's state after forty calls."""
    found = []
    for transform in (kind(), type("Mine", (kind,), {})()):
        torch.manual_seed(2)
        images = [transform(photo(1, 31, 40)).tobytes() for _ in range(40)]
        found.append((images, torch.get_rng_state().tolist()))
    assert found[0] == found[1]
