"""RangePacker: a shard is made where it is not whole, or its samples are not what they were, and left
alone otherwise."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_helpers import COUNT, EACH, files_of, folder, path_of
from packing_helpers import encoded, picture

import fastload
from fastload.errors import DatasetError, PackError
from fastload.packing import unpack
from fastload.packing.cluster.cluster_plan import ClusterPlan, SourceSpec, listed, probe, schema_of
from fastload.packing.cluster.out import open_out
from fastload.packing.cluster.parts import Part, part_of
from fastload.packing.cluster.records import ClusterJournal, job_identity
from fastload.packing.cluster.task import RangeDone, RangeFailed, RangePacker
from fastload.packing.job import VARYING, PackJob
from fastload.packing.options import PackOptions, RunOptions
from fastload.sources import Item, open_source
from fastload.sources.options import SourceOptions
from fastload.sources.unpacked import UnpackedSource
from fastload.store import Field, Manifest


class Named:
    """A Source of pictures without rows, which processes open themselves."""

    title = "pictures"
    fields = (Field("label", "int"),)
    classes = None
    concurrent = True

    def __init__(self, count: int, kind: str = "sample") -> None:
        self._count = count
        self._kind = kind

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"{self._kind} {position}"

    def read(self, position: int) -> Item:
        return Item(self.name(position), encoded(picture(position, 20, 30)), {"label": position})


def plan_of(source: object, out: Path, token: str = "t", **options: object) -> ClusterPlan:
    """The plan of a pack that a driver has begun."""
    given = PackOptions(**options)  # type: ignore[arg-type]
    job = PackJob(open_source(source), given)
    identity = {**job.identity(), "shard_samples": EACH}
    schema = schema_of(job)
    with open_out(out, RunOptions(resume=True)) as place:
        place.begin(ClusterJournal(token, schema.to_json(), identity, 0))
    found = probe(job)
    return ClusterPlan(
        spec=SourceSpec.of(source, SourceOptions()), options=given, samples=EACH, threads=1, out=str(out),
        staging=None,
        offset=0, token=token,
        identity=job_identity(schema, identity, VARYING), probe=found,
        listed=listed(job, found),
    )  # fmt: skip


def part(plan: ClusterPlan, number: int) -> Part:
    """The part of a range, from the samples that the driver sees now."""
    return part_of(PackJob(plan.spec.open(), plan.options), number, EACH)


def made(plan: ClusterPlan, number: int) -> int:
    """Samples that a new process packs for a range."""
    packer = RangePacker(pickle.loads(pickle.dumps(plan)))
    try:
        result = packer(pickle.loads(pickle.dumps(part(plan, number))))
    finally:
        packer.close()
    assert isinstance(result, RangeDone), result
    return result.packed


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder(tmp_path / "src")


def test_a_whole_shard_is_left_alone(tmp_path: Path, source: Path) -> None:
    """Also by a later driver's tasks, and where a file has another time and the same bytes."""
    out = tmp_path / "out"
    assert made(plan_of(source, out), 1) == EACH
    os.utime(path_of(source, 7), ns=(1, 1))
    before = files_of(out)
    assert made(plan_of(source, out, "later"), 1) == 0
    assert {
        name: data for name, data in files_of(out).items() if name != "progress.json"
    }.items() <= before.items()


@pytest.mark.parametrize("name", ["shard-00001.lmdb", "shard-00001.section", "shard-00001.done"])
@pytest.mark.parametrize("harm", ["gone", "short"])
def test_what_is_not_whole_is_made_again(tmp_path: Path, source: Path, name: str, harm: str) -> None:
    """A file that is missing or of another size: the same files are there after it."""
    out = tmp_path / "out"
    plan = plan_of(source, out)
    made(plan, 1)
    whole = files_of(out)
    (out / name).unlink()
    if harm == "short":
        (out / name).write_bytes(whole[name][:-100])
    assert made(plan, 1) == EACH
    assert files_of(out) == whole


