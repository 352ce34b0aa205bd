"""COCO's annotation files: their samples, fields and values are those of pycocotools and torchvision; what
is wrong in them is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from PIL import Image
from pycocotools.coco import COCO
from torchvision.datasets import CocoCaptions, CocoDetection

from fastload.errors import ArgumentError, PackError
from fastload.packing import open_source
from fastload.sources import coco_index
from fastload.sources.coco_index import list_entries
from fastload.sources.options import LayoutOptions, SourceOptions

CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 1, "name": "cat"}, {"id": 90, "name": "bird"}]
SIZE = {"height": 24, "width": 32}
PERSON = [{"id": 1, "name": "person", "keypoints": ["nose", "eye", "ear"], "skeleton": [[1, 2]]}]


def annotation(number: int, image: int, **changed: Any) -> dict[str, Any]:
    x, y = number % 9, number % 7
    polygon = [x, y, x + 9.5, y, x + 9.5, y + 6.25, x, y + 6.25]
    found = {
        "id": number,
        "image_id": image,
        "category_id": CATEGORIES[number % 3]["id"],
        "bbox": [x, y, 9.5, 6.25],
        "area": 59.375,
    }
    return found | {"iscrowd": 0, "segmentation": [polygon]} | changed


def content(images: int = 5, **changed: Any) -> dict[str, Any]:
    """Images 10, 9, 8, ...; the last one without annotations, one with a crowd."""
    entries = [{"id": 10 - i, "file_name": f"é{i}.jpg", **SIZE} for i in range(images)]
    annotations = [annotation(100 + i, 10 - i % (images - 1)) for i in range(11)]
    annotations.append(annotation(50, 9, iscrowd=1, segmentation={"size": [24, 32], "counts": [700, 20, 48]}))
    return {
        "info": {"year": 2017},
        "images": entries,
        "annotations": annotations,
        "categories": CATEGORIES,
    } | changed


def write(root: Path, found: dict[str, Any], name: str = "annotations/instances_train.json") -> Path:
    """The dataset: its images in train/, and the annotation file."""
    files = [entry["file_name"] for entry in found["images"] if isinstance(entry.get("file_name"), str)]
    tree(root, {f"train/{file}": encoded(picture(i, 24, 32)) for i, file in enumerate(files)})
    return tree(root, {name: json.dumps(found, ensure_ascii=False).encode()})


def errors(source: Any) -> dict[str, str]:
    """The message of each sample that cannot be read, by the sample's name."""
    found = {}
    for position in range(len(source)):
        try:
            source.read(position)
        except (PackError, OSError) as error:
            found[source.name(position)] = str(error)
    return found


