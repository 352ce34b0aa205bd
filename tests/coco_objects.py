"""A small dataset in COCO's form, of boxes and the classes of their objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pictures import photo

CATEGORIES = [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}, {"id": 2, "name": "dog"}]


def write_coco(root: Path, *, names: tuple[str, ...] = (), images: int = 3, **left_out: Any) -> Path:
    """A dataset in COCO's form, whose image ids could be labels: image 1 has no object. `names`: other
    names of the categories."""
    (root / "train").mkdir(parents=True)
    categories = [entry | ({"name": names[at]} if names else {}) for at, entry in enumerate(CATEGORIES)]
    entries, annotations = [], []
    for number in range(images):
        photo(number, 96, 128).save(root / f"train/{number}.jpg")
        entries.append({"id": number, "file_name": f"{number}.jpg", "height": 96, "width": 128})
        for row in range(0 if number == 1 else number + 1):
            box = [10 + 30 * row, 20, 24, 40]
            found = {
                "id": len(annotations),
                "image_id": number,
                "category_id": 1 + row % 3,
                "bbox": box,
                "iscrowd": 0,
            }
            annotations.append({key: value for key, value in found.items() if key not in left_out})
    content = {"images": entries, "annotations": annotations, "categories": categories}
    (root / "annotations").mkdir()
    (root / "annotations/instances_train.json").write_text(
        json.dumps({k: v for k, v in content.items() if k not in left_out})
    )
    return root
