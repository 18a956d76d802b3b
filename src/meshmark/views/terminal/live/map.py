"""Draws the map as text, with the same boxes and lines as in the browser."""

from __future__ import annotations

import math
from typing import Final

from rich.style import Style
from rich.text import Text

from meshmark.watch.frames import Frame, Header
from meshmark.watch.layout import ComponentBox, MachineMap, Plate
from meshmark.watch.palette import PALETTES, STEPS
from meshmark.watch.rates import counts_stalls, stalled_share

ACROSS: Final = 8.5  # pixels of the map per character, horizontally and vertically
DOWN: Final = 15.0
ROOMY_DOWN: Final = 27.0  # where boxes have three lines in the browser
UNKNOWN: Final = "░"
DIM: Final = "#57636f"  # colour of links with unknown utilisation


def step_of(share: float | None, low: float, high: float) -> int:
    """Return the colour step of a share between two bounds; -1 if it is unknown."""
    if share is None:
        return -1
    return min(STEPS - 1, max(0, int((share - low) / (high - low) * STEPS)))


def _ink(colour: str) -> str:
    def linear(i: int) -> float:
        c = int(colour[i : i + 2], 16) / 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    luminance = 0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
    return "#000000" if luminance > 0.179 else "#ffffff"


def percent(share: float | None) -> str:
    """Return a share as a short percentage without unit; `?` if it is unknown."""
    if share is None:
        return "?"
    value = 100 * share
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"


