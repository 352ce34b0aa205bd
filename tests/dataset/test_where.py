"""ds.where(condition) is what DuckDB and NumPy say of the same columns, stays native, and lets no
condition reach beyond the dataset."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import warm
from everything import COUNT, Everything, packed_everything, rows_of_everything
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import write_folder

from fastload import PackedDataset, pack
from fastload.dataset.query import FUNCTIONS, PIECE, Columns, ConditionEngine
from fastload.errors import ArgumentError, SampleError
from fastload.store import Field, Manifest, Schema

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


# ---- what it finds -----------------------------------------------------------------------------------------

Predicate = tuple[str, Callable[[dict[str, Any]], bool]]
_COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


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
        return f"weight {sign} '{bound}'::double", lambda row: bool(
            compare(_ordered(row["weight"]), _ordered(bound))
        )
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


def test_pieces(tmp_path: Path, ds: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset that is asked some shards at a time has the same samples, and the same refusals, as one
    that is asked at once."""
    pack(Everything(), tmp_path / "many.fl", encode="raw", shard_samples=30)
    many = PackedDataset(tmp_path / "many.fl")
    monkeypatch.setattr("fastload.dataset.query.PIECE", 70)
    monkeypatch.setattr("fastload.store.reader.HELD_BYTES", 0)
    starts = [start for start, _ in many.opened.columns.pieces(["label", "caption"])]
    assert starts == [0, 90, 180, 270, 360]
    for seed in range(2000, 2150):
        condition, _ = predicate(np.random.default_rng(seed))
        assert found(many, condition) == found(ds, condition), condition
    null_below = 'case when "odd name" < 390 then null else "odd name" > 395 end'
    assert found(many, null_below) == [396, 397, 398, 399]
    for condition in ("nullif(label, label) = 1", "cast(caption as int) = 1", "label", "null"):
        with pytest.raises(ArgumentError) as theirs:
            ds.where(condition)
        with pytest.raises(ArgumentError) as ours:
            many.where(condition)
        assert str(ours.value) == str(theirs.value)


def test_all_samples_are_a_range(ds: PackedDataset) -> None:
    """A condition that is true for every sample gives a range, and a list of positions otherwise;
    FastLoader reads both."""
    view = ds.where("label is not null")
    assert view.indices == range(COUNT)
    assert len(ds.where("label > 0").indices) < COUNT
    assert view[COUNT - 1]["odd name"] == COUNT - 1


def test_memory_of_a_query() -> None:
    """Of 10^7 samples a query holds pieces of the columns, a bit a sample and what it finds, and no
    column."""
    reader: Any = Numbers()
    engine = ConditionEngine(Columns(reader))
    engine.rows("a = 3 and b < 9")
    for condition, total in (("a < 10 and b > 5", 99_994), ("a >= 0", Numbers.count)):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            rows = engine.rows(condition)
            held, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(rows) == total
        assert held < (1 << 20) + (0 if isinstance(rows, range) else 8 * total)
        assert most < 6 * 8 * PIECE  # two columns of a piece, and what they are made of
        assert pa.total_allocated_bytes() - before < 1 << 20


class Numbers:
    """A reader of two columns of 10^7 numbers, which are made as they are asked for."""

    count = 10**7
    schema = Schema([Field("image", "image"), Field("a", "int"), Field("b", "int")])
    manifest = SimpleNamespace(
        shards=[SimpleNamespace(first=first, count=100_000) for first in range(0, count, 100_000)],
        knows_sizes=True,
    )

    def column_range(self, name: str, start: int, stop: int) -> Any:
        values = np.arange(start, stop, dtype=np.int64)
        return values % 1000 if name == "a" else values


