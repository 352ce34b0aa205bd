"""Masks, boxes, keypoints, polygons, instances and varying arrays: what is packed is read again, and what
cannot be is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastload.errors import PackError, SampleError
from fastload.store import BOX_SIDES, DatasetReader, DatasetWriter, Field, RowError, Schema, StoredImage
from fastload.store.kinds.base import SampleParts
from fastload.store.kinds.run_lengths import _of_text, counts_of, counts_text


class Facts:
    """SampleFacts of a sample: the size of its image, and the number of its rows."""

    def __init__(self, canvas: tuple[int, int], rows: int) -> None:
        self._canvas, self._rows = canvas, rows

    def size(self, field: Field | None = None) -> tuple[int, int]:
        return self._canvas

    def count(self, field: Field) -> int:
        return self._rows


def varying_entry(field: Field, value: Any, canvas: tuple[int, int]) -> tuple[int, tuple[Any, ...], int]:
    """(record kind, parts of its bytes, number of rows) of a value."""
    parts = SampleParts(canvas, None)
    field.handler.encode(field, 0, value, parts)
    ((_, kind, data),) = parts.entries
    return kind, data, parts.counts[field.name]


def parse_varying(
    field: Field, kind: int, data: bytes, canvas: tuple[int, int], count: int, *, runs: bool = False
) -> Any:
    """The value in an entry's bytes."""
    return (field.handler.plain if runs else field.handler.parse)(field, kind, data, Facts(canvas, count))


BOXES = Field("boxes", "boxes", format="xyxy")


def round_trip(field: Field, value: Any, canvas: tuple[int, int] = (3, 4)) -> Any:
    """A value through its entry."""
    kind, parts, count = varying_entry(field, value, canvas)
    return parse_varying(field, kind, b"".join(bytes(part) for part in parts), canvas, count)


@given(
    st.sampled_from(["xywh", "xyxyxyxy", "cxcywhr"]),
    st.sampled_from(["float32", "int64"]),
    st.integers(0, 1000),
)
def test_boxes(form: Any, dtype: str, count: int) -> None:
    """Any number of boxes of any format and dtype, none and 1,000 among them."""
    field = Field("b", "boxes", dtype, format=form)
    boxes = np.arange(count * BOX_SIDES[form]).reshape(count, BOX_SIDES[form]).astype(dtype)
    found = round_trip(field, boxes)
    assert found.dtype == dtype
    assert np.array_equal(found, boxes)
    assert round_trip(field, []).shape == (0, BOX_SIDES[form])


@pytest.mark.parametrize(
    ("field", "value", "row", "words"),
    [
        (BOXES, [[0, 0, 1, 1], [5, 0, 4, 1]], 1, "x2 < x1"),
        (BOXES, [[0, 3, 1, 2]], 0, "y2 < y1"),
        (BOXES, [[0, 0, float("nan"), 1]], 0, "not finite"),
        (Field("b", "boxes", format="cxcywh"), [[0, 0, 1, 1], [0, 0, -1, 1]], 1, "negative width"),
        (Field("b", "boxes", format="xywhr"), [[0, 0, 1, -1, 0]], 0, "negative height"),
        (Field("k", "keypoints", shape=(1, 3)), [[[0, 0, 2]], [[0, float("inf"), 2]]], 1, "not finite"),
        (Field("p", "polygons"), [[[0, 0, 1]]], 0, "3 numbers"),
        (Field("p", "polygons"), [[], [[0, 0, 1e39, 0]]], 1, "finite"),
        (Field("p", "polygons"), [[], 7], 1, "not a list"),
        (
            Field("m", "instances"),
            [{"size": [3, 4], "counts": [12]}, {"size": [3, 4], "counts": [5, 6]}],
            1,
            "sum to 11",
        ),
        (Field("m", "instances"), [{"size": [4, 3], "counts": [12]}], 0, "of size"),
        (Field("m", "instances"), [{"size": [3, 4], "counts": [13, -1]}], 0, "from -1 to 13"),
        (Field("m", "instances"), [{"size": [3, 4], "counts": "~"}], 0, "cannot be read"),
        (Field("m", "instances"), np.full((2, 3, 4), 2), 0, "other than 0 and 1"),
        (Field("m", "instances"), np.zeros((1, 4, 3), bool), 0, "its image has 3 x 4"),
    ],
)
def test_bad_rows(field: Field, value: Any, row: int, words: str) -> None:
    """A row that cannot be stored is a RowError with its number."""
    with pytest.raises(RowError, match=words) as caught:
        varying_entry(field, value, (3, 4))
    assert caught.value.row == row


