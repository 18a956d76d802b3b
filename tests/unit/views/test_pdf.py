"""Without a browser, or with one that fails, printing ends with one line and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.views.pages.pdf import BROWSERS, print_pdf


def browser(folder: Path, script: str) -> None:
    path = folder / BROWSERS[0]
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_without_a_browser_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AbsentError, match="--pdf: found no browser") as failure:
        print_pdf(tmp_path / "report.html", tmp_path / "a.pdf")
    assert "apt-get install chromium" in failure.value.hint and not (tmp_path / "a.pdf").exists()


def test_a_browser_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser(tmp_path, "echo out of memory >&2; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(MeshmarkError, match=r"status 3\): out of memory"):
        print_pdf(tmp_path / "report.html", tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_the_file_of_the_browser_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser(tmp_path, 'for word; do case $word in --print-to-pdf=*) printf %%PDF > "${word#*=}";; esac; done')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    print_pdf(tmp_path / "report.html", tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes() == b"%PDF"
