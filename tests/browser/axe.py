"""What axe-core finds on a page, and the screens that pages are tried on."""

from __future__ import annotations

from typing import Any

import pytest

from support.paths import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


Screen = tuple[int, str]  # width in pixels, and `light` or `dark`


def screens(wide: int, narrow: int) -> list[Any]:
    """Parameters: both widths in both colours; two of the four only in `make check-all`."""
    others: list[Screen] = [(wide, "dark"), (narrow, "light")]
    return [(wide, "light"), (narrow, "dark"), *(pytest.param(s, marks=pytest.mark.slow) for s in others)]


def violations(page: Any) -> list[str]:
    """What hurts WCAG 2.1 A or AA: a rule, an element and a reason each."""
    page.evaluate(AXE.read_text() + "; 0")
    state = page.evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })")
    return [f"{v['id']}: {n['html'][:200]}: {n['failureSummary']}" for v in state["violations"] for n in v["nodes"]]
