"""Hugging Face's datasets in place: images that are no usual JPEGs, and files that change or go away under
a dataset."""

from __future__ import annotations

import datetime
import os
import pickle
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from early import read_early
from handles import descriptors, none_left, opened_since
from hugging_face_helpers import (
    assert_as_torch,
    copied,
    datasets,
    encoded,
    jpeg,
    of_images,
    rows,
    stored,
    why_not,
)
from in_place_helpers import EXACT, save
from pictures import photo
from PIL import Image, PngImagePlugin
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

from fastload import FastLoader, OnImages
from fastload._native import core
from fastload.batch.collate import Collate
from fastload.batch.containers import Padded
from fastload.common.rng import substitutes
from fastload.dataset.in_place import mapped
from fastload.errors import DatasetError, SampleError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SMALL = transforms.Compose([transforms.CenterCrop(16), transforms.PILToTensor()])
PICTURE = photo(1, 90, 100)


def turned(orientation: int, **options: Any) -> bytes:
    """A JPEG, or an image of another `form`, with an orientation in EXIF."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(PICTURE, exif=exif, **options)


def in_xmp(orientation: int) -> bytes:
    """A JPEG with an orientation in XMP."""
    return encoded(
        PICTURE, xmp=f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()
    )


def png_in_xmp(orientation: int) -> bytes:
    """A PNG with an orientation in XMP."""
    info = PngImagePlugin.PngInfo()
    info.add_itxt(
        "XML:com.adobe.xmp", f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'
    )
    return encoded(PICTURE, "PNG", pnginfo=info)


NATIVE = {
    "grey": encoded(PICTURE.convert("L")),
    "cmyk": encoded(PICTURE.convert("CMYK")),
    "progressive": jpeg(3, progressive=True),
    "restarts": jpeg(4, restart_marker_blocks=2),
    "full": jpeg(5, subsampling=0),
    "trailing": jpeg(6) + bytes(100) + jpeg(5),
    "upright": turned(1),
    "upright in xmp": in_xmp(1),
    "png": encoded(PICTURE, "PNG"),
    "palette": encoded(PICTURE.quantize(16), "PNG"),
    "alpha": encoded(PICTURE.convert("RGBA"), "PNG"),
    "webp": encoded(PICTURE, "WEBP"),
    "deep": encoded(Image.fromarray(np.arange(8000, dtype=np.uint16).reshape(80, 100)), "PNG"),
}
BY_PILLOW = {
    "png that is turned": turned(6, form="PNG"),
    "png that is turned in xmp": png_in_xmp(6),
    "bmp": encoded(PICTURE, "BMP"),
    **{f"turned {orientation}": turned(orientation) for orientation in range(2, 9)},
    "turned in xmp": in_xmp(6),
    "no orientation that is known": turned(9),
}


@pytest.mark.parametrize("by_path", [False, True])
def test_every_format_gives_the_librarys_pixels(tmp_path: Path, by_path: bool) -> None:
    """PNGs, WebPs, and grey, CMYK and progressive JPEGs natively; other formats, and JPEGs that metadata
    turn, by the library."""
    images: list[Any] = [*NATIVE.values(), *BY_PILLOW.values(), *(jpeg(n) for n in range(200))]
    if by_path:
        for number, data in enumerate(images):
            (tmp_path / f"{number}.jpg").write_bytes(data)
        images = [tmp_path / f"{number}.jpg" for number in range(len(images))]
    loader = assert_as_torch(of_images(images, tmp_path / "cache"), epochs=2, batch_size=7)
    assert loader.stats()["loaded"] == 2 * len(BY_PILLOW)


COLUMNS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "text": (datasets.Value("string"), lambda n: f"caption {n}"),
    "none": (datasets.Value("int64"), lambda n: None if n == 9 else n),
    "list": (datasets.Sequence(datasets.Value("int64")), lambda n: [n] * (n % 3)),
    "json": (
        {"a": datasets.Value("int64"), "b": [{"c": datasets.Value("string")}]},
        lambda n: {"a": n, "b": [{"c": str(n)}] * 2},
    ),
    "float": (datasets.Value("float32"), lambda n: n / 7),
    "half": (datasets.Value("float16"), float),
    "huge": (datasets.Value("uint64"), lambda n: n),
    "label": (datasets.ClassLabel(names=["a", "b", "c"]), lambda n: n % 3),
    "bytes": (datasets.Value("binary"), lambda n: b"%d" % n),
    "when": (datasets.Value("timestamp[s]"), lambda n: datetime.datetime(2020, 1, n + 1)),
    "array": (datasets.Array2D((2, 2), "float32"), lambda n: [[n, n], [n, n]]),
}
"""Columns of every kind: feature, and value in row n."""
OF_TORCH = ("text", "json", "float", "half", "huge", "label", "bytes", "array")
"""Those that default_collate makes batches of."""
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "single": {"batch_size": 1},
    "none": {"batch_size": None},
    "own": {"collate_fn": list},
    "list": {"collate_fn": Collate("list")},
    "padded": {"collate_fn": Collate("padded")},
    "padded to": {"collate_fn": Collate("padded", 32)},
    "flat": {"collate_fn": Collate("flat")},
    "flat single": {"collate_fn": Collate("flat"), "batch_size": 1},
}


def table_of(
    images: list[bytes], names: Iterable[str] = COLUMNS
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of images with columns beside them, and their features."""
    made = [
        {"image": {"bytes": each, "path": None}, **{name: COLUMNS[name][1](n) for name in names}}
        for n, each in enumerate(images)
    ]
    return made, {"image": datasets.Image(), **{name: COLUMNS[name][0] for name in names}}