class TestOracle:
    def test_instances_are_those_of_pycocotools(self, tmp_path: Path) -> None:
        """Images, boxes, areas, crowds, ids and segmentations are what COCO and CocoDetection give; an
        image without any is a sample."""
        source = open_source(write(tmp_path, content()))
        file = tmp_path / "annotations/instances_train.json"
        oracle = COCO(str(file))
        theirs = CocoDetection(str(tmp_path / "train"), str(file))
        assert [(f.name, f.kind, f.of) for f in source.fields] == [
            ("image_id", "int", ""), ("boxes", "boxes", ""), ("labels", "array", "boxes"), ("category_id",
            "array", "boxes"),
            ("area", "array", "boxes"), ("iscrowd", "array", "boxes"), ("instances", "instances", "boxes"),
        ]  # fmt: skip
        assert source.fields[1].format == "xywh"
        assert (
            source.classes
            == tuple(each["name"] for each in oracle.loadCats(sorted(oracle.getCatIds())))
            == ("cat", "dog", "bird")
        )
        assert len(source) == len(theirs) == 5
        items = {item.values["image_id"]: item for item in map(source.read, range(len(source)))}
        for place, own in enumerate(theirs.ids):
            image, found = theirs[place]
            values = items[own].values
            assert items[own].image == (tmp_path / "train" / oracle.imgs[own]["file_name"]).read_bytes()
            assert image.size == (32, 24)
            assert values["boxes"].tolist() == [each["bbox"] for each in found]
            assert values["boxes"].dtype == np.float32
            assert values["boxes"].shape == (len(found), 4)
            assert values["category_id"].tolist() == [each["category_id"] for each in found]
            assert [source.classes[each] for each in values["labels"]] == [
                oracle.cats[each["category_id"]]["name"] for each in found
            ]
            assert values["area"].tolist() == [each["area"] for each in found]
            assert values["iscrowd"].tolist() == [each["iscrowd"] for each in found]
            assert values["instances"] == [each["segmentation"] for each in found]
        assert len(items[6].values["boxes"]) == 0

    def test_keypoints(self, tmp_path: Path) -> None:
        """Keypoints are (K, 3) as in the file, and zeros for an object without any."""
        points = [1, 2, 2, 3.5, 4, 1, 0, 0, 0]
        annotations = [
            annotation(1, 10, category_id=1, keypoints=points, num_keypoints=2),
            annotation(2, 10, category_id=1, segmentation=[]),
        ]
        source = open_source(write(tmp_path, content(annotations=annotations, categories=PERSON)))
        field = {f.name: f for f in source.fields}["keypoints"]
        assert (field.shape, field.of, source.classes) == ((3, 3), "boxes", ("person",))
        values = source.read(0).values
        assert values["keypoints"].tolist() == [
            np.reshape(points, (3, 3)).tolist(),
            np.zeros((3, 3)).tolist(),
        ]
        assert values["instances"][1] == {"size": [24, 32], "counts": [24 * 32]}
        assert source.read(1).values["keypoints"].shape == (0, 3, 3)

    def test_names_of_keypoints(self, tmp_path: Path) -> None:
        """Names of the keypoints are the field's, with the pairs that differ in left and right; of categories
        that disagree it has what they agree on."""
        found = annotation(1, 10, category_id=1, keypoints=[1, 2, 2] * 3, num_keypoints=3)
        sides = ["nose", "left_eye", "right_eye"]
        cases: list[tuple[Any, Any, Any]] = [
            (sides, None, (tuple(sides), ((1, 2),))),
            (sides, ["muzzle", "left_horn", "right_horn"], ((), ((1, 2),))),
            (sides, ["left_horn", "muzzle", "right_horn"], ((), ())),
            (["nose", "left_eye", 5], None, ((), ())),
        ]
        for number, (names, others, wanted) in enumerate(cases):
            categories = [{"id": 1, "name": "person", "keypoints": names}]
            categories += [{"id": 2, "name": "goat", "keypoints": others}] if others else []
            source = open_source(
                write(tmp_path / str(number), content(annotations=[found], categories=categories))
            )
            field = {f.name: f for f in source.fields}["keypoints"]
            assert (field.names, field.pairs) == wanted

    def test_captions_are_those_of_torchvision(self, tmp_path: Path) -> None:
        """The texts of an image, in their order, as CocoCaptions gives them; a file of captions has no
        other fields."""
        texts = [{"id": i, "image_id": 10 - i % 3, "caption": f"größe {i} \u4e2d"} for i in range(7)]
        made = {key: value for key, value in content(annotations=texts).items() if key != "categories"}
        source = open_source(write(tmp_path, made, "annotations/captions_train.json"))
        theirs = CocoCaptions(str(tmp_path / "train"), str(tmp_path / "annotations/captions_train.json"))
        assert [(f.name, f.kind) for f in source.fields] == [("image_id", "int"), ("captions", "json")]
        assert source.classes is None
        ours = {
            item.values["image_id"]: item.values["captions"] for item in map(source.read, range(len(source)))
        }
        assert ours == {own: theirs[place][1] for place, own in enumerate(theirs.ids)}

    @pytest.mark.parametrize("order", [("images", "annotations"), ("annotations", "images")])
    def test_places_in_the_file_do_not_depend_on_blocks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
    ) -> None:
        """With blocks of any size, and whatever comes first, an object's bytes are those that the file has
        at its place."""
        made = content(extra={"list": [1, {"a": "]}"}]}, number=[1.5e3, -2, "x", None, [{}]])
        path = tmp_path / "x.json"
        text = json.dumps(
            {key: made[key] for key in (*order, *(made.keys() - set(order)))}, indent=1, ensure_ascii=False
        )
        path.write_text(text)
        for block in (1, 2, 3, 7, 64, 1000, 1 << 20):
            monkeypatch.setattr(coco_index, "_BLOCK", block)
            found: dict[str, list[Any]] = {}
            for key, offset, data, _ in list_entries(str(path)):
                assert path.read_bytes()[offset : offset + len(data)] == data
                found.setdefault(key, []).append(json.loads(data))
            assert found == {key: made[key] for key in ("images", "annotations", "categories")}


