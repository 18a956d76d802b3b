"""`meshmark serve`: one place in the browser for this machine live, recordings, loads, simulated machines and reports.

The map is the page of `server.py`, mounted below `/live/`, `/recording/NAME/` and `/model/NAME/WORKLOAD/`. Nothing is
done before somebody asks for it: the sampler runs while it has readers, a model is simulated when it is opened. What
takes long runs in threads that are few and of one kind, so that no reader of one thing waits for those of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.recording import Recording
from meshmark.web.hub import Hub, Past
from meshmark.web.server import Known, NotHere, guarded, map_routes, metrics_route

IDLE_S: Final = 90.0  # longer than monitoring systems wait between two scrapes, so that it need not start for each
MOST_RECORDINGS: Final = 200  # listed, the newest first
GRAFANA: Final = Path(__file__).with_name("grafana.json")
_CSS: Final = Path(__file__).with_name("site.css")
_KINDS: Final = (".parquet", ".part")

T = TypeVar("T")


# ------------------------------------------------------------------ made once, kept a while


class Busy(MeshmarkError):
    """Too much is being made already."""


class Shelf(Generic[T]):
    """Things that take long to make: each made once however many ask, few at once, the last ones kept.

    Args:
        kept: how many stay.
        at_once: threads that make them.
        waiting: how many may be wanted at once before others are turned away.
    """

    def __init__(self, kept: int, at_once: int, waiting: int = 16) -> None:
        self._kept, self._waiting = kept, waiting
        self._made: OrderedDict[object, T] = OrderedDict()
        self._coming: dict[object, asyncio.Task[T]] = {}
        self._threads = anyio.CapacityLimiter(at_once)

    async def get(self, key: object, make: Callable[[], T]) -> T:
        """What `key` names, made if it is not there.

        Raises:
            Busy: too many others are wanted at this moment.
        """
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        if key not in self._coming:
            if len(self._coming) >= self._waiting:
                raise Busy("busy: others are being made; try again in some seconds")
            self._coming[key] = asyncio.create_task(self._make(key, make))
        # Shielded: one that goes away must not end it for the others that wait.
        return await asyncio.shield(self._coming[key])

    async def _make(self, key: object, make: Callable[[], T]) -> T:
        try:
            made = await anyio.to_thread.run_sync(make, limiter=self._threads)
            self._made[key] = made
            while len(self._made) > self._kept:
                self._made.popitem(last=False)
            return made
        finally:
            del self._coming[key]


# ------------------------------------------------------------------ this machine


class Sampler(Protocol):
    """What `watch.live.Live` is: running from its making on, ended by `stop`."""

    header: Header

    def frames(self) -> Iterator[Frame]: ...

    def stop(self) -> None: ...


Start = Callable[[], AbstractContextManager[Sampler]]


class LiveMachine:
    """This machine, sampled only while somebody looks.

    Args:
        start: starts a sampler; it is entered, and left when it has ended.
        idle_s: the sampler is stopped this long after the last reader has gone.
    """

    def __init__(self, start: Start, idle_s: float = IDLE_S) -> None:
        self._start, self._idle_s = start, idle_s
        self._hub: Hub | None = None
        self._sampler: Sampler | None = None
        self._over = threading.Event()
        self._readers = 0
        self._used = 0.0
        self._lock = asyncio.Lock()

    @property
    def state(self) -> str:
        """In words, for the front page."""
        if self._hub is None or self._hub.ended:
            return "asleep: the sampler starts with the first reader"
        readers = "1 reader" if self._readers == 1 else f"{self._readers} readers"
        return f"sampled every {self._hub.header.period_s:g} s, {readers}"

    @contextlib.asynccontextmanager
    async def find(self, _: Request) -> AsyncIterator[Hub | Past]:
        """The stream of frames, which goes on as long as somebody is in here."""
        self._readers += 1
        try:
            async with self._lock:
                if self._hub is None or self._hub.ended:
                    self._hub = await anyio.to_thread.run_sync(self._begin)
            yield self._hub
        finally:
            self._readers -= 1
            self._used = time.monotonic()

    @contextlib.asynccontextmanager
    async def find_with_frames(self, request: Request) -> AsyncIterator[Hub | Past]:
        """The same with a first frame, which one that was asleep has only after a while."""
        async with self.find(request) as hub:
            assert isinstance(hub, Hub)
            until = time.monotonic() + 2 * hub.header.period_s + 2
            while hub.window.empty and not hub.ended and time.monotonic() < until:
                await asyncio.sleep(0.05)
            yield hub

    def _begin(self) -> Hub:
        sampler = self._start()
        over = self._over = threading.Event()
        entered = sampler.__enter__()

        def frames() -> Iterator[Frame]:
            try:
                yield from entered.frames()
            finally:
                sampler.__exit__(None, None, None)
                over.set()

        try:
            hub = Hub(entered.header, frames())
        except BaseException:
            sampler.__exit__(None, None, None)
            raise
        self._sampler = entered
        hub.start()
        return hub

    async def sleep_when_idle(self) -> None:
        """Stops the sampler when nobody has looked for a while; runs until cancelled."""
        while True:
            await asyncio.sleep(min(self._idle_s / 4, 5.0))
            if time.monotonic() - self._used > self._idle_s:
                await self.stop()

    async def stop(self) -> None:
        """Ends the sampler and waits for its end, if there is one and nobody looks."""
        async with self._lock:  # one who comes now waits here, and counts already
            if self._sampler is not None and not self._readers:
                await self._end()

    async def shut(self) -> None:
        """Ends the sampler whoever looks."""
        async with self._lock:
            if self._sampler is not None:
                await self._end()

    async def _end(self) -> None:
        assert self._sampler is not None
        self._sampler.stop()
        await anyio.to_thread.run_sync(self._over.wait, 5.0)
        self._sampler = self._hub = None


# ------------------------------------------------------------------ recordings


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """A file of the folder, as it is listed; `broken` says why it cannot be shown."""

    name: str
    changed: float  # s since 1970
    machine: str = ""
    started: str = ""
    frames: int = 0
    length_s: float = 0.0
    broken: str = ""


class Recordings:
    """The recordings that lie in a folder, by their names. What a link in it leads out to is not shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[tuple[str, int, int], RecordingRow] = {}
        self._shelf: Shelf[Past] = Shelf(kept=8, at_once=2)

    def rows(self) -> tuple[list[RecordingRow], int]:
        """Those to list, the newest first, and how many more there are."""
        found: list[tuple[os.DirEntry[str], os.stat_result]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_KINDS) and not entry.name.startswith("."):
                        with contextlib.suppress(OSError):
                            found.append((entry, entry.stat()))
        except OSError as why:
            raise MeshmarkError(f"{self.folder}: {why.strerror or why}") from why
        found.sort(key=lambda f: (-f[1].st_mtime, f[0].name))
        rows: dict[tuple[str, int, int], RecordingRow] = {}
        for entry, stat in found[:MOST_RECORDINGS]:
            key = (entry.name, stat.st_mtime_ns, stat.st_size)
            rows[key] = self._rows.get(key) or self._row(entry.name, stat)
        self._rows = rows  # what has gone is forgotten
        return list(rows.values()), max(0, len(found) - MOST_RECORDINGS)

    def _row(self, name: str, stat: os.stat_result) -> RecordingRow:
        import pyarrow as pa

        try:
            path = self.path(name)
            recording = Recording(path)
            header, (frames, length_s) = recording.header, recording.extent()
        except (MeshmarkError, pa.ArrowException, OSError) as why:
            told = " ".join(str(why).split())
            for before in (f"{self.folder / name}: ", f"{(self.folder / name).resolve()}: ", f"recording {name}: "):
                told = told.removeprefix(before)
            return RecordingRow(name, stat.st_mtime, broken=told[:200])
        return RecordingRow(name, stat.st_mtime, header.machine, header.started, frames, length_s)

    def path(self, name: str) -> Path:
        """Where the recording of that name lies.

        Raises:
            NotHere: none is listed under it.
        """
        with contextlib.suppress(OSError, ValueError):
            if name.endswith(_KINDS) and any(p.name == name for p in self.folder.iterdir()):
                path = (self.folder / name).resolve()
                if path.parent != self.folder.resolve():
                    raise NotHere(f"recording {name}: is a link that leads out of the folder")
                if not path.is_file():
                    raise NotHere(f"recording {name}: is no file")
                return path
        raise NotHere(f"recording: found no '{name[:80]}'", "the front page lists what is there")

    async def open(self, name: str) -> Past:
        """Its frames."""
        path = await anyio.to_thread.run_sync(self.path, name)
        stat = path.stat()
        return await self._shelf.get((name, stat.st_mtime_ns, stat.st_size), lambda: _past_of(path))


