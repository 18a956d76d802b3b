"""Builds the site of `meshmark serve`: the live machine, recordings, loads, modelled machines and reports.

The map is the page of `server.py`, mounted below `/live/`, `/recording/NAME/` and `/model/NAME/WORKLOAD/`. Work is done
on demand: the sampler runs while it has readers, and a model is simulated when it is opened. Each kind of slow work has
a few threads of its own, so that requests of one kind do not delay requests of another kind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from meshmark.store.files import utf8
from meshmark.web.guard import Guard
from meshmark.web.hub import Hub, StoredFrames
from meshmark.web.live import LiveMachine
from meshmark.web.pages import RunFilter, front_page, loads_page
from meshmark.web.parts import LoadRow, RunRow, SiteParts
from meshmark.web.recordings import Recordings
from meshmark.web.server import STYLE_SHEET_ROUTE, Known, NotFoundError, guarded, map_routes, metrics_route, reported
from meshmark.web.shelf import ResultCache

GRAFANA: Final = Path(__file__).with_name("grafana.json")


def make_site(parts: SiteParts, token: str = "") -> Guard:
    """Return the application of `meshmark serve`.

    Raises:
        MeshmarkError: The page of the map has not been built.
    """
    live = LiveMachine(parts.start, parts.idle_s)
    recordings = Recordings(parts.recordings)
    models: ResultCache[StoredFrames] = ResultCache(kept=8, at_once=2)
    names = {m.name for m in parts.models}

    @contextlib.asynccontextmanager
    async def recording(request: Request) -> AsyncIterator[Hub | StoredFrames]:
        yield await recordings.open(request.path_params["name"])

    def recording_known(request: Request) -> None:
        recordings.path(request.path_params["name"])

    def model_of(values: Mapping[str, str]) -> tuple[str, str]:
        name, workload = values.get("name", ""), values.get("workload", "")
        if name not in names:
            raise NotFoundError(f"model: found no '{name[:80]}'", "see the list on the front page")
        if workload not in parts.workloads:
            raise NotFoundError(f"workload: found '{workload[:80]}'; allowed: {', '.join(parts.workloads)}")
        return name, workload

    @contextlib.asynccontextmanager
    async def model(request: Request) -> AsyncIterator[Hub | StoredFrames]:
        name, workload = model_of(request.path_params)

        def simulated() -> StoredFrames:
            header, frames = parts.simulate(name, workload)
            return StoredFrames(header, len(frames), lambda begin, count: list(frames[begin : begin + count]))

        yield await models.get((name, workload), simulated)

    def model_known(request: Request) -> None:
        model_of(request.path_params)

    async def chosen(request: Request) -> Response:
        name, workload = model_of(request.query_params)
        return RedirectResponse(f"model/{quote(name, safe='')}/{workload}/", 303)

    async def front(request: Request) -> Response:
        filters = RunFilter(*(request.query_params.get(k, "") for k in ("kind", "find")))
        return HTMLResponse(utf8(await anyio.to_thread.run_sync(front_page, parts, live.state, recordings, filters)))

    async def grafana(_: Request) -> Response:
        return FileResponse(GRAFANA, media_type="application/json", filename="meshmark-grafana.json")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(live.sleep_when_idle())
        try:
            yield
        finally:
            watcher.cancel()
            await live.close()

    def mounted(path: str, find: Any, known: Known | None = None) -> Mount:
        return Mount(path, routes=map_routes(find, known))

    return guarded(
        [
            Route("/", front),
            STYLE_SHEET_ROUTE,
            Route("/grafana.json", grafana),
            Route("/model", chosen),
            *_run_routes(parts),
            *_load_routes(parts),
            metrics_route(live.find_with_frames),
            mounted("/live", live.find),
            mounted("/recording/{name}", recording, recording_known),
            mounted("/model/{name}/{workload}", model, model_known),
        ],
        token,
        lifespan,
    )


def _run_routes(parts: SiteParts) -> list[BaseRoute]:
    """Return the routes of the reports of runs, and of comparisons of two runs."""
    reports: ResultCache[bytes] = ResultCache(kept=8, at_once=1)

    def runs_of(*names: str) -> list[RunRow]:
        with reported("runs cannot be listed"):
            runs_by_name = {r.name: r for r in parts.runs()}
        if unknown_names := [name for name in names if name not in runs_by_name]:
            raise NotFoundError(f"found no run '{unknown_names[0][:80]}'", "see the list on the front page")
        return [runs_by_name[name] for name in names]

    async def report(request: Request) -> Response:
        (run,) = await anyio.to_thread.run_sync(runs_of, request.path_params["name"])

        def made() -> bytes:
            with reported(f"report of {run.name[:80]}"):
                return parts.report(run.name)

        return _sandboxed(await reports.get((run.name, run.stamp), made))

    async def compared(request: Request) -> Response:
        names = (request.query_params.get(side, "") for side in ("a", "b"))
        a, b = await anyio.to_thread.run_sync(runs_of, *names)

        def made() -> bytes:
            with reported(f"{a.name[:80]} and {b.name[:80]}"):
                return parts.compared(a.name, b.name)

        return _sandboxed(await reports.get(("compare", a.name, b.name, a.stamp, b.stamp), made))

    return [Route("/report/{name:path}", report), Route("/compare", compared)]


def _load_routes(parts: SiteParts) -> list[BaseRoute]:
    """Return the routes of the list of loads and studies, of their pages, and of comparisons of two runs."""
    loads = parts.loads or _NoLoads()
    pages: ResultCache[bytes] = ResultCache(kept=8, at_once=1)
    listing = anyio.CapacityLimiter(1)  # the first listing is slow, and concurrent ones would repeat it

    def rows() -> tuple[Sequence[LoadRow], int]:
        with reported("loads cannot be listed"):
            return loads.rows()

    async def listed() -> tuple[Sequence[LoadRow], int]:
        return await anyio.to_thread.run_sync(rows, limiter=listing)

    def made(name: str, make: Callable[..., bytes], *of: LoadRow) -> bytes:
        with reported(name):
            return make(*of)

    async def load_rows() -> Sequence[LoadRow]:
        return (await listed())[0]

    def load_of(rows: Sequence[LoadRow], kind: str, name: str) -> LoadRow:
        row = next((r for r in rows if (r.kind, r.name) == (kind, name)), None)
        if row is None or not row.shown:
            raise NotFoundError(f"{kind}: found no '{name[:80]}' that can be shown", "see the list at load/")
        return row

    async def load_list(_: Request) -> Response:
        return HTMLResponse(utf8(loads_page(parts, *await listed())))

    async def load_page(request: Request) -> Response:
        row = load_of(await load_rows(), request.path_params["kind"], request.path_params["name"])
        return _sandboxed(await pages.get((row.kind, row.name, row.stamp), lambda: made(row.name, loads.page, row)))

    async def load_compared(request: Request) -> Response:
        rows = await load_rows()
        a, b = (load_of(rows, "run", request.query_params.get(k, "")) for k in ("a", "b"))
        key = ("compare", a.name, a.stamp, b.name, b.stamp)
        return _sandboxed(await pages.get(key, lambda: made(f"{a.name} and {b.name}", loads.compared, a, b)))

    return [
        Route("/load/", load_list),
        Route("/load/compare", load_compared),
        Route("/load/{kind}/{name:path}", load_page),
    ]


class _NoLoads:
    """An empty list, used if loads are not shown."""

    def rows(self) -> tuple[Sequence[LoadRow], int]:
        return (), 0

    def page(self, row: LoadRow) -> bytes:
        raise NotFoundError(f"{row.kind}: found no '{row.name}'")

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        raise NotFoundError(f"run: found no '{a.name}' and no '{b.name}'")


def _sandboxed(page: bytes) -> Response:
    """Return a response in a sandbox, without cookie and network access.

    The page contains scripts and text from other machines.
    """
    policy = (
        "sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline' 'unsafe-eval'"
    )
    return Response(page, media_type="text/html", headers={"content-security-policy": policy})
