"""Executes the notebooks of the documentation and writes their outputs into them, and renders them for the site.

The cells of the notebooks are plain Python, without magics or shell commands. Each notebook runs in a fresh process,
in an empty folder and with an empty home; the outputs have the form that Jupyter stores. A chart is stored as its
specification, which JupyterLab draws, and as a PNG for other readers. This needs neither Jupyter nor its packages.

example: .venv/bin/python docs/notebooks.py docs/notebooks/first-survey.ipynb
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent / "notebooks"
LIMIT_S: Final = 500  # limit of one notebook
HTML: Final = "text/html"
PNG: Final = "image/png"
TEXT: Final = "text/plain"
Output = dict[str, Any]


class CellError(Exception):
    """A cell raised an exception; the message has its number and traceback."""


def code(notebook: dict[str, Any]) -> list[str]:
    """Return the sources of the code cells."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of all its cells.

    Raises:
        CellError: A cell raised an exception.
    """
    with tempfile.TemporaryDirectory(prefix="meshmark-notebook-") as name:
        home, work = Path(name) / "home", Path(name) / "work"
        home.mkdir()
        work.mkdir()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MESHMARK", "XDG_", "PYTEST"))}
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        env = {
            **environment,
            "HOME": str(home),
            "PATH": path,
            "MESHMARK_LEDGER": str(home / "ledger"),
            "COLUMNS": "100",
        }
        completed = subprocess.run(
            [sys.executable, __file__, "--kernel"],
            input=json.dumps(code(notebook)),
            capture_output=True,
            text=True,
            cwd=work,
            env=env,
            timeout=LIMIT_S,
            check=False,
        )
    if completed.returncode:
        raise CellError(completed.stderr.strip())
    cell_outputs = iter(json.loads(completed.stdout.replace(f"{work}/", "")))
    cells = []
    for number, cell in enumerate(notebook["cells"]):
        outputs = next(cell_outputs) if cell["cell_type"] == "code" else None
        numbered = {**cell, "id": f"cell-{number}"}
        cells.append(numbered if outputs is None else {**numbered, "execution_count": None, "outputs": outputs})
    return {**notebook, "cells": cells}


def kernel() -> int:
    """Execute the cells on standard input, and print the outputs of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cell_outputs: list[list[Output]] = []
    for number, source in enumerate(json.load(sys.stdin), 1):
        stdout, stderr = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                value = _run(source, f"cell {number}", names)
                displayed = _shown(value)
        except Exception:
            print(f"cell {number}: {traceback.format_exc()}", file=sys.stderr)
            return 1
        streams = (("stdout", stdout.getvalue()), ("stderr", stderr.getvalue()))
        outputs: list[Output] = [{"output_type": "stream", "name": n, "text": t} for n, t in streams if t]
        if displayed:
            result = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": displayed}
            outputs.append(result)
        cell_outputs.append(outputs)
    print(json.dumps(cell_outputs))
    return 0


def _run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Execute a cell and return the value of its last line if that is an expression, otherwise None."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


def _shown(value: Any) -> dict[str, Any]:
    """Return the forms in which a notebook displays a value; empty for None."""
    if value is None:
        return {}
    if type(value).__module__.startswith("altair"):
        from meshmark.views.charts.vega import png_of_svg, svgs

        spec = value.to_dict()
        png = base64.b64encode(png_of_svg(svgs([spec])[0], scale=1)).decode()
        return {f"application/vnd.vegalite.v{_version(spec)}+json": spec, PNG: png, TEXT: "a chart"}
    output = {TEXT: repr(value)}
    if hasattr(value, "_repr_html_"):
        output[HTML] = str(value._repr_html_())
    return output


def _version(spec: dict[str, Any]) -> str:
    """Return `6` of `https://vega.github.io/schema/vega-lite/v6.1.0.json`."""
    return str(spec["$schema"]).rpartition("/v")[2].partition(".")[0]


# ------------------------------------------------------------------ the site


def markdown(notebook: dict[str, Any]) -> str:
    """Return the notebook as a page of MyST, for Sphinx."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(_fenced("python", source))
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(_fenced("text", "".join(output["text"]).rstrip("\n")))
            elif HTML in output["data"]:
                parts.append(_fenced("{raw} html", "".join(output["data"][HTML])))
            elif PNG in output["data"]:
                image = f'<img alt="chart" src="data:{PNG};base64,{"".join(output["data"][PNG]).strip()}">'
                parts.append(_fenced("{raw} html", image))
            else:
                parts.append(_fenced("text", "".join(output["data"][TEXT])))
    return "\n\n".join(parts) + "\n"


def _fenced(kind: str, text: str) -> str:
    return f"````{kind}\n{text}\n````"


def paths() -> list[Path]:
    """Return the paths of all notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="notebooks to execute and write [all]")
    parser.add_argument("--kernel", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kernel:
        return kernel()
    wrong_count = 0
    for path in options.notebooks or paths():
        try:
            new = executed(json.loads(path.read_text(encoding="utf-8")))
        except CellError as error:
            wrong_count += 1
            print(f"BAD {path}: {error}")
            continue
        path.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"ok  {path}: {path.stat().st_size} B")
    return 1 if wrong_count else 0


if __name__ == "__main__":
    sys.exit(main())
