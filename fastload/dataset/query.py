"""ConditionEngine: the rows of a packed dataset for which an SQL condition holds, as DuckDB evaluates it.

NOTE [ query: what a condition may do ]
A condition may come from a config file or another person. It reads the columns of this dataset, and nothing
else:
1. DuckDB parses `SELECT (condition) FROM samples`, and the parsed statement must differ from that of
   `SELECT (true) FROM samples` in the one expression alone. So a condition ends no statement, adds no clause
   and no second expression. It must parse without the parentheses too, so that none of its own closes or
   opens ours.
2. The expression has no subquery, window, star or parameter in it, its names are columns of the dataset, and
   its functions are those of NOTE [ query: functions of a condition ].
3. DuckDB binds it in a WHERE clause, where it refuses aggregates, UNNEST and table functions (`read_csv`,
   `read_text`, `glob`), and its type must be BOOLEAN.
4. The connection has neither files, network, extensions nor Python variables, and its configuration is
   locked.

NOTE [ query: fork ]
A DuckDB database that a child inherits by fork has threads that do not exist there, and destroying it crashes
the child. So the child leaks the inherited connections, and makes a connection of its own on first use.

NOTE [ query: functions of a condition ]
A function is allowed by its name in FUNCTIONS. All others are refused, those of later versions of DuckDB too.
A function is in the list if
1. its result is a function of its arguments alone. It reads no clock, generator, name, sequence, file or
   environment, and no setting but SETTINGS, so that every process finds the same samples: without them, the
   hour of a time with a zone is that of the machine's zone;
2. it has no effect: it does not sleep, log or set;
3. the size of its result does not follow from the value of a number, as that of `repeat`, `range` and `lpad`
   does, nor does it call itself on what it has made, as `list_reduce` does. A few characters of a condition
   could ask for all memory otherwise.
Lambdas and `replace` multiply sizes, so they are nested at most NESTED_MOST deep. Time is not limited: a
pattern may be slow by its nature.

NOTE [ query: a piece at a time ]
A condition is evaluated for the samples of some shards after those of others: a *piece* is as many shards as
have PIECE samples, or more where there are billions. A column that nobody has read before is read for the
piece alone, and of the piece a bit a sample stays: so a query takes what its pieces take, a bit for each
sample, and 8 bytes for each that it finds. DuckDB could scan a stream of Arrow's record batches by itself;
but then its threads call into Python, and errors in reading a shard come as Arrow's. Values that lie in
records are the exception: they are read once, and stay.

`RecordColumn` gathers the values of one field that lies in records, block by block, as an Arrow array.
`Columns` are the fields of a packed dataset as Arrow arrays: all but the pixels of images and masks.
"""

from __future__ import annotations

import ctypes
import json
import re
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.forks import call_in_children
from fastload.common.optional import optional
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, ResourceError, SampleError
from fastload.store import (
    COUNT_COLUMN,
    HEIGHT_COLUMN,
    WIDTH_COLUMN,
    DatasetReader,
    Field,
    parse_value,
)

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = {"TimeZone": "UTC", "Calendar": "gregorian"}
"""Settings on which functions of a condition depend."""
NESTED_MOST = 3
"""Lambdas and functions of _MULTIPLYING in each other: as many as the rows and values of an array need."""

