"""Templates: only they write markup, their arguments stay text, and no argument may be missing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import jinja2
import pytest
from markupsafe import Markup

from meshmark.views.render import render
from meshmark.views.tables import TextCell, TextTable
from support.paths import ROOT

MARKUP = re.compile(r"</?[a-z][a-z0-9]*[ />]|<!doctype", re.IGNORECASE)
ELSEWHERE = {
    "views/markdown.py",  # Markdown has no other syntax for a foldable part
    "web/page.py",  # searches the built page for tags
    "cli/place/place.py",  # help: --svg <file>
    "cli/measure/instrument_help.py",
}


def test_python_writes_no_markup() -> None:
    source = ROOT / "src" / "meshmark"
    files = set()
    for path in source.rglob("*.py"):
        if "importers" in path.parts:  # patterns for the output of other tools
            continue
        tree = ast.parse(path.read_text())
        sentences = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in sentences:
                if MARKUP.search(node.value):
                    files.add(str(path.relative_to(source)))
            elif isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert "html" not in names, f"{path}: html"
    assert files == ELSEWHERE


def test_data_stay_texts_and_parts_stay_markup() -> None:
    evil = "<script>alert('1')</script> & \"2\""
    part = str(render("parts/pairs.html", table=TextTable([evil], [[TextCell(evil, "bold", flags=[evil])]]), why=""))
    assert "<script" not in part and "<b>&lt;script&gt;" in part and "&#34;2&#34;" in part
    page = render("site/forward.html", to=evil)
    assert "<script" not in page
    forward_page = render("site/forward.html", to=Markup("<i>"))
    assert 'href="<i>"' in forward_page


def test_what_a_template_needs_must_be_given() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'to' is undefined"):
        render("site/forward.html")


def test_jinja_is_imported_with_the_first_page() -> None:
    code = "import sys, meshmark.cli.app, meshmark.views.render; print('jinja2' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout == "False\n"
