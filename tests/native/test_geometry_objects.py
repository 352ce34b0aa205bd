"""Boxes, keypoints, outlines and masks through a drawn geometry against torchvision's functionals (transforms
v2) at the same parameters.

ORACLE_SAMPLES=100000 makes the oracle test run on as many random samples; by default it takes fewer, of 50
boxes each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastload._native import core
from fastload.errors import ArgumentError, SampleError

pytest.importorskip("torchvision")
from geometry_oracle import as_boxes, as_points, through
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

Array = npt.NDArray[Any]

SAMPLES = int(os.environ.get("ORACLE_SAMPLES", "600"))
OBJECTS = 50
UPRIGHT, ROTATED = ("xyxy", "xywh", "cxcywh"), ("xywhr", "cxcywhr", "xyxyxyxy")
CASES = [(form, dtype) for form in UPRIGHT for dtype in (np.float32, np.int64)] + [
    (form, np.float32) for form in ROTATED
]
RESIZES = ("resize", "resized_crop", "scale_jitter", "shortest_size", "random_resize", "letterbox")
KINDS = ("hflip", "vflip", "zoom_out", "center_crop", "random_crop", *RESIZES)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors this small are slower in several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_program(rng: np.random.Generator) -> core.Program:
    """One to five ops, of which one resizes at most."""
    ops: list[dict[str, Any]] = []
    for stream in range(rng.integers(1, 6)):
        kind = str(rng.choice(KINDS))
        if kind in RESIZES and any(op["kind"] in RESIZES for op in ops):
            continue
        op: dict[str, Any] = {
            "kind": kind,
            "stream": stream,
            "p": 0.7,
            "width": int(rng.integers(1, 90)),
            "height": int(rng.integers(1, 90)),
        }
        op |= {
            "zoom_out": {"scale": (1.0, 3.0)},
            "resized_crop": {"scale": (0.1, 1.0), "ratio": (0.5, 2.0)},
            "scale_jitter": {"scale": (0.3, 2.0)},
            "shortest_size": {"options": (20, 40, 64), "max_size": 90},
            "random_resize": {"options": (10, 70)},
            "random_crop": {"padding": tuple(rng.integers(0, 20, 4).tolist()), "pad_if_needed": True},
        }.get(kind, {})
        ops.append(op)
    return core.Program(ops)


def random_boxes(
    rng: np.random.Generator, count: int, form: str, width: int, height: int, dtype: Any
) -> Array:
    """Boxes in, across and beyond an image, some of them empty or on its edges."""
    x, y = rng.uniform(-20, width + 20, count), rng.uniform(-20, height + 20, count)
    w, h = rng.uniform(0, width, count), rng.uniform(0, height, count)
    some = rng.random(count)
    w[some < 0.1], h[some < 0.05], x[some > 0.9], y[some > 0.95] = 0, 0, 0, height
    if form == "xyxy":
        w, h = x + w, y + h
    if form in UPRIGHT:
        return np.stack([x, y, w, h], 1).astype(dtype)
    angle = np.where(
        rng.random(count) < 0.8,
        rng.uniform(-180, 180, count),
        rng.choice([0.0, 45.0, 90.0, 180.0, -90.0], count),
    )
    centred = torch.from_numpy(np.stack([x, y, w + 1, h + 1, angle], 1).astype(dtype))
    made: Array = F.convert_bounding_box_format(
        centred, old_format="CXCYWHR", new_format=form.upper()
    ).numpy()
    return made


def corners(boxes: Array, form: str) -> Array:
    made: Array = F.convert_bounding_box_format(
        torch.from_numpy(boxes).clone(), old_format=form.upper(), new_format="XYXYXYXY"
    ).numpy()
    return made


def test_objects_move_as_torchvisions() -> None:
    """Upright boxes within 1e-4 (integers equal), keypoints within 1e-4, masks equal, in every sample.

    Rotated boxes by their corners, as close to torchvision's float32 as that is to its float64; its clamp
    jumps where an edge is nearly upright, so that 1 in 1,000 may be elsewhere.
    """
    seed = 16
    rng = np.random.default_rng(seed)
    rotated = elsewhere = 0
    for sample in range(SAMPLES):
        width, height = rng.integers(1, 150, 2).tolist()
        form, dtype = CASES[sample % len(CASES)]
        boxes = random_boxes(rng, OBJECTS, form, width, height, dtype)
        got = core.Geometry(random_program(rng), (width, height), seed, 0, sample, boxes, form)
        expected = through(as_boxes(boxes, form, width, height), got.steps)
        where = f"seed {seed}, sample {sample}: {form} {got.steps}"
        assert got.boxes.dtype == expected.dtype
        if form in UPRIGHT:
            np.testing.assert_allclose(
                got.boxes, expected, rtol=0, atol=0 if dtype is np.int64 else 1e-4, err_msg=where
            )
        else:
            exact = corners(through(as_boxes(boxes, form, width, height, torch.float64), got.steps), form)
            theirs = corners(expected, form)
            off = np.abs(corners(got.boxes, form) - theirs) > 1e-2 + 8 * np.abs(exact - theirs)
            rotated, elsewhere = rotated + len(boxes), elsewhere + int(off.any(1).sum())
        points = random_boxes(rng, OBJECTS, "xywh", width, height, np.float32)[:, :2].copy()
        moved = through(as_points(points, width, height), got.steps)
        np.testing.assert_allclose(got.keypoints(points), moved, rtol=0, atol=1e-4, err_msg=where)
        labels = rng.integers(0, 1 << 16 if sample % 2 else 256, (height, width)).astype(
            np.uint16 if sample % 2 else np.uint8
        )
        shown = through(
            tv_tensors.Mask(torch.from_numpy(labels.astype(np.int32 if sample % 2 else np.uint8))), got.steps
        )
        np.testing.assert_array_equal(got.mask(labels), shown.astype(labels.dtype), err_msg=where)
    assert elsewhere <= 2 + rotated / 1000


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 1000]),
    st.sampled_from(CASES),
)
def test_any_number_of_objects(width: int, height: int, seed: int, count: int, case: tuple[str, Any]) -> None:
    """Zero, one and 1,000 objects; the boxes handed in are not changed; nothing is dropped where nothing
    filters."""
    rng = np.random.default_rng(seed)
    form, dtype = case
    boxes = random_boxes(rng, count, form, width, height, dtype)
    before = boxes.copy()
    got = core.Geometry(random_program(rng), (width, height), seed, 1, 2, boxes, form)
    np.testing.assert_array_equal(boxes, before)
    assert got.boxes.shape == boxes.shape
    assert got.keep.all()
    assert got.keypoints(np.zeros((count, 17, 3), np.float32)).shape == (count, 17, 3)


edges = st.sampled_from([0.0, 0.5, 1.0, 9.0, 9.5, 10.0, 10.5, -0.5, -3.0, 1e9, float("nan")])


@pytest.mark.parametrize("form", UPRIGHT)
@given(
    boxes=st.lists(st.tuples(edges, edges, edges, edges), max_size=12), size=st.sampled_from([1.0, 2.0, 5.0])
)
def test_sanitize_keeps_what_torchvision_keeps(
    form: str, boxes: list[tuple[float, ...]], size: float
) -> None:
    """Boxes empty, on edges, outside, reversed and NaN: keep is torchvision's mask."""
    values = np.array(boxes, np.float32).reshape(-1, 4)
    program = core.Program([{"kind": "sanitize", "min_size": size, "min_area": 2 * size}])
    got = core.Geometry(program, (10, 8), 0, 0, 0, values, form)
    _, expected = F.sanitize_bounding_boxes(torch.from_numpy(values), form.upper(), (8, 10), size, 2 * size)
    np.testing.assert_array_equal(got.keep, expected.numpy())
    np.testing.assert_array_equal(got.boxes, values)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("new", UPRIGHT)
