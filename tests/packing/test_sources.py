"""Each source: its order, its labels, its fields, and what it says of what it cannot take."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing_helpers import encoded, picture, stored_samples, tree

from fastload.errors import PackError
from fastload.packing import open_source, pack
from fastload.sources.tar import expand
from fastload.store import Manifest

JPEG = encoded(picture(0, 24, 32))


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


class TestFolder:
    def test_order_is_that_of_sorted_walks(self, tmp_path: Path) -> None:
        """Classes by name, folders in the order of os.walk sorted, files by name; only image extensions,
        in any case."""
        names = [
            "b/2.jpg",
            "b/10.jpg",
            "b/z/1.JPEG",
            "b/a/9.png",
            "a/x.jpg",
            "a/notes.txt",
            "Z/1.webp",
            "b/a.ppm",
        ]
        source = open_source(tree(tmp_path, dict.fromkeys(names, JPEG)))
        order = ["Z/1.webp", "a/x.jpg", "b/10.jpg", "b/2.jpg", "b/a.ppm", "b/a/9.png", "b/z/1.JPEG"]
        assert [os.path.relpath(source.name(i), tmp_path) for i in range(len(source))] == order
        assert source.classes == ("Z", "a", "b")
        assert [source.read(i).values["label"] for i in range(len(source))] == [0, 1, 2, 2, 2, 2, 2]

    def test_it_sees_what_imagefolder_sees(self, tmp_path: Path) -> None:
        """The same samples and labels, in the same order, as torchvision's class, where that is installed."""
        datasets = pytest.importorskip("torchvision.datasets")
        tree(tmp_path, dict.fromkeys(["b/2.jpg", "b/10.jpg", "b/z/1.JPEG", "a/x.jpg", "C/1.webp"], JPEG))
        theirs = datasets.ImageFolder(str(tmp_path))
        ours = open_source(tmp_path)
        assert [(ours.name(i), ours.read(i).values["label"]) for i in range(len(ours))] == theirs.samples

    def test_empty_class_folder_is_named(self, tmp_path: Path) -> None:
        """A class without one image stops the pack before it writes, and the message names the class."""
        tree(tmp_path / "src", {"cat/1.jpg": JPEG, "dog/readme.txt": b""})
        with pytest.raises(PackError, match=r"no image in the class folder dog"):
            pack(tmp_path / "src", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_no_class_folder(self, tmp_path: Path) -> None:
        """A folder with neither class folders nor images is no ImageFolder: the message says what to do."""
        tree(tmp_path, {"1.txt": JPEG})
        with pytest.raises(PackError, match="no class folder"):
            open_source(tmp_path)

    def test_link_loop_is_refused(self, tmp_path: Path) -> None:
        """A link to a folder above itself would show each image dozens of times."""
        tree(tmp_path, {"cat/1.jpg": JPEG})
        (tmp_path / "cat" / "loop").symlink_to(tmp_path / "cat", target_is_directory=True)
        with pytest.raises(PackError, match=r"\blink\b"):
            open_source(tmp_path)

    def test_links_to_elsewhere_are_followed(self, tmp_path: Path) -> None:
        """A class folder may be a link, as ImageFolder allows."""
        tree(tmp_path / "store", {"1.jpg": JPEG})
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "cat").symlink_to(tmp_path / "store", target_is_directory=True)
        assert len(open_source(tmp_path / "src")) == 1


