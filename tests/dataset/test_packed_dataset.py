"""PackedDataset as an ordinary Dataset: indexing, columns, pickling, seeds, and pixels against Pillow."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from fastload import PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError, DatasetError, SampleError

pytestmark = pytest.mark.usefixtures("no_leaks")


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.jpg"))


def test_samples_are_the_files(packed: Path, image_folder: Path) -> None:
    """ds[i] is file i's pixels as Pillow decodes them, in CHW order, with its class's number."""
    ds = PackedDataset(packed)
    files = files_of(image_folder)
    assert len(ds) == len(files)
    assert ds.classes == ["class0", "class1", "class2"]
    assert ds.class_to_idx == {"class0": 0, "class1": 1, "class2": 2}
    for i, file in enumerate(files):
        image, label = ds[i]
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        assert np.array_equal(image.numpy(), np.asarray(Image.open(file)).transpose(2, 0, 1))
        assert type(label) is int
        assert ds.classes[label] == file.parent.name


def test_indexing(packed: Path) -> None:
    """Negative indices, slices, lists by __getitems__, and IndexError past the ends."""
    ds = PackedDataset(packed, transform=T.CenterCrop(32), seed=0)
    assert torch.equal(ds[-1][0], ds[len(ds) - 1][0])
    part = ds[5:20:3]
    assert isinstance(part, Subset)
    assert len(part) == 5
    assert torch.equal(part[1][0], ds[8][0])
    assert [label for _, label in ds.__getitems__([1, 2])] == [ds[1][1], ds[2][1]]
    assert torch.equal(ds[np.int64(3)][0], ds[3][0])
    for bad in (len(ds), -len(ds) - 1):
        with pytest.raises(IndexError, match="out of range for 50 samples"):
            ds[bad]


def test_columns(packed: Path) -> None:
    """column(name) is all values, read-only; unknown names are errors."""
    ds = PackedDataset(packed)
    assert ds.column("label").tolist() == [ds[i][1] for i in range(len(ds))]
    assert not ds.column("label").flags.writeable
    assert ds.column("__height__")[4] == ds[4][0].shape[1]
    with pytest.raises(ArgumentError, match="nothing"):
        ds.column("nothing")
    with pytest.raises(ArgumentError, match="no field 'nothing'"):
        PackedDataset(packed, fields=["nothing"])


def test_pickles_by_path(packed: Path) -> None:
    """A pickle is small, reopens by path, and keeps transform, seed and epoch."""
    ds = PackedDataset(packed, transform=[T.RandomResizedCrop(40)], seed=7)
    ds.set_epoch(3)
    ds[0]
    data = pickle.dumps(ds)
    assert len(data) < 2000
    assert torch.equal(pickle.loads(data)[9][0], ds[9][0])


def test_seeds(packed: Path) -> None:
    """With a seed a sample repeats and epochs differ; without one, torch.manual_seed governs the draws."""
    ds = PackedDataset(packed, transform=[T.RandomResizedCrop(40)], seed=7)
    first = ds[0][0]
    assert torch.equal(first, ds[0][0])
    ds.set_epoch(1)
    assert not torch.equal(first, ds[0][0])
    free = PackedDataset(packed, transform=[T.RandomResizedCrop(40)])
    torch.manual_seed(1)
    a, b = free[0][0], free[0][0]
    torch.manual_seed(1)
    assert torch.equal(a, free[0][0])
    assert not torch.equal(a, b)


def pillow_crop(
    file: Path, box: tuple[int, int, int, int], size: tuple[int, int], resample: Image.Resampling
) -> np.ndarray:
    x, y, w, h = box
    return np.asarray(Image.open(file).crop((x, y, x + w, y + h)).resize(size, resample)).astype(int)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_random_resized_crop_is_pillows_crop_and_resize(
    packed: Path, image_folder: Path, interpolation: str, flip: float
) -> None:
    """Crop, antialiased resize and flip equal Pillow's on the same box, within 1, when the decoder does
    not scale."""
    transform = [
        T.RandomResizedCrop(48, interpolation=interpolation, dct_scale=False),
        T.RandomHorizontalFlip(flip),
    ]
    ds = PackedDataset(packed, transform=transform, seed=2)
    for i, file in enumerate(files_of(image_folder)[:25]):
        height, width = int(ds.column("__height__")[i]), int(ds.column("__width__")[i])
        box = ds.plan.program.resolve(width, height, 2, 0, i)["box"]
        expected = pillow_crop(file, box, (48, 48), Image.Resampling[interpolation.upper()])
        if flip:
            expected = expected[:, ::-1]
        assert np.abs(ds[i][0].permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_resize_then_center_crop_is_pillows(packed: Path, image_folder: Path) -> None:
    """Resize(80) + CenterCrop(64), of which only the needed part is decoded, equals the whole resized and
    cropped, within 1."""
    ds = PackedDataset(packed, transform=[T.Resize(80, dct_scale=False), T.CenterCrop(64)])
    for i, file in enumerate(files_of(image_folder)[:25]):
        image = Image.open(file)
        short, long = sorted(image.size)
        new_long = int(80 * long / short)
        size = (80, new_long) if image.width <= image.height else (new_long, 80)
        whole = np.asarray(image.resize(size, Image.Resampling.BILINEAR)).astype(int)
        x, y = round((size[0] - 64) / 2.0), round((size[1] - 64) / 2.0)
        assert (
            np.abs(ds[i][0].permute(1, 2, 0).numpy().astype(int) - whole[y : y + 64, x : x + 64]).max() <= 1
        )


def test_window_of_a_resize_equals_the_whole(packed: Path) -> None:
    """Decoding only what a window needs changes no byte, at any DCT scale."""
    whole = PackedDataset(packed, transform=T.Resize((70, 90)))
    window = PackedDataset(packed, transform=[T.Resize((70, 90)), T.CenterCrop((31, 40))])
    for i in range(len(whole)):
        y, x = round((70 - 31) / 2.0), round((90 - 40) / 2.0)
        assert torch.equal(window[i][0], whole[i][0][:, y : y + 31, x : x + 40])


def test_dct_scale_stays_close(packed: Path) -> None:
    """The decoder's own downscale differs from a full decode by what a different low-pass may: little, on
    average."""
    exact = PackedDataset(packed, transform=T.Resize((32, 32), dct_scale=False))
    fast = PackedDataset(packed, transform=T.Resize((32, 32)))
    differences = [(exact[i][0].float() - fast[i][0].float()).abs().mean().item() for i in range(len(exact))]
    assert max(differences) < 3.0


def test_padding_and_unresized_crops(packed_same_size: Path) -> None:
    """CenterCrop beyond the image pads with black, RandomCrop with its fill; the rest are the image's own
    pixels."""
    plain = PackedDataset(packed_same_size)
    centre = PackedDataset(packed_same_size, transform=T.CenterCrop(90))
    crop = PackedDataset(
        packed_same_size,
        transform=[T.RandomCrop((60, 80), padding=7, fill=(9, 8, 7)), T.RandomVerticalFlip()],
        seed=1,
    )
    for i in range(10):
        image = plain[i][0]
        padded = torch.zeros(3, 90, 90, dtype=torch.uint8)
        padded[:, 15:75, 5:85] = image
        assert torch.equal(centre[i][0], padded)
        g = crop.plan.program.resolve(80, 60, 1, 0, i)
        x, y = g["window"][:2]
        canvas = torch.tensor([9, 8, 7], dtype=torch.uint8).view(3, 1, 1).expand(3, 74, 94).clone()
        canvas[:, 7:67, 7:87] = image
        expected = canvas[:, y + 7 : y + 67, x + 7 : x + 87]
        assert torch.equal(crop[i][0], expected.flip(1) if g["vflip"] else expected)


def test_errors_name_the_path(tmp_path: Path, packed: Path) -> None:
    """No dataset there, or a crop that cannot fit: what, where, and what to do."""
    with pytest.raises(DatasetError, match="nowhere"):
        PackedDataset(tmp_path / "nowhere")
    with pytest.raises(SampleError, match=r"sample 0 of .*RandomCrop\(5000, 5000\) is larger"):
        PackedDataset(packed, transform=T.RandomCrop(5000), seed=1)[0]
