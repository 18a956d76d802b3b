"""What axe-core finds on a page."""

from __future__ import annotations

from typing import Any

from support.paths import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Any) -> list[str]:
    """What hurts WCAG 2.1 A or AA: a rule, an element and a reason each."""
    page.evaluate(AXE.read_text() + "; 0")
    found = page.evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })")
    return [f"{v['id']}: {n['html'][:200]}: {n['failureSummary']}" for v in found["violations"] for n in v["nodes"]]
