"""The page of the live map: static files, the header, and frames as server-sent events.

`watch --web`, `replay --web` and `serve` share what is here: what a map's page asks for. Who is let in is `guard.py`'s,
connections are `listener.py`'s. Nothing is executed for a request, and no path of a request reaches the disk except
below the folder of the built page.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ExceptionHandler, Lifespan, Receive, Scope, Send

from meshmark.errors import MeshmarkError, quoted
from meshmark.store.files import utf8
from meshmark.web import openmetrics
from meshmark.web.guard import Guard, failed
from meshmark.web.hub import Hub, Past

STATIC: Final = Path(__file__).parent / "static"
MOST_AT_ONCE: Final = 600  # frames of one answer

Find = Callable[[Request], AbstractAsyncContextManager[Hub | Past]]
Known = Callable[[Request], None]


class NotHere(MeshmarkError):
    """A name of a request that is not in the listing."""


@contextlib.contextmanager
def reported(what: str) -> Iterator[None]:
    """Whatever fails in here is one line about `what`: files of others may spoil their reader in any way."""
    try:
        yield
    except MeshmarkError:
        raise
    except Exception as why:
        raise MeshmarkError(f"{what}: {type(why).__name__}: {quoted(why)}") from why


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
            return Response(_json(what.header_json), media_type="application/json")

    async def frames(request: Request) -> Response:
        if request.method == "HEAD":  # its answer ends, which that of a GET does not
            return Response(media_type="text/event-stream")
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
                return _json(what.some(max(begin, 0), min(max(count, 0), MOST_AT_ONCE)))

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
        Mount("/", _Static(directory=STATIC, html=True)),
    ]


def _json(what: object) -> bytes:
    """As browsers read it: a recording from elsewhere may hold numbers that are none.

    Raises:
        MeshmarkError: it does.
    """
    with reported("JSON"):
        return json.dumps(what, separators=(",", ":"), allow_nan=False).encode()


class _Static(StaticFiles):
    """Files of the built page; what cannot be opened is not there."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except OSError as why:  # links in a circle, say
            raise HTTPException(404) from why


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
    text = " ".join(str(why).split()) + (f" ({why.hint})" if why.hint else "") + "\n"
    return PlainTextResponse(utf8(text), 404 if isinstance(why, NotHere) else 503)


def guarded(routes: list[BaseRoute], token: str, lifespan: Lifespan[Starlette]) -> Guard:
    """An application that only those who may can reach."""
    refusals: Mapping[Any, ExceptionHandler] = {MeshmarkError: _refused, Exception: failed}
    return Guard(Starlette(routes=routes, exception_handlers=refusals, lifespan=lifespan), token)


def make_app(what: Hub | Past, token: str = "") -> Guard:
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


def serve(what: Hub | Past, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves one stream of frames until interrupted; see `listener.run`."""
    from meshmark.web.listener import run  # uvicorn takes a while to come

    run(lambda: make_app(what, token), host, port, token, ready)
