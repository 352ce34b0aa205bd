"""The driver of a pack on a cluster: submits a task for each range of the order, and makes the dataset of what they published."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fastload.errors import ArgumentError, PackError, advised
from fastload.packing.cluster.engine import RayEngine, connected
from fastload.packing.cluster.out import ClusterOut, open_out
from fastload.packing.cluster.plan import ClusterPlan, SourceSpec, probe, schema_of
from fastload.packing.cluster.records import ClusterJournal, job_identity
from fastload.packing.cluster.task import RangeDone, RangeFailed
from fastload.packing.job import VARYING, PackJob, finished_summary, write_failure
from fastload.packing.options import RunOptions
from fastload.packing.progress import Progress
from fastload.packing.summary import PackSummary, Tally
from fastload.store import Manifest
from fastload.store.progress import SHARD_SIZE_LIMIT, check_same

SAMPLES_MOST = 8192
SHARDS_WANTED = 64
"""Without shard_samples, a shard takes this part of the samples, and at most so many."""
_GO_ON = "what was made stays: go on with resume=True (--resume)"


def run_on_cluster(job: PackJob, spec: SourceSpec, out: str | os.PathLike[str], run: RunOptions) -> PackSummary:
    """Makes the dataset `out` of a job's samples, on the Ray cluster that `run.ray` names.

    Raises:
        ArgumentError: an option that has no meaning on a cluster; ray is missing.
        PackError: as `run_job`; there is no cluster; a node does not see the source or OUT.
    """
    if run.shard_size is not None:
        raise ArgumentError("shards made on a cluster end after so many samples: give shard_samples instead of shard_size")
    assert run.ray is not None
    started = time.monotonic()
    with ExitStack() as stack:
        engine = stack.enter_context(connected(run.ray))
        place = stack.enter_context(open_out(out, run))
        stack.enter_context(advised(_GO_ON))
        try:
            return _Driver(job, spec, place, run, started).run(engine)
        except OSError as error:
            raise write_failure(place.title, error) from error


class _Driver:
    """One run of the driver."""

    def __init__(self, job: PackJob, spec: SourceSpec, out: ClusterOut, run: RunOptions, started: float) -> None:
        self._job = job
        self._spec = spec
        self._out = out
        self._run = run
        self._started = started
        self._schema = schema_of(job)

    def run(self, engine: RayEngine) -> PackSummary:
        before = self._out.journal
        samples = self._samples(before)
        options = {**self._job.identity(), "shard_samples": samples}
        if (finished := self._out.finished) is not None:
            check_same(self._out.title, (finished.schema.to_json(), finished.options, SHARD_SIZE_LIMIT), self._now(options), VARYING)
            self._job.refuse_others(self._out.title, finished)
            self._out.tidy(finished)
            return finished_summary(finished, self._started)
        if before is not None and self._run.resume:
            check_same(self._out.title, (before.schema, before.options, SHARD_SIZE_LIMIT), self._now(options), VARYING)
        elif self._job.options.on_error == "raise":
            self._job.refuse_deep()
        token = secrets.token_hex(16)
        self._out.begin(ClusterJournal(token, self._schema.to_json(), options, self._out.offset))
        plan = ClusterPlan(
            spec=self._spec,
            options=self._job.options,
            samples=samples,
            threads=self._run.workers or 1,
            out=self._out.place,
            staging=None if self._run.staging is None else os.path.abspath(self._run.staging),
            offset=self._out.offset,
            token=token,
            identity=job_identity(self._schema, options, VARYING),
            digest=options["source_digest"],
            probe=probe(self._job),
            storage_options=self._run.storage_options,
        )
        done = self._results(engine, plan)
        self._out.check_token(token)
        return self._finish(done, options)

    def _now(self, options: dict[str, Any]) -> tuple[object, dict[str, Any], int]:
        return self._schema.to_json(), options, SHARD_SIZE_LIMIT

    def _samples(self, before: ClusterJournal | None) -> int:
        """Samples of a shard: as given, else as the pack was begun with, else by the number of samples."""
        if self._run.shard_samples is not None:
            return self._run.shard_samples
        stored = before.options if before is not None else self._out.finished.options if self._out.finished is not None else {}
        if isinstance(known := stored.get("shard_samples"), int) and known > 0:
            return known
        return max(1, min(SAMPLES_MOST, -(-len(self._job.order) // SHARDS_WANTED)))

    def _results(self, engine: RayEngine, plan: ClusterPlan) -> list[RangeDone]:
        """The result of every range, in order. Raises the error of the first range that failed."""
        count = len(self._job.order)
        ranges = range(-(-count // plan.samples))
        found: dict[int, RangeDone] = {}
        failures: list[RangeFailed] = []
        with Progress(count, self._job.source.title, shown=self._run.progress) as bar:
            bar.start(0, 0)
            places = size = 0
            for result in engine.run(plan, ranges, first_wins=self._job.options.on_error == "raise"):
                if isinstance(result, RangeFailed):
                    failures.append(result)
                    continue
                found[result.number] = result
                state = result.record.state
                places, size = places + int(state.get("position", 0)), size + int(state.get("bytes_in", 0))
                bar.update(places, size)
        if failures:
            self._raise(failures)
        if len(found) != len(ranges):
            raise PackError(f"{len(ranges) - len(found)} shards were not made: {_GO_ON}")
        return [found[number] for number in ranges]

    def _raise(self, failures: list[RangeFailed]) -> None:
        other = [failure for failure in failures if failure.place < 0]
        first = min(other or failures, key=lambda failure: (failure.place, failure.number))
        if first.deep:
            self._job.refuse_deep(first.place)
        raise first.error

    def _finish(self, done: list[RangeDone], options: dict[str, Any]) -> PackSummary:
        tally, shards = Tally(), []
        tally.max_pixels = self._job.options.max_pixels
        sections: dict[str, tuple[int, int]] = {}
        etags: dict[str, str | None] = {}
        samples = 0
        for result in done:
            record = result.record
            tally.merge(Tally(record.state))
            if record.shard is not None:
                shards.append(record.shard.at(samples))
                samples += record.shard.count
                sections[record.shard.file], etags[record.shard.file] = record.section, record.etag
        if not samples:
            raise self._job.nothing_packed(tally)
        source: Any = getattr(self._job.source, "notices", ())
        summary = tally.summary(samples=samples, shards=0, seconds=0.0, packed_now=0, source=source)
        classes = self._job.source.classes
        names = None if classes is None else tuple(classes)
        options = {**options, "max_pixels": tally.max_pixels}
        manifest = self._out.commit(Manifest(self._schema, tuple(shards), names, options, summary.stored()), sections, etags)
        packed = sum(result.packed for result in done)
        return replace(summary, shards=len(manifest.shards), seconds=time.monotonic() - self._started, packed_now=packed)
