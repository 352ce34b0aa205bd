"""Functions of torchvision's and Pillow's that change a lazy image by one step of its recipe, where their own
code makes several images, arrays of NumPy's, or tables in Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.lazy import images
from fastload.lazy.core_image import LazyCore
from fastload.lazy.functions import aside
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import to_array, to_core
from fastload.lazy.recipe import Recipe
from fastload.lazy.resampling import noise
from fastload.lazy.sources import Given
from fastload.lazy.steps import Step

Function: TypeAlias = Callable[..., Any]


class OneStep(NamedTuple):
    """The step of a function by mode and arguments, or None for arguments that are its own code's; those of
    its trial; and True if its result has the image's `info`."""

    step: Callable[..., Step | None]
    tried: tuple[tuple[float, ...], ...]
    keeps_info: bool = True


_trials: dict[str, tuple[OwnCode, Probe[bool]]] = {}
"""By function that is exchanged, with the code that it stands for."""


def agrees(name: str) -> bool:
    """Returns True if a function's step gives the pixels of the library's own code, which runs otherwise."""
    library, trial = _trials.get(name, (None, None))
    return library is not None and trial is not None and not library.replaced() and bool(trial())


def exchange(module: str, functions: Mapping[str, OneStep], library: OwnCode) -> None:
    """Exchanges functions in this process; their module is imported.

    Args:
        functions: by name in the module.
        library: they, and what they call.
    """
    for name, does in functions.items():
        if not library.replaced():
            met = functools.partial(taking_a_step, name=name, does=does, library=library)
            originals.exchange(sys.modules[module], name, met)


def taking_a_step(own: Function, name: str, does: OneStep, library: OwnCode) -> Function:
    """The stand-in for a function of this name."""
    trial = Probe(lambda: all(_same(own, does.step, *each) for each in does.tried))
    _trials[name] = library, trial
    names = own.__code__.co_varnames[1 : own.__code__.co_argcount]
    defaults = dict(zip(reversed(names), reversed(own.__defaults__ or ()), strict=False))

    @functools.wraps(own)
    def call(image: Any, *given: Any, **options: Any) -> Any:
        made = None
        if type(image) in images.KINDS:
            arguments = _bound(names, defaults, given, options)
            if arguments is not None and not library.replaced() and trial():
                made = _made(image, does.step, *arguments)
        if made is None:
            return own(image, *given, **options)
        return images.image_of(image if does.keeps_info else Image.Image(), made)

    return call


def _bound(
    names: tuple[str, ...], defaults: Mapping[str, Any], given: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """The values of all arguments of these names; None where the call does not fit."""
    if len(given) > len(names) or not options.keys() <= set(names[len(given) :]):
        return None
    values = {**defaults, **dict(zip(names, given, strict=False)), **options}
    return tuple(values[name] for name in names) if len(values) == len(names) else None


def _made(image: object, step: Callable[..., Step | None], *arguments: Any) -> LazyCore | None:
    mode = getattr(image, "mode", "")
    taken = step(mode, *arguments) if mode in ("RGB", "L") else None
    if taken is None:  # the file is not read for it
        return None
    core = images.core_of(image)
    return None if core is None or core.mode != mode else _stepped(core, taken)


def _stepped(core: LazyCore, step: Step) -> LazyCore | None:
    recipe = core.recipe()
    return LazyCore.of(None if recipe is None else recipe.then(step))


def _same(own: Function, step: Callable[..., Step | None], *arguments: float) -> bool:
    pixels = noise(61, 47, 3) // 2 + 20
    with aside():
        wanted = own(Image.Image()._new(to_core(pixels)), *arguments)
    taken = step("RGB", *arguments)
    made = None if taken is None else _stepped(LazyCore(Recipe(Given(pixels))), taken)
    return made is not None and np.array_equal(made.array(), to_array(wanted.im))
