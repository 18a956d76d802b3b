"""The site of the documentation: its links, its versions, the gallery inside it, and its search from a disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from map_page import attentive

from support.links import dead_links
from support.paths import ROOT
from support.scripts import docs_script

gallery, versions = docs_script("gallery"), docs_script("versions")
VERSION = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]  # type: ignore[index]


def sphinx(checkout: Path, out: Path, gallery_folder: Path | str) -> None:
    """Build the site as `make docs` does."""
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", checkout / "doctrees", "-D", f"gallery={gallery_folder}"]
    completed = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, checkout / "docs", out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")


def small_report(out: Path) -> None:
    (out / "report.html").write_text('<header><h1 id="title">A report</h1></header><a href="#title">up</a>')
    (out / "picture.png").write_bytes(b"picture")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout whose documentation can be changed: reference pages are generated into it."""
    root: Path = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.name != "docs":
            (root / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", root / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, root / "docs" / "generate.py"], check=True)
    return root


@pytest.fixture(scope="module")
def sites(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all versions: this one with a gallery, and two that are nearly empty."""
    folder: Path = tmp_path_factory.mktemp("sites") / "docs"
    part = gallery.Part("small", "A report", "modelled", "A sentence.", "A notice.", "a chart", small_report)
    pages = folder.parent / "gallery"
    assert gallery.build([part], [part], pages) == 0
    sphinx(checkout, folder / VERSION, pages)
    for old in ("0.0.9", "0.0.10"):
        (folder / old).mkdir()
        (folder / old / "index.html").write_text("<h1>old</h1>")
    versions.write(folder)
    return folder


def test_every_link_of_the_site_and_of_the_gallery_leads_somewhere(sites: Path) -> None:
    assert len(list(sites.rglob("*.html"))) > 80
    assert dead_links(sites) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    links = [
        "b.html",
        "b.html#there",
        "#top",
        "http://elsewhere/x",
        "c.html",
        "b.html#not",
        "../out.html",
        ".",
        "#none",
    ]
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "a.html").write_text(f'<p id="top">{anchors}<img src="p.png">')
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    dead = [line.split(": ")[1] for line in dead_links(tmp_path)]
    assert dead == ["c.html", "b.html#not", "../out.html", ".", "#none", "p.png"]


def test_versions_are_listed_newest_first(sites: Path) -> None:
    assert json.loads((sites / "versions.json").read_text()) == [VERSION, "0.0.10", "0.0.9"]
    assert f"url={VERSION}/index.html" in (sites / "index.html").read_text()
    names = re.findall(r'<a href="([^"]+)/index.html"', (sites / "versions.html").read_text())
    assert names == [VERSION, "0.0.10", "0.0.9"]


def test_a_release_is_newer_than_its_candidates_and_other_folders_are_no_versions(tmp_path: Path) -> None:
    for name in ("1.10.0", "1.9.0", "1.10.0rc1", "gallery"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "2.0.0").mkdir()  # not built
    assert versions.versions(tmp_path) == ["1.10.0", "1.10.0rc1", "1.9.0"]


def test_a_site_alone_links_neither_to_versions_nor_to_a_gallery(checkout: Path, tmp_path: Path) -> None:
    sphinx(checkout, tmp_path / "site", tmp_path / "no-gallery")
    assert dead_links(tmp_path / "site") == []
    page = (tmp_path / "site" / "index.html").read_text()
    assert "versions.html" not in page and "gallery" not in page and f"Meshmark {VERSION}" in page


def test_the_site_is_searched_and_browsed_from_a_disk(browser: Any, sites: Path) -> None:
    page, problems = attentive(browser)
    page.context.set_offline(True)
    page.goto((sites / "index.html").as_uri())
    page.locator("h1", has_text="Meshmark").wait_for()
    page.get_by_role("link", name="Gallery of reports").click()
    page.get_by_role("link", name="A report").click()
    page.get_by_role("link", name="Gallery").click()
    page.goto((sites / VERSION / "index.html").as_uri())
    page.get_by_role("link", name="All versions").click()
    page.get_by_role("link", name=VERSION).click()
    assert problems == []
    page.locator("input.sidebar-search").fill("halo exchange")
    page.keyboard.press("Enter")
    page.locator("#search-results a", has_text="measure your first halo exchange").wait_for()
    page.close()
