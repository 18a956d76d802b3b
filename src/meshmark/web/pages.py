"""Prepares the site's front page and its list of loads and studies; `views/templates/site` contains the templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import quote

from meshmark.errors import MeshmarkError
from meshmark.values.units import counted, duration
from meshmark.views.render import render
from meshmark.web.parts import LoadRow, RunRow, SiteParts
from meshmark.web.recordings import Recordings, addressable
from meshmark.web.server import reported

T = TypeVar("T")
MAX_RUNS: Final = 200  # number of runs listed, the newest first
NUMBERS: Final = frozenset({"length", "frames", "records", "runs"})  # columns with numbers


def shown(text: str) -> str:
    """Return a text with invalid UTF-8 and unprintable characters as escapes."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    byte = ord(character) - 0xDC00  # surrogateescape
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class ListRow:
    """A row of a list.

    Attributes:
        href: link of the name; "": no link.
        cells: cells after the name; flags are a list.
        broken: error that replaces the cells.
    """

    name: str
    href: str = ""
    cells: Sequence[str | Sequence[str]] = ()
    broken: str = ""
    growing: bool = False


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of a page: its label, its head, and its rows."""

    label: str
    head: Sequence[str]
    rows: Sequence[ListRow]
    numbers: frozenset[str] = NUMBERS


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table with the texts around it.

    Attributes:
        why: error that replaces the table.
        none: text of an empty table.
        make: command that creates a first entry; "": no command.
        above: text above the table.
        more: number of entries that are not listed.
    """

    table: PageTable = field(default_factory=lambda: PageTable("", (), ()))
    why: str = ""
    none: str = "none"
    make: str = ""
    above: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Selects the runs that the front page lists.

    Attributes:
        kind: only runs of this kind; "": all.
        text: only runs whose name, machine or instruments contain each of the words in it.
    """

    kind: str = ""
    text: str = ""

    def shows(self, run: RunRow) -> bool:
        """Return whether a run has the chosen kind and contains all words of the text, in any case."""
        words = " ".join((run.name, run.machine, *run.instruments)).casefold()
        return self.kind in {"", run.kind} and all(w in words for w in self.text.casefold().split())


def front_page(parts: SiteParts, state: str, recordings: Recordings, chosen: RunFilter) -> str:
    """Return the front page as HTML; a part that cannot be read shows the reason instead."""
    runs, error_text = _made(parts.runs)
    page = render(
        "site/front.html",
        title=shown(parts.machine[0]),
        up="",
        about=shown(parts.machine[1]),
        state=shown(state),
        recordings=_listed(lambda: _recordings(recordings)),
        runs=TableBlock(why=error_text) if runs is None else _runs(runs, chosen),
        kinds=sorted({r.kind for r in runs or ()}),
        chosen=chosen,
        choices=_choices([r for r in runs or () if chosen.shows(r)]),
        loads=_loads(parts),
        models=[
            {"name": shown(m.name), "title": shown(m.title), "value": m.name}
            for m in sorted(parts.models, key=lambda m: _natural(m.name))
        ],
        workloads=parts.workloads,
    )
    return str(page)


def _made(make: Callable[[], T]) -> tuple[T | None, str]:
    """Return the result of `make`, or its error, so that an error in one section does not affect the others."""
    try:
        with reported("an error"):
            return make(), ""
    except MeshmarkError as error:
        return None, shown(str(error))


def _listed(make: Callable[[], TableBlock]) -> TableBlock:
    listing, error_text = _made(make)
    return listing or TableBlock(why=error_text)


def _href(path: str, name: str) -> str:
    """Return the address of an entry; "" if its name cannot be part of a path."""
    return path + quote(name, safe="") if addressable(name) else ""


def _recordings(recordings: Recordings) -> TableBlock:
    folder = shown(str(recordings.folder))
    rows, more = recordings.rows()
    head = ("recording", "machine", "started, UTC", "length", "frames")
    body = [
        ListRow(shown(r.name), broken=shown(r.broken))
        if r.broken
        else ListRow(
            shown(r.name),
            f"{href}/" if (href := _href("recording/", r.name)) else "",
            (shown(r.machine), _when(r.started, r.changed), duration(r.length_s), f"{r.frames:,}"),
            growing=r.name.endswith(".part"),
        )
        for r in rows
    ]
    make = "meshmark record --duration 60s --out " + str(recordings.folder / "first.parquet")
    table = PageTable("recordings", head, body)
    return TableBlock(table, none=f"none in {folder}", make=shown(make), above=f"in {folder}", more=more)


def _runs(runs: Sequence[RunRow], chosen: RunFilter) -> TableBlock:
    head = ("run", "kind", "machine", "started, UTC", "instruments", "records")
    matches = [r for r in runs if chosen.shows(r)]
    body = [
        ListRow(
            shown(r.name),
            _href("report/", r.name),
            (shown(r.kind), shown(r.machine), _when(r.started), shown(", ".join(r.instruments)), f"{r.records:,}"),
        )
        for r in matches[:MAX_RUNS]
    ]
    note = "A report is generated when it is first opened, which takes a few seconds."
    none = "no run matches" if runs else "none"
    make = "" if runs else "meshmark survey --quick"
    return TableBlock(PageTable("runs", head, body), none=none, make=make, above=note, more=len(matches) - len(body))


def _loads(parts: SiteParts) -> Mapping[str, str] | None:
    """Return the numbers of runs and studies as text; None if the site does not show loads."""
    if parts.loads is None:
        return None
    loads = parts.loads

    def counts() -> str:
        rows, more = loads.rows()
        runs = sum(r.kind == "run" for r in rows)
        text = f"{counted(runs, 'scenario run')}, {counted(len(rows) - runs, 'study', 'studies')}"
        return text + (f", and {more} older" if more else "")

    text, error_text = _made(counts)
    return {"counts": text or "", "why": error_text}


def loads_page(parts: SiteParts, rows: Sequence[LoadRow], more: int) -> str:
    """Return the page with all runs and studies, and a form to compare two runs."""
    runs, studies = ([r for r in rows if r.kind == kind] for kind in ("run", "study"))
    run_head = ("run", "programs", "started, UTC", "length", "status", "flags")
    run_rows = [_load_row(r, duration(r.length_s) if r.length_s else "–") for r in runs]
    study_head = ("study", "question", "started, UTC", "runs", "status", "flags")
    study_rows = [_load_row(r, f"{r.runs:,}") for r in studies]
    page = render(
        "site/loads.html",
        title="Loads",
        up="../",
        machine=shown(parts.machine[0]),
        runs=TableBlock(PageTable("runs", run_head, run_rows), make="meshmark load run SCENARIO", more=more),
        choices=_choices([r for r in runs if r.shown and not r.broken]),
        studies=TableBlock(PageTable("studies", study_head, study_rows), make="meshmark load study shared-bus"),
    )
    return str(page)


def _choices(rows: Sequence[RunRow] | Sequence[LoadRow]) -> list[dict[str, str]]:
    """Return the choices of a comparison form, newest first; `side` marks the newest two of one machine and kind."""
    newest: list[RunRow | LoadRow] = [*rows[:MAX_RUNS]]
    kinds = [(r.kind, getattr(r, "machine", "")) for r in newest]
    newer, older = next(((i, kinds.index(k, i + 1)) for i, k in enumerate(kinds) if k in kinds[i + 1 :]), (0, 1))
    sides = {older: "a", newer: "b"}
    return [
        {"name": shown(r.name), "value": r.name, "when": _when(r.started), "side": sides.get(i, "")}
        for i, r in enumerate(newest)
    ]


def _load_row(r: LoadRow, extent: str) -> ListRow:
    """Return the row of a run or study; `extent` is its length or number of runs."""
    if r.broken:
        return ListRow(shown(r.name), broken=shown(r.broken))
    flags = [shown(f) for f in r.flags]
    cells = (shown(r.what), _when(r.started), extent, shown(r.state), flags)
    return ListRow(shown(r.name), _href(r.kind + "/", r.name) if r.shown else "", cells)


def _natural(name: str) -> list[str | int]:
    """Return a sort key that orders numbers by value: gs1280-8 before gs1280-16."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]+)", name))]


def _when(started: str, changed: float = 0.0) -> str:
    """Return a readable time; for a recording without a start time, the modification time of its file."""
    text = started[:16].replace("T", " ")
    if not text and changed:
        text = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%d %H:%M")
    return shown(text) or "–"
