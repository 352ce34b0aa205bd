"""The server of a page: Starlette's routes, run by uvicorn on 127.0.0.1 until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, FastloadError, ResourceError, SampleError
from fastload.view.access import HOST, App, Gate, library
from fastload.view.pages import Answer, Pages, page_file
from fastload.view.subject import Subject

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_THREADS_MOST = 8
_STOP_S = 0.7
"""Time that answers have to end after Ctrl-C."""
_NUMBER = re.compile(r"(\d{1,18})(?:\.png)?")


def application(subject: Subject, pages: Pages, ends: Callable[[], bool] = lambda: False) -> App:
    """The ASGI application of a page, for those whom the gate lets in. `ends`: returns True once the server
    is to end.

    Raises:
        ArgumentError: Starlette is not installed.
    """
    routing, applications = library("starlette.routing"), library("starlette.applications")
    routes = [routing.Route(path, _file(*found)) for path, found in _FILES.items()]
    routes += [routing.Route(f"/{name}", _about(pages, name)) for name in pages.names]
    routes += [
        routing.Route(f"/{name}/{{index}}", _of_sample(subject, pages, name)) for name in pages.sample_names
    ]
    app: App = applications.Starlette(routes=routes, lifespan=partial(_running, ends))
    return app


@contextlib.asynccontextmanager
async def _running(ends: Callable[[], bool], _: object) -> AsyncIterator[None]:
    """Bounds the threads that make answers: pictures are decoded one at a time in any case, and compressed
    beside that."""
    library("anyio.to_thread").current_default_thread_limiter().total_tokens = min(
        _THREADS_MOST, available_cpus() + 2
    )
    asyncio.get_running_loop().set_exception_handler(partial(_unless_closed, ends))
    yield


def _unless_closed(
    ends: Callable[[], bool], loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """Reports an error of the event loop, but for that of a client who connects while the server closes
    its socket."""
    error = context.get("exception")
    if not (ends() and isinstance(error, OSError) and error.errno == errno.EBADF):
        loop.default_exception_handler(context)


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    response = library("starlette.responses").Response

    def answer(request: Request) -> Response:
        made: Response = response(page_file(name), media_type=kind)
        return made

    return answer


def _about(pages: Pages, name: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return _answered(lambda: pages.about(name, request.query_params))

    return answer


def _of_sample(subject: Subject, pages: Pages, name: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        found = _NUMBER.fullmatch(request.path_params["index"])
        if found is None:
            return _sentence("that is no number of a sample", 404)
        index = int(found[1])
        return _answered(
            lambda: pages.of_sample(name, index, request.query_params),
            lambda error: subject.meet(index, error),
        )

    return answer


def _answered(
    make: Callable[[], Answer], bad: Callable[[SampleError], object] = lambda error: None
) -> Response:
    """The response with an answer, or with the sentence of the error; `bad` is told of a bad sample."""
    try:
        made = make()
    except SampleError as error:
        bad(error)
        return _sentence(str(error), 422)
    except ArgumentError as error:
        return _sentence(str(error), 400)
    except (FastloadError, OSError) as error:
        return _sentence(str(error), 500)
    response: Response = library("starlette.responses").Response(made.content, media_type=made.kind)
    return response


def _sentence(text: str, status: int) -> Response:
    responses = library("starlette.responses")
    response: Response = responses.PlainTextResponse(text.encode("utf-8", "backslashreplace"), status)
    return response


class PageServer:
    """A page's server in a thread of its own, while it is entered. It ends within about a second, whatever it
    is doing.

    Attributes:
        port: the port.
        address: the address to open, with the token.
        ticket: another address, which opens the page once: for the arguments of a browser's process.

    Raises:
        ArgumentError: Starlette or uvicorn is not installed.
        ResourceError: the port is taken.
        TransformError: the transform of the draws cannot be planned.
    """

    def __init__(self, subject: Subject, port: int = 0) -> None:
        self._ends = False
        app = application(subject, Pages(subject), lambda: self._ends)
        token, ticket = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        self.address, self.ticket = (
            f"http://{HOST}:{self.port}/?token={secret}" for secret in (token, ticket)
        )
        try:
            self._server = _server(Gate(app, token, ticket, f"fastload_view_{self.port}"))
        except ArgumentError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="fastload-view", daemon=True)

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends = self._server.should_exit = True
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():  # else the socket is still its own
            self._socket.close()

    def wait(self) -> None:
        """Returns when the server has ended; Ctrl-C raises KeyboardInterrupt."""
        self._thread.join()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


def _server(app: App) -> uvicorn.Server:
    """uvicorn's server of an application. Raises ArgumentError if uvicorn is not installed."""
    running = library("uvicorn")
    config = running.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
    )
    server: uvicorn.Server = running.Server(config)
    return server


def _listening(port: int) -> socket.socket:
    """A socket that listens; port 0: any that is free. Raises ResourceError if the port is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)
    except OSError as error:
        found.close()
        raise ResourceError(
            f"port {port} of {HOST} cannot be used: {error.strerror}; give another by --port, or 0 for any"
        ) from None
    return found
