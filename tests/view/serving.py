"""A page's server in this process, and requests to it as a client makes them that is no browser."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from PIL import Image

from fastload.view.opening import open_subject
from fastload.view.server import PageServer
from fastload.view.subject import PageSettings, Subject


@dataclass
class Site:
    """A server that runs, its dataset, and the cookie of a client that has opened its address."""

    server: PageServer
    subject: Subject
    cookie: str = field(default="", repr=False)

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
        """(status, headers, content) of a request. The headers of the request are Host and Cookie unless
        others are given."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request(method, path, headers={"Cookie": self.cookie, **headers})
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def content(self, path: str, **query: object) -> bytes:
        """The content of an answer that is no error."""
        status, _, content = self.ask(path + ("?" + urlencode(query) if query else ""))
        assert status == 200, (path, query, content)
        return content

    def document(self, path: str, **query: object) -> Any:
        """A JSON document."""
        return json.loads(self.content(path, **query))

    def pixels(self, path: str, **query: object) -> np.ndarray[Any, Any]:
        """Pixels of a picture: (height, width, 3), or (height, width, 4) of one with transparent colours."""
        image = Image.open(io.BytesIO(self.content(path, **query)))
        return np.asarray(image.convert("RGBA" if image.mode == "P" else "RGB"))


@contextmanager
def serving(path: Path | str, settings: PageSettings | None = None, **options: Any) -> Iterator[Site]:
    """Serves a dataset's page."""
    subject = open_subject(str(path), settings or PageSettings(), **options)
    try:
        with PageServer(subject) as server:
            site = Site(server, subject)
            _, headers, _ = site.ask(server.address.partition(str(server.port))[2])
            site.cookie = headers["set-cookie"].partition(";")[0]
            yield site
    finally:
        subject.close()
