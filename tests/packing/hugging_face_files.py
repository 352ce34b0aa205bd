"""What the tests of Arrow and Parquet files share: the columns as Hugging Face's library writes them."""

from __future__ import annotations

import io

import pytest
from pictures import photo

pa = pytest.importorskip("pyarrow")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {"info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog", "owl"]}}}}


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    photo(number, 40 + number, 50).save(out, "JPEG", quality=90)
    return out.getvalue()