def _past_of(path: Path) -> Past:
    recording = Recording(path)
    one = threading.Lock()  # a reader of Parquet is not made for two threads

    def load(begin: int, count: int) -> list[Frame]:
        with one:
            return recording.some(begin, count)

    return Past(recording.header, recording.count(), load)


# ------------------------------------------------------------------ what the command gives


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A simulated machine of the list."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of the store; `stamp` changes when its results do."""

    name: str
    machine: str
    started: str
    records: int
    instruments: Sequence[str]
    stamp: object = None


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A run of a scenario, or a study of many; `stamp` changes when it does.

    Attributes:
        kind: `run` or `study`; with the name its address.
        what: the programs, or what a study asks.
        state: how far it came, in words.
        shown: whether it has a page.
        broken: why it cannot be listed.
    """

    kind: str
    name: str
    started: str = ""
    what: str = ""
    state: str = ""
    length_s: float = 0.0
    runs: int = 1
    flags: Sequence[str] = ()
    shown: bool = True
    stamp: object = None
    broken: str = ""


class Loads(Protocol):
    """Runs and studies by their names; what is not listed is not there."""

    def rows(self) -> tuple[Sequence[LoadRow], int]:
        """The newest first, and how many older ones are not listed. Raises MeshmarkError: they cannot be read."""

    def page(self, row: LoadRow) -> bytes:
        """Its page, whole in itself."""

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        """The page of two runs. Raises MeshmarkError: they have nothing in common."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is shown, from rooms that this one does not know.

    Attributes:
        machine: name of this machine, and a line about it.
        models: simulated machines, and `workloads` that each can be shown under.
        simulate: the frames of a machine under a workload.
        runs: of the store; raises MeshmarkError where it cannot be read.
        report: the page of a run, whole in itself.
        loads: runs of scenarios and studies; none: nothing is said of them.
    """

    machine: tuple[str, str]
    start: Start
    recordings: Path
    models: Sequence[ModelRow]
    workloads: Sequence[str]
    simulate: Callable[[str, str], tuple[Header, Sequence[Frame]]]
    runs: Callable[[], Sequence[RunRow]]
    report: Callable[[str], bytes]
    idle_s: float = IDLE_S
    loads: Loads | None = None


def make_site(parts: Parts, token: str = "") -> Starlette:
    """The application of `meshmark serve`.

    Raises:
        MeshmarkError: the page of the map is not built.
    """
    live = LiveMachine(parts.start, parts.idle_s)
    recordings = Recordings(parts.recordings)
    models: Shelf[Past] = Shelf(kept=8, at_once=2)
    reports: Shelf[bytes] = Shelf(kept=8, at_once=1)
    pages: Shelf[bytes] = Shelf(kept=8, at_once=1)
    names = {m.name for m in parts.models}
    loads = parts.loads or _NoLoads()
    listing = anyio.CapacityLimiter(1)  # the first listing of many runs takes a while, and others would do the same

    @contextlib.asynccontextmanager
    async def recording(request: Request) -> AsyncIterator[Hub | Past]:
        yield await recordings.open(request.path_params["name"])

    def recording_known(request: Request) -> None:
        recordings.path(request.path_params["name"])

    def model_of(values: Mapping[str, str]) -> tuple[str, str]:
        name, workload = values.get("name", ""), values.get("workload", "")
        if name not in names:
            raise NotHere(f"model: found no '{name[:80]}'", "the front page lists what is there")
        if workload not in parts.workloads:
            raise NotHere(f"workload: found '{workload[:80]}', allowed are {', '.join(parts.workloads)}")
        return name, workload

    @contextlib.asynccontextmanager
    async def model(request: Request) -> AsyncIterator[Hub | Past]:
        name, workload = model_of(request.path_params)

        def simulated() -> Past:
            header, frames = parts.simulate(name, workload)
            return Past(header, len(frames), lambda begin, count: list(frames[begin : begin + count]))

        yield await models.get((name, workload), simulated)

    def model_known(request: Request) -> None:
        model_of(request.path_params)

    async def chosen(request: Request) -> Response:
        name, workload = model_of(request.query_params)
        return RedirectResponse(f"model/{quote(name, safe='')}/{workload}/", 303)

    async def front(_: Request) -> Response:
        return HTMLResponse(await anyio.to_thread.run_sync(_front, parts, live.state, recordings))

    async def report(request: Request) -> Response:
        name = request.path_params["name"]
        run = next((r for r in await anyio.to_thread.run_sync(parts.runs) if r.name == name), None)
        if run is None:
            raise NotHere(f"report: found no run '{name[:80]}'", "the front page lists what is there")
        return _alone(await reports.get((name, run.stamp), lambda: parts.report(name)))

    async def load_rows() -> Sequence[LoadRow]:
        return (await anyio.to_thread.run_sync(loads.rows, limiter=listing))[0]

    def load_of(rows: Sequence[LoadRow], kind: str, name: str) -> LoadRow:
        row = next((r for r in rows if (r.kind, r.name) == (kind, name)), None)
        if row is None or not row.shown:
            raise NotHere(f"{kind}: found no '{name[:80]}' that can be shown", "load/ lists what is there")
        return row

    async def load_list(_: Request) -> Response:
        return HTMLResponse(_loads_page(parts, *await anyio.to_thread.run_sync(loads.rows, limiter=listing)))

    async def load_page(request: Request) -> Response:
        row = load_of(await load_rows(), request.path_params["kind"], request.path_params["name"])
        return _alone(await pages.get((row.kind, row.name, row.stamp), lambda: loads.page(row)))

    async def load_compared(request: Request) -> Response:
        rows = await load_rows()
        a, b = (load_of(rows, "run", request.query_params.get(k, "")) for k in ("a", "b"))
        key = ("compare", a.name, a.stamp, b.name, b.stamp)
        return _alone(await pages.get(key, lambda: loads.compared(a, b)))

    async def css(_: Request) -> Response:
        return FileResponse(_CSS, media_type="text/css")

    async def grafana(_: Request) -> Response:
        return FileResponse(GRAFANA, media_type="application/json", filename="meshmark-grafana.json")

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(live.sleep_when_idle())
        try:
            yield
        finally:
            watcher.cancel()
            await live.shut()

    def mounted(path: str, find: Any, known: Known | None = None) -> Mount:
        return Mount(path, routes=map_routes(find, known))

    return guarded(
        [
            Route("/", front),
            Route("/site.css", css),
            Route("/grafana.json", grafana),
            Route("/model", chosen),
            Route("/report/{name:path}", report),
            Route("/load/", load_list),
            Route("/load/compare", load_compared),
            Route("/load/{kind}/{name:path}", load_page),
            metrics_route(live.find_with_frames),
            mounted("/live", live.find),
            mounted("/recording/{name}", recording, recording_known),
            mounted("/model/{name}/{workload}", model, model_known),
        ],
        token,
        lifespan,
    )


class _NoLoads:
    """Where none are shown."""

    def rows(self) -> tuple[Sequence[LoadRow], int]:
        return (), 0

    def page(self, row: LoadRow) -> bytes:
        raise NotHere(f"{row.kind}: found no '{row.name}'")

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        raise NotHere(f"run: found no '{a.name}' and no '{b.name}'")


def _alone(page: bytes) -> Response:
    """A page that brings its own scripts, and whose words may come from another machine: alone in a sandbox, without
    this server's cookie, and with nobody to talk to."""
    policy = ("sandbox allow-scripts; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
              "script-src 'unsafe-inline' 'unsafe-eval'")  # fmt: skip
    return Response(page, media_type="text/html", headers={"content-security-policy": policy})


