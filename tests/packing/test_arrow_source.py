"""Packing Arrow files (fastload/sources/arrow.py): rows and places as they were written, and what is
refused."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_files import FEATURES, IMAGE, jpeg
from PIL import Image

import fastload
from fastload import PackedDataset
from fastload.errors import PackError
from fastload.sources import Placed, open_source

pa = pytest.importorskip("pyarrow")


def table(numbers: range, **columns: Any) -> Any:
    """Rows as Hugging Face's library keeps them."""
    images = [{"bytes": jpeg(n), "path": f"{n}.jpg"} for n in numbers]
    base = {"image": pa.array(images, IMAGE), "label": pa.array([n % 3 for n in numbers], pa.int64())}
    return pa.table({**base, **columns}).replace_schema_metadata({"huggingface": json.dumps(FEATURES)})


def write(
    path: Path, rows: Any, *, batch: int = 4, form: str = "stream", compression: str | None = None
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    make = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with make(path, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as sink:
        sink.write_table(rows, max_chunksize=batch)
    return path


def at(place: Any) -> bytes:
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        return file.read(place.size)


@pytest.mark.parametrize("form", ["stream", "file"])
def test_rows_and_the_places_of_their_images(tmp_path: Path, form: str) -> None:
    text = pa.array([f"n{n}" for n in range(10)])
    tags = pa.array([["a"] * n for n in range(10)])
    source = open_source(write(tmp_path / "d.arrow", table(range(10), text=text, tags=tags), form=form))
    assert isinstance(source, Placed)
    assert (len(source), source.classes, source.name(7)) == (
        10,
        ("cat", "dog", "owl"),
        f"{tmp_path / 'd.arrow'}: row 7",
    )
    for number in [9, *range(10), 0]:
        item = source.read(number)
        assert item.image == jpeg(number)
        assert item.values == {"label": number % 3, "text": f"n{number}", "tags": ["a"] * number}
        place = source.place(number)
        assert place is not None
        assert at(place) == item.image


def test_compressed_files_are_read_and_have_no_places(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "d.arrow", table(range(6)), form="file", compression="zstd"))
    assert isinstance(source, Placed)
    assert [source.read(n).image for n in range(6)] == [jpeg(n) for n in range(6)]
    assert source.place(3) is None


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"shuffle": True, "seed": 3}])
def test_several_files(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "data" / "train-00000-of-00002.arrow", table(range(10)))
    write(tmp_path / "data" / "train-00001-of-00002.arrow", table(range(10, 17)))
    write(tmp_path / "data" / "cache-123.arrow", pa.table({"indices": [1]}))
    for number, source in enumerate((tmp_path / "data", str(tmp_path / "data" / "train-*.arrow"))):
        fastload.pack(source, tmp_path / f"{number}.fl", **options)
        dataset = PackedDataset(tmp_path / f"{number}.fl")
        assert (len(dataset), dataset.classes) == (17, ["cat", "dog", "owl"])
        for image, label in dataset:
            assert label == (image.shape[1] - 40) % 3
            plain = np.array(Image.open(io.BytesIO(jpeg(image.shape[1] - 40))))
            assert torch.equal(image, torch.from_numpy(plain).permute(2, 0, 1))


def test_images_by_path_and_plain_bytes(tmp_path: Path) -> None:
    (tmp_path / "7.jpg").write_bytes(jpeg(7))
    rows = pa.table(
        {"photo": pa.array([{"bytes": None, "path": "7.jpg"}, {"bytes": jpeg(1), "path": None}, None], IMAGE)}
    )
    source = open_source(write(tmp_path / "d.arrow", rows))
    assert isinstance(source, Placed)
    assert [source.read(n).image for n in range(2)] == [jpeg(7), jpeg(1)]
    place = source.place(0)
    assert place is not None
    assert (Path(place.path).name, at(place)) == ("7.jpg", jpeg(7))
    for read in (source.read, source.place):
        with pytest.raises(PackError, match="row 2: its photo is null"):
            read(2)
    turned = pa.struct([("path", pa.string()), ("bytes", pa.binary())])
    source = open_source(
        write(
            tmp_path / "f.arrow",
            pa.table({"image": pa.array([{"bytes": jpeg(2), "path": "a name"}], turned)}),
        )
    )
    assert isinstance(source, Placed)
    place = source.place(0)
    assert place is not None
    assert at(place) == source.read(0).image == jpeg(2)
    plain = open_source(
        write(tmp_path / "e.arrow", pa.table({"jpg": pa.array([jpeg(3), jpeg(4)], pa.large_binary())}))
    )
    assert isinstance(plain, Placed)
    place = plain.place(1)
    assert place is not None
    assert at(place) == plain.read(1).image == jpeg(4)


