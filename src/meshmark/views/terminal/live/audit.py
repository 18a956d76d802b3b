"""Lays out the audit of counters as a table, and states it below the live map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from meshmark.views.tables import Cells, Emphasis, TextCell, TextTable

if TYPE_CHECKING:
    from meshmark.watch.audit.judgement import CounterAudit
    from meshmark.watch.audit.run import AuditResult

_EMPHASIS: Final[Mapping[str, Emphasis]] = {
    "right": "good",
    "wrong": "bad",
    "counts nothing": "bad",
    "could not tell": "doubtful",
}


def audit_table(counters: Iterable[CounterAudit]) -> TextTable:
    """Return one row per metric and load."""
    head = ["counter", "load", "moved (GB/s)", "counted (GB/s)", "background (GB/s)", "factor", "verdict"]
    rows: list[Cells] = []
    for c in counters:
        moved, counted = max(c.points, default=(None, None))
        rows.append(
            [
                TextCell(c.metric, "code"),
                f"{c.load} {c.route}",
                _rate(moved),
                _rate(counted),
                _rate(c.background),
                "–" if c.factor is None else f"{c.factor:.2f}",
                TextCell(str(c), _EMPHASIS[c.verdict]),
            ]
        )
    return TextTable(head, rows, (2, 3, 4, 5), (6,), (4, 3))


def audit_notes(result: AuditResult) -> Iterator[str]:
    """Yield what the table does not show: silent counters, and nodes without a load."""
    for c in result.counters:
        if c.silent:
            yield (
                f"{c.metric}: {', '.join(c.silent)} counted nothing while other counters of the node did: a channel "
                "without memory, or a counter that is stuck"
            )
    if result.skipped:
        yield f"not audited, because this process may not use their CPUs: {', '.join(result.skipped)}"


def audit_text(audit: Mapping[str, Any]) -> str:
    """Return the sentence about the stored audit in a header of frames."""
    texts = [f"{metric} {verdict}" for metric, verdict in audit.get("verdicts", {}).items()]
    return f"counters audited on {str(audit.get('when', ''))[:10]}: {', '.join(texts)}"


def _rate(bytes_per_s: float | None) -> str:
    return "–" if bytes_per_s is None else f"{1e-9 * bytes_per_s:.2f}"
