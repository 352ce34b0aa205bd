"""append: a source's samples after those of a dataset, as a new version."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_objects import write_coco
from packing_helpers import encoded, picture, tree
from versions_helpers import Shapes, check_shapes, check_whole, packed

import fastload
from fastload.errors import ArgumentError, PackError
from fastload.packing import Item
from fastload.store import DatasetReader, Field, Manifest
from fastload.store.class_counts import class_counts
from fastload.versions.append import joined_summary


def test_every_sample_and_both_versions(tmp_path: Path) -> None:
    """The new version has the old samples and then the new ones; the old version is as it was; nothing
    else is left."""
    out = packed(tmp_path / "ds", 0, 30)
    before = (out / "manifest.json").read_bytes()
    summary = fastload.append(out, Shapes(30, 12))
    assert (summary.version, summary.samples, summary.pack.samples) == (2, 42, 12)
    check_shapes(out, list(range(42)))
    check_shapes(out, list(range(30)), version=1)
    check_whole(out)
    assert (out / "manifest-00001.json").read_bytes() == before
    assert fastload.append(out, Shapes(42, 1)).version == 3
    check_shapes(out, list(range(43)))
    check_shapes(out, list(range(42)), version=2)
    now = Manifest.load(out)
    assert len(now.sidecars) == 3
    assert sorted(os.listdir(out)) == sorted(
        [
            "manifest.json",
            "manifest-00001.json",
            "manifest-00002.json",
            *(part.file for part in (*now.shards, *now.sidecars)),
        ]
    )
    assert now.summary["samples"] == now.summary["raw"] == 43
    assert now.summary["bytes_in"] == sum(12 * 3 * (8 + number % 3) for number in range(43))


def test_a_reader_goes_on(tmp_path: Path) -> None:
    """A dataset that is open keeps its samples, in forked children and as a pickle too."""
    out = packed(tmp_path / "ds", 0, 10)
    with DatasetReader(out) as reader:
        ds = fastload.PackedDataset(out, fields=["label", "weight"])
        fastload.append(out, Shapes(10, 5))
        assert (len(reader), len(ds), ds.version) == (10, 10, 1)
        ds.close()
        assert len(ds) == 10
        loader: Any = fastload.FastLoader(
            ds, batch_size=5, num_workers=1, engine="python", multiprocessing_context="spawn"
        )
        assert sum(len(batch["label"]) for batch in loader) == 10
    assert len(fastload.PackedDataset(out)) == 15
    assert "version=2" in repr(fastload.PackedDataset(out))


def test_classes_of_objects_go_by_name(tmp_path: Path) -> None:
    """Objects keep their classes, whatever their numbers are in the source; masks of other classes are
    refused, since their pixels stay."""
    fastload.pack(write_coco(tmp_path / "src"), tmp_path / "ds")
    fastload.append(tmp_path / "ds", write_coco(tmp_path / "more", names=("person", "bird", "dog"), images=4))
    dataset = fastload.PackedDataset(tmp_path / "ds")
    assert dataset.classes == ["person", "dog", "car", "bird"]
    added = [[dataset.classes[label] for label in dataset[index]["labels"]] for index in (3, 5, 6)]
    assert added == [["bird"], ["bird", "dog", "person"], ["bird", "dog", "person", "bird"]]
    assert class_counts(Manifest.load(tmp_path / "ds"))["labels"] == {0: 4, 1: 3, 2: 1, 3: 4}

    class Masked:
        title, concurrent, fields = "masked", True, (Field("mask", "mask"),)

        def __init__(self, *classes: str) -> None:
            self.classes = classes

        def __len__(self) -> int:
            return 1

        def name(self, position: int) -> str:
            return "sample"

        def read(self, position: int) -> Item:
            return Item("sample", encoded(picture(1, 8, 8)), {"mask": np.full((8, 8), 1, np.uint8)})

    fastload.pack(Masked("sky", "road"), tmp_path / "masks")
    fastload.append(tmp_path / "masks", Masked("sky", "road", "car"))
    with pytest.raises(
        PackError,
        match=(
            r"masked does not fit .*: its classes sky, car are not the dataset's sky, road, car in their "
            r"order"
        ),
    ):
        fastload.append(tmp_path / "masks", Masked("sky", "car"))


def _folders(root: Path, names: str, seed: int) -> Path:
    return tree(
        root,
        {
            f"{name}/{name}{number}.jpg": encoded(picture(seed + number, 20, 30))
            for name in names
            for number in range(3)
        },
    )


def test_classes_go_by_name(tmp_path: Path) -> None:
    """Known classes keep their labels whatever they are in the source; new ones come after them."""
    out = tmp_path / "ds"
    fastload.pack(_folders(tmp_path / "a", "bdf", 0), out)
    fastload.append(out, _folders(tmp_path / "b", "afz", 50))
    manifest = Manifest.load(out)
    assert manifest.classes == ("b", "d", "f", "a", "z")
    with DatasetReader(out) as reader:
        assert reader.column("label").tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [2] * 3 + [4] * 3
    check_whole(out)
    assert Manifest.load(out, 1).classes == ("b", "d", "f")


def test_labels_without_names(tmp_path: Path) -> None:
    """Numbers are labels of the dataset's classes, and one beyond them is refused with its sample; names
    for numbers are refused."""
    out = tmp_path / "ds"
    fastload.pack(_folders(tmp_path / "a", "bd", 0), out)

    class Numbers:
        def __init__(self, label: int) -> None:
            self.label = label

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.zeros((4, 4, 3), np.uint8), self.label

    fastload.append(out, Numbers(1))
    assert Manifest.load(out).classes == ("b", "d")
    with pytest.raises(PackError, match=r"label 2, and .* has the classes 0 to 1"):
        fastload.append(out, Numbers(2))
    assert Manifest.load(out).version == 2
    fastload.pack(Numbers(7), tmp_path / "plain")
    with pytest.raises(PackError, match="numbers without names"):
        fastload.append(tmp_path / "plain", tmp_path / "a")


def test_other_fields_are_refused(tmp_path: Path) -> None:
    """A field that is missing, of another kind, or unknown to the dataset is named, with what to do;
    nothing is written."""
    out = packed(tmp_path / "ds", 0, 3)

    class Other(Shapes):
        def __init__(self, change: dict[str, Any], gone: str = "") -> None:
            super().__init__(0, 3)
            self.change, self.gone = change, gone

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {
                name: value
                for name, value in {**super().__getitem__(index), **self.change}.items()
                if name != self.gone
            }

    for source, match in (
        (Other({}, "caption"), r"no field 'caption' \(text\)"),
        (Other({"caption": 3}), "field 'caption' is int, the dataset's text"),
        (
            Other({"box": np.zeros(5, np.int32)}),
            r"'box' is array int32 \(5,\), the dataset's array int32 \(4,\)",
        ),
        (Other({"more": 1}), "the dataset has no field 'more'"),
    ):
        with pytest.raises(PackError, match=match):
            fastload.append(out, source)
    with pytest.raises(PackError, match="is a packed dataset"):
        fastload.append(out, packed(tmp_path / "other", 0, 2))
    assert not (out / "manifest-00001.json").exists()


def test_fields_in_another_order(tmp_path: Path) -> None:
    """A source may have the dataset's fields in any order."""

    class Turned(Shapes):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return dict(reversed(super().__getitem__(index).items()))

    out = packed(tmp_path / "ds", 0, 5)
    fastload.append(out, Turned(5, 5))
    check_shapes(out, list(range(10)))


