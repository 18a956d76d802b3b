"""Tables of a mix of jobs under several policies."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.load.queue.summary import PolicyGain, PolicySummary, mean_turnaround_s, median_of, total_s
from meshmark.values.units import duration, number, percent
from meshmark.views.tables import TableSection, TextTable


def queue_sections(summaries: Sequence[PolicySummary], gains: Sequence[PolicyGain]) -> list[TableSection]:
    """Return the tables: what happened under each policy, and the gain of each policy over the first one."""
    head = ["policy", "jobs", "total time", "mean wait", "95 % wait up to", "longest wait", "mean slowdown"]
    head += ["run time / alone", "use", "oversubscribed"]
    rows = [
        [
            *(s.policy, str(s.jobs), duration(s.total_s)),
            *(duration(s.waiting_s[key]) for key in ("mean", "p95", "max")),
            *(number(s.slowdown["mean"]), number(s.stretch["mean"])),
            *(percent(s.use), str(s.oversubscribed)),
        ]
        for s in summaries
    ]
    sections = [TableSection("", TextTable(head, rows, numbers=tuple(range(1, len(head)))))]
    if gains:
        head = ["policy", "total time", "95 % interval", "mean wait", "95 % interval"]
        rows = [
            [
                g.policy,
                f"× {number(g.total)}",
                "-" if g.total_interval is None else " to ".join(f"× {number(v)}" for v in g.total_interval),
                _difference(g.waiting_s),
                "-" if g.waiting_interval_s is None else " to ".join(map(_difference, g.waiting_interval_s)),
            ]
            for g in gains
        ]
        title = f"against {summaries[0].policy}, {_repetitions(gains[0].repetitions)}"
        sections.append(TableSection(title, TextTable(head, rows, numbers=(1, 2, 3, 4))))
    return sections


def agreement_section(
    measured: Sequence[Sequence[PolicySummary]], simulated: Sequence[Sequence[PolicySummary]]
) -> TableSection:
    """Return the table of the simulation beside the real runs: medians over repetitions."""
    head = ["policy", "total time", "simulated", "difference", "mean time to the end", "simulated", "difference"]
    rows = []
    for index, summary in enumerate(measured[0]):
        cells = [summary.policy]
        for figure in (total_s, mean_turnaround_s):
            real_s, model_s = (median_of(repetitions, index, figure) for repetitions in (measured, simulated))
            cells += [duration(real_s), duration(model_s), f"{100 * (model_s / real_s - 1):+.1f} %"]
        rows.append(cells)
    title = "real runs, and their simulation with the run times that were measured alone"
    return TableSection(title, TextTable(head, rows, numbers=range(1, len(head))))


def _difference(value_s: float) -> str:
    if value_s == 0:
        return "0 s"
    return f"{'+' if value_s > 0 else '−'}{duration(abs(value_s))}"


def _repetitions(count: int) -> str:
    return "one repetition, no interval" if count == 1 else f"{count} repetitions with the same jobs"
