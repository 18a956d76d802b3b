"""The views of `meshmark watch` in a terminal say that CPUs are oversubscribed, and stop when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest
from textual.widgets import Static
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.views.terminal.live.app import MeshApp
from meshmark.watch import live
from meshmark.watch.frames import Frame, FrameMetric, Header
from support.made_frames import header as made_header

SENTENCE = "CPUs oversubscribed: 8.0 runnable threads on 2 CPUs (0-1), since 1.00 s"
CROWDED = [9.0] * 6
QUIET = [1.0] * 6


def header() -> Header:
    header = made_header(cpus=2)
    return Header(
        header.source,
        header.machine,
        header.started,
        1.0,
        {**header.components, "host": ({"name": "host"},)},
        (*header.metrics, FrameMetric("host.running", "1", "running and runnable tasks")),
    )


def frames(running: list[float]) -> list[Frame]:
    values = [{"cpu.busy": [0.5, 0.5], "host.running": [r]} for r in running]
    return [Frame(n, float(n), 1.0, {**v}, at=1e9 + n) for n, v in enumerate(values, 1)]


class FakeLive:
    """A replacement for the sampler of this machine."""

    def __init__(self, running: list[float]) -> None:
        self.header, self._frames = header(), frames(running)

    def frames(self) -> Iterator[Frame]:
        return iter(self._frames)


@pytest.mark.parametrize(("running", "last"), [(CROWDED, True), ([*CROWDED, *QUIET], False), (QUIET, False)])
def test_the_printed_frames_say_it_while_it_is_so(
    monkeypatch: pytest.MonkeyPatch, running: list[float], last: bool
) -> None:
    monkeypatch.setattr(live, "sample_this_host", lambda *_: contextlib.nullcontext(FakeLive(running)))
    result = CliRunner().invoke(app, ["watch"])
    assert result.exit_code == 0, result.output
    frames = result.stdout.split("test  host  ")[1:]
    assert len(frames) == len(running)
    assert (SENTENCE in frames[-1]) is last and (SENTENCE in frames[min(5, len(frames) - 1)]) is (running != QUIET)


@pytest.mark.parametrize(("running", "said"), [(CROWDED, SENTENCE), ([*CROWDED, *QUIET], "")])
def test_the_interactive_map_says_it_while_it_is_so(running: list[float], said: str) -> None:
    frame_drawn = threading.Event()

    def stream() -> Iterator[Frame]:
        yield from frames(running)
        frame_drawn.set()  # the view asks for the next frame after it has drawn one

    async def shown() -> str:
        view = MeshApp(header(), stream())
        async with view.run_test(size=(120, 40)) as pilot:
            while not frame_drawn.is_set():
                await pilot.pause(0.01)
            return str(view.query_one("#spots", Static).render())

    assert asyncio.run(asyncio.wait_for(shown(), 60)) == said
