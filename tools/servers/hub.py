"""Hub: a stand-in for the Hugging Face Hub: its API for one dataset repository, and the content behind
redirects to a server of its own."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlsplit


class Hub:
    """A Hub with the repository ``owner/name``, for those who send `token`.

    Attributes:
        token: the token that the API and the files want; "": none.
        commits: files by path, of each commit; the last one is main.
        requests: (method, path) of each request to the Hub, and of those behind its redirects.
        leaked: True if the server behind the redirects was sent a token.
    """

    def __init__(self, files: dict[str, bytes], token: str = "") -> None:
        self.token = token
        self.commits: dict[str, dict[str, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.leaked = False
        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), kind)
            for kind in (_handler(self, _Api), _handler(self, _Content))
        ]
        self.commit(files)

    def commit(self, files: dict[str, bytes]) -> str:
        """Makes a commit of these files; returns it."""
        name = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits[name] = files
        return name

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def content(self) -> str:
        """The URL of the server behind the redirects."""
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def of(self, revision: str) -> dict[str, bytes] | None:
        """The files of a revision; None: there is none."""
        return self.commits.get([*self.commits][-1] if revision == "main" else revision)

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        self.answer(path)

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Api(_Handler):
    def answer(self, path: str) -> None:
        hub = self.hub
        if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
            self.send(401, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
            return
        found = re.fullmatch(
            r"(?:/api)?/datasets/owner/name/(revision|tree|resolve)/([^/]+)/?(.*)", path
        ) or re.fullmatch(r"/api/datasets/(owner)/(name)()", path)
        files = None if found is None else hub.of("main" if found[1] == "owner" else found[2])
        if found is None or files is None:
            code = "RepoNotFound" if found is None else "RevisionNotFound"
            self.send(404, X_Error_Code=code, X_Error_Message="not found")
        elif found[1] in ("revision", "owner"):
            commit = next(name for name, content in hub.commits.items() if content is files)
            self._json({"id": "owner/name", "sha": commit, "siblings": [], "tags": [], "private": False})
        elif found[1] == "tree":
            self._tree(files, found[3] and f"{found[3]}/")
        elif found[3] not in files:
            self.send(404, X_Error_Code="EntryNotFound", X_Error_Message="not found")
        else:
            commit = next(name for name, content in hub.commits.items() if content is files)
            data = files[found[3]]
            self.send(
                302,
                Location=f"{hub.content}/{commit}/{found[3]}?signed=yes",
                X_Repo_Commit=commit,
                X_Linked_Etag=f'"{hashlib.sha256(data).hexdigest()}"',
                X_Linked_Size=str(len(data)),
            )

    def _tree(self, files: dict[str, bytes], top: str) -> None:
        """The files below a folder; unless all of them are asked for, its own, and the folders in it."""
        below = [name for name in files if name.startswith(top)]
        if top and not below:
            self.send(404, X_Error_Code="EntryNotFound", X_Error_Message="not found")
            return
        folders: set[str] = set()
        if "recursive=true" not in urlsplit(self.path).query.lower():
            folders = {top + name[len(top) :].partition("/")[0] for name in below if "/" in name[len(top) :]}
            below = [name for name in below if "/" not in name[len(top) :]]
        entry = {"size": 0, "oid": "0" * 40}
        self._json(
            [{**entry, "type": "file", "path": name, "size": len(files[name])} for name in below]
            + [{**entry, "type": "directory", "path": name} for name in sorted(folders)]
        )

    def _json(self, value: object) -> None:
        self.send(200, json.dumps(value).encode(), Content_Type="application/json")


class _Content(_Handler):
    def answer(self, path: str) -> None:
        self.hub.leaked |= "authorization" in self.headers
        _, commit, name = path.split("/", 2)
        data = self.hub.commits[commit][name]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        if asked is None:
            self.send(200, data, ETag=tag, Accept_Ranges="bytes")
            return
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        self.send(206, data[first : last + 1], ETag=tag, Content_Range=f"bytes {first}-{last}/{len(data)}")


def _handler(hub: Hub, kind: type[_Handler]) -> type[_Handler]:
    return type(kind.__name__, (kind,), {"hub": hub})
