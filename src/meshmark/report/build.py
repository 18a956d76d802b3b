"""Writes the report: one self-contained page, the machine card, and every chart as PNG and SVG."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from meshmark.report import charts, comm, program_charts, programs, ranking, swaps
from meshmark.report.card import INSTRUMENT_OF, figures, machine_card, why_absent
from meshmark.report.topology_svg import topology_svg
from meshmark.report.units import FLAG_TEXT, NBSP, number, percent, scale_for, seconds, show, size
from meshmark.store.files import write_file
from meshmark.store.record import OBSERVED, Record
from meshmark.store.run import Absence, RunInfo

MOST_ROWS = 2000  # of one table: a page must open at once also for a machine of hundreds of CPUs


@dataclass(frozen=True, slots=True)
class ReportPaths:
    html: Path
    card: Path
    charts: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One chart of the report; `caption` says how to read it.

    Attributes:
        more: instruments whose results stand in its table beside those of `instrument`.
        beside: what follows the chart, as a part of the page; without a chart it stands there alone.
        mapped: `draw` and `beside` get the machine's topology too.
        shown: where it was asked for, with the reason where nothing of it was measured; or where it can be drawn.
    """

    name: str
    title: str
    instrument: str
    caption: str
    draw: Callable[..., charts.Drawn | None]
    more: tuple[str, ...] = ()
    beside: Callable[..., str] | None = None
    mapped: bool = False
    shown: Literal["asked", "drawn"] = "asked"

    def told(self, asked: Collection[str], drawn: bool) -> bool:
        """Whether the page has it, of a run that was asked for these instruments."""
        return drawn or (self.shown == "asked" and not {self.instrument, *self.more}.isdisjoint(asked))


