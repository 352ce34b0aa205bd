"""collate= makes the same batches on every engine, equal to what torch's own functions make of the
samples."""

from __future__ import annotations

import copy
import inspect
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collated import COUNT, Detections, batches, check_rows, chunks, same
from small_source import Numbered
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fastload
import fastload.augment as A
import fastload.transforms as T
from fastload import FastLoader, PackedDataset, Padded
from fastload.batch.collate import Collate
from fastload.errors import ArgumentError
from fastload.packing import Item
from fastload.store import DatasetReader, Field

FIELDS = (
    Field("label", "int"),
    Field("weight", "float"),
    Field("vector", "array", "float32", (5,)),
    Field("mask", "mask"),
    Field("boxes", "boxes", format="xyxy"),
    Field("labels", "array", "int64", (None,), of="boxes"),
    Field("points", "keypoints", shape=(2, 3), of="boxes"),
    Field("masks", "instances", of="boxes"),
    Field("lines", "polygons", of="boxes"),
    Field("note", "text"),
    Field("meta", "json"),
)
ROWS = ("boxes", "labels", "points", "masks")
PICTURES = ("image", "mask")
NAMES = ("image", *(field.name for field in FIELDS))
ENGINES = [("python", 0), ("python", 2), ("auto", 0), ("auto", 2)]


class Objects(Numbered):
    """A source of samples with each kind of field, of `side` x (side + 4) pixels, or of another size each."""

    title, count, fields = "objects", COUNT, FIELDS

    def __init__(self, side: int | None) -> None:
        self._side = side

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        height = self._side or 20 + 3 * position
        width, count = (self._side or 40 - 2 * position) + 4, (0, 3, 1, 4, 0, 2, 5)[position]
        boxes = rng.random((count, 4), np.float32) * 10
        boxes[:, 2:] += boxes[:, :2]
        values: dict[str, Any] = {
            "label": position,
            "weight": position / 4,
            "vector": rng.random(5, np.float32),
            "mask": rng.integers(0, 200, (height, width), dtype=np.uint8),
            "boxes": boxes,
            "labels": rng.integers(0, 90, count),
            "points": rng.random((count, 2, 3), np.float32),
            "masks": rng.integers(0, 2, (count, height, width), dtype=np.uint8),
            "lines": [[rng.random((4, 2)).reshape(-1).tolist()] * (row % 3) for row in range(count)],
            "note": f"sample {position}",
            "meta": {"at": [position] * position},
        }
        return Item(self.name(position), rng.integers(0, 256, (height, width, 3), dtype=np.uint8), values)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Objects of one size and of another size each."""
    out = {name: tmp_path_factory.mktemp("collate") / name for name in ("equal", "different")}
    fastload.pack(Objects(24), out["equal"], workers=2)
    fastload.pack(Objects(None), out["different"], workers=2)
    return out


def framed(picture: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """A picture with zeros below and on the right, by torch's own pad."""
    return torch.nn.functional.pad(picture, (0, width - picture.shape[-1], 0, height - picture.shape[-2]))


@pytest.mark.parametrize("form", ["padded", "flat"])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_equal_sizes(folders: dict[str, Path], form: Any, engine: str, workers: int) -> None:
    """Parts of fixed size are stacked, rows of any number have the form, the rest is lists."""
    dataset = PackedDataset(folders["equal"])
    for batch, samples in zip(batches(dataset, engine, workers, collate=form), chunks(dataset), strict=True):
        assert list(batch) == list(samples[0])
        for name in (*PICTURES, "vector"):
            assert same(batch[name], torch.stack([sample[name] for sample in samples])), name
        assert same(batch["label"], torch.tensor([sample["label"] for sample in samples]))
        assert same(
            batch["weight"], torch.tensor([sample["weight"] for sample in samples], dtype=torch.float64)
        )
        for name in ROWS:
            check_rows(batch[name], [sample[name] for sample in samples], form)
        for name in ("lines", "note", "meta"):
            assert same(batch[name], [sample[name] for sample in samples]), name