@pytest.mark.parametrize("value", [[[1, 2, 3]], [1, 2, 3, 4], "boxes", np.zeros((2, 5)), None])
def test_bad_shapes(value: Any) -> None:
    """What is no list of boxes is a PackError that names the field."""
    with pytest.raises(PackError, match="'boxes'"):
        varying_entry(BOXES, value, (3, 4))


@given(
    hnp.arrays(
        np.uint8,
        st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9)),
        elements=st.integers(0, 1),
    )
)
def test_instances(masks: npt.NDArray[np.uint8]) -> None:
    """Masks, and pycocotools' text form of them, come back; so do run lengths with empty runs."""
    coco = pytest.importorskip("pycocotools.mask")
    canvas = masks.shape[1:]
    field = Field("m", "instances")
    assert np.array_equal(round_trip(field, masks, canvas), masks)
    texts = [coco.encode(np.asfortranarray(mask)) for mask in masks]
    assert np.array_equal(round_trip(field, texts, canvas), masks)
    assert np.array_equal(
        round_trip(field, [{**each, "counts": each["counts"].decode()} for each in texts], canvas), masks
    )


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 2**20)), min_size=1, max_size=30))
def test_text_of_counts(pairs: list[tuple[int, int]]) -> None:
    """pycocotools' text of large run lengths, and of those that fall, gives the same numbers."""
    coco = pytest.importorskip("pycocotools.mask")
    counts = [number for pair in pairs for number in pair]
    counts[2::2] = [number + 1 for number in counts[2::2]]
    size = [1, sum(counts)]
    (text,) = coco.frPyObjects([{"size": size, "counts": counts}], *size)
    assert counts_of(text, (size[0], size[1])).tolist() == counts
    assert counts_text(np.array(counts, np.uint32)).encode() == text["counts"]


@given(hnp.arrays(np.uint32, st.integers(0, 20)))
def test_any_counts_as_text(counts: npt.NDArray[np.uint32]) -> None:
    """The text of any run lengths, also of empty runs at odd places and of the largest numbers, gives the
    same numbers."""
    assert _of_text(counts_text(counts).encode()) == counts.tolist()


@given(
    hnp.arrays(
        np.uint8,
        st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9)),
        elements=st.integers(0, 1),
    )
)
def test_instances_as_run_lengths(masks: npt.NDArray[np.uint8]) -> None:
    """Instances that are read as run lengths are packed again to the same masks; those that do not sum are
    refused."""
    field, canvas = Field("m", "instances"), masks.shape[1:]
    kind, parts, count = varying_entry(field, masks, canvas)
    data = b"".join(bytes(part) for part in parts)
    assert np.array_equal(
        round_trip(field, parse_varying(field, kind, data, canvas, count, runs=True), canvas), masks
    )
    if count:
        with pytest.raises(SampleError, match="run lengths of a mask sum to"):
            parse_varying(field, kind, data, (canvas[0], canvas[1] + 1), count, runs=True)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own decode
def test_polygons_as_instances() -> None:
    """Polygons become the mask that pycocotools makes of them; none is an empty mask."""
    coco = pytest.importorskip("pycocotools.mask")
    parts = [[1.0, 1.0, 7.5, 1.0, 7.5, 6.0, 1.0, 6.0], [0, 0, 2, 0, 2, 2]]
    wanted = coco.decode(coco.merge(coco.frPyObjects(parts, 9, 10)))
    found = round_trip(Field("m", "instances"), [parts, []], (9, 10))
    assert np.array_equal(found[0], wanted)
    assert not found[1].any()
    with pytest.raises(RowError, match="three points"):
        round_trip(Field("m", "instances"), [[[0, 0, 1, 1]]], (9, 10))


