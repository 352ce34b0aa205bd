"""Pool: the worker processes of an iterator, as the parent starts them, exchanges messages with them and ends
them.

NOTE [ processes: ends of life ]
A worker ends when it receives Stop, when its channel is closed, or when the parent's process is gone; a
thread of its own, which needs no interpreter lock, watches for that. The parent notices a worker's end by its
pidfd. So it needs no handler for SIGCHLD, and no child of a worker that inherited its sockets can hide the
end. close() sends Stop, waits GRACE, sends SIGTERM, waits again, and sends SIGKILL. It is called when the
iterator ends or is collected, when the interpreter exits, and after an error.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import multiprocessing.process
import os
import select
import signal
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from fastload._native import core
from fastload.common.forks import call_in_children
from fastload.common.signals import SIGNALS_S
from fastload.common.system import oom_kills
from fastload.engines.processes.channel import Channel, DescriptorsLost, Disconnected, pair
from fastload.engines.processes.messages import Job, Stop
from fastload.errors import ResourceError, WorkerError

GRACE = 0.3
"""Seconds that close() waits for a worker after Stop, and again after SIGTERM."""


_NAME = "fastload-worker-"


_Content = TypeVar("_Content")


class Travel(Generic[_Content]):
    """Wrapper that pickles an object for a spawned process with cloudpickle, so that it may contain
    lambdas and classes of a notebook."""

    def __init__(self, content: _Content) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        import io

        from fastload.engines.processes.pickling import cloud_pickler, sharing_reducers

        out = io.BytesIO()
        cloud_pickler(out, sharing_reducers()).dump(self.content)
        return _unpacked, (out.getvalue(),)


def _unpacked(pickled: bytes) -> Travel[Any]:
    import pickle

    return Travel(pickle.loads(pickled))


# NOTE [ processes: signals ]
# Signals that the parent handles in Python are for the parent alone: workers do nothing on SIGINT and ignore
# the others. Until a starting worker has set that up, these signals are blocked in it, so that one that
# arrives meanwhile neither ends it nor prints a traceback.
_PARENTS_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
)


class _Detached(Protocol):
    """A file descriptor on its way to a worker process, where detach() returns its number."""

    def detach(self) -> int: ...


def _main(
    job: Travel[Job],
    number: int,
    sock: socket.socket,
    control: _Detached,
    indexes: _Detached | None,
    handled: tuple[int, ...],
) -> None:
    from fastload.engines.processes import worker as child

    child.set_signals(handled)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PARENTS_SIGNALS)
    child.run(job.content, number, sock, control.detach(), None if indexes is None else indexes.detach())


@contextlib.contextmanager
def _signals_later(method: str) -> Iterator[None]:
    """Blocks the parent's signals while a worker starts; the worker inherits the blocked signals."""
    if method != "fork":
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # now: its start would unblock SIGINT later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _disown() -> None:
    """Removes the parent's workers from a forked child's list of children: else multiprocessing would end
    them when that child exits."""
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    for process in [p for p in children if p.name.startswith(_NAME)]:
        children.discard(process)


call_in_children(_disown)


class WorkerProcess:
    """One worker: its process, its channel, and a descriptor that becomes readable when the process ends."""

    def __init__(self, number: int, process: Any, channel: Channel) -> None:
        self.number = number
        self.process = process
        self.pid: int = process.pid
        self.channel = channel
        try:
            self.death = os.pidfd_open(self.pid)
            self._own_death = True
        except OSError:  # no pidfd on this system: use the pipe that multiprocessing keeps
            self.death, self._own_death = process.sentinel, False

    def forget(self) -> None:
        """Closes the parent's descriptors for this worker."""
        self.channel.close()
        owned, self._own_death = self._own_death, False  # first: Ctrl-C may come in between
        if owned:
            with contextlib.suppress(OSError):
                os.close(self.death)


_LIMITS = {errno.EMFILE: "open files (ulimit -n)", errno.EAGAIN: "processes (ulimit -u, or the container's)"}


def _not_started(error: OSError, number: int, workers: int) -> str:
    limit = f", or raise the limit on {_LIMITS[error.errno]}" if error.errno in _LIMITS else ""
    return (
        f"num_workers={workers}: after {number} worker processes no other could be started "
        f"({error.strerror}): use fewer{limit}"
    )


