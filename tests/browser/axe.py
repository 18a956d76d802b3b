"""Runs axe-core on a page, and names the screens on which pages are tested."""

from __future__ import annotations

from typing import Any

import pytest

from support.paths import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


Screen = tuple[int, str]  # width in pixels, and `light` or `dark`


def screens(wide: int, narrow: int) -> list[Any]:
    """Return parameters for both widths in both colours; two of the four run only in `make check-all`."""
    others: list[Screen] = [(wide, "dark"), (narrow, "light")]
    return [(wide, "light"), (narrow, "dark"), *(pytest.param(s, marks=pytest.mark.slow) for s in others)]


def violations(page: Any) -> list[str]:
    """Return the violations of WCAG 2.1 A or AA: the rule, the element and the reason of each."""
    page.evaluate(AXE.read_text() + "; 0")
    report = page.evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })")
    return [f"{v['id']}: {n['html'][:200]}: {n['failureSummary']}" for v in report["violations"] for n in v["nodes"]]
