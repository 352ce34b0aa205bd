"""Datasets whose images stay in objects of a store as somebody wrote them: equal bytes to a local attach,
whatever reads them; what is read, learnt and kept; and what is wrong with an object is named."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pictures import photo
from PIL import Image
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_pack_from_url import EACH, TARS, Put, files, picture, tar_of, there
from typer.testing import CliRunner

import fastload
from fastload import FastLoader, PackedDataset, packing
from fastload.cli.main import app
from fastload.errors import ArgumentError, DatasetError, FastloadError, PackError, SampleError
from fastload.packing import attach, attach_objects, convert, export, rebase, unpack
from fastload.remote.caches import fill_cache
from fastload.remote.objects import Objects
from fastload.store import Manifest
from fastload.store.foreign_writer import ForeignWriter
from fastload.transforms import CenterCrop, RandomResizedCrop, Resize
from fastload.unpacking.verify import verify
from fastload.versions import append
from fastload.view.opening import open_subject
from fastload.view.subject import PageSettings

Open = Callable[..., Objects]
CROP = RandomResizedCrop(64)
MIDDLE = [Resize(80), CenterCrop(64)]

__all__ = ["there"]


def pixels(loader: Any) -> list[tuple[bytes, list[int]]]:
    return [(batch["image"].numpy().tobytes(), batch["label"].tolist()) for batch in loader]


def check_every_order(local: PackedDataset, found: PackedDataset, threads: int) -> None:
    """Compares two epochs of every order."""
    for shuffle in (False, True, "window", "huge"):
        for epoch in range(2):
            loaders = [
                FastLoader(each, batch_size=4, shuffle=shuffle, num_workers=threads, seed=3)
                for each in (local, found)
            ]
            for each in loaders:
                each.set_epoch(epoch)
            assert pixels(loaders[0]) == pixels(loaders[1])


def opened(path: Path, cache: Path, server: SeaweedFS, **more: Any) -> PackedDataset:
    given = {"transform": CROP, "fields": ("image", "label"), "seed": 1, "cache": cache}
    return PackedDataset(path, **{**given, "storage_options": server.options(), "timeout": 10, **more})


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_equal_to_a_local_attach(
    threads: int, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """Two epochs of every order, and single samples."""
    there(files("tar"))
    attach(str(tmp_path / "files" / "train-*.tar"), tmp_path / "local.fl")
    summary = attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert (summary.samples, summary.shards, summary.attached) == (TARS * EACH, TARS, TARS * EACH)
    local = PackedDataset(tmp_path / "local.fl", CROP, fields={"image": "image", "label": "label"}, seed=1)
    found = opened(
        tmp_path / "out.fl", tmp_path / "cache", seaweedfs, fields={"image": "image", "label": "label"}
    )
    assert len(found) == len(local)
    assert found.fields == local.fields
    check_every_order(local, found, threads)
    for index in (0, 7, TARS * EACH - 1):
        assert torch.equal(local[index]["image"], found[index]["image"])
    assert list(found.where("label >= 12").indices) == [12, 13, 14]
    found.close()


def test_each_object_is_asked_for_as_it_was(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """An object that was replaced, or is gone, is the error of its samples alone; those that the cache has
    go on, and others' pixels never come."""
    objects = there(files("tar"))
    attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", storage_options=seaweedfs.options())
    form = {"transform": MIDDLE, "fields": {"image": "image", "label": "label"}}
    whole = opened(tmp_path / "out.fl", tmp_path / "whole", seaweedfs, **form)
    expected = [sample["image"] for sample in whole]
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    assert torch.equal(found[EACH]["image"], expected[EACH])
    objects.put("train-000.tar", files("tar")["train-001.tar"])
    objects.delete("train-002.tar")
    assert torch.equal(found[EACH]["image"], expected[EACH])
    for index, reason in ((4, "it was replaced"), (11, "no such object")):
        with pytest.raises(SampleError, match=rf"sample {index} .*train-00{index // EACH}\.tar.*{reason}"):
            found[index]
    with pytest.raises(SampleError, match="replaced"):
        list(FastLoader(found, batch_size=4, num_workers=2))
    for threads in (0, 2):
        loader = FastLoader(found, batch_size=None, num_workers=threads, on_error="skip")
        good = list(range(EACH, 2 * EACH))
        assert [sample["label"] for sample in loader] == good
        assert loader.skipped == TARS * EACH - len(good)
        for at, sample in zip(good, loader, strict=True):
            assert torch.equal(sample["image"], expected[at])


