"""Datasets of another writer whose checksums hold and whose contents do not: each failure is a SampleError
that obeys on_error."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pictures import photo

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload._native import core
from fastload.errors import DatasetError, SampleError
from fastload.packing import unpack, verify
from fastload.store import DatasetWriter, Field, Prepared, Schema

SCHEMA = Schema(
    (Field("image", "image"), Field("label", "int"), Field("caption", "text"), Field("meta", "json"))
)
COUNT, BAD = 12, 5


def jpeg(seed: int, width: int = 48, **options: Any) -> bytes:
    out = io.BytesIO()
    photo(seed, 40, width).save(out, "JPEG", **options)
    return out.getvalue()


def dataset(
    out: Path, entries: dict[int, tuple[int, bytes]] | None = None, size: tuple[int, int] = (40, 48)
) -> Path:
    """Twelve samples. Sample 5 has these entries in place of its own (None: only its image), and says that
    it is of this size."""
    with DatasetWriter(out, SCHEMA, shard_size=1 << 30, options={}) as writer:
        for i in range(COUNT):
            own = {2: (core.KIND_TEXT, b"words"), 3: (core.KIND_JSON, b"[1]")}
            if i == BAD:
                own = {} if entries is None else own | entries
            height, width = size if i == BAD else (40, 48)
            image = jpeg(i, 48 if (height, width) == (40, 48) else 30)
            record, crc = core.build_record(
                [(0, core.KIND_JPEG, image), *((number, *entry) for number, entry in own.items())]
            )
            writer.append_prepared(Prepared(record, crc, [i], height, width))
        writer.finish(None, {})
    return out


FIELDS: dict[str, dict[int, tuple[int, bytes]] | None] = {
    "text that is not UTF-8": {2: (core.KIND_TEXT, b"\xff\xfe\xfa")},
    "JSON that is not UTF-8": {3: (core.KIND_JSON, b'"\xff"')},
    "JSON that is none": {3: (core.KIND_JSON, b"{]")},
    "JSON of a thousand brackets": {3: (core.KIND_JSON, b"[" * 100_000)},
    "JSON of a number without end": {3: (core.KIND_JSON, b"1" * 100_000)},
    "no fields but the image": None,
}
SIZES = {
    "height -1": (-1, 48),
    "height 0": (0, 48),
    "sides of 60,000": (60000, 60000),
    "a side of 2^31 - 1": (2**31 - 1, 2**31 - 1),
}
ENGINES: dict[str, Callable[[], dict[str, Any]]] = {
    "native": lambda: {"num_workers": 2},
    "step in the caller": lambda: {"num_workers": 0, "transform": [T.CenterCrop(32), lambda image: image]},
    "step in processes": lambda: {"num_workers": 1, "transform": [T.CenterCrop(32), lambda image: image]},
}


def labels_of(path: Path, on_error: str, engine: str, transform: Any = None) -> list[int]:
    options = ENGINES[engine]()
    data = PackedDataset(path, transform=options.pop("transform", transform))
    with FastLoader(data, batch_size=4, on_error=on_error, seed=0, **options) as loader:
        return [label for batch in loader for label in batch["label"].tolist()]


def check(path: Path, engine: str, transform: Any = None) -> None:
    """raise names sample and dataset, skip leaves the one sample out, replace puts another in its place."""
    with pytest.raises(SampleError, match=f"sample {BAD} of ") as caught:
        labels_of(path, "raise", engine, transform)
    assert str(path) in str(caught.value)
    good = [i for i in range(COUNT) if i != BAD]
    assert labels_of(path, "skip", engine, transform) == good
    replaced = labels_of(path, "replace", engine, transform)
    assert len(replaced) == COUNT
    assert replaced.pop(BAD) != BAD
    assert replaced == good


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "name", ["text that is not UTF-8", "JSON of a thousand brackets", "no fields but the image"]
)
def test_bad_fields_obey_on_error(tmp_path: Path, name: str, engine: str) -> None:
    """A field that cannot be read is the sample's error on every engine."""
    check(dataset(tmp_path / "d.fl", FIELDS[name]), engine, T.CenterCrop(32))


