"""Damaged and hostile datasets under the loader: each ends in an exception that names file, sample and way
on."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from PIL import Image

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import DatasetError, FastloadError, SampleError
from fastload.store.schema import Field, Schema
from fastload.store.writer import DatasetWriter

pytestmark = pytest.mark.usefixtures("no_leaks")
TRAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]


def jpeg(seed: int = 0, height: int = 120, width: int = 160) -> bytes:
    out = io.BytesIO()
    photo(seed, height, width).save(out, "JPEG", quality=90)
    return out.getvalue()


def write(out: Path, images: list[tuple[bytes, int, int]]) -> Path:
    """A dataset of JPEG bytes with the sizes they claim, as a hostile or careless writer would make it."""
    schema = Schema((Field("image", "image"), Field("label", "int")))
    writer = DatasetWriter(out, schema, shard_size=1 << 30, options={})
    for label, (data, height, width) in enumerate(images):
        writer.append(
            {"image": data, "label": label}, image_kind="jpeg", height=height, width=width, state={}
        )
    writer.finish(None, {})
    return out


def huge_header(width: int = 65500, height: int = 65500) -> bytes:
    """A small JPEG whose frame header claims 65,500 x 65,500 pixels."""
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(data)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Ten samples; 3 is cut off half-way, 5 claims 65,500 x 65,500, 7 is no JPEG, 8 is another size than
    it says."""
    good = [(jpeg(i), 120, 160) for i in range(10)]
    good[3] = (good[3][0][: len(good[3][0]) // 2], 120, 160)
    good[5] = (huge_header(), 65500, 65500)
    good[7] = (b"not a JPEG at all" * 20, 120, 160)
    good[8] = (jpeg(8, 60, 80), 120, 160)
    return write(tmp_path / "broken.fl", good)


def test_each_bad_sample_is_named(broken: Path) -> None:
    """on_error="raise" names index, shard and reason, and the batches after a bad one are still delivered."""
    ds = PackedDataset(broken, transform=T.CenterCrop(120))
    reasons = {3: "cut off", 5: "limit", 7: "JPEG", 8: None}
    loader = FastLoader(ds, batch_size=1, num_workers=2)
    iterator = iter(loader)
    seen = {}
    for index in range(10):
        if reasons.get(index):
            with pytest.raises(
                SampleError,
                match=rf"sample {index} of .*shard-00000\.lmdb.*{reasons[index]}.*fastload verify",
            ) as caught:
                next(iterator)
            assert (caught.value.index, caught.value.shard) == (index, "shard-00000.lmdb")
            with pytest.raises(SampleError, match=f"sample {index} of"):
                ds[index]
        else:
            seen[index] = next(iterator)[0]
    assert sorted(seen) == [0, 1, 2, 4, 6, 8, 9]
    for index, images in seen.items():
        assert torch.equal(images[0], ds[index][0])


def test_columns_that_lie_about_the_size(broken: Path) -> None:
    """Without a resize a batch is laid out by the columns: an image of another size is an error, not a
    smear."""
    with pytest.raises(SampleError, match=r"sample 8 of .*another size than its columns say"):
        PackedDataset(broken)[8]


def test_skip_shortens_the_batch(broken: Path) -> None:
    """on_error="skip" leaves bad rows out, with their labels, and counts them."""
    ds = PackedDataset(broken, transform=T.CenterCrop(120))
    with FastLoader(ds, batch_size=4, num_workers=2, on_error="skip") as loader:
        batches = list(loader)
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2], [4, 6], [8, 9]]
    assert loader.skipped == 3
    for images, labels in batches:
        assert len(images) == len(labels)
        for image, label in zip(images, labels, strict=True):
            assert torch.equal(image, ds[int(label)][0])


def test_a_batch_of_bad_samples_is_skipped_whole(broken: Path) -> None:
    """When no row is left, the loop goes on with the next batch."""
    ds = PackedDataset(broken, transform=T.CenterCrop(120))
    with FastLoader(ds, batch_sampler=[[3, 5], [0], [7]], on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[0]]


