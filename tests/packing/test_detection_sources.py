"""Pascal VOC's and YOLO's boxes are those of independent readers, and what is wrong in a file is named
with its place in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from packing_helpers import encoded, picture, tree
from torchvision.datasets import VOCDetection

from fastload.errors import PackError
from fastload.packing import open_source
from fastload.sources.options import LayoutOptions, SourceOptions
from fastload.sources.voc import VOC_CLASSES

JPEG = encoded(picture(0, 24, 32))


def xml(*objects: tuple[Any, ...]) -> bytes:
    """An annotation of (name, xmin, ymin, xmax, ymax, difficult)."""
    texts = [
        f"<object><name>{n}</name><truncated>1</truncated><difficult>{d}</difficult><part><name>head</name></part>"
        f"<bndbox><xmax>{c}</xmax><xmin>{a}</xmin><ymin>{b}</ymin><ymax>{e}</ymax></bndbox></object>"
        for n, a, b, c, e, d in objects
    ]
    return f"<annotation><size><width>32</width></size>{''.join(texts)}</annotation>".encode()


class TestVoc:
    def write(self, root: Path, annotations: dict[str, bytes]) -> Path:
        tree(root, {f"JPEGImages/{name}.jpg": JPEG for name in annotations})
        return tree(root, {f"Annotations/{name}.xml": data for name, data in annotations.items()})

    def test_it_is_torchvisions(self, tmp_path: Path) -> None:
        """Objects are those of VOCDetection; boxes count from 0 and end after the last pixel, where the
        file counts from 1 up to it."""
        root = tmp_path / "VOCdevkit/VOC2007"
        made = {
            "a": xml(("dog", 1, 2, 30, 20, 0), ("cat", 3, 3, 3, 3, 1)),
            "b": xml(),
            "c": xml(("person", 5.5, 1, 32, 24, 0)),
        }
        self.write(root, made)
        tree(
            root,
            {
                "ImageSets/Main/train.txt": b"a\nc\nb\n",
                "ImageSets/Main/val.txt": b"b\n",
                "ImageSets/Main/dog_train.txt": b"a 1\nc -1\n",
            },
        )
        theirs = VOCDetection(str(tmp_path), "2007", "train")
        source = open_source(tmp_path, SourceOptions(layout=LayoutOptions(split="train")))
        assert [(f.name, f.kind, f.of) for f in source.fields] == [
            ("boxes", "boxes", ""), ("labels", "array", "boxes"), ("difficult", "array", "boxes"),
            ("truncated", "array", "boxes"),
        ]  # fmt: skip
        assert source.classes == VOC_CLASSES
        assert len(source) == len(theirs) == 3
        for position, (_, target) in enumerate(theirs):
            objects = target["annotation"].get("object", [])
            values = source.read(position).values
            boxes = [
                [float(each["bndbox"][side]) for side in ("xmin", "ymin", "xmax", "ymax")] for each in objects
            ]
            assert values["boxes"].shape == (len(objects), 4)
            assert (values["boxes"] + [1, 1, 0, 0]).tolist() == boxes
            assert [VOC_CLASSES[label] for label in values["labels"]] == [each["name"] for each in objects]
            assert values["difficult"].tolist() == [int(each["difficult"]) for each in objects]
            assert values["truncated"].tolist() == [1] * len(objects)
        with pytest.raises(
            PackError, match=r"name one of its splits with --split .*: train, val \(lists in ImageSets/Main\)"
        ):
            open_source(root)

    def test_boxes_that_count_from_0(self, tmp_path: Path) -> None:
        """Sides at 0, as tools write that count from 0, stay within the image."""
        self.write(
            tmp_path, {"a": xml(("dog", 0, 5, 9, 9, 0), ("dog", 5, 0, 9, 9, 0), ("dog", 0, 0, 32, 24, 0))}
        )
        assert open_source(tmp_path).read(0).values["boxes"].tolist() == [
            [0, 4, 9, 9],
            [4, 0, 9, 9],
            [0, 0, 32, 24],
        ]

    def test_other_classes(self, tmp_path: Path) -> None:
        """Classes of one's own are sorted, and the same for each split; without ImageSets all annotations
        are samples."""
        self.write(
            tmp_path, {"a": xml(("wheel", 1, 1, 2, 2, 0)), "b": xml(("axle", 1, 1, 2, 2, 0)), "c": xml()}
        )
        source = open_source(tmp_path)
        assert (source.classes, len(source)) == (("axle", "wheel"), 3)
        tree(tmp_path, {"ImageSets/Main/train.txt": b"a\n"})
        assert (open_source(tmp_path).classes, len(open_source(tmp_path))) == (("axle", "wheel"), 1)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (
                xml(("dog", 1, 1, 5, 5, 0), ("dog", 9, 1, 5, 5, 0)),
                r"object 1 \(from 0\): its bndbox .*x2 < x1",
            ),
            (xml(("dog", "nan", 1, 5, 5, 0)), r"object 0 \(from 0\): .*NaN"),
            (xml(("dog", "", 1, 5, 5, 0)), r"object 0 \(from 0\): its bndbox is '', '1', '5', '5', where"),
            (b"<annotation>", "no XML"),
            (b"", "no XML"),
            (b"<a>" * 200, "more than 100 deep"),
            (b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 99 + b'">]><a>&b;</a>', "document type"),
            (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "document type"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, data: bytes, message: str) -> None:
        """A wrong file is the error of its own sample, with the object's number."""
        self.write(tmp_path, {"a": xml(("dog", 1, 1, 2, 2, 0)), "b": data})
        source = open_source(tmp_path)
        source.read(0)
        with pytest.raises(PackError, match=f"b.xml: .*{message}"):
            source.read(1)

    def test_missing_files(self, tmp_path: Path) -> None:
        """Of a list, a missing image and a missing annotation are their samples' errors."""
        self.write(tmp_path, {name: xml() for name in "ab"})
        tree(tmp_path, {"ImageSets/Main/x.txt": b"a\nb\ngone\n"})
        (tmp_path / "Annotations/b.xml").unlink()
        source = open_source(tmp_path)
        source.read(0)
        with pytest.raises(PackError, match=r"b.jpg: its annotation .*b.xml cannot be read: No such file"):
            source.read(1)
        with pytest.raises(FileNotFoundError, match=r"gone.jpg"):
            source.read(2)


