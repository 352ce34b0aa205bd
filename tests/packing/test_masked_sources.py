"""Images with masks: what is read is what torchvision's datasets read, as labels and not colours; what has
no partner is named."""

from __future__ import annotations

import io
import os
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from PIL import Image
from torchvision.datasets import Cityscapes, VOCSegmentation

import fastload
from fastload.errors import PackError
from fastload.packing import open_source
from fastload.sources.annotated import read_label_map
from fastload.sources.masked import CITYSCAPES_CLASSES
from fastload.sources.options import LayoutOptions, SourceOptions

JPEG = encoded(picture(0, 24, 32))


def labels(seed: int, top: int = 21, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    found = np.random.default_rng(seed).integers(0, top, (24, 32)).astype(dtype)
    found[:2, :2] = 255
    return found


def png(array: np.ndarray[Any, Any], palette: bool = False) -> bytes:
    image = Image.fromarray(array)
    if palette:
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    return encoded(image, "PNG")


def grey_png(array: np.ndarray[Any, Any], bits: int) -> bytes:
    """A grey PNG of 1, 2, 4 or 16 bits, by the format's own rules: Pillow writes none of 2 and 4."""
    if bits == 16:
        lines = [b"\0" + row.astype(">u2").tobytes() for row in array]
    else:
        shifts = np.arange(8 - bits, -1, -bits)
        lines = [
            b"\0" + (row.reshape(-1, 8 // bits) << shifts).sum(1).astype(np.uint8).tobytes() for row in array
        ]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], bits, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"".join(lines)))
        + chunk(b"IEND", b"")
    )


def failures(source: Any) -> list[str]:
    found = []
    for position in range(len(source)):
        try:
            source.read(position)
        except PackError as error:
            found.append(str(error))
    return found


class TestLabelMaps:
    @pytest.mark.parametrize("bits", [1, 2, 4, 16])
    def test_grey_values_are_not_spread(self, bits: int) -> None:
        """A grey PNG of any depth gives the numbers in it; Pillow by itself multiplies those of 2 and 4
        bits."""
        wanted = np.random.default_rng(bits).integers(0, 1 << bits, (24, 32))
        assert np.array_equal(read_label_map(grey_png(wanted, bits)), wanted)

    @pytest.mark.parametrize("form", ["PNG", "GIF", "BMP", "TIFF"])
    def test_palettes_are_indices(self, form: str) -> None:
        """The labels of a picture with a palette are its indices, whatever the colours."""
        image = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(8, 32))
        image.putpalette(bytes(range(256)) * 3)
        found = read_label_map(encoded(image, form))
        assert found.dtype == np.uint8
        assert np.array_equal(found, np.arange(256).reshape(8, 32))

    @pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "F", "CMYK"])
    def test_colours_are_refused(self, mode: str) -> None:
        """A picture of colours is no label map, and the message says what to do."""
        data = encoded(Image.new(mode, (4, 4)), "TIFF")
        with pytest.raises(Exception, match=rf"a picture of colours \({mode}\), where a mask has one number"):
            read_label_map(data)

    def test_lossy_formats_are_refused(self) -> None:
        """JPEG mixes labels at their edges."""
        with pytest.raises(Exception, match="a JPEG, which changes labels"):
            read_label_map(encoded(Image.new("L", (8, 8))))


