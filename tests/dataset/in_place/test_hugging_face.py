"""Hugging Face's datasets read in place: torch's own batches of the same dataset, whatever was done to its
table."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hugging_face_helpers import (
    COUNT,
    FEATURES,
    Make,
    assert_as_torch,
    assert_same,
    copied,
    datasets,
    jpeg,
    of_images,
    rows,
    stored,
    why_not,
)
from in_place_helpers import EXACT, image_folder
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

from fastload import FastLoader, OnImages
from fastload.errors import ArgumentError, TransformError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def generated(root: Path) -> Any:
    """Written row by row into the library's cache."""
    return datasets.Dataset.from_generator(
        lambda: iter(rows()), features=datasets.Features(FEATURES), cache_dir=str(root)
    )


def of_paths(root: Path) -> Any:
    """A column of texts, cast."""
    image_folder(root / "tree")
    paths = sorted(map(str, (root / "tree").rglob("*.jpg")))
    return datasets.Dataset.from_dict({"image": paths, "n": list(range(len(paths)))}).cast_column(
        "image", datasets.Image()
    )


def of_paths_and_bytes(root: Path) -> Any:
    """Bytes in a table, and files beside it."""
    paths = sorted(image_folder(root / "tree").rglob("*.jpg"))
    return of_images([*paths[:4], jpeg(1), paths[5], jpeg(2), jpeg(3)], root / "cache")


def folder(root: Path) -> Any:
    """The library's own loader of folders."""
    return datasets.load_dataset(
        "imagefolder", data_dir=str(image_folder(root / "tree")), cache_dir=str(root / "cache"), split="train"
    )


def parquet(root: Path) -> Any:
    """A Parquet file, which the library turns into Arrow files."""
    stored(root / "first").to_parquet(str(root / "rows.parquet"))
    return datasets.load_dataset(
        "parquet", data_files=str(root / "rows.parquet"), cache_dir=str(root / "cache"), split="train"
    )


def in_name_of_blanks(root: Path) -> Any:
    """A folder whose name has blanks and a line's end."""
    (root / "a b\nc").mkdir()
    return stored(root / "a b\nc" / "d (deleted) e")


def beside(root: Path) -> Any:
    """Tables side by side."""
    first = stored(root / "a")
    return datasets.concatenate_datasets(
        [first.select_columns(["image", "name"]), stored(root / "b").select_columns(["score"])], axis=1
    )


