"""Steps that run in Python get whole samples of tv_tensors, and make of them what torchvision makes of
such samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_source import Numbered

import fastload
import fastload.transforms as T
from fastload import FastLoader, PackedDataset
from fastload.errors import TransformError
from fastload.packing import Item
from fastload.store import Field

tv = pytest.importorskip("torchvision.tv_tensors")
v2 = pytest.importorskip("torchvision.transforms.v2")

from fastload.dataset.points import MOVES, KeyPointsWithVisibility, Outline  # noqa: E402  (they need torchvision)

COUNT = 6
CANVAS = (24, 30)


class Objects(Numbered):
    """A source of samples with all that lies in an image."""

    title, count = "objects", COUNT
    fields = (
        Field("boxes", "boxes", format="xywh"),
        Field("labels", "array", "int64", (None,), of="boxes"),
        Field("masks", "instances", of="boxes"),
        Field("joints", "keypoints", shape=(4, 2), of="boxes"),
        Field("points", "keypoints", shape=(4, 3), of="boxes"),
        Field("lines", "polygons", of="boxes"),
        Field("seg", "mask"),
        Field("right", "image"),
        Field("note", "text"),
    )

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        boxes = rng.random((position, 4), np.float32) * 10 + 1
        values = {
            "boxes": boxes,
            "labels": rng.integers(0, 9, position),
            "masks": rng.integers(0, 2, (position, *CANVAS), dtype=np.uint8),
            "joints": rng.random((position, 4, 2), np.float32) * 20,
            "points": rng.random((position, 4, 3), np.float32) * 20,
            "lines": [[(rng.random((3, 2)) * 20).reshape(-1).tolist()]] * position,
            "seg": rng.integers(0, 255, CANVAS, dtype=np.uint8),
            "right": rng.integers(0, 256, (*CANVAS, 3), dtype=np.uint8),
            "note": str(position),
        }
        return Item(self.name(position), rng.integers(0, 256, (*CANVAS, 3), dtype=np.uint8), values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "d"
    fastload.pack(Objects(), out, workers=1)
    return out


def wrapped(plain: dict[str, Any]) -> dict[str, Any]:
    """A sample of torchvision's tv_tensors, by their documented constructors."""
    return {
        "image": tv.Image(plain["image"]),
        "boxes": tv.BoundingBoxes(plain["boxes"], format="XYWH", canvas_size=CANVAS),
        "labels": plain["labels"],
        "masks": tv.Mask(plain["masks"]),
        "joints": tv.KeyPoints(plain["joints"], canvas_size=CANVAS),
        "points": KeyPointsWithVisibility(plain["points"], canvas_size=CANVAS),
        "lines": [[Outline(part, canvas_size=CANVAS) for part in parts] for parts in plain["lines"]],
        "seg": tv.Mask(plain["seg"]),
        "right": tv.Image(plain["right"]),
        "note": plain["note"],
    }