_LAMBDA_FUNCTIONS = frozenset(
    # The list, then lambdas
    "apply array_apply array_filter array_transform filter list_apply list_filter list_transform".split()
)
_MULTIPLYING = frozenset("array_to_string regexp_replace replace".split())
_LISTS = """
    all_distinct append any_value avg bit_and bit_or bit_xor bool_and bool_or cat concat contains count
    distinct element entropy extract first grade_up has has_all has_any indexof intersect kurtosis
    kurtosis_pop last mad max median min mode pack position prepend product reverse reverse_sort sem skewness
    slice sort stddev_pop stddev_samp sum unique value var_pop var_samp where zip cosine_distance
    cosine_similarity cross_product distance dot_product inner_product negative_dot_product
    negative_inner_product length pop_back pop_front push_back push_front
"""
FUNCTIONS = (
    _LAMBDA_FUNCTIONS
    | _MULTIPLYING
    | {f"{kind}_{name}" for kind in ("list", "array") for name in _LISTS.split()}
    | frozenset(
        """
        abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide
        even exp factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm
        least least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round
        round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor

        ascii bit_length chr char_length character_length concat concat_ws contains damerau_levenshtein
        editdist3 ends_with ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left
        left_grapheme len length length_grapheme levenshtein like_escape lower ltrim hamming mismatches
        nfc_normalize not_ilike_escape not_like_escape octet_length ord overlay parse_dirname parse_dirpath
        parse_filename path_join position prefix regexp_escape regexp_extract regexp_extract_all
        regexp_full_match regexp_matches regexp_split_to_array reverse right right_grapheme rtrim split
        split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
        strip_accents strlen strpos substr substring substring_grapheme suffix translate trim ucase unicode
        upper url_decode url_encode format_bytes formatreadabledecimalsize formatreadablesize
        parse_formatted_bytes

        base64 bin decode encode from_base64 from_binary from_hex hex sha1 sha256 md5 md5_number
        md5_number_lower md5_number_upper hash to_base64 to_binary to_hex unbin unhex bit_position get_bit
        set_bit

        element_at flatten grade_up json_array_length

        cardinality map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
        map_extract_value map_from_entries map_keys map_values row struct_concat struct_contains
        struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack
        struct_position struct_update struct_values union_extract union_tag union_value

        array_to_json from_json from_json_strict json json_array json_contains json_exists json_extract
        json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch json_object
        json_quote json_structure json_transform json_transform_strict json_type json_valid json_value
        row_to_json to_json

        century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day
        dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour
        isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
        microsecond millennium millisecond minute month monthname nanosecond quarter second strftime strptime
        time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours
        to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp
        to_weeks to_years try_strptime week weekday weekofyear year yearweek normalized_interval

        enum_code get_type if ifnull nullif typeof
        """.split()
    )
)
_OPERATOR = re.compile(r"[^\w\s]+|!__postfix")

_CLASSES = frozenset(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF "
    "OPERATOR TYPE".split()
)
_REFUSED = {
    "SUBQUERY": "it has a subquery (`= any(...)` is one too: write `x in a_list`)",
    "WINDOW": "it has a window function; a condition looks at one sample",
    "STAR": "it has a *; name the columns",
    "POSITIONAL_REFERENCE": "it names a column by its number; use the name",
    "PARAMETER": "it has a parameter; write the value",
}


class Refused(Exception):
    """A condition that is not evaluated; the text is the reason."""


class Expression:
    """A parsed condition, checked. See NOTE [ query: what a condition may do ] and NOTE [ query: functions of
    a condition ].

    Attributes:
        names: names to which it refers, other than parameters of its lambdas; of a path into a struct, the
            first name.
        others: functions that it calls and that are not in FUNCTIONS.
    """

    def __init__(self, parsed: object) -> None:
        """Walks the expression as json_serialize_sql gives it. Raises Refused."""
        self.names: set[str] = set()
        self.others: set[str] = set()
        waiting: list[tuple[Any, frozenset[str], int]] = [(parsed, frozenset(), 0)]
        lambdas: set[int] = set()  # ids of nodes that are lambdas, and no arrows of JSON
        while waiting:
            node, bound, depth = waiting.pop()
            if isinstance(node, list):
                waiting.extend((each, bound, depth) for each in node)
            elif isinstance(node, dict):
                waiting.extend(self._parts(node, bound, depth, lambdas))

    def _parts(
        self, node: dict[str, Any], bound: frozenset[str], depth: int, lambdas: set[int]
    ) -> Iterable[tuple[Any, frozenset[str], int]]:
        """Notes the names and functions of a node; returns its parts, each with the lambdas' parameters
        known there, and its depth."""
        kind = node.get("class")
        if kind == "LAMBDA" and id(node) in lambdas:
            return [(node["expr"], bound | set(_parameters(node["lhs"])), _deeper(depth))]
        if kind == "COLUMN_REF":
            name = node["column_names"][0]
            if name.lower() not in bound:
                self.names.add(name)
            return []
        if kind is not None and kind not in _CLASSES:
            raise Refused(
                _REFUSED.get(
                    kind, f"it has an expression of the kind {kind}, which is none of a sample's values"
                )
            )
        if kind == "FUNCTION":
            function = node["function_name"].lower()
            if function in _LAMBDA_FUNCTIONS:
                lambdas.update(
                    id(each) for each in list(_arguments(node))[1:] if each.get("class") == "LAMBDA"
                )
            elif function in _MULTIPLYING:
                depth = _deeper(depth)
            elif function not in FUNCTIONS and not _OPERATOR.fullmatch(function):
                self.others.add(function)
        return [(each, bound, depth) for each in node.values()]


