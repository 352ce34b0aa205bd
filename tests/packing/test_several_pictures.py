"""Sources with several pictures a sample: members of WebDataset tars and columns of Hugging Face's
datasets are images, masks, rows."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packing_helpers import encoded, picture
from PIL import Image

from fastload.errors import ArgumentError, PackError
from fastload.packing import export, open_source, pack
from fastload.sources import Placed
from fastload.sources.options import SourceOptions

DEEP = np.arange(24 * 32, dtype=np.uint16).reshape(24, 32) * 80


def png(array: np.ndarray[Any, Any]) -> bytes:
    return encoded(Image.fromarray(array), "PNG")


def mask(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 21, (24, 32), np.uint8)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def write_tar(path: Path, *members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for key, parts in enumerate(members):
            for extension, data in parts.items():
                entry = tarfile.TarInfo(f"{key:03d}.{extension}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return path


class TestTar:
    def sample(self, n: int, **changed: bytes) -> dict[str, bytes]:
        boxes = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        found = {
            "jpg": encoded(picture(n, 24, 32)),
            "right.jpg": encoded(picture(n + 9, 24, 32)),
            "depth.png": png(DEEP + n),
        }
        found |= {
            "mask.png": png(mask(n)),
            "instance_mask.png": png(DEEP),
            "boxes.npy": npy(boxes),
            "ids.npy": npy(np.arange(n)),
        }
        return found | {"feature.npy": npy(np.full((2, 3), n)), "json": b"{}"} | changed

    def test_the_image_of_several(self, tmp_path: Path) -> None:
        """The user may say which member is the image; then the others are the images beside it."""
        path = write_tar(tmp_path / "x.tar", *(self.sample(n) for n in range(3)))
        for name in (".right.jpg", "right.jpg"):
            source = open_source(path, SourceOptions.of(image=name))
            assert isinstance(source, Placed)
            item, place = source.read(1), source.place(1)
            assert item.image == self.sample(1)["right.jpg"]
            assert item.values["jpg"] == self.sample(1)["jpg"]
            assert place is not None
            assert place.size == len(self.sample(1)["right.jpg"])
            assert {field.name: field.kind for field in source.fields}["jpg"] == "image"
        with pytest.raises(PackError, match=r"000: no \.left\.jpg among its members \(boxes\.npy, "):
            open_source(path, SourceOptions.of(image="left.jpg"))
        with pytest.raises(ArgumentError, match=r"^image=\'\' is no name of a member or a column$"):
            SourceOptions.of(image="")

    def test_every_kind(self, tmp_path: Path) -> None:
        """The members beside the image become images, masks, boxes and rows, by their names and contents."""
        source = open_source(write_tar(tmp_path / "x.tar", *(self.sample(n) for n in range(3))))
        assert {f.name: (f.kind, f.dtype, f.shape, f.format) for f in source.fields} == {
            "right": ("image", "", (), ""),
            "depth": ("image", "uint16", (1,), ""),
            "mask": ("mask", "uint8", (), ""),
            "instance_mask": ("mask", "uint16", (), ""),
            "boxes": ("boxes", "float32", (), "xyxy"),
            "ids_npy": ("array", "int64", (None,), ""),
            "feature_npy": ("array", "int64", (2, 3), ""),
            "json": ("json", "", (), ""),
        }
        for n in range(3):
            item = source.read(n)
            assert item.image == encoded(picture(n, 24, 32))
            assert item.values["right"] == encoded(picture(n + 9, 24, 32))
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(item.values["depth"]))), DEEP + n)
            assert np.array_equal(item.values["mask"], mask(n))
            assert np.array_equal(item.values["instance_mask"], DEEP)
            assert item.values["boxes"].shape == (n, 4)
            assert item.values["ids_npy"].tolist() == list(range(n))

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        """A member that is no mask is its sample's error."""
        colours = encoded(picture(0, 24, 32), "PNG")
        source = open_source(
            write_tar(tmp_path / "x.tar", self.sample(0), self.sample(1, **{"mask.png": colours}))
        )
        source.read(0)
        with pytest.raises(PackError, match=r"x.tar:001: its .mask.png: a picture of colours \(RGB\)"):
            source.read(1)
        with pytest.raises(
            PackError, match=r"two members of a sample are one field among mask.png, mask.webp"
        ):
            open_source(
                write_tar(tmp_path / "y.tar", {"jpg": b"", "mask.png": png(mask(0)), "mask.webp": b""})
            )


