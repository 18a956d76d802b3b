"""Writes the report: one self-contained page, the machine card, and every chart as PNG and SVG."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from meshmark.report.card import INSTRUMENT_OF, balance, figures, machine_card, why_absent
from meshmark.report.drawing import Drawn, for_file, said
from meshmark.report.html import absent_table, badges, fill_template, flag_legend, grid
from meshmark.report.sections import SECTIONS, Section
from meshmark.report.selection import cleaned, left_out_said, noting, number_in, selected, text_of, value_of
from meshmark.report.topology_svg import topology_svg
from meshmark.store.files import write_file, write_text
from meshmark.store.record import OBSERVED, Record
from meshmark.store.run import Absence, RunInfo
from meshmark.values.units import NBSP, number, percent, scale_for, seconds, show, size

MOST_ROWS = 2000  # of one table: a page must open at once also for a machine of hundreds of CPUs


@dataclass(frozen=True, slots=True)
class ReportPaths:
    html: Path
    card: Path
    charts: tuple[Path, ...]


def write_report(records: Sequence[Record], absences: Sequence[Absence], run: RunInfo, out: Path) -> ReportPaths:
    """Writes `report.html`, `card.json` and `charts/` in `out`, each file whole or not at all.

    Raises:
        MeshmarkError: the folder cannot be written.
    """
    import vl_convert

    records = cleaned(records)
    drawn, notes = _draw(records, run)
    paths = []
    for name, chart in drawn.items():
        spec = for_file(chart)
        png, svg = out / "charts" / f"{name}.png", out / "charts" / f"{name}.svg"
        write_file(png, vl_convert.vegalite_to_png(spec, scale=2))
        write_text(svg, vl_convert.vegalite_to_svg(spec))
        paths += [png, svg]
    card_path, html_path = out / "card.json", out / "report.html"
    card = machine_card(records, absences, run)
    write_file(card_path, json.dumps(card, indent=1, default=str).encode() + b"\n")
    write_text(html_path, _page(records, absences, run, drawn, notes))
    return ReportPaths(html_path, card_path, tuple(paths))


def report_page(records: Sequence[Record], absences: Sequence[Absence], run: RunInfo) -> str:
    """The page alone. Whatever the records are there is one: what they cannot be drawn by is said in it."""
    records = cleaned(records)
    return _page(records, absences, run, *_draw(records, run))


def _draw(records: Sequence[Record], run: RunInfo) -> tuple[dict[str, Drawn], dict[str, str]]:
    """The charts by their section's name, and what each of them left out."""
    drawn: dict[str, Drawn] = {}
    notes: dict[str, str] = {}
    topology = _facts(run, "topology")
    for section in SECTIONS:
        with noting() as left_out:
            chart = section.draw(records, *([topology] if section.mapped else []))
        if chart is not None:
            drawn[section.name] = chart
        notes[section.name] = left_out_said(left_out)
    return drawn, notes


def _page(
    records: Sequence[Record],
    absences: Sequence[Absence],
    run: RunInfo,
    drawn: Mapping[str, Drawn],
    notes: Mapping[str, str],
) -> str:
    # Whatever was asked of a run yields a result or says why not.
    asked = {*(r.instrument for r in records), *(a.instrument for a in absences)}
    shown = [s for s in SECTIONS if s.told(asked, s.name in drawn)]
    parts = {
        "title": escape(run.machine),
        "subtitle": _subtitle(run),
        "verdict": _verdict(records, absences),
        "nav": "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in shown),
        "figures": _figures(records, absences, asked, run),
        "topology": _topology(records, run),
        "machine": _machine_table(records, run),
        "sections": "".join(_section(s, s.name in drawn, notes[s.name], records, absences, run) for s in shown)
        + _others(records, run.run_id),
        "clock": _clock(records),
        "absent": absent_table(absences, asked_all=bool(run.steps)) + _not_asked(asked, bool(run.steps)),
        "flags": flag_legend(records),
        "provenance": _provenance(records, run),
    }
    return fill_template("page.html", parts, drawn)


def _facts(run: RunInfo, *keys: str) -> dict[str, Any]:
    found: Any = run.host
    for key in keys:
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return dict(found) if isinstance(found, Mapping) and set(found) != {"absent"} else {}


def _topology(records: Sequence[Record], run: RunInfo) -> str:
    if not run.host:
        models = records and all(r.source == "model" for r in records)
        what = "A simulated machine." if models else "Only results are stored of this run, and nothing of its host."
        return f'<p class="absent">{what}</p>'
    return topology_svg(_facts(run, "topology")) or '<p class="absent">The topology could not be read.</p>'


