"""Field and Schema: what they accept, what they refuse, and that values survive the record."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload._native import core
from fastload.errors import ArgumentError, FastloadError, PackError, SampleError
from fastload.store import Field, Schema
from fastload.store.checked import Bad
from fastload.store.kinds.arrays import ARRAY_DTYPES
from fastload.store.kinds.rows import BOX_SIDES

NAMES = st.text(min_size=1, max_size=100).filter(
    lambda name: name.isprintable() and name.strip() == name and not name.startswith("__")
)
FIELDS = st.one_of(
    st.builds(Field, NAMES, st.sampled_from(["int", "float", "bytes", "text", "json", "polygons"])),
    st.builds(
        Field,
        NAMES,
        st.just("array"),
        st.sampled_from(ARRAY_DTYPES),
        st.lists(st.integers(1, 9), max_size=5).map(tuple),
    ),
    st.builds(
        Field,
        NAMES,
        st.just("array"),
        st.sampled_from(ARRAY_DTYPES),
        st.lists(st.integers(1, 9), max_size=5).map(lambda s: (None, *s)),
    ),
    st.builds(
        Field,
        NAMES,
        st.just("image"),
        st.sampled_from(["", "uint8", "uint16"]),
        st.sampled_from([(), (1,), (3,), (4,)]),
    ),
    st.builds(
        Field,
        NAMES,
        st.just("boxes"),
        st.sampled_from(["", "float32", "int64"]),
        format=st.sampled_from(sorted(BOX_SIDES)),
    ),
    st.builds(Field, NAMES, st.just("keypoints"), shape=st.tuples(st.integers(1, 300), st.integers(2, 3))),
)
OBJECTS = (
    Field("image", "image"),
    Field("mask", "mask", "uint16"),
    Field("boxes", "boxes", format="cxcywh"),
    Field("labels", "array", "int64", (None,), of="boxes"),
    Field("points", "keypoints", shape=(17, 3), of="boxes"),
    Field("lines", "polygons", of="boxes"),
    Field("masks", "instances", of="boxes"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(FIELDS, min_size=1, max_size=8, unique_by=lambda field: field.name))
def test_json_round_trip(fields: list[Field]) -> None:
    """A schema through its JSON is the same schema."""
    schema = Schema(tuple(fields))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_kinds_in_json() -> None:
    """Fields of the kinds that format version 3 brought survive JSON; those of older versions have the
    JSON that they always had."""
    schema = Schema((*OBJECTS, Field("depth", "image", "uint16", (1,)), Field("second", "image")))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert schema.is_extended
    old = Schema(
        (
            Field("image", "image", "uint8", (3,)),
            Field("label", "int"),
            Field("p", "array", "int8", (2,)),
            Field("x", "json"),
        )
    )
    assert old.to_json() == [
        {"name": "image", "kind": "image"},
        {"name": "label", "kind": "int"},
        {"name": "p", "kind": "array", "dtype": "int8", "shape": [2]},
        {"name": "x", "kind": "json"},
    ]
    assert not old.is_extended


def test_hidden_columns() -> None:
    """A field of any number of rows has a column of their number, a further image those of its size; the
    first image has the sample's."""
    schema = Schema(
        (
            Field("a", "image", "uint8", (1,)),
            Field("b", "image"),
            Field("boxes", "boxes", format="xyxy"),
            Field("n", "int"),
        )
    )
    assert list(schema.columns) == [
        "n",
        "__height__:b",
        "__width__:b",
        "__count__:boxes",
        "__height__",
        "__width__",
        "__crc32c__",
    ]
    assert schema.row_bytes == 8 + 6 * 4
    assert schema.image == schema["a"]


@given(JSON)
def test_hostile_schema(value: Any) -> None:
    """Whatever JSON stands in the place of a schema or a field: a schema, or Bad."""
    for hostile in (
        value,
        [value],
        [{"name": "x", "kind": value}],
        [{"name": "x", "kind": "array", "dtype": value}],
    ):
        with pytest.raises(Bad):
            Schema.from_json(hostile)
    for shape in (value, [value]):
        try:
            schema = Schema.from_json([{"name": "x", "kind": "array", "dtype": "int8", "shape": shape}])
            assert schema.row_bytes <= 2**24 + 12
        except Bad:
            pass


