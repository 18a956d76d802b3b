"""Prints claims of the literature and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from meshmark.views.terminal.screen import table_console, text_table

if TYPE_CHECKING:
    from meshmark.validation.claims.catalogue import Claim
    from meshmark.validation.claims.judging import Verdict

_PIPE_COLUMNS: Final = 120  # width if standard output is not a terminal
_STYLES: Final = {"holds": "green", "does not hold": "red", "indicative only": "yellow"}


def print_list(claims: Sequence[Claim], history: Mapping[str, Sequence[Verdict]]) -> None:
    """Print claims by theme, with the places where they are tested and their newest verdicts."""
    from meshmark.validation.claims.run import latest

    table = text_table(("", "claim", "published", "tested on", "newest verdicts"), (), folds=range(1, 5))
    theme = ""
    for c in claims:
        if c.theme != theme:
            theme = c.theme
            table.add_row("", theme, end_section=False, style="bold")
        verdicts = latest(history.get(c.id, ()))
        places = ", ".join(m for t in c.tests for m in (t.on or (t.where,)))
        table.add_row(
            c.id, c.statement, c.published, places, "\n".join(f"{v.machine}: {v.text}" for v in verdicts) or "–"
        )
    table_console(_PIPE_COLUMNS).print(table)


def print_verdicts(claims: Mapping[str, Claim], verdicts: Sequence[Verdict]) -> None:
    """Print the verdicts of a run and then the number of verdicts of each kind."""
    from rich.text import Text

    headings = ("", "claim", "on", "effect", "found", "95 %", "stated", "verdict")
    table = text_table(headings, (), numbers=(4, 5), folds=(1, 2, 3, 6, 7))
    table.columns[1].ratio = 1
    previous_claim = ""
    for v in verdicts:
        effect = v.effect
        word = Text(v.text, style=_STYLES.get(v.word, "dim"))
        if v.word == "inconclusive" and v.reason:
            word.append(f": {v.reason}", style="dim")
        if v.basis in {"printed", "computed"} and effect is not None:
            word.append(f", {basis_text(v)}", style="dim")
        statement = claims[v.claim].statement if v.claim != previous_claim else ""
        cells: list[Any] = [v.claim, statement, v.machine]
        if effect is None:
            cells += [v.reason, "–", "–", v.expected, word]
        else:
            cells += [effect.what, f"{effect.value:.4g}", interval_text(v), v.expected, word]
        table.add_row(*cells)
        previous_claim = v.claim
    console = table_console(_PIPE_COLUMNS)
    console.print(table)
    console.print()
    for line in summary(verdicts):
        console.print(line, soft_wrap=True)


def basis_text(v: Verdict) -> str:
    """Return a description of the basis of a verdict."""
    from meshmark.validation.claims.judging import BASIS_TEXT

    return BASIS_TEXT[v.basis]


def interval_text(v: Verdict) -> str:
    """Return the interval of an effect as text; "exact" if it is a point, "–" if it is unknown."""
    if v.effect is None or v.effect.interval is None:
        return "–"
    low, high = v.effect.interval
    return "exact" if low == high else f"{low:.3g} – {high:.3g}"


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """Return lines with the number of verdicts of each kind and the number of claims with evidence."""
    from meshmark.validation.claims.judging import DECIDED, WORDS

    if not verdicts:
        return ["no verdicts"]
    counts = [f"{w}: {n}" for w in WORDS if (n := sum(v.word == w for v in verdicts))]
    lines = [f"tests: {len(verdicts)}, of claims: {len({v.claim for v in verdicts})}; {', '.join(counts)}"]
    printed_count = sum(v.word in DECIDED and v.basis == "printed" for v in verdicts)
    note = f"; tests that only repeat printed numbers, and are no evidence: {printed_count}" if printed_count else ""
    lines.append(f"claims with evidence for or against them: {len({v.claim for v in verdicts if v.counts})}{note}")
    if any(v.word == "indicative only" for v in verdicts):
        lines.append("a guest never supports a claim about timing: what it measures is indicative only")
    return lines