def _subtitle(run: RunInfo) -> str:
    words = []
    cpu = _facts(run, "cpu").get("model")
    if isinstance(cpu, str):
        words.append(escape(cpu))
    summary = _facts(run, "topology").get("summary")
    if isinstance(summary, str):
        words.append(escape(summary))
    total = _facts(run, "memory").get("total_bytes")
    if isinstance(total, int | float):
        words.append(size(float(total)))
    virtual = _facts(run, "virtual")
    if virtual.get("guest") is True:
        words.append(f"a guest under {escape(str(virtual.get('hypervisor')))}")
    return " · ".join(words)


def _verdict(records: Sequence[Record], absences: Sequence[Absence]) -> str:
    flagged = sum(1 for r in records if r.flags)
    errors = sum(1 for a in absences if a.kind == "error")
    kinds = sorted({f for r in records for f in r.flags})
    of = len({r.instrument for r in records})
    parts = [f"{len(records)} result{'s' * (len(records) != 1)} from {of} instrument{'s' * (of != 1)}."]
    parts.append(f"{flagged} carry a flag ({', '.join(kinds)})." if flagged else "None carries a flag.")
    if errors:
        parts.append(f"{errors} step{'s' if errors != 1 else ''} failed; see what is absent.")
    return escape(" ".join(parts))


def _cpus(run: RunInfo) -> int:
    """How many CPUs the host has; 0 where that is not known."""
    cpus = _facts(run, "topology").get("cpus")
    return len(cpus) if isinstance(cpus, list) else 0


def _figures(records: Sequence[Record], absences: Sequence[Absence], asked: Collection[str], run: RunInfo) -> str:
    found = figures(records, _cpus(run))
    tiles = []
    for key, (title, record) in found.items():
        # Of the clock the table says it for all cores.
        if key == "core_frequency" or INSTRUMENT_OF[key] not in asked:
            continue
        if record is None:
            reason = escape(why_absent(records, absences, INSTRUMENT_OF[key]))
            tiles.append(f'<div class="tile none"><h3>{escape(title)}</h3><p class="absent">absent: {reason}</p></div>')
            continue
        scale = scale_for(record.unit, record.value)
        low, high = record.interval or (0.0, 0.0)
        interval = f"{number(low / scale.factor)} – {number(high / scale.factor)}" if record.interval else "none"
        best = "–" if record.best is None else number(record.best / scale.factor)
        tiles.append(
            f'<div class="tile" title="{escape(command_of(record), quote=True)}">'
            f'<h3>{escape(title)}</h3><p class="big">{show(record.value, record.unit)}</p>'
            f'<p class="small">{escape(told(record))}</p>'
            f'<p class="small">95 % interval {interval}</p>'
            f'<p class="small">best {best} · spread {percent(record.spread)} · '
            f"n{NBSP}{len(record.samples)}</p>{_strip(record)}{badges(record.flags)}</div>"
        )
    if (pair := balance(found)) is not None:
        peak, triad = pair
        threads = found["triad_all"][0].partition(", ")[2]
        tiles.append(
            f'<div class="tile"><h3>Balance</h3><p class="big">{peak.value / triad.value:.2f} flop/byte</p>'
            f'<p class="small">fp64 peak over triad, {escape(threads)}</p>{badges(peak.flags | triad.flags)}</div>'
        )
    return "".join(tiles)


_TOLD = {
    "bandwidth": ("store", "isa", "pages", "footprint_bytes"),
    "lines": ("from_cpu", "to_cpu"),
    "loaded": ("best_chains",),
    "latency": ("pages", "from_bytes", "memory_node"),
    "peak": ("isa", "threads"),
    "dgemm": ("n", "threads", "library_kernel"),
    "linpack": ("n", "threads"),
    "gups": ("kernel", "pages", "table_bytes", "threads"),
    "clock": ("cpu",),
    "io": ("block_bytes", "queue_depth", "jobs"),
}


def told(record: Record) -> str:
    """The conditions that a reader of one figure must know, in a line."""
    c = record.conditions
    return " · ".join(said(k, c[k]) for k in _TOLD.get(record.instrument, ()) if c.get(k) is not None)


