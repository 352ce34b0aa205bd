"""fastload.read (fastload/packing/read.py): samples in files of other programs, as they lie, are those
that the source reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attach_helpers import SOURCES, equal, jpeg, tars, write_tar
from hugging_face_files import FEATURES, IMAGE, pa, pq
from packing_helpers import encoded, picture, tree
from test_library_files import DATA, OPTIONS
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

import fastload
from fastload import FastLoader, read
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.sources.protocol import Item, Place
from fastload.store import Field

EXACT = transforms.Compose([transforms.CenterCrop((40, 48)), transforms.PILToTensor()])
"""Nothing is resampled: what Pillow decodes is what a batch holds."""
COUNT = 12


def arrow(root: Path) -> Path:
    """An uncompressed Arrow stream of batches of five rows, as Hugging Face's library writes it."""
    rows = table()
    with pa.ipc.new_stream(root / "a.arrow", rows.schema) as sink:
        sink.write_table(rows, max_chunksize=5)
    return root / "a.arrow"


def parquet(root: Path) -> Path:
    """An uncompressed Parquet file of row groups of five rows."""
    pq.write_table(table(), root / "a.parquet", row_group_size=5, compression="none")
    return root / "a.parquet"


def table() -> Any:
    rows = pa.table(
        {
            "image": pa.array([{"bytes": jpeg(number), "path": None} for number in range(COUNT)], IMAGE),
            "label": pa.array([number % 3 for number in range(COUNT)]),
        }
    )
    return rows.replace_schema_metadata({"huggingface": __import__("json").dumps(FEATURES)})


MADE: dict[str, Callable[[Path], Path]] = {**SOURCES, "arrow": arrow, "parquet": parquet}
STORED = ("tfrecord", "mds", "litdata", "lmdb")


def dataset(kind: str, root: Path, **options: Any) -> Any:
    if kind in ("tfrecord", "mds"):  # other fields have any number of values, or none
        options = {"fields": ["image", "label"], **options}
    if kind in STORED:
        return read(DATA / kind, transform=EXACT, **OPTIONS.get(kind, {}), **options)
    return read(MADE[kind](root), transform=EXACT, **options)


def by_torch(data: Any, **options: Any) -> list[Any]:
    return list(DataLoader(data, **options))


@pytest.mark.parametrize("kind", [*MADE, *STORED])
def test_native_threads_make_torchs_batches(kind: str, tmp_path: Path) -> None:
    """To the bit, with all fields, in torch's order; and of a Subset."""
    data = dataset(kind, tmp_path)
    options: dict[str, Any] = {"batch_size": 4}
    with FastLoader(data, num_workers=2, **options) as loader:
        assert "native threads" in loader.explain()
        assert equal(list(loader), by_torch(data, **options))
    part = Subset(data, [5, 0, 0, 3])
    with FastLoader(part, num_workers=1, **options) as loader:
        assert "native threads" in loader.explain()
        assert equal(list(loader), by_torch(part, **options))


def test_pairs_and_dicts(tmp_path: Path) -> None:
    """One field of integers beside the image makes a pair; else samples are dicts; fields= chooses."""
    data = dataset("tars", tmp_path)
    assert set(data[3]) == {"image", "label", "txt"}
    pair = dataset("tars", tmp_path, fields=["image", "label"])
    assert pair.is_pair
    assert pair[3][1] == 3
    assert dataset("folder", tmp_path / "classes").classes == ("class0", "class1", "class2")
    assert set(dataset("tars", tmp_path, fields=["txt", "image"])[0]) == {"txt", "image"}


def test_random_crops_repeat(tmp_path: Path) -> None:
    """Draws follow from seed, epoch and index: of one thread or of two, and the next epoch has others."""
    found = read(tars(tmp_path), transform=[fastload.transforms.RandomResizedCrop(32)])

    def epochs(threads: int) -> list[Any]:
        with FastLoader(found, batch_size=5, num_workers=threads, seed=7) as loader:
            return [list(loader), list(loader)]

    one, two = epochs(1), epochs(2)
    assert equal(one, two)
    assert not equal(one[0], one[1])


def test_compressed_parquet_is_read_by_its_source(tmp_path: Path) -> None:
    """Its images lie nowhere in one piece: the loader says so, and its worker processes make the same
    batches."""
    pq.write_table(table(), tmp_path / "a.parquet", compression="snappy")
    data = read(tmp_path / "a.parquet", transform=EXACT)
    with FastLoader(data, batch_size=5, num_workers=1) as loader:
        assert "worker process" in loader.explain()
        assert "does not lie in one piece" in " ".join(loader.explain(all=True).split())
        assert equal(list(loader), by_torch(data, batch_size=5))
    data.transform = np.array
    # Which opens the files again.
    with FastLoader(data, num_workers=1, multiprocessing_context="spawn") as loader:
        assert equal(list(loader), by_torch(data))


def test_an_own_source(tmp_path: Path) -> None:
    """Any object that satisfies Source can be read; without places by worker processes."""

    class Squares:
        title, fields, classes, concurrent = "squares", (), None, True

        def __len__(self) -> int:
            return 3

        def name(self, position: int) -> str:
            return f"square {position}"

        def read(self, position: int) -> Item:
            return Item(self.name(position), np.full((50, 60, 3), position, np.uint8))

    data = read(Squares(), transform=EXACT)
    assert [int(data[i]["image"].max()) for i in range(3)] == [0, 1, 2]
    with FastLoader(data, batch_size=3) as loader:
        assert "do not lie in one piece" in " ".join(loader.explain(all=True).split())
        assert equal(list(loader), by_torch(data, batch_size=3))


