"""Objects in a store as people have them: odd tars, objects that may not be read, and what a training does
with them; each as with the same files on a disk."""

from __future__ import annotations

import base64
import gzip
import io
import itertools
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from servers.azurite import Azurite
from servers.nginx import Nginx
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_attach_url import CROP, MIDDLE, opened
from test_pack_from_url import EACH, TARS, Put, files, picture, there

from fastload import FastLoader, Mixture, PackedDataset, read
from fastload.errors import ArgumentError, FastloadError, SampleError
from fastload.packing import attach
from fastload.remote.client import open_objects

__all__ = ["there"]


def tar_with(members: list[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT, **headers: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.pax_headers = len(content), dict(headers)
            tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def linked() -> bytes:
    """A tar whose second image is a hard link to the first."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in (("0.jpg", picture(0)), ("0.cls", b"0"), ("1.cls", b"1")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        entry = tarfile.TarInfo("1.jpg")
        entry.type, entry.linkname = tarfile.LNKTYPE, "0.jpg"
        tar.addfile(entry)
    return data.getvalue()


def sparse() -> bytes:
    """A tar with an image in GNU's old sparse form."""
    entry = tarfile.TarInfo("0.jpg")
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, len(picture(0))
    content = picture(0)
    return entry.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512) + bytes(1024)


PAIRS = [
    (f"{number}.{ending}", content)
    for number in range(3)
    for ending, content in (("jpg", picture(number)), ("cls", b"%d" % number))
]
LONG = [("a" * 160 + f"/{'ä' * 60}{name}", content) for name, content in PAIRS]
ODD: dict[str, Callable[[], bytes]] = {
    "PAX headers": lambda: tar_with(PAIRS, comment="c" * 3000, mtime="1.5"),
    "PAX names": lambda: tar_with(LONG),
    "GNU names": lambda: tar_with(LONG, tarfile.GNU_FORMAT),
    "hard link": linked,
    "sparse": sparse,
    "key twice": lambda: tar_with([*PAIRS, PAIRS[0]]),
    "key again": lambda: tar_with([*PAIRS, *PAIRS[:2]]),
    "no bytes": lambda: tar_with([*PAIRS[:4], ("2.jpg", b""), PAIRS[5]]),
    "image alone": lambda: tar_with(PAIRS[:3]),
    "empty": lambda: tar_with([]),
    "no tar": lambda: b"<html>" * 400,
    "cut in a header": lambda: tar_with(PAIRS)[:700],
    "cut in an image": lambda: tar_with(PAIRS)[:-4096],
}


def outcome(call: Callable[[], Any]) -> list[Any] | str:
    """Gives what a call gives, or the reason of its error, without what to do."""
    try:
        return list(call())
    except FastloadError as error:
        return re.sub(r"^.*odd\.tar\S*: |[.;] (Repair|copy|write|Run).*", "", str(error))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_tars(
    kind: str, on_error: Any, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """A tar in a store has the samples, or the error, of the same tar on a disk."""
    there({"odd.tar": ODD[kind]()})

    def of_a_disk() -> Iterator[Any]:
        attach(str(tmp_path / "files" / "odd.tar"), tmp_path / "local.fl", on_error=on_error)
        yield from PackedDataset(tmp_path / "local.fl", MIDDLE)

    def of_a_store() -> Iterator[Any]:
        out, options = tmp_path / "out.fl", seaweedfs.options()
        attach(f"{s3_url}/odd.tar", out, on_error=on_error, storage_options=options)
        yield from opened(out, tmp_path / "cache", seaweedfs, transform=MIDDLE, fields=None)

    expected, found = outcome(of_a_disk), outcome(of_a_store)
    if isinstance(expected, str):
        assert found == expected
        return
    assert len(found) == len(expected) >= 2
    for (image, label), (other, its_label) in zip(found, expected, strict=True):
        assert label == its_label
        assert torch.equal(image, other)


def test_compressed_tars(s3_url: str, tmp_path: Path, there: Put, seaweedfs: SeaweedFS) -> None:
    """They are refused with advice, by name or by content; commands are no sources."""
    compressed = gzip.compress(files("tar")["train-000.tar"])
    there({"a.tar.gz": compressed, "b.tar": compressed})
    for name, advice in (("a.tar.gz", "gunzip|unpack"), ("b.tar", "a compressed one must be unpacked")):
        with pytest.raises(FastloadError, match=advice):
            attach(f"{s3_url}/{name}", tmp_path / "out.fl", storage_options=seaweedfs.options())
    for call in (attach, lambda source, _: read(source)):
        with pytest.raises(FastloadError, match="pipe:"):
            call("pipe:cat train.tar", tmp_path / "piped.fl")


def test_denied(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, proxy: Proxy) -> None:
    """An object that may not be read is named and left out; the error where that is not asked for."""
    there(files("tar"))
    options: dict[str, Any] = {"storage_options": seaweedfs.options(proxy.endpoint)}
    proxy.spoil("status", 10_000, part="train-001.tar", status=403, code="AccessDenied")
    with pytest.raises(FastloadError, match=r"train-001\.tar.*access denied"):
        attach(f"{s3_url}/train-*.tar", tmp_path / "stopped.fl", **options)
    summary = attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", on_error="skip", **options)
    assert (summary.samples, summary.skipped_count) == ((TARS - 1) * EACH, 1)
    ((name, reason),) = summary.skipped
    assert (name, "access denied" in reason) == (f"{s3_url}/train-001.tar", True)
    proxy.clear()
    attach(f"{s3_url}/train-*.tar", tmp_path / "all.fl", **options)
    proxy.spoil("status", 10_000, part="train-001.tar", status=403, code="AccessDenied")
    found = PackedDataset(
        tmp_path / "all.fl", CROP, fields=("image", "label"), cache=tmp_path / "cache", timeout=30, **options
    )
    with pytest.raises(SampleError, match=r"train-001\.tar.*access denied"):
        found[EACH]
    loader = FastLoader(found, batch_size=None, num_workers=2, on_error="skip")
    assert [label for _, label in loader] == [*range(EACH), *range(2 * EACH, 3 * EACH)]
    found.close()


def test_other_stores(tmp_path: Path, nginx: Nginx, azurite: Azurite) -> None:
    """By HTTPS and in Azure, as on a disk; a URL with a secret in it is no part of a dataset."""
    folder = nginx.root / "private"
    folder.mkdir(exist_ok=True)
    blobs = open_objects("az://fastload/attached", azurite.options(), 20.0)
    for name, data in files("tar").items():
        blobs.put(name, data)
        for place in (folder, tmp_path):
            (place / name).write_bytes(data)
    blobs.close()
    attach(str(tmp_path / "train-*.tar"), tmp_path / "local.fl")
    local = list(PackedDataset(tmp_path / "local.fl", MIDDLE, fields=("image", "label")))
    trusted = {"root_certificate": nginx.certificate}
    header = {"authorization": "Basic " + base64.b64encode(b"user:password").decode()}
    headed = {"client_options": {**trusted, "default_headers": header}}
    url = f"{nginx.https}/private/train-{{000..002}}.tar"
    with pytest.raises(ArgumentError, match="a password or a query") as caught:
        attach(url.replace("://", "://user:password@"), tmp_path / "refused.fl", storage_options=headed)
    assert "user:password" not in str(caught.value)
    for number, (source, options) in enumerate(
        (
            (url, headed),
            ("az://fastload/attached/train-*.tar", azurite.options()),
        )
    ):
        attach(source, tmp_path / f"{number}.fl", storage_options=options)
        found = PackedDataset(
            tmp_path / f"{number}.fl",
            MIDDLE,
            fields=("image", "label"),
            cache=tmp_path / "cache",
            storage_options=options,
        )
        for (image, label), (other, its) in zip(FastLoader(found, batch_size=None), local, strict=True):
            assert label == its
            assert torch.equal(image, other)
        found.close()


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_trained_on(engine: Any, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Ranks, a resume in the middle of an epoch, and a mixture give the batches of the same files on a
    disk, from each engine."""
    there(files("tar"))
    attach(str(tmp_path / "files" / "train-*.tar"), tmp_path / "local.fl")
    attach(f"{s3_url}/train-*.tar", tmp_path / "out.fl", storage_options=seaweedfs.options())

    def batches(dataset: Any, stop: int = 99, **more: Any) -> tuple[list[Any], Any]:
        loader = FastLoader(dataset, batch_size=2, num_workers=2, engine=engine, seed=1, **more)
        found = list(itertools.islice(loader, stop))
        return [[part.tolist() for part in batch] for batch in found], loader.state_dict()

    local = PackedDataset(tmp_path / "local.fl", CROP, fields=("image", "label"), seed=1)
    remote = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs)
    ranks = [
        [batches(each, shuffle=True, shard=(rank, 2))[0] for rank in range(2)] for each in (local, remote)
    ]
    assert ranks[0] == ranks[1]
    whole, _ = batches(local, shuffle=True)
    first, state = batches(remote, 3, shuffle=True)
    loader = FastLoader(remote, batch_size=2, num_workers=2, engine=engine, seed=1, shuffle=True)
    loader.load_state_dict(state)
    assert first + [[part.tolist() for part in batch] for batch in loader] == whole
    mixed = [
        batches(Mixture([(each, 0.6), (other, 0.4)], samples_per_epoch=12))[0]
        for each, other in ((local, remote), (remote, local))
    ]
    assert mixed[0] == mixed[1]