NEAR = st.integers(-3, 43) | st.floats(-60, 100)
ANY_NUMBER = NEAR | st.floats() | st.sampled_from([1e8, -1e8, 1e30, -0.0, 2**31, 5e-324])
OUTLINE = st.lists(st.tuples(NEAR, NEAR), min_size=3, max_size=9).map(
    lambda points: [number for point in points for number in point]
)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own decode
@given(
    parts=st.lists(OUTLINE, max_size=4) | st.lists(st.lists(ANY_NUMBER, max_size=13), max_size=4),
    canvas=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_any_polygons(parts: list[list[float]], canvas: tuple[int, int]) -> None:
    """Numbers of any kind and count are a PackError, or the mask that pycocotools makes of them: it never
    gets what ends the process."""
    coco = pytest.importorskip("pycocotools.mask")
    try:
        counts = counts_of(parts, canvas)
    except PackError:
        return
    theirs = (
        coco.decode(coco.merge(coco.frPyObjects(parts, *canvas))) if parts else np.zeros(canvas, np.uint8)
    )
    assert np.array_equal(
        round_trip(Field("m", "instances"), [{"size": list(canvas), "counts": counts.tolist()}], canvas)[0],
        theirs,
    )
    assert not (counts[1:] == 0).any()


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(
    size=ANY_JSON | st.just([3, 4]) | st.just([3.0, 4.0]),
    counts=ANY_JSON
    | st.lists(st.integers(-2, 13) | st.just(2**32 + 12), max_size=9)
    | st.text(st.characters(max_codepoint=127)),
)
def test_any_run_lengths(size: Any, counts: Any) -> None:
    """Of any values in JSON's types, run lengths are a PackError, or whole numbers that sum to the image's
    pixels."""
    try:
        found = counts_of({"size": size, "counts": counts}, (3, 4))
    except PackError:
        return
    assert found.dtype == np.uint32
    assert found.sum() == 12


@pytest.mark.parametrize(
    ("part", "canvas", "words"),
    [
        (
            [0, 0, 1e8, 0, 1e8, 1e8],
            (48, 64),
            r"is at x 1e\+08, y 0, more than 10 times the size of its image \(64 x 48",
        ),
        ([0, 0, 5, 5, 0, -500], (48, 64), "is at x 0, y -500, more than"),
        ([0, 0, 640, 0] * 200_000, (48, 64), "the outline of its polygon is longer than 3,355,443 pixels"),
        (
            [0, 0, 1, 0, 1, 1],
            (1 << 15, 1 << 14),
            "masks of polygons are made for images of at most 268,435,456 pixels",
        ),
        ([0, 0, 3e8, 0, 1, 0], (1, 1 << 28), "more than 10 times the size of its image|longer than"),
        (["a", 0, 1, 1, 2, 2], (48, 64), "a part of its polygon is no list of numbers"),
        ([[0, 0], [1, 1, 1], [2, 2]], (48, 64), "a part of its polygon is no list of numbers"),
        ([10**400, 0, 1, 1, 2, 2], (48, 64), "a part of its polygon is no list of numbers"),
    ],
)
def test_polygons_that_would_end_the_process(part: list[float], canvas: tuple[int, int], words: str) -> None:
    """A finite coordinate, an outline or an image for which pycocotools would run out of memory, or of
    integers, is its row's error."""
    pytest.importorskip("pycocotools.mask")
    with pytest.raises(RowError, match=words) as caught:
        varying_entry(
            Field("m", "instances"), [[[0, 0, 1, 0, 1, 1]] if canvas == (48, 64) else [], [part]], canvas
        )
    assert caught.value.row == 1


def test_polygons() -> None:
    """Objects of several parts, of one, and of none."""
    value = [[[0, 0, 1, 0, 1, 1], [5, 5]], [], [np.arange(8).reshape(4, 2)]]
    found = round_trip(Field("p", "polygons"), value)
    assert [[part.tolist() for part in each] for each in found] == [
        [[[0, 0], [1, 0], [1, 1]], [[5, 5]]],
        [],
        [[[0, 1], [2, 3], [4, 5], [6, 7]]],
    ]


SCHEMA = Schema(
    (
        Field("image", "image"),
        Field("label", "int"),
        Field("mask", "mask", "uint16"),
        Field("second", "image"),
        Field("depth", "image", "uint16", (1,)),
        BOXES,
        Field("labels", "array", "int64", (None,), of="boxes"),
        Field("points", "keypoints", shape=(2, 3), of="boxes"),
        Field("masks", "instances", of="boxes"),
        Field("note", "text"),
    )
)


def sample(number: int, count: int) -> dict[str, Any]:
    """Values of one sample of SCHEMA with so many objects; its image has 3 x 4 pixels."""
    from fastload._native import core

    rng = np.random.default_rng(number)
    depth = rng.integers(0, 65536, (2 + number, 3), dtype=np.uint16)
    boxes = rng.random((count, 4), np.float32)
    boxes[:, 2:] += boxes[:, :2]
    return {
        "image": rng.integers(0, 256, (3, 4, 3), dtype=np.uint8),
        "label": number,
        "mask": rng.integers(0, 300, (3, 4)),
        "second": StoredImage("raw", rng.integers(0, 256, (5, 6, 3), dtype=np.uint8), 5, 6),
        "depth": StoredImage("planes", core.encode_planes(depth), *depth.shape),
        "boxes": boxes,
        "labels": rng.integers(0, 90, count),
        "points": rng.random((count, 2, 3), np.float32),
        "masks": rng.integers(0, 2, (count, 3, 4), dtype=np.uint8),
        "note": f"sample {number}",
    }


def write(folder: Path, schema: Schema = SCHEMA) -> list[dict[str, Any]]:
    """A dataset of three samples, with 0, 2 and 1,000 objects."""
    samples = [sample(number, count) for number, count in enumerate((0, 2, 1000))]
    with DatasetWriter(folder, schema, shard_size=1 << 20, options={}) as writer:
        for values in samples:
            writer.append(values, image_kind="raw", height=3, width=4)
        writer.finish(None, {})
    return samples


def test_dataset(tmp_path: Path) -> None:
    """A dataset with each kind: columns, counts, sizes and values of the records are those that were
    written."""
    samples = write(tmp_path / "d")
    with DatasetReader(tmp_path / "d") as reader:
        assert reader.schema == SCHEMA
        for name in ("boxes", "labels", "points", "masks"):
            assert reader.column(f"__count__:{name}").tolist() == [0, 2, 1000]
        assert reader.column("__height__:depth").tolist() == [2, 3, 4]
        assert reader.column("__width__:second").tolist() == [6, 6, 6]
        for index, wanted in enumerate(samples):
            found = reader.stored_values(
                index, ["mask", "second", "depth", "boxes", "labels", "points", "masks", "note"]
            )
            assert found["mask"].dtype == np.uint16
            for name in ("mask", "boxes", "labels", "points", "masks", "note"):
                assert np.array_equal(found[name], wanted[name]), name
            assert (found["second"].kind, found["second"].height, found["second"].width) == ("raw", 5, 6)
            assert found["second"].data[12:] == wanted["second"].data.tobytes()


def test_wrong_values(tmp_path: Path) -> None:
    """A mask of another size, labels that do not fit, other counts than boxes, and images that are not
    encoded are told by name."""
    good = sample(0, 2)
    depth = StoredImage("raw", good["second"].data, 5, 6)
    with DatasetWriter(tmp_path / "d", SCHEMA, shard_size=1 << 20, options={}) as writer:
        for values, words in (
            ({"mask": np.zeros((4, 3), int)}, r"'mask'.*\(4, 3\).*its image \(3, 4\)"),
            ({"mask": np.full((3, 4), 65536)}, "labels from 65536 to 65536"),
            ({"mask": np.full((3, 4), -1)}, "labels from -1"),
            ({"mask": np.zeros((3, 4))}, "whole numbers"),
            ({"labels": [1]}, "'labels' has 1 rows for the 2 rows of 'boxes'"),
            ({"second": b"jpeg"}, "StoredImage"),
            ({"depth": depth}, "8-bit RGB are no planes"),
            ({"second": good["depth"]}, "8-bit RGB are no planes"),
        ):
            with pytest.raises(PackError, match=words):
                writer.append({**good, **values}, image_kind="raw", height=3, width=4)


def test_column_contradicts(tmp_path: Path) -> None:
    """A record whose rows are not as many as the column says is an error of its sample."""
    kind, parts, _ = varying_entry(BOXES, np.zeros((2, 4)), (3, 4))
    with pytest.raises(SampleError, match="2 rows, the column says 3"):
        parse_varying(BOXES, kind, b"".join(bytes(part) for part in parts), (3, 4), 3)