class Pool:
    """The worker processes of one iterator.

    1. The process that uses a pool also creates it; in a forked child, close() does nothing.
    2. Every wait ends: with a message, the end of a worker, the timeout, or an exception from a signal
       handler.
    """

    def __init__(
        self,
        context: Any,
        tickets: int,
        job: Job,
        indexes: core.SharedIndexes | None,
        holds: Callable[[int], tuple[Any, ...]],
    ) -> None:
        refuse_daemon(context)
        if context.get_start_method() == "forkserver":
            warm_forkserver(context)
        self.control = core.SharedSlot(max(4096, 8 * tickets))
        self._indexes = indexes
        self.workers: list[WorkerProcess] = []
        self.method: str = context.get_start_method()
        self._holds = holds
        self._oom = oom_kills()
        self._heard = False
        self._finalizer = weakref.finalize(self, _close, self.workers, os.getpid())
        try:
            for number in range(job.workers):
                self._start(context, number, Travel(job))
        except OSError as error:
            started = len(self.workers)
            self.close()
            raise ResourceError(_not_started(error, started, job.workers)) from error
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, number: int, job: Travel[Job]) -> None:
        ours, theirs = pair()
        channel = Channel(ours, parent=True)
        try:
            indexes = None if self._indexes is None else self._passed(self._indexes.fd)
            handled = tuple(
                int(n) for n in _PARENTS_SIGNALS if n != signal.SIGINT and callable(signal.getsignal(n))
            )
            process = context.Process(
                target=_main,
                args=(job, number, theirs, self._passed(self.control.fd), indexes, handled),
                daemon=True,
                name=f"{_NAME}{number}",
            )
            with _signals_later(self.method):
                process.start()
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        self.workers.append(WorkerProcess(number, process, channel))

    def _passed(self, fd: int) -> _Fd | _Late:
        """A file descriptor as an argument of a worker."""
        from multiprocessing.reduction import DupFd

        return _Fd(fd) if self.method == "fork" else _Late(DupFd, fd)

    @property
    def processes(self) -> list[Any]:
        """The multiprocessing.Process objects of the workers."""
        return [worker.process for worker in self.workers]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collects the messages sent in this block, and sends them to each worker together when it ends."""
        for worker in self.workers:
            worker.channel.cork()
        try:
            yield
        finally:
            for worker in self.workers:
                with contextlib.suppress(Disconnected):
                    worker.channel.uncork()

    def send(self, number: int, message: object, fds: tuple[int, ...] = ()) -> None:
        """Sends a message to one worker. If the worker is gone, the next receive() raises WorkerError."""
        with contextlib.suppress(Disconnected):
            self.workers[number].channel.send(message, fds)

    def send_bytes(self, number: int, pickled: bytes) -> None:
        """Sends a message that was pickled before: one pickle serves all workers."""
        with contextlib.suppress(Disconnected):
            self.workers[number].channel.send_bytes(pickled)

    def receive(self, numbers: list[int], timeout: float | None) -> tuple[Any, tuple[int, ...]] | None:
        """The next message of one of these workers, and its descriptors; None on timeout.

        Raises:
            WorkerError: one of them is gone.
            ResourceError: this process may open no more files.
        """
        workers = [self.workers[n] for n in numbers]
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            for worker in workers:
                try:
                    message = worker.channel.receive()
                except DescriptorsLost as error:
                    raise ResourceError(str(error)) from None
                except Disconnected:
                    raise self._died(worker) from None
                if message is not None:
                    self._heard = True
                    return message
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._wait(workers, left)

    def _wait(self, workers: list[WorkerProcess], timeout: float | None) -> None:
        """Waits for a message or an end, SIGNALS_S at most."""
        poll = select.poll()
        by_fd: dict[int, WorkerProcess] = {}
        for worker in workers:
            by_fd[worker.channel.register(poll)] = by_fd[worker.death] = worker
            poll.register(worker.death, select.POLLIN)
        for worker in self.workers:
            if worker not in workers and worker.channel.backlog:
                by_fd[worker.channel.fileno()] = worker
                poll.register(worker.channel.fileno(), select.POLLOUT)
        limit = SIGNALS_S if timeout is None else min(timeout, SIGNALS_S)
        for fd, event in poll.poll(1 + int(1000 * limit)):
            worker = by_fd[fd]
            if fd != worker.death:
                if event & select.POLLOUT:
                    with contextlib.suppress(Disconnected):
                        worker.channel.flush()
            elif not worker.channel.readable():
                raise self._died(worker)

    def _died(self, worker: WorkerProcess) -> WorkerError:
        worker.process.join(GRACE)
        code = worker.process.exitcode
        if code is None:  # alive with its socket closed: it can deliver nothing any more
            worker.process.kill()
            worker.process.join()
            code = worker.process.exitcode
        if code == 128 + signal.SIGTERM:  # child.set_signals
            code = -int(signal.SIGTERM)
        held = tuple(self._holds(worker.number))
        hints = self._hints(code)
        return WorkerError(
            f"{_in_torchs_words(worker.pid, code)}: worker {worker.number} "
            f"{_cause(code)}{_held(held)}.{hints}",
            worker=worker.number,
            pid=worker.pid,
            exitcode=code,
            indices=held,
        )

    def _hints(self, code: int) -> str:
        if code == -signal.SIGKILL:
            killed = oom_kills() - self._oom
            known = (
                f"the kernel has done so {killed} times in this control group since the workers started"
                if killed > 0
                else "often it is the kernel"
            )
            return (
                f" When nobody sent that signal, memory ran out ({known}): lower num_workers, "
                "prefetch_factor or what the dataset keeps."
            )
        if code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL):
            return (
                " A library crashed in the dataset's code: num_workers=0, or PYTHONFAULTHANDLER=1, shows "
                "where."
            )
        if self.method != "fork" and not self._heard:
            return (
                f' It ended while it started. Under "{self.method}" it imports the main script: what '
                "starts work there belongs "
                'under `if __name__ == "__main__":`.'
            )
        return ""

    def close(self) -> None:
        """Ends the workers and waits until they are gone; idempotent."""
        self._finalizer()


class _Fd:
    """A file descriptor passed to a forked child, which inherits it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return os.dup(self._fd)


