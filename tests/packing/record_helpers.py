"""What tests of sources of records share: a few JPEGs, and a source's values and kinds of fields."""

from __future__ import annotations

from typing import Any

from packing_helpers import encoded, picture

from fastload.sources import Source

JPEGS = [encoded(picture(seed, 24, 32 + seed)) for seed in range(6)]


def values(source: Source) -> list[dict[str, Any]]:
    return [source.read(position).values for position in range(len(source))]


def kinds(source: Source) -> dict[str, str]:
    return {field.name: field.kind for field in source.fields}
