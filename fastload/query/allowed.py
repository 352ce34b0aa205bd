"""Expressions that a condition may have: the classes of DuckDB's parsed expressions, and the functions.

NOTE [ query: functions of a condition ]
A function is allowed by its name in FUNCTIONS. All others are refused, those of later versions of DuckDB too. A function is in the list if
1. its result is a function of its arguments alone. It reads no clock, generator, setting, name, sequence, file or environment, so that
   every process finds the same samples;
2. it has no effect: it does not sleep, log or set;
3. the size of its result does not follow from the value of a number, as that of `repeat`, `range` and `lpad` does, nor does it call
   itself on what it has made, as `list_reduce` does. A few characters of a condition could ask for all memory otherwise.
Lambdas and `replace` multiply sizes, so they are nested at most NESTED_MOST deep. Time is not limited: a pattern may be slow by its nature.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

NESTED_MOST = 3
"""Lambdas and functions of _MULTIPLYING in each other: as many as the rows and values of an array need."""

_LAMBDA_FUNCTIONS = frozenset(
    "apply array_apply array_filter array_transform filter list_apply list_filter list_transform".split()  # the list, then lambdas
)
_MULTIPLYING = frozenset("array_to_string regexp_replace replace".split())
_LISTS = """
    all_distinct append any_value avg bit_and bit_or bit_xor bool_and bool_or cat concat contains count distinct element entropy extract
    first grade_up has has_all has_any indexof intersect kurtosis kurtosis_pop last mad max median min mode pack position prepend product
    reverse reverse_sort sem skewness slice sort stddev_pop stddev_samp sum unique value var_pop var_samp where zip cosine_distance
    cosine_similarity cross_product distance dot_product inner_product negative_dot_product negative_inner_product length pop_back
    pop_front push_back push_front
"""
FUNCTIONS = (
    _LAMBDA_FUNCTIONS
    | _MULTIPLYING
    | {f"{kind}_{name}" for kind in ("list", "array") for name in _LISTS.split()}
    | frozenset(
        """
        abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp factorial fdiv
        floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma ln log log10
        log2 mod multiply nextafter pi pow power radians round round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc
        xor

        ascii bit_length chr char_length character_length concat concat_ws contains damerau_levenshtein editdist3 ends_with ilike_escape
        instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length length_grapheme levenshtein like_escape
        lower ltrim hamming mismatches nfc_normalize not_ilike_escape not_like_escape octet_length ord overlay parse_dirname parse_dirpath
        parse_filename path_join position prefix regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches
        regexp_split_to_array reverse right right_grapheme rtrim split split_part starts_with str_split str_split_regex string_split
        string_split_regex string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix translate trim ucase
        unicode upper url_decode url_encode format_bytes formatreadabledecimalsize formatreadablesize parse_formatted_bytes

        base64 bin decode encode from_base64 from_binary from_hex hex sha1 sha256 md5 md5_number md5_number_lower md5_number_upper hash
        to_base64 to_binary to_hex unbin unhex bit_position get_bit set_bit

        element_at flatten grade_up json_array_length

        cardinality map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
        map_from_entries map_keys map_values row struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof
        struct_insert struct_keys struct_pack struct_position struct_update struct_values union_extract union_tag union_value

        array_to_json from_json from_json_strict json json_array json_contains json_exists json_extract json_extract_path
        json_extract_path_text json_extract_string json_keys json_merge_patch json_object json_quote json_structure json_transform
        json_transform_strict json_type json_valid json_value row_to_json to_json

        century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek
        dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day make_date make_time
        make_timestamp make_timestamp_ms make_timestamp_ns microsecond millennium millisecond minute month monthname nanosecond quarter
        second strftime strptime time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours
        to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years
        try_strptime week weekday weekofyear year yearweek normalized_interval

        enum_code get_type if ifnull nullif typeof
        """.split()
    )
)
_OPERATOR = re.compile(r"[^\w\s]+|!__postfix")

_CLASSES = frozenset(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR TYPE".split()
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
    """A parsed condition, checked. See NOTE [ query: what a condition may do ] and NOTE [ query: functions of a condition ].

    Attributes:
        names: what it refers to, other than parameters of its lambdas; of a path into a struct, the first name.
        others: functions that it calls and that are not in FUNCTIONS.
    """

    def __init__(self, parsed: Any) -> None:
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
        """Notes what a node says, and returns its parts, each with the lambdas' parameters that are known there, and its depth."""
        kind = node.get("class")
        if kind == "LAMBDA" and id(node) in lambdas:
            return [(node["expr"], bound | set(_parameters(node["lhs"])), _deeper(depth))]
        if kind == "COLUMN_REF":
            name = node["column_names"][0]
            if name.lower() not in bound:
                self.names.add(name)
            return []
        if kind is not None and kind not in _CLASSES:
            raise Refused(_REFUSED.get(kind, f"it has an expression of the kind {kind}, which is none of a sample's values"))
        if kind == "FUNCTION":
            function = node["function_name"].lower()
            if function in _LAMBDA_FUNCTIONS:
                lambdas.update(id(each) for each in list(_arguments(node))[1:] if each.get("class") == "LAMBDA")
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
        raise Refused(f"it has more than {NESTED_MOST} lambdas or replacements in each other, whose results may fill the memory")
    return depth + 1
