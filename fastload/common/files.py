"""Files that anybody may have written or named: only regular ones are opened, and at most a limit of bytes is
read. Scratch folders: temporary folders that do not outlive their process for long, however it ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":  # where nothing calls what needs it
    import fcntl
    import resource


@contextmanager
def scratch_folder(kind: str, below: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder below a folder, by default the system's one for temporary files; it is removed at the end
    of the block.

    The process holds a lock on it. Where the process was killed, the lock is gone and the folder stays: the
    next call for the same `kind` removes it, if it belongs to the same user.

    Raises:
        OSError: the folder cannot be made.
    """
    start = f"fastload-{kind}-"
    parent = Path(tempfile.gettempdir() if below is None else below)
    _remove_abandoned(parent, start)
    folder, lock = _made(parent, start)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def close_all(files: list[int] | deque[int]) -> None:
    """Closes descriptors, each taken out of the list before: nobody closes one again, whenever Ctrl-C comes,
    or another thread does the same."""
    while files:
        with suppress(IndexError):
            os.close(files.pop())


def _made(parent: Path, start: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock. Before it is locked, another process may take
    it for abandoned."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=start, dir=parent))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks, where nothing is ever taken for abandoned
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _remove_abandoned(parent: Path, start: str) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(start):
                _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    """Removes a folder of this user's that no process has locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # it is locked, or its file system knows no locks
        pass
    finally:
        os.close(descriptor)


FILE_BYTES = 1 << 30
"""Limit on a file that is read into memory at once. A larger image would also be over the default limit on
pixels, stored raw."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def expanded(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str:
    """A path as text, with ``~`` and ``~user`` at its beginning replaced by the home folder, as a shell does.

    Where a shell did not see the ``~`` (in Python, in quotes, after ``--option=``), it would name a folder
    called "~" otherwise.
    """
    return os.path.expanduser(os.fsdecode(path))


def size_limit(error: Exception) -> str:
    """A clause for the error of a failed write, if a limit on the size of files may be its cause; else ""."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    told = not isinstance(error, OSError) or error.errno == errno.EFBIG
    if limit == resource.RLIM_INFINITY or not told:
        return ""
    return f"; files have a limit of {limit:,} bytes here: raise RLIMIT_FSIZE (ulimit -f)"


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
        # One byte more than the size tells whether the file has grown; some file systems (/proc) give no size
        # at all.
        while (
            total <= limit and size <= limit and (part := os.read(descriptor, max(size + 1 - total, 1 << 16)))
        ):
            parts.append(part)
            total += len(part)
            if total == size:
                break
        if max(total, size) > limit:
            raise OSError(
                errno.EFBIG,
                f"{max(total, size):,} bytes are more than the limit of {limit:,}",
                os.fspath(path),
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)


# ---- folders in which others may write


def check_entry(entry: os.stat_result, folder: os.stat_result, path: str | os.PathLike[str]) -> None:
    """Checks that an entry of a shared folder is no other user's plant.

    It must belong to this user or to root; in a folder that only its owner and its group may write, it may be
    any of theirs. A file that everybody may write is refused everywhere.

    Args:
        entry: status of the entry itself, never of what a link leads to.
        folder: status of the folder that it was found in.
        path: path of the entry, for the message.

    Raises:
        OSError: EPERM; the reason says what is wrong.
    """
    name = os.path.basename(os.fspath(path))
    if stat.S_ISLNK(entry.st_mode):
        raise OSError(
            errno.ELOOP, f"{name} is a symbolic link, which somebody may have planted", os.fspath(path)
        )
    if entry.st_uid not in (os.geteuid(), 0) and folder.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, f"{name} belongs to another user (uid {entry.st_uid})", os.fspath(path))
    if stat.S_ISREG(entry.st_mode) and entry.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, f"every user may write {name}", os.fspath(path))


def open_folder(
    path: str | os.PathLike[str], below: os.stat_result | None = None, within: int | None = None
) -> int:
    """Opens a folder, through which its files are opened then, whatever takes its name meanwhile.

    Args:
        path: the folder's.
        below: status of the folder that it is an entry of: it is no link then, and passes `check_entry`;
            None: it is the user's choice.
        within: descriptor of the folder that `path` is relative to; None: the working directory.

    Raises:
        OSError: it is no folder, or not to be trusted.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if below is None else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=within)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(path, dir_fd=within, follow_symlinks=False).st_mode):
            raise OSError(
                errno.ELOOP,
                f"{os.path.basename(os.fspath(path))} is a symbolic link, which somebody may have planted",
                os.fspath(path),
            ) from None
        raise
    if below is not None:
        try:
            check_entry(os.fstat(descriptor), below, path)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def open_entry(folder: int, name: str, flags: int) -> int:
    """Opens a regular file in an open folder; follows no link, waits for no FIFO, and refuses what
    `check_entry` does.

    Raises:
        OSError: it cannot be opened, or is not to be trusted.
    """
    try:
        descriptor = os.open(
            name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o664, dir_fd=folder
        )
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP, f"{name} is a symbolic link, which somebody may have planted", name
            ) from None
        raise
    try:
        status = os.fstat(descriptor)
        check_entry(status, os.fstat(folder), name)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"{name} is no regular file", name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_own(path: str | os.PathLike[str]) -> None:
    """Checks that a folder, and a link to it, belong to this user or to root.

    Where the file system gives all files to one owner (a network's root squash, a container's mount), that
    one counts as this user.

    Raises:
        OSError: EPERM: it is another user's; or it cannot be looked at.
    """
    for status in (os.lstat(path), os.stat(path)):
        if status.st_uid not in (os.geteuid(), 0) and status.st_uid != _owner_of_new(path):
            raise OSError(errno.EPERM, f"it belongs to another user (uid {status.st_uid})", os.fspath(path))


def _owner_of_new(folder: str | os.PathLike[str]) -> int:
    """Owner of a file that this process makes in a folder; -1 where it can make none."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".fastload-", dir=folder)
    except OSError:
        return -1
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        os.unlink(name)