@pytest.mark.parametrize("pad_to", [1, 16])
@pytest.mark.parametrize("form", ["padded", "flat"])
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_different_sizes(folders: dict[str, Path], form: Any, pad_to: int, engine: str, workers: int) -> None:
    """Images and masks are padded to the largest of the batch, rounded up, and instances lie in the same
    frame."""
    dataset = PackedDataset(folders["different"])
    for batch, samples in zip(
        batches(dataset, engine, workers, collate=form, pad_to=pad_to), chunks(dataset), strict=True
    ):
        sizes = [tuple(sample["image"].shape[1:]) for sample in samples]
        frame = [-(-max(side) // pad_to) * pad_to for side in zip(*sizes, strict=True)]
        for name in PICTURES:
            assert type(batch[name]) is Padded
            assert same(
                batch[name].values, torch.stack([framed(sample[name], *frame) for sample in samples])
            ), name
            assert same(
                batch[name].mask,
                torch.stack([framed(torch.ones(size, dtype=torch.bool), *frame) for size in sizes]),
            )
            assert same(batch[name].lengths, torch.tensor(sizes))
        for name in ROWS:
            check_rows(
                batch[name], [framed(s[name], *frame) if name == "masks" else s[name] for s in samples], form
            )


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_list(folders: dict[str, Path], engine: str, workers: int) -> None:
    """Tuples are turned over once; samples that are dicts stay one by one."""
    dataset = PackedDataset(folders["different"])
    assert same(batches(dataset, engine, workers, collate="list"), chunks(dataset))
    pairs = PackedDataset(folders["different"], fields=["image", "label"])
    wanted = [[list(part) for part in zip(*samples, strict=True)] for samples in chunks(pairs)]
    assert same(batches(pairs, engine, workers, collate="list"), wanted)


@pytest.mark.parametrize("form", ["padded", "flat", "list"])
@pytest.mark.parametrize(
    "names",
    [("image", "label"), ("image", "label", "note"), ("image",), ("image", "vector", "meta", "weight")],
)
def test_engines_agree_on_fields(folders: dict[str, Path], form: Any, names: tuple[str, ...]) -> None:
    """Batches of native threads are those of worker processes and of the calling process, with transforms,
    Subset, and skipped samples."""
    transform = [T.RandomResizedCrop(12), T.RandomHorizontalFlip(), T.ToFloat()]
    whole = PackedDataset(folders["different"], transform, fields=names, seed=3)
    joined = ConcatDataset([Subset(whole, [5, 1, 2]), whole])
    found = [batches(joined, engine, workers, collate=form) for engine, workers in ENGINES]
    assert all(same(found[0], each) for each in found[1:])
    assert len(found[0]) == 4


def test_views(folders: dict[str, Path]) -> None:
    """A list of views is a list of their batches, and under "list" stays each sample's."""
    views = T.Views([[T.RandomCrop(12)], [T.RandomCrop(8)]])
    dataset = PackedDataset(folders["different"], views, fields=["image", "label"], seed=0)
    for engine, workers in ENGINES:
        (images, labels), *_ = batches(dataset, engine, workers, collate="padded")
        assert [view.shape for view in images] == [(3, 3, 12, 12), (3, 3, 8, 8)]
        assert labels.tolist() == [0, 1, 2]
        (images, labels), *_ = batches(dataset, engine, workers, collate="list")
        assert [[view.shape[1] for view in image] for image in images] == [[12, 8]] * 3


MOVING: dict[str, tuple[list[Any], int | None]] = {
    "crops that drop boxes": (
        [T.RandomIoUCrop(trials=4), T.RandomHorizontalFlip(), T.Resize((20, 24)), T.SanitizeBoundingBoxes(3)],
        None,
    ),
    "flips": ([T.RandomHorizontalFlip(), T.CenterCrop(16), T.SanitizeBoundingBoxes(), T.ToFloat()], None),
    "sizes that are drawn": (
        [T.RandomZoomOut(p=0.7), T.ScaleJitter((40, 40), (0.5, 1.5)), T.SanitizeBoundingBoxes()],
        16,
    ),
    "fixed and padded": ([T.RandomCrop(18, pad_if_needed=True), T.Normalize((0.5,) * 3, (0.5,) * 3)], 5),
}


@pytest.mark.parametrize("form", ["padded", "flat", "list"])
@pytest.mark.parametrize("name", MOVING)
def test_native_slots(
    folders: dict[str, Path], name: str, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What native threads make straight of their slots equals what the collate_fn makes of the samples of
    engine="python", dropped objects, other memory formats and joined datasets included; it is not called
    there."""
    steps, pad_to = MOVING[name]
    options: dict[str, Any] = {"collate": form, "pad_to": None if form == "list" else pad_to, "seed": 5}
    for fields in (NAMES, ("image", {"b": "boxes", "m": "masks"}, ["labels", "mask"])):
        dataset = PackedDataset(folders["different"], steps, fields=fields)
        joined = ConcatDataset(
            [Subset(dataset, [6, 2, 4]), dataset, PackedDataset(folders["equal"], steps, fields=fields)]
        )
        for given in ({}, {"memory_format": torch.channels_last}):
            wanted = batches(joined, "python", 0, **options, **given)
            with monkeypatch.context() as patch:
                if form != "list":
                    patch.setattr(Collate, "__call__", lambda *_: pytest.fail("samples were collated"))
                for workers in (0, 2):
                    found = batches(joined, "auto", workers, **options, **given)
                    assert all(map(same, found, wanted))
                    assert len(found) == len(wanted) == 6


@pytest.fixture(scope="module")
def damaged(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of different sizes with a record of sample 2 that says another number of boxes."""
    out = tmp_path_factory.mktemp("damaged") / "d"
    shutil.copytree(folders["different"], out)
    with DatasetReader(out) as reader:
        [(_, _, data)] = [entry for entry in reader.record_fields(2) if entry[0] == NAMES.index("boxes")]
        stored = bytes(data)
    [shard] = out.glob("*.lmdb")
    content = shard.read_bytes()
    assert content.count(stored) == 1
    shard.write_bytes(content.replace(stored, b"\x07" + stored[1:]))
    return out


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    ("form", "pad_to"), [("padded", 8), ("flat", 8), ("padded", None), ("flat", None), ("list", None)]
)
def test_bad_rows(damaged: Path, form: Any, pad_to: int | None, on_error: Any) -> None:
    """A row that is left out, or replaced, is so in every part of a batch, as with engine="python"."""
    steps = [] if pad_to or form == "list" else [T.Resize((20, 20))]
    dataset = PackedDataset(damaged, steps)
    found = []
    for engine, workers in ENGINES:
        with FastLoader(
            dataset, batch_size=3, num_workers=workers, engine=engine, seed=2, on_error=on_error,
            collate=form, pad_to=pad_to,  # type: ignore[arg-type]
        ) as loader:  # fmt: skip
            found.append(list(loader))
            assert loader.skipped + loader.replaced == 1
    assert all(same(found[0], each) for each in found[1:])


# ---- the arguments


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"collate": "tuple"}, '"list", "padded" or "flat"'),
        ({"collate": "padded", "pad_to": 0}, "1 or more"),
        ({"collate": "list", "pad_to": 8}, '"list" leaves each as it is'),
        ({"pad_to": 8}, 'goes with collate="padded"'),
        ({"collate": "padded", "collate_fn": list}, "drop one of them"),
        ({"collate": "padded", "batch_size": None}, "batch_size=None makes none"),
        ({"collate": "list", "batch_transform": torch.square}, "batch_transform="),
    ],
)
def test_arguments_refused(options: dict[str, Any], words: str) -> None:
    """Arguments that contradict each other, or mean nothing, are refused when the loader is made."""
    with pytest.raises(ArgumentError, match=words):
        FastLoader(Detections(), **{"batch_size": 2, **options})


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_loaders_made_of_its_attributes(folders: dict[str, Path], kind: str) -> None:
    """A loader that a framework makes of the attributes, FastLoader or plain DataLoader, a copy and a
    pickle batch alike."""
    dataset: Any = PackedDataset(folders["equal"]) if kind == "packed" else Detections()
    with FastLoader(dataset, batch_size=3, num_workers=0, collate="padded", pad_to=5) as loader:
        wanted = list(loader)
        mine = {
            name: getattr(loader, name)
            for name in inspect.signature(FastLoader.__init__).parameters.keys() - {"self", "shuffle"}
        }
        del mine["batch_sampler"]
        theirs = {
            name: mine[name]
            for name in mine.keys() & inspect.signature(DataLoader.__init__).parameters.keys()
        }
        assert (loader.collate, loader.pad_to) == ("padded", 5)
        assert same(list(FastLoader(**mine)), wanted)
        assert same(list(DataLoader(**theirs)), wanted)
        for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
            assert same(list(other), wanted)
        public = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
        assert {"collate", "pad_to", "collate_fn"} <= public.keys()
    function = pickle.loads(pickle.dumps(mine["collate_fn"]))
    assert isinstance(function, Collate)
    assert function == mine["collate_fn"]
    assert repr(function) == "Collate(form='padded', pad_to=5)"


