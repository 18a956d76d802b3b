"""Keeps a part of a cache filled by a process that loads all lines of its memory in random order, one by one.

The process runs the load kernel `pointer_chase` of `meshmark-load program`, bound to one CPU. Dependent loads take
little memory bandwidth, even if the lines come from memory, and their time shows where the lines come from.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError, quoted
from meshmark.native import find_native

LINE_BYTES: Final = 64  # line size that load kernels assume on all machines
SMALLEST: Final = 64 << 10  # memory of an occupier, in B
_WINDOW_S: Final = 0.02  # time between two lines of progress
_LOOK_S: Final = 0.005
_WINDOWS: Final = 4  # number of windows that a time per load needs
_LAPS: Final = 2  # passes over all lines, after which the cache contains as many of them as it can
_LONGEST_S: Final = 2.0  # time limit of these passes
_READY_S: Final = 60.0
_LONGEST_LINE: Final = 1 << 12
_CALLS: Final = 1 << 29  # more than it can make before it is ended
# A unit of the kernel, see native/workloads/kernels/irregular.cpp; meshmark-load refuses other counts.
_LOADS: Final = 32
_UNIT_BYTES: Final = _LOADS * LINE_BYTES + 16
_UNIT: Final = {"load_bytes": 264, "store_bytes": 8, "line_read_bytes": 34 * LINE_BYTES, "line_write_bytes": LINE_BYTES}
_UNITS: Final = 500  # units per call, which takes from 0.1 ms with a cache to a few ms with memory


class Occupier:
    """A process that fills its memory and then loads from it until `end`.

    Args:
        cpu: CPU on which the process runs.
        bytes_: Size of its memory in B, at least `SMALLEST`.

    Raises:
        MeshmarkError: The process cannot be started.
    """

    def __init__(self, cpu: int, bytes_: int) -> None:
        self.cpu, self.loads = cpu, bytes_ // _UNIT_BYTES * _LOADS
        self.cpu_s = 0.0
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (until `end`)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
            file.write(json.dumps(_program(cpu, bytes_)))
            file.flush()
            self._process = self._started(file.name)
            try:
                self._until(lambda: self.mark() > 0)
            except BaseException:
                self.end()
                raise

    def _started(self, program: str) -> subprocess.Popen[bytes]:
        words = [str(find_native("meshmark-load", "MESHMARK_LOAD")), "program", program, "--window", str(_WINDOW_S)]
        try:
            return process.start(
                words,
                process.Preparation(cpus=(self.cpu,)),
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
            )
        except OSError as error:
            raise MeshmarkError(f"cannot start {words[0]} on CPU {self.cpu}: {error}") from error

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def mark(self) -> int:
        """Return the current moment, for `load_s`: the offset of the end of the last complete line."""
        size = os.fstat(self._out.fileno()).st_size
        start = max(0, size - _LONGEST_LINE)
        return start + os.pread(self._out.fileno(), size - start, start).rfind(b"\n") + 1

    def settle(self) -> None:
        """Wait until the process has loaded its memory so often that a cache contains as much of it as it can."""
        start_s = time.monotonic()
        self._until(lambda: self._loads(0) >= _LAPS * self.loads or time.monotonic() - start_s > _LONGEST_S)

    def wait(self, mark: int) -> None:
        """Wait until the time per load since a moment is known."""
        self._until(lambda: len(self._lines(mark)) > _WINDOWS)

    def load_s(self, mark: int) -> float | None:
        """Return the CPU time per load since a moment, in s; None if the moment is too recent."""
        windows = self._lines(mark)[1:]  # the first window began before the mark
        loads = _loads_of(windows)
        return sum(w["cpu_s"] for w in windows) / loads if loads else None

    def end(self) -> None:
        """End the process, and set `cpu_s` to its CPU time."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            _, status, usage = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
        self._out.close()
        self._err.close()

    def _loads(self, mark: int) -> float:
        return _loads_of(self._lines(mark))

    def _lines(self, mark: int) -> list[dict[str, Any]]:
        """Return the complete lines since a moment. The very first line states that the process is ready."""
        return [json.loads(line) for line in os.pread(self._out.fileno(), self.mark() - mark, mark).splitlines()]

    def _until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_S
        while not true():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = os.pread(self._err.fileno(), 2000, 0).decode(errors="replace").strip()
                raise MeshmarkError(f"a process that occupies the cache on CPU {self.cpu} failed: {quoted(text, 300)}")
            time.sleep(_LOOK_S)


def _loads_of(windows: Sequence[dict[str, Any]]) -> float:
    lines = sum(w.get("line_read_bytes", 0.0) for w in windows)
    return float(lines / _UNIT["line_read_bytes"] * _LOADS)


def _program(cpu: int, bytes_: int) -> dict[str, Any]:
    """Return a program of one kernel in the format that src/meshmark/load/synthesis/program.py describes."""
    variant = {
        "name": "occupier",
        "kernel": "pointer_chase",
        "volume_bytes": bytes_,
        "threads": 1,
        "window": _UNITS,
        "calls": _CALLS,
        "phase": 0,
        **{name: _UNITS * count for name, count in _UNIT.items()},
    }
    return {
        "format": "meshmark load program",
        "version": 1,
        "prescription": {"name": f"occupier on CPU {cpu}", "threads": 1},
        "shares": [1.0],
        "variants": [variant],
    }
