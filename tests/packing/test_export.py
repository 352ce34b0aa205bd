"""export gives a dataset back: what it writes is read by webdataset, pyarrow and pack, and is never half a
file."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from packing_helpers import encoded, picture, stored_samples
from PIL import Image

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.packing import export, pack
from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema

COUNT = 60


class Everything:
    """Samples with every kind of field; JPEGs and raw images in turn."""

    classes = ("cat", "d/og", "\u732b")

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = picture(index, 20 + index % 5, 30)
        return {
            "image": np.asarray(image) if index % 3 == 0 else encoded(image, quality=90),
            "label": index % 3,
            "weight": [index / 7, float("nan"), float("inf")][index % 3],
            "box": (np.arange(6, dtype=np.int16) * index).reshape(2, 3),
            "half": np.array([index / 2], np.float16),
            "flags": np.array([index % 2 == 0, True]),
            "caption": f"Bild {index} \u00fc\u732b",
            "meta": {"n": index, "list": [1.5, None, "\u00e9"]},
            "raw": bytes([index, 0, 255]),
        }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "all.fl"
    pack(Everything(), out, shard_size=1 << 20)
    return out


class TestTar:
    def test_round_trip(self, dataset: Path, tmp_path: Path) -> None:
        """pack, export, pack: equal pixels and fields, and stored JPEGs to the byte; other programs find
        one object of them."""
        summary = export(dataset, tmp_path / "out.tar")
        assert (summary.samples, summary.skipped) == (COUNT, ())
        assert summary.bytes == (tmp_path / "out.tar").stat().st_size
        pack(tmp_path / "out.tar", tmp_path / "again.fl", encode="keep")
        first, again = PackedDataset(dataset), PackedDataset(tmp_path / "again.fl")
        assert again.column("label").tolist() == first.column("label").tolist()
        for index, (one, other) in enumerate(
            zip(stored_samples(dataset), stored_samples(tmp_path / "again.fl"), strict=True)
        ):
            assert np.array_equal(one.pixels, other.pixels)
            assert one.kind != 1 or one.data == other.data
            assert all(
                np.array_equal(other.values[name], value)
                for name, value in one.values.items()
                if name != "weight"
            ), index
            weight = Everything()[index]["weight"]
            assert np.array_equal(
                other.values["weight"], weight if np.isfinite(weight) else np.nan, equal_nan=True
            )
        with tarfile.open(tmp_path / "out.tar") as tar:
            member = tar.extractfile("00000001.json")
            assert member is not None
            assert json.load(member) == {
                "weight": None, "box": [[0, 1, 2], [3, 4, 5]], "half": [0.5], "flags": [False, True],
                "caption": "Bild 1 \u00fc\u732b",
                "meta": {"n": 1, "list": [1.5, None, "\u00e9"]}, "raw": "AQD/",
            }  # fmt: skip

    def test_webdataset_reads_it(self, dataset: Path, tmp_path: Path) -> None:
        """Every sample, in order, decoded by webdataset itself."""
        code = """if True:
            import json, sys
            import webdataset as wds
            for sample in wds.WebDataset(sys.argv[1], shardshuffle=False).decode("rgb8"):
                image = sample["jpg"] if "jpg" in sample else sample["png"]
                print(json.dumps([sample["__key__"], image.shape, int(image.astype(int).sum()),
                    sample["cls"], sample["json"]["caption"]]))
        """
        pytest.importorskip("webdataset")
        export(dataset, tmp_path / "out.tar")
        done = warm.run(code, tmp_path / "out.tar")
        assert done.returncode == 0, done.stderr
        stored = stored_samples(dataset)
        expected = [
            [
                f"{i:08d}",
                list(s.pixels.shape),
                int(s.pixels.astype(int).sum()),
                i % 3,
                f"Bild {i} \u00fc\u732b",
            ]
            for i, s in enumerate(stored)
        ]
        assert [json.loads(line) for line in done.stdout.splitlines()] == expected

    def test_an_image_and_a_label(self, tmp_path: Path) -> None:
        """Without other fields there is no .json; raw pixels are PNG."""

        class Pairs:
            def __len__(self) -> int:
                return 2

            def __getitem__(self, index: int) -> Any:
                return np.full((4, 5, 3), 100 * index, np.uint8), index

        pack(Pairs(), tmp_path / "pairs.fl", encode="raw")
        export(tmp_path / "pairs.fl", tmp_path / "pairs.tar")
        with tarfile.open(tmp_path / "pairs.tar") as tar:
            assert tar.getnames() == ["00000000.png", "00000000.cls", "00000001.png", "00000001.cls"]
            member = tar.extractfile("00000001.png")
            assert member is not None
            assert (np.asarray(Image.open(io.BytesIO(member.read()))) == 100).all()


class TestParquet:
    def test_round_trip(self, dataset: Path, tmp_path: Path) -> None:
        """Types and values are those of the fields, images those that are stored; packed again, all is
        equal."""
        parquet = pytest.importorskip("pyarrow.parquet")
        summary = export(dataset, tmp_path / "out.parquet")
        assert summary.samples == COUNT
        table = parquet.read_table(tmp_path / "out.parquet")
        # Which of the names depends on pyarrow's version.
        kinds = [str(kind).replace("element:", "item:") for kind in table.schema.types]
        assert dict(zip(table.schema.names, kinds, strict=True)) == {
            "image": "binary", "label": "int64", "weight": "double",
            "box": "fixed_size_list<item: fixed_size_list<item: int16>[3]>[2]",
            "half": "fixed_size_list<item: halffloat>[1]", "flags": "fixed_size_list<item: bool>[2]",
            "caption": "string",
            "meta": "string", "raw": "binary",
        }  # fmt: skip
        assert json.loads(table.schema.metadata[b"fastload.classes"]) == list(Everything.classes)
        rows = table.to_pylist()
        for index, row in enumerate(rows):
            given = Everything()[index]
            assert np.array_equal(row["weight"], given["weight"], equal_nan=True)
            assert json.loads(row["meta"]) == given["meta"]
            assert all(
                np.array_equal(row[name], given[name])
                for name in ("label", "box", "half", "flags", "caption", "raw")
            )

        class Rows:
            classes = Everything.classes

            def __len__(self) -> int:
                return len(rows)

            def __getitem__(self, index: int) -> Any:
                row = rows[index]
                arrays = {
                    "box": np.array(row["box"], np.int16),
                    "half": np.array(row["half"], np.float16),
                    "flags": np.array(row["flags"]),
                }
                return row | arrays | {"meta": json.loads(row["meta"])}

        pack(Rows(), tmp_path / "again.fl")
        for one, other in zip(stored_samples(dataset), stored_samples(tmp_path / "again.fl"), strict=True):
            assert np.array_equal(one.pixels, other.pixels)
            for name, value in one.values.items():
                assert np.array_equal(value, other.values[name], equal_nan=name == "weight"), name

    def test_row_groups(self, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is written at once is bounded by bytes."""
        parquet = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr(sys.modules["fastload.unpacking.export"], "_ROW_GROUP_BYTES", 20_000)
        export(dataset, tmp_path / "out.parquet", workers=3)
        file = parquet.ParquetFile(tmp_path / "out.parquet")
        assert file.num_row_groups > 3
        assert [row["label"] for row in file.read(["label"]).to_pylist()] == [
            index % 3 for index in range(COUNT)
        ]


