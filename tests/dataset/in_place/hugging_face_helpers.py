"""What the tests of Hugging Face's datasets share: tables of pictures in files, and batches compared with
those of torch's own loader."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_place_helpers import EXACT
from pictures import photo
from PIL import Image as PillowImage
from torch.utils.data import DataLoader

from fastload import FastLoader, OnImages
from fastload.batch.containers import sequence_like

datasets = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")
datasets.disable_progress_bars()

COUNT = 24
FEATURES = {
    "image": datasets.Image(),
    "label": datasets.ClassLabel(names=["a", "b", "c"]),
    "name": datasets.Value("string"),
    "score": datasets.Value("float32"),
}


def encoded(picture: PillowImage.Image, form: str = "JPEG", **options: Any) -> bytes:
    """A picture as a file's bytes."""
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def jpeg(number: int, **options: Any) -> bytes:
    """Picture `number`, of a size of its own."""
    return encoded(photo(number, 70 + number % 30, 90 + number % 40), "JPEG", **{"quality": 90, **options})


def rows(count: int = COUNT) -> list[dict[str, Any]]:
    """Rows of FEATURES."""
    pictures = [{"bytes": jpeg(number), "path": f"{number}.jpg"} for number in range(count)]
    return [
        {"image": each, "label": n % 3, "name": f"é{n}", "score": n / 7} for n, each in enumerate(pictures)
    ]


def stored(
    root: Path,
    table: list[dict[str, Any]] | None = None,
    features: dict[str, Any] | None = None,
    shards: int = 1,
) -> Any:
    """A dataset of rows, saved under root and loaded again."""
    columns = datasets.Features(features or FEATURES)
    table = rows() if table is None else table
    made = datasets.Dataset.from_dict(
        {name: [row[name] for row in table] for name in columns}, features=columns
    )
    made.save_to_disk(str(root), num_shards=shards)
    return datasets.load_from_disk(str(root))


def of_images(images: list[Any], root: Path) -> Any:
    """A dataset of images alone, each as bytes, or as a path; and labels."""
    values = [
        {"bytes": None, "path": str(each)} if isinstance(each, Path) else {"bytes": each, "path": None}
        for each in images
    ]
    table = [{"image": value, "label": number} for number, value in enumerate(values)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_generator(lambda: iter(table), features=features, cache_dir=str(root))


def assert_same(ours: Any, theirs: Any) -> None:
    """The same types, keys in the same order, values, dtypes."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for name in ours:
            assert_same(ours[name], theirs[name])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, torch.Tensor):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert torch.equal(ours, theirs)
    else:
        assert ours == theirs or ours != ours


def assert_as_torch(
    dataset: Any, *, epochs: int = 1, transform: Any = EXACT, **options: Any
) -> FastLoader[Any]:
    """Native epochs hold the batches of torch's own loader, to the bit; returns the loader. A format of
    the dataset's own is kept."""
    if getattr(dataset, "format", {"type": ""})["type"] is None:
        dataset = dataset.with_transform(OnImages(transform))
    options = {"batch_size": 5, **options}
    loader: FastLoader[Any] = FastLoader(dataset, num_workers=2, engine="native", **options)
    for _ in range(epochs):
        assert_same([copied(batch) for batch in loader], list(DataLoader(dataset, **options)))
    return loader


def copied(batch: Any) -> Any:
    """A batch that holds no slot."""
    if isinstance(batch, dict):
        return {name: copied(value) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return sequence_like(type(batch), list(map(copied, batch)))
    return batch.clone() if isinstance(batch, torch.Tensor) else batch


def why_not(dataset: Any) -> str:
    """The reason for the engine, as explain() has it."""
    return next(
        line
        for line in FastLoader(dataset, batch_size=2, num_workers=0).explain(all=True).splitlines()
        if line.startswith("why")
    )


Make = Callable[[Path], Any]
