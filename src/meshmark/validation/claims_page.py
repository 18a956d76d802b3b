"""Writes the pages of claims: an index, and a page for each with its verdicts, their evidence and their history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from meshmark.report.html import Table, Tile, ratio_dot
from meshmark.report.listing import result_tables
from meshmark.report.render import render
from meshmark.store.files import write_text
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.validation import TEMPLATES
from meshmark.validation.claims.catalogue import Claim, Trial
from meshmark.validation.claims.judging import BASIS_TEXT, Verdict
from meshmark.validation.claims.run import counts, latest
from meshmark.values.units import number, ratio_text

INDEX: Final = "index.html"
_ROWS: Final = 200  # of the evidence of a verdict
_KINDS: Final = {"holds": "in", "does not hold": "out"}
_WIDEST: Final = 20.0  # of the plot of an effect over what is stated, and its inverse


def write_pages(folder: Path, claims: Sequence[Claim], history: Mapping[str, Sequence[Verdict]], store: Store) -> int:
    """Write `index.html` and a page for each claim, each atomically.

    Args:
        history: All verdicts by claim, oldest first.
        store: Of the evidence.

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
    """The file of a claim's page: `H05.html`."""
    return f"{claim}.html"


def index_page(claims: Sequence[Claim], history: Mapping[str, Sequence[Verdict]]) -> str:
    """The page with all claims by theme, and how many have verdicts."""
    newest = {c.id: latest(history.get(c.id, ())) for c in claims}
    everything = [v for found in newest.values() for v in found]
    counted = counts(everything)
    evidence = {v.claim for v in everything if v.counts}
    tiles = [
        Tile("claims", str(len(claims)), [f"{len(evidence)} with evidence for or against them"]),
        Tile("hold", str(counted.get("holds", 0)), ["tests"]),
        Tile("do not hold", str(counted.get("does not hold", 0)), ["tests"]),
        Tile("inconclusive", str(counted.get("inconclusive", 0)), ["tests"]),
    ]
    if only := counted.get("indicative only", 0):
        tiles.append(Tile("indicative only", str(only), ["claims about timing, measured on a guest"]))
    themes = [
        {
            "name": theme,
            "rows": [
                {"claim": c, "page": page_name(c.id), "verdicts": [_brief(v) for v in newest[c.id]]}
                for c in claims
                if c.theme == theme
            ],
        }
        for theme in dict.fromkeys(c.theme for c in claims)
    ]
    return str(render("claims.html", TEMPLATES, title="Claims of the literature", tiles=tiles, themes=themes))


def claim_page(claim: Claim, verdicts: Sequence[Verdict], runs: Mapping[str, Sequence[tuple[str, Record]]]) -> str:
    """The page of a claim.

    Args:
        verdicts: All, oldest first.
        runs: Step and record of the rows of the runs that have the evidence of the newest verdicts.
    """
    ends = _ends(claim, verdicts)
    return str(
        render(
            "claim.html",
            TEMPLATES,
            title=f"{claim.id}: {claim.statement}",
            claim=claim,
            index=INDEX,
            tests=[_test(t) for t in claim.tests],
            verdicts=[_line(claim, v, ends) for v in latest(verdicts)],
            evidence=[_evidence(v, runs.get(v.run, ())) for v in latest(verdicts)],
            history=[_line(claim, v, ends) for v in reversed(verdicts)],
            axis=f"{ratio_text(ends[0])} to {ratio_text(ends[1])}",
        )
    )


def _brief(v: Verdict) -> Mapping[str, str]:
    return {"machine": v.machine, "text": v.text, "kind": _KINDS.get(v.word, "none")}


def _test(test: Trial) -> Mapping[str, str]:
    """A test in words."""
    where = {"host": "this host", "model": "models", "computed": "computation"}[test.where]
    needs = ", ".join(k if v is True else f"{k} {v}" for k, v in test.needs.items())
    return {
        "where": f"{where}: {', '.join(test.on)}" if test.on else where,
        "what": str(test.parameters.get("what", "")),
        "method": test.method,
        "needs": needs or "–",
    }


def _line(claim: Claim, v: Verdict, ends: tuple[float, float]) -> Mapping[str, Any]:
    e = v.effect
    interval = e.interval if e is not None else None
    exact = interval is not None and interval[0] == interval[1]
    text = "–" if interval is None else "exact" if exact else f"{number(interval[0])} – {number(interval[1])}"
    return {
        **_brief(v),
        "basis": BASIS_TEXT[v.basis],
        "what": e.what if e is not None else "",
        "value": number(e.value) if e is not None else "–",
        "interval": text,
        "expected": v.expected or claim.expected,
        "reason": v.reason,
        "when": v.start.replace("T", " ").removesuffix("Z"),
        "run": v.run,
        "dot": ratio_dot(*over, *ends) if (over := _over(claim, v)) is not None else None,
    }


def _over(claim: Claim, v: Verdict) -> tuple[float, tuple[float, float] | None] | None:
    """The effect over the stated value, and its interval; None where a ratio to it says nothing."""
    if v.effect is None or claim.relation in {"none", "within"}:
        return None
    interval = v.effect.interval
    over = (interval[0] / claim.value, interval[1] / claim.value) if interval and interval[0] > 0 else None
    return v.effect.value / claim.value, over


def _ends(claim: Claim, verdicts: Sequence[Verdict]) -> tuple[float, float]:
    """The ends of an axis for these effects over the stated value, 1 in its middle."""
    found = [over for v in verdicts if (over := _over(claim, v)) is not None]
    values = [v for value, interval in found for v in (value, *(interval or ())) if math.isfinite(v) and v > 0]
    far = min(_WIDEST, 1.05 * max([1.1, *values, *(1 / v for v in values)]))
    return 1 / far, far


def _evidence(v: Verdict, rows: Sequence[tuple[str, Record]]) -> Mapping[str, Any]:
    """The records that a verdict rests on."""
    of = [r for step, r in rows if step.startswith(f"{v.step}.")]
    by_instrument: dict[str, list[Record]] = {}
    for r in of:
        by_instrument.setdefault(r.instrument, []).append(r)
    tables: list[tuple[str, str, Table]] = []
    for instrument, records in by_instrument.items():
        shared, listed = result_tables(records, (), _ROWS)
        tables += [(f"{instrument} {one.heading}".strip(), shared, one.table) for one in listed]
    return {"machine": v.machine, "run": v.run, "step": v.step, "records": len(of), "tables": tables}
