"""`meshmark watch -- COMMAND` in a terminal: the map has the screen while the command runs.

What the command writes to the terminal is kept in a file without a name. The map shows its last lines, and all of it
is printed once the map is closed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final

from meshmark.cli.console import say
from meshmark.cli.watch.command import LiveCommand, print_end, run_command
from meshmark.store.files import read_tail

if TYPE_CHECKING:
    from meshmark.watch.live import LiveSampler
    from meshmark.watch.recorder.command import CommandEnd
    from meshmark.watch.recorder.summary import RecorderCost

_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 5
_COPY_S: Final = 0.2  # interval at which output is copied after the map was closed


def has_terminal() -> bool:
    """Return whether the map can be shown: it reads keys from standard input and is drawn on standard error."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _end_without_terminal() -> None:
    """End this process if its terminal was closed: nothing can be shown any more, and the map cannot be closed either.

    The command has received SIGHUP; it continues if it ignores the signal.
    """
    if not has_terminal():
        os._exit(128 + signal.SIGHUP)


class CommandOutput:
    """Collects the output of a command that would go to the terminal. Use it as a context manager.

    Attributes:
        streams: Streams of the command, as arguments of `subprocess.Popen`. Standard output remains where it is if it
            is not the terminal.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._copied_bytes = 0
        is_shared = sys.stdout.isatty()
        self._terminal = sys.stdout.buffer if is_shared else sys.stderr.buffer
        # The map reads the keys.
        self.streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": self._file}
        if is_shared:
            self.streams["stdout"] = self._file

    def last_lines(self) -> str:
        """Return the last lines, without control characters."""
        lines = read_tail(self._file.fileno(), _TAIL_BYTES).replace("\r", "\n").split("\n")
        shown = [text for line in lines if (text := "".join(c for c in line if c.isprintable()))]
        return "\n".join(shown[-_TAIL_LINES:])

    def copy(self) -> None:
        """Copy to the terminal what was written since the last copy."""
        self._file.seek(self._copied_bytes)
        shutil.copyfileobj(self._file, self._terminal)
        self._copied_bytes = self._file.tell()
        self._terminal.flush()

    def __enter__(self) -> CommandOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class _CommandThread:
    """Runs a command in a thread, because the map needs the main thread."""

    def __init__(self, words: Sequence[str], live: LiveSampler, writer: LiveCommand, output: CommandOutput) -> None:
        self.warnings: list[str] = []
        self._end: tuple[CommandEnd, RecorderCost] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(words, live, writer, output), name="command")
        self._thread.start()

    def _run(self, words: Sequence[str], live: LiveSampler, writer: LiveCommand, output: CommandOutput) -> None:
        try:
            self._end = run_command(words, live, writer, self.warnings.append, output.streams, _end_without_terminal)
        except BaseException as error:  # raised again by `end`
            self._error = error

    def ends_within(self, wait_s: float) -> bool:
        """Wait for the end of the command; return whether it has ended."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def end(self) -> tuple[CommandEnd, RecorderCost]:
        """Return how the command ended, or raise why it could not be run."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._end is not None
        return self._end


def watch_command_in_terminal(words: Sequence[str], live: LiveSampler, bounds: tuple[float, float, str]) -> int:
    """Run a command while the terminal shows the live map; print its output and a summary; return its exit status.

    If the user closes the map earlier, the command continues, and its output is printed as it comes.

    Use it within `waiting_for_signals`.

    Args:
        words: The command and its arguments.
        live: The sampler.
        bounds: Shares at which the colours begin and end, 0 to 1, and the name of the palette.
    """
    from meshmark.views.terminal.live.app import MeshApp

    writer = LiveCommand(live.header)
    with CommandOutput() as output:
        command = _CommandThread(words, live, writer, output)
        try:
            MeshApp(live.header, iter(writer.page), *bounds, command_output=output.last_lines).run()
        finally:
            if not command.ends_within(_COPY_S):
                say("the map is closed; the command continues")
            while not command.ends_within(_COPY_S):
                output.copy()
            output.copy()
        for text in command.warnings:
            say(f"warning: {text}")
        end, cost = command.end()
    print_end(writer, cost)
    return end.status
