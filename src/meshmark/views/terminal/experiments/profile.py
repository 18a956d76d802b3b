"""Prints profiles of programs, and predictions from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from meshmark.machine.tree import format_list
from meshmark.profiles.profile import interval_of
from meshmark.values.units import counted, number, percent, plain, ratio_text, size
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console


def print_profile(answer: Mapping[str, Any]) -> None:
    """Print what limits a program and what it takes, then the table of pressures.

    Args:
        answer: The object that `--json` prints.
    """
    console = table_console()
    for line in sentences(answer):
        console.print(line, soft_wrap=True)
    console.print()
    print_table(console, table(answer))
    for line in notes(answer):
        console.print(line, style="dim", soft_wrap=True)


def sentences(answer: Mapping[str, Any]) -> list[str]:
    """Return what limits the program with the evidence, and what it does to its neighbours."""
    unknown = "the runs vary too much, or are too few, to tell what limits"
    lines = [
        f"{answer['name']} is limited by {answer['limited_by']}"
        if answer["limited_by"]
        else f"{unknown} {answer['name']}"
    ]
    for limit in answer["limits"]:
        verdict = {"yes": "", "no": ": less than 5 %", "unknown": ": the runs vary too much to tell"}[limit["matters"]]
        effect = next(e for e in answer["effects"] if e["name"] == limit["pressure"])
        lines.append(f"  {limit['component']}: {_times(limit)} beside {beside(effect)}{verdict}")
    taken = answer["demand"]
    if taken is not None:
        shares = sorted(taken["shares"].items(), key=lambda item: -item[1])
        parts = [
            f"{percent(share)} {name if name != 'none' else 'no neighbour'}" for name, share in shares if share >= 0.01
        ]
        lines.append(f"it affects its neighbours like a mixture of {', '.join(parts)}")
        rate = plain(taken["bytes_per_s"], "B/s", 3)
        lines.append(f"  that is {rate} of memory traffic and {size(taken['cache_bytes'])} of the shared cache")
    return lines


def _times(limit: Mapping[str, Any]) -> str:
    bounds = "" if limit["low"] is None else f" ({ratio_text(limit['low'])} – {ratio_text(limit['high'])})"
    return f"{ratio_text(limit['factor'])} times as long{bounds}"


def beside(effect: Mapping[str, Any]) -> str:
    """Return in words what neighbours do."""
    if effect["kind"] == "compute":
        return "neighbours that compute, as alone"
    if effect["kind"] == "cache":
        return f"neighbours that fill {size(effect['footprint_bytes'])} of caches, as beside neighbours that compute"
    rate = plain(effect["bytes_per_s"], "B/s", 3)
    return f"neighbours that transfer {rate} from and to memory, as beside neighbours that fill the cache"


def table(answer: Mapping[str, Any]) -> TextTable:
    """Return a row for each pressure."""
    rows = []
    for effect in answer["effects"]:
        interval = interval_of(effect["slowdowns"])
        bounds = "–" if interval is None else f"{ratio_text(interval[0])} – {ratio_text(interval[1])}"
        rate = effect["bytes_per_s"]
        rows.append(
            [
                effect["name"],
                plain(rate, "B/s", 3) if rate else "–",
                ratio_text(median(effect["slowdowns"])),
                bounds,
                ratio_text(min(effect["slowdowns"])),
                ratio_text(max(effect["slowdowns"])),
                ratio_text(median(effect["caused"])) if effect["caused"] else "–",
            ]
        )
    head = ["beside", "neighbours\ntransfer", "time\n/ alone", "95 %", "best", "worst", "neighbours'\ntime / alone"]
    return TextTable(head, rows, numbers=(1, 2, 3, 4, 5, 6), spare=[4, 5])


def notes(answer: Mapping[str, Any]) -> list[str]:
    """Return the conditions of a profile."""
    alone = answer["alone"]
    cpus, others = (format_list(list(answer[name])) for name in ("program_cpus", "neighbour_cpus"))
    lines = [
        f"alone: {plain(median(alone), answer['unit'])}, best {plain(_best(answer), answer['unit'])}, "
        f"{counted(len(alone), 'run')}; program on CPUs {cpus}, neighbours on CPUs {others}"
    ]
    if answer["flags"]:
        lines.append(f"flags: {', '.join(answer['flags'])}")
    if answer["run"]:
        lines.append(f"run {answer['run']}: meshmark predict neighbours {answer['run']} OTHER")
    return lines


def _best(answer: Mapping[str, Any]) -> float:
    return float(max(answer["alone"]) if answer["better"] == "higher" else min(answer["alone"]))


def print_profiles(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print a list of programs by the component that limits them."""
    rows = []
    for answer in sorted(answers, key=lambda one: (one["limited_by"], -one["limits"][0]["factor"])):
        first, taken = answer["limits"][0], answer["demand"]
        rows.append(
            [
                answer["name"],
                answer["limited_by"] or "not known",
                _times(first).replace(" times as long", ""),
                plain(taken["bytes_per_s"], "B/s", 3) if taken else "–",
                size(taken["cache_bytes"]) if taken else "–",
                ", ".join(answer["flags"]),
            ]
        )
    head = ["program", "limited by", "time beside pressure (95 %)", "takes of memory", "of the cache", "flags"]
    print_table(table_console(), TextTable(head, rows, numbers=(3, 4), folds=[1, 5], spare=[5]))


