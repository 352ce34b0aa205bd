"""Compresses a wheel's members by zopfli, to a thirtieth fewer bytes of the same format, and leaves out the
folders, which installers make of the files' names: python tools/recompress_wheel.py WHEEL. Needs zopflipy."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import zopfli


class _Compressor:
    """A zlib compressor object for zipfile."""

    def __init__(self) -> None:
        # As many blocks as are worth it: the native module is 1.4 MB.
        self._own: Any = zopfli.ZopfliCompressor(zopfli.ZOPFLI_FORMAT_DEFLATE, block_splitting_max=0)

    def compress(self, data: bytes) -> bytes:
        return self._own.compress(data) or b""

    def flush(self) -> bytes:
        made: bytes = self._own.flush()
        return made


def recompress(wheel: Path) -> None:
    """Replaces a wheel by one with the same members, compressed anew."""
    made = wheel.with_suffix(".new")
    module: Any = zipfile
    before, module._get_compressor = module._get_compressor, lambda *_, **__: _Compressor()
    try:
        with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
            for member in source.infolist():
                if not member.is_dir():
                    out.writestr(member, source.read(member))
    finally:
        module._get_compressor = before
    os.replace(made, wheel)


if __name__ == "__main__":
    recompress(Path(sys.argv[1]))
