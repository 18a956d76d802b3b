"""Parts that pages share: the template, tables, flags and what is absent."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from importlib import resources

from meshmark.report.drawing import Drawn, themed
from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.values.units import FLAG_TEXT


def fill_template(template: str, parts: Mapping[str, str], drawn: Mapping[str, Drawn]) -> str:
    """A self-contained page: a template of this package with its parts, its style, its charts and their library."""
    import vl_convert

    specs = {name: themed(chart) for name, chart in drawn.items()}
    # Without a snippet: vega, vega-lite and vega-embed, the last as window.vegaEmbed. The type says otherwise.
    bundle = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
    folder = resources.files("meshmark.report")
    common = {
        "style": (folder / "page.css").read_text(encoding="utf-8"),
        "script": (folder / "page.js").read_text(encoding="utf-8"),
        # A text with a tag in it would end the script element.
        "specs": json.dumps(specs, default=str).replace("<", "\\u003c"),
        "bundle": bundle.replace("</script", "<\\/script"),
    }
    # In one pass: what was put in is never looked at again.
    both = {**common, **parts}
    return re.sub(r"<!--(\w+)-->", lambda m: both[m[1]], (folder / template).read_text(encoding="utf-8"))


def badges(flags: Sequence[str] | frozenset[str]) -> str:
    return "".join(
        f'<span class="flag" title="{escape(FLAG_TEXT.get(f, f))}">{escape(f)}</span>' for f in sorted(flags)
    )


def grid(head: Sequence[str], rows: Sequence[str], kind: str = "data", numbers: Collection[int] = ()) -> str:
    """A table that scrolls in its own box; `rows` are `<tr>` elements, `numbers` columns with titles to the right."""
    titles = "".join(f"<th{' class=n' if i in numbers else ''}>{escape(h)}</th>" for i, h in enumerate(head))
    table = f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    label = f"table: {head[0] or 'steps'}"  # a name and a place in the order of Tab, for those who scroll with keys
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label, quote=True)}">{table}</div>'


def absent_table(absences: Sequence[Absence], asked_all: bool = True) -> str:
    """What is absent, with its reasons; `asked_all`: it is known of all that was asked for."""
    if not absences:
        return f"<p>Nothing {'that was asked for is' if asked_all else 'is recorded as'} absent.</p>"
    rows = [
        f"<tr><td>{escape(a.instrument)}{' · ' + escape(a.metric) if a.metric else ''}</td>"
        f"<td>{'failed' if a.kind == 'error' else 'absent'}</td>"
        f"<td>{escape(', '.join(f'{k} {v}' for k, v in a.conditions.items()))}</td>"
        f"<td>{escape(a.reason)}</td><td>{escape(a.enable)}</td></tr>"
        for a in absences
    ]
    return grid(["what", "", "conditions", "why", "what would help"], rows, "data wrap")


def flag_legend(records: Sequence[Record]) -> str:
    used = sorted({f for r in records for f in r.flags})
    if not used:
        return "<p>No result carries a flag.</p>"
    counts = {f: sum(1 for r in records if f in r.flags) for f in used}
    items = "".join(
        f"<li>{badges([f])} {escape(FLAG_TEXT.get(f, ''))}: {n} of {len(records)}</li>" for f, n in counts.items()
    )
    return f'<ul class="flags">{items}</ul>'
