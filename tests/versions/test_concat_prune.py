"""concat: several datasets as one by reference. prune: old versions given up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_append import _folders
from versions_helpers import CLASSES, Shapes, check_shapes, check_whole, packed, samples

import fastload
from fastload.errors import ArgumentError, DatasetError, PackError
from fastload.store import DatasetReader, DatasetRewriter, Manifest


def test_concat_of_concat(tmp_path: Path) -> None:
    """Samples of all, in order, from their own files; references to references lead to the files; the
    folders move together."""
    a, b, c = (
        packed(tmp_path / "x" / "a", 0, 9),
        packed(tmp_path / "x" / "deep" / "b", 9, 4),
        packed(tmp_path / "x" / "c", 13, 5),
    )
    fastload.drop(b, indices=[0, 2])
    ab = tmp_path / "x" / "ab"
    assert fastload.concat([a, b], ab).samples == 11
    assert os.listdir(ab) == ["manifest.json"]
    out = tmp_path / "x" / "other" / "abc"
    summary = fastload.concat([ab, c, a], out)
    expected = [*range(9), 10, 12, *range(13, 18), *range(9)]
    assert (summary.samples, summary.shards) == (len(expected), 4)
    assert {shard.folder for shard in Manifest.load(out).shards} == {"../../a", "../../deep/b", "../../c"}
    check_shapes(out, expected)
    check_whole(out)
    shutil.rmtree(ab)
    (tmp_path / "x").rename(tmp_path / "moved")
    check_shapes(tmp_path / "moved" / "other" / "abc", expected)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "moved" / "other" / "abc")
    check_shapes(tmp_path / "elsewhere" / "link", expected)


def test_concat_is_changed_by_itself(tmp_path: Path) -> None:
    """What is made of several can be appended to, given columns, dropped from and pruned: the others'
    files stay as they are."""
    a, b = packed(tmp_path / "a", 0, 6), packed(tmp_path / "b", 6, 6)
    files = {path: path.read_bytes() for folder in (a, b) for path in folder.iterdir()}
    out = tmp_path / "out"
    fastload.concat([a, b], out)
    fastload.append(out, Shapes(12, 3))
    (tmp_path / "more.csv").write_text("rank\n" + "".join(f"{number}\n" for number in range(15)))
    fastload.add_columns(out, tmp_path / "more.csv")
    fastload.drop(out, where="rank % 5 = 0")
    left = [number for number in range(15) if number % 5]
    check_shapes(out, left)
    assert [sample["rank"] for sample in samples(out)] == left
    fastload.append(a, Shapes(50, 1))
    fastload.drop(b, indices=[0])
    fastload.prune(out)
    check_shapes(out, left)
    check_whole(out)
    assert all(path.read_bytes() == data for path, data in files.items() if path.name != "manifest.json")
    with (
        pytest.raises(PackError, match=r"lies in \.\./a, another dataset's folder"),
        DatasetRewriter(out, "") as rewriter,
    ):
        with rewriter.shard(0) as shard:
            shard.replace(0, b"", 0)
    packed(out, 0, 2, overwrite=True)
    assert all(path.exists() for path in files)


def test_concat_refused(tmp_path: Path) -> None:
    """Other fields, other classes, one dataset alone, an OUT in the way: said, and nothing is made."""
    a = packed(tmp_path / "a", 0, 3)
    fastload.pack(_folders(tmp_path / "src", "cd", 0), tmp_path / "photos")
    fastload.pack(Shapes(0, 3, [*CLASSES, "fox"]), tmp_path / "more")
    fastload.pack(Shapes(0, 3, ["cat", "eel", "dog"]), tmp_path / "turned")
    assert fastload.concat([a, tmp_path / "more"], tmp_path / "good").samples == 6
    assert Manifest.load(tmp_path / "good").classes == (*CLASSES, "fox")
    cases: list[tuple[list[Path], Path, str]] = [
        ([a, tmp_path / "photos"], tmp_path / "out", "the field 'weight' is only in"),
        ([a, tmp_path / "turned"], tmp_path / "out", "their classes differ"),
        ([a], tmp_path / "out", "two or more"),
        ([a, a], tmp_path / "more", "already holds a packed dataset"),
        ([a, a], tmp_path / "src", r"holds other files \(c"),
    ]
    for datasets, out, match in cases:
        with pytest.raises(PackError, match=match):
            fastload.concat(datasets, out)
    with pytest.raises(DatasetError, match="there is no"):
        fastload.concat([a, tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_lost_reference(tmp_path: Path) -> None:
    """A dataset whose files are gone is named by its folder when it is opened, and by verify."""
    a, b = packed(tmp_path / "a", 0, 3), packed(tmp_path / "b", 3, 3)
    fastload.concat([a, b], tmp_path / "out")
    shutil.rmtree(b)
    with pytest.raises(DatasetError, match=r"shard-00000\.lmdb is missing"):
        DatasetReader(tmp_path / "out")
    assert any("../b" in problem for problem in fastload.packing.verify(tmp_path / "out").problems)


def test_prune(tmp_path: Path) -> None:
    """Old versions and the files that only they have are gone; what remains is whole; files of other names
    stay."""
    out = packed(tmp_path / "ds", 0, 10)
    (out / "README.md").write_text("mine")
    (tmp_path / "more.csv").write_text("rank\n" + "3\n" * 10)
    fastload.add_columns(out, tmp_path / "more.csv")
    fastload.drop_columns(out, "rank")
    fastload.drop(out, indices=[0])
    fastload.append(out, Shapes(10, 2))
    assert Manifest.load(out).version == 5
    summary = fastload.prune(out, keep=2)
    assert summary.versions == (1, 2, 3)
    assert summary.bytes > 80
    assert not (out / "values-00000.bin").exists()
    check_shapes(out, list(range(1, 12)))
    check_shapes(out, list(range(1, 10)), version=4)
    with pytest.raises(DatasetError, match=r"no version 2 \(any more\): it has 4, 5"):
        fastload.PackedDataset(out, version=2)
    assert fastload.prune(out).versions == (4,)
    assert fastload.prune(out).versions == ()
    check_whole(out)
    shards = [shard.file for shard in Manifest.load(out).shards]
    assert sorted(os.listdir(out)) == sorted(
        ["README.md", "index-00000.bin", "index-00001.bin", "manifest.json", "rows-00000.bin", *shards]
    )
    for keep in (0, True, 1.5):
        with pytest.raises(ArgumentError, match="keep="):
            fastload.prune(out, keep=keep)  # type: ignore[arg-type]


def test_pruned_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens the latest version, which is changed and pruned between its manifest and its files, gets the
    one that is latest then; who asked for that version by its number is told that it is gone."""
    out = packed(tmp_path / "ds", 0, 4)
    fastload.drop(out, indices=[0])
    load = Manifest.load

    def changed_after(path: Path, version: int | None = None) -> Manifest:
        found = load(path, version)
        monkeypatch.setattr(Manifest, "load", load)
        fastload.drop(out, indices=[0])
        fastload.prune(out)
        return found

    for version in (None, 3):
        monkeypatch.setattr(Manifest, "load", changed_after)
        if version is None:
            with DatasetReader(out) as reader:
                assert (reader.manifest.version, len(reader), reader.column("label").tolist()) == (
                    3,
                    2,
                    [2, 0],
                )
        else:
            with pytest.raises(DatasetError, match=r"no version 3 \(any more\)"):
                DatasetReader(out, version)


