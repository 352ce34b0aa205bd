"""ConditionEngine: the rows of a packed dataset for which an SQL condition holds, as DuckDB evaluates it.

NOTE [ query: what a condition may do ]
A condition may come from a config file or another person. It reads the columns of this dataset, and nothing else:
1. DuckDB parses `SELECT (condition) FROM samples`, and the parsed statement must differ from that of `SELECT (true) FROM samples` in the
   one expression alone. So a condition ends no statement, adds no clause and no second expression. It must parse without the parentheses
   too, so that none of its own closes or opens ours.
2. The expression has no subquery, window, star or parameter in it, its names are columns of the dataset, and its functions are those of
   NOTE [ query: functions of a condition ].
3. DuckDB binds it in a WHERE clause, where it refuses aggregates, UNNEST and table functions (`read_csv`, `read_text`, `glob`), and its
   type must be BOOLEAN.
4. The connection has neither files, network, extensions nor Python variables, and its configuration is locked.

NOTE [ query: fork ]
A DuckDB database that a child inherits by fork has threads that do not exist there, and destroying it crashes the child. So the child leaks
the inherited connections, and makes a connection of its own on first use.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.optional import optional
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, ResourceError
from fastload.query.allowed import Expression, Refused
from fastload.query.columns import Columns

_TABLE = "__samples__"
_NAMES_SHOWN = 30
TEXT_MOST = 1 << 20
"""Characters of a condition: those of a list of 100,000 numbers."""

_engines: weakref.WeakSet[ConditionEngine] = weakref.WeakSet()


def _leak_inherited() -> None:
    """Runs in a forked child. See NOTE [ query: fork ]."""
    for engine in _engines:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine.connection))


os.register_at_fork(after_in_child=_leak_inherited)


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
        self._loaded: set[str] = set()
        self.connection = self._duckdb.connect(
            ":memory:",
            config={
                "threads": available_cpus(),
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                "lock_configuration": "true",
            },
        )
        self._shell = _shell(self._parse(_selecting("(\ntrue\n)")))
        _engines.add(self)

    def rows(self, condition: str) -> npt.NDArray[np.int64]:
        """Indices of the samples for which condition is true, ascending.

        As in SQL's WHERE, a sample for which the condition is NULL is left out.

        Raises:
            ArgumentError: condition is no single SQL expression over the dataset's columns that is true or false, or it is NULL for every
                sample, or a value of some sample cannot be converted as it asks.
            SampleError: a record with a field that the condition needs is damaged.
            ResourceError: DuckDB is out of memory.
        """
        if not isinstance(condition, str):
            raise ArgumentError(f"where() takes the condition as text, not {type(condition).__name__}: {self._known()}")
        if len(condition) > TEXT_MOST:
            raise ArgumentError(f"where() got a condition of {len(condition):,} characters, and takes at most {TEXT_MOST:,}")
        if not condition.strip():
            raise ArgumentError(f"where() got an empty condition: {self._known()}")
        with self._lock:
            try:
                condition.encode()
                return self._rows(condition)
            except Refused as error:
                raise self._error(condition, str(error)) from None
            except self._duckdb.OutOfMemoryException as error:
                raise ResourceError(f"where({_cut(condition)!r}) is out of memory: {_reason(error)}") from error
            except self._duckdb.Error as error:
                raise self._error(condition, _reason(error)) from error
            except UnicodeError as error:
                raise self._error(condition, str(error)) from None

    def _rows(self, condition: str) -> npt.NDArray[np.int64]:
        self._load(self._names(condition))
        text = f"(\n{condition}\n)"
        kind = self.connection.execute(f"DESCRIBE SELECT {text} AS held FROM {_TABLE} WHERE {text}").fetchall()[0][1]
        if kind.strip('"') == "NULL":
            raise Refused("it is NULL for every sample; compare with IS NULL or IS NOT NULL")
        if kind != "BOOLEAN":
            raise Refused(f"it is of type {_cut(kind)}, not true or false; compare it with a value")
        # Selected, not filtered by: a filter may be handed to Arrow, for which NaN is neither equal to nor above anything.
        held = self.connection.execute(f"SELECT {text} AS held FROM {_TABLE}").fetchnumpy()["held"]
        if isinstance(held, np.ma.MaskedArray):
            if len(held) and np.ma.getmaskarray(held).all():
                raise Refused("it is NULL for every sample; compare with IS NULL or IS NOT NULL, or give a default by coalesce(x, default)")
            held = held.filled(False)
        return np.flatnonzero(held)

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
                raise Refused(f"{name!r} may be {' or '.join(map(repr, matching))}: SQL does not tell upper from lower case in names")
            if not matching:
                self._refuse_pixels(name)
                raise Refused(f"there is no column {name!r}; a text is written in single quotes, 'so'")
            found.update(matching)
        return found

    def _refuse_functions(self, others: set[str]) -> None:
        """Refuses functions that are not in the list. Unknown ones and aggregates are left to DuckDB, whose words are better."""
        for name in sorted(others):
            found = self.connection.execute(
                "SELECT function_type FROM duckdb_functions() WHERE lower(function_name) = ?", [name]
            ).fetchall()
            if any(kind != "aggregate" for (kind,) in found):
                raise Refused(
                    f"it calls {name}(), which a condition may not: its functions depend on their arguments alone, and make no value whose "
                    "size a number sets; a random part is `hash(a_column) % 10 = 0`"
                )

    def _refuse_pixels(self, name: str) -> None:
        """Refuses the name of an image or a mask, with what can be done."""
        for field in self._columns.pixels.values():
            if field.name.lower() == name.lower():
                raise Refused(
                    f"there is no column {name!r}: it is a field of kind {field.kind}, and a condition reads no pixels; compare its width "
                    "and height, or what was packed beside it, or choose samples in Python and give their indices to a Subset"
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

    def _load(self, names: Iterable[str]) -> None:
        """Registers a table that has the named columns, and those of earlier conditions."""
        wanted = self._loaded | set(names)
        if not self._loaded or wanted != self._loaded:
            # A table has as many rows as a column, so it needs one even where a condition reads none.
            wanted = wanted or {min(self._columns.kinds, key=self._columns.lies_in_records)}
            self.connection.register(_TABLE, self._columns.table(sorted(wanted), lists=True))
            self._loaded = wanted

    def _known(self) -> str:
        """The columns, for a message."""
        kinds = self._columns.kinds
        shown = [f"{name} ({kind})" for name, kind in list(kinds.items())[:_NAMES_SHOWN]]
        return f"columns are {', '.join(shown)}" + (f" and {len(kinds) - _NAMES_SHOWN} more" if len(kinds) > _NAMES_SHOWN else "")

    def _error(self, condition: str, reason: str) -> ArgumentError:
        return ArgumentError(f"where({_cut(condition)!r}): {reason}. The {self._known()}")


def _selecting(condition: str) -> str:
    # The line break ends a comment that the condition may end with.
    return f"SELECT {condition}\n FROM {_TABLE}"


def _shell(parsed: dict[str, Any]) -> Any:
    """A parsed script without the expressions that it selects, of which the number stays, and without places in the text."""
    shells = []
    for statement in parsed["statements"]:
        node = statement["node"]
        selected = len(node.get("select_list", ()))
        rest = {key: value for key, value in node.items() if key != "select_list"}
        shells.append((selected, _placeless(rest)))
    return shells


def _placeless(value: Any) -> Any:
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
