"""Places of images (fastload/sources): the bytes at a place are the image that the source reads."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_helpers import encoded, picture, tree

from fastload.packing import open_source
from fastload.sources import Placed, Source

JPEG = encoded(picture(0, 24, 32))


def bytes_at_places(source: Source) -> list[bytes]:
    """The bytes at the place of each sample, each checked to be the image that `read` gives."""
    assert isinstance(source, Placed)
    out = []
    for position in range(len(source)):
        place = source.place(position)
        assert place is not None
        with open(place.path, "rb") as file:
            file.seek(place.offset)
            data = file.read(place.size)
        assert data == source.read(position).image, f"{source.name(position)}: {place}"
        out.append(data)
    return out


def test_a_folder_and_a_table(tmp_path: Path) -> None:
    """The place of an image in a file of its own is the whole file, also behind a link."""
    images = {
        f"{c}/{i}.{e}": encoded(picture(i, 20, 20 + i), f)
        for i, (c, e, f) in enumerate([("a", "jpg", "JPEG"), ("b", "png", "PNG")])
    }
    tree(tmp_path / "src", images)
    (tmp_path / "src" / "b" / "link.jpg").symlink_to(tmp_path / "src" / "a" / "0.jpg")
    assert bytes_at_places(open_source(tmp_path / "src")) == [
        images["a/0.jpg"],
        images["b/1.png"],
        images["a/0.jpg"],
    ]
    (tmp_path / "src" / "list.csv").write_text("path,label\nb/1.png,1\na/0.jpg,0\n")
    assert bytes_at_places(open_source(tmp_path / "src" / "list.csv")) == [
        images["b/1.png"],
        images["a/0.jpg"],
    ]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """It has no place, as it cannot be read."""
    tree(tmp_path, {"a.jpg": JPEG})
    (tmp_path / "list.csv").write_text("path,label\na.jpg,1\ngone.jpg,2\n")
    source = open_source(tmp_path / "list.csv")
    assert isinstance(source, Placed)
    with pytest.raises(FileNotFoundError):
        source.place(1)


@given(
    names=st.lists(st.text(alphabet="aüx", max_size=300), min_size=1, max_size=5),
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    sizes=st.lists(st.integers(0, 1600), min_size=5, max_size=5),
)
@settings(max_examples=60)
def test_a_tar(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], form: int, sizes: list[int]
) -> None:
    """In tars of any format, with long names and members of any size, in several shards."""
    root = tmp_path_factory.mktemp("tar")
    images = [os.urandom(size) for size in sizes[: len(names)]]
    for shard in range(2):
        with tarfile.open(root / f"{shard}.tar", "w", format=form) as tar:
            for number, (name, image) in enumerate(zip(names, images, strict=True)):
                stem = f"d/{number}{name[:40] if form == tarfile.USTAR_FORMAT else name}"
                for extension, data in (("cls", b"%d" % number), ("jpg", image), ("json", b"{}")):
                    entry = tarfile.TarInfo(f"{stem}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
    assert bytes_at_places(open_source([str(root / "0.tar"), str(root / "1.tar")])) == images * 2
