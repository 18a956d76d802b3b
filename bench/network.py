"""The network simulator against an independent one: tori of several sizes, channels, buffers, packets and patterns.

BookSim 2 is not packaged: pass the path of a binary. Both simulators run one after the other on one CPU; times are
CPU times of the whole process. Dimension-order routing with balanced date lines; loads up to 85 % of the saturation
of BookSim. With `--exact`, also the link loads of rectangular tori under adaptive routing against exact ones.

example: .venv/bin/python bench/network.py --booksim ~/booksim2/src/booksim
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from results import add_row, bench_parser, recording

from meshmark.model.engine import find_engine

SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.85)  # of the saturation load
PACKETS: Final = 40_000  # measured by each simulator, after as many unmeasured ones


@dataclass(frozen=True, slots=True)
class Setting:
    """A torus of `k` routers along each of `dimensions`, with `channels` virtual channels of `buffer` flits."""

    k: int
    dimensions: int
    channels: int
    buffer: int
    flits: int
    pattern: str = "uniform"

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the torus."""
        return int(self.k**self.dimensions)

    @property
    def title(self) -> str:
        """Text for readers, for example `8 x 8, 4 x 8, 5 flits, uniform`."""
        shape = f"ring of {self.k}" if self.dimensions == 1 else " x ".join([str(self.k)] * self.dimensions)
        return f"{shape}, {self.channels} x {self.buffer}, {self.flits} flit{'s' * (self.flits > 1)}, {self.pattern}"

    def __str__(self) -> str:
        shape = "x".join([str(self.k)] * self.dimensions)
        return f"{shape:6} {self.channels:2d} x {self.buffer:2d} {self.flits:2d} {self.pattern:10}"


SETTINGS: Final = (
    Setting(8, 2, 4, 8, 1),
    Setting(8, 2, 4, 8, 5),
    Setting(8, 2, 8, 32, 5),
    Setting(8, 2, 2, 4, 2),
    Setting(8, 2, 8, 4, 1),
    Setting(4, 2, 4, 8, 5),
    Setting(4, 2, 16, 16, 3),
    Setting(4, 3, 4, 8, 5),
    Setting(16, 1, 4, 8, 4),
    Setting(16, 2, 6, 16, 1),
    Setting(8, 2, 4, 8, 20),
    Setting(8, 2, 4, 8, 5, "tornado"),
    Setting(8, 2, 4, 16, 3, "neighbour"),
    Setting(8, 2, 8, 8, 5, "transpose"),
    Setting(4, 3, 4, 16, 1, "complement"),
)
NAMES: Final = {"neighbour": "neighbor", "complement": "bitcomp"}  # names of patterns that differ in BookSim

# Settings of BookSim. Its other settings are the defaults: islip allocators of one iteration, routing 1 cycle, channel
# allocation 1, switch allocation 1, traversal 1, links 1.
BOOKSIM: Final = """topology = torus; routing_function = dim_order_bal;
injection_rate_uses_flits = 1; use_noc_latency = 0;
sim_type = latency; warmup_periods = 3; max_samples = 3; latency_thres = 5000.0; seed = 1;
"""


def torus(of: Setting) -> dict[str, Any]:
    """Return the same router for the simulator of Meshmark; a cycle is 1 ns."""
    return {
        "topology": {"kind": "torus", "shape": [of.k] * of.dimensions},
        "links": {"wire": {"bandwidth_gb_per_s": 8.0, "latency_ns": 3}},  # traversal 1, link 1, buffer write 1
        "node": {"cpus": 1, "controllers": 0, "port_gb_per_s": 8.0, "leave_ns": 1, "arrive_ns": 3},
        "router": {
            "flit_bytes": 8,
            "routing": "dimension_order",
            "adaptive_channels": 0,
            "escape_channels": 2,
            "channels_per_escape": of.channels // 2,
            "message_classes": 1,
            "pipeline_ns": 1,
            "allocation_ns": 1,
            "requeue_ns": 1,
            "credit_ns": 2,
            "cycle_ns": 1,
            "buffer_flits": of.buffer,
            "channel_sharing": "exclusive",
        },
    }


def timed(argv: list[str], text: str) -> tuple[str, float]:
    """Return the output and the CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return completed.stdout + completed.stderr, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass(frozen=True, slots=True)
class Result:
    """Latency in cycles (NaN where unstable), accepted flits per node and cycle, hops of all packets, CPU seconds."""

    latency: float
    accepted: float
    hops: float
    cpu_s: float


def booksim(binary: str, of: Setting, load: float, packets: int = PACKETS) -> Result:
    """Run BookSim. It does not count hops: `hops` is the number of packets."""
    period = max(2000, int(packets * of.flits / of.nodes / load / 3))
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(
            BOOKSIM + f"k = {of.k}; n = {of.dimensions}; num_vcs = {of.channels}; vc_buf_size = {of.buffer};\n"
            f"traffic = {NAMES.get(of.pattern, of.pattern)}; packet_size = {of.flits}; injection_rate = {load};\n"
            f"sample_period = {period};\n"
        )
        config.flush()
        text, cpu = timed([binary, config.name], "")
    if os.environ.get("BENCH_SHOW"):
        print(text[-3000:])
    latency = re.findall(r"Packet latency average = ([0-9.]+)", text)
    accepted = re.findall(r"Accepted flit rate average ?= ([0-9.]+)", text)
    cycles = re.findall(r"Time taken is (\d+) cycles", text)
    rate = float(accepted[-1]) if accepted else float("nan")
    carried = rate * of.nodes * float(cycles[-1]) / of.flits if cycles else float("nan")
    stable = "unstable" not in text and latency
    return Result(float(latency[-1]) if stable else float("nan"), rate, carried, cpu)


def ours(of: Setting, load: float) -> Result:
    """Return the result of Meshmark's simulator at a load."""
    run = {"kind": "traffic", "pattern": of.pattern, "load": load, "packet_flits": of.flits, "seed": 1}
    run |= {"packets": PACKETS, "warm_packets": PACKETS}
    text, cpu = timed([str(find_engine())], json.dumps({"machine": torus(of), "runs": [run]}) + "\n")
    line = json.loads(text.splitlines()[0])
    latency = float("nan") if line["unstable"] else line["latency_cycles"]
    return Result(latency, line["accepted"], line["packet_hops"], cpu)


