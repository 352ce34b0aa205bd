"""The index.json of a folder of shards, as MosaicML Streaming and LitData write it."""

from __future__ import annotations

import os
from typing import Any

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.store.checked import JSON_BYTES, Bad, get_object, get_str, parse_json, shown


def read_index(folder: str) -> dict[str, Any]:
    """The object in a folder's index.json.

    Raises:
        PackError: it cannot be read, or is no JSON object.
    """
    path = os.path.join(folder, "index.json")
    try:
        return get_object(parse_json(read_regular(path, JSON_BYTES)), "its content")
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PackError(f"{path}: it cannot be read as JSON: {error}") from error


def leads_out(name: str) -> bool:
    """Returns True for a name that a file of a dataset gives, and that is no path below a folder. Links in the folder lead anywhere."""
    return not name or "\0" in name or os.path.isabs(name) or ".." in name.split("/")


def below(folder: str, name: object) -> str:
    """The path of a file that an index names.

    Raises:
        Bad: no relative path, or one that leads out of the folder.
    """
    relative = get_str(name, "the name of a file")
    if leads_out(relative):
        raise Bad(f"it names the file {shown(relative)}, which is not in the folder")
    return os.path.join(folder, relative)
