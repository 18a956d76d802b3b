"""Writes a comparison as Markdown, for a comment in a code review: the verdicts first, everything else folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshmark.compare.join import WORDS, ResultComparison
from meshmark.values.units import NBSP
from meshmark.views.content.compared_rows import ComparisonBlock, ComparisonRow, blocks, named, sides_of
from meshmark.views.content.compared_text import left_over, lettered, side_text, summaries
from meshmark.views.markdown import BOLD, escaped, folded, table

_SHOWN = frozenset(WORDS) - {"equal", "inconclusive", "not comparable"}


def markdown(comparisons: Sequence[ResultComparison]) -> str:
    """Return the whole comment, in the Markdown of GitHub and GitLab.

    Args:
        comparisons: The comparisons of A with each of the other sides.
    """
    compared = blocks(comparisons)
    differ = [
        (block, line) for block in compared for line in block.lines if any(c and c.word in _SHOWN for c in line.cells)
    ]
    others = [
        (block, line)
        for block in compared
        for line in block.lines
        if not any(c and c.word in _SHOWN for c in line.cells)
    ]
    parts = [
        f"### {_heading(comparisons)}",
        "\n".join(f"* {letter}: {escaped(side_text(s))}" for letter, s in sides_of(comparisons)),
    ]
    if differ:
        parts.append(_table(comparisons, differ))
    if others:
        parts.append(folded(f"{len(others)} results without a difference that is shown", _table(comparisons, others)))
    notes = [text for first, reasons in summaries(comparisons) for text in (first, *reasons)]
    notes += left_over(comparisons[0]) if len(comparisons) == 1 else []
    notes += [
        f"differs: {name}: A {a_fact}, {letter} {fact}"
        for letter, c in lettered(comparisons)
        for name, a_fact, fact in c.facts
    ]
    parts.append(folded("What was compared", "\n".join(f"* {escaped(note)}" for note in notes)))
    return "\n\n".join(parts).replace(NBSP, " ") + "\n"


def _heading(comparisons: Sequence[ResultComparison]) -> str:
    """Return the verdicts of all sides: `B is slower in 2 and faster in 1 of 14 results`."""
    texts = []
    for letter, c in lettered(comparisons):
        counts = [f"{word} in {n}" for word, n in c.counts().items() if word in _SHOWN]
        judged = sum(n for word, n in c.counts().items() if word not in {"inconclusive", "not comparable"})
        of_results = f"of {len(c.pairs)} result{'s' * (len(c.pairs) != 1)}"
        if counts:
            texts.append(f"{letter} is {' and '.join(counts)} {of_results}")
        elif judged:
            texts.append(f"{letter} does not differ in {judged} {of_results}")
        else:
            texts.append(f"inconclusive: none {of_results} of {letter} could be judged")
    return "; ".join(texts)


def _table(comparisons: Sequence[ResultComparison], rows: Iterable[tuple[ComparisonBlock, ComparisonRow]]) -> str:
    letters = [letter for letter, _ in lettered(comparisons)]
    columns = ["metric", "point", "A"]
    for letter in letters:
        columns += [letter, f"{letter} over A", f"{letter} is"]
    lines: list[Sequence[str]] = []
    for block, line in rows:
        cells = [named(block.instrument, block.metric), line.point or block.common or "–", line.a]
        for cell in line.cells:
            if cell is None:
                cells += ["–", "–", "–"]
                continue
            interval = f" ({cell.interval})" if cell.interval != "–" else ""
            word = BOLD.format(cell.word) if cell.word in _SHOWN else cell.word
            cells += [cell.value, cell.ratio + interval, word + (f": {cell.reason}" if cell.reason else "")]
        lines.append(cells)
    return table(columns, lines)
