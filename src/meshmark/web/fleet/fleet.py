"""Serves the live state of a fleet: a page with all nodes, and the endpoint to which nodes send their metrics.

Pages receive server-sent events: the layout, then what changed since the last event. A slow reader receives fewer and
larger events, so that nothing queues up. Each event is computed once for all readers of a metric.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from meshmark.errors import MeshmarkError, quoted
from meshmark.native import remedy
from meshmark.store.files import utf8
from meshmark.views.pages.fleet import places
from meshmark.views.render import render
from meshmark.web.export.otlp_receiver import JSON, MAX_BODY, BadBodyError, answer, readings, unpacked_within
from meshmark.web.fleet.live_fleet import STATES, Cases, LiveFleet, grouped, shortened
from meshmark.web.fleet.remote_maps import RemoteMaps
from meshmark.web.guard import Guard
from meshmark.web.hub import event_text
from meshmark.web.server import STATIC, STYLE_SHEET_ROUTE, EventStream, NotFoundError, Static, guarded, map_routes

POST: Final = "/v1/metrics"
TICK_S: Final = 0.5  # between two events
CASES_S: Final = 30.0  # between two readings of the open cases
MAX_READERS: Final = 64  # open pages
MAX_BODIES: Final = 256  # bodies that are being received at once
MAX_BUFFERED: Final = 64 << 20  # B of all such bodies together
BODY_S: Final = 10.0  # time limit for receiving a body
IN_THREAD: Final = 32 << 10  # B when decompressed; longer bodies are read in a thread, so that they do not delay others
MAX_LONG: Final = 16  # number of longer bodies that wait for this thread
_ADDED_AT_ONCE: Final = 16  # machines of a body that are added before other requests are answered
_OUTSIDE: Final = "not of the fleet"


@dataclass(frozen=True, slots=True)
class FleetParts:
    """What the server of a fleet serves.

    Attributes:
        cluster: Name of the cluster.
        racks: Names of nodes by rack.
        cases: Reads the open cases; raises MeshmarkError if they cannot be read.
        tasks: Coroutines that run while the server runs, such as polling nodes.
        maps: The live maps of nodes.
        counted: Called after every tick with the numbers of nodes by state.
    """

    cluster: str
    live: LiveFleet
    racks: Mapping[str, Sequence[str]]
    cases: Callable[[], Cases]
    tasks: Sequence[Callable[[], Any]] = ()
    maps: RemoteMaps = field(default_factory=lambda: RemoteMaps(lambda _: None, ""))
    counted: Callable[[Mapping[str, int]], None] = lambda _: None


class FleetFeed:
    """Produces events for pages."""

    def __init__(self, parts: FleetParts) -> None:
        self._parts, self._live = parts, parts.live
        self._next = asyncio.Event()
        self._made: dict[tuple[int, str], str] = {}  # events by the last tick of the reader and its metric
        self._layout: tuple[tuple[int, int], str] = ((-1, -1), "")
        self.readers = 0

    async def run(self) -> None:
        """Update the states of the nodes every `TICK_S` until cancelled."""
        while True:
            self._live.tick(time.monotonic())
            self._made.clear()
            self._next.set()
            self._next = asyncio.Event()
            self._parts.counted(self._live.counts())
            await asyncio.sleep(TICK_S)

    async def events(self, metric: str) -> AsyncIterator[str]:
        """Yield events for one reader: a layout whenever it changes, and states and values of nodes that changed."""
        self.readers += 1
        try:
            sent_size, tick = (-1, -1), 0
            while True:
                size = len(self._live.names), len(self._live.metrics)
                text = self._laid_out(size) if size != sent_size else ""
                yield text + self._changes(tick, metric)
                sent_size, tick = size, self._live.ticks
                await self._next.wait()
        finally:
            self.readers -= 1

    def _laid_out(self, size: tuple[int, int]) -> str:
        if self._layout[0] != size:
            self._layout = size, event_text("layout", self.layout())
        return self._layout[1]

    def layout(self) -> dict[str, Any]:
        """Return the names, the racks with the number and place of each of their nodes, and the metrics."""
        live = self._live
        racked = {name for names in self._parts.racks.values() for name in names}
        racks = dict(self._parts.racks)
        members = live.names[: live.of_fleet] if live.of_fleet else live.names
        racks |= {k: [*racks.get(k, ()), *v] for k, v in grouped(n for n in members if n not in racked).items()}
        if outsiders := live.names[len(members) :]:
            racks[_OUTSIDE] = outsiders
        rack_rows = []
        for rack, names in racks.items():
            cells = places(len(names), rack not in {"", _OUTSIDE})
            numbers = [live.number(name) for name in names]
            rack_rows.append({"name": rack, "nodes": numbers, "x": [x for x, _ in cells], "y": [y for _, y in cells]})
        metrics = sorted(live.metrics.items())
        return {
            "cluster": self._parts.cluster,
            "names": live.names,
            "racks": rack_rows,
            "states": STATES,
            "metrics": [{"name": name, "unit": unit} for name, unit in metrics],
        }

    def _changes(self, since: int, metric: str) -> str:
        text = self._made.get((since, metric))
        if text is None:
            live = self._live
            numbers = live.since(since)
            column = list(live.metrics).index(metric) if metric in live.metrics else None
            values = [] if column is None else shortened(live.values[numbers, column])
            changes = {
                "at": round(time.time(), 3),
                "nodes": numbers.tolist(),
                "states": "".join(map(str, live.state[numbers].tolist())),
                "values": values,
                "counts": live.counts(),
                "reports": live.reports,
                "refused": live.refused,
                "cases": live.cases(),
            }
            text = self._made[since, metric] = event_text("change", changes)
        return text


class Receiver:
    """Receives the metrics that nodes send."""

    def __init__(self, live: LiveFleet) -> None:
        self._live = live
        self._bodies = self._buffered = 0
        self._thread = anyio.CapacityLimiter(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the metrics of a node; after an error, the connection is closed."""
        request = Request(scope, receive)
        try:
            response = await self._received(request)
        except BadBodyError as error:
            response = PlainTextResponse(utf8(f"{error}\n"), error.code)
        except ClientDisconnect:
            return
        if response.status_code != 200:
            response.headers["connection"] = "close"  # the rest of the body is not read
            if response.status_code == 503:
                response.headers["retry-after"] = "5"
        await response(scope, receive, send)

    async def _received(self, request: Request) -> Response:
        if request.method != "POST":
            return PlainTextResponse("method: found GET; allowed: POST\n", 405, {"allow": "POST"})
        kind, encoding = (request.headers.get(k, "") for k in ("content-type", "content-encoding"))
        body = await self._body(request)
        if unpacked_within(body, encoding, IN_THREAD) is not None:
            machines = readings(body, kind, encoding)
        elif self._thread.statistics().tasks_waiting >= MAX_LONG:
            raise BadBodyError("busy: too many long requests at once", 503)
        else:
            machines = await anyio.to_thread.run_sync(readings, body, kind, encoding, limiter=self._thread)
        source = request.client.host if request.client else ""
        rejected_points, reasons = 0, dict[str, None]()
        for number, (reading, points) in enumerate(machines, 1):
            reason = self._live.add(reading, source, time.monotonic(), time.time())
            if reason:
                rejected_points += points
                reasons[reason] = None
            if number % _ADDED_AT_ONCE == 0:
                await asyncio.sleep(0)
        media = JSON if kind.startswith(JSON) else "application/x-protobuf"
        return Response(answer(media, rejected_points, "; ".join(reasons)[:500]), media_type=media)

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise BadBodyError(f"body: found {quoted(length)} bytes; allowed: up to {MAX_BODY}", 413)
        if self._bodies >= MAX_BODIES:
            raise BadBodyError("busy: too many requests at once", 503)
        self._bodies += 1
        size, chunks = 0, []
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._buffered += len(chunk)
                    chunks.append(chunk)
                    if size > MAX_BODY:
                        raise BadBodyError(f"body: found more than {MAX_BODY} bytes; allowed: up to {MAX_BODY}", 413)
                    if self._buffered > MAX_BUFFERED:
                        raise BadBodyError("busy: too many large requests at once", 503)
        except TimeoutError:
            raise BadBodyError(f"body: not complete after {BODY_S:g} s", 408) from None
        finally:
            self._bodies -= 1
            self._buffered -= size
        return b"".join(chunks)