@pytest.mark.parametrize("form", FORMS)
def test_columns_beside_an_image_that_the_library_opens(tmp_path: Path, form: str) -> None:
    """A batch has the columns of every row, whoever opens its image: a photo that EXIF turns, a BMP, a row
    alone in its batch."""
    images = [jpeg(n) for n in range(20)]
    images[1], images[2], images[10] = turned(6), BY_PILLOW["bmp"], turned(3)
    names = OF_TORCH if form in ("default", "single") else COLUMNS
    loader = assert_as_torch(stored(tmp_path, *table_of(images, names)), **{"batch_size": 4, **FORMS[form]})
    assert loader.stats()["loaded"] == 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_rows_among_images_that_the_library_opens(tmp_path: Path, form: str, on_error: str) -> None:
    """Rows that are left have their own columns; substitutes that the library opens are made whatever
    collates the batch."""
    images = [turned(1 + n % 8) if n % 2 else turned(6) for n in range(12)]
    images[3] = images[4] = images[7] = b"\xff\xd8 and no image"
    names = ["text", "label"]
    dataset = stored(tmp_path, *table_of(images, names)).with_transform(OnImages(EXACT))
    options = {"batch_size": 4, "num_workers": 2, "engine": "native", "seed": 1, **FORMS[form]}
    found: list[tuple[str, torch.Tensor]] = []
    loader = FastLoader(dataset, on_error=on_error, **options)
    for batch in map(copied, loader):
        for row in [batch] if isinstance(batch, dict) else batch:
            pictures = row["image"].values if isinstance(row["image"], Padded) else row["image"]
            single = pictures.ndim == 3
            texts = [row["text"]] if single else row["text"]
            found += zip(texts, [pictures] if single else pictures, strict=True)
    numbers = [int(text.split()[1]) for text, _ in found]
    if on_error == "skip":
        assert numbers == [0, 1, 2, 5, 6, 8, 9, 10, 11]
    else:
        assert [n for row, n in enumerate(numbers) if row not in (3, 4, 7)] == [0, 1, 2, 5, 6, 8, 9, 10, 11]
        assert not {3, 4, 7} & set(numbers)
        assert numbers == [0, 1, 2, *INSTEAD[0:2], 5, 6, INSTEAD[2], 8, 9, 10, 11]
    height, width = 60, 80
    assert all(
        torch.equal(image[..., :height, :width], dataset[n]["image"])
        for n, (_, image) in zip(numbers, found, strict=True)
    )
    assert (loader.skipped, loader.replaced) == ((3, 0) if on_error == "skip" else (0, 3))


INSTEAD = [
    position
    for row in (3, 4, 7)
    for position in [next(p for p in substitutes(1, 0, row, 12) if p not in (3, 4, 7))]
]
"""Positions that seed 1 puts in the places of rows 3, 4 and 7 of twelve."""


