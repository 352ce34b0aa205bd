"""keypoint_pairs= of the flips: keypoints that mirror each other exchange their places, on every engine
and where whole batches flip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_source import Numbered

import fastload
from fastload import FastLoader, PackedDataset
from fastload import augment as A
from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, PackError, TransformError
from fastload.packing import Item
from fastload.sources.annotated import mirrored_pairs
from fastload.store import Field
from fastload.transforms.compiler import compile_plan

COUNT, HEIGHT, WIDTH = 12, 20, 30
NAMES = ("nose", "left_eye", "right_eye", "left_ear", "right_ear")
PAIRS = ((1, 2), (3, 4))
KNOWN: dict[str, Any] = {"names": NAMES, "pairs": PAIRS}


class Poses(Numbered):
    """Samples of 0 to 3 objects with keypoints, also of points of visibility 0."""

    title, count = "poses", COUNT

    def __init__(self, known: dict[str, Any] = KNOWN) -> None:
        self.fields = (
            Field("boxes", "boxes", format="xyxy"),
            Field("points", "keypoints", shape=(5, 3), of="boxes", **known),
            Field("hands", "keypoints", shape=(2, 2), of="boxes", pairs=((0, 1),)),
            Field("unknown", "keypoints", shape=(2, 2)),
        )

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        number = position % 4
        points = rng.uniform(0, HEIGHT, (number, 5, 3)).astype(np.float32)
        points[..., 2] = rng.integers(0, 3, (number, 5))
        values = {
            "boxes": np.array([[0, 0, 5 * (row + 1), 9] for row in range(number)], np.float32).reshape(-1, 4),
            "points": points,
            "hands": rng.uniform(0, HEIGHT, (number, 2, 2)).astype(np.float32),
            "unknown": rng.uniform(0, HEIGHT, (1, 2, 2)).astype(np.float32),
        }
        return Item(str(position), rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8), values)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("poses") / "d"
    fastload.pack(Poses(), out, workers=1)
    return out


FIELDS = ["image", "boxes", "points", "hands"]


def flips(pairs: Any) -> list[T.Transform]:
    """A list in which flips, one of which exchanges nothing, meet what else moves and drops."""
    return [
        T.RandomHorizontalFlip(0.7, pairs),
        T.RandomCrop(15),
        T.RandomVerticalFlip(0.4, keypoint_pairs=pairs),
        T.Resize((12, 18)),
        T.RandomHorizontalFlip(0.5),
        T.SanitizeBoundingBoxes(4),
    ]


def exchanged(points: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The points, each pair in each other's places."""
    order = list(range(points.shape[-2]))
    for a, b in pairs:
        order[a], order[b] = b, a
    return points[..., order, :]


@settings(max_examples=60)
@given(seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**32 - 1), index=st.integers(0, COUNT - 1))
def test_pairs_exchange_in_every_mirror(folder: Path, seed: int, epoch: int, index: int) -> None:
    """Points end where they do without pairs, and each pair is exchanged if an odd number of the flips that
    exchange were done; a point takes its visibility along. "auto" are the pairs of each field."""
    auto, plain = (PackedDataset(folder, flips(pairs), fields=FIELDS, seed=seed) for pairs in ("auto", None))
    auto.set_epoch(epoch)
    plain.set_epoch(epoch)
    mine, theirs = auto[index], plain[index]
    boxes = PackedDataset(folder)[index]["boxes"].numpy()
    odd = core.Geometry(auto.plan.program, (WIDTH, HEIGHT), seed, epoch, index, boxes).exchanged
    assert torch.equal(mine["points"], exchanged(theirs["points"], PAIRS if odd else ()))
    assert torch.equal(mine["hands"], exchanged(theirs["hands"], [(0, 1)] if odd else ()))
    assert torch.equal(mine["image"], theirs["image"])
    assert torch.equal(mine["boxes"], theirs["boxes"])


