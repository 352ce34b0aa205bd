"""Sources of what unpack and export wrote: what was damaged or edited since is named, sample by sample."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import stored_samples

import fastload
from fastload import PackedDataset
from fastload.errors import FastloadError, PackError, PackStoppedError
from fastload.packing import Item, export, open_source, unpack
from fastload.sources.tar import ExportedTar, TarSource
from fastload.sources.unpacked import UnpackedSource
from fastload.store import DatasetWriter, Field, Schema


class Few:
    """Three samples with a mask, boxes, instances, bytes and a number."""

    title, classes, concurrent = "few", ("a", "b"), True
    fields = (
        Field("label", "int"),
        Field("mask", "mask"),
        Field("boxes", "boxes", format="cxcywh"),
        Field("objects", "instances", of="boxes"),
        Field("blob", "bytes"),
        Field("score", "float"),
    )

    def __len__(self) -> int:
        return 3

    def name(self, position: int) -> str:
        return f"few {position}"

    def read(self, position: int) -> Item:
        values: dict[str, Any] = {
            "label": position % 2,
            "mask": np.full((4, 5), position, np.uint8),
            "boxes": [[2, 2, 1, 1]] * position,
            "objects": np.ones((position, 4, 5), np.uint8),
            "blob": bytes([position]),
            "score": position / 2,
        }
        return Item(self.name(position), np.full((4, 5, 3), 9 * position, np.uint8), values)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples as a dataset, a folder, a tar and Parquet."""
    top = tmp_path_factory.mktemp("few")
    fastload.pack(Few(), top / "few.fl")
    unpack(top / "few.fl", top / "folder")
    export(top / "few.fl", top / "few.tar")
    return top


def edited(line: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """What changes one line of fields.jsonl."""

    def edit(folder: Path) -> None:
        path = folder / "fields.jsonl"
        lines = path.read_text().splitlines()
        value = json.loads(lines[line])
        change(value)
        lines[line] = json.dumps(value)
        path.write_text("\n".join(lines) + "\n")

    return edit


WRONG = {
    r"line 2: its 'blob' is no value of bytes: it is no base64": edited(
        1, lambda line: line.update(blob="?")
    ),
    r"line 2: its 'blob' is no value of bytes: bytes are a text": edited(1, lambda line: line.update(blob=3)),
    r"line 2: it has no value of 'score'": edited(1, lambda line: line.pop("score")),
    r"line 2: its 'mask' is no path": edited(1, lambda line: line.update(mask=None)),
    r"its 'mask' is no path": edited(1, lambda line: line.update(mask="a\0b")),
    r"gone\.png cannot be read: No such file": edited(1, lambda line: line.update(mask="gone.png")),
    r"line 2: its 'boxes' is no value of boxes": edited(1, lambda line: line.update(boxes="none")),
    r"line 2: its 'boxes' is no value of boxes .*inhomogeneous": edited(
        1, lambda line: line.update(boxes=[[1, 2, 3, 4], [1]])
    ),
    r"row 0 of field 'boxes': its box has a negative width": edited(
        1, lambda line: line.update(boxes=[[1, 1, -1, 1]])
    ),
    r"'boxes'.*its shape is \(1, 3\)": edited(1, lambda line: line.update(boxes=[[1, 1, 1]])),
    r"row 0 of field 'objects': its run lengths sum to 3": edited(
        1, lambda line: line.update(objects=[{"size": [4, 5], "counts": "3"}])
    ),
    r"line 2: its 'objects' is no value of instances": edited(
        1, lambda line: line.update(objects={"size": [4, 5]})
    ),
    r"field 'label' \(int\) cannot hold 'x'": edited(1, lambda line: line.update(label="x")),
    r"'mask'.*\(2, 2\), its image \(4, 5\)": lambda folder: shutil.copy(
        folder.parent / "small.png", folder / "mask/00000001.png"
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_in_a_folder(files: Path, tmp_path: Path, words: str) -> None:
    """A value that is no value of its field is named with its line; the other samples are packed."""
    from PIL import Image

    shutil.copytree(files / "folder", tmp_path / "folder")
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "small.png")
    WRONG[words](tmp_path / "folder")
    with pytest.raises(PackStoppedError, match=words):
        fastload.pack(tmp_path / "folder", tmp_path / "out")
    summary = fastload.pack(tmp_path / "folder", tmp_path / "some", on_error="skip")
    assert (summary.samples, summary.skipped_count) == (2, 1)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("fastload.json", b"[]", "fastload.json: the file is list, not an object: unpack the dataset again"),
        ("fastload.json", b'{"path": "path", "fields": []}', "1 to 1000 fields"),
        (
            "fastload.json",
            b'{"path": 3, "fields": [{"name": "image", "kind": "image"}]}',
            "the key of the image's path is 3",
        ),
        (
            "fastload.json",
            b'{"path": "p", "fields": [{"name": "a", "kind": "int"}]}',
            "its first field is no image",
        ),
        (
            "fastload.json",
            b'{"path": "p", "fields": [{"name": "a", "kind": "image"}], "classes": [1]}',
            "the name of a class is 1",
        ),
        ("fastload.json", b"{", "fastload.json: "),
        ("fields.jsonl", b"", "it is empty, or ends within a line"),
        ("fields.jsonl", b'{"path": "a"}', "it is empty, or ends within a line"),
        ("fields.jsonl", b"[1]\n", "line 1: a line is list, not an object"),
        ("fields.jsonl", b'{"path": "a\n', "line 1: "),
        ("fields.jsonl", b'{"other": "a"}\n', "line 1: its 'path' is no path"),
    ],
)
def test_damaged_descriptions(files: Path, tmp_path: Path, name: str, content: bytes, words: str) -> None:
    """A description, or a list of samples, that cannot be one is an error of the source, with its file and
    line."""
    shutil.copytree(files / "folder", tmp_path / "folder")
    (tmp_path / "folder" / name).write_bytes(content)
    with pytest.raises(PackError, match=words):
        fastload.pack(tmp_path / "folder", tmp_path / "out")