def test_what_is_learnt_is_kept(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """An epoch proves each image sound: a later process knows it, and notices when bytes in the cache
    differ, which are fetched again; so are torn ones that nobody has read yet."""
    there(files("tar"))
    attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", storage_options=seaweedfs.options())
    form = {"transform": MIDDLE, "fields": {"image": "image", "label": "label"}}
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    files_, store = found.opened.reader.files, found.opened.reader.store
    assert not any(store.vouches(index) for index in range(TARS * EACH))
    files_.session.wait(files_.request(np.arange(TARS * EACH)))
    cached = [Path(shard.path) for shard in files_.shards]
    cached[0].write_bytes(bytes(cached[0].stat().st_size))
    expected = [
        sample["image"] for sample in opened(tmp_path / "out.fl", tmp_path / "whole", seaweedfs, **form)
    ]

    def read(dataset: PackedDataset) -> None:
        loader = FastLoader(dataset, batch_size=4, num_workers=2)
        assert torch.equal(torch.cat([batch["image"] for batch in loader]), torch.stack(expected))

    read(found)
    assert all(store.vouches(index) for index in range(TARS * EACH))
    found.close()
    again = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    store, before = again.opened.reader.store, again.opened.reader.files.status().fetched
    assert all(store.vouches(index) for index in range(TARS * EACH))
    damaged = bytearray(cached[1].read_bytes())
    for at in range(0, len(damaged), 64):
        damaged[at] ^= 1
    cached[1].write_bytes(damaged)
    read(again)
    assert again.opened.reader.files.status().fetched > before
    again.close()


def test_in_a_bucket_of_its_own(
    tmp_path: Path, s3_url: str, there: Put, open_s3: Open, seaweedfs: SeaweedFS
) -> None:
    """The index is pushed to a URL, opens there in three requests, and is pulled, cached, verified and
    described as any dataset; the objects stay where they are."""
    objects = there(files("tar"))
    options = {"storage_options": seaweedfs.options()}
    attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", **options)
    url = f"{s3_url}/made/out.fl"
    summary = fastload.push(tmp_path / "out.fl", url, **options)
    assert (summary.files, summary.samples) == (2, TARS * EACH)
    assert sorted(each.name for each in open_s3(url).list()) == [
        "index-00000.bin",
        "manifest.json",
        "values-00000.bin",
    ]
    form = {"transform": MIDDLE, "fields": {"image": "image", "label": "label"}}
    expected = [
        sample["image"] for sample in opened(tmp_path / "out.fl", tmp_path / "whole", seaweedfs, **form)
    ]
    with Proxy(seaweedfs.port) as proxy:
        through = {**seaweedfs.options(), "endpoint": proxy.endpoint}
        found = opened(url, tmp_path / "cache", seaweedfs, **form, storage_options=through)
        assert proxy.counts()["requests"] <= 3
        loader = FastLoader(found, batch_size=5, num_workers=2)
        assert torch.equal(torch.cat([batch["image"] for batch in loader]), torch.stack(expected))
        found.close()
    fastload.pull(url, tmp_path / "back.fl", **options)
    assert fill_cache(str(tmp_path / "back.fl"), tmp_path / "filled", **options) == (TARS * EACH, TARS * EACH)
    for place in (tmp_path / "back.fl", url):
        report = verify(place, decode=True, **options)
        assert report.ok
        assert report.decoded
        objects.put("train-001.tar", files("tar")["train-002.tar"])
        (problem,) = verify(place, **options).problems
        assert re.search(r"train-001\.tar: it was replaced", problem)
        objects.put("train-001.tar", files("tar")["train-001.tar"])
    output = CliRunner().invoke(app, ["info", "--cost", "--json", str(tmp_path / "back.fl")]).output
    images = sum(len(picture(number)) for number in range(TARS * EACH))
    assert json.loads(output)["cost"]["epochs"][0]["later"]["bytes"] >= images
    assert Manifest.load(tmp_path / "back.fl").image_bytes == images


def test_read(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """One line gives a dataset of pairs: attached below the cache folder, found there again, and made anew
    once an object is another."""
    objects = there(files("tar"))
    with Proxy(seaweedfs.port) as proxy:
        store = {
            "cache": tmp_path / "cache",
            "storage_options": {**seaweedfs.options(), "endpoint": proxy.endpoint},
        }
        found = fastload.read(f"{s3_url}/train-{{000..002}}.tar", transform=MIDDLE, **store)
        assert isinstance(found, PackedDataset)
        assert [label for _, label in found] == list(range(TARS * EACH))
        first = found[0][0]
        proxy.counts(reset=True)
        again = fastload.read(f"{s3_url}/train-{{000..002}}.tar", transform=MIDDLE, **store)
        assert torch.equal(again[0][0], first)
        assert proxy.counts()["requests"] == TARS
        captions = fastload.read(f"{s3_url}/train-*.tar", label=".txt", **store)
        assert captions[7]["txt"] == "caption 7"
        with pytest.raises(ArgumentError, match=r"has no 'xml'; its fields are image, label, txt"):
            fastload.read(f"{s3_url}/train-*.tar", label=".xml", **store)
        with pytest.raises(ArgumentError, match="label='cls' is for objects in a store"):
            fastload.read(tmp_path / "files" / "train-000.tar", label="cls")
        objects.put("train-001.tar", files("tar")["train-000.tar"])
        changed = fastload.read(f"{s3_url}/train-{{000..002}}.tar", transform=MIDDLE, **store)
        assert [label for _, label in changed] == [*range(EACH), *range(EACH), *range(2 * EACH, 3 * EACH)]


def test_several_images(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Of several images the user may choose one; what cannot lie beside it is refused where all is taken."""
    there({"a.tar": tar_of(range(3), **{"right.jpg": picture(50)})})
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    for image, numbers in ((None, [0, 1, 2]), (".right.jpg", [50, 50, 50])):
        found = fastload.read(f"{s3_url}/a.tar", image=image, cache=tmp_path / "cache", **options)
        shown = [Image.open(io.BytesIO(picture(number))).convert("RGB") for number in numbers]
        assert [each.permute(1, 2, 0).numpy().tobytes() for each, _ in found] == [
            each.tobytes() for each in shown
        ]
        assert [label for _, label in found] == [0, 1, 2]
    with pytest.raises(PackError, match=r"a\.tar: field 'right' \(image\) cannot lie beside images"):
        attach(f"{s3_url}/a.tar", tmp_path / "out.fl", **options)
    attach(f"{s3_url}/a.tar", tmp_path / "out.fl", fields=["label", "label", "image"], **options)
    chosen = opened(tmp_path / "out.fl", tmp_path / "c", seaweedfs)
    assert [chosen.fields, [label for _, label in chosen]] == [("image", "label"), [0, 1, 2]]
    for fields, said in ((["lable"], "no 'lable'; its fields are image, label"), ("label", "is no list")):
        with pytest.raises(ArgumentError, match=said):
            attach(f"{s3_url}/a.tar", tmp_path / "no.fl", fields=fields, **options)
    with pytest.raises(ArgumentError, match=r"^image='x' \(--image\) is for tars, "):
        there({"b.jpg": picture(1)})
        attach(f"{s3_url}/b.jpg", tmp_path / "loose.fl", image="x", **options)


def test_read_without_labels(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Images and their numbers, and several processes that ask at the same time."""

    def bare(numbers: range) -> bytes:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for number in numbers:
                content = picture(number)
                entry = tarfile.TarInfo(f"{number}.jpg")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return data.getvalue()

    there({"a.tar": bare(range(4)), "b.tar": bare(range(4, 7))})
    call = (
        f"import fastload; d = fastload.read({f'{s3_url}/*.tar'!r}, cache={str(tmp_path / 'cache')!r},"
        f" storage_options={seaweedfs.options()!r}); print([number for _, number in d])"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert {each.communicate(timeout=60)[0].strip() for each in running} == {str(list(range(7)))}


def test_resumed(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any) -> None:
    """What was attached before a stop is not read again; other objects are refused."""
    content = files("tar")
    objects = there(content | {"train-001.tar": content["train-001.tar"][:3000]})
    monkeypatch.setattr(attach_objects, "_COMMIT_S", 0.0)
    url, options = f"{s3_url}/train-*.tar", {"storage_options": seaweedfs.options()}
    with pytest.raises(PackError, match=r"train-001\.tar: the tar ends inside sample005\.jpg"):
        attach(url, tmp_path / "out.fl", **options)
    skipped = attach(url, tmp_path / "skipped.fl", on_error="skip", **options)
    assert (skipped.samples, skipped.skipped_count) == (2 * EACH, 1)
    assert skipped.skipped[0][0] == f"{s3_url}/train-001.tar"
    assert [
        sample["label"] for sample in opened(tmp_path / "skipped.fl", tmp_path / "c", seaweedfs, fields=None)
    ] == [
        *range(EACH),
        *range(2 * EACH, 3 * EACH),
    ]
    objects.put("train-001.tar", content["train-001.tar"])
    for command in ({"resume": True}, {}):
        with pytest.raises(PackError, match=r"other objects|unfinished pack"):
            attach(url, tmp_path / "out.fl", **options, **command)
    whole = attach(url, tmp_path / "out.fl", overwrite=True, **options)
    assert whole.samples == whole.packed_now == TARS * EACH
    assert attach(url, tmp_path / "out.fl", resume=True, **options).packed_now == 0
    with pytest.raises(ArgumentError, match="shuffle is for a pack"):
        attach(url, tmp_path / "x.fl", shuffle=True, **options)


def test_classes_of_a_resume(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any
) -> None:
    """Objects of other classes are refused, also by a resume that reads none of the first ones."""
    content = {}
    for number, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=names))
        data, images = io.BytesIO(), [{"bytes": picture(each), "path": None} for each in range(3)]
        table = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 0]}, features=features)
        pq.write_table(table.with_format("arrow")[:].cast(features.arrow_schema), data)
        content[f"{number}.parquet"] = data.getvalue()
    there(content)
    monkeypatch.setattr(attach_objects, "_COMMIT_S", 0.0)
    for resume in (False, True):
        with pytest.raises(PackError, match=r"1\.parquet: its (samples|classes).*attach objects of one kind"):
            attach(
                f"{s3_url}/*.parquet",
                tmp_path / "out.fl",
                resume=resume,
                storage_options=seaweedfs.options(),
            )


