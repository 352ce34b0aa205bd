"""Annotations of photos that EXIF turns, and of images of another size: stored where they belong, or
refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_folders import labels
from packing_helpers import encoded, picture, tree
from PIL import Image, ImageOps

import fastload
from fastload.errors import ArgumentError, PackStoppedError

STORED = 48, 64
"""Height and width of the pixels that the photos' files store."""


def photo(seed: int, orientation: int, form: str = "JPEG", size: tuple[int, int] = STORED) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(picture(seed, *size), form, exif=exif.tobytes())


def turned(array: Any, orientation: int) -> Any:
    """An array of the stored pixels turned upright by Pillow."""
    image = Image.fromarray(array)
    exif = image.getexif()
    exif[0x0112] = orientation
    return np.asarray(ImageOps.exif_transpose(image))


X, Y, WIDTH, HEIGHT = 5, 9, 20, 30
BLOCK = np.zeros(STORED, np.uint8)
BLOCK[Y : Y + HEIGHT, X : X + WIDTH] = 1
RUNS = [X * 48 + Y, *[HEIGHT, 48 - HEIGHT] * (WIDTH - 1), HEIGHT, (64 - X - WIDTH) * 48 + 48 - Y - HEIGHT]
"""One object in the stored pixels: its mask, and its run lengths."""


def block_of(orientation: int, upright: bool) -> tuple[int, int, int, int]:
    """The object's box x, y, width, height in the stored pixels, or in the upright picture."""
    rows, columns = np.nonzero(turned(BLOCK, orientation) if upright else BLOCK)
    return int(columns.min()), int(rows.min()), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1


def coco(
    root: Path, orientation: int, upright: bool = False, form: str = "JPEG", size: Any = None, **changed: Any
) -> Path:
    """A photo with one object twice, as a polygon and as run lengths, and a keypoint in its first pixel."""
    x, y, w, h = block_of(orientation, upright)
    mask = turned(BLOCK, orientation) if upright else BLOCK
    height, width = size or mask.shape
    flat = mask.T.reshape(-1)
    runs = np.diff(np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1, [flat.size]])).tolist()
    marked = (
        turned(np.pad(np.array([[1]], np.uint8), ((Y, 48 - Y - 1), (X, 64 - X - 1))), orientation)
        if upright
        else None
    )
    first = (X, Y) if marked is None else tuple(int(each[0]) for each in np.nonzero(marked)[::-1])
    points = [*first, 2, 0, 0, 0]
    segmentations = [[[x, y, x + w, y, x + w, y + h, x, y + h]], {"size": list(mask.shape), "counts": runs}]
    objects = [
        {
            "id": n,
            "image_id": 1,
            "category_id": 1,
            "bbox": [x, y, w, h],
            "area": w * h,
            "iscrowd": 0,
            "segmentation": each,
            "keypoints": points,
        }
        for n, each in enumerate(segmentations)
    ]
    name = f"1.{'png' if form == 'PNG' else 'jpg'}"
    content = {
        "images": [
            {"id": 1, "file_name": name, "height": height, "width": width},
            {"id": 2, "file_name": "2.jpg", "height": 9, "width": 9},
        ],
        "annotations": objects,
        "categories": [{"id": 1, "name": "block", "keypoints": ["first", "hidden"]}],
    } | changed
    files = {f"train/{name}": photo(1, orientation, form), "train/2.jpg": photo(2, 6)}
    return tree(root, files | {"annotations/instances_train.json": json.dumps(content).encode()})


def holds(sample: Any, orientation: int, upright: bool) -> None:
    """The sample's annotations are where the object is."""
    mask = turned(BLOCK, orientation) if upright else BLOCK
    assert sample["image"].shape[1:] == mask.shape
    assert sample["boxes"].tolist() == [list(map(float, block_of(orientation, upright)))] * 2
    for each in sample["instances"]:
        assert np.array_equal(each.numpy(), mask)
    marked = np.zeros(STORED, np.uint8)
    marked[Y, X] = 1
    marked = turned(marked, orientation) if upright else marked
    x, y = (int(each[0]) for each in np.nonzero(marked)[::-1])
    assert sample["keypoints"].tolist() == [[[x, y, 2], [0, 0, 0]]] * 2