@pytest.mark.parametrize("old", UPRIGHT)
def test_formats_are_converted_as_torchvisions(old: str, new: str, dtype: Any) -> None:
    """At any place of a list; halves of odd integers included."""
    rng = np.random.default_rng(5)
    boxes = random_boxes(rng, 500, old, 60, 40, dtype)
    flip = {"kind": "hflip", "p": 1.0, "stream": 1}
    convert = {"kind": "format", "box_format": new, "stream": 2}
    crop = {"kind": "random_crop", "width": 31, "height": 17, "stream": 3}
    given_boxes = as_boxes(boxes, old, 60, 40)
    flipped = F.convert_bounding_box_format(F.horizontal_flip(given_boxes), new_format=new.upper())
    got = core.Geometry(core.Program([flip, convert, crop]), (60, 40), 0, 0, 0, boxes, old)
    assert [step["kind"] for step in got.steps] == ["hflip", "format", "crop"]
    assert got.boxes.dtype == dtype
    np.testing.assert_allclose(
        got.boxes, through(flipped, got.steps[2:]), rtol=0, atol=0 if dtype is np.int64 else 1e-4
    )


whole = st.integers(-40, 40) | st.integers(-(2**26), 2**26)


@pytest.mark.parametrize("new", UPRIGHT)
@pytest.mark.parametrize("old", UPRIGHT)
@given(
    boxes=st.lists(st.tuples(whole, whole, whole, whole), max_size=12),
    halves=st.sampled_from([1.0, 0.5, 0.1]),
)
def test_any_box_is_converted_to_torchvisions_numbers(
    old: str, new: str, boxes: list[tuple[int, ...]], halves: float
) -> None:
    """Also where a corner is negative, a side odd or negative, a number beyond those that float32 holds:
    int64 and float32 are equal to what the installed torchvision makes of them, there and back."""
    integers = np.array(boxes, np.int64).reshape(-1, 4)
    there, back = ({"kind": "format", "box_format": form} for form in (new, old))
    for values in (integers, (integers * halves).astype(np.float32)):
        once = F.convert_bounding_box_format(torch.from_numpy(values.copy()), old.upper(), new.upper())
        got = core.Geometry(core.Program([there]), (60, 40), 0, 0, 0, values, old)
        np.testing.assert_array_equal(got.boxes, once.numpy())
        twice = F.convert_bounding_box_format(once.clone(), new.upper(), old.upper())
        got = core.Geometry(core.Program([there, back]), (60, 40), 0, 0, 0, values, old)
        np.testing.assert_array_equal(got.boxes, twice.numpy())


