"""Sphinx builds the pages of the forge as a site: `make docs`."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

root = Path(__file__).resolve().parent.parent
project = "Meshmark"
author = "the Meshmark authors"
release = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
sys.path.insert(0, str(root / "docs"))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "reference/instruments/*.md"]
html_theme = "furo"
html_title = f"Meshmark {release}"
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Any) -> None:
    """Register notebooks as pages."""
    from myst_parser.parsers.sphinx_ import MystParser
    from notebooks import markdown

    class Notebook(MystParser):
        supported = ("notebook",)

        def parse(self, inputstring: str, document: Any) -> None:
            super().parse(markdown(json.loads(inputstring)), document)

    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
