"""Samples of any number of images: every source that has them, what pack stores, resumes, and the
commands."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from documents import (
    COUNTS,
    Documents,
    documents,
    file_of,
    table,
    write_arrow,
    write_json,
    write_parquet,
    write_tar,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import by_pillow, photo

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError, DatasetError, PackError, PackStoppedError
from fastload.packing import convert, export, index, unpack, verify
from fastload.packing.lists import _Samples
from fastload.sources.jsonl import JsonlSource
from fastload.store import DatasetReader, Field, Schema
from fastload.versions import add_columns, append, concat, drop, prune

HUGGING_FACE = "a dataset of Hugging Face's library"


def sources(folder: Path) -> dict[str, Any]:
    """Every source of the documents, by its name."""
    (folder / "files").mkdir()
    return {
        "parquet": str(write_parquet(folder / "a.parquet")),
        "parquet, bytes": str(write_parquet(folder / "b.parquet", kind=pa.binary())),
        "parquet, files": str(write_parquet(folder / "files" / "c.parquet", folder=folder / "files")),
        "arrow": str(write_arrow(folder / "d.arrow")),
        "tar": str(write_tar(folder / "e.tar")),
        "jsonl": str(write_json(folder, "f.jsonl")),
        "json": str(write_json(folder, "g.json")),
        "dataset": Documents(),
        "pairs": Documents(pairs=True),
    }


@pytest.mark.parametrize(
    "name",
    ["parquet", "parquet, bytes", "parquet, files", "arrow", "tar", "jsonl", "json", "dataset", "pairs"],
)
def test_every_source_gives_the_images_of_each_sample(name: str, tmp_path: Path) -> None:
    """In order, byte for byte where the source has files; samples without images, too."""
    summary = fastload.pack(sources(tmp_path)[name], tmp_path / "out.fl", encode="keep")
    dataset, rows = PackedDataset(tmp_path / "out.fl"), documents()
    assert summary.samples == len(dataset) == len(rows)
    assert sum(summary.formats.values()) == sum(len(row["images"]) for row in rows)
    with DatasetReader(tmp_path / "out.fl" / "images") as images:
        stored = [
            next(data for _, kind, data in images.record_fields(at) if kind != 6) for at in range(len(images))
        ]
    for row in rows:
        sample = dataset[row["n"]]
        assert len(sample["images"]) == len(row["images"])
        for image, data in zip(sample["images"], row["images"], strict=True):
            wanted = by_pillow(data)
            assert wanted is not None
            assert np.array_equal(image.numpy().transpose(1, 2, 0), wanted)
            file = stored.pop(0)
            assert name in ("dataset", "pairs") or file == data
        if name == "pairs":
            assert sample["label"] == row["n"]
        else:
            values = sample["json"] if name == "tar" else sample
            assert isinstance(values["ids"], list) == (name == "tar")
            ids = values["ids"] if isinstance(values["ids"], list) else values["ids"].tolist()
            assert (values["text"], values["n"], ids) == (row["text"], row["n"], row["ids"])


def test_a_dataset_of_hugging_face_is_packed_without_decoding(tmp_path: Path) -> None:
    """Its files are stored as they are, in memory, saved, and where the first samples have no image."""
    datasets = pytest.importorskip("datasets")
    rows = [
        {**row, "images": [{"bytes": data, "path": None} for data in row["images"]]} for row in documents()
    ]
    found = datasets.Dataset.from_list(rows).cast_column("images", datasets.Sequence(datasets.Image()))
    found.save_to_disk(tmp_path / "saved")
    for number, source in enumerate((found, str(tmp_path / "saved"))):
        out = tmp_path / f"{number}.fl"
        assert fastload.pack(source, out, encode="keep").samples == len(rows)
        with DatasetReader(out / "images") as images:
            entries = [each for each in images.record_fields(0) if each[1] != 6]
        assert entries[0][2] == file_of(1, 0)


class Rows:
    """A Dataset of given samples."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]