def _arguments(function: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments of a function; DuckDB 2 gives each with its name."""
    for each in function.get("arguments") or function.get("children") or ():
        yield each.get("expression", each)


def _parameters(node: dict[str, Any]) -> Iterator[str]:
    """Names of a lambda's parameters: one, or several as a row."""
    for each in _arguments(node) if node.get("class") == "FUNCTION" else [node]:
        if each.get("class") != "COLUMN_REF" or len(each["column_names"]) != 1:
            raise Refused("a lambda in it has parameters that are no names")
        yield each["column_names"][0].lower()


def _deeper(depth: int) -> int:
    if depth == NESTED_MOST:
        raise Refused(
            f"it has more than {NESTED_MOST} lambdas or replacements in each other, whose results "
            "may fill the memory"
        )
    return depth + 1


def arrow_array(values: npt.NDArray[Any], *, lists: bool = False) -> pa.Array:
    """An array (rows, *shape) as an Arrow array of rows, which shares its memory unless it holds bools.

    Args:
        values: contiguous, of a numeric dtype or bool.
        lists: True for lists of any length, as in `Columns.table`.

    Raises:
        ArgumentError: pyarrow is not installed.
    """
    arrow = optional("pyarrow", "a table of columns")
    if lists and values.dtype == np.float16:
        values = values.astype(np.float32)
    array = arrow.array(values.reshape(-1))
    for side in reversed(values.shape[1:]):
        if lists:
            array = arrow.LargeListArray.from_arrays(
                np.arange(0, len(array) + 1, side, dtype=np.int64), array
            )
        else:
            array = arrow.FixedSizeListArray.from_arrays(array, side)
    return array


def arrow_type(field: Field) -> pa.DataType:
    """The Arrow type of a field that lies in records and is no array of any number of rows.

    Raises:
        ArgumentError: pyarrow is not installed.
    """
    arrow = optional("pyarrow", "a table of columns")
    return field.handler.arrow_type(field, arrow)


class RecordColumn:
    """The column of one field that lies in records: text, JSON, bytes, or of any number of rows.

    `value` and `block` may be called by any thread; `join` is called once, and before `array`.
    """

    def __init__(self, reader: DatasetReader, field: Field) -> None:
        self._reader = reader
        self._field = field
        self._is_numeric = field.handler.is_numeric_rows
        self._joined: Any = None
        self.number = reader.schema.number(field.name)

    def value(self, index: int, kind: int, data: bytes | None) -> object:
        """The value of a sample, from the entry in its record; None: the record lacks it. Raises
        SampleError."""
        field = self._field
        try:
            return field.handler.arrow_value(parse_value(self._reader, index, field, kind, data, plain=True))
        except SampleError as error:
            raise self._reader.sample_error(index, error.reason) from None

    def block(self, values: Sequence[Any]) -> Any:
        """The values of neighbouring samples as one."""
        if not self._is_numeric:
            return optional("pyarrow", "a table of columns").array(values, arrow_type(self._field))
        empty = np.empty((0, *self._field.row_shape), self._field.stored_dtype)
        return np.concatenate([empty, *values]), np.array([len(each) for each in values], np.int64)

    def join(self, blocks: Sequence[Any]) -> None:
        """Makes the column of all blocks, in their order."""
        if not self._is_numeric:
            arrow = optional("pyarrow", "a table of columns")
            self._joined = arrow.chunked_array(blocks, arrow_type(self._field)).combine_chunks()
        elif blocks:
            self._joined = tuple(np.concatenate([block[part] for block in blocks]) for part in (0, 1))
        else:
            self._joined = self.block([])

    def array(self, lists: bool) -> pa.Array:
        """The column as an Arrow array; `lists` as `Columns.table` has it."""
        if not self._is_numeric:
            return self._joined
        values, counts = self._joined
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return optional("pyarrow", "a table of columns").LargeListArray.from_arrays(
            offsets, arrow_array(values, lists=lists)
        )


PIECE = 1 << 20
"""Samples of a piece, at least: enough that DuckDB's threads share the work, and that parsing a long
condition again costs little."""
_PIECES = 256
"""Limit on the pieces of a dataset, and so on how often a condition is parsed."""
_BLOCK = 256
"""Records that a thread reads at a time: enough that handing out blocks costs nothing beside reading them."""
_WORDS = {COUNT_COLUMN: "count", HEIGHT_COLUMN: "height", WIDTH_COLUMN: "width"}


class Columns:
    """Arrow arrays of one open dataset, made when they are asked for.

    1. Any thread may ask.
    2. Numbers share the memory of the reader's columns, except bools, which Arrow packs into bits.
    3. Fields that lie in records (text, JSON, bytes, and what has any number of rows) are read once, by
       reading every record, and kept; where they were added later, no record is read for them.
    4. A forked child keeps what its parent has read.

    Attributes:
        kinds: kind of each column by name, in the order of the fields. What the dataset's hidden columns say
            comes last, unless fields have these names: `width` and `height` of the stored image, pixels, and
            those of a further image (`right_width`), and the number of rows of what has any number of its own
            (`boxes_count`).
        pixels: the fields that are no columns, by name: images and masks.
    """

    def __init__(self, reader: DatasetReader) -> None:
        self._reader = reader
        self.pixels: dict[str, Field] = {
            field.name: field for field in reader.schema if field.handler.is_picture or field.handler.is_list
        }
        self._fields: dict[str, Field] = {
            field.name: field for field in reader.schema if field.name not in self.pixels
        }
        taken = {field.name for field in reader.schema}
        self._hidden = {name: column for name, column in _hidden_columns(reader) if name not in taken}
        self._read: dict[str, RecordColumn] = {}
        self.kinds: dict[str, str] = {}
        self.kinds.update((name, field.kind) for name, field in self._fields.items())
        self.kinds.update((name, "int") for name in self._hidden)

    def lies_in_records(self, name: str) -> bool:
        """Returns True if the column is read out of records, which costs a pass over the dataset."""
        return name not in self._hidden and not self._fields[name].is_column

    def table(self, names: Iterable[str] | None = None, *, lists: bool = False) -> pa.Table:
        """The named columns, or all, as an Arrow table of one chunk a column.

        Text and JSON are large strings, bytes large binary. What has any number of rows is a large list of
        rows; polygons are lists of parts, each a flat list of x and y; instances are COCO's RLE, structs of
        `size` and `counts`.

        Args:
            names: names among `kinds`.
            lists: make array fields lists of any length, with float32 in place of float16, as SQL engines
                have them; else lists of fixed size, which take no memory of their own.

        Raises:
            ArgumentError: pyarrow is not installed.
            SampleError: a record is damaged, or lacks a field.
            DatasetError: a column is damaged.
        """
        arrow = optional("pyarrow", "a table of columns")
        wanted = list(self.kinds) if names is None else list(names)
        self._read_records([name for name in wanted if self.lies_in_records(name)])
        count = self._reader.count
        for name in wanted:
            if name not in self._read:
                self._reader.column(self._hidden.get(name, name))  # kept, and shared by all tables
        return arrow.table(
            {
                name: self._read[name].array(lists)
                if name in self._read
                else self._values(name, 0, count, lists)
                for name in wanted
            }
        )

    def pieces(self, names: Collection[str]) -> Iterator[tuple[int, pa.Table]]:
        """(first sample, table) of each piece of the dataset: the named columns, one or more, with lists of
        any length as in `table`.

        See NOTE [ query: a piece at a time ]. A dataset without samples has one piece, without rows. Raises
        as `table` does.
        """
        arrow = optional("pyarrow", "a table of columns")
        self._read_records([name for name in names if self.lies_in_records(name)])
        read = {name: self._read[name].array(lists=True) for name in names if name in self._read}
        for start, stop in self._borders():
            yield (
                start,
                arrow.table(
                    {
                        name: read[name][start:stop]
                        if name in read
                        else self._values(name, start, stop, lists=True)
                        for name in names
                    }
                ),
            )

    def _borders(self) -> Iterator[tuple[int, int]]:
        """First sample and end of each piece."""
        start, size = 0, max(PIECE, self._reader.count // _PIECES)
        for shard in self._reader.manifest.shards:
            stop = shard.first + shard.count
            if stop - start >= size:
                yield start, stop
                start = stop
        if start < self._reader.count or not self._reader.count:
            yield start, self._reader.count

    def _values(self, name: str, start: int, stop: int, lists: bool) -> pa.Array:
        """The samples start .. stop-1 of a column that lies in no record."""
        column = self._hidden.get(name, name)
        values = (
            self._reader.column_range(column, start, stop)
            if start < stop
            else self._reader.column(column)[:0]
        )
        return arrow_array(values, lists=lists and name not in self._hidden)

    def _read_records(self, names: Sequence[str]) -> None:
        """Reads every record for the named fields that are not kept yet."""
        missing = [name for name in names if name not in self._read]
        if not missing:
            return
        columns = [RecordColumn(self._reader, self._fields[name]) for name in missing]
        stopped = threading.Event()

        def block(start: int) -> list[Any]:
            values: list[list[Any]] = [[] for _ in columns]
            for index in range(start, min(start + _BLOCK, self._reader.count)):
                if stopped.is_set():
                    break
                found: list[tuple[int, bytes | None]]
                if all(self._reader.is_added(index, name) for name in missing):
                    found = [
                        (self._fields[name].handler.entry, self._reader.added_bytes(index, name))
                        for name in missing
                    ]
                else:
                    stored = self._reader.stored_fields(index)
                    found = [stored.get(column.number, (0, None)) for column in columns]
                for column, (kind, data), into in zip(columns, found, values, strict=True):
                    into.append(column.value(index, kind, data))
            return [column.block(each) for column, each in zip(columns, values, strict=True)]

        with ThreadPoolExecutor(available_cpus(), "fastload-query") as pool:
            try:
                blocks = list(pool.map(block, range(0, self._reader.count, _BLOCK)))
            finally:
                stopped.set()
        for place, (name, column) in enumerate(zip(missing, columns, strict=True)):
            column.join([each[place] for each in blocks])
            self._read[name] = column


def _hidden_columns(reader: DatasetReader) -> list[tuple[str, str]]:
    """(name, hidden column) of what the hidden columns say of samples: sizes of images, and numbers of
    rows."""
    schema = reader.schema
    found = [("width", WIDTH_COLUMN), ("height", HEIGHT_COLUMN)] if reader.manifest.knows_sizes else []
    for field in schema:
        if field.of:  # as many rows as there are boxes
            continue
        hidden = sorted(schema.hidden_names(field), reverse=True)  # the width first
        found += [(f"{field.name}_{_WORDS[each.partition(':')[0]]}", each) for each in hidden]
    return found


_TABLE = "__samples__"
_NAMES_SHOWN = 30
TEXT_MOST = 1 << 20
"""Characters of a condition: those of a list of 100,000 numbers."""

_engines: weakref.WeakSet[ConditionEngine] = weakref.WeakSet()


def _leak_inherited() -> None:
    """Runs in a forked child. See NOTE [ query: fork ]."""
    for engine in _engines:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine.connection))


