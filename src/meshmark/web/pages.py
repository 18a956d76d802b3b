"""The HTML of the site: the front page, and the list of loads and studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final
from urllib.parse import quote

from meshmark.errors import MeshmarkError
from meshmark.values.units import duration
from meshmark.web.parts import LoadRow, Parts
from meshmark.web.recordings import Recordings, addressable
from meshmark.web.server import reported


def shown(text: str) -> str:
    """Text as HTML; bytes of a name that are no UTF-8, and signs that nobody could see, are shown as escapes."""
    return escape("".join(c if c.isprintable() else _escaped(c) for c in text))


def _escaped(sign: str) -> str:
    byte = ord(sign) - 0xDC00  # so Python keeps a byte of a name that is no text
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else sign.encode("unicode_escape").decode()


def _page(title: str, up: str, header: str, main: str) -> str:
    """A page of the site; `up` leads to its root, all but the title is HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{shown(title)} – Meshmark</title>
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


def front_page(parts: Parts, state: str, recordings: Recordings) -> str:
    machine, about = (shown(t) for t in parts.machine)
    main = f"""<section aria-labelledby="live">
<h2 id="live">This machine, live</h2>
<p class="caption">{shown(state)}</p>
<p><a class="button" href="live/">Open the live map</a></p>
</section>
<section aria-labelledby="recordings">
<h2 id="recordings">Recordings</h2>
{_listed(lambda: _recordings(recordings))}
</section>
<section aria-labelledby="runs">
<h2 id="runs">Runs and their reports</h2>
{_listed(lambda: _runs(parts))}
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


def _listed(make: Callable[[], str]) -> str:
    """A section; one that cannot be made says why, and leaves the others alone."""
    try:
        with reported("an error"):
            return make()
    except MeshmarkError as why:
        return f'<p class="absent">cannot be listed: {shown(str(why))}</p>'


def _link(href: str, name: str) -> str:
    """The way to what has that name, if it can have an address."""
    return f'<a href="{href.format(quote(name, safe=""))}">{shown(name)}</a>' if addressable(name) else shown(name)


def _recordings(recordings: Recordings) -> str:
    folder = shown(str(recordings.folder))
    rows, more = recordings.rows()
    if not rows:
        make = "meshmark record --duration 60s --out " + str(recordings.folder / "first.parquet")
        return f'<p class="absent">none in {folder}</p><p>Make one: <code>{shown(make)}</code></p>'
    head = ("recording", "machine", "started, UTC", "length", "frames")
    body = []
    for r in rows:
        growing = ' <span class="tag">growing, or cut</span>' if r.name.endswith(".part") else ""
        if r.broken:
            body.append(
                f'<tr role="row" class="broken"><th role="rowheader">{shown(r.name)}</th>'
                f'<td role="cell" colspan="4">{shown(r.broken)}</td></tr>'
            )
            continue
        link = _link("recording/{}/", r.name)
        when = _when(r.started, r.changed)
        body.append(_row(head, link + growing, shown(r.machine), when, duration(r.length_s), f"{r.frames:,}"))
    rest = f'<p class="caption">and {more} older ones, which are not listed</p>' if more else ""
    return f'<p class="caption">in {folder}</p>{_table(head, body)}{rest}'


def _runs(parts: Parts) -> str:
    rows = parts.runs()
    if not rows:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark survey --quick</code></p>'
    head = ("run", "machine", "started, UTC", "instruments", "records")
    body = []
    for r in rows:
        link = _link("report/{}", r.name)
        instruments = shown(", ".join(r.instruments))
        body.append(_row(head, link, shown(r.machine), _when(r.started), instruments, f"{r.records:,}"))
    note = '<p class="caption">A report takes some seconds to make when it is first opened.</p>'
    return note + _table(head, body)


def _loads_section(parts: Parts) -> str:
    """The way to the page of loads, where there is one."""
    if parts.loads is None:
        return ""
    of = parts.loads
    said = _listed(lambda: _loads(*of.rows()))
    return f'<section aria-labelledby="loads">\n<h2 id="loads">Loads</h2>\n{said}\n</section>\n'


def _loads(rows: Sequence[LoadRow], more: int) -> str:
    runs = sum(r.kind == "run" for r in rows)
    of = f"{_many(runs, 'run')} of scenarios, {_many(len(rows) - runs, 'study', 'studies')}"
    of += f", and {more} older ones" if more else ""
    return f'<p class="caption">{of}</p><p><a class="button" href="load/">Open loads and studies</a></p>'


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def loads_page(parts: Parts, rows: Sequence[LoadRow], more: int) -> str:
    """All runs and studies, and the choice of two runs to compare."""
    runs, studies = ([r for r in rows if r.kind == kind] for kind in ("run", "study"))
    rest = f'<p class="caption">and {more} older ones, which are not listed</p>' if more else ""
    main = (
        f'<section aria-labelledby="runs"><h2 id="runs">Runs</h2>{_load_runs(runs)}{rest}</section>'
        f'<section aria-labelledby="compare"><h2 id="compare">Compare two runs</h2>{_load_pair(runs)}</section>'
        f'<section aria-labelledby="studies"><h2 id="studies">Studies</h2>{_load_studies(studies)}</section>'
    )
    header = f'<h1>Loads and studies</h1>\n<p><a href="../">Back to {shown(parts.machine[0])}</a></p>'
    return _page("Loads", "../", header, main)


def _tags(words: Sequence[str]) -> str:
    return " ".join(f'<span class="tag">{shown(w)}</span>' for w in words) or "none"


def _load_link(r: LoadRow) -> str:
    return _link(r.kind + "/{}", r.name) if r.shown else shown(r.name)


def _broken(r: LoadRow, columns: int) -> str:
    return (
        f'<tr role="row" class="broken"><th role="rowheader">{shown(r.name)}</th>'
        f'<td role="cell" colspan="{columns - 1}">{shown(r.broken)}</td></tr>'
    )


def _load_runs(runs: Sequence[LoadRow]) -> str:
    if not runs:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark load run SCENARIO</code></p>'
    head = ("run", "programs", "started, UTC", "length", "came to", "flags")
    body = [
        _broken(r, len(head))
        if r.broken
        else _row(
            head,
            _load_link(r),
            shown(r.what),
            _when(r.started),
            duration(r.length_s) if r.length_s else "–",
            shown(r.state),
            _tags(r.flags),
        )
        for r in runs
    ]
    return _table(head, body)


def _load_studies(studies: Sequence[LoadRow]) -> str:
    if not studies:
        return '<p class="absent">none yet</p><p>Make one: <code>meshmark load study shared-bus</code></p>'
    head = ("study", "asks", "started, UTC", "runs", "came to", "flags")
    body = [
        _broken(r, len(head))
        if r.broken
        else _row(head, _load_link(r), shown(r.what), _when(r.started), f"{r.runs:,}", shown(r.state), _tags(r.flags))
        for r in studies
    ]
    return _table(head, body)


def _load_pair(runs: Sequence[LoadRow]) -> str:
    """Two lists and a button, without a script; the two newest are chosen, the older one first."""
    can = [r for r in runs if r.shown and not r.broken]
    if len(can) < 2:
        return '<p class="absent">needs two runs</p>'

    def choice(letter: str, at: int) -> str:
        options = "".join(
            f'<option value="{escape(r.name)}"{" selected" if i == at else ""}>{shown(r.name)}, {_when(r.started)}'
            "</option>"
            for i, r in enumerate(can)
        )
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
        f'<li><form action="model"><h3>{shown(m.name)}</h3><p>{shown(m.title)}</p>'
        f'<input type="hidden" name="name" value="{escape(m.name)}">'
        f'<div class="row"><select name="workload" aria-label="workload of {shown(m.name)}">{options}</select>'
        f'<button aria-label="simulate {shown(m.name)}">Simulate</button></div></form></li>'
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
    return shown(text) or "–"
