"""Options and summaries of a manifest, joined where samples of several packs become one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fastload.packing import PackSummary
from fastload.packing.summary import EXAMPLES, NAMES_KEPT, Notices, to_json


def joined_options(now: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The dataset's options, where those of its new samples change what holds for all."""
    both = dict(now)
    if isinstance(now.get("max_pixels"), int) and isinstance(more.get("max_pixels"), int):
        both["max_pixels"] = max(now["max_pixels"], more["max_pixels"])
    if "index" in now:
        both["index"] = bool(now["index"] and more.get("index"))
    return both


def joined_summary(now: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of two packs together. What is of another type than a PackSummary's is left as it is."""
    both = dict(now)
    for field in fields(PackSummary):
        name, mine, its = field.name, now.get(field.name), more.get(field.name)
        if isinstance(mine, int) and isinstance(its, int):
            both[name] = mine + its
        elif name == "notices":
            both[name] = _joined_notices(mine, its)
        elif isinstance(mine, list) and isinstance(its, list):
            both[name] = [*mine, *its][:NAMES_KEPT]
        elif isinstance(mine, dict) and isinstance(its, dict):
            counts = {key: value for key, value in mine.items() if isinstance(value, int)}
            both[name] = counts | {key: counts.get(key, 0) + value for key, value in its.items() if isinstance(value, int)}
        elif mine is None and its is not None:
            both[name] = its
    return both


def _joined_notices(now: object, more: object) -> list[dict[str, Any]]:
    found = {notice.kind: notice for notice in Notices.of(now).all()}
    for notice in Notices.of(more).all():
        known = found.get(notice.kind)
        if known is not None:
            examples = (*known.examples, *notice.examples)[:EXAMPLES]
            notice = replace(known, count=known.count + notice.count, examples=examples)
        found[notice.kind] = notice
    return to_json(found.values())
