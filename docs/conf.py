"""Sphinx: the same pages as on the forge, as a site. `make docs`."""

import tomllib
from pathlib import Path

root = Path(__file__).resolve().parent.parent
project = "Meshmark"
author = "the Meshmark authors"
release = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "reference/instruments/*.md"]
html_theme = "furo"
html_title = f"Meshmark {release}"
suppress_warnings = ["misc.highlighting_failure"]