class TestHuggingFace:
    def make(self, bad: bool = False) -> Any:
        """A dataset as the library makes one of features: images, masks and lists."""
        features = datasets.Features(
            {
                "image": datasets.Image(), "right": datasets.Image(), "mask": datasets.Image(),
                "depth": datasets.Image(),
                "scores": datasets.Sequence(datasets.Value("float32")),
                "corners": datasets.Sequence(datasets.Sequence(datasets.Value("int16"), length=4)),
                "tags": datasets.Sequence(datasets.Value("string")), "label": datasets.ClassLabel(names=["a",
                "b"]),
            }
        )  # fmt: skip
        rows = [
            {
                "image": picture(n, 24, 32), "right": picture(n + 9, 24, 32),
                "depth": Image.fromarray(DEEP + n),
                "mask": picture(n, 24, 32) if bad and n == 2 else Image.fromarray(mask(n)),
                "scores": [0.5] * n, "corners": [[n, 1, 2, 3]] * n, "tags": ["x"] * n, "label": n % 2,
            }
            for n in range(4)
        ]  # fmt: skip
        return datasets.Dataset.from_list(rows, features=features)

    @pytest.mark.parametrize("form", ["parquet", "arrow"])
    def test_every_kind(self, tmp_path: Path, form: str) -> None:
        """Images, masks and lists are those that the library gives."""
        made = self.make()
        if form == "parquet":
            made.to_parquet(tmp_path / "x.parquet")
        else:
            made.save_to_disk(tmp_path / "saved")
        source = open_source(tmp_path / ("x.parquet" if form == "parquet" else "saved"))
        assert {f.name: (f.kind, f.dtype, f.shape) for f in source.fields} == {
            "right": ("image", "", ()), "mask": ("mask", "uint8", ()), "depth": ("image", "uint16", (1,)),
            "scores": ("array", "float32", (None,)), "corners": ("array", "int16", (None, 4)),
            "tags": ("json", "", ()),
            "label": ("int", "int64", ()),
        }  # fmt: skip
        assert source.classes == ("a", "b")
        for n, row in enumerate(made):
            item = source.read(n)
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(item.image))), np.asarray(row["image"]))
            for name in ("right", "depth"):
                assert np.array_equal(
                    np.asarray(Image.open(io.BytesIO(item.values[name]))), np.asarray(row[name])
                )
            assert np.array_equal(item.values["mask"], np.asarray(row["mask"]))
            assert item.values["scores"].tolist() == row["scores"]
            assert item.values["corners"].reshape(-1).tolist() == [
                each for corners in row["corners"] for each in corners
            ]
            assert item.values["corners"].shape == (n, 4)
            assert (item.values["tags"], item.values["label"]) == (row["tags"], row["label"])

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        """A mask of colours is its row's error."""
        self.make(bad=True).to_parquet(tmp_path / "x.parquet")
        source = open_source(tmp_path / "x.parquet")
        source.read(1)
        with pytest.raises(PackError, match=r"x.parquet: row 2: its mask: a picture of colours \(RGB\)"):
            source.read(2)


def test_the_image_of_several_columns(tmp_path: Path) -> None:
    """The user may say which column is the image, unless the files say it themselves."""
    pictures = {
        name: [encoded(picture(n + seed, 24, 32)) for n in range(3)]
        for seed, name in enumerate(("image", "right"))
    }
    columns = {name: [{"bytes": each, "path": None} for each in some] for name, some in pictures.items()}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    source = open_source(tmp_path / "x.parquet", SourceOptions.of(image="right"))
    item = source.read(2)
    assert (item.image, item.values["image_"]) == (pictures["right"][2], pictures["image"][2])
    with pytest.raises(PackError, match=r"is none of the columns that can be images: image, right$"):
        open_source(tmp_path / "x.parquet", SourceOptions.of(image="left"))
    pack(tmp_path / "x.parquet", tmp_path / "out.fl", encode="keep")
    export(tmp_path / "out.fl", tmp_path / "out.parquet")
    with pytest.raises(ArgumentError, match=r"^image='right' \(--image\) is for tars, "):
        open_source(tmp_path / "out.parquet", SourceOptions.of(image="right"))
