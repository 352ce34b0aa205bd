"""PNGs and WebPs kept as their bytes, packed and attached: every row is Pillow's pixels, and the files
come back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packing_helpers import encoded, picture, stored_samples, tree
from PIL import Image
from png_maker import interlaced
from torchvision import datasets
from torchvision.transforms import v2
from webp_maker import animated

from fastload import FastLoader, Mixture, PackedDataset
from fastload._native import core
from fastload.errors import SampleError
from fastload.packing import attach, convert, export, index, pack, unpack, verify

ENGINES: dict[str, dict[str, Any]] = {
    "threads": {"num_workers": 2},
    "calling": {"num_workers": 0},
    "processes": {"num_workers": 2, "engine": "python"},
    "python": {"num_workers": 0, "engine": "python"},
}
RANDOM = v2.Compose([v2.RandomResizedCrop((24, 24)), v2.RandomHorizontalFlip(), v2.PILToTensor()])
WHOLE = v2.Compose([v2.CenterCrop((70, 70)), v2.PILToTensor()])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two classes, of PNGs, WebPs and JPEGs."""
    files: dict[str, bytes] = {}
    for number in range(4):
        image = picture(number, 40 + 7 * number, 61 - 5 * number)
        files[f"a/{number}.png"] = encoded(image, "PNG")
        files[f"a/{number}_lossy.webp"] = encoded(image, "WEBP", quality=50 + 10 * number)
        files[f"b/{number}_lossless.webp"] = encoded(image, "WEBP", lossless=True)
        files[f"b/{number}_alpha.webp"] = encoded(image.convert("RGBA"), "WEBP", exact=True)
        files[f"b/{number}_grey.png"] = encoded(image.convert("L"), "PNG")
        files[f"b/{number}_photo.jpg"] = encoded(image)
    return tree(tmp_path_factory.mktemp("kept") / "src", files)


MAKES = {"packed": lambda source, out: pack(source, out, encode="keep"), "attached": attach}


