"""Writes the report: a self-contained page, the machine card, and the charts as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.measure import suspicion
from meshmark.measure.importers.card import StepRecord, to_text
from meshmark.measure.repetitions import quality
from meshmark.store.files import write_file, write_text
from meshmark.store.record import Record
from meshmark.store.run import Absence, RunInfo
from meshmark.values.units import NBSP, counted, number, percent, scale_for, seconds, show, size
from meshmark.views.charts.drawing import Drawing, chart_page, charts_or_reason, condition_text, sized
from meshmark.views.content.card import (
    INSTRUMENT_OF,
    MEMORY_PAGES,
    Figures,
    balance,
    farthest,
    figures,
    machine_card,
    why_absent,
    why_no_figure,
)
from meshmark.views.content.findings import UNRELIABLE, sentences, trusted
from meshmark.views.content.listing import result_tables
from meshmark.views.content.selection import (
    cleaned,
    collect_skipped,
    interval_text,
    modes_of,
    modes_texts,
    selected,
    skipped_text,
    text_of,
    unusual_stride,
    usual_stride,
    value_of,
)
from meshmark.views.content.strengths import EarlierRun, strengths
from meshmark.views.html import CardRow, MemoryLevel, SampleStrip, TextSpan, Tile, flag_counts
from meshmark.views.pages import modelled
from meshmark.views.pages.absent import absent_groups
from meshmark.views.pages.sections import SECTIONS, ChartSection
from meshmark.views.tables import Cells, TableSection, TextCell, TextTable
from meshmark.views.topology_svg import topology_svg

MAX_ROWS = 2000  # rows per section, so that the page opens quickly even for hundreds of CPUs


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The files of a report."""

    html: Path
    card: Path
    charts: tuple[Path, ...]
    undrawn: str  # the reason why there are no charts, or ""


def write_report(
    records: Sequence[Record],
    absences: Sequence[Absence],
    run: RunInfo,
    out: Path,
    earlier: Sequence[EarlierRun] = (),
    steps: Sequence[StepRecord] | None = None,
) -> ReportPaths:
    """Write `report.html`, `card.json` and `charts/` to the folder `out`, each file atomically.

    If charts cannot be drawn, the report has no charts and says why.

    Args:
        records: Records of the run, pooled.
        absences: Absences of the run.
        run: Facts about the run.
        out: Folder of the report.
        earlier: Earlier runs of the same machine, see `strengths.earlier_runs`.
        steps: See `machine_card`.

    Raises:
        MeshmarkError: The folder is not writable.
    """
    card_path, html_path = out / "card.json", out / "report.html"
    write_file(card_path, to_text(machine_card(records, absences, run, steps)).encode())
    records = cleaned(records)
    drawn, notes = _draw(records, run)
    write_text(html_path, _page(records, absences, run, (drawn, notes), earlier))
    paths, undrawn = charts_or_reason(drawn, out / "charts")
    return ReportPaths(html_path, card_path, tuple(paths), undrawn)


def report_page(
    records: Sequence[Record],
    absences: Sequence[Absence],
    run: RunInfo,
    earlier: Sequence[EarlierRun] = (),
    site: str = "",
) -> str:
    """Return the page without writing files. Any records yield a page; it lists the records that no chart can show.

    `site` is the address of the site to which the page belongs, such as `../`; "" makes a self-contained page.
    """
    records = cleaned(records)
    return _page(records, absences, run, _draw(records, run), earlier, site)


