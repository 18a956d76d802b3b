"""Prints claims of the literature and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from meshmark.terminal.screen import table_console, text_table

if TYPE_CHECKING:
    from meshmark.validation.claims.catalogue import Claim
    from meshmark.validation.claims.judging import Verdict

_PIPE_COLUMNS: Final = 120  # width if standard output is not a terminal
_STYLES: Final = {"holds": "green", "does not hold": "red", "indicative only": "yellow"}


def print_list(claims: Sequence[Claim], history: Mapping[str, Sequence[Verdict]]) -> None:
    """Print claims by theme, with where they are tested and their newest verdicts."""
    from meshmark.validation.claims.run import latest

    table = text_table(("", "claim", "published", "tested on", "newest verdicts"), (), folds=range(1, 5))
    theme = ""
    for c in claims:
        if c.theme != theme:
            theme = c.theme
            table.add_row("", theme, end_section=False, style="bold")
        found = latest(history.get(c.id, ()))
        on = ", ".join(m for t in c.tests for m in (t.on or (t.where,)))
        table.add_row(c.id, c.statement, c.published, on, "\n".join(f"{v.machine}: {v.text}" for v in found) or "–")
    table_console(_PIPE_COLUMNS).print(table)


def print_verdicts(claims: Mapping[str, Claim], verdicts: Sequence[Verdict]) -> None:
    """Print the verdicts of a run, then how many there are of each kind."""
    from rich.text import Text

    head = ("", "claim", "on", "effect", "found", "95 %", "stated", "verdict")
    table = text_table(head, (), numbers=(4, 5), folds=(1, 2, 3, 6, 7))
    table.columns[1].ratio = 1
    last = ""
    for v in verdicts:
        e = v.effect
        word = Text(v.text, style=_STYLES.get(v.word, "dim"))
        if v.word == "inconclusive" and v.reason:
            word.append(f": {v.reason}", style="dim")
        if v.basis in {"printed", "computed"} and e is not None:
            word.append(f", {basis_text(v)}", style="dim")
        statement = claims[v.claim].statement if v.claim != last else ""
        cells: list[Any] = [v.claim, statement, v.machine]
        if e is None:
            cells += [v.reason, "–", "–", v.expected, word]
        else:
            cells += [e.what, f"{e.value:.4g}", interval_text(v), v.expected, word]
        table.add_row(*cells)
        last = v.claim
    console = table_console(_PIPE_COLUMNS)
    console.print(table)
    console.print()
    for line in summary(verdicts):
        console.print(line, soft_wrap=True)


def basis_text(v: Verdict) -> str:
    """Where a verdict comes from, in words."""
    from meshmark.validation.claims.judging import BASIS_TEXT

    return BASIS_TEXT[v.basis]


def interval_text(v: Verdict) -> str:
    """The interval of an effect; "exact" if it is a point, "–" if there is none."""
    if v.effect is None or v.effect.interval is None:
        return "–"
    low, high = v.effect.interval
    return "exact" if low == high else f"{low:.3g} – {high:.3g}"


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """How many verdicts there are of each kind, and how many of them are evidence."""
    from meshmark.validation.claims.judging import DECIDED, WORDS

    if not verdicts:
        return ["no verdicts"]
    found = [f"{w}: {n}" for w in WORDS if (n := sum(v.word == w for v in verdicts))]
    lines = [f"tests: {len(verdicts)}, of claims: {len({v.claim for v in verdicts})}; {', '.join(found)}"]
    printed = sum(v.word in DECIDED and v.basis == "printed" for v in verdicts)
    aside = f"; tests that only repeat printed numbers, and are no evidence: {printed}" if printed else ""
    lines.append(f"claims with evidence for or against them: {len({v.claim for v in verdicts if v.counts})}{aside}")
    if any(v.word == "indicative only" for v in verdicts):
        lines.append("a guest never supports a claim about timing: what it measures is indicative only")
    return lines
