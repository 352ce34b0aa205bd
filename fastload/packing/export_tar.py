"""WebDataset's layout as `export` writes it: neighbouring members of one base name are a sample.

NOTE [ export: members of a tar ]
What other programs read are the members: `jpg` or `png` for the image, `cls`, `NAME.png` for masks and further images, `NAME.npy` for boxes
and other rows, one `json` for all plain fields. What a member cannot say (the dtype of a number, the format of boxes, class names) is in
the `comment` of the tar's global pax header, which tar programs pass over, so that `pack` makes a dataset of equal fields.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from typing import IO

import numpy as np

from fastload.packing.field_json import as_json, as_line, finite
from fastload.packing.sample_files import SampleFiles, StoredSample
from fastload.packing.sources.declaration import LABEL, declaration, is_label
from fastload.packing.sources.exported_tar import COMMENT_MOST, member_names
from fastload.store import Field


class TarWriter:
    """A tar of samples. See NOTE [ export: members of a tar ]."""

    def __init__(self, file: IO[bytes], samples: SampleFiles) -> None:
        self._samples = samples
        others = samples.others
        comment = json.dumps({"fastload": declaration(samples.image, others, samples.reader.manifest.classes)})
        headers = {"comment": comment} if len(comment) <= COMMENT_MOST else {}
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers)
        self._names = member_names(others)
        self._plain = [field for field in others if field.name not in self._names and not is_label(field)]
        self._labelled = any(map(is_label, others))
        self._time = int(time.time())

    def add(self, sample: StoredSample) -> None:
        key, image = self._samples.stem(sample.index), self._samples.image.name
        self._member(f"{key}.{sample.files[image].extension}", sample.files[image].content)
        if self._labelled:
            self._member(f"{key}.cls", b"%d" % int(sample.values[LABEL]))
        for field in self._samples.others:
            if field.name in self._names:
                extension, content = self._own_member(field, sample)
                self._member(f"{key}.{self._names[field.name]}.{extension}", content)
        if self._plain:
            values = {field.name: finite(as_json(field, sample.values[field.name])) for field in self._plain}
            self._member(f"{key}.json", as_line(values, sample.index, "a .parquet file", allow_nan=False).encode())

    def _own_member(self, field: Field, sample: StoredSample) -> tuple[str, bytes]:
        """(extension, content) of the member of a picture, or of what has any number of rows."""
        if field.name in sample.files:
            return sample.files[field.name].extension, sample.files[field.name].content
        value = sample.values[field.name]
        if field.kind in ("instances", "polygons"):
            return "json", json.dumps(as_json(field, value)).encode()
        out = io.BytesIO()
        np.save(out, value)
        return "npy", out.getvalue()

    def _member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = len(data), self._time, 0o644
        self._tar.addfile(member, io.BytesIO(data))
        self._tar.members = []  # type: ignore[attr-defined]  # tarfile keeps each header for a listing that nobody asks for

    def close(self) -> None:
        self._tar.close()

    def abort(self) -> None:
        pass
