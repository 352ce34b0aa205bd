"""PackedDataset: masks, boxes and other spatial fields come as plain tensors; what would change the image
alone is refused."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload._native import core
from fastload.errors import ArgumentError, PackStoppedError, SampleError, TransformError
from fastload.packing import Item
from fastload.store import DatasetReader, Field
from fastload.unpacking.verify import verify

FIELDS = (
    Field("label", "int"),
    Field("mask", "mask"),
    Field("second", "image"),
    Field("depth", "image", "uint16", (1,)),
    Field("alpha", "image", "uint8", (4,)),
    Field("boxes", "boxes", format="xyxy"),
    Field("labels", "array", "int64", (None,), of="boxes"),
    Field("points", "keypoints", shape=(2, 3), of="boxes"),
    Field("masks", "instances", of="boxes"),
    Field("lines", "polygons", of="boxes"),
    Field("note", "text"),
)


def png(pixels: np.ndarray[Any, Any], palette: bool = False) -> bytes:
    """The file of pixels; with `palette`, of indices into colours that are other numbers."""
    image = Image.fromarray(pixels)
    if palette:
        image = Image.fromarray(pixels, "P") if image.mode != "L" else image.convert("L")
        image.putpalette([(7 * i + 50) % 256 for i in range(768)])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def jpeg(pixels: np.ndarray[Any, Any]) -> bytes:
    """The JPEG of pixels."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


