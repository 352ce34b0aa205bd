"""Hosts: what tells this host's kernel from others, and which folders no other host can see."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

# f_type of file systems on a disk, or in memory, that one kernel alone has mounted for writing. Network file systems, those of clusters,
# and those of which it is not known (FUSE, 9p, virtiofs) are not among them.
_LOCAL = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0x2FC12FC1,  # ZFS
        0xF2F52010,  # F2FS
        0xCA451A4E,  # bcachefs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs, whose upper folder is on one of these
    }
)
_STATFS_BYTES = 256  # more than struct statfs has anywhere; f_type is its first word


def boot_id() -> str:
    """What tells this host since its start from any other: containers of one kernel have the same, and share their locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def is_local(folder: Path) -> bool:
    """Whether a folder lies on a file system that only this host has mounted; False where that is not known."""
    if not sys.platform.startswith("linux"):
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(folder), found) != 0:
        return False
    kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
    return kind in _LOCAL