def test_options_are_the_datasets(tmp_path: Path) -> None:
    """What is not given is as the dataset was packed; what is given holds for the new samples."""
    out = tmp_path / "ds"
    fastload.pack(_folders(tmp_path / "a", "b", 0), out, encode="jpeg", quality=55, max_side=16, index=False)
    assert fastload.append(out, _folders(tmp_path / "b", "b", 9)).pack.shrunk == 3
    assert fastload.append(out, _folders(tmp_path / "c", "b", 20), encode="raw").pack.raw == 3
    manifest = Manifest.load(out)
    assert (manifest.options["quality"], manifest.options["encode"], manifest.options["index"]) == (
        55,
        "jpeg",
        False,
    )
    assert (manifest.summary["shrunk"], manifest.summary["raw"], manifest.summary["samples"]) == (9, 3, 9)
    with pytest.raises(ArgumentError, match="quality=0"):
        fastload.append(out, tmp_path / "b", quality=0)


def test_stopped_and_resumed(tmp_path: Path) -> None:
    """A sample that cannot be packed stops the append; resume=True goes on; without an append to go on
    with, it says so."""
    out = tmp_path / "ds"
    fastload.pack(_folders(tmp_path / "a", "b", 0), out)
    source = _folders(tmp_path / "b", "b", 9)
    good = (source / "b" / "b1.jpg").read_bytes()
    (source / "b" / "b1.jpg").write_bytes(b"no picture")
    with pytest.raises(PackError, match=r"b1\.jpg"):
        fastload.append(out, source)
    assert Manifest.load(out).count == 3
    assert (out / "append.tmp").is_dir()
    (source / "b" / "b1.jpg").write_bytes(good)
    assert fastload.append(out, source, resume=True).samples == 6
    assert not (out / "append.tmp").exists()
    check_whole(out)
    with pytest.raises(PackError, match=r"no append to go on with: .* version 2 with 6 samples"):
        fastload.append(out, source, resume=True)


