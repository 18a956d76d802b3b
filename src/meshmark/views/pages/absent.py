"""Groups what a run did not measure by the reason, and names the commands that measure it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.store.run import Absence
from meshmark.values.units import counted
from meshmark.views.charts.drawing import condition_text
from meshmark.views.tables import TextTable

_BUDGET: Final = re.compile(r"^the budget of \S+ \S+ ended before (its|their) first sample$")
_BUDGET_ENDED: Final = "the budget ended before the first sample"
_NOT_REPEATED: Final = ("--machine", "--seed", "--resume", "--diagnose")  # options that the survey adds
_KIB: Final = 1024
# Conditions of a point whose values can be given to the option of the same name.
_NARROWED: Final = ("kernel", "store", "threads", "pages", "pattern", "processes", "footprint_bytes", "stride_bytes")


@dataclass(frozen=True, slots=True)
class AbsentGroup:
    """Absences with the same reason and remedy.

    Attributes:
        summary: Count, instruments and reason: `49 points of latency and bandwidth: the budget ended before
            the first sample`.
        enable: How to make the results available, in words; "" if there are commands, or if there is no way.
        commands: Commands that measure the absent points.
        table: The absent points; None if the summary says everything.
    """

    summary: str
    enable: str
    commands: Sequence[str]
    table: TextTable | None


def absent_groups(absences: Sequence[Absence], steps: Sequence[Mapping[str, Any]] = ()) -> list[AbsentGroup]:
    """Return the absences grouped by kind, reason and remedy, the largest group first.

    Args:
        absences: Absences of a run.
        steps: The steps of the run, as in `RunInfo`; without them no commands are named.
    """
    groups: dict[tuple[str, str, str], list[Absence]] = {}
    for a in absences:
        reason = _BUDGET_ENDED if _BUDGET.match(a.reason) else a.reason
        groups.setdefault((a.kind, reason, a.enable), []).append(a)
    argv = {str(s.get("id")): [str(word) for word in s.get("argv", ())] for s in steps}
    return [_group(*key, same, argv) for key, same in sorted(groups.items(), key=lambda g: -len(g[1]))]


def _group(
    kind: str, reason: str, enable: str, same: Sequence[Absence], argv: Mapping[str, Sequence[str]]
) -> AbsentGroup:
    # The same point may be absent in several repetitions.
    unique = {(a.instrument, a.metric, str(sorted(a.conditions.items()))): a for a in same}
    instruments = [*dict.fromkeys(a.instrument for a in same)]
    instrument_names = " and ".join(filter(None, (", ".join(instruments[:-1]), instruments[-1])))
    points = [a for a in unique.values() if a.conditions]
    subject = (
        f"{counted(len(points), 'point')} of {instrument_names}" if len(points) == len(unique) else instrument_names
    )
    summary = f"{subject}{' failed' if kind == 'error' else ''}: {reason}"
    commands = _commands(same, argv) if reason == _BUDGET_ENDED else []
    table = _table([*unique.values()]) if points or any(a.metric for a in same) else None
    return AbsentGroup(summary, "" if commands else enable, commands, table)


def _table(same: Sequence[Absence]) -> TextTable:
    """Return one line for each point, without the conditions that all share unless there is only one point."""
    keys = dict.fromkeys(k for a in same for k in a.conditions)
    shown = [k for k in keys if len(same) == 1 or len({str(a.conditions.get(k)) for a in same}) > 1]
    rows = [
        [
            f"{a.instrument} · {a.metric}" if a.metric else a.instrument,
            ", ".join(condition_text(k, a.conditions[k]) for k in shown if k in a.conditions),
        ]
        for a in same
    ]
    return TextTable(["metric", "point"], rows, folds=(0, 1))


def _commands(same: Sequence[Absence], argv: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the commands of the absences' steps with only the values of their points; [] if a step is unknown."""
    by_command: dict[tuple[str, ...], list[Absence]] = {}
    for a in same:
        words = _options(argv.get(a.step or "", ()))
        if not words:
            return []
        by_command.setdefault(words, []).append(a)
    return [_narrowed(words, points) for words, points in by_command.items()]


def _options(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a step without the options that the survey adds."""
    options: list[str] = []
    words = iter(argv)
    for word in words:
        if word in _NOT_REPEATED:
            next(words, None)
        else:
            options.append(word)
    return tuple(options)


def _narrowed(words: Sequence[str], points: Sequence[Absence]) -> str:
    """Return the command with its options narrowed to the values of these points."""
    command = list(words)
    description = descriptions().get(command[0])
    for parameter in description.parameters if description else ():
        values = sorted({a.conditions.get(parameter.name) for a in points}, key=_number_first)
        if parameter.name not in _NARROWED or None in values or parameter.option not in command:
            continue
        index = command.index(parameter.option) + 1
        if index < len(command):
            command[index] = ",".join(dict.fromkeys(_value(parameter.name, v) for v in values))
    return shlex.join(["meshmark", "measure", *command])


def _number_first(value: object) -> tuple[float, str]:
    """Return a sort key that orders numbers by size and texts alphabetically."""
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))


def _value(name: str, value: object) -> str:
    """Return a condition as a value of its option.

    Sizes are rounded up to KiB, because footprints were rounded down to whole arrays.
    """
    if not name.endswith("_bytes") or not isinstance(value, int | float):
        return str(value)
    if name == "stride_bytes":
        return f"{int(value)}"
    kib = -(-int(value) // _KIB)
    for unit, factor in (("GiB", _KIB**2), ("MiB", _KIB)):
        if kib % factor == 0:
            return f"{kib // factor}{unit}"
    return f"{kib}KiB"
