"""Questions about replaced code that fastload asks in a worker process, where it has put functions of its
own in the place of others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from PIL import Image, JpegImagePlugin
from process_helpers import Made, engine_marks
from torch.utils.data._utils import collate
from torchvision.transforms import _functional_tensor as tensors
from torchvision.transforms import v2

from fastload import FastLoader
from fastload.common.originals import OwnCode, original, stand_in
from fastload.dataset.in_place.known import opening_replaced
from fastload.engines.settings import _collate_replaced
from fastload.lazy.opening import opened_lazily
from fastload.transforms.compiler import compile_plan
from fastload.transforms.steps import functions_replaced, known

pytestmark = engine_marks

STEPS = [
    *(
        v2.CenterCrop(8),
        v2.Resize(9),
        v2.SanitizeBoundingBoxes(),
        v2.ConvertBoundingBoxFormat("XYXY"),
        v2.Normalize([0.5], [0.2]),
    ),
    *(v2.RandomHorizontalFlip(), v2.ColorJitter(0.5), v2.ToDtype(torch.float32, scale=True), v2.ToImage()),
]
NATIVE = v2.Compose([v2.ToImage(), v2.CenterCrop(8), v2.RandomHorizontalFlip()])
QUESTIONS: dict[str, Callable[[], Any]] = {
    "known": lambda: [type(step).__name__ for step in STEPS if known(step) is None],
    "functions": lambda: functions_replaced(STEPS),
    "plan": lambda: str([(stage.name, stage.where, stage.why) for stage in compile_plan(NATIVE).stages]),
    "opening": opening_replaced,
    "collate": _collate_replaced,
}


def answers(index: int = 0) -> dict[str, Any]:
    """Answers of this process, and which of three functions fastload has exchanged in it."""
    functions = tensors.normalize, Image.OPEN["JPEG"][0], collate.default_collate_fn_map[torch.Tensor]
    return {
        **{name: ask() for name, ask in QUESTIONS.items()},
        "exchanged": [original(each) is not each for each in functions],
    }


def test_a_worker_has_the_answers_of_its_parent() -> None:
    """Functions that fastload has exchanged there are not taken for the program's; each answer is the one
    without them."""
    Image.preinit()
    here = answers()
    assert here.pop("exchanged") == [False, False, False]
    with FastLoader(
        Made(answers, 1), batch_size=None, num_workers=1, multiprocessing_context="fork"
    ) as loader:
        there = dict(next(iter(loader)))
    assert there.pop("exchanged") == [True, True, True]
    assert there == here == {"known": [], "functions": "", "plan": here["plan"], "opening": "", "collate": ""}


def test_the_calling_process_has_the_same_answers() -> None:
    """So has a thread of the loop's process while images are lazy there."""
    Image.preinit()
    with opened_lazily("exact"):
        assert Image.OPEN["JPEG"][0] is not JpegImagePlugin.jpeg_factory
        assert opening_replaced() == ""


@contextmanager
def exchanged() -> Iterator[Callable[..., Any]]:
    """torchvision's `normalize` under a declared stand-in."""
    own = tensors.normalize

    @functools.wraps(own)
    def ours(*args: Any) -> Any:
        return own(*args)

    stand_in(ours, own)
    tensors.normalize = ours
    try:
        yield ours
    finally:
        tensors.normalize = own


NORMALIZE = ("torchvision.transforms._functional_tensor", ("normalize",))


def test_a_program_s_code_is_found_over_and_under_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper around it, other code put into it, and other code put into the function that it stands for
    are the program's."""

    def mine(*args: Any) -> Any:
        return args[0]

    own, asked = tensors.normalize, OwnCode(NORMALIZE)
    with exchanged() as ours:
        assert asked.replaced() == OwnCode(NORMALIZE).replaced() == ""
        assert original(ours) is own
        with monkeypatch.context() as patched:
            patched.setattr(tensors, "normalize", functools.wraps(ours)(lambda *args: ours(*args)))
            assert "normalize was replaced" in asked.replaced()
            assert "normalize was replaced" in OwnCode(NORMALIZE).replaced()
        for function in (own, own, ours):
            assert asked.replaced() == ""
            with monkeypatch.context() as patched:
                patched.setattr(
                    function, "__code__", mine.__code__ if function is own else twin(ours).__code__
                )
                assert "normalize was replaced" in asked.replaced()
                assert "normalize was replaced" in OwnCode(NORMALIZE).replaced()
    assert asked.replaced() == ""


def twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with as many free variables as another."""
    held = function

    def other(*args: Any) -> Any:
        return held

    return other


def test_a_stand_in_is_itself_and_no_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that compares equal to a stand-in, and one that takes its place in memory, are what they
    are."""

    class Same:
        def __init__(self) -> None:
            self.called = 0

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    first, second = Same(), Same()
    stand_in(first, len)
    assert (original(first), original(second), original([])) == (len, second, [])
    assert original(second) is second
    address = id(first)
    del first
    fresh = [Same() for _ in range(50)]
    assert all(original(each) is each for each in fresh), address