def _draw(records: Sequence[Record], run: RunInfo) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Return the charts, and notes on the records that the charts skip, both by section name."""
    drawn: dict[str, Drawing] = {}
    notes: dict[str, str] = {}
    topology = _facts(run, "topology")
    for section in SECTIONS:
        with collect_skipped() as skipped:
            chart = section.draw(records, *([topology] if section.needs_topology else []))
        if chart is not None:
            drawn[section.name] = chart
        notes[section.name] = skipped_text(skipped)
    return drawn, notes


def _page(
    records: Sequence[Record],
    absences: Sequence[Absence],
    run: RunInfo,
    drawn_notes: tuple[Mapping[str, Drawing], Mapping[str, str]],
    earlier: Sequence[EarlierRun],
    site: str = "",
) -> str:
    drawn, notes = drawn_notes
    # Every requested instrument has results or absences.
    requested = {*(r.instrument for r in records), *(a.instrument for a in absences)}
    key_figures = figures(records, _cpus(run))
    machine = modelled.machine_of(records)
    shown = [s for s in SECTIONS if s.is_shown(requested, s.name in drawn)]
    sections = [_part(s, s.name in drawn, notes[s.name], records, absences, run) for s in shown]
    instruments = dict.fromkeys(i for s in SECTIONS for i in (s.instrument, *s.more))
    return chart_page(
        "report.html",
        drawn,
        site,
        title=run.machine,
        subtitle=_subtitle(run) or (machine.title if machine else ""),
        about=_about(run),
        unreliable=_unreliable(records, run),
        strengths=strengths(records, run, key_figures, earlier),
        findings=sentences(records, key_figures),
        verdict=_verdict(records, absences),
        run=run.run_id,
        tiles=_tiles(records, absences, requested, modelled.tile_figures(key_figures, records)),
        suspicions=suspicion.lines(suspicion.suspicions(records, _facts(run, "topology").get("caches", []))),
        topology=topology_svg(_facts(run, "topology")) if run.host else "",
        mesh=modelled.mesh(machine),
        no_topology=modelled.why_no_drawing(records, run),
        machine=[*modelled.facts(machine), *_machine(records, run)],
        settings=_settings(run) if run.host else [],
        nav=[(s.name, s.title) for s in shown],
        sections=[*sections, *_others(records), *_clock(records)],
        absent=absent_groups(absences, run.steps),
        requests_known=bool(run.steps),  # imported runs lack their list of steps
        not_requested=[i for i in [*instruments, "clock"] if i in descriptions() and i not in requested],
        flag_counts=flag_counts(records),
        records=len(records),
        provenance=_provenance(records, run),
        steps=_steps(run),
    )


def _facts(run: RunInfo, *keys: str) -> dict[str, Any]:
    facts: Any = run.host
    for key in keys:
        facts = facts.get(key, {}) if isinstance(facts, Mapping) else {}
    return dict(facts) if isinstance(facts, Mapping) and set(facts) != {"absent"} else {}


def _subtitle(run: RunInfo) -> str:
    texts = []
    cpu = _facts(run, "cpu").get("model")
    if isinstance(cpu, str):
        texts.append(cpu)
    summary = _facts(run, "topology").get("summary")
    if isinstance(summary, str):
        texts.append(summary)
    total = _facts(run, "memory").get("total_bytes")
    if isinstance(total, int | float):
        texts.append(size(float(total)))
    virtual = _facts(run, "virtual")
    if virtual.get("guest") is True:
        texts.append(f"guest of {virtual.get('hypervisor')}")
    return " · ".join(texts)


def _about(run: RunInfo) -> str:
    """Return when and how the run was recorded, for the line below the title."""
    release = _facts(run, "kernel").get("release")
    texts = (
        run.started[:16].replace("T", " ") + " UTC" if run.started else "",
        f"survey {run.spec_name}" if run.spec_name else "",
        f"Meshmark {run.version}" if run.version else "",
        f"Linux {release}" if isinstance(release, str) else "",
    )
    return " · ".join(t for t in texts if t)


def _verdict(records: Sequence[Record], absences: Sequence[Absence]) -> str:
    errors = sum(1 for a in absences if a.kind == "error")
    instruments = len({r.instrument for r in records})
    parts = [f"{counted(len(records), 'result')} from {counted(instruments, 'instrument')}."]
    trust = trusted(records)
    if trust.reliable:
        parts.append(trust.text or f"{quality(records)}.")
    if errors:
        parts.append(f"{counted(errors, 'step')} failed; see the absent results.")
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class _Banner:
    """The warning at the top of the page of an unreliable run; `again` is the command that repeats the run."""

    title: str
    text: str
    remedy: str
    again: str


def _unreliable(records: Sequence[Record], run: RunInfo) -> _Banner | None:
    trust = trusted(records)
    if trust.reliable:
        return None
    # The output folder of the run already contains a run.
    command = re.sub(r" --out[ =]\S+", "", run.command)
    again = command if command.startswith("meshmark ") and "; " not in command else ""
    return _Banner(UNRELIABLE, trust.text, trust.remedy, again)


def _cpus(run: RunInfo) -> int:
    """Return the number of CPUs of the host; 0 if unknown."""
    cpus = _facts(run, "topology").get("cpus")
    return len(cpus) if isinstance(cpus, list) else 0


def _tiles(
    records: Sequence[Record],
    absences: Sequence[Absence],
    requested: Collection[str],
    figures: Figures,
) -> list[Tile]:
    tiles = []
    for key, (title, figure) in figures.items():
        # The section on clocks lists the frequency of every core.
        if key == "core_frequency" or {**INSTRUMENT_OF, **modelled.FIGURES}[key] not in requested:
            continue
        record = farthest(records, key) if figure is None and key in MEMORY_PAGES else figure
        if record is None and modelled.is_model(records):  # some figures exist only on hosts
            continue
        if record is None:
            tiles.append(Tile(title, absent=why_no_figure(records, absences, key)))
            continue
        latency_name = f"Latency at {size(value_of(record, 'footprint_bytes'))}"
        name = title.replace("Memory latency", latency_name) if figure is None else title
        scale = scale_for(record.unit, record.value)
        best = "–" if record.best is None else number(record.best / scale.factor)
        lines = [
            condition_summary(record),
            f"95 % interval {interval_text(record)}",
            f"best {best} · spread {percent(record.spread)} · n{NBSP}{len(record.samples)}",
        ]
        value = show(record.value, record.unit)
        if modes := modes_of(records, record):
            value, counts = modes_texts(modes)
            lines.insert(0, f"{counts}; median {show(record.value, record.unit)}")
        tiles.append(Tile(name, value, lines, command_of(record), _strip(record), record.flags))
    if (pair := balance(figures)) is not None:
        peak, triad = pair
        threads = figures["triad_all"][0].partition(", ")[2]
        value = f"{peak.value / triad.value:.2f} flop/byte"
        lines = [f"fp64 peak over triad, {threads}", f"triad of {sized(triad, 'footprint_bytes')}"]
        if any(modes_of(records, r) for r in pair):
            lines.append("of medians; there are modes")
        tiles.append(Tile("Balance", value, lines, flags=peak.flags | triad.flags))
    return tiles


_SUMMARY_CONDITIONS = {
    "bandwidth": ("store", "isa", "pages", "footprint_bytes"),
    "lines": ("from_cpu", "to_cpu"),
    "loaded": ("best_chains",),
    "latency": ("pages", "memory_node"),
    "peak": ("isa", "threads"),
    "dgemm": ("n", "threads", "library_kernel"),
    "linpack": ("n", "threads"),
    "gups": ("kernel", "pages", "table_bytes", "threads"),
    "clock": ("cpu",),
    "io": ("block_bytes", "queue_depth", "jobs"),
}


def condition_summary(record: Record) -> str:
    """Return the conditions that matter most for this instrument, on one line."""
    c = record.conditions
    keys = _SUMMARY_CONDITIONS.get(record.instrument, ())
    texts = [condition_text(k, c[k]) for k in keys if c.get(k) is not None]
    if c.get("from_bytes") and c.get("to_bytes"):  # a level is the mean over several footprints
        low, high = (size(value_of(record, k)) for k in ("from_bytes", "to_bytes"))
        texts.append(low if low == high else f"{low} to {high}")
    return " · ".join(texts)


def _strip(record: Record) -> SampleStrip | None:
    """Return all samples as ticks on a line from minimum to maximum; None if there is nothing to see."""
    low, high = sorted(record.ends)
    if len(record.samples) < 2 or high == low:
        return None

    def x(value: float) -> float:
        return 2 + 196 * (value - low) / (high - low)

    text = f"{len(record.samples)} samples from {show(low, record.unit)} to {show(high, record.unit)}"
    return SampleStrip(text, [x(s) for s in record.samples], x(record.value))


def _span(value: Any, unit: str = "") -> TextSpan:
    """Return a formatted fact, or the reason why it is absent."""
    if isinstance(value, Mapping) and set(value) == {"absent"}:
        return TextSpan(f"absent: {value['absent']}", "absent")
    if value is None:
        return TextSpan("absent", "absent")
    if unit and isinstance(value, int | float):
        return TextSpan(show(float(value), unit))
    if isinstance(value, list):  # the different values of a property of CPUs
        return TextSpan(", ".join(_span(v, unit).text for v in value) or "none")
    return TextSpan(str(value))


def _flags_text(flags: Collection[str]) -> str:
    return f" ({', '.join(sorted(flags))})" if flags else ""


def _machine(records: Sequence[Record], run: RunInfo) -> list[CardRow]:
    if not run.host:
        return _clock_fact(records) + _levels(records, {})
    cpu, memory = _facts(run, "cpu"), _facts(run, "memory")
    isa = cpu.get("isa")
    if isinstance(isa, list):
        isa = [i for i in isa if i.startswith(("sse4_2", "avx", "asimd", "sve", "fma", "amx"))]
    peak = memory.get("peak_bytes_per_s")
    bandwidth = [_span(peak, "B/s")]
    triad = figures(records)["triad_all"][1]
    if isinstance(peak, int | float) and peak > 0 and triad:
        triad_text = f"; triad of {sized(triad, 'footprint_bytes')} reaches {percent(triad.value / peak)}"
        bandwidth.append(TextSpan(triad_text + _flags_text(triad.flags)))
    facts = [
        CardRow("Processor", [_span(cpu.get("model"))]),
        CardRow("Vector instructions", [_span(isa)]),
        *_clock_fact(records, _span(cpu.get("claimed_hz"), "Hz")),
        *_levels(records, run.host),
        CardRow(
            "Memory", [_span(memory.get("total_bytes"), "B")], [TextSpan("channels "), _span(memory.get("channels"))]
        ),
        CardRow("Hardware bandwidth", bandwidth),
    ]
    virtual = _facts(run, "virtual")
    if virtual:
        facts.append(
            CardRow("Guest", [TextSpan(f"yes, {virtual.get('hypervisor')}" if virtual.get("guest") else "no")])
        )
    doubts = _facts(run, "topology").get("doubts") or []
    return facts + [CardRow("Doubt", [TextSpan(str(d))]) for d in (doubts if isinstance(doubts, list) else [])]


def _clock_fact(records: Sequence[Record], claimed: TextSpan | None = None) -> list[CardRow]:
    frequencies = [r for r in records if r.metric == "core_frequency"]
    if not frequencies and claimed is None:
        return []
    ends = [f(r.value for r in frequencies) for f in (min, max)] if frequencies else []
    measured = " – ".join(show(end, "Hz") for end in ends) + _flags_text(
        frozenset().union(*(r.flags for r in frequencies))
    )
    text = TextSpan(f"measured {measured}") if measured else TextSpan("not measured", "absent")
    return [CardRow("Clock", [text], [TextSpan("reported "), claimed] if claimed is not None else [])]


def _settings(run: RunInfo) -> list[CardRow]:
    """Return the settings that an administrator can change, as far as they are readable."""
    facts = []
    pages, settings, firmware = (_facts(run, k) for k in ("pages", "settings", "firmware"))
    if pages:
        defrag = [TextSpan("defrag "), _span(pages.get("thp_defrag"))]
        facts.append(CardRow("Transparent huge pages", [_span(pages.get("thp"))], defrag))
        huge = pages.get("huge")
        if isinstance(huge, list):
            huge = [f"{size(float(p['size_bytes']))}: {p['total']}" for p in huge]
        facts.append(CardRow("Explicit huge pages", [_span(huge)]))
    for key, title in (
        ("governor", "Governor"),
        ("boost", "Boost"),
        ("smt", "SMT"),
        ("numa_balancing", "NUMA balancing"),
        ("clocksource", "Clock source"),
        ("prefetchers", "Hardware prefetchers"),
    ):
        if key in settings:
            facts.append(CardRow(title, [_span(settings.get(key))]))
    if firmware:
        date = firmware.get("bios_date")
        note = [TextSpan(date)] if isinstance(date, str) and date else []
        facts.append(CardRow("Firmware", [_span(firmware.get("bios_version"))], note))
    return [*facts, CardRow("Kernel", [_span(_facts(run, "kernel").get("release"))])]


def _levels(records: Sequence[Record], host: Mapping[str, Any]) -> list[CardRow]:
    """Return the cache sizes that the system reports, and the levels that the latency curve shows."""
    facts = []
    caches = host.get("caches")
    if isinstance(caches, list):
        claims = []
        for c in caches:
            if isinstance(c, Mapping) and c.get("kind") != "instruction":
                shared = f" shared by {c['shared_by']}" if c.get("shared_by", 1) > 1 else ""
                size_bytes = c.get("size_bytes")
                claims.append(
                    f"L{c['level']} {size(size_bytes) if isinstance(size_bytes, int) else 'of unknown size'}{shared}"
                )
        facts.append(CardRow("Caches, reported", [TextSpan(", ".join(claims))]))
    levels = selected(records, (), "level_latency", positive=("from_bytes", "to_bytes"))
    for pages in sorted({text_of(r, "pages") for r in levels}, reverse=True):
        measured = []
        same_pages = usual_stride(r for r in levels if text_of(r, "pages") == pages)
        for r in sorted(same_pages, key=lambda r: value_of(r, "from_bytes")):
            end, start = (size(value_of(r, k)) for k in ("to_bytes", "from_bytes"))
            where = f"to {end}" if r.conditions.get("kind") == "cache" else f"memory, from {start}"
            measured.append(MemoryLevel(show(r.value, "s"), where, r.flags))
        strides = {text for r in same_pages if (text := unusual_stride(r))}
        facts.append(CardRow(", ".join(("Levels, measured", f"pages {pages}", *strides)), levels=measured))
    return facts


def command_of(record: Record) -> str:
    """Return the command that repeats a result; "" if the record lacks the command or the machine."""
    command = str(record.provenance.get("command") or "")
    measured = command.partition(" ")[0] == record.instrument
    if not command or record.source not in {"host", "model"}:
        return ""
    if measured and record.source == "model" and "--on" not in command.split():
        return ""
    return f"meshmark {'measure ' if measured else ''}{command}"


def _commands(records: Sequence[Record], *instruments: str) -> str:
    return "\n".join(sorted({command_of(r) for r in records if r.instrument in instruments} - {""}))


@dataclass(frozen=True, slots=True)
class _SectionContent:
    """A section in the form that `report.html` shows.

    Attributes:
        name: Id of the element; "" if it has no id.
        note: The records that the chart skips.
        details: Rendered text below the chart.
        absent: The reason why there is no chart.
        offers: The commands that together would fill the section.
        shared: The conditions that all results share.
        results: Number of results; the tables may show fewer.
        open: Whether the tables are expanded.
    """

    title: str
    instrument: str
    name: str = ""
    caption: str = ""
    drawn: bool = False
    note: str = ""
    details: str = ""
    absent: str = ""
    offers: Sequence[str] = ()
    shared: str = ""
    tables: Sequence[TableSection] = ()
    results: int = 0
    open: bool = False
    commands: str = ""


def _part(
    section: ChartSection, drawn: bool, note: str, records: Sequence[Record], absences: Sequence[Absence], run: RunInfo
) -> _SectionContent:
    topology = [_facts(run, "topology")] if section.needs_topology else []
    # Only the first section of an instrument contains its table.
    first = next(s.name for s in SECTIONS if s.instrument == section.instrument)
    results = [r for r in records if r.instrument in {section.instrument, *section.more} and section.name == first]
    shared, tables = _tables(results)
    return _SectionContent(
        section.title,
        section.instrument,
        section.name,
        section.caption,
        drawn,
        note,
        details=section.details(records, *topology) if section.details else "",
        absent=note or why_absent(records, absences, section.instrument),
        offers=() if note or modelled.is_model(records) else section.offers,
        shared=shared,
        tables=tables,
        results=len(results),
        commands=_commands(records, section.instrument, *section.more),
    )


_HIDDEN: Final = frozenset({"page_bytes", "cpus", "fill"})


def _tables(mine: Sequence[Record]) -> tuple[str, list[TableSection]]:
    hidden = {k for r in mine for k in r.conditions if k in _HIDDEN or k.startswith(("library_", "trial_"))}
    return result_tables(mine, hidden, MAX_ROWS)


def _others(records: Sequence[Record]) -> list[_SectionContent]:
    """Return tables of the results of instruments without a section."""
    covered = {"clock", *(i for s in SECTIONS for i in (s.instrument, *s.more))}
    others: dict[str, list[Record]] = {}
    for r in records:
        if r.instrument not in covered:
            others.setdefault(r.instrument, []).append(r)
    parts = []
    for name, results in others.items():
        shared, tables = _tables(results)
        commands = _commands(results, name)
        parts.append(_SectionContent(name, name, shared=shared, tables=tables, results=len(results), commands=commands))
    return parts


def _clock(records: Sequence[Record]) -> list[_SectionContent]:
    clocks = sorted((r for r in records if r.instrument == "clock"), key=lambda r: r.metric)
    if not clocks:
        return []
    rows: list[Cells] = [
        [
            r.metric.replace("_", " "),
            str(r.conditions.get("clock", "–")),
            str(r.conditions.get("cpu", "all")),
            show(r.value, r.unit),
            interval_text(r),
            TextCell("", flags=r.flags),
        ]
        for r in clocks
    ]
    table = TextTable(["metric", "clock", "CPU", "median", "95 % interval", "flags"], rows, numbers=(3, 4))
    caption = "Cost and resolution of each clock, and the measured frequency of each core."
    return [
        _SectionContent(
            "Clocks",
            "clock",
            "clocks",
            caption,
            tables=[TableSection("", table)],
            results=len(clocks),
            open=True,
            commands=_commands(records, "clock"),
        )
    ]


def _provenance(records: Sequence[Record], run: RunInfo) -> list[CardRow]:
    builds = sorted({" ".join(str(v) for k in ("build", "compiler") if (v := r.provenance.get(k))) for r in records})
    facts = {
        "Run": run.run_id,
        "Started": run.started[:19].replace("T", " ") + " UTC" if run.started else "",
        "Elapsed": seconds(run.elapsed_s) if run.elapsed_s > 0 else "",
        "Specification": run.spec_name,
        "Command": run.command,
        "Version": run.version,
        "Build": "; ".join(b for b in builds if b),
    }
    return [
        CardRow(name, [TextSpan(text, "code" if name == "Command" else "")]) for name, text in facts.items() if text
    ]


def _steps(run: RunInfo) -> TextTable:
    rows: list[Cells] = [
        [
            str(s.get("id")),
            str(s.get("status")),
            f"{float(s.get('elapsed_s', 0)):.1f} s",
            TextCell(" ".join(map(str, s.get("argv", []))), "code"),
        ]
        for s in run.steps
    ]
    return TextTable(["step", "status", "elapsed", "meshmark-probe …"], rows, numbers=(2,), folds=(0, 3))
