"""Measures `meshmark fleet serve` with many simulated nodes: CPU time, memory, and the time from a push to a page.

    .venv/bin/python bench/fleet_live.py --nodes 10000 --every 10 --for 60

One process simulates the nodes: it sends prepared bodies, each on a separate connection, as `meshmark watch --otlp`
does.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from results import Figure, add_row, bench_parser, recording

TOKEN = "bench"
PROBES = 20
CLASSES = {"cpu": 24, "io": 6, "node": 14, "host": 14}  # metrics of a node, about as many as of a host with counters


def body_of(name: str, values: random.Random, probe: float | None = None) -> bytes:
    """Return the body that a node sends; `probe` is its cpu.m0."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    host = resource.resource.attributes.add()
    host.key, host.value.string_value = "host.name", f"{name}-0123abcd"
    scope = resource.scope_metrics.add()
    for kind, count in CLASSES.items():
        for i in range(count):
            metric = scope.metrics.add()
            metric.name, metric.unit = f"meshmark.{kind}.m{i}", "1"
            metric.description = "time neither idle nor waiting for I/O"
            point = metric.gauge.data_points.add()
            point.as_double = values.random() if probe is None or (kind, i) != ("cpu", 0) else probe
            point.time_unix_nano = time.time_ns()
    return gzip.compress(request.SerializeToString(), 1)


async def push(host: str, port: int, body: bytes, node: int = 0) -> int:
    """Send a body as the exporter does, from an address of the node; return the status, or 0 without a response."""
    address = f"127.1.{node >> 8 & 255}.{node & 255}"
    try:
        reader, writer = await asyncio.open_connection(host, port, local_addr=(address, 0))
        head = (
            f"POST /v1/metrics HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        return int(line.split()[1])
    except (OSError, TimeoutError, IndexError):
        return 0


async def probed(host: str, port: int, count: int) -> list[float]:
    """Return the times from pushes of one node to the events that show them, in s."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    writer.write(f"GET /api/live?metric=cpu.m0&token={TOKEN} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    latencies = []
    for n in range(count):
        expected = round(0.001 * (n + 1), 4)
        start_s = time.perf_counter()
        while await push(host, port, body_of("n1", random.Random(n), expected)) != 200:
            await asyncio.sleep(0.1)
        while True:
            line = await asyncio.wait_for(reader.readline(), 30)
            if line.startswith(b"data: ") and b'"values"' in line:
                change = json.loads(line[6:])
                index = change["nodes"].index(0) if 0 in change["nodes"] else None
                if index is not None and change["values"] and change["values"][index] == expected:
                    break
        latencies.append(time.perf_counter() - start_s)
        await asyncio.sleep(random.uniform(0.1, 1.0))
    writer.close()
    return latencies


def usage(pid: int) -> tuple[float, float]:
    """Return the CPU time in s and the resident memory in MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(address: str, pid: int, nodes: int, every_s: float, for_s: float) -> dict[str, float]:
    """Push from all nodes but one for `for_s` seconds, and return the costs of the server and the delays in s."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or 0
    bodies = [body_of(f"n{i + 2}", random.Random(i)) for i in range(nodes - 1)]
    statuses: dict[int, int] = {}
    pending: set[asyncio.Task[None]] = set()

    async def one(node: int) -> None:
        status = await push(host, port, bodies[node], node + 1)
        statuses[status] = statuses.get(status, 0) + 1

    async def all_nodes() -> None:
        start_s, sent_count = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - start_s) / every_s * len(bodies))
            for k in range(sent_count, due):
                task = asyncio.create_task(one(k % len(bodies)))
                pending.add(task)
                task.add_done_callback(pending.discard)
            sent_count = due
            await asyncio.sleep(0.005)

    pushing = asyncio.create_task(all_nodes())
    await asyncio.sleep(2 * every_s)  # until every node has reported
    statuses.clear()
    cpu, start_s = usage(pid)[0], time.perf_counter()
    latencies = await probed(host, port, PROBES)
    await asyncio.sleep(max(0.0, for_s - (time.perf_counter() - start_s)))
    elapsed = time.perf_counter() - start_s
    cpu = usage(pid)[0] - cpu
    pushing.cancel()
    total = sum(statuses.values())
    return {
        "nodes": nodes,
        "pushes_per_s": round(total / elapsed, 1),
        "failed": total - statuses.get(200, 0),
        "server_cpu": round(cpu / elapsed, 3),
        "server_cpu_ms_per_push": round(1000 * cpu / max(1, total), 3),
        "server_rss_mib": round(usage(pid)[1], 1),
        "latency_median_s": round(statistics.median(latencies), 3),
        "latency_max_s": round(max(latencies), 3),
    }


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--every", type=float, default=10.0, help="s between two pushes of a node")
    parser.add_argument("--for", dest="seconds", type=float, default=60.0)
    options = parser.parse_args()
    with recording("Fleets", options), tempfile.TemporaryDirectory() as folder:
        racks = "".join(
            f'r{r} = "n[{64 * r + 1}-{min(options.nodes, 64 * r + 64)}]"\n' for r in range((options.nodes + 63) // 64)
        )
        Path(folder, "fleet.toml").write_text(f"[racks]\n{racks}")
        command = [
            sys.executable,
            "-m",
            "meshmark",
            "fleet",
            "serve",
            folder,
            "--port",
            "0",
            "--interval",
            f"{options.every}s",
        ]
        with subprocess.Popen(
            command, env={**os.environ, "MESHMARK_TOKEN": TOKEN}, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            try:
                address = server.stdout.readline().strip()
                result = asyncio.run(measure(address, server.pid, options.nodes, options.every, options.seconds))
            finally:
                server.terminate()
        print(json.dumps(result))
        add_row(
            f"live page, {options.nodes:,} nodes every {options.every:g} s: from push to event",
            "s",
            Figure(result["latency_median_s"], math.nan, result["latency_max_s"]),
            notes=f"{result['server_cpu']} CPUs, {result['server_rss_mib']} MiB, {result['failed']} pushes failed",
        )


if __name__ == "__main__":
    main()
