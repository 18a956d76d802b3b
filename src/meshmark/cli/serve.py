"""`meshmark serve`: shows this machine, recordings, simulated machines and reports in a browser."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.options import StoreToReadOption
from meshmark.cli.watch.options import (
    HostOption,
    NoTokenOption,
    PortOption,
    TokenFileOption,
    TokenOption,
    served_at,
    simulated,
)
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.store.files import read_json
from meshmark.values.paths import data_home, default_store

if TYPE_CHECKING:
    from meshmark.store.record import Record
    from meshmark.store.run import Absence, RunInfo
    from meshmark.web.parts import LoadRow, RunRow

FRAMES: Final = 200
WINDOW_S: Final = 500e-9
MAX_LOADS: Final = 200  # maximum number of listed runs and studies, the newest first
KINDS: Final = ("measure", "app", "load", "study", "advise", "model", "sweep")  # first words of names of runs
NEED_MORE: Final = ("trace", "programs")  # workloads that need options beside their name


def register(app: typer.Typer) -> None:
    """Add the command `serve`."""
    app.command("serve")(serve)


def serve(
    store: StoreToReadOption = None,
    recordings: Annotated[Path, typer.Option("--recordings", help="folder with recordings")] = Path(),
    loads: Annotated[
        Path | None,
        typer.Option("--loads", help="folder with load runs and studies [this user's folders]", show_default=False),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.01, max=100, help="frames per second (Hz)")] = 2.0,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8642,
    token: TokenOption = "",
    token_file: TokenFileOption = None,
    no_token: NoTokenOption = False,
) -> None:
    """Serve the live map, recordings, runs and reports to browsers.

    example: meshmark serve --recordings nights
    """
    from meshmark.machine.facts import host_facts
    from meshmark.model.machine import find_machine, machine_names
    from meshmark.model.patterns import PATTERNS
    from meshmark.watch.live import sample_this_host
    from meshmark.web.guard import chosen_token
    from meshmark.web.listener import run
    from meshmark.web.parts import ModelRow, SiteParts
    from meshmark.web.site import make_site

    access_token = chosen_token(token, token_file, no_token)
    _check_folder("--recordings", recordings)
    if loads is not None:
        _check_folder("--loads", loads)
    runs = Runs(store or default_store(), data_home() / "runs")
    facts: Any = host_facts()
    topology, kernel, memory = facts["topology"], facts["kernel"], facts["memory"]
    about = [str(topology["summary"])] if "summary" in topology else []
    total = memory.get("total_bytes")
    about += [f"{total / 2**30:.3g} GiB"] if isinstance(total, int) else []
    about += [f"Linux {kernel['release']}"] if isinstance(kernel.get("release"), str) else []
    name = facts["machine"].get("name")
    parts = SiteParts(
        machine=(name if isinstance(name, str) else "This machine", " · ".join(about)),
        start=lambda: sample_this_host(rate, store=store),
        recordings=recordings,
        models=[ModelRow(n, find_machine(n).title) for n in machine_names()],
        workloads=[p for p in PATTERNS if p not in NEED_MORE],
        simulate=lambda machine, workload: simulated(machine, workload, None, FRAMES, WINDOW_S),
        runs=runs.rows,
        report=runs.report,
        compared=runs.compared,
        loads=LoadFolders((data_home() / "load", data_home() / "studies") if loads is None else (loads,)),
    )
    run(lambda: make_site(parts, access_token), host, port, access_token, served_at)


def _check_folder(option: str, path: Path) -> None:
    try:
        is_folder, reason = path.is_dir(), ""
    except OSError as error:  # not accessible, or the name is too long
        is_folder, reason = False, f": {error.strerror}"
    if not is_folder:
        raise UsageError(f"{option}: found no folder {quoted(path)}{reason}")


class Runs:
    """The runs of a store and of survey folders, which have more facts about the host."""

    def __init__(self, store: Path, folders: Path) -> None:
        self.store, self.folders = store, folders

    def _folder(self, name: str) -> Path | None:
        """Return the folder of a survey with this name; None if it is missing or a link that leads elsewhere."""
        from meshmark.measure.survey import is_survey

        folder = self.folders / name
        is_inside = re.fullmatch(r"[^/\0]+", name) and folder.resolve().parent == self.folders.resolve()
        return folder if is_inside and is_survey(folder) else None

    def rows(self) -> list[RunRow]:
        """Return the runs to list, newest first.

        Raises:
            MeshmarkError: The store cannot be read.
        """
        import duckdb

        from meshmark.store.store import Store
        from meshmark.web.parts import RunRow

        try:
            store = Store(self.store)
            store_rows = store.runs() if self.store.is_dir() else []
        except duckdb.Error as error:
            raise MeshmarkError(f"{self.store}: {str(error).splitlines()[0][:120]}", "meshmark store verify") from error
        stamp = _newest_mtime_ns(store.files()) if store_rows else 0
        rows = [
            RunRow(
                _kind(str(r["run"])),
                str(r["run"]),
                str(r["machine"]),
                str(r["start"] or ""),
                int(r["records"]),
                r["instruments"],
                stamp,
            )
            for r in store_rows
        ]
        return sorted(rows, key=lambda r: (r.started, r.name), reverse=True)

    def report(self, name: str) -> bytes:
        """Return the report of a run, which uses only the records if the run has no folder."""
        from meshmark.measure.survey import load_run
        from meshmark.store.store import Store
        from meshmark.views.content.strengths import earlier_runs
        from meshmark.views.pages.build import report_page

        folder = self._folder(name)
        contents = load_run(folder) if folder is not None else self.stored(name)
        earlier = earlier_runs(contents[0], contents[2], Store(self.store))
        return report_page(*contents, earlier).encode(errors="replace")  # imported text may contain lone surrogates

    def compared(self, a: str, b: str) -> bytes:
        """Return the page that compares two runs.

        Raises:
            NotFoundError: The runs have nothing in common.
        """
        from meshmark.compare.join import compare
        from meshmark.compare.sides import Sides
        from meshmark.store.store import Store
        from meshmark.views.pages.comparison import comparison_page
        from meshmark.web.server import NotFoundError

        sides = Sides(Store(self.store), self.folders, "")
        try:
            page = comparison_page([compare(*(sides.run(name) for name in (a, b)))])
        except UsageError as error:
            raise NotFoundError(str(error), error.hint) from error
        return page.encode(errors="replace")

    def stored(self, name: str) -> tuple[list[Record], list[Absence], RunInfo]:
        """Return records, absences and metadata of a run of the store.

        Raises:
            MeshmarkError: The run has no records.
        """
        from meshmark.store.run import RunInfo
        from meshmark.store.store import Store
        from meshmark.views.pages.build import command_of

        store = Store(self.store)
        records, absences = store.query(run=name), store.absences(run=name)
        if not records:
            raise MeshmarkError(f"report: run '{name}' has no records")
        starts = [str(start) for r in records if (start := r.provenance.get("start"))]
        commands = "; ".join(sorted({command_of(r) for r in records} - {""}))
        # Records do not contain the duration and version of the run.
        info = RunInfo(
            run_id=name,
            machine=", ".join(dict.fromkeys(r.machine for r in records)),
            started=min(starts, default=""),
            elapsed_s=0.0,
            spec_name="",
            version="",
            command=commands if len(commands) <= 500 else f"{commands[:500]} …",
        )
        return records, absences, info


def _newest_mtime_ns(paths: Iterable[Path]) -> int:
    times_ns = []
    for path in paths:
        with contextlib.suppress(OSError):  # removed in the meantime
            times_ns.append(path.stat().st_mtime_ns)
    return max(times_ns, default=0)


def _kind(run: str) -> str:
    """Return the kind of command that made a run, which its name contains."""
    if re.search(r"-\d{8}T\d{6}Z-[0-9a-f]+$", run):
        return "survey"
    first = run.partition("-")[0]
    return first if first in KINDS else "import"


class LoadFolders:
    """Runs of scenarios and studies, named after their folders.

    Links are not followed. If two folders have a run of the same name and kind, the first run is listed.

    Args:
        roots: Folders to search; a missing folder counts as empty.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._rows: dict[tuple[Path, object], LoadRow] = {}

    def rows(self) -> tuple[list[LoadRow], int]:
        """Return the rows to list, newest first, and the number of rows that are not listed."""
        path_by_key: dict[tuple[str, str], tuple[Path, tuple[int, int]]] = {}
        for root in self.roots:
            for kind, path, stamp in self._in(root):
                path_by_key.setdefault((kind, path.name), (path, stamp))
        newest = sorted(path_by_key.items(), key=lambda f: (-f[1][1][0], f[0]))
        rows: dict[tuple[Path, object], LoadRow] = {}
        for (kind, _), (path, stamp) in newest[:MAX_LOADS]:
            rows[path, stamp] = self._rows.get((path, stamp)) or _load_row(kind, path, stamp)
        self._rows = rows  # forgets removed runs
        visible_rows = sorted(rows.values(), key=lambda r: r.started, reverse=True)
        return visible_rows, max(0, len(newest) - MAX_LOADS)

    @staticmethod
    def _in(root: Path) -> list[tuple[str, Path, tuple[int, int]]]:
        """Return kind, folder, and modification time and size of the journals of each run and study in a folder."""
        from meshmark.load.scenario import journal
        from meshmark.load.studies import outcome

        folders: list[tuple[str, Path, tuple[int, int]]] = []
        try:
            if not root.is_dir():
                return folders
            entries = sorted(os.scandir(root), key=lambda e: e.name)
        except OSError as error:
            raise MeshmarkError(f"{root}: {error.strerror or error}") from error
        for entry in entries:
            path = root / entry.name
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            for kind, files in (
                ("run", (journal.JOURNAL,)),
                ("study", (outcome.PLAN, outcome.JOURNAL, outcome.RECORDS)),
            ):
                with contextlib.suppress(OSError):  # removed in the meantime, or not accessible
                    if not (path / files[0]).is_file() or any((path / name).is_symlink() for name in files):
                        continue
                    stats = [f.stat() for name in files if (f := path / name).is_file()]
                    if stats:
                        folders.append((kind, path, (max(s.st_mtime_ns for s in stats), sum(s.st_size for s in stats))))
        return folders

    def _path(self, row: LoadRow) -> Path:
        """Return the folder of a listed row.

        Raises:
            NotFoundError: The folder was removed.
        """
        from meshmark.web.server import NotFoundError

        for (path, _), candidate in list(self._rows.items()):
            if (candidate.kind, candidate.name) == (row.kind, row.name):
                return path
        raise NotFoundError(f"{row.kind}: found no '{row.name}'", "load/ lists all runs")

    def page(self, row: LoadRow) -> bytes:
        """Return the page of a run or study, which is built from its folder."""
        path = self._path(row)
        if row.kind == "study":
            from meshmark.views.pages.studies import study_page

            return study_page(path).encode()
        from meshmark.load.scenario.journal import read_run
        from meshmark.load.scenario.recorded import recorded_use, recording_in
        from meshmark.views.gantt import gantt_html

        run = read_run(path)
        return gantt_html(run, recorded_use(run, recording_in(path))[0]).encode()

    def compared(self, a: LoadRow, b: LoadRow) -> bytes:
        """Return the page that compares two runs.

        Raises:
            NotFoundError: The runs have no program in common.
        """
        from meshmark.load.compare import compare, read_side
        from meshmark.views.pages.load_compare import compare_html
        from meshmark.web.server import NotFoundError

        try:
            return compare_html(compare(*(read_side(self._path(r), r.name) for r in (a, b)))).encode()
        except UsageError as error:
            raise NotFoundError(str(error), error.hint) from error