@pytest.mark.parametrize("workers", [0, 2])
def test_a_column_that_cannot_be_read_is_a_bad_sample(tmp_path: Path, workers: int) -> None:
    """A text that is no UTF-8 in one row: torch's error by default, with the file; one sample less with
    on_error="skip"."""
    table = pa.table(
        {"image": pa.array([{"bytes": jpeg(n), "path": None} for n in range(8)]), "text": spoilt_texts(8, 5)}
    )
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    datasets.Dataset(
        table.cast(features.arrow_schema), info=datasets.DatasetInfo(features=features)
    ).save_to_disk(str(tmp_path))
    dataset = datasets.load_from_disk(str(tmp_path)).with_transform(OnImages(EXACT))
    with pytest.raises(UnicodeDecodeError):
        dataset[5]
    options = {"batch_size": 4, "num_workers": workers, "engine": "native"}
    with pytest.raises(UnicodeDecodeError) as told:
        list(FastLoader(dataset, **options))
    assert any(str(tmp_path) in note for note in getattr(told.value, "__notes__", [str(tmp_path)]))
    loader = FastLoader(dataset, on_error="skip", **options)
    assert [text for batch in loader for text in batch["text"]] == [f"t{n}" for n in range(8) if n != 5]
    assert loader.skipped == 1


def spoilt_texts(count: int, bad: int) -> Any:
    """A column of texts "t0", "t1", ... of which one has a byte that UTF-8 does not have."""
    data = b"".join(b"t%d" % n if n != bad else b"\xff" * 2 for n in range(count))
    offsets = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data))


