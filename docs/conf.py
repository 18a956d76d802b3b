"""Sphinx builds the pages of the forge as a site: `make docs`.

The site links to the list of versions if it is built in a folder with its version as name, and contains the gallery of
reports if `make gallery` has built it.
"""

import json
import shutil
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
html_show_copyright = False
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
suppress_warnings = ["misc.highlighting_failure"]


def find_gallery(app: Any, config: Any) -> None:
    """Tell templates whether the site contains the gallery; if this changes, Sphinx writes all pages again."""
    config.html_context = {"gallery": (root / config.gallery / "index.html").is_file()}


def link_versions(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Tell templates whether the site is beside other versions."""
    context["beside_versions"] = Path(app.outdir).name == release


def copy_gallery(app: Any, error: Exception | None) -> None:
    """Copy the pages of the gallery and their pictures into the site."""
    target = Path(app.outdir) / "gallery"
    shutil.rmtree(target, ignore_errors=True)
    if app.config.html_context["gallery"] and error is None and app.builder.format == "html":
        shutil.copytree(root / app.config.gallery, target, ignore=shutil.ignore_patterns(".*", "charts", "card.json"))


def setup(app: Any) -> None:
    """Register notebooks as pages, and what the site contains besides pages."""
    from myst_parser.parsers.sphinx_ import MystParser
    from notebooks import markdown

    class Notebook(MystParser):
        supported = ("notebook",)

        def parse(self, inputstring: str, document: Any) -> None:
            super().parse(markdown(json.loads(inputstring)), document)

    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.add_config_value("gallery", "build/gallery", "html", str)  # a folder that `docs/gallery.py` wrote
    app.connect("config-inited", find_gallery)
    app.connect("html-page-context", link_versions)
    app.connect("build-finished", copy_gallery)
