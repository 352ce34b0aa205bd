"""fastload.attach of samples that have masks, boxes and further images: the first image stays where it is,
the rest is as packed."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from annotated_folders import write_layouts
from attach_helpers import batches, equal, jpeg, write_tar
from packing_helpers import encoded, picture, tree
from PIL import Image
from stored_equal import assert_equal_datasets

import fastload.transforms as T
from fastload import PackedDataset
from fastload.errors import SampleError
from fastload.packing import attach, export, index, pack, rebase, unpack, verify
from fastload.store import DatasetReader, Manifest

COUNT = 6


def mask(number: int) -> bytes:
    """A mask of 16 bits as large as jpeg(number)."""
    found = np.random.default_rng(number).integers(0, 1000, (60 + number, 80 + number), np.uint16)
    return encoded(Image.fromarray(found), "PNG")


def right(number: int) -> bytes:
    """A second image of another size: a JPEG, or a PNG."""
    return encoded(picture(100 + number, 40, 50 + number), "JPEG" if number % 2 else "PNG")


def table(root: Path) -> Path:
    """A CSV of pairs of images, masks and boxes."""
    lines = ["image:image,right:image,mask:mask,boxes:boxes,labels:labels,score:float"]
    for number in range(COUNT):
        tree(
            root,
            {
                f"{number}.jpg": jpeg(number),
                f"right/{number}": right(number),
                f"mask/{number}.png": mask(number),
            },
        )
        boxes = [[1, 2, 20 + each, 30] for each in range(number % 3)]
        lines.append(
            f'{number}.jpg,right/{number},mask/{number}.png,"{boxes}",'
            f'"{list(range(number % 3))}",{number / 2}'
        )
    (root / "list.csv").write_text("\n".join(lines) + "\n")
    return root / "list.csv"


def tar(root: Path) -> Path:
    """A WebDataset shard of pairs of images, masks and boxes."""
    members = {}
    for number in range(COUNT):
        boxes = io.BytesIO()
        np.save(boxes, np.float32([[1, 2, 20, 30]] * (number % 3)).reshape(-1, 4))
        parts = {
            "jpg": jpeg(number),
            "right.jpg": right(2 * number + 1),
            "mask.png": mask(number),
            "boxes.npy": boxes.getvalue(),
        }
        members |= {f"{number}.{name}": data for name, data in parts.items()}
    write_tar(root / "0.tar", members)
    return root


def arrow(root: Path) -> Path:
    """An Arrow file of Hugging Face's with two columns of images."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "right": datasets.Image(), "label": datasets.Value("int64")}
    )
    columns = {
        "image": [{"bytes": jpeg(number), "path": None} for number in range(COUNT)],
        "right": [{"bytes": right(number), "path": None} for number in range(COUNT)],
        "label": list(range(COUNT)),
    }
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(root))
    [file] = root.glob("*.arrow")
    return file


def layout(name: str) -> Callable[[Path], Path]:
    """One of the layouts that pack recognises."""

    def write(root: Path) -> Path:
        write_layouts(root, COUNT)
        return root / name

    return write


SOURCES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "table": (table, {}),
    "tar": (tar, {}),
    "arrow": (arrow, {}),
    "coco": (layout("coco"), {}),
    "panoptic": (layout("panoptic"), {}),
    "VOC2012": (layout("VOC2012"), {"split": "train", "format": "voc-segmentation"}),
    "yolo": (layout("yolo"), {"split": "train"}),
    "pairs": (layout("pairs"), {}),
}
CROP = [T.RandomCrop(32), T.RandomHorizontalFlip(), T.ToFloat()]


