"""OpenedDataset: a packed dataset as one process has it open."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import DatasetError
from fastload.query import Columns, ConditionEngine
from fastload.store.reader import DatasetReader


class OpenedDataset:
    """One process's view of a packed dataset: reader, decoder, the columns that are always needed."""

    def __init__(self, path: Path, version: int | None, base: Path | None, inherited: OpenedDataset | None) -> None:
        self.pid = os.getpid()
        self.reader: DatasetReader = DatasetReader(path, version, base) if inherited is None else inherited.reader
        self.columns: Columns = Columns(self.reader) if inherited is None else inherited.columns
        fields = self.reader.schema.fields
        self.names = tuple(f.name for f in fields)
        self.kinds = {f.name: f.kind for f in fields}
        images = [f.name for f in fields if f.kind == "image"]
        if len(images) != 1:
            raise DatasetError(f"{path} has {len(images)} image fields; this version reads datasets with one")
        self.image_name = images[0]
        self.image_field = self.reader.manifest.image_number
        self._decoder: core.Decoder | None = None
        self._conditions: ConditionEngine | None = None

    @property
    def conditions(self) -> ConditionEngine:
        if self._conditions is None:
            self._conditions = ConditionEngine(self.columns)
        return self._conditions

    @property
    def decoder(self) -> core.Decoder:
        if self._decoder is None:
            self._decoder = core.Decoder()
        return self._decoder

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return self.reader.column("__height__"), self.reader.column("__width__")