def test_lines_in_another_form(files: Path, tmp_path: Path) -> None:
    """Lines that another program wrote anew, with other blanks and order, and quotes in a path, are the
    same samples."""
    shutil.copytree(files / "folder", tmp_path / "folder")
    (tmp_path / "folder/b").mkdir(exist_ok=True)
    name = 'b/a", "x.png'
    (tmp_path / "folder" / name).write_bytes((tmp_path / "folder" / "b/00000001.png").read_bytes())
    path = tmp_path / "folder/fields.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["path"] = name
    path.write_text(
        "\n".join(json.dumps(dict(reversed(line.items())), separators=(",", ":")) for line in lines) + "\n"
    )
    assert [stored.values for stored in _packed(path.parent, tmp_path / "a")] == [
        stored.values for stored in _packed(files / "folder", tmp_path / "b")
    ]
    lines[1] = {"path": name} | lines[1]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert isinstance(source := open_source(path.parent), UnpackedSource)
    assert source.name(1).endswith(name)


def _packed(source: Path, out: Path) -> list[Any]:
    fastload.pack(source, out)
    return stored_samples(out)


def test_a_folder_can_be_attached(files: Path, tmp_path: Path) -> None:
    """Samples of an unpacked folder are attached as those of other folders, with all fields."""
    fastload.attach(files / "folder", tmp_path / "attached")
    first, found = PackedDataset(files / "few.fl"), PackedDataset(tmp_path / "attached")
    assert found.fields == first.fields
    assert all(np.array_equal(first[index]["mask"], found[index]["mask"]) for index in range(3))


def test_pictures_that_were_added(files: Path, tmp_path: Path) -> None:
    """A picture that no line names is left out, and the summary says so; masks are not among them."""
    shutil.copytree(files / "folder", tmp_path / "folder")
    for name in ("a/new.png", "a/notes.txt", "c/other.png"):
        (tmp_path / "folder" / name).parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "folder/b/00000001.png", tmp_path / "folder" / name)
    summary = fastload.pack(tmp_path / "folder", tmp_path / "out")
    (notice,) = summary.notices
    assert (summary.samples, notice.kind, notice.count) == (3, "unlisted", 2)
    assert [Path(name).name for name in notice.examples] == ["new.png", "other.png"]


