"""A program that has a dataset in a bucket open through a cache, and reads all of it whenever it is told to:
without torch.

Its argument is JSON, arguments of RemoteFiles. Each line of its input makes it read every record, and print a
line of JSON: checksums, bytes that it has fetched, and the number of samples in the cache; before the first,
one of the warnings that opening gave.
"""

from __future__ import annotations

import json
import sys
import warnings

from fastload._native import core
from fastload.remote.files import RemoteFiles
from fastload.store import DatasetReader


def tell(found: object) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    files = RemoteFiles(**json.loads(sys.argv[1]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = DatasetReader(files)
    with reader:
        tell([str(each.message) for each in caught])
        for _ in sys.stdin:
            with files.held(range(len(reader))):
                crcs = [core.crc32c(reader.record(index)) for index in range(len(reader))]
            status = files.status()
            tell({"crc": crcs, "fetched": status.fetched, "cached": status.cached})


if __name__ == "__main__":
    main()
