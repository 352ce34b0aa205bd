"""ds.where(condition) is what DuckDB and NumPy say of the same columns, stays native, and lets no condition reach beyond the dataset."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from everything import COUNT, Everything, packed_everything, rows_of_everything

from fastload import PackedDataset, pack
from fastload.errors import ArgumentError, SampleError
from fastload.store import Manifest

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_everything(tmp_path_factory.mktemp("where") / "all.fl")


@pytest.fixture(scope="module")
def ds(path: Path) -> PackedDataset:
    return PackedDataset(path)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return rows_of_everything()


def found(ds: PackedDataset, condition: str) -> list[int]:
    return [int(index) for index in ds.where(condition).indices]


# ---- what it finds ----------------------------------------------------------------------------------------------------------

Predicate = tuple[str, Callable[[dict[str, Any]], bool]]
_COMPARE = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _ordered(value: float) -> tuple[bool, float]:
    """A float as SQL orders it: NaN equals itself and is above all else."""
    return (True, 0.0) if value != value else (False, value)


def predicate(rng: np.random.Generator, depth: int = 0) -> Predicate:
    """A condition and what Python makes of a sample by it."""
    choice = int(rng.integers(0, 9 if depth < 3 else 6))
    sign = str(rng.choice(list(_COMPARE)))
    compare = _COMPARE[sign]
    if choice == 0:
        name, least = str(rng.choice(["label", "width", "height", "odd name"])), int(rng.integers(-4, 18))
        quoted = f'"{name}"' if " " in name else name
        return f"{quoted} {sign} {least}", lambda row: bool(compare(row[name], least))
    if choice == 1:
        bound = float(rng.choice([0.0, 0.5, -1.5, np.nan, np.inf]))
        return f"weight {sign} '{bound}'::double", lambda row: bool(compare(_ordered(row["weight"]), _ordered(bound)))
    if choice == 2:
        picked = [int(each) for each in rng.integers(-4, 10, int(rng.integers(1, 5)))]
        negated = bool(rng.integers(0, 2))
        text = f"label {'not ' if negated else ''}in ({', '.join(map(str, picked))})"
        return text, lambda row: (row["label"] in picked) != negated
    if choice == 3:
        part = str(rng.choice(["dog", "cat", "Hund", "'", "%", "\u732b", "zebra", "1"]))
        escaped = part.replace("'", "''").replace("%", r"\%")
        return rf"caption like '%{escaped}%' escape '\'", lambda row: part in row["caption"]
    if choice == 4:
        place, value = int(rng.integers(0, 4)), int(rng.integers(0, 9))
        return f"box[{place + 1}] {sign} {value}", lambda row: bool(compare(row["box"][place], value))
    if choice == 5:
        return "coalesce(meta->>'$.author' = 'me', false)", lambda row: row["meta"].get("author") == "me"
    (left, holds_left), (right, holds_right) = predicate(rng, depth + 1), predicate(rng, depth + 1)
    if choice == 6:
        return f"not ({left})", lambda row: not holds_left(row)
    if choice == 7:
        return f"({left} and {right})", lambda row: holds_left(row) and holds_right(row)
    return f"({left} or {right})", lambda row: holds_left(row) or holds_right(row)


def test_generated_conditions(ds: PackedDataset, rows: list[dict[str, Any]]) -> None:
    """A thousand conditions find what Python finds sample by sample, and what DuckDB finds in a table made of the same samples."""
    names = ("label", "weight", "width", "height", "odd name", "caption", "box")
    table = pa.table({name: [np.asarray(row[name]).tolist() for row in rows] for name in names} | {"position": range(COUNT)})
    table = table.append_column("meta", pa.array([json.dumps(row["meta"]) for row in rows]))
    connection = duckdb.connect()
    connection.register("incoming", table)
    connection.execute("create table samples as from incoming")  # whose conditions are DuckDB's alone, and not partly Arrow's
    empty = 0
    for seed in range(1000):
        condition, holds = predicate(np.random.default_rng(seed))
        ours = found(ds, condition)
        assert ours == [index for index, row in enumerate(rows) if holds(row)], f"seed {seed}: {condition}"
        theirs = connection.execute(f"select position from samples where {condition} order by position").fetchall()
        assert ours == [position for (position,) in theirs], f"seed {seed}: {condition}"
        empty += not ours
    assert empty < 200


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("true", lambda row: True),
        ("label = 1 -- and nothing else", lambda row: row["label"] == 1),
        ("LABEL = 1", lambda row: row["label"] == 1),
        ("label = '1'", lambda row: row["label"] == 1),
        ("raw = '\\x03'::blob", lambda row: row["raw"] == b"\3"),
        ("grid[2][3] > 0.5", lambda row: row["grid"][1, 2] > 0.5),
        ("5 in box", lambda row: 5 in row["box"]),
        ("list_sum(list_filter(box, lambda x: x > 4)) > 10", lambda row: row["box"][row["box"] > 4].sum() > 10),
        ("(meta->>'$.n')::int % 2 = 1", lambda row: row["meta"].get("n", 0) % 2 == 1),
        ("regexp_matches(caption, '^a d.g [0-4]$')", lambda row: row["caption"][:-1] == "a dog " and row["caption"][-1] in "01234"),
        ("isnan(weight)", lambda row: row["weight"] != row["weight"]),
        ("width * height between 90 and 120", lambda row: 90 <= row["width"] * row["height"] <= 120),
    ],
)
def test_kinds_of_columns(ds: PackedDataset, rows: list[dict[str, Any]], condition: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Each kind of field is a column: numbers, text, JSON as text, bytes, arrays as lists; a NULL for some samples leaves them out."""
    assert found(ds, condition) == [index for index, row in enumerate(rows) if holds(row)]


