"""The process of servers.proxy.Proxy: passes TCP connections on, with latency, limited bandwidth and faults.

Answers go through pipes by splice(2), so that a byte is not copied on its way; measured cost: see Proxy. One
thread, one epoll loop; commands come as lines of JSON on the standard input, and its end ends the process.
"""

from __future__ import annotations

import collections
import errno
import fcntl
import heapq
import json
import os
import select
import socket
import sys
import time
from typing import Any

from servers.proxy_faults import Fault, RequestReader, SpoiledAnswer

CHUNK = 1 << 20
PIPE_BYTES = 1 << 20
QUANTUM = 1 << 16
"""Fewest bytes that a bandwidth limit lets pass at a time."""
_F_SETPIPE_SZ = 1031
_EOF = -1
_SPLICE = 1 | 2  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK


class Bucket:
    """Tokens of all connections in one direction: bytes that may pass now."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._tokens = 0.0
        self._at = time.monotonic()

    def take(self, wanted: int, now: float) -> int:
        """How many of the wanted bytes may pass; gives them."""
        if not self.rate:
            return wanted
        burst = self.rate * 0.01 + 2 * QUANTUM
        self._tokens = min(burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < min(wanted, QUANTUM):
            return 0
        given = min(wanted, int(self._tokens))
        self._tokens -= given
        return given

    def give_back(self, unused: int) -> None:
        """Returns tokens of bytes that did not pass."""
        if self.rate:
            self._tokens += unused


class Flow:
    """One direction of a connection: read from `source`, kept until due, written to `target`."""

    def __init__(
        self, connection: Connection, source: socket.socket, target: socket.socket, down: bool
    ) -> None:
        self.connection = connection
        self.source = source
        self.target = target
        self.down = down
        self.pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if down else (-1, -1)
        if down:
            try:
                fcntl.fcntl(self.pipe[1], _F_SETPIPE_SZ, PIPE_BYTES)
            except OSError:
                pass
        # [due, bytes | count of bytes in the pipe | _EOF].
        self.queue: collections.deque[list[Any]] = collections.deque()
        self.reading = True
        self.blocked = False
        self.timer = 0.0
        self.done = False

    def close(self) -> None:
        for end in self.pipe:
            if end >= 0:
                os.close(end)


class Connection:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.up = Flow(self, client, server, down=False)
        self.down = Flow(self, server, client, down=True)
        self.requests = RequestReader()
        self.swallowing: Fault | None = None
        self.spoiled: SpoiledAnswer | None = None
        self.held_until = 0.0
        self.first = True
        self.closed = False


class Loop:
    """The proxy's loop."""

    def __init__(self, target: tuple[str, int], port: int) -> None:
        self.target = target
        self.delay = 0.0
        self.buckets = {False: Bucket(), True: Bucket()}
        self.faults: list[Fault] = []
        self.silent_until = 0.0
        self.counts: collections.Counter[str] = collections.Counter()
        self.epoll = select.epoll()
        self.flows: dict[int, tuple[Flow, Flow]] = {}  # socket -> (flow that reads it, flow that writes it)
        self.masks: dict[int, int] = {}
        self.timers: list[tuple[float, int, Flow]] = []
        self.serial = 0
        self.starved: set[Flow] = set()
        self.connections: set[Connection] = set()
        self.listener: socket.socket | None = None
        self.port = port
        self.input = b""
        self.listen()
        os.set_blocking(0, False)
        self.epoll.register(0, select.EPOLLIN)

    def listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.listener = listener
        self.epoll.register(listener, select.EPOLLIN)

    def run(self) -> None:
        while True:
            wait = max(self.timers[0][0] - time.monotonic(), 0) if self.timers else -1
            events = self.epoll.poll(wait)
            for fd, mask in events:
                if fd == 0:
                    if not self.commands():
                        return
                elif self.listener is not None and fd == self.listener.fileno():
                    self.accept()
                elif fd in self.flows:
                    reads, writes = self.flows[fd]
                    if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and reads.reading:
                        self.read(reads)
                    elif mask & (select.EPOLLHUP | select.EPOLLERR) and not reads.reading:
                        self.drop(reads.connection)
                    if mask & select.EPOLLOUT and not writes.connection.closed:
                        writes.blocked = False
                        self.deliver(writes)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                flow = heapq.heappop(self.timers)[2]
                flow.timer = 0.0
                if not flow.connection.closed:
                    self.deliver(flow)

    def commands(self) -> bool:
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return True
        self.input += data
        *lines, self.input = self.input.split(b"\n")
        for line in lines:
            answer = self.command(json.loads(line))
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        return bool(data)

    def command(self, given: dict[str, Any]) -> object:
        if "delay" in given:
            self.delay = given["delay"]
        if "bandwidth" in given:
            for bucket in self.buckets.values():
                bucket.rate = given["bandwidth"]
        if "fault" in given:
            self.faults.append(Fault(**given["fault"]))
        if given.get("clear"):
            self.faults.clear()
            self.silent_until = 0.0
        if "silence" in given:
            self.silent_until = time.monotonic() + given["silence"]
        if "refuse" in given:
            self.refuse(given["refuse"])
        if given.get("reset"):
            self.counts.clear()
        usage = os.times()
        return {
            **self.counts,
            "port": self.port,
            "cpu": usage.user + usage.system,
            "open": len(self.connections),
        }

    def refuse(self, refuse: bool) -> None:
        if refuse and self.listener is not None:
            self.epoll.unregister(self.listener)
            self.listener.close()
            self.listener = None
            for connection in list(self.connections):
                self.drop(connection)
        elif not refuse and self.listener is None:
            self.listen()

    def accept(self) -> None:
        assert self.listener is not None
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        server = socket.socket()
        try:
            server.connect(self.target)
        except OSError:
            server.close()
            client.close()
            return
        connection = Connection(client, server)
        self.connections.add(connection)
        self.counts["connections"] += 1
        for end, flows in (
            (client, (connection.up, connection.down)),
            (server, (connection.down, connection.up)),
        ):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.flows[end.fileno()] = flows
            self.masks[end.fileno()] = select.EPOLLIN
            self.epoll.register(end, select.EPOLLIN)

    def drop(self, connection: Connection) -> None:
        """Ends a connection at once, with what is still on its way."""
        if connection.closed:
            return
        connection.closed = True
        self.connections.discard(connection)
        self.starved -= {connection.up, connection.down}
        for end in (connection.client, connection.server):
            fd = end.fileno()
            self.epoll.unregister(fd)
            del self.flows[fd], self.masks[fd]
            end.close()
        connection.up.close()
        connection.down.close()

    def watch(self, end: socket.socket) -> None:
        """Tells epoll what the two flows of a socket wait for."""
        reads, writes = self.flows[end.fileno()]
        mask = (select.EPOLLIN if reads.reading else 0) | (select.EPOLLOUT if writes.blocked else 0)
        if self.masks[end.fileno()] != mask:
            self.masks[end.fileno()] = mask
            self.epoll.modify(end, mask)

    def read(self, flow: Flow) -> None:
        connection = flow.connection
        now = time.monotonic()
        due = now + self.delay
        try:
            if flow.down and connection.spoiled is None:
                count = os.splice(flow.source.fileno(), flow.pipe[1], CHUNK, flags=_SPLICE)
                flow.queue.append([due, count or _EOF])
                ended = count == 0
            else:
                data = flow.source.recv(262144)
                ended = not data
                if ended:
                    flow.queue.append([due, _EOF])
                elif flow.down:
                    self.spoil(connection, data, due)
                else:
                    if connection.first:  # its handshake would have taken a round trip
                        due += 2 * self.delay
                        connection.first = False
                    self.request_data(connection, data, max(due, flow.queue[-1][0] if flow.queue else 0))
        except BlockingIOError:
            ended = True  # the pipe is full: read on when it was emptied
        except OSError:
            return self.drop(connection)
        if connection.closed:
            return
        if ended:
            flow.reading = False
            self.watch(flow.source)
        self.deliver(flow)

    def spoil(self, connection: Connection, data: bytes, due: float) -> None:
        assert connection.spoiled is not None
        out, through, close = connection.spoiled.pass_on(data)
        if out:
            connection.down.queue.append([due, out])
        if through:
            connection.spoiled = None
        if close:
            connection.down.queue.append([due, _EOF])
            connection.up.done = True

    def request_data(self, connection: Connection, data: bytes, due: float) -> None:
        for piece, line, ends in connection.requests.split(data):
            if line:
                self.counts["requests"] += 1
                self.counts[line.split(b" ", 1)[0].decode()] += 1
                self.begin_fault(
                    connection, next((fault for fault in self.faults if fault.applies(line)), None)
                )
            if connection.closed:
                return
            self.counts["up"] += len(piece)
            if connection.swallowing is None:
                connection.up.queue.append([due, piece])
            elif ends:
                connection.down.queue.append([due + self.delay, connection.swallowing.answer()])
                connection.swallowing = None
                self.deliver(connection.down)

    def begin_fault(self, connection: Connection, fault: Fault | None) -> None:
        if fault is None:
            return
        self.counts["faults"] += 1
        if fault.kind == "status":
            connection.swallowing = fault
        elif fault.kind == "silence":
            connection.held_until = time.monotonic() + fault.seconds
        elif fault.kind == "reset":
            self.drop(connection)
        else:
            connection.spoiled = SpoiledAnswer(fault.kind)

    def deliver(self, flow: Flow) -> None:
        """Writes what is due; sets a timer for the rest."""
        connection = flow.connection
        now = time.monotonic()
        held = max(self.silent_until, connection.held_until) if flow.down else 0.0
        while flow.queue and not flow.blocked:
            due, what = flow.queue[0]
            due = max(due, held)
            if due > now:
                self.wake(flow, due)
                break
            if what == _EOF:
                flow.queue.popleft()
                flow.done = True
                if connection.up.done and connection.down.done:
                    return self.drop(connection)
                try:
                    flow.target.shutdown(socket.SHUT_WR)
                except OSError:
                    return self.drop(connection)
                continue
            size = what if isinstance(what, int) else len(what)
            allowed = self.buckets[flow.down].take(size, now)
            if not allowed:
                self.starved.add(flow)  # each looks again when as many quanta have come as wait for one
                self.wake(flow, now + QUANTUM * len(self.starved) / self.buckets[flow.down].rate)
                break
            self.starved.discard(flow)
            sent = self.write(flow, what, allowed)
            if sent < 0:
                return self.drop(connection)
            self.buckets[flow.down].give_back(allowed - sent)
            if flow.down:
                self.counts["down"] += sent
            if sent == size:
                flow.queue.popleft()
            else:
                flow.queue[0][1] = size - sent if isinstance(what, int) else what[sent:]
                flow.blocked = sent < allowed
        self.watch(flow.target)
        if (
            not flow.reading
            and not flow.done
            and len(flow.queue) < 8
            and not any(item[1] == _EOF for item in flow.queue)
        ):
            flow.reading = True
            self.watch(flow.source)

    def write(self, flow: Flow, what: int | bytes, allowed: int) -> int:
        """Bytes written; negative if the connection is broken."""
        try:
            if isinstance(what, int):
                return os.splice(flow.pipe[0], flow.target.fileno(), allowed, flags=_SPLICE)
            return flow.target.send(what[:allowed])
        except BlockingIOError:
            return 0
        except OSError as error:
            return 0 if error.errno == errno.EAGAIN else -1

    def wake(self, flow: Flow, at: float) -> None:
        if not flow.timer or at < flow.timer:
            flow.timer = at
            self.serial += 1
            heapq.heappush(self.timers, (at, self.serial, flow))


if __name__ == "__main__":
    Loop((sys.argv[1], int(sys.argv[2])), int(sys.argv[3])).run()