def test_overwrite_takes_everything_away(tmp_path: Path) -> None:
    """pack with overwrite=True leaves no file of older versions, and resume=True does not take a changed
    dataset for its own."""
    out = packed(tmp_path / "ds", 0, 5)
    fastload.append(out, Shapes(5, 5))
    with pytest.raises(PackError, match=r"was changed since .*append"):
        packed(out, 0, 5, resume=True)
    check_shapes(out, list(range(10)))
    (out / "append.tmp").mkdir()
    for name in ("append.tmp/progress.json", "manifest-00001.json.tmp", "values-00007.bin"):
        (out / name).write_text("{}")
    packed(out, 3, 4, overwrite=True)
    assert sorted(os.listdir(out)) == ["index-00000.bin", "manifest.json", "shard-00000.lmdb"]
    check_shapes(out, [3, 4, 5, 6])


def test_a_link_is_not_resumed(tmp_path: Path) -> None:
    """A link in the place of an append that was stopped leads nowhere: what it names stays as it is."""
    out, other = packed(tmp_path / "ds", 0, 3), packed(tmp_path / "other", 3, 3)
    (out / "append.tmp").symlink_to(other)
    files = sorted(os.listdir(other))
    with pytest.raises(PackError, match="no append to go on with"):
        fastload.append(out, Shapes(3, 2), resume=True)
    fastload.append(out, Shapes(3, 2))
    assert sorted(os.listdir(other)) == files
    check_shapes(other, [3, 4, 5])
    check_shapes(out, [0, 1, 2, 3, 4])


def test_arguments_are_packs() -> None:
    """append takes every argument of pack but overwrite and those of URLs and of clusters."""
    appends, packs = (set(inspect.signature(each).parameters) for each in (fastload.append, fastload.pack))
    assert appends == packs - {"overwrite", "staging", "storage_options", "timeout", "ray"}


def test_joined_summary() -> None:
    """Counts add up by name; values that no pack writes do no harm."""
    now = {
        "samples": 3,
        "formats": {"jpeg": 2, "x": "y"},
        "warnings": [["a", "b"]],
        "own": "kept",
        "raw": "three",
    }
    more = {"samples": 4, "formats": {"jpeg": 1, "png": 3}, "warnings": [["c", "d"]], "raw": 4, "kept": 1}
    both = joined_summary(now, more)
    assert both["samples"] == 7
    assert both["formats"] == {"jpeg": 3, "png": 3}
    assert both["warnings"] == [["a", "b"], ["c", "d"]]
    assert (both["own"], both["raw"], both["kept"]) == ("kept", "three", 1)
