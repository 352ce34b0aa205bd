"""Run by tests: pushes, pulls and packs in forked children that SIGKILL themselves at one request or disk
call each; then again, unharmed.

Usage: remote_kill_points.py SCENARIO FOLDER URL OPTIONS FIRST STEP, where OPTIONS are storage_options as
JSON. The points are FIRST, FIRST + STEP, ...; prints the last one.
FOLDER has `one` and `two`, packed datasets, and `src`, the source of `one`, which was packed by
`packed_from`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "store"), str(ROOT.parent / "tools")]

import kill_points  # noqa: E402
import obstore.store  # noqa: E402, F401  (here, and not in each of the children)
from kill_points import in_child, killed_at  # noqa: E402

from fastload import pack, pull, push  # noqa: E402
from fastload.errors import DatasetError  # noqa: E402
from fastload.packing import verify  # noqa: E402
from fastload.remote.client import open_objects  # noqa: E402
from fastload.remote.manifest import find_manifest  # noqa: E402
from fastload.remote.obstore import ObstoreObjects  # noqa: E402
from fastload.store import Manifest  # noqa: E402

REQUESTS = [
    (ObstoreObjects, name)
    for name in ("get", "get_range", "fetch", "head", "list", "put", "put_file", "delete")
]
DISK = [(os, "fsync"), (os, "replace"), (Path, "unlink")]


def packed_from(source: Path, out: str | Path, **more: Any) -> None:
    """The pack of the tests: several shards, in a random order."""
    pack(source, out, shard_size="1MiB", shuffle=True, workers=1, **more)


def unharmed(point: int, *steps: Callable[[], object]) -> None:
    """Runs these steps in one child of their own, so that this process never opens a connection."""

    def run() -> None:
        for step in steps:
            step()

    assert in_child(run) == 0, f"point {point}"


class Scenarios:
    """Scenarios, each a method: what is killed, what must hold at once, and what must hold when it has run
    again."""

    def __init__(self, folder: Path, url: str, options: dict[str, object], points: range) -> None:
        self.folder = folder
        self.url = url
        self.options = {"storage_options": options}
        self.points = points

    def _killed(self, calls: list[tuple[Any, str]], act: Callable[[int], object]) -> Iterator[int]:
        kill_points.CALLS[:] = calls
        return killed_at(self.points, act)

    def _at(self, url: str) -> Manifest | None:
        objects = open_objects(url, self.options["storage_options"])
        try:
            return find_manifest(objects)
        finally:
            objects.close()

    def _holds(self, url: str, *wanted: Manifest | None) -> None:
        """What is at the URL has one of these manifests, and every object that it names."""
        found = self._at(url)
        assert any(found == each or (found and each and found.same_samples(each)) for each in wanted), found
        if found is not None:
            assert verify(url, **self.options).ok

    def push(self) -> int:
        """A dataset to an empty URL."""
        one = Manifest.load(self.folder / "one")
        point = 0
        for point in self._killed(
            REQUESTS, lambda point: push(self.folder / "one", f"{self.url}/{point}", **self.options)
        ):
            url = f"{self.url}/{point}"
            unharmed(
                point,
                lambda url=url: self._holds(url, None, one),
                lambda url=url: push(self.folder / "one", url, **self.options),
                lambda url=url: self._pushed(url, one),
            )
        return point

    def _pushed(self, url: str, manifest: Manifest) -> None:
        assert self._at(url) == manifest
        assert verify(url, **self.options).ok
        objects = open_objects(url, self.options["storage_options"])
        names = {shard.file for shard in manifest.shards} | {sidecar.file for sidecar in manifest.sidecars}
        assert {info.name for info in objects.list()} == names | {"manifest.json"}
        objects.close()

    def overwrite(self) -> int:
        """A dataset over another: at each moment the old or the new one can be read wholly."""
        old, new = Manifest.load(self.folder / "two"), Manifest.load(self.folder / "one")
        point = 0
        unharmed(0, lambda: push(self.folder / "two", f"{self.url}/{self.points.start}", **self.options))
        for point in self._killed(
            REQUESTS,
            lambda point: push(self.folder / "one", f"{self.url}/{point}", overwrite=True, **self.options),
        ):
            url, then = f"{self.url}/{point}", f"{self.url}/{point + self.points.step}"
            unharmed(
                point,
                lambda url=url: self._holds(url, old, new),
                lambda url=url: push(self.folder / "one", url, overwrite=True, **self.options),
                lambda url=url: self._holds(url, new),
                lambda then=then: push(self.folder / "two", then, **self.options),
            )
        return point

    def pull(self) -> int:
        """A dataset into an empty folder; complete files are not fetched again."""
        unharmed(0, lambda: push(self.folder / "one", self.url, **self.options))
        whole = {path.name: path.read_bytes() for path in (self.folder / "one").iterdir()}
        point = 0
        for point in self._killed(
            REQUESTS + DISK, lambda point: pull(self.url, self.folder / f"out-{point}", **self.options)
        ):
            out = self.folder / f"out-{point}"
            try:
                Manifest.load(out)
            except DatasetError:
                complete = len(list(out.glob("*.lmdb"))) if out.exists() else 0
                unharmed(point, lambda out=out, had=complete: self._pulls_the_rest(out, had))
            else:
                unharmed(point, lambda out=out: pull(self.url, out, overwrite=True, **self.options))
            assert {path.name: path.read_bytes() for path in out.iterdir()} == whole, f"point {point}"
        return point

    def _pulls_the_rest(self, out: Path, had: int) -> None:
        summary = pull(self.url, out, **self.options)
        assert summary.fetched_files <= summary.files - had, (summary, had)

    def pack(self) -> int:
        """A pack to a URL, resumed: the very dataset that a local pack makes."""
        one = Manifest.load(self.folder / "one")

        def act(point: int) -> None:
            staging = self.folder / f"staging-{point}"
            packed_from(
                self.folder / "src", f"{self.url}/{point}", staging=staging, resume=True, **self.options
            )

        point = 0
        for point in self._killed(REQUESTS + DISK, act):
            url = f"{self.url}/{point}"
            assert len(list((self.folder / f"staging-{point}").glob("*.lmdb"))) <= 2
            unharmed(
                point,
                lambda url=url: self._holds(url, None, one),
                lambda point=point: act(point),
                lambda url=url: self._pushed(url, one),
            )
            assert not (self.folder / f"staging-{point}").exists(), os.listdir(
                self.folder / f"staging-{point}"
            )
        return point


def main() -> None:
    scenario, folder, url, options, first, step = sys.argv[1:]
    last = getattr(
        Scenarios(Path(folder), url, json.loads(options), range(int(first), 10_000, int(step))), scenario
    )()
    sys.stdout.write(f"{last}\n")


if __name__ == "__main__":
    main()