SECTIONS = (
    Section("latency", "Latency against footprint", "latency",
            "Time of a load that waits for the load before it, while it walks a random ring over the footprint. "
            "Steps are levels of the hierarchy; bold figures are the levels found, the band is the 95 % interval.",
            charts.latency),
    Section("strides", "Latency against stride", "latency",
            "The same by constant strides. A short one finds its memory page open and a prefetcher ahead of it; a long "
            "one opens another page with every load. Dashed: random walks over the same footprint.", charts.strides),
    Section("company", "Latency in company", "latency",
            "The same from memory, while several CPUs walk at once.", charts.company),
    Section("bandwidth", "Bandwidth by kernel", "bandwidth",
            "Net bytes as STREAM counts them. Streaming stores go past the caches and save the read that an "
            "ordinary store causes.", charts.bandwidth_kernels),
    Section("bandwidth_footprint", "Bandwidth against footprint", "bandwidth",
            "Where the footprint fits a cache ordinary stores win; beyond it streaming stores do. The crossing is "
            "where a program should change from one to the other.", charts.bandwidth_footprint),
    Section("lines", "Core to core", "lines",
            "What it costs one CPU to get a cache line that another one has.", charts.lines),
    Section("loaded", "Latency under load", "loaded",
            "Latency against the bandwidth of all: chains are independent loads in flight of each CPU; paced is one "
            "walker beside streaming neighbours. Where the curve bends up the memory is full.", charts.loaded),
    Section("gups", "Random updates", "gups",
            "Updates of random words of a table, one after the other (plain) and with the next lines on their way "
            "(ahead).", charts.gups),
    Section("compute", "Compute", "peak",
            "Multiply-adds in registers, and what the installed libraries make of them.", charts.compute,
            more=("dgemm", "linpack")),
    Section("roofline", "Roofline", "peak",
            "Ceilings as measured here: memory bandwidth (triad) on the left, fp64 peak on the right. The ridge is "
            "the balance that a program needs to be limited by compute.", charts.roofline),
    Section("io", "Storage", "io", "Direct reads and writes through fio.", charts.io),
    Section("kernels", "Load kernels", "kernels",
            "Every variant of the kernels that programs are made of: arithmetic against the lines of 64 B that it "
            "moves from and to the level that holds its volume. Hollow marks are flagged.", charts.kernel_rates),
    Section("efficiency", "Parallel efficiency of kernels", "kernels",
            "Time of one thread over threads times the time of all, for the same units. Kernels that fight for lines "
            "on purpose are on the left; above 1 are those to which more cache falls.", charts.kernel_efficiency),
    Section("halo", "Communication: halo exchange", "halo",
            "Time in which each rank of a grid gets a row from every neighbour, by protocol; dashes tell the paradigm, "
            "bands are 95 % intervals. Click a name to see it alone.", comm.halo,
            more=("defects",), beside=comm.beside),
    Section("halo_libraries", "Communication: halo exchange under two libraries", "halo",
            "Time under the second library over that under the first, by protocol; below 1 the second one is faster. "
            "Thick and grey: the best protocol of the one over the best of the other. Click a name to see it alone, "
            "with the intervals of both at their worst as a band.", comm.halo_libraries,
            beside=lambda r: comm.comparison_table(r, ranking.HALO), shown="drawn"),
    Section("pingpong", "Communication: one message", "pingpong",
            "Half of a round trip (send), or the time until a put or a get is there while the other rank does nothing.",
            comm.pingpong),
    Section("pingpong_bandwidth", "Communication: bandwidth of one message", "pingpong",
            "The same as bytes a second, one message after the other.", comm.pingpong_bandwidth),
    Section("pingpong_libraries", "Communication: one message under two libraries", "pingpong",
            "Time under the second library over that under the first. Below 1 the second one is faster.",
            comm.pingpong_libraries, beside=lambda r: comm.comparison_table(r, ranking.MESSAGE), shown="drawn"),
    Section("swap", "Communication: contention by distance", "swap",
            "Ranks i and i + j swap a message: time of all pairs at once, which is the slowest pair's, over that of "
            "the slowest of them alone. Where it is above 1 they share what lies between them. Bold: above 1.1 with "
            "its whole interval; a dashed frame is a flag.", swaps.contention, beside=swaps.contention_told,
            mapped=True),
    Section("swap_pairs", "Communication: every pair", "swap",
            "Two ranks swap a message while all others wait: time of a short one, bandwidth of a long one, both "
            "directions together. The ring is the machine: its ranks in the order of its packages, nodes, caches and "
            "cores. Dashed is flagged.", swaps.pairs, beside=swaps.pairs_told, mapped=True, shown="drawn"),
    Section("collectives", "Communication: collectives", "allreduce",
            "What all ranks do together, the library's way and by other algorithms.", comm.collectives,
            more=("barrier", "bcast", "reduce", "alltoall", "exchange")),
    Section("collectives_libraries", "Communication: collectives under two libraries", "allreduce",
            "Time under the second library over that under the first. Below 1 the second one is faster.",
            comm.collectives_libraries, more=("barrier", "bcast", "reduce", "alltoall", "exchange"),
            beside=lambda r: comm.comparison_table(r, ranking.COLLECTIVES), shown="drawn"),
    Section("anatomy", "Communication: a step taken apart", "anatomy",
            "Latency and bandwidth are what curves of the program's own operations say of its messages; imbalance is "
            "waiting for the rank that computes longest, other is the rest of its time in messages. The bar across "
            "is the step as measured. Right: the step with another latency, over the step as it is. Pale and hollow "
            "are flagged.", program_charts.anatomy,
            beside=lambda r: program_charts.tables(r, programs.ANATOMY)),
    Section("pop", "Communication: pop, an ocean's solver", "pop",
            "Where an iteration's time goes, by protocol and sums over all ranks, on the best grid. Parts are means "
            "over ranks; the bar across, with its 95 % interval, is the slowest rank's. Pale is flagged.",
            program_charts.pop, beside=lambda r: program_charts.tables(r, programs.POP)),
    Section("pop_grids", "Communication: pop by grid of ranks", "pop",
            "Each protocol with the better number of sums. Wide grids have few neighbours, square ones short sides.",
            program_charts.pop_grids, shown="drawn"),
    Section("gyro", "Communication: gyro, a field transposed", "gyro",
            "What of a step is spent in transposes between two layouts. Parts are means over ranks; the bar across is "
            "the slowest rank's. Pale is flagged.", program_charts.gyro,
            beside=lambda r: program_charts.tables(r, programs.GYRO)),
    Section("swim", "Communication: swim, shallow water", "swim",
            "Where a step's time goes, by protocol of the halo. Parts are means over ranks; the bar across is the "
            "slowest rank's. Pale is flagged.", program_charts.swim,
            beside=lambda r: program_charts.tables(r, programs.SWIM)),
    Section("npb", "Communication: NAS kernels", "npb",
            "Time of a solution, and the longest share of it that a rank spends in the library.", program_charts.npb,
            beside=program_charts.kernels_told),
)  # fmt: skip