class TestPairs:
    def test_by_name(self, tmp_path: Path) -> None:
        """Images and masks belong together by their paths without extension, _mask aside; the folders are
        recognised, or given."""
        names = ["a", "b", "sub/c"]
        masks = {name: labels(i) for i, name in enumerate(names)}
        tree(
            tmp_path / "x",
            {f"images/{name}.jpg": encoded(picture(i, 24, 32)) for i, name in enumerate(names)},
        )
        tree(
            tmp_path / "x",
            {f"masks/{name}{'_mask' * (name == 'b')}.png": png(masks[name], name == "a") for name in names},
        )
        given = open_source(
            tmp_path / "x/images", SourceOptions(layout=LayoutOptions(masks=tmp_path / "x/masks"))
        )
        for source in (
            open_source(tmp_path / "x"),
            given,
            open_source(tmp_path / "x", SourceOptions(layout=LayoutOptions("pairs"))),
        ):
            assert [(f.name, f.kind, f.dtype) for f in source.fields] == [("mask", "mask", "uint8")]
            for position, name in enumerate(names):
                item = source.read(position)
                assert item.name == str(tmp_path / f"x/images/{name}.jpg")
                assert item.image == Path(item.name).read_bytes()
                assert np.array_equal(item.values["mask"], masks[name])
        assert len(open_source(tmp_path / "x", SourceOptions(layout=LayoutOptions("folder")))) == 6

    def test_16_bits(self, tmp_path: Path) -> None:
        """One mask of 16 bits makes the field uint16."""
        tree(tmp_path, {"images/a.jpg": JPEG, "images/b.jpg": JPEG})
        tree(
            tmp_path,
            {"masks/a.png": png(labels(0)), "masks/b.png": grey_png(labels(1, 60000, np.uint16), 16)},
        )
        source = open_source(tmp_path)
        assert source.fields[0].dtype == "uint16"
        assert [source.read(i).values["mask"].dtype for i in (0, 1)] == [np.uint16] * 2
        assert np.array_equal(source.read(1).values["mask"], labels(1, 60000, np.uint16))

    def test_no_partner(self, tmp_path: Path) -> None:
        """An image without a mask, and a mask without an image, are samples that fail with their names;
        others are read."""
        tree(
            tmp_path,
            {f"images/{name}.jpg": JPEG for name in "ab"}
            | {f"masks/{name}.png": png(labels(0)) for name in "bc"},
        )
        source = open_source(tmp_path)
        assert len(source) == 3
        advice = (
            f"of the same name in {tmp_path}/images or {tmp_path}/masks; add it, or pack with on_error='skip'"
        )
        assert failures(source) == [
            f"{tmp_path}/images/a.jpg: the image has no mask {advice}",
            f"{tmp_path}/masks/c.png: the mask has no image {advice}",
        ]

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        """A mask that cannot be read names itself and its image."""
        tree(tmp_path, {f"images/{name}.jpg": JPEG for name in "abcd"})
        tree(
            tmp_path,
            {
                "masks/a.png": png(labels(0)),
                "masks/b.png": b"x",
                "masks/c.png": encoded(picture(0, 24, 32), "PNG"),
            },
        )
        (tmp_path / "masks/d.png").symlink_to("nowhere")
        found = failures(open_source(tmp_path))
        assert [text.split(": ")[0] for text in found] == [f"{tmp_path}/images/{name}.jpg" for name in "bcd"]
        for text, why in zip(
            found, ("neither a JPEG nor", "a picture of colours", "cannot be read: No such file"), strict=True
        ):
            assert why in text

    def test_folders(self, tmp_path: Path) -> None:
        """Where nothing fits, the message names both folders; two files of one name are refused."""
        tree(tmp_path, {"images/a.jpg": JPEG, "masks/b.png": png(labels(0))})
        with pytest.raises(
            PackError,
            match=r"of 1 images in .*images none has a mask of its name among 1 in .*masks \(a.jpg, b.png\)",
        ):
            open_source(tmp_path)
        tree(tmp_path, {"images/b.jpg": JPEG, "images/b.png": JPEG})
        with pytest.raises(PackError, match="differ in their extension alone"):
            open_source(tmp_path)
        with pytest.raises(PackError, match="no two folders images and masks in it"):
            open_source(tmp_path / "masks", SourceOptions(layout=LayoutOptions("pairs")))

    @pytest.mark.parametrize("below", [("images", "masks", "dogs"), ("images", "other"), ("cats", "masks")])
    def test_class_folders_stay_class_folders(self, tmp_path: Path, below: tuple[str, ...]) -> None:
        """Only the two folders alone are recognised as pairs."""
        tree(tmp_path, {f"{name}/a.png": png(labels(0)) for name in below})
        assert open_source(tmp_path).classes == tuple(sorted(below))