def test_an_empty_member(tmp_path: Path) -> None:
    """It is that sample's error, as Pillow has it, and no other sample's; on_error="skip" leaves it out."""
    write_tar(
        tmp_path / "a.tar",
        {f"{number:02d}.jpg": b"" if number == 2 else jpeg(number) for number in range(20)},
    )
    data = read(tmp_path / "a.tar", transform=EXACT)
    with FastLoader(data, batch_size=3, num_workers=1) as loader:
        assert "native threads" in loader.explain()
        with pytest.raises(OSError, match="cannot identify image file"):
            list(loader)
    with FastLoader(data, batch_size=20, num_workers=1, on_error="skip") as loader:
        assert equal(list(loader), [data_batch(data, [number for number in range(20) if number != 2])])


def data_batch(data: Any, indices: list[int]) -> Any:
    return by_torch(Subset(data, indices), batch_size=len(indices))[0]


def test_a_file_that_changes(tmp_path: Path) -> None:
    """Its places hold for the file that was listed: another one is an error that names it, never other
    bytes."""
    root = tars(tmp_path)
    data = read(root, transform=EXACT)
    with FastLoader(data, batch_size=COUNT, num_workers=1) as loader:
        list(loader)
        path = root / "1.tar"
        os.utime(path, ns=(1, 1))
        with pytest.raises((SampleError, OSError), match=r"1\.tar"):
            list(loader)


def test_cache(tmp_path: Path) -> None:
    """What is learnt of the images is kept for the next run."""
    data = read(tars(tmp_path), transform=[fastload.transforms.RandomResizedCrop(32)])
    for learnt in (0, COUNT):
        with FastLoader(data, batch_size=COUNT, num_workers=1, cache=tmp_path / "kept", seed=1) as loader:
            assert f"kept {learnt} of" in " ".join(loader.explain(all=True).split())
            list(loader)


def test_refusals(tmp_path: Path) -> None:
    """A packed dataset, an unknown field or option, a field in the image, no image: each is one sentence."""
    tree(tmp_path / "src", {"a/1.jpg": encoded(picture(1, 20, 20)), "b/2.jpg": encoded(picture(2, 20, 20))})
    fastload.pack(tmp_path / "src", tmp_path / "out.fl")
    with pytest.raises(ArgumentError, match="open it with PackedDataset"):
        read(tmp_path / "out.fl")
    with pytest.raises(ArgumentError, match=r"has no field 'x'; it has image, label"):
        read(tmp_path / "src", fields=["image", "x"])
    with pytest.raises(ArgumentError, match="'image' is missing"):
        read(tmp_path / "src", fields=["label"])
    with pytest.raises(TypeError, match="nonsense"):
        read(tmp_path / "src", nonsense=1)  # type: ignore[call-arg]
    write_tar(
        tmp_path / "m.tar", {"1.jpg": jpeg(1), "1.mask.png": encoded(picture(1, 61, 81).convert("L"), "PNG")}
    )
    with pytest.raises(ArgumentError, match="attach it"):
        read(tmp_path / "m.tar")
    with pytest.raises(PackError, match="no such"):
        read(tmp_path / "gone.tar")
    with pytest.raises(TypeError, match="run by FastLoader alone"):
        read(tmp_path / "src", transform=[fastload.transforms.CenterCrop(8)])[0]


def test_a_replaced_item(tmp_path: Path) -> None:
    """A subclass that makes samples in another way is the program's code."""

    class Other(type(dataset("folder", tmp_path))):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return torch.full((3, 2, 2), index, dtype=torch.uint8), 0

    data = Other(dataset("folder", tmp_path).source)
    with FastLoader(data, batch_size=2) as loader:
        assert "native threads" not in loader.explain()
        assert [int(images[0].max()) for images, _ in loader] == list(range(0, COUNT, 2))


def test_numbers_of_several_types(tmp_path: Path) -> None:
    """A field that is an integer here and a float there has each value as the source gives it."""

    class Mixed:
        title, classes, concurrent = "mixed", None, True
        fields = (Field("x", "float"), Field("y", "int"))

        def __len__(self) -> int:
            return COUNT

        def name(self, position: int) -> str:
            return str(position)

        def place(self, position: int) -> Place:
            path = tmp_path / f"{position}.jpg"
            path.write_bytes(jpeg(position))
            return Place(str(path), 0, path.stat().st_size)

        def read(self, position: int) -> Item:
            return Item(
                self.name(position),
                jpeg(position),
                {"x": 0.5 if position == 3 else position, "y": 2 * position},
            )

    data = read(Mixed(), transform=EXACT)
    with FastLoader(data, batch_size=3, num_workers=1) as loader:
        assert "native threads" in loader.explain()
        assert equal(list(loader), by_torch(data, batch_size=3))


def test_a_script_that_ends(tmp_path: Path) -> None:
    """A dataset that is still there at the program's end prints nothing."""
    script = f"import fastload\ndata = fastload.read({str(tars(tmp_path))!r})\ndata[0]\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
