"""Writes the descriptions of the applications into the package, which reads their results where they are not built.

Run `make setup APPS=yes` and this script after a change to the options or metrics of native/apps.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from meshmark.describe import APPLICATIONS

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "build" / "release" / "bin"


def described() -> list[dict[str, Any]]:
    """Return the descriptions of all applications, in the order of their names."""
    descriptions: list[dict[str, Any]] = []
    for path in (PROGRAMS / "meshmark-probe-apps", *sorted(PROGRAMS.glob("meshmark-comm-*-apps"))[:1]):
        completed = subprocess.run([path, "--describe"], capture_output=True, check=True)
        descriptions += json.loads(completed.stdout)
    return sorted(descriptions, key=lambda d: str(d["name"]))


if __name__ == "__main__":
    text = json.dumps(described(), indent=1, ensure_ascii=False) + "\n"
    APPLICATIONS.write_text(text, encoding="utf-8")
