"""Reads drawings for tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
