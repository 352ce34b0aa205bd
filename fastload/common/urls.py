"""URLs of packed datasets: which texts are URLs, and how they are shown without their secrets."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit, urlunsplit

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


_NEARLY = re.compile(r"(s3a?|gs|gcs|az|abfss?|adl|https?|file)(?::/?|//?)(?=[^/:])", re.IGNORECASE)
"""Beginning of a URL that lacks its colon or slashes; `Path` makes one slash of two."""


def is_url(path: object) -> bool:
    """Returns True if a path is text that begins with a scheme and ``://``. Windows' drives have one
    letter, and are none."""
    return isinstance(path, str) and _SCHEME.match(path) is not None


def meant_url(path: str, *, joined: bool = False) -> str | None:
    """The URL that is meant by a path which would be one with another colon or slash, as s3//bucket/x; None
    for any other path.

    `joined`: the text is of a Path, which has made one slash of two.
    """
    match = None if is_url(path) else _NEARLY.match(path)
    if match is None or (not joined and match[0].lower() == f"{match[1].lower()}/"):
        return None
    return f"{match[1].lower()}://{path[match.end() :]}"


def local_path(url: str) -> str | None:
    """The path that a ``file://`` URL names; None for every other URL."""
    parts = urlsplit(url)
    return (
        unquote(parts.path) if parts.scheme.lower() == "file" and parts.netloc in ("", "localhost") else None
    )


def is_remote(path: object) -> bool:
    """Returns True if a path is the URL of something in a store, and not on a disk, as a path and a
    ``file://`` URL are."""
    return isinstance(path, str) and is_url(path) and local_path(path) is None


def normalized(url: str) -> str:
    """A URL with its scheme and host in lower case and without slashes at its end."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc, parts.path.rstrip("/"), parts.query, ""))


def shown(url: str) -> str:
    """A URL for messages: without user, password, query and fragment, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def name_of(url: str) -> str:
    """The last part of a URL's path."""
    return os.path.basename(urlsplit(url).path.rstrip("/"))