class TestCoco:
    @pytest.mark.parametrize("form", ["JPEG", "PNG"])
    @pytest.mark.parametrize("orientation", [5, 6, 7, 8])
    @pytest.mark.parametrize("upright", [False, True])
    def test_applied(self, tmp_path: Path, orientation: int, upright: bool, form: str) -> None:
        """With exif="apply" boxes, masks and keypoints fit the upright picture, whichever of the two the
        JSON's size is of."""
        source = coco(tmp_path / "src", orientation, upright, form)
        summary = fastload.pack(source, tmp_path / "out", exif="apply")
        assert (summary.samples, summary.notices) == (2, ())
        dataset = fastload.PackedDataset(tmp_path / "out")
        holds(dataset[0], orientation, True)
        assert len(dataset[1]["boxes"]) == 0

    @pytest.mark.parametrize("orientation", [1, 3, 6])
    def test_ignored(self, tmp_path: Path, orientation: int) -> None:
        """With exif="ignore" annotations of the stored pixels are packed as they are; what a half turn's
        are cannot be told."""
        assert fastload.pack(coco(tmp_path / "src", orientation), tmp_path / "out").noticed(
            "orientation"
        ) == 1 + (orientation != 1)
        holds(fastload.PackedDataset(tmp_path / "out")[0], orientation, False)

    @pytest.mark.parametrize(
        ("orientation", "upright", "options", "words"),
        [
            (
                6,
                True,
                {},
                r"1\.jpg: its EXIF orientation is 6, and its annotations are for the upright picture "
                r"of 48 x 64, .* 64 x 48 pixels",
            ),
            (6, True, {}, r"pack with --exif apply \(exif='apply'\), which turns the image\."),
            (
                3,
                False,
                {"exif": "apply"},
                "orientation is 3, and no size says whether its annotations are for the upright .*: "
                "turn the file",
            ),
            (
                1,
                False,
                {"size": (96, 128)},
                r"1\.jpg: it has 64 x 48 pixels .*, and its annotations are for 128 x 96 "
                r"\(.*instances_train\.json\): ",
            ),
            (
                6,
                False,
                {"size": (24, 32), "exif": "apply"},
                "it has 64 x 48 pixels .*, and its annotations are for 32 x 24",
            ),
            (1, False, {"size": (64, 48)}, "it has 64 x 48 pixels .*, and its annotations are for 48 x 64"),
        ],
    )
    def test_refused(
        self, tmp_path: Path, orientation: int, upright: bool, options: dict[str, Any], words: str
    ) -> None:
        """A size that is neither picture's, or one that does not tell, is the sample's error: one sentence
        with the file and both sizes."""
        exif, size = options.get("exif", "ignore"), options.get("size")
        source = coco(tmp_path / "src", orientation, upright, size=size)
        if size is not None:  # else the size of the run lengths is told first
            path = source / "annotations/instances_train.json"
            content = json.loads(path.read_text())
            content["annotations"] = content["annotations"][:1]
            path.write_text(json.dumps(content))
        with pytest.raises(PackStoppedError, match=words):
            fastload.pack(source, tmp_path / "a", exif=exif)
        summary = fastload.pack(source, tmp_path / "b", exif=exif, on_error="skip")
        assert (summary.samples, summary.skipped_count) == (1, 1)

    def test_a_size_that_is_not_said(self, tmp_path: Path) -> None:
        """Where the JSON has no size, coordinates are of the stored pixels with exif="ignore", and an
        error with "apply"."""
        objects = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [X, Y, WIDTH, HEIGHT]}]
        source = coco(tmp_path / "src", 6, images=[{"id": 1, "file_name": "1.jpg"}], annotations=objects)
        fastload.pack(source, tmp_path / "out")
        assert fastload.PackedDataset(tmp_path / "out")[0]["boxes"].tolist() == [[X, Y, WIDTH, HEIGHT]]
        with pytest.raises(
            PackStoppedError, match="no size says whether its annotations are for the upright picture"
        ):
            fastload.pack(source, tmp_path / "b", exif="apply")


def voc(root: Path, orientation: int, size: str, box: tuple[int, int, int, int]) -> Path:
    x, y, w, h = box
    corners = f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax>"
    text = f"<annotation>{size}<object><name>dog</name><bndbox>{corners}</bndbox></object></annotation>"
    return tree(root, {"JPEGImages/1.jpg": photo(1, orientation), "Annotations/1.xml": text.encode()})