call_in_children(_leak_inherited)


class ConditionEngine:
    """One process's DuckDB connection over a dataset's columns.

    1. Any thread may call `rows`; calls run one at a time.
    2. It is neither pickled nor used after a fork: the child makes another one over the same columns.

    Attributes:
        connection: DuckDB's.
    """

    def __init__(self, columns: Columns) -> None:
        """Opens the connection.

        Raises:
            ArgumentError: DuckDB is not installed.
        """
        self._duckdb = optional("duckdb", "where()")
        self._columns = columns
        self._lock = threading.Lock()
        self.connection = self._duckdb.connect(
            ":memory:",
            config={
                "threads": available_cpus(),
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
            },
        )
        for name, value in SETTINGS.items():
            self.connection.execute(f"SET GLOBAL {name} = '{value}'")
        self.connection.execute("SET lock_configuration = true")
        self._shell = _shell(self._parse(_selecting("(\ntrue\n)")))
        _engines.add(self)

    def rows(self, condition: str) -> npt.NDArray[np.int64] | range:
        """Indices of the samples for which condition is true, ascending; a range where these are all samples.

        As in SQL's WHERE, a sample for which the condition is NULL is left out.

        Raises:
            ArgumentError: condition is no single SQL expression over the dataset's columns that is true or
                false, or it is NULL for every sample, or a value of some sample cannot be converted as it
                asks.
            SampleError: a record with a field that the condition needs is damaged.
            ResourceError: DuckDB is out of memory.
        """
        if not isinstance(condition, str):
            raise ArgumentError(
                f"where() takes the condition as text, not {type(condition).__name__}: {self._known()}"
            )
        if len(condition) > TEXT_MOST:
            raise ArgumentError(
                f"where() got a condition of {len(condition):,} characters, and takes at most {TEXT_MOST:,}"
            )
        if not condition.strip():
            raise ArgumentError(f"where() got an empty condition: {self._known()}")
        with self._lock:
            try:
                condition.encode()
                return self._rows(condition)
            except Refused as error:
                raise self._error(condition, str(error)) from None
            except self._duckdb.OutOfMemoryException as error:
                raise ResourceError(
                    f"where({_cut(condition)!r}) is out of memory: {_reason(error)}"
                ) from error
            except self._duckdb.Error as error:
                raise self._error(condition, _reason(error)) from error
            except UnicodeError as error:
                raise self._error(condition, str(error)) from None

    def _rows(self, condition: str) -> npt.NDArray[np.int64] | range:
        # A table has as many rows as a column, so it needs one even where a condition reads none.
        names = self._names(condition) or {min(self._columns.kinds, key=self._columns.lies_in_records)}
        text = f"(\n{condition}\n)"
        found, count, known = [], 0, False
        for start, piece in self._columns.pieces(sorted(names)):
            self.connection.register(_TABLE, piece)
            del piece  # or it would be there while the next one is read
            try:
                if not start:
                    self._check_type(text)
                held, some = self._held(text)
            finally:
                self.connection.unregister(_TABLE)
            found.append((count, len(held), np.packbits(held)))
            count, known = count + len(held), known or some
        if count and not known:
            raise Refused(
                "it is NULL for every sample; compare with IS NULL or IS NOT NULL, or give a default "
                "by coalesce(x, default)"
            )
        return _places(found, count)

    def _check_type(self, text: str) -> None:
        """Refuses an expression that is not true or false."""
        kind = self.connection.execute(
            f"DESCRIBE SELECT {text} AS held FROM {_TABLE} WHERE {text}"
        ).fetchall()[0][1]
        if kind.strip('"') == "NULL":
            raise Refused("it is NULL for every sample; compare with IS NULL or IS NOT NULL")
        if kind != "BOOLEAN":
            raise Refused(f"it is of type {_cut(kind)}, not true or false; compare it with a value")

    def _held(self, text: str) -> tuple[npt.NDArray[np.bool_], bool]:
        """True for the rows of the registered piece for which an expression is; and False if it is NULL
        for all of them."""
        # Selected, not filtered by: a filter may be handed to Arrow, for which NaN is neither equal to nor
        # above anything.
        held = self.connection.execute(f"SELECT {text} AS held FROM {_TABLE}").fetchnumpy()["held"]
        if not isinstance(held, np.ma.MaskedArray):
            return held, bool(len(held))
        return held.filled(False), not np.ma.getmaskarray(held).all()

    def _names(self, condition: str) -> set[str]:
        """The columns that a condition reads. See NOTE [ query: what a condition may do ]."""
        parsed = self._parse(_selecting(f"(\n{condition}\n)"))
        if _shell(parsed) != self._shell:
            raise Refused("it is more than one expression")
        try:
            self._parse(_selecting(condition))
        except Refused:
            raise Refused("its parentheses do not match: one closes before it was opened") from None
        expression = Expression(parsed["statements"][0]["node"]["select_list"][0])
        self._refuse_functions(expression.others)
        by_lower: dict[str, list[str]] = {}
        for name in self._columns.kinds:
            by_lower.setdefault(name.lower(), []).append(name)
        found = set()
        for name in expression.names:
            matching = by_lower.get(name.lower(), [])
            if len(matching) > 1:
                raise Refused(
                    f"{name!r} may be {' or '.join(map(repr, matching))}: SQL does not tell upper "
                    "from lower case in names"
                )
            if not matching:
                self._refuse_pixels(name)
                raise Refused(f"there is no column {name!r}; a text is written in single quotes, 'so'")
            found.update(matching)
        return found

    def _refuse_functions(self, others: set[str]) -> None:
        """Refuses functions that are not in the list. Unknown ones and aggregates are left to DuckDB,
        whose words are better."""
        for name in sorted(others):
            found = self.connection.execute(
                "SELECT function_type FROM duckdb_functions() WHERE lower(function_name) = ?", [name]
            ).fetchall()
            if any(kind != "aggregate" for (kind,) in found):
                raise Refused(
                    f"it calls {name}(), which a condition may not: its functions depend on their "
                    "arguments alone, and make no value whose "
                    "size a number sets; a random part is `hash(a_column) % 10 = 0`"
                )

    def _refuse_pixels(self, name: str) -> None:
        """Refuses the name of an image or a mask, with what can be done."""
        for field in self._columns.pixels.values():
            if field.name.lower() == name.lower():
                raise Refused(
                    f"there is no column {name!r}: it is a field of kind {field.kind}, and a "
                    "condition reads no pixels; compare its width "
                    "and height, or what was packed beside it, or choose samples in Python and give "
                    "their indices to a Subset"
                )

    def _parse(self, statement: str) -> dict[str, Any]:
        serialized = self.connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()[0][0]
        try:
            parsed: dict[str, Any] = json.loads(serialized)
        except RecursionError:
            raise Refused("it is nested too deeply") from None
        if parsed["error"]:
            raise Refused(" ".join(str(parsed["error_message"]).split()))
        return parsed

    def _known(self) -> str:
        """The columns, for a message."""
        kinds = self._columns.kinds
        shown = [f"{name} ({kind})" for name, kind in list(kinds.items())[:_NAMES_SHOWN]]
        return f"columns are {', '.join(shown)}" + (
            f" and {len(kinds) - _NAMES_SHOWN} more" if len(kinds) > _NAMES_SHOWN else ""
        )

    def _error(self, condition: str, reason: str) -> ArgumentError:
        return ArgumentError(f"where({_cut(condition)!r}): {reason}. The {self._known()}")


