"""fields= gives a sample its structure: tuples of fields and of dicts of them, with other keys; batches
have it on every engine."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_source import Numbered
from torch.utils.data import ConcatDataset, default_collate

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.errors import ArgumentError
from fastload.packing import Item
from fastload.store import Field

COUNT = 5
ENGINES = [("python", 0), ("python", 2), ("auto", 0), ("auto", 2)]


class Objects(Numbered):
    """A source of images of one size, with two columns, a text and as many boxes everywhere."""

    title, count = "objects", COUNT
    fields = (
        Field("label", "int"),
        Field("weight", "float"),
        Field("note", "text"),
        Field("boxes", "boxes", format="xyxy"),
        Field("mask", "mask"),
    )

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        corner = rng.integers(0, 8, (2, 2))
        values = {
            "label": position,
            "weight": position / 2,
            "note": str(position),
            "boxes": np.concatenate((corner, corner + 5), axis=1),
            "mask": rng.integers(0, 9, (16, 16), dtype=np.uint8),
        }
        return Item(self.name(position), rng.integers(0, 256, (16, 16, 3), dtype=np.uint8), values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("form") / "d"
    fastload.pack(Objects(), out, workers=1)
    return out


def same(a: Any, b: Any) -> bool:
    """Whether two samples or batches have the same types and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


FORMS: list[tuple[Any, Any]] = [
    (("image", "label"), lambda v: (v["image"], v["label"])),
    (["label", "image"], lambda v: {"label": v["label"], "image": v["image"]}),
    (("image", ["label", "note"]), lambda v: (v["image"], {"label": v["label"], "note": v["note"]})),
    (("image", {"y": "label"}), lambda v: (v["image"], {"y": v["label"]})),
    (({"x": "image"}, "weight", ["note"]), lambda v: ({"x": v["image"]}, v["weight"], {"note": v["note"]})),
    ({"x": "image", "y": "label"}, lambda v: {"x": v["image"], "y": v["label"]}),
    ((["image"],), lambda v: ({"image": v["image"]},)),
    (("image", "note"), lambda v: (v["image"], v["note"])),
    (["image", "weight"], lambda v: {"image": v["image"], "weight": v["weight"]}),
    (
        ("image", ("note", {"x": ["weight"], "y": ("label", "mask")})),
        lambda v: (v["image"], (v["note"], {"x": {"weight": v["weight"]}, "y": (v["label"], v["mask"])})),
    ),
    (
        ("image", ["boxes", "mask", "label"]),
        lambda v: (v["image"], {"boxes": v["boxes"], "mask": v["mask"], "label": v["label"]}),
    ),
]


@pytest.mark.parametrize(("fields", "form"), FORMS, ids=[str(fields) for fields, _ in FORMS])
def test_samples_and_batches(folder: Path, fields: Any, form: Any) -> None:
    """A sample has the structure; a batch is default_collate's of such samples, on every engine; repr and
    pickles keep it."""
    dataset, whole = PackedDataset(folder, fields=fields), PackedDataset(folder)
    samples = [form(whole[index]) for index in range(COUNT)]
    assert all(same(dataset[index], sample) for index, sample in enumerate(samples))
    assert all(
        same(pickle.loads(pickle.dumps(dataset))[index], sample) for index, sample in enumerate(samples)
    )
    flat = isinstance(fields, list) or fields == ("image", "label")
    assert f"fields={list(fields) if flat else fields!r})" in repr(dataset)
    assert sorted(dataset.fields) == sorted(set(dataset.fields))
    wanted = [default_collate(samples[:3]), default_collate(samples[3:])]
    for engine, workers in ENGINES:
        with FastLoader(dataset, batch_size=3, num_workers=workers, engine=engine) as loader:  # type: ignore[arg-type]
            assert all(map(same, loader, wanted))
        with FastLoader(dataset, batch_size=3, num_workers=workers, engine=engine, collate="list") as loader:  # type: ignore[arg-type]
            [first, _] = loader
            assert same(
                first,
                [list(part) for part in zip(*samples[:3], strict=True)]
                if isinstance(samples[0], tuple)
                else samples[:3],
            )