def test_given_pairs(folder: Path) -> None:
    """Pairs that are given are those of all fields, in any order, of any sequence; a mirror done twice
    leaves points as they were."""
    stored = PackedDataset(folder)[3]["points"]
    swapped = exchanged(stored, PAIRS)
    mirrored = swapped * torch.tensor([-1.0, 1, 1]) + torch.tensor([WIDTH - 1.0, 0, 0])
    for pairs in ([(1, 2), (3, 4)], ((4, 3), (2, 1)), np.array(PAIRS), torch.tensor(PAIRS)):
        flip = T.RandomHorizontalFlip(1.0, keypoint_pairs=pairs)  # type: ignore[arg-type]
        assert flip == T.RandomHorizontalFlip(1.0, keypoint_pairs=PAIRS)
        assert repr(flip) == "RandomHorizontalFlip(p=1.0, keypoint_pairs=((1, 2), (3, 4)))"
        once = PackedDataset(folder, flip, fields=["image", "points"])[3]["points"]
        torch.testing.assert_close(once, torch.where(swapped[..., 2:] > 0, mirrored, swapped))
        torch.testing.assert_close(
            PackedDataset(folder, [flip, flip], fields=["image", "points"])[3]["points"], stored
        )
    assert repr(T.RandomHorizontalFlip()) == "RandomHorizontalFlip(p=0.5)"


def test_without_pairs_points_keep_their_numbers(folder: Path) -> None:
    """By default a flip exchanges nothing, as torchvision's does, also where the field knows pairs;
    explain() says so."""
    stored = PackedDataset(folder)[3]["hands"]
    dataset = PackedDataset(folder, T.RandomHorizontalFlip(1.0), fields=["image", "hands"])
    torch.testing.assert_close(dataset[3]["hands"][..., 0], WIDTH - 1 - stored[..., 0])
    with FastLoader(dataset, batch_size=2, collate="list") as loader:
        assert "'hands' keep their numbers" in loader.explain(all=True)
    for transform, fields in (
        (T.RandomHorizontalFlip(1.0, "auto"), ["image", "hands"]),
        (T.RandomHorizontalFlip(), ["image", "unknown"]),
    ):
        with FastLoader(
            PackedDataset(folder, transform, fields=fields), batch_size=2, collate="list"
        ) as loader:
            assert "keep their numbers" not in loader.explain(all=True)