def _places(
    found: Sequence[tuple[int, int, npt.NDArray[np.uint8]]], count: int
) -> npt.NDArray[np.int64] | range:
    """The places of the ones among bits, given as (first place, number of places, bits) of neighbouring
    parts; a range where all are."""
    total = sum(int(_ONES[bits].sum()) for _, _, bits in found)
    if total == count:
        return range(count)
    out, at = np.empty(total, np.int64), 0
    for first, length, bits in found:
        places = np.flatnonzero(np.unpackbits(bits, count=length))
        np.add(places, first, out=out[at : at + len(places)])
        at += len(places)
    return out


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).sum(axis=1)


def _selecting(condition: str) -> str:
    return f"SELECT {condition} FROM {_TABLE}"


def _shell(parsed: dict[str, Any]) -> list[object]:
    """A parsed script without the expressions that it selects, of which the number stays, and without
    places in the text."""
    shells: list[object] = []
    for statement in parsed["statements"]:
        node = statement["node"]
        selected = len(node.get("select_list", ()))
        rest = {key: value for key, value in node.items() if key != "select_list"}
        shells.append((selected, _placeless(rest)))
    return shells


def _placeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _placeless(each) for key, each in value.items() if not key.startswith("query_location")}
    return [_placeless(each) for each in value] if isinstance(value, list) else value


def _reason(error: Exception) -> str:
    """DuckDB's message without its kind and the place in the statement, which the user did not write."""
    first = str(error).partition("\n")[0].strip()
    _, colon, rest = first.partition(" Error: ")
    return (rest if colon else first).rstrip(".!")


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
