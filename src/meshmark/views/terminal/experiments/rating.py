"""Prints the rating of several configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshmark.statistics.grouping import rounds_needed
from meshmark.values.units import counted, number, percent, plain, ratio_text, seconds
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console

_NEARLY: Final = 0.1  # largest p of a spread for which more rounds are recommended
_MANY_TIMES: Final = 5.0  # smallest ratio of such spreads
SINGLE_RUNS: Final = "every configuration has a single run, which shows no spread: several runs of each are needed"


def print_rating(answer: Mapping[str, Any]) -> None:
    """Print the groups in sentences, then a table of the configurations, then how the rating was reached.

    Args:
        answer: The object that `--json` prints.
    """
    console = table_console()
    for line in sentences(answer):
        console.print(line, soft_wrap=True)
    console.print()
    print_table(console, table(answer))
    console.print()
    for line in notes(answer):
        console.print(line, style="dim", soft_wrap=True)


def table(answer: Mapping[str, Any]) -> TextTable:
    """Return a row for each configuration, the best group first."""
    unit = answer["unit"]
    below = f"\n{unit}" if unit not in ("", "1") else ""
    values = [f"{name}{below}" for name in ("median", "95 %", "best", "worst")]
    head = ["group", "configuration", "runs", *values, "spread", "starts"]
    rows = []
    for one in answer["configurations"]:
        bounds = "–" if one["low"] is None else f"{plain(one['low'], '')} – {plain(one['high'], '')}"
        starts = [_starts(count, level, one["places"].get(level, {})) for level, count in one["starts"].items()]
        rows.append(
            [
                one["group"],
                one["configuration"],
                str(one["runs"]),
                plain(one["median"], ""),
                bounds,
                plain(one["best"], ""),
                plain(one["worst"], ""),
                "–" if one["spread"] is None else percent(one["spread"]),
                "; ".join(starts),
            ]
        )
    return TextTable(head, rows, numbers=(2, 3, 4, 5, 6, 7), folds=[1, 8], spare=[4, 5])


def _starts(count: int, level: str, places: Mapping[str, int]) -> str:
    """Return at which level starts lie, and where they were: `5 at A (4 stayed, 1 with remote pages)`."""
    at = level if " " in level else f"at {level}"
    if places.keys() <= {"not observed"}:
        return f"{count} {at}"
    if len(places) == 1:
        return f"{count} {at} ({next(iter(places))})"
    return f"{count} {at} ({', '.join(f'{number_of} {place}' for place, number_of in places.items())})"


def sentences(answer: Mapping[str, Any]) -> list[str]:
    """Return the groups, and by what they differ."""
    groups, unit = answer["groups"], answer["unit"]
    if all(one["runs"] == 1 for one in answer["configurations"]):
        return [SINGLE_RUNS]
    if len(groups) == 1:
        number_of = len(answer["configurations"])
        if number_of == 1:
            return [f"one configuration, {counted(groups[0]['runs'], 'run')}"]
        return [f"one group: no differences were found between the {number_of} configurations{_smallest_p(answer)}"]
    lines = [f"{len(groups)} groups among {len(answer['configurations'])} configurations"]
    for group in groups:
        names = group["configurations"]
        shown = ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
        lines.append(f"{group['group']}: {plain(group['median'], unit)}: {shown}")
    return [*lines, *_differences(answer)]


def _differences(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each cut between groups."""
    for cut in answer["cuts"]:
        if not cut["counts"]:
            if cut["kind"] == "spread" and cut["p"] <= _NEARLY and cut["ratio"] > _MANY_TIMES:
                low, high = (_listed(cut[side]) for side in ("low", "high"))
                yield (
                    f"more rounds may show that {high} scatter more than {low}: {ratio_text(cut['ratio'])} × as much, "
                    f"but p = {number(cut['p'], 2)}"
                )
            continue
        low, high = (_listed(cut[f"{side}_groups"]) for side in ("low", "high"))
        if cut["kind"] == "level":
            verb = "lies" if len(cut["high_groups"]) == 1 else "lie"
            yield f"{high} {verb} {percent(cut['ratio'] - 1)} above {low} (p = {number(cut['p'], 2)})"
        else:
            yield (
                f"{high} {'has' if len(cut['high_groups']) == 1 else 'have'} the level of {low}, but the runs scatter "
                f"{ratio_text(cut['ratio'])} × as much (p = {number(cut['p'], 2)})"
            )


def _listed(groups: Sequence[str]) -> str:
    return groups[0] if len(groups) == 1 else f"{', '.join(groups[:-1])} and {groups[-1]}"


def _smallest_p(answer: Mapping[str, Any]) -> str:
    """Return why the best cut does not count."""
    level = next((cut for cut in answer["cuts"] if cut["kind"] == "level"), None)
    if level is None:
        return ""
    if level["p"] <= answer["significance"]:
        return f" that exceed the margin of {percent(answer['margin'])}"
    return f" (p = {number(level['p'], 2)}; a difference counts from p = {answer['significance']:g} on)"


def notes(answer: Mapping[str, Any]) -> list[str]:
    """Return how the rating was reached, and reasons to doubt it."""
    lines = ["spread: mean absolute deviation from the median; starts: how many runs lie at the level of each group"]
    session = answer.get("session")
    if session is None:
        lines.append("the runs are from a file; whether the configurations alternated is unknown")
        return lines
    count = len(answer["configurations"])
    if count > 1 and (few := rounds_needed(count)) > session["rounds"]:
        lines.append(f"{counted(session['rounds'], 'round')} cannot show a difference; at least {few} are needed")
    lines.append(
        f"stopped because {session['stopped']}, after {seconds(session['spent_s'])}; "
        f"{counted(session['runs'], 'run')}; seed {session['seed']}"
    )
    for name, reason in session["left_out"].items():
        lines.append(f"left out: {name}: {reason}")
    for name, reasons in session["failed"].items():
        if name not in session["left_out"]:
            lines.append(f"{name}: {counted(len(reasons), 'run')} failed: {reasons[-1]}")
    if session["disturbance"]:
        lines.append(f"{session['disturbance']}: the result holds only beside such work")
    if rest := [flag for flag in session["flags"] if flag not in session["disturbance"]]:
        lines.append(f"flagged: {', '.join(rest)}")
    return [line.replace("\u00a0", " ") for line in lines]
