"""Reads for the programs of test_own_obstore, which start faster without torch."""

from __future__ import annotations

import asyncio

from fastload.remote.objects import Objects


async def many_reads(objects: Objects) -> int:
    """The bytes of 50 reads of 1,000 bytes each of the object `a`, all at once."""
    parts = await asyncio.gather(*(objects.fetch("a", k, k + 1000) for k in range(50)))
    return sum(len(memoryview(part)) for part in parts)
