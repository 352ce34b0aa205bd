"""DatasetWriter: what it writes, what it refuses, and that a kill at any point costs at most the
unfinished shard."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import OPTIONS, SCHEMA, append, contents, values_of, write

import fastload
from fastload._native import core
from fastload.errors import ArgumentError, DatasetError, PackError
from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema, file_crc32c

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastload.__file__).parents[1])}
pytestmark = pytest.mark.usefixtures("no_leaks")


def test_round_trip(tmp_path: Path) -> None:
    """Every field of every sample comes back, over several shards."""
    manifest = write(tmp_path / "d", 100)
    assert manifest.count == 100
    assert len(manifest.shards) > 3
    with DatasetReader(tmp_path / "d") as reader:
        assert reader.manifest == manifest
        assert list(reader.manifest.classes or []) == ["a", "b"]
        for i in range(100):
            values = values_of(i)
            assert reader.record_fields(i) == [
                (0, core.KIND_JPEG, values["image"]),
                (4, core.KIND_BYTES, values["raw"]),
                (5, core.KIND_TEXT, values["caption"].encode()),
                (6, core.KIND_JSON, json.dumps(values["meta"], separators=(",", ":")).encode()),
            ]
            for name in ("label", "weight"):
                assert reader.column(name)[i] == values[name]
            assert np.array_equal(reader.column("box")[i], values["box"])
            assert reader.column("__height__")[i] == i % 90 + 1
            assert reader.column("__crc32c__")[i] == core.crc32c(reader.record(i))


def test_shards_end_at_their_size_and_last_page(tmp_path: Path) -> None:
    """A shard is complete when its records reach shard_size; its file is whole pages, its checksum that of
    the file."""
    manifest = write(tmp_path, 100, shard_size=50_000)
    for shard in manifest.shards:
        path = tmp_path / shard.file
        assert path.stat().st_size == shard.bytes
        assert shard.bytes % os.sysconf("SC_PAGE_SIZE") == 0
        assert shard.crc32c == file_crc32c(path) == core.crc32c(path.read_bytes())
    for shard in manifest.shards[:-1]:
        assert 50_000 <= shard.bytes < 150_000
    assert sorted(os.listdir(tmp_path)) == [
        "index-00000.bin",
        "manifest.json",
        *(s.file for s in manifest.shards),
    ]


def test_same_input_same_bytes(tmp_path: Path) -> None:
    """Two packs of one input agree in every record and column."""
    write(tmp_path / "a", 40)
    write(tmp_path / "b", 40)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("size", [1, 5_000_000, 40_000_000])
def test_map_grows(tmp_path: Path, size: int) -> None:
    """Records far larger than the shard size was said to be: the map grows by itself."""
    schema = Schema((Field("data", "bytes"),))
    data = [bytes([i]) * size for i in range(3)]
    with DatasetWriter(tmp_path, schema, shard_size=max(1, size * 5 // 2), options={}) as writer:
        for each in data:
            writer.append({"data": each})
        writer.finish(None, {})
    with DatasetReader(tmp_path) as reader:
        assert [reader.record_fields(i)[0][2] for i in range(3)] == data


def test_growth_within_one_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that begins far too small is grown again and again while one shard is written."""
    from fastload.store import writer as module

    made = module.ShardFile
    monkeypatch.setattr(
        module, "ShardFile", lambda path, first, schema, map_bytes: made(path, first, schema, 1)
    )
    schema = Schema((Field("data", "bytes"), Field("v", "array", "float64", (1000,))))
    with DatasetWriter(tmp_path, schema, shard_size=1 << 30, options={}) as writer:
        for i in range(1000):
            writer.append({"data": bytes([i % 256]) * 50_000, "v": np.full(1000, i)})
        writer.finish(None, {})
    with DatasetReader(tmp_path) as reader:
        assert len(reader.manifest.shards) == 1
        assert reader.record_fields(999)[0][2] == bytes([999 % 256]) * 50_000
        assert np.array_equal(reader.column("v")[:, 7], np.arange(1000.0))


