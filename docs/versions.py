"""Lists the versions of the documentation that are in a folder, for a static host.

* versions.html: links to all versions, newest first
* versions.json: the same as a list of names, for programs
* index.html: forwards to the newest version

Each version is a folder with its number as name, as `make docs` builds it. To publish a new version, build it beside
the earlier ones, or copy its folder there, and run this script.

example: .venv/bin/python docs/versions.py --out build/docs
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError
from meshmark.store.files import write_json, write_text
from meshmark.views.render import render

ROOT: Final = Path(__file__).resolve().parent.parent
TEMPLATES: Final = ROOT / "docs" / "templates"
VERSION: Final = re.compile(r"(\d+(?:\.\d+)*)([\w.+-]*)")  # 0.2.0, 0.2.0rc1


def versions(folder: Path) -> list[str]:
    """Return the names of the folders with a version, newest first; a release is newer than its candidates."""
    matches = [match for page in folder.glob("*/index.html") if (match := VERSION.fullmatch(page.parent.name))]
    matches.sort(key=lambda m: ([int(part) for part in m[1].split(".")], m[2] == "", m[2]), reverse=True)
    return [match[0] for match in matches]


def write(folder: Path) -> Path:
    """Write the three files and return the list of versions.

    Raises:
        MeshmarkError: The folder has no version, or cannot be written.
    """
    names = versions(folder)
    if not names:
        raise MeshmarkError(
            f"found no version in {folder}; needed: a folder such as 0.1.0 with index.html", "make docs"
        )
    write_json(folder / "versions.json", names)
    write_text(folder / "index.html", str(render("site/forward.html", to=f"{names[0]}/index.html")))
    page = folder / "versions.html"
    write_text(
        page, str(render("versions.html", TEMPLATES, title="Versions of Meshmark's documentation", versions=names))
    )
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder [build/docs]")
    try:
        print(write(parser.parse_args().out))
    except MeshmarkError as error:
        print(f"versions: error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
