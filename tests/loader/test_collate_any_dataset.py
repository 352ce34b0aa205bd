"""collate= makes the same forms of any Dataset's samples as of packed data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from collated import COUNT, Detections, Target, batches, check_rows, chunks, same
from torch.utils.data import IterableDataset, default_collate

from fastload import Flat, Padded
from fastload.batch.collate import Collate
from fastload.errors import ArgumentError, BatchShapeError


class Stream(IterableDataset[Any]):
    """The same samples one after another."""

    def __iter__(self) -> Any:
        return (Detections()[index] for index in range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["padded", "flat"])
def test_other_datasets(form: Any, workers: int) -> None:
    """What a part is follows from the sample; rows, masks and images have the forms of packed data."""
    for batch, samples in zip(
        batches(Detections(), "auto", workers, collate=form), chunks(Detections()), strict=True
    ):
        images, target = batch
        assert type(batch) is list
        assert same(images, torch.stack([image for image, _ in samples]))
        given = [each for _, each in samples]
        check_rows(target["boxes"], [each["boxes"].reshape(-1, 4) for each in given], form)
        check_rows(target["labels"], [torch.from_numpy(each["labels"]) for each in given], form)
        check_rows(target["masks"], [each["masks"] for each in given], form)
        assert same(target["image_id"], torch.tensor([each["image_id"] for each in given]))
        assert same(target["segmentation"], torch.stack([each["segmentation"] for each in given]))
        assert same(
            [target["seen"], target["lines"]], [[None] * len(given), [each["lines"] for each in given]]
        )


@pytest.mark.parametrize("at", [0, 1])
def test_no_instances_without_a_shape(at: int) -> None:
    """A sample's instances that are an empty tensor of one dimension leave the others in the frame of
    their images."""
    samples = [
        (torch.ones(3, 8, 8), {"masks": torch.ones(2, 8, 8)}),
        (torch.ones(3, 9, 8), {"masks": torch.ones(1, 9, 8)}),
    ]
    samples.insert(at, (torch.ones(3, 8, 8), {"masks": torch.zeros(0)}))
    images, target = Collate("padded", pad_to=4)(samples)
    assert images.values.shape == (3, 3, 12, 8)
    assert target["masks"].values.shape == (3, 2, 12, 8)
    assert sorted(target["masks"].lengths.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("form", ["padded", "flat"])
def test_numbers_of_which_one_is_none(form: Any, missing: int) -> None:
    """A column of numbers with nulls is a list in a batch that has one, wherever that stands, and a tensor
    in a batch that has none."""
    samples = [{"image": torch.ones(3, 4, 4), "score": None if n == missing else n} for n in range(6)]
    first, second = batches(samples, collate=form)
    assert first["score"] == [None if n == missing else n for n in range(3)]
    assert torch.equal(second["score"], torch.tensor([3, 4, 5]))


def test_other_forms_of_samples() -> None:
    """Named tuples stay; images of another size each are padded, or named as what is in the way."""
    images, target = batches(Detections("namedtuple", wide=True), collate="padded", pad_to=1)[1]
    assert type(target) is Target
    assert target.boxes.values.shape == (3, 2, 4)
    assert images.values.shape == (3, 3, 8, 13)
    assert images.lengths.tolist() == [[8, 11], [8, 12], [8, 13]]
    with pytest.raises(BatchShapeError, match=r"sample\[0\].*\(3, 8, 8\) and \(3, 8, 9\).*pad_to=1"):
        batches(Detections(wide=True), collate="flat")
    bare = [torch.zeros(3, 4, 4), torch.ones(3, 4, 4)]
    assert same(batches(bare, collate="padded")[0], torch.stack(bare))
    assert same(
        batches([torch.arange(2), torch.arange(3)], collate="flat")[0],
        Flat(torch.tensor([0, 1, 0, 1, 2]), torch.tensor([0, 2, 5])),
    )


@pytest.mark.parametrize("form", ["padded", "flat"])
def test_rows_of_several_dtypes(form: Any) -> None:
    """They are promoted, as torch.cat promotes them: no number is cut to the first one's dtype."""
    parts = [torch.arange(2), torch.tensor([0.5, 1.5, 2.5]), torch.tensor([True])]
    values = batches(parts, collate=form)[0].values
    assert values.dtype == torch.float32
    assert same(values[values != 0], torch.tensor([1, 0.5, 1.5, 2.5, 1]))


def test_stream() -> None:
    """An IterableDataset's samples are collated as others."""
    assert same(batches(Stream(), collate="flat"), batches(Detections(), collate="flat"))


