"""Prints claims of the literature and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from meshmark.views.tables import Cells, Emphasis, TextCell, TextTable
from meshmark.views.terminal.screen import print_table, table_console

if TYPE_CHECKING:
    from meshmark.validation.claims.catalogue import Claim
    from meshmark.validation.claims.judging import ClaimVerdict

_PIPE_COLUMNS: Final = 120  # width if standard output is not a terminal
EMPHASIS: Final[Mapping[str, Emphasis]] = {"holds": "good", "does not hold": "bad", "indicative only": "doubtful"}


def print_list(claims: Sequence[Claim], history: Mapping[str, Sequence[ClaimVerdict]]) -> None:
    """Print claims by theme, with the places where they are tested and their newest verdicts."""
    from meshmark.validation.claims.run import latest

    rows: list[Cells] = []
    theme = ""
    for c in claims:
        if c.theme != theme:
            theme = c.theme
            rows.append(["", TextCell(theme, "bold"), "", "", ""])
        places = ", ".join(m for t in c.tests for m in (t.on or (t.where,)))
        verdicts = "\n".join(f"{v.machine}: {v.text}" for v in latest(history.get(c.id, ()))) or "–"
        rows.append([c.id, c.statement, c.published, places, verdicts])
    head = ["", "claim", "published", "tested on", "newest verdicts"]
    print_table(table_console(_PIPE_COLUMNS), TextTable(head, rows, folds=range(1, 5)))


def print_verdicts(claims: Mapping[str, Claim], verdicts: Sequence[ClaimVerdict]) -> None:
    """Print the verdicts of a run and then the number of verdicts of each kind."""
    rows: list[Cells] = []
    previous_claim = ""
    for v in verdicts:
        effect = v.effect
        text = v.text
        if v.word == "inconclusive" and v.reason:
            text += f": {v.reason}"
        if v.basis in {"printed", "computed"} and effect is not None:
            text += f", {basis_text(v)}"
        statement = claims[v.claim].statement if v.claim != previous_claim else ""
        shown = (v.reason, "–", "–") if effect is None else (effect.what, f"{effect.value:.4g}", interval_text(v))
        rows.append([v.claim, statement, v.machine, *shown, v.expected, TextCell(text, EMPHASIS.get(v.word, "dim"))])
        previous_claim = v.claim
    head = ["", "claim", "on", "effect", "found", "95 %", "stated", "verdict"]
    table = TextTable(head, rows, numbers=(4, 5), folds=(1, 2, 3, 6, 7))
    console = table_console(_PIPE_COLUMNS)
    print_table(console, table)
    console.print()
    for line in summary(verdicts):
        console.print(line, soft_wrap=True)


def basis_text(v: ClaimVerdict) -> str:
    """Return a description of the basis of a verdict."""
    from meshmark.validation.claims.judging import BASIS_TEXT

    return BASIS_TEXT[v.basis]


def interval_text(v: ClaimVerdict) -> str:
    """Return the interval of an effect as text; "exact" if it is a point, "–" if it is unknown."""
    if v.effect is None or v.effect.interval is None:
        return "–"
    low, high = v.effect.interval
    return "exact" if low == high else f"{low:.3g} – {high:.3g}"


def summary(verdicts: Sequence[ClaimVerdict]) -> list[str]:
    """Return lines with the number of verdicts of each kind and the number of claims with evidence."""
    from meshmark.validation.claims.judging import DECIDED, WORDS

    if not verdicts:
        return ["no verdicts"]
    counts = [f"{w}: {n}" for w in WORDS if (n := sum(v.word == w for v in verdicts))]
    lines = [f"tests: {len(verdicts)}, of claims: {len({v.claim for v in verdicts})}; {', '.join(counts)}"]
    printed_count = sum(v.word in DECIDED and v.basis == "printed" for v in verdicts)
    note = f"; tests that only repeat printed numbers, and are not evidence: {printed_count}" if printed_count else ""
    lines.append(f"claims with evidence for or against them: {len({v.claim for v in verdicts if v.counts})}{note}")
    if any(v.word == "indicative only" for v in verdicts):
        lines.append("a guest never supports a claim about timing: what it measures is indicative only")
    return lines
