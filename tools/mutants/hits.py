"""Bytes in which probes note that a fault's line ran: one for each fault, in a file that a test and all
that it starts share."""

import mmap
import os

SIZE = 4096


def _mapped() -> "mmap.mmap | bytearray":
    path = os.environ.get("MUTANT_HITS")
    if path is None or not os.path.exists(path):
        return bytearray(SIZE)
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), SIZE)


HITS = _mapped()