def write_report(records: Sequence[Record], absences: Sequence[Absence], run: RunInfo, out: Path) -> ReportPaths:
    """Writes `report.html`, `card.json` and `charts/` in `out`, each file whole or not at all.

    Raises:
        MeshmarkError: the folder cannot be written.
    """
    import vl_convert

    drawn: dict[str, charts.Drawn] = {}
    topology = _facts(run, "topology")
    for section in SECTIONS:
        chart = section.draw(records, *([topology] if section.mapped else []))
        if chart is not None:
            drawn[section.name] = chart
    paths = []
    for name, chart in drawn.items():
        spec = charts.for_file(chart)
        png, svg = out / "charts" / f"{name}.png", out / "charts" / f"{name}.svg"
        write_file(png, vl_convert.vegalite_to_png(spec, scale=2))
        write_file(svg, vl_convert.vegalite_to_svg(spec).encode())
        paths += [png, svg]
    card_path, html_path = out / "card.json", out / "report.html"
    card = machine_card(records, absences, run)
    write_file(card_path, json.dumps(card, indent=1, default=str).encode() + b"\n")
    write_file(html_path, _page(records, absences, run, drawn).encode())
    return ReportPaths(html_path, card_path, tuple(paths))


def _page(
    records: Sequence[Record], absences: Sequence[Absence], run: RunInfo, drawn: Mapping[str, charts.Drawn]
) -> str:
    # Whatever was asked of a run yields a result or says why not.
    asked = {*(r.instrument for r in records), *(a.instrument for a in absences)}
    shown = [s for s in SECTIONS if s.told(asked, s.name in drawn)]
    parts = {
        "title": escape(run.machine),
        "subtitle": _subtitle(run),
        "verdict": _verdict(records, absences),
        "nav": "".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in shown),
        "figures": _figures(records, absences, asked),
        "topology": topology_svg(_facts(run, "topology")) or '<p class="absent">The topology could not be read.</p>',
        "machine": _machine_table(records, run),
        "sections": "".join(_section(s, s.name in drawn, records, absences, run) for s in shown),
        "clock": _clock(records),
        "absent": absent_table(absences) + _not_asked(asked),
        "flags": flag_legend(records),
        "provenance": _provenance(records, run),
    }
    return fill_template("page.html", parts, drawn)


def fill_template(template: str, parts: Mapping[str, str], drawn: Mapping[str, charts.Drawn]) -> str:
    """A self-contained page: a template of this package with its parts, its style, its charts and their library."""
    import vl_convert

    specs = {name: charts.themed(chart) for name, chart in drawn.items()}
    # Without a snippet: vega, vega-lite and vega-embed, the last as window.vegaEmbed. The type says otherwise.
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    folder = resources.files("meshmark.report")
    common = {
        "style": (folder / "page.css").read_text(encoding="utf-8"),
        "script": (folder / "page.js").read_text(encoding="utf-8"),
        # A text with a tag in it would end the script element.
        "specs": json.dumps(specs, default=str).replace("<", "\\u003c"),
        "bundle": bundle.replace("</script", "<\\/script"),
    }
    # In one pass: what was put in is never looked at again.
    both = {**common, **parts}
    return re.sub(r"<!--(\w+)-->", lambda m: both[m[1]], (folder / template).read_text(encoding="utf-8"))


