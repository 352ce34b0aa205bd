"""The driver of a pack on a cluster: submits a task for each range of the order, and makes the dataset of the
shards that they published. RayEngine runs the tasks on a Ray cluster: this is the only module that imports
ray, and it does so at RayEngine's use.
"""

from __future__ import annotations

import importlib.util
import operator
import os
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from fastload.common.distribution import pip_install
from fastload.common.progress import Progress
from fastload.errors import ArgumentError, FastloadError, PackError, PackStoppedError, ResourceError, advised
from fastload.packing.cluster.cluster_plan import ClusterPlan, SourceSpec, listed, probe, schema_of
from fastload.packing.cluster.losses import AtHand, Cause, Killer, SampleNotes, TaskLosses, Watch
from fastload.packing.cluster.out import ClusterOut, open_out
from fastload.packing.cluster.parts import Part, part_of
from fastload.packing.cluster.records import ClusterJournal, DoneRecord, job_identity
from fastload.packing.cluster.task import RangeDone, RangeFailed, Watched, pack_range
from fastload.packing.job import VARYING, PackJob, finished_summary, write_failure
from fastload.packing.options import RunOptions
from fastload.packing.summary import PackSummary, Tally
from fastload.sources.protocol import attribute_of
from fastload.store import Manifest
from fastload.store.entries import shard_name
from fastload.store.progress import SHARD_SIZE_LIMIT, check_same

if TYPE_CHECKING:
    import ray
    from ray.actor import ActorHandle

T = TypeVar("T")
R = TypeVar("R")
RETRIES = 10
"""Times that a task is run again whose process or node was lost. Ray itself would count no kills by its
memory monitor."""
AHEAD = 2
"""Tasks that are submitted for each that the cluster can run at once."""
NO_NODE_LIMIT = 300.0
"""Seconds for which the cluster may be without any node that can run a task."""
CONNECT_LIMIT = 10.0
NOTES_LIMIT = 30.0
"""Seconds for which the driver waits for the actor that knows at which sample a process was lost."""
CANCEL_LIMIT = 30.0
"""Seconds in which tasks that were cancelled should end; after that they are left to themselves, and
publish nothing."""
_WAIT = 5.0


def _run(
    reference: list[ray.ObjectRef], token: str, part: Part, watch: Watch | None, notes: ActorHandle
) -> RangeDone | RangeFailed:
    """The remote function. `reference` holds the plan's, so that each process fetches the plan once, and not
    for each task. `notes` is the actor that knows the samples at hand of watched processes.
    """

    def plan() -> ClusterPlan:
        import ray

        found = ray.get(reference[0])
        assert isinstance(found, ClusterPlan)
        return found

    if watch is None:
        return pack_range(plan, token, part)

    def note(sample: AtHand) -> None:
        import ray

        try:
            ray.get(notes.note.remote(part.number, watch.attempt, sample))
        except (
            ray.exceptions.RayActorError,
            *_lost_errors(),
        ):  # the actor is lost: this process goes on without notes
            return

    return pack_range(plan, token, part, Watched(watch.left_out, note))