@pytest.mark.parametrize("kind", ["tar", "arrow"])
def test_stopped_at_the_end(
    kind: str, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any
) -> None:
    """A resume that finds every object attached makes the dataset that would have been made."""
    there(files(kind))
    url, options = f"{s3_url}/train-*.{kind}", {"storage_options": seaweedfs.options()}
    attach(url, tmp_path / "whole.fl", **options)
    with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
        stopped.setattr(ForeignWriter, "finish", interrupted)
        attach(url, tmp_path / "out.fl", **options)
    attach(url, tmp_path / "out.fl", resume=True, **options)
    whole, again = (Manifest.load(tmp_path / name) for name in ("whole.fl", "out.fl"))
    assert again.shards == whole.shards
    assert (again.schema, again.classes, again.form) == (whole.schema, whole.classes, whole.form)
    assert again.summary["layout"] == whole.summary["layout"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_moved(tmp_path: Path, s3_url: str, there: Put, open_s3: Open, seaweedfs: SeaweedFS) -> None:
    """A dataset finds its objects below another URL, if they have their sizes, and goes on with what its
    cache has."""
    objects = there(files("tar"))
    options = {"storage_options": seaweedfs.options()}
    attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", **options)
    form = {"transform": MIDDLE, "fields": {"image": "image", "label": "label"}}
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, **form)
    expected = [sample["image"] for sample in found]
    found.close()
    elsewhere = open_s3(f"{s3_url}/moved")
    for name, data in files("tar").items():
        elsewhere.put(name, data)
        objects.delete(name)
    assert rebase(tmp_path / "out.fl", f"{s3_url}/moved", **options) == TARS * EACH
    for cache in ("cache", "fresh"):
        again = opened(tmp_path / "out.fl", tmp_path / cache, seaweedfs, **form)
        assert all(torch.equal(sample["image"], image) for sample, image in zip(again, expected, strict=True))
        assert (again.opened.reader.files.status().fetched == 0) == (cache == "cache")
        again.close()
    elsewhere.put("train-000.tar", b"other")
    with pytest.raises(PackError, match=r"moved/train-000\.tar has 5 bytes"):
        rebase(tmp_path / "out.fl", f"{s3_url}/moved", **options)