# ------------------------------------------------------------------ the front page


def _page(title: str, up: str, header: str, main: str) -> str:
    """A page of the site; `up` leads to its root, all but the title is HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} – Meshmark</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}site.css">
</head>
<body>
<header>
{header}
</header>
<main>
{main}
</main>
<footer>Meshmark</footer>
</body>
</html>
"""


def _front(parts: Parts, state: str, recordings: Recordings) -> str:
    machine, about = (escape(t) for t in parts.machine)
    main = f"""<section aria-labelledby="live">
<h2 id="live">This machine, live</h2>
<p class="caption">{escape(state)}</p>
<p><a class="button" href="live/">Open the live map</a></p>
</section>
<section aria-labelledby="recordings">
<h2 id="recordings">Recordings</h2>
{_recordings(recordings)}
</section>
<section aria-labelledby="runs">
<h2 id="runs">Runs and their reports</h2>
{_runs(parts)}
</section>
{_loads_section(parts)}<section aria-labelledby="models">
<h2 id="models">Simulated machines</h2>
<p class="caption">Described machines of the literature, simulated when opened: 200 frames of 0.5 µs.</p>
{_models(parts)}
</section>
<section aria-labelledby="feeds">
<h2 id="feeds">For monitoring systems</h2>
<ul class="plain">
<li><a href="metrics">metrics</a>: OpenMetrics of this machine, the last 15 s of every metric</li>
<li><a href="grafana.json">grafana.json</a>: a dashboard of them, to import into Grafana</li>
<li><code>meshmark watch --otlp http://HOST:4318</code> sends them to an OpenTelemetry collector</li>
</ul>
</section>"""
    return _page(parts.machine[0], "", f"<h1>{machine}</h1>\n<p>{about}</p>", main)