class TestPanoptic:
    def write(self, root: Path, changed: dict[str, Any] | None = None, ids: Any = None) -> Path:
        segments = [
            {"id": 3, "category_id": 7, "bbox": [0, 0, 32, 12], "area": 384, "iscrowd": 0},
            {"id": 70000, "category_id": 1, "bbox": [0, 12, 16, 12], "area": 192, "iscrowd": 1},
        ]
        one = {"image_id": 10, "file_name": "a.png", "segments_info": segments} | (changed or {})
        if ids is None:
            ids = np.zeros((24, 32), np.int64)
            ids[:12], ids[12:, :16] = 3, 70000
        colours = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
        write(root, content(annotations=[one]), "annotations/panoptic_train.json")
        return tree(root, {"annotations/panoptic_train/a.png": encoded(Image.fromarray(colours), "PNG")})

    def test_masks_are_labels_and_numbers(self, tmp_path: Path) -> None:
        """The ids of the PNG become the label of each pixel, and the number of its segment, in the order
        of the segments."""
        source = open_source(self.write(tmp_path))
        values = source.read(0).values
        numbers = np.zeros((24, 32), np.uint16)
        numbers[:12], numbers[12:, :16] = 1, 2
        assert np.array_equal(values["instance_mask"], numbers)
        assert np.array_equal(values["mask"], np.array([255, 1, 0], np.uint8)[numbers])
        assert (values["mask"].dtype, values["instance_mask"].dtype) == (np.uint8, np.uint16)
        assert values["labels"].tolist() == [1, 0]
        assert values["category_id"].tolist() == [7, 1]
        assert values["segment"].tolist() == [1, 2]
        assert values["iscrowd"].tolist() == [0, 1]
        assert values["boxes"].tolist() == [[0, 0, 32, 12], [0, 12, 16, 12]]
        empty = source.read(1).values
        assert (empty["mask"] == 255).all()
        assert empty["mask"].shape == (24, 32)
        assert empty["boxes"].shape == (0, 4)

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (
                {"segments_info": [{"id": 3, "category_id": 7, "bbox": [0, 0, 1, 1]}]},
                "the id 70000 of its PNG is not among",
            ),
            (
                {"segments_info": [{"id": 3, "category_id": 8, "bbox": [0, 0, 1, 1]}, {"id": 70000}]},
                "its category_id 8 is none of the 3",
            ),
            ({"file_name": "b.png"}, "b.png cannot be read"),
            ({"segments_info": [{"id": 3}, {"id": 3}]}, "an id of its segments is there twice"),
            ({"segments_info": 5}, "segments_info is no list"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        """A PNG and a list of segments that do not fit each other are the sample's error, with file and
        image."""
        if changed.get("segments_info") == 5:
            changed = {"segments_info": {"a": 1}}
        with pytest.raises(PackError, match=f"panoptic_train.json: .* of image 10 .*{message}"):
            open_source(self.write(tmp_path, changed)).read(0)


class TestWrong:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"bbox": [5, 5, -1, 3]}, "x2 < x1"),
            ({"bbox": [5, 5, float("nan"), 3]}, "NaN"),
            ({"bbox": [5, 5, 1e300, 3]}, "too large"),
            ({"bbox": [5, 5, 10**400, 3]}, "too large"),
            ({"bbox": [5, 5, 3]}, "no list of 4 numbers"),
            ({"bbox": [5, 5, True, 3]}, "other values than numbers"),
            ({"bbox": None}, "no list of 4 numbers"),
            ({"category_id": 5}, "category_id 5 is none of the 3 categories"),
            ({"category_id": [1]}, "category_id"),
            ({"area": "1"}, "area"),
            ({"iscrowd": 2}, "iscrowd is 2"),
            ({"segmentation": [[1, 2, 3, 4]]}, "a polygon"),
            ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "a polygon"),
            ({"segmentation": [[1, 2, 3, 4, 5, float("inf")]]}, "NaN, infinite"),
            ({"segmentation": {"size": [24, 31], "counts": [744]}}, "RLE has the size"),
            ({"segmentation": {"size": [24, 32], "counts": [744]}}, "do not sum to the 24 x 32"),
            ({"segmentation": {"size": [24, 32]}}, "neither polygons nor an RLE"),
            ({"segmentation": "x"}, "neither polygons nor an RLE"),
        ],
    )
    def test_annotation(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        """A wrong annotation is the error of its image alone, and names file, annotation and image."""
        made = content()
        made["annotations"][3] |= changed
        found = errors(open_source(write(tmp_path, made)))
        assert list(found) == [str(tmp_path / "train/é3.jpg")]
        (text,) = found.values()
        assert text.startswith(
            f"{tmp_path}/annotations/instances_train.json: annotation 103 of image 7 (é3.jpg): "
        ), text
        assert message in text

    def test_ids(self, tmp_path: Path) -> None:
        """Ids that are there twice, and annotations of absent images, are errors of what they concern;
        other samples are read."""
        made = content()
        made["annotations"] += [
            annotation(101, 7),
            annotation(200, 99),
            annotation(201, 99),
            annotation(202, 98),
        ]
        made["images"].append({"id": 10, "file_name": "other.jpg", **SIZE})
        made["images"].append({"id": 11, "file_name": "gone.jpg", **SIZE})
        write(tmp_path, made)
        (tmp_path / "train/gone.jpg").unlink()
        file = f"{tmp_path}/annotations/instances_train.json"
        source = open_source(tmp_path)
        found = errors(source)
        advice = "; correct the file, or pack with on_error='skip'"
        shown = {
            key.removeprefix(f"{tmp_path}/train/"): value.removeprefix(f"{file}: ").removesuffix(advice)
            for key, value in found.items()
        }
        assert shown == {
            "é0.jpg": "the image id 10 is there twice ('é0.jpg' and 'other.jpg')",
            "other.jpg": "the image id 10 is there twice ('é0.jpg' and 'other.jpg')",
            "é1.jpg": "the annotation id 101 is there twice",
            "é3.jpg": "the annotation id 101 is there twice",
            "gone.jpg": f"[Errno 2] No such file or directory: '{tmp_path}/train/gone.jpg'",
            f"{file}: annotations 200, 201 of image 99, which is not among its images": (
                "annotations 200, 201 of image 99, which is not among its images"
            ),
            f"{file}: annotation 202 of image 98, which is not among its images": (
                "annotation 202 of image 98, which is not among its images"
            ),
        }  # fmt: skip
        assert len(source) == 9

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"", "ends in the midst"),
            (b"[]", "does not begin with an object"),
            (b'{"images": [{"id": 1, ', "no JSON"),
            (b'{"images": [{"id": 1}] "x": 1}', "'\"' where ',' is needed"),
            (b'{"images": [{"id": "1"}]}', "image number 0 \\(from 0\\) has the id '1'"),
            (b'{"images": [], "images": []}', "there twice"),
            (b'{"annotations": [{"id": 1}]}', "annotation number 0 .* has the image_id None"),
            (b'{"images": []}', "no list of images"),
            (b'{"images": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}", "too deep"),
            (b'{"images": [{"id": 1, "file_name": "\xff"}]}', "image 0 is no JSON"),
            (
                b'{"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
                "category id 1 is there twice",
            ),
        ],
    )
    def test_file(self, tmp_path: Path, text: bytes, message: str) -> None:
        """A file that is no annotation file is one error, with the place in it."""
        path = tmp_path / "x.json"
        path.write_bytes(text)
        with pytest.raises(PackError, match=f"x.json.*{message}"):
            open_source(path)

    def test_values_that_are_too_large_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A value without an end is refused once it has more bytes than a sample's JSON may have."""
        monkeypatch.setattr(coco_index, "JSON_BYTES", 1000)
        monkeypatch.setattr(coco_index, "_BLOCK", 100)
        path = tmp_path / "x.json"
        path.write_bytes(b'{"info": "' + b"x" * 100_000 + b'"}')
        with pytest.raises(PackError, match=r"byte 9: no JSON value in the next 1,\d\d\d bytes"):
            list(list_entries(str(path)))


