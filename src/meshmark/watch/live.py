"""This machine's frames, from the sampler's process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from meshmark.errors import MeshmarkError
from meshmark.native import find_native
from meshmark.values.paths import data_home
from meshmark.watch.canary import calibration_file, last_words, tells
from meshmark.watch.frames import Frame, Header, frame_of, header_of, parse_line


class Live:
    """The sampler, running: use it in a `with`.

    Args:
        rate_hz: frames a second.
        duration_s: then it ends; 0: never.
        root: a recorded tree with proc and sys instead of this machine.
        sources, without: which to sample, none is all; and which of them not.
        hold_s: frames come this often, several at once, so that a reader wakes less.
        attained: what a survey reached here, see `meshmark.watch.attained`: shares of use are of that.
        canary: the file of its calibration, see `meshmark.watch.canary`: then it estimates how pressed memory is.

    Raises:
        MeshmarkError: the sampler cannot be started, or failed; the message is its own.
    """

    def __init__(
        self,
        rate_hz: float = 1.0,
        duration_s: float = 0.0,
        root: Path | None = None,
        sources: Sequence[str] = (),
        hold_s: float = 0.0,
        without: Sequence[str] = (),
        attained: Mapping[str, Any] | None = None,
        canary: Path | None = None,
    ) -> None:
        command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--rate", f"{rate_hz:g}"]
        command += ["--duration", f"{duration_s:g}"] if duration_s else []
        command += ["--hold", f"{hold_s:g}"] if hold_s else []
        command += ["--root", str(root)] if root is not None else []
        command += ["--sources", ",".join(sources)] if sources else []
        command += ["--without", ",".join(without)] if without else []
        # In memory: a file of that name would stay when this process is killed.
        given = os.memfd_create("attained")
        if attained is not None:
            os.write(given, json.dumps(attained).encode())
            command += ["--attained", f"/proc/self/fd/{given}"]
        command += ["--canary", str(canary)] if canary is not None else []
        self._talk = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (lives as long as the process)
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=self._talk, encoding="utf-8", pass_fds=(given,)
            )
        finally:
            os.close(given)
        assert self._process.stdout is not None
        self._lines = self._process.stdout
        first = self._lines.readline()
        if not first:
            raise MeshmarkError(self._why())
        self.header: Header = header_of(parse_line(first))

    def _why(self) -> str:
        status = self._process.wait()
        self._talk.seek(0)
        return last_words(self._talk.read(), status)

    def frames(self) -> Iterator[Frame]:
        """Frames as they come; ends with the sampler, or after `stop`."""
        return (frame_of(parse_line(text), self.header) for text in self.lines())

    def lines(self) -> Iterator[str]:
        """The same as the sampler wrote them, JSON: for those who only keep them."""
        for text in self._lines:
            if not text.endswith("\n"):
                break  # its last words, cut off
            yield text.rstrip("\n")
        if self._process.wait() > 0:
            raise MeshmarkError(self._why())

    def stop(self) -> None:
        """Ends the sampler; frames that are on their way still come."""
        if self._process.poll() is None:
            self._process.terminate()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._lines.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._talk.close()


def memory_is_counted() -> bool:
    """Whether the sampler counts what this machine's memory controllers move."""
    with Live(sources=("counters",)) as sampler:
        return any(m.component_class == "memory" for m in sampler.header.metrics)


def this_host(
    rate_hz: float = 1.0,
    duration_s: float = 0.0,
    hold_s: float = 0.0,
    store: Path | None = None,
    full_scale: str = "sustained",
    canary: bool = True,
) -> Live:
    """This machine with all that is known of it: shares of what its survey reached, and the canary's calibration.

    Args:
        store: where surveys are; None: the user's own.
        full_scale: memory bandwidth shown as 100 %: `sustained` (of the survey; the theoretical peak if there is
            no survey) or `theoretical`.
        canary: whether it may load the memory a little to see how crowded it is.
    """
    machine = socket.gethostname()
    calibrated = calibration_file(machine)
    counted, estimated = memory_is_counted(), canary and tells(calibrated)
    known: dict[str, Any] = {}
    # Store and firmware are slow to ask: only where something is a share of what they say.
    if full_scale == "sustained" and (counted or estimated):
        from meshmark.watch.attained import attained_here

        nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
        known = attained_here(store or data_home() / "store", machine, nodes) or {}
    if counted:
        from meshmark.machine.facts import wire_bandwidth

        if (wire := wire_bandwidth()) is not None:
            known["wire"] = {"memory": wire}
    return Live(
        rate_hz,
        duration_s,
        hold_s=hold_s,
        without=() if canary else ("canary",),
        attained=known or None,
        canary=calibrated if canary and calibrated.is_file() else None,
    )
