"""RayEngine: runs the tasks of a pack on a Ray cluster. It is the only module that imports ray, and does so where it is asked for."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from fastload.errors import ArgumentError, FastloadError, PackError, ResourceError
from fastload.packing.cluster.plan import ClusterPlan
from fastload.packing.cluster.task import RangeDone, RangeFailed, pack_range
from fastload.store.entries import shard_name

RETRIES = 10
"""Times that a task is run again whose process or node was lost. Ray itself would count no kills by its memory monitor."""
AHEAD = 2
"""Tasks that are submitted for each that the cluster can run at once."""
NO_NODE_LIMIT = 300.0
"""Seconds for which the cluster may be without any node that can run a task."""
CONNECT_LIMIT = 10.0
CANCEL_LIMIT = 30.0
"""Seconds in which tasks that were cancelled should end; after that they are left to themselves, and publish nothing."""
_WAIT = 5.0


def _run(reference: list[Any], token: str, number: int) -> RangeDone | RangeFailed:
    """The remote function. `reference` holds the plan's, so that each process fetches the plan once, and not for each task."""

    def plan() -> ClusterPlan:
        import ray

        found = ray.get(reference[0])
        assert isinstance(found, ClusterPlan)
        return found

    return pack_range(plan, token, number)


@contextmanager
def connected(where: bool | str) -> Iterator[RayEngine]:
    """An engine on the cluster at an address, or, for True, on the one that `ray.init()` finds or starts.

    Where the process is connected to a cluster already, that one is used, and stays connected.

    Raises:
        ArgumentError: ray is not installed, or `where` is no address.
        PackError: there is no cluster at the address.
    """
    if where is not True and not (isinstance(where, str) and where):
        raise ArgumentError(f"ray={where!r} is neither True nor the address of a Ray cluster, such as 'auto' or '10.0.0.5:6379'")
    if importlib.util.find_spec("ray") is None:
        raise ArgumentError("packing on a cluster needs ray, which is not installed: pip install 'fastload[ray]'")
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
            f"there is no Ray cluster at {address or 'the address that ray.init() uses'} ({_first_line(error)}): start one with `ray start "
            "--head`, or check the address"
        ) from error
    try:
        yield RayEngine()
    finally:
        ray.shutdown()