@pytest.mark.parametrize(
    "key", [b'"count": 6', b'"etag": null', b'"section": [', b'"log": "', b'"version": 1', b'"identity": "']
)
def test_damaged_records(tmp_path: Path, source: Path, key: bytes) -> None:
    """A done-record of which a byte was changed is none."""
    out = tmp_path / "out"
    plan = plan_of(source, out)
    made(plan, 1)
    done = out / "shard-00001.done"
    good = done.read_bytes()
    assert key in good
    done.write_bytes(good.replace(key, key[:-1] + bytes([key[-1] ^ 3])))
    assert made(plan, 1) == EACH
    assert done.read_bytes() == good


def test_a_damaged_section(tmp_path: Path, source: Path) -> None:
    """The driver compares sections with their checksums, and says what to remove."""
    out = tmp_path / "out"
    plan = plan_of(source, out)
    packer = RangePacker(plan)
    results = [packer(part(plan, number)) for number in range(7)]
    packer.close()
    section = out / "shard-00002.section"
    data = bytearray(section.read_bytes())
    data[-20] ^= 1
    section.write_bytes(data)
    records = [result.record for result in results if isinstance(result, RangeDone)]
    shards = [
        record.shard.at(EACH * number) for number, record in enumerate(records) if record.shard is not None
    ]
    manifest = Manifest(schema_of(PackJob(open_source(source), PackOptions())), tuple(shards))
    sections = {shard.file: record.section for shard, record in zip(shards, records, strict=True)}
    with (
        open_out(out, RunOptions(resume=True)) as place,
        pytest.raises(DatasetError, match=r"shard-00002\.section cannot be used.*remove it"),
    ):
        place.commit(manifest, sections, {})
    assert not (out / "manifest.json").exists()


def test_changed_samples_are_packed_again(tmp_path: Path, source: Path) -> None:
    """A sample of the range that changed, or one that was taken out before it, which moves all."""
    out = tmp_path / "out"
    made(plan_of(source, out), 0)
    made(plan_of(source, out), 1)
    path_of(source, 7).write_bytes(encoded(picture(99, 40, 40)))
    assert (made(plan_of(source, out), 0), made(plan_of(source, out), 1)) == (0, EACH)
    path_of(source, 8).unlink()
    assert (made(plan_of(source, out), 0), made(plan_of(source, out), 1)) == (0, EACH)


def test_records_of_another_job(tmp_path: Path, source: Path) -> None:
    """A done-record of other options counts for nothing."""
    out = tmp_path / "out"
    made(plan_of(source, out), 0)
    assert made(plan_of(source, out, quality=80), 0) == EACH


def test_another_driver(tmp_path: Path, source: Path) -> None:
    """Tasks of a driver stop once another one has begun, before they publish anything."""
    out = tmp_path / "out"
    plan = plan_of(source, out, "first")
    packer = RangePacker(plan)
    plan_of(source, out, "second")
    result = packer(part(plan, 0))
    assert isinstance(result, RangeFailed)
    assert "another pack on a cluster was begun" in str(result.error)
    assert not list(out.glob("shard-*"))


def test_another_source(tmp_path: Path, source: Path) -> None:
    """A node whose folder of that name has other samples is refused: also under on_error="skip", it leaves
    none of them out."""
    out = tmp_path / "out"
    plan = plan_of(source, out, on_error="skip")
    first = part(plan, 0)
    path_of(source, 3).unlink()
    packer = RangePacker(plan)
    result = packer(first)
    packer.close()
    assert isinstance(result, RangeFailed)
    assert re.search(r"0003\.jpg is not there, has other samples on node", str(result.error))
    assert not list(out.glob("shard-*"))
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(PackError, match="cannot read the source"):
        RangePacker(plan)


