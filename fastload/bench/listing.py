"""The rivals' input files: a listing of an ImageFolder tree, and the LMDB of a careful user. Imports no
torch."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.common.files import read_regular
from fastload.common.folders import IMAGE_EXTENSIONS, walk


def list_folder(root: Path) -> list[tuple[Path, int]]:
    """(path, class number) of every image of a CLASS/IMAGE tree, in torchvision's ImageFolder order."""
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        for folder, files in walk(os.path.join(root, name)):
            found += [
                (Path(folder, file), label) for file in files if file.lower().endswith(IMAGE_EXTENSIONS)
            ]
    return found


def write_lmdb(files: list[tuple[str, int]], out: Path) -> None:
    """Writes the LMDB that HandWritten reads: key big-endian u64, value u32 label and the file's bytes."""
    import lmdb

    size = 2 * sum(Path(path).stat().st_size for path, _ in files) + (64 << 20)
    with lmdb.open(str(out), subdir=False, map_size=size, sync=False) as env, env.begin(write=True) as txn:
        for index, (path, label) in enumerate(files):
            txn.put(index.to_bytes(8, "big"), label.to_bytes(4, "little") + read_regular(path), append=True)
