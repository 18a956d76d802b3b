"""Lists the summary of a recorded command as tables."""

from __future__ import annotations

from meshmark.values.units import counted, number, plain, seconds_of
from meshmark.views.tables import TableSection, TextTable
from meshmark.watch.recorder.summary import WindowSummary, value_text


def summary_sections(summary: WindowSummary) -> list[TableSection]:
    """Return the tables of a summary: metrics of the machine, and programs."""
    rows = [
        [
            m.metric.name,
            value_text(m.metric, m.mean),
            value_text(m.metric, m.peak),
            seconds_of(m.peak_at_s),
            m.metric.what,
        ]
        for m in summary.metrics
    ]
    notes = [f"{kind}: absent: {reason}" for kind, reason in summary.absent.items()]
    machine = TableSection(
        f"the machine during the command, {counted(summary.frames, 'frame')}",
        TextTable(["metric", "mean", "peak", "peak at", "what"], rows, numbers=(1, 2, 3), spare=(4,)),
        notes=notes,
    )
    if summary.programs_absent:
        return [machine, TableSection("programs", notes=[f"absent: {summary.programs_absent}"])]
    program_rows = [[p.name, number(p.cpus), plain(p.peak_bytes, "B", 3), str(p.processes)] for p in summary.programs]
    head = ["program", "CPUs", "peak memory", "processes"]
    note = "only the busiest processes are sampled, every 2 s"
    programs = TableSection("busiest programs", TextTable(head, program_rows, numbers=(1, 2, 3)), notes=[note])
    return [machine, programs]