def test_structures_of_one_batch(folder: Path) -> None:
    """Datasets of other structures make no batch together: their samples differ, as torch has it."""
    pair, nested = (
        PackedDataset(folder, fields=["image", "label"]),
        PackedDataset(folder, fields=("image", {"y": "label"})),
    )
    with FastLoader(ConcatDataset([pair, pair]), batch_size=2 * COUNT, num_workers=1) as loader:
        assert loader.stats()["engine"] == "threads"
    with FastLoader(
        ConcatDataset([pair, nested]), batch_size=2 * COUNT, num_workers=1, collate_fn=list
    ) as loader:
        assert loader.stats()["engine"] == "processes"
        assert [type(label) for _, label in next(iter(loader))] == [int] * COUNT + [dict] * COUNT


class Halved:
    """A step on batches that takes images, and the objects that lie in them."""

    moves = True

    def __call__(
        self,
        images: Any,
        *,
        seed: int,
        epoch: int,
        indices: Any,
        masks: Any,
        boxes: Any,
        keypoints: Any,
        box_format: Any,
    ) -> Any:
        return (
            images // 2,
            {k: v + 1 for k, v in masks.items()},
            {k: v + 2 for k, v in boxes.items()},
            keypoints,
        )

    def __repr__(self) -> str:
        return "Halved()"


@pytest.mark.parametrize(
    "fields", [("image", ["boxes", "mask", "label"]), ({"x": "image", "z": "mask"}, {"b": "boxes"})]
)
def test_batch_transform(folder: Path, fields: Any) -> None:
    """A step on batches finds the images, and what lies in them, where the structure has them."""

    def taken(images: Any, *, seed: int, epoch: int, indices: Any, masks: Any = None, boxes: Any = None,
    keypoints: Any = None,
              box_format: Any = None) -> Any:  # fmt: skip
        return Halved()(
            images,
            seed=seed,
            epoch=epoch,
            indices=indices,
            masks=masks,
            boxes=boxes,
            keypoints=keypoints,
            box_format=box_format,
        )

    dataset = PackedDataset(folder, fields=fields)
    with (
        FastLoader(dataset, batch_size=2, seed=1) as loader,
        FastLoader(dataset, batch_size=2, seed=1, batch_transform=taken) as other,
    ):
        for plain, moved in zip(loader, other, strict=True):
            if isinstance(plain[0], dict):
                assert torch.equal(moved[0]["x"], plain[0]["x"] // 2)
                assert torch.equal(moved[0]["z"], plain[0]["z"] + 1)
                assert torch.equal(moved[1]["b"], plain[1]["b"] + 2)
            else:
                assert torch.equal(moved[0], plain[0] // 2)
                assert torch.equal(moved[1]["mask"], plain[1]["mask"] + 1)
                assert torch.equal(moved[1]["boxes"], plain[1]["boxes"] + 2)
                assert torch.equal(moved[1]["label"], plain[1]["label"])


def test_labels_and_dtype(folder: Path) -> None:
    """Labels go to a step that takes them, dtype= converts the images, wherever they are; without labels
    that is an error."""

    def mixed(images: Any, labels: Any) -> Any:
        return images, labels + 10

    for engine in ("auto", "python"):
        dataset = PackedDataset(folder, T.CenterCrop(8), fields=({"y": "label"}, {"x": "image"}))
        with FastLoader(
            dataset, batch_size=5, dtype=torch.float16, batch_transform=mixed, engine=engine
        ) as loader:  # type: ignore[arg-type]
            [(label, image)] = loader
        assert label["y"].tolist() == [10, 11, 12, 13, 14]
        assert (image["x"].dtype, image["x"].shape) == (torch.float16, (5, 3, 8, 8))
    with pytest.raises(ArgumentError, match="this batch has none"):
        list(FastLoader(PackedDataset(folder, fields=("image", ["note"])), batch_transform=mixed))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("image", r"write fields=\('image',\)"),
        (("image", "nothing"), "no field 'nothing'; it has image, label"),
        (("image", ["nothing"]), "no field 'nothing'"),
        (("image", ["label", "label"]), "'label' twice"),
        (("image", ("label", ["note", 3])), "no name, list of names, or mapping"),
        (("image", ("label", ("note", {"y": "label"}))), "'label' twice"),
        (("image", {"y": {1.5: "label"}}), "no name, list of names, or mapping"),
        (("image", ()), "no name, list of names, or mapping"),
        (("image", []), "no name, list of names, or mapping"),
        (("image", 3), "has 3, which is no name"),
    ],
)
def test_refused(folder: Path, fields: Any, words: str) -> None:
    """What is no structure of names, or names what is not there, is an error when the dataset is opened."""
    with pytest.raises(ArgumentError, match=words):
        PackedDataset(folder, fields=fields)