def _strip(record: Record) -> str:
    """Every sample as a tick on a line from the least to the greatest."""
    low, high = sorted(record.ends)
    if len(record.samples) < 2 or high == low:
        return ""

    def x(value: float) -> str:
        return f"{2 + 196 * (value - low) / (high - low):.1f}"

    ticks = "".join(f'<line x1="{x(s)}" x2="{x(s)}" y1="3" y2="13"/>' for s in record.samples)
    at = x(record.value)
    text = f"{len(record.samples)} samples from {show(low, record.unit)} to {show(high, record.unit)}"
    return (
        f'<svg class="strip" viewBox="0 0 200 16" role="img" aria-label="{text}"><title>{text}</title>{ticks}'
        f'<line class="median" x1="{at}" x2="{at}" y1="0" y2="16"/></svg>'
    )


def _row(name: str, value: str, note: str = "") -> str:
    note_cell = f'<span class="note">{note}</span>' if note else ""
    return f"<tr><th>{escape(name)}</th><td>{value}{note_cell}</td></tr>"


def _fact(value: Any, unit: str = "") -> str:
    """A fact for people; a missing one with its reason."""
    if isinstance(value, Mapping) and set(value) == {"absent"}:
        return f'<span class="absent">absent: {escape(str(value["absent"]))}</span>'
    if value is None:
        return '<span class="absent">absent</span>'
    if unit and isinstance(value, int | float):
        return show(float(value), unit)
    if isinstance(value, list):
        return escape(", ".join(map(str, value))) or "none"
    return escape(str(value))


def _machine_table(records: Sequence[Record], run: RunInfo) -> str:
    if not run.host:
        rows = _clock_row(records, "") + _levels(records, {})
        return f'<table class="card">{"".join(rows)}</table>' if rows else ""
    rows = []
    host = run.host
    cpu, memory = _facts(run, "cpu"), _facts(run, "memory")
    rows.append(_row("Processor", _fact(cpu.get("model"))))
    rows.append(
        _row(
            "Vector instructions",
            _fact([i for i in cpu.get("isa", []) if i.startswith(("sse4_2", "avx", "asimd", "sve", "fma", "amx"))]),
        )
    )
    rows += _clock_row(records, "claimed " + _fact(cpu.get("claimed_hz"), "Hz"))
    rows += _levels(records, host)
    rows.append(_row("Memory", _fact(memory.get("total_bytes"), "B"), "channels " + _fact(memory.get("channels"))))
    peak = memory.get("peak_bytes_per_s")
    triad = figures(records)["triad_all"][1]
    share = (
        f"; triad reaches {percent(triad.value / peak)}" if isinstance(peak, int | float) and peak > 0 and triad else ""
    )
    rows.append(_row("Hardware bandwidth", _fact(peak, "B/s") + share))
    virtual = _facts(run, "virtual")
    if virtual:
        rows.append(_row("Guest", f"yes, {escape(str(virtual.get('hypervisor')))}" if virtual.get("guest") else "no"))
    doubts = _facts(run, "topology").get("doubts") or []
    for doubt in doubts if isinstance(doubts, list) else []:
        rows.append(_row("Doubt", escape(str(doubt))))
    return f'<table class="card">{"".join(rows)}</table>{_settings(run)}'


def _clock_row(records: Sequence[Record], claimed: str) -> list[str]:
    clocks = [r.value for r in records if r.metric == "core_frequency"]
    if not clocks and not claimed:
        return []
    measured = " – ".join(show(f(clocks), "Hz") for f in (min, max)) if clocks else ""
    text = f"measured {measured}" if measured else '<span class="absent">not measured</span>'
    return [_row("Clock", text, claimed)]


def _settings(run: RunInfo) -> str:
    """What an administrator could change, and what of it can be read here."""
    rows = []
    pages, settings, firmware = (_facts(run, k) for k in ("pages", "settings", "firmware"))
    if pages:
        rows.append(_row("Transparent huge pages", _fact(pages.get("thp")), "defrag " + _fact(pages.get("thp_defrag"))))
        huge = pages.get("huge")
        pools = [f"{size(float(p['size_bytes']))}: {p['total']}" for p in huge] if isinstance(huge, list) else []
        rows.append(_row("Explicit huge pages", escape(", ".join(pools)) or '<span class="absent">none</span>'))
    for key, title in (
        ("governor", "Governor"),
        ("boost", "Boost"),
        ("smt", "SMT"),
        ("numa_balancing", "NUMA balancing"),
        ("clocksource", "Clock source"),
    ):
        if key in settings:
            rows.append(_row(title, _fact(settings.get(key))))
    if firmware:
        date = firmware.get("bios_date")
        rows.append(
            _row("Firmware", _fact(firmware.get("bios_version")), escape(date) if isinstance(date, str) else "")
        )
    rows.append(_row("Kernel", _fact(_facts(run, "kernel").get("release"))))
    table = f'<table class="card">{"".join(rows)}</table>'
    return f"<details><summary>Pages, governor, balancing, firmware, kernel</summary>{table}</details>"


