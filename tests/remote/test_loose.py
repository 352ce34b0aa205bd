"""Images that are objects of their own: of class folders below a URL, of a list and of a table of URLs, read
in any order as the same files on a disk are; what is wrong with one is its sample's error."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from servers.nginx import Nginx
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_attach_url import CROP, MIDDLE, check_every_order, in_environment, interrupted, opened
from test_pack_from_url import Put, picture, there
from typer.testing import CliRunner

import fastload
from fastload import FastLoader, PackedDataset
from fastload.cli.main import app
from fastload.common import spill
from fastload.errors import DatasetError, FastloadError, PackError, SampleError
from fastload.packing import attach, attach_objects, convert, pack, rebase, unpack
from fastload.remote.caches import fill_cache
from fastload.remote.foreign import Below, ForeignObjects, ForeignURL
from fastload.remote.objects import Listing, ObjectInfo, Objects
from fastload.sources import open_source
from fastload.sources.loose import objects_below
from fastload.sources.options import SourceOptions
from fastload.store import Manifest
from fastload.store.foreign_writer import ForeignWriter
from fastload.store.loose import LooseObject
from fastload.unpacking.verify import verify

Open = Callable[..., Objects]
__all__ = ["there"]

COUNT = 9


def tree() -> dict[str, bytes]:
    """Nine images in three class folders, whose order is another than that of their keys, and others."""
    classes = ("a", "a-b", "b")
    found = {
        f"{classes[number % 3]}/{'deep/' if number % 2 else ''}{number}.jpg": picture(number)
        for number in range(COUNT)
    }
    return {**found, "a/notes.txt": b"no image", "beside.jpg": picture(1)}


def local_of(tmp_path: Path, **more: Any) -> PackedDataset:
    attach(str(tmp_path / "files"), tmp_path / "local.fl")
    given = {"transform": CROP, "fields": {"image": "image", "label": "label"}, "seed": 1, **more}
    return PackedDataset(tmp_path / "local.fl", **given)


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_class_folders(threads: int, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Two epochs of every order are those of the folder on a disk, and so are notices and classes."""
    there(tree())
    summary = attach(s3_url, tmp_path / "out.fl", storage_options=seaweedfs.options())
    local = local_of(tmp_path)
    assert (summary.samples, summary.attached, summary.layout) == (COUNT, COUNT, "class folders")
    kept = Manifest.load(tmp_path / "local.fl").summary
    assert [(n.kind, n.count) for n in summary.notices] == [(n["kind"], n["count"]) for n in kept["notices"]]
    found = opened(
        tmp_path / "out.fl", tmp_path / "cache", seaweedfs, fields={"image": "image", "label": "label"}
    )
    assert (found.classes, list(found.column("label"))) == (local.classes, list(local.column("label")))
    check_every_order(local, found, threads)
    found.close()