def _facts(run: RunInfo, *keys: str) -> dict[str, Any]:
    found: Any = run.host
    for key in keys:
        found = found.get(key, {}) if isinstance(found, Mapping) else {}
    return dict(found) if isinstance(found, Mapping) and set(found) != {"absent"} else {}


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
    parts = [f"{len(records)} results from {len({r.instrument for r in records})} instruments."]
    parts.append(f"{flagged} carry a flag ({', '.join(kinds)})." if flagged else "None carries a flag.")
    if errors:
        parts.append(f"{errors} step{'s' if errors != 1 else ''} failed; see what is absent.")
    return escape(" ".join(parts))


def badges(flags: Sequence[str] | frozenset[str]) -> str:
    return "".join(
        f'<span class="flag" title="{escape(FLAG_TEXT.get(f, f))}">{escape(f)}</span>' for f in sorted(flags)
    )


def _figures(records: Sequence[Record], absences: Sequence[Absence], asked: Collection[str]) -> str:
    found = figures(records)
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
        tiles.append(
            f'<div class="tile" title="meshmark measure {escape(str(record.provenance.get("command")), quote=True)}">'
            f'<h3>{escape(title)}</h3><p class="big">{show(record.value, record.unit)}</p>'
            f'<p class="small">{escape(told(record))}</p>'
            f'<p class="small">95 % interval {interval}</p>'
            f'<p class="small">best {number(record.best / scale.factor)} · spread {percent(record.spread)} · '
            f"n{NBSP}{len(record.samples)}</p>{_strip(record)}{badges(record.flags)}</div>"
        )
    peak, triad = found["peak_fp64"][1], found["triad_all"][1]
    if peak and triad:
        tiles.append(
            f'<div class="tile"><h3>Balance</h3><p class="big">{peak.value / triad.value:.2f} flop/byte</p>'
            f'<p class="small">fp64 peak over triad, all CPUs</p>{badges(peak.flags | triad.flags)}</div>'
        )
    return "".join(tiles)


_TOLD = {
    "bandwidth": ("store", "isa", "pages", "footprint_bytes"), "lines": ("from_cpu", "to_cpu"),
    "loaded": ("best_chains",), "latency": ("pages", "from_bytes", "memory_node"), "peak": ("isa", "threads"),
    "dgemm": ("n", "threads", "library_kernel"),
    "linpack": ("n", "threads"), "gups": ("kernel", "pages", "table_bytes", "threads"), "clock": ("cpu",),
    "io": ("block_bytes", "queue_depth", "jobs"),
}  # fmt: skip


def told(record: Record) -> str:
    """The conditions that a reader of one figure must know, in a line."""
    c = record.conditions
    return " · ".join(charts.said(k, c[k]) for k in _TOLD.get(record.instrument, ()) if c.get(k) is not None)