def hugging_face(**columns: Any) -> Any:
    """A dataset of Hugging Face's library in memory; lists of bytes are lists of images."""
    datasets = pytest.importorskip("datasets")
    lists = {
        name: [None if row is None else [{"bytes": data, "path": None} for data in row] for row in rows]
        for name, rows in columns.items()
        if any(row and isinstance(row[0], bytes) for row in rows if isinstance(row, list))
    }
    found = datasets.Dataset.from_dict({**columns, **lists})
    kinds = {name: datasets.Sequence(datasets.Image()) for name in lists}
    return found.cast(datasets.Features({**found.features, **kinds}))


def counts_of(path: Path) -> list[int]:
    """Numbers of the images of each sample."""
    dataset = PackedDataset(path)
    samples = [sample if isinstance(sample, dict) else {"images": sample[0]} for sample in dataset]
    return [len(sample["images"] if "images" in sample else sample["image"]) for sample in samples]


def test_a_value_named_image_beside_a_list_is_a_field(tmp_path: Path) -> None:
    """Of any kind, in a Dataset, in memory and saved; nothing is lost where that name is taken."""
    for number, value in enumerate((3, "a.jpg", {"w": 1}, ["a", "b"], None)):
        rows = [
            {"images": [photo(1, 30, 20)] * count, "image": value, "n": count}
            for count in ((2, 0) if number % 2 else (0, 1))
        ]
        fastload.pack(Rows(rows), tmp_path / f"{number}.fl")
        dataset = PackedDataset(tmp_path / f"{number}.fl")
        assert dataset.fields == ("images", "image_", "n")
        assert [(len(sample["images"]), sample["image_"], sample["n"]) for sample in dataset] == [
            (row["n"], value, row["n"]) for row in rows
        ]
    found = hugging_face(images=[[file_of(1, 0)], []], image=[["a"], ["b", "c"]], n=[0, 1])
    found.save_to_disk(tmp_path / "saved")
    for number, source in enumerate((found, str(tmp_path / "saved"))):
        fastload.pack(source, tmp_path / f"hf{number}.fl")
        dataset = PackedDataset(tmp_path / f"hf{number}.fl")
        assert dataset.fields == ("images", "image_", "n")
        assert [sample["image_"] for sample in dataset] == [["a"], ["b", "c"]]
    with pytest.raises(PackError, match=r"Rows\[0\]: its 'image' is the field 'image_', as another is"):
        fastload.pack(Rows([{"images": [photo(1, 30, 20)], "image": 1, "image_": 2}]), tmp_path / "x.fl")


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    ("columns", "counts"),
    [
        ({"images": [[file_of(1, 0)], [], [file_of(1, 1)] * 2]}, [1, 0, 2]),
        ({"images": [None, [file_of(1, 0)]], "n": [0, 1]}, [0, 1]),
        ({"images": [*([[]] * 300), [file_of(1, 0)]], "n": [*range(301)]}, [*([0] * 300), 1]),
    ],
)
def test_columns_of_hugging_face_say_which_has_lists(
    saved: bool, columns: dict[str, Any], counts: list[int], tmp_path: Path
) -> None:
    """Whatever the first samples have, and where there is no other column."""
    source = hugging_face(**columns)
    if saved:
        source.save_to_disk(tmp_path / "saved")
    fastload.pack(str(tmp_path / "saved") if saved else source, tmp_path / "out.fl", encode="keep")
    assert counts_of(tmp_path / "out.fl") == counts


def test_one_of_several_columns_of_lists_is_chosen(tmp_path: Path) -> None:
    found = hugging_face(images=[[file_of(1, 0)], []], more=[[], [file_of(1, 1)] * 2], n=[0, 1])
    with pytest.raises(
        PackError, match=r"Dataset: several columns of images, more .* give image= \(--image\)"
    ):
        fastload.pack(found, tmp_path / "out.fl")
    fastload.pack(found, tmp_path / "out.fl", image="more")
    assert [len(sample["more"]) for sample in PackedDataset(tmp_path / "out.fl")] == [0, 2]
    changed = found.remove_columns("more").with_transform(lambda rows: {**rows, "w": [7] * len(rows["n"])})
    fastload.pack(changed, tmp_path / "changed.fl")
    assert PackedDataset(tmp_path / "changed.fl").fields == ("images", "n", "w")


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ([{"images": None, "n": 0}, {"images": [photo(1, 30, 20)], "n": 1}], [0, 1]),
        ([{"images": [photo(1, 30, 20)], "n": 0}, {"images": None, "n": 1}], [1, 0]),
        ([{"images": [None]}, {"images": []}, {"images": [photo(1, 30, 20), None]}], [0, 0, 1]),
        ([(None, 0), ([photo(1, 30, 20)] * 2, 1), ([], 2)], [0, 2, 0]),
    ],
)
def test_no_images_at_first(rows: list[Any], counts: list[int], tmp_path: Path) -> None:
    """None is an empty list."""
    fastload.pack(Rows(rows), tmp_path / "out.fl")
    assert counts_of(tmp_path / "out.fl") == counts