def test_each_is_asked_for_as_it_was(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """One that was replaced or is gone is its sample's error, which names it, and no other's."""
    objects = there(tree())
    attach(s3_url, tmp_path / "out.fl", storage_options=seaweedfs.options())
    form = {"transform": MIDDLE, "fields": ("image", "label")}
    objects.put("a/0.jpg", picture(5))
    objects.delete("b/deep/5.jpg")
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    for name, reason in (("a/0.jpg", "it was replaced"), ("b/deep/5.jpg", "no such object")):
        index = next(at for at in range(COUNT) if name in found.opened.reader.shard_of(at))
        with pytest.raises(SampleError, match=rf"sample {index} .*{name}.*{reason}"):
            found[index]
    loader = FastLoader(found, batch_size=None, num_workers=2, on_error="skip")
    assert (len(list(loader)), loader.skipped) == (COUNT - 2, 2)
    report = verify(tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert ["a/0.jpg: " in report.problems[0], "no such object" in report.problems[1]] == [True, True]
    assert len(report.problems) == 2
    found.close()


def test_in_a_bucket_of_its_own(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any
) -> None:
    """Pushed to a URL the dataset opens in three requests, and names come when an object is read; pulled,
    joined, cut, unpacked and converted it gives the same files."""
    there({f"data/{name}": data for name, data in tree().items()})
    options = {"storage_options": seaweedfs.options()}
    path, url = tmp_path / "out.fl", f"{s3_url}/made/out.fl"
    attach(f"{s3_url}/data", path, **options)
    fastload.push(path, url, **options)
    form = {"transform": MIDDLE, "fields": ("image", "label")}
    expected = [sample[0] for sample in opened(path, tmp_path / "whole", seaweedfs, **form)]
    with Proxy(seaweedfs.port) as proxy:
        through = {**seaweedfs.options(), "endpoint": proxy.endpoint}
        for cache_size in (None, 1):  # with room for names in the cache, and without
            cache = tmp_path / f"cache-{cache_size}"
            before = proxy.counts()["requests"]
            found = opened(url, cache, seaweedfs, **form, storage_options=through, cache_size=cache_size)
            assert proxy.counts()["requests"] - before <= 3
            loader = FastLoader(found, batch_size=4, num_workers=2)
            assert torch.equal(torch.cat([images for images, _ in loader]), torch.stack(expected))
            found.close()
    fastload.pull(url, tmp_path / "back.fl", **options)
    fastload.concat([tmp_path / "back.fl", path], tmp_path / "two.fl")
    for place in (url, tmp_path / "two.fl", tmp_path / "back.fl"):
        assert verify(place, decode=True, **options).ok
    assert fill_cache(str(tmp_path / "back.fl"), tmp_path / "filled", **options) == (COUNT, COUNT)
    two = opened(tmp_path / "two.fl", tmp_path / "cache", seaweedfs, **form)
    assert all(
        torch.equal(sample[0], image) for sample, image in zip(two, [*expected, *expected], strict=True)
    )
    two.close()
    images = [picture(number) for number in range(COUNT)]
    in_environment(seaweedfs, monkeypatch)
    assert Manifest.load(path).image_bytes == Manifest.load(path).bytes == sum(map(len, images))
    convert(path, tmp_path / "stored.fl", encode="keep")
    unpack(tmp_path / "stored.fl", tmp_path / "unpacked")
    assert sorted(file.read_bytes() for file in (tmp_path / "unpacked").rglob("*.jpg")) == sorted(images)


def test_moved(tmp_path: Path, s3_url: str, there: Put, open_s3: Open, seaweedfs: SeaweedFS) -> None:
    """The objects are found below another URL, and what the cache has stays; another size is refused."""
    objects = there(tree())
    options = {"storage_options": seaweedfs.options()}
    attach(s3_url, tmp_path / "out.fl", **options)
    form = {"transform": MIDDLE, "fields": ("image", "label")}
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    expected = [sample[0] for sample in found]
    found.close()
    elsewhere = open_s3(f"{s3_url}/moved")
    for name, data in tree().items():
        elsewhere.put(name, data)
        objects.delete(name)
    assert rebase(tmp_path / "out.fl", f"{s3_url}/moved", **options) == COUNT
    for cache in ("cache", "fresh"):
        again = opened(tmp_path / "out.fl", tmp_path / cache, seaweedfs, **form)
        assert all(torch.equal(sample[0], image) for sample, image in zip(again, expected, strict=True))
        assert (again.opened.reader.files.status().fetched == 0) == (cache == "cache")
        again.close()
    elsewhere.put("a/0.jpg", b"other")
    with pytest.raises(PackError, match=r"moved/a/0\.jpg has 5 bytes"):
        rebase(tmp_path / "out.fl", f"{s3_url}/moved", **options)


def table(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("url", "label", "score"), *rows])
    return path


@pytest.mark.parametrize("place", ["disk", "store"])
def test_table(place: str, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """A table of URLs on a disk, or one in the store of paths beside it, attached, read and packed."""
    content = tree()
    names = sorted(name for name in content if name.endswith(".jpg"))
    rows = [(name, name[0], f"{number}.5") for number, name in enumerate(names)]
    if place == "disk":
        source = str(table(tmp_path / "all.csv", [(f"{s3_url}/{name}", *more) for name, *more in rows]))
        there(content)
    else:
        source = f"{s3_url}/all.csv"
        there({**content, "all.csv": table(tmp_path / "all.csv", rows).read_bytes()})
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    given = {**options, "path_column": "url"}
    attach(source, tmp_path / "out.fl", **given)
    pack(source, tmp_path / "packed.fl", encode="keep", **given)
    packed = PackedDataset(tmp_path / "packed.fl", MIDDLE)
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE, fields=None)
    got = fastload.read(source, transform=MIDDLE, cache=tmp_path / "cache", **given)
    assert isinstance(got, PackedDataset)
    assert [*found.classes] == [*packed.classes] == [*got.classes] == ["a", "b"]  # type: ignore[misc]
    for sample, other, (image, label) in zip(packed, found, got, strict=True):
        assert (sample["label"], sample["score"]) == (other["label"], other["score"])
        assert torch.equal(sample["image"], other["image"])
        assert (label, torch.equal(image, other["image"])) == (other["label"], True)
    found.close()
    got.close()


def test_bad_lines(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, proxy: Proxy) -> None:
    """Objects that are not there, empty, or may not be read are named and counted; a line that is no URL
    among URLs is an error, as is a secret in one."""
    there({**tree(), "empty.jpg": b""})
    options: dict[str, Any] = {"storage_options": seaweedfs.options(proxy.endpoint), "path_column": "url"}
    names = ["a/0.jpg", "lost.jpg", "empty.jpg", "b/2.jpg", "a-b/4.jpg"]
    source = table(tmp_path / "all.csv", [(f"{s3_url}/{name}", "1", "2") for name in names])
    proxy.spoil("status", 10_000, part="b/2.jpg", status=403, code="AccessDenied")
    with pytest.raises(FastloadError, match=r"lost\.jpg.*no such object"):
        attach(source, tmp_path / "stopped.fl", **options)
    for check in (None, "entropy"):
        summary = attach(source, tmp_path / f"{check}.fl", on_error="skip", check=check, **options)
        assert (summary.samples, summary.skipped_count) == (2, 3)
        reasons = dict(summary.skipped)
        assert [
            next(word for word in ("no such", "empty", "denied") if word in reason)
            for reason in reasons.values()
        ] == [
            "no such",
            "empty",
            "denied",
        ]
    proxy.clear()
    assert Manifest.load(tmp_path / "entropy.fl").knows_sizes
    source = table(tmp_path / "mixed.csv", [(f"{s3_url}/a/0.jpg", "1", "2"), ("a/0.jpg", "1", "2")])
    with pytest.raises(PackError, match=r"a/0\.jpg' is no URL"):
        attach(source, tmp_path / "mixed.fl", **options)
    source = table(tmp_path / "signed.csv", [(f"{proxy.endpoint}/a/0.jpg?sig=1", "1", "2")] * 2)
    with pytest.raises(FastloadError, match="a query"):
        attach(source, tmp_path / "signed.fl", path_column="url", on_error="skip")


def test_lists(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Images by themselves: of a pattern, a list, and a folder without labels; numbers stand for labels."""
    content = {f"{number}.jpg": picture(number) for number in range(5)}
    there(content)
    options: dict[str, Any] = {"storage_options": seaweedfs.options(), "cache": tmp_path / "cache"}
    sources = (f"{s3_url}/*.jpg", [f"{s3_url}/{name}" for name in content], f"{s3_url}/{{0..4}}.jpg", s3_url)
    for source in sources:
        found = fastload.read(source, transform=MIDDLE, **options)
        assert [index for _, index in found] == list(range(5))
        found.close()
    there({"deep/er/5.jpg": picture(5)})
    every = fastload.read(s3_url, format="images", **options)
    assert len(every) == 6
    one = fastload.read(s3_url, **options)
    assert (len(one), one.classes) == (1, ["deep"])
    with pytest.raises(PackError, match="no coco"):
        fastload.read(s3_url, format="coco", **options)
    with pytest.raises(PackError, match="nothing lies below"):
        fastload.read(f"{s3_url}/nowhere", **options)


def test_https(tmp_path: Path, nginx: Nginx) -> None:
    """Of a web server, with names that have to be quoted."""
    folder = nginx.root / "private"
    folder.mkdir(exist_ok=True)
    (folder / "a picture.jpg").write_bytes(picture(1))
    header = {"authorization": "Basic " + base64.b64encode(b"user:password").decode()}
    options = {
        "client_options": {"root_certificate": nginx.certificate, "default_headers": header},
    }
    source = table(tmp_path / "all.csv", [(f"{nginx.https}/private/a%20picture.jpg", "3", "2")])
    found = fastload.read(
        str(source), path_column="url", transform=MIDDLE, storage_options=options, cache=tmp_path / "cache"
    )
    assert [label for _, label in found] == [3]
    found.close()


def test_names_are_checked(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """A damaged name is its sample's error, and never another object's image."""
    there(tree())
    options = {"storage_options": seaweedfs.options()}
    attach(s3_url, tmp_path / "out.fl", **options)
    (shard,) = Manifest.load(tmp_path / "out.fl").shards
    assert shard.foreign is not None
    assert shard.foreign.objects is not None
    segment = shard.foreign.objects
    path = tmp_path / "out.fl" / segment.file
    whole = path.read_bytes()
    at = whole.index(b"a/0.jpg")
    path.write_bytes(whole[:at] + b"a/2" + whole[at + 3 :])
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE)
    loader = FastLoader(found, batch_size=None, num_workers=2, on_error="skip")
    assert (len(list(loader)), loader.skipped) == (COUNT - 1, 1)
    path.unlink()
    fresh = opened(tmp_path / "out.fl", tmp_path / "fresh", seaweedfs, transform=MIDDLE)
    with pytest.raises(SampleError, match="sample 0"):
        fresh[0]
    for dataset in (found, fresh):
        dataset.close()


def test_resumed(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any) -> None:
    """A stopped attach goes on with the next part, and one of other objects is refused."""
    objects = there(tree())
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    monkeypatch.setattr(attach_objects, "_LOOSE", 4)
    attach(s3_url, tmp_path / "whole.fl", **options)
    monkeypatch.setattr(attach_objects, "_COMMIT_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(ForeignWriter, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            attach(s3_url, tmp_path / "out.fl", **options)
    summary = attach(s3_url, tmp_path / "out.fl", resume=True, **options)
    assert (summary.samples, summary.shards) == (COUNT, 3)
    before, after = (Manifest.load(tmp_path / name) for name in ("whole.fl", "out.fl"))
    assert [shard.crc32c for shard in before.shards] == [shard.crc32c for shard in after.shards]
    assert before.classes == after.classes
    objects.put("a/0.jpg", picture(7))
    with pytest.raises(PackError, match="other objects"):
        attach(s3_url, tmp_path / "out.fl", resume=True, **options)


def test_many_to_a_page(tmp_path: Path, s3_url: str, open_s3: Open, seaweedfs: SeaweedFS) -> None:
    """All objects of a list of several pages."""
    data, objects = picture(1), open_s3()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: objects.put(f"c{number % 3}/{number}.jpg", data), range(2_500)))
    summary = attach(s3_url, tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert (summary.samples, summary.bytes_in) == (2_500, 2_500 * len(data))


def test_command(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """`attach`, `info` and `columns` from a shell."""
    there(tree())
    store = [
        f"--storage-option={name}={value}"
        for name, value in seaweedfs.options().items()
        if name != "client_options"
    ]
    out = str(tmp_path / "out.fl")
    result = CliRunner().invoke(app, ["attach", s3_url, out, *store])
    assert result.exit_code == 0, result.output
    described = json.loads(CliRunner().invoke(app, ["info", "--json", out]).output)
    assert described["samples"] == COUNT


@given(st.integers(0, 1 << 32), st.text(), st.integers(0, 1 << 40), st.none() | st.text(min_size=1))
def test_values(row: int, name: str, size: int, etag: str | None) -> None:
    """A value is what it was made of, in its own row alone."""
    kept = LooseObject(name, size, etag)
    if "\0" not in (etag or ""):
        value = kept.packed(row)
        assert LooseObject.parsed(row, value) == kept
        for other in (row + 1, -1):
            with pytest.raises(DatasetError, match="damaged"):
                LooseObject.parsed(other, value)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_long_listing(labelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing in any order, with objects twice, has each once; images are in ImageFolder's order, also
    where sorting them goes by a file."""
    monkeypatch.setattr(spill, "RUN_BYTES", 1000)
    rests = ("9.jpg", "x/1.JPG", "x.jpg", "é.png")
    names = [f"{top}/{rest}" for top in ("b", "a b", "a", "ä", "a!") for rest in rests]
    listing = Listing()
    for name in (*names, "a/notes.txt", *reversed(names)):
        listing.add(ObjectInfo(name, len(name), f"tag of {name}"))
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture(0))
    assert [each.name for each in listing.sealed()] == sorted({*names, "a/notes.txt"})
    objects = ForeignObjects({})
    folder = ForeignURL("s3://bucket/some", objects)
    found = objects_below(folder, Below("s3://bucket/some", objects, listing), labelled=labelled)
    expected = open_source(tmp_path, SourceOptions.of(format="folder" if labelled else "images"))
    assert found.classes == expected.classes
    assert [found.key(each).removeprefix("s3://bucket/some/") for each in range(len(found))] == [
        str(Path(expected.name(each)).relative_to(tmp_path)) for each in range(len(expected))
    ]
    name, place = found.key(3).removeprefix("s3://bucket/some/"), found.place(3)
    assert isinstance(place.path, ForeignURL)
    assert (place.size, place.path.info.etag) == (len(name), f"tag of {name}")