def _strip(record: Record) -> str:
    """Every sample as a tick on a line from the least to the greatest."""
    low, high = min(record.samples), max(record.samples)
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
    clocks = [r for r in records if r.metric == "core_frequency"]
    measured = " – ".join(show(f(r.value for r in clocks), "Hz") for f in (min, max)) if clocks else ""
    rows.append(
        _row(
            "Clock",
            f"measured {measured}" if measured else '<span class="absent">not measured</span>',
            "claimed " + _fact(cpu.get("claimed_hz"), "Hz"),
        )
    )
    rows += _levels(records, host)
    rows.append(_row("Memory", _fact(memory.get("total_bytes"), "B"), "channels " + _fact(memory.get("channels"))))
    peak = memory.get("peak_bytes_per_s")
    triad = figures(records)["triad_all"][1]
    share = f"; triad reaches {percent(triad.value / peak)}" if isinstance(peak, int | float) and triad else ""
    rows.append(_row("Hardware bandwidth", _fact(peak, "B/s") + share))
    virtual = _facts(run, "virtual")
    if virtual:
        rows.append(_row("Guest", f"yes, {escape(str(virtual.get('hypervisor')))}" if virtual.get("guest") else "no"))
    doubts = _facts(run, "topology").get("doubts") or []
    for doubt in doubts if isinstance(doubts, list) else []:
        rows.append(_row("Doubt", escape(str(doubt))))
    return f'<table class="card">{"".join(rows)}</table>{_settings(run)}'


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
    levels = [r for r in records if r.metric == "level_latency"]
    for pages in sorted({str(r.conditions.get("pages")) for r in levels}, reverse=True):
        texts = []
        for r in levels:
            if str(r.conditions.get("pages")) != pages:
                continue
            to, since = (size(float(str(r.conditions[k]))) for k in ("to_bytes", "from_bytes"))
            where = f"to {to}" if r.conditions.get("kind") == "cache" else f"memory, from {since}"
            texts.append(f"<span>{show(r.value, 's')} <small>{where}</small>{badges(r.flags)}</span>")
        rows.append(f"<tr><th>Levels, measured, pages {escape(pages)}</th><td class=levels>{''.join(texts)}</td></tr>")
    return rows


def _commands(records: Sequence[Record], *instruments: str) -> str:
    commands = sorted({str(r.provenance.get("command", "")) for r in records if r.instrument in instruments} - {""})
    lines = "\n".join(f"meshmark measure {c}" for c in commands)
    return f"<details><summary>Repeat it</summary><pre>{escape(lines)}</pre></details>" if lines else ""


def _section(
    section: Section, drawn: bool, records: Sequence[Record], absences: Sequence[Absence], run: RunInfo
) -> str:
    head = f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
    topology = [_facts(run, "topology")] if section.mapped else []
    beside = section.beside(records, *topology) if section.beside else ""
    rest = _table(section, records, run.run_id) + _commands(records, section.instrument, *section.more)
    if not drawn:
        reason = escape(why_absent(records, absences, section.instrument))
        # What was measured and is not enough for a chart still has its table.
        absent = f'<p class="absent">absent: {reason}</p>'
        return f"{head}{beside or absent}{rest}</section>"
    return (
        f'{head}<p class="caption">{escape(section.caption)}</p>'
        f'<div class="chart" id="chart-{section.name}" role="img" aria-label="{escape(section.title)}"></div>'
        f"{beside}{rest}</section>"
    )


_HIDDEN = OBSERVED | {"page_bytes", "cpus", "fill"}


def _table(section: Section, records: Sequence[Record], run_id: str) -> str:
    """The numbers behind the chart, once an instrument (with its first chart)."""
    first = next(s.name for s in SECTIONS if s.instrument == section.instrument)
    mine = [r for r in records if r.instrument in {section.instrument, *section.more}]
    if section.name != first or not mine:
        return ""
    keys: list[str] = []
    for r in mine:
        keys += [
            k for k in r.conditions if k not in keys and k not in _HIDDEN and not k.startswith(("library_", "trial_"))
        ]
    keys = [k for k in keys if len({str(r.conditions.get(k)) for r in mine}) > 1]
    head = ["metric", *(k.replace("_", " ") for k in keys), "median", "95 % interval", "best", "spread", "n", "flags"]
    body = []
    for r in mine[:MOST_ROWS]:
        best = min(r.samples) if r.unit in {"s", "1"} else max(r.samples)
        cells = [_cell(k, r.conditions.get(k)) for k in keys]
        values = [
            show(r.value, r.unit),
            _interval(r),
            show(best, r.unit),
            percent(r.spread),
            str(len(r.samples)),
        ]
        body.append(
            f"<tr><td>{escape(r.metric)}</td>" + "".join(f"<td>{c}</td>" for c in cells)
            + "".join(f'<td class="n">{v}</td>' for v in values) + f"<td>{badges(r.flags)}</td></tr>"
        )  # fmt: skip
    rest = (
        f"<p>The first {MOST_ROWS}; all of them: <code>meshmark store export --run {escape(run_id)} "
        f"--instrument {escape(section.instrument)}</code></p>"
        if len(mine) > MOST_ROWS
        else ""
    )
    return f"<details><summary>{len(mine)} results as a table</summary>{rest}{grid(head, body)}</details>"