def test_an_image_of_another_name(tmp_path: Path) -> None:
    """A dataset of another writer, whose image has another name and is not its first field: the image is
    called image again."""
    schema = Schema((Field("label", "int"), Field("photo", "image"), Field("size", "int")))
    writer = DatasetWriter(tmp_path / "first", schema, shard_size=1 << 20, options={})
    writer.append(
        {"photo": np.zeros((2, 2, 3), np.uint8), "label": 4, "size": 5}, image_kind="raw", height=2, width=2
    )
    writer.finish(None, {})
    unpack(tmp_path / "first", tmp_path / "files")
    export(tmp_path / "first", tmp_path / "out.tar")
    export(tmp_path / "first", tmp_path / "out.parquet")
    for source in ("files", "out.tar", "out.parquet"):
        fastload.pack(tmp_path / source, tmp_path / f"{source}.fl")
        sample = PackedDataset(tmp_path / f"{source}.fl")[0]
        assert (list(sample), sample["label"], sample["size"]) == (["image", "label", "size"], 4, 5)


def test_parquet_that_was_changed(files: Path, tmp_path: Path) -> None:
    """Columns that are no longer those of the description are told by their names and types; a null is its
    sample's error."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    export(files / "few.fl", tmp_path / "few.parquet")
    table = parquet.read_table(tmp_path / "few.parquet")
    parquet.write_table(table.drop_columns(["boxes"]), tmp_path / "fewer.parquet")
    assert [field.name for field in open_source(tmp_path / "fewer.parquet").fields] == [
        "label",
        "mask",
        "objects",
        "blob",
        "score",
    ]
    place = table.schema.get_field_index("boxes")
    nulls = pa.array([None, *table["boxes"].to_pylist()[1:]], table.schema.field("boxes").type)
    parquet.write_table(
        table.set_column(place, table.schema.field("boxes"), nulls), tmp_path / "null.parquet"
    )
    with pytest.raises(PackStoppedError, match="'boxes' is null"):
        fastload.pack(tmp_path / "null.parquet", tmp_path / "out")
    assert fastload.pack(tmp_path / "null.parquet", tmp_path / "some", on_error="skip").samples == 2


def test_hugging_face_reads_it(files: Path, tmp_path: Path) -> None:
    """Hugging Face's datasets finds the class names, masks as images, and boxes as lists."""
    code = """if True:
        import json, sys
        import numpy as np
        from datasets import load_dataset
        found = load_dataset("parquet", data_files=sys.argv[1], cache_dir=sys.argv[2], split="train")
        masks = [np.asarray(row["mask"]).max().item() for row in found]
        print(json.dumps([found.features["label"].names, masks, found["boxes"][:]]))
    """
    pytest.importorskip("datasets")
    export(files / "few.fl", tmp_path / "few.parquet")
    command = [sys.executable, "-c", code, str(tmp_path / "few.parquet"), str(tmp_path / "cache")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["a", "b"], [0, 1, 2], [[[2, 2, 1, 1]] * count for count in range(3)]]


