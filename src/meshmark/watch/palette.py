"""Defines the colour scales of use for all views."""

from __future__ import annotations

from typing import Final

# Ten steps each; a test compares the colours with web/src/palette.ts.
PALETTES: Final = {
    "inferno": (
        "#170c3a",
        "#420a68",
        "#6b186e",
        "#932667",
        "#bb3754",
        "#dd513a",
        "#f37819",
        "#fca50a",
        "#f6d746",
        "#fcffa4",
    ),
    "cividis": (
        "#00224e",
        "#12356f",
        "#3b496c",
        "#575d6d",
        "#707173",
        "#8a8678",
        "#a59c74",
        "#c3b369",
        "#e1cc55",
        "#fee838",
    ),
    "spectrum": (
        "#4b0082",
        "#3a1fb8",
        "#1f4fe0",
        "#0a8fd0",
        "#00b39b",
        "#2fb344",
        "#9bc418",
        "#f0c000",
        "#f57f00",
        "#e00000",
    ),
}
STEPS: Final = 10
