"""Files of traces, read and checked against the format's rules."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_trace(path: Path) -> dict[str, Any]:
    """The file, its numbers exact."""
    body = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    found: dict[str, Any] = json.loads(body, parse_float=Decimal)
    return found


def events(path: Path) -> list[Event]:
    """The stages in a file, oldest first, after a check: fields, no negative times, every row named,
    events of a row nest."""
    found = read_trace(path)["traceEvents"]
    stages = sorted(
        (each for each in found if each["ph"] == "X"), key=lambda each: (each["ts"], -each["dur"])
    )
    named = {(each["name"], each["pid"], each["tid"]) for each in found if each["ph"] == "M"}
    assert {each["ph"] for each in found} <= {"X", "M"}
    open_stages: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for each in stages:
        assert set(each) <= {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"}
        assert each["ts"] > 0
        assert each["dur"] >= 0
        row = each["pid"], each["tid"]
        assert ("thread_name", *row) in named
        assert ("process_name", each["pid"], 0) in named
        around = open_stages[row]
        while around and end(around[-1]) <= each["ts"]:
            around.pop()
        assert not around or end(each) <= end(around[-1]), (around[-1], each)
        around.append(each)
    return stages


def end(event: Event) -> Any:
    return event["ts"] + event["dur"]


def named(stages: list[Event], name: str, **args: Any) -> list[Event]:
    """The stages of a name, with these arguments."""
    return [each for each in stages if each["name"] == name and args.items() <= each.get("args", {}).items()]
