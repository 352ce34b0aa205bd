"""fastload.attach: a dataset of images that stay where they are is a packed one in everything, and tells what became of its files."""

from __future__ import annotations

import inspect
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packing_helpers import encoded, picture, tree
from test_library_files import DATA, OPTIONS
from torchvision import transforms

import fastload
from fastload import FastLoader, PackedDataset
from fastload.cli.attach import attach as command
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.packing import attach, export, index, pack, rebase, unpack, verify
from fastload.packing.options import LmdbOptions, PackOptions, RunOptions, TableOptions
from fastload.store import DatasetReader, Manifest

COUNT = 12


def jpeg(number: int) -> bytes:
    """A JPEG of its own size; some are progressive, which a pack makes baseline and an attach leaves."""
    return encoded(picture(number, 60 + number, 80 + number), quality=90, progressive=number % 4 == 3)


def folder(root: Path) -> Path:
    """An ImageFolder of JPEGs."""
    return tree(root, {f"class{number % 3}/{number:02d}.jpg": jpeg(number) for number in range(COUNT)})


def table(root: Path) -> Path:
    """A CSV with a column of text, and images beside it, below it and elsewhere."""
    tree(root, {f"list/images/{number:02d}.jpg": jpeg(number) for number in range(0, COUNT, 2)})
    tree(root, {f"elsewhere/{number:02d}.jpg": jpeg(number) for number in range(1, COUNT, 2)})
    lines = [f"{'../elsewhere' if number % 2 else 'images'}/{number:02d}.jpg,{number},text {number}" for number in range(COUNT)]
    (root / "list" / "list.csv").write_text("path,label,caption\n" + "\n".join(lines) + "\n")
    return root / "list" / "list.csv"


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    """A plain tar."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def tars(root: Path) -> Path:
    """A folder of two WebDataset shards, with captions."""
    for shard in range(2):
        members = {}
        for number in range(shard * COUNT // 2, (shard + 1) * COUNT // 2):
            stem = f"sample{number:02d}"
            members |= {f"{stem}.jpg": jpeg(number), f"{stem}.cls": b"%d" % number, f"{stem}.txt": f"text {number}".encode()}
        write_tar(root / "shards" / f"{shard}.tar", members)
    return root / "shards"


SOURCES: dict[str, Callable[[Path], Path]] = {"folder": folder, "table": table, "tars": tars}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return SOURCES[request.param](tmp_path / "src")


def batches(dataset: Any, **options: Any) -> list[Any]:
    """What a shuffled epoch gives, with crops that use the entropy index."""
    with FastLoader(dataset, batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(3), **options) as loader:
        return list(loader)


def equal(left: Any, right: Any) -> bool:
    """Whether two batches are equal to the bit."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_a_packed_dataset(source: Path, tmp_path: Path, workers: int) -> None:
    """Samples, batches of both engines, columns, classes and names of fields are those of the same source packed byte for byte."""
    pack(source, tmp_path / "packed", encode="keep")
    summary = attach(source, tmp_path / "index")
    assert (summary.samples, summary.attached, summary.kept) == (COUNT, COUNT, 0)
    native = transforms.Compose([transforms.RandomResizedCrop(32), transforms.ToTensor()])
    python = transforms.Compose([transforms.RandomCrop(40), transforms.Lambda(torch.as_tensor), transforms.ToTensor()])
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
        assert sum(len(data) for number in range(COUNT) for _, _, data in reader.record_fields(number)) < COUNT * 400