def _levels(records: Sequence[Record], host: Mapping[str, Any]) -> list[str]:
    """What the curve shows beside what the system claims; neither is called the capacity."""
    rows = []
    caches = host.get("caches")
    if isinstance(caches, list):
        claims = []
        for c in caches:
            if isinstance(c, Mapping) and c.get("kind") != "instruction":
                shared = f" shared by {c['shared_by']}" if c.get("shared_by", 1) > 1 else ""
                claims.append(f"L{c['level']} {size(float(c['size_bytes']))}{shared}")
        rows.append(_row("Caches, claimed", escape(", ".join(claims))))
    levels = selected(records, (), "level_latency", positive=("from_bytes", "to_bytes"))
    for pages in sorted({text_of(r, "pages") for r in levels}, reverse=True):
        texts = []
        for r in levels:
            if text_of(r, "pages") != pages:
                continue
            to, since = (size(value_of(r, k)) for k in ("to_bytes", "from_bytes"))
            where = f"to {to}" if r.conditions.get("kind") == "cache" else f"memory, from {since}"
            texts.append(f"<span>{show(r.value, 's')} <small>{where}</small>{badges(r.flags)}</span>")
        rows.append(f"<tr><th>Levels, measured, pages {escape(pages)}</th><td class=levels>{''.join(texts)}</td></tr>")
    return rows


def command_of(record: Record) -> str:
    """What repeats a result; '' where the record does not say it, or not of which machine it is."""
    words = str(record.provenance.get("command") or "")
    measured = words.partition(" ")[0] == record.instrument
    if not words or record.source not in {"host", "model"}:
        return ""
    if measured and record.source == "model" and "--on" not in words.split():
        return ""
    return f"meshmark {'measure ' if measured else ''}{words}"


def _commands(records: Sequence[Record], *instruments: str) -> str:
    lines = "\n".join(sorted({command_of(r) for r in records if r.instrument in instruments} - {""}))
    return f"<details><summary>Repeat it</summary><pre>{escape(lines)}</pre></details>" if lines else ""


def _section(
    section: Section, drawn: bool, note: str, records: Sequence[Record], absences: Sequence[Absence], run: RunInfo
) -> str:
    head = f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
    topology = [_facts(run, "topology")] if section.mapped else []
    beside = section.beside(records, *topology) if section.beside else ""
    rest = _section_table(section, records, run.run_id) + _commands(records, section.instrument, *section.more)
    if not drawn:
        reason = escape(note or why_absent(records, absences, section.instrument))
        # What was measured and is not enough for a chart still has its table.
        absent = f'<p class="absent">absent: {reason}</p>'
        return f"{head}{beside or absent}{rest}</section>"
    return (
        f'{head}<p class="caption">{escape(section.caption)}</p>'
        f'<div class="chart" id="chart-{section.name}" role="img" aria-label="{escape(section.title)}"></div>'
        f"{f'<p class=small>Not in the chart: {escape(note)}.</p>' if note else ''}{beside}{rest}</section>"
    )


_HIDDEN = OBSERVED | {"page_bytes", "cpus", "fill"}


def _section_table(section: Section, records: Sequence[Record], run_id: str) -> str:
    """The numbers behind the chart, once an instrument (with its first chart)."""
    first = next(s.name for s in SECTIONS if s.instrument == section.instrument)
    mine = [r for r in records if r.instrument in {section.instrument, *section.more}]
    return _table(mine, section.instrument, run_id) if section.name == first and mine else ""


def _others(records: Sequence[Record], run_id: str) -> str:
    """Results of instruments that no section is about, as tables."""
    known = {"clock", *(i for s in SECTIONS for i in (s.instrument, *s.more))}
    others = dict.fromkeys(r.instrument for r in records if r.instrument not in known)
    return "".join(
        f"<section><h2>{escape(name)}</h2>"
        f"{_table([r for r in records if r.instrument == name], name, run_id)}{_commands(records, name)}</section>"
        for name in others
    )