def test_fields_called_width(tmp_path: Path) -> None:
    """A field of that name comes before the stored size; names that differ in case alone are ambiguous."""

    class Named:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return {"image": np.zeros((4, 5, 3), np.uint8), "width": index, "Key": index, "key": index}

    pack(Named(), tmp_path / "named.fl", encode="raw")
    ds = PackedDataset(tmp_path / "named.fl")
    assert found(ds, "width = 1 and height = 4") == [1]
    with pytest.raises(ArgumentError, match="'Key' or 'key'"):
        ds.where("key = 1")
    assert ds.table().column_names == ["width", "Key", "key", "height"]


# ---- what it refuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (None, "not NoneType"),
        (b"label = 1", "not bytes"),
        ("nosuch = 1", "no column 'nosuch'"),
        ("image = 1", "no column 'image'"),
        ('caption = "dog"', "no column 'dog'; a text is written in single quotes"),
        ("rowid = 1", "no column 'rowid'"),
        ("__height__ = 1", "no column '__height__'"),
        ("label", "BIGINT, not true or false"),
        ("caption", "VARCHAR, not true or false"),
        ("label = 1, width = 2", "not true or false"),
        ("label = 'one'", "Could not convert"),
        ("caption::int = 1", "Could not convert"),
        ("box = 'x'", "'x'"),
        ("null", "NULL for every sample|INTEGER, not true or false"),
        ("label = null", "NULL for every sample; .* IS NULL"),
        ("meta->>'$.nosuch' = 'x'", "NULL for every sample"),
        ("label =", "syntax error"),
        ("label = 1 width = 2", "syntax error"),
        ("label = 1)", "syntax error"),
        ("(label = 1", "syntax error"),
        ("label = 1 /*", "comment"),
        ("max(label) = 1", "aggregates"),
        ("nosuchfunction(label)", "does not exist"),
    ],
)
def test_mistakes(ds: PackedDataset, condition: Any, reason: str) -> None:
    """Each mistake is one ArgumentError that says what is wrong and which columns there are."""
    with pytest.raises(ArgumentError, match=reason) as caught:
        ds.where(condition)
    assert "columns are label (int), weight (float), caption (text), meta (json), box (array)" in str(caught.value)


