"""The rivals' input files: a listing of an ImageFolder tree, and the LMDB of a careful user. Imports no torch."""

from __future__ import annotations

from pathlib import Path

# What torchvision's ImageFolder takes for an image.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def list_folder(root: Path) -> list[tuple[Path, int]]:
    """(path, class number) of every image of a CLASS/IMAGE tree, in torchvision's ImageFolder order."""
    classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        paths = sorted(path for path in (root / name).rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        found += [(path, label) for path in paths]
    return found


def write_lmdb(files: list[tuple[str, int]], out: Path) -> None:
    """Writes the LMDB that HandWritten reads: key big-endian u64, value u32 label and the file's bytes."""
    import lmdb

    size = 2 * sum(Path(path).stat().st_size for path, _ in files) + (64 << 20)
    with lmdb.open(str(out), subdir=False, map_size=size, sync=False) as env, env.begin(write=True) as txn:
        for index, (path, label) in enumerate(files):
            txn.put(index.to_bytes(8, "big"), label.to_bytes(4, "little") + Path(path).read_bytes(), append=True)
