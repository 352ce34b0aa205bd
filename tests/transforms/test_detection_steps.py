"""The transforms of detection against torchvision's own (v2): parameters from the same draws, pixels, and
which lists are native."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastload import PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, TransformError
from fastload.transforms.compiler import compile_plan
from fastload.transforms.spec import Plan

v2 = pytest.importorskip("torchvision.transforms.v2")
tv_tensors = pytest.importorskip("torchvision.tv_tensors")
F = v2.functional

sides = st.integers(1, 400)
seeds = st.integers(0, 2**40)


@contextmanager
def our_draws(seed: int, stream: int, skip: int = 0) -> Iterator[None]:
    """Makes torch.rand and torch.randint give the engine's numbers of (seed, epoch 0, index 0, stream),
    after `skip` of them."""
    words = iter(core.random_words(seed, 0, 0, stream, 1 << 14))

    def uniform() -> float:
        high, low = next(words) >> 5, next(words) >> 6
        return float((high << 26 | low) * 2.0**-53)

    def rand(*size: int) -> torch.Tensor:
        return torch.tensor([uniform() for _ in range(size[0])], dtype=torch.float64)

    def randint(*bounds: Any, low: int = 0, high: int = 0, size: Any = ()) -> torch.Tensor:
        low, high = (low, high) if high else (bounds[0], bounds[1]) if len(bounds) == 3 else (0, bounds[0])
        return torch.tensor(low + (next(words) * (high - low) >> 32)).expand(size or ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", rand)
        patch.setattr(torch, "randint", randint)
        for _ in range(skip):
            uniform()
        yield


def geometry(transform: Any, size: tuple[int, int], seed: int, boxes: Any = None) -> core.Geometry:
    plan = compile_plan(transform, boxes=boxes is not None)
    assert plan.native
    return core.Geometry(plan.program, size, seed, 0, 0, boxes)


def meta(height: int, width: int) -> torch.Tensor:
    return torch.empty((3, height, width), dtype=torch.uint8, device="meta")


@given(sides, sides, seeds, st.tuples(st.floats(1, 2), st.floats(2, 4)))
def test_zoom_out_pads_as_torchvision(
    height: int, width: int, seed: int, side_range: tuple[float, float]
) -> None:
    """The same numbers give the same padding."""
    with our_draws(seed, 1, skip=1):
        expected = v2.RandomZoomOut(side_range=side_range, p=1.0).make_params([meta(height, width)])[
            "padding"
        ]
    (step,) = geometry(T.RandomZoomOut(side_range=side_range, p=1.0), (width, height), seed).steps
    left, top, right, bottom = expected
    assert step == {"kind": "pad", "x": left, "y": top, "size": (width + left + right, height + top + bottom)}


@given(sides, sides, seeds, st.integers(1, 300), st.integers(1, 300))
def test_scale_jitter_sizes_are_torchvisions(height: int, width: int, seed: int, one: int, two: int) -> None:
    """The same number gives the same size, but at least 1 where torchvision's is 0."""
    with our_draws(seed, 1):
        expected = v2.ScaleJitter((one, two)).make_params([meta(height, width)])["size"]
    assert geometry(T.ScaleJitter((one, two)), (width, height), seed).size == (
        max(expected[1], 1),
        max(expected[0], 1),
    )


@given(
    sides,
    sides,
    seeds,
    st.lists(st.integers(1, 300), min_size=1, max_size=32),
    st.none() | st.integers(1, 400),
)
def test_shortest_sizes_are_torchvisions(
    height: int, width: int, seed: int, sizes: list[int], most: int | None
) -> None:
    """The same number gives the same size, but at least 1 where torchvision's is 0."""
    with our_draws(seed, 1):
        expected = v2.RandomShortestSize(sizes, most).make_params([meta(height, width)])["size"]
    assert geometry(T.RandomShortestSize(sizes, most), (width, height), seed).size == (
        max(expected[1], 1),
        max(expected[0], 1),
    )