@pytest.mark.parametrize("other", [photo(1, 30, 20), np.zeros((2, 8, 8, 3), np.uint8), "ab", {}])
@pytest.mark.parametrize("form", ["dict", "pair", "no key"])
def test_a_sample_with_another_value_than_a_list_is_named(other: Any, form: str, tmp_path: Path) -> None:
    rows: list[Any] = [{"images": [photo(1, 30, 20)], "n": 0}, {"images": other, "n": 1}]
    if form == "pair":
        rows = [([photo(1, 30, 20)], 0), (other, 1)]
    elif form == "no key":
        rows[1] = {"n": 1}
    with pytest.raises(PackError, match=r"^Rows\[1\]: its 'images' is no list of images"):
        fastload.pack(Rows(rows), tmp_path / "out.fl")


def test_what_a_dataset_of_hugging_face_shows(tmp_path: Path) -> None:
    """Columns that set_format() hides are not there; a picture's path or file by its name is the image, also
    beside lists."""
    datasets = pytest.importorskip("datasets")
    (tmp_path / "one.png").write_bytes(file_of(1, 3))
    images = datasets.Sequence(datasets.Image())
    lists = [[{"bytes": file_of(1, 0), "path": None}], [], []]
    rows = {"crops": lists, "more": lists[::-1], "label": [0, 1, 2]}
    kinds = {"crops": images, "more": images, "label": datasets.Value("int64")}
    for number, (value, kind) in enumerate(
        ((str(tmp_path / "one.png"), "string"), ((tmp_path / "one.png").read_bytes(), "binary"))
    ):
        given = datasets.Dataset.from_dict(
            {**rows, "image": [value] * 3},
            features=datasets.Features({**kinds, "image": datasets.Value(kind)}),
        )
        fastload.pack(given.with_format(None, columns=["image", "label"]), tmp_path / f"a{number}.fl")
        assert PackedDataset(tmp_path / f"a{number}.fl").fields == ("image", "label")
        fastload.pack(given.with_format(None, columns=["more", "label"]), tmp_path / f"b{number}.fl")
        assert [len(sample["more"]) for sample in PackedDataset(tmp_path / f"b{number}.fl")] == [0, 0, 1]
        with pytest.raises(PackError, match="no image among label"):
            fastload.pack(given.with_format(None, columns=["label"]), tmp_path / "none.fl")
    alone = given.remove_columns(["more", "crops"]).add_column("notes", [[], ["a"], []])
    fastload.pack(alone, tmp_path / "alone.fl")
    assert "image" in PackedDataset(tmp_path / "alone.fl").fields


@pytest.mark.parametrize("value", ["path", "bytes", "pixels"])
def test_a_dataset_of_an_image_each_is_read_once(value: str, tmp_path: Path) -> None:
    """But for what tells its fields, whatever its images are."""
    path = tmp_path / "one.png"
    path.write_bytes(file_of(1, 3))
    image = {"path": str(path), "bytes": path.read_bytes(), "pixels": np.zeros((9, 9, 3), np.uint8)}[value]
    read: list[int] = []

    class Counted:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> dict[str, Any]:
            read.append(index)
            return {"image": image, "label": index, "notes": []}

    fastload.pack(Counted(), tmp_path / "a.fl")
    assert len(read) == 301


