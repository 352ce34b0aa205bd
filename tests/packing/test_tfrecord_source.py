"""TFRecord sources, written by hand here: which field a value becomes, and what is refused, with the
reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from record_helpers import JPEGS, kinds, values
from test_places import bytes_at_places
from tfrecord_maker import example, sized, tfrecord

from fastload.errors import PackError
from fastload.packing import open_source, pack


class TestTFRecord:
    def test_kinds_follow_from_all_surveyed_records(self, tmp_path: Path) -> None:
        """One number is a number, several of the same count an array, a varying count JSON; bytes are text
        where all are UTF-8."""
        records = [
            example(
                image=[JPEGS[n]],
                label=[n],
                w=[n / 2],
                box=[0.5, float(n)],
                ids=[1, -n],
                tags=[b"a"] * n,
                more=[1] * n,
                t=[b"x"],
                b=[b"\xff"],
            )
            for n in range(3)
        ]
        source = open_source(tfrecord(tmp_path / "x.tfrecord", *records))
        assert kinds(source) == {
            "label": "int", "w": "float", "box": "array", "ids": "array", "tags": "json", "more": "json",
            "t": "text", "b": "bytes",
        }  # fmt: skip
        found = source.read(2).values
        assert (found["label"], found["w"], found["tags"], found["more"], found["t"], found["b"]) == (
            2,
            1.0,
            ["a", "a"],
            [1, 1],
            "x",
            b"\xff",
        )
        assert found["ids"].tolist() == [1, -2]
        assert found["box"].dtype == np.float32
        assert bytes_at_places(source) == JPEGS[:3]

    def test_lists_that_are_not_packed(self, tmp_path: Path) -> None:
        """Both forms that protocol buffers have for a list of numbers give the same values."""
        both = [
            example(packed, image=[JPEGS[0]], ids=[3, -1, 2**63 - 1], w=[0.5, 2.0])
            for packed in (True, False)
        ]
        first, second = values(open_source(tfrecord(tmp_path / "x.tfrecord", *both)))
        assert first["ids"].tolist() == second["ids"].tolist() == [3, -1, 2**63 - 1]
        assert first["w"].tolist() == second["w"].tolist() == [0.5, 2.0]

    @pytest.mark.parametrize(
        ("names", "image", "label"),
        [
            (("image/encoded", "image/class/label"), "image/encoded", "image/class/label"),
            (("image", "label", "image/class/label"), "image", "label"),
            (("photo", "target"), "photo", "target"),
        ],
    )
    def test_the_usual_names(self, tmp_path: Path, names: tuple[str, ...], image: str, label: str) -> None:
        """The image is found by a usual name or by being the only picture; the label by a usual name."""
        records = [
            example(**{name: [JPEGS[n]] if name == image else [n + (name == label)] for name in names})
            for n in range(3)
        ]
        source = open_source(tfrecord(tmp_path / "train-00000-of-00001", *records))
        assert [each["label"] for each in values(source)] == [1, 2, 3]
        assert bytes_at_places(source) == JPEGS[:3]

    def test_one_records_fault_is_its_own(self, tmp_path: Path) -> None:
        """A damaged record, one without image, and one with another feature are left out by name."""
        records = [example(image=[JPEGS[0]], label=[n]) for n in range(300)]
        records[4] = example(label=[1])
        records[7] = example(image=[JPEGS[0]], label=[1], odd=[1])
        records[8] = example(image=[JPEGS[0]], label=[1, 2])
        path = tfrecord(tmp_path / "x.tfrecord", *records)
        data = bytearray(path.read_bytes())
        data[40] ^= 1  # in the data of record 0
        path.write_bytes(data)
        summary = pack(path, tmp_path / "out", on_error="skip")
        assert [name for name, _ in summary.skipped] == [f"{path}: record {n}" for n in (0, 4, 7, 8)]
        reasons = " | ".join(reason for _, reason in summary.skipped)
        for part in (
            "checksum does not match",
            "0 values of 'image'",
            "the feature 'odd'",
            "2 values of 'label'",
        ):
            assert part in reasons

    def test_many_files_and_patterns(self, tmp_path: Path) -> None:
        """A pattern, a list and a folder give the records of all files in order."""
        for n in range(3):
            tfrecord(
                tmp_path / f"a-{n:05d}-of-00003",
                *(example(image=[JPEGS[n]], label=[10 * n + m]) for m in range(2)),
            )
        paths = sorted(map(str, tmp_path.iterdir()))
        for given in (tmp_path, f"{tmp_path}/a-*", f"{tmp_path}/a-{{00000..00002}}-of-00003", paths):
            source = open_source(given)
            assert [each["label"] for each in values(source)] == [0, 1, 10, 11, 20, 21]
        tfrecord(tmp_path / "b-00000-of-00001", example(image=[JPEGS[0]]))
        with pytest.raises(PackError, match=r"several sets \(a, b\)"):
            open_source(tmp_path)

    def test_class_names(self, tmp_path: Path) -> None:
        """TensorFlow Datasets writes them beside the files."""
        path = tfrecord(
            tmp_path / "x-train.tfrecord-00000-of-00001",
            *(example(image=[JPEGS[n]], label=[n]) for n in range(2)),
        )
        assert open_source(path).classes is None
        (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
        (tmp_path / "features.json").write_text("{}")
        assert open_source(tmp_path).classes == ("cat", "dog")

    def test_more_files_than_may_be_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files are closed and opened again beyond a limit."""
        monkeypatch.setattr("fastload.sources.protocol._OPEN_MOST", 2)
        for n in range(6):
            tfrecord(tmp_path / f"{n}.tfrecord", example(image=[JPEGS[n]]))
        assert bytes_at_places(open_source(tmp_path)) == JPEGS

    def test_compressed_ones(self, tmp_path: Path) -> None:
        """They cannot be read at any position: said so, by name and by content."""
        path = tfrecord(tmp_path / "x.tfrecord", example(image=[JPEGS[0]]))
        packed = gzip.compress(path.read_bytes())
        for name in ("y.tfrecord", "y.tfrecord.gz", "train-00000-of-00001.gz"):
            (tmp_path / name).write_bytes(packed)
            with pytest.raises(PackError, match=r"a compressed TFRecord file .* unpack it"):
                open_source(tmp_path / name)

    @pytest.mark.parametrize(
        ("record", "message"),
        [
            (b"", "can be the image"),
            (example(label=[1]), "can be the image"),
            (example(image=[bytes(3072)], label=[1]), "none of image, label is a picture's file"),
            (example(image=[JPEGS[0]]) + sized(2, b""), "SequenceExample"),
            (example(a=[JPEGS[0]], b=[JPEGS[1]]), "several of a, b can be the image"),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "no tf.train.Example"),
        ],
    )
    def test_what_is_no_example_with_an_image(self, tmp_path: Path, record: bytes, message: str) -> None:
        with pytest.raises(PackError, match=message):
            open_source(tfrecord(tmp_path / "x.tfrecord", record))