def test_without_pillow(files: Path, tmp_path: Path) -> None:
    """Masks need Pillow: the error says what to install, and nothing is taken for a dataset."""
    code = """if True:
        import sys
        sys.modules["PIL"] = None
        from fastload.errors import PackError
        from fastload.packing import export, unpack
        for call in (lambda: unpack(sys.argv[1], sys.argv[2] + "/u"), lambda: export(sys.argv[1],
            sys.argv[2] + "/e.tar")):
            try:
                call()
            except PackError as error:
                assert "pip install 'torch-fastload[pack]'" in str(error), error
            else:
                raise SystemExit("no error")
    """
    command = [sys.executable, "-c", code, str(files / "few.fl"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "u/fastload.json").exists()
    assert not (tmp_path / "e.tar").exists()


@pytest.mark.parametrize("name", ["folder/fields.jsonl", "folder/fastload.json", "few.tar", "few.parquet"])
def test_flipped_bytes(files: Path, tmp_path: Path, name: str) -> None:
    """Whatever bytes are damaged, opening and reading gives samples, or errors of the packer's own; and
    packing under skip ends."""
    pytest.importorskip("pyarrow")
    export(files / "few.fl", tmp_path / "few.parquet")
    shutil.copytree(files / "folder", tmp_path / "folder")
    shutil.copy(files / "few.tar", tmp_path / "few.tar")
    path = tmp_path / name
    source, good = (path.parent if name.startswith("folder") else path), path.read_bytes()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        data = bytearray(good)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        path.write_bytes(data[: rng.integers(len(data))] if seed % 10 == 0 else data)
        try:
            with suppress(FastloadError, OSError):
                opened = open_source(source)
                for position in range(len(opened)):
                    with suppress(FastloadError, OSError):
                        opened.read(position)
            if seed % 15 == 1:
                with suppress(FastloadError):
                    fastload.pack(source, tmp_path / f"out{seed}", on_error="skip")
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_export_of_samples_with_objects(files: Path, tmp_path: Path) -> None:
    """where= takes numbers of rows."""
    pytest.importorskip("duckdb")
    assert export(files / "few.fl", tmp_path / "some.tar", where="boxes_count > 0").samples == 2
    fastload.pack(tmp_path / "some.tar", tmp_path / "some.fl")
    assert PackedDataset(tmp_path / "some.fl").column("score").tolist() == [0.5, 1.0]


def rewritten(
    path: Path,
    out: Path,
    change: Callable[[str, bytes], tuple[str, bytes] | None],
    comment: str | None = None,
) -> Path:
    """A tar with members changed or left out, and its comment, if another one is given."""
    with tarfile.open(path) as tar:
        headers = {"comment": tar.pax_headers["comment"] if comment is None else comment}
        with tarfile.open(out, "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as new:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                if (kept := change(member.name, file.read())) is not None:
                    info = tarfile.TarInfo(kept[0])
                    info.size = len(kept[1])
                    new.addfile(info, io.BytesIO(kept[1]))
    return out


MEMBERS: dict[str, Callable[[str, bytes], tuple[str, bytes] | None]] = {
    r"it has no member \.mask\.jpg or \.mask\.png or \.mask\.webp or": lambda n, d: (
        None if n == "00000001.mask.png" else (n, d)
    ),
    r"it has no member \.json": lambda n, d: None if n == "00000001.json" else (n, d),
    r"its \.json is no object of blob, score": lambda n, d: (n, b"[]" if n == "00000001.json" else d),
    r"its \.json has no value of 'blob'": lambda n, d: (n, b"{}" if n == "00000001.json" else d),
    r"its \.cls b'x' is no label": lambda n, d: (n, b"x" if n == "00000001.cls" else d),
    r"its 'objects' is no value of instances": lambda n, d: (n, b"{}" if n == "00000001.objects.json" else d),
    r"its \.boxes\.npy is no array": lambda n, d: (n, b"NUMPY" if n == "00000001.boxes.npy" else d),
}


@pytest.mark.parametrize("words", MEMBERS)
def test_what_is_wrong_in_a_tar(files: Path, tmp_path: Path, words: str) -> None:
    """A member that is missing, or holds something else than its field, is its sample's error."""
    path = rewritten(files / "few.tar", tmp_path / "changed.tar", MEMBERS[words])
    with pytest.raises(PackStoppedError, match=rf"00000001: (.*:00000001: )?{words}"):
        fastload.pack(path, tmp_path / "out")
    assert fastload.pack(path, tmp_path / "some", on_error="skip").samples == 2


@pytest.mark.parametrize(
    "comment", ["", "9fceb02", "{}", '{"fastload": 3}', '{"fastload": {"fields": []}}', "[" * 5000]
)
def test_other_comments(files: Path, tmp_path: Path, comment: str) -> None:
    """A tar whose comment is somebody else's is read by the names of its members, as any WebDataset is."""
    assert isinstance(open_source(files / "few.tar"), ExportedTar)
    path = rewritten(files / "few.tar", tmp_path / "other.tar", lambda name, data: (name, data), comment)
    source = open_source(path)
    assert isinstance(source, TarSource)
    assert {field.name: field.kind for field in source.fields}["mask"] == "mask"
    both = open_source([files / "few.tar", path])
    assert isinstance(both, TarSource)
    assert len(both) == 6
    assert len(open_source([files / "few.tar"] * 2).fields) == len(Few.fields)
