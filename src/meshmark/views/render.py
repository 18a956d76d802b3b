"""Renders HTML and SVG from the templates of this package.

Jinja2 is imported on first use, so that other commands start quickly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.values.units import FLAG_TEXT, seconds_of, size
from meshmark.views.tables import TableSection

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES: Final = Path(__file__).with_name("templates")
STYLE_SHEET: Final = TEMPLATES / "page.css"


@functools.cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def within(text: str, tag: str) -> Markup:
        # In strings and regular expressions of a script, `<\/script` equals `</script`.
        return Markup(re.sub(f"</({tag})", r"<\\/\1", text, flags=re.IGNORECASE).replace("<!--", "<\\!--"))

    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.policies["json.dumps_kwargs"] = {"default": str}
    environment.filters |= {
        "fixed": lambda value, digits=1: f"{value:.{digits}f}",
        "flag_text": lambda flag: FLAG_TEXT.get(flag, flag),
        "seconds_of": seconds_of,
        "size": size,
        "within": within,
    }
    return environment


def render(template: str, folder: Path = TEMPLATES, **data: Any) -> Markup:
    """Return a template rendered with data, which is escaped unless it is rendered markup.

    Args:
        template: Path below the folder.
        folder: Folder with the templates of another package, which may include the templates of this package.
        data: Values by the name that the template uses.

    Raises:
        jinja2.UndefinedError: Data that the template uses is missing.
    """
    from markupsafe import Markup

    return Markup(_environment(folder).get_template(template).render(data))


def render_sections(sections: Sequence[TableSection]) -> str:
    """Return tables with the conclusions from them; "" if there are none."""
    return render("parts/tables.html", sections=sections) if sections else ""
