"""fastload.attach: a dataset of images that stay where they are is a packed one in everything, and tells
what became of its files."""

from __future__ import annotations

import inspect
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from attach_helpers import COUNT, SOURCES, batches, equal, folder, jpeg, write_tar
from packing_helpers import encoded, picture, tree
from test_library_files import DATA, OPTIONS
from torchvision import transforms

import fastload
from fastload import PackedDataset
from fastload.cli.attach import attach as command
from fastload.errors import DatasetError, PackError, SampleError
from fastload.packing import attach, export, index, pack, rebase, unpack, verify
from fastload.packing.options import PackOptions, RunOptions
from fastload.sources.options import ColumnOptions, LayoutOptions, LmdbOptions, TableOptions
from fastload.store import DatasetReader, Manifest


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return SOURCES[request.param](tmp_path / "src")


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_a_packed_dataset(source: Path, tmp_path: Path, workers: int) -> None:
    """Samples, batches of both engines, columns, classes and names of fields are those of the same source
    packed byte for byte."""
    pack(source, tmp_path / "packed", encode="keep")
    summary = attach(source, tmp_path / "index")
    assert (summary.samples, summary.attached, summary.kept) == (COUNT, COUNT, 0)
    native = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
    python = transforms.Compose(
        [transforms.RandomCrop(40), transforms.Lambda(torch.as_tensor), transforms.ToTensor()]
    )
    for transform in (native, python) if workers == 0 else (native,):
        packed, attached = (PackedDataset(tmp_path / name, transform, seed=7) for name in ("packed", "index"))
        assert attached.fields == packed.fields
        assert attached.classes == packed.classes
        if transform is native:
            assert equal(batches(attached, num_workers=workers), batches(packed, num_workers=workers))
            assert equal([attached[i] for i in range(COUNT)], [packed[i] for i in range(COUNT)])
    assert attached.targets == packed.targets


def test_no_image_is_written(source: Path, tmp_path: Path) -> None:
    """The dataset is a small part of its images, and holds no JPEG."""
    attach(source, tmp_path / "index")
    found = b"".join(path.read_bytes() for path in sorted((tmp_path / "index").iterdir()))
    assert b"\xff\xd8\xff" not in found
    manifest = Manifest.load(tmp_path / "index")
    assert manifest.options["attached"] is True
    with DatasetReader(tmp_path / "index") as reader:
        assert (
            sum(len(data) for number in range(COUNT) for _, _, data in reader.record_fields(number))
            < COUNT * 400
        )