def test_prune_follows_no_folder(tmp_path: Path) -> None:
    """Files of a folder that a manifest names, or a link into it, are never removed."""
    a = packed(tmp_path / "a", 0, 4)
    out = tmp_path / "out"
    fastload.concat([a, a], out)
    fastload.append(out, Shapes(4, 2))
    (out / "append.tmp").symlink_to(a)
    fastload.prune(out)
    assert not (out / "append.tmp").exists()
    check_shapes(a, [0, 1, 2, 3])
    check_shapes(out, [*range(4), *range(4), 4, 5])


def test_damaged_older_version(tmp_path: Path) -> None:
    """An older version whose manifest is damaged stops whoever would have to know its files, and prune
    gives it up."""
    out = packed(tmp_path / "ds", 0, 4)
    fastload.drop(out, indices=[0])
    fastload.drop(out, indices=[0])
    (out / "manifest-00002.json").write_bytes(b"{}")
    (out / "shard-00077.lmdb").write_bytes(b"left over")
    with pytest.raises(DatasetError, match=r"manifest-00002\.json .*fastload prune"):
        fastload.drop(out, indices=[0])
    assert (out / "shard-00077.lmdb").exists()
    assert fastload.prune(out).versions == (1, 2)
    assert not (out / "shard-00077.lmdb").exists()
    check_shapes(out, [2, 3])


def test_everything_reads_a_changed_dataset(tmp_path: Path) -> None:
    """targets, table, where, unpack, export, FastLoader on threads and on processes, and a spawned worker:
    all agree."""
    a, b = packed(tmp_path / "a", 0, 8), packed(tmp_path / "b", 8, 8)
    out = tmp_path / "out"
    fastload.concat([a, b], out)
    fastload.append(out, Shapes(16, 4))
    (tmp_path / "more.csv").write_text(
        "note,rank\n" + "".join(f"n{number},{number}\n" for number in range(20))
    )
    fastload.add_columns(out, tmp_path / "more.csv")
    fastload.drop_columns(out, "weight", "rank")
    fastload.drop(out, where="note in ('n1', 'n9', 'n17')")
    left = [number for number in range(20) if number not in (1, 9, 17)]
    resize = [fastload.transforms.Resize((8, 8))]
    ds = fastload.PackedDataset(out, resize)
    assert ds.targets == [number % 3 for number in left]
    assert ds.table()["note"].to_pylist() == [f"n{number}" for number in left]
    assert list(ds.where("meta->>'$.number' = '4'").indices) == [left.index(4)]
    engines: list[dict[str, Any]] = [
        {"num_workers": 2},
        {"num_workers": 2, "engine": "python"},
        {"num_workers": 1, "engine": "python", "multiprocessing_context": "spawn"},
    ]
    for options in engines:
        loader: Any = fastload.FastLoader(ds, batch_size=5, **options)
        batches = list(loader)
        assert [note for batch in batches for note in batch["note"]] == [f"n{number}" for number in left]
        assert [int(image[0, 0, 0]) for batch in batches for image in batch["image"]] == left
    assert fastload.packing.unpack(out, tmp_path / "files").files == len(left)
    assert (tmp_path / "files" / "fields.jsonl").read_text().count('"note": "n') == len(left)
    assert fastload.export(out, tmp_path / "all.parquet").samples == len(left)
    fastload.pack(tmp_path / "all.parquet", tmp_path / "again")
    assert [sample["note"] for sample in samples(tmp_path / "again")] == [f"n{number}" for number in left]
