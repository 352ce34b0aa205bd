"""Messages arrive whole, in order, with their own descriptors, whatever the socket has room for; and no
descriptor is lost or kept."""

from __future__ import annotations

import gc
import os
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from handles import descriptors, opened_since
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.engines.processes.channel import Channel, DescriptorsLost, Disconnected, pair

BIG = 3 << 20
"""Bytes: more than a socket takes at once."""


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """A parent's and a worker's channel; the test leaves as many descriptors open as it found."""
    gc.collect()
    before = descriptors()
    ours, theirs = pair()
    parent, worker = Channel(ours, parent=True), Channel(theirs, parent=False)
    yield parent, worker
    parent.close()
    worker.close()
    assert not opened_since(before)


def marked() -> int:
    """The descriptor of a new anonymous file."""
    return os.memfd_create("mark", os.MFD_CLOEXEC)


def same_file(a: int, b: int) -> bool:
    return os.fstat(a).st_ino == os.fstat(b).st_ino


def pump(parent: Channel) -> None:
    """Sends the parent's backlog, as its event loop does."""
    while parent.backlog:
        select.select([], [parent], [], 10)
        parent.flush()


def wait(parent: Channel) -> tuple[Any, tuple[int, ...]]:
    """The next message on the parent's side."""
    while (message := parent.receive()) is None:
        select.select([parent], [], [], 10)
    return message


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.none(), st.integers(), st.binary(max_size=300), st.lists(st.text(max_size=5), max_size=5)
        ),
        max_size=30,
    )
)
def test_round_trip(messages: list[Any]) -> None:
    """Messages of any size, the empty ones too, come out of both ends as they went in."""
    ours, theirs = pair()
    parent, worker = Channel(ours, parent=True), Channel(theirs, parent=False)
    try:
        assert parent.receive() is None
        for message in messages:
            parent.send(message)
            worker.send(message)
        assert [worker.receive() for _ in messages] == [(message, ()) for message in messages]
        assert [parent.receive() for _ in messages] == [(message, ()) for message in messages]
        assert parent.receive() is None
    finally:
        parent.close()
        worker.close()


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=200), st.integers(0, 5000))
def test_any_cut_of_the_stream(cuts: list[int], size: int) -> None:
    """A message that arrives in pieces, cut anywhere, is given out once, when it is whole."""
    ours, theirs = pair()
    source, out = pair()
    parent, sender = Channel(ours, parent=True), Channel(source, parent=False)
    try:
        sender.send(b"x" * size)
        sender.send("second")
        sender.close()
        stream = b""
        while piece := out.recv(1 << 16):
            stream += piece
        got = []
        at = 0
        for cut in [*cuts, len(stream)]:
            theirs.sendall(stream[at : at + cut])
            at += cut
            while (message := parent.receive()) is not None:
                got.append(message)
        assert got == [(b"x" * size, ()), ("second", ())]
    finally:
        for end in (parent, sender, theirs, out):
            end.close()


def test_parent_does_not_block(ends: tuple[Channel, Channel]) -> None:
    """What the socket has no room for waits in the parent, and arrives in order once the worker reads."""
    parent, worker = ends
    for number in range(5):
        parent.send((number, b"x" * BIG))
    assert parent.backlog
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.extend(worker.receive() for _ in range(6)))
    reader.start()
    parent.send("last")
    pump(parent)
    reader.join(30)
    assert [message[0] for message, _ in got[:5]] == list(range(5))
    assert all(len(message[1]) == BIG for message, _ in got[:5])
    assert got[5] == ("last", ())


def test_worker_blocks_until_it_is_sent(ends: tuple[Channel, Channel]) -> None:
    """A worker's big message is sent whole, with its descriptor."""
    parent, worker = ends
    fd = marked()
    sender = threading.Thread(target=lambda: worker.send(b"y" * BIG, (fd,)))
    sender.start()
    message, fds = wait(parent)
    sender.join(30)
    assert len(message) == BIG
    assert not worker.backlog
    assert len(fds) == 1
    assert same_file(fds[0], fd)
    os.close(fds[0])
    os.close(fd)


@pytest.mark.parametrize("clogged", [False, True])
def test_descriptors_go_with_their_message(ends: tuple[Channel, Channel], clogged: bool) -> None:
    """Each message brings its own descriptors, in order, also when it had to wait and the sender has
    closed its own meanwhile."""
    parent, worker = ends
    if clogged:
        parent.send(b"x" * BIG)
    inodes = []
    for number in range(12):
        fds = tuple(marked() for _ in range(number % 3))
        inodes.append([os.fstat(fd).st_ino for fd in fds])
        parent.send(number, fds)
        for fd in fds:
            os.close(fd)
    assert parent.backlog == clogged
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.extend(worker.receive() for _ in range(12 + clogged)))
    reader.start()
    pump(parent)
    reader.join(30)
    for number, (message, fds) in enumerate(got[clogged:]):
        assert message == number
        assert [os.fstat(fd).st_ino for fd in fds] == inodes[number]
        assert not any(os.get_inheritable(fd) for fd in fds)
        for fd in fds:
            os.close(fd)