def tensors(batch: Any) -> list[torch.Tensor]:
    """All tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    return [each for part in (batch.values() if isinstance(batch, dict) else batch) for each in tensors(part)]


@pytest.mark.parametrize("form", ["list", "padded", "flat"])
def test_every_engine(folder: Path, form: Any) -> None:
    """Native threads, of any number, give the bytes that dataset[i] gives."""
    options: dict[str, Any] = {"batch_size": 5, "seed": 3, "shuffle": True, "collate": form}
    found = []
    for engine, workers in (("python", 0), ("native", 0), ("native", 1), ("native", 3)):
        dataset = PackedDataset(folder, flips("auto"), fields=FIELDS)
        with FastLoader(dataset, engine=engine, num_workers=workers, **options) as loader:
            found.append([tensors(batch) for batch in loader])
    for other in found[1:]:
        assert all(
            torch.equal(a, b) for x, y in zip(found[0], other, strict=True) for a, b in zip(x, y, strict=True)
        )


REFUSED: list[tuple[Any, str]] = [
    ("left", "keypoint_pairs='left'; give \"auto\""),
    (3, "keypoint_pairs=3; give"),
    ([(0.5, 2)], r"keypoint_pairs=\[\(0.5, 2\)\]; give"),
    ([(1, 2, 3)], r"keypoint_pairs: a pair is two numbers of points, not \(1, 2, 3\)"),
    ([(1, 1)], r"the pair \(1, 1\) has one that is used"),
    ([(1, 2), (2, 3)], r"the pair \(2, 3\) has one that is used"),
    ([(-1, 2)], r"points are numbered from 0 .*\(-1, 2\)"),
]


@pytest.mark.parametrize(("pairs", "message"), REFUSED)
@pytest.mark.parametrize("flip", [T.RandomHorizontalFlip, T.RandomVerticalFlip])
def test_what_are_no_pairs(flip: Any, pairs: Any, message: str) -> None:
    """The flip says so when it is made."""
    with pytest.raises(TransformError, match=f"{flip.__name__}: .*{message}|{flip.__name__}: {message}"):
        flip(keypoint_pairs=pairs)


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    """Pairs that a field does not have, that are not known, or that differ between flips are an error that
    says what to do."""
    with pytest.raises(TransformError, match="exchanges other keypoints than a flip before it"):
        PackedDataset(folder, [T.RandomHorizontalFlip(0.5, "auto"), T.RandomVerticalFlip(0.5, PAIRS)])
    with pytest.raises(TransformError, match=r"does not fit 'hands' .*numbered from 0 to 1"):
        PackedDataset(folder, T.RandomHorizontalFlip(0.5, PAIRS), fields=["image", "hands"])[0]
    auto = T.RandomHorizontalFlip(0.5, "auto")
    with pytest.raises(
        TransformError, match=r"which of the 2 keypoints of 'unknown' mirror each other .*give the pairs"
    ):
        FastLoader(PackedDataset(folder, auto), batch_size=2, collate="list")
    assert PackedDataset(folder, auto, fields=["image", "boxes"])[3]["boxes"].shape == (3, 4)


KEY: dict[str, Any] = {"seed": 1, "epoch": 0, "indices": range(16)}


@pytest.mark.parametrize("shape", ["list", "flat", "tensor"])
def test_whole_batches(shape: str) -> None:
    """AugmentBatch exchanges the points of the samples that it flips, and of no other, in every form."""
    points, images = torch.rand(16, 3, 5, 3) * 20, torch.zeros(16, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    values: Any = {
        "list": list(points),
        "flat": A.Flat(points.flatten(0, 1), torch.arange(17) * 3),
        "tensor": points,
    }[shape]
    found = []
    for pairs in (None, PAIRS):
        ops = A.AugmentBatch([T.RandomHorizontalFlip(0.5, pairs), T.RandomVerticalFlip(0.5)])
        out = ops(images, **KEY, keypoints=values).keypoints
        found.append(
            torch.stack(out) if shape == "list" else out.values.view(16, 3, 5, 3) if shape == "flat" else out
        )
    mirrored = (found[0][..., 0] != points[..., 0]).flatten(1).all(1)
    assert 0 < int(mirrored.sum()) < 16
    assert torch.equal(
        found[1], torch.where(mirrored[:, None, None, None], exchanged(found[0], PAIRS), found[0])
    )


def test_whole_batches_that_do_not_fit() -> None:
    """Keypoints of fewer points, and pairs that only packed data know, are an error that names the
    keypoints."""
    points, images = torch.rand(16, 3, 3, 3), torch.zeros(16, 3, HEIGHT, WIDTH, dtype=torch.uint8)
    for values in (points, points[:, :, 0], list(points), list(points[:, :, 0])):
        with pytest.raises(
            ArgumentError, match=r"keypoints: a flip exchanges keypoints that its objects of [13] do not have"
        ):
            A.AugmentBatch([T.RandomHorizontalFlip(0.5, PAIRS)])(images, **KEY, keypoints=values)
    with pytest.raises(ArgumentError, match=r'keypoints: keypoint_pairs="auto", and it is not known here'):
        A.AugmentBatch([T.RandomHorizontalFlip(0.5, "auto")])(images, **KEY, keypoints=points)
    boxes = torch.rand(16, 2, 4)
    assert A.AugmentBatch([T.RandomHorizontalFlip(0.5, "auto")])(images, **KEY, boxes=boxes).boxes.shape == (
        16,
        2,
        4,
    )


def test_stages_of_packed_data(folder: Path) -> None:
    """As batch_transform= over packed data, "auto" are the pairs of each field, and boxes beside them move
    as ever."""
    found = {}
    for pairs in (None, "auto"):
        ops = [T.RandomHorizontalFlip(1.0, pairs), A.ColorJitter(0.2)]
        with FastLoader(
            PackedDataset(folder, fields=FIELDS),
            batch_size=COUNT,
            collate="padded",
            batch_transform=A.AugmentBatch(ops),
        ) as loader:
            (found[pairs],) = list(loader)
    assert torch.equal(found["auto"]["points"].values, exchanged(found[None]["points"].values, PAIRS))
    assert torch.equal(found["auto"]["hands"].values, exchanged(found[None]["hands"].values, [(0, 1)]))
    assert torch.equal(found["auto"]["boxes"].values, found[None]["boxes"].values)


def test_flips_that_a_device_does() -> None:
    """A flip behind a step that is left to the device exchanges there what it is asked to."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    for pairs in ("auto", PAIRS):
        plan = compile_plan([v2.ColorJitter(0.2), T.RandomHorizontalFlip(1.0, pairs)], device=True)
        assert T.RandomHorizontalFlip(**plan.device[-1].arguments) == T.RandomHorizontalFlip(1.0, pairs)
    plan = compile_plan([v2.ColorJitter(0.2), v2.RandomHorizontalFlip(1.0)], device=True)
    assert plan.device[-1].arguments == {"p": 1.0}