def print_neighbours(answer: Mapping[str, Any]) -> None:
    """Print predicted slowdowns of programs beside each other, and the best pairs.

    Args:
        answer: The object that `--json` prints.
    """
    console = table_console()
    rows = []
    for one in answer["predictions"]:
        row = [one["program"], one["neighbour"], ratio_text(one["slowdown"]), _bounds(one)]
        if one["measured"] is not None:
            row += [
                ratio_text(one["measured"]),
                _bounds(one, "measured_"),
                f"{100 * (one['slowdown'] - one['measured']):+.1f}",
            ]
        rows.append(row)
    is_checked = any(one["measured"] is not None for one in answer["predictions"])
    head = ["program", "beside", "time / alone,\npredicted", "95 %"]
    head += ["measured", "95 %", "off by\npoints"] if is_checked else []
    print_table(
        console, TextTable(head, [row + ["–"] * (len(head) - len(row)) for row in rows], numbers=range(2, len(head)))
    )
    for pair in answer["pairs"]:
        first, second = pair["programs"]
        times = " and ".join(map(ratio_text, pair["slowdowns"]))
        console.print(f"best together: {first} and {second}, which take {times} times as long", soft_wrap=True)
    for line in prediction_notes(answer):
        console.print(line, style="dim", soft_wrap=True)


def prediction_notes(answer: Mapping[str, Any]) -> list[str]:
    """Return the conditions of predictions, and how far they were off."""
    cpus, others = (format_list(list(answer[name])) for name in ("program_cpus", "neighbour_cpus"))
    lines = [f"program on CPUs {cpus}, neighbour on CPUs {others} of {answer['machine']}"]
    errors = [
        100 * abs(one["slowdown"] - one["measured"]) for one in answer["predictions"] if one["measured"] is not None
    ]
    if errors:
        lines.append(
            f"off by {number(median(errors), 2)} percentage points in the median, by {number(max(errors), 2)} at most"
        )
    lines += [
        f"{one['program']} beside {one['neighbour']} was not measured: {one['reason']}"
        for one in answer["predictions"]
        if one["reason"]
    ]
    flags = {flag for one in answer["predictions"] for flag in one["measured_flags"]}
    if flags:
        lines.append(f"flags of the runs together: {', '.join(sorted(flags))}")
    if answer["flags"]:
        lines.append(f"flags of the profiles: {', '.join(answer['flags'])}")
    return lines


def _bounds(one: Mapping[str, Any], prefix: str = "") -> str:
    low, high = one[f"{prefix}low"], one[f"{prefix}high"]
    return "–" if low is None else f"{ratio_text(low)} – {ratio_text(high)}"


def print_times(answers: Sequence[Mapping[str, Any]]) -> None:
    """Print the predicted times of programs on other machines.

    Args:
        answers: The objects that `--json` prints.
    """
    console = table_console()
    rows = []
    for one in answers:
        here, there, low, high = (plain(one[name], one["unit"]) for name in ("there", "value", "low", "high"))
        shares = sorted(one["shares"].items(), key=lambda item: -item[1])
        parts = ", ".join(f"{percent(share)} {name}" for name, share in shares if share >= 0.05)
        rows.append([one["program"], one["machine"], here, there, f"{low} – {high}", parts])
    head = ["program", "machine", "on the machine\nof the profile", "predicted", "not excluded", "like"]
    print_table(console, TextTable(head, rows, numbers=(2, 3, 4), folds=[5], spare=[5]))
    for line in reversals(answers):
        console.print(line, soft_wrap=True)


def reversals(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return where the ranking of machines differs between programs, if the intervals of neither contain the other."""
    ratios: dict[str, dict[str, Mapping[str, Any]]] = {}
    for one in answers:
        ratios.setdefault(one["program"], {})[one["machine"]] = one
    lines = []
    programs = list(ratios)
    for first, second in itertools.combinations(programs, 2):
        for a, b in itertools.combinations(ratios[first].keys() & ratios[second].keys(), 2):
            better = [_is_faster(ratios[program][a], ratios[program][b]) for program in (first, second)]
            if set(better) == {True, False}:
                fast = (a, b) if better[0] else (b, a)
                lines.append(f"{first} is faster on {fast[0]}, {second} on {fast[1]}")
    return lines


def _is_faster(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether the ratio of times on one machine is surely smaller; None if that is not clear."""
    if one["ratio_high"] < other["ratio_low"]:
        return True
    return False if other["ratio_high"] < one["ratio_low"] else None


def print_rates(answer: Mapping[str, Any]) -> None:
    """Print the rates of load kernels.

    Args:
        answer: The object that `--json` prints.
    """
    rows = [
        [one["kind"], size(one["footprint_bytes"]) if one["footprint_bytes"] else "–", plain(one["units_per_s"], "1/s")]
        for one in answer["kernels"]
    ]
    print_table(table_console(), TextTable(["kernel", "memory", "units per second"], rows, numbers=(1, 2)))