@pytest.mark.parametrize("form", UPRIGHT)
@given(boxes=st.lists(st.tuples(whole, whole, whole, whole), max_size=12))
def test_integers_are_sanitized_by_torchvisions_corners(form: str, boxes: list[tuple[int, ...]]) -> None:
    """keep is torchvision's mask of integer boxes, on whose corners rounding decides."""
    values = np.array(boxes, np.int64).reshape(-1, 4)
    got = core.Geometry(
        core.Program([{"kind": "sanitize", "min_size": 3.0, "min_area": 10.0}]),
        (40, 30),
        0,
        0,
        0,
        values,
        form,
    )
    _, expected = F.sanitize_bounding_boxes(torch.from_numpy(values), form.upper(), (30, 40), 3.0, 10.0)
    np.testing.assert_array_equal(got.keep, expected.numpy())


def test_rotated_boxes_are_not_converted() -> None:
    """The engine says so, in both directions."""
    program = core.Program([{"kind": "format", "box_format": "xyxy"}])
    with pytest.raises(SampleError, match="ConvertBoundingBoxFormat of rotated boxes"):
        core.Geometry(program, (8, 8), 0, 0, 0, np.zeros((1, 5), np.float32), "xywhr")
    with pytest.raises(SampleError, match="ConvertBoundingBoxFormat of rotated boxes"):
        core.Geometry(core.Program([{"kind": "format", "box_format": "cxcywhr"}]), (8, 8), 0, 0, 0)


def test_sanitize_of_random_boxes() -> None:
    """Of all formats and types, after a crop that clamps."""
    rng = np.random.default_rng(3)
    for sample, (form, dtype) in enumerate(CASES * 20):
        boxes = random_boxes(rng, 200, form, 60, 40, dtype)
        ops = [{"kind": "random_crop", "width": 30, "height": 30, "stream": 1}] if form in UPRIGHT else []
        got = core.Geometry(
            core.Program([*ops, {"kind": "sanitize", "min_size": 3.0, "min_area": 20.0}]),
            (60, 40),
            0,
            0,
            sample,
            boxes,
            form,
        )
        width, height = got.size
        _, expected = F.sanitize_bounding_boxes(
            torch.from_numpy(got.boxes), form.upper(), (height, width), 3.0, 20.0
        )
        np.testing.assert_array_equal(got.keep, expected.numpy())
        assert got.keep.sum() < len(boxes)
        assert got.keep.any() or form in ROTATED


def test_outlines_move_as_corners_of_boxes() -> None:
    """A polygon's corners stay those of its box under flips, crops and resizes; nothing is clamped."""
    program = core.Program(
        [
            {"kind": "hflip", "p": 1.0, "stream": 1},
            {"kind": "vflip", "p": 1.0, "stream": 2},
            {"kind": "random_crop", "width": 20, "height": 20, "stream": 3},
            {"kind": "resize", "width": 50, "height": 30, "stream": 4},
        ]
    )
    got = core.Geometry(program, (40, 30), 1, 2, 3)
    crop = next(step for step in got.steps if step["kind"] == "crop")
    expected = [((40 - 4 - crop["x"]) * 2.5, (30 - 6 - crop["y"]) * 1.5)]
    np.testing.assert_allclose(got.outline([[4.0, 6.0]]), expected, atol=1e-4)
    np.testing.assert_allclose(
        got.outline([[0.0, 0.0]]), [((40 - crop["x"]) * 2.5, (30 - crop["y"]) * 1.5)], atol=1e-4
    )


sides = st.integers(1, 40)