# ---- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tar", "parquet"])
class TestFile:
    def test_nothing_is_overwritten(self, dataset: Path, tmp_path: Path, suffix: str) -> None:
        """What is there stays, unless overwrite says otherwise; a folder stays in any case."""
        out = tmp_path / f"out.{suffix}"
        out.write_text("mine")
        with pytest.raises(PackError, match=r"is there already.*--overwrite"):
            export(dataset, out)
        assert out.read_text() == "mine"
        assert export(dataset, out, overwrite=True).samples == COUNT
        assert os.listdir(tmp_path) == [out.name]
        (tmp_path / f"folder.{suffix}").mkdir()
        with pytest.raises(PackError, match="is a folder"):
            export(dataset, tmp_path / f"folder.{suffix}", overwrite=True)

    def test_a_full_disk(self, dataset: Path, tmp_path: Path, suffix: str, small_files: None) -> None:
        """The error names the file; neither half of it nor a temporary one stays, and what was there does."""
        out = tmp_path / f"out.{suffix}"
        out.write_text("mine")
        with pytest.raises(PackError, match=rf"out\.{suffix}: cannot be written: File too large"):
            export(dataset, out, overwrite=True)
        assert out.read_text() == "mine"
        assert os.listdir(tmp_path) == [out.name]

    def test_a_folder_that_is_not_there(self, dataset: Path, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(PackError, match="cannot be written: No such file"):
            export(dataset, tmp_path / "gone" / f"out.{suffix}")

    def test_damaged_samples(self, tmp_path: Path, suffix: str) -> None:
        """Stops at the first and names it, or leaves them out and names all; keys are indices of the
        dataset."""
        pack(Everything(), tmp_path / "all.fl", limit=30)
        shard = tmp_path / "all.fl" / Manifest.load(tmp_path / "all.fl").shards[0].file
        data = bytearray(shard.read_bytes())
        for n in (7, 20):
            data[data.index(b'"n":%d,' % n) + 2] ^= 1
        shard.write_bytes(data)
        out = tmp_path / f"out.{suffix}"
        with pytest.raises(SampleError, match=r"sample 7 of ") as caught:
            export(tmp_path / "all.fl", out)
        assert caught.value.index == 7
        assert sorted(os.listdir(tmp_path)) == ["all.fl"]
        summary = export(tmp_path / "all.fl", out, on_error="skip")
        assert summary.samples == 28
        assert [bad.index for bad in summary.skipped] == [7, 20]
        assert all(bad.reason and bad.shard == "shard-00000.lmdb" for bad in summary.skipped)
        if suffix == "tar":
            with tarfile.open(out) as tar:
                assert sorted({int(name.partition(".")[0]) for name in tar.getnames()}) == [
                    i for i in range(30) if i not in (7, 20)
                ]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process end at 20 kB, as a disk that fills up does; Python ignores the signal that
    comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_arguments(dataset: Path, tmp_path: Path) -> None:
    """Each wrong argument is named before anything is written."""
    for out in ("out.zip", "out", "out.tar.gz"):
        with pytest.raises(ArgumentError, match=r"export writes \.tar .* and \.parquet"):
            export(dataset, tmp_path / out)
    with pytest.raises(ArgumentError, match="on_error='replace' is none of raise, skip"):
        export(dataset, tmp_path / "out.tar", on_error="replace")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="workers=0"):
        export(dataset, tmp_path / "out.tar", workers=0)
    with pytest.raises(DatasetError):
        export(tmp_path / "gone", tmp_path / "out.tar")
    assert os.listdir(tmp_path) == []
    assert fastload.export is export