def test_generated_conditions(ds: PackedDataset, rows: list[dict[str, Any]]) -> None:
    """A thousand conditions find what Python finds sample by sample, and what DuckDB finds in a table made
    of the same samples."""
    names = ("label", "weight", "width", "height", "odd name", "caption", "box")
    table = pa.table(
        {name: [np.asarray(row[name]).tolist() for row in rows] for name in names}
        | {"position": range(COUNT)}
    )
    table = table.append_column("meta", pa.array([json.dumps(row["meta"]) for row in rows]))
    connection = duckdb.connect()
    connection.register("incoming", table)
    # Whose conditions are DuckDB's alone, and not partly Arrow's.
    connection.execute("create table samples as from incoming")
    empty = 0
    for seed in range(1000):
        condition, holds = predicate(np.random.default_rng(seed))
        ours = found(ds, condition)
        assert ours == [index for index, row in enumerate(rows) if holds(row)], f"seed {seed}: {condition}"
        theirs = connection.execute(
            f"select position from samples where {condition} order by position"
        ).fetchall()
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
        (
            "list_sum(list_filter(box, lambda x: x > 4)) > 10",
            lambda row: row["box"][row["box"] > 4].sum() > 10,
        ),
        ("(meta->>'$.n')::int % 2 = 1", lambda row: row["meta"].get("n", 0) % 2 == 1),
        (
            "regexp_matches(caption, '^a d.g [0-4]$')",
            lambda row: row["caption"][:-1] == "a dog " and row["caption"][-1] in "01234",
        ),
        ("isnan(weight)", lambda row: row["weight"] != row["weight"]),
        ("width * height between 90 and 120", lambda row: 90 <= row["width"] * row["height"] <= 120),
    ],
)
def test_kinds_of_columns(
    ds: PackedDataset, rows: list[dict[str, Any]], condition: str, holds: Callable[[dict[str, Any]], bool]
) -> None:
    """Each kind of field is a column: numbers, text, JSON as text, bytes, arrays as lists; a NULL for some
    samples leaves them out."""
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