@given(sides, sides, seeds, st.integers(1, 300), st.integers(1, 300))
def test_random_sizes_are_torchvisions(height: int, width: int, seed: int, least: int, more: int) -> None:
    """The same number gives the same size, below the largest."""
    with our_draws(seed, 1):
        (size,) = v2.RandomResize(least, least + more).make_params([])["size"]
    assert least <= size < least + more
    got = geometry(T.RandomResize(least, least + more), (width, height), seed)
    expected = F.resize(meta(height, width), [size]).shape[-2:]
    assert got.size == (expected[1], expected[0])


@given(st.integers(4, 400), st.integers(4, 400), seeds, st.integers(1, 40))
def test_iou_crops_are_torchvisions(height: int, width: int, seed: int, count: int) -> None:
    """The same numbers and boxes give the same crop; boxes whose centres are cut away are zero, and
    sanitizing drops them."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 1, (count, 2)) * (width, height)
    boxes = np.concatenate([corner, corner + rng.uniform(0, 1, (count, 2)) * (width, height)], 1).astype(
        np.float32
    )
    given_boxes = tv_tensors.BoundingBoxes(
        torch.from_numpy(boxes), format="XYXY", canvas_size=(height, width)
    )
    transform = v2.RandomIoUCrop()
    with our_draws(seed, 1):
        params = transform.make_params([meta(height, width), given_boxes])
    got = geometry(
        [T.RandomIoUCrop(), T.SanitizeBoundingBoxes(2.0, 9.0), T.Resize((64, 64))],
        (width, height),
        seed,
        boxes,
    )
    crops = [step for step in got.steps if step["kind"] == "iou_crop"]
    if params:
        assert crops == [
            {
                "kind": "iou_crop",
                "x": params["left"],
                "y": params["top"],
                "size": (params["width"], params["height"]),
            }
        ]
    else:
        assert crops == []
    moved = transform.transform(given_boxes, params)
    _, kept = F.sanitize_bounding_boxes(moved, min_size=2.0, min_area=9.0)
    np.testing.assert_array_equal(got.keep, kept.numpy())
    np.testing.assert_allclose(got.boxes, F.resize(moved, [64, 64]).numpy(), atol=1e-4)


def test_iou_crops_look_at_boxes_that_are_kept() -> None:
    """A box that was dropped before is none: the crop is that of the others alone."""
    steps = [T.SanitizeBoundingBoxes(50.0), T.RandomIoUCrop(sampler_options=[0.3]), T.Resize((8, 8))]
    kept, dropped = [150, 150, 200, 200], [0, 0, 49, 200]
    for seed in range(50):
        both, alone = (
            geometry(steps, (200, 200), seed, np.array(boxes, np.float32))
            for boxes in ([dropped, kept], [kept])
        )
        assert both.steps == alone.steps


def test_iou_crop_without_a_crop_that_fits_ends() -> None:
    """No boxes, or boxes that no crop can hold: the image stays, where torchvision would draw for ever."""
    transform = [T.RandomIoUCrop(sampler_options=[0.9], trials=5), T.Resize((8, 8))]
    for boxes in (np.zeros((0, 4), np.float32), np.full((3, 4), 1e6, np.float32)):
        assert [step["kind"] for step in geometry(transform, (50, 40), 3, boxes).steps] == ["resize"]


@given(sides, sides, st.integers(1, 300))
def test_resize_by_the_longer_side(height: int, width: int, most: int) -> None:
    """Resize(None, max_size=n), and torchvision's own: that has no side of 0, fastload's makes it 1."""
    expected = (
        F.resize(meta(height, width), None, max_size=most).shape[-2:]
        if min(height, width) * most >= max(height, width)
        else None
    )
    for transform in (T.Resize(None, max_size=most), v2.Resize(None, max_size=most)):
        program = compile_plan(transform).program
        if expected is None and not isinstance(transform, T.Transform):
            with pytest.raises(ArgumentError, match="a side of 0 is no image"):
                program.size(width, height)
            continue
        size = program.size(width, height)
        assert max(size) == most
        assert expected is None or size == (expected[1], expected[0])


@given(sides, sides, st.integers(1, 300), st.integers(1, 300))
def test_letterbox_is_ultralytics(height: int, width: int, high: int, wide: int) -> None:
    """The size is the largest that fits, rounded; margins are round(d / 2 - 0.1) on the left and on top."""
    by = min(high / height, wide / width)
    w, h = max(1, round(width * by)), max(1, round(height * by))
    got = geometry(T.Letterbox((high, wide)), (width, height), 0)
    assert got.size == (wide, high)
    resized = next((step["size"] for step in got.steps if step["kind"] == "resize"), (width, height))
    assert resized == (w, h)
    padded = next(((step["x"], step["y"]) for step in got.steps if step["kind"] == "pad"), (0, 0))
    assert padded == (max(0, round((wide - w) / 2 - 0.1)), max(0, round((high - h) / 2 - 0.1)))


# ---- pixels


def original(packed: Path, index: int) -> Image.Image:
    return Image.fromarray(PackedDataset(packed)[index][0].permute(1, 2, 0).numpy())


LISTS: dict[str, Callable[[], list[T.Transform]]] = {
    "zoom out, resize": lambda: [
        T.RandomZoomOut(fill=(9, 60, 200), p=1.0),
        T.Resize((70, 90), dct_scale=False),
    ],
    "zoom out, flips, resized crop": lambda: [
        T.RandomZoomOut(fill=7, side_range=(2.0, 3.0), p=1.0),
        T.RandomHorizontalFlip(1.0),
        T.RandomResizedCrop(48, scale=(0.02, 0.3), dct_scale=False),
        T.RandomVerticalFlip(1.0),
    ],
    "padded crop, bicubic": lambda: [
        T.RandomCrop(200, padding=60, pad_if_needed=True, fill=80),
        T.Resize(90, "bicubic", dct_scale=False),
    ],
    "zoom out, jitter, padded crop of another colour": lambda: [
        T.RandomZoomOut(fill=200, p=1.0),
        T.ScaleJitter((90, 80), dct_scale=False),
        T.RandomCrop(64, pad_if_needed=True, fill=(1, 2, 3)),
    ],
    "letterbox": lambda: [T.Letterbox((80, 120), dct_scale=False)],
    "shortest size": lambda: [T.RandomShortestSize((40, 60, 90), 120, dct_scale=False)],
}


@pytest.mark.parametrize("name", LISTS)
def test_pixels_after_padding(packed: Path, name: str) -> None:
    """Within 1 of Pillow's at the same parameters; the margins are the fill, also around and inside what
    was resampled."""
    transform = LISTS[name]()
    data = PackedDataset(packed, transform=transform, seed=5)
    for index in range(0, 50, 4):
        image = original(packed, index)
        program = compile_plan(transform).program
        fills = iter([op.fill for op in transform if hasattr(op, "fill")])
        bicubic = any(getattr(op, "interpolation", "") == "bicubic" for op in transform)
        for step in core.Geometry(program, image.size, 5, 0, index).steps:
            width, height = step["size"]
            if step["kind"] == "pad":
                canvas = Image.new("RGB", (width, height), next(fills))
                canvas.paste(image, (step["x"], step["y"]))
                image = canvas
            elif step["kind"] == "resize":
                image = image.resize(
                    (width, height), Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
                )
            elif step["kind"] == "crop":
                image = image.crop((step["x"], step["y"], step["x"] + width, step["y"] + height))
            else:
                flip = (
                    Image.Transpose.FLIP_LEFT_RIGHT
                    if step["kind"] == "hflip"
                    else Image.Transpose.FLIP_TOP_BOTTOM
                )
                image = image.transpose(flip)
        expected = np.asarray(image).transpose(2, 0, 1).astype(int)
        mine = data[index][0].numpy().astype(int)
        assert mine.shape == expected.shape
        assert np.abs(mine - expected).max() <= 1, (name, index)


# ---- plans


def native(transform: Any, **more: Any) -> list[str]:
    """Who does each step."""
    plan: Plan = compile_plan(transform, **more)
    return [stage.where for stage in plan.stages]


def test_torchvisions_detection_lists_are_native() -> None:
    """The geometry of torchvision's reference presets: hflip, ssd, multiscale, lsj."""
    ssd = [
        v2.RandomZoomOut(fill={tv_tensors.Image: (123.0, 117.0, 104.0), "others": 0}),
        v2.RandomIoUCrop(),
        v2.Resize((300, 300)),
    ]
    ssd += [v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes()]
    assert native([v2.ToImage(), *ssd], boxes=True) == ["nothing"] + ["native"] * 5
    plan = compile_plan([v2.ToImage(), *ssd], boxes=True)
    assert plan.of_boxes == (3, 6)
    assert plan.fixed_sizes == ((300, 300),)
    multiscale = compile_plan([v2.RandomShortestSize((480, 512, 544), 1333), v2.RandomHorizontalFlip()])
    assert multiscale.native
    assert multiscale.drawn_size
    lsj = compile_plan([v2.ScaleJitter((1024, 1024)), v2.RandomCrop(1024, pad_if_needed=True, fill=114)])
    assert lsj.native
    assert not lsj.drawn_size