def test_end_of_stream(ends: tuple[Channel, Channel]) -> None:
    """What was sent before the end is received; then both ways say that the other side is gone."""
    parent, worker = ends
    worker.send("before")
    assert parent.readable()
    worker.close()
    assert parent.receive() == ("before", ())
    with pytest.raises(Disconnected):
        parent.receive()
    assert not parent.readable()
    with pytest.raises(Disconnected):
        parent.send("after")


def test_cut_in_the_middle(ends: tuple[Channel, Channel]) -> None:
    """A message whose sender ended before all of it was sent is never given out."""
    parent, worker = ends
    os.write(worker.fileno(), b"\x10\x00\x00\x00\x00half")
    worker.close()
    assert parent.readable()
    with pytest.raises(Disconnected):
        parent.receive()


def test_ended_with_messages_unread(ends: tuple[Channel, Channel]) -> None:
    """An end that is a reset, since messages were unread, is an end like another: nothing is readable, and
    no OSError comes out."""
    parent, worker = ends
    parent.send("never read")
    worker.close()
    assert not parent.readable()
    with pytest.raises(Disconnected):
        parent.receive()


def test_backlog_is_dropped_with_the_other_side(ends: tuple[Channel, Channel]) -> None:
    """Messages for a worker that is gone wait no longer (the parent would poll for them for ever), and
    their descriptors are closed."""
    parent, worker = ends
    parent.send(b"x" * BIG)
    fd = marked()
    parent.send("waits", (fd,))
    os.close(fd)
    worker.close()
    assert parent.backlog
    with pytest.raises(Disconnected):
        parent.flush()
    assert not parent.backlog


def test_close_lets_go_of_what_is_under_way(ends: tuple[Channel, Channel]) -> None:
    """Descriptors that wait to be sent, and those received for a message that is not whole, are closed
    with the channel (see `ends`)."""
    parent, worker = ends
    fd = marked()
    parent.send(b"x" * BIG)
    parent.send("waits", (fd,))
    body = b"\x20\x00\x00\x00\x01part of it"
    with socket.socket(fileno=os.dup(worker.fileno())) as raw:
        socket.send_fds(raw, [body], [fd])
    assert parent.receive() is None
    os.close(fd)
    assert parent.fileno() >= 0
    parent.close()
    parent.close()
    assert parent.fileno() == -1


def test_limit_of_open_files(ends: tuple[Channel, Channel]) -> None:
    """A descriptor that finds no room is an error that names the limit, not a message without it."""
    parent, worker = ends
    fd = marked()
    worker.send("slot", (fd,))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, descriptors())), hard))
        taken = fill_table()
        with pytest.raises(DescriptorsLost, match="ulimit -n"):
            parent.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)
    os.close(fd)


def fill_table() -> list[int]:
    """Opens files until there is no room for one more."""
    taken = []
    while True:
        try:
            taken.append(os.dup(0))
        except OSError:
            return taken


def in_child(work: Callable[[], bool]) -> int:
    """The exit code of a forked child: 0 when `work` gives True."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_forked_child_lets_go(ends: tuple[Channel, Channel]) -> None:
    """A child forked from the parent holds none of its ends, nor descriptors that wait in them: a worker
    sees its parent's end."""
    parent, worker = ends
    fd = marked()
    parent.send(b"x" * BIG)
    parent.send("waits", (fd,))
    os.close(fd)
    waiting = [fd for _, fds in parent._unsent for fd in fds]
    assert len(waiting) == 1

    def gone(fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return True
        return False

    theirs = [*waiting, parent.fileno()]
    assert in_child(lambda: parent.fileno() == -1 and worker.fileno() >= 0 and all(map(gone, theirs))) == 0
    assert parent.fileno() >= 0
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:  # holds a worker's end, and would hold the parent's
        os.close(go)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    parent.close()
    got = []
    with pytest.raises(Disconnected):
        while True:
            got.append(worker.receive())
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0


def test_no_descriptor_leaks(ends: tuple[Channel, Channel]) -> None:
    """A thousand messages with descriptors leave none open."""
    parent, worker = ends
    fd = marked()
    before = descriptors()
    for number in range(500):
        parent.send(number, (fd,))
        worker.send(number, (fd,))
        for message in (worker.receive(), parent.receive()):
            assert message is not None
            assert message[0] == number
            os.close(message[1][0])
    assert not opened_since(before)
    os.close(fd)
