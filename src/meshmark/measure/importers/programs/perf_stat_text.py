"""Reader of the text of `perf stat`, in any locale, with or without -r, -I, -A, --per-socket and so on.

Counts are whole numbers, so every separator in them separates thousands. Values with a unit have two decimals, or six
before Linux 4.16. The numbers of derived metrics have no thousands separator. The records of counters and metrics are
like the records of `perf_stat`; the run times below the counters are read, too.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, has, unexpected
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.programs.perf_stat import PERCENT, CounterLine, PerfRun, place_of_counter
from meshmark.measure.importers.quantities import unit_of

_TITLE: Final = re.compile(
    r"^\s{0,8}Performance counter stats for (?P<command>.{1,400}?)(?: \((?P<runs>\d+) runs\))?:$"
)
_INTERVALS: Final = re.compile(r"^#\s+time\s(?:\s*\w+){0,3}\s+counts unit events$")
_SEPARATOR: Final = "[.,'\u2019\u00a0\u202f ]"
_VALUE: Final = rf"<not counted>|<not supported>|\d{{1,3}}(?:{_SEPARATOR}\d{{3}})+(?:[.,]\d\d)?|\d+(?:[.,]\d+)?"
_COUNTER: Final = re.compile(
    r"\s*(?:(?P<time>\d+[.,]\d{9})\s+)?(?:(?P<place>CPU\d{1,9}|[SN]\d{1,9}(?:-\w+)*|\S+-\d{1,9})\s+(?:(?P<cpus>\d{1,9})\s{2,})?)?"
    rf"(?P<value>{_VALUE})\s+(?:(?P<unit>[A-Za-z%][^\s#(]{{0,19}})\s+)?(?P<event>[A-Za-z_{{][^\s#]*)"
    r"(?:\s+\((?P<after>msec)\))?\s*(?P<rest>(?:#|\().*)?"
)
_GROUP: Final = re.compile(r"\s*(?P<group>[A-Za-z]\S*(?: \(\w+\))?)\s+(?P<rest>#.*)")
_METRIC: Final = re.compile(r"#\s+(?P<value>\d+(?:[.,]\d+)?|-?nan|-?inf)\s*(?P<percent>%)?\s*(?P<name>[^\d\s%].*)")
_SPREAD: Final = re.compile(r"\(\s*\+-\s*[\d.,]+%\s*\)")
_SHARE: Final = re.compile(r"\(\s*(\d{1,3}[.,]\d\d)%\)$")
_TIME: Final = re.compile(
    r"\s*(?P<value>\d+[.,]\d+)(?P<spread> \+- [\d.,]+)? seconds (?P<name>time elapsed|user|sys)(?:\s+\(.*)?"
)
_TIMES: Final = {"time elapsed": "elapsed", "user": "user_time", "sys": "system_time"}
_KNOWN_UNITS: Final = {"s", "B", "B/s", "J", "W", "Hz", "1"}
_CLOCKS: Final = {"task-clock", "cpu-clock"}  # in ms; perf before Linux 3.14 prints no unit


def read(output: ToolOutput) -> None:
    """Read the counters, their derived metrics and the run times of each run."""
    run: PerfRun | None = None
    is_repeated = has_times = has_intervals = False
    for line in output.lines:
        title = _TITLE.match(line.text)
        if title or _INTERVALS.match(line.text):
            if run is not None:
                run.add_to(output)
            run, has_times, has_intervals = PerfRun(), False, title is None
            is_repeated = title is not None and title["runs"] is not None
            output.set_source(command=_command(title["command"]) if title else "")
        elif run is not None and (elapsed := _TIME.fullmatch(line.text)):
            has_times = True
            with output.item(line.number):
                statistic = "mean" if is_repeated else None
                seconds = float(elapsed["value"].replace(",", "."))
                output.add_tool_metric(_TIMES[elapsed["name"]], "s", seconds, "lower", statistic=statistic)
        elif run is not None and line.text.strip() and not has_times:
            _line(output, run, line, has_intervals=has_intervals)
    if run is not None:
        run.add_to(output)


def _command(text: str) -> str:
    return text[1:-1] if re.fullmatch(r"'.*'", text) else text


def _line(output: ToolOutput, run: PerfRun, line: OutputLine, *, has_intervals: bool) -> None:
    counter = _COUNTER.fullmatch(line.text)
    if has_intervals and (counter is None or not counter["time"]) and not line.text.lstrip().startswith("#"):
        output.other_lines += 1  # a line of the program that was measured
        return
    with output.item(line.number):
        if counter is not None:
            row = _row(counter)
            rest = counter["rest"] or ""
        else:
            group = _GROUP.fullmatch(line.text)
            rest = group["rest"] if group else line.text.strip()
            if not rest.startswith("#"):
                raise FormatError(f"found '{quoted(line.text.strip(), 60)}', a value and an event are required")
            row = CounterLine(group=group["group"] if group else "")
        _add_metrics(row, rest)
        run.take(row)


def _row(counter: re.Match[str]) -> CounterLine:
    unit = counter["unit"] or counter["after"] or ("msec" if counter["event"] in _CLOCKS else "")
    if unit and unit != "Joules" and unit_of(unit).si not in _KNOWN_UNITS:
        raise unexpected(unit, "a unit", counter["event"])
    row = CounterLine(event=counter["event"], value=_plain(counter["value"], bool(unit)), unit=unit, share="100")
    row.interval = counter["time"] is not None
    if counter["place"]:
        kind, name = place_of_counter(counter["place"])
        row.place[kind] = name
    return row


def _plain(text: str, has_unit: bool) -> str:
    """Return a value without thousands separators and with a decimal point.

    Raises:
        FormatError: The value has decimals without a unit, or a separator may be of thousands or of decimals.
    """
    if text.startswith("<"):
        return text
    head, mark, decimals = text, "", ""
    if match := re.fullmatch(r"(.*\d)([.,])(\d\d|\d{6})", text):
        head, mark, decimals = match.groups()
    separators = {*re.findall(r"\D", head)}
    if len(separators) > 1 or mark in separators or (bool(decimals) != has_unit and (decimals or separators)):
        raise unexpected(text, "a count, or a number with two decimals and a unit")
    return re.sub(r"\D", "", head) + ("." + decimals if decimals else "")


def _add_metrics(row: CounterLine, rest: str) -> None:
    row.repeated = _SPREAD.search(rest) is not None
    text = _SPREAD.sub("", rest).strip()
    if share := _SHARE.search(text):
        row.share = share[1]
        text = text[: share.start()].strip()
    if not text:
        return
    metric = _METRIC.fullmatch(text)
    if metric is None:
        raise unexpected(text, "a metric")
    name = metric["name"].strip()
    if metric["percent"] and not PERCENT.fullmatch(name):
        name = f"%  {name}"
    row.metrics.append((metric["value"], name))


READERS: Final = [
    FormatReader(
        "perf_stat_text",
        "perf stat, text",
        has(re.compile(_TITLE.pattern, re.MULTILINE), re.compile(_INTERVALS.pattern, re.MULTILINE)),
        read,
        tool="perf_stat",
    )
]