class Objects:
    """A source of samples with each kind of field; `change` replaces values of single samples."""

    title, classes, concurrent, fields = "objects", None, True, FIELDS
    label_limits = {"mask": 200, "labels": 90}  # noqa: RUF012

    def __init__(self, count: int = 6, change: dict[int, dict[str, Any]] | None = None) -> None:
        self._count = count
        self._change = change or {}

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"image-{position}.jpg"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        height, width, count = 20 + position, 30, position * 2
        boxes = rng.random((count, 4), np.float32) * 10
        boxes[:, 2:] += boxes[:, :2]
        labels = rng.integers(0, 200, (height, width), dtype=np.uint8)
        labels[0, 0] = 255
        values: dict[str, Any] = {
            "label": position,
            "mask": png(labels, palette=True),
            "second": jpeg(rng.integers(0, 256, (90, 110, 3), dtype=np.uint8)),
            "depth": rng.integers(0, 65536, (height, width), dtype=np.uint16),
            "alpha": png(rng.integers(0, 256, (5, 6, 4), dtype=np.uint8)),
            "boxes": boxes,
            "labels": rng.integers(0, 90, count),
            "points": rng.random((count, 2, 3), np.float32),
            "masks": rng.integers(0, 2, (count, height, width), dtype=np.uint8),
            "lines": [[rng.random((4, 2)).reshape(-1).tolist()] * (row % 3) for row in range(count)],
            "note": f"sample {position}",
        }
        image = jpeg(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        objects = tuple(f"annotation {row + 100}" for row in range(count))
        return Item(self.name(position), image, {**values, **self._change.get(position, {})}, objects=objects)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of Objects."""
    out = tmp_path_factory.mktemp("spatial") / "d"
    fastload.pack(Objects(), out, workers=2)
    return out


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    """A file's pixels by Pillow; of a palette, the indices."""
    return np.asarray(Image.open(io.BytesIO(data)))


def test_values(folder: Path) -> None:
    """Each field of each sample is what the source gave, by Pillow and NumPy."""
    dataset = PackedDataset(folder)
    for index in range(len(dataset)):
        wanted, found = Objects().read(index), dataset[index]
        assert list(found) == ["image", *(field.name for field in FIELDS)]
        assert np.array_equal(found["image"].numpy().transpose(1, 2, 0), pixels(wanted.image))  # type: ignore[arg-type]
        assert np.array_equal(found["second"].numpy().transpose(1, 2, 0), pixels(wanted.values["second"]))  # type: ignore[arg-type]
        assert np.array_equal(found["alpha"].numpy().transpose(1, 2, 0), pixels(wanted.values["alpha"]))  # type: ignore[arg-type]
        assert np.array_equal(found["mask"].numpy(), pixels(wanted.values["mask"]))  # type: ignore[arg-type]
        assert found["depth"].dtype == torch.uint16
        assert np.array_equal(found["depth"].numpy()[0], wanted.values["depth"])  # type: ignore[arg-type]
        for name in ("boxes", "labels", "points", "masks"):
            assert np.array_equal(found[name].numpy(), wanted.values[name]), name  # type: ignore[arg-type]
        assert [len(each) for each in found["lines"]] == [row % 3 for row in range(2 * index)]
        assert (found["label"], found["note"]) == (index, f"sample {index}")


def test_fields_left_out(folder: Path) -> None:
    """Without new kinds the sample is a pair as ever, and transforms and native threads do."""
    dataset = PackedDataset(folder, [T.CenterCrop(16), T.ToFloat()], fields=["image", "label"])
    image, label = dataset[3]
    assert (image.shape, label) == ((3, 16, 16), 3)
    loader = FastLoader(dataset, batch_size=3, num_workers=1)
    assert "native" in str(loader.explain(all=True))
    assert [batch[0].shape for batch in loader] == [(3, 3, 16, 16)] * 2


@pytest.mark.parametrize("views", [[T.CenterCrop(16)] * 2, [[T.ToFloat()], [lambda image: image]]])
@pytest.mark.parametrize("name", ["mask", "lines"])
def test_views_are_refused(folder: Path, views: Any, name: str) -> None:
    """Several views take the image alone: with what lies in it they are a TransformError that names it."""
    with pytest.raises(TransformError, match=f"'{name}'"):
        PackedDataset(folder, T.Views(views), fields=["image", name])[0]


def test_floats(folder: Path) -> None:
    """ToFloat and Normalize change no place of a pixel: they go with masks and boxes."""
    dataset = PackedDataset(
        folder, [T.ToFloat(), T.Normalize((0.5,) * 3, (0.5,) * 3)], fields=["image", "boxes"]
    )
    assert dataset[2]["image"].dtype == torch.float32
    sample = PackedDataset(folder, T.CenterCrop(4), fields=["image", "second", "mask", "lines"])[2]
    assert (sample["second"].shape, sample["mask"].shape, len(sample["lines"])) == ((3, 4, 4), (4, 4), 4)


@pytest.mark.parametrize("workers", [0, 2])
def test_loader(folder: Path, workers: int) -> None:
    """A FastLoader gives whole samples to collate_fn, in the calling process and in workers."""
    loader = FastLoader(PackedDataset(folder), batch_size=4, num_workers=workers, collate_fn=list)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [4, 2]
    assert [sample["boxes"].shape[0] for batch in batches for sample in batch] == [0, 2, 4, 6, 8, 10]


def test_verify(folder: Path) -> None:
    """verify reads every field, and finds nothing wrong."""
    report = verify(folder, decode=True)
    assert (report.samples, report.bad, report.problems) == (6, (), ())


def test_pixel_limit(folder: Path) -> None:
    """A field of more pixels than the limit is an error of its sample, before it is decoded."""
    with pytest.raises(SampleError, match=r"'mask'.*limit is 400"):
        PackedDataset(folder, fields=["image", "mask"], max_pixels=400).stored_values(0, ["mask"])


BAD = {
    "annotation 101: its box has x2 < x1": {"boxes": [[0, 0, 1, 1], [5, 0, 4, 1]]},
    "annotation 100: its box has numbers that are not finite": {
        "boxes": [[0, 0, float("nan"), 1], [0, 0, 1, 1]]
    },
    "annotation 101: its run lengths sum to 5": {
        "masks": [np.zeros((21, 30), int), {"size": [21, 30], "counts": [5]}]
    },
    "its 'mask': .*colours": {"mask": png(np.zeros((21, 30, 3), np.uint8))},
    "its 'mask': .*JPEG": {"mask": jpeg(np.zeros((21, 30), np.uint8))},
    r"'mask'.*\(20, 30\), its image \(21, 30\)": {"mask": np.zeros((20, 30), np.uint8)},
    "its 'mask' has the label 200, the classes are 0 to 199": {"mask": np.full((21, 30), 200, np.uint8)},
    "its 'labels' has the label -1": {"labels": [0, -1]},
    "'labels' has 1 rows for the 2 rows of 'boxes'": {"labels": [1]},
    "its 'second'": {"second": b"\xff\xd8\xff nothing"},
    "its 'alpha' has pixels of mode RGB": {"alpha": png(np.zeros((2, 2, 3), np.uint8))},
    "its 'depth' has values from": {"depth": np.full((2, 2), 65536)},
    "its 'depth' is float32": {"depth": np.zeros((2, 2), np.float32)},
}


@pytest.mark.parametrize("words", BAD)
def test_bad_samples(tmp_path: Path, words: str) -> None:
    """What is wrong is named with the sample, and counted under on_error="skip"."""
    source = Objects(3, {1: BAD[words]})
    with pytest.raises(PackStoppedError, match=rf"^image-1\.jpg: .*{words}"):
        fastload.pack(source, tmp_path / "a")
    summary = fastload.pack(source, tmp_path / "b", on_error="skip")
    assert (summary.samples, len(summary.skipped)) == (2, 1)
    assert [PackedDataset(tmp_path / "b")[i]["label"] for i in range(2)] == [0, 2]


def test_drop_append_concat(folder: Path, tmp_path: Path) -> None:
    """Fields are taken away with what is hidden for them; samples are appended; datasets are joined."""
    copy = tmp_path / "d"
    shutil.copytree(folder, copy)
    fastload.append(copy, Objects(8, None))
    assert [len(each["boxes"]) for each in PackedDataset(copy)] == [
        0,
        2,
        4,
        6,
        8,
        10,
        0,
        2,
        4,
        6,
        8,
        10,
        12,
        14,
    ]
    with pytest.raises(ArgumentError, match="of='boxes'"):
        fastload.drop_columns(copy, "boxes")
    fastload.drop_columns(copy, "masks", "second")
    dataset = PackedDataset(copy)
    assert "masks" not in dataset.fields
    assert dataset[9]["points"].shape == (6, 2, 3)
    assert verify(copy).bad == ()
    fastload.concat([copy, copy], tmp_path / "both")
    assert len(PackedDataset(tmp_path / "both")) == 28
    assert verify(tmp_path / "both").problems == ()


def test_index(tmp_path: Path) -> None:
    """`fastload index` adds the index of the first image, and leaves those of others."""
    fastload.pack(Objects(3), tmp_path / "a", index=False)
    fastload.index(tmp_path / "a")
    fastload.pack(Objects(3), tmp_path / "b")
    assert verify(tmp_path / "a").bad == ()
    with DatasetReader(tmp_path / "b") as reader:
        kept = core.KIND_INDEX, 3 | core.RECORD_INDEX
        assert any((kind, number) == kept for number, kind, _ in reader.record_fields(0))


def test_resizing_is_refused(tmp_path: Path) -> None:
    """Options that change images' sizes would leave masks and boxes as they are."""
    for options in ({"max_side": 10}, {"min_side": 10}, {"exif": "apply"}):
        with pytest.raises(ArgumentError, match="'mask'"):
            fastload.pack(Objects(), tmp_path / "d", **options)  # type: ignore[arg-type]


def test_resume(tmp_path: Path) -> None:
    """A pack that stopped goes on, and makes the dataset of one that did not."""
    with pytest.raises(PackStoppedError):
        fastload.pack(Objects(6, {4: {"labels": [1]}}), tmp_path / "a", shard_samples=2)
    fastload.pack(Objects(), tmp_path / "a", shard_samples=2, resume=True)
    fastload.pack(Objects(), tmp_path / "b", shard_samples=2)
    names = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "a").iterdir())
    assert all(
        (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        for name in names
        if name.endswith("lmdb")
    )