def saturation(run: Callable[[float], Result]) -> float:
    """Return the highest load, to 0.4 %, of which 97 % is accepted."""
    low, high = 0.0, 1.0
    while high - low > 0.004:
        middle = (low + high) / 2
        low, high = (middle, high) if run(middle).accepted >= 0.97 * middle else (low, middle)
    return low


def against_booksim(binary: str, settings: tuple[Setting, ...]) -> None:
    """Print the results of both simulators at several loads below the saturation of BookSim."""
    print("torus  channels flits pattern   load  booksim     ours   error  accepted       CPU µs a packet hop, factor")
    for setting in settings:
        limit = saturation(partial(booksim, binary, setting))
        errors, factors = [], []
        for share in SHARES:
            peer, result = booksim(binary, setting, share * limit), ours(setting, share * limit)
            own_per_hop = 1e6 * result.cpu_s / result.hops
            per_hop = 1e6 * peer.cpu_s / (peer.hops * result.hops / (2 * PACKETS))
            errors.append(100 * (result.latency / peer.latency - 1))
            factors.append(per_hop / own_per_hop)
            print(
                f"{setting}  {share * limit:.3f} {peer.latency:8.2f} {result.latency:8.2f} "
                f"{errors[-1]:+6.1f} %  {peer.accepted:.3f} {result.accepted:.3f}   "
                f"{per_hop:7.2f} {own_per_hop:6.3f}  {factors[-1]:5.1f} x",
                flush=True,
            )
        add_row(
            f"latency at 0.85 of the saturation, {setting.title}",
            "cycles",
            result.latency,
            peer="BookSim 2",
            theirs=peer.latency,
            notes="error at 0.1, 0.3, 0.5, 0.7 and 0.85: " + " ".join(f"{e:+.1f}" for e in errors) + " %",
        )
        limits = (10 if setting.flits == 1 else 30, None)
        add_row(f"CPU time of the peer over ours, {setting.title}", "", factors, peer="BookSim 2", limits=limits)
        own_limit = saturation(partial(ours, setting))
        what = f"saturation, {setting.title}"
        add_row(what, "flits a node and cycle", own_limit, peer="BookSim 2", theirs=limit)
        peer, result = booksim(binary, setting, 1.0), ours(setting, 1.0)
        print(
            f"{setting}  saturation {limit:.3f} and {own_limit:.3f}, {100 * (own_limit / limit - 1):+.1f} %; "
            f"accepted of 1.000: {peer.accepted:.3f} and {result.accepted:.3f}",
            flush=True,
        )


def against_exact() -> None:
    """Compare simulated link loads under adaptive routing at a light load with path counting, and print the bound."""
    for shape in ([8, 8], [8, 4], [16, 4], [6, 10], [4, 4, 4]):
        machine = torus(replace(SETTINGS[0], channels=2))
        machine["topology"]["shape"] = shape
        machine["router"] |= {
            "routing": "adaptive",
            "adaptive_channels": 2,
            "channels_per_escape": 1,
            "channel_sharing": "packets",
            "local_arbiters": 2,
            "buffer_flits": 16,
        }
        nodes = 1
        for n in shape:
            nodes *= n
        shares = (0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
        text, _ = timed([str(find_engine())], json.dumps({"machine": machine, "runs": [{"kind": "loads"}]}) + "\n")
        loads = json.loads(text)
        exact = sum(x["share"] for x in loads["links"])
        bound = min(1.0, *(1 / (x["share"] * nodes) for x in loads["links"] if x["share"] > 0))
        runs = [
            {"kind": "traffic", "load": s * bound, "packet_flits": 4, "packets": 60000, "warm_packets": 30000}
            for s in shares
        ]
        text, _ = timed([str(find_engine())], json.dumps({"machine": machine, "runs": runs, "threads": 2}) + "\n")
        records = [json.loads(line) for line in text.splitlines()]
        best = max(
            (s for s, f in zip(shares, records, strict=True) if not f["unstable"] and f["accepted"] > 0.97 * s * bound),
            default=0,
        )
        print(
            f"{'x'.join(map(str, shape)):8} links a packet: exact {exact:.4f}, simulated {records[0]['hops'] - 1:.4f}; "
            f"bound {bound:.3f} flits a node and cycle; stable to {100 * best:.0f} % of it"
        )
        add_row(
            f"{'x'.join(map(str, shape))}: links a packet under adaptive routing",
            "1",
            records[0]["hops"] - 1,
            peer="exact path counts",
            theirs=exact,
            notes=f"bound {bound:.3f} flits a node and cycle; stable to {100 * best:.0f} % of it",
        )


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--booksim", help="path of a BookSim 2 binary")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of settings, from 0 [all]")
    parser.add_argument("--exact", action="store_true", help="rectangular tori against the exact channel loads")
    options = parser.parse_args()
    if not options.booksim and not options.exact:
        parser.error("nothing to do: --booksim PATH, --exact, or both")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with recording("The simulator", options):
        if options.booksim:
            selected = options.only if options.only is not None else range(len(SETTINGS))
            against_booksim(options.booksim, tuple(SETTINGS[n] for n in selected))
        if options.exact:
            against_exact()


if __name__ == "__main__":
    main()
