"""Changes of datasets whose images stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_append import _folders

import fastload
from fastload.errors import ArgumentError
from fastload.packing import verify


def images(path: Path) -> list[Any]:
    """Every image, decoded."""
    ds = fastload.PackedDataset(path, fields=["image", "label"])
    return [ds[index][0] for index in range(len(ds))]


def test_attached_and_changed(tmp_path: Path) -> None:
    """Appended to, given a column, dropped from, joined with a packed dataset and pruned, it has the
    images of their files."""
    a, b = _folders(tmp_path / "x" / "a", "cd", 0), _folders(tmp_path / "x" / "deep" / "b", "de", 50)
    fastload.pack(a, tmp_path / "packed-a")
    fastload.pack(b, tmp_path / "packed-b")
    expected = [*images(tmp_path / "packed-a"), *images(tmp_path / "packed-b")]
    out = tmp_path / "y" / "attached"
    fastload.attach(a, out)
    fastload.append(out, b)
    assert sum(file.stat().st_size for file in out.glob("*.lmdb")) < 1 << 20
    (tmp_path / "more.csv").write_text("rank\n" + "".join(f"{number}\n" for number in range(12)))
    fastload.add_columns(out, tmp_path / "more.csv")
    fastload.drop(out, where="rank = 0 or rank = 7")
    expected = [image for number, image in enumerate(expected) if number not in (0, 7)]
    fastload.drop_columns(out, "rank")
    fastload.concat([out, tmp_path / "packed-a"], tmp_path / "deep" / "er" / "both")
    expected += images(tmp_path / "packed-a")
    both = tmp_path / "deep" / "er" / "both"
    for path, wanted in ((out, expected[:10]), (both, expected)):
        found = images(path)
        assert len(found) == len(wanted)
        assert all(bool((one == other).all()) for one, other in zip(found, wanted, strict=True))
        assert verify(path, decode=True, workers=1).ok
    (tmp_path / "link").symlink_to(both)
    assert len(images(tmp_path / "link")) == 16
    fastload.prune(out)
    resize = [fastload.transforms.Resize((8, 8))]
    loader: Any = fastload.FastLoader(fastload.PackedDataset(both, resize), batch_size=4, num_workers=2)
    assert [label for _, labels in loader for label in labels.tolist()] == [0] * 2 + [1] * 3 + [1] * 2 + [
        2
    ] * 3 + [0] * 3 + [1] * 3


@pytest.mark.parametrize(
    "option",
    [
        {"encode": "jpeg"},
        {"encode": "lossless"},
        {"max_side": 16},
        {"optimize_huffman": True},
        {"quality": 50},
    ],
)
def test_options_that_change_images(tmp_path: Path, option: dict[str, Any]) -> None:
    """An append to attached images refuses them, since the images stay as they are; what they already are
    may be named."""
    source = _folders(tmp_path / "a", "cd", 0)
    fastload.attach(source, tmp_path / "out")
    with pytest.raises(ArgumentError, match="leaves images as they are: append without"):
        fastload.append(tmp_path / "out", source, **option)
    assert (
        fastload.append(tmp_path / "out", source, encode="keep", check="structure", index=False).samples == 12
    )