def test_how_torchvisions_lists_end_is_native() -> None:
    """Detection: boxes in one format, the small ones dropped. Segmentation: masks become int64."""
    ends = [
        v2.ToDtype(torch.float32, scale=True),
        v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
    ]
    plan = compile_plan(
        [v2.ToImage(), v2.RandomHorizontalFlip(), *ends, v2.SanitizeBoundingBoxes(), v2.ToPureTensor()],
        boxes=True,
    )
    assert plan.native
    assert (plan.box_format, plan.mask_dtype, plan.to_float, plan.of_boxes) == ("xyxy", "", True, (5,))
    dtypes = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    fill = {tv_tensors.Mask: 255, "others": 0}
    crop = [
        v2.RandomResize(20, 90),
        v2.RandomHorizontalFlip(),
        v2.RandomCrop(48, pad_if_needed=True, fill=fill),
    ]
    plan = compile_plan(
        [
            v2.ToImage(),
            *crop,
            v2.ToDtype(dtypes, scale=True),
            v2.Normalize((0.5,) * 3, (0.5,) * 3),
            v2.ToPureTensor(),
        ]
    )
    assert plan.native
    assert (plan.mask_dtype, plan.fixed_sizes, plan.std, plan.reciprocal) == (
        "int64",
        ((48, 48),),
        (0.5,) * 3,
        True,
    )
    assert (
        compile_plan([v2.ToImage(), v2.ToDtype({tv_tensors.Mask: torch.int64, "others": None})]).mask_dtype
        == "int64"
    )
    boxes = compile_plan([v2.ToImage(), v2.ToDtype({tv_tensors.BoundingBoxes: torch.int64, "others": None})])
    assert "images and masks are converted, and nothing else" in boxes.stages[1].why


