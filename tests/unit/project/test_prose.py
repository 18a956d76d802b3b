"""The source and its documentation are in plain English: habits that make text hard to read do not come back."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

# Pronoun genitives, names that are participles, docstrings without a subject.
DIALECT = re.compile(
    r'as why:|\b(found|made|told|wanted|heard|said|own) = |"""(Of|As|Those|That|Whose|Whether) '
    r'|\b[Tt]hose of |\bis none[ .,"]'
)
# Phrases that another term has replaced.
REPLACED = re.compile(
    r"until the result is clear|not distinguishable|told apart|[Bb]y turns|taken turns|the machine tells|made-up"
    r"|claimed cache|bench time|hopeless pair|in company"
)
PAGES_ONLY = re.compile(r"\b[Tt]hose of |\bis none[ .,]|\b([A-Za-z]{2,}) \1\b")  # the last: a word is repeated
# What a function returns or does is a sentence that begins with a verb.
NOT_A_VERB = re.compile(r"(The|An?|What|Why|How|Where|Which|Who|All|One|Each|Its|True|False|None)\b")
COMMANDS = ROOT / "src" / "meshmark" / "cli"  # their docstrings are the text of `--help`

PYTHON = sorted((ROOT / "src" / "meshmark").rglob("*.py"))
SOURCES = [
    *PYTHON,
    *(p for suffix in ("cpp", "hpp") for p in (ROOT / "native").rglob(f"*.{suffix}")),
    *(ROOT / "web" / "src").glob("*.ts"),
]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "tools").rglob("*.md")]


def lines_with(pattern: re.Pattern[str], texts: dict[Path, str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def prose(page: str) -> str:
    """Return a page in which code and the output of programs are empty lines."""
    fences = re.compile(r"^( *)(```+|~~~+)(?!\{).*?^\1\2$", re.MULTILINE | re.DOTALL)
    page = fences.sub(lambda code: "\n" * code[0].count("\n"), page)
    return re.sub(r"^ {4,}(?![ *-]|\d+\.).*$|`[^`\n]*`", "", page, flags=re.MULTILINE)


def test_no_line_is_in_the_old_dialect() -> None:
    assert len(SOURCES) > 500
    assert lines_with(DIALECT, {path: path.read_text() for path in SOURCES}) == []


def test_no_source_has_a_phrase_that_a_term_replaced() -> None:
    assert lines_with(REPLACED, {path: path.read_text() for path in SOURCES}) == []


@pytest.mark.parametrize("pattern", [REPLACED, PAGES_ONLY], ids=["replaced", "grammar"])
def test_pages_are_in_plain_english(pattern: re.Pattern[str]) -> None:
    assert len(PAGES) > 80
    assert lines_with(pattern, {path: prose(path.read_text()) for path in PAGES}) == []


def test_only_code_is_removed_from_a_page() -> None:
    page = "See `a a`:\n\n```text\nx x\n```\n\n    y y\n\n* one\n    * two two\n"
    assert prose(page).splitlines() == ["See :", "", "", "", "", "", "", "", "* one", "    * two two"]


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    nouns = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}"
        for path in PYTHON
        if not path.is_relative_to(COMMANDS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and NOT_A_VERB.match(text := ast.get_docstring(node) or "")
    ]
    assert nouns == []


@pytest.mark.parametrize(
    "argv",
    [
        ["typos", "--format", "brief"],
        ["ruff", "check", "-q", "--output-format", "concise", "src", "bench"],  # docstrings, among others
    ],
    ids=lambda argv: argv[0],
)
def test_a_linter_has_no_findings(argv: list[str]) -> None:
    argv = [str(Path(sys.executable).with_name(argv[0])), *argv[1:]]
    completed = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (completed.returncode, completed.stdout + completed.stderr) == (0, "")