@pytest.fixture(scope="module", params=MAKES)
def dataset(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / request.param
    summary = MAKES[request.param](source, out)
    assert (summary.raw, summary.kept + summary.attached) == (0, 24)
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_pillows_pixels(source: Path, dataset: Path, engine: str) -> None:
    """On every engine, and as `dataset[i]`, with a crop that leaves the pixels as they are."""
    theirs = datasets.ImageFolder(str(source), WHOLE)
    packed = PackedDataset(dataset, WHOLE)
    with FastLoader(packed, batch_size=5, **ENGINES[engine]) as loader:
        found = [each for images, _ in loader for each in images]
    assert len(found) == len(theirs)
    for position, (image, _) in enumerate(theirs):
        assert torch.equal(found[position], image)
        assert torch.equal(packed[position][0], image)
    values = PackedDataset(dataset).stored_values(3, ["image"])["image"]
    assert np.array_equal(
        values.permute(1, 2, 0), np.asarray(Image.open(theirs.samples[3][0]).convert("RGB"))
    )


def test_random_crops_are_the_same_on_every_engine(dataset: Path) -> None:
    """And in a mixture."""
    batches = []
    for options in ENGINES.values():
        with FastLoader(
            PackedDataset(dataset, RANDOM, seed=5), batch_size=6, shuffle=True, seed=3, **options
        ) as loader:
            batches.append(torch.cat([images for images, _ in loader]))
    assert all(torch.equal(each, batches[0]) for each in batches)
    mixture = Mixture([(PackedDataset(dataset, RANDOM, seed=number), 1) for number in (5, 6)])
    with FastLoader(mixture, batch_size=6, num_workers=2, seed=1) as loader:
        assert sum(len(images) for images, _ in loader) == len(mixture)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_making_the_pixels_counts_as_decoding(make: Any, tmp_path: Path) -> None:
    """Of pictures so large that it takes far longer than reading them."""
    files = {f"a/{number}.png": encoded(picture(number, 1200, 900), "PNG") for number in range(4)}
    make(tree(tmp_path / "src", files), tmp_path / "out")
    shares = []
    for _ in range(3):  # a busy machine may stop a read, but not each time
        with FastLoader(PackedDataset(tmp_path / "out", RANDOM), num_workers=1) as loader:
            list(loader)
            stages = loader.stats()["stage_seconds"]
        shares.append(stages["read"] / stages["decode"])
    assert min(shares) < 0.3, shares


def test_the_files_come_back(source: Path, dataset: Path, tmp_path: Path) -> None:
    """Verified, indexed, unpacked as they were, and read again from a tar."""
    assert verify(dataset, decode=True).ok
    wanted = sorted(path.read_bytes() for path in source.rglob("*.*"))
    unpack(dataset, tmp_path / "out")
    assert (
        sorted(
            path.read_bytes()
            for path in (tmp_path / "out").rglob("*")
            if path.suffix in (".png", ".webp", ".jpg")
        )
        == wanted
    )
    export(dataset, tmp_path / "out.tar")
    pack(tmp_path / "out.tar", tmp_path / "again", encode="keep")
    kinds = [sample.kind for sample in stored_samples(tmp_path / "again")]
    assert [
        kinds.count(kind)
        for kind in (core.KIND_JPEG, core.IMAGE_KINDS["png"], core.IMAGE_KINDS["webp"], core.KIND_RAW)
    ] == [
        4,
        8,
        12,
        0,
    ]
    unpack(tmp_path / "again", tmp_path / "twice")
    assert (
        sorted(
            path.read_bytes()
            for path in (tmp_path / "twice").rglob("*")
            if path.suffix in (".png", ".webp", ".jpg")
        )
        == wanted
    )


def test_an_index_is_of_the_jpegs_alone(source: Path, tmp_path: Path) -> None:
    attach(source, tmp_path / "index", index=False)
    assert index(tmp_path / "index").jpegs == 4
    assert verify(tmp_path / "index", decode=True).ok


def test_what_is_not_kept(tmp_path: Path) -> None:
    """Stored as pixels: what native threads do not decode as Pillow does, what is turned or shrunk, and
    everything by default."""
    image = picture(1, 40, 50)
    turned = Image.Exif()
    turned[0x0112] = 6
    files = {
        "a/interlaced.png": interlaced(np.asarray(image)),
        "a/turned.png": encoded(image, "PNG", exif=turned),
        "a/turned.webp": encoded(image, "WEBP", exif=turned),
        "b/animated.webp": animated(),
        "b/plain.png": encoded(image, "PNG"),
        "b/plain.webp": encoded(image, "WEBP"),
    }
    source = tree(tmp_path / "src", files)

    def raw(**options: Any) -> int:
        out = tmp_path / "_".join(map(str, options.values()))
        pack(source, out, **options)
        return [sample.kind for sample in stored_samples(out)].count(core.KIND_RAW)

    assert raw(encode="lossless") == 6
    assert raw(encode="keep") == raw(encode="dct") == 2
    assert raw(encode="dct", exif="apply") == 4
    assert raw(encode="dct", max_side=45) == 6
    convert(tmp_path / "keep", tmp_path / "converted", encode="lossless")
    assert [sample.kind for sample in stored_samples(tmp_path / "converted")].count(core.KIND_RAW) == 6


def test_a_file_that_changed(source: Path, tmp_path: Path) -> None:
    """An attached file with other bytes is its sample's error."""
    image = picture(1, 40, 50)
    tree(tmp_path / "src", {"a/0.png": encoded(image, "PNG"), "a/1.webp": encoded(image, "WEBP")})
    attach(tmp_path / "src", tmp_path / "index")
    for name in ("0.png", "1.webp"):
        path = tmp_path / "src" / "a" / name
        data = bytearray(path.read_bytes())
        data[-20] ^= 255
        path.write_bytes(data)
    dataset = PackedDataset(tmp_path / "index", WHOLE)
    for position, name in enumerate(("0.png", "1.webp")):
        with pytest.raises(SampleError, match=f"{name} was changed after it was attached"):
            dataset[position]


def test_a_damaged_record_is_its_samples_error(tmp_path: Path) -> None:
    """Bytes with the right checksum that are no such file: each codec says so."""
    from fastload.store import DatasetWriter, Field, Schema
    from fastload.store.kinds.codecs import FileCodec

    draw = random.Random(2)
    image = picture(1, 40, 50)
    files = {"png": encoded(image, "PNG"), "webp": encoded(image, "WEBP")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCodec, "encoded", lambda self, field, value, height, width: value)
        schema = Schema((Field("image", "image"), Field("label", "int")))
        with DatasetWriter(tmp_path / "d", schema, shard_size=1 << 20, options={}) as writer:
            for kind, data in files.items():
                cut = data[: draw.randrange(20, len(data) - 20)]
                writer.append({"image": cut, "label": 0}, image_kind=kind, height=40, width=50)
            writer.finish(["a"], {})
    assert [bad.index for bad in verify(tmp_path / "d", decode=True).bad] == [0, 1]
    for position, words in enumerate(("PNG", "WebP")):
        with pytest.raises(SampleError, match=words):
            PackedDataset(tmp_path / "d", WHOLE)[position]


def test_refused(tmp_path: Path) -> None:
    """A codec takes no bytes of another format."""
    from fastload.errors import PackError
    from fastload.store import DatasetWriter, Field, Schema

    with DatasetWriter(
        tmp_path / "d", Schema((Field("image", "image"),)), shard_size=1 << 20, options={}
    ) as writer:
        with pytest.raises(PackError, match="it is no WEBP file"):
            writer.append({"image": encoded(picture(1, 4, 5), "PNG")}, image_kind="webp", height=4, width=5)