def test_raw_pixels(tmp_path: Path) -> None:
    """Raw images are stored behind their height, width and channels; array and bytes come to the same."""
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    with DatasetWriter(
        tmp_path, Schema((Field("image", "image"),)), shard_size=1 << 20, options={}
    ) as writer:
        writer.append({"image": pixels}, image_kind="raw", height=2, width=5)
        writer.append({"image": np.asfortranarray(pixels)}, image_kind="raw", height=2, width=5)
        writer.append({"image": pixels.tobytes()}, image_kind="raw", height=2, width=5)
        writer.finish(None, {})
    with DatasetReader(tmp_path) as reader:
        expected = np.array([2, 5, 3], "<u4").tobytes() + pixels.tobytes()
        assert [reader.record_fields(i) for i in range(3)] == [[(0, core.KIND_RAW, expected)]] * 3


def test_empty_dataset(tmp_path: Path) -> None:
    """No samples: a dataset of no shards."""
    write(tmp_path, 0)
    with DatasetReader(tmp_path) as reader:
        assert len(reader) == 0
        assert reader.column("box").shape == (0, 2, 2)
        with pytest.raises(IndexError):
            reader.shard_of(0)


def test_prepared_samples(tmp_path: Path) -> None:
    """Samples prepared elsewhere and appended in order equal those appended directly."""
    write(tmp_path / "a", 30)
    with DatasetWriter(tmp_path / "b", SCHEMA, shard_size=60_000, options=OPTIONS) as writer:
        prepared = [
            writer.prepare(values_of(i), image_kind="jpeg", height=i % 90 + 1, width=7) for i in range(30)
        ]
        for sample in prepared:
            writer.append_prepared(sample)
        writer.finish(["a", "b"], {"samples": 30})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_out_in_the_way(tmp_path: Path) -> None:
    """A dataset, an unfinished one, a stranger's folder, a file: each refused with the ways on."""
    write(tmp_path / "done", 10)
    with pytest.raises(PackError, match=r"already holds.*--overwrite"):
        write(tmp_path / "done", 10)
    DatasetWriter(tmp_path / "half", SCHEMA, shard_size=10, options={}).abort()
    with pytest.raises(PackError, match=r"--resume finishes it, --overwrite starts again"):
        write(tmp_path / "half", 10)
    with pytest.raises(DatasetError, match=r"unfinished.*--resume"):
        DatasetReader(tmp_path / "half")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    for arguments in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(PackError, match=r"thesis.tex.*left alone"):
            write(tmp_path / "other", 10, **arguments)
    assert os.listdir(tmp_path / "other") == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(PackError, match="is a file"):
        write(tmp_path / "file", 10)
    (tmp_path / "empty").mkdir()
    assert write(tmp_path / "empty", 3).count == 3
    with pytest.raises(ArgumentError, match="contradict"):
        write(tmp_path / "done", 10, resume=True, overwrite=True)


def test_overwrite_removes_only_ours(tmp_path: Path) -> None:
    """The old shards go, a note that lies beside them stays."""
    write(tmp_path, 50)
    (tmp_path / "notes.txt").write_text("mine")
    assert write(tmp_path, 3, overwrite=True).count == 3
    assert sorted(os.listdir(tmp_path)) == [
        "index-00000.bin",
        "manifest.json",
        "notes.txt",
        "shard-00000.lmdb",
    ]
    assert len(contents(tmp_path)[0]) == 3


def test_two_writers(tmp_path: Path) -> None:
    """The second writer of one folder is refused while the first lives."""
    first = DatasetWriter(tmp_path, SCHEMA, shard_size=10, options={})
    with pytest.raises(PackError, match="another process"):
        DatasetWriter(tmp_path, SCHEMA, shard_size=10, options={}, resume=True)
    first.abort()
    DatasetWriter(tmp_path, SCHEMA, shard_size=10, options={}, resume=True).abort()


def test_resume_goes_on_after_the_last_complete_shard(tmp_path: Path) -> None:
    """next_index and state are those of the last complete shard; the end equals an uninterrupted run."""
    write(tmp_path / "whole", 70)
    out = tmp_path / "half"
    writer = DatasetWriter(out, SCHEMA, shard_size=60_000, options=OPTIONS)
    assert (writer.next_index, writer.state) == (0, {})
    for i in range(33):
        append(writer, i)
    writer.abort()
    with pytest.raises(PackError, match="given up"):
        append(writer, 33)
    writer = DatasetWriter(out, SCHEMA, shard_size=60_000, options=OPTIONS, resume=True)
    assert 0 < writer.next_index <= 33
    assert writer.state == {"done": writer.next_index - 1}
    assert writer.noted.read(0, len(writer.noted)) == b"".join(b"%08d" % i for i in range(writer.next_index))
    writer.abort()
    write(out, 70, resume=True)
    assert contents(out) == contents(tmp_path / "whole")
    assert write(out, 70, resume=True).count == 70, "resuming a complete dataset is no error"
    done = DatasetWriter(out, SCHEMA, shard_size=60_000, options=OPTIONS, resume=True)
    assert done.finished is not None
    with pytest.raises(PackError, match="already complete"):
        append(done, 70)
    done.abort()