def test_another_dataset(tmp_path: Path) -> None:
    """A source that a process opens itself, and that has other samples there, or fewer, is refused; it
    gives each range the same bytes."""
    outs = []
    for order in ("straight", "shuffled"):
        outs.append(tmp_path / order)
        plan = plan_of(Named(COUNT), outs[-1], shuffle=order == "shuffled", seed=3)
        for number in range(7):
            made(plan, number)
        for other, text in (
            (Named(COUNT, "other"), "has other samples"),
            (Named(3), "has other samples|cannot read the source"),
        ):
            packer = RangePacker(replace(plan, spec=SourceSpec.of(other, SourceOptions())))
            result = packer(part(plan, 2))
            packer.close()
            assert isinstance(result, RangeFailed)
            assert re.search(text, str(result.error))
        fastload.pack(
            Named(COUNT), tmp_path / f"{order}.fl", shard_samples=EACH, shuffle=order == "shuffled", seed=3
        )
        shards = {name: data for name, data in files_of(outs[-1]).items() if name.endswith(".lmdb")}
        assert shards == {
            name: data for name, data in files_of(tmp_path / f"{order}.fl").items() if name.endswith(".lmdb")
        }


def test_an_unpacked_folder(tmp_path: Path) -> None:
    """Tasks get the places of their lines, and hold no list of all: the shards are those of one machine. A
    node on which the lines are others is refused."""
    fastload.pack(Named(COUNT), tmp_path / "first.fl")
    unpack(tmp_path / "first.fl", tmp_path / "files")
    plan, out = plan_of(tmp_path / "files", tmp_path / "out"), tmp_path / "out"
    assert isinstance(plan.listed, UnpackedSource)
    parts = [part(plan, number) for number in range(7)]
    assert all(len(row) == 16 for each in parts for row in each.rows or [b""])
    assert [made(plan, number) for number in range(7)] == [EACH] * 6 + [COUNT - 6 * EACH]
    fastload.pack(tmp_path / "files", tmp_path / "one", shard_samples=EACH)
    shards = {name: data for name, data in files_of(out).items() if name.endswith(".lmdb")}
    assert shards == {
        name: data for name, data in files_of(tmp_path / "one").items() if name.endswith(".lmdb")
    }
    lines = (tmp_path / "files" / "fields.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "files" / "fields.jsonl").write_bytes(b"".join([lines[0], *lines[2:]]))
    (out / "shard-00002.done").unlink()
    packer = RangePacker(plan)
    result = packer(parts[2])
    packer.close()
    assert isinstance(result, RangeFailed)


def test_a_driver_killed_after_the_commit(tmp_path: Path, source: Path) -> None:
    """The dataset is complete, and what is left beside it harms nobody; the next driver removes it."""
    out, one = tmp_path / "out", tmp_path / "one"
    fastload.pack(source, one, shard_samples=EACH)
    plan = plan_of(source, out)
    for number in range(7):
        made(plan, number)
    shutil.copy(one / "manifest.json", out)
    shutil.copy(one / "index-00000.bin", out)
    assert len(fastload.PackedDataset(out)) == len(fastload.PackedDataset(one))
    with pytest.raises(PackError, match="already holds a packed dataset"), open_out(out, RunOptions()):
        pass
    with open_out(out, RunOptions(resume=True)) as place:
        assert place.finished is not None
        assert place.journal is None
        place.tidy(place.finished)
    assert files_of(out) == files_of(one)


def test_overwriting_and_cleaning(tmp_path: Path, source: Path) -> None:
    """What tasks leave is fastload's: --overwrite of a pack on one machine removes it."""
    out = tmp_path / "out"
    made(plan_of(source, out), 0)
    (out / f"shard-00003.lmdb.{'0a' * 8}.part").write_bytes(b"left by a task that was killed")
    fastload.pack(source, out, shard_samples=EACH, overwrite=True)
    fastload.pack(source, tmp_path / "one", shard_samples=EACH)
    assert files_of(out) == files_of(tmp_path / "one")
