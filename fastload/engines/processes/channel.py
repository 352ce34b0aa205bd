"""Channel: a socket for messages between a loader and one worker process, sent as pickles with a length and
file descriptors.

A message is a header `<u32 length><u8 descriptors>` and then the body. A file descriptor is sent with the
first byte of its message, so descriptors and messages stay in step. The parent never blocks in send, because
a worker that hangs must not hang the loader. A worker does block; its messages are small, since large data go
into a slot.
"""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import select
import socket
import struct
import weakref
from collections import deque
from typing import Any

from fastload.common.files import close_all
from fastload.common.forks import call_in_children

_HEAD = struct.Struct("<IB")
_CHUNK = 1 << 16

_live: weakref.WeakSet[Channel] = weakref.WeakSet()


def _forget_in_child() -> None:
    """Closes the parent's sockets in a forked child. Held open there, they would hide from the workers
    that the parent closed its own."""
    for channel in list(_live):
        channel.close()


call_in_children(_forget_in_child)


class Disconnected(Exception):
    """The process at the other end is gone."""


class DescriptorsLost(Disconnected):
    """A file descriptor was lost because this process may open no more files. The messages that follow
    cannot be understood."""


class Channel:
    """One end of the connection between the parent and a worker. Used by one thread."""

    def __init__(self, sock: socket.socket, *, parent: bool) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._corked: bytearray | None = None
        sock.setblocking(not parent)
        if parent:
            _live.add(self)

    def fileno(self) -> int:
        """The socket's descriptor, for poll; -1 once closed."""
        return self._socket.fileno()

    def register(self, poll: select.poll) -> int:
        """Registers the socket for data, and for room if messages wait for it. Returns its descriptor."""
        fd = self._socket.fileno()
        poll.register(fd, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        return fd

    @property
    def backlog(self) -> bool:
        """True if messages wait for room in the socket. If so, poll for writing and call flush()."""
        return bool(self._unsent)

    def send(self, message: object, fds: tuple[int, ...] = ()) -> None:
        """Sends a picklable message. Raises Disconnected if the other process is gone."""
        self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), fds)

    def send_bytes(self, body: bytes, fds: tuple[int, ...] = ()) -> None:
        """Sends a pickled message. The descriptors are duplicated if the message has to wait for room."""
        data = memoryview(_HEAD.pack(len(body), len(fds)) + body)
        if self._corked is not None:
            if not fds:
                self._corked += data
                return
            self.uncork()
            self._send_data(data, fds)
            self.cork()
            return
        self._send_data(data, fds)

    def cork(self) -> None:
        """Keeps messages back until uncork() sends them together: each send may wake the other process,
        which takes this one's CPU."""
        self._corked = bytearray()

    def uncork(self) -> None:
        """Sends the messages that were kept back since cork()."""
        data, self._corked = self._corked, None
        if data:
            self._send_data(memoryview(data), ())

    def _send_data(self, data: memoryview, fds: tuple[int, ...]) -> None:
        if self._unsent:
            self._unsent.append((data, [os.dup(fd) for fd in fds]))
            self.flush()
            return
        sent = self._send_some(data, fds)
        if sent < len(data):
            kept = [] if sent else [os.dup(fd) for fd in fds]
            self._unsent.append((data[sent:], kept))

    def flush(self) -> None:
        """Sends waiting messages, as far as the socket has room."""
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                sent = self._send_some(data, tuple(fds))
            except Disconnected:
                self._forget_unsent()
                raise
            if sent:
                close_all(fds)
            if sent < len(data):
                self._unsent[0] = (data[sent:], fds)
                return
            self._unsent.popleft()

    def _send_some(self, data: memoryview, fds: tuple[int, ...]) -> int:
        """Sends bytes and returns how many were sent; on a blocking socket, all of them."""
        done = 0
        try:
            if fds:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                done = self._socket.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
            while done < len(data):
                done += self._socket.send(data[done:], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise Disconnected(str(error)) from None
        return done

    def receive(self) -> tuple[Any, tuple[int, ...]] | None:
        """Receives the next message and its descriptors, which the caller owns. In the parent, returns None
        if no message is complete yet.

        Raises:
            Disconnected: the other process is gone and everything that it sent was received.
            DescriptorsLost: this process may open no more files.
        """
        while True:
            message = self._take()
            if message is not None:
                return message
            try:
                data, ancillary, flags, _ = self._socket.recvmsg(
                    _CHUNK, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            except (ConnectionResetError, OSError) as error:
                raise Disconnected(str(error)) from None
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(payload[: len(payload) - len(payload) % received.itemsize])
                    self._fds.extend(received)
            if flags & socket.MSG_CTRUNC:
                raise DescriptorsLost(
                    "a slot's file descriptor could not be taken in: this process has as many open "
                    "files as it may. Raise the limit "
                    "(ulimit -n), or hold fewer batches at once"
                )
            if not data:
                raise Disconnected("end of stream")
            self._buffer += data

    def _take(self) -> tuple[Any, tuple[int, ...]] | None:
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        length, count = _HEAD.unpack_from(buffer)
        end = _HEAD.size + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            message = pickle.loads(view[_HEAD.size : end])
        del buffer[:end]
        return message, tuple(self._fds.popleft() for _ in range(count))

    def readable(self) -> bool:
        """Returns True if data can be received without waiting."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        try:
            return bool(poll.poll(0)) and bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:  # connection reset: the other process ended without reading all messages
            return False

    def shut(self) -> None:
        """Shuts the connection down: the other process reads the end of the stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket and every descriptor that was not handed on; idempotent."""
        self._socket.close()
        close_all(self._fds)
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        for _, fds in self._unsent:
            close_all(fds)
        self._unsent.clear()


def pair() -> tuple[socket.socket, socket.socket]:
    """The parent's and the worker's socket."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
