"""A folder of class folders is a dataset for the commands that look at one: attached in memory, and
nothing of it is left."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pictures import photo
from PIL import Image
from typer.testing import CliRunner

from fastload import PackedDataset, pack
from fastload.cli.main import app
from fastload.errors import PackError
from fastload.packing.in_memory import in_memory

JPEGS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of photographs."""
    for number in range(2 * JPEGS):
        path = tmp_path / "photos" / "ab"[number // JPEGS] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, 60, 80).save(path)
    return tmp_path / "photos"


def test_it_is_the_folder(folder: Path) -> None:
    """Samples and classes are the folder's; at the end of the block the dataset is gone, and the folder is
    as it was."""
    before = sorted(folder.rglob("*"))
    with in_memory(str(folder)) as found, closing(PackedDataset(found.path)) as dataset:
        assert dataset.classes == ["a", "b"]
        assert [dataset[index][1] for index in range(len(dataset))] == [0] * JPEGS + [1] * JPEGS
        assert found.said == f"{folder}: class folders, 12 images; attached in memory, nothing is written"
        assert Path(found.path).is_relative_to("/dev/shm")
        path = found.path
    assert not Path(path).parent.exists()
    assert sorted(folder.rglob("*")) == before


def test_as_many_as_there_is_memory_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JPEGs stay in their files; the pixels of other images are held, so fewer of those are taken: evenly,
    of each class."""
    with in_memory(str(folder), 4) as found, closing(PackedDataset(found.path)) as dataset:
        assert [dataset[index][1] for index in range(len(dataset))] == [0, 0, 1, 1]
        assert "4 images of 12, evenly spaced" in found.said
    for path in folder.rglob("*.jpg"):
        Image.open(path).save(path.with_suffix(".png"))
        path.unlink()
    monkeypatch.setattr("fastload.packing.in_memory.PIXEL_BYTES", 3 * 4 * 60 * 80)
    with in_memory(str(folder)) as found, closing(PackedDataset(found.path)) as dataset:
        assert len(dataset) == 3
        assert np.array_equal(
            np.asarray(dataset[0][0]), np.asarray(Image.open(folder / "a" / "00.png")).transpose(2, 0, 1)
        )


def test_what_it_leaves_alone(folder: Path, tmp_path: Path) -> None:
    """Packed datasets, URLs, and folders without class folders are given back as they are; half a class is
    an error as of `pack`."""
    pack(folder, tmp_path / "d.fl", progress=False)
    (tmp_path / "no images" / "below").mkdir(parents=True)
    for path in (tmp_path / "d.fl", tmp_path / "no images", tmp_path / "nothing", "s3://bucket/d.fl"):
        with in_memory(str(path)) as found:
            assert found == (str(path), "")
    (folder / "c").mkdir()
    with pytest.raises(PackError, match="no image in the class folder c"), in_memory(str(folder)):
        pass


@pytest.mark.long
def test_commands(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """view and doctor take it, under its own name, and write nothing; bench and tune name it in what they
    print."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    shown = runner.invoke(app, ["view", "photos", "--html", "out.html"])
    assert shown.exit_code == 0, shown.output
    assert "12 samples: out.html" in shown.output
    assert "photos" in Path("out.html").read_text()
    assert "/dev/shm" not in Path("out.html").read_text()
    examined = runner.invoke(app, ["doctor", "photos", "--json"])
    assert '"photos: class folders, 12 images; attached in memory, nothing is written"' in examined.output
    tuned = runner.invoke(app, ["tune", "photos", "--seconds", "1", "--batch-size", "4"])
    assert 'FastLoader(ImageFolder("photos", transform), batch_size=4' in tuned.output, tuned.output
    benched = runner.invoke(app, ["bench", "photos", "--rounds", "1", "--seconds", "0", "--batch-size", "4"])
    assert "torch DataLoader + Pillow" in benched.output, benched.output
    assert sorted(os.listdir()) == ["out.html", "photos"]
