"""A process that runs one load kernel on one CPU until it is ended, and reports its progress meanwhile.

The process is `meshmark-load program` with a program of one variant and more calls than it can make.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError, quoted
from meshmark.machine.tree import format_list
from meshmark.native import find_native

LINE_BYTES: Final = 64  # line size that load kernels assume on all machines
_WINDOW_S: Final = 0.02  # time between two lines of progress
_LOOK_S: Final = 0.005
_READY_S: Final = 60.0
_LONGEST_LINE: Final = 1 << 12
_MOST_CALLS: Final = 1 << 29  # more than a process can make before it is ended
_LONGEST_S: Final = 1e5  # a process with a pace has its calls in this time


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """A load kernel with its memory and its rate.

    Attributes:
        name: Its name in the program.
        kernel: Name of the load kernel.
        volume_bytes: Memory of the kernel in B; 0 for kernels without a volume.
        unit: Counts of one unit of the kernel. `meshmark-load` refuses wrong counts.
        units: Units per call.
        calls_per_s: Rate of calls; 0 for as many as possible. Between calls the process spins.
    """

    name: str
    kernel: str
    volume_bytes: int = 0
    unit: Mapping[str, float] = field(default_factory=dict)
    units: int
    calls_per_s: float = 0.0

    def program(self, cpus: Sequence[int]) -> dict[str, Any]:
        """Return the program in the format that src/meshmark/load/synthesis/program.py describes."""
        prescription: dict[str, Any] = {"name": f"{self.name} on CPUs {format_list(list(cpus))}", "threads": 1}
        calls = _MOST_CALLS
        if self.calls_per_s:
            time_s = min(_LONGEST_S, _MOST_CALLS / self.calls_per_s)
            calls = max(1, round(self.calls_per_s * time_s))
            prescription |= {"pace": 0.9, "run_time_s": time_s}
        variant = {
            "name": self.name,
            "kernel": self.kernel,
            "volume_bytes": self.volume_bytes,
            "threads": 1,
            "window": self.units,
            "calls": calls,
            "phase": 0,
            **{name: self.units * count for name, count in self.unit.items()},
        }
        return {
            "format": "meshmark load program",
            "version": 1,
            "prescription": prescription,
            "shares": [1.0],
            "variants": [variant],
        }


class KernelProcess:
    """A process that runs a load kernel until `end`.

    Args:
        cpus: CPUs that the process may use.
        work: What it runs.

    Raises:
        MeshmarkError: The process cannot be started.
    """

    def __init__(self, cpus: Collection[int], work: KernelWork) -> None:
        self.cpus, self.work = sorted(cpus), work
        self.cpu_s = 0.0
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (until `end`)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
            file.write(json.dumps(work.program(self.cpus)))
            file.flush()
            self._process = self._started(file.name)
            try:
                self.wait_until(lambda: self.mark() > 0)
            except BaseException:
                self.end()
                raise

    def _started(self, program: str) -> subprocess.Popen[bytes]:
        words = [str(find_native("meshmark-load", "MESHMARK_LOAD")), "program", program, "--window", str(_WINDOW_S)]
        try:
            return process.start(
                words,
                process.Preparation(cpus=self.cpus),
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
            )
        except OSError as error:
            raise MeshmarkError(f"cannot start {words[0]} on CPUs {format_list(self.cpus)}: {error}") from error

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def mark(self) -> int:
        """Return the current moment, for `lines`: the offset of the end of the last complete line."""
        size = os.fstat(self._out.fileno()).st_size
        start = max(0, size - _LONGEST_LINE)
        return start + os.pread(self._out.fileno(), size - start, start).rfind(b"\n") + 1

    def lines(self, mark: int, end: int | None = None) -> list[dict[str, Any]]:
        """Return the complete lines between two moments. The very first line states that the process is ready."""
        end = self.mark() if end is None else end
        return [json.loads(line) for line in os.pread(self._out.fileno(), end - mark, mark).splitlines()]

    def end(self) -> None:
        """End the process, and set `cpu_s` to its CPU time."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
        self._out.close()
        self._err.close()

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Wait until a condition is true.

        Raises:
            MeshmarkError: The process has ended, or the condition is not true after a minute.
        """
        deadline = time.monotonic() + _READY_S
        while not true():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = os.pread(self._err.fileno(), 2000, 0).decode(errors="replace").strip()
                raise MeshmarkError(f"{self.work.name} on CPUs {format_list(self.cpus)} failed: {quoted(text, 300)}")
            time.sleep(_LOOK_S)