class Canvas:
    """A grid of coloured characters."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells: list[list[tuple[str, Style | None]]] = [[(" ", None)] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, style: Style | None) -> None:
        """Write a text from a cell to the right; what lies outside the canvas is left out."""
        if not 0 <= y < self.height:
            return
        for i, letter in enumerate(text):
            if 0 <= x + i < self.width:
                self._cells[y][x + i] = (letter, style)

    def text(self) -> Text:
        """Return the canvas as styled text, one line per row."""
        text = Text(no_wrap=True)
        for y, row in enumerate(self._cells):
            x = 0
            while x < self.width:
                style, end = row[x][1], x
                while end < self.width and row[end][1] == style:
                    end += 1
                text.append("".join(c for c, _ in row[x:end]), style)
                x = end
            if y + 1 < self.height:
                text.append("\n")
        return text


def _box_text(label: str, number: str, width: int, is_known: bool) -> str:
    """Return the text of a box that is `width` characters wide: as much of its label and its number as fits."""
    if not is_known:
        return f" {label} " if label and len(label) + 2 <= width else ""
    if number:
        named = f"{label} {number}" if label else number
        return named if len(named) <= width else number if len(number) <= width else ""
    return label if len(label) <= width else ""


def draw(
    header: Header,
    machine_map: MachineMap,
    frame: Frame | None,
    low: float = 0.0,
    high: float = 1.0,
    palette: str = "inferno",
    numbers: bool = True,
) -> Text:
    """Draw the map of a machine at one tick.

    Args:
        header: Header of the stream.
        machine_map: Layout of the map.
        frame: The frame; None to draw all components as unknown.
        low: Share at which the lowest colour begins, 0 to 1.
        high: Share at which the highest colour ends, 0 to 1.
        palette: Name of the colour palette.
        numbers: Write percentages into the boxes, beside the names if there is room, otherwise instead of them.
    """
    colours = PALETTES[palette]
    use_of = header.use
    estimated = {m.name for m in header.metrics if m.estimated}
    # The distance between nodes is a whole number of characters, so that all nodes of a grid look alike.
    across, down = (
        step / max(1, round(step / usual)) if step else usual
        for step, usual in zip(machine_map.step, (ACROSS, ROOMY_DOWN if machine_map.roomy else DOWN), strict=True)
    )
    canvas = Canvas(int(machine_map.width / across) + 2, int(machine_map.height / down) + 2)

    def share(kind: str, index: int) -> float | None:
        return frame.value(use_of[kind], index) if frame is not None else None

    def column(x: float) -> int:
        return round(x / across)

    # Draw lines first, then the background of nodes over their ends, then the content of nodes.
    halves: dict[tuple[int, int], list[str | None]] = {}
    for line in machine_map.lines:
        step = step_of(share("link", line.index), low, high)
        colour = DIM if step < 0 else colours[step]
        (x1, y1), (x2, y2) = line.points[0], line.points[-1]
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        pad = 1.2 * down / length  # extends the line to the text, which is smaller than the node's box
        x1, y1, x2, y2 = (x1 - pad * (x2 - x1), y1 - pad * (y2 - y1), x2 + pad * (x2 - x1), y2 + pad * (y2 - y1))
        if abs(y2 - y1) < 1:
            # Two parallel directions share a row: one is the upper half, the other the lower half.
            row, half = divmod(round(2 * y1 / down - 0.5), 2)
            for cell_x in range(column(min(x1, x2)), column(max(x1, x2)) + 1):
                halves.setdefault((cell_x, row), [None, None])[half] = colour
            continue
        steps = max(1, int(max(abs(x2 - x1) / across, abs(y2 - y1) / down)))
        mark = "┃" if abs(x2 - x1) < 1 else "•"
        for i in range(steps + 1):
            x, y = x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps
            canvas.put(column(x), round(y / down - 0.4), mark, Style(color=colour))
    for (cell_x, row), (upper, lower) in halves.items():
        style = Style(color=upper or lower, bgcolor=lower if upper else None)
        canvas.put(cell_x, row, "▀" if upper else "▄", style)

    dim = Style(dim=True)
    for x, y, _ in machine_map.switches:
        canvas.put(column(x), round(y / down - 0.4), "◆", dim)
    rows_of: dict[tuple[float, float], int] = {}  # by the corner of a box
    for x, y, w, h, label in machine_map.outlines:
        all_boxes: list[ComponentBox | Plate] = [*machine_map.boxes, *machine_map.plates]
        inside = [b for b in all_boxes if x <= b.x < x + w and y <= b.y < y + h]
        top = round(y / down)
        tops = sorted({b.y for b in inside})
        for b in inside:
            rows_of[b.x, b.y] = top + 1 + tops.index(b.y)
        for row in range(top, top + 1 + len(tops)):
            canvas.put(column(x), row, " " * (column(x + w) - column(x)), None)
        canvas.put(column(x + 4), top, label, dim)
    for plate in machine_map.plates:
        left = column(plate.x)
        width = max(1, column(plate.x + plate.w) - left)
        row = rows_of.get((plate.x, plate.y), round((plate.y + 2) / down))
        text = plate.label if len(plate.label) <= width else plate.label[:width]
        canvas.put(left, row, text.center(width, "─"), dim)
    for box in machine_map.boxes:
        use = share(box.component_class, box.index)
        step = step_of(use, low, high)
        left = column(box.x)
        width = max(1, column(box.x + box.w) - left)
        row = rows_of.get((box.x, box.y), round((box.y + 2) / down))
        mark = "~" if use is not None and use_of[box.component_class] in estimated else ""
        text = _box_text(box.label, mark + percent(use) if numbers else "", width, step >= 0)
        if step < 0:
            canvas.put(left, row, UNKNOWN * width, dim)
            canvas.put(left + (width - len(text)) // 2, row, text, dim)
            continue
        style = Style(color=_ink(colours[step]), bgcolor=colours[step])
        canvas.put(left, row, text.center(width), style)
        stalled = stalled_share(frame, box.index) if frame is not None and box.component_class == "cpu" else None
        if stalled:
            canvas.put(left, row, text.center(width)[: round(width * stalled)], style + Style(underline=True))
    return canvas.text()


def scale_text(header: Header, low: float, high: float, palette: str) -> Text:
    """Return the colour scale with its bounds, and what marks in the map mean."""
    text = Text(no_wrap=True)
    for i, colour in enumerate(PALETTES[palette]):
        bound = 100 * (low + (high - low) * i / STEPS)
        text.append(f" {bound:.3g}".ljust(5), Style(color=_ink(colour), bgcolor=colour))
    text.append(f" {100 * high:.3g} %   ")
    text.append(UNKNOWN * 3, Style(dim=True))
    text.append(" not known")
    if counts_stalls(header):
        text.append("   ")
        text.append("   ", Style(underline=True))
        text.append(" stalled")
    return text