@given(size=st.tuples(sides, sides), to=st.tuples(sides, sides))
def test_a_centre_crop_leaves_objects_on_their_pixels(size: tuple[int, int], to: tuple[int, int]) -> None:
    """Image, mask, boxes and keypoints have one anchor: torchvision's of images, which rounds halves of a
    margin to even, and gives the smaller half of odd padding to the left and the top. Where a crop is not
    larger than its image that is torchvision's of boxes, too."""
    (height, width), (crop_height, crop_width) = size, to
    numbered = torch.arange(1, height * width + 1).reshape(1, height, width)
    boxes = np.array([[0, 0, width, height], [width // 2, 0, width, height // 2 + 1]], np.float32)
    points = np.array([[0, 0], [width - 1, height - 1], [width // 2, height // 2]], np.float32)
    program = core.Program([{"kind": "center_crop", "width": crop_width, "height": crop_height}])
    got = core.Geometry(program, (width, height), 0, 0, 0, boxes)
    shown = F.center_crop(numbered, [crop_height, crop_width])
    np.testing.assert_array_equal(got.mask(numbered[0].numpy()), shown[0].numpy())
    for (x, y), number in zip(
        got.keypoints(points).astype(int), numbered[0, points[:, 1], points[:, 0]], strict=True
    ):
        inside = 0 <= x < crop_width and 0 <= y < crop_height
        assert shown[0, y, x] == number if inside else number not in shown
    first = [min(each) if len(each) else 0 for each in torch.nonzero(shown[0] > 0, as_tuple=True)]
    last = [max(each) + 1 if len(each) else 0 for each in torch.nonzero(shown[0] > 0, as_tuple=True)]
    assert got.boxes[0].tolist() == [first[1], first[0], last[1], last[0]]
    if crop_width <= width and crop_height <= height:
        wanted = F.center_crop(as_boxes(boxes, "xyxy", width, height), [crop_height, crop_width])
        np.testing.assert_array_equal(got.boxes, wanted.numpy())
        np.testing.assert_array_equal(
            got.keypoints(points), F.center_crop(as_points(points, width, height), [crop_height, crop_width])
        )


def test_torchvision_moves_boxes_off_an_image_that_it_pads() -> None:
    """The difference that CenterCrop's docstring names: torchvision pads a row of 1 pixel to 4 with 1 on its
    left, and puts a box of that pixel at 2; here it is at 1, where the pixel is."""
    pixel, box = torch.ones(1, 1, 1), np.array([[0, 0, 1, 1]], np.float32)
    assert F.center_crop(pixel, [1, 4]).tolist() == [[[0, 1, 0, 0]]]
    assert F.center_crop(as_boxes(box, "xyxy", 1, 1), [1, 4]).tolist() == [[2, 0, 3, 1]]
    got = core.Geometry(
        core.Program([{"kind": "center_crop", "width": 4, "height": 1}]), (1, 1), 0, 0, 0, box
    )
    assert got.boxes.tolist() == [[1, 0, 2, 1]]


def test_points_that_are_not_labelled_stay() -> None:
    """COCO's visibility 0: the point is (0, 0) before and after; 1 and 2 move, and keep their visibility."""
    got = core.Geometry(core.Program([{"kind": "hflip", "p": 1.0}]), (10, 10), 0, 0, 0)
    points = got.keypoints([[[0, 0, 0], [3, 4, 1], [0, 0, 2]]])
    assert points.tolist() == [[[0, 0, 0], [6, 4, 1], [9, 0, 2]]]


def test_a_mask_shows_its_fill() -> None:
    """What lies beyond a mask is mask_fill; a mask of one pixel is shown."""
    program = core.Program([{"kind": "letterbox", "width": 5, "height": 3, "mask_fill": 65535}])
    got = core.Geometry(program, (1, 1), 0, 0, 0)
    assert got.mask(np.array([[7]], np.uint16)).tolist() == [[65535, 7, 7, 7, 65535]] * 3


@pytest.mark.parametrize(
    ("boxes", "form", "message"),
    [
        (
            np.zeros((2, 5), np.float32),
            "xyxy",
            r"boxes of 'xyxy' are float32 or int64 \(count, 4\), not float32 \(2, 5\)",
        ),
        (np.zeros((2, 4), np.float64), "xyxy", "not float64"),
        (np.zeros((2, 5), np.int64), "xywhr", "rotated boxes of integers: give float32"),
        (np.zeros((2, 4), np.float32), "yxyx", "format 'yxyx' is not one of"),
    ],
)
def test_boxes_that_do_not_fit_their_format(boxes: Array, form: str, message: str) -> None:
    """What is wrong is said."""
    with pytest.raises(ArgumentError, match=message):
        core.Geometry(core.Program([]), (8, 8), 0, 0, 0, boxes, form)
