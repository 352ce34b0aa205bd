"""FieldKind: everything that depends on the kind of a field, one class a kind; and what kinds share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard, overload

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.store.checked import shown

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field

HEIGHT_COLUMN = "__height__"
WIDTH_COLUMN = "__width__"
COUNT_COLUMN = "__count__"
Size = tuple[int, int]
"""(height, width), pixels."""
Data = bytes | bytearray | memoryview | npt.NDArray[Any]
"""Bytes of a stored value."""
Entry = tuple[int, int, Data | tuple[Data, ...]]
"""(field number, record kind, bytes or a tuple of them): an argument of `core.build_record`."""
Value = int | float | str | bytes | npt.NDArray[Any] | dict[str, Any] | list[Any] | bool | None
"""A field's value as a source gives it, which `FieldKind.encode` takes; or as JSON holds it."""
Collated = Literal["stack", "list", "picture", "masks", "rows", "image_rows"]
"""Form in which `fastload.batch.collate` joins the values of several samples: one tensor, a list, pictures
(..., height, width), or any number of rows: pictures where it is "masks", and "image_rows" where lists of
pictures of their own sizes stay lists."""
Member = Literal["", "picture", "npy", "json"]
"""The file of a sample in a tar that holds a field's value alone; "": the value stands in the sample's
.json."""


@dataclass(slots=True)
class SampleParts:
    """Parts of one sample, to which each field's kind adds its own.

    Attributes:
        canvas: size of the first image.
        first_image: its field; None: there is none.
        entries: entries of the record.
        row: values of the fields that are columns.
        hidden: values of the hidden columns that fields add.
        counts: number of rows by the name of the field, where it may have any.
    """

    canvas: Size
    first_image: Field | None
    entries: list[Entry] = field(default_factory=list)
    row: list[Any] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class SampleFacts(Protocol):
    """Facts on one sample in a dataset's columns, read when they are asked for."""

    def size(self, field: Field | None = None) -> Size:
        """The size of an image; without a field that of the first one, which masks have too."""

    def count(self, field: Field) -> int:
        """The number of rows of a field that may have any."""