def in_environment(server: SeaweedFS, monkeypatch: Any) -> None:
    """Gives the options of a server where none are given."""
    given = server.options()
    for name in ("endpoint", "access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(
            "AWS_ENDPOINT_URL" if name == "endpoint" else f"AWS_{name.upper()}", str(given[name])
        )
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")


def test_written_elsewhere(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: Any
) -> None:
    """Unpacked, exported and converted, a dataset gives what its objects hold; what would write its records
    is refused, and a limit counts what it took."""
    there(files("tar"))
    in_environment(seaweedfs, monkeypatch)
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    url, path, count = f"{s3_url}/*.tar", tmp_path / "out.fl", TARS * EACH - 1
    summary = attach(url, path, limit=count)
    pictures = [picture(number) for number in range(count)]
    assert (summary.samples, summary.attached) == (count, count)
    assert summary.bytes_in == sum(map(len, pictures))
    unpack(path, tmp_path / "unpacked")
    written = sorted((tmp_path / "unpacked").rglob("*.jpg"), key=lambda file: file.name)
    assert [file.read_bytes() for file in written] == pictures
    export(path, tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as tar:
        images = [each for each in tar if each.name.endswith(".jpg")]
        assert [tar.extractfile(each).read() for each in images] == pictures  # type: ignore[union-attr]
    convert(path, tmp_path / "stored.fl", encode="keep")
    stored = PackedDataset(tmp_path / "stored.fl", MIDDLE, fields=("image", "label"))
    for kept, there_still in zip(
        stored, opened(path, tmp_path / "cache", seaweedfs, transform=MIDDLE), strict=True
    ):
        assert torch.equal(kept[0], there_still[0])
    for refused in (lambda: packing.index(path), lambda: append(path, url)):
        with pytest.raises(FastloadError, match=r"fastload (convert|pack)"):
            refused()


def test_images_of_every_kind(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """PNGs, WebPs, a GIF, a damaged and a cut JPEG and no image at all, from each engine, as from a local
    attach of those that it takes; twice, since the second epoch knows what it read; each bad one is named."""
    contents: dict[str, bytes] = {}
    for number, kind in enumerate(("JPEG", "PNG", "WEBP", "GIF")):
        data = io.BytesIO()
        photo(number, 100, 90).save(data, kind)
        contents[kind.lower()] = data.getvalue()
    jpeg = contents["jpeg"]
    contents["damaged"] = jpeg[: len(jpeg) // 2] + bytes(40) + jpeg[len(jpeg) // 2 + 40 :]
    bad = {"cut": jpeg[:200], "text": b"no image", "empty": b""}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for number, content in enumerate((contents | bad).values()):
            for ending, part in (("jpg", content), ("cls", b"%d" % number)):
                entry = tarfile.TarInfo(f"{number}.{ending}")
                entry.size = len(part)
                tar.addfile(entry, io.BytesIO(part))
    there({"a.tar": data.getvalue()})
    attach(str(tmp_path / "files" / "a.tar"), tmp_path / "local.fl", on_error="skip")
    skipped = attach(
        f"{s3_url}/a.tar", tmp_path / "out.fl", on_error="skip", storage_options=seaweedfs.options()
    ).skipped
    assert skipped == ((f"{s3_url}/a.tar:7", "the file is empty"),)
    fields = {"image": "image", "label": "label"}
    local = {
        each["label"]: each["image"] for each in PackedDataset(tmp_path / "local.fl", MIDDLE, fields=fields)
    }
    assert sorted(local) == list(range(len(contents)))
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE, fields=fields)
    for threads, engine in ((0, "auto"), (2, "auto"), (2, "python")):
        for _ in range(2):
            loader = FastLoader(found, batch_size=None, num_workers=threads, engine=engine, on_error="skip")
            read = {each["label"]: each["image"] for each in loader}
            assert read.keys() == local.keys()
            assert all(torch.equal(read[label], local[label]) for label in local)
    for index, reason in enumerate(("", "no image that can be read"), len(contents)):
        with pytest.raises(SampleError, match=rf"sample {index} .*a\.tar.*{reason}"):
            found[index]
    report = verify(tmp_path / "out.fl", decode=True, storage_options=seaweedfs.options())
    assert [sample.index for sample in report.bad] == [5, 6]


def test_sizes(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Images as they are: worker processes find their sizes where nobody knows them; an attach with
    check="entropy" notes sizes and checksums, and names what is no image."""
    there(files("tar"))
    options = {"storage_options": seaweedfs.options()}
    attach(f"{s3_url}/*.tar", tmp_path / "out.fl", **options)
    attach(f"{s3_url}/*.tar", tmp_path / "checked.fl", check="entropy", **options)
    expected = [np.asarray(Image.open(io.BytesIO(picture(number)))) for number in range(TARS * EACH)]
    for name, native in (("out.fl", False), ("checked.fl", True)):
        found = opened(tmp_path / name, tmp_path / name / "cache", seaweedfs, transform=None)
        loader = FastLoader(found, batch_size=4, num_workers=2, collate="list")
        assert ("native threads" in str(loader.explain())) == native
        images = [image for batch in loader for image in batch["image" if isinstance(batch, dict) else 0]]
        for image, pixels in zip(images, expected, strict=True):
            assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels)
        assert all(found.opened.reader.store.vouches(index) for index in range(len(found))) >= native
        assert (len(found.sizes[0]) > 0) == ("width" in found.table().column_names) == native
        if native:
            open_subject(str(tmp_path / name), PageSettings(), **options)
        else:
            with pytest.raises(DatasetError, match="does not say how large"):
                open_subject(str(tmp_path / name), PageSettings(), **options)
        found.close()
