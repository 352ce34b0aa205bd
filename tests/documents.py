"""Documents with any number of images, and the forms in which sources have them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pictures import photo
from PIL import Image
from torch.utils.data import Dataset

COUNT = 14
COUNTS = (0, 1, 3, 2, 0, 5, 1)
"""Images of each sample, again and again."""
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def file_of(index: int, number: int) -> bytes:
    """An image's file: JPEGs, and now and then a PNG."""
    out = io.BytesIO()
    seed = 10 * index + number
    picture = photo(seed, 60 + 7 * seed % 50, 70 + 11 * seed % 60)
    picture.save(out, "PNG" if seed % 7 == 3 else "JPEG")
    return out.getvalue()


def documents(count: int = COUNT) -> list[dict[str, Any]]:
    """Rows with a text, a number, token ids with a placeholder (99) for each image, and the images' files."""
    found = []
    for index in range(count):
        images = [file_of(index, number) for number in range(COUNTS[index % len(COUNTS)])]
        ids = [*([99] * len(images)), *range(index % 4 + 1)]
        found.append({"text": f"No. {index}", "n": index, "ids": ids, "images": images})
    return found


class Documents(Dataset[Any]):
    """The documents as a Dataset, with Pillow images in lists, or in the first part of a pair."""

    def __init__(self, pairs: bool = False, count: int = COUNT) -> None:
        self._rows, self._pairs = documents(count), pairs

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        row = self._rows[index]
        images = [Image.open(io.BytesIO(data)) for data in row["images"]]
        return (images, row["n"]) if self._pairs else {**row, "ids": np.array(row["ids"]), "images": images}


def table(kind: pa.DataType = STRUCT, folder: Path | None = None) -> pa.Table:
    """The documents as columns; with a folder, images are files in it that the table names."""

    def value(name: str, data: bytes) -> Any:
        if folder is not None:
            (folder / name).write_bytes(data)
        if kind != STRUCT:
            return data
        return {"bytes": None if folder else data, "path": name}

    lists = [
        [value(f"{row['n']}-{number}.jpg", data) for number, data in enumerate(row["images"])]
        for row in documents()
    ]
    rows = documents()
    return pa.table(
        {
            "text": [row["text"] for row in rows],
            "n": [row["n"] for row in rows],
            "ids": pa.array([row["ids"] for row in rows], pa.list_(pa.int64())),
            "images": pa.array(lists, pa.list_(kind)),
        }
    )


def write_parquet(path: Path, **options: Any) -> Path:
    pq.write_table(table(**options), path, row_group_size=5)
    return path


def write_arrow(path: Path, found: pa.Table | None = None, compression: str | None = None) -> Path:
    """Batches of 4 rows of a table, which are by default the documents."""
    found = table() if found is None else found
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, found.schema, options=options) as writer,
    ):
        writer.write_table(found, max_chunksize=4)
    return path


def write_tar(path: Path) -> Path:
    """key.0.jpg, key.1.jpg, ..., and key.json."""
    with tarfile.open(path, "w") as tar:
        for row in documents():
            members = [(f"{row['n']:04d}.{number}.jpg", data) for number, data in enumerate(row["images"])]
            about = json.dumps({key: row[key] for key in ("text", "n", "ids")}).encode()
            for name, data in (*members, (f"{row['n']:04d}.json", about)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def write_json(folder: Path, name: str, rows: list[dict[str, Any]] | None = None) -> Path:
    """Lines, or one list, with the images as files in `folder`/pictures."""
    (folder / "pictures").mkdir(exist_ok=True)
    lines = []
    for row in documents() if rows is None else rows:
        paths = []
        for number, data in enumerate(row["images"]):
            paths.append(f"pictures/{row['n']}-{number}.jpg")
            (folder / paths[-1]).write_bytes(data)
        lines.append({**row, "images": paths})
    path = folder / name
    if path.suffix == ".json":
        path.write_text(json.dumps(lines, ensure_ascii=False, indent=1))
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
