"""Starts the command of Meshmark as a user does, with a separate home, temporary folder and user name.

Finds what it leaves behind: processes, temporary files, and files that were not yet renamed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshmark.store.files import ASIDE
from support.cli import COMMAND
from support.waiting import until

PATIENCE_S = 10.0  # time within which the processes that a killed command had started must end


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """Return the one line that explains the failure; "" if there is no such line, or if there is more than one."""
        lines = [
            x for x in self.err.splitlines() if re.match(r"meshmark(-\w+)?: (error|absent|interrupted|ended by)", x)
        ]
        is_crash = "Traceback" in self.err or "unexpected " in self.err or "Exception ignored" in self.err
        return lines[0] if len(lines) == 1 and not is_crash else ""


@dataclass
class Place:
    """The folder of one command."""

    folder: Path
    more: Mapping[str, str | None] = field(default_factory=dict)  # environment; None: not set
    wrap: Sequence[str] = ()  # words before the command
    tag: str = field(default_factory=lambda: f"MESHMARK_TEST_TAG={uuid.uuid4().hex}")
    started: int = 0
    left: list[str] = field(default_factory=list)  # leftovers of a SIGKILL
    log: str = "run"  # prefix of the names of its outputs

    def __post_init__(self) -> None:
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        name, _, value = self.tag.partition("=")
        # Open MPI keeps the shared memory of its ranks below /dev/shm, which also has the files of other programs.
        shared = {"OMPI_MCA_btl_vader_backing_directory": str(self.temporary)}
        environment = {
            **os.environ,
            "XDG_DATA_HOME": str(self.folder / "data"),
            "TMPDIR": str(self.temporary),
            **shared,
            name: value,
            **self.more,
        }
        return {name: value for name, value in environment.items() if value is not None}

    def start(self, words: Sequence[str]) -> Command:
        """Start the command in a new session, like a terminal.

        Output goes to files, since another process could hold a pipe.
        """
        self.started += 1
        out, err = (self.folder / f"{self.log}.{self.started}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as output, err.open("wb") as log:
            child = subprocess.Popen(
                [*self.wrap, *COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )
        return Command(child, out, err)

    def run(self, words: Sequence[str]) -> Ended:
        return self.start(words).ended()

    def running(self) -> list[str]:
        """Return the processes that were started here and still run, except for zombies."""
        running_processes = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.tag.encode() in (path / "environ").read_bytes():
                    running_processes.append(
                        (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
                    )
            except OSError:
                continue
        return running_processes

    def orphans(self) -> list[str]:
        """Return those processes that still run after a while."""
        until(lambda: not self.running(), PATIENCE_S)
        return self.running()

    def temporaries(self) -> list[str]:
        return sorted(str(p.relative_to(self.temporary)) for p in self.temporary.rglob("*"))

    def asides(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob(".*") if ASIDE.fullmatch(p.name))


@dataclass
class Command:
    child: subprocess.Popen[Any]
    out: Path
    err: Path

    def ended(self, within_s: float = 120) -> Ended:
        try:
            self.child.wait(within_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise AssertionError(f"it hangs: {self.child.args}") from None
        out, err = (p.read_text(errors="replace") for p in (self.out, self.err))
        return Ended(self.child.returncode, out, err)

    def heeds_signals(self) -> bool:
        """Wait until SIGTERM has a handler, which replaces Python's own. Return False if the command ended first."""

        def heeds() -> bool:
            match = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{self.child.pid}/status").read_text())
            return match is not None and int(match[1], 16) >> (signal.SIGTERM - 1) & 1 == 1

        until(lambda: self.child.poll() is not None or heeds(), step_s=0.005)
        return self.child.returncode is None

    def kill(self, number: int, after_s: float) -> bool:
        """Send a signal after so long, and return whether the command was still running.

        Ctrl-C goes to the whole session.
        """
        end = time.monotonic() + after_s
        self.heeds_signals()
        try:
            self.child.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            (os.killpg if number == signal.SIGINT else os.kill)(self.child.pid, number)
            return True
        return False
