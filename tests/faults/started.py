"""Meshmark's command, started as a user starts it, with a home, a temporary folder and a name of its own; and what it
leaves behind: processes, temporary files, files aside."""

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

PATIENCE_S = 10.0  # within which what a killed command had started is gone


@dataclass(frozen=True, slots=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that says what went wrong; "" if there is none, or anything but one."""
        lines = [
            x for x in self.err.splitlines() if re.match(r"meshmark(-\w+)?: (error|absent|interrupted|ended by)", x)
        ]
        bad = "Traceback" in self.err or "unexpected " in self.err or "Exception ignored" in self.err
        return lines[0] if len(lines) == 1 and not bad else ""


@dataclass
class Place:
    """A folder in which one command works."""

    folder: Path
    more: Mapping[str, str | None] = field(default_factory=dict)  # environment; None: not set
    wrap: Sequence[str] = ()  # words before the command's own
    tag: str = field(default_factory=lambda: f"MESHMARK_TEST_TAG={uuid.uuid4().hex}")
    started: int = 0
    left: list[str] = field(default_factory=list)  # what a SIGKILL left
    log: str = "run"  # its outputs' names begin so

    def __post_init__(self) -> None:
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        name, _, value = self.tag.partition("=")
        # Open MPI keeps what its ranks share below /dev/shm, where the files of others lie too.
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
        """In a session of its own, as a terminal would hold it. Output goes to files: no pipe that somebody holds."""
        self.started += 1
        out, err = (self.folder / f"{self.log}.{self.started}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as to, err.open("wb") as log:
            child = subprocess.Popen(
                [*self.wrap, *COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )
        return Command(child, out, err)

    def run(self, words: Sequence[str]) -> Ended:
        return self.start(words).ended()

    def running(self) -> list[str]:
        """What was started here and still runs, zombies apart."""
        results = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.tag.encode() in (path / "environ").read_bytes():
                    results.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
            except OSError:
                continue
        return results

    def orphans(self) -> list[str]:
        """Those that are still there after a while."""
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
        """Waits until SIGTERM has a handler; what Python does before is not ours. False: it ended first."""

        def heeds() -> bool:
            match = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{self.child.pid}/status").read_text())
            return match is not None and int(match[1], 16) >> (signal.SIGTERM - 1) & 1 == 1

        until(lambda: self.child.poll() is not None or heeds(), step_s=0.005)
        return self.child.returncode is None

    def kill(self, number: int, after_s: float) -> bool:
        """Whether it was still there after so long. Ctrl-C goes to all that the terminal holds, the others to it."""
        end = time.monotonic() + after_s
        self.heeds_signals()
        try:
            self.child.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            (os.killpg if number == signal.SIGINT else os.kill)(self.child.pid, number)
            return True
        return False
