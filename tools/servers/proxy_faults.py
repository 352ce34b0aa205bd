"""What a proxy does to single HTTP requests: the faults that tests ask for, and where requests begin and
end in a connection's bytes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

_METHODS = (b"GET ", b"PUT ", b"HEAD ", b"POST ", b"DELETE ", b"PROPFIND ", b"OPTIONS ")
_MOST_HEAD = 65_536


@dataclass
class Fault:
    """What is done to the next `count` requests of a method, after `skip` of them.

    Attributes:
        kind: status (answers `status` in the server's place), cut (closes after half of the body), flip
            (changes the first bytes of the body), noise (does so differently each time), silence (holds the
            answer back for `seconds`), reset (closes the connection instead of an answer), or one of CHANGES,
            which are whole and sound answers to another request. Only `status`, `silence` and `reset` may
            befall an answer without a body, as of HEAD.
        method: "" for every method.
        part: "" or a text that the request's first line holds.
    """

    kind: str
    count: int = 1
    skip: int = 0
    method: str = ""
    part: str = ""
    status: int = 503
    retry_after: str = ""
    seconds: float = 0.0
    code: str = "SlowDown"
    location: str = ""

    def applies(self, line: bytes) -> bool:
        """Whether it is this request's turn; counts it."""
        if not self.count or not line.startswith(self.method.encode()) or self.part.encode() not in line:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.count -= 1
        return True

    def answer(self) -> bytes:
        """The answer of a fault of the kind `status`."""
        after = f"Retry-After: {self.retry_after}\r\n" if self.retry_after else ""
        where = f"Location: {self.location}\r\n" if self.location else ""
        body = f"<Error><Code>{self.code}</Code></Error>"
        head = f"HTTP/1.1 {self.status} Proxy\r\n{after}{where}Content-Length: {len(body)}"
        return f"{head}\r\n\r\n{body}".encode()


@dataclass
class RequestReader:
    """Finds the requests in the bytes of a connection's client; what is no plain HTTP (TLS, chunked
    bodies) is passed on as it is."""

    opaque: bool = False
    _head: bytearray = field(default_factory=bytearray)
    _body: int = 0

    def split(self, data: bytes) -> list[tuple[bytes, bytes, bool]]:
        """The data as pieces (bytes, first line of a request that begins there or b"", whether a request
        ends with it)."""
        pieces: list[tuple[bytes, bytes, bool]] = []
        while data:
            if self.opaque:
                pieces.append((data, b"", False))
                break
            if self._body:
                part, data = data[: self._body], data[self._body :]
                self._body -= len(part)
                pieces.append((part, b"", self._body == 0))
                continue
            self._head += data
            data = b""
            end = self._head.find(b"\r\n\r\n", 0, _MOST_HEAD)
            plain = self._head.startswith(tuple(method[: len(self._head)] for method in _METHODS))
            if not plain or (end < 0 and len(self._head) >= _MOST_HEAD):
                self.opaque = True
                data, self._head = bytes(self._head), bytearray()
                continue
            if end < 0:
                break
            head, data = bytes(self._head[: end + 4]), bytes(self._head[end + 4 :])
            self._head = bytearray()
            self.opaque = header(head, b"transfer-encoding") != b""
            self._body = int(header(head, b"content-length") or 0)
            pieces.append((head, head.split(b"\r\n", 1)[0], self._body == 0))
        return pieces


def header(head: bytes, name: bytes) -> bytes:
    """The value of a header in the head of a request or an answer."""
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _with_header(head: bytes, name: bytes, value: bytes | None) -> bytes:
    """The head of an answer with another value of a header; None: without it."""
    line = b"" if value is None else name + b": " + value + b"\r\n"
    return re.sub(rb"(?im)^" + re.escape(name) + rb":[^\r\n]*\r\n", line, head)


def _sized(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    return _with_header(head, b"Content-Length", str(len(body)).encode()), body


def _whole(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """200 and more than was asked for, as of a server that knows no ranges."""
    head = re.sub(rb"^HTTP/1.1 \d+ [^\r\n]*", b"HTTP/1.1 200 OK", _with_header(head, b"Content-Range", None))
    return _sized(head, bytes(1000) + body)


def _other_range(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    found = re.match(rb"bytes (\d+)-(\d+)/(\S+)", header(head, b"content-range"))
    first, last, size = found.groups() if found else (b"0", b"0", b"*")
    moved = b"bytes %d-%d/%s" % (int(first) + 1, int(last) + 1, size)
    return _with_header(head, b"Content-Range", moved), body


CHANGES: dict[str, Callable[[bytes, bytes], tuple[bytes, bytes]]] = {
    "short": lambda head, body: _sized(head, body[: len(body) // 2]),
    "long": lambda head, body: _sized(head, body + bytes(100)),
    "empty": lambda head, body: _sized(head, b""),
    "whole": _whole,
    "other range": _other_range,
    "no range": lambda head, body: (_with_header(head, b"Content-Range", None), body),
    "page": lambda head, body: _sized(
        head, b"<html>a page of a gateway, %s</html>" % secrets.token_hex(8).encode()
    ),
}
"""Kinds of faults that change an answer as a whole: its head and its body."""


@dataclass
class SpoiledAnswer:
    """One answer on its way to the client with a fault of the kind cut, flip or noise, or one of CHANGES."""

    kind: str
    _head: bytearray = field(default_factory=bytearray)
    _left: int = -1
    _passed: int = 0
    _cut_at: int = 0
    _kept: bytearray = field(default_factory=bytearray)

    def pass_on(self, data: bytes) -> tuple[bytes, bool, bool]:
        """What the client gets of the data, whether the answer is through, and whether the connection is
        to be closed then."""
        out = b""
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return b"", False, False
            out, data = bytes(self._head[: end + 4]), bytes(self._head[end + 4 :])
            self._head = bytearray(out)
            self._left = int(header(out, b"content-length") or 0)
            self._cut_at = self._left // 2
        self._left -= len(data)
        if self.kind in CHANGES:
            self._kept += data
            if self._left > 0:
                return b"", False, False
            return b"".join(CHANGES[self.kind](bytes(self._head), bytes(self._kept))), True, False
        if self.kind == "cut":
            kept = data[: max(len(data) - max(self._cut_at - self._left, 0), 0)]
            return out + kept, self._left <= self._cut_at, self._left <= self._cut_at
        # The body's first bytes, and not each piece's: a request is spoiled in the same way however its
        # answer is cut into pieces.
        mask = (secrets.token_bytes(16) if self.kind == "noise" else b"\x55" * 16)[self._passed :]
        self._passed += len(data)
        spoiled = bytes(byte ^ (flip | 1) for byte, flip in zip(data[: len(mask)], mask, strict=False))
        return out + spoiled + data[len(mask) :], self._left <= 0, False