def _recordings(recordings: Recordings) -> str:
    folder = escape(str(recordings.folder))
    try:
        rows, more = recordings.rows()
    except MeshmarkError as why:
        return f'<p class="absent">cannot be listed: {escape(str(why))}</p>'
    if not rows:
        make = "meshmark record --duration 60 --out " + str(recordings.folder / "first.parquet")
        return f'<p class="absent">none in {folder}</p><p>Make one: <code>{escape(make)}</code></p>'
    head = ("recording", "machine", "started, UTC", "length", "frames")
    body = []
    for r in rows:
        name = escape(r.name)
        growing = ' <span class="tag">growing, or cut</span>' if r.name.endswith(".part") else ""
        if r.broken:
            body.append(f'<tr role="row" class="broken"><th role="rowheader">{name}</th>'
                        f'<td role="cell" colspan="4">{escape(r.broken)}</td></tr>')  # fmt: skip
            continue
        link = f'<a href="recording/{quote(r.name, safe="")}/">{name}</a>'
        when = _when(r.started, r.changed)
        body.append(_row(head, link + growing, escape(r.machine), when, _span(r.length_s), f"{r.frames:,}"))
    rest = f'<p class="caption">and {more} older ones, which are not listed</p>' if more else ""
    return f'<p class="caption">in {folder}</p>{_table(head, body)}{rest}'


