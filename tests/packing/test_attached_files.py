"""Attached images whose files are changed, moved or out of reach: errors that name them, and nothing else
lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attach_helpers import COUNT, equal, folder, jpeg, tars
from early import read_early
from torchvision import transforms

from fastload import FastLoader, PackedDataset
from fastload.errors import ArgumentError, DatasetError, PackError, SampleError
from fastload.packing import attach, pack, rebase, unpack, verify


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
    """Its sample is an error that names it, everywhere; all others are as they were; put back, it is read
    again."""
    files = sorted(folder(tmp_path / "src").rglob("*.jpg"))
    attach(tmp_path / "src", tmp_path / "index")
    dataset = PackedDataset(
        tmp_path / "index", transforms.Compose([transforms.CenterCrop(50), transforms.ToTensor()])
    )
    before = [dataset[number] for number in range(COUNT)]
    data, status = files[5].read_bytes(), files[5].stat()
    change(files[5])
    message = f"sample 5 .*{files[5].name}.*{CHANGES[change]}.*attach the data again"
    with pytest.raises(SampleError, match=message):
        dataset[5]
    with (
        pytest.raises(SampleError, match=message),
        FastLoader(dataset, batch_size=4, num_workers=2) as loader,
    ):
        list(loader)
    with FastLoader(dataset, batch_size=1, on_error="skip") as loader:
        assert equal(
            [batch[1].item() for batch in loader],
            [label for number, (_, label) in enumerate(before) if number != 5],
        )
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


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_between_two_epochs(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Its sample is an error in the next epoch too, of which native threads made batches before the
    change; a touched file's is none."""
    files = sorted(folder(tmp_path / "src").rglob("*.jpg"))
    attach(tmp_path / "src", tmp_path / "index")
    dataset = PackedDataset(
        tmp_path / "index", transforms.Compose([transforms.CenterCrop(50), transforms.ToTensor()])
    )
    with FastLoader(dataset, batch_size=4, num_workers=2, on_error="skip") as loader:
        assert read_early(loader) > 6
        os.utime(files[1])
        assert sum(len(images) for images, _ in loader) == COUNT
        assert read_early(loader) > 6
        change(files[5])
        labels = [label for _, batch in loader for label in batch.tolist()]
        assert labels == [dataset.values(number)["label"] for number in range(COUNT) if number != 5]
        assert any(files[5].name in reason for reason in loader.stats()["bad_samples"])


def test_a_file_that_was_touched(tmp_path: Path) -> None:
    """Another time, and bytes around the image, are no change."""
    tars(tmp_path)
    attach(tmp_path / "shards" / "0.tar", tmp_path / "index")
    with open(tmp_path / "shards" / "0.tar", "ab") as file:
        file.write(bytes(10240))
    assert verify(tmp_path / "index", decode=True).ok


def test_a_tar_that_is_still_written(tmp_path: Path) -> None:
    """Attached before its last member is whole, it is refused; members that were whole hold while it
    grows."""
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
    """A base relative to the index lets both be moved together; rebase and base= find files that were
    moved alone."""
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
        [sys.executable, "-m", "fastload", "info", "--all", tmp_path / "index"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "moved" / "src") in done.stdout
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
    """It is refused by attach, rebase and PackedDataset, before anything is written: the index stays as it
    was."""
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
    """A relative base is looked at before the index is there; a file is no base; a folder that is not
    there yet may be named."""
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
        [sys.executable, "-m", "fastload", "rebase", tmp_path / "index", "../later"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        f"{tmp_path / 'index'}: {COUNT} samples are looked for in {tmp_path / 'later'}, which is not "
        "there now\n"
    )
    with pytest.raises(SampleError, match=r"later/class0/00\.jpg: .*No such file.*fastload rebase"):
        PackedDataset(tmp_path / "index")[0]
    (tmp_path / "src").rename(tmp_path / "later")
    assert verify(tmp_path / "index").ok


@pytest.mark.long
@pytest.mark.parametrize("how", ["attached", "in place"])
def test_no_descriptor_left(tmp_path: Path, how: str) -> None:
    """Where the process may open no more files, no sample is bad: ResourceError says what to do, whatever
    on_error is."""
    path = folder(tmp_path / "src")
    if how == "attached":
        attach(path, path := tmp_path / "index")
    program = [sys.executable, "-c", STARVED, path]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout.splitlines() == ["raise: told", "skip: told", "replace: told"] + ["alone: told"] * (
        how == "attached"
    )


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
        said = "jpg" in str(error) and "raise the limit on open files (ulimit -n)" in str(error)
        told = "told" if said else str(error)
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