class TestYolo:
    def write(
        self,
        root: Path,
        texts: dict[str, str | None],
        config: dict[str, Any] | None = None,
        split: str = "train",
    ) -> Path:
        """Images of 32 x 24 with their labels; None: no file."""
        tree(root, {f"images/{split}/{name}.jpg": JPEG for name in texts})
        tree(
            root,
            {f"labels/{split}/{name}.txt": text.encode() for name, text in texts.items() if text is not None},
        )
        if config is not None:
            (root / "data.yaml").write_text(
                yaml.safe_dump({"train": f"images/{split}", "names": {0: "dog", 1: "cat"}} | config)
            )
        return root

    def test_boxes(self, tmp_path: Path) -> None:
        """Boxes are cxcywh in pixels: the fractions of the file times the image's width and height; no
        file means no objects."""
        texts = {"a": "0 0.5 0.5 0.25 0.5\n1 0.125 1 0.0 0\n\n", "b": "", "c": None}
        for config in ({}, None):
            root = self.write(tmp_path / str(config), texts, config)
            source = open_source(root)
            assert [(f.name, f.kind, f.format) for f in source.fields] == [
                ("boxes", "boxes", "cxcywh"),
                ("labels", "array", ""),
            ]
            assert source.classes == (("dog", "cat") if config is not None else None)
            values = source.read(0).values
            assert values["boxes"].tolist() == [[16, 12, 8, 12], [4, 24, 0, 0]]
            assert values["labels"].tolist() == [0, 1]
            assert [source.read(i).values["boxes"].shape for i in (1, 2)] == [(0, 4)] * 2

    def test_outlines(self, tmp_path: Path) -> None:
        """Lines of points are polygons in pixels, and their boxes enclose them."""
        source = open_source(
            self.write(tmp_path, {"a": "1 0.25 0.25 0.75 0.25 0.75 0.5 0.5 1\n", "b": ""}, {})
        )
        values = source.read(0).values
        assert values["polygons"] == [[[8, 6, 24, 6, 24, 12, 16, 24]]]
        assert values["boxes"].tolist() == [[16, 15, 16, 18]]
        assert source.read(1).values["polygons"] == []

    @pytest.mark.parametrize("sides", [2, 3])
    def test_keypoints(self, tmp_path: Path, sides: int) -> None:
        """Keypoints follow the box, with visibility if kpt_shape says so; x and y become pixels."""
        points = [[0.25, 0.5, 2], [0, 0, 0]]
        text = " ".join(str(each) for point in points for each in point[:sides])
        source = open_source(self.write(tmp_path, {"a": f"0 0.5 0.5 1 1 {text}"}, {"kpt_shape": [2, sides]}))
        assert source.fields[2].shape == (2, sides)
        assert source.read(0).values["keypoints"].tolist() == [[[8, 12, 2][:sides], [0, 0, 0][:sides]]]

    def test_pairs_of_keypoints(self, tmp_path: Path) -> None:
        """flip_idx gives the pairs of the keypoints, or names that differ in left and right; a flip_idx
        that is no mirror is an error."""
        text, names = "0 0.5 0.5 1 1" + " 0.5 0.5" * 3, ["nose", "left eye", "right eye"]
        found: list[tuple[dict[str, Any], Any, Any]] = [
            ({"flip_idx": [0, 2, 1]}, (), ((1, 2),)),
            ({"flip_idx": [2, 1, 0], "kpt_names": {0: names, 1: names}}, tuple(names), ((0, 2),)),
            ({"flip_idx": [0, 1, 2], "kpt_names": {0: names}}, tuple(names), ()),
            ({"kpt_names": {0: names}}, tuple(names), ((1, 2),)),
            ({"kpt_names": {0: names, 1: names[::-1]}, "flip_idx": []}, (), ()),
        ]
        for number, (config, points, pairs) in enumerate(found):
            field = open_source(
                self.write(tmp_path / str(number), {"a": text}, {"kpt_shape": [3, 2], **config})
            ).fields[2]
            assert (field.names, field.pairs) == (points, pairs)
        for wrong in ([0, 1], [1, 2, 0], [0, 1, 3], ["a"], 5):
            root = self.write(
                tmp_path / f"wrong {wrong}", {"a": text}, {"kpt_shape": [3, 2], "flip_idx": wrong}
            )
            with pytest.raises(
                PackError,
                match=(
                    r"data.yaml: its flip_idx .* does not name for each of the 3 keypoints the one that "
                    r"mirrors"
                ),
            ):
                open_source(root)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("5 0.5 0.5 0.5 0.5", "the class 5 is none of 2 classes"),
            ("0.5 0.5 0.5 0.5 0.5", "the class 0.5 is none"),
            ("inf 0.5 0.5 0.5 0.5", "the class inf is none"),
            ("0 0.5 0.5 0.5", "3 numbers after the class, where the dataset has 4"),
            ("0 0.5 0.5 0.5 nan", "outside 0 to 1"),
            ("0 16 12 8 12", "outside 0 to 1"),
            ("0 -0.1 0.5 0.5 0.5", "outside 0 to 1"),
            ("0 x 0.5 0.5 0.5", "could not convert"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, line: str, message: str) -> None:
        """A wrong line is its sample's error, with file and line; other samples are read."""
        source = open_source(self.write(tmp_path, {"a": "0 0.5 0.5 0.5 0.5", "b": f"\n{line}\n"}, {}))
        source.read(0)
        with pytest.raises(PackError, match=f"labels/train/b.txt, line 2: .*{message}"):
            source.read(1)

    def test_data_yaml(self, tmp_path: Path) -> None:
        """Splits, lists of files, `path`, Roboflow's folders and the file itself as source; the classes as
        a list or numbered."""
        root = self.write(
            tmp_path / "x", {"a": "0 0.5 0.5 0.5 0.5"}, {"val": ["list.txt"], "names": ["dog", "cat"]}
        )
        tree(root, {"list.txt": b"./images/train/a.jpg\n"})
        with pytest.raises(PackError, match=r"name one of its splits .*: train, val \(in data.yaml\)"):
            open_source(root)
        for split in ("train", "val"):
            source = open_source(root / "data.yaml", SourceOptions(layout=LayoutOptions(split=split)))
            assert (len(source), source.classes) == (1, ("dog", "cat"))
            assert source.read(0).values["boxes"].tolist() == [[16, 12, 16, 12]]
        tree(
            tmp_path / "r",
            {
                "train/images/a.jpg": JPEG,
                "train/labels/a.txt": b"0 0 0 0 0",
                "data.yaml": b"train: ../train/images\nnames: [a]\n",
            },
        )
        assert open_source(tmp_path / "r").read(0).values["boxes"].tolist() == [[0, 0, 0, 0]]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[]", "no data.yaml"),
            ("a: [", "no YAML"),
            ("train: gone", "it names gone, and there is no such folder"),
            ("names: [a]", "name no folder of images"),
            ("train: images\nnames: {0: a, 2: b}", "not numbered from 0 on"),
            ("train: images\nnames: 5", "no list of names"),
            ("train: images\nkpt_shape: [17]", "kpt_shape"),
            ("train: images\nnames: !!python/object/apply:os.system [x]", "no YAML"),
            ("train: images/train\n", "none of its 1 images has a label file"),
        ],
    )
    def test_wrong_yaml(self, tmp_path: Path, text: str, message: str) -> None:
        """A data.yaml that says something else is one error with its name."""
        self.write(tmp_path, {"a": None})
        (tmp_path / "data.yaml").write_text(text)
        with pytest.raises(PackError, match=message):
            open_source(tmp_path / "data.yaml")