@pytest.mark.parametrize("name", FIELDS)
def test_bad_fields_one_by_one(tmp_path: Path, name: str) -> None:
    """ds[i] and unpack raise SampleErrors that name the sample; verify lists it, and nothing else."""
    path = dataset(tmp_path / "d.fl", FIELDS[name])
    data = PackedDataset(path)
    assert data[BAD - 1]["meta"] == [1]
    with pytest.raises(SampleError, match=f"sample {BAD} of .*field") as caught:
        data[BAD]
    assert (caught.value.index, caught.value.shard) == (BAD, "shard-00000.lmdb")
    with pytest.raises(SampleError, match=f"sample {BAD} of .*field"):
        unpack(path, tmp_path / "out")
    assert [bad.index for bad in verify(path).bad] == [BAD]


@pytest.mark.parametrize("engine", ENGINES)
def test_bad_sizes_obey_on_error(tmp_path: Path, engine: str) -> None:
    """Columns that claim an impossible or huge size are the sample's error, with a transform that goes by
    them and without one."""
    options = ENGINES[engine]()
    path = dataset(tmp_path / "d.fl", {}, SIZES["sides of 60,000"])
    transform = [T.RandomHorizontalFlip(), *options.get("transform", [])[1:]]
    for on_error, expected in (("skip", [i for i in range(COUNT) if i != BAD]), ("raise", None)):
        data = PackedDataset(path, transform=transform)
        with FastLoader(data, batch_size=4, on_error=on_error, num_workers=options["num_workers"]) as loader:
            if expected is None:
                with pytest.raises(SampleError, match=f"sample {BAD} of "):
                    list(loader)
            else:
                assert [label for batch in loader for label in batch["label"].tolist()] == expected


@pytest.mark.parametrize("name", SIZES)
def test_bad_sizes_one_by_one(tmp_path: Path, name: str) -> None:
    """ds[i] refuses the size before memory is made for it; verify lists the sample."""
    path = dataset(tmp_path / "d.fl", {}, SIZES[name])
    with pytest.raises(SampleError, match=f"sample {BAD} of .*pixels"):
        PackedDataset(path)[BAD]
    assert [bad.index for bad in verify(path).bad] == [BAD]
    check(path, "native")


def test_what_a_transform_would_make_is_limited(tmp_path: Path) -> None:
    """A long thin image within the limit, scaled up to one beyond it, is refused before memory is made for
    it."""
    path = dataset(tmp_path / "d.fl", {}, (60_000, 1))
    with pytest.raises(SampleError, match=f"sample {BAD} of .*transform makes"):
        PackedDataset(path, transform=T.Resize(256))[BAD]


def test_progressive_coefficients_are_limited() -> None:
    """libjpeg keeps all coefficients of a file of several scans: over 512 MiB of them are refused before,
    however small the box."""
    data = bytearray(jpeg(1, progressive=True, subsampling=0))
    at = data.index(b"\xff\xc2")
    assert core.jpeg_decode(bytes(data), (0, 0, 8, 8)).shape == (8, 8, 3)
    data[at + 5 : at + 9] = (12_000).to_bytes(2, "big") + (12_000).to_bytes(2, "big")
    for refused in (
        lambda: core.jpeg_decode(bytes(data), (0, 0, 8, 8)),
        lambda: core.jpeg_check(bytes(data)),
    ):
        with pytest.raises(SampleError, match="several scans, whose coefficients need 823 MiB"):
            refused()


def test_a_corrupt_shard_is_still_a_dataset_error(tmp_path: Path) -> None:
    """What concerns the whole file is no sample's error."""
    path = dataset(tmp_path / "d.fl", {})
    (path / "shard-00000.lmdb").write_bytes(b"")
    with pytest.raises(DatasetError):
        PackedDataset(path)