@pytest.fixture(params=SOURCES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A source, the same packed byte for byte, and attached."""
    write, options = SOURCES[request.param]
    source = write(tmp_path / "src")
    pack(source, tmp_path / "packed", encode="keep", **options)
    summary = attach(source, tmp_path / "index", **options)
    assert (summary.samples, summary.attached) == (COUNT, COUNT)
    return source, tmp_path / "packed", tmp_path / "index"


def test_they_are_packed_samples(made: tuple[Path, Path, Path]) -> None:
    """Samples, shuffled batches of native threads, and schema are those of the same source packed,
    transform included."""
    _, packed, attached = made
    assert Manifest.load(attached).schema == Manifest.load(packed).schema
    for transform in (None, CROP):
        one, other = (PackedDataset(path, transform, seed=5) for path in (packed, attached))
        assert one.fields == other.fields
        assert len(one.fields) > 1
        assert equal([one[number] for number in range(COUNT)], [other[number] for number in range(COUNT)])
    native = [name for name in one.fields if one.kinds[name] not in ("json", "text", "polygons")]
    one, other = (PackedDataset(path, CROP, seed=5, fields=native) for path in (packed, attached))
    for workers in (0, 2):
        assert equal(
            batches(one, collate="padded", num_workers=workers),
            batches(other, collate="padded", num_workers=workers),
        )


def test_what_is_stored(made: tuple[Path, Path, Path]) -> None:
    """The first image is a place; masks and further images are stored as a pack stores them."""
    _, packed, attached = made
    with DatasetReader(packed) as one, DatasetReader(attached) as other:
        first = other.schema.fields.index(other.schema.image)  # type: ignore[arg-type]
        for number in range(COUNT):
            stored = [
                [entry for entry in reader.record_fields(number) if entry[0] != first]
                for reader in (one, other)
            ]
            assert [(at, kind, bytes(data)) for at, kind, data in stored[0]] == [
                (at, kind, bytes(data)) for at, kind, data in stored[1]
            ]


def test_tools(made: tuple[Path, Path, Path]) -> None:
    """verify and index read the first image where it lies, and the rest from the dataset."""
    _, packed, attached = made
    report = verify(attached, decode=True)
    assert report.ok, report
    assert report.samples == COUNT
    with DatasetReader(attached) as reader:
        before = [reader.record(number) for number in range(COUNT)]
    assert index(attached).added == 0
    assert equal([PackedDataset(attached, CROP, seed=2)[0]], [PackedDataset(packed, CROP, seed=2)[0]])
    with DatasetReader(attached) as reader:
        assert [reader.record(number) for number in range(COUNT)] == before


def test_files_that_change_or_move(tmp_path: Path) -> None:
    """Only the first image's file is needed later: the others may go, a changed one is that sample's
    error, and rebase() moves all."""
    source = table(tmp_path / "src")
    attach(source, tmp_path / "index")
    wanted = [PackedDataset(tmp_path / "index", CROP, seed=1)[number] for number in range(COUNT)]
    for path in [*(source.parent / "right").iterdir(), *(source.parent / "mask").iterdir(), source]:
        path.unlink()
    assert equal([PackedDataset(tmp_path / "index", CROP, seed=1)[number] for number in range(COUNT)], wanted)
    (tmp_path / "src").rename(tmp_path / "moved")
    rebase(tmp_path / "index", tmp_path / "moved")
    dataset = PackedDataset(tmp_path / "index", CROP, seed=1)
    assert equal([dataset[number] for number in range(COUNT)], wanted)
    (tmp_path / "moved" / "2.jpg").write_bytes(jpeg(9))
    with pytest.raises(SampleError, match=r"2\.jpg was changed after it was attached"):
        dataset[2]
    assert [each.index for each in verify(tmp_path / "index", decode=True).bad] == [2]
    assert len(batches(dataset, on_error="skip", collate="list")) > 0
    masks = PackedDataset(tmp_path / "index", fields=["mask"])
    assert torch.equal(masks[2]["mask"], torch.from_numpy(np.array(Image.open(io.BytesIO(mask(2))))))


def test_first_image_that_is_not_kept(tmp_path: Path) -> None:
    """A first image of another format is stored beside its mask, and its file is not needed later."""
    image, label = picture(3, 6, 8), np.arange(48, dtype=np.uint8).reshape(6, 8)
    tree(
        tmp_path / "src",
        {"images/0.bmp": encoded(image, "BMP"), "masks/0.png": encoded(Image.fromarray(label), "PNG")},
    )
    summary = attach(tmp_path / "src" / "images", tmp_path / "index", masks=tmp_path / "src" / "masks")
    assert (summary.samples, summary.attached, summary.raw) == (1, 0, 1)
    for path in (tmp_path / "src").rglob("0.*"):
        path.unlink()
    found = PackedDataset(tmp_path / "index")[0]
    assert equal(
        found, (torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()), torch.from_numpy(label))
    )


@pytest.mark.parametrize("form", ["unpack", "tar", "parquet"])
def test_they_go_back_to_files(made: tuple[Path, Path, Path], tmp_path: Path, form: str) -> None:
    """What unpack and export write of them is what they write of the packed samples: of both, pack makes
    equal fields."""
    _, *datasets = made
    again = []
    for number, dataset in enumerate(datasets):
        written = tmp_path / f"files{number}.{form}"
        (unpack if form == "unpack" else export)(dataset, written)
        pack(written, tmp_path / f"again{number}", encode="keep")
        again.append(tmp_path / f"again{number}")
    assert_equal_datasets(*again)
    assert Manifest.load(again[0]).schema.fields == Manifest.load(datasets[0]).schema.fields