def test_sizes_that_depend_on_boxes_are_native() -> None:
    """torchvision's ssd and ssdlite presets leave images as large as their crops."""
    steps = [
        v2.ToImage(),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.SanitizeBoundingBoxes(),
    ]
    plan = compile_plan(steps, boxes=True)
    assert plan.native
    assert (plan.boxed_size, plan.drawn_size, plan.fixed_sizes, plan.of_boxes) == (True, True, None, (2, 5))
    fixed = compile_plan([T.RandomIoUCrop(), T.Resize((30, 30)), T.RandomZoomOut()], boxes=True)
    assert (fixed.boxed_size, fixed.drawn_size) == (False, True)


def test_what_needs_boxes_is_python_without_them() -> None:
    """explain() says so."""
    plan = compile_plan([v2.ToImage(), v2.RandomIoUCrop(), v2.Resize((30, 30))])
    assert [stage.where for stage in plan.stages] == ["nothing", "python", "python"]
    assert "RandomIoUCrop needs the boxes of the sample" in plan.stages[1].why
    getter = compile_plan([v2.ToImage(), v2.SanitizeBoundingBoxes(labels_getter=len)], boxes=True)
    assert "its labels_getter is a function" in getter.stages[1].why


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([T.RandomIoUCrop(), T.Resize((8, 8))], "RandomIoUCrop needs the boxes of the sample"),
        ([T.ScaleJitter((8, 8)), T.Letterbox(8)], "second resize"),
        ([T.RandomZoomOut(fill=1), T.RandomCrop(8, padding=2)], "use one fill"),
        ([T.RandomZoomOut(mask_fill=1), T.Resize(9), T.RandomCrop(8, padding=2)], "use one mask_fill"),
        ([T.RandomShortestSize(range(1, 40))], "at most 32"),
    ],
)
def test_lists_without_a_native_meaning_are_refused(transforms: list[T.Transform], message: str) -> None:
    """The planner keeps the meaning of a list or refuses it."""
    with pytest.raises(TransformError, match=message):
        compile_plan(transforms)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Resize(None),
        lambda: T.RandomZoomOut(side_range=(0.5, 2.0)),
        lambda: T.Letterbox(8, fill=300),
        lambda: T.RandomCrop(8, mask_fill=1 << 16),
        lambda: T.ScaleJitter(9),  # type: ignore[arg-type]
        lambda: T.RandomShortestSize(0),
        lambda: T.RandomIoUCrop(trials=0),
        lambda: T.RandomIoUCrop(min_scale=0.5, max_scale=1.5),
        lambda: T.SanitizeBoundingBoxes(0.5),
        lambda: T.RandomResize(5, 5),
        lambda: T.RandomResize(0, 5),
        lambda: T.ConvertBoundingBoxFormat("xywhr"),
    ],
)
def test_parameters_out_of_range(make: Callable[[], T.Transform]) -> None:
    """Each says which."""
    with pytest.raises(TransformError, match=r"size|side_range|fill|trials|scale|min|format"):
        make()