@pytest.mark.parametrize(
    "condition",
    [
        "label = 1; drop table __samples__",
        "label = 1;",
        "label = 1) from __samples__; select (true",
        "label = 1), (true",
        "label = 1) union all select (true",
        "label = 1) from __samples__ where (true",
        "label = 1 order by label",
        "label = 1 limit 1",
        "label in (select 1)",
        "exists (select * from read_text('SECRET'))",
        "exists (from 'SECRET')",
        "(select count(*) from read_csv('SECRET')) > 0",
        "(select content from read_blob('SECRET')) is not null",
        "(select count(*) from glob('/*')) > 0",
        "(select count(*) from query('select 1')) > 0",
        "(select value from duckdb_settings() limit 1) is not null",
        "read_text('SECRET') is not null",
        "read_csv('SECRET') is not null",
        "glob('/*') is not null",
        "unnest([true])",
        "row_number() over () = 1",
        "columns(*) = 1",
        "#1 = 1",
        "label = ?",
        "label = $1",
        "set threads = 1",
        "attach 'SECRET'",
        "copy (select 1) to 'SECRET.out'",
        "install httpfs",
        "load 'SECRET'",
        "__samples__ is not null",
        "sys = 1",
        "label = 1\0",
        "\ud800 = 1",
        "(" * 5000 + "label" + ")" * 5000,
        "1" + " + 1" * 900 + " = 1",
        "not " * 100_000 + "true",
    ],
)
def test_hostile_conditions(ds: PackedDataset, tmp_path: Path, condition: str) -> None:
    """One expression is taken, over this dataset's columns: no statement, clause, subquery, file or Python variable."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError):
        ds.where(condition.replace("SECRET", str(secret)))
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert len(ds.where("true")) == COUNT


def test_the_connection_reads_no_files(ds: PackedDataset, tmp_path: Path) -> None:
    """Were a statement to get past the parser, DuckDB itself refuses files, extensions, settings and Python's variables."""
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    secret = pa.table({"a": [1]})
    ds.where("true")
    connection = ds.opened.conditions.connection
    for statement in (
        f"from read_csv('{tmp_path}/secret.csv')",
        f"from read_text('{tmp_path}/secret.csv')",
        f"from '{tmp_path}/secret.csv'",
        "from glob('/*')",
        f"copy (select 1) to '{tmp_path}/out.csv'",
        f"attach '{tmp_path}/other.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "from secret",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(statement).fetchall()
    assert len(secret) == 1
    assert os.listdir(tmp_path) == ["secret.csv"]


def test_a_damaged_record_is_named(path: Path, tmp_path: Path) -> None:
    """A condition on columns does not read it; one on text does, and names the sample."""
    pack(Everything(), tmp_path / "all.fl", encode="raw", limit=20)
    shard = tmp_path / "all.fl" / Manifest.load(tmp_path / "all.fl").shards[0].file
    data = bytearray(shard.read_bytes())
    data[data.index(b'"n":7}') + 2] ^= 1
    shard.write_bytes(data)
    ds = PackedDataset(tmp_path / "all.fl")
    assert len(ds.where("width > 0")) == 20
    with pytest.raises(SampleError, match=r"sample 7 of .*shard-00000"):
        ds.where("caption <> ''")


def test_without_the_libraries(path: Path) -> None:
    """The error says what to install; `import fastload` and a PackedDataset need neither DuckDB nor Arrow."""
    code = """if True:
        import sys
        sys.modules["duckdb"] = sys.modules["pyarrow"] = None
        from fastload import PackedDataset
        from fastload.errors import ArgumentError
        ds = PackedDataset(sys.argv[1])
        for call in (ds.table, lambda: ds.where("label = 1")):
            try:
                call()
            except ArgumentError as error:
                assert "pip install 'fastload[query]'" in str(error), error
            else:
                raise SystemExit("no error")
    """
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