class TestVoc:
    @pytest.mark.parametrize("upright", [False, True])
    def test_applied(self, tmp_path: Path, upright: bool) -> None:
        """<size> says which picture the boxes are of."""
        height, width = turned(BLOCK, 8).shape if upright else STORED
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        source = voc(tmp_path / "src", 8, size, block_of(8, upright))
        fastload.pack(source, tmp_path / "out", exif="apply")
        x, y, w, h = block_of(8, True)
        assert fastload.PackedDataset(tmp_path / "out")[0]["boxes"].tolist() == [[x, y, x + w, y + h]]
        if upright:
            with pytest.raises(
                PackStoppedError, match="its annotations are for the upright picture of 48 x 64"
            ):
                fastload.pack(source, tmp_path / "b")

    @pytest.mark.parametrize(
        "size", ["", "<size><width>0</width><height>0</height></size>", "<size><width>x</width></size>"]
    )
    def test_sizes_that_say_nothing(self, tmp_path: Path, size: str) -> None:
        """No <size>, and one of zeros as some tools write it, say nothing."""
        source = voc(tmp_path / "src", 6, size, block_of(6, False))
        fastload.pack(source, tmp_path / "out")
        assert fastload.PackedDataset(tmp_path / "out")[0]["boxes"].tolist() == [
            [X, Y, X + WIDTH, Y + HEIGHT]
        ]
        with pytest.raises(PackStoppedError, match="no size says whether"):
            fastload.pack(source, tmp_path / "b", exif="apply")

    def test_another_size(self, tmp_path: Path) -> None:
        """A resized export is refused by name."""
        source = voc(
            tmp_path / "src", 1, "<size><width>640</width><height>480</height></size>", block_of(1, False)
        )
        with pytest.raises(
            PackStoppedError,
            match=r"1\.jpg: it has 64 x 48 pixels .* annotations are for 640 x 480 \(.*Annotations/1\.xml\)",
        ):
            fastload.pack(source, tmp_path / "out")


class TestYolo:
    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_fractions_are_of_the_upright_picture(self, tmp_path: Path, orientation: int) -> None:
        """As trainers for the layout read them: packed with exif="apply", refused without where the file
        is turned."""
        x, y, w, h = block_of(orientation, True)
        height, width = turned(BLOCK, orientation).shape
        line = f"0 {(x + w / 2) / width} {(y + h / 2) / height} {w / width} {h / height}\n"
        files = {
            "images/1.jpg": photo(1, orientation),
            "labels/1.txt": line.encode(),
            "images/2.jpg": photo(2, 6),
        }
        source = tree(tmp_path / "src", files)
        fastload.pack(source, tmp_path / "out", exif="apply")
        found = fastload.PackedDataset(tmp_path / "out")
        assert np.allclose(found[0]["boxes"], [[x + w / 2, y + h / 2, w, h]])
        assert found[0]["image"].shape[1:] == (height, width)
        if orientation == 1:
            assert fastload.pack(source, tmp_path / "b").samples == 2
            return
        with pytest.raises(
            PackStoppedError, match=r"1\.jpg: .*its annotations are for the upright picture.*--exif apply"
        ):
            fastload.pack(source, tmp_path / "b")
        with pytest.raises(
            PackStoppedError, match=r"1\.jpg: .*its annotations are for the upright picture.*--exif apply"
        ):
            fastload.attach(source, tmp_path / "c")


class TestMasks:
    @pytest.mark.parametrize("orientation", [2, 4, 5, 6, 7, 8])
    @pytest.mark.parametrize("upright", [False, True])
    def test_the_size_of_the_mask_tells(self, tmp_path: Path, orientation: int, upright: bool) -> None:
        """A mask is turned with its photo, or is upright already; where its size does not tell it is
        refused."""
        mask = turned(labels(1), orientation) if upright else labels(1)
        source = tree(
            tmp_path / "src",
            {"images/1.jpg": photo(1, orientation), "masks/1.png": encoded(Image.fromarray(mask), "PNG")},
        )
        if orientation < 5:
            with pytest.raises(
                PackStoppedError, match="no size says whether its 'mask' is for the upright picture"
            ):
                fastload.pack(source, tmp_path / "out", exif="apply")
            return
        fastload.pack(source, tmp_path / "out", exif="apply")
        assert np.array_equal(fastload.PackedDataset(tmp_path / "out")[0][1], turned(labels(1), orientation))
        if upright:
            with pytest.raises(
                PackStoppedError,
                match=r"its 'mask' is for the upright picture of 48 x 64, .* pack with --exif apply",
            ):
                fastload.pack(source, tmp_path / "b")


def test_sources_that_do_not_say(tmp_path: Path) -> None:
    """A table's boxes may be of either picture: exif="apply" is refused, and the notice does not advise
    it."""
    table = 'image:image,boxes:boxes\n1.jpg,"[[1, 2, 3, 4]]"\n'
    source = tree(tmp_path, {"1.jpg": photo(1, 6), "list.csv": table.encode()}) / "list.csv"
    with pytest.raises(
        ArgumentError,
        match=(
            r"exif='apply' turns images, but not the field 'boxes' of .*list\.csv, .*: turn the files "
            r"themselves"
        ),
    ):
        fastload.pack(source, tmp_path / "a", exif="apply")
    (notice,) = fastload.pack(source, tmp_path / "b").notices
    assert (notice.kind, notice.count) == ("orientation", 1)
    assert "--exif apply is not for this source" in notice.text