@pytest.mark.parametrize("side", [(1 << 24) + 1, 1 << 31, 1 << 32, 10**400])
@pytest.mark.parametrize(
    "make",
    [
        *(
            lambda side, kind=kind: kind((5, side))
            for kind in (
                T.RandomResizedCrop,
                T.Resize,
                T.CenterCrop,
                T.RandomCrop,
                T.Letterbox,
                T.ScaleJitter,
            )
        ),
        T.Resize,
        lambda side: T.Resize(None, max_size=side),
        T.RandomShortestSize,
        lambda side: T.RandomResize(5, side),
        lambda side: T.RandomCrop(5, padding=side),
    ],
)
def test_sides_beyond_the_engines_limit(make: Callable[[int], T.Transform], side: int) -> None:
    """A side has at most FL_IMAGE_SIDE_MAX pixels, in every transform that takes one."""
    with pytest.raises(TransformError, match=r"size|padding"):
        make(side)


@pytest.mark.parametrize("number", [10**400, 1e39, math.inf, math.nan])
@pytest.mark.parametrize(
    "make",
    [
        lambda number: T.RandomResizedCrop(8, scale=(1, number)),
        lambda number: T.RandomResizedCrop(8, ratio=(1, number)),
        lambda number: T.ScaleJitter((8, 8), scale_range=(1, number)),
        lambda number: T.RandomZoomOut(side_range=(1, number)),
        lambda number: T.RandomIoUCrop(sampler_options=[number]),
        lambda number: T.SanitizeBoundingBoxes(number),
        lambda number: T.Patches(min_pixels=number),
        lambda number: T.Normalize([number, 0, 0], [1, 1, 1]),
        lambda number: T.Normalize([0], [-number]),
    ],
)
def test_numbers_that_are_not_finite(make: Callable[[float], T.Transform], number: float) -> None:
    with pytest.raises(TransformError, match="not finite in float32"):
        make(number)


def test_limits_beyond_all_images_are_none() -> None:
    """What bounds a size may be larger than any, in torchvision's steps too."""
    for most in (10**9, 10**400):
        for step in (T.Resize(5, max_size=most), T.RandomShortestSize(5, most)):
            assert step.max_size == 1 << 24
    for pixels in (1 << 60, 10**400, math.inf):
        assert T.Patches(max_pixels=pixels).max_pixels == 1 << 48
    with pytest.raises(TransformError, match="not finite"):
        T.Patches(max_pixels=math.nan)


def test_standard_deviations_are_not_0_in_float32() -> None:
    """As torchvision's Normalize has it, which takes negative ones."""
    for zero in (0, -0.0, 2.0**-150, -1e-320):
        with pytest.raises(TransformError, match="std holds a 0"):
            T.Normalize([0], [zero])
    assert T.Normalize([0], [-(2.0**-149)]).std == (-(2.0**-149),) * 3
