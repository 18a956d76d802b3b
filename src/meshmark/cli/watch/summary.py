"""Prints the summary of a command and of the machine around it on standard error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meshmark.cli.console import say

if TYPE_CHECKING:
    from meshmark.watch.recorder.summary import WindowSummary
    from meshmark.watch.recorder.window import CommandWindow


def print_summary(window: CommandWindow, summary: Callable[[], WindowSummary]) -> None:
    """Print how the command ended, what it used, and what the machine did meanwhile.

    Args:
        window: The window of the command.
        summary: Returns the summary of its frames, which may take time.
    """
    from meshmark.views.content.recording import summary_sections
    from meshmark.views.terminal.screen import print_sections, table_console
    from meshmark.watch.recorder.summary import command_text

    for line in command_text(window):
        say(line)
    content = summary()
    if content.frames:
        print_sections(table_console(stderr=True), summary_sections(content))
    else:
        say("the command was too short for a frame")