@pytest.mark.parametrize(
    "arguments",
    [
        ("", "int"),
        (" x", "int"),
        ("a\nb", "int"),
        ("x" * 101, "int"),
        ("__crc32c__", "int"),
        ("x", "number"),
        ("x", "int", "int32"),
        ("x", "text", "", (3,)),
        ("x", "array"),
        ("x", "array", "object"),
        ("x", "array", "complex64"),
        ("x", "array", "int8", (0,)),
        ("x", "array", "int8", (-1,)),
        ("x", "array", "int8", (True,)),
        ("x", "array", "int8", (1.5,)),
        ("x", "array", "float64", (2**21, 2)),
        ("x", "array", "int8", (2**31 - 1,) * 16),
        ("x", "array", "int8", (1,) * 17),
        ("x", "array", "int8", (2, None)),
        ("x", "array", "float64", (None, 2**22)),
        ("x", "array", "int8", (2,), "", "boxes"),
        ("x", "image", "float32"),
        ("x", "image", "uint8", (2,)),
        ("x", "image", "uint8", (None,)),
        ("x", "image", "", (), "", "boxes"),
        ("x", "mask", "int64"),
        ("x", "mask", "uint8", (1,)),
        ("x", "boxes"),
        ("x", "boxes", "float64", (), "xyxy"),
        ("x", "boxes", "float32", (4,), "xyxy"),
        ("x", "boxes", "float32", (), "XYXY"),
        ("x", "boxes", "float32", (), "xyxy", "y"),
        ("x", "keypoints"),
        ("x", "keypoints", "float32", (17, 4)),
        ("x", "keypoints", "float32", (None, 2)),
        ("x", "keypoints", "float32", (2**17, 2)),
        ("x", "keypoints", "float32", (True, 2)),
        ("x", "polygons", "float64"),
        ("x", "instances", "uint8"),
        ("x", "text", "", (), "xyxy"),
    ],
)
def test_field_refuses(arguments: tuple[Any, ...]) -> None:
    """A name, kind, dtype or shape that does not hold is an ArgumentError."""
    with pytest.raises(ArgumentError, match="field"):
        Field(*arguments)


def test_field_defaults() -> None:
    """What a kind leaves open has one spelling: 8-bit RGB is an image without dtype and shape, boxes are
    float32, masks uint8."""
    assert Field("x", "image", "uint8", (3,)) == Field("x", "image")
    assert Field("x", "image").is_rgb
    assert Field("x", "image", shape=(1,)) == Field("x", "image", "uint8", (1,))
    assert (
        Field("x", "image", "uint16").shape,
        Field("x", "image").channels,
        Field("x", "image", shape=(4,)).channels,
    ) == ((3,), 3, 4)
    assert Field("x", "mask").dtype == "uint8"
    assert (
        Field("x", "boxes", format="xyxy").dtype
        == Field("x", "keypoints", shape=(1, 2)).dtype
        == Field("x", "polygons").dtype
        == "float32"
    )
    assert Field("x", "boxes", format="xyxyxyxy").row_shape == (8,)
    assert [field.row_shape for field in OBJECTS] == [(), (), (4,), (), (17, 3), (), ()]
    assert [str(field) for field in OBJECTS[1:5]] == [
        "mask uint16", "boxes float32 cxcywh", "array int64 (None,) of boxes",
        "keypoints float32 (17, 3) of boxes"
    ]  # fmt: skip


def test_schema_refuses() -> None:
    """No field, one name twice, two images; and a question for a field that is not there."""
    with pytest.raises(ArgumentError, match="1 to"):
        Schema(())
    with pytest.raises(ArgumentError, match="'x'"):
        Schema((Field("x", "int"), Field("x", "text")))
    with pytest.raises(ArgumentError, match="needs an image"):
        Schema((Field("m", "mask"),))
    with pytest.raises(ArgumentError, match=r"of='b'.*there are: none"):
        Schema((Field("k", "keypoints", shape=(17, 3), of="b"),))
    with pytest.raises(ArgumentError, match=r"of='x'.*there are: b"):
        Schema((Field("x", "image"), Field("b", "boxes", format="xyxy"), Field("k", "polygons", of="x")))
    with pytest.raises(ArgumentError, match=r"'y'.*x"):
        Schema((Field("x", "int"),)).number("y")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Field("f", "int"), 1.0),
        (Field("f", "int"), "1"),
        (Field("f", "int"), None),
        (Field("f", "int"), 2**63),
        (Field("f", "int"), np.float32(1)),
        (Field("f", "float"), "1.5"),
        (Field("f", "float"), 10**400),
        (Field("f", "float"), 1j),
        (Field("f", "array", "uint8", (2,)), [1, 256]),
        (Field("f", "array", "uint8", (2,)), [1, -1]),
        (Field("f", "array", "uint8", (2,)), [1, 2, 3]),
        (Field("f", "array", "uint8", (2,)), [1.5, 2]),
        (Field("f", "array", "int64", (1,)), np.array([2**63], np.uint64)),
        (Field("f", "array", "uint64", (1,)), np.array([-1])),
        (Field("f", "array", "float32", (1,)), [1e300]),
        (Field("f", "array", "float16", (1,)), [70000]),
        (Field("f", "array", "int8", (2,)), [[1], [2, 3]]),
        (Field("f", "array", "int8", (1,)), ["1"]),
        (Field("f", "bytes"), "text"),
        (Field("f", "bytes"), 3),
        (Field("f", "text"), b"bytes"),
        (Field("f", "text"), "\ud800"),
        (Field("f", "json"), {1, 2}),
        (Field("f", "json"), float("nan")),
    ],
)
def test_value_refused(field: Field, value: Any) -> None:
    """A value that its field cannot hold exactly is a PackError that names the field."""
    with pytest.raises(PackError, match="'f'"):
        Schema((field,)).encode({"f": value}, None, 0, 0)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([[1, "b"], [2, 3]], "'b' in it is no number of at most 64 bits"),
        ([None, 1], "None in it is no number of at most 64 bits"),
        ([2**70, 1], "1180591620717411303424 in it is no number of at most 64 bits"),
        ([[1], [2, 3]], "lists in it have unequal lengths"),
        ("text", "it is no list of numbers"),
        (np.array(["a"]), "its dtype is <U1"),
    ],
)
@pytest.mark.parametrize(
    "field",
    [
        Field("f", "array", "int64", (2, 2)),
        Field("f", "mask", "uint8"),
        Field("f", "boxes", "float32", format="xyxy"),
    ],
)
def test_a_list_is_told_as_it_was_given(field: Field, value: Any, why: str) -> None:
    """The error for a list names what is wrong in the list, and nothing of the array that fastload would
    have made of it."""
    with pytest.raises(PackError) as refused:
        Schema((Field("im", "image"), field)).encode({"im": b"x", "f": value}, "jpeg", 2, 2)
    assert str(refused.value).endswith(": " + why)