def grid(head: Sequence[str], rows: Sequence[str], kind: str = "data", numbers: Collection[int] = ()) -> str:
    """A table that scrolls in its own box; `rows` are `<tr>` elements, `numbers` columns with titles to the right."""
    titles = "".join(f"<th{' class=n' if i in numbers else ''}>{escape(h)}</th>" for i, h in enumerate(head))
    table = f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    label = f"table: {head[0] or 'steps'}"  # a name and a place in the order of Tab, for those who scroll with keys
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label, quote=True)}">{table}</div>'


def _interval(record: Record) -> str:
    low_high = record.interval
    return f"{show(low_high[0], record.unit)} – {show(low_high[1], record.unit)}" if low_high else "–"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "–"
    return size(float(value)) if key.endswith("_bytes") and isinstance(value, int | float) else escape(str(value))


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


def absent_table(absences: Sequence[Absence]) -> str:
    if not absences:
        return "<p>Nothing that was asked for is absent.</p>"
    rows = [
        f"<tr><td>{escape(a.instrument)}{' · ' + escape(a.metric) if a.metric else ''}</td>"
        f"<td>{'failed' if a.kind == 'error' else 'absent'}</td>"
        f"<td>{escape(', '.join(f'{k} {v}' for k, v in a.conditions.items()))}</td>"
        f"<td>{escape(a.reason)}</td><td>{escape(a.enable)}</td></tr>"
        for a in absences
    ]
    return grid(["what", "", "conditions", "why", "what would help"], rows, "data wrap")


def _not_asked(asked: Collection[str]) -> str:
    """The instruments of sections that this page has not, in a line."""
    known = dict.fromkeys(i for s in SECTIONS for i in (s.instrument, *s.more))
    rest = ", ".join(i for i in [*known, "clock"] if i not in asked)
    return f"<p>Not asked of this run: {escape(rest)}.</p>" if rest else ""


def flag_legend(records: Sequence[Record]) -> str:
    used = sorted({f for r in records for f in r.flags})
    if not used:
        return "<p>No result carries a flag.</p>"
    counts = {f: sum(1 for r in records if f in r.flags) for f in used}
    items = "".join(
        f"<li>{badges([f])} {escape(FLAG_TEXT.get(f, ''))}: {n} of {len(records)}</li>" for f, n in counts.items()
    )
    return f'<ul class="flags">{items}</ul>'


def _provenance(records: Sequence[Record], run: RunInfo) -> str:
    builds = sorted({f"{r.provenance.get('build')} ({r.provenance.get('compiler')})" for r in records})
    started = run.started[:19].replace("T", " ") + " UTC"
    rows = [
        _row("Run", escape(run.run_id)), _row("Started", escape(started)), _row("Took", seconds(run.elapsed_s)),
        _row("Specification", escape(run.spec_name)), _row("Command", f"<code>{escape(run.command)}</code>"),
        _row("Version", escape(run.version)), _row("Probe", escape("; ".join(builds))),
    ]  # fmt: skip
    steps = [
        f"<tr><td>{escape(str(s.get('id')))}</td><td>{escape(str(s.get('status')))}</td>"
        f'<td class="n">{float(s.get("elapsed_s", 0)):.1f} s</td>'
        f"<td><code>{escape(' '.join(map(str, s.get('argv', []))))}</code></td></tr>"
        for s in run.steps
    ]
    table = grid(["step", "status", "took", "meshmark-probe …"], steps, "data wrap")
    summary = f"<details><summary>{len(run.steps)} steps</summary>{table}</details>"
    return f'<table class="card">{"".join(rows)}</table>{summary}'
