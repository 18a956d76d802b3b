"""Prints composites: a row for each member, and the geometric mean with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshmark.values.units import FLAG_TEXT, number, plain
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console


def print_composite(answer: Mapping[str, Any]) -> None:
    """Print the members and the composite of a measurement.

    Args:
        answer: The object that `--json` prints last.
    """
    console = table_console()
    rows = [
        [
            row["member"],
            "failed" if row["value"] is None else plain(row["value"], row["unit"], 4),
            "–" if row["reference"] is None else plain(row["reference"], row["unit"], 4),
            "–" if row["ratio"] is None else number(row["ratio"], 4),
            "–" if row["ratios"] is None else " – ".join(number(v, 4) for v in row["ratios"]),
            str(len(row["values"])) + (f" + {row['failed']} failed" if row["failed"] else ""),
        ]
        for row in answer["members"]
    ]
    columns = ["member", "median", "reference", "ratio", "lowest – highest", "runs"]
    print_table(console, TextTable(columns, rows, numbers=range(1, 6), folds=[0]))
    console.print()
    console.print(_whole(answer), soft_wrap=True)
    for row in answer["members"]:
        if row["reason"]:
            console.print(f"{row['member']}: left out: {row['reason']}", soft_wrap=True)
    for flag in sorted({flag for row in answer["members"] for flag in row["flags"]}):
        flagged = [row["member"] for row in answer["members"] if flag in row["flags"]]
        members = "all members" if len(flagged) == len(answer["members"]) else ", ".join(flagged)
        console.print(f"{flag}: {FLAG_TEXT[flag]}: {members}", soft_wrap=True)
    if answer["stopped"]:
        console.print(f"note: {answer['stopped']}; --resume {answer['run']} continues", soft_wrap=True)


def _whole(answer: Mapping[str, Any]) -> str:
    if answer["value"] is None:
        return f"no composite: {answer['refused']}"
    interval = answer["interval"]
    bounds = "" if interval is None else f" (95 %: {number(interval[0], 4)} to {number(interval[1], 4)})"
    return (
        f"composite {answer['name']}: {number(answer['value'], 4)}{bounds}, geometric mean of "
        f"{len(answer['members'])} ratios to {answer['reference']['machine']}"
    )


def print_composites(found: Sequence[Mapping[str, Any]]) -> None:
    """Print composites of the same members: a row for each member, and a line for each composite."""
    console = table_console()
    columns = ["member", *(composite["name"] for composite in found)]
    rows = [
        [
            member,
            *(
                number(composite["members"][member], 3) if member in composite["members"] else "–"
                for composite in found
            ),
        ]
        for member in dict.fromkeys(name for composite in found for name in composite["members"])
    ]
    print_table(console, TextTable(columns, rows, numbers=range(1, len(columns)), folds=range(len(columns))))
    for composite in found:
        value = (
            f"{composite['name']}: geometric mean of {len(composite['members'])} ratios "
            f"{number(composite['value'], 3)}{_bounds(composite)}"
        )
        console.print(value, soft_wrap=True)
        if composite["bounds_by"] == "rounding":
            verb = "follows" if composite["follows"] else "does not follow"
            console.print(f"  printed {number(composite['stated'], 3)}, which {verb} from the ratios", soft_wrap=True)
        if composite["note"]:
            console.print(f"  {composite['note']}", soft_wrap=True)
        for flag in composite["flags"]:
            console.print(f"  {flag}: {FLAG_TEXT[flag]}", soft_wrap=True)
    console.print()


def print_comparison(answer: Mapping[str, Any]) -> None:
    """Print the ratio of one composite to another."""
    console = table_console()
    by_member = sorted(answer["members"].items(), key=lambda item: item[1])
    ends = " to ".join(f"{number(value, 3)} ({name})" for name, value in (by_member[0], by_member[-1]))
    bounds = answer["bounds"] and f" ({number(answer['bounds'][0], 3)} to {number(answer['bounds'][1], 3)})"
    stated = answer["stated"] and f"; by the printed composites {number(answer['stated'], 3)}"
    text = f"{answer['of']}, over {answer['to']}: {number(answer['ratio'], 3)}{bounds or ''}{stated or ''}"
    console.print(text, soft_wrap=True)
    console.print(f"  members: {ends}", soft_wrap=True)


def _bounds(one: Mapping[str, Any]) -> str:
    if one["bounds"] is None:
        return ""
    by = "by rounding" if one["bounds_by"] == "rounding" else "95 %"
    return f" ({by}: {number(one['bounds'][0], 3)} to {number(one['bounds'][1], 3)})"
