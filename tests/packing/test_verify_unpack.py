"""verify finds what is wrong, and where; unpack gives the stored bytes back as files and trusts no name."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, stored_samples, tree
from PIL import Image

from fastload.errors import DatasetError, PackError
from fastload.packing import pack, unpack, verify
from fastload.store import DatasetWriter, Field, Manifest, Schema
from fastload.unpacking.layouts import safe_name


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Thirty photos in several shards, one of them a PNG."""
    files = {f"c{i % 3}/{i:04d}.jpg": encoded(picture(i, 200, 160), quality=95) for i in range(60)}
    files["c1/zzzz.jpg"] = encoded(picture(1, 11, 13), "PNG")
    pack(tree(tmp_path / "src", files), tmp_path / "ds", shard_size=1 << 20)
    return tmp_path / "ds"


class TestVerify:
    @pytest.mark.parametrize("decode", [False, True])
    def test_a_good_dataset(self, dataset: Path, decode: bool) -> None:
        """Nothing to say."""
        report = verify(dataset, decode=decode)
        assert report.ok
        assert report.shards > 1
        assert (report.samples, report.decoded) == (61, decode)

    def test_a_flipped_byte_in_a_record(self, dataset: Path) -> None:
        """The file is named, and the one sample whose bytes changed."""
        victim = stored_samples(dataset)[20]
        shard = next(s for s in Manifest.load(dataset).shards if s.first <= 20 < s.first + s.count)
        path = dataset / shard.file
        data = bytearray(path.read_bytes())
        data[data.index(victim.data) + len(victim.data) // 2] ^= 0x10
        path.write_bytes(data)
        report = verify(dataset)
        assert [(bad.index, bad.shard) for bad in report.bad] == [(20, shard.file)]
        assert len(report.problems) == 1
        assert shard.file in report.problems[0]

    def test_a_flipped_byte_anywhere_is_found(self, dataset: Path) -> None:
        """Whatever byte of a shard changes, the report is not clean, and verify does not crash."""
        path = dataset / Manifest.load(dataset).shards[0].file
        good = path.read_bytes()
        rng = np.random.default_rng(5)
        for at in (*rng.integers(0, len(good), 25), 0, 40, 4096 + 40):
            data = bytearray(good)
            data[at] ^= 0xFF
            path.write_bytes(data)
            assert not verify(dataset).ok, f"byte {at}"
        path.write_bytes(good)
        assert verify(dataset).ok

    def test_missing_and_truncated_shards(self, dataset: Path) -> None:
        """Each file that is gone or short is named."""
        shards = Manifest.load(dataset).shards
        (dataset / shards[0].file).unlink()
        os.truncate(dataset / shards[1].file, 5000)
        text = " ".join(verify(dataset).problems)
        assert shards[0].file in text
        assert shards[1].file in text

    def test_no_dataset(self, tmp_path: Path) -> None:
        """That is an error, not a report."""
        with pytest.raises(DatasetError, match="there is no"):
            verify(tmp_path / "gone")

    def test_an_image_that_is_not_what_the_columns_say(self, tmp_path: Path) -> None:
        """A dataset that some other writer made: sizes, kinds and pictures are checked, not believed."""
        schema = Schema((Field("image", "image"), Field("label", "int")))
        good = encoded(picture(1, 200, 300))
        writer = DatasetWriter(tmp_path / "ds", schema, shard_size=1 << 20, options={})
        writer.append({"image": good, "label": 0}, image_kind="jpeg", height=200, width=300)
        writer.append({"image": good, "label": 0}, image_kind="jpeg", height=300, width=200)
        writer.append({"image": good[: len(good) // 2], "label": 0}, image_kind="jpeg", height=200, width=300)
        writer.append({"image": b"text", "label": 0}, image_kind="jpeg", height=200, width=300)
        writer.finish(None, {})
        assert [bad.index for bad in verify(tmp_path / "ds").bad] == [1, 3]
        assert [bad.index for bad in verify(tmp_path / "ds", decode=True).bad] == [1, 2, 3]


class TestUnpack:
    def test_stored_bytes_come_back(self, dataset: Path, tmp_path: Path) -> None:
        """Files in class folders, in order, with the stored bytes; raw pixels as PNG; packing them again
        gives the same."""
        summary = unpack(dataset, tmp_path / "files")
        stored = stored_samples(dataset)
        for index, sample in enumerate(stored):
            stem = tmp_path / "files" / f"c{int(sample.values['label'])}" / f"{index:08d}"
            if sample.kind == 1:
                assert stem.with_suffix(".jpg").read_bytes() == sample.data
            else:
                assert (np.asarray(Image.open(stem.with_suffix(".png"))) == sample.pixels).all()
        assert (summary.files, summary.folders) == (61, 3)
        assert {path.name for path in (tmp_path / "files").iterdir()} == {"c0", "c1", "c2"}
        pack(tmp_path / "files", tmp_path / "again")
        assert [s.data for s in stored_samples(tmp_path / "again")] == [s.data for s in stored]

    def test_other_fields(self, tmp_path: Path) -> None:
        """One JSON line a sample."""
        row = {
            "image": picture(1, 8, 8),
            "label": "x",
            "a": np.arange(2.0),
            "b": b"\0\1",
            "j": {"k": None},
            "f": 0.5,
        }

        class One:
            def __len__(self) -> int:
                return 1

            def __getitem__(self, index: int) -> Any:
                return row

        pack(One(), tmp_path / "ds", encode="jpeg")
        unpack(tmp_path / "ds", tmp_path / "files")
        line = json.loads((tmp_path / "files" / "fields.jsonl").read_text(encoding="utf-8"))
        assert line == {
            "path": "00000000.jpg", "label": "x", "a": [0.0, 1.0], "b": base64.b64encode(b"\0\1").decode(),
            "j": {"k": None}, "f": 0.5,
        }  # fmt: skip

    def test_hostile_class_names_stay_inside(self, tmp_path: Path) -> None:
        """Names that climb, hide, collide or are too long become plain, different folders below the
        target."""
        names = [
            "../../up",
            "/etc",
            "..",
            ".",
            "",
            "a/b",
            "A/B",
            "a_b",
            "x" * 500,
            "nul\0",
            "fields.jsonl",
            "con. ",
        ]
        schema = Schema((Field("image", "image"), Field("label", "int")))
        writer = DatasetWriter(tmp_path / "ds", schema, shard_size=1 << 20, options={})
        for label in range(len(names) + 1):
            writer.append(
                {"image": encoded(picture(1, 8, 8)), "label": label}, image_kind="jpeg", height=8, width=8
            )
        writer.finish(names, {})
        target = tmp_path / "deep" / "er" / "files"
        unpack(tmp_path / "ds", target)
        assert len([path for path in target.iterdir() if path.is_dir()]) == len(names) + 1
        assert len(list(target.glob("*/*.jpg"))) == len(names) + 1
        assert len(list(tmp_path.rglob("*.jpg"))) == len(names) + 1

    @pytest.mark.parametrize("name", ["..", ".", "", "a/../b", "\\x", "x" * 300, "é" * 200, " . ", "\ud800"])
    def test_safe_name_is_one_plain_part(self, name: str) -> None:
        """Never empty, never with a separator, never more than a file system takes."""
        safe = safe_name(name)
        assert safe.strip(" .")
        assert not set(safe) & set("/\\\0")
        assert len(os.fsencode(safe)) <= 255

    def test_a_folder_in_use_is_refused(self, dataset: Path, tmp_path: Path) -> None:
        """Nothing is written among other files."""
        tree(tmp_path / "files", {"mine.txt": b""})
        with pytest.raises(PackError, match="not empty"):
            unpack(dataset, tmp_path / "files")
        with pytest.raises(PackError, match="in the way"):
            unpack(dataset, tmp_path / "files" / "mine.txt")
