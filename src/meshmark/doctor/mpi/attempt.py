"""Runs a command with a time limit, and describes the host for the tests of MPI libraries."""

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

from meshmark import process
from meshmark.measure.runs.journal import JournalContent, read_journal
from meshmark.native import remedy

LIMIT_S: Final = 20.0  # time limit of a command; exceeding it is a finding


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
class CommandResult:
    """The result of one command.

    Attributes:
        status: Exit status as in a shell: 128 plus the number of the signal that ended it.
        timed_out: Whether the command exceeded the time limit and was ended.
    """

    status: int
    out: str
    stderr: str
    timed_out: bool = False

    @property
    def reading(self) -> JournalContent:
        """Return the output, parsed like the output of an instrument."""
        return read_journal(self.out.encode().splitlines(keepends=True), "doctor")

    def value(self, metric: str) -> float | None:
        """Return the first value of a metric, in its unit; None if the output does not contain the metric."""
        return next((r.value for r in self.reading.results(metric)), None)

    @property
    def absent(self) -> str:
        """Return the reason of the first absence; "" if nothing is absent."""
        reason = next((a.reason for a in self.reading.absences), "")
        return re.sub(r"^[a-z_]+ [^:]*: ", "", reason)  # without the metric and the point of measurement

    @property
    def why(self) -> str:
        """Return briefly why the command failed; "" if it succeeded."""
        if self.timed_out:
            return f"did not end within {LIMIT_S:.0f} s"
        if self.status == 0:
            return ""
        if error := self.reading.error:
            return error[:120]
        match = re.search(r"signal:? ?(?:number )?(\d+)|\(Segmentation fault\)|SIGSEGV", self.stderr, re.I)
        number = int(match[1]) if match and match[1] else 11 if match else self.status - 128 if self.status > 128 else 0
        if 0 < number < signal.NSIG:
            return f"was terminated by {process.signal_name(number)}"
        lines = [x.strip() for x in self.stderr.splitlines() if re.search(r"[a-z]{3}", x)]
        return (lines[0][:120] if lines else "") or f"exit status {self.status}"


class CommandRunner(Protocol):
    """Runs a command with the time limit `LIMIT_S`, optionally only on some CPUs."""

    def __call__(
        self, argv: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None
    ) -> CommandResult:
        """Run a command and return its result. A failure is part of the result, not an exception."""
        ...


def try_for_real(
    argv: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] | None = None
) -> CommandResult:
    """Run a command like `CommandRunner`. All its processes have ended when this function returns."""
    # On SIGTERM, launchers end their ranks and remove temporary files.
    preparation = process.Preparation(at_parent_death=signal.SIGTERM, cpus=cpus or ())
    try:
        child = process.start(
            argv,
            preparation,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return CommandResult(127, "", f"{argv[0]}: {error.strerror or error}")
    timed_out = False
    try:
        out, stderr = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        timed_out = True
        out, stderr = _ended(child)
    except BaseException:
        _ended(child)
        raise
    status = child.returncode
    return CommandResult(128 - status if status < 0 else status, out, stderr, timed_out)


def _ended(child: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command with all its processes and return its output."""
    child.terminate()  # on SIGTERM, launchers also end ranks in other process groups
    try:
        return child.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.communicate()


@dataclass(frozen=True, slots=True)
class MpiHost:
    """Properties of the host that the tests of MPI libraries use."""

    cpus: tuple[int, ...]
    root: bool
    environment: Mapping[str, str]
    which: Callable[[str], str | None] = shutil.which
    shared_memory: Path = Path("/dev/shm")  # where MPI libraries put shared memory

    @staticmethod
    def here() -> MpiHost:
        """Return this host: the CPUs of this process, whether it belongs to root, and its environment."""
        return MpiHost(tuple(sorted(os.sched_getaffinity(0))), os.geteuid() == 0, dict(os.environ))

    def install(self, what: str) -> str:
        """Return the command that installs a component; "" if its packages on this system are unknown."""
        for manager in ("apt-get", "dnf", "zypper"):
            if self.which(manager) and (packages := _PACKAGES.get((what, manager))):
                return f"{'' if self.root else 'sudo '}{manager} install {packages}   # then {remedy(in_wheel=False)}"
        return ""
