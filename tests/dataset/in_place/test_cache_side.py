"""cache_side=: images in place are made smaller once, and are the same from then on."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_place_helpers import EXACT
from kept_helpers import COUNT, expected, images, kept_of, loader_of, log_of, logs_are_cut, of_kind
from pictures import photo
from PIL import Image
from torchvision import datasets, transforms
from typer.testing import CliRunner

from fastload import FastLoader, PackedDataset
from fastload.cli.main import app
from fastload.dataset.in_place import listed
from fastload.errors import ArgumentError
from fastload.packing import pack

SIDE = 100


def whole(tree: Path, cache: Path, height: int, width: int) -> torch.Tensor:
    """The smaller images, which have that size."""
    steps = transforms.Compose([transforms.CenterCrop((height, width)), transforms.PILToTensor()])
    dataset = datasets.ImageFolder(str(tree), steps)
    options: dict[str, Any] = {"num_workers": 2, "engine": "native", "cache": cache, "cache_side": SIDE}
    with FastLoader(dataset, **options) as loader:
        return images(loader)


def one_folder(root: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = root / "class" / name.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def saved(image: Image.Image, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).int()


def by_hand(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """What people make with Pillow: resized to the shorter side; and then saved as a JPEG of quality 95."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    shorter = min(image.size)
    small = image.resize([length * SIDE // shorter for length in image.size], Image.Resampling.BILINEAR)
    return tensor(small), tensor(Image.open(io.BytesIO(saved(small, "JPEG", quality=95))))


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.int() - other.int()).abs().float().mean())


def check(found: torch.Tensor, data: bytes) -> None:
    """It is as near to the resized image as Pillow's JPEG of that."""
    small, wanted = by_hand(data)
    assert found.shape == wanted.shape
    assert apart(found, small) <= 1.05 * apart(wanted, small)
    assert apart(found, wanted) <= apart(wanted, small)


@pytest.mark.parametrize("kind", ["JPEG", "progressive", "grey", "PNG", "WEBP", "tall"])
def test_an_image_is_the_one_that_is_made_by_hand(kind: str, tmp_path: Path) -> None:
    image = photo(3, 200, 330) if kind != "tall" else photo(3, 700, 101)
    data = {
        "progressive": lambda: saved(image, "JPEG", quality=90, progressive=True),
        "grey": lambda: saved(image.convert("L"), "JPEG", quality=90),
        "tall": lambda: saved(image, "JPEG", quality=90),
    }.get(kind, lambda: saved(image, kind))()
    name = {"PNG": "a_png", "WEBP": "a_webp"}.get(kind, "a_jpg")
    tree = one_folder(tmp_path / "tree", **{name: data})
    (found,) = whole(tree, tmp_path / "cache", *by_hand(data)[0].shape[1:])
    check(found, data)


def test_the_same_from_the_first_epoch_on(tree: Path, tmp_path: Path) -> None:
    """While they are made, from the cache, in another run, and where there is room for none."""
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        first = images(loader)
        assert torch.equal(images(loader), first)
        assert kept_of(loader)._table.entries()[2] == COUNT
        text = loader.explain(all=True)
    assert f"{COUNT} of {COUNT} images are there at {SIDE} pixels" in text.replace("\n", " ")
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        assert torch.equal(images(loader), first)
        assert kept_of(loader)._table.counts()["forms_found"] >= COUNT
    with loader_of(tree, tmp_path / "full", cache_side=SIDE, cache_size=0) as loader:
        assert torch.equal(images(loader), first)
    assert not torch.equal(first, expected(tree))


def test_what_is_small_enough_stays(tree: Path, tmp_path: Path) -> None:
    """Shorter sides of 480 pixels; one more makes no difference, one less does."""
    plain = expected(tree)
    for side, same in ((480, True), (481, True), (479, False)):
        with loader_of(tree, tmp_path / "cache", cache_side=side) as loader:
            assert torch.equal(images(loader), plain) is same


def test_caches_of_several_sides_are_apart(tree: Path, tmp_path: Path) -> None:
    """In one cache folder, beside the files' own forms, which are found as before."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache) as loader:
        plain = images(loader)
    found = {}
    for _ in range(2):
        for side in (64, 128):
            with loader_of(tree, cache, cache_side=side) as loader:
                assert torch.equal(found.setdefault(side, images(loader)), images(loader))
        with loader_of(tree, cache) as loader:
            assert torch.equal(images(loader), plain)
    assert not torch.equal(found[64], found[128])
    result = CliRunner().invoke(app, ["cache", "--cache", str(cache)])
    assert [side for side in (64, 128) if f"tree at {side} pixels" in result.output] == [64, 128]
    assert CliRunner().invoke(app, ["cache", "--cache", str(cache), "--verify"]).exit_code == 0


def test_a_changed_file_is_made_anew(tree: Path, tmp_path: Path) -> None:
    whole(tree, tmp_path / "cache", SIDE, 133)
    path = tree / "class0" / "0.jpg"
    photo(77, 480, 640).save(path, quality=95)
    check(whole(tree, tmp_path / "cache", SIDE, 133)[0], path.read_bytes())


def test_damaged_bytes_are_made_anew(tree: Path, tmp_path: Path) -> None:
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        first = images(loader)
    (log,) = of_kind(tmp_path / "cache", "log")
    data = bytearray(log.read_bytes())
    data[:: len(data) // 50] = bytes(len(data[:: len(data) // 50]))
    log.write_bytes(data)
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        assert torch.equal(images(loader), first)


def test_files_of_a_slow_disk(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read once; later epochs read what was made of it, and its bytes are given back."""
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        first = images(loader)
        assert logs_are_cut(tmp_path / "cache")
    small = log_of(tmp_path / "cache").stat().st_size
    assert 0 < small < 0.5 * sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    for path in tree.rglob("*.jpg"):
        when, size = path.stat().st_mtime_ns, path.stat().st_size
        path.write_bytes(bytes(size))
        os.utime(path, ns=(when, when))
    with loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader:
        assert torch.equal(images(loader), first)


def test_a_broken_file_is_an_error_of_its_own(tree: Path, tmp_path: Path) -> None:
    """As without: the dataset's own loader says what is wrong with it."""
    path = tree / "class0" / "0.jpg"
    path.write_bytes(path.read_bytes()[:-2000])
    with (
        loader_of(tree, tmp_path / "cache", cache_side=SIDE) as loader,
        pytest.raises(OSError, match="truncated"),
    ):
        images(loader)


def test_refused(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(ArgumentError, match=r"cache_side=64 needs a folder: give cache="):
        loader_of(tree, None, cache_side=64)
    for side in (0, -1, True, 2.5, 1 << 17):
        with pytest.raises(
            ArgumentError, match=f"cache_side={side!r} is no number of pixels from 1 to 65,536"
        ):
            loader_of(tree, cache, cache_side=side)
    dataset = datasets.ImageFolder(str(tree), lambda image: EXACT(image))
    with pytest.raises(ArgumentError, match="cache_side= is for images in place on native threads: "):
        FastLoader(dataset, cache=cache, cache_side=64)
    with pytest.raises(ArgumentError, match="was asked for"):
        FastLoader(datasets.ImageFolder(str(tree), EXACT), cache=cache, cache_side=64, engine="python")
    pack(tree, tmp_path / "tree.fl")
    with pytest.raises(ArgumentError, match="packed images have the size that they were packed with"):
        FastLoader(PackedDataset(tmp_path / "tree.fl"), cache=cache, cache_side=64)
