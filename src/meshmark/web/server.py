"""The page of the live map: static files, the header, and frames as server-sent events.

`watch --web`, `replay --web` and `serve` share what is here: who is let in, what a map's page asks for, how a server is
started. Bound to loopback unless a token is set; nothing is executed for a request, and no path of a request reaches
the disk except below the folder of the built page.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, ExceptionHandler, Lifespan, Receive, Scope, Send

from meshmark.errors import MeshmarkError, UsageError
from meshmark.web import openmetrics
from meshmark.web.hub import Hub, Past

STATIC: Final = Path(__file__).parent / "static"
MOST_AT_ONCE: Final = 600  # frames of one answer
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY",
}  # fmt: skip

Find = Callable[[Request], AbstractAsyncContextManager[Hub | Past]]
Known = Callable[[Request], None]


class NotHere(MeshmarkError):
    """A name of a request that is not in the listing."""


class Guard:
    """Lets in who has the token, and only requests that name a host this server answers to."""

    def __init__(self, app: ASGIApp, token: str, hosts: set[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        host = request.headers.get("host", "").rsplit(":", 1)[0].strip("[]")
        if not self.token and host not in self.hosts:
            # A page elsewhere whose name was bent to this address must not read the machine.
            await PlainTextResponse("this server answers to localhost alone\n", 421)(scope, receive, send)
            return
        bearer = request.headers.get("authorization", "").partition("Bearer ")[2]  # monitoring systems send it so
        given = request.query_params.get("token", "") or bearer or request.cookies.get("meshmark", "")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            await PlainTextResponse("a token is needed: open the address that meshmark printed\n", 401)(
                scope, receive, send
            )
            return

        async def with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))  # type: ignore[call-overload]
                own = {k.lower() for k, _ in headers}
                headers += [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in own]
                if self.token and request.query_params.get("token"):
                    headers.append(
                        (b"set-cookie", f"meshmark={self.token}; HttpOnly; SameSite=Strict; Path=/".encode())
                    )
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, with_headers)  # type: ignore[arg-type]


class _Stream(StreamingResponse):
    """Events of a hub, whose reader is gone when the answer is, however it ends."""

    def __init__(self, request: Request, hub: Hub, stack: AsyncExitStack) -> None:
        super().__init__(
            _until_gone(request, hub.events()), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


def map_routes(find: Find, known: Known | None = None) -> list[BaseRoute]:
    """What the page of a map asks for, relative to where it lies.

    Args:
        find: enters what a request is about, and leaves it when the answer is given.
        known: refuses, before the page itself is given, a name that is not there (NotHere).

    Raises:
        MeshmarkError: the page is not built.
    """
    if not (STATIC / "index.html").is_file():
        raise MeshmarkError(f"the page is not built: {STATIC.name}/index.html is missing", "make setup builds it")
    # Threads of their own: what reads a long recording must not keep a live map waiting.
    readers = anyio.CapacityLimiter(4)

    async def header(request: Request) -> Response:
        async with find(request) as what:
            return JSONResponse(what.header_json)

    async def frames(request: Request) -> Response:
        async with AsyncExitStack() as stack:
            what = await stack.enter_async_context(find(request))
            if not isinstance(what, Hub):
                return PlainTextResponse("nothing is live here\n", 404)
            return _Stream(request, what, stack.pop_all())

    async def past(request: Request) -> Response:
        async with find(request) as what:
            if not isinstance(what, Past):
                return PlainTextResponse("this machine is live\n", 404)
            try:
                begin, count = (int(request.query_params.get(k, d)) for k, d in (("begin", "0"), ("count", "600")))
            except ValueError:
                return PlainTextResponse("begin, count: whole numbers are needed\n", 400)

            def made() -> bytes:  # the text too: of a large machine it takes longer than a frame
                some = what.some(max(begin, 0), min(max(count, 0), MOST_AT_ONCE))
                return json.dumps(some, separators=(",", ":")).encode()

            return Response(await anyio.to_thread.run_sync(made, limiter=readers), media_type="application/json")

    async def page(request: Request) -> Response:
        if known is not None:
            await anyio.to_thread.run_sync(known, request, limiter=readers)
        return FileResponse(STATIC / "index.html")

    return [
        Route("/api/header", header),
        Route("/api/frames", frames),
        Route("/api/past", past),
        Route("/", page),
        Mount("/", StaticFiles(directory=STATIC, html=True)),
    ]


def metrics_route(find: Find) -> Route:
    """`/metrics` of a live machine."""

    async def metrics(request: Request) -> Response:
        async with find(request) as what:
            if not isinstance(what, Hub):
                return PlainTextResponse("nothing is live here\n", 404)
            body = await anyio.to_thread.run_sync(openmetrics.text, what.window)
            return Response(body, media_type=openmetrics.CONTENT_TYPE)

    return Route("/metrics", metrics)


async def _refused(_: Request, why: Exception) -> Response:
    """What could not be had, as one line."""
    assert isinstance(why, MeshmarkError)
    text = " ".join(str(why).split()) + (f" ({why.hint})" if why.hint else "")
    return PlainTextResponse(text + "\n", 404 if isinstance(why, NotHere) else 503)


def guarded(routes: list[BaseRoute], token: str, lifespan: Lifespan[Starlette]) -> Starlette:
    """An application that only those who may can reach."""
    refusals: Mapping[type[Exception], ExceptionHandler] = {MeshmarkError: _refused}
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, hosts=_LOOPBACK)],
        exception_handlers=refusals,
        lifespan=lifespan,
    )


def make_app(what: Hub | Past, token: str = "") -> Starlette:
    """The application for one stream of frames, live or past.

    Raises:
        MeshmarkError: the page is not built.
    """

    @contextlib.asynccontextmanager
    async def find(_: Request) -> AsyncIterator[Hub | Past]:
        yield what

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(what, Hub):
            what.start()
        yield

    return guarded([metrics_route(find), *map_routes(find)], token, lifespan)


async def _until_gone(request: Request, events: AsyncIterator[str]) -> AsyncIterator[str]:
    async for text in events:
        if await request.is_disconnected():
            return
        yield text


def free_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        UsageError: the address is not to be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as why:
        sock.close()
        raise UsageError(f"--port: {host}:{port}: {why.strerror}; another port is needed, or 0 for any") from why
    sock.listen(64)
    return sock


def serve(what: Hub | Past, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves one stream of frames until interrupted; see `run`."""
    run(lambda: make_app(what, token), host, port, token, ready)


def run(make: Callable[[], Starlette], host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves until interrupted.

    Args:
        make: the application; made once the address is known to be allowed.
        ready: is called with the page's address once it can be opened.

    Raises:
        UsageError: an address beyond this machine without a token, or one that is not to be had.
    """
    import uvicorn

    if host not in _LOOPBACK and not token:
        raise UsageError(f"--host: found {host}, which others can reach: --token is needed with it")
    if token and not re.fullmatch(r"[A-Za-z0-9._~-]{1,200}", token):
        raise UsageError("--token: found other signs, allowed are letters, digits and . _ ~ - (at most 200)")
    app = make()
    sock = free_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    ready(address)
    uvicorn.Server(config).run(sockets=[sock])