def test_refused(tmp_path: Path) -> None:
    good = write(tmp_path / "good.arrow", table(range(3)))
    other = write(tmp_path / "other.arrow", pa.table({"image": pa.array([jpeg(1)])}))
    cases: dict[str, tuple[Any, str]] = {
        "other columns": ([good, other], "not those of"),
        "no row": (write(tmp_path / "none.arrow", table(range(0))), "no row"),
        "no image": (write(tmp_path / "text.arrow", pa.table({"a": ["x"]})), "can be the image"),
        "dictionaries": (
            write(tmp_path / "dict.arrow", table(range(2), d=pa.array(["a", "b"]).dictionary_encode())),
            "dictionaries",
        ),
        "missing": (tmp_path / "missing.arrow", "no such Arrow file"),
    }
    (tmp_path / "text2.arrow").write_bytes(b"no arrow at all, but text")
    cases["text"] = tmp_path / "text2.arrow", "not a whole Arrow file"
    (tmp_path / "empty.arrow").touch()
    cases["empty"] = tmp_path / "empty.arrow", "not an Arrow file"
    for name, (source, why) in cases.items():
        with pytest.raises(PackError, match=why):
            open_source(source)
            pytest.fail(name)


def test_folders_that_hold_more_than_one_dataset(tmp_path: Path) -> None:
    write(tmp_path / "a" / "beans-train.arrow", table(range(3)))
    write(tmp_path / "a" / "beans-test.arrow", table(range(3)))
    with pytest.raises(PackError, match="beans-test, beans-train"):
        open_source(tmp_path / "a")
    (tmp_path / "a" / "state.json").write_text('{"_data_files": [{"filename": "../a/beans-train.arrow"}]}')
    with pytest.raises(PackError, match="outside"):
        open_source(tmp_path / "a")
    (tmp_path / "a" / "state.json").write_text("[]")
    with pytest.raises(PackError, match="does not name"):
        open_source(tmp_path / "a")
    (tmp_path / "a" / "state.json").write_text('{"_data_files": [{"filename": "beans-train.arrow"}]}')
    assert len(open_source(tmp_path / "a")) == 3
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "dataset_dict.json").touch()
    with pytest.raises(PackError, match="several splits"):
        open_source(tmp_path / "b")


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_pack_errors(tmp_path: Path, seed: int) -> None:
    """Whatever is changed or cut: rows, or PackError; never another exception, never the end of the
    process."""
    draw = random.Random(seed)
    plain = write(
        tmp_path / "d.arrow", table(range(6), text=pa.array([str(n) for n in range(6)])), batch=3
    ).read_bytes()
    images = [(plain.index(jpeg(n)), len(jpeg(n))) for n in range(6)]
    outside = [n for n in range(len(plain)) if not any(start <= n < start + size for start, size in images)]
    for _ in range(150):
        data = bytearray(plain)
        for _ in range(draw.choice((1, 1, 2, 5))):
            data[draw.choice(outside)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        (tmp_path / "x.arrow").write_bytes(
            data[: draw.choice((len(data), len(data), draw.randrange(len(data))))]
        )
        try:
            source = open_source(tmp_path / "x.arrow")
        except PackError:
            continue
        for position in range(min(len(source), 20)):
            for read in (source.read, source.place):  # type: ignore[attr-defined]
                try:
                    read(position)
                except (PackError, OSError):
                    pass


def test_a_file_that_is_cut_meanwhile(tmp_path: Path) -> None:
    path = write(tmp_path / "d.arrow", table(range(8)))
    source = open_source(path)
    source.read(0)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(PackError, match=r"d\.arrow"):
        source.read(7)


def test_what_hugging_face_wrote(tmp_path: Path) -> None:
    """save_to_disk() in several files, rows selected; and its Parquet: the library's pixels, labels and
    texts."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    columns = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["a", "b", "c"]),
        "name": datasets.Value("string"),
    }
    values = {
        "image": [{"bytes": jpeg(n), "path": None} for n in range(20)],
        "label": [n % 3 for n in range(20)],
        "name": list("abcdefghijklmnopqrst"),
    }
    dataset = (
        datasets.Dataset.from_dict(values, features=datasets.Features(columns))
        .shuffle(seed=1)
        .select(range(15))
    )
    dataset.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    dataset.to_parquet(str(tmp_path / "rows.parquet"))
    fastload.pack(tmp_path / "saved", tmp_path / "0.fl")
    fastload.pack(tmp_path / "rows.parquet", tmp_path / "1.fl")
    fastload.attach(tmp_path / "saved", tmp_path / "2.fl")
    for number in range(3):
        packed = PackedDataset(tmp_path / f"{number}.fl")
        assert packed.classes == ["a", "b", "c"]
        for ours, theirs in zip(packed, dataset, strict=True):
            assert (ours["label"], ours["name"]) == (theirs["label"], theirs["name"])
            assert torch.equal(ours["image"], torch.from_numpy(np.array(theirs["image"])).permute(2, 0, 1))