def _runs(parts: Parts) -> str:
    try:
        rows = parts.runs()
    except MeshmarkError as why:
        return f'<p class="absent">cannot be listed: {escape(str(why))}</p>'
    if not rows:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark survey --quick</code></p>'
    head = ("run", "machine", "started, UTC", "instruments", "records")
    body = []
    for r in rows:
        link = f'<a href="report/{quote(r.name, safe="")}">{escape(r.name)}</a>'
        instruments = escape(", ".join(r.instruments))
        body.append(_row(head, link, escape(r.machine), _when(r.started), instruments, f"{r.records:,}"))
    note = '<p class="caption">A report takes some seconds to make when it is first opened.</p>'
    return note + _table(head, body)


def _loads_section(parts: Parts) -> str:
    """The way to the page of loads, where there is one."""
    if parts.loads is None:
        return ""
    try:
        rows, more = parts.loads.rows()
    except MeshmarkError as why:
        said = f'<p class="absent">cannot be listed: {escape(str(why))}</p>'
    else:
        runs = sum(r.kind == "run" for r in rows)
        of = f"{_many(runs, 'run')} of scenarios, {_many(len(rows) - runs, 'study', 'studies')}"
        of += f", and {more} older ones" if more else ""
        said = f'<p class="caption">{of}</p><p><a class="button" href="load/">Open loads and studies</a></p>'
    return f'<section aria-labelledby="loads">\n<h2 id="loads">Loads</h2>\n{said}\n</section>\n'


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _loads_page(parts: Parts, rows: Sequence[LoadRow], more: int) -> str:
    """All runs and studies, and the choice of two runs to compare."""
    runs, studies = ([r for r in rows if r.kind == kind] for kind in ("run", "study"))
    rest = f'<p class="caption">and {more} older ones, which are not listed</p>' if more else ""
    main = (
        f'<section aria-labelledby="runs"><h2 id="runs">Runs</h2>{_load_runs(runs)}{rest}</section>'
        f'<section aria-labelledby="compare"><h2 id="compare">Compare two runs</h2>{_load_pair(runs)}</section>'
        f'<section aria-labelledby="studies"><h2 id="studies">Studies</h2>{_load_studies(studies)}</section>'
    )
    header = f'<h1>Loads and studies</h1>\n<p><a href="../">Back to {escape(parts.machine[0])}</a></p>'
    return _page("Loads", "../", header, main)


def _tags(words: Sequence[str]) -> str:
    return " ".join(f'<span class="tag">{escape(w)}</span>' for w in words) or "none"


def _load_link(r: LoadRow) -> str:
    return f'<a href="{r.kind}/{quote(r.name, safe="")}">{escape(r.name)}</a>' if r.shown else escape(r.name)


