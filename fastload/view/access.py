"""Access: who may read a page. A token in the address that the command prints, and then a cookie; nobody else
on the machine or the web.

NOTE [ view: who may read ]
1. The server listens on 127.0.0.1 alone.
2. A request must name that host or localhost: a page of a foreign name that resolves to 127.0.0.1 (DNS
   rebinding) is refused.
3. It must have the token, which is drawn anew at each start: in the address once, which answers with a cookie
   and leads on to the address without it; then in the cookie. The cookie is HttpOnly, so that no script reads
   it, and SameSite=Strict, so that no other site's page sends it. Other users of the machine can reach the
   port, and do not have it. Tokens are compared in constant time. Arguments of programs can be read by all
   users: the address that a browser is started with has a ticket, which opens the page once.
4. Only GET and HEAD are answered, and nothing is ever written.
5. The page loads nothing from elsewhere, runs no script but its own file, and cannot be framed: a policy in
   every answer says so. Names and values of the dataset are set as text.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from fastload.common.optional import optional

if TYPE_CHECKING:
    from types import ModuleType

    from starlette.requests import Request

HOST = "127.0.0.1"
HOSTS = (HOST, "localhost")
NEEDED_BY = "fastload view"
EXTRA = "view"
POLICY = (
    "default-src 'none'; img-src 'self' blob:; style-src 'self'; script-src 'self'; connect-src "
    "'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""

_ON = """<!doctype html><meta http-equiv="refresh" content="0;url=/">
<link rel="icon" href="icon.svg"><title>fastload view</title>
<a href="/">The page</a>"""
"""Answer to the address with the token. No redirect: that would count as the request of the site that has
the link, without the cookie."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def library(module: str) -> ModuleType:
    """A module of the extra. Raises ArgumentError if it is not installed; the message says what to
    install."""
    found: ModuleType = optional(module, NEEDED_BY, EXTRA)
    return found


class Gate:
    """ASGI middleware in front of an application: answers only those who have the token. See NOTE [ view: who
    may read ].

    Args:
        app: the application.
        token: the token.
        ticket: another one, for one request.
        cookie: name of the cookie, which differs between servers: browsers keep cookies by host, and not by
            port.

    Raises:
        ArgumentError: Starlette is not installed.
    """

    def __init__(self, app: App, token: str, ticket: str, cookie: str) -> None:
        self._app, self._cookie, self._token = app, cookie, token
        self._tickets = [ticket]
        self._request, self._responses = library("starlette.requests").Request, library("starlette.responses")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(self._request(scope)) or self._app
            await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> App | None:
        """The answer to a request that the application does not get."""
        text: Callable[..., App] = self._responses.PlainTextResponse
        if host_name(request.headers.get("host", "")) not in HOSTS:
            return text("this server answers at 127.0.0.1 and localhost alone", 400)
        if request.method not in ("GET", "HEAD"):
            return text("this server only shows; it takes GET alone", 405, {"Allow": "GET, HEAD"})
        if request.scope["path"] == "/" and self._opens(request.query_params.get("token", "")):
            answer = self._responses.HTMLResponse(_ON)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            entry: App = answer
            return entry
        if not _same(request.cookies.get(self._cookie, ""), self._token):
            return text(
                "this page needs the token in the address that `fastload view` printed: open that address",
                403,
            )
        return None

    def _opens(self, given: str) -> bool:
        """True if it is the token, or the ticket for the first time."""
        if self._tickets and _same(given, self._tickets[0]):
            self._tickets.clear()
            return True
        return _same(given, self._token)


def host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = header.rpartition(":")
    return name if colon and port.isdigit() else header


def _same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())


def _with_headers(send: Send) -> Send:
    """Adds HEADERS to an answer."""
    added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sending