@pytest.mark.parametrize("how", ["cut", "no image", "one byte", "changed"])
def test_a_broken_image_is_the_librarys_error(tmp_path: Path, how: str) -> None:
    data = jpeg(2)
    spoilt = {
        "cut": data[: len(data) // 2],
        "no image": b"text, not an image",
        "one byte": b"\xff",
        "changed": data[:300] + data[310:],
    }[how]
    dataset = of_images([*(jpeg(n) for n in range(20)), spoilt], tmp_path / "cache").with_transform(
        OnImages(EXACT)
    )
    loader = FastLoader(Subset(dataset, [3, 20]), num_workers=1, engine="native")
    batches = iter(loader)
    assert torch.equal(next(batches)["image"][0], dataset[3]["image"])
    try:
        expected = dataset[20]["image"]
    except Exception as error:
        with pytest.raises(type(error)) as told:
            next(batches)
        assert str(told.value).split(" at 0x")[0] == str(error).split(" at 0x")[0]
    else:
        assert torch.equal(next(batches)["image"][0], expected)


def test_on_error(tmp_path: Path) -> None:
    dataset = of_images([*(jpeg(n) for n in range(20)), b"no image"], tmp_path / "cache").with_transform(
        OnImages(EXACT)
    )
    skipping = FastLoader(dataset, batch_size=7, num_workers=2, on_error="skip", engine="native")
    assert [label for batch in skipping for label in batch["label"].tolist()] == list(range(20))
    assert skipping.skipped == 1
    replacing = FastLoader(dataset, batch_size=7, num_workers=2, on_error="replace", seed=1, engine="native")
    last = [copied(batch) for batch in replacing][-1]
    assert replacing.replaced == 1
    assert torch.equal(
        last["image"][-1], dataset[20 if last["label"][-1] == 20 else int(last["label"][-1])]["image"]
    )


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "cut":
        os.truncate(path, len(data) // 2)
    elif how == "written":
        with open(path, "r+b") as file:
            file.write(data[:1])
            os.utime(file.fileno(), (1, 1))
    elif how == "replaced":
        shutil.copy(path, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)


SPOILT = ["gone", "cut", "written", "replaced"]


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_table_file_that_changed_is_an_error_that_names_it(tmp_path: Path, how: str, epoch: int) -> None:
    """Nobody is handed other pixels under the old labels, and nothing is read where the file was cut: that
    would end the process."""
    dataset = stored(tmp_path / "a").with_transform(OnImages(EXACT))
    loader = FastLoader(dataset, batch_size=4, num_workers=2, engine="native")
    loader.explain(all=True)
    if epoch:
        assert read_early(loader) > 4
    (path,) = (tmp_path / "a").glob("*.arrow")
    spoil(path, how)
    with pytest.raises(SampleError, match=r"data-00000-of-00001\.arrow"):
        list(loader)


@pytest.mark.parametrize("how", ["gone", "cut", "replaced"])
def test_a_new_loader_does_not_list_a_file_that_changed(tmp_path: Path, how: str) -> None:
    dataset = stored(tmp_path / "a").with_transform(OnImages(EXACT))
    (path,) = (tmp_path / "a").glob("*.arrow")
    spoil(path, how)
    told = why_not(dataset)
    assert path.name in told
    assert "load the dataset again" in told


@pytest.mark.parametrize("changed", [False, True])
def test_systems_that_show_another_device_for_mapped_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """As btrfs does: there the bytes tell whether a file is the one that is mapped."""
    dataset = stored(tmp_path / "a").with_transform(OnImages(EXACT))
    (path,) = (tmp_path / "a").glob("*.arrow")
    if changed:
        path.rename(tmp_path / "kept")
        path.write_bytes((tmp_path / "kept").read_bytes()[::-1])
    maps = [line.split(maxsplit=4) for line in Path("/proc/self/maps").read_text().splitlines()]
    other = [" ".join([*line[:3], "ff:ff" if ".arrow" in line[4] else line[3], line[4]]) for line in maps]
    (tmp_path / "maps").write_text("\n".join(other).replace(str(tmp_path / "kept"), str(path)))
    monkeypatch.setattr(mapped, "_MAPS", str(tmp_path / "maps"))
    told = why_not(dataset)
    assert ("load the dataset again" if changed else "native") in told


def test_image_files_that_change(tmp_path: Path) -> None:
    """Each is read as it is now, as ImageFolder's are."""
    paths = [save(tmp_path / f"{number}.jpg", number) for number in range(6)]
    dataset = of_images(list(paths), tmp_path / "cache").with_transform(OnImages(EXACT))
    loader = FastLoader(dataset, batch_size=3, num_workers=2, engine="native")
    list(loader)
    loader.close()
    save(paths[2], 40)
    assert torch.equal(torch.cat([batch["image"] for batch in loader])[2], dataset[2]["image"])
    loader.close()
    paths[4].unlink()
    with pytest.raises(FileNotFoundError) as told:
        list(loader)
    assert str(paths[4]) in str(told.value)


def test_formats_and_transforms_are_read_at_every_pass(tmp_path: Path) -> None:
    dataset = stored(tmp_path)
    dataset.set_transform(OnImages(EXACT))
    loader = FastLoader(dataset, batch_size=5, num_workers=2)

    def same(engine: str) -> None:
        ours, theirs = [copied(batch) for batch in loader], list(DataLoader(dataset, batch_size=5))
        assert loader.stats()["engine"] == engine
        for one, other in zip(ours, theirs, strict=True):
            assert list(one) == list(other)
            assert all(torch.equal(one[name], other[name]) for name in one if name != "name")

    same("threads")
    files = loader._fastload.read(loader).native.datasets[0].source.data
    dataset.set_transform(OnImages(SMALL, to="pixels"))
    same("threads")
    dataset.set_transform(OnImages(SMALL), columns=["image", "label"])
    same("threads")
    assert loader._fastload.read(loader).native.datasets[0].source.data is files
    dataset.format["format_kwargs"]["transform"].transform = EXACT
    same("threads")
    dataset.set_transform(lambda batch: {"image": [EXACT(each) for each in batch["image"]]})
    same("processes")
    dataset.set_transform(OnImages(EXACT))
    same("threads")


def test_another_dataset_in_a_subset(tmp_path: Path) -> None:
    dataset = stored(tmp_path).with_transform(OnImages(EXACT))
    part = Subset(dataset, range(10))
    loader = FastLoader(part, batch_size=5, num_workers=1, engine="native")
    list(loader)
    part.dataset = dataset.shuffle(seed=3)
    for ours, theirs in zip(loader, DataLoader(part, batch_size=5), strict=True):
        assert torch.equal(ours["image"], theirs["image"])


def test_what_is_learnt_of_a_table_serves_any_rows_of_it(tmp_path: Path) -> None:
    """In the cache: one list for one table, whatever rows and order; another for another table in the same
    file."""
    table = [
        {**row, "image": {"bytes": encoded(photo(n, 480, 640), quality=95), "path": None}}
        for n, row in enumerate(rows(6))
    ]
    dataset = stored(tmp_path / "a", table).with_transform(OnImages(EXACT))

    def known(part: Any) -> tuple[int, int]:
        options: dict[str, Any] = {"num_workers": 1, "engine": "native", "cache": tmp_path / "cache"}
        with FastLoader(part, batch_size=4, **options) as loader:
            listed = loader._fastload.read(loader).native.datasets[0]._listed
            assert listed.files
            before = listed._kept._table.entries()[0]
            list(loader)
            return before, listed._kept._table.entries()[0]

    assert known(dataset.shuffle(seed=1)) == (0, 6)
    assert known(dataset.select([3, 1])) == (6, 6)
    assert len(list((tmp_path / "cache").rglob("*.table"))) == 1
    assert known(dataset.select(range(2, 5))) == (0, 3)
    assert len(list((tmp_path / "cache").rglob("*.table"))) == 2
    again = datasets.load_from_disk(str(tmp_path / "a")).with_transform(OnImages(EXACT))
    assert known(again) == (6, 6)


def test_a_loader_goes_through_pickle_and_fork(tmp_path: Path) -> None:
    loader = FastLoader(
        stored(tmp_path).with_transform(OnImages(EXACT)), batch_size=4, num_workers=2, engine="native"
    )
    first = [copied(batch) for batch in loader]
    again = pickle.loads(pickle.dumps(loader))
    assert all(torch.equal(a["image"], b["image"]) for a, b in zip(first, again, strict=True))
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # as workers do: OpenMP's pool did not come along
        same = all(torch.equal(a["image"], b["image"]) for a, b in zip(first, loader, strict=True))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_resume_in_mid_epoch(tmp_path: Path) -> None:
    dataset = stored(tmp_path).with_transform(
        OnImages([transforms.RandomResizedCrop(24), transforms.ToTensor()])
    )

    def make() -> Any:
        return FastLoader(dataset, batch_size=4, shuffle=True, seed=2, num_workers=2, engine="native")

    whole = [batch["image"] for batch in make()]
    loader = make()
    batches = iter(loader)
    next(batches)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert all(torch.equal(a, b["image"]) for a, b in zip(whole[1:], resumed, strict=True))


def test_no_file_and_no_handle_stays(tmp_path: Path) -> None:
    dataset = stored(tmp_path)
    with none_left("files") as before:
        opened = descriptors()
        loader = assert_as_torch(dataset)
        assert core.live_handles()["files"] == before["files"] + 1
        loader.close()
        assert not opened_since(opened)
        del loader


def places(**changes: Any) -> tuple[Any, ...]:
    parts = {"stamps": [0], "offsets": [0, 1], "sizes": [0, 2], "paths": [0, 0], **changes}
    kinds = {"stamps": np.uint64, "offsets": np.uint64, "sizes": np.uint32, "paths": np.uint32}
    return tuple(np.array(parts[name], kind) for name, kind in kinds.items())


@pytest.mark.parametrize(
    "changes",
    [
        {"stamps": []},
        {"sizes": [1]},
        {"paths": [0, 1]},
        {"sizes": [0, 2**30 + 1]},
        {"offsets": [1, 1]},
        {"offsets": [0, 2**64 - 1]},
    ],
)
def test_places_that_do_not_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"place|stamps"):
        core.Files(b"/none/", b"a\0", 1, 10, places(**changes))


def test_places_are_read_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123")
    name = os.fsencode(tmp_path / "a")
    files = core.Files(name, b"\0", 1, 10, places(stamps=[core.file_stamp(name)]))
    assert (len(files), files.read(0), files.read(1)) == (2, b"0123", b"12")
    with pytest.raises(SampleError):
        files.read(2)
    (tmp_path / "a").write_bytes(b"012345")
    with pytest.raises(DatasetError, match="changed"):
        files.read(1)


REPLACED = {
    "__getitem__": (datasets.Dataset, "__getitem__", "datasets.arrow_dataset.Dataset.__getitem__"),
    "_getitem": (datasets.Dataset, "_getitem", "datasets.arrow_dataset.Dataset._getitem"),
    "query": (datasets.arrow_dataset, "format_table", "datasets.arrow_dataset.format_table"),
    "formatter": (
        datasets.formatting.formatting.CustomFormatter,
        "format_batch",
        "datasets.formatting.formatting.CustomFormatter.format_batch",
    ),
    "decoding": (datasets.Image, "decode_example", "datasets.features.image.Image.decode_example"),
    "OnImages": (OnImages, "_one", "fastload.dataset.in_place.hugging_face.OnImages._one"),
}


@pytest.mark.parametrize("case", REPLACED)
def test_replaced_code_of_the_library_runs(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset is then read as it is, in Python, and natively when the function is put back."""
    owner, name, path = REPLACED[case]
    dataset = stored(tmp_path).with_transform(OnImages(EXACT))
    original, called = getattr(owner, name), []

    def counted(*args: Any, **options: Any) -> Any:
        called.append(args)
        return original(*args, **options)

    with FastLoader(dataset, 4, num_workers=0) as loader:
        assert loader.stats()["engine"] == "threads"
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, counted)
            list(loader)
            assert called
            assert f"{path} was replaced" in loader.explain(all=True)
        list(loader)
        assert loader.stats()["engine"] == "threads"
