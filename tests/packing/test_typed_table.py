"""Columns of a table whose header says that they are images, masks, boxes or rows of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from PIL import Image

from fastload.errors import PackError
from fastload.packing import open_source

JPEG = encoded(picture(0, 24, 32))


def write(root: Path, *lines: str) -> Path:
    """A table, and the files that it may name."""
    tree(root, {f"{name}.jpg": encoded(picture(ord(name), 24, 32)) for name in "abcd"})
    for number, name in enumerate("ab"):
        labels = np.full((24, 32), number + 3, np.uint8)
        tree(root, {f"{name}.png": encoded(Image.fromarray(labels), "PNG")})
    deep = Image.fromarray(np.arange(24 * 32, dtype=np.uint16).reshape(24, 32))
    return tree(root, {"deep.png": encoded(deep, "PNG"), "list.csv": "\n".join(lines).encode()}) / "list.csv"


def test_every_kind(tmp_path: Path) -> None:
    """Fields have the kinds of the header, and values are what the cells and the files that they name
    hold."""
    source = open_source(
        write(
            tmp_path,
            "left:image,right:image,depth:image,mask:mask,boxes:boxes,labels:labels,scores:floats,counts:ints,label:int",
            'a.jpg,b.jpg,deep.png,a.png,"[[1,2,3,4.5],[0,0,32,24]]","[5,6]","[0.5]","[]",7',
            "b.jpg,c.jpg,deep.png,b.png,,,,,8",
        )
    )
    assert [(f.name, f.kind, f.dtype, f.shape, f.format, f.of) for f in source.fields] == [
        ("right", "image", "", (), "", ""),
        ("depth", "image", "uint16", (1,), "", ""),
        ("mask", "mask", "uint8", (), "", ""),
        ("boxes", "boxes", "float32", (), "xyxy", ""),
        ("labels", "array", "int64", (None,), "", "boxes"),
        ("scores", "array", "float32", (None,), "", ""),
        ("counts", "array", "int64", (None,), "", ""),
        ("label", "int", "int64", (), "", ""),
    ]
    item = source.read(0)
    assert item.image == (tmp_path / "a.jpg").read_bytes()
    assert item.values["right"] == (tmp_path / "b.jpg").read_bytes()
    assert item.values["depth"] == (tmp_path / "deep.png").read_bytes()
    assert (item.values["mask"] == 3).all()
    assert item.values["boxes"].tolist() == [[1, 2, 3, 4.5], [0, 0, 32, 24]]
    assert item.values["labels"].tolist() == [5, 6]
    assert item.values["scores"].tolist() == [0.5]
    assert item.values["label"] == 7
    empty = source.read(1).values
    assert (empty["boxes"].shape, empty["labels"].shape, empty["counts"].shape) == ((0, 4), (0,), (0,))
    assert source.stamp(0)[0] == sum(
        (tmp_path / name).stat().st_size for name in ("a.jpg", "b.jpg", "deep.png", "a.png")
    )
    assert source.place(1).path == str(tmp_path / "b.jpg")
    assert not source.notices


def test_formats_and_one_box(tmp_path: Path) -> None:
    """A format of boxes may be named instead, and a cell of one box needs no list of lists."""
    source = open_source(write(tmp_path, "path,box:xywh", 'a.jpg,"[1,2,3,4]"'))
    assert (source.fields[0].kind, source.fields[0].format) == ("boxes", "xywh")
    assert source.read(0).values["box"].tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("header", "cell", "message"),
    [
        ("x:boxes", '"[[1,2,0,4]]"', "box 0 (from 0): [1.0, 2.0, 0.0, 4.0] has x2 < x1"),
        (
            "x:xywh",
            '"[[1,2,3,4],[1,2,3,-4]]"',
            "box 1 (from 0): [1.0, 2.0, 3.0, -4.0] has x2 < x1 or y2 < y1 (xywh)",
        ),
        ("x:boxes", '"[[1,2,NaN,4]]"', "NaN"),
        ("x:boxes", '"[[1,2,3]]"', "no list of 4 numbers"),
        ("x:boxes", "{}", "no list of boxes"),
        ("x:boxes", "[1", "no JSON list"),
        ("x:ints", "[1.5]", "not whole"),
        ("x:ints", "5", "no list of numbers"),
        ("x:floats", '"[""a""]"', "other values than numbers"),
        ("x:mask", "gone.png", "gone.png cannot be read: No such file"),
        ("x:mask", "b.jpg", "a JPEG, which changes labels"),
        ("x:labels", '"[1, 1180591620717411303424]"', "has a number in it that int64 does not hold"),
        ("x:mask", "", "no path"),
        ("x:image", "gone.jpg", "gone.jpg cannot be read: No such file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, header: str, cell: str, message: str) -> None:
    """A wrong cell is the error of its sample, with line and column; others are read."""
    good = {"mask": "a.png", "image": "a.jpg"}.get(header.partition(":")[2], "[]")
    source = open_source(write(tmp_path, f"image:image,{header}", f"a.jpg,{good}", f"b.jpg,{cell}"))
    source.read(0)
    with pytest.raises(PackError) as caught:
        source.read(1)
    assert str(caught.value).startswith(f"{tmp_path}/list.csv, line 3, column 'x'")
    assert message in str(caught.value)


def test_unknown_kinds(tmp_path: Path) -> None:
    """The message lists the kinds."""
    with pytest.raises(
        PackError, match="column 'x:box': a kind is one of int, float, text, json, image, mask, boxes, "
    ):
        open_source(write(tmp_path, "path,x:box", "a.jpg,1"))
