"""Wrong annotations and masks end a pack with the file and the id; under on_error="skip" their samples are
left out and counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_folders import SIZE, labels
from pictures import photo
from PIL import Image

import fastload
from fastload.errors import PackError, PackStoppedError
from fastload.packing import Item, unpack
from fastload.store import Field

GOOD = {
    "category_id": 1,
    "bbox": [3.0, 2.0, 9.0, 5.0],
    "area": 45.0,
    "iscrowd": 0,
    "segmentation": [[3, 2, 12, 2, 12, 7, 3, 7]],
}
RUNS = {"size": list(SIZE), "counts": [100, 20, SIZE[0] * SIZE[1] - 120]}
Json = dict[str, Any]


def coco(root: Path, change: Callable[[Json], None]) -> Path:
    """Four images (ids 10 to 13), two annotations each (100, 101, ...), after a change to the file's
    content."""
    images = [{"id": 10 + n, "file_name": f"{n}.jpg", "height": SIZE[0], "width": SIZE[1]} for n in range(4)]
    annotations = [{**GOOD, "id": 100 + n, "image_id": 10 + n // 2} for n in range(8)]
    content: Json = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "coin"}]}
    for folder in ("train2017", "annotations"):
        (root / folder).mkdir()
    for n in range(4):
        photo(n, *SIZE).save(root / "train2017" / f"{n}.jpg")
    change(content)
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return root


def annotation(**values: Any) -> Callable[[Json], None]:
    """Changes annotation 103, the second one of image 11 (1.jpg)."""
    return lambda content: content["annotations"][3].update(values)


def absent_image(content: Json) -> None:
    content["annotations"].append({**GOOD, "id": 200, "image_id": 99})


def missing_file(content: Json) -> None:
    content["images"].append({"id": 20, "file_name": "gone.jpg", "height": SIZE[0], "width": SIZE[1]})


def named(file: Any) -> Callable[[Json], None]:
    """Gives image 11 another file_name."""
    return lambda content: content["images"][1].update(file_name=file)


NO_PATH_BELOW = "which is no path below the folder of its files: write it relative to that folder"


def image_twice(content: Json) -> None:
    content["images"][2]["id"] = 11


OF_103 = r"instances_train2017\.json: annotation 103 of image 11 \(1\.jpg\): "
COCO: dict[str, tuple[Callable[[Json], None], str, int]] = {
    "x2 < x1": (annotation(bbox=[9.0, 2.0, -4.0, 5.0]), OF_103 + ".*width", 1),
    "NaN": (annotation(bbox=[float("nan"), 2.0, 4.0, 5.0]), OF_103, 1),
    "counts that do not sum": (
        annotation(segmentation={**RUNS, "counts": [100, 20, 7]}),
        OF_103 + "the counts of its RLE do not sum to the 48 x 64 pixels",
        1,
    ),
    "a mask of another size": (
        annotation(segmentation={"size": [9, 9], "counts": [81]}),
        "annotation 103.*9.*9",
        1,
    ),
    "a coordinate of 1e8": (
        annotation(segmentation=[[3, 2, 1e8, 2, 1e8, 1e8]]),
        OF_103
        + r"a point of its polygon is at x 1e\+08, y 2, more than 10 times the size of its image \(64 x 48",
        1,
    ),
    "a category that is none": (annotation(category_id=7), OF_103 + "its category_id 7", 1),
    "an annotation id twice": (annotation(id=107), "the annotation id 107 is there twice", 2),
    "an image id twice": (image_twice, "the image id 11 is there twice", 3),
    "annotations of no image": (absent_image, "annotation 200 of image 99, which is not among its images", 1),
    "a file above": (
        named("../annotations/x.jpg"),
        f"its file_name is '../annotations/x.jpg', {NO_PATH_BELOW}",
        1,
    ),
    "an absolute file": (named("/etc/passwd"), f"its file_name is '/etc/passwd', {NO_PATH_BELOW}", 1),
    "a file that is no text": (named(7), f"its file_name is 7, {NO_PATH_BELOW}", 1),
    "a missing image": (missing_file, "gone.jpg", 1),
}


@pytest.mark.parametrize("name", COCO)
def test_coco(tmp_path: Path, name: str) -> None:
    """A COCO file: the message names file, annotation and image; the other images are packed."""
    change, message, lost = COCO[name]
    source = coco(tmp_path, change)
    concerned = 5 if name in ("annotations of no image", "an image id twice", "a missing image") else 4
    with pytest.raises(PackStoppedError, match=message):
        fastload.pack(source, tmp_path / "a.fl")
    summary = fastload.pack(source, tmp_path / "b.fl", on_error="skip")
    assert summary.skipped_count == len(summary.skipped) == lost
    assert all(reason for _, reason in summary.skipped)
    assert summary.samples == concerned - lost
    assert len(fastload.PackedDataset(tmp_path / "b.fl")) == concerned - lost


def write_mask(path: Path, mask: Any, palette: bool = False) -> None:
    image = Image.fromarray(mask)
    if palette:
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    image.save(path)


def pairs(root: Path, mask: Any) -> Path:
    """Three images with palette masks; the mask of the second is another one."""
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for n in range(3):
        photo(n, *SIZE).save(root / "images" / f"{n}.jpg")
        write_mask(root / "masks" / f"{n}.png", labels(n), palette=True)
    write_mask(root / "masks" / "1.png", mask)
    return root


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros((9, 9), np.uint8), r"1\.jpg: .*mask.*\(9, 9\)"),
        (np.zeros((*SIZE, 3), np.uint8), r"1\.png.*a picture of colours"),
    ],
    ids=["another size", "colours"],
)
def test_masks(tmp_path: Path, mask: Any, message: str) -> None:
    """A mask of another size than its image, and one of colours, where labels are meant."""
    source = pairs(tmp_path / "src", mask)
    with pytest.raises(PackStoppedError, match=message):
        fastload.pack(source, tmp_path / "a.fl")
    summary = fastload.pack(source, tmp_path / "b.fl", on_error="skip")
    assert (summary.samples, summary.skipped_count) == (2, 1)
    assert summary.skipped[0][0].endswith("images/1.jpg")


def test_a_palette_is_indices(tmp_path: Path) -> None:
    """A PNG with a palette, where labels are meant, gives its indices and not its colours."""
    fastload.pack(pairs(tmp_path / "src", labels(7)), tmp_path / "a.fl")
    dataset = fastload.PackedDataset(tmp_path / "a.fl")
    for n, sample in enumerate(dataset):
        assert np.array_equal(sample[1].numpy(), labels(7 if n == 1 else n))


def test_a_label_beyond_the_classes(tmp_path: Path) -> None:
    """Of a 16-bit mask whose classes are known; 65535 is of none, as 255 is."""

    class Source:
        title, classes, concurrent = "wide", ("sky", "sea", "shore"), True
        fields = (Field("mask", "mask", "uint16"),)
        label_limits = {"mask": 3}  # noqa: RUF012

        def __len__(self) -> int:
            return 3

        def name(self, position: int) -> str:
            return f"scene-{position}.jpg"

        def read(self, position: int) -> Any:
            mask = np.zeros(SIZE, np.uint16)
            mask[4, 5] = 3 if position == 1 else 65535
            return Item(self.name(position), np.zeros((*SIZE, 3), np.uint8), {"mask": mask})

    with pytest.raises(
        PackStoppedError, match=r"scene-1\.jpg: its 'mask' has the label 3, the classes are 0 to 2"
    ):
        fastload.pack(Source(), tmp_path / "a.fl")
    summary = fastload.pack(Source(), tmp_path / "b.fl", on_error="skip")
    assert (summary.samples, summary.skipped_count) == (2, 1)


@pytest.mark.parametrize("out", ["../secret", "/etc/secret"])
def test_names_stay_below_their_folder(tmp_path: Path, out: str) -> None:
    """A list of Pascal VOC and a line of fields.jsonl name no file outside the dataset."""
    voc = tmp_path / "voc"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (voc / folder).mkdir(parents=True)
    photo(0, *SIZE).save(voc / "secret.jpg")
    (voc / "ImageSets/Main/train.txt").write_text(f"{out}\n")
    with pytest.raises(
        PackError, match=r"train\.txt: it names '.*/secret', which is not below the dataset's folders"
    ):
        fastload.pack(voc, tmp_path / "a.fl")
    fastload.pack(pairs(tmp_path / "pairs", labels(1)), tmp_path / "b.fl")
    unpack(tmp_path / "b.fl", tmp_path / "files", layout="folders")
    lines = tmp_path / "files/fields.jsonl"
    entries = [json.loads(line) for line in lines.read_text().splitlines()]
    entries[1]["mask"] = f"{out}.png"
    lines.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with pytest.raises(
        PackStoppedError, match=r"fields\.jsonl, line 2: its 'mask' is no path below the folder"
    ):
        fastload.pack(tmp_path / "files", tmp_path / "c.fl")
    assert fastload.pack(tmp_path / "files", tmp_path / "d.fl", on_error="skip").skipped_count == 1
