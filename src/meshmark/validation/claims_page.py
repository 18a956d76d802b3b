"""Writes the pages of claims: an index, and a page per claim with its verdicts, their evidence and their history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from meshmark.store.files import write_text
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.validation import TEMPLATES
from meshmark.validation.claims.catalogue import Claim, ClaimTest
from meshmark.validation.claims.judging import BASIS_TEXT, ClaimVerdict
from meshmark.validation.claims.run import counts, latest
from meshmark.validation.claims_text import EMPHASIS
from meshmark.values.units import number, ratio_text
from meshmark.views.content.listing import result_tables
from meshmark.views.html import Tile
from meshmark.views.render import render
from meshmark.views.tables import Cells, TextCell, TextTable, ratio_dot

INDEX: Final = "index.html"
_ROWS: Final = 200  # maximum rows that are shown of the evidence of a verdict
_WIDEST: Final = 20.0  # maximum end of the axis of effects over stated values; its inverse is the minimum


def write_pages(
    folder: Path, claims: Sequence[Claim], history: Mapping[str, Sequence[ClaimVerdict]], store: Store
) -> int:
    """Write `index.html` and a page for each claim, each atomically.

    Args:
        folder: Folder of the pages, which is created.
        history: All verdicts by claim, oldest first.
        store: The store that contains the evidence.

    Returns:
        The number of pages.

    Raises:
        MeshmarkError: A page cannot be written.
    """
    runs: dict[str, list[tuple[str, Record]]] = {}
    for claim in claims:
        for v in latest(history.get(claim.id, ())):
            if v.run not in runs:
                runs[v.run] = [(step, r) for _, step, r in store.rows(run=v.run)]
    folder.mkdir(exist_ok=True)
    for claim in claims:
        write_text(folder / page_name(claim.id), claim_page(claim, history.get(claim.id, ()), runs))
    write_text(folder / INDEX, index_page(claims, history))
    return len(claims) + 1


def page_name(claim: str) -> str:
    """Return the name of the file with the page of a claim, such as `H05.html`."""
    return f"{claim}.html"


def index_page(claims: Sequence[Claim], history: Mapping[str, Sequence[ClaimVerdict]]) -> str:
    """Return the page with all claims by theme and the number of claims with verdicts."""
    newest = {c.id: latest(history.get(c.id, ())) for c in claims}
    all_verdicts = [v for verdicts in newest.values() for v in verdicts]
    counts_by_word = counts(all_verdicts)
    claims_with_evidence = {v.claim for v in all_verdicts if v.counts}
    tiles = [
        Tile("claims", str(len(claims)), [f"{len(claims_with_evidence)} with evidence for or against them"]),
        Tile("hold", str(counts_by_word.get("holds", 0)), ["tests"]),
        Tile("do not hold", str(counts_by_word.get("does not hold", 0)), ["tests"]),
        Tile("inconclusive", str(counts_by_word.get("inconclusive", 0)), ["tests"]),
    ]
    if indicative := counts_by_word.get("indicative only", 0):
        tiles.append(Tile("indicative only", str(indicative), ["claims about timing, measured on a guest"]))
    themes = [
        {
            "name": theme,
            "rows": [
                {"claim": c, "page": page_name(c.id), "verdicts": newest[c.id]} for c in claims if c.theme == theme
            ],
        }
        for theme in dict.fromkeys(c.theme for c in claims)
    ]
    return str(render("claims.html", TEMPLATES, title="Claims of the literature", tiles=tiles, themes=themes))


def claim_page(claim: Claim, verdicts: Sequence[ClaimVerdict], runs: Mapping[str, Sequence[tuple[str, Record]]]) -> str:
    """Return the page of a claim.

    Args:
        verdicts: All verdicts of the claim, oldest first.
        runs: Steps and records of each run that contains evidence for the newest verdicts.
    """
    ends = _ends(claim, verdicts)
    return str(
        render(
            "claim.html",
            TEMPLATES,
            title=f"{claim.id}: {claim.statement}",
            claim=claim,
            index=INDEX,
            tests=_tests(claim.tests),
            verdicts=_verdicts(claim, latest(verdicts), ends, dated=False),
            evidence=[_evidence(v, runs.get(v.run, ())) for v in latest(verdicts)],
            history=_verdicts(claim, verdicts[::-1], ends, dated=True),
        )
    )


def _tests(tests: Sequence[ClaimTest]) -> TextTable:
    places = {"host": "this host", "model": "models", "computed": "computation"}
    rows: list[Cells] = []
    for test in tests:
        place = places[test.where] + (f": {', '.join(test.on)}" if test.on else "")
        needs = ", ".join(k if v is True else f"{k} {v}" for k, v in test.needs.items())
        rows.append([place, str(test.parameters.get("what", "")), TextCell(test.method, "code"), needs or "–"])
    return TextTable(["where", "effect", "method", "needs"], rows, folds=range(4))


def _verdicts(claim: Claim, verdicts: Sequence[ClaimVerdict], ends: tuple[float, float], dated: bool) -> TextTable:
    """Return verdicts with their effects, which are drawn over the stated value on an axis with these ends."""
    rows: list[Cells] = []
    for v in verdicts:
        interval = v.effect.interval if v.effect is not None else None
        is_exact = interval is not None and interval[0] == interval[1]
        bounds = "–" if interval is None else "exact" if is_exact else " – ".join(map(number, interval))
        over = _over(claim, v)
        rows.append(
            [
                TextCell(v.start.replace("T", " ").removesuffix("Z") if dated else ""),
                v.machine,
                v.effect.what if v.effect is not None else "",
                number(v.effect.value) if v.effect is not None else "–",
                bounds,
                TextCell("", dot=ratio_dot(*over, *ends) if over is not None else None),
                v.expected or claim.expected,
                TextCell(v.text, EMPHASIS.get(v.word, "dim")),
                TextCell("; ".join(filter(None, (BASIS_TEXT[v.basis], v.reason))), "dim"),
            ]
        )
    axis = f"over stated, {' to '.join(map(ratio_text, ends))}"
    head = ["when (UTC)" if dated else "", "on", "effect", "found", "95 %", axis, "stated", "verdict", ""]
    return TextTable(head, rows, numbers=(3, 4), folds=(2, 6, 7, 8))


def _over(claim: Claim, v: ClaimVerdict) -> tuple[float, tuple[float, float] | None] | None:
    """Return the effect over the stated value and its interval; None if a ratio to this value has no meaning."""
    if v.effect is None or claim.relation in {"none", "within"}:
        return None
    interval = v.effect.interval
    interval_ratio = (interval[0] / claim.value, interval[1] / claim.value) if interval and interval[0] > 0 else None
    return v.effect.value / claim.value, interval_ratio


def _ends(claim: Claim, verdicts: Sequence[ClaimVerdict]) -> tuple[float, float]:
    """Return the ends of an axis for these effects over the stated value, with 1 in the middle."""
    ratios = [ratio for v in verdicts if (ratio := _over(claim, v)) is not None]
    values = [v for value, interval in ratios for v in (value, *(interval or ())) if math.isfinite(v) and v > 0]
    end = min(_WIDEST, 1.05 * max([1.1, *values, *(1 / v for v in values)]))
    return 1 / end, end


def _evidence(v: ClaimVerdict, rows: Sequence[tuple[str, Record]]) -> Mapping[str, Any]:
    """Return the tables with the records that a verdict is based on."""
    evidence = [r for step, r in rows if step.startswith(f"{v.step}.")]
    by_instrument: dict[str, list[Record]] = {}
    for r in evidence:
        by_instrument.setdefault(r.instrument, []).append(r)
    tables: list[tuple[str, str, TextTable]] = []
    for instrument, records in by_instrument.items():
        common_conditions, parts = result_tables(records, (), _ROWS)
        tables += [(f"{instrument} {table.title}".strip(), common_conditions, table.table) for table in parts]
    return {"machine": v.machine, "run": v.run, "step": v.step, "records": len(evidence), "tables": tables}