def test_verify_unpack_export_index(source: Path, tmp_path: Path) -> None:
    """Tools read the images where they lie; an index that was left out can be added, and is that of attach
    itself."""
    attach(source, tmp_path / "index", index=False)
    assert index(tmp_path / "index").added == sum(number % 4 != 3 for number in range(COUNT))
    attach(source, tmp_path / "whole")
    with DatasetReader(tmp_path / "index") as later, DatasetReader(tmp_path / "whole") as whole:
        assert [later.record(number) for number in range(COUNT)] == [
            whole.record(number) for number in range(COUNT)
        ]
    report = verify(tmp_path / "index", decode=True)
    assert report.ok, report
    assert report.samples == COUNT
    unpack(tmp_path / "index", tmp_path / "out")
    unpacked = sorted((tmp_path / "out").rglob("*.jpg"), key=lambda path: path.name)
    assert sorted(path.read_bytes() for path in unpacked) == sorted(jpeg(number) for number in range(COUNT))
    export(tmp_path / "index", tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert sorted(tar.extractfile(each).read() for each in tar if each.name.endswith(".jpg")) == sorted(
            map(jpeg, range(COUNT))
        )  # type: ignore[union-attr]


def test_links_are_followed(tmp_path: Path) -> None:
    """A link out of the tree is the file that it leads to, as for ImageFolder."""
    tree(tmp_path, {"src/a/0.jpg": jpeg(0), "else/1.jpg": jpeg(1)})
    (tmp_path / "src" / "a" / "1.jpg").symlink_to(tmp_path / "else" / "1.jpg")
    attach(tmp_path / "src", tmp_path / "index")
    unpack(tmp_path / "index", tmp_path / "out")
    assert [path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.jpg"))] == [jpeg(0), jpeg(1)]


def test_files_of_one_name(tmp_path: Path) -> None:
    """Names that differ in case only, and one file named twice by a table, are samples each."""
    tree(tmp_path, {"src/a/x.jpg": jpeg(0), "src/a/X.JPG": jpeg(1), "src/b/x.jpg": jpeg(2)})
    assert attach(tmp_path / "src", tmp_path / "index").samples == 3
    assert verify(tmp_path / "index", decode=True).ok
    (tmp_path / "src" / "list.csv").write_text("path,label\na/x.jpg,0\na/x.jpg,1\n")
    assert attach(tmp_path / "src" / "list.csv", tmp_path / "twice").samples == 2
    write_tar(tmp_path / "two.tar", {"0.jpg": jpeg(0), "0.JPG": jpeg(1)})
    with pytest.raises(PackError, match="is there twice in one sample"):
        attach(tmp_path / "two.tar", tmp_path / "tar")


def test_other_formats_are_stored(tmp_path: Path) -> None:
    """An image that `encode="keep"` would not keep is stored as its pixels, and counted."""
    image = picture(1, 40, 50)
    tree(tmp_path / "src", {"a/0.jpg": jpeg(0), "a/1.bmp": encoded(image, "BMP")})
    summary = attach(tmp_path / "src", tmp_path / "index")
    assert (summary.attached, summary.raw) == (1, 1)
    (tmp_path / "src" / "a" / "1.bmp").unlink()
    pixels = PackedDataset(tmp_path / "index", transforms.PILToTensor())[1][0]
    assert torch.equal(pixels, transforms.PILToTensor()(image))


def test_what_has_no_places(tmp_path: Path) -> None:
    """A Dataset, whose images are objects, is to be packed."""
    with pytest.raises(PackError, match="do not lie in one piece in files: pack it with `fastload pack`"):
        attach(Pictures(), tmp_path / "index")


class Pictures:
    """A Dataset of Pillow images."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return picture(index, 8, 8), index


def test_a_bad_sample_and_going_on(tmp_path: Path) -> None:
    """A file that is no image stops it with its name; mended, --resume goes on; or it is left out."""
    files = sorted(folder(tmp_path / "src").rglob("*.jpg"))
    data = files[7].read_bytes()
    files[7].write_bytes(data[:200])
    with pytest.raises(PackError, match=files[7].name):
        attach(tmp_path / "src", tmp_path / "index")
    assert attach(tmp_path / "src", tmp_path / "skipped", on_error="skip").samples == COUNT - 1
    files[7].write_bytes(data)
    assert attach(tmp_path / "src", tmp_path / "index", resume=True).samples == COUNT
    with pytest.raises(PackError, match="was begun with attached"):
        pack(tmp_path / "src", tmp_path / "index", encode="keep", resume=True)


def test_a_resume_names_the_base_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that were complete before are found by the base of the call that goes on, like those after
    them."""
    files = sorted(folder(tmp_path / "src").rglob("*.jpg"))
    monkeypatch.setattr(
        "fastload.store.shard.ShardFile.column_full", property(lambda shard: shard.count >= 5)
    )
    data = files[7].read_bytes()
    files[7].write_bytes(data[:200])
    with pytest.raises(PackError, match=files[7].name):
        attach(tmp_path / "src", tmp_path / "index")
    files[7].write_bytes(data)
    attach(tmp_path / "src", tmp_path / "index", base="../src", resume=True)
    assert {shard.base for shard in Manifest.load(tmp_path / "index").shards} == {"../src"}
    assert len(Manifest.load(tmp_path / "index").shards) == 3
    assert verify(tmp_path / "index", decode=True).ok


def test_it_is_never_written_into_the_source(tmp_path: Path) -> None:
    """Overwriting a folder that holds the source is refused, and files of the source are never changed."""
    folder(tmp_path / "src")
    before = {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.jpg")}
    with pytest.raises(PackError, match="the source lies in it"):
        attach(tmp_path / "src", tmp_path, overwrite=True)
    attach(tmp_path / "src", tmp_path / "src" / "index")
    assert {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.jpg")} == before


@pytest.mark.parametrize("kind", ["tfrecord", "mds", "litdata", "litdata-pairs", "lmdb"])
def test_files_of_other_libraries(kind: str, tmp_path: Path) -> None:
    """What other libraries wrote is attached: samples equal those of the same files packed, and no image
    is written."""
    source, options = DATA / kind, OPTIONS.get(kind, {})
    pack(source, tmp_path / "packed", encode="keep", **options)
    summary = attach(source, tmp_path / "index", **options)
    assert summary.attached == summary.samples - summary.raw > 0
    packed, attached = PackedDataset(tmp_path / "packed"), PackedDataset(tmp_path / "index")
    assert equal([attached[i] for i in range(len(attached))], [packed[i] for i in range(len(packed))])
    assert verify(tmp_path / "index", decode=True).ok
    assert b"\xff\xd8\xff" not in b"".join(path.read_bytes() for path in (tmp_path / "index").glob("*.lmdb"))


def test_append(tmp_path: Path) -> None:
    """What is appended is attached as well, by its own folder."""
    folder(tmp_path / "src")
    tree(tmp_path / "more", {"class1/new.jpg": jpeg(50), "class9/new.jpg": jpeg(51)})
    attach(tmp_path / "src", tmp_path / "index")
    assert fastload.append(tmp_path / "index", tmp_path / "more").pack.attached == 2
    assert b"\xff\xd8\xff" not in b"".join(path.read_bytes() for path in (tmp_path / "index").glob("*.lmdb"))
    dataset = PackedDataset(tmp_path / "index", transforms.PILToTensor())
    assert [label for _, label in dataset][COUNT:] == [1, 3]
    assert verify(tmp_path / "index", decode=True).samples == COUNT + 2
    (tmp_path / "more" / "class9" / "new.jpg").unlink()
    with pytest.raises(SampleError, match=r"class9/new\.jpg"):
        dataset[COUNT + 1]
    with pytest.raises(DatasetError, match="in several folders"):
        rebase(tmp_path / "index", tmp_path)


def test_options() -> None:
    """Keywords and flags of attach are those of a pack that leave images as they are, base and fields, with
    the
    same defaults, but for check: objects in a store are not checked unless it is given."""
    wanted = {
        "workers",
        "ray",
        "shuffle",
        "seed",
        "check",
        "index",
        "on_error",
        "limit",
        "path_column",
        "label_column",
        "header",
        "images",
        "suffix",
        "key_pattern",
        "label_pattern",
        "format",
        "annotations",
        "masks",
        "split",
        "box_format",
        "image",
    }
    defaults = {
        name: getattr(kind(), name)
        for kind in (PackOptions, RunOptions, TableOptions, LmdbOptions, LayoutOptions, ColumnOptions)
        for name in kind.__slots__
        if name in wanted
    }
    defaults |= {"max_pixels": None, "base": None, "overwrite": False, "resume": False}
    defaults |= {"storage_options": None, "timeout": None, "check": None}
    keywords = {
        name: each.default
        for name, each in inspect.signature(fastload.attach).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    flags = {
        name: each.default
        for name, each in inspect.signature(command).parameters.items()
        if name not in ("sources", "out")
    }
    assert keywords == defaults | {"fields": None, "progress": False}
    assert flags == defaults | {"field": None, "quiet": False}