def test_replace_is_deterministic_and_counted(broken: Path) -> None:
    """on_error="replace" puts a good sample, pixels and label, in the bad one's row; the same one for any
    thread count."""
    ds = PackedDataset(broken, transform=TRAIN, seed=3)
    runs = []
    for threads in (0, 1, 3):
        with FastLoader(ds, batch_size=5, num_workers=threads, on_error="replace", seed=3) as loader:
            runs.append([(images.clone(), labels) for images, labels in loader])
            assert loader.replaced == 3
    for run in runs[1:]:
        for (a, x), (b, y) in zip(runs[0], run, strict=True):
            assert torch.equal(a, b)
            assert torch.equal(x, y)
    labels = torch.cat([labels for _, labels in runs[0]]).tolist()
    images = torch.cat([images for images, _ in runs[0]])
    assert [labels[i] for i in (0, 1, 2, 4, 6, 9)] == [0, 1, 2, 4, 6, 9]
    for row, label in enumerate(labels):
        assert label not in (3, 5, 7)
        assert torch.equal(images[row], ds[label][0]) == (row not in (3, 5, 7))  # a substitute is no copy


def test_replacements_stay_inside_a_subset(broken: Path) -> None:
    """A substitute comes from the loader's own samples: validation data never leaks into training."""
    ds = PackedDataset(broken, transform=T.CenterCrop(120))
    subset = torch.utils.data.Subset(ds, [3, 0, 9])
    with FastLoader(subset, batch_size=3, on_error="replace", seed=1) as loader:
        labels = next(iter(loader))[1].tolist()
    assert set(labels) <= {0, 9}


def test_nothing_good_to_replace_with_is_an_error(tmp_path: Path) -> None:
    """When every substitute is bad too, the error says so."""
    out = write(tmp_path / "bad.fl", [(b"no", 10, 10)] * 4)
    loader = FastLoader(PackedDataset(out, transform=T.CenterCrop(8)), batch_size=2, on_error="replace")
    with pytest.raises(SampleError, match="none of 16 substitutes"):
        next(iter(loader))


def test_pixel_limit_is_a_setting(tmp_path: Path) -> None:
    """max_pixels refuses larger images before anything is allocated."""
    out = write(tmp_path / "one.fl", [(jpeg(), 120, 160)])
    assert PackedDataset(out, max_pixels=120 * 160)[0][0].shape == (3, 120, 160)
    with pytest.raises(SampleError, match="the limit is 19199"):
        PackedDataset(out, max_pixels=120 * 160 - 1)[0]


def damage(packed: Path, tmp_path: Path, change: Callable[[Path], None]) -> Path:
    out = tmp_path / "damaged.fl"
    shutil.copytree(packed, out)
    change(out)
    return out


def missing_shard(out: Path) -> None:
    (out / "shard-00001.lmdb").unlink()


def truncated_shard(out: Path) -> None:
    shard = out / "shard-00000.lmdb"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)


