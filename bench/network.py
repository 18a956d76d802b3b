"""The network simulator against an independent one: an 8 x 8 torus, uniform random traffic, dimension order.

BookSim 2 is not packaged: give the path of a binary. Both run back to back on one CPU; times are CPU times of the
whole process. With `--exact` also: link loads of rectangular tori under adaptive routing against the exact ones.

example: .venv/bin/python bench/network.py --booksim ~/booksim2/src/booksim
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from meshmark.model.engine import find_engine

LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.55)
CYCLES = 30_000  # simulated by each, of which 15,000 are measured
NODES = 64

# What BookSim is told. Its other settings are its defaults: islip allocators of one iteration, routing 1 cycle, channel
# allocation 1, switch allocation 1, traversal 1, links 1.
BOOKSIM = """topology = torus; k = 8; n = 2; routing_function = dim_order_bal;
num_vcs = 4; vc_buf_size = 8; traffic = uniform; injection_rate_uses_flits = 1; use_noc_latency = 0;
sim_type = latency; warmup_periods = 3; sample_period = 5000; max_samples = 3; latency_thres = 5000.0;
"""


def torus() -> dict[str, Any]:
    """The same router for our simulator; a cycle is 1 ns."""
    return {
        "topology": {"kind": "torus", "shape": [8, 8]},
        "links": {"wire": {"bandwidth_gb_per_s": 8.0, "latency_ns": 3}},  # traversal 1, link 1, buffer write 1
        "node": {"cpus": 1, "controllers": 0, "port_gb_per_s": 8.0, "leave_ns": 1, "arrive_ns": 3},
        "router": {
            "flit_bytes": 8,
            "routing": "dimension_order",
            "adaptive_channels": 0,
            "escape_channels": 2,
            "channels_per_escape": 2,
            "message_classes": 1,
            "pipeline_ns": 1,
            "allocation_ns": 1,
            "requeue_ns": 1,
            "credit_ns": 1,
            "cycle_ns": 1,
            "buffer_flits": 8,
            "channel_sharing": "exclusive",
        },
    }


def timed(argv: list[str], text: str) -> tuple[str, float]:
    """Output and CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout + done.stderr, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def booksim(binary: str, flits: int, load: float) -> tuple[float, float, float, float]:
    """Latency (cycles; NaN where unstable), accepted flits a node and cycle, simulated cycles, CPU seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(BOOKSIM + f"packet_size = {flits}; injection_rate = {load}; seed = 1;\n")
        config.flush()
        text, cpu = timed([binary, config.name], "")
    if os.environ.get("BENCH_SHOW"):
        print(text[-3000:])
    stable = "unstable" not in text
    latency = re.findall(r"Packet latency average = ([0-9.]+)", text)
    accepted = re.findall(r"Accepted flit rate average ?= ([0-9.]+)", text)
    cycles = re.findall(r"Time taken is (\d+) cycles", text)
    return (
        float(latency[-1]) if stable and latency else float("nan"),
        float(accepted[-1]) if accepted else float("nan"),
        float(cycles[-1]) if cycles else 0.0,
        cpu,
    )


def ours(flits: int, load: float) -> tuple[float, float, float, float]:
    """The same of our simulator; hops instead of cycles."""
    packets = int(load * NODES * CYCLES / 2 / flits)
    run = {
        "kind": "traffic",
        "pattern": "uniform",
        "load": load,
        "packet_flits": flits,
        "packets": packets,
        "warm_packets": packets,
        "seed": 1,
    }
    text, cpu = timed([str(find_engine())], json.dumps({"machine": torus(), "runs": [run]}) + "\n")
    said = json.loads(text.splitlines()[0])
    return (float("nan") if said["unstable"] else said["latency_cycles"]), said["accepted"], said["packet_hops"], cpu


def against_booksim(binary: str) -> None:
    print(f"{'flits':>5} {'load':>5} {'booksim':>8} {'ours':>8} {'error':>7}   {'accepted':>13}   CPU µs a hop, factor")
    for flits in (1, 5):
        for load in LOADS:
            theirs = booksim(binary, flits, load)
            mine = ours(flits, load)
            packets = theirs[1] * NODES * theirs[2] / flits
            each = 1e6 * theirs[3] / (packets * 4.998) if packets else float("nan")
            own = 1e6 * mine[3] / mine[2]
            error = f"{100 * (mine[0] / theirs[0] - 1):+.1f} %"
            print(
                f"{flits:5d} {load:5.2f} {theirs[0]:8.2f} {mine[0]:8.2f} {error:>7}   "
                f"{theirs[1]:.3f} {mine[1]:.3f}   {each:7.2f} {own:6.3f}  {each / own:5.1f} x"
            )
        saturated_theirs, saturated = booksim(binary, flits, 1.0), ours(flits, 1.0)
        print(f"{flits:5d}   1.0   accepted beyond saturation: {saturated_theirs[1]:.3f} and {saturated[1]:.3f}")


def against_exact() -> None:
    """Loads of the links under adaptive routing, simulated at a light load, against path counting; and the bound."""
    for shape in ([8, 8], [8, 4], [16, 4], [6, 10], [4, 4, 4]):
        machine = torus()
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
        found = [json.loads(line) for line in text.splitlines()]
        best = max(
            (s for s, f in zip(shares, found, strict=True) if not f["unstable"] and f["accepted"] > 0.97 * s * bound),
            default=0,
        )
        print(
            f"{'x'.join(map(str, shape)):8} links a packet: exact {exact:.4f}, simulated {found[0]['hops'] - 1:.4f}; "
            f"bound {bound:.3f} flits a node and cycle; stable to {100 * best:.0f} % of it"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--booksim", help="path of a BookSim 2 binary")
    parser.add_argument("--exact", action="store_true", help="rectangular tori against the exact channel loads")
    given = parser.parse_args()
    if not given.booksim and not given.exact:
        parser.error("nothing to do: --booksim PATH, --exact, or both")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if given.booksim:
        against_booksim(given.booksim)
    if given.exact:
        against_exact()


if __name__ == "__main__":
    main()
