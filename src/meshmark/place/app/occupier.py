"""A process that keeps a part of a cache filled, by dependent loads in random order over all lines of its memory.

It is the load kernel `pointer_chase` of `meshmark-load program`, bound to one CPU. One load at a time takes little
memory bandwidth, even if the lines have to come from memory, and its time tells where they came from.
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

LINE_BYTES: Final = 64  # as load kernels count lines on all machines
SMALLEST: Final = 64 << 10  # memory of an occupier, in B
_WINDOW_S: Final = 0.02  # between lines that say how much it has done
_LOOK_S: Final = 0.005
_WINDOWS: Final = 4  # that a time per load takes
_LAPS: Final = 2  # over all lines, until the cache has what it can hold
_LONGEST_S: Final = 2.0  # for these laps
_READY_S: Final = 60.0
_LONGEST_LINE: Final = 1 << 12
_CALLS: Final = 1 << 29  # it is ended before
# A unit of the kernel, see native/workloads/kernels/irregular.cpp; meshmark-load refuses other counts.
_LOADS: Final = 32
_UNIT_BYTES: Final = _LOADS * LINE_BYTES + 16
_UNIT: Final = {"load_bytes": 264, "store_bytes": 8, "line_read_bytes": 34 * LINE_BYTES, "line_write_bytes": LINE_BYTES}
_UNITS: Final = 500  # of a call: from 0.1 ms out of a cache to some ms out of memory


class Occupier:
    """Starts the process, which fills its memory and then walks through it until `end`.

    Args:
        cpu: On which it runs.
        bytes_: Of its memory, at least `SMALLEST`.

    Raises:
        MeshmarkError: It cannot be started.
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
        return self._process.pid

    def mark(self) -> int:
        """A moment, for `load_s`: the end of its last whole line."""
        size = os.fstat(self._out.fileno()).st_size
        start = max(0, size - _LONGEST_LINE)
        return start + os.pread(self._out.fileno(), size - start, start).rfind(b"\n") + 1

    def settle(self) -> None:
        """Wait until it has walked through its memory so often that a cache has what it can hold."""
        began = time.monotonic()
        self._until(lambda: self._loads(0) >= _LAPS * self.loads or time.monotonic() - began > _LONGEST_S)

    def wait(self, mark: int) -> None:
        """Wait until there is a time per load since a moment."""
        self._until(lambda: len(self._lines(mark)) > _WINDOWS)

    def load_s(self, mark: int) -> float | None:
        """CPU time per load since a moment, in s; None if that is too short ago."""
        windows = self._lines(mark)[1:]  # the first began before
        loads = _loads_of(windows)
        return sum(w["cpu_s"] for w in windows) / loads if loads else None

    def end(self) -> None:
        """End it; `cpu_s` is the CPU time that it took."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            _, status, used = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = used.ru_utime + used.ru_stime
        self._out.close()
        self._err.close()

    def _loads(self, mark: int) -> float:
        return _loads_of(self._lines(mark))

    def _lines(self, mark: int) -> list[dict[str, Any]]:
        """Whole lines since a moment; the first of all says that it is ready."""
        return [json.loads(line) for line in os.pread(self._out.fileno(), self.mark() - mark, mark).splitlines()]

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + _READY_S
        while not true():
            if self._process.poll() is not None or time.monotonic() > end:
                text = os.pread(self._err.fileno(), 2000, 0).decode(errors="replace").strip()
                raise MeshmarkError(f"a process that occupies the cache on CPU {self.cpu} failed: {quoted(text, 300)}")
            time.sleep(_LOOK_S)


def _loads_of(windows: Sequence[dict[str, Any]]) -> float:
    lines = sum(w.get("line_read_bytes", 0.0) for w in windows)
    return float(lines / _UNIT["line_read_bytes"] * _LOADS)


def _program(cpu: int, bytes_: int) -> dict[str, Any]:
    """A program of one kernel, as src/meshmark/load/program.py describes it."""
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
