"""torchvision's and Pillow's functions of colours, of lazy images, one step each: their pixels, attributes
and errors; in workers alone, and never in place of other code."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from compositions import STEPS, functions_exchanged
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lazy_helpers import both, counted, files, is_lazy, lazily
from PIL import Image, ImageEnhance, ImageOps
from torch.utils.data import Dataset
from torchvision.transforms import _functional_pil as pillow
from torchvision.transforms import functional as F

from fastload import FastLoader
from fastload.composing import adjusting, image_ops, one_step

LIBRARIES = {pillow: adjusting.OWN, ImageOps: image_ops.OWN}
CASES = [(module, name) for module, steps in STEPS.items() for name in steps]
OWN: dict[str, Callable[..., Any]] = {name: getattr(module, name) for module, name in CASES}
NAMES = (*adjusting.STEPS, *image_ops.STEPS)
"""torchvision has functions of all these names."""


@pytest.fixture(scope="module", autouse=True)
def exchanged() -> Iterator[None]:
    """The functions are exchanged, as in a worker."""
    with functions_exchanged():
        yield


factors = (
    st.sampled_from([0, 1, -0.5, 0.5, 2, 9, np.float64(0.3), np.int64(3), 1e31, "x", None, True])
    | st.floats(-0.6, 2.5)
    | st.integers(-2, 260)
)
bare = ("invert", "autocontrast", "equalize")
calls = st.tuples(st.sampled_from(NAMES), factors).map(
    lambda call: (call[0], () if call[0] in bare and call[1] is not None else call[1:])
)


@given(
    st.sampled_from(["420", "grey", "tiny", "damaged", "progressive", "cmyk", "truncated"]),
    st.lists(calls, min_size=1, max_size=6),
    st.booleans(),
)
@example("truncated", [("adjust_hue", (1,))], False)  # whose argument is looked at before the file
@settings(max_examples=300)
def test_chains(name: str, calls: list[tuple[str, tuple[Any, ...]]], resized: bool) -> None:
    """Pixels, all four bytes of them, info, warnings and errors are those of torchvision's own code."""

    def program() -> Any:
        image = Image.open(io.BytesIO(files()[name]))
        image = image.resize((40, 31)) if resized else image
        made = [image]
        for function, arguments in calls:
            image = getattr(F, function)(image, *arguments)
            made.append(image)
        raw = image.tobytes("raw", "RGBX") if image.mode == "RGB" else b""
        return [*made, raw]

    plain, lazy = both(program)
    assert lazy == plain


@given(
    st.sampled_from(["420", "grey", "tiny", "cmyk", "truncated"]),
    st.sampled_from([name for module, name in CASES if module is ImageOps]),
    st.lists(factors, max_size=2),
    st.dictionaries(
        st.sampled_from(["bits", "threshold", "cutoff", "ignore", "mask", "preserve_tone"]),
        st.sampled_from([0, 0.0, 1, 3, 8, 200, True, False, None, (2, 1), "x"]),
        max_size=3,
    ),
)
@example("420", "equalize", [], {"mask": 1})
@example("420", "autocontrast", [], {"cutoff": 3})
@example("420", "autocontrast", [], {"preserve_tone": True})
@example("420", "autocontrast", [0], {"cutoff": 0})
@settings(max_examples=300)
def test_arguments_of_pillows(name: str, function: str, given: list[Any], options: dict[str, Any]) -> None:
    """Whatever they are, and however they are given."""

    def program() -> Any:
        image = Image.open(io.BytesIO(files()[name]))
        here = {
            key: image.convert("L") if value == 1 and key == "mask" else value
            for key, value in options.items()
        }
        return getattr(ImageOps, function)(image, *given, **here)

    plain, lazy = both(program)
    assert lazy == plain


@pytest.mark.parametrize(("module", "name"), CASES)
def test_one_step(module: Any, name: str) -> None:
    """The function makes no other image, by position and by keyword."""
    does = STEPS[module][name]
    arguments = does.tried[-1]
    named = dict(zip(OWN[name].__code__.co_varnames[1:], arguments, strict=False))
    with lazily():
        image = Image.open(io.BytesIO(files()["420"])).crop((3, 4, 50, 40))
        made = getattr(module, name)(image, *arguments)
        assert is_lazy(made)
        assert is_lazy(getattr(module, name)(image, **named))
        assert np.array_equal(made, OWN[name](image, *arguments))
    met = one_step.taking_a_step(OWN[name], name, does, LIBRARIES[module])
    # makes its trial, as in a new process
    assert not counted(lambda: met(Image.open(io.BytesIO(files()["420"])), *arguments)).whole


@pytest.mark.parametrize(("module", "name"), CASES)
def test_errors_are_the_library_s(module: Any, name: str) -> None:
    """What is no image, and calls that do not fit."""
    for arguments, options in (((3, 0.2), {}), ((), {}), ((None,), {"img": 3}), ((None, 1, 2), {})):
        with pytest.raises(Exception) as ours:  # noqa: PT011
            getattr(module, name)(*arguments, **options)
        with pytest.raises(type(ours.value)):
            OWN[name](*arguments, **options)


def test_a_program_s_own_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An enhancer or a function that a program has put in the place of Pillow's has its say."""
    monkeypatch.setattr(ImageEnhance.Brightness, "enhance", lambda self, factor: "its own", raising=False)
    monkeypatch.setattr(ImageOps, "_lut", lambda image, table, **options: "its own, too")
    with lazily():
        image = Image.open(io.BytesIO(files()["420"])).crop((3, 4, 50, 40))
        assert pillow.adjust_brightness(image, 0.3) == "its own"
        assert ImageOps.solarize(image, 3) == "its own, too"


def test_a_function_that_differs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the trial gives other pixels, torchvision's own code runs."""
    wrong = one_step.OneStep(adjusting._saturation, ((0.3,),))
    met = one_step.taking_a_step(OWN["adjust_brightness"], "adjust_brightness", wrong, adjusting.OWN)
    with lazily():
        image = Image.open(io.BytesIO(files()["420"])).crop((3, 4, 50, 40))
        assert np.array_equal(met(image, 0.3), OWN["adjust_brightness"](image, 0.3))


class Which(Dataset[Any]):
    """True where functions of fastload's stand in torchvision and Pillow."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> bool:
        files = {getattr(module, name).__code__.co_filename for module, name in CASES}
        return files == {one_step.__file__}


def test_in_workers_alone() -> None:
    """Worker processes have them, unless images are not to be lazy."""
    for module, name in CASES:
        setattr(module, name, OWN[name])
    try:
        for lazy in ("exact", False):
            with FastLoader(Which(), batch_size=2, num_workers=1, lazy=lazy) as loader:
                assert [batch.all().item() for batch in loader] == [lazy == "exact"]
        assert all(getattr(module, name) is OWN[name] for module, name in CASES)
    finally:
        adjusting.exchange()
        image_ops.exchange()