VIEWS: dict[str, Any] = {
    "a tuple": lambda large, small, index: (large, small),
    "a list of one size": lambda large, small, index: [large, large + 1],
    "views, then a label": lambda large, small, index: (large, large + 1, index),
    "a tuple in its place": lambda large, small, index: ((large, small, small + 1), index),
    "a list in its place": lambda large, small, index: ([large, small], index),
    "a dict": lambda large, small, index: {"image": (large, small), "label": index},
    "two lists": lambda large, small, index: {"large": [large, large], "small": [small] * 3, "label": index},
    "a pair of images": lambda large, small, index: {"left": large, "right": large + 1, "label": index},
    "a tuple beside the image": lambda large, small, index: (large, (small, small + 1), index),
    "integers in a dict": lambda large, small, index: {
        "image": (large * 9).to(torch.uint8),
        "right": (small * 9).to(torch.uint8),
        "y": index,
    },
    "integers": lambda large, small, index: ((large * 9).to(torch.uint8), (small * 9).to(torch.uint8), index),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", VIEWS)
def test_views(kind: str, workers: int) -> None:
    """Several images of a sample, of sizes of their own, are stacked one by one, as default_collate does it;
    with "list" the sample's own tuple is turned over, and with pad_to= each is padded for itself."""
    samples = [VIEWS[kind](torch.rand(3, 8, 8), torch.rand(3, 4, 4), index) for index in range(3)]
    for form in ("padded", "flat"):
        assert same(batches(samples, workers=workers, collate=form), [default_collate(samples)])
    listed = samples if isinstance(samples[0], dict) else [list(part) for part in zip(*samples, strict=True)]
    assert same(batches(samples, workers=workers, collate="list"), [listed])
    [framed] = batches(samples, workers=workers, collate="padded", pad_to=10)
    stacked = default_collate(samples)
    for whole, plain in zip(_images(framed), _images(stacked), strict=True):
        assert whole.values.shape == (3, 3, 10, 10)
        assert torch.equal(whole.values[..., : plain.shape[-2], : plain.shape[-1]], plain)
        assert whole.lengths.tolist() == [list(plain.shape[-2:])] * 3


def _images(batch: Any) -> list[Any]:
    """The images of a batch, in order: tensors of four dimensions, or Padded."""
    if isinstance(batch, Padded):
        return [batch]
    if isinstance(batch, torch.Tensor):
        return [batch] if batch.ndim == 4 else []
    parts = batch.values() if isinstance(batch, dict) else batch
    return [image for part in parts for image in _images(part)]


def test_no_rows_as_a_list() -> None:
    """An empty list is no rows where other samples have tensors, wherever it stands, as in Hugging Face's
    torch format."""
    samples: list[Any] = [
        {"image": torch.ones(3, 4, 4), "objects": {"bbox": rows}}
        for rows in ([], torch.ones(2, 4), np.ones((1, 4), "f4"))
    ]
    for at in range(3):
        samples.insert(at, samples.pop(0))
        [batch] = batches(samples, collate="flat")
        counts = [len(each["objects"]["bbox"]) for each in samples]
        check_rows(batch["objects"]["bbox"], [torch.ones(count, 4) for count in counts], "flat")


def test_what_is_no_view() -> None:
    """Instances of integers stay rows beside boxes, or where their number is not the image's channels;
    lists in a target stay lists."""
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    boxes = torch.ones(3, 4)
    for samples in (
        [(image, image, boxes)] * 2,
        [(image, image[:2]), (image, image[:1])],
        [{"image": image, "masks": image}] * 2,
    ):
        for batch in batches(samples, collate="padded"):
            masks = batch["masks"] if isinstance(batch, dict) else batch[1]
            assert type(masks) is Padded
    assert (
        type(batches([{"image": image, "other": image, "boxes": boxes}] * 2, collate="padded")[0]["other"])
        is Padded
    )
    frames = [(image, {"frames": [image] * count}) for count in (1, 2)]
    assert [len(each) for each in batches(frames, collate="padded")[0][1]["frames"]] == [1, 2]
    with pytest.raises(
        ArgumentError, match=r"sample\[0\]: samples of one batch have different numbers of views: 1 and 2"
    ):
        batches([([image] * count, 0) for count in (1, 2)], collate="padded")
    with pytest.raises(
        BatchShapeError,
        match=r"sample\[0\]\[1\]: images of one batch have different sizes: \(3, 4, 4\) and \(3, 4, 2\)",
    ):
        batches([([image, image[..., :width]], 0) for width in (4, 2)], collate="padded")


def test_tv_tensors() -> None:
    """torchvision's tv_tensors say what they are, wherever they stand; batches have plain tensors."""
    tv = pytest.importorskip("torchvision.tv_tensors")

    def sample(count: int) -> dict[str, Any]:
        boxes = tv.BoundingBoxes(torch.rand(count, 4), format="XYXY", canvas_size=(4, 4))
        return {
            "target": (boxes, tv.Mask(torch.zeros(4, 4))),
            "extra": {"right": tv.Image(torch.zeros(3, 4, 4))},
        }

    [batch] = batches([sample(4), sample(1)], collate="padded")
    boxes, mask = batch["target"]
    assert type(boxes.values) is type(mask) is type(batch["extra"]["right"]) is torch.Tensor
    assert (boxes.values.shape, mask.shape, batch["extra"]["right"].shape) == (
        (2, 4, 4),
        (2, 4, 4),
        (2, 3, 4, 4),
    )


BAD: dict[str, tuple[list[Any], Any]] = {
    r"sample\['a'\]: rows of one batch have different shapes: \(3,\) and \(2,\)": (
        [{"a": torch.zeros(1, 3)}, {"a": torch.zeros(1, 2)}],
        {},
    ),
    r"sample\['a'\] is a NoneType": ([{"a": torch.zeros(1, 3)}, {"a": None}], {}),
    "samples of one batch have different parts: a dict of a and a dict of b": ([{"a": 1}, {"b": 1}], {}),
    r"sample\[1\]: .*a dict of a and a tuple of 1": ([(0, {"a": 1}), (0, (1,))], {}),
    r"different channels: \(3, 2, 2\) and \(1, 2, 2\)": (
        [torch.zeros(3, 2, 2), torch.zeros(1, 2, 2)],
        {"pad_to": 4},
    ),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_samples(words: str) -> None:
    """Samples that make no batch are an error that names the part."""
    samples, options = BAD[words]
    with pytest.raises(ArgumentError, match=words):
        batches(samples, collate="padded", **options)
