"""A kind of field that only this file knows: one class, registered, is packed, read, verified, queried,
written as files and loaded."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kind_tests import OWN, places

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import PackStoppedError
from fastload.packing import Item, open_source, unpack, verify
from fastload.store import DatasetReader, Field
from fastload.store.kinds import KINDS
from fastload.store.kinds.base import FieldKind, SampleFacts, SampleParts, refuse, wrong

COUNT = 5
SIZE = 16
MOST = 11
"""Lines that tools/kind_tests.py counts today."""


class ComplexKind(FieldKind):
    """Complex numbers: two floats of 64 bits in the record."""

    name = "complex"

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        if not isinstance(value, complex):
            raise refuse(field, value, "it is no complex number")
        parts.entries.append((number, self.entry, np.array([value]).tobytes()))

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> complex:
        if len(data) != SIZE:
            raise wrong(f"field {field.name!r} has {len(data)} bytes, a complex number {SIZE}")
        return complex(np.frombuffer(data, np.complex128)[0])

    def to_json(self, value: Any) -> Any:
        return [value.real, value.imag]

    def from_json(self, field: Field, value: Any) -> Any:
        return complex(*value)

    def arrow_value(self, value: Any) -> Any:
        return np.array([value]).tobytes()

    def from_exported(self, field: Field, value: Any) -> Any:
        return complex(np.frombuffer(value, np.complex128)[0])


class Numbers:
    """A source of images, each with a complex number."""

    title, classes, concurrent = "numbers", None, True
    fields = (Field("label", "int"),)

    def __init__(self, wrong: Any = None) -> None:
        self.fields = (Field("label", "int"), Field("z", "complex"))  # type: ignore[arg-type]
        self._wrong = wrong

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return str(position)

    def read(self, position: int) -> Item:
        value = complex(position, -1.5) if self._wrong is None else self._wrong
        return Item(str(position), np.full((8, 9, 3), position, np.uint8), {"label": position, "z": value})  # type: ignore[dict-item]


WANTED = [complex(position, -1.5) for position in range(COUNT)]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is known in this file's tests."""
    monkeypatch.setitem(KINDS, "complex", ComplexKind())


@pytest.fixture
def folder(tmp_path: Path, registered: None) -> Path:
    """A dataset of Numbers."""
    fastload.pack(Numbers(), tmp_path / "d")
    return tmp_path / "d"


def values(folder: Path) -> list[Any]:
    """The numbers of a dataset."""
    with DatasetReader(folder) as reader:
        return [reader.stored_values(index, ["z"])["z"] for index in range(len(reader))]


def test_stored(folder: Path) -> None:
    """Values come back as they were packed, verify finds nothing, and what the class refuses is the
    sample's error."""
    assert values(folder) == WANTED
    assert verify(folder, decode=True).ok
    with pytest.raises(
        PackStoppedError, match=r"0: field 'z' \(complex\) cannot hold 'x': it is no complex number"
    ):
        fastload.pack(Numbers("x"), folder.parent / "other")


def test_verified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verify names each sample whose bytes the class does not take."""
    monkeypatch.setattr(f"{__name__}.SIZE", 8)
    assert [bad.reason for bad in verify(folder).bad] == [
        "field 'z' has 16 bytes, a complex number 8"
    ] * COUNT


@pytest.mark.parametrize(
    "steps", [[T.CenterCrop(4)], [T.CenterCrop(4), lambda sample: sample]], ids=["threads", "python"]
)
def test_loaded(folder: Path, steps: list[Any]) -> None:
    """Every engine delivers it, alone and in batches of each form."""
    dataset = PackedDataset(folder, steps)
    assert [dataset[index]["z"] for index in range(COUNT)] == WANTED
    for collate in ("flat", "padded", "list"):
        batches = list(FastLoader(dataset, batch_size=2, num_workers=1, collate=collate))  # type: ignore[arg-type]
        found = [
            each
            for batch in batches
            for each in (batch["z"] if isinstance(batch, dict) else [sample["z"] for sample in batch])
        ]
        assert found == WANTED


def test_versions(folder: Path) -> None:
    """Samples are appended, dropped and joined with it."""
    fastload.append(folder, Numbers())
    fastload.drop(folder, indices=[0])
    assert values(folder) == [*WANTED[1:], *WANTED]
    fastload.concat([folder, folder], folder.parent / "both")
    assert len(values(folder.parent / "both")) == 4 * COUNT - 2


def test_files(folder: Path) -> None:
    """A folder, a tar and a Parquet file hold it, and give datasets of the same values; a table has its
    bytes."""
    pytest.importorskip("pyarrow")
    out = folder.parent
    unpack(folder, out / "unpacked")
    fastload.export(folder, out / "d.tar")
    fastload.export(folder, out / "d.parquet")
    with tarfile.open(out / "d.tar") as tar:
        assert '"z": [0.0, -1.5]' in tar.extractfile("00000000.json").read().decode()  # type: ignore[union-attr]
    for name in ("unpacked", "d.tar", "d.parquet"):
        source = open_source(out / name)
        assert [field.kind for field in source.fields] == ["int", "complex"]
        fastload.pack(out / name, out / f"{name}.fl")
        assert values(out / f"{name}.fl") == WANTED
    table = PackedDataset(folder, fields=["z"]).table()
    assert table.column("z").to_pylist() == [np.array([each]).tobytes() for each in WANTED]


def test_nobody_else_asks() -> None:
    """Only store/kinds tells a field's kind, or an image's codec, by its name; lines that are left ask for
    other kinds."""
    package = Path(fastload.__file__).parent
    found = {
        path.relative_to(package): len(list(places(path)))
        for path in package.rglob("*.py")
        if OWN not in str(path)
    }
    assert sum(found.values()) <= MOST, {path: count for path, count in found.items() if count}
