"""Small datasets for detection and segmentation in the layouts that `fastload pack` recognises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from pictures import photo
from PIL import Image

SIZE = 48, 64
"""Height and width of every image."""


def write_layouts(root: Path, count: int = 4) -> None:
    """Writes coco, panoptic, VOC2012, yolo, pairs, ade and cityscapes below a folder, with `count` images
    in each split."""
    for write in (_coco, _panoptic, _voc, _yolo, _pairs, _ade, _cityscapes):
        write(root, count)


def labels(seed: int, top: int = 4) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """A mask of some blocks of labels below `top`, and a border of 255."""
    found = np.kron(np.random.default_rng(seed).integers(0, top, (6, 8), np.uint8), np.ones((8, 8), np.uint8))
    found[0] = 255
    return found


def _image(path: Path, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(seed, *SIZE).save(path, "PNG" if path.suffix == ".png" else "JPEG")
    return path


def _mask(
    path: Path, array: np.ndarray[tuple[int, int], np.dtype[np.uint8 | np.uint16]], palette: bool = False
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    if palette:
        image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
    image.save(path, "PNG")


def _box(seed: int) -> list[int]:
    x, y, width, height = np.random.default_rng(seed).integers((0, 0, 4, 4), (20, 20, 40, 25)).tolist()
    return [x, y, width, height]


def _coco(root: Path, count: int) -> None:
    categories = [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}]
    images, annotations = [], []
    for n in range(count):
        name = _image(root / f"coco/train2017/{n:012d}.jpg", n).name
        images.append({"id": n, "file_name": name, "height": SIZE[0], "width": SIZE[1]})
        for k in range(n):  # the first has none
            x, y, w, h = _box(10 * n + k)
            annotations.append(
                {
                    "id": len(annotations) + 1, "image_id": n, "category_id": (1, 3)[k % 2], "bbox": [x, y, w,
                    h], "area": w * h,
                    "iscrowd": 0, "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                }
            )  # fmt: skip
    path = root / "coco/annotations/instances_train2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    captions = [{"id": n, "image_id": n, "caption": f"image {n}"} for n in range(count)]
    (root / "captions_train2017.json").write_text(json.dumps({"images": images, "annotations": captions}))


def _panoptic(root: Path, count: int) -> None:
    images, annotations = [], []
    for n in range(count):
        name = _image(root / f"panoptic/val2017/{n:012d}.jpg", n).name
        images.append({"id": n, "file_name": name, "height": SIZE[0], "width": SIZE[1]})
        x, y, w, h = _box(n)
        colours = np.zeros((*SIZE, 3), np.uint8)
        colours[y : y + h, x : x + w] = (n + 1, 1, 0)
        path = root / f"panoptic/annotations/panoptic_val2017/{n:012d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(colours).save(path)
        segment = {"id": n + 1 + 256, "category_id": 8, "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0}
        annotations.append({"image_id": n, "file_name": path.name, "segments_info": [segment]})
    made = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 8, "name": "truck", "isthing": 1}],
    }
    (root / "panoptic/annotations/panoptic_val2017.json").write_text(json.dumps(made))


def _voc(root: Path, count: int) -> None:
    top = root / "VOC2012"
    for n in range(2 * count):
        stem = _image(top / f"JPEGImages/2012_{n:06d}.jpg", n).stem
        x, y, w, h = _box(n)
        corners = "".join(
            f"<{tag}>{at}</{tag}>"
            for tag, at in zip(("xmin", "ymin", "xmax", "ymax"), (x + 1, y + 1, x + w, y + h), strict=True)
        )
        dog = f"<name>dog</name><difficult>0</difficult><bndbox>{corners}</bndbox>"
        text = f"<annotation><object>{dog}</object></annotation>"
        (top / "Annotations").mkdir(exist_ok=True)
        (top / f"Annotations/{stem}.xml").write_text(text)
        _mask(top / f"SegmentationClass/{stem}.png", labels(n, 21), palette=True)
        _mask(top / f"SegmentationObject/{stem}.png", labels(n, 3), palette=True)
        for kind in ("Main", "Segmentation"):
            path = top / f"ImageSets/{kind}/{('train', 'val')[n % 2]}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(f"{stem}\n")


def _yolo(root: Path, count: int) -> None:
    for split in ("train", "val"):
        for n in range(count):
            stem = _image(root / f"yolo/images/{split}/{n}.jpg", n).stem
            x, y, w, h = _box(n)
            path = root / f"yolo/labels/{split}/{stem}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f"{n % 2} {(x + w / 2) / SIZE[1]} {(y + h / 2) / SIZE[0]} {w / SIZE[1]} {h / SIZE[0]}\n"
            )
    (root / "yolo/data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog]\n")


def _pairs(root: Path, count: int) -> None:
    for n in range(count):
        _mask(root / f"pairs/masks/{_image(root / f'pairs/images/{n}.jpg', n).stem}.png", labels(n))


def _ade(root: Path, count: int) -> None:
    for split in ("training", "validation"):
        for n in range(count):
            stem = _image(root / f"ade/images/{split}/ADE_{n:08d}.jpg", n).stem
            _mask(root / f"ade/annotations/{split}/{stem}.png", labels(n, 151))


def _cityscapes(root: Path, count: int) -> None:
    for split in ("train", "val"):
        for n in range(count):
            base = f"{split}/ulm/ulm_{n:06d}_000019"
            _image(root / f"cityscapes/leftImg8bit/{base}_leftImg8bit.png", n)
            _mask(root / f"cityscapes/gtFine/{base}_gtFine_labelIds.png", labels(n, 34))
            _mask(
                root / f"cityscapes/gtFine/{base}_gtFine_instanceIds.png",
                labels(n, 34).astype(np.uint16) * 100,
            )