def later_version(out: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["version"] = 99
    (out / "manifest.json").write_text(json.dumps(manifest))


def no_manifest(out: Path) -> None:
    (out / "manifest.json").unlink()


def garbage_manifest(out: Path) -> None:
    (out / "manifest.json").write_bytes(b"\xff\xfe{{{")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing_shard, "shard-00001.lmdb"),
        (truncated_shard, "shard-00000.lmdb"),
        (later_version, "later"),
        (no_manifest, r"its manifest\.json is lost"),
        (garbage_manifest, "manifest"),
    ],
)
def test_datasets_that_cannot_be_opened(
    packed: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    """A missing or cut shard, a later or broken manifest: an error at opening that names the file."""
    with pytest.raises(DatasetError, match=message):
        FastLoader(damage(packed, tmp_path, change), transform=T.CenterCrop(64))


def test_flipped_bytes_anywhere(packed: Path, tmp_path: Path) -> None:
    """A byte flipped anywhere in a shard gives the right pixels or an error that names what is damaged,
    never other pixels."""
    ds = PackedDataset(packed, transform=T.CenterCrop(64))
    good = torch.stack([ds[i][0] for i in range(len(ds))])
    rng = np.random.default_rng(5)
    size = (packed / "shard-00000.lmdb").stat().st_size
    bytes_of = bytearray((packed / "shard-00000.lmdb").read_bytes())
    out = damage(packed, tmp_path, lambda _: None)
    outcomes: dict[str, int] = {}
    for at in [*range(0, 200, 7), *rng.integers(0, size, 60).tolist(), *range(size - 4096, size, 512)]:
        damaged = bytes_of.copy()
        damaged[at] ^= 1 << int(rng.integers(8))
        (out / "shard-00000.lmdb").write_bytes(damaged)
        outcome = try_all(out, good)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["sample"] > 10


def try_all(out: Path, good: torch.Tensor) -> str:
    try:
        with FastLoader(
            PackedDataset(out, transform=T.CenterCrop(64)), batch_size=1, num_workers=1
        ) as loader:
            iterator = iter(loader)
            outcome = "unharmed"
            for index in range(len(loader)):
                try:
                    images, _ = next(iterator)
                except SampleError as error:
                    assert error.index == index
                    outcome = "sample"
                else:
                    assert torch.equal(images[0], good[index])
            return outcome
    except DatasetError as error:
        assert "shard-00000.lmdb" in str(error)
        return "dataset"


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # Pillow speaks of broken EXIF
def test_torture_files_under_the_loader(shared: Path, tmp_path: Path) -> None:
    """Every odd and broken JPEG of the collection: the pixels that Pillow gives, or an error that names
    the sample."""
    files = sorted(p for p in (shared / "torture").iterdir() if p.suffix != ".csv")
    sizes = []
    for file in files:
        try:
            with Image.open(io.BytesIO(file.read_bytes())) as image:
                sizes.append((file.read_bytes(), image.height, image.width))
        except OSError:
            sizes.append((file.read_bytes(), 8, 8))
    ds = PackedDataset(write(tmp_path / "torture.fl", sizes))
    loader = FastLoader(ds, batch_size=1, num_workers=2)
    iterator = iter(loader)
    refused = []
    for file in files:
        try:
            image = next(iterator)[0][0]
        except FastloadError as error:
            assert isinstance(error, SampleError)
            refused.append(file.name)
            continue
        with Image.open(io.BytesIO(file.read_bytes())) as reference:
            expected = np.asarray(reference.convert("RGB")).transpose(2, 0, 1)
        assert image.shape == expected.shape, file.name
        assert np.array_equal(image.numpy(), expected), file.name
    for name in refused:
        with pytest.raises(OSError, match=r".+"):
            Image.open(io.BytesIO((shared / "torture" / name).read_bytes())).convert("RGB")


def fields_dataset(out: Path) -> Path:
    schema = Schema(
        (
            Field("image", "image"),
            Field("label", "int"),
            Field("weight", "float"),
            Field("box", "array", "float32", (4,)),
            Field("caption", "text"),
            Field("meta", "json"),
            Field("blob", "bytes"),
        )
    )
    writer = DatasetWriter(out, schema, shard_size=1 << 30, options={})
    for i in range(7):
        values: dict[str, Any] = {
            "image": jpeg(i),
            "label": i,
            "weight": i / 3,
            "box": np.arange(4, dtype=np.float32) + i,
            "caption": f"ein Bild №{i}",
            "meta": {"n": i, "tags": ["a", "b"]},
            "blob": bytes([i] * i),
        }
        writer.append(values, image_kind="jpeg", height=120, width=160, state={})
    writer.finish(None, {})
    return out


def test_every_kind_of_field(tmp_path: Path) -> None:
    """ds[i] is a dict of values; a batch is what default_collate makes of those dicts."""
    ds = PackedDataset(fields_dataset(tmp_path / "f.fl"), transform=T.CenterCrop(100))
    sample = ds[3]
    assert sample["label"] == 3
    assert sample["weight"] == 1.0
    assert sample["box"].tolist() == [3, 4, 5, 6]
    assert sample["caption"] == "ein Bild №3"
    assert sample["meta"] == {"n": 3, "tags": ["a", "b"]}
    assert sample["blob"] == b"\3\3\3"
    expected = list(torch.utils.data.DataLoader(ds, batch_size=3))
    with FastLoader(ds, batch_size=3, num_workers=2) as loader:
        for got, want in zip(loader, expected, strict=True):
            assert list(got) == list(want)
            assert torch.equal(got["image"], want["image"])
            for name in ("label", "weight", "box"):
                assert got[name].dtype == want[name].dtype
                assert torch.equal(got[name], want[name])
            assert got["caption"] == want["caption"]
            assert got["blob"] == want["blob"]
            assert got["meta"]["n"].tolist() == want["meta"]["n"].tolist()
            assert got["meta"]["tags"] == want["meta"]["tags"]
    only = PackedDataset(tmp_path / "f.fl", transform=T.CenterCrop(100), fields=["image", "label"])
    assert isinstance(only[0], tuple)
    assert next(iter(FastLoader(only, batch_size=2)))[1].tolist() == [0, 1]
