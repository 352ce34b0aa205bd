"""Run by test_writer where files or the disk are limited: packs 40 MB until something stops it, and prints
what it was told.

Usage: fill_disk.py OUT.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fastload.errors import PackError
from fastload.store import DatasetWriter, Field, Schema


def main(out: Path) -> str:
    """The message; by then nothing may claim to be a dataset."""
    try:
        with DatasetWriter(out, Schema((Field("data", "bytes"),)), shard_size=3 << 20, options={}) as writer:
            for i in range(400):
                writer.append({"data": bytes([i % 251]) * 100_000})
            writer.finish(None, {})
    except PackError as error:
        assert not (out / "manifest.json").exists()
        return str(error)
    return "finished"


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1])))