def test_verify_unpack_export_index(source: Path, tmp_path: Path) -> None:
    """Tools read the images where they lie; an index that was left out can be added, and is that of attach itself."""
    attach(source, tmp_path / "index", index=False)
    assert index(tmp_path / "index").added == sum(number % 4 != 3 for number in range(COUNT))
    attach(source, tmp_path / "whole")
    with DatasetReader(tmp_path / "index") as later, DatasetReader(tmp_path / "whole") as whole:
        assert [later.record(number) for number in range(COUNT)] == [whole.record(number) for number in range(COUNT)]
    report = verify(tmp_path / "index", decode=True)
    assert report.ok, report
    assert report.samples == COUNT
    unpack(tmp_path / "index", tmp_path / "out")
    unpacked = sorted((tmp_path / "out").rglob("*.jpg"), key=lambda path: path.name)
    assert sorted(path.read_bytes() for path in unpacked) == sorted(jpeg(number) for number in range(COUNT))
    export(tmp_path / "index", tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert sorted(tar.extractfile(each).read() for each in tar if each.name.endswith(".jpg")) == sorted(map(jpeg, range(COUNT)))  # type: ignore[union-attr]


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    path.unlink()
    path.write_bytes(jpeg(40))


def overwrite(path: Path) -> None:
    """Another image of the same length, at the same time."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


CHANGES = {
    truncate: "was changed after it was attached \\([0-9,]+ bytes then, [0-9]+ now\\)",
    replace: "was changed after it was attached",
    overwrite: "has other bytes than when it was attached, though its size and time are the same",
    Path.unlink: "No such file",
    make_folder: "not a regular file",
    make_fifo: "not a regular file",
    make_loop: "symbolic links",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Its sample is an error that names it, everywhere; all others are as they were; put back, it is read again."""
    files = sorted(folder(tmp_path / "src").rglob("*.jpg"))
    attach(tmp_path / "src", tmp_path / "index")
    dataset = PackedDataset(tmp_path / "index", transforms.Compose([transforms.CenterCrop(50), transforms.ToTensor()]))
    before = [dataset[number] for number in range(COUNT)]
    data, status = files[5].read_bytes(), files[5].stat()
    change(files[5])
    message = f"sample 5 .*{files[5].name}.*{CHANGES[change]}.*attach the data again"
    with pytest.raises(SampleError, match=message):
        dataset[5]
    with pytest.raises(SampleError, match=message), FastLoader(dataset, batch_size=4, num_workers=2) as loader:
        list(loader)
    with FastLoader(dataset, batch_size=1, on_error="skip") as loader:
        assert equal([batch[1].item() for batch in loader], [label for number, (_, label) in enumerate(before) if number != 5])
    report = verify(tmp_path / "index")
    assert [sample.index for sample in report.bad] == [5]
    assert files[5].name in report.bad[0].reason
    with pytest.raises(SampleError, match=files[5].name):
        unpack(tmp_path / "index", tmp_path / "out")
    if files[5].is_dir():
        files[5].rmdir()
    files[5].unlink(missing_ok=True)
    files[5].write_bytes(data)
    os.utime(files[5], ns=(status.st_atime_ns, status.st_mtime_ns))
    assert equal([dataset[number] for number in range(COUNT)], before)


def test_a_file_that_was_touched(tmp_path: Path) -> None:
    """Another time, and bytes around the image, are no change."""
    tars(tmp_path)
    attach(tmp_path / "shards" / "0.tar", tmp_path / "index")
    with open(tmp_path / "shards" / "0.tar", "ab") as file:
        file.write(bytes(10240))
    assert verify(tmp_path / "index", decode=True).ok


def test_a_tar_that_is_still_written(tmp_path: Path) -> None:
    """Attached before its last member is whole, it is refused; members that were whole hold while it grows."""
    whole = (tars(tmp_path) / "0.tar").read_bytes()
    growing = tmp_path / "growing.tar"
    growing.write_bytes(whole[: whole.index(b"sample01.jpg") + 1000])
    with pytest.raises(PackError, match=r"growing\.tar: the tar ends inside"):
        attach(growing, tmp_path / "index")
    end = whole.index(b"sample02.jpg")
    growing.write_bytes(whole[:end])
    attach(growing, tmp_path / "index", overwrite=True)
    growing.write_bytes(whole)
    report = verify(tmp_path / "index", decode=True)
    assert report.ok
    assert report.samples == 2


def test_the_base(tmp_path: Path) -> None:
    """A base relative to the index lets both be moved together; rebase and base= find files that were moved alone."""
    folder(tmp_path / "all" / "src")
    attach(tmp_path / "all" / "src", tmp_path / "all" / "index", base="../src")
    attach(tmp_path / "all" / "src", tmp_path / "index")
    first = PackedDataset(tmp_path / "index")[3]
    (tmp_path / "all").rename(tmp_path / "moved")
    assert equal(PackedDataset(tmp_path / "moved" / "index")[3], first)
    with pytest.raises(SampleError, match="No such file"):
        PackedDataset(tmp_path / "index")[3]
    assert equal(PackedDataset(tmp_path / "index", base=tmp_path / "moved" / "src")[3], first)
    assert rebase(tmp_path / "index", tmp_path / "moved" / "src") == COUNT
    done = subprocess.run(
        [sys.executable, "-m", "fastload.cli.main", "info", tmp_path / "index"], capture_output=True, text=True, check=True
    )
    assert str(tmp_path / "moved" / "src") in done.stdout.replace("\n", "").replace(" ", "").replace("│", "")
    assert equal(PackedDataset(tmp_path / "index")[3], first)
    with pytest.raises(ArgumentError, match="which is not the folder of the source"):
        attach(tmp_path / "moved" / "src", tmp_path / "other", base=tmp_path)
    pack(tmp_path / "moved" / "src", tmp_path / "packed")
    with pytest.raises(DatasetError, match="holds its images itself"):
        rebase(tmp_path / "packed", tmp_path)
    with pytest.raises(DatasetError, match="holds its images"):
        PackedDataset(tmp_path / "packed", base=tmp_path)


def test_a_base_through_a_link(tmp_path: Path) -> None:
    """An index that is opened through a link finds a base relative to the folder that the link leads to."""
    folder(tmp_path / "all" / "src")
    attach(tmp_path / "all" / "src", tmp_path / "all" / "index", base="../src")
    (tmp_path / "linked").symlink_to(tmp_path / "all" / "index")
    assert equal(PackedDataset(tmp_path / "linked")[3], PackedDataset(tmp_path / "all" / "index")[3])
    assert verify(tmp_path / "linked", decode=True).ok


@pytest.mark.parametrize("base", ["", "a\0b", "a" * 5000], ids=["empty", "zero byte", "long"])
def test_a_base_that_is_no_path(tmp_path: Path, base: str) -> None:
    """It is refused by attach, rebase and PackedDataset, before anything is written: the index stays as it was."""
    folder(tmp_path / "src")
    attach(tmp_path / "src", tmp_path / "index")
    with pytest.raises(ArgumentError, match="the folder of the attached files"):
        attach(tmp_path / "src", tmp_path / "other", base=base)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ArgumentError, match="the folder of the attached files"):
        rebase(tmp_path / "index", base)
    with pytest.raises(ArgumentError, match="the folder of the attached files"):
        PackedDataset(tmp_path / "index", base=base)
    assert verify(tmp_path / "index").ok