class TestTable:
    def write(self, root: Path, text: str, name: str = "list.csv") -> Path:
        tree(root, {f"{c}.jpg": JPEG for c in "abcd"})
        (root / name).write_text(text, encoding="utf-8")
        return root / name

    def test_class_names_become_numbers_and_are_kept(self, tmp_path: Path) -> None:
        """Text labels are numbered in sorted order; paths are relative to the file."""
        path = self.write(tmp_path, "path,label\na.jpg,dog\nb.jpg,cat\nc.jpg,dog\n")
        pack(path, tmp_path / "out")
        assert [int(s.values["label"]) for s in stored_samples(tmp_path / "out")] == [1, 0, 1]
        assert Manifest.load(tmp_path / "out").classes == ("cat", "dog")

    def test_columns_take_the_narrowest_kind(self, tmp_path: Path) -> None:
        """More columns are int, float, json or text, by what all of their cells are; a kind in the header
        decides."""
        path = self.write(
            tmp_path,
            'label,path,n,score,box,code,as_text:text\n1,a.jpg,-3,0.5,"[1,2]",007,5\n0,b.jpg,12,1,{},x,6\n',
        )
        source = open_source(path)
        kinds = {f.name: f.kind for f in source.fields}
        assert kinds == {
            "label": "int",
            "n": "int",
            "score": "float",
            "box": "json",
            "code": "text",
            "as_text": "text",
        }
        assert source.read(0).values == {
            "label": 1, "n": -3, "score": 0.5, "box": [1, 2], "code": "007", "as_text": "5",
        }  # fmt: skip
        pack(path, tmp_path / "out")
        first = stored_samples(tmp_path / "out")[0]
        assert json.loads(first.values["box"]) == [1, 2]
        assert first.values["code"] == b"007"

    def test_without_header_and_with_tabs(self, tmp_path: Path) -> None:
        """A .tsv without header: path, label, column2, ..."""
        source = open_source(self.write(tmp_path, "a.jpg\t4\tx y\nb.jpg\t7\tz\n", "list.tsv"))
        assert [f.name for f in source.fields] == ["label", "column2"]
        assert source.read(1).values == {"label": 7, "column2": "z"}
        assert source.classes is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("path,label\na.jpg,1\nb.jpg,2\nc.jpg,x\n", r"line 4: the label 'x' is no number"),
            ("path,label\na.jpg,cat\nb.jpg,3\nc.jpg,dog\n", r"line 3: the label '3' is a number"),
            ("a.jpg,1\nb.jpg,\n", r"line 2: the label '' is no number|line 1"),
            ("path,label\na.jpg,1\nb.jpg\n", r"line 3: 1 cells where the first line has 2"),
            ("path,n:int,label\na.jpg,x,1\n", r"line 2: column 'n': 'x' is not int"),
            ("path,n:date,label\na.jpg,x,1\n", r"line 1: column 'n:date'"),
            ("path,label\n,1\n", r"line 2: no path"),
            ("path,label\n", r"only a header line"),
            ("", r"empty"),
            ('path,label\n"a.jpg,1\n', r"line"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path: Path, text: str, message: str) -> None:
        """File, line and reason, before anything is packed."""
        with pytest.raises(PackError, match=message):
            open_source(self.write(tmp_path, text))

    def test_a_missing_file_is_a_sample_error(self, tmp_path: Path) -> None:
        """A path that is not there stops the pack by its name, or is skipped by name."""
        path = self.write(tmp_path, "path,label\na.jpg,1\ngone.jpg,2\n")
        with pytest.raises(PackError, match=r"gone\.jpg: cannot be read: No such file"):
            pack(path, tmp_path / "out")
        summary = pack(path, tmp_path / "out2", on_error="skip")
        assert summary.samples == 1
        assert summary.skipped == ((str(tmp_path / "gone.jpg"), "cannot be read: No such file or directory"),)


