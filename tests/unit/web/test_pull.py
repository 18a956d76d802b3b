"""Nodes that are polled: sets of nodes, the values of their answers, and invalid answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from meshmark.cli.fleet.fleet_serve import pull_targets
from meshmark.errors import UsageError
from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.web.export import pull
from meshmark.web.export.openmetrics import Window, reading_of, text
from meshmark.web.export.pull import NoAnswerError, NodeAddress, Puller, fetch
from meshmark.web.fleet.live_fleet import LiveFleet
from support.waiting import until

HEADER = Header(
    "host",
    "n1-0123abcd",
    "2026-01-01T00:00:00Z",
    1.0,
    {
        "node": ({"name": "node 0", "number": 0},),
        "cpu": ({"name": 'a "b" \\', "node": 0}, {"name": "CPU 1\n", "node": 0}),
        "host": ({"name": "host"},),
    },
    (
        FrameMetric("cpu.busy", "1", "busy", "time"),
        FrameMetric("cpu.switches", "1/s", "switches"),
        FrameMetric("node.used", "B", "used"),
        FrameMetric("node.latency", "s", "latency"),
        FrameMetric("node.in", "B/s", "in"),
        FrameMetric("host.running", "1", "tasks"),
        FrameMetric("host.pressure_io", "1", "waiting", "time"),
    ),
)


def window(machine: str = "n1-0123abcd") -> Window:
    result = Window(HEADER if machine == HEADER.machine else Header(**{**_fields(), "machine": machine}))
    values: dict[str, list[float | None]] = {
        "cpu.busy": [0.25, 0.75],
        "cpu.switches": [1e6, 2e-7],
        "node.used": [3.0 * 2**30],
        "node.latency": [1.2e-7],
        "node.in": [5e9],
        "host.running": [3.0],
        "host.pressure_io": [0.0],
    }
    result.add(Frame(1, 1.0, 1.0, values, at=1.7e9))
    return result


def _fields() -> dict[str, object]:
    return {name: getattr(HEADER, name) for name in HEADER.__slots__}


def test_sets_have_a_port() -> None:
    assert pull_targets(["n[1-2]:9100", "gpu3"]) == {
        "n1": NodeAddress("n1", 9100),
        "n2": NodeAddress("n2", 9100),
        "gpu3": NodeAddress("gpu3", 8642),
    }


@pytest.mark.parametrize("wrong", ["", ":9100", "n[1-:9100", "n1:0", "n1:99999", "n1:x["])
def test_what_is_no_set_is_named(wrong: str) -> None:
    with pytest.raises(UsageError, match="--pull"):
        pull_targets([wrong])


def test_a_text_of_ours_is_read_as_the_library_reads_it() -> None:
    assert list(text_string_to_metric_families(text(window()).decode()))
    for window_ in (window(), window().whole()):
        reading = reading_of(text(window_))
        assert reading.machine == HEADER.machine
        assert reading.values == pytest.approx(
            {
                "cpu.busy": 0.5,
                "cpu.busy highest": 0.75,
                "cpu.switches": 1e6 + 2e-7,
                "node.used": 3.0 * 2**30,
                "node.latency": 1.2e-7,
                "node.in": 5e9,
                "host.running": 3.0,
                "host.pressure_io": 0.0,
            }
        )
        assert reading.units == {
            "cpu.busy": "1",
            "cpu.busy highest": "1",
            "cpu.switches": "1/s",
            "node.used": "B",
            "node.latency": "s",
            "node.in": "B/s",
            "host.running": "1",
            "host.pressure_io": "1",
        }
    assert len(text(window().whole())) < len(text(window()))


def test_numbers_that_are_none_are_unknown() -> None:
    body = text(window().whole()).replace(b"} 0.5\n", b"} 0-5\n").replace(b'machine="n1', b'machine="\xff')
    reading = reading_of(body)
    assert "cpu.busy" not in reading.values and reading.values["cpu.busy highest"] == 0.75
    assert reading.machine == "\ufffd-0123abcd"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_spoiled_text_does_harm(data: st.DataObject) -> None:
    body = bytearray(text(window()))
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] = data.draw(st.integers(0, 255))
    reading = reading_of(bytes(body))
    assert all(isinstance(v, float) for v in reading.values.values()) and set(reading.values) <= set(reading.units)


@contextlib.asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[NodeAddress]:
    """Yield the address of a server that gives every request the same answer and closes, or never answers if it is
    empty."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if answer:
                writer.write(answer)
                await writer.drain()
            else:
                await reader.read()  # until the other end closes
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield NodeAddress("127.0.0.1", server.sockets[0].getsockname()[1])


def whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not an answer of HTTP"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "HTTP 401; --node-token-file"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "HTTP 503"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ncut", "not an answer of HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(2000), "more than 0 MiB"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "not an answer of HTTP"),
        (b"", "no answer within 0.2 s"),
    ],
)
def test_answers_that_are_none_are_named(answer: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "TIMEOUT_S", 0.2 if not answer else 20)
    monkeypatch.setattr(pull, "MAX_ANSWER", 1000)

    async def ask() -> None:
        async with answering(answer) as target:
            await fetch(target, "/metrics", "")

    with pytest.raises(NoAnswerError, match=said):
        asyncio.run(ask())


def asked(names: list[str], answer: bytes) -> LiveFleet:
    """Return a fleet whose node n1 was polled until the poll succeeded or failed."""
    live = LiveFleet(names, 0.05)

    async def ask() -> None:
        async with answering(answer) as target:
            task = asyncio.create_task(Puller(live, {"n1": target}, "").run())
            assert await asyncio.to_thread(until, lambda: live.reports or live.why)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(ask())
    return live


def test_a_node_that_answers_is_live() -> None:
    process = asked(["n1"], whole(text(window())))
    process.tick(0)
    assert process.node("n1", 0)["source"] == "127.0.0.1" and process.why == {}


def test_a_node_may_have_another_name_but_not_that_of_another_node() -> None:
    answer = whole(text(window("n9-0123abcd")))
    assert asked(["n1"], answer).why == {}
    assert "answers as n9, which is another node" in asked(["n1", "n9"], answer).why["n1"]


def test_a_page_of_another_program_is_named() -> None:
    assert "no metrics of Meshmark" in asked(["n1"], whole(b"# HELP go_goroutines 7\n# EOF\n")).why["n1"]