SOURCES: dict[str, Make] = {
    "stored": lambda root: stored(root / "a"),
    "shards": lambda root: stored(root / "a", shards=3),
    **{
        each.__name__: each
        for each in (generated, of_paths, of_paths_and_bytes, folder, parquet, in_name_of_blanks, beside)
    },
    "selected": lambda root: stored(root / "a", shards=2).select([20, 3, 3, 0, 11]),
    "range": lambda root: stored(root / "a", shards=2).select(range(9, 20)),
    "shuffled": lambda root: stored(root / "a", shards=2).shuffle(seed=4),
    "filtered": lambda root: stored(root / "a").filter(lambda row: row["label"] == 1, input_columns=None),
    "sorted": lambda root: stored(root / "a").sort("label"),
    "split": lambda root: stored(root / "a").train_test_split(7, seed=1)["test"],
    "shard": lambda root: stored(root / "a").shard(3, 1, contiguous=False),
    "joined": lambda root: datasets.concatenate_datasets(
        [stored(root / "a"), stored(root / "b", shards=2).shuffle(seed=2), generated(root)]
    ),
    "joined twice": lambda root: datasets.concatenate_datasets(
        [one := stored(root / "a").select(range(5)), one, one.select([2, 1])]
    ),
    "removed": lambda root: stored(root / "a").remove_columns(["label", "score"]),
    "renamed": lambda root: stored(root / "a").rename_column("label", "target"),
    "ordered": lambda root: stored(root / "a").select_columns(["score", "image", "label"]),
    "mapped": lambda root: stored(root / "a").map(lambda row: {"twice": row["label"] * 2}),
    "flattened": lambda root: stored(root / "a").shuffle(seed=3).flatten_indices(),
    "indices in a file": lambda root: stored(root / "a").select(
        [5, 1, 9], indices_cache_file_name=str(root / "indices.arrow")
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_batches_as_torch(name: str, tmp_path: Path) -> None:
    dataset = SOURCES[name](tmp_path)
    loader = assert_as_torch(dataset, epochs=2)
    assert f"native, on {len(dataset)} images in place" in loader.explain(all=True)
    assert loader.stats()["loaded"] == 0


def test_columns_of_every_type(tmp_path: Path) -> None:
    """Python values with their types, as the library itself gives them."""
    kinds = {
        **{
            name: datasets.Value(name)
            for name in ("int8", "int64", "uint8", "uint64", "bool", "float16", "float32", "float64")
        },
        "none": datasets.Value("int32"),
        "text": datasets.Value("large_string"),
        "data": datasets.Value("binary"),
        "when": datasets.Value("timestamp[s]"),
        "list": datasets.Sequence(datasets.Value("int64")),
        "nested": {"a": datasets.Value("int64"), "b": [{"c": datasets.Value("string")}]},
        "array": datasets.Array2D((2, 2), "float32"),
    }
    values = {
        **{name: [0, 1, 2, 3, 4, 5] for name in kinds},
        "uint64": [0, 1, 2, 3, 4, 2**63 - 1],
        "none": [1, None, 3, None, 5, 6],
        "text": ["", "a", None, "é", "\0", "long" * 99],
        "data": [b"", b"\0", None, b"x", b"y", b"z"],
        "when": [datetime.datetime(2020, 1, n) for n in range(1, 7)],
        "list": [[], [1], None, [1, 2], [3], [4]],
        "nested": [{"a": n, "b": [{"c": str(n)}] * n} for n in range(6)],
        "array": [np.full((2, 2), n, np.float32).tolist() for n in range(6)],
    }
    table = [
        {"image": {"bytes": jpeg(n), "path": None}, **{k: v[n] for k, v in values.items()}} for n in range(6)
    ]
    dataset = stored(tmp_path, table, {**kinds, "image": datasets.Image()}, 2)
    assert_as_torch(dataset, collate_fn=list)
    plain = dataset.remove_columns(["none", "text", "data", "when", "list", "nested"])
    assert_as_torch(plain)
    assert_as_torch(plain, batch_size=None)


def test_an_error_of_collate_is_torchs(tmp_path: Path) -> None:
    table = [{"image": {"bytes": jpeg(n), "path": None}, "n": None if n == 2 else n} for n in range(4)]
    dataset = stored(
        tmp_path, table, {"image": datasets.Image(), "n": datasets.Value("int64")}
    ).with_transform(OnImages(EXACT))
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        list(DataLoader(dataset, batch_size=4))
    with pytest.raises(type(theirs.value)) as ours:
        list(FastLoader(dataset, batch_size=4, num_workers=1, engine="native"))
    assert str(ours.value) == str(theirs.value)


def test_resampled_pixels_are_within_one(tmp_path: Path) -> None:
    steps = [transforms.Resize((40, 44)), transforms.PILToTensor()]
    dataset = stored(tmp_path).with_transform(OnImages(transforms.Compose(steps), to="pixel_values"))
    loader = FastLoader(dataset, batch_size=COUNT, num_workers=2, engine="native")
    (ours,), (theirs,) = list(loader), list(DataLoader(dataset, batch_size=COUNT))
    assert list(ours) == list(theirs) == ["pixel_values", "label", "name", "score"]
    assert (ours["pixel_values"].int() - theirs["pixel_values"].int()).abs().max() <= 1


@pytest.mark.parametrize("columns", [["image"], ["score", "image"], ["label", "image", "name"]])
@pytest.mark.parametrize("rest", [False, True])
def test_columns_of_a_format(tmp_path: Path, columns: list[str], rest: bool) -> None:
    dataset = stored(tmp_path).with_transform(OnImages(EXACT), columns=columns, output_all_columns=rest)
    assert_as_torch(dataset)


def test_subsets_and_joined_datasets(tmp_path: Path) -> None:
    first = stored(tmp_path / "a").with_transform(OnImages(EXACT))
    second = stored(tmp_path / "b", shards=2).shuffle(seed=1).with_transform(OnImages(EXACT))
    assert_as_torch(Subset(second, [5, 0, 5, 23]))
    assert_as_torch(ConcatDataset([first, Subset(second, range(4, 9)), first.select([3])]))


def test_datasets_of_two_kinds_are_not_mixed(tmp_path: Path) -> None:
    """Samples of one are dicts, of the other pairs."""
    first = stored(tmp_path / "a").select_columns(["image", "label"]).with_transform(OnImages(EXACT))
    both = ConcatDataset([first, ImageFolder(str(image_folder(tmp_path / "tree")), EXACT)])
    assert FastLoader(both, batch_size=2, num_workers=0).stats()["engine"] == "caller"


def test_torchs_way_is_torchs_results(tmp_path: Path) -> None:
    dataset = stored(tmp_path).with_transform(OnImages([transforms.RandomCrop(30), transforms.ToTensor()]))
    found = []
    for make in (DataLoader, lambda *args, **options: FastLoader(*args, engine="python", **options)):
        torch.manual_seed(0)
        found.append([copied(batch) for batch in make(dataset, batch_size=4, shuffle=True, num_workers=2)])
    assert_same(found[1], found[0])


def a_function(batch: Any) -> Any:
    return {"image": [EXACT(each.convert("RGB")) for each in batch["image"]]}


class Own(datasets.Dataset):  # type: ignore[misc,name-defined]
    """A Dataset with code of its own."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key)


class Derived(OnImages):
    """Not exactly what the program gave."""


def owned(root: Path) -> Any:
    """The same table in a subclass."""
    plain = stored(root)
    return Own(plain.data, plain.info).with_transform(OnImages(EXACT))


def with_column(root: Path, feature: Any, values: list[Any]) -> Any:
    """Another column beside the images."""
    table = [{"image": {"bytes": jpeg(n), "path": None}, "other": value} for n, value in enumerate(values)]
    return stored(root, table, {"image": datasets.Image(), "other": feature}).with_transform(OnImages(EXACT))


def given(transform: Any, **options: Any) -> Make:
    """A stored dataset with a transform."""
    return lambda root: stored(root).with_transform(transform, **options)


def in_memory(root: Path) -> Any:
    """A table that is in no file."""
    table = rows(4)
    return datasets.Dataset.from_dict(
        {name: [row[name] for row in table] for name in FEATURES}, features=datasets.Features(FEATURES)
    )


def one_more(root: Path) -> Any:
    """A row that is in no file."""
    return datasets.concatenate_datasets([stored(root), in_memory(root)])


def grey(root: Path) -> Any:
    """Images that the library converts."""
    return stored(root, rows(4), {**FEATURES, "image": datasets.Image(mode="L")}).with_transform(
        OnImages(EXACT)
    )


def undecoded(root: Path) -> Any:
    """A column of bytes beside one of images."""
    table = [{"image": {"bytes": jpeg(1), "path": None}, "raw": {"bytes": jpeg(1), "path": None}}] * 4
    kinds = {"image": datasets.Image(), "raw": datasets.Image(decode=False)}
    return stored(root, table, kinds).with_transform(OnImages(EXACT, "raw"))


REASONS: dict[str, tuple[Make, str]] = {
    "no format": (lambda root: stored(root), "fastload.OnImages"),
    "a function": (given(a_function), "fastload.OnImages"),
    "a subclass": (given(Derived(EXACT)), "fastload.OnImages"),
    "torch": (lambda root: stored(root).with_format("torch"), "'torch'"),
    "own code": (owned, "code of its own"),
    "a python step": (
        given(OnImages([transforms.CenterCrop(8), transforms.ToTensor(), torch.square])),
        "square",
    ),
    "pillow": (given(OnImages(transforms.CenterCrop(8))), "Pillow images"),
    "sizes": (given(OnImages(transforms.ToTensor())), "different sizes"),
    "no such column": (given(OnImages(EXACT, "photo")), "'photo'"),
    "a column of text": (given(OnImages(EXACT, "name")), "not images"),
    "left out": (given(OnImages(EXACT), columns=["name"]), "'image'"),
    "left to the rest": (given(OnImages(EXACT), columns=["name"], output_all_columns=True), "'image'"),
    "a name twice": (given(OnImages(EXACT, to="label")), "'label'"),
    "another image": (
        lambda root: with_column(root, datasets.Image(), [{"bytes": jpeg(1), "path": None}] * 4),
        "'other' is Image",
    ),
    "grey": (grey, "converted to L"),
    "not decoded": (undecoded, "not images"),
    "memory": (lambda root: in_memory(root).with_transform(OnImages(EXACT)), "in memory"),
    "partly memory": (lambda root: one_more(root).with_transform(OnImages(EXACT)), "in memory"),
    "null": (
        lambda root: stored(root, [*rows(2), {**rows(1)[0], "image": None}]).with_transform(OnImages(EXACT)),
        "null",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_why_not(name: str, tmp_path: Path) -> None:
    make, why = REASONS[name]
    dataset = make(tmp_path / "a")
    told = why_not(dataset)
    assert why in told
    assert "not read in place" in told
    with pytest.raises(ArgumentError, match="native"):
        FastLoader(dataset, batch_size=2, engine="native").explain(all=True)


def test_paths_of_other_machines(tmp_path: Path) -> None:
    paths = datasets.Dataset.from_dict({"image": ["https://example.org/a.jpg"]}).cast_column(
        "image", datasets.Image()
    )
    assert "no file on this machine" in why_not(paths.with_transform(OnImages(EXACT)))


def test_few_of_a_native_format(tmp_path: Path) -> None:
    from hugging_face_helpers import encoded
    from pictures import photo

    dataset = of_images(
        [encoded(photo(n, 20, 20), "BMP") if n % 3 else jpeg(n) for n in range(12)], tmp_path / "cache"
    )
    assert "4 of 12" in why_not(dataset.with_transform(OnImages(EXACT)))


def test_tables_without_images_and_streams_run_as_ever(tmp_path: Path) -> None:
    text = datasets.Dataset.from_dict({"text": ["a", "b"]})
    assert "map-style Dataset" in why_not(text)
    assert [batch["text"] for batch in FastLoader(text, batch_size=2)] == [["a", "b"]]
    stream = stored(tmp_path).to_iterable_dataset()
    assert "IterableDataset" in why_not(stream)


def test_on_images_in_plain_python(tmp_path: Path) -> None:
    """The same samples one by one, by slices and columns; clear errors."""
    dataset = stored(tmp_path).with_transform(
        OnImages([transforms.CenterCrop(8), transforms.PILToTensor()], to="pixels")
    )
    assert list(dataset[0]) == ["pixels", "label", "name", "score"]
    assert [tuple(each.shape) for each in dataset[:2]["pixels"]] == [(3, 8, 8)] * 2
    assert OnImages(None)({"image": [], "other": [1]}) == {"image": [], "other": [1]}
    with pytest.raises(ArgumentError, match="'photo'"):
        OnImages(EXACT, "photo")({"image": []})
    with pytest.raises(ArgumentError, match="'label'"):
        OnImages(EXACT, to="label")({"image": [], "label": []})
    from fastload.transforms import CenterCrop

    own = stored(tmp_path / "b").with_transform(OnImages(CenterCrop(8)))
    with pytest.raises(TransformError, match="native threads"):
        own[0]
    (batch,) = FastLoader(own, batch_size=COUNT, num_workers=1)
    assert batch["image"].shape == (COUNT, 3, 8, 8)