def _check_listens(address: str) -> None:
    """Checks that something listens at HOST:PORT or ray://HOST:PORT: Ray itself tries for minutes, and then ends the process."""
    if address in ("auto", "local"):
        return
    parts = urlsplit(address if "://" in address else f"gcs://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        exists = "; a source stands before it, as in `fastload pack SRC OUT --ray`" if os.path.exists(address) else ""
        raise ArgumentError(f"ray={address!r} is no address of a Ray cluster, such as auto, 10.0.0.5:6379 or ray://head:10001{exists}")
    try:
        socket.create_connection((host, port), timeout=CONNECT_LIMIT).close()
    except OSError as error:
        raise PackError(
            f"there is no Ray cluster at {address} ({error.strerror or error}): start one with `ray start --head`, or check the address"
        ) from None


class RayEngine:
    """The tasks of a pack on the cluster that this process is connected to."""

    def run(self, plan: ClusterPlan, numbers: range, *, first_wins: bool) -> Iterator[RangeDone | RangeFailed]:
        """Results of the tasks of these ranges, as they come. A bounded number of tasks is submitted ahead.

        Args:
            plan: sent to each process that runs one.
            numbers: of the ranges.
            first_wins: after a task failed at a sample, tasks of earlier ranges are still waited for, and no others: the last result that
                comes is not always the earliest failure, which is for the caller to choose. Other failures end the iteration at once.

        Raises:
            PackError: the plan cannot be sent, a task was lost more than `RETRIES` times, or the cluster has no node for a task for too
                long.
            ResourceError: a task was lost as often, at last for want of memory.
        """
        import ray

        reference = self._sent(plan)
        remote = ray.remote(num_cpus=plan.threads, max_retries=0, retry_exceptions=False)(_run)
        pending: dict[Any, int] = {}
        losses: Counter[int] = Counter()
        waiting = iter(numbers)
        last = numbers.stop
        alone = time.monotonic()
        try:
            while True:
                slots = self._slots(plan.threads)
                while len(pending) < AHEAD * max(1, slots) and (number := next(waiting, last)) < last:
                    pending[remote.remote([reference], plan.token, number)] = number
                if not pending:
                    return
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_WAIT)
                if ready or slots:
                    alone = time.monotonic()
                elif time.monotonic() - alone > NO_NODE_LIMIT:
                    raise PackError(
                        f"the cluster has no node with {plan.threads} CPUs for {NO_NODE_LIMIT:.0f} seconds: start nodes, or give fewer "
                        "workers, and go on with resume=True (--resume)"
                    )
                for each in ready:
                    number = pending.pop(each)
                    try:
                        result = self._result(each, number)
                    except _lost_errors() as error:
                        losses[number] += 1
                        if losses[number] > RETRIES:
                            raise _lost(plan, number, losses[number], error) from error
                        pending[remote.remote([reference], plan.token, number)] = number
                        continue
                    if isinstance(result, RangeFailed):
                        last = min(last, result.number) if first_wins and result.place >= 0 else -1
                        self._cancel([task for task, number in pending.items() if number > last])
                        pending = {task: number for task, number in pending.items() if number <= last}
                    yield result
                    if last < 0:
                        return
        finally:
            self._cancel(list(pending))

    def _sent(self, plan: ClusterPlan) -> Any:
        import ray

        try:
            return ray.put(plan)
        except Exception as error:
            kind = type(plan.spec.source).__name__
            raise PackError(
                f"the source, a {kind}, cannot be sent to the nodes ({_first_line(error)}): give a path, or an object that pickle can send"
            ) from error

    def _result(self, task: Any, number: int) -> RangeDone | RangeFailed:
        import ray

        try:
            result = ray.get(task)
        except _lost_errors():
            raise
        except ray.exceptions.RayError as error:
            raise PackError(f"the task of shard {number} failed: {_last_line(error)}; see Ray's logs") from error
        assert isinstance(result, RangeDone | RangeFailed)
        return result

    def _slots(self, threads: int) -> int:
        """Tasks that the cluster's living nodes can run at once."""
        import ray

        alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        return sum(int(cpus // threads) for cpus in alive)

    def _cancel(self, tasks: list[Any]) -> None:
        """Cancels tasks, and waits for their ends: what they were writing is removed."""
        import ray

        if not tasks or not ray.is_initialized():
            return
        for task in tasks:
            ray.cancel(task)
        ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_LIMIT)


def _lost_errors() -> tuple[type[Exception], ...]:
    """Errors of a task that ended with its process or node: it may succeed in another."""
    from ray import exceptions

    return exceptions.WorkerCrashedError, exceptions.OutOfMemoryError, exceptions.NodeDiedError, exceptions.LocalRayletDiedError


def _lost(plan: ClusterPlan, number: int, times: int, error: BaseException) -> FastloadError:
    """The error of a task that was lost too often."""
    from ray import exceptions

    shard = f"{shard_name(number + plan.offset)} (from place {number * plan.samples} of the order on)"
    if isinstance(error, exceptions.OutOfMemoryError):
        return ResourceError(
            f"the nodes have no memory for the task of {shard}, which Ray ended {times} times: use fewer workers, or a lower "
            "max_pixels, and go on with resume=True (--resume)"
        )
    return PackError(
        f"the process of the task of {shard} was lost {times} times ({_first_line(error).rstrip('.')}): the kernel kills processes where "
        "memory is short, so look at the node's memory and Ray's logs, leave out or mend a sample that is too large, and go on with "
        "resume=True (--resume)"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _last_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]
