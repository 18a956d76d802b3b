"""Runs the sampler and reads its frames."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from meshmark import process
from meshmark.errors import MeshmarkError
from meshmark.machine.facts import host_id
from meshmark.native import find_native
from meshmark.values.paths import default_store
from meshmark.watch.audit.run import stored_verdicts
from meshmark.watch.canary import calibration_file, exit_reason, shows_traffic
from meshmark.watch.frames import Frame, Header, frame_of, header_of, parse_line


class LiveSampler:
    """A running sampler; use it as a context manager.

    Args:
        rate_hz: frames per second.
        duration_s: time after which the sampler ends; 0: unlimited.
        root: a recorded tree with proc and sys to read instead of this machine.
        sources: sources to sample; (): all.
        hold_s: interval at which buffered frames are written, so that the reader wakes up less often.
        without: sources to exclude.
        sustained: sustained bandwidths to which shares refer, see `meshmark.watch.sustained`.
        canary: calibration file, see `meshmark.watch.canary`; enables the estimate of memory pressure.
        apart: run the sampler in a process group of its own, so that Ctrl-C in a terminal does not end it.

    Raises:
        MeshmarkError: the sampler could not start or failed; the message comes from the sampler.
    """

    def __init__(
        self,
        rate_hz: float = 1.0,
        duration_s: float = 0.0,
        root: Path | None = None,
        sources: Sequence[str] = (),
        hold_s: float = 0.0,
        without: Sequence[str] = (),
        sustained: Mapping[str, Any] | None = None,
        canary: Path | None = None,
        apart: bool = False,
    ) -> None:
        command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--rate", f"{rate_hz:g}"]
        command += ["--duration", f"{duration_s:g}"] if duration_s else []
        command += ["--hold", f"{hold_s:g}"] if hold_s else []
        command += ["--root", str(root)] if root is not None else []
        command += ["--sources", ",".join(sources)] if sources else []
        command += ["--without", ",".join(without)] if without else []
        # A named file would remain if this process were killed.
        descriptor = os.memfd_create("sustained")
        if sustained is not None:
            os.write(descriptor, json.dumps(sustained).encode())
            command += ["--attained", f"/proc/self/fd/{descriptor}"]
        command += ["--canary", str(canary)] if canary is not None else []
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (lives as long as the process)
        try:
            self._process = process.start(
                command,
                pass_fds=(descriptor,),
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                encoding="utf-8",
                process_group=0 if apart else None,
            )
        finally:
            os.close(descriptor)
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        first_line = self._lines.readline()
        if not first_line:
            raise MeshmarkError(self._why())
        self.header: Header = header_of(parse_line(first_line))

    def _why(self) -> str:
        status = self._process.wait()
        self._stderr.seek(0)
        return exit_reason(self._stderr.read(), status)

    def frames(self) -> Iterator[Frame]:
        """Yield frames until the sampler ends by itself or through `stop`."""
        return (frame_of(parse_line(text), self.header) for text in self.lines())

    def lines(self) -> Iterator[str]:
        """Yield frames as unparsed lines of JSON."""
        for text in self._lines:
            if not text.endswith("\n"):
                break  # incomplete last line
            yield text.rstrip("\n")
        if self._process.wait() > 0:
            raise MeshmarkError(self._why())

    def stop(self) -> None:
        """End the sampler; buffered frames can still be read."""
        if self._process.poll() is None:
            self._process.terminate()

    def __enter__(self) -> LiveSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._lines.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


def memory_is_counted() -> bool:
    """Return whether the sampler counts the traffic of this machine's memory controllers."""
    with LiveSampler(sources=("counters",)) as sampler:
        return any(m.component_class == "memory" for m in sampler.header.metrics)


def sample_this_host(
    rate_hz: float = 1.0,
    duration_s: float = 0.0,
    hold_s: float = 0.0,
    store: Path | None = None,
    full_scale: str = "sustained",
    canary: bool = True,
    apart: bool = False,
) -> LiveSampler:
    """Sample this machine, with the results of its survey, calibration and audit, if available.

    Args:
        rate_hz: frames per second.
        duration_s: time after which the sampler ends; 0: it does not end by itself.
        hold_s: length of the batches in which frames are written, in s; 0: each is written immediately.
        store: store with surveys; None: the store of the user.
        full_scale: memory bandwidth shown as 100 %: `sustained` (of the survey; the theoretical peak if there is no
            survey) or `theoretical`.
        canary: whether the sampler may run the canary to estimate memory pressure.
        apart: see `LiveSampler`.
    """
    machine = host_id()
    calibration = calibration_file(machine)
    is_counted, is_estimated = memory_is_counted(), canary and shows_traffic(calibration)
    bandwidths: dict[str, Any] = {}
    # Reading the store and the firmware is slow, so only do so if needed.
    if full_scale == "sustained" and (is_counted or is_estimated):
        from meshmark.watch.sustained import sustained_in_store

        nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
        bandwidths = sustained_in_store(store or default_store(), machine, nodes) or {}
    if is_counted:
        from meshmark.machine.facts import wire_bandwidth

        if (peak := wire_bandwidth()) is not None:
            bandwidths["wire"] = {"memory": peak}
    sampler = LiveSampler(
        rate_hz,
        duration_s,
        hold_s=hold_s,
        without=() if canary else ("canary",),
        sustained=bandwidths or None,
        canary=calibration if canary and calibration.is_file() else None,
        apart=apart,
    )
    if (audit := stored_verdicts(machine)) is not None:
        sampler.header = replace(sampler.header, more={**sampler.header.more, "audit": audit})
    return sampler