def _load_row(kind: str, path: Path, stamp: object) -> LoadRow:
    """Return the row of a run or study; if it cannot be read, the row contains the reason."""
    from meshmark.web.parts import LoadRow
    from meshmark.web.recordings import addressable

    if not addressable(path.name):
        reason = "the name is not valid UTF-8, so it has no address"
        return LoadRow(kind, path.name, shown=False, stamp=stamp, broken=reason)
    try:
        return _study_row(path, stamp) if kind == "study" else _run_row(path, stamp)
    except Exception as error:  # files of other users may fail in any way
        reason = " ".join(str(error).split()).replace(f"{path}: ", "")
        return LoadRow(kind, path.name, shown=False, stamp=stamp, broken=f"cannot be read: {reason[:200]}")


def _run_row(path: Path, stamp: object) -> LoadRow:
    from meshmark.load.scenario.journal import read_run
    from meshmark.web.parts import LoadRow

    run = read_run(path, samples=False)
    copies: dict[str, int] = {}
    for p in run.programs:
        copies[p.program] = copies.get(p.program, 0) + 1
    names = [n if c == 1 else f"{n} × {c}" for n, c in copies.items()]
    succeeded = sum(p.how == "ok" for p in run.programs)
    state = f"{succeeded} of {len(run.programs)} succeeded"
    state = "running, or interrupted" if run.cut else state if run.status == "ok" else f"{state}, {run.status}"
    flags = sorted(frozenset().union(*(run.flags(p) for p in run.programs))) if not run.cut else []
    return LoadRow(
        "run",
        path.name,
        str(run.header.get("start", "")),
        _listed(names),
        state,
        0.0 if run.cut else run.bench_s,
        1,
        flags,
        bool(run.programs),
        stamp,
        "" if run.programs else "no program was started yet, or the journal is incomplete",
    )


def _study_row(path: Path, stamp: object) -> LoadRow:
    from meshmark.load.studies.outcome import PLAN, RECORDS, read_outcomes
    from meshmark.web.parts import LoadRow

    plan = read_json(path / PLAN)
    outcomes = read_outcomes(path)
    bad = sum(bool(o.reason) for o in outcomes)
    finished = (path / RECORDS).is_file()
    state = ("finished" if finished else "running, or interrupted") + (f", {bad} invalid runs" if bad else "")
    flags = sorted(frozenset().union(*(o.flags for o in outcomes))) if outcomes else []
    return LoadRow(
        "study",
        path.name,
        min((o.start for o in outcomes), default=""),
        str(plan["study"]).replace("_", " "),
        state,
        0.0,
        len(outcomes),
        flags,
        finished,
        stamp,
    )


def _listed(names: Sequence[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