class _Late:
    """A file descriptor that is duplicated only when multiprocessing pickles it for a spawned process."""

    def __init__(self, duplicate: Callable[[int], _Detached], fd: int) -> None:
        self._duplicate, self._fd = duplicate, fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._duplicate(self._fd),)


def _arrived(duplicate: _Detached) -> _Detached:
    return duplicate


def _close(workers: list[WorkerProcess], pid: int) -> None:
    if os.getpid() != pid:
        return
    for worker in workers:
        with contextlib.suppress(Disconnected):
            worker.channel.send(Stop())
    for step in (None, "terminate", "kill"):
        deadline = time.monotonic() + GRACE
        for worker in workers:
            if step is not None and worker.process.is_alive():
                getattr(worker.process, step)()
        for worker in workers:
            if step is None:
                worker.channel.shut()
            worker.process.join(None if step == "kill" else max(0.0, deadline - time.monotonic()))
    for worker in workers:
        worker.forget()  # callers that took the process object from the iterator may still join it
    workers.clear()


def warm_forkserver(context: Any) -> None:
    """Makes the fork server import the workers' modules once, unless it is running already or the user
    chose what it preloads."""
    from multiprocessing import forkserver

    if getattr(forkserver._forkserver, "_preload_modules", None) == ["__main__"]:
        context.set_forkserver_preload(["__main__", "fastload.engines.processes.worker"])


def refuse_daemon(context: Any) -> None:
    """Raises if Python lets this process start no other, because it is daemonic or is itself still being
    spawned.

    Raises:
        ResourceError: the process is one of these; the message says what to do.
    """
    current = multiprocessing.process.current_process()
    if getattr(current, "_inheriting", False):
        raise ResourceError(
            f'workers by "{context.get_start_method()}" were asked for while this process, itself a '
            "worker, still imports the main script: "
            'put what starts work in that script under `if __name__ == "__main__":`'
        )
    if current.daemon:
        raise ResourceError(
            f"num_workers > 0 needs processes, and {current.name!r} is daemonic: Python lets it have "
            "no children. Use num_workers=0, start "
            "this process with daemon=False, or pack the dataset (fastload pack): packed data is "
            "read by threads, which always work"
        )


def _in_torchs_words(pid: int, code: int) -> str:
    """torch's own error text for a worker that ended so: programs and people search logs for it."""
    first = ""
    if code < 0:
        first = f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(-code)}. "
    elif code:
        first = f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. "
    return f"{first}DataLoader worker (pid(s) {pid}) exited unexpectedly"


def _cause(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a real-time signal"
    return f"was killed by signal {-code} ({name})"


def _held(indices: tuple[Any, ...]) -> str:
    if not indices:
        return ""
    shown = ", ".join(repr(index) for index in indices[:8])
    return f" while it worked on indices {shown}{f' and {len(indices) - 8} more' if len(indices) > 8 else ''}"
