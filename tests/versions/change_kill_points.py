"""Run by test_change_kill: changes datasets in forked children that SIGKILL themselves at one point each,
then looks and goes on.

Usage: change_kill_points.py CHANGE FOLDER. Prints the number of points. The points are every call that
changes what is on the disk.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import kill_points
from versions_helpers import Shapes, check_shapes, packed, samples, shape

import fastload
import fastload.versions  # here, and not in each of the children
from fastload.errors import PackError
from fastload.packing import verify
from fastload.store import DatasetChange, Manifest, old_versions
from fastload.store import change as change_module
from fastload.store.progress import remove_work

change_module.SIDECARS_MOST = 1  # every append then writes the sidecars as one
kill_points.CALLS += [(os, "link"), (os, "write"), (Path, "mkdir"), (Path, "rmdir")]


FIELDS = {"image", "label", "weight", "box", "caption", "meta"}
BEFORE = list(range(20))


@dataclass(frozen=True)
class Change:
    """A change; the numbers of the samples after it, and their fields; whether it makes a new version."""

    do: Callable[[Path], object]
    numbers: list[int] = field(default_factory=lambda: BEFORE)
    fields: set[str] = field(default_factory=lambda: FIELDS)
    versions: bool = True


def append(out: Path) -> None:
    """Appends four samples; goes on where that was begun."""
    try:
        fastload.append(out, Shapes(20, 4), workers=2, resume=(out / "append.tmp").is_dir())
    except PackError as error:
        assert "added its samples already" in str(error), error


def columns(out: Path) -> None:
    """Adds two columns."""
    (out.parent / "more.csv").write_text(
        "note,rank\n" + "".join(f"n{number},{number}\n" for number in range(20))
    )
    fastload.add_columns(out, out.parent / "more.csv")


def drop(out: Path) -> None:
    """Takes two samples out."""
    fastload.drop(out, indices=[3, 18])


def concat(out: Path) -> None:
    """Joins the dataset, which is not changed, with itself."""
    fastload.concat([out, out], out.parent / (out.name + ".both"))


def prune(out: Path) -> None:
    """Gives up the first version."""
    fastload.prune(out)


CHANGES = {
    "append": Change(append, list(range(24))),
    "columns": Change(columns, fields=FIELDS | {"note", "rank"}),
    "drop_columns": Change(lambda out: fastload.drop_columns(out, "meta"), fields=FIELDS - {"meta"}),
    "drop": Change(drop, [number for number in range(20) if number not in (3, 18)]),
    "concat": Change(concat, versions=False),
    "prune": Change(prune, versions=False),
}


def look(out: Path, change: Change) -> None:
    """The dataset is the old version or the new one, whole; older ones that are there are as they were."""
    now = Manifest.load(out).version
    assert verify(out, workers=1).ok
    for version in (*old_versions(out, now), now):
        numbers, fields = (
            (change.numbers, change.fields) if version == 3 else (BEFORE[: 18 + version], FIELDS)
        )
        found = samples(out, version)
        assert [(sample["label"], sample["caption"]) for sample in found] == [
            (shape(number)["label"], shape(number)["caption"]) for number in numbers
        ]
        assert all(set(sample) == fields for sample in found)
        assert all(
            sample.get("note", "") in ("", f"n{number}")
            for sample, number in zip(found, numbers, strict=True)
        )


def finish(out: Path, change: Change) -> None:
    """A following command works, and leaves nothing else behind."""
    both = out.parent / (out.name + ".both")
    if (change.versions and Manifest.load(out).version == 2) or (out / "append.tmp").exists():
        change.do(out)
    if change.do is concat:
        if not (both / "manifest.json").exists():
            concat(out)
        check_shapes(both, BEFORE + BEFORE)
        assert os.listdir(both) == ["manifest.json"]
    if change.do is prune:
        prune(out)
        assert old_versions(out, 2) == []
    DatasetChange(out, "").close()
    remove_work(out / "append.old")  # as the next append and prune do
    now = Manifest.load(out).version
    assert now == (3 if change.versions else 2)
    look(out, change)
    versions = [*old_versions(out, now), now]
    manifests = [Manifest.load(out, version) for version in versions]
    named = {name for manifest in manifests for shard in manifest.shards for _, name in shard.files}
    named |= {sidecar.file for manifest in manifests for sidecar in manifest.sidecars}
    assert set(os.listdir(out)) == named | {
        "manifest.json",
        *(f"manifest-{version:05d}.json" for version in versions[:-1]),
    }


def main(change: Change, folder: Path) -> None:
    """Kills at point 1, 2, ... until a run ends unharmed."""
    base = folder / "base"

    def make() -> None:
        packed(base, 0, 19)
        fastload.append(base, Shapes(19, 1))

    assert kill_points.in_child(make) == 0
    point = 0
    for point, out in kill_points.killed(folder, change.do, base):
        for check in (lambda out=out: look(out, change), lambda out=out: finish(out, change)):
            assert kill_points.in_child(check) == 0, f"point {point}"
        shutil.rmtree(out)
        shutil.rmtree(out.parent / (out.name + ".both"), ignore_errors=True)
    sys.stdout.write(f"{point}\n")


if __name__ == "__main__":
    main(CHANGES[sys.argv[1]], Path(sys.argv[2]))