def test_names_of_values() -> None:
    """A missing value and one too many are named."""
    schema = Schema((Field("a", "int"), Field("b", "int")))
    with pytest.raises(PackError, match=r"'b' has no value"):
        schema.encode({"a": 1}, None, 0, 0)
    with pytest.raises(PackError, match=r"'c', which is no field"):
        schema.encode({"a": 1, "b": 2, "c": 3}, None, 0, 0)


@pytest.mark.parametrize(
    ("value", "kind", "height", "width"),
    [
        (b"x", "jpeg", 0, 1),
        (b"x", "jpeg", 1, 2**31),
        (b"x", "png", 1, 1),
        (b"x", None, 1, 1),
        ("x", "jpeg", 1, 1),
        (np.zeros((1, 1, 3), np.uint8), "jpeg", 1, 1),
        (b"xx", "raw", 1, 1),
        (np.zeros((2, 1, 3), np.uint8), "raw", 1, 2),
        (np.zeros((2, 1, 3), np.float32), "raw", 2, 1),
        (7, "raw", 1, 1),
    ],
)
def test_image_refused(value: Any, kind: str | None, height: int, width: int) -> None:
    """An image whose size, kind or buffer does not hold is a PackError that names the field."""
    with pytest.raises(PackError, match="'im'"):
        Schema((Field("im", "image"),)).encode({"im": value}, kind, height, width)


@given(
    st.lists(
        st.tuples(st.integers(0, 65535), st.integers(0, 255), st.lists(st.binary(max_size=60), max_size=4)),
        max_size=20,
    )
)
def test_record_round_trip(entries: list[tuple[int, int, list[bytes]]]) -> None:
    """What build_record joins, split_record takes apart; the CRC is that of the bytes; every cut is
    refused."""
    record, crc = core.build_record([(field, kind, tuple(parts)) for field, kind, parts in entries])
    assert core.crc32c(record) == crc
    assert core.split_record(record) == [(field, kind, b"".join(parts)) for field, kind, parts in entries]
    for size in range(0, len(record), max(1, len(record) // 7)):
        with pytest.raises(SampleError):
            core.split_record(record[:size])


@given(st.binary(max_size=200), st.integers(0, 10))
def test_hostile_record(data: bytes, entries: int) -> None:
    """Any bytes, and any bytes behind a head that looks right: fields within the record, or SampleError."""
    size = 16 + len(data)
    head = b"FLR1\x01\x00" + entries.to_bytes(2, "little") + size.to_bytes(4, "little") + bytes(4)
    for record in (data, head + data):
        try:
            fields = core.split_record(record)
        except SampleError:
            continue
        assert len(fields) == entries
        assert all(len(value) <= size for _, _, value in fields)


def test_record_limits() -> None:
    """More fields than a record holds, or something that is no buffer: an error, and nothing stays held."""
    buffer = bytearray(b"x")
    with pytest.raises(FastloadError, match="4096"):
        core.build_record([(0, 3, b"")] * 4097)
    with pytest.raises(TypeError):
        core.build_record([(0, 3, buffer), (1, 3, 7)])  # type: ignore[list-item]
    buffer.append(1)  # a buffer that is still held cannot grow
