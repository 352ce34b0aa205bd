"""Files that anybody may have written or named: only regular ones are opened, and at most a limit of bytes is read."""

from __future__ import annotations

import errno
import os
import stat

FILE_BYTES = 1 << 30
"""Limit on a file that is read into memory at once. A larger image would also be over the default limit on pixels, stored raw."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def expanded(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """A path as text, with ``~`` and ``~user`` at its beginning replaced by the home folder, as a shell does.

    Where a shell did not see the ``~`` (in Python, in quotes, after ``--option=``), it would name a folder called "~" otherwise.
    """
    return os.path.expanduser(os.fsdecode(path))


def open_regular(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Opens a regular file for reading; never waits, as opening a FIFO would.

    Returns:
        The descriptor, which the caller closes, and the file's size in bytes.

    Raises:
        OSError: the file cannot be opened, is not a regular file, or the path is not one (a NUL in it).
    """
    name = os.fspath(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"not a path ({error})", name) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = next((text for test, text in _KINDS if test(status.st_mode)), "something else")
            raise OSError(errno.EINVAL, f"{kind}, not a regular file", name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def read_regular(path: str | os.PathLike[str], limit: int = FILE_BYTES) -> bytes:
    """All bytes of a regular file, in one read where the file system allows.

    Raises:
        OSError: as `open_regular`, or the file has more than `limit` bytes.
    """
    descriptor, size = open_regular(path)
    try:
        parts: list[bytes] = []
        total = 0
        # One byte more than the size tells whether the file has grown; some file systems (/proc) give no size at all.
        while total <= limit and size <= limit and (part := os.read(descriptor, max(size + 1 - total, 1 << 16))):
            parts.append(part)
            total += len(part)
            if total == size:
                break
        if max(total, size) > limit:
            raise OSError(errno.EFBIG, f"{max(total, size):,} bytes are more than the limit of {limit:,}", os.fspath(path))
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)