def make_fleet_site(parts: FleetParts, token: str = "", push_token: str = "") -> Guard:
    """Return the application of `meshmark fleet serve`.

    Args:
        parts: The fleet and its live state.
        token: The token that requests need; "" if reading needs none.
        push_token: The token with which nodes send their metrics; "" to use `token`.

    Raises:
        MeshmarkError: The page has not been built.
    """
    if not (STATIC / "fleet.js").is_file():
        raise MeshmarkError(f"the page is not built: {STATIC.name}/fleet.js is missing", remedy())
    live = parts.live
    feed = FleetFeed(parts)

    async def front(_: Request) -> Response:
        return HTMLResponse(utf8(render("site/fleet.html", title=f"Fleet {parts.cluster}", up="", states=STATES)))

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # the response to GET would never end
            return Response(media_type="text/event-stream")
        if feed.readers >= MAX_READERS:
            return PlainTextResponse(f"more than {MAX_READERS} pages are open\n", 503)
        return EventStream(request, feed.events(request.query_params.get("metric", "")[:200]))

    async def nodes(_: Request) -> Response:
        return StreamingResponse(_all_nodes(parts), media_type="application/jsonl")

    async def node(request: Request) -> Response:
        name = request.path_params["name"]
        if live.number(name) is None:
            raise NotFoundError(f"node: found no '{quoted(name)}'", "api/nodes lists all")
        times, past = live.history(name)
        content = {**live.node(name, time.monotonic()), "at": times, "past": past, "units": live.metrics}
        return JSONResponse({**content, "map": f"node/{quote(name)}/" if parts.maps.has(name) else ""})

    async def follow_cases() -> None:
        while True:
            with contextlib.suppress(MeshmarkError):  # the cases of the last successful reading stay
                live.open_cases(await anyio.to_thread.run_sync(parts.cases))
            await asyncio.sleep(CASES_S)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(run()) for run in (feed.run, follow_cases, *parts.tasks)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await parts.maps.close()

    routes = [
        Route(POST, Receiver(live)),  # first, because it is requested most often
        Route("/", front),
        STYLE_SHEET_ROUTE,
        Route("/api/live", events),
        Route("/api/nodes", nodes),
        Route("/api/nodes/{name}", node),
        Mount("/node/{name}", routes=map_routes(parts.maps.find, parts.maps.known)),
        Mount("/", Static(directory=STATIC)),
    ]
    return guarded([*routes], token, lifespan, frozenset({POST}), push_token)


async def _all_nodes(parts: FleetParts) -> AsyncIterator[bytes]:
    """Yield JSON Lines: the fleet, then each node."""
    live = parts.live
    head = {"type": "fleet", "cluster": parts.cluster, "metrics": live.metrics, "counts": live.counts()}
    yield json.dumps({**head, "refused": live.refused}).encode() + b"\n"
    names = list(live.names)
    for begin in range(0, len(names), 100):  # in parts, so that other requests are answered in the meantime
        now_s = time.monotonic()
        lines = [json.dumps({"type": "node", **live.node(name, now_s)}) for name in names[begin : begin + 100]]
        yield ("\n".join(lines) + "\n").encode()
        await asyncio.sleep(0)
