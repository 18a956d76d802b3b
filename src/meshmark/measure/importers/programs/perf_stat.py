"""Reader of `perf stat -j` (JSON lines) and `perf stat -x SEP` (CSV), with or without -r, -I, -A, --per-socket etc.

Counters that are `<not supported>` or `<not counted>` are left out. With -I, the counts of the intervals are the
samples. Derived metrics per event are read (instructions per cycle, shares); rates over time are not read, since they
are the count over the time. perf prints shares in percent and does not always state the unit, so the names of its
shares are listed here. A metric on a line without an event, such as a top-down metric, has no condition `event`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, ctime, matched, unexpected
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import named, scaled, slug, unit_of
from meshmark.store.record import Scalar

_STARTED: Final = re.compile(r"# started on (\w{3} \w{3} +\d+ [\d:]{8} \d{4})")
_MISSING: Final = {"<not supported>", "<not counted>"}
_UNITS: Final = {"": ("1", 1.0), "Joules": ("J", 1.0), "CPUs": ("1", 1.0), "instructions": ("1", 1.0)}
_PLACES: Final = (  # kinds of places by the form of their names
    ("cpu", re.compile(r"CPU(\d{1,9})")),
    ("core", re.compile(r"S\d+(?:-D\d+)?-C\d+")),
    ("cache", re.compile(r"S\d+-D\d+-L\d+-ID\d+")),
    ("cluster", re.compile(r"S\d+-D\d+-CLS\d+")),
    ("die", re.compile(r"S\d+-D\d+")),
    ("socket", re.compile(r"S\d+")),
    ("node", re.compile(r"N\d+")),
    ("thread", re.compile(r".+-\d+")),
)
_KINDS: Final = {*(kind for kind, _ in _PLACES), "cgroup"}
_KEYS: Final = {  # JSON keys that do not distinguish results
    *("interval", "counter-value", "unit", "event", "variance", "event-runtime", "pcnt-running", "metric-value"),
    *("metric-unit", "aggregate-number", "counters", "metric-threshold", "metricgroup"),
}
# Shares that perf prints in percent without stating the unit (stat-shadow.c).
PERCENT: Final = re.compile(
    r".*\bof all .*|(?:frontend|backend) cycles idle|(?:frontend|backend|memory|core) bound(?:/bad spec)?|retiring"
    r"|bad speculation|(?:heavy|light) operations|branch mispredict|machine clears|fetch (?:latency|bandwidth)"
    r"|(?:transactional|aborted) cycles|.*%",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(r"(\S+) {2,}(\S.*)")  # unit and name of a metric
_KNOWN: Final = re.compile(r"GHz|CPUs utilized|insn per cycle|stalled cycles per insn|[kKMG]?/sec")
_METRICS_ONLY: Final = re.compile(
    r'"(?:GHz|insn per cycle|stalled cycles per insn|%  \w{1,60}|[^"\s]{1,60} of all [^"]{1,60}'
    r'|(?:front|back)end cycles idle)" : "'
)
# Numbers with the decimal comma of a locale, and numbers that are not finite, are not JSON.
_UNQUOTED: Final = re.compile(r'(" ?: ?)(-?(?:nan|inf)|-?\d+,\d+)(?=\s*[,}])')
_EVENT: Final = r"(?:[^,;|\t@~^\n/]|/[^/\n]*/)+"
_CSV: Final = re.compile(
    r"^(?:[^,;|\t@~^\n]{1,80}[,;|\t@~^]){0,4}?(?:\d+(?:[.,]\d+)?|<not supported>|<not counted>)(?P<mark>[,;|\t@~^])"
    rf"[A-Za-z%/]*(?P=mark){_EVENT}(?P=mark)(?:[^,;|\t@~^\n]*(?P=mark))?(?:\d+[.,]\d+%(?P=mark))?"
    r"\d+(?P=mark)\d{1,3}[.,]\d\d\b",
    re.MULTILINE,
)


# A line with commas both between the cells and in its numbers, as `-x,` prints it in some locales.
_COMMAS: Final = re.compile(
    r"(?P<place>(?:[^,]*[^,\d][^,]*,(?:\d+,)??)?)(?P<value>\d+(?:,\d\d)?|<not supported>|<not counted>)"
    rf",(?P<unit>[A-Za-z]*),(?P<event>{_EVENT}),(?:(?P<noise>\d+,\d\d)%,)?(?P<runtime>\d+),(?P<share>\d{{1,3}},\d\d)"
    r"(?:,(?P<metric>\d+,\d+)?,(?P<name>[^,]*))?"
)


@dataclass(slots=True)
class CounterLine:
    """A line with a counter, derived metrics, or both.

    Attributes:
        metrics: Value and unit of each derived metric.
        group: Name of the group of the metrics on this line and the lines below.
    """

    event: str = ""
    value: str = ""
    unit: str = ""
    place: dict[str, Scalar] = field(default_factory=dict)
    interval: bool = False
    repeated: bool = False
    share: str = ""  # share of the time in which the counter ran, in percent
    metrics: list[tuple[str, str]] = field(default_factory=list)
    group: str = ""


@dataclass(slots=True)
class PerfRun:
    """The samples of one run of perf, and the counter or metric group of the last line."""

    # Conditions and samples by metric, unit and conditions.
    series: dict[tuple[str, str, str], tuple[dict[str, Scalar], list[float]]] = field(default_factory=dict)
    event: str = ""
    group: str = ""

    def take(self, row: CounterLine) -> None:
        """Add the samples of a line."""
        if row.event or row.group:
            self.event, self.group = row.event, row.group
        common = {**row.place, **({"statistic": "mean"} if row.repeated else {})}
        if row.interval:
            common["per"] = "interval"
        if row.share:  # perf extrapolates the count if the counter did not run for the whole time
            common["counted"] = "all" if _figure(row.share, "share of the time") >= 100 else "part"
        samples: list[tuple[str, str, float, dict[str, Scalar]]] = []
        if row.event:
            if row.value in _MISSING:
                raise FormatError(f"{quoted(row.event, 60)}: {row.value}")
            unit, factor = _unit(row.unit)
            samples.append((row.event, unit, scaled(_figure(row.value, row.event), factor, row.event), common))
        for text, unit in row.metrics:
            event = row.event or (self.event if unit == "stalled cycles per insn" else "")
            if not row.event and "instructions" not in event:
                event = ""
            group = {} if event or not self.group else {"metric_group": self.group}
            if (metric := _metric(unit, text)) is not None:
                samples.append((*metric, {**common, **({"event": event} if event else group)}))
        for name, unit, value, conditions in samples:
            self.series.setdefault((name, unit, str(conditions)), (conditions, []))[1].append(value)

    def add_to(self, output: ToolOutput) -> None:
        """Add a record for each counter and metric."""
        for (name, unit, _), (conditions, samples) in self.series.items():
            output.add_tool_metric(name, unit, samples, "none", **named(conditions))


def recognises(start: str) -> bool:
    """Return whether the start of a file is JSON or CSV of `perf stat`."""
    return _is_json(start) or _CSV.search(start) is not None


def _is_json(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.lstrip().startswith("{")), "")
    counters = '"counter-value"' in first and '"event"' in first
    return counters or ('"metric-value"' in first and '"metric-unit"' in first) or bool(_METRICS_ONLY.search(first))


def read(output: ToolOutput) -> None:
    """Read the counters and their derived metrics."""
    is_json = _is_json(output.text)
    shape = None if is_json else _CSV.search(output.text)
    if not is_json and shape is None:
        raise FormatError("perf stat: found no line of a counter")
    run = PerfRun()
    for line in output.lines:
        if (started := _STARTED.match(line.text)) is not None:
            run.add_to(output)
            run = PerfRun()
            output.set_source(start=ctime(started[1]))
        elif line.text.startswith("#") or not line.text.strip():
            continue
        elif is_json and not line.text.lstrip().startswith("{"):
            output.other_lines += 1  # a line of the program that was measured
        else:
            with output.item(line.number):
                row = _json_row(line.text) if shape is None else _csv_row(_cells(line.text, shape["mark"]))
                if output.is_cut(line) and not line.text.endswith("}"):
                    row.metrics = [(v, u) for v, u in row.metrics if _KNOWN.fullmatch(u) or PERCENT.fullmatch(u)]
                run.take(row)
    run.add_to(output)


def _figure(text: str, what: str) -> float:
    """Return a number of at least 0, with a decimal point or, in some locales, a comma."""
    form = r"\d{1,30}(?:[.,]\d{1,30})?"
    return float(matched(form, text.strip(), "a number of at least 0", quoted(what, 60))[0].replace(",", "."))


def _unit(text: str) -> tuple[str, float]:
    """Return the SI unit of a counter or metric and its factor."""
    if text in _UNITS:
        return _UNITS[text]
    if not text.isprintable():
        raise unexpected(text, "a unit", "unit")
    unit = unit_of(text)
    return unit.si, unit.factor


def _metric(text: str, value: str) -> tuple[str, str, float] | None:
    """Return name, unit and value of a derived metric; None if the metric was not measured or is a rate over time."""
    value, text = value.strip(), text.strip()
    if not text or not text.isprintable() or value.lstrip("-+") in {"", "nan", "inf", "none"}:
        return None
    match = _NAMED.fullmatch(text)
    unit_text, name = (match[1], match[2]) if match else ("GHz" if text == "GHz" else "", text)
    unit, factor = _unit(unit_text)
    if (unit_text or text).endswith("/sec") and unit != "B/s":
        return None
    if not match and PERCENT.fullmatch(name):
        factor = 0.01
    metric = "clock" if text == "GHz" else slug(name) or "metric"
    return metric, unit, scaled(_figure(value.rstrip("%"), name), factor, name)


# ------------------------------------------------------------------ JSON


def _json_row(text: str) -> CounterLine:
    try:
        text = re.sub(r",\s*\}$", "}", text)  # Linux 6.5 ends lines without a metric with a comma
        values = json.loads(_UNQUOTED.sub(r'\1"\2"', text), parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise unexpected(text, "an object of JSON") from None
    if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
        raise unexpected(text, "an object of strings and numbers")
    row = CounterLine(
        interval="interval" in values, repeated="variance" in values, share=values.get("pcnt-running", "")
    )
    only_metrics = not {"counter-value", "metric-value", "metricgroup"} & values.keys()
    for key, value in values.items():
        if key in _KEYS:
            continue
        if not value.isprintable():
            raise unexpected(value, "a name", quoted(key, 40))
        if only_metrics and key not in _KINDS:
            row.metrics.append((value, key))
        else:
            row.place[key] = int(value[:18]) if value.isdecimal() else value
    if "counter-value" in values:
        if missing := {"event", "unit", "event-runtime", "pcnt-running"} - values.keys():
            raise FormatError(f"found no {min(missing)}, which is required")
        row.event, row.unit = _event(values["event"]), values["unit"]
        row.value = values["counter-value"].strip()
    elif only_metrics and not row.metrics:
        raise FormatError("found neither counter-value nor metric-value")
    row.group = values.get("metricgroup", "")
    if "metric-value" in values:
        row.metrics.append((values["metric-value"], values.get("metric-unit", "")))
    return row


def _event(name: str) -> str:
    if not name.strip() or not name.isprintable() or '"' in name:
        raise unexpected(name, "a name", "event")
    return name


# ------------------------------------------------------------------ CSV


def _cells(text: str, mark: str) -> list[str]:
    """Return the cells of a line. Separators within slashes, as in `cpu/event=1,umask=2/`, do not split cells."""
    cells: list[str] = []
    if mark == "," and (match := _COMMAS.fullmatch(text)) is not None:
        noise = [match["noise"] + "%"] if match["noise"] else []
        cells = [*match["place"].split(",")[:-1], match["value"], match["unit"], match["event"], *noise]
        return [*cells, match["runtime"], match["share"], match["metric"] or "", match["name"] or ""]
    for cell in text.split(mark):
        if cells and cells[-1].count("/") % 2 and not cells[-1].endswith("/sec"):
            cells[-1] += mark + cell
        else:
            cells.append(cell)
    return cells


def _csv_row(cells: Sequence[str]) -> CounterLine:
    for begin in range(min(5, len(cells))):
        if (row := _counter(cells[begin:])) is not None:
            _place(row, cells[:begin])
            return row
    nonempty = [index for index, cell in enumerate(cells) if cell.strip()]
    begin = next((index for index, cell in enumerate(cells) if not cell.strip()), len(cells))
    rest = [cells[index].strip() for index in nonempty if index >= begin]
    row = CounterLine()
    if len(rest) == 2 and nonempty[-2:] == [len(cells) - 2, len(cells) - 1]:
        row.metrics = [(rest[0], rest[1])]
    elif len(rest) in {3, 4} and rest[-3].isdecimal() and re.fullmatch(r"\d{1,3}[.,]\d\d", rest[-2]):
        row.share, row.group = rest[-2], rest[-1]
    else:
        raise FormatError(f"found {len(cells)} cells, the cells of a counter (value, unit, event …) are required")
    _place(row, cells[:begin])
    return row


def _counter(cells: Sequence[str]) -> CounterLine | None:
    """Return the counter in cells that begin with its value; None if the cells are not a counter."""
    value, unit, event, *rest = [*cells, "", "", ""]
    value = value.strip()
    if value not in _MISSING and re.fullmatch(r"\d+(?:[.,]\d+)?", value) is None:
        return None
    row = CounterLine(value=value, unit=unit.strip())
    if re.fullmatch(r"[^\d\W]*(?:/[a-z]+)?|%", row.unit) is None or not event.strip() or event[:1].isspace():
        return None
    if rest and not rest[0].endswith("%") and not rest[0].isdecimal():  # with --cgroup
        row.place["cgroup"] = rest.pop(0).strip() or None
    if rest and re.fullmatch(r"\d+[.,]\d+%", rest[0]):
        row.repeated = bool(rest.pop(0))
    if len(rest) < 2 or not rest[0].isdecimal() or re.fullmatch(r"\d{1,3}[.,]\d\d", rest[1]) is None:
        return None
    row.event, row.share = _event(event), rest[1]
    row.metrics = list(zip(rest[2::2], rest[3::2], strict=False))
    return row


def _place(row: CounterLine, cells: Sequence[str]) -> None:
    """Set the place and the interval of a line from the cells before its counter."""
    for index, text in enumerate(cells):
        cell = text.strip()
        if re.fullmatch(r"\d+\.\d{9}", cell) and not index:
            row.interval = True
        elif cell == "summary" or (cell.isdecimal() and row.place):  # the number of CPUs follows the place
            continue
        else:
            kind, name = place_of_counter(cell)
            row.place[kind] = name


def place_of_counter(text: str) -> tuple[str, Scalar]:
    """Return the kind of a place (CPU, core, socket, node, thread and so on), and its name.

    Raises:
        FormatError: The text has another form.
    """
    for kind, form in _PLACES:
        if match := form.fullmatch(text):
            return kind, int(match[1]) if kind == "cpu" else text
    raise unexpected(text, "the name of a CPU, core, socket, node or thread")


READERS: Final = [FormatReader("perf_stat", "perf stat -j and perf stat -x, JSON and CSV", recognises, read, version=2)]
