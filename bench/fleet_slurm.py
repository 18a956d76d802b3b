"""Measures the cost of a campaign of many nodes behind a real Slurm.

    bench/fleet_slurm.py [--nodes 10000]

The nodes are only names: this program writes their results. The campaign is killed after a third of them, and
resumed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from results import add_row, bench_parser, recording

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.cli import command  # type: ignore[import-not-found]
from support.mini_slurm import slurm_of_names  # type: ignore[import-not-found]
from support.standing_in import StandingIn  # type: ignore[import-not-found]
from support.waiting import until  # type: ignore[import-not-found]

SPEC = 'name = "tiny"\n[[step]]\ninstrument = "peak"\noptions = { type = "fp64", budget = "100ms" }\n'


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    options = parser.parse_args()
    with recording("Fleets", options):
        measure(options.nodes)


def measure(count: int) -> None:
    """Check the nodes in two parts and print the costs."""
    with slurm_of_names(count) as cluster, tempfile.TemporaryDirectory() as name:
        folder, spec = Path(name) / "fleet", Path(name) / "tiny.toml"
        spec.write_text(SPEC, encoding="utf-8")
        words = command("fleet", "check", folder, "--spec", spec)
        env = {**os.environ, **cluster.env}
        start_s = time.monotonic()
        with StandingIn(cluster, folder) as nodes:
            first = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
            until(lambda: len(nodes.measured) >= count // 3, 600)
            first.kill()
            first.wait()
            killed_s = time.monotonic() - start_s
            outcome = ended([*words, "--resume"], env)
        controller = cluster.running[0].pid
        status = Path(f"/proc/{controller}/status").read_text(encoding="utf-8")
        ticks = Path(f"/proc/{controller}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
        summary = {
            "nodes": count,
            "measured": len(nodes.measured),
            "measured twice": sum(times > 1 for times in nodes.measured.values()),
            "jobs": len(nodes.jobs),
            "killed after [s]": round(killed_s, 1),
            "resumed": outcome,
            "slurmctld: CPU time [s]": round(sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), 1),
            "slurmctld: peak [MB]": round(int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6),
        }
        print(json.dumps(summary, indent=1))
        what = (
            f"{count:,} node names behind a real `slurmctld`, killed after a third: resumed to the end with ingestion"
        )
        notes = f"{outcome['CPU time [s]']} s of CPU time, {len(nodes.jobs)} jobs"
        add_row(what, "s", outcome["wall [s]"], limits=(None, 300), notes=notes)
        add_row("memory of the same", "MB", outcome["peak [MB]"], limits=(None, 500))


def ended(words: Sequence[str], env: Mapping[str, str]) -> dict[str, float]:
    """Run a command to its end and return its costs. The CPU time includes the commands that it runs."""
    start_s = time.monotonic()
    process = subprocess.Popen(words, env=env)
    _, status, usage = os.wait4(process.pid, 0)
    return {
        "exit status": os.waitstatus_to_exitcode(status),
        "wall [s]": round(time.monotonic() - start_s, 1),
        "CPU time [s]": round(usage.ru_utime + usage.ru_stime, 1),
        "peak [MB]": round(usage.ru_maxrss * 1024 / 1e6),
    }


if __name__ == "__main__":
    main()