class TestTar:
    def members(self, first: int, count: int) -> list[tuple[str, bytes]]:
        out = []
        for i in range(first, first + count):
            out += [
                (f"d/{i:03d}.jpg", encoded(picture(i, 20, 30))),
                (f"d/{i:03d}.cls", str(i % 3).encode()),
                (f"d/{i:03d}.txt", f"caption {i}".encode()),
                (f"d/{i:03d}.json", json.dumps({"i": i}).encode()),
                (f"d/{i:03d}.npy", npy(np.full((2, 3), i, np.float32))),
                (f"d/{i:03d}.more.bin", b"not looked at"),
            ]
        return out

    def test_many_shards_become_one_dataset(self, tmp_path: Path) -> None:
        """Every field of every sample arrives, in the order of shards and members."""
        for shard in range(3):
            write_tar(tmp_path / f"train-{shard:03d}.tar", self.members(shard * 4, 4))
        pack(str(tmp_path / "train-{000..002}.tar"), tmp_path / "out")
        stored = stored_samples(tmp_path / "out")
        assert [int(s.values["label"]) for s in stored] == [i % 3 for i in range(12)]
        assert [s.values["txt"] for s in stored] == [f"caption {i}".encode() for i in range(12)]
        assert [json.loads(s.values["json"])["i"] for s in stored] == list(range(12))
        assert all(
            (s.values["npy"] == i).all() and s.values["npy"].shape == (2, 3) for i, s in enumerate(stored)
        )
        assert stored[5].values["more_bin"] == b"not looked at"

    def test_patterns(self, tmp_path: Path) -> None:
        """Ranges, lists and globs name shards; one that is spelt out and missing is an error."""
        paths = [str(tmp_path / f"s{i:02d}.tar") for i in (8, 9, 10)]
        for path in paths:
            Path(path).touch()
        assert expand(str(tmp_path / "s{08..10}.tar")) == paths
        assert expand(str(tmp_path / "s{08,10}.tar")) == [paths[0], paths[2]]
        assert expand(str(tmp_path / "s*.tar")) == paths
        with pytest.raises(PackError, match=r"s11\.tar: no such tar"):
            expand(str(tmp_path / "s{10..11}.tar"))
        with pytest.raises(PackError, match="no file matches"):
            expand(str(tmp_path / "x*.tar"))

    def test_a_name_with_marks_of_a_pattern(self, tmp_path: Path) -> None:
        """A tar that is there under the very name is that tar, though the name could be read as a pattern,
        which matches another."""
        write_tar(tmp_path / "train [1].tar", self.members(0, 2))
        write_tar(tmp_path / "train 1.tar", self.members(0, 3))
        assert len(open_source(tmp_path / "train [1].tar")) == 2
        assert len(open_source(tmp_path / "train [12].tar")) == 3

    def test_a_folder_of_tars(self, tmp_path: Path) -> None:
        """A folder that holds tars and no folders is a WebDataset."""
        write_tar(tmp_path / "1.tar", self.members(0, 2))
        assert len(open_source(tmp_path)) == 2

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            ([("1.cls", b"1")], "1: no image among its members"),
            ([("1.jpg", JPEG), ("1.cls", b"1"), ("2.jpg", JPEG)], "2: its members are jpg"),
            ([("1.jpg", JPEG), ("1.jpg", JPEG)], "twice in one sample"),
            ([("readme", b"x")], "no sample in it"),
        ],
    )
    def test_odd_samples_are_named(
        self, tmp_path: Path, members: list[tuple[str, bytes]], message: str
    ) -> None:
        """A sample without image, or with other members than the first, stops the pack before it writes."""
        with pytest.raises(PackError, match=message):
            open_source(write_tar(tmp_path / "x.tar", members))

    def test_a_label_that_is_no_number(self, tmp_path: Path) -> None:
        """The .cls member is named by its sample."""
        path = write_tar(
            tmp_path / "x.tar", [("1.jpg", JPEG), ("1.cls", b"1"), ("2.jpg", JPEG), ("2.cls", b"cat")]
        )
        with pytest.raises(PackError, match=r"x\.tar:2: its \.cls b'cat' is no label"):
            pack(path, tmp_path / "out")

    def test_a_pickle_in_npy_is_refused(self, tmp_path: Path) -> None:
        """Arrays of objects would run code when read."""
        path = write_tar(
            tmp_path / "x.tar", [("1.jpg", JPEG), ("1.npy", npy(np.array([{"a": 1}], dtype=object)))]
        )
        with pytest.raises(PackError, match="no array without pickle"):
            open_source(path)

    @pytest.mark.parametrize("keep", [700, 5000])
    def test_a_truncated_tar(self, tmp_path: Path, keep: int) -> None:
        """A tar cut off within a member is refused by name."""
        path = write_tar(tmp_path / "x.tar", [(f"{i}.jpg", os.urandom(3000)) for i in range(3)])
        os.truncate(path, keep)
        with pytest.raises(PackError, match=r"x\.tar: (the tar ends inside|not a whole plain tar)"):
            open_source(path)

    def test_a_compressed_tar(self, tmp_path: Path) -> None:
        """It cannot be read at any position: said so."""
        path = tmp_path / "x.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("1.jpg"))
        with pytest.raises(PackError, match="compressed tar"):
            open_source(path)