# ---- what it refuses ---------------------------------------------------------------------------------------


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
    assert "columns are label (int), weight (float), caption (text), meta (json), box (array)" in str(
        caught.value
    )


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
        "label = 1) or (label = 2",
        "label = 1) or (true",
        "true) and (label = 1",
        "label = 1)) or ((label = 2",
        "label = 1) /* ( */ or (label = 2",
        "label = 1) or -- (\n(label = 2",
        "label = 1 */",
        "label = 1 /* /* */",
        "label = 1) -- ",
        "caption = 'it's'",
        "caption = 'a",
        'caption = "caption',
        "caption = $$a",
        "label = 1 as held",
        "label = 1 from __samples__ --",
        "label in (" + ",".join(["1"] * 600_000) + ")",
    ],
)
def test_hostile_conditions(ds: PackedDataset, tmp_path: Path, condition: str) -> None:
    """One expression is taken, over this dataset's columns: no statement, clause, subquery, file or Python
    variable."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError):
        ds.where(condition.replace("SECRET", str(secret)))
    assert os.listdir(tmp_path) == ["secret.csv"]
    assert len(ds.where("true")) == COUNT


FORBIDDEN = [
    "sleep_ms(1) is null",
    "SLEEP_MS(1) is null",
    '"sleep_ms"(1) is null',
    "(1).sleep_ms() is null",
    "pg_sleep(1) is null",
    "main.sleep_ms(1) is null",
    "write_log('x') is null",
    "current_setting('threads') is not null",
    "getvariable('x') is null",
    "getenv('HOME') is null",
    "current_date > date '2000-01-01'",
    "current_date() > date '2000-01-01'",
    "now() > timestamp '2000-01-01'",
    "today() > date '2000-01-01'",
    "age(timestamp '2000-01-01') > interval 1 day",
    "ago(interval 1 day) is not null",
    "random() < 0.5",
    "uuid() is not null",
    "gen_random_uuid() is not null",
    "setseed(0.5) is null",
    "nextval('s') = 1",
    "version() = 'x'",
    "current_query() = 'x'",
    "current_user = 'x'",
    "current_database() = 'x'",
    "current_schemas(true) is null",
    "txid_current() = 1",
    "pg_typeof(label) = 'x'",
    "has_table_privilege('x', 'select')",
    "json_serialize_sql('select 1') is null",
    "json_serialize_plan('select 1') is null",
    "json_execute_serialized_sql('x') is null",
    "parse_duckdb_log_message('x', 'y') is null",
    "error('x') is null",
    "stats(label) is null",
    "vector_type(label) is null",
    "repeat('x', 1000000000) = caption",
    "len(range(1000000000)) > 1",
    "len(generate_series(1, 1000000000)) > 1",
    "lpad(caption, 1000000000, 'x') = caption",
    "rpad(caption, 1000000000, 'x') = caption",
    "len(list_resize([1], 1000000000)) > 1",
    "printf('%1000000000d', label) = 'x'",
    "format('{:1000000000}', label) = 'x'",
    "bar(label, 0, 1, 1000000000) = 'x'",
    "bitstring('1', 1000000000) is null",
    "list_reduce(box, lambda a, b: a + b) > 0",
    "list_filter(box, lambda current_user: true) is null or current_user = 'x'",
    "list_transform(box, lambda x: sleep_ms(1)) is null",
    "case when label = 1 then sleep_ms(1) is null end",
    "label in (1, sleep_ms(1))",
    "replace(replace(replace(replace(caption, 'a', 'bb'), 'b', 'cc'), 'c', 'dd'), 'd', 'ee') = 'x'",
]


@pytest.mark.parametrize("condition", FORBIDDEN)
def test_functions_that_are_not_of_a_sample(ds: PackedDataset, condition: str) -> None:
    """A condition calls no function that waits, writes, reads the clock, a generator, a setting or the
    environment, or fills the memory."""
    with pytest.raises(
        ArgumentError, match=r"which a condition may not|no column|does not exist|in each other"
    ):
        ds.where(condition)


ALLOWED = [
    "label % 2 < 2 and -label < 1000 and label ** 2 >= 0 and label // 2 < 1000 and (label & 1) | 1 = "
    "1 and not label > 1e9",
    "abs(weight) >= 0 or isnan(weight)",
    "label between -100 and 100 and label not in (1001, 1002) and label is distinct from 99999",
    "hash(caption) % 10 < 10",
    "upper(caption) = upper(caption) and length(caption) >= 0 and caption ^@ '' and caption || 'x' "
    "<> caption",
    "caption like '%' and caption ilike '%' and caption like '%' escape '!' and caption similar to "
    "'(.|\\n)*' and caption glob '*'",
    "regexp_matches(caption, '') and replace(replace(caption, 'a', ''), 'b', '') is not null and "
    "split_part(caption, ' ', 1) is not null",
    "substring(caption from 1 for 2) is not null and trim(both ' ' from caption) is not null and "
    "position('a' in caption) >= 0",
    "caption collate nocase = caption and md5(caption) = md5(caption)",
    "(meta->'a'->'b') is null or true",
    "meta->>'$.a' is null or json_extract(meta, '$.a') is not null",
    "coalesce(meta->>'$.a', 'x') <> '' and try_cast(meta->>'$.a' as int) is null or true",
    "box[1] >= 0 or box[1:2] is not null or len(box) > 0",
    "list_sum(box) = list_sum(box) and list_max(box) >= list_min(box) or 3 in box or list_contains(box, 3)",
    "len(list_filter(box, lambda x: x > 1)) >= 0 and len(list_transform(box, lambda x, i: x + i)) = len(box)",
    "len([x + 1 for x in box if x > 2]) >= 0",
    "list_sum(list_transform(box, lambda x: list_sum(list_transform(box, lambda y: x * y)))) is not null",
    "case when label = 1 then true when label = 2 then false else true end or true",
    "if(label = 1, true, true) and ifnull(label, 1) >= -1e9 and nullif(label, 99999) is not null and "
    "greatest(label, 1) >= 1",
    "{'a': label}.a = label and struct_extract({'a': label}, 'a') = label and (label, 1) = (label, 1)",
    "date '2020-01-02' + interval 3 days > date '2020-01-01' and extract(year from date '2020-01-01') = 2020",
    "label::varchar = cast(label as varchar) and label::decimal(18, 2) = label",
    "(label >= 0) or (label < 0) -- a comment with ) and '",
    "label >= 0 /* ( */ or label < 0",
    "caption <> ')' or caption = '(' or caption <> '''' or caption <> $$)$$",
    "((((label)))) = label",
]


@pytest.mark.parametrize("condition", ALLOWED)
def test_functions_of_a_sample(ds: PackedDataset, condition: str) -> None:
    """What asks a sample's own values is evaluated: operators, texts, lists, lambdas, JSON, dates, casts,
    comments."""
    assert len(ds.where(condition)) == COUNT


def test_the_list_of_functions_has_nothing_volatile(ds: PackedDataset) -> None:
    """DuckDB says itself that no function of the list depends on more than its arguments, and none is
    anything but scalar or a macro. Those on times with a zone depend on settings, which are the same
    everywhere."""
    ds.where("true")
    rows = ds.opened.conditions.connection.execute(
        "SELECT lower(function_name), function_type, coalesce(has_side_effects, false), "
        "coalesce(stability, 'CONSISTENT'), "
        "parameter_types::VARCHAR FROM duckdb_functions()"
    ).fetchall()
    known = [row for row in rows if row[0] in FUNCTIONS and row[1] in ("scalar", "macro")]
    assert len({row[0] for row in known}) > 300
    by_zone = [
        row
        for row in known
        if row[3].endswith("WITHIN_QUERY") and re.search("TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ", row[4])
    ]
    depends = {row[0] for row in known if row[2] or (row[3] != "CONSISTENT" and row not in by_zone)}
    assert depends <= {"timezone"}
    assert not [row for row in rows if row[0] in FUNCTIONS and row[1] in ("table_macro", "pragma")]


@pytest.mark.long
def test_times_with_a_zone_are_of_no_machine(tmp_path: Path) -> None:
    """The same samples in every zone: a time with a zone is shown, truncated and compared in UTC."""
    pack(write_folder(tmp_path / "photos", 6), tmp_path / "ds")
    conditions = [
        "hour(to_timestamp(3600 * label)) = 1",
        "strftime(to_timestamp(3600 * label), '%H') = '01'",
        "date_trunc('day', to_timestamp(3600 * label)) = '1970-01-01'::TIMESTAMPTZ",
        "timezone('Asia/Tokyo', to_timestamp(3600 * label)) > '1970-01-01 10:30'::TIMESTAMP",
    ]
    program = (
        "import sys, fastload; ds = fastload.PackedDataset(sys.argv[1]); print([len(ds.where(text)) for "
        "text in sys.argv[2:]])"
    )
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        # DuckDB reads it in the program.
        done = warm.run(program, tmp_path / "ds", *conditions, environment={**os.environ, "TZ": zone})
        assert (done.stdout, done.stderr) == ("[2, 2, 6, 2]\n", ""), zone


def outside_texts(condition: str) -> str:
    """A condition without its texts, quoted names and comments, found without DuckDB."""
    return re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", " ", condition, flags=re.DOTALL)


PARTS = ["(", ")", "label", "1", "=", "or", "and", "'", '"', "--", "/*", "*/", "\n", ";", ",", "true", "not"]


@settings(max_examples=150)
@given(st.lists(st.sampled_from(PARTS), max_size=14))
def test_what_is_taken_is_balanced(ds: PackedDataset, parts: list[str]) -> None:
    """A condition that is taken never closes a parenthesis that it did not open, and ends no statement."""
    condition = " ".join(parts)
    try:
        ds.where(condition)
    except ArgumentError:
        return
    depth = 0
    for character in outside_texts(condition):
        assert character != ";"
        depth += (character == "(") - (character == ")")
        assert depth >= 0, condition
    assert depth == 0, condition


def test_the_connection_reads_no_files(ds: PackedDataset, tmp_path: Path) -> None:
    """Were a statement to get past the parser, DuckDB itself refuses files, extensions, settings and
    Python's variables."""
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
                assert "pip install 'torch-fastload[query]'" in str(error), error
            else:
                raise SystemExit("no error")
    """
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
