"""A sample that ends the process that packs it is named, and left out under on_error="skip"; its shard's
other samples are packed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import COUNT, EACH, files_of, folder, path_of
from sources import Deadly

import fastload
from fastload.errors import PackStoppedError
from fastload.packing.cluster.losses import CONFIRM, AtHand, Cause, SampleNotes, TaskLosses

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder with a file for each process that a sample ended, named by the sample's position and the
    process."""
    (tmp_path / "killed").mkdir()
    return tmp_path / "killed"


@pytest.mark.long
def test_the_killer_is_named(tmp_path: Path, cluster: Any, killed: Path) -> None:
    """Under on_error="raise" the error names the sample, and no temporary file of the processes that it
    ended is left; a resume goes on."""
    root, out = folder(tmp_path / "src"), tmp_path / "out"
    place = 2 * EACH + 3
    with pytest.raises(
        PackStoppedError, match=r"0015\.jpg: packing it ended its worker process 2 times .*resume=True"
    ) as caught:
        fastload.pack(Deadly(root, {place: "segfault"}, killed), out, shard_samples=EACH, ray=cluster.address)
    assert "\n" not in str(caught.value)
    assert len(list(killed.iterdir())) == 1 + CONFIRM
    assert not list(out.glob("*.part"))
    summary = fastload.pack(
        Deadly(root, {}, killed), out, shard_samples=EACH, ray=cluster.address, resume=True
    )
    assert summary.samples == COUNT
    fastload.pack(root, tmp_path / "one", shard_samples=EACH)
    assert files_of(out) == files_of(tmp_path / "one")


@pytest.mark.long
def test_killers_are_left_out(tmp_path: Path, cluster: Any, killed: Path) -> None:
    """Under on_error="skip" the shards are those of a pack in which the same samples are broken files: both
    of one shard. They are counted and named beside an ordinary bad sample, in the order of the source.
    """
    deaths = {13: "exit", 16: "kill"}
    root = folder(tmp_path / "src", bad=(14,))
    many = fastload.pack(
        Deadly(root, deaths, killed),
        tmp_path / "many",
        shard_samples=EACH,
        on_error="skip",
        workers=1,
        ray=cluster.address,
    )
    assert Counter(path.name.split("-")[0] for path in killed.iterdir()) == {"13": 1 + CONFIRM, "16": CONFIRM}
    assert not list((tmp_path / "many").glob("*.part"))
    for position in deaths:
        path_of(root, position).write_bytes(b"broken")
    one = fastload.pack(root, tmp_path / "one", shard_samples=EACH, on_error="skip")
    assert (
        [Path(name).name for name, _ in many.skipped]
        == [Path(name).name for name, _ in one.skipped]
        == [f"{i:04d}.jpg" for i in (13, 14, 16)]
    )
    assert all(
        ("ended its worker process" in reason) == (Path(name).name != "0014.jpg")
        for name, reason in many.skipped
    )
    assert (many.skipped_count, many.samples) == (one.skipped_count, one.samples) == (3, COUNT - 3)
    shards = [
        {name: data for name, data in files_of(tmp_path / each).items() if name.endswith(".lmdb")}
        for each in ("many", "one")
    ]
    assert shards[0] == shards[1]


def at(place: int) -> AtHand:
    return AtHand(place, f"{place}.jpg")


def test_what_counts_against_a_sample() -> None:
    """Losses at one sample, one after the other; not those of a node, of a process that noted nothing, or
    past the last sample."""
    losses = TaskLosses()
    for sample in (None, at(3), at(4), at(-1), at(4), None, at(4)):
        assert losses.add(Cause.CRASH, sample) is None
    assert losses.add(Cause.NODE, at(4)) is None
    killer = losses.add(Cause.CRASH, at(4))
    assert killer is not None
    assert (killer.place, killer.name) == (4, "4.jpg")
    assert (losses.count, losses.attempt) == (9, 9)


@pytest.mark.parametrize("cause", [Cause.CRASH, Cause.MEMORY])
def test_a_sample_left_out_ends_the_count_of_crashes(cause: Cause) -> None:
    """So that any number of samples may crash; where a node has no memory for any sample, the task ends
    after as many losses as ever."""
    losses = TaskLosses()
    for place in range(4):
        losses.add(cause, at(place))
        killer = losses.add(cause, at(place))
        assert killer is not None
        losses.leave_out(killer, cause)
    assert losses.count == (0 if cause is Cause.CRASH else 8)
    assert list(losses.left_out) == [0, 1, 2, 3]


def test_notes_of_an_earlier_process() -> None:
    """A process that noted nothing is not taken to have been at the sample of the one before."""
    notes = SampleNotes()
    assert notes.last(7, 1) is None
    notes.note(7, 1, at(3))
    assert notes.last(7, 1) == at(3)
    assert notes.last(7, 2) is None