@contextmanager
def connected(where: bool | str) -> Iterator[RayEngine]:
    """An engine on the cluster at an address, or, for True, on the one that `ray.init()` finds or starts.

    Where the process is connected to a cluster already, that one is used, and stays connected.

    Raises:
        ArgumentError: ray is not installed, or `where` is no address.
        PackError: there is no cluster at the address.
    """
    if where is not True and not (isinstance(where, str) and where):
        raise ArgumentError(
            f"ray={where!r} is neither True nor the address of a Ray cluster, such as 'auto' or "
            "'10.0.0.5:6379'"
        )
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError(f"packing on a cluster needs ray, which is not installed: {pip_install('ray')}")
    import ray

    if ray.is_initialized():
        yield RayEngine()
        return
    address = None if where is True else str(where)
    if address is not None:
        _check_listens(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise PackError(
            f"there is no Ray cluster at {address or 'the address that ray.init() uses'} "
            f"({_first_line(error)}): start one with `ray start "
            "--head`, or check the address"
        ) from error
    try:
        yield RayEngine()
    finally:
        ray.shutdown()


def _check_listens(address: str) -> None:
    """Checks that something listens at HOST:PORT or ray://HOST:PORT: Ray itself tries for minutes, and
    then ends the process."""
    if address in ("auto", "local"):
        return
    parts = urlsplit(address if "://" in address else f"gcs://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        exists = (
            "; a source stands before it, as in `fastload pack SRC OUT --ray`"
            if os.path.exists(address)
            else ""
        )
        raise ArgumentError(
            f"ray={address!r} is no address of a Ray cluster, such as auto, 10.0.0.5:6379 or "
            f"ray://head:10001{exists}"
        )
    try:
        socket.create_connection((host, port), timeout=CONNECT_LIMIT).close()
    except OSError as error:
        raise PackError(
            f"there is no Ray cluster at {address} ({error.strerror or error}): start one with `ray "
            "start --head`, or check the address"
        ) from None


class RayEngine:
    """The tasks of a pack on the cluster that this process is connected to."""

    def run(
        self,
        plan: ClusterPlan,
        numbers: range,
        part: Callable[[int], Part],
        *,
        first_wins: bool,
        discard: Callable[[int], None],
    ) -> Iterator[RangeDone | RangeFailed]:
        """Results of the tasks of these ranges, as they come. A bounded number of tasks is submitted ahead.

        Args:
            plan: sent to each process that runs one.
            numbers: numbers of the ranges.
            part: makes the part of a range, when its task is submitted.
            first_wins: after a task failed at a sample, tasks of earlier ranges are still waited for, and no
                others: the last result that comes is not always the earliest failure, which is for the caller
                to choose. Other failures end the iteration at once. Without it a sample that ends its
                processes is left out.
            discard: called after a process was lost, with its range: removes the files that it was writing.

        Raises:
            PackError: the plan cannot be sent, a task was lost more than `RETRIES` times, or the cluster has
                no node for a task for too long.
            ResourceError: a task was lost as often, at last for want of memory.
        """
        what = f"the source, a {type(plan.spec.source).__name__},"
        tasks = _Tasks(plan, _sent(plan, what), part)
        waiting = iter(numbers)
        last = numbers.stop
        alone = time.monotonic()
        try:
            while True:
                slots = self._slots(plan.threads)
                while len(tasks.pending) < AHEAD * max(1, slots) and (number := next(waiting, last)) < last:
                    tasks.submit(number)
                if not tasks.pending:
                    return
                ready = tasks.wait()
                if ready or slots:
                    alone = time.monotonic()
                elif time.monotonic() - alone > NO_NODE_LIMIT:
                    raise PackError(
                        f"the cluster has no node with {plan.threads} CPUs for {NO_NODE_LIMIT:.0f} "
                        "seconds: start nodes, or give fewer "
                        "workers, and go on with resume=True (--resume)"
                    )
                for each in ready:
                    number = tasks.pending.pop(each)
                    try:
                        result = self._result(each, number)
                    except _lost_errors() as error:
                        killer = tasks.lost(number, error, leave_out=not first_wins)
                        discard(number)
                        if killer is None:
                            tasks.submit(number)
                            continue
                        result = RangeFailed(
                            number, PackStoppedError(f"{killer.name}: {killer.reason}"), killer.place
                        )
                    if isinstance(result, RangeFailed):
                        last = min(last, result.number) if first_wins and result.place >= 0 else -1
                        tasks.cancel(partial(operator.lt, last))
                    yield result
                    if last < 0:
                        return
        finally:
            tasks.close()

    def _result(self, task: ray.ObjectRef, number: int) -> RangeDone | RangeFailed:
        import ray

        try:
            result = ray.get(task)
        except _lost_errors():
            raise
        except ray.exceptions.RayError as error:
            raise PackError(
                f"the task of shard {number} failed: {_last_line(error)}; see Ray's logs"
            ) from error
        assert isinstance(result, RangeDone | RangeFailed)
        return result

    def _slots(self, threads: int) -> int:
        """Tasks that the cluster's living nodes can run at once."""
        import ray

        alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        return sum(int(cpus // threads) for cpus in alive)


class RayPool:
    """Calls on the cluster that this process is connected to, as `fastload.common.ahead` submits them. A call
    whose process or node is lost is made again; its function has no other effect than its result.

    Attributes:
        calls: calls that the cluster can make at once.
    """

    def __init__(self) -> None:
        import ray

        self.calls = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(_called)
        self._sent: dict[Callable[[Any], Any], ray.ObjectRef] = {}

    def submit(self, call: Callable[[T], R], argument: T) -> RayCall[R]:
        """Submits a call. Raises PackError: the function cannot be sent."""
        if call not in self._sent:
            self._sent[call] = _sent(call, "the source")
        return RayCall(self._remote.remote([self._sent[call]], argument))


class RayCall(Generic[R]):
    """A call on a cluster, with what is used of a Future."""

    def __init__(self, reference: ray.ObjectRef) -> None:
        self._reference = reference

    def result(self) -> R:
        """Waits for the result. Raises what the call raised; PackError, if it came to none."""
        import ray

        try:
            found, error = ray.get(self._reference)
        except ray.exceptions.RayError as failed:
            raise PackError(f"a task failed: {_last_line(failed)}; see Ray's logs") from failed
        if error is not None:
            raise error
        result: R = found
        return result

    def cancel(self) -> None:
        import ray

        ray.cancel(self._reference)


def _called(call: list[ray.ObjectRef], argument: object) -> tuple[object, FastloadError | None]:
    """The remote function of a RayPool. Errors are values: Ray's own would be messages of many lines."""
    import ray

    try:
        return ray.get(call[0])(argument), None
    except FastloadError as error:
        return None, error


def _sent(value: object, what: str) -> ray.ObjectRef:
    import ray

    try:
        return ray.put(value)
    except Exception as error:
        raise PackError(
            f"{what} cannot be sent to the nodes ({_first_line(error)}): give a path, or an object that "
            "pickle can send"
        ) from error


class _Tasks:
    """Submitted tasks of one plan, and the processes that they lost.

    Attributes:
        pending: numbers of the ranges by their submitted tasks.
    """

    def __init__(self, plan: ClusterPlan, reference: ray.ObjectRef, part: Callable[[int], Part]) -> None:
        import ray

        self._plan = plan
        self._part = part
        self._reference = [reference]
        self._remote = ray.remote(num_cpus=plan.threads, max_retries=0, retry_exceptions=False)(_run)
        self._losses: defaultdict[int, TaskLosses] = defaultdict(TaskLosses)
        self._notes: ActorHandle | None = None
        self.pending: dict[Any, int] = {}

    def submit(self, number: int) -> None:
        """Submits the task of a range, watched if it has lost a process before."""
        watch = None
        if number in self._losses:
            watch = Watch(self._losses[number].attempt, self._losses[number].left_out)
        notes = None if watch is None else self._actor()
        task = self._remote.remote(self._reference, self._plan.token, self._part(number), watch, notes)
        self.pending[task] = number

    def wait(self) -> list[Any]:
        """Tasks that have ended; none after `_WAIT` seconds without any."""
        import ray

        ready: list[Any] = ray.wait(list(self.pending), num_returns=1, timeout=_WAIT)[0]
        return ready

    def lost(self, number: int, error: Exception, *, leave_out: bool) -> Killer | None:
        """Counts a lost process of a range. Returns the sample that ended it where that is the task's
        failure; None: it is to be run again.

        Raises:
            PackError, ResourceError: the task was lost more than `RETRIES` times.
        """
        losses, cause = self._losses[number], _cause(error)
        killer = losses.add(cause, self._at_hand(number, losses.attempt))
        if killer is not None and leave_out:
            losses.leave_out(killer, cause)
        elif killer is not None and cause is Cause.CRASH:
            return killer
        if losses.count > RETRIES:
            raise _lost(self._plan, number, losses, error) from error
        return None

    def cancel(self, which: Callable[[int], bool]) -> None:
        """Cancels the tasks of some ranges, and waits for their ends: what they were writing is removed."""
        import ray

        tasks = [task for task, number in self.pending.items() if which(number)]
        self.pending = {task: number for task, number in self.pending.items() if not which(number)}
        if not tasks or not ray.is_initialized():
            return
        for task in tasks:
            ray.cancel(task)
        ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_LIMIT)

    def close(self) -> None:
        """Cancels all tasks, and ends the actor."""
        import ray

        self.cancel(lambda number: True)
        if self._notes is not None and ray.is_initialized():
            ray.kill(self._notes)

    def _actor(self) -> ActorHandle:
        import ray

        if self._notes is None:
            self._notes = ray.remote(num_cpus=0)(SampleNotes).remote()
        return self._notes

    def _at_hand(self, number: int, attempt: int) -> AtHand | None:
        """The sample at which the process of an attempt was lost; None: unknown."""
        import ray

        if self._notes is None:
            return None
        try:
            found = ray.get(self._notes.last.remote(number, attempt), timeout=NOTES_LIMIT)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, *_lost_errors()):
            self._notes = None  # lost with its node, or ended for want of memory
            return None
        assert found is None or isinstance(found, AtHand)
        return found


def _lost_errors() -> tuple[type[Exception], ...]:
    """Errors of a task that ended with its process or node: it may succeed in another."""
    from ray import exceptions

    return (
        exceptions.WorkerCrashedError,
        exceptions.OutOfMemoryError,
        exceptions.NodeDiedError,
        exceptions.LocalRayletDiedError,
    )


def _cause(error: Exception) -> Cause:
    """The cause of a loss."""
    from ray import exceptions

    if isinstance(error, exceptions.OutOfMemoryError):
        return Cause.MEMORY
    return Cause.CRASH if isinstance(error, exceptions.WorkerCrashedError) else Cause.NODE


def _lost(plan: ClusterPlan, number: int, losses: TaskLosses, error: Exception) -> FastloadError:
    """The error of a task that was lost too often."""
    shard = f"{shard_name(number + plan.offset)} (from place {number * plan.samples} of the order on)"
    times, at = losses.count, losses.at_hand
    last = f", at last at {at.name}" if at is not None and at.name else ""
    if _cause(error) is Cause.MEMORY:
        return ResourceError(
            f"the nodes have no memory for the task of {shard}, which Ray ended {times} times{last}: "
            "use fewer workers, or a lower "
            "max_pixels, and go on with resume=True (--resume)"
        )
    return PackError(
        f"the process of the task of {shard} was lost {times} times{last} "
        f"({_first_line(error).rstrip('.')}): the kernel kills processes "
        "where memory is short, so look at the node's memory and Ray's logs, leave out or mend a "
        "sample that is too large, and go on with "
        "resume=True (--resume)"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


SAMPLES_MOST = 8192
SHARDS_WANTED = 64
"""Without shard_samples, a shard takes this part of the samples, and at most so many."""
_GO_ON = "what was made stays: go on with resume=True (--resume)"


def run_on_cluster(
    job: PackJob, spec: SourceSpec, out: str | os.PathLike[str], run: RunOptions
) -> PackSummary:
    """Makes the dataset `out` of a job's samples, on the Ray cluster that `run.ray` names.

    Raises:
        ArgumentError: an option that has no meaning on a cluster; ray is missing.
        PackError: as `run_job`; there is no cluster; a node does not see the source or OUT.
    """
    if run.shard_size is not None:
        raise ArgumentError(
            "shards made on a cluster end after so many samples: give shard_samples instead of shard_size"
        )
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


class Gathered:
    """Results of the tasks, which come in any order. A tally names up to `NAMES_KEPT` samples of each kind,
    which would be gigabytes of 10^8 samples that decode with warnings: so those of neighbouring ranges are
    merged as they come.

    Attributes:
        records: the done-records by the numbers of their ranges, without their tallies.
        packed: samples that the tasks wrote.
    """

    def __init__(self) -> None:
        self.records: dict[int, DoneRecord] = {}
        self.packed = 0
        self._tallies: dict[
            int, tuple[int, Tally]
        ] = {}  # first range: (end, tally) of neighbours whose tallies are merged
        self._firsts: dict[int, int] = {}  # end: first range

    def add(self, result: RangeDone) -> None:
        """Adds the result of a range."""
        self.records[result.number] = replace(result.record, state={})
        self.packed += result.packed
        first, end, tally = result.number, result.number + 1, Tally(result.record.state)
        if first in self._firsts:
            first = self._firsts.pop(first)
            before = self._tallies.pop(first)[1]
            before.merge(tally)
            tally = before
        if end in self._tallies:
            end, after = self._tallies.pop(end)
            tally.merge(after)
        self._tallies[first], self._firsts[end] = (end, tally), first

    def tally(self) -> Tally:
        """The tally of all ranges, in their order."""
        tally = Tally()
        for _, (_, each) in sorted(self._tallies.items()):
            tally.merge(each)
        return tally


class _Driver:
    """One run of the driver."""

    def __init__(
        self, job: PackJob, spec: SourceSpec, out: ClusterOut, run: RunOptions, started: float
    ) -> None:
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
            check_same(
                self._out.title,
                (finished.schema.to_json(), finished.options, SHARD_SIZE_LIMIT),
                self._now(options),
                VARYING,
            )
            self._job.refuse_others(self._out.title, finished)
            self._out.tidy(finished)
            return finished_summary(finished, self._started)
        if before is not None and self._run.resume:
            check_same(
                self._out.title,
                (before.schema, before.options, SHARD_SIZE_LIMIT),
                self._now(options),
                VARYING,
            )
        elif self._job.options.on_error == "raise":
            self._job.refuse_deep()
        token, probed = secrets.token_hex(16), probe(self._job)
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
            probe=probed,
            listed=listed(self._job, probed),
            storage_options=self._run.storage_options,
            timeout=self._run.timeout,
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
        stored: Mapping[str, Any] = {}
        if before is not None:
            stored = before.options
        elif self._out.finished is not None:
            stored = self._out.finished.options
        if isinstance(known := stored.get("shard_samples"), int) and known > 0:
            return known
        return max(1, min(SAMPLES_MOST, -(-len(self._job.order) // SHARDS_WANTED)))

    def _results(self, engine: RayEngine, plan: ClusterPlan) -> Gathered:
        """The results of all ranges. Raises the error of the first range that failed."""
        count = len(self._job.order)
        ranges = range(-(-count // plan.samples))
        found = Gathered()
        failures: list[RangeFailed] = []
        with Progress(count, self._job.source.title, shown=self._run.progress) as bar:
            bar.start(0, 0)
            places = size = 0
            for result in engine.run(
                plan,
                ranges,
                partial(part_of, self._job, samples=plan.samples),
                first_wins=self._job.options.on_error == "raise",
                discard=self._out.discard,
            ):
                if isinstance(result, RangeFailed):
                    failures.append(result)
                    continue
                found.add(result)
                state = result.record.state
                places, size = places + int(state.get("position", 0)), size + int(state.get("bytes_in", 0))
                bar.update(places, size)
        if failures:
            self._raise(failures)
        if len(found.records) != len(ranges):
            raise PackError(f"{len(ranges) - len(found.records)} shards were not made: {_GO_ON}")
        return found

    def _raise(self, failures: list[RangeFailed]) -> None:
        other = [failure for failure in failures if failure.place < 0]
        first = min(other or failures, key=lambda failure: (failure.place, failure.number))
        if first.deep:
            self._job.refuse_deep(first.place)
        raise first.error

    def _finish(self, done: Gathered, options: dict[str, Any]) -> PackSummary:
        tally, shards = done.tally(), []
        tally.max_pixels = max(tally.max_pixels, self._job.options.max_pixels)
        sections: dict[str, tuple[int, int]] = {}
        etags: dict[str, str | None] = {}
        samples = 0
        for _, record in sorted(done.records.items()):
            if record.shard is not None:
                shards.append(record.shard.at(samples))
                samples += record.shard.count
                sections[record.shard.file], etags[record.shard.file] = record.section, record.etag
        if not samples:
            raise self._job.nothing_packed(tally)
        summary = self._job.summary(tally, samples)
        classes = self._job.source.classes
        names = None if classes is None else tuple(classes)
        options = {**options, "max_pixels": tally.max_pixels}
        form = attribute_of(self._job.source, "form")
        new = Manifest(self._schema, tuple(shards), names, options, summary.stored(), form=form)
        manifest = self._out.commit(new, sections, etags)
        return replace(
            summary.of(manifest),
            shards=len(manifest.shards),
            seconds=time.monotonic() - self._started,
            packed_now=done.packed,
        )