def same(a: Any, b: Any) -> bool:
    """Whether two samples have the same types, metadata and values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b) and vars(a) == vars(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


STEPS = {
    "flips": lambda: [
        v2.RandomChannelPermutation(),
        v2.RandomHorizontalFlip(0.5),
        v2.RandomVerticalFlip(0.5),
    ],
    "distort and resize": lambda: [
        v2.RandomPhotometricDistort(),
        v2.RandomResize(10, 20),
        v2.ConvertBoundingBoxFormat("XYXY"),
    ],
    "affine": lambda: [v2.RandomAffine(20, (0.1, 0.1), (0.5, 1.5)), v2.ClampBoundingBoxes()],
    "crop": lambda: [v2.RandomChannelPermutation(), v2.RandomCrop(14), v2.ClampKeyPoints()],
    "labels_getter": lambda: [
        v2.RandomChannelPermutation(),
        v2.SanitizeBoundingBoxes(min_size=6, labels_getter=lambda s: s["labels"]),
    ],
    "to floats": lambda: [
        v2.ElasticTransform(),
        v2.ToDtype({tv.Image: torch.float32, "others": None}, scale=True),
        v2.ToPureTensor(),
    ],
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("compose", [False, True])
def test_as_torchvision(folder: Path, name: str, compose: bool) -> None:
    """Samples equal those that torchvision's steps make of the stored fields, wrapped by hand, at the same
    draws."""
    steps, plain = STEPS[name](), PackedDataset(folder)
    dataset = PackedDataset(folder, v2.Compose(steps) if compose else steps)
    for index in range(COUNT):
        torch.manual_seed(index)
        wanted = v2.Compose(steps)(wrapped(plain[index]))
        torch.manual_seed(index)
        assert same(dataset[index], wanted), index


def test_boxes_say_the_format_they_were_given(folder: Path) -> None:
    """Behind a native ConvertBoundingBoxFormat, boxes are tv_tensors of the new format."""
    dataset = PackedDataset(
        folder,
        [v2.ConvertBoundingBoxFormat("CXCYWH"), v2.RandomChannelPermutation()],
        fields=["image", "boxes"],
    )
    plain = PackedDataset(folder, fields=["image", "boxes"])
    assert [type(step).__name__ for step in dataset.plan.python] == ["RandomChannelPermutation"]
    for index in range(1, COUNT):
        wanted = v2.ConvertBoundingBoxFormat("CXCYWH")(
            tv.BoundingBoxes(plain[index]["boxes"], format="XYWH", canvas_size=CANVAS)
        )
        found = dataset[index]["boxes"]
        assert found.format == wanted.format
        torch.testing.assert_close(found.as_subclass(torch.Tensor), wanted.as_subclass(torch.Tensor))


def test_outlines_move_as_natively(folder: Path) -> None:
    """Parts of polygons are KeyPoints for torchvision, and end where native steps put them, flips
    included."""
    steps = [v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0), v2.CenterCrop(20), v2.Resize((10, 40))]
    native, python = PackedDataset(folder, steps), PackedDataset(folder, [lambda sample: sample, *steps])
    assert (native.plan.native, python.plan.native) == (True, False)
    for index in range(COUNT):
        mine, theirs = native[index]["lines"], python[index]["lines"]
        assert len(mine) == len(theirs) == index
        for part, wanted in zip(
            [part for parts in mine for part in parts],
            [part for parts in theirs for part in parts],
            strict=True,
        ):
            assert isinstance(wanted, tv.KeyPoints)
            assert wanted.canvas_size == (10, 40)
            torch.testing.assert_close(part, torch.Tensor(wanted), rtol=0, atol=1e-4)


def kept(sample: Any) -> Any:
    """A step that is Python and changes nothing."""
    return sample


@pytest.mark.parametrize("before", [[], [kept], [T.CenterCrop(20)], [T.CenterCrop(20), kept]])
def test_to_dtype_without_to_image(folder: Path, before: list[Any]) -> None:
    """ToDtype converts an image that is no Pillow image, on its own and after a step in Python, natively
    and not, with the same values."""
    step = v2.ToDtype({tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}, scale=True)
    fields = ["image", "seg", "right", "boxes"]
    plain = PackedDataset(folder, [each for each in before if each is not kept], fields=fields)
    dataset = PackedDataset(folder, [*before, step], fields=fields)
    assert dataset.plan.native == (kept not in before)
    for index in range(COUNT):
        sample = dataset[index]
        wanted = step(
            {name: value if name == "boxes" else _wrap(name, value) for name, value in plain[index].items()}
        )
        for name in fields:
            assert same(sample[name].as_subclass(torch.Tensor), wanted[name].as_subclass(torch.Tensor)), name
    assert wanted["image"].dtype == torch.float32


def _wrap(name: str, value: torch.Tensor) -> torch.Tensor:
    return tv.Mask(value) if name == "seg" else tv.Image(value)  # type: ignore[no-any-return]


def test_to_dtype_of_images_alone(folder: Path) -> None:
    """Of images alone it lets pass what torchvision's list gets as a Pillow image; beside fastload's
    transforms the image is a tensor."""
    step, fields = v2.ToDtype(torch.float32, scale=True), ["image", "note"]
    plain = PackedDataset(folder, fields=fields)[1]["image"]
    assert same(PackedDataset(folder, [v2.RandomHorizontalFlip(0.0), step], fields=fields)[1]["image"], plain)
    with FastLoader(PackedDataset(folder, step, fields=fields), batch_size=2) as loader:
        assert "put v2.ToImage() before it to convert" in loader.explain(all=True)
    seen: list[Any] = []
    PackedDataset(folder, [lambda image: seen.append(image) or image, step, seen.append], fields=fields)[1]
    assert [type(each).__name__ for each in seen] == ["Image", "Image"]
    for before in ([T.RandomHorizontalFlip(0.0)], [T.RandomHorizontalFlip(0.0), kept]):
        assert same(PackedDataset(folder, [*before, step], fields=fields)[1]["image"], step(plain))


@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
@pytest.mark.parametrize("before", [[], [kept]])
def test_to_tensor(folder: Path, before: list[Any]) -> None:
    """v2.ToTensor makes floats of images, as of the Pillow images that it stands for, natively and after a
    step in Python."""
    sample, plain = PackedDataset(folder, [*before, v2.ToTensor()])[2], PackedDataset(folder)[2]
    for name in ("image", "right"):
        assert same(sample[name].as_subclass(torch.Tensor), plain[name] / 255), name
    assert same(sample["seg"].as_subclass(torch.Tensor), plain["seg"])


def test_first_version_of_torchvisions_transforms(folder: Path) -> None:
    """A step of torchvision.transforms that runs in Python takes images alone: refused where more goes
    with the image, and named."""
    v1 = pytest.importorskip("torchvision.transforms")
    dataset = PackedDataset(folder, [v1.RandomHorizontalFlip(0.0), v1.Grayscale(3)], fields=["image", "seg"])
    with pytest.raises(TransformError, match=r"Grayscale.* takes an image alone, and 'seg' .*v2\.Grayscale"):
        dataset[0]
    assert PackedDataset(folder, [v1.RandomHorizontalFlip(0.0), v1.Lambda(kept)], fields=["image", "seg"])[0][
        0
    ].shape == (3, *CANVAS)
    assert (
        PackedDataset(folder, [v1.ColorJitter(0.5), v1.ToTensor()], fields=["image", "note"])[0][
            "image"
        ].dtype
        == torch.float32
    )


def test_structures(folder: Path) -> None:
    """A step gets the structure of fields=, and what it returns is the sample."""
    seen: list[Any] = []

    def step(sample: Any) -> Any:
        seen.append(sample)
        image, target = sample
        return {"pixels": image, **target}

    dataset = PackedDataset(folder, step, fields=("image", {"b": "boxes", "p": "points"}))
    sample = dataset[3]
    assert (type(seen[0]), type(seen[0][0]), type(seen[0][1]["b"])) == (tuple, tv.Image, tv.BoundingBoxes)
    assert list(sample) == ["pixels", "b", "p"]
    fields = ("image", {"target": "boxes"}, {"p": "points"})
    flipped = PackedDataset(
        folder, [v2.RandomChannelPermutation(), v2.RandomHorizontalFlip(1.0)], fields=fields
    )[3]
    assert type(flipped) is tuple
    assert torch.equal(flipped[2]["p"][..., 2], PackedDataset(folder)[3]["points"][..., 2])
    assert torch.equal(flipped[2]["p"][..., 0], CANVAS[1] - 1 - PackedDataset(folder)[3]["points"][..., 0])


def test_pillow(folder: Path) -> None:
    """Lists that convert Pillow images get tv_tensors too, and leave them as torchvision does."""
    steps, plain = (
        [v2.Grayscale(3), v2.RandomHorizontalFlip(1.0), v2.PILToTensor(), v2.ToImage()],
        PackedDataset(folder),
    )
    assert same(PackedDataset(folder, steps)[2], v2.Compose(steps)(wrapped(plain[2])))


def test_images_alone(folder: Path) -> None:
    """Without such fields a step gets the image, as ever."""
    seen: list[Any] = []
    dataset = PackedDataset(folder, lambda image: seen.append(image) or image, fields=["image", "note"])
    assert dataset[1]["note"] == "1"
    assert type(seen[0]) is torch.Tensor


def test_visibility_is_the_steps(folder: Path) -> None:
    """A step gets keypoints with their visibility, and what it returns is the sample: rows that it drops,
    reorders or changes are not matched with stored ones."""
    plain = PackedDataset(folder)[3]["points"]
    seen: list[Any] = []
    steps = {
        "dropped": (lambda points: points[1:], plain[1:]),
        "reordered": (lambda points: points.flip(0), plain.flip(0)),
        "hidden": (
            lambda points: points * torch.tensor([1.0, 1.0, 0.0]),
            plain * torch.tensor([1.0, 1.0, 0.0]),
        ),
        "without": (lambda points: points[..., :2], plain[..., :2]),
    }
    for name, (change, wanted) in steps.items():

        def step(sample: Any, change: Any = change) -> Any:
            seen.append(sample["points"])
            return {**sample, "points": change(sample["points"])}

        found = PackedDataset(folder, step, fields=["image", "points"])[3]["points"]
        assert torch.equal(found.as_subclass(torch.Tensor), wanted), name
    assert isinstance(seen[0], tv.KeyPoints)
    assert (seen[0].shape, seen[0].canvas_size) == ((3, 4, 3), CANVAS)


numbers = st.floats(-40, 40, width=32)
rows = st.lists(st.tuples(numbers, numbers, st.sampled_from([0.0, 1.0, 2.0])), max_size=6)
FUNCTIONALS = {
    "flip": lambda x: v2.functional.horizontal_flip(x),
    "vertical flip": lambda x: v2.functional.vertical_flip(x),
    "resize": lambda x: v2.functional.resize(x, [7, 61]),
    "affine": lambda x: v2.functional.affine(x, 20.0, [3, 4], 1.5, [2.0, 1.0]),
    "rotate": lambda x: v2.functional.rotate(x, 33.0, expand=True),
    "pad": lambda x: v2.functional.pad(x, [1, 2, 3, 4]),
    "crop": lambda x: v2.functional.crop(x, 2, 3, 9, 8),
    "perspective": lambda x: v2.functional.perspective(
        x, [[0, 0], [29, 0], [29, 23], [0, 23]], [[2, 1], [27, 0], [29, 23], [1, 20]]
    ),
    "elastic": lambda x: v2.functional.elastic(
        x, torch.linspace(-0.2, 0.2, 24 * 30 * 2).reshape(1, 24, 30, 2)
    ),
    "centre crop": lambda x: v2.functional.center_crop(x, [11, 40]),
    "resized crop": lambda x: v2.functional.resized_crop(x, 1, 2, 12, 13, [30, 20]),
    "clamp": lambda x: v2.functional.clamp_keypoints(x),
    "copy": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", FUNCTIONALS)
@settings(max_examples=25)
@given(points=rows)
def test_keypoints_with_visibility_move_as_keypoints(
    name: str, points: list[tuple[float, float, float]]
) -> None:
    """Under each functional that knows KeyPoints labelled points end where torchvision's KeyPoints do, with
    its canvas; those of visibility 0 stay, unless they are clamped, and each keeps its visibility."""
    values = torch.tensor(points).reshape(-1, 1, 3)
    before = values.clone()
    found = FUNCTIONALS[name](KeyPointsWithVisibility(values, canvas_size=CANVAS))
    wanted = FUNCTIONALS[name](tv.KeyPoints(values[..., :2], canvas_size=CANVAS))
    assert (type(found), found.canvas_size) == (KeyPointsWithVisibility, wanted.canvas_size)
    plain, labelled = found.as_subclass(torch.Tensor), values[..., 2] > 0
    assert torch.equal(plain[..., 2], values[..., 2])
    torch.testing.assert_close(
        plain[..., :2][labelled], wanted.as_subclass(torch.Tensor)[labelled], rtol=0, atol=0
    )
    if name != "clamp":
        assert torch.equal(plain[~labelled], values[~labelled])
    assert torch.equal(values, before)


def test_classes_of_points_are_kept() -> None:
    """Copies, conversions and, with torchvision's set_return_type, parts of points are of their class; x
    and y alone are KeyPoints."""
    points, corners = (
        KeyPointsWithVisibility(torch.ones(4, 3), canvas_size=CANVAS),
        Outline(torch.ones(4, 2), canvas_size=CANVAS),
    )
    for each in (points, corners):
        assert type(each.to(torch.float64)) is type(each.detach()) is type(each)
        assert each.clone().canvas_size == CANVAS
    with tv.set_return_type("TVTensor"):
        assert type(points[1:]) is KeyPointsWithVisibility
        assert type(points[..., :2]) is tv.KeyPoints


def test_every_functional_of_keypoints_is_known() -> None:
    """Each of torchvision's functionals that takes KeyPoints takes those with a visibility: one that moved
    them in its own way would read three numbers as two."""
    names = {name for name in dir(v2.functional) if f"{name}_keypoints" in dir(v2.functional)}
    assert {"horizontal_flip", "affine", "elastic", "perspective", "resized_crop"} <= names
    assert names - {"get_size"} == set(MOVES)


SANITIZED = {
    "crop": lambda: [v2.CenterCrop(9), v2.SanitizeBoundingBoxes(2, 6)],
    "none": lambda: [v2.CenterCrop(9), v2.SanitizeBoundingBoxes(labels_getter=None)],
    "twice": lambda: [
        v2.SanitizeBoundingBoxes(5),
        v2.CenterCrop(12),
        v2.RandomHorizontalFlip(1.0),
        v2.SanitizeBoundingBoxes(3),
    ],
    "all": lambda: [v2.SanitizeBoundingBoxes(100)],
}
FORMS: dict[str, Any] = {
    "dict": None,
    "pair": (
        "image",
        {"b": "boxes", "l": "labels", "k": "points", "j": "joints", "o": "lines", "m": "masks"},
    ),
    "no labels": ["image", "boxes", "points"],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SANITIZED)
def test_sanitize_drops_what_it_drops_natively(folder: Path, name: str, form: str) -> None:
    """A sample has the same rows of every field that is `of` its boxes, natively and after a step in Python:
    labels, areas, keypoints and their visibility, polygons, instances."""
    native = PackedDataset(folder, SANITIZED[name](), fields=FORMS[form])
    python = PackedDataset(folder, [kept, *SANITIZED[name]()], fields=FORMS[form])
    assert (native.plan.native, python.plan.native) == (True, False)
    dropped = 0
    for index in range(COUNT):
        mine, theirs = native[index], python[index]
        assert plainly(theirs, mine), index
        boxes = mine["boxes"] if isinstance(mine, dict) else mine[1]["b"]
        dropped += index - len(boxes)
    assert dropped


def plainly(a: Any, b: Any) -> bool:
    """Whether two samples have the same values to rounding, whatever the classes of their tensors."""
    if isinstance(a, torch.Tensor):
        a, b = a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)
        return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, atol=1e-4)
    if isinstance(a, dict):
        return list(a) == list(b) and all(plainly(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(plainly, a, b))
    return bool(a == b)


class TwoSorts(Numbered):
    """Two fields of two boxes each, a mask of two rows, and labels that are of no boxes."""

    title, count = "two sorts", 1
    fields = (
        Field("people", "boxes", format="xyxy"),
        Field("cars", "boxes", format="xyxy"),
        Field("plates", "array", "int64", (None,), of="cars"),
        Field("labels", "array", "int64", (None,)),
        Field("seg", "mask"),
    )

    def read(self, position: int) -> Item:
        good, bad = [0.0, 0, 2, 2], [0.0, 0, 0, 0]
        values = {
            "people": np.array([good, bad], np.float32),
            "cars": np.array([bad, good], np.float32),
            "plates": np.array([5, 6]),
            "labels": np.array([7, 8]),
            "seg": np.arange(6, dtype=np.uint8).reshape(2, 3),
        }
        return Item("0", np.zeros((2, 3, 3), np.uint8), values)


def test_sanitize_of_several_boxes(tmp_path: Path) -> None:
    """Each field of boxes drops boxes of its own, and a mask of as many rows of pixels as there are boxes
    stays a mask. Labels that are of no boxes go with the first ones, as in torchvision."""
    fastload.pack(TwoSorts(), tmp_path / "d", workers=1)
    sample = PackedDataset(tmp_path / "d", [kept, v2.SanitizeBoundingBoxes()])[0]
    assert sample["people"].tolist() == [[0, 0, 2, 2]] == sample["cars"].tolist()
    assert (sample["plates"].tolist(), sample["labels"].tolist()) == ([6], [7])
    assert sample["seg"].shape == (2, 3)


def test_sanitize_of_another_structure(folder: Path) -> None:
    """Where a step has made another structure of the sample, the step is torchvision's own; rows that a
    step has taken away stay away."""
    renamed = [
        lambda sample: {"box": sample["boxes"], "labels": sample["labels"]},
        v2.SanitizeBoundingBoxes(3),
    ]
    plain = PackedDataset(folder)
    found, kept_rows = (
        PackedDataset(folder, renamed)[5],
        PackedDataset(folder, v2.SanitizeBoundingBoxes(3))[5]["labels"],
    )
    assert torch.equal(found["labels"], kept_rows)
    assert 0 < len(kept_rows) < 5
    fewer = [lambda sample: {**sample, "joints": sample["joints"][:2]}, v2.SanitizeBoundingBoxes(3)]
    assert torch.equal(
        PackedDataset(folder, fewer)[5]["joints"].as_subclass(torch.Tensor), plain[5]["joints"][:2]
    )


def test_samples_of_steps_are_packed_again(folder: Path, tmp_path: Path) -> None:
    """Keypoints with a visibility that a Python step has left are keypoints for `pack`, whatever their
    name, and for collate=."""
    renamed = PackedDataset(
        folder, lambda sample: {"image": sample["image"], "b": sample["boxes"], "p": sample["points"]}
    )
    fastload.pack(renamed, tmp_path / "d")
    schema = PackedDataset(tmp_path / "d").opened.reader.schema
    assert schema["p"] == Field("p", "keypoints", shape=(4, 3), of="b")
    for index in range(COUNT):
        assert torch.equal(PackedDataset(tmp_path / "d")[index]["p"], PackedDataset(folder)[index]["points"])


@pytest.mark.parametrize("collate", ["list", "padded", "flat"])
def test_loader(folder: Path, collate: Any) -> None:
    """Loaders give the same samples in workers and in the calling process; padded and flat batches are
    plain tensors."""
    steps = [v2.RandomPhotometricDistort(), v2.RandomHorizontalFlip(0.5)]
    dataset = PackedDataset(folder, steps, fields=("image", ["boxes", "labels", "masks", "points"]))
    found = []
    for workers in (0, 2):
        with FastLoader(
            dataset, batch_size=3, num_workers=workers, seed=1, seed_by="sample", collate=collate
        ) as loader:
            found.append(list(loader))
    assert same(found[0], found[1])
    images, target = found[0][1]
    if collate == "list":
        assert type(images[0]) is tv.Image
        assert [each["boxes"].canvas_size for each in target] == [CANVAS] * 3
    else:
        assert type(images) is type(target["boxes"].values) is type(target["masks"].values) is torch.Tensor
        assert images.shape == (3, 3, *CANVAS)


@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
@pytest.mark.parametrize("name", [*SANITIZED, "to tensor"])
@pytest.mark.parametrize("collate", ["list", "padded"])
def test_steps_in_workers(folder: Path, name: str, collate: Any) -> None:
    """A worker's SanitizeBoundingBoxes drops rows of every field that is `of` the boxes, and its ToTensor
    makes floats, as elsewhere."""
    steps = [kept, *([v2.ToTensor()] if name == "to tensor" else SANITIZED[name]())]
    found = []
    for workers in (0, 1):
        dataset = PackedDataset(
            folder,
            steps,
            fields=("image", {"b": "boxes", "l": "labels", "k": "points", "j": "joints", "m": "masks"}),
        )
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        with FastLoader(dataset, batch_size=3, num_workers=workers, collate=collate, **options) as loader:
            found.append(list(loader))
    assert same(found[0], found[1])


def test_explain(folder: Path) -> None:
    """explain() measures the steps over whole samples."""
    dataset = PackedDataset(folder, [v2.RandomChannelPermutation(), v2.SanitizeBoundingBoxes()])
    with FastLoader(dataset, batch_size=2, collate="list") as loader:
        told = loader.explain(measure=True, all=True)
    assert "SanitizeBoundingBoxes" in told
    assert "to tv_tensors" in told
    assert 'collate="list"' in told
