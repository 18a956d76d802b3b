"""Draws the Gantt chart of a run as text."""

from __future__ import annotations

from typing import Final

from meshmark.load.scenario.lanes import (
    CHECK,
    STATES,
    STATUS,
    end_text,
    flags_text,
    lane_shares,
    lanes,
    percent_of,
    shortened,
    tick_step,
    totals_of,
)
from meshmark.load.scenario.result import LoadRun
from meshmark.values.units import seconds_of

_MARKS: Final = "█▓░·"
_CHECK: Final = "="


def gantt_text(run: LoadRun, width: int = 100) -> str:
    """Return the chart as plain text with `width` columns (at least 60).

    Each column shows its most frequent state.
    """
    rows = lanes(run, 40)
    labels = [("" if r.first else "  ") + r.label for r in rows]
    left = min(24, max((len(x) for x in labels), default=0))
    right = 26
    bins = max(10, max(60, width) - left - right - 2)
    end_s = max(run.bench_s, 1e-3)
    totals = totals_of(run)
    lines = [f"{run.scenario.get('name', 'scenario')}" + ("" if run.status == "ok" else f" ({STATUS[run.status]})")]
    line = ""
    for label, value, _ in totals:
        word = f"{label} {value}"
        if line and len(line) + len(word) + 3 > max(60, width):
            lines.append(line)
            line = ""
        line += ("   " if line else "") + word
    lines += [line, ""]
    lines.append(" " * (left + bins + 2) + f"{'lasted':>9}{'waited':>9}{'moves':>7}")
    for lane, label in zip(rows, labels, strict=True):
        text = f"{shortened(label, left):<{left}} "
        if lane.first and lane.program.how == "failed":
            lines.append((text + "not started: " + lane.program.reason)[: max(60, width)])
            continue
        check = lane.check or (end_s, end_s)
        for i, share in enumerate(lane_shares(lane, end_s, bins)):
            checks = check[0] <= (i + 0.5) * end_s / bins < check[1]
            mark = _CHECK if checks else _MARKS[max(range(4), key=lambda k: share[k])]
            text += mark if sum(share) > 0 else " "
        user, system, waiting, sleeping = lane.times_s()
        moves = sum(t.migrations for t in lane.threads)
        text += (
            f" {seconds_of(lane.duration_s()):>9}{percent_of(waiting, user + system + waiting + sleeping):>9}{moves:>7}"
        )
        if lane.first and (word := end_text(lane.program)):
            text += f" {word}"
        lines.append(text.rstrip())
    step = tick_step(end_s, max(2, bins // 12))
    axis = [" "] * (bins + 8)
    for i in range(int(end_s / step + 1e-9) + 1):
        column = int(i * step / end_s * bins)
        mark = f"{i * step:g}" + (" s" if (i + 1) * step > end_s else "")
        if column + len(mark) <= len(axis):
            axis[column : column + len(mark)] = mark
    lines.append(" " * (left + 1) + "".join(axis).rstrip())
    lines.append(" " * (left + 1) + "  ".join(f"{m} {state}" for m, (_, state) in zip(_MARKS, STATES, strict=True)))
    if any(lane.check for lane in rows):
        lines.append(" " * (left + 1) + f"{_CHECK} {CHECK}")
    if flags := flags_text(run):
        lines.append(shortened(flags, max(60, width)))
    return "\n".join(lines) + "\n"
