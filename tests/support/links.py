"""Finds dead links of a site of static pages, without a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REFERENCES = {("a", "href"), ("link", "href"), ("img", "src"), ("script", "src"), ("iframe", "src"), ("form", "action")}


@dataclass
class PageLinks(HTMLParser):
    """The references and the anchors of a page."""

    references: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) in REFERENCES and value is not None:
                self.references.append(value)
            elif (name == "id" or (tag, name) == ("a", "name")) and value is not None:
                self.anchors.add(value)
            elif (tag, name) == ("meta", "content") and value is not None and ";url=" in value:
                self.references.append(value.partition(";url=")[2])


def links_of(page: Path) -> PageLinks:
    links = PageLinks()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def dead_links(site: Path) -> list[str]:
    """Return the links to files and anchors of a site that do not exist, as `PAGE: LINK: reason`.

    Links to other hosts are not followed. A link to a folder is dead, because it does not work from a disk.
    """
    pages = {page.resolve(): links_of(page) for page in sorted(site.rglob("*.html"))}
    dead = []
    for page, links in pages.items():
        for reference in dict.fromkeys(links.references):
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            reason = ""
            if not target.is_relative_to(site.resolve()):
                reason = "is outside the site"
            elif not target.is_file():
                reason = "is not a file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                reason = "has no such anchor"
            if reason:
                dead.append(f"{page.relative_to(site.resolve())}: {reference}: {reason}")
    return dead
