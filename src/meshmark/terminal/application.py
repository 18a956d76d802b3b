"""Prints what the runs of an application say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from meshmark.terminal.screen import table_console, text_table
from meshmark.values.scaling_text import scaling_lines, scaling_title
from meshmark.values.units import FLAG_TEXT, number, percent, plain, scale_for, size

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS: Final = ("figure", "95 % interval", "best – worst", "user", "system", "waiting", "peak", "runs")
_SPARED: Final = ("", "system", "user", "peak", "best – worst", "waiting")  # in this order, on a narrow terminal
_NARROWEST: Final = 24  # of the configurations
_UNLIMITED: Final = 100_000
_FUNCTIONS: Final = 5  # of a configuration


def print_application(found: Mapping[str, Any]) -> None:
    """Print the table of configurations, comparisons, scaling and exceptions.

    Args:
        found: The object that `--json` prints last.
    """
    console = table_console()
    titles = list(_COLUMNS)
    longest = max((len(row["configuration"]) for row in found["configurations"]), default=0)
    for spared in _SPARED:
        titles = [title for title in titles if title != spared]
        table = _table(found, titles)
        whole = console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum
        if whole - max(0, longest - _NARROWEST) <= console.width:
            break
    console.print(table)
    if any(one["functions"] for one in found["profiles"]):
        console.print()
        console.print(_hottest(found))
    for block in (_profiles, _pairs, _working_sets, _neighbours, _prefetchers, _clocks, _scaling, _exceptions, _notes):
        lines = list(block(found))
        if lines:
            console.print()
        for line in lines:
            console.print(line, soft_wrap=True)


def _table(found: Mapping[str, Any], titles: Sequence[str]) -> Table:
    """A row for each configuration, with these columns."""
    scale = scale_for(found["unit"], max((abs(r["value"]) for r in found["configurations"]), default=1.0))
    figure = found["metric"] + (f" [{scale.symbol}]" if scale.symbol else "")
    rows = []
    for row in found["configurations"]:
        ends = (row["lowest"], row["highest"])
        best, worst = ends if found["better"] == "lower" else ends[::-1]
        interval = row["interval"]
        cells = {
            "figure": number(row["value"] / scale.factor, 4),
            "95 % interval": "–" if interval is None else " – ".join(number(v / scale.factor, 4) for v in interval),
            "runs": str(row["runs"]) + (f" + {row['failed']} failed" if row["failed"] else ""),
            "best – worst": " – ".join(number(v / scale.factor, 4) for v in (best, worst)),
            "user": plain(row["user_s"], "s", 3),
            "system": plain(row["system_s"], "s", 3),
            "waiting": "–" if row["waiting_share"] is None else percent(row["waiting_share"]),
            "peak": size(row["peak_bytes"]),
        }
        rows.append([row["configuration"], *(cells[title] for title in titles)])
    return text_table(["configuration", figure, *titles[1:]], rows, numbers=range(1, len(titles) + 1), folds=[0])


def _hottest(found: Mapping[str, Any]) -> Table:
    """The first functions of each profile."""
    rows = []
    for one in found["profiles"]:
        for place, hot in enumerate(one["functions"][:_FUNCTIONS]):
            low, high = (f"{100 * end:.1f}" for end in hot["interval"])
            cells = (hot["function"], hot["object"], f"{100 * hot['share']:.1f} %", f"{low} – {high} %")
            rows.append(["" if place else one["configuration"], *cells])
    head = ["configuration", "hottest functions", "in", "share", "95 % interval"]
    return text_table(head, rows, numbers=(3, 4), folds=(0, 1, 2))


def _profiles(found: Mapping[str, Any]) -> Iterator[str]:
    """Where the profiles are, and why there are none."""
    missing: dict[str, list[str]] = {}
    for one in found["profiles"]:
        if one["reason"]:
            enable = f"; {one['enable']}" if one["enable"] else ""
            missing.setdefault(one["reason"] + enable, []).append(one["configuration"])
            continue
        lost = f", {one['lost']:,} more were lost" if one["lost"] else ""
        where = one["file"] or "not kept, since others of this run are large"
        yield f"{one['configuration']}: {one['samples']:,} samples of {one['event']}{lost}: {where}"
    for why, labels in missing.items():
        which = "all configurations" if len(labels) == len(found["profiles"]) else ", ".join(labels)
        yield f"no profile: {why}: {which}"


def _pairs(found: Mapping[str, Any]) -> Iterator[str]:
    if found["pairs"]:
        yield f"against {found['pairs'][0]['to']}:"
    for pair in found["pairs"]:
        spread = ""
        if pair["spread_interval"] and not pair["spread_interval"][0] <= 1 <= pair["spread_interval"][1]:
            low, high = pair["spread_interval"]
            spread = f"; its spread is {pair['spread']:.2g} times as large ({low:.2g} to {high:.2g})"
        yield f"  {pair['of']}: {pair['text']}{spread}"


def _working_sets(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["working_sets"]:
        of = f", {one['others']}" if one["others"] else ""
        yield f"cache{of}: {one['text']}"


def _neighbours(found: Mapping[str, Any]) -> Iterator[str]:
    """How well the processes that limited the cache kept their part."""
    rows = [row for row in found["configurations"] if row["neighbours"]]
    for row in rows:
        say = row["neighbours"]
        times = f"{plain(say['neighbours_load_s'], 's', 3)} a load, alone {plain(say['neighbours_alone_s'], 's', 3)}"
        claimed = size(say["cache_claimed_bytes"])
        kept = percent(say["neighbours_held_share"])
        yield (
            f"{row['configuration']}: neighbours kept {kept} of their part of the {claimed} that the cache has "
            f"according to the system ({times})"
        )
    if rows:
        yield (
            "note: neighbours are processes on other cores that occupy the rest of the cache. They also take bandwidth "
            "of the cache and of memory, so that differences may have other causes than the size of the cache"
        )


def _prefetchers(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["prefetchers"]:
        of = f", {one['others']}" if one["others"] else ""
        yield f"prefetchers{of}: {one['text']}"


def _clocks(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["clocks"]:
        yield f"{', '.join(filter(None, ('clock', one['others'])))}: {one['text']}"


def _scaling(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["scaling"]:
        yield f"{scaling_title(one)}:"
        for line in scaling_lines(one):
            yield f"  {line}"


def _exceptions(found: Mapping[str, Any]) -> Iterator[str]:
    for one in found["levels"]:
        yield (
            f"{one['configuration']}: two levels: {plain(one['low'], found['unit'])} in {one['low_runs']} runs, "
            f"{plain(one['high'], found['unit'])} in {one['high_runs']}; {one['evidence']}"
        )
    for label, why in found["failed"].items():
        yield f"{label}: left out: {why}"
    rows = found["configurations"]
    for flag in sorted({flag for row in rows for flag in row["flags"]}):
        those = [row["configuration"] for row in rows if flag in row["flags"]]
        which = "all configurations" if len(those) == len(rows) else ", ".join(those)
        yield f"{flag}: {FLAG_TEXT[flag]}: {which}"
    for row in rows:
        for text in row["findings"]:
            yield f"{row['configuration']}: placement: {text}"


def _notes(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["verified"]:
        yield "note: results are not verified, since the application has no [verify]"
    if found["stopped"]:
        yield f"note: {found['stopped']} before all runs; --resume {found['run']} goes on"