class TestLayouts:
    def test_cityscapes_is_torchvisions(self, tmp_path: Path) -> None:
        """Images, labelIds and instanceIds are those of torchvision's Cityscapes, in the same order for
        one city."""
        for split in ("train", "val"):
            for i in range(3):
                base = f"{split}/aachen/aachen_{i:06d}_000019"
                tree(tmp_path, {f"leftImg8bit/{base}_leftImg8bit.png": encoded(picture(i, 24, 32), "PNG")})
                tree(tmp_path, {f"gtFine/{base}_gtFine_labelIds.png": png(labels(i, 34))})
                tree(
                    tmp_path,
                    {f"gtFine/{base}_gtFine_instanceIds.png": grey_png(labels(i + 9, 34000, np.uint16), 16)},
                )
        theirs = Cityscapes(str(tmp_path), "train", "fine", ["semantic", "instance"])
        source = open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="train")))
        assert source.classes == CITYSCAPES_CLASSES == tuple(c.name for c in Cityscapes.classes if c.id >= 0)
        assert [(f.name, f.dtype) for f in source.fields] == [("mask", "uint8"), ("instance_mask", "uint16")]
        assert len(source) == len(theirs) == 3
        theirs_of = {path: theirs[place] for place, path in enumerate(theirs.images)}
        for position in range(3):
            item = source.read(position)
            image, (semantic, instance) = theirs_of[item.name]
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(item.image))), np.asarray(image))
            assert np.array_equal(item.values["mask"], np.asarray(semantic))
            assert np.array_equal(item.values["instance_mask"], np.asarray(instance))
        with pytest.raises(
            PackError,
            match=r"name one of its splits with --split .*: train, val \(folders below leftImg8bit\)",
        ):
            open_source(tmp_path)
        with pytest.raises(PackError, match=r"there is no split 'test'; there are: train, val"):
            open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="test")))

    def test_voc_is_torchvisions(self, tmp_path: Path) -> None:
        """The masks of a split are the indices of its palette PNGs, 255 included, as VOCSegmentation's
        targets are."""
        root = tmp_path / "VOCdevkit/VOC2012"
        for i in range(4):
            tree(
                root,
                {
                    f"JPEGImages/2007_{i}.jpg": encoded(picture(i, 24, 32)),
                    f"Annotations/2007_{i}.xml": b"<annotation/>",
                },
            )
            tree(
                root,
                {
                    f"SegmentationClass/2007_{i}.png": png(labels(i), True),
                    f"SegmentationObject/2007_{i}.png": png(labels(i + 9), True),
                },
            )
        tree(
            root,
            {
                "ImageSets/Segmentation/train.txt": b"2007_0\n2007_2\n",
                "ImageSets/Segmentation/val.txt": b"2007_1\n",
            },
        )
        theirs = VOCSegmentation(str(tmp_path), "2012", "train")
        options = LayoutOptions("voc-segmentation", split="train")
        for top in (tmp_path, root.parent, root):
            source = open_source(top, SourceOptions(layout=options))
            assert len(source) == len(theirs) == 2
            assert source.classes is not None
            assert (source.classes[0], source.classes[20], len(source.classes)) == (
                "background",
                "tvmonitor",
                21,
            )
            for position, (image, mask) in enumerate(theirs):
                item = source.read(position)
                assert np.array_equal(np.asarray(Image.open(io.BytesIO(item.image))), np.asarray(image))
                assert np.array_equal(item.values["mask"], np.asarray(mask))
                assert item.values["mask"].max() == 255
                assert np.array_equal(item.values["instance_mask"], labels(2 * position + 9))

    def test_labels_beyond_the_classes(self, tmp_path: Path) -> None:
        """A label that no class has is named; 255 is of no class."""
        bad = labels(0)
        bad[5, 5] = 40
        tree(
            tmp_path,
            {f"JPEGImages/{name}.jpg": JPEG for name in "ab"}
            | {"labelmap.txt": b"# label:color\nground:0,0,0::\nroof:1,1,1::\n"},
        )
        tree(tmp_path, {"SegmentationClass/a.png": png(bad), "SegmentationClass/b.png": png(labels(1, 2))})
        source = open_source(tmp_path)
        assert source.classes == ("ground", "roof")
        (text,) = failures(source)
        assert text.endswith(
            f"a.jpg: its mask {tmp_path}/SegmentationClass/a.png has the label 40, beyond its 2 "
            "classes (from 0, and 255 for none)"
        )

    def test_ade20k(self, tmp_path: Path) -> None:
        """images/SPLIT and annotations/SPLIT; the names of the classes come after that of label 0."""
        for split in ("training", "validation"):
            tree(tmp_path, {f"images/{split}/ADE_{i}.jpg": encoded(picture(i, 24, 32)) for i in range(2)})
            tree(tmp_path, {f"annotations/{split}/ADE_{i}.png": png(labels(i, 151)) for i in range(2)})
        rows = "".join(f"{i}\t0.1\t1\t1\tname {i}, other\n" for i in range(1, 151))
        tree(tmp_path, {"objectInfo150.txt": f"Idx\tRatio\tTrain\tVal\tName\n{rows}".encode()})
        source = open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="validation")))
        assert source.classes is not None
        assert (len(source), len(source.classes), source.classes[0], source.classes[150]) == (
            2,
            151,
            "other",
            "name 150, other",
        )
        assert np.array_equal(source.read(1).values["mask"], labels(1, 151))
        assert [os.path.dirname(source.name(i)) for i in range(2)] == [
            str(tmp_path / "images/validation")
        ] * 2


