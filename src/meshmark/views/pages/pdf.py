"""Prints a page to PDF with an installed browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, MeshmarkError, quoted
from meshmark.process import run
from meshmark.store.files import write_file

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_TIMEOUT_S: Final = 120.0
_DRAWING_MS: Final = 30_000  # virtual time for drawing the charts, which passes as soon as the page is idle


def find_browser() -> str:
    """Return the path of an installed browser that prints.

    Raises:
        AbsentError: No such browser is installed.
    """
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise AbsentError(
        f"--pdf: found no browser that prints; needed: one of {', '.join(BROWSERS[:3])} in PATH",
        "apt-get install chromium, or print report.html in any browser",
    )


def print_pdf(page: Path, out: Path) -> None:
    """Write a page as PDF, atomically, in the light colours of its print style.

    Raises:
        AbsentError: No browser is installed.
        MeshmarkError: The browser fails, or the file cannot be written.
    """
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="meshmark-pdf-") as folder:
        pdf = Path(folder) / "page.pdf"
        argv = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            f"--user-data-dir={folder}/profile",
            "--window-size=1100,1400",
            f"--virtual-time-budget={_DRAWING_MS}",
            "--no-pdf-header-footer",
            f"--print-to-pdf={pdf}",
            page.absolute().as_uri(),
        ]
        if os.geteuid() == 0:  # the sandbox of the browser does not start as root
            argv.insert(1, "--no-sandbox")
        try:
            result = run(argv, timeout_s=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise MeshmarkError(f"--pdf: {browser} took longer than {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise MeshmarkError(f"--pdf: {browser} cannot be started: {error.strerror}") from error
        if result.returncode or not pdf.is_file():
            error_lines = (result.stderr or b"").decode(errors="replace").strip().splitlines()
            raise MeshmarkError(
                f"--pdf: {browser} wrote no file (status {result.returncode})"
                + (f": {quoted(error_lines[-1])}" if error_lines else "")
            )
        write_file(out, pdf.read_bytes())