def test_what_else_makes_batches(folders: dict[str, Path]) -> None:
    """Batch samplers, drop_last, workers that share rows, on_error and a resumed loop have it too;
    explain() names it."""
    dataset = PackedDataset(folders["equal"], fields=["image", "label", "boxes"])
    options: dict[str, Any] = {"num_workers": 2, "collate": "flat"}
    with FastLoader(dataset, batch_sampler=[[4, 1], [6]], seed_by="sample", **options) as loader:
        assert [batch["boxes"].offsets.tolist() for batch in loader] == [[0, 0, 3], [0, 5]]
        assert 'collate="flat"' in loader.explain(all=True)
    loader = FastLoader(dataset, batch_size=2, drop_last=True, on_error="skip", **options)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    other = FastLoader(dataset, batch_size=2, drop_last=True, **options)
    other.load_state_dict(state)
    assert same(list(other), list(iterator))


@pytest.mark.parametrize("form", ["padded", "flat"])
@pytest.mark.parametrize(("engine", "workers"), [("python", 0), ("auto", 2)])
def test_objects_on_the_device(folders: dict[str, Path], form: Any, engine: str, workers: int) -> None:
    """batch_transform moves masks, boxes, keypoints and instances with the images, as it does by itself."""
    augment = A.AugmentBatch([A.RandomHorizontalFlip(), A.RandomRotation(20)])
    dataset = PackedDataset(folders["equal"], fields=("image", ["mask", "boxes", "points", "masks"]))
    plain = batches(dataset, engine, workers, collate=form)
    moved = batches(dataset, engine, workers, collate=form, seed=4, device="cpu", batch_transform=augment)
    for number, ((images, before), after) in enumerate(zip(plain, moved, strict=True)):
        objects: dict[str, Any] = {
            "masks": {name: before[name] for name in ("mask", "masks")},
            "boxes": before["boxes"],
        }
        indices = range(3 * number, 3 * number + len(images))
        out = augment(images, seed=4, epoch=0, indices=indices, keypoints=before["points"], **objects)
        wanted = {
            "mask": out.masks["mask"],
            "boxes": out.boxes,
            "points": out.keypoints,
            "masks": out.masks["masks"],
        }
        assert same(after, [out.images, wanted])
    assert not same(moved, plain)


@pytest.mark.parametrize("pad_to", [None, 16])
def test_what_is_left_to_the_device(folders: dict[str, Path], pad_to: int | None) -> None:
    """Colours are left to a device where images are one tensor; floats of padded images are zero beyond
    the images."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    dataset = PackedDataset(
        folders["equal"], [T.CenterCrop(20), v2.ColorJitter(0.5)], fields=["image", "label"]
    )
    with FastLoader(
        dataset, batch_size=3, num_workers=1, collate="padded", pad_to=pad_to, device="cpu", seed=1
    ) as loader:
        assert loader.stats()["engine"] == "threads"
        native = loader._fastload.plan.native
        assert native is not None
        assert bool(native.datasets[0].plan.device) == (pad_to is None)
    floats = [T.ToFloat(), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    whole = PackedDataset(folders["equal"], fields=["image", "label"])
    first = batches(whole, workers=1, collate="padded", pad_to=pad_to, batch_transform=floats)[0][0]
    images = torch.stack([(whole[index][0] / 255 - 0.5) / 0.5 for index in range(3)])
    if pad_to is None:
        assert torch.allclose(first, images)
    else:
        assert torch.allclose(first.values, framed(images, 32, 32), atol=1e-6)
