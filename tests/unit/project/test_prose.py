"""The source is written in plain English: some habits that make text hard to read do not come back."""

from __future__ import annotations

import re

from support.paths import ROOT

# Pronoun genitives, names that are participles, docstrings without a subject.
DIALECT = re.compile(
    r'as why:|\b(found|made|told|wanted|heard|said|own) = |"""(Of|As|Those|That|Whose|Whether) '
    r'|\b[Tt]hose of |\bis none[ .,"]'
)
SOURCES = [
    *(ROOT / "src" / "meshmark").rglob("*.py"),
    *(p for suffix in ("cpp", "hpp") for p in (ROOT / "native").rglob(f"*.{suffix}")),
    *(ROOT / "web" / "src").glob("*.ts"),
]


def test_no_line_is_in_the_old_dialect() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DIALECT.search(line)
    ]
    assert len(SOURCES) > 500 and lines == []
