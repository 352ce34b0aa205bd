"""Several annotation files of COCO's form in one pack: each is what pycocotools reads of it, and what
contradicts itself is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from PIL import Image
from pycocotools.coco import COCO

import fastload
from fastload import PackedDataset
from fastload.errors import ArgumentError, PackError
from fastload.packing import open_source
from fastload.sources.options import LayoutOptions, SourceOptions

SIZE = {"height": 24, "width": 32}
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 1, "name": "person"}]
PERSON = [{"id": 1, "name": "person", "keypoints": ["nose", "eye"]}]
POINTS = [1, 2, 2, 0, 0, 0]
Json = dict[str, Any]


def images(*ids: int, part: str = "train") -> list[Json]:
    return [{"id": own, "file_name": f"{part}{own}.jpg", **SIZE} for own in ids]


def box(number: int, image: int, category: int = 7, **more: Any) -> Json:
    x, y = number % 9, number % 7
    found = {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": [x, y, 9.0, 6.0],
        "area": 54.0,
        "iscrowd": 0,
    }
    return {**found, "segmentation": [[x, y, x + 9, y, x + 9, y + 6]], **more}


def caption(number: int, image: int) -> Json:
    return {"id": number, "image_id": image, "caption": f"caption {number}"}


FILES: dict[str, Json] = {
    "instances_train": {
        "images": images(10, 4, 8),
        "annotations": [box(1, 10), box(2, 10, 1), box(3, 4, 1), box(4, 8)],
        "categories": CATEGORIES,
    },
    "person_keypoints_train": {
        "images": images(4, 8, 10),
        "annotations": [
            box(3, 4, 1, keypoints=POINTS, num_keypoints=1),
            box(2, 10, 1, keypoints=[9, 9, 1, 8, 8, 1]),
        ],
        "categories": PERSON,
    },
    "captions_train": {
        "images": images(10, 8, 4),
        "annotations": [caption(each, (10, 4, 8)[each % 3]) for each in range(1, 6)],
    },
    "instances_val": {
        "images": images(20, 21, part="val"),
        "annotations": [box(1, 20), box(9, 21, 1)],
        "categories": CATEGORIES,
    },
}


def written(root: Path, names: list[str], change: dict[str, Json] | None = None) -> list[Path]:
    """Writes the named files and their images, in the folders of their parts. Returns the paths of the
    files."""
    for name in names:
        content = FILES[name] | (change or {}).get(name, {})
        files = {
            f"{each['file_name'][:-6].rstrip('0123456789')}/{each['file_name']}": each["id"]
            for each in content["images"]
        }
        tree(
            root,
            {
                f"{'train' if 'train' in path else 'val'}/{Path(path).name}": encoded(picture(own, 24, 32))
                for path, own in files.items()
            },
        )
        tree(root, {f"annotations/{name}.json": json.dumps(content).encode()})
    return [root / f"annotations/{name}.json" for name in names]


def opened(root: Path, files: list[Path]) -> Any:
    """The source of these annotation files."""
    return open_source(root, SourceOptions.of(annotations=files))


def by_id(source: Any) -> dict[int, Json]:
    return {item.values["image_id"]: item.values for item in map(source.read, range(len(source)))}


def test_kinds_of_one_image(tmp_path: Path) -> None:
    """Instances, keypoints and captions of the same images are one sample each: objects by their ids,
    captions beside them."""
    names = ["instances_train", "person_keypoints_train", "captions_train"]
    source = opened(tmp_path, written(tmp_path, names))
    instances, keypoints, captions = (COCO(str(tmp_path / f"annotations/{name}.json")) for name in names)
    assert [field.name for field in source.fields] == [
        "image_id", "boxes", "labels", "category_id", "area", "iscrowd", "instances", "keypoints", "captions",
    ]  # fmt: skip
    assert (source.classes, source.notices) == (("person", "dog"), ())
    found = by_id(source)
    assert list(found) == [10, 4, 8]
    for own, values in found.items():
        theirs = instances.loadAnns(instances.getAnnIds(own))
        assert values["boxes"].tolist() == [each["bbox"] for each in theirs]
        assert values["category_id"].tolist() == [each["category_id"] for each in theirs]
        assert values["instances"] == [each["segmentation"] for each in theirs]
        points = [keypoints.anns.get(each["id"], {}).get("keypoints", [0] * 6) for each in theirs]
        assert values["keypoints"].reshape(-1, 6).tolist() == points
        assert values["captions"] == [each["caption"] for each in captions.loadAnns(captions.getAnnIds(own))]
    assert [
        each.tolist() for each in opened(tmp_path, written(tmp_path, names[::-1])).read(1).values["keypoints"]
    ]


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    """Files of other images add theirs, each from its own folder; ids of annotations are of their image,
    and may begin anew."""
    names = ["instances_train", "instances_val"]
    fastload.pack(
        tmp_path, tmp_path / "out", annotations=[str(each) for each in written(tmp_path, names)], workers=1
    )
    dataset = PackedDataset(tmp_path / "out", fields=["image", "image_id", "boxes"])
    assert dataset.column("image_id").tolist() == [10, 4, 8, 20, 21]
    for index, name in enumerate(["instances_train"] * 3 + ["instances_val"] * 2):
        theirs = COCO(str(tmp_path / f"annotations/{name}.json"))
        found = theirs.loadAnns(theirs.getAnnIds(dataset[index]["image_id"]))
        assert dataset[index]["boxes"].tolist() == [each["bbox"] for each in found]


def test_panoptic_and_instances(tmp_path: Path) -> None:
    """Segments of a panoptic file go beside the objects of another, with names of their own; an image
    without any has none."""
    segments = [{"id": 3, "category_id": 7, "bbox": [0, 0, 32, 12], "area": 384, "iscrowd": 0}]
    segments.append({"id": 5, "category_id": 90, "bbox": [0, 12, 32, 12], "area": 384, "iscrowd": 0})
    colours = np.zeros((24, 32, 3), np.uint8)
    colours[:12, :, 0], colours[12:, :, 0] = 3, 5
    panoptic = {
        "images": images(10, 4),
        "annotations": [{"image_id": 10, "file_name": "10.png", "segments_info": segments}],
        "categories": [*CATEGORIES, {"id": 90, "name": "sky"}],
    }
    tree(tmp_path, {"annotations/panoptic_train/10.png": encoded(Image.fromarray(colours), "PNG")})
    given = written(tmp_path, ["instances_train"])
    tree(tmp_path, {"annotations/panoptic_train.json": json.dumps(panoptic).encode()})
    files = [*given, tmp_path / "annotations/panoptic_train.json"]
    source = opened(tmp_path, files)
    assert source.classes == ("person", "dog", "sky")
    assert source.label_limits == {"labels": 3, "mask": 3, "segment_labels": 3}
    assert [(notice.count, notice.examples) for notice in source.notices] == [
        (1, (str(tmp_path / "train/train8.jpg"),))
    ]
    found = by_id(source)
    assert found[10]["labels"].tolist() == [1, 0]
    assert found[10]["segment_labels"].tolist() == [1, 2]
    assert np.array_equal(found[10]["mask"], np.repeat(np.uint8([1, 2]), 12)[:, None].repeat(32, 1))
    assert [len(found[own]["segment_boxes"]) for own in (10, 4, 8)] == [2, 0, 0]
    assert (found[8]["mask"] == 255).all()
    fastload.pack(tmp_path, tmp_path / "out", annotations=files, workers=1)
    sample = PackedDataset(tmp_path / "out")[0]
    assert (sample["boxes"].shape, sample["segment_boxes"].shape, sample["mask"].shape) == (
        (2, 4),
        (2, 4),
        (24, 32),
    )
    captions = written(tmp_path, ["captions_train"])
    plain = opened(tmp_path, [*captions, tmp_path / "annotations/panoptic_train.json"])
    assert {"captions", "boxes", "labels", "mask"} <= {field.name for field in plain.fields}


def errors(source: Any) -> list[str]:
    """The messages of samples that cannot be read."""
    found = []
    for position in range(len(source)):
        try:
            source.read(position)
        except PackError as error:
            found.append(str(error))
    return found


KEYS = FILES["person_keypoints_train"]
WRONG: dict[str, tuple[Json, str]] = {
    "another box": (
        {"annotations": [box(3, 4, 1, keypoints=POINTS, bbox=[0, 0, 1, 1])]},
        r"annotation 3 of image 4 \(train4.jpg\): its bbox is another one than that of "
        r".*instances_train.json: annotation 3",
    ),
    "another crowd": (
        {"annotations": [box(3, 4, 1, keypoints=POINTS, iscrowd=1)]},
        r"annotation 3 of image 4 \(train4.jpg\): its iscrowd is another one than that of "
        r".*instances_train.json: annotation 3",
    ),
    "another id": (
        {
            "images": [*images(8, 10), {"id": 5, "file_name": "train4.jpg", **SIZE}],
            "annotations": [box(2, 10, 1, keypoints=POINTS)],
        },
        r"train4.jpg' has the image id 5 in .*keypoints_train.json and 4 in .*instances_train.json; "
        r"where parts have the same file names",
    ),
    "another file": (
        {"images": [*images(8, 10), {"id": 4, "file_name": "train10.jpg", **SIZE}]},
        r"the image id 4 is '.*train10.jpg' in .*keypoints_train.json, and in .*instances_train.json "
        r"'.*train4.jpg'",
    ),
    "another size": (
        {"images": [*images(8, 10), {"id": 4, "file_name": "train4.jpg", "height": 9, "width": 8}]},
        r"the image id 4 has 8 x 9 pixels in .*keypoints_train.json, and in .*instances_train.json 32 x 24",
    ),
    "an id twice": ({"images": images(8, 10, 4, 4)}, r"the image id 4 is there twice"),
    "an absent image": (
        {"annotations": [box(30, 99, 1, keypoints=POINTS)]},
        r"keypoints_train.json: annotation 30 of image 99, which is not",
    ),
    "an annotation twice": (
        {"annotations": [*KEYS["annotations"], box(3, 4, 1, keypoints=POINTS)]},
        r"the annotation id 3 is there twice",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_contradicts_itself(tmp_path: Path, name: str) -> None:
    """What two files say differently, ids that are there twice and annotations of no image are errors of
    what they concern alone."""
    changed, words = WRONG[name]
    files = written(
        tmp_path, ["instances_train", "person_keypoints_train"], {"person_keypoints_train": changed}
    )
    found = errors(opened(tmp_path, files))
    assert found
    for message in found:
        with pytest.raises(PackError, match=words):
            raise PackError(message)
    summary = fastload.pack(tmp_path, tmp_path / "out", annotations=files, on_error="skip", workers=1)
    assert summary.samples == (3 if name == "an absent image" else 2)


@pytest.mark.parametrize(
    ("categories", "words"),
    [
        (
            [{"id": 1, "name": "human", "keypoints": ["nose", "eye"]}],
            "the category id 1 is 'human', and 'person' in .*person_keypoints_train.json",
        ),
        (
            [{"id": 1, "name": "person", "keypoints": ["eye", "nose"]}],
            r"instances_val.json: the keypoints of the category 'person' are others than in "
            r".*keypoints_train.json",
        ),
        (
            [{"id": 1, "name": "person", "keypoints": ["nose"]}],
            "'person' has 1 keypoints, and 2 in .*person_keypoints_train.json",
        ),
    ],
)
def test_categories_that_differ(tmp_path: Path, categories: list[Json], words: str) -> None:
    """A category that has another name or other keypoints in another file is an error of all."""
    names = ["instances_train", "person_keypoints_train", "instances_val"]
    with pytest.raises(PackError, match=words):
        opened(tmp_path, written(tmp_path, names, {"instances_val": {"categories": categories}}))


def test_files_of_other_parts(tmp_path: Path) -> None:
    """Files of different kinds that name other images are told of: one was maybe meant to be another
    part's."""
    source = opened(tmp_path, written(tmp_path, ["instances_val", "captions_train"]))
    assert [(notice.text, notice.count) for notice in source.notices] == [
        ("images that instances_val.json (their objects) do not name", 3),
        ("images that captions_train.json (their captions) do not name", 2),
    ]
    assert by_id(source)[20]["captions"] == []


def test_options(tmp_path: Path) -> None:
    """A list or tuple of files is those files; a file twice, an empty list and a list with something else
    are refused."""
    files = written(tmp_path, ["instances_train"])
    for several in (files, tuple(files), (*files, *written(tmp_path, ["captions_train"]))):
        source = open_source(tmp_path, SourceOptions.of(annotations=several))
        assert [field.name for field in source.fields][:2] == ["image_id", "boxes"]
        assert (source.fields[-1].name == "captions") == (len(several) == 2)
    for given, words in (([], "is no path"), (["a", 5], "is no path"), (["a", "a"], "names a file twice")):
        with pytest.raises(ArgumentError, match=words):
            LayoutOptions(annotations=given)  # type: ignore[arg-type]