def _table(mine: Sequence[Record], instrument: str, run_id: str) -> str:
    keys: list[str] = []
    for r in mine:
        keys += [
            k for k in r.conditions if k not in keys and k not in _HIDDEN and not k.startswith(("library_", "trial_"))
        ]
    keys = [k for k in keys if len({str(r.conditions.get(k)) for r in mine}) > 1]
    head = ["metric", *(k.replace("_", " ") for k in keys), "median", "95 % interval", "best", "spread", "n", "flags"]
    body = []
    for r in mine[:MOST_ROWS]:
        cells = [_cell(k, r.conditions.get(k)) for k in keys]
        values = [
            show(r.value, r.unit),
            _interval(r),
            "–" if r.best is None else show(r.best, r.unit),
            percent(r.spread),
            str(len(r.samples)),
        ]
        body.append(
            f"<tr><td>{escape(r.metric)}</td>"
            + "".join(f"<td>{c}</td>" for c in cells)
            + "".join(f'<td class="n">{v}</td>' for v in values)
            + f"<td>{badges(r.flags)}</td></tr>"
        )
    rest = (
        f"<p>The first {MOST_ROWS}; all of them: <code>meshmark store export --run {escape(run_id)} "
        f"--instrument {escape(instrument)}</code></p>"
        if len(mine) > MOST_ROWS
        else ""
    )
    return f"<details><summary>{len(mine)} results as a table</summary>{rest}{grid(head, body)}</details>"


def _interval(record: Record) -> str:
    low_high = record.interval
    return f"{show(low_high[0], record.unit)} – {show(low_high[1], record.unit)}" if low_high else "–"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "–"
    bytes_ = number_in(value) if key.endswith("_bytes") else None
    return escape(str(value)) if bytes_ is None else size(bytes_)


def _clock(records: Sequence[Record]) -> str:
    mine = [r for r in records if r.instrument == "clock"]
    if not mine:
        return ""
    rows = [
        f"<tr><td>{escape(r.metric.replace('_', ' '))}</td><td>{escape(str(r.conditions.get('clock', '–')))}</td>"
        f"<td>{escape(str(r.conditions.get('cpu', 'all')))}</td>"
        f'<td class="n">{show(r.value, r.unit)}</td><td class="n">{_interval(r)}</td><td>{badges(r.flags)}</td></tr>'
        for r in sorted(mine, key=lambda r: r.metric)
    ]
    table = grid(["what", "clock", "CPU", "median", "95 % interval", "flags"], rows)
    return (
        '<section id="clocks"><h2>Clocks</h2><p class="caption">What they cost, how fine they are, and how fast each '
        f"core really ran.</p>{table}{_commands(records, 'clock')}</section>"
    )


def _not_asked(asked: Collection[str], asked_all: bool) -> str:
    """The instruments of sections that this page has not, in a line."""
    known = dict.fromkeys(i for s in SECTIONS for i in (s.instrument, *s.more))
    rest = ", ".join(i for i in [*known, "clock"] if i not in asked)
    return f"<p>{'Not asked of this run' if asked_all else 'No results of'}: {escape(rest)}.</p>" if rest else ""


def _provenance(records: Sequence[Record], run: RunInfo) -> str:
    builds = sorted({" ".join(str(v) for k in ("build", "compiler") if (v := r.provenance.get(k))) for r in records})
    known = {
        "Run": escape(run.run_id),
        "Started": escape(run.started[:19].replace("T", " ") + " UTC") if run.started else "",
        "Took": seconds(run.elapsed_s) if run.elapsed_s > 0 else "",
        "Specification": escape(run.spec_name),
        "Command": f"<code>{escape(run.command)}</code>" if run.command else "",
        "Version": escape(run.version),
        "Build": escape("; ".join(b for b in builds if b)),
    }
    table = f'<table class="card">{"".join(_row(k, v) for k, v in known.items() if v)}</table>'
    if not run.steps:
        return table
    steps = [
        f"<tr><td>{escape(str(s.get('id')))}</td><td>{escape(str(s.get('status')))}</td>"
        f'<td class="n">{float(s.get("elapsed_s", 0)):.1f} s</td>'
        f"<td><code>{escape(' '.join(map(str, s.get('argv', []))))}</code></td></tr>"
        for s in run.steps
    ]
    all_ = grid(["step", "status", "took", "meshmark-probe …"], steps, "data wrap")
    return f"{table}<details><summary>{len(run.steps)} steps</summary>{all_}</details>"
