"""Values of Parquet and Arrow columns of which pyarrow or NumPy makes nothing in Python are their sample's
error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hugging_face_files import IMAGE, arrow, jpeg, parquet

import fastload
from fastload.errors import PackStoppedError

pa = pytest.importorskip("pyarrow")


def no_text() -> Any:
    """A column of two texts, whose second one is not UTF-8."""
    offsets, _ = pa.array(["ok", "no"]).buffers()[1:]
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])


def twice() -> Any:
    """A column of structs with two members of one name: the first is null."""
    member = pa.array([1, 2])
    kind = pa.struct([("x", pa.int64()), ("x", pa.int64())])
    return pa.StructArray.from_arrays([member, member], fields=list(kind), mask=pa.array([True, False]))


COLUMNS: dict[str, tuple[Callable[[], Any], str]] = {
    "text that is not UTF-8": (no_text, "its value cannot be read: 'utf-8' codec can't decode byte 0xff"),
    "such text in a list": (
        lambda: pa.ListArray.from_arrays([0, 1, 2], no_text()),
        "its value cannot be read: 'utf-8' codec can't decode",
    ),
    "two members of one name": (twice, "its value cannot be read: .*duplicate field names"),
    "a date after 9999": (
        lambda: pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
        "its value cannot be read: .*days",
    ),
    "a null among numbers": (
        lambda: pa.array([[1, 2], [3, None]], pa.list_(pa.int64(), 2)),
        "its value is no list of numbers",
    ),
    "a null in a list": (
        lambda: pa.array([[1], [3, None]], pa.list_(pa.int64())),
        "its value is no list of numbers",
    ),
}


def rows(value: Any) -> Any:
    images = [{"bytes": jpeg(n), "path": None} for n in range(2)]
    return pa.table({"image": pa.array(images, IMAGE), "value": value})


@pytest.mark.parametrize(
    ("write", "case"),
    [(parquet, case) for case in COLUMNS] + [(arrow, case) for case in COLUMNS if " text" not in f" {case}"],
)
def test_the_row_is_named_and_others_are_packed(
    tmp_path: Path, write: Callable[[Path, Any], Path], case: str
) -> None:
    column, message = COLUMNS[case]
    source = write(tmp_path, rows(column()))
    with pytest.raises(PackStoppedError, match=f"^{source}: row 1: {message}"):
        fastload.pack(source, tmp_path / "out.fl", workers=1)
    summary = fastload.pack(source, tmp_path / "out.fl", on_error="skip", overwrite=True)
    assert [name for name, _ in summary.skipped] == [f"{source}: row 1"]
    assert summary.samples == 1


def test_text_in_arrow_files(tmp_path: Path) -> None:
    """Record batches are validated as a whole."""
    source = arrow(tmp_path, rows(no_text()))
    with pytest.raises(
        PackStoppedError, match=r"the record batch at byte \d+ cannot be read: .*Invalid UTF8"
    ):
        fastload.pack(source, tmp_path / "out.fl", workers=1)