NPY = np.lib.format.magic(1, 0)
GREY = png(labels(0))
COLOURS = encoded(picture(1, 24, 32), "PNG")
UNCLEAR: dict[str, tuple[dict[str, bytes], str]] = {
    "JPEG masks": (
        {"images/a.jpg": JPEG, "masks/a.jpg": JPEG},
        r"images and masks are called .* \(\.jpg files in masks\).* convert JPEG masks",
    ),
    "npy masks": (
        {"images/a.jpg": JPEG, "masks/a.npy": NPY},
        r"images and masks are called .* \(\.npy files in masks\).* arrays to PNG.*--masks DIR",
    ),
    "a third folder": (
        {"images/a.jpg": JPEG, "masks/a.png": GREY, "depth/a.png": GREY},
        "depth, images and masks are called .* --masks DIR",
    ),
    "masks in a split": (
        {"Images/a.jpg": JPEG, "Masks/a.png": GREY, "test/b.jpg": JPEG},
        "Images, Masks and test are called .* --masks DIR",
    ),
    "labels of YOLO": (
        {"imgs/a.jpg": JPEG, "labels/a.txt": b"0 0 0 0 0"},
        r"imgs and labels are called .*\(\.txt files in labels\).* --format yolo",
    ),
    "VOC by another name": (
        {"Images/a.jpg": JPEG, "Annotations/a.xml": b"<a/>"},
        "Annotations and Images are called .* --format voc",
    ),
    "JSON an image": (
        {"images/a.jpg": JPEG, "labels/a.json": b"{}"},
        "images and labels are called .* --annotations FILE",
    ),
    "JPEGImages and JPEG masks": (
        {"JPEGImages/a.jpg": JPEG, "labels/a.jpg": JPEG},
        "JPEGImages and labels are called",
    ),
    "splits of images": (
        {"train/a.jpg": JPEG, "val/b.jpg": JPEG},
        "train and val are called as the splits of a dataset are: put the images of a split into one "
        "folder a class",
    ),
    "splits of classes": (
        {"train/cat/a.jpg": JPEG, "train/dog/a.jpg": JPEG, "val/cat/b.jpg": JPEG},
        "train and val are called as the splits of a dataset are, whose classes are cat and dog: "
        "give one of them as the source .*train",
    ),
    "one split": (
        {"train/cat/a.jpg": JPEG, "train/dog/a.jpg": JPEG},
        "its only folder train holds the folders cat and dog: give .*train",
    ),
    "label maps": (
        {"left/a.jpg": JPEG, "left/b.jpg": JPEG, "classes/a.png": GREY, "classes/b.png": GREY},
        "each file in classes has the name of one in left, .*: `fastload pack .*left OUT --masks "
        ".*classes` packs",
    ),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_folders_that_are_no_classes(tmp_path: Path, case: str) -> None:
    """Images with annotations of no layout that is recognised, and splits, are an error with what to do;
    format="folder" takes them."""
    files, words = UNCLEAR[case]
    tree(tmp_path, files)
    with pytest.raises(
        PackError, match=f"^{tmp_path}: {words}.*; --format folder .* for (a class|classes) all the same$"
    ):
        open_source(tmp_path)
    if all(name.endswith((".jpg", ".png")) for name in files):
        assert len(open_source(tmp_path, SourceOptions(layout=LayoutOptions("folder")))) == len(files)


DESCRIBED = {
    "coco": ({"images/1.jpg": JPEG, "train.json": b"{}"}, "train.json lies beside images",
    "--annotations {0}/train.json"),
    "kaggle": ({"train/1.jpg": JPEG, "train.csv": b"id,label\n"}, "train.csv lies beside train",
    "fastload pack {0}/train.csv OUT"),
    "tsv": ({"x/1.jpg": JPEG, "y.TSV": b""}, "y.TSV lies beside x", "fastload pack {0}/y.TSV OUT"),
    "parquet": ({"x/1.jpg": JPEG, "y.parquet": b""}, "y.parquet lies beside x",
    "fastload pack {0}/y.parquet OUT"),
    "several": ({"x/1.jpg": JPEG, "a.csv": b"", "b.json": b"", ".c.csv": b""},
    "a.csv and b.json lie beside x", "pack {0}/a.csv OUT"),
    "hugging": ({"train/1.jpg": JPEG, "train/metadata.csv": b""}, "train/metadata.csv lies",
    "fastload pack {0}/train/metadata.csv OUT"),
    "lines": ({"train/1.jpg": JPEG, "train/metadata.jsonl": b""},
    "train/metadata.jsonl lies beside the images", "a .csv of path,label"),
    "labelimg": ({"x/1.jpg": JPEG, "x/1.xml": b""}, "x/1.xml lies beside", "--format voc"),
    "darknet": ({"x/1.jpg": JPEG, "x/2.jpg": JPEG, "x/1.txt": b"", "x/2.txt": b""},
    "x/1.txt and x/2.txt lie beside", "--format yolo"),
    "kaggle splits": (
        {"train/1.jpg": JPEG, "test/1.jpg": JPEG, "train.csv": b"", "sample_submission.csv": b""},
        "sample_submission.csv and train.csv lie beside test and train", "fastload pack {0}/train.csv OUT",
    ),
}  # fmt: skip
"""Images that a file beside them describes, and words of the error: what lies there, and what to do."""


@pytest.mark.parametrize("case", DESCRIBED)
@pytest.mark.parametrize("make", [fastload.pack, fastload.attach])
def test_images_that_a_file_describes(tmp_path: Path, case: str, make: Any) -> None:
    """Such images are not packed as one class without a word: the error names the file and the layouts;
    `folder` says that they are one."""
    files, what, how = DESCRIBED[case]
    tree(tmp_path / "src", files)
    with pytest.raises(
        PackError,
        match=f"^{tmp_path}/src: {re.escape(what)}.*--format folder .* for (a class|classes) all the same$",
    ) as info:
        make(tmp_path / "src", tmp_path / "out")
    assert how.format(tmp_path / "src") in str(info.value)
    assert not (tmp_path / "out").exists()
    assert make(tmp_path / "src", tmp_path / "out", format="folder").samples == sum(
        name.endswith(".jpg") for name in files
    )


@pytest.mark.parametrize(
    "files",
    [
        {"cat/1.jpg": JPEG, "dog/1.jpg": JPEG, "labels.csv": b"", "notes.json": b""},
        {"cat/1.jpg": JPEG, "README.txt": b"", "classes.txt": b""},
        {"cat/1.jpg": JPEG, "cat/notes.txt": b""},
        {"cat/1.jpg": JPEG, ".hidden.json": b""},
        {"cat/1.jpg": JPEG, "dog/1.jpg": JPEG, "train/1.jpg": JPEG},
        {"cat/1.jpg": JPEG, "dog/1.png": COLOURS},
        {"three/1.png": GREY, "seven/1.png": GREY},
        {"cat/1.jpg": JPEG, "dog/1.png": GREY, "dog/2.png": GREY},
        {"images/1.jpg": JPEG},
        {"train/1.jpg": JPEG},
        {"masks/1.jpg": JPEG, "gloves/1.jpg": JPEG},
    ],
    ids=str,
)
def test_folders_that_are_classes(tmp_path: Path, files: dict[str, bytes]) -> None:
    """Class folders stay what they are, also where one is called as a split or as masks are, or files of
    two have one name."""
    source = open_source(tree(tmp_path, files))
    assert source.classes == tuple(sorted({name.split("/")[0] for name in files if "/" in name}))