class Items:
    """A map-style Dataset of given items."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.threads: set[int] = set()
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.get_ident())
        self.asked.append(index)
        return self.items[index]


class TestDataset:
    def test_every_kind_of_image(self, tmp_path: Path) -> None:
        """PIL images, arrays of both layouts, grey ones, tensors, bytes and paths all give the same stored
        pixels."""
        torch = pytest.importorskip("torch")
        image = picture(3, 20, 30)
        pixels = np.asarray(image)
        (tmp_path / "x.png").write_bytes(encoded(image, "PNG"))
        items = [
            image,
            pixels,
            pixels.transpose(2, 0, 1),
            torch.from_numpy(pixels.copy()),
            encoded(image, "PNG"),
            tmp_path / "x.png",
        ]
        pack(Items([(each, i) for i, each in enumerate(items)]), tmp_path / "out")
        stored = stored_samples(tmp_path / "out")
        assert all((s.pixels == pixels).all() for s in stored)
        assert [int(s.values["label"]) for s in stored] == list(range(6))

    def test_grey(self, tmp_path: Path) -> None:
        """(h, w), (h, w, 1) and (1, h, w) become three equal channels."""
        grey = np.asarray(picture(1, 9, 11).convert("L"))
        pack(Items([(grey, 0), (grey[:, :, None], 0), (grey[None], 0)]), tmp_path / "out")
        for sample in stored_samples(tmp_path / "out"):
            assert (sample.pixels == grey[:, :, None]).all()

    def test_dicts_and_more_fields(self, tmp_path: Path) -> None:
        """Dict items keep their keys; arrays, text, floats, bytes and structures their kinds."""
        item = {
            "image": picture(1, 8, 8),
            "target": np.int64(4),
            "w": 0.5,
            "name": "x",
            "box": np.arange(4.0),
            "d": {"a": [1]},
            "b": b"\0",
        }
        pack(Items([item]), tmp_path / "out")
        kinds = {f.name: f.kind for f in Manifest.load(tmp_path / "out").schema}
        assert kinds == {
            "image": "image", "label": "int", "w": "float", "name": "text", "box": "array", "d": "json",
            "b": "bytes",
        }  # fmt: skip
        values = stored_samples(tmp_path / "out")[0].values
        assert (values["label"], values["w"], values["name"], values["d"], values["b"]) == (
            4,
            0.5,
            b"x",
            b'{"a":[1]}',
            b"\0",
        )

    def test_it_is_asked_in_order_in_one_thread(self, tmp_path: Path) -> None:
        """A Dataset makes no promise about threads, so it needs none."""
        data = Items([(picture(i, 40, 40), i) for i in range(60)])
        pack(data, tmp_path / "out", workers=4)
        assert data.threads == {threading.get_ident()}
        assert data.asked == [0, *range(60)]  # the first once more, for the schema
        assert [int(s.values["label"]) for s in stored_samples(tmp_path / "out")] == list(range(60))

    @pytest.mark.parametrize(
        ("items", "message"),
        [
            ([], "no samples"),
            ([(np.zeros((4, 4, 3), np.float32), 0)], "float32"),
            ([(np.zeros((4, 4, 7), np.uint8), 0)], "are no image"),
            ([(picture(0, 4, 4), 0), (object(), 0)], r"Items\[1\]: a object is no image"),
            ([(picture(0, 4, 4), 0), (picture(0, 4, 4), "x")], r"Items\[1\]: field 'label'"),
            ([{"picture": 3}], "no image among"),
        ],
    )
    def test_odd_items_are_named(self, tmp_path: Path, items: list[Any], message: str) -> None:
        """Whatever cannot be packed is named by its index."""
        with pytest.raises(PackError, match=message):
            pack(Items(items), tmp_path / "out")

    def test_its_own_exception_is_named(self, tmp_path: Path) -> None:
        """An exception of the Dataset tells which sample it came from."""

        class Broken(Items):
            def __getitem__(self, index: int) -> Any:
                if index == 2:
                    raise KeyError("gone")
                return super().__getitem__(index)

        with pytest.raises(PackError, match=r"Broken\[2\]: the Dataset raised KeyError: 'gone'"):
            pack(Broken([(picture(i, 8, 8), i) for i in range(4)]), tmp_path / "out")


def test_what_is_no_source(tmp_path: Path) -> None:
    """Anything else is refused with a list of what would do."""
    with pytest.raises(PackError, match="no such folder"):
        open_source(tmp_path / "gone")
    with pytest.raises(PackError, match="cannot pack a int"):
        open_source(3)
    (tmp_path / "x.zip").touch()
    with pytest.raises(PackError, match="not a source fastload knows"):
        open_source(tmp_path / "x.zip")
