"""Tables as people have them: other headers, delimiters, index columns; and what is asked where a first
line says nothing."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packing_helpers import encoded, picture, stored_samples, tree

from fastload.errors import ArgumentError, PackError
from fastload.packing import open_source, pack
from fastload.sources.options import SourceOptions
from fastload.store import Manifest

JPEG = encoded(picture(0, 8, 8))


def write(root: Path, text: str, name: str = "list.csv") -> Path:
    tree(root, {f"{c}.jpg": JPEG for c in "abc"} | {"with,comma.jpg": JPEG, "bare": JPEG})
    (root / name).write_bytes(text.encode("utf-8"))
    return root / name


def read(path: Path, **options: Any) -> tuple[list[str], list[Any], tuple[str, ...] | None]:
    """File names, labels and classes, by way of the whole source."""
    source = open_source(path, SourceOptions.of(**options))
    items = [source.read(i) for i in range(len(source))]
    return (
        [Path(item.name).name for item in items],
        [item.values.get("label") for item in items],
        source.classes,
    )


TWO = (["a.jpg", "b.jpg"], [1, 0], ("cat", "dog"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("path,label\na.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("filename,label\na.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("image_path,class\na.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("Class Name,Image File\ndog,a.jpg\ncat,b.jpg\n", "list.csv"),
        (",path,label\n0,a.jpg,dog\n1,b.jpg,cat\n", "list.csv"),
        ("Unnamed: 0,file,target\n7,a.jpg,dog\n3,b.jpg,cat\n", "list.csv"),
        (",label\na.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("path;label\na.jpg;dog\nb.jpg;cat\n", "list.csv"),
        ("a.jpg;dog\nb.jpg;cat\n", "list.csv"),
        ("\ufefffilename,label\na.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("\ufeffa.jpg,dog\nb.jpg,cat\n", "list.csv"),
        ("filename, label \r\na.jpg,dog\r\nb.jpg,cat\r\n", "list.csv"),
        ("image\tclass\na.jpg\tdog\nb.jpg\tcat\n", "list.tsv"),
        ("image\tclass\na.jpg\tdog\nb.jpg\tcat\n", "list.csv"),
        ("image,class\na.jpg,dog\nb.jpg,cat\n", "list.tsv"),
    ],
)
def test_conventions_that_are_recognised(tmp_path: Path, text: str, name: str) -> None:
    """Two samples of two classes, whatever the header, the delimiter, the byte order mark, the spaces, the
    index column."""
    assert read(write(tmp_path, text, name)) == TWO


def test_a_header_is_no_class(tmp_path: Path) -> None:
    """Packed with on_error="skip" a header line adds no sample and no class."""
    summary = pack(
        write(tmp_path, "filename,label\na.jpg,dog\nb.jpg,cat\n"), tmp_path / "out", on_error="skip"
    )
    assert (summary.samples, summary.skipped_count, Manifest.load(tmp_path / "out").classes) == (
        2,
        0,
        ("cat", "dog"),
    )


def test_samples_are_no_header(tmp_path: Path) -> None:
    """A first line that names a picture, or a file that is there, is a sample, also where a label is
    called like a column."""
    assert read(write(tmp_path, "a.jpg,image\nb.jpg,file\n"))[0] == ["a.jpg", "b.jpg"]
    assert read(write(tmp_path, "bare,label\na.jpg,class\n"))[2] == ("class", "label")
    assert read(write(tmp_path, "with,comma.jpg;dog\na.jpg;cat\n"))[0] == ["with,comma.jpg", "a.jpg"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("picture,kind\na.jpg,dog\n", "names no file"),
        ("gone/1,dog\ngone/2,cat\n", "names no file"),
        ("kind,label\nx,dog\n", "no column for paths"),
        ("filename,image_path,label\na.jpg,b.jpg,dog\n", "several columns for paths"),
        ("filename,class,class_id\na.jpg,dog,3\n", "several columns for labels"),
        ("0,a.jpg,dog\n1,b.jpg,cat\n", "one in column 1"),
    ],
)
def test_what_cannot_be_told_is_asked(tmp_path: Path, text: str, reason: str) -> None:
    """One message with the reason, the first two lines, and the options that decide; nothing is written."""
    path = write(tmp_path, text)
    with pytest.raises(PackError) as caught:
        pack(path, tmp_path / "out", on_error="skip")
    message = str(caught.value)
    assert reason in message
    assert "\n" not in message
    for number, line in enumerate(text.splitlines()[:2], 1):
        assert f"line {number}: {line!r}" in message
    assert all(option in message for option in ("--path-column", "--label-column", "--no-header"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("picture,kind\na.jpg,dog\nb.jpg,cat\n", {"path_column": "picture", "label_column": "kind"}),
        ("picture,kind\na.jpg,dog\nb.jpg,cat\n", {"path_column": 0, "label_column": "1", "header": True}),
        ("a.jpg,dog\nb.jpg,cat\n", {"header": False}),
        ("0,a.jpg,dog\n1,b.jpg,cat\n", {"header": False, "path_column": 1, "label_column": 2}),
        ("dog,a.jpg\ncat,b.jpg\n", {"header": False, "path_column": "1"}),
        ("filename,class,class_id\na.jpg,dog,3\nb.jpg,cat,4\n", {"label_column": "class"}),
        ("Label;Pic\ndog;a.jpg\ncat;b.jpg\n", {"path_column": "pic"}),
    ],
)
def test_options_decide(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    """Columns by name or number, with and without a header."""
    assert read(write(tmp_path, text), **options) == TWO


def test_no_header_keeps_the_first_line(tmp_path: Path) -> None:
    """header=False makes a sample even of a line that looks like a header."""
    write(tmp_path, "")
    (tmp_path / "file").write_bytes(JPEG)
    assert read(write(tmp_path, "file,label\na.jpg,cat\n"), header=False)[0] == ["file", "a.jpg"]


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    """A column that is not there, one column for both, options without a table: refused by name."""
    path = write(tmp_path, "picture,kind\na.jpg,dog\n")
    with pytest.raises(PackError, match=r"no column 'pic': its columns are 'picture', 'kind'"):
        pack(path, tmp_path / "out", path_column="pic", header=True)
    with pytest.raises(PackError, match=r"no column 5: its columns are 0 to 1"):
        pack(path, tmp_path / "out", path_column=5, header=False)
    with pytest.raises(PackError, match="cannot hold both"):
        pack(path, tmp_path / "out", path_column="picture", label_column=0)
    with pytest.raises(ArgumentError, match="are both"):
        pack(path, tmp_path / "out", path_column="picture", label_column="picture")
    with pytest.raises(ArgumentError, match="path_column=-1"):
        pack(path, tmp_path / "out", path_column=-1)
    with pytest.raises(ArgumentError, match=r"are for a \.csv"):
        pack(tmp_path, tmp_path / "out", header=False)


def test_spaces_in_other_columns_stay(tmp_path: Path) -> None:
    """A caption keeps what it ends with; other columns keep their names and kinds."""
    path = write(tmp_path, 'image_path,class,caption\na.jpg, dog,"one, two "\n')
    pack(path, tmp_path / "out")
    stored = stored_samples(tmp_path / "out")[0]
    assert (stored.values["caption"], [f.name for f in Manifest.load(tmp_path / "out").schema]) == (
        b"one, two ",
        ["image", "label", "caption"],
    )


TEXT = st.text(
    st.one_of(
        st.sampled_from(" \t,;\"'\r\n\u00a0\ufeff\N{SNOWMAN}é"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=8,
)
FORMS = st.sampled_from([(".csv", ","), (".csv", ";"), (".tsv", "\t")])
NAME = TEXT.map(lambda text: text.replace("/", "").replace("\0", ""))


@settings(max_examples=40)
@given(st.lists(st.tuples(NAME, NAME, TEXT, TEXT, TEXT), min_size=1, max_size=4), FORMS)
@example([(" ", " ", " ", " ", " leading")], (".csv", ","))
@example([("\n", " \n", '"', '" ', ' "quoted"')], (".csv", ","))
def test_cells_come_back_byte_for_byte(rows: list[tuple[str, ...]], form: tuple[str, str]) -> None:
    """Paths, class names and texts that the csv module writes are those of the samples, whatever they
    begin or end with."""
    suffix, delimiter = form
    cells = [
        (f"{before}{number}{after}", f"{left}k{right}", f"{text}")
        for number, (before, after, left, right, text) in enumerate(rows)
    ]
    cells.append(("last.jpg", " k ", " not a number"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tree(root, {path: JPEG for path, _, _ in cells})
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=delimiter).writerows([("path", "label", "caption"), *cells])
        table = root / f"list{suffix}"
        table.write_bytes(out.getvalue().encode())
        source = open_source(table, SourceOptions.of())
        assert [source.key(place) for place in range(len(source))] == [path for path, _, _ in cells]
        pack(table, root / "out.fl")
        stored, classes = stored_samples(root / "out.fl"), Manifest.load(root / "out.fl").classes
        assert classes == tuple(sorted({label for _, label, _ in cells}))
        assert [
            (classes[sample.values["label"]], sample.values["caption"].decode()) for sample in stored
        ] == [cell[1:] for cell in cells]


def test_spaces_around_numbers_mean_nothing(tmp_path: Path) -> None:
    """Numbers and JSON after ", " are of the kinds that they are of without the space, labels too; texts
    keep it."""
    lines = "path; label; size; score; tags; box: xyxy; note:text\na.jpg; 3; 7 ;0.5 ; [1]; [1,2,3,4]; x\n"
    path = write(tmp_path, lines)
    source = open_source(path, SourceOptions.of())
    assert [(field.name, field.kind) for field in source.fields] == [
        ("label", "int"), ("size", "int"), ("score", "float"), ("tags", "json"), ("box", "boxes"), ("note",
        "text"),
    ]  # fmt: skip
    values = source.read(0).values
    assert [values[name] for name in ("label", "size", "score", "tags", "note")] == [3, 7, 0.5, [1], " x"]
    assert values["box"].tolist() == [[1, 2, 3, 4]]


def test_spaces_that_may_be_meant_otherwise_are_told(tmp_path: Path) -> None:
    """The summary counts class names that begin with a space; a path whose file is called so without it is
    an error."""
    summary = pack(write(tmp_path, "a.jpg, dog\nb.jpg, cat\nc.jpg,owl\n"), tmp_path / "out")
    assert Manifest.load(tmp_path / "out").classes == (" cat", " dog", "owl")
    (notice,) = summary.notices
    assert (notice.kind, notice.count, notice.examples) == ("spaces", 2, ("' cat'", "' dog'"))
    with pytest.raises(
        PackError, match=r"line 2 of .*list\.csv has the path ' b\.jpg', and the file is called 'b\.jpg'"
    ):
        pack(write(tmp_path, "label, path\ndog, b.jpg\n"), tmp_path / "other")
