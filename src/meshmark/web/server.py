"""The page of the live map: static files, the header, and frames as server-sent events.

Bound to loopback unless a token is set; nothing is executed for a request, and no path of a request reaches the disk
except below the folder of the built page.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from meshmark.errors import MeshmarkError, UsageError
from meshmark.web import openmetrics
from meshmark.web.hub import Hub, Past

STATIC: Final = Path(__file__).parent / "static"
_LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "x-frame-options": "DENY",
}  # fmt: skip


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
        given = request.query_params.get("token", "") or request.cookies.get("meshmark", "")
        if self.token and not hmac.compare_digest(given.encode(), self.token.encode()):
            await PlainTextResponse("a token is needed: open the address that meshmark printed\n", 401)(
                scope, receive, send
            )
            return

        async def with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))  # type: ignore[call-overload]
                headers += [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                if self.token and request.query_params.get("token"):
                    headers.append(
                        (b"set-cookie", f"meshmark={self.token}; HttpOnly; SameSite=Strict; Path=/".encode())
                    )
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, with_headers)  # type: ignore[arg-type]


MOST_AT_ONCE: Final = 600


def make_app(what: Hub | Past, token: str = "") -> Starlette:
    """The application for one stream of frames, live or past.

    Raises:
        MeshmarkError: the page is not built.
    """
    if not (STATIC / "index.html").is_file():
        raise MeshmarkError(f"the page is not built: {STATIC.name}/index.html is missing", "make setup builds it")

    async def header(_: Request) -> Response:
        return JSONResponse(what.header_json)

    async def frames(request: Request) -> Response:
        if not isinstance(what, Hub):
            return PlainTextResponse("nothing is live here\n", 404)
        return StreamingResponse(
            _until_gone(request, what.events()), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def metrics(_: Request) -> Response:
        if not isinstance(what, Hub):
            return PlainTextResponse("nothing is live here\n", 404)
        return Response(openmetrics.text(what.window), media_type=openmetrics.CONTENT_TYPE)

    async def past(request: Request) -> Response:
        if not isinstance(what, Past):
            return PlainTextResponse("this machine is live\n", 404)
        try:
            begin, count = (int(request.query_params.get(k, d)) for k, d in (("begin", "0"), ("count", "600")))
        except ValueError:
            return PlainTextResponse("begin, count: whole numbers are needed\n", 400)
        count = min(max(count, 0), MOST_AT_ONCE)
        return JSONResponse(await run_in_threadpool(what.some, max(begin, 0), count))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(what, Hub):
            what.start()
        yield

    return Starlette(
        routes=[
            Route("/api/header", header),
            Route("/api/frames", frames),
            Route("/api/past", past),
            Route("/metrics", metrics),
            Mount("/", StaticFiles(directory=STATIC, html=True)),
        ],
        middleware=[Middleware(Guard, token=token, hosts=_LOOPBACK)],
        lifespan=lifespan,
    )


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
    """Serves until interrupted.

    Args:
        ready: is called with the page's address once it can be opened.

    Raises:
        UsageError: an address beyond this machine without a token, or one that is not to be had.
    """
    import uvicorn

    if host not in _LOOPBACK and not token:
        raise UsageError(f"--host: found {host}, which others can reach: --token is needed with it")
    app = make_app(what, token)
    sock = free_socket(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{sock.getsockname()[1]}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    ready(address)
    uvicorn.Server(config).run(sockets=[sock])