def test_each_line_says_by_itself_where_its_images_are(tmp_path: Path) -> None:
    """In `images` or in `image`, else in parts of its messages; a line with both is named."""
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(file_of(1, number))
    talk = [{"role": "user", "content": [{"type": "image", "image": "2.jpg"}]}]
    rows: list[dict[str, Any]] = [
        {"n": 0, "image": "0.jpg"},
        {"n": 1, "images": ["1.jpg", "2.jpg"], "image": None},
        {"n": 2},
        {"n": 3, "messages": talk},
        {"n": 4, "messages": talk, "images": []},
        {"n": 5, "images": [], "image": ["0.jpg", {"path": "1.jpg"}]},
        {"n": 6, "images": None, "messages": talk},
    ]

    def packed(name: str, rows: list[dict[str, Any]]) -> Path:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        fastload.pack(tmp_path / name, tmp_path / f"{name}.fl")
        return tmp_path / f"{name}.fl"

    dataset = PackedDataset(packed("a.jsonl", rows))
    assert dataset.fields == ("images", "n", "messages")
    assert counts_of(tmp_path / "a.jsonl.fl") == [1, 2, 0, 1, 0, 2, 1]
    assert [sample["messages"] for sample in dataset] == [row.get("messages") for row in rows]
    assert counts_of(packed("b.jsonl", [*rows[3:4], *rows[3:4]])) == [1, 1]
    both = {"n": 1, "images": ["1.jpg"], "image": "a caption"}
    with pytest.raises(PackStoppedError, match=r"c\.jsonl: line 2: it has both 'images' and 'image'"):
        packed("c.jsonl", [rows[0], both])
    captioned = PackedDataset(packed("d.jsonl", [both, {**both, "images": []}]))
    assert [sample["image"] for sample in captioned] == ["a caption"] * 2
    assert counts_of(tmp_path / "d.jsonl.fl") == [1, 0]
    placeholder = {"messages": [{"role": "user", "content": [{"type": "image"}]}]}
    named = [{**placeholder, "images": ["1.jpg"]}, {**placeholder, "images": None}]
    assert counts_of(packed("e.jsonl", named)) == [1, 0]


def test_conversations_name_their_images_in_parts(tmp_path: Path) -> None:
    """As Qwen-VL has them; a line may have one image as a text, as LLaVA has it, or none."""
    (tmp_path / "a.jpg").write_bytes(file_of(1, 0))
    part = {"type": "image", "image": f"file://{tmp_path}/a.jpg"}
    talks = [[{"role": "user", "content": [part, {"type": "text", "text": "x"}, part]}], []]
    lines = "".join(json.dumps({"messages": talk}) + "\n" for talk in talks)
    (tmp_path / "a.jsonl").write_text(lines)
    fastload.pack(tmp_path / "a.jsonl", tmp_path / "a.fl")
    dataset = PackedDataset(tmp_path / "a.fl")
    assert [len(sample["images"]) for sample in dataset] == [2, 0]
    assert [sample["messages"] for sample in dataset] == talks
    rows = [{"image": "a.jpg", "id": "x"}, {"id": "y"}, {"image": [None, "a.jpg"], "id": "z"}]
    (tmp_path / "b.ndjson").write_text("\n\n".join(json.dumps(row) for row in rows))
    fastload.pack(tmp_path / "b.ndjson", tmp_path / "b.fl")
    dataset = PackedDataset(tmp_path / "b.fl")
    assert [(sample["id"], len(sample["images"])) for sample in dataset] == [("x", 1), ("y", 0), ("z", 1)]
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "a.jpg", tmp_path / "elsewhere")
    fastload.pack(tmp_path / "b.ndjson", tmp_path / "c.fl", images=tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="takes images="):
        fastload.pack(tmp_path / "b.ndjson", tmp_path / "d.fl", path_column=1)


