"""StoreMaker: makes obstore's stores of a URL and its storage_options."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from fastload.common.urls import local_path, shown
from fastload.errors import ArgumentError
from fastload.remote.credentials import KEY, bounded_provider

SILENCE_LIMIT = 10.0
"""Seconds without a byte after which a read is given up and tried again; a quarter of the timeout where that is less."""
CONNECT_LIMIT = 5.0
_ENDPOINT = re.compile(r"(AWS|AZURE|GOOGLE|GCS)\w*_ENDPOINT(_URL)?(_\w+)?|STORAGE_EMULATOR_HOST")


class StoreMaker:
    """Makes stores of one URL.

    Stores for reading do not try again by themselves: the client does, since it knows when. A store for writing tries each part of an
    upload again, so that one lost part is not the whole file's.
    """

    def __init__(self, obstore: Any, url: str, options: dict[str, object], timeout: float) -> None:
        self._obstore = obstore
        self._url = url
        self._timeout = timeout
        self._client = _taken_mapping(options, "client_options")
        self.provider = bounded_provider(options.pop(KEY, None), timeout)
        if "retry_config" in options:
            raise ArgumentError("storage_options has no retry_config: fastload tries again by itself for `timeout` seconds")
        self._config = options
        self._take_password()
        if "allow_http" not in self._client and _plain_http(url, options):
            self._client["allow_http"] = True

    def _take_password(self) -> None:
        """Sends the user and password of a web server's URL as its header: obstore sends none, and shows them in its messages."""
        parts = urlsplit(self._url)
        user, at, host = parts.netloc.rpartition("@")
        if at and parts.scheme.lower() in ("http", "https"):
            self._url = urlunsplit(parts._replace(netloc=host))
            header = "Basic " + base64.b64encode(unquote(user).encode()).decode()
            self._client["default_headers"] = {"authorization": header, **_taken_mapping(self._client, "default_headers")}

    def reader(self) -> Any:
        """A store for reading."""
        silence = min(SILENCE_LIMIT, self._timeout / 4)
        limits = {"timeout": timedelta(seconds=self._timeout), "read_timeout": timedelta(seconds=silence)}
        return self._make(limits, {"max_retries": 0})

    def writer(self) -> Any:
        """A store for writing."""
        return self._make({"timeout": timedelta(seconds=self._timeout)}, {"retry_timeout": timedelta(seconds=self._timeout)})

    def _make(self, limits: Mapping[str, object], retry: Mapping[str, object]) -> Any:
        path = local_path(self._url)
        failed = ""
        try:
            if path is not None:
                return self._local(Path(path))
            connect = timedelta(seconds=min(CONNECT_LIMIT, self._timeout))
            client = {"connect_timeout": connect, **limits, **self._client}
            given = {"config": self._config or None, KEY: self.provider}
            return self._obstore.store.from_url(
                self._url, client_options=client, retry_config=retry, **{key: value for key, value in given.items() if value is not None}
            )
        except (self._obstore.exceptions.BaseError, ValueError, TypeError) as error:
            failed = _words(error)
        raise ArgumentError(f"{shown(self._url)} cannot be opened: {failed}")

    def _local(self, path: Path) -> Any:
        if self._config:
            raise ValueError("storage_options have no meaning for file://")
        return self._obstore.store.LocalStore(path, mkdir=True)


def _words(error: Exception) -> str:
    """What is wrong with an option. Of obstore's text, which may show the URL's or an option's secrets, only a key's name is kept."""
    text = str(error)
    if found := re.search(r"Configuration key: '([A-Za-z0-9_.-]{1,80})' is not valid", text) or re.search(
        r"Invalid key: ([A-Za-z0-9_.-]{1,80})\.", text
    ):
        return f"storage_options has no key {found[1]!r} for it"
    if "does not accept any configuration" in text:
        return "storage_options of an HTTP server may hold only client_options"
    if "have no meaning" in text:
        return text
    return "check the URL and the values in storage_options"


def _taken_mapping(options: dict[str, object], key: str) -> dict[str, object]:
    value = options.pop(key, None) or {}
    if not isinstance(value, Mapping):
        raise ArgumentError(f"storage_options[{key!r}] must be a dict, not {type(value).__name__}")
    return dict(value)


def _plain_http(url: str, options: Mapping[str, object]) -> bool:
    """Whether the URL, or the endpoint in the options or the environment, is http and not https."""
    if urlsplit(url).scheme.lower() == "http":
        return True
    given = [value for key, value in options.items() if "endpoint" in key.lower()]
    named = given or [value for key, value in os.environ.items() if _ENDPOINT.fullmatch(key)]
    return any(isinstance(value, str) and value.lower().startswith("http://") for value in named)