def test_a_base_that_is_another(tmp_path: Path) -> None:
    """A relative base is looked at before the index is there; a file is no base; a folder that is not there yet may be named."""
    folder(tmp_path / "src")
    (tmp_path / "wrong").mkdir()
    with pytest.raises(ArgumentError, match="which is not the folder of the source"):
        attach(tmp_path / "src", tmp_path / "index", base="../wrong")
    attach(tmp_path / "src", tmp_path / "index", base="../src")
    file = next((tmp_path / "src").rglob("*.jpg"))
    with pytest.raises(ArgumentError, match="is no folder"):
        rebase(tmp_path / "index", file)
    for base in (file, tmp_path / "nowhere"):
        with pytest.raises(DatasetError, match="is no folder: name the one that holds the attached files"):
            PackedDataset(tmp_path / "index", base=base)
    done = subprocess.run(
        [sys.executable, "-m", "fastload.cli.main", "rebase", tmp_path / "index", "../later"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{tmp_path / 'index'}: {COUNT} samples are looked for in {tmp_path / 'later'}, which is not there now\n"
    with pytest.raises(SampleError, match=r"later/class0/00\.jpg: .*No such file.*fastload rebase"):
        PackedDataset(tmp_path / "index")[0]
    (tmp_path / "src").rename(tmp_path / "later")
    assert verify(tmp_path / "index").ok


@pytest.mark.parametrize("how", ["attached", "in place"])
def test_no_descriptor_left(tmp_path: Path, how: str) -> None:
    """Where the process may open no more files, no sample is bad: ResourceError says what to do, whatever on_error is."""
    path = folder(tmp_path / "src")
    if how == "attached":
        attach(path, path := tmp_path / "index")
    program = [sys.executable, "-c", STARVED, path]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.splitlines() == ["raise: told", "skip: told", "replace: told"] + ["alone: told"] * (how == "attached")


STARVED = """
import os, resource, sys
import torchvision_ops
from torchvision import datasets, transforms
from fastload import FastLoader, PackedDataset
from fastload.errors import ResourceError

def starved(name, use):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        told = repr(use())
    except ResourceError as error:
        told = "told" if "jpg" in str(error) and "raise the limit on open files (ulimit -n)" in str(error) else str(error)
    for descriptor in held:
        os.close(descriptor)
    print(f"{name}: {told}")

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
transform = transforms.Compose([transforms.CenterCrop(40), transforms.ToTensor()])
attached = sys.argv[1].endswith("index")
dataset = PackedDataset(sys.argv[1], transform) if attached else datasets.ImageFolder(sys.argv[1], transform)
for on_error in ("raise", "skip", "replace"):
    with FastLoader(dataset, batch_size=1, num_workers=1, prefetch_factor=1, on_error=on_error) as loader:
        batches = iter(loader)
        next(batches)
        starved(on_error, lambda: len(list(batches)))
if attached:
    starved("alone", lambda: dataset[9])
"""


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
    """An image that is no JPEG is stored as its pixels, and counted."""
    image = picture(1, 40, 50)
    tree(tmp_path / "src", {"a/0.jpg": jpeg(0), "a/1.png": encoded(image, "PNG")})
    summary = attach(tmp_path / "src", tmp_path / "index")
    assert (summary.attached, summary.raw) == (1, 1)
    (tmp_path / "src" / "a" / "1.png").unlink()
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


def test_it_is_never_written_into_the_source(tmp_path: Path) -> None:
    """Overwriting a folder that holds the source is refused, and files of the source are never changed."""
    folder(tmp_path / "src")
    before = {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.jpg")}
    with pytest.raises(PackError, match="the source lies in it"):
        attach(tmp_path / "src", tmp_path, overwrite=True)
    for make in (attach, pack):
        with pytest.raises(PackError, match=r"index lies in .*src, where it would be taken for a class folder"):
            make(tmp_path / "src", tmp_path / "src" / "index")
    assert {path: path.read_bytes() for path in (tmp_path / "src").rglob("*.jpg")} == before


@pytest.mark.parametrize("kind", ["tfrecord", "mds", "litdata", "litdata-pairs", "lmdb"])
def test_files_of_other_libraries(kind: str, tmp_path: Path) -> None:
    """What other libraries wrote is attached: samples equal those of the same files packed, and no image is written."""
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
    """Keywords and flags of attach are those of a pack that leave images as they are, and base, with the same defaults."""
    wanted = {
        "workers",
        "shuffle",
        "seed",
        "check",
        "index",
        "on_error",
        "limit",
        "path_column",
        "label_column",
        "header",
        "key_pattern",
        "label_pattern",
    }
    defaults = {
        name: getattr(kind(), name)
        for kind in (PackOptions, RunOptions, TableOptions, LmdbOptions)
        for name in kind.__slots__
        if name in wanted
    }
    defaults |= {"max_pixels": None, "base": None, "overwrite": False, "resume": False}
    keywords = {
        name: each.default for name, each in inspect.signature(fastload.attach).parameters.items() if each.kind is each.KEYWORD_ONLY
    }
    flags = {name: each.default for name, each in inspect.signature(command).parameters.items() if name not in ("sources", "out")}
    assert keywords == defaults | {"progress": False}
    assert flags == defaults | {"quiet": False}
