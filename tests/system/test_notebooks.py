"""The notebooks of the documentation run from an empty store, and contain the outputs of their cells."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from support.scripts import docs_script

notebooks = docs_script("notebooks")


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def made(*sources: str) -> dict[str, Any]:
    cells = [{"cell_type": "code", "source": s, "outputs": [], "metadata": {}} for s in sources]
    return {"nbformat": 4, "cells": [{"cell_type": "markdown", "source": "# Title"}, *cells]}


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """Return the forms of the outputs of each code cell."""
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    return [[k for o in c["outputs"] for k in sorted(o.get("data", {"stream": 0}))] for c in cells]


@pytest.mark.slow
@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda p: str(p.stem))
def test_a_notebook_runs_and_shows_what_is_stored(path: Path) -> None:
    notebook = read(path)
    new = notebooks.executed(notebook)
    assert kinds(new) == kinds(notebook) and any(kinds(new))


def test_outputs_are_those_of_jupyter() -> None:
    notebook = notebooks.executed(made("print('said')\nx = 2", "x + 1", "x = 3;", "import os; os.listdir()", "None"))
    outputs = [c["outputs"] for c in notebook["cells"][1:]]
    assert outputs[0] == [{"output_type": "stream", "name": "stdout", "text": "said\n"}]
    assert outputs[1][0]["data"] == {"text/plain": "3"} and outputs[1][0]["output_type"] == "execute_result"
    assert outputs[2] == outputs[4] == [] and outputs[3][0]["data"] == {"text/plain": "[]"}


def test_a_failing_cell_is_named() -> None:
    with pytest.raises(notebooks.CellError, match=r"(?s)cell 2: Traceback.*ZeroDivisionError"):
        notebooks.executed(made("1", "1 / 0"))


def test_results_are_shown_as_html_and_charts_as_specification_and_picture() -> None:
    chart = "mm.model('gs1280-4').measure('latency', footprint='4KiB..64MiB', store=False)"
    notebook = notebooks.executed(made("import meshmark as mm\nt = " + chart + "\nt", "t.chart()"))
    table, outputs = (c["outputs"][0]["data"] for c in notebook["cells"][1:])
    assert "<table" in table["text/html"] and table["text/plain"].startswith("<meshmark.Table")
    assert base64.b64decode(outputs["image/png"])[:4] == b"\x89PNG"
    specs = [v for k, v in outputs.items() if k.startswith("application/vnd.vegalite.v")]
    assert len(specs) == 1 and specs[0]["layer"]
    page = notebooks.markdown(notebook)
    assert page.startswith("# Title\n") and "````{raw} html" in page and 'src="data:image/png;base64,' in page