def test_the_manifest(folder: Path) -> None:
    """Names and pairs lie in the manifest with their field; a field without them is described as ever, and
    equal ones are equal."""
    stored = {each["name"]: each for each in json.loads((folder / "manifest.json").read_text())["schema"]}
    assert (stored["points"]["names"], stored["points"]["pairs"]) == (list(NAMES), [[1, 2], [3, 4]])
    assert set(stored["unknown"]) == {"name", "kind", "dtype", "shape"}
    field = Field("points", "keypoints", shape=(5, 3), **KNOWN)
    again = Field.from_json(field.to_json())
    assert (again.names, again.pairs) == (NAMES, PAIRS)
    assert field == Field("points", "keypoints", shape=(5, 3))
    for wrong in ({"names": ["a"]}, {"names": [""] * 5}, {"pairs": [(0, 5)]}, {"pairs": [(1, 2), (2, 3)]}):
        with pytest.raises(ArgumentError, match=r"field 'points' has .*point"):
            Field("points", "keypoints", shape=(5, 3), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="kind mask takes none"):
        Field("m", "mask", pairs=PAIRS)


def test_datasets_are_joined_by_what_their_points_mean(folder: Path, tmp_path: Path) -> None:
    """A dataset without names of its points takes samples of a source that has them, and other names or
    pairs are refused."""
    old, other = tmp_path / "old", tmp_path / "other"
    fastload.pack(Poses({}), old, workers=1)
    fastload.append(old, Poses())
    assert len(PackedDataset(old)) == 2 * COUNT
    for known, what in (({"names": NAMES[::-1]}, "names"), ({"pairs": ((0, 1),)}, "pairs")):
        with pytest.raises(
            PackError, match=f"the keypoints of its field 'points' have other {what} than the dataset's"
        ):
            fastload.append(folder, Poses(known))
    fastload.pack(Poses({"pairs": ((0, 1),)}), other, workers=1)
    with pytest.raises(PackError, match="the keypoints of 'points' have other pairs"):
        fastload.concat([folder, other], tmp_path / "both")


def test_names_that_mirror_each_other() -> None:
    """Names that differ in left and right alone are pairs, as people write them; one without a partner, or
    with two, is in none."""
    assert mirrored_pairs(NAMES) == PAIRS
    for one, other in (
        ("LeftEye", "RightEye"),
        ("eye left", "eye right"),
        ("l_hip", "r_hip"),
        ("hip-L", "hip-R"),
        ("LEFT", "RIGHT"),
    ):
        assert mirrored_pairs(["nose", one, other]) == ((1, 2),) == mirrored_pairs(["nose", other, one])
    assert mirrored_pairs(["left_eye", "nose", "left_eye", "right_eye", "left_ear", "leg", "reg"]) == ()