def _journal(out: Path, change: Callable[[bytes], bytes]) -> None:
    path = out / "progress.json"
    path.write_bytes(change(path.read_bytes()))


def test_a_journal_of_many_shards_is_written_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond JOURNAL_SHARDS shards the journal lags behind by one part of as many: a kill loses no more,
    one given up nothing."""
    monkeypatch.setattr("fastload.store.writer.JOURNAL_SHARDS", 8)
    write(tmp_path / "whole", 70, shard_size=1)
    killed, copies, named = tmp_path / "killed", [], []
    writer = DatasetWriter(killed, SCHEMA, shard_size=1, options=OPTIONS)
    for index in range(60):
        append(writer, index)
        if index % 10 == 9:
            # A copy is no state of the folder while the writer's thread works in it
            writer._await_completion()
            named.append(len(json.loads((killed / "progress.json").read_bytes())["shards"]))
            copies.append(Path(shutil.copytree(killed, tmp_path / f"copy-{index}")))
    writer.abort()
    assert len(json.loads((killed / "progress.json").read_bytes())["shards"]) == 60
    assert all(count >= at - at // 8 - 3 for at, count in zip(range(10, 70, 10), named, strict=True))
    for folder in (*copies, killed):
        write(folder, 70, shard_size=1, resume=True)
        assert contents(folder) == contents(tmp_path / "whole")
        assert (folder / "manifest.json").read_bytes() == (tmp_path / "whole" / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        ({"options": {"encode": "keep", "quality": 91}}, None, "begun with quality=90, now it is 91"),
        ({"shard_size": 70_000}, None, "begun with shard_size=60000"),
        ({"schema": Schema((Field("image", "image"),))}, None, "other fields"),
        ({}, lambda data: data.replace(b'"done": ', b'"done": 1'), "damaged"),
        ({}, lambda data: data[:-20], "cannot be read"),
        ({}, lambda data: b"[]", "not an object"),
        ({}, lambda data: data.replace(b'"version": 1', b'"version": 2'), "later fastload"),
    ],
)
def test_resume_refuses(tmp_path: Path, arguments: Any, change: Any, message: str) -> None:
    """Other options, other fields, a damaged journal: a clear error, and the parts are left alone."""
    writer = DatasetWriter(tmp_path, SCHEMA, shard_size=60_000, options=OPTIONS)
    for i in range(40):
        append(writer, i)
    writer.abort()
    if change:
        _journal(tmp_path, change)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    chosen = {"schema": SCHEMA, "shard_size": 60_000, "options": OPTIONS, **arguments}
    with pytest.raises(PackError, match=message):
        DatasetWriter(tmp_path, chosen.pop("schema"), resume=True, **chosen)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_resume_may_change_what_varies(tmp_path: Path) -> None:
    """Options named as varying may be others; the manifest has the last ones, or those that finish is
    told."""
    writer = DatasetWriter(
        tmp_path, SCHEMA, shard_size=60_000, options={"a": 1, "b": 1, "c": 1}, varying=("a", "b")
    )
    for i in range(40):
        append(writer, i)
    writer.abort()
    with pytest.raises(PackError, match="begun with c=1, now it is 2"):
        DatasetWriter(
            tmp_path,
            SCHEMA,
            shard_size=60_000,
            options={"a": 1, "b": 1, "c": 2},
            varying=("a", "b"),
            resume=True,
        )
    writer = DatasetWriter(
        tmp_path, SCHEMA, shard_size=60_000, options={"a": 2, "b": 2, "c": 1}, varying=("a", "b"), resume=True
    )
    append(writer, writer.next_index)
    assert writer.finish(None, {}, b=3).options == {"a": 2, "b": 3, "c": 1}
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("shard")) == [
        "index-00000.bin",
        "manifest.json",
    ]


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"x" + data[1:], None])
def test_resume_refuses_a_damaged_log(tmp_path: Path, change: Callable[[bytes], bytes] | None) -> None:
    """Shorter, changed or gone, the notes on samples are not believed; what lies behind those that count
    is dropped."""
    writer = DatasetWriter(tmp_path, SCHEMA, shard_size=60_000, options=OPTIONS)
    for i in range(40):
        append(writer, i)
    writer.abort()
    log = tmp_path / "progress.samples"
    good = log.read_bytes()
    if change is None:
        log.unlink()
    else:
        log.write_bytes(change(good))
    with pytest.raises(PackError, match=r"progress\.samples|--overwrite"):
        write(tmp_path, 70, resume=True)
    log.write_bytes(good + b"of a shard that was not finished")
    write(tmp_path, 70, resume=True)
    write(tmp_path / "whole", 70)
    assert contents(tmp_path) == contents(tmp_path / "whole")


def test_resume_notices_a_lost_shard(tmp_path: Path) -> None:
    """A complete shard that has gone, or shrunk, since: refused."""
    writer = DatasetWriter(tmp_path, SCHEMA, shard_size=60_000, options=OPTIONS)
    for i in range(40):
        append(writer, i)
    writer.abort()
    (tmp_path / "shard-00000.lmdb").write_bytes(b"")
    with pytest.raises(PackError, match="shard-00000"):
        write(tmp_path, 40, resume=True)
    (tmp_path / "progress.json").unlink()
    with pytest.raises(PackError, match=r"no progress\.json"):
        write(tmp_path, 40, resume=True)


@pytest.mark.long
def test_kill_at_every_point(tmp_path: Path) -> None:
    """SIGKILL before each call that changes the disk: no dataset or a whole one, and resumed it equals the
    uninterrupted."""
    script = [sys.executable, str(HERE / "kill_points.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=280, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_full_disk(tmp_path: Path) -> None:
    """A file system of 8 MB: a PackError that names the bytes and what to do, and nothing claims to be
    complete."""
    inner = (
        f'mount -t tmpfs -o size=8m none "{tmp_path}" && "{sys.executable}" "{HERE}/fill_disk.py" '
        f'"{tmp_path}/out"'
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", inner],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=ENVIRONMENT,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no private mounts here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "disk is full" in done.stdout, done.stdout
    assert "bytes more" in done.stdout
    assert "--resume" in done.stdout


def test_write_that_the_system_refuses(tmp_path: Path) -> None:
    """A limit on the size of files, half-way through a shard: a PackError that names the file."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    script = [sys.executable, str(HERE / "fill_disk.py"), str(tmp_path / "out")]
    done = subprocess.run(
        script, preexec_fn=limit, capture_output=True, text=True, timeout=100, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    assert "cannot write" in done.stdout, done.stdout
    assert "shard-00000.lmdb" in done.stdout


def test_no_folder(tmp_path: Path) -> None:
    """An OUT below a file cannot be made: PackError."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(PackError, match="cannot make the folder"):
        write(tmp_path / "file" / "out", 1)
    with pytest.raises(ArgumentError, match="shard_size"):
        write(tmp_path / "out", 1, shard_size=0)
    with pytest.raises(ArgumentError, match="options"):
        DatasetWriter(tmp_path / "out", SCHEMA, shard_size=1, options={"x": object()})


def test_manifest_is_the_commit(tmp_path: Path) -> None:
    """A kill between manifest and journal's end: the dataset stands, and a resume only tidies up."""
    write(tmp_path, 20)
    (tmp_path / "progress.json").write_bytes(b"left over")
    assert len(contents(tmp_path)[0]) == 20
    assert write(tmp_path, 20, resume=True) == Manifest.load(tmp_path)
    assert not (tmp_path / "progress.json").exists()


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_while_it_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Behind the close of the shard's descriptor, or of the lock: neither is closed again, for that may be
    another file by then."""
    writer = DatasetWriter(tmp_path / "out", SCHEMA, shard_size=60_000, options=OPTIONS)
    append(writer, 0)
    close, left, closed = os.close, [number], []

    def interrupted(descriptor: int) -> None:
        close(descriptor)
        closed.append(descriptor)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.abort()
    other = os.open(tmp_path, os.O_RDONLY)
    os.dup2(other, closed[-1])
    writer.abort()
    assert os.path.samestat(os.fstat(closed[-1]), tmp_path.stat())
    for descriptor in {other, closed[-1]}:
        os.close(descriptor)
    write(tmp_path / "out", 3, resume=True)
