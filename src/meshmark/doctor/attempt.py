"""One trial: a command that runs within a limit, and the host that it runs on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from meshmark.measure import launch
from meshmark.measure.journal import Reading, read_journal
from meshmark.native import end_with_parent
from meshmark.store.record import Record

LIMIT_S: Final = 20.0  # of one trial; one that takes longer has shown its trap


_PACKAGES: Final = {
    ("openmpi", "apt-get"): "openmpi-bin libopenmpi-dev",
    ("openmpi", "dnf"): "openmpi openmpi-devel",
    ("openmpi", "zypper"): "openmpi4 openmpi4-devel",
    ("mpich", "apt-get"): "mpich libmpich-dev",
    ("mpich", "dnf"): "mpich mpich-devel",
    ("mpich", "zypper"): "mpich mpich-devel",
    ("caf-openmpi", "apt-get"): "gfortran libcoarrays-openmpi-dev",
    ("caf-mpich", "apt-get"): "gfortran libcoarrays-mpich-dev",
    ("shmem-openmpi", "apt-get"): "libopenmpi-dev",
}


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one trial.

    Attributes:
        status: as a shell tells it; 128 and more where a signal ended it.
        over: it had no end within its time, and was ended.
    """

    status: int
    out: str
    talk: str
    over: bool = False

    @property
    def reading(self) -> Reading:
        """What its output says, where it is that of a program of Meshmark's."""
        return read_journal(self.out.encode().splitlines(keepends=True), "doctor")

    def results(self, metric: str) -> list[Record]:
        return [r for r in self.reading.records if r.metric == metric]

    def value(self, metric: str) -> float | None:
        """The first value of a metric, in its unit."""
        return next((r.value for r in self.results(metric)), None)

    @property
    def absent(self) -> str:
        """The first reason for which something was not to be had; '' where all was."""
        first = next((a.reason for a in self.reading.absences), "")
        return re.sub(r"^[a-z_]+ [^:]*: ", "", first)  # without the point that it was asked for

    @property
    def why(self) -> str:
        """What went wrong, in a few words; '' where nothing did."""
        if self.over:
            return f"no end within {LIMIT_S:.0f} s"
        if self.status == 0:
            return ""
        if error := self.reading.error:
            return error[:120]
        died = re.search(r"signal:? ?(?:number )?(\d+)|\(Segmentation fault\)|SIGSEGV", self.talk, re.I)
        number = int(died[1]) if died and died[1] else 11 if died else self.status - 128 if self.status > 128 else 0
        if 0 < number < signal.NSIG:
            return f"died of {launch.signal_name(number)}"
        said = [x.strip() for x in self.talk.splitlines() if re.search(r"[a-z]{3}", x)]
        return (said[0][:120] if said else "") or f"exit status {self.status}"


class Try(Protocol):
    """Runs a command within `LIMIT_S`, on these CPUs alone where some are named."""

    def __call__(
        self, words: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None
    ) -> Tried: ...


def try_for_real(words: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None) -> Tried:
    """As `Try`; nothing of what it started is left when it returns."""

    def prepare() -> None:
        end_with_parent()  # a launcher that is asked ends its ranks, and leaves nothing in the temporary folder
        if cpus:
            os.sched_setaffinity(0, cpus)

    try:
        child = subprocess.Popen(
            list(words),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            preexec_fn=prepare,
        )
    except OSError as why:
        return Tried(127, "", f"{words[0]}: {why.strerror or why}")
    over = False
    try:
        out, talk = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        over = True
        out, talk = _ended(child)
    except BaseException:
        _ended(child)
        raise
    status = child.returncode
    return Tried(128 - status if status < 0 else status, out, talk, over)


def _ended(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a trial with all that it started; what it had said."""
    child.terminate()  # a launcher that is asked ends its ranks, also those that are in groups of their own
    try:
        return child.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()


@dataclass(frozen=True, slots=True)
class Host:
    """What the trials are told of the machine; tests make others up."""

    cpus: tuple[int, ...]
    root: bool
    environment: Mapping[str, str]
    which: Callable[[str], str | None] = shutil.which
    shared: Path = Path("/dev/shm")  # where libraries put what their ranks share

    @staticmethod
    def here() -> Host:
        return Host(tuple(sorted(os.sched_getaffinity(0))), os.geteuid() == 0, dict(os.environ))

    def install(self, what: str) -> str:
        """The command that installs it; '' where this system's packages of it are not known."""
        for manager in ("apt-get", "dnf", "zypper"):
            if self.which(manager) and (packages := _PACKAGES.get((what, manager))):
                return f"{'' if self.root else 'sudo '}{manager} install {packages}   # then make setup"
        return ""