class UprightTurn(Protocol):
    """The turn of a photo to its upright picture, as `fastload.packing.drawn_on` has it."""

    @property
    def swaps(self) -> bool:
        """True if width and height change places."""

    @property
    def size(self) -> Size:
        """The size before the turn."""

    def points(self, points: npt.NDArray[np.float64], last: int = 0) -> npt.NDArray[np.float64]:
        """Points (..., x and y), turned; `last`: 1 where the last column is width - 1, else 0."""

    def pixels(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Pixels (height, width), turned."""


class FieldKind:
    """Behaviour of the fields of one kind: the only code that knows the kind by its name.

    1. Instances hold no state, and any thread may call them. `fastload.store.kinds.KINDS` has one for each
       name.
    2. `settled` is called once, when a Field is made. `for_field` then returns the instance for that field: a
       kind with two stored forms has one for each. `Field.handler` is that instance, of which everything else
       is asked.
    3. `encode` checks a value that is packed, and adds to SampleParts: the value of a column where
       `is_column`, else entries of the record; and a value for each of `hidden_names`. A wrong value is a
       PackError that names the field.
    4. `parse` gets bytes that may be damaged or hostile, and checks each length. What does not hold is a
       SampleError with the reason alone. The value of what `encode` stored is equal to the value that was
       packed.
    5. `plain` is the value for files and tables: `to_json`, `arrow_value` and the writers of export take it.
       `from_json` of `to_json` is a value that `encode` takes.
    6. torch and pyarrow are not imported here: `tensors` gets the function that makes a tensor of an array,
       and Arrow types are made with the module that is handed in.
    7. The defaults are those of a kind that lies in the record and has bytes, and that no transform moves.
       Such a kind defines `encode`, `parse`, `to_json` and `from_json`, and is delivered by every engine. A
       kind that is moved with the image, `in_native_row`, needs the native engine to know it too:
       `native_item` and csrc/engine/fields.h.

    Attributes:
        name: the kind's, in a Field and in the manifest.
        dtypes: dtypes of its fields, the default first; "": none is given.
        formats: likewise.
        entry: record kind of its entry, a `core.KIND_...`; -1 where it has several, or none.
        is_extended: only format version 3 has it.
        shows_dtype: the dtype is part of the description of a field, and of its JSON form.
        is_column: values are a fixed-size column rather than part of the record.
        is_array: values are arrays, also where they have no side.
        can_be_added: fields of this kind can be added to a packed dataset.
        is_varying: a sample has any number of rows.
        has_points: rows are points, which may have names and pairs.
        owns_objects: rows are boxes, to which rows of other fields may belong.
        has_objects: rows may belong to boxes (`of`).
        is_numeric_rows: the value is one array of rows.
        is_ragged: rows have no common shape.
        is_image: values are images.
        is_picture: values are stored as pixels or as a picture's file, and unpacked as files.
        is_rgb: values are images of 8 bits and three channels, which an image codec stores.
        is_as_large: values have the size of the sample's first image.
        is_list: values are any number of images, which lie in a dataset of their own.
        has_pixels: a value takes memory by the size of an image.
        follows_image: values lie in the pixels of the first image: what moves those moves them.
        in_native_row: native threads make the value beside the image's pixels.
        holds_labels: a value is a picture of labels.
        can_label: a value may be the label of its sample.
        finds_samples: values may tell samples apart, as keys.
        can_be_file: a value may be the file of a picture.
        is_text: the stored bytes are UTF-8 of which programs expect texts.
        collated: see `Collated`.
        member: see `Member`.
        moved_as: argument by which transforms of whole batches take it with the image: "masks", "boxes",
            "keypoints"; "": they cannot.
        tv_class: name of its class among torchvision's tv_tensors or in `fastload.dataset.points`; "": a
            plain tensor.
        coco_part: key of an annotation that holds it in COCO's layout; "": a further key of its own name.
        takes_null: a null of a source is a value.
    """

    name = ""
    dtypes: tuple[str, ...] = ("",)
    formats: tuple[str, ...] = ("",)
    entry = core.KIND_BYTES
    is_extended = True
    shows_dtype = True
    is_column = False
    is_array = False
    can_be_added = False
    is_varying = False
    has_points = False
    owns_objects = False
    has_objects = False
    is_numeric_rows = False
    is_ragged = False
    is_image = False
    is_picture = False
    is_rgb = False
    is_as_large = False
    is_list = False
    has_pixels = False
    follows_image = False
    in_native_row = False
    holds_labels = False
    can_label = False
    finds_samples = False
    can_be_file = False
    is_text = False
    collated: Collated = "list"
    member: Member = ""
    moved_as = ""
    tv_class = ""
    coco_part = ""
    takes_null = False

    def settled(self, field: Field) -> tuple[str, tuple[int | None, ...]]:
        """The dtype and shape of a new field, with defaults filled in. Raises ArgumentError where a field
        of this kind cannot have them."""
        dtype = self.settled_dtype(field)
        if field.shape:
            raise unfit(field, f"shape {shown(field.shape)}", f"kind {self.name} takes none")
        return dtype, ()

    def settled_dtype(self, field: Field) -> str:
        """The field's dtype, or the default. Raises ArgumentError for another than the kind has."""
        if field.dtype not in ("", *self.dtypes):
            wanted = " or ".join(filter(None, self.dtypes)) or "none"
            raise unfit(field, f"dtype {shown(field.dtype)}", f"kind {self.name} takes {wanted}")
        return field.dtype or self.dtypes[0]

    def for_field(self, field: Field) -> FieldKind:
        """The instance for a field that is settled."""
        return self

    def channels(self, field: Field) -> int:
        """Channels of an image or a mask; 0 for others."""
        return 0

    def row_shape(self, field: Field) -> tuple[int, ...]:
        """Shape of one row, where a sample has any number and all have one shape; else ()."""
        return ()

    def hidden_names(self, field: Field, is_first: bool) -> tuple[str, ...]:
        """Names of the hidden int32 columns of a field; `is_first`: it is the first image."""
        return ()

    def json_keys(self, field: Field) -> dict[str, Any]:
        """dtype and shape as the manifest stores them."""
        return ({"dtype": field.dtype} if field.dtype else {}) | (
            {"shape": list(field.shape)} if field.shape else {}
        )

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        """Adds a value to a sample that is packed.

        Args:
            field: the value's field.
            number: the field's number in records.
            value: given by the source.
            parts: parts of the sample.

        Raises:
            PackError: the field cannot hold it; RowError where that is one row of any number.
        """
        raise NotImplementedError(self.name)

    def check_entry(self, field: Field, kind: int) -> None:
        """Raises SampleError with the reason alone where the record's entry of the field is of another
        kind than `encode` writes."""
        if kind != self.entry:
            raise wrong(f"field {field.name!r} is stored as kind {kind}, not as {self.name}")

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> object:
        """The value in the bytes of an entry of the record, or of a value that was added later.

        Args:
            field: the value's field.
            kind: kind of the entry.
            data: its bytes.
            facts: facts on the sample, from the columns.

        Raises:
            SampleError: the bytes do not hold; with the reason alone.
        """
        raise NotImplementedError(self.name)

    def plain(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> object:
        """The value for files and tables, of plain types. Arguments and errors are those of `parse`."""
        return self.parse(field, kind, data, facts)

    def to_json(self, value: Any) -> Any:
        """A plain value as JSON holds it, NaN and infinities as floats."""
        return value

    def from_json(self, field: Field, value: Value) -> Value:
        """The value for `encode`, from `to_json`; `encode` checks what it must be beyond its form. Raises
        ValueError."""
        return value

    def from_exported(self, field: Field, value: Value) -> Value:
        """The value for `encode`, from a column of `exported_type` as Python has it. Raises ValueError."""
        return self.from_json(field, value)

    def parse_cell(self, cell: str) -> Value:
        """The value of a table's cell, for `encode`. Raises ValueError if it is none."""
        raise ValueError(f"a cell holds no {self.name}")

    def cell_bytes(self, cell: str) -> bytes:
        """The bytes that a table's cell is stored as, where a field is added to a dataset and is no
        column."""
        return cell.encode("utf-8", "surrogatepass")

    def from_python(self, field: Field, value: object) -> Value:
        """The value for `encode`, from a value of a table's row that is not null. Raises as `encode`, or
        ValueError."""
        return value if isinstance(value, str | bytes | float) else str(value)

    def from_array(self, array: npt.NDArray[Any], channels_first: bool) -> npt.NDArray[Any]:
        """The value for `encode`, from an array or tensor of a Dataset; `channels_first`: it is one of
        torchvision's images."""
        return array

    def empty(self, field: Field) -> Value:
        """No rows, for `encode`."""
        return np.zeros((0, *field.row_shape), field.stored_dtype)

    def tensors(self, value: Any, make: Callable[[npt.NDArray[Any]], Any]) -> Any:
        """The value as a user gets it; `make` makes a tensor of an array, and keeps its memory."""
        return make(value) if isinstance(value, np.ndarray) else value

    def each(self, value: Any, change: Callable[[Any], Any]) -> Any:
        """The value of `tensors` with each of its tensors changed."""
        return change(value)

    def tv_name(self, field: Field) -> str:
        """The tv_class of a field."""
        return self.tv_class

    def arrow_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        """The Arrow type of `arrow_value` in a table of columns; not of columns, or of rows of one shape,
        which are made of arrays."""
        return arrow.large_binary()

    def arrow_value(self, value: object) -> object:
        """A plain value as Arrow takes it."""
        return value

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        """The Arrow type of a column of Parquet."""
        return arrow.binary()

    def can_turn(self, field: Field) -> bool:
        """True if `turned` can turn the field's values."""
        return False

    def turned(self, field: Field, value: Any, turn: UprightTurn) -> Value:
        """A value for `encode` in the upright picture of its image, where it was drawn on the pixels as
        stored."""
        raise NotImplementedError(self.name)

    def fits_coco(self, field: Field) -> bool:
        """True if COCO's layout can hold the field."""
        return True

    def native_item(self, field: Field) -> dict[str, Any]:
        """Description of a field in native rows for `core.Source`: "kind", "unit" (bytes of a value), and
        further keys of its kind."""
        raise NotImplementedError(self.name)

    def native_dtype(self, field: Field) -> np.dtype[Any]:
        """The dtype of a native row's values."""
        return field.stored_dtype


class RowError(PackError):
    """A row of a field that cannot be stored, one of any number.

    Attributes:
        row: its number.
        reason: the fault, as a clause about "its" values.
    """

    def __init__(self, field: Field, row: int, reason: str) -> None:
        super().__init__(f"row {row} of field {field.name!r}: {reason}")
        self.field, self.row, self.reason = field, row, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return RowError, (self.field, self.row, self.reason)


def unfit(field: Field, what: str, why: str) -> ArgumentError:
    """The error for a field that cannot be as it is asked for."""
    return ArgumentError(f"field {field.name!r} has {what}; {why}")


def refuse(field: Field, value: object, why: str) -> PackError:
    """The error for a value that its field cannot hold."""
    return PackError(f"field {field.name!r} ({field.kind}) cannot hold {shown(value)}: {why}")


def wrong(reason: str) -> SampleError:
    """The error for stored bytes that do not hold."""
    return SampleError(reason, reason=reason)


@overload
def decimals(values: npt.NDArray[Any]) -> list[Any]: ...
@overload
def decimals(values: np.generic) -> float: ...
def decimals(values: npt.NDArray[Any] | np.generic) -> list[Any] | float:
    """Numbers as lists of Python's, those of fewer than 64 bits as the shortest decimals that give the
    same float."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8 and array.size:
        short = array.astype("U32").astype(np.float64)
        with np.errstate(over="ignore"):
            array = np.where(short.astype(array.dtype) == array, short, array.astype(np.float64))
    found: list[Any] | float = array.tolist()
    return found


def numbers(field: Field, value: object) -> npt.NDArray[Any]:
    """A value as an array of numbers or bools. Raises PackError, which names what else is in it as it was
    given."""
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        uneven = isinstance(error, ValueError) and is_list(value)
        raise refuse(field, value, "lists in it have unequal lengths" if uneven else str(error)) from None
    if given.dtype.kind in "biuf":
        return given
    if hasattr(value, "dtype"):
        raise refuse(field, value, f"its dtype is {value.dtype}")
    if not is_list(value):
        raise refuse(field, value, "it is no list of numbers")
    strange = next(
        (each for each in np.array(value, object).flat if np.asarray(each).dtype.kind not in "biuf"), value
    )
    raise refuse(field, value, f"{shown(strange)} in it is no number of at most 64 bits")


def array_value(field: Field, value: object, *, any_rows: bool = False) -> npt.NDArray[Any]:
    """The value of an array field, or the rows of a field of any number of them, in the dtype as stored.

    Raises:
        PackError: it has another shape, or its values do not fit.
    """
    wanted = field.stored_dtype
    given = numbers(field, value)
    wanted_shape = (*given.shape[:1], *field.row_shape) if any_rows else field.shape
    if given.shape != wanted_shape or not (given.ndim or wanted_shape == ()):
        shape = (None, *field.row_shape) if any_rows else field.shape
        raise refuse(field, value, f"its shape is {given.shape}, the field's {shape}")
    if given.dtype == wanted:
        return given
    if given.dtype.kind == "f" and wanted.kind != "f":
        raise refuse(field, value, f"{given.dtype} would be rounded to {field.dtype}")
    with np.errstate(all="ignore"):
        stored = given.astype(wanted)
        if wanted.kind == "f":
            fits = not np.any(np.isinf(stored) & np.isfinite(given))
        else:
            fits = np.array_equal(stored, given) and np.array_equal(stored < 0, given < 0)
    if not fits:
        raise refuse(field, value, f"its values do not fit {field.dtype}")
    return stored


def array_of_json(field: Field, value: object) -> npt.NDArray[Any]:
    """Nested lists of numbers as an array; ragged ones raise ValueError, and numbers beyond 64 bits
    OverflowError."""
    if not isinstance(value, list | int | float):
        raise ValueError("an array is a list of numbers, or of lists of them")
    found = np.array(value)
    if found.dtype.kind in "fO" and np.dtype(field.dtype).kind in "iu" and found.size:
        # NumPy makes floats of whole numbers of which some need all 64 bits.
        numbers = np.array(value, object)
        if all(type(each) is int for each in numbers.reshape(-1)):
            found = np.array(value, field.dtype)
    if found.dtype.kind not in "biuf":
        raise ValueError("there are other values than numbers in it")
    return found


SIDE_LIMIT = 2**31 - 1
"""Limit on a side of an image or an array."""


def is_side(side: object) -> bool:
    """True if a value can be a side of a shape."""
    return isinstance(side, int | np.integer) and not isinstance(side, bool) and 1 <= int(side) <= SIDE_LIMIT


def u32(*numbers: int) -> npt.NDArray[np.uint8]:
    """The bytes of little-endian numbers of 32 bits."""
    return np.array(numbers, "<u4").view(np.uint8)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """True if a value is a sequence or an array, and no text."""
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
