"""Prints the results of the runs of an application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshmark.statistics.scaling_text import scaling_lines, scaling_title
from meshmark.values.units import FLAG_TEXT, number, percent, plain, scale_for, size
from meshmark.views.content.functions import HotFunction, function_table
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console

_FUNCTIONS: Final = 5  # most functions of a configuration


def print_application(answer: Mapping[str, Any]) -> None:
    """Print the table of configurations, comparisons, scaling and exceptions.

    Args:
        answer: The object that `--json` prints last.
    """
    console = table_console()
    print_table(console, _table(answer))
    functions = function_table(
        (
            (
                profile["configuration"],
                [HotFunction(f["function"], f["object"], f["share"], f["interval"]) for f in profile["functions"]],
            )
            for profile in answer["profiles"]
        ),
        _FUNCTIONS,
    )
    if functions.rows:
        console.print()
        print_table(console, functions)
    for block in (_profiles, _pairs, _working_sets, _neighbours, _prefetchers, _clocks, _scaling, _exceptions, _notes):
        lines = list(block(answer))
        if lines:
            console.print()
        for line in lines:
            console.print(line, soft_wrap=True)


def _table(answer: Mapping[str, Any]) -> TextTable:
    """Return a table with a row for each configuration."""
    scale = scale_for(answer["unit"], max((abs(r["value"]) for r in answer["configurations"]), default=1.0))

    def between(ends: Sequence[float] | None) -> str:
        return "–" if ends is None else " – ".join(number(v / scale.factor, 4) for v in ends)

    figure = answer["metric"] + (f" [{scale.symbol}]" if scale.symbol else "")
    rows = []
    for row in answer["configurations"]:
        ends = (row["lowest"], row["highest"])
        rows.append(
            [
                row["configuration"],
                number(row["value"] / scale.factor, 4),
                between(row["interval"]),
                between(ends if answer["better"] == "lower" else ends[::-1]),
                plain(row["user_s"], "s", 3),
                plain(row["system_s"], "s", 3),
                "–" if row["waiting_share"] is None else percent(row["waiting_share"]),
                size(row["peak_bytes"]),
                str(row["runs"]) + (f" + {row['failed']} failed" if row["failed"] else ""),
            ]
        )
    columns = ["configuration", figure, "95 % interval", "best – worst", "user", "system", "waiting", "peak", "runs"]
    spare = [columns.index(name) for name in ("system", "user", "peak", "best – worst", "waiting")]
    return TextTable(columns, rows, numbers=range(1, len(columns)), folds=[0], spare=spare)


def _profiles(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the profiles are, and why some are missing."""
    missing: dict[str, list[str]] = {}
    for profile in answer["profiles"]:
        if profile["reason"]:
            enable = f"; {profile['enable']}" if profile["enable"] else ""
            missing.setdefault(profile["reason"] + enable, []).append(profile["configuration"])
            continue
        lost_text = f", {profile['lost']:,} more were lost" if profile["lost"] else ""
        where = profile["file"] or "not kept, since others of this run are large"
        yield f"{profile['configuration']}: {profile['samples']:,} samples of {profile['event']}{lost_text}: {where}"
    for reason, labels in missing.items():
        labels_text = "all configurations" if len(labels) == len(answer["profiles"]) else ", ".join(labels)
        yield f"no profile: {reason}: {labels_text}"


def _pairs(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["pairs"]:
        yield f"against {answer['pairs'][0]['to']}:"
    for pair in answer["pairs"]:
        spread = ""
        if pair["spread_interval"] and not pair["spread_interval"][0] <= 1 <= pair["spread_interval"][1]:
            low, high = pair["spread_interval"]
            spread = f"; its spread is {pair['spread']:.2g} times as large ({low:.2g} to {high:.2g})"
        yield f"  {pair['of']}: {pair['text']}{spread}"


def _working_sets(answer: Mapping[str, Any]) -> Iterator[str]:
    for working_set in answer["working_sets"]:
        others = f", {working_set['others']}" if working_set["others"] else ""
        yield f"cache{others}: {working_set['text']}"


def _neighbours(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield how well the processes that limited the cache kept their part of it."""
    rows = [row for row in answer["configurations"] if row["neighbours"]]
    for row in rows:
        measurement = row["neighbours"]
        times = (
            f"{plain(measurement['neighbours_load_s'], 's', 3)} a load, alone "
            f"{plain(measurement['neighbours_alone_s'], 's', 3)}"
        )
        cache_size = size(measurement["cache_claimed_bytes"])
        held_share = percent(measurement["neighbours_held_share"])
        yield (
            f"{row['configuration']}: neighbours kept {held_share} of their part of the {cache_size} that the kernel "
            f"reports for the cache ({times})"
        )
    if rows:
        yield (
            "note: neighbours are processes on other cores that occupy the rest of the cache. They also take bandwidth "
            "of the cache and of memory, so that differences may have other causes than the size of the cache"
        )


def _prefetchers(answer: Mapping[str, Any]) -> Iterator[str]:
    for comparison in answer["prefetchers"]:
        others = f", {comparison['others']}" if comparison["others"] else ""
        yield f"prefetchers{others}: {comparison['text']}"


def _clocks(answer: Mapping[str, Any]) -> Iterator[str]:
    for comparison in answer["clocks"]:
        yield f"{', '.join(filter(None, ('clock', comparison['others'])))}: {comparison['text']}"


def _scaling(answer: Mapping[str, Any]) -> Iterator[str]:
    for fit in answer["scaling"]:
        yield f"{scaling_title(fit)}:"
        for line in scaling_lines(fit):
            yield f"  {line}"


def _exceptions(answer: Mapping[str, Any]) -> Iterator[str]:
    for levels in answer["levels"]:
        yield (
            f"{levels['configuration']}: two levels: {plain(levels['low'], answer['unit'])} in {levels['low_runs']} "
            f"runs, {plain(levels['high'], answer['unit'])} in {levels['high_runs']}; {levels['evidence']}"
        )
    for label, reason in answer["failed"].items():
        yield f"{label}: left out: {reason}"
    rows = answer["configurations"]
    for flag in sorted({flag for row in rows for flag in row["flags"]}):
        flagged = [row["configuration"] for row in rows if flag in row["flags"]]
        labels_text = "all configurations" if len(flagged) == len(rows) else ", ".join(flagged)
        yield f"{flag}: {FLAG_TEXT[flag]}: {labels_text}"
    for row in rows:
        for text in row["findings"]:
            yield f"{row['configuration']}: placement: {text}"


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    if not answer["verified"]:
        yield "note: results are not verified, since the application has no [verify]"
    if answer["stopped"]:
        yield f"note: {answer['stopped']} before all runs; --resume {answer['run']} continues"
