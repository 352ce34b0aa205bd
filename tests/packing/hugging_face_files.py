"""What the tests of Arrow and Parquet files share: the columns as Hugging Face's library writes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pictures import photo

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {
    "info": {
        "features": {
            "image": {"_type": "Image"},
            "label": {"_type": "ClassLabel", "names": ["cat", "dog", "owl"]},
        }
    }
}


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    photo(number, 40 + number, 50).save(out, "JPEG", quality=90)
    return out.getvalue()


def parquet(root: Path, rows: Any) -> Path:
    """Writes a table as a Parquet file of row groups of two rows."""
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, root / "a.parquet", row_group_size=2)
    return root / "a.parquet"


def arrow(root: Path, rows: Any) -> Path:
    """Writes a table as an Arrow stream of batches of two rows."""
    root.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_stream(root / "a.arrow", rows.schema) as sink:
        sink.write_table(rows, max_chunksize=2)
    return root / "a.arrow"
