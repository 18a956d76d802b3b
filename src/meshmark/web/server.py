"""Serves the page of the live map: static files, the header, and frames as server-sent events.

`watch --web`, `replay --web` and `serve` share these routes. `guard.py` authenticates requests, `listener.py` manages
connections. Requests never start programs, and their paths access only files below the folder of the built page.
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
from meshmark.native import remedy
from meshmark.store.files import utf8
from meshmark.views.render import STYLE_SHEET
from meshmark.web.export import openmetrics
from meshmark.web.guard import Guard, failed
from meshmark.web.hub import Hub, StoredFrames

STATIC: Final = Path(__file__).parent / "static"
MAX_FRAMES_PER_RESPONSE: Final = 600

Find = Callable[[Request], AbstractAsyncContextManager[Hub | StoredFrames]]
Known = Callable[[Request], None]


class NotFoundError(MeshmarkError):
    """The name in a request is not listed."""


@contextlib.contextmanager
def reported(what: str) -> Iterator[None]:
    """Convert any exception to a MeshmarkError about `what`, because damaged files may raise arbitrary exceptions."""
    try:
        yield
    except MeshmarkError:
        raise
    except Exception as error:
        raise MeshmarkError(f"{what}: {type(error).__name__}: {quoted(error)}") from error


class EventStream(StreamingResponse):
    """A response with server-sent events until the reader disconnects; it closes `stack` however it ends."""

    def __init__(self, request: Request, events: AsyncIterator[str], stack: AsyncExitStack | None = None) -> None:
        super().__init__(
            _until_gone(request, events), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )
        self._stack = stack or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and release the resources of the stream when it ends."""
        async with self._stack:
            await super().__call__(scope, receive, send)


def map_routes(find: Find, known: Known | None = None) -> list[BaseRoute]:
    """Return the routes of a map's page, relative to its address.

    Args:
        find: Context manager that yields the frames for a request, and is active until the response is complete.
        known: Raises NotFoundError for an unknown name, before the page itself is sent.

    Raises:
        MeshmarkError: The page has not been built.
    """
    if not (STATIC / "index.html").is_file():
        raise MeshmarkError(f"the page is not built: {STATIC.name}/index.html is missing", remedy())
    # Separate threads, so that reading a long recording does not delay a live map.
    readers = anyio.CapacityLimiter(4)

    async def header(request: Request) -> Response:
        async with find(request) as what:
            return Response(_json(what.header_json), media_type="application/json")

    async def frames(request: Request) -> Response:
        if request.method == "HEAD":  # the response to GET would never end
            return Response(media_type="text/event-stream")
        async with AsyncExitStack() as stack:
            what = await stack.enter_async_context(find(request))
            if not isinstance(what, Hub):
                return PlainTextResponse("not a live machine\n", 404)
            return EventStream(request, what.events(), stack.pop_all())

    async def past(request: Request) -> Response:
        async with find(request) as what:
            if not isinstance(what, StoredFrames):
                return PlainTextResponse("this machine is live\n", 404)
            try:
                begin, count = (int(request.query_params.get(k, d)) for k, d in (("begin", "0"), ("count", "600")))
            except ValueError:
                return PlainTextResponse("begin, count: integers are required\n", 400)

            def made() -> bytes:  # includes encoding, which takes longer than a frame period for a large machine
                return _json(what.some(max(begin, 0), min(max(count, 0), MAX_FRAMES_PER_RESPONSE)))

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
        Mount("/", Static(directory=STATIC, html=True)),
    ]


def _json(what: object) -> bytes:
    """Return standard JSON, without NaN and infinity, which recordings from elsewhere may contain.

    Raises:
        MeshmarkError: The data contain NaN or infinity.
    """
    with reported("JSON"):
        return json.dumps(what, separators=(",", ":"), allow_nan=False).encode()


class Static(StaticFiles):
    """Files of the built page; files that cannot be opened are not found."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a static file; a path that cannot be read is not found."""
        try:
            return await super().get_response(path, scope)
        except OSError as error:  # such as circular links
            raise HTTPException(404) from error


def metrics_route(find: Find) -> Route:
    """Return the route `/metrics` of a live machine; with `?summary`, it describes the machine as a whole."""

    async def metrics(request: Request) -> Response:
        async with find(request) as what:
            if not isinstance(what, Hub):
                return PlainTextResponse("not a live machine\n", 404)
            is_summary = "summary" in request.query_params
            body = await anyio.to_thread.run_sync(
                lambda: openmetrics.text(what.window.whole() if is_summary else what.window)
            )
            return Response(body, media_type=openmetrics.CONTENT_TYPE)

    return Route("/metrics", metrics)


async def _style_sheet(_: Request) -> Response:
    return FileResponse(STYLE_SHEET, media_type="text/css")


STYLE_SHEET_ROUTE: Final = Route("/page.css", _style_sheet)


async def _refused(_: Request, error: Exception) -> Response:
    """Return the response to a MeshmarkError in one line."""
    assert isinstance(error, MeshmarkError)
    text = " ".join(str(error).split()) + (f" ({error.hint})" if error.hint else "") + "\n"
    return PlainTextResponse(utf8(text), 404 if isinstance(error, NotFoundError) else 503)


def guarded(
    routes: list[BaseRoute],
    token: str,
    lifespan: Lifespan[Starlette],
    posts: frozenset[str] = frozenset(),
    post_token: str = "",
) -> Guard:
    """Return an application with these routes behind a `Guard`."""
    refusals: Mapping[Any, ExceptionHandler] = {MeshmarkError: _refused, Exception: failed}
    return Guard(Starlette(routes=routes, exception_handlers=refusals, lifespan=lifespan), token, posts, post_token)


def make_app(what: Hub | StoredFrames, token: str = "") -> Guard:
    """Return the application for one stream of frames, live or recorded.

    Raises:
        MeshmarkError: The page has not been built.
    """

    @contextlib.asynccontextmanager
    async def find(_: Request) -> AsyncIterator[Hub | StoredFrames]:
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


def serve(what: Hub | StoredFrames, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve one stream of frames until interrupted; see `listener.run`."""
    from meshmark.web.listener import run  # importing uvicorn is slow

    run(lambda: make_app(what, token), host, port, token, ready)
