"""HubObjects: the objects of a repository on the Hugging Face Hub, as they are at one commit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastload.remote.hub_urls import HubURL
from fastload.remote.objects import Listing, ObjectInfo
from fastload.remote.obstore import ObstoreObjects

_HUB = "https://huggingface.co"


class HubObjects(ObstoreObjects):
    """The objects below one URL of a repository at a commit, read by HTTP; the Hub's API lists them.

    Args:
        url: a URL that is pinned.
        options: `token` and `endpoint`, as huggingface_hub takes them, and those of a web server; by default
            what huggingface_hub finds.
        timeout: seconds within which a request is tried again.
    """

    def __init__(self, url: str, options: Mapping[str, Any], timeout: float) -> None:
        self._parts, self._options = HubURL.of(url), dict(options)
        given = dict(options)
        endpoint = given.pop("endpoint", None) or os.environ.get("HF_ENDPOINT") or _HUB
        token = given.pop("token", None) or _token()
        if token:
            client = dict(given.get("client_options") or {})
            headers = client.get("default_headers") or {}
            client["default_headers"] = {"authorization": f"Bearer {token}", **headers}
            given["client_options"] = client
        self._path = self._parts.path.strip("/")
        place = f"{self._parts.name}/resolve/{self._parts.revision}/{quote(self._path)}"
        super().__init__(f"{str(endpoint).rstrip('/')}/{place}".rstrip("/"), given, timeout)

    def listing(self) -> Listing:
        """All objects below the URL; no tags: the commit says what they hold. Raises RemoteError."""

        def below(api: Any, given: dict[str, Any]) -> list[Any]:
            from huggingface_hub.errors import EntryNotFoundError

            try:
                return [*api.list_repo_tree(path_in_repo=self._path or None, recursive=True, **given)]
            except EntryNotFoundError:
                return []

        found = [each for each in self._parts.ask(below, self._options) if hasattr(each, "size")]
        first = len(self._path) + 1 if self._path else 0
        listing = Listing()
        for each in found:
            listing.add(ObjectInfo(each.path[first:], each.size))
        return listing.sealed()


def _token() -> str | None:
    """The user's token, where huggingface_hub has one."""
    try:
        from huggingface_hub import get_token
    except ImportError:
        return None
    found: str | None = get_token()
    return found
