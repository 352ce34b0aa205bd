"""Tries an installed fastload without torch: packs pictures made here, checks and unpacks them. Run by the wheels' workflow."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image


def main() -> None:
    """Raises where a command fails or what is unpacked is not what was packed."""
    with tempfile.TemporaryDirectory() as scratch:
        source, packed, unpacked = (Path(scratch) / name for name in ("photos", "photos.fl", "unpacked"))
        for number in range(6):
            folder = source / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.linear_gradient("L").resize((200 + number, 150)).convert("RGB")
            picture.save(folder / f"{number}.jpg", quality=90)
        for arguments in (
            ["--version"],
            ["pack", source, packed, "--encode", "keep"],
            ["verify", packed, "--decode"],
            ["unpack", packed, unpacked],
        ):
            subprocess.run([sys.executable, "-m", "fastload.cli.main", *map(str, arguments)], check=True)
        given, found = ({each.read_bytes() for each in folder.rglob("*.jpg")} for folder in (source, unpacked))
        if given != found or not given:
            raise SystemExit("what was unpacked is not what was packed")


if __name__ == "__main__":
    main()