def _broken(r: LoadRow, columns: int) -> str:
    return (
        f'<tr role="row" class="broken"><th role="rowheader">{escape(r.name)}</th>'
        f'<td role="cell" colspan="{columns - 1}">{escape(r.broken)}</td></tr>'
    )


def _load_runs(runs: Sequence[LoadRow]) -> str:
    if not runs:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark load run SCENARIO</code></p>'
    head = ("run", "programs", "started, UTC", "length", "came to", "flags")
    body = [
        _broken(r, len(head)) if r.broken else
        _row(head, _load_link(r), escape(r.what), _when(r.started), _span(r.length_s) if r.length_s else "–",
             escape(r.state), _tags(r.flags))
        for r in runs
    ]  # fmt: skip
    return _table(head, body)


def _load_studies(studies: Sequence[LoadRow]) -> str:
    if not studies:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark load study shared-bus</code></p>'
    head = ("study", "asks", "started, UTC", "runs", "came to", "flags")
    body = [
        _broken(r, len(head)) if r.broken else
        _row(head, _load_link(r), escape(r.what), _when(r.started), f"{r.runs:,}", escape(r.state), _tags(r.flags))
        for r in studies
    ]  # fmt: skip
    return _table(head, body)


def _load_pair(runs: Sequence[LoadRow]) -> str:
    """Two lists and a button, without a script; the two newest are chosen, the older one first."""
    can = [r for r in runs if r.shown and not r.broken]
    if len(can) < 2:
        return '<p class="absent">needs two runs</p>'

    def choice(letter: str, at: int) -> str:
        options = "".join(
            f'<option value="{escape(r.name)}"{" selected" if i == at else ""}>{escape(r.name)}, {_when(r.started)}'
            "</option>" for i, r in enumerate(can)
        )  # fmt: skip
        return f'<label>{letter.upper()} <select name="{letter}">{options}</select></label>'

    return (
        '<p class="caption">Programs are matched by name and copy; both charts are drawn on one axis.</p>'
        f'<form action="compare" class="pair">{choice("a", 1)}{choice("b", 0)}<button>Compare</button></form>'
    )


def _natural(name: str) -> list[str | int]:
    """Orders names as people do: gs1280-8 before gs1280-16."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]+)", name))]


def _models(parts: Parts) -> str:
    options = "".join(f"<option>{escape(w)}</option>" for w in parts.workloads)
    cards = [
        f'<li><form action="model"><h3>{escape(m.name)}</h3><p>{escape(m.title)}</p>'
        f'<input type="hidden" name="name" value="{escape(m.name)}">'
        f'<div class="row"><select name="workload" aria-label="workload of {escape(m.name)}">{options}</select>'
        f'<button aria-label="simulate {escape(m.name)}">Simulate</button></div></form></li>'
        for m in sorted(parts.models, key=lambda m: _natural(m.name))
    ]
    return f'<ul class="cards">{"".join(cards)}</ul>'


_PLURAL: Final = {"study": "studies"}
_NUMBERS: Final = {"length", "frames", "records", "runs"}  # columns


# The roles are said, for a phone shows rows as blocks, and a browser forgets then what they are.
def _row(head: Sequence[str], first: str, *cells: str) -> str:
    told = "".join(
        f'<td role="cell" data-label="{h}"{" class=n" if h in _NUMBERS else ""}>{c}</td>'
        for h, c in zip(head[1:], cells, strict=True)
    )
    return f'<tr role="row"><th role="rowheader">{first}</th>{told}</tr>'


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    titles = "".join(f'<th role="columnheader"{" class=n" if h in _NUMBERS else ""}>{h}</th>' for h in head)
    # With a name and a place in the order of Tab, for those who scroll with keys.
    label = f"table: {_PLURAL.get(head[0], head[0] + 's')}"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table role="table">'
        f'<thead role="rowgroup"><tr role="row">{titles}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>'
    )


def _when(started: str, changed: float = 0.0) -> str:
    """A time as people read it; of a recording that does not say, when its file was last written to."""
    text = started[:16].replace("T", " ")
    if not text and changed:
        text = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%d %H:%M")
    return escape(text) or "–"


def _span(length_s: float) -> str:
    """A length of time with its unit: 85 ns to 12 h 05 min."""
    if length_s >= 3600:
        return f"{int(length_s // 3600)} h {int(length_s % 3600 // 60):02} min"
    if length_s >= 60:
        return f"{int(length_s // 60)} min {int(length_s % 60):02} s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if length_s >= scale:
            return f"{length_s / scale:.3g} {unit}"
    return f"{length_s * 1e9:.3g} ns"