@given(
    st.lists(st.dictionaries(st.text(), st.text(), max_size=3), min_size=1, max_size=5), st.integers(1, 40)
)
@settings(max_examples=60, deadline=None)
def test_a_list_is_cut_where_its_entries_end(rows: list[dict[str, str]], chunk: int) -> None:
    """Whatever their texts have in them, and however much is read at a time."""
    from io import BytesIO

    from fastload.sources import jsonl

    data = json.dumps(rows, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    before, jsonl._CHUNK = jsonl._CHUNK, chunk
    try:
        places = list(jsonl._entries(BytesIO(data), "x.json"))
    finally:
        jsonl._CHUNK = before
    assert [json.loads(data[start:end].decode("utf-8", "surrogatepass")) for start, end in places] == rows


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no sample in it"),
        ('{"images": ["x.jpg"]}\n[1]\n', "line 2: it is no object"),
        ('{"images": ["x.jpg"]}\n{\n', "line 2: it cannot be read as JSON"),
        ('{"a": 1}\n', "none of its first 1 samples has images"),
        ('{"messages": [{"content": "<image>"}]}\n', "none of its first 1 samples has images"),
    ],
)
def test_lines_that_cannot_be_read(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(PackError, match=told):
        fastload.pack(tmp_path / "x.jsonl", tmp_path / "out.fl")
    assert not (tmp_path / "out.fl").exists()


@pytest.mark.parametrize("content", ["[1, 2]", '[{"a": 1}', '[{"a": 1} x]', "["])
def test_lists_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(PackError, match="no list of objects"):
        JsonlSource(str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"images": [3]}, "neither a path nor an object with one"),
        ({"images": ["missing.jpg"]}, "cannot be read"),
        ({"images": ["broken.jpg"]}, "image 0: "),
        ({"images": [], "new": 1}, "'new', which none of the first"),
        ({"images": [], "n": None}, "it has no 'n'"),
        ({"images": [], "ids": [1, "x"]}, "its 'ids' is no list of numbers"),
        ({"images": [], "ids": [0.5]}, "its 'ids' is no list of numbers"),
        ({"images": [], "ids": [2**63]}, "its 'ids' is no list of numbers"),
    ],
)
def test_a_sample_that_cannot_be_packed_is_named_or_left_out(
    line: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all of its images; the others keep theirs."""
    monkeypatch.setattr("fastload.sources.jsonl.LOOKED_AT", 3)
    (tmp_path / "broken.jpg").write_bytes(file_of(1, 0)[:300])
    source = write_json(tmp_path, "a.jsonl", documents()[:5])
    rows = [json.loads(text) for text in source.read_text().splitlines()]
    rows.insert(3, {**rows[0], **line})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(PackStoppedError, match=f"line 4: .*{told}"):
        fastload.pack(source, tmp_path / "out.fl")
    summary = fastload.pack(source, tmp_path / "out.fl", on_error="skip", resume=True)
    assert (summary.samples, summary.skipped_count) == (5, 1)
    assert "line 4" in summary.skipped[0][0]
    dataset = PackedDataset(tmp_path / "out.fl")
    assert [(sample["n"], len(sample["images"])) for sample in dataset] == list(enumerate(COUNTS[:5]))


class _Killed(BaseException):
    """What ends a pack here as a kill would."""


@pytest.mark.parametrize("stopped", ["images", "samples"])
def test_a_stopped_pack_is_resumed(stopped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of the images, or of the samples: it ends with the dataset that one pack makes."""
    source, options = (
        Documents(count=150),
        {"shard_size": 1 << 20, "encode": "raw", "shuffle": True, "seed": 3},
    )
    fastload.pack(source, tmp_path / "whole.fl", **options)
    calls = {"images": "fastload.packing.job.PackJob.write", "samples": "fastload.packing.lists.described"}
    target, left = calls[stopped], [130]
    module, _, name = target.rpartition(".")
    owner = __import__("fastload.packing.job", fromlist=["x"]).PackJob if stopped == "images" else None
    before = getattr(owner, name) if owner else __import__(module, fromlist=["x"]).described

    def dying(*args: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise _Killed
        return before(*args)

    with monkeypatch.context() as patched:
        patched.setattr(target, dying)
        with pytest.raises(_Killed):
            fastload.pack(source, tmp_path / "out.fl", **options)
    with pytest.raises(DatasetError, match="unfinished"):
        PackedDataset(tmp_path / "out.fl")
    with pytest.raises(PackError, match="--resume"):
        fastload.pack(source, tmp_path / "out.fl", **options)
    fastload.pack(source, tmp_path / "out.fl", resume=True, **options)
    for name in ("", "images"):
        one, other = (
            {path.name: path.read_bytes() for path in (tmp_path / each / name).iterdir() if path.is_file()}
            for each in ("whole.fl", "out.fl")
        )
        assert one == other


def test_a_resume_finds_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_json(tmp_path, "a.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(_Samples, "write", lambda *args: (_ for _ in ()).throw(_Killed()))
        with pytest.raises(_Killed):
            fastload.pack(source, tmp_path / "out.fl")
    rows = source.read_text().splitlines()
    source.write_text("\n".join([*rows[:2], json.dumps({**json.loads(rows[2]), "images": []}), *rows[3:]]))
    with pytest.raises(PackStoppedError, match="line 3: it has 0 images, of which 3 were packed"):
        fastload.pack(source, tmp_path / "out.fl", resume=True)


def test_a_resume_of_a_finished_pack_sums_up_the_same(tmp_path: Path) -> None:
    source = write_json(tmp_path, "a.jsonl")
    first = fastload.pack(source, tmp_path / "out.fl")
    again = fastload.pack(source, tmp_path / "out.fl", resume=True)
    assert first.shards == 2
    assert replace(again, seconds=first.seconds, packed_now=first.packed_now) == first


def test_overwrite_takes_the_images_away(tmp_path: Path) -> None:
    """An unfinished or a finished dataset, by one with or without lists."""
    fastload.pack(Documents(), tmp_path / "out.fl")
    with pytest.raises(PackError, match="--overwrite"):
        fastload.pack(Documents(), tmp_path / "out.fl")
    fastload.pack(Documents(), tmp_path / "out.fl", overwrite=True, limit=3)
    assert len(PackedDataset(tmp_path / "out.fl" / "images")) == 4
    (tmp_path / "one.jpg").write_bytes(file_of(1, 0))
    fastload.pack([tmp_path / "one.jpg"], tmp_path / "out.fl", overwrite=True)
    assert not (tmp_path / "out.fl" / "images").exists()
    fastload.pack([tmp_path / "one.jpg"], tmp_path / "out.fl" / "images")  # another dataset, which stays
    fastload.pack([tmp_path / "one.jpg"], tmp_path / "out.fl", overwrite=True)
    assert len(PackedDataset(tmp_path / "out.fl" / "images")) == 1


def test_unfinished_lists_are_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their images, by a dataset without any."""
    with monkeypatch.context() as patched:
        patched.setattr(_Samples, "write", lambda *args: (_ for _ in ()).throw(_Killed()))
        with pytest.raises(_Killed):
            fastload.pack(Documents(), tmp_path / "out.fl")
    assert len(PackedDataset(tmp_path / "out.fl" / "images")) > 0
    (tmp_path / "one.jpg").write_bytes(file_of(1, 0))
    fastload.pack([tmp_path / "one.jpg"], tmp_path / "out.fl", overwrite=True)
    assert not (tmp_path / "out.fl" / "images").exists()


def test_without_any_image_nothing_is_packed(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "a.parquet")
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(source).slice(0, 1), source)
    with pytest.raises(PackError, match="none of its 1 samples has an image"):
        fastload.pack(source, tmp_path / "out.fl")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    fastload.pack(write_parquet(tmp_path / "a.parquet"), tmp_path / "documents.fl", encode="keep")
    return tmp_path / "documents.fl"


def values_of(path: Path) -> list[Any]:
    """All samples, with pixels as lists."""
    return [
        {**sample, "ids": sample["ids"].tolist(), "images": [image.tolist() for image in sample["images"]]}
        for sample in PackedDataset(path)
    ]


@pytest.mark.parametrize("form", ["folder", "a.tar", "b.parquet"])
def test_unpacked_and_exported_they_come_back(form: str, packed: Path, tmp_path: Path) -> None:
    """Equal fields, of the same kinds, and the same files."""
    if form == "folder":
        summary = unpack(packed, tmp_path / form)
        assert summary.files == sum(len(row["images"]) for row in documents())
        assert (tmp_path / form / "images" / "00000002-1.jpg").read_bytes() == file_of(2, 1)
        with pytest.raises(ArgumentError, match="which the layout folders holds"):
            unpack(packed, tmp_path / "other", layout="coco")
    else:
        export(packed, tmp_path / form)
    fastload.pack(tmp_path / form, tmp_path / "again.fl", encode="keep")
    assert values_of(tmp_path / "again.fl") == values_of(packed)
    with DatasetReader(packed) as one, DatasetReader(tmp_path / "again.fl") as other:
        assert one.schema == other.schema


def test_parquet_is_what_hugging_face_reads(packed: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(packed, tmp_path / "x.parquet", where="images_count > 1")
    found = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "x.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    rows = [row for row in documents() if len(row["images"]) > 1]
    assert [len(images) for images in found["images"]] == [len(row["images"]) for row in rows]
    wanted = by_pillow(rows[0]["images"][1])
    assert np.array_equal(np.asarray(found[0]["images"][1].convert("RGB")), wanted)


def test_other_forms_of_the_images(packed: Path, tmp_path: Path) -> None:
    """convert makes all of them anew, and index writes theirs; the samples stay as they are."""
    convert(packed, tmp_path / "dct.fl", encode="dct")
    assert values_of(tmp_path / "dct.fl") == values_of(packed)
    fastload.pack(write_parquet(tmp_path / "a.parquet"), tmp_path / "bare.fl", encode="keep", index=False)
    summary = index(tmp_path / "bare.fl")
    assert summary.added == summary.indexed > 0
    assert values_of(tmp_path / "bare.fl") == values_of(packed)


def test_verify_finds_what_is_wrong_with_them(packed: Path) -> None:
    """A damaged image, a dataset of images that is gone, or another's."""
    assert verify(packed, decode=True).ok
    shard = packed / "images" / "shard-00000.lmdb"
    data = bytearray(shard.read_bytes())
    at = data.index(file_of(3, 1)[-40:])
    data[at] ^= 1
    shard.write_bytes(data)
    report = verify(packed)
    assert not report.ok
    assert any("images/shard-00000.lmdb" in each.shard for each in report.bad)
    shutil.rmtree(packed / "images")
    assert any("images" in problem for problem in verify(packed).problems)
    with pytest.raises(DatasetError, match="images"):
        PackedDataset(packed)


def test_samples_of_fewer_images_than_they_say(packed: Path, tmp_path: Path) -> None:
    shutil.rmtree(packed / "images")
    (tmp_path / "one.jpg").write_bytes(file_of(1, 0))
    fastload.pack([tmp_path / "one.jpg"], packed / "images")
    assert any("have images beyond those" in problem for problem in verify(packed).problems)
    with pytest.raises(DatasetError, match=r"sample 2 of .* has 3 images from 1 on"):
        PackedDataset(packed)[2]


def test_changes_of_samples_leave_the_images(packed: Path, tmp_path: Path) -> None:
    """drop, columns and prune work; what would move images is refused with a way on."""
    before = values_of(packed)
    drop(packed, where="n in (1, 2)")
    np.save(tmp_path / "weight.npy", np.arange(len(before) - 2, dtype=np.float64))
    add_columns(packed, tmp_path / "weight.npy")
    prune(packed)
    left = [{key: value for key, value in sample.items() if key != "weight"} for sample in values_of(packed)]
    assert left == [before[0], *before[3:]]
    for refused in (
        lambda: append(packed, str(tmp_path / "a.parquet")),
        lambda: concat([packed, packed], tmp_path / "both.fl"),
    ):
        with pytest.raises(PackError, match="any number of images"):
            refused()
    fastload.pack([(photo(1, 40, 30), 0)], tmp_path / "single.fl")
    with pytest.raises(PackError, match="which `pack` and `attach` take"):
        append(tmp_path / "single.fl", str(tmp_path / "a.parquet"))
    with pytest.raises(ArgumentError, match="shard_samples"):
        fastload.pack(Documents(), tmp_path / "x.fl", shard_samples=3)


def test_a_schema_has_one_such_field_and_no_other_image() -> None:
    for other in (Field("image", "image"), Field("more", "images")):
        with pytest.raises(ArgumentError, match="beside which a sample has no other images"):
            Schema((Field("images", "images"), other))


def test_a_list_column_is_chosen_where_no_single_image_is(tmp_path: Path) -> None:
    """Beside a single image it is what it was: nested values."""
    import pyarrow.parquet as pq

    both = table().append_column("image", pa.array([file_of(1, 0)] * len(documents())))
    pq.write_table(both, tmp_path / "a.parquet")
    fastload.pack(tmp_path / "a.parquet", tmp_path / "list.fl", image="images")
    assert next(iter(DatasetReader(tmp_path / "list.fl").schema)).kind == "images"
    assert os.path.isdir(tmp_path / "list.fl" / "images")