class TestFiles:
    def test_where_the_images_are(self, tmp_path: Path) -> None:
        """Images beside the file, in the folder given, in images/ or in the split's folder are found; the
        file may be the source."""
        write(tmp_path, content())
        file = tmp_path / "annotations/instances_train.json"
        options = SourceOptions.of(annotations=file)
        wanted = (tmp_path / "train/é0.jpg").read_bytes()
        for source in (
            open_source(file),
            open_source(tmp_path / "train", options),
            open_source(tmp_path, options),
        ):
            assert source.read(0).image == wanted
            assert source.place(0).path.endswith("é0.jpg")
        (tmp_path / "images").mkdir()
        (tmp_path / "train").rename(tmp_path / "images" / "train")
        assert open_source(tmp_path).read(0).image == wanted
        file.rename(tmp_path / "images/train/_annotations.coco.json")
        assert open_source(tmp_path / "images/train").read(0).image == wanted

    def test_several_files(self, tmp_path: Path) -> None:
        """Of several annotation files one is named, or its split; the message lists them."""
        write(tmp_path, content())
        write(tmp_path, content(2), "annotations/instances_val.json")
        with pytest.raises(
            PackError, match=r"several annotation files: instances_train.json, instances_val.json; name one"
        ):
            open_source(tmp_path)
        with pytest.raises(PackError, match=r"no annotation file for the split 'test'"):
            open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="test")))
        assert len(open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="train")))) == 5

    def test_no_images(self, tmp_path: Path) -> None:
        """Where none of the images is found, the message says where they were looked for."""
        write(tmp_path, content())
        (tmp_path / "train").rename(tmp_path / "elsewhere")
        with pytest.raises(
            PackError,
            match=r"none of the images of .* is here \(é0.jpg, é1.jpg, é2.jpg, ...; also looked for in train",
        ):
            open_source(tmp_path)

    def test_options(self, tmp_path: Path) -> None:
        """Options are refused for sources and formats that do not take them."""
        write(tmp_path, content())
        with pytest.raises(ArgumentError, match="format='x' is none of folder, coco"):
            LayoutOptions("x")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="annotations is for the formats coco"):
            LayoutOptions("yolo", annotations="x")
        with pytest.raises(ArgumentError, match="are for one folder"):
            open_source([1], SourceOptions(layout=LayoutOptions("coco")))
        with pytest.raises(ArgumentError, match="masks is for the PNGs of a panoptic dataset"):
            open_source(tmp_path, SourceOptions(layout=LayoutOptions(masks=tmp_path)))
        with pytest.raises(PackError, match="no such folder or file"):
            open_source(tmp_path / "gone", SourceOptions(layout=LayoutOptions("coco")))
        with pytest.raises(PackError, match="its layout is not recognised"):
            open_source(tmp_path / "train", SourceOptions(layout=LayoutOptions(split="x")))