def test_a_foreign_dataset(tmp_path: Path) -> None:
    """An image whose header contradicts its bytes is a bad sample, with its name."""
    schema = Schema((Field("image", "image"), Field("label", "int")))
    writer = DatasetWriter(tmp_path / "ds", schema, shard_size=1 << 20, options={})
    writer.append({"image": b"\0" * 12, "label": 0}, image_kind="raw", height=2, width=2)
    writer.finish(["a"], {})
    with DatasetReader(tmp_path / "ds") as reader:
        assert reader.count == 1
    assert export(tmp_path / "ds", tmp_path / "out.TAR").samples == 1


def test_the_command(dataset: Path, tmp_path: Path) -> None:
    """One line on stdout; an error is one line on stderr."""
    run = partial(warm.fastload, "export")
    done = run(dataset, tmp_path / "out.tar", "-q", "--workers", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{COUNT} samples, ")
    done = run(dataset, tmp_path / "out.tar")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert run(dataset, tmp_path / "out.tar", "--overwrite").returncode == 0


def test_the_chosen_samples(dataset: Path, tmp_path: Path) -> None:
    """where= writes what `PackedDataset.where` finds, under the same numbers; a condition that is true for
    none writes nothing."""
    found = PackedDataset(dataset).where("label = 2 and caption like '%5%'")
    assert (
        export(dataset, tmp_path / "some.tar", where="label = 2 and caption like '%5%'").samples
        == len(found)
        > 0
    )
    with tarfile.open(tmp_path / "some.tar") as tar:
        assert sorted({int(name.partition(".")[0]) for name in tar.getnames()}) == list(found.indices)
    with pytest.raises(ArgumentError, match="is true for no sample"):
        export(dataset, tmp_path / "none.tar", where="label = 9")
    with pytest.raises(ArgumentError, match="labl"):
        export(dataset, tmp_path / "none.tar", where="labl = 9")
    assert not (tmp_path / "none.tar").exists()
