"""Runs the commands of the documentation and writes their output into it.

A transcript is a fenced block of the kind `console`: lines that begin with `$ ` are commands (a line that ends with a
backslash goes on in the next), other lines are their output. A comment in the line before a block sets options:

    <!-- transcript: status=2 head=6 tail=2 slow idle background -->

* `status`: the expected exit status [0].
* `head`, `tail`: how many lines of each output to keep at either end [all].
* `slow`: the command takes minutes, so `make test` leaves it out.
* `idle`: the command refuses to run on a busy machine. Tests run in parallel, so they add `--force`.
* `background`: the command runs beside those that follow, and is terminated at the end of the page.

`<!-- file: bus.toml -->` before any fenced block writes the block to that file. The blocks of a page run in order, in
one empty folder, with an empty home.

example: .venv/bin/python docs/transcripts.py docs/tutorial/first-halo.md
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parent
ROOT: Final = DOCS.parent
COLUMNS: Final = 100
LIMIT_S: Final = 500  # limit of one command
ELISION: Final = "…"
OPTIONS: Final = {"status", "head", "tail", "slow", "idle", "background"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page that is a transcript or a file.

    Attributes:
        first, last: Indices of the lines between the fences, `last` exclusive.
        file: The name of the file, or "".
    """

    first: int
    last: int
    lines: tuple[str, ...]
    options: dict[str, str]
    file: str = ""

    def number(self, option: str, default: int) -> int:
        return int(self.options.get(option, default))

    @property
    def commands(self) -> list[str]:
        """Return the commands, each with its continuation lines."""
        joined: list[str] = []
        continues = False
        for line in self.lines:
            if continues:
                joined[-1] += f"\n{line}"
            elif line.startswith("$ "):
                joined.append(line[2:])
            else:
                continue
            continues = line.endswith("\\")
        return joined


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended. `right` is true if its exit status is the documented one."""

    line: int  # line of the block in the page, from 1
    command: str
    status: int
    expected: int
    output: str

    @property
    def right(self) -> bool:
        return self.status == self.expected


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that run or become files.

    Raises:
        ValueError: An option is unknown.
    """
    lines = page.splitlines()
    index = 0
    while index < len(lines):
        fence = re.fullmatch(r"```(\S*)", lines[index])
        if not fence:
            index += 1
            continue
        end = lines.index("```", index + 1)
        before = lines[index - 1] if index else ""
        file_match = re.fullmatch(r"<!-- file: (\S+) -->", before)
        if file_match or fence[1] == "console":
            match = re.fullmatch(r"<!-- transcript: (.*) -->", before)
            options = dict(word.partition("=")[::2] for word in shlex.split(match[1])) if match else {}
            if unknown_names := options.keys() - OPTIONS:
                raise ValueError(
                    f"line {index}: found option {min(unknown_names)!r}; allowed: {', '.join(sorted(OPTIONS))}"
                )
            yield Block(index + 1, end, tuple(lines[index + 1 : end]), options, file_match[1] if file_match else "")
        index = end + 1


def shortened(output: str, head: int, tail: int) -> list[str]:
    """Return the lines of an output without those in the middle; 0 and 0 keep all."""
    lines = [line.rstrip() for line in output.splitlines()]
    if not (head or tail) or len(lines) <= head + tail:
        return lines
    return [*lines[:head], ELISION, *lines[len(lines) - tail :]]


def environment(home: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MESHMARK", "XDG_", "PYTEST"))}
    path = f"{ROOT / '.venv' / 'bin'}:{ROOT / 'build' / 'release' / 'bin'}:{os.environ['PATH']}"
    return {
        **env,
        "MESHMARK_LEDGER": str(home / "ledger"),  # other programs of this host have claims, too
        "HOME": str(home),
        "PATH": path,
        "COLUMNS": str(COLUMNS),
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def started(command: str, folder: Path, home: Path) -> subprocess.Popen[str]:
    """Start a command in a new session with both outputs in one pipe."""
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ran(command: str, folder: Path, home: Path) -> tuple[int, str]:
    """Return the exit status and the output of a command."""
    child = started(command, folder, home)
    try:
        output, _ = child.communicate(timeout=LIMIT_S)
    except BaseException:
        terminate(child)
        raise
    return child.returncode, output.replace(f"{folder}/", "").replace(str(home), "~")


def run_page(page: Path, slow: bool, report: Callable[[Done], None], busy: bool = False) -> str:
    """Run the commands of a page and return the page with their output.

    Args:
        slow: Whether to run the slow commands, too; otherwise their blocks stay unchanged.
        busy: Whether other programs run, so that commands that need an idle machine need `--force`.
    """
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    replaced: list[tuple[Block, list[str]]] = []
    with tempfile.TemporaryDirectory(prefix="meshmark-docs-") as name, ExitStack() as at_end:
        folder, home = Path(name) / "work", Path(name) / "home"
        folder.mkdir()
        home.mkdir()
        for block in blocks(text):
            if block.file:
                (folder / block.file).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
                continue
            if "slow" in block.options and not slow:
                continue
            if "background" in block.options:
                for command in block.commands:
                    at_end.callback(terminate, begin(command, folder, home))
                continue
            new: list[str] = []
            for command in block.commands:
                force = " --force" if busy and "idle" in block.options else ""
                status, output = ran(command + force, folder, home)
                report(Done(block.first, command, status, block.number("status", 0), output))
                new += [*f"$ {command}".splitlines()]
                new += shortened(output, block.number("head", 0), block.number("tail", 0))
            replaced.append((block, new))
    for block, new in reversed(replaced):
        lines[block.first : block.last] = new
    return "\n".join(lines) + "\n"


def begin(command: str, folder: Path, home: Path) -> subprocess.Popen[str]:
    """Start a command in the background, and wait for its first line of output."""
    child = started(command, folder, home)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def terminate(child: subprocess.Popen[str]) -> None:
    os.killpg(child.pid, signal.SIGTERM)
    child.communicate(timeout=LIMIT_S)


def pages() -> list[Path]:
    """Return all pages with a transcript."""
    files = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [p for p in files if any(not b.file for b in blocks(p.read_text(encoding="utf-8")))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run and write [all]")
    options = parser.parse_args()
    wrong = 0

    def report(done: Done) -> None:
        nonlocal wrong
        wrong += not done.right
        print(f"{'ok ' if done.right else 'BAD'} {done.status:3} line {done.line}: {done.command}", flush=True)
        if not done.right:
            print(done.output)

    for page in options.pages or pages():
        print(page)
        before = wrong
        new = run_page(page, True, report)
        if wrong == before:
            page.write_text(new, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
