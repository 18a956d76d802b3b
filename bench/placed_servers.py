"""Measures how often `meshmark placed` names the right cause and the right command for real servers.

    .venv/bin/python bench/placed_servers.py [SERVER …] [--record]

The servers run in an emulated guest of two nodes: placed well, and misplaced in up to ten ways. Latencies between the
nodes are made up, because an emulated guest has one memory. For each misplaced server, the suggested change is carried
out and the server is observed again. All servers take about an hour of two processors.

Needed from the distribution: postgresql, mariadb-server, mariadb-client, redis-server, memcached, nginx, nodejs,
default-jdk-headless, apache2-utils, numactl, and what tests of guests need.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from placed_servers_inside import SERVERS
from results import add_row, bench_parser, recording

from meshmark.store.record import Metric, Record

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/guest"))
from booted import gathered  # type: ignore[import-not-found]  # noqa: E402

PROGRAMS: Final = [
    "postgres",
    "mariadbd",
    "redis-server",
    "memcached",
    "nginx",
    "node",
    "javac",
    "ab",
    "mysqlslap",
    "pgbench",
    "numactl",
    "mpicc",
]
FAR: Final = 1.7  # times the latency of the own node

WORK: Final = """
public class Work {
    static long[] data;
    public static void main(String[] words) throws Exception {
        data = new long[6 << 20];
        for (int k = 0; k < data.length; k++) data[k] = k;
        for (int t = 0; t < Integer.parseInt(words[0]); t++) {
            final int seed = t;
            new Thread(() -> {
                long x = seed, sum = 0;
                while (true) { x = x * 6364136223846793005L + 1442695040888963407L;
                               sum += data[(int) ((x >>> 33) % data.length)];
                               if (sum == 42) System.out.print(""); }
            }).start();
        }
    }
}
"""
OPENMP: Final = """
#include <stdlib.h>
#include <stdio.h>
int main() {
    size_t n = 6 << 20; double *a = malloc(n * sizeof *a), sum = 0;
    for (size_t k = 0; k < n; ++k) a[k] = k;
    for (;;) {
        #pragma omp parallel for reduction(+ : sum)
        for (size_t k = 0; k < n; ++k) sum += a[k];
        if (sum == 42) puts("");
    }
}
"""
MPI: Final = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    size_t n = 3 << 20; double *a = malloc(n * sizeof *a), sum = 0, all;
    for (size_t k = 0; k < n; ++k) a[k] = k;
    for (;;) {
        for (size_t k = 0; k < n; ++k) sum += a[k];
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}
"""


def prepare(data: Path) -> None:
    """Write what the servers need into a folder each."""
    for name in SERVERS:
        (data / name.split(",")[0].split(" ")[0].lower()).mkdir(exist_ok=True)
    compile_source(data / "java/Work.java", WORK, "javac", "-d", str(data / "java"))
    compile_source(data / "openmp/openmp.c", OPENMP, "gcc", "-O2", "-fopenmp", "-o", str(data / "openmp/openmp"))
    compile_source(data / "mpi/mpi.c", MPI, "mpicc", "-O2", "-o", str(data / "mpi/mpi"))
    run(
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={data / 'mariadb/data'}",
        "--auth-root-authentication-method=normal",
    )
    postgres = data / "postgresql"
    shutil.chown(postgres, "postgres")
    data.chmod(0o755)
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    run(*as_user, programs / "initdb", "-D", postgres / "data", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={postgres}"
    run(*as_user, programs / "pg_ctl", "-D", postgres / "data", "-w", "-l", postgres / "log", "-o", options, "start")
    run("pgbench", "-h", postgres, "-U", "postgres", "-q", "-i", "-s", "2", "postgres")
    run(*as_user, programs / "pg_ctl", "-D", postgres / "data", "-w", "stop")


def compile_source(file: Path, text: str, *command: str) -> None:
    """Write a source file and compile it."""
    file.write_text(text, encoding="utf-8")
    run(*command, file)


def run(*command: Any) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def latencies() -> list[dict[str, Any]]:
    """Return records of made-up latencies between the two nodes."""
    metric = Metric("load_latency", "s", "lower", "")
    return [
        Record.from_samples(
            metric,
            tuple((1.0 if a == b else FAR) * 1e-7 * (1 + 0.002 * k) for k in range(9)),
            source="host",
            machine="guest",
            instrument="latency",
            conditions={"cpu": 2 * a, "memory_node": b, "processes": 1, "footprint_bytes": 1 << 30},
            provenance={"start": "2026-11-30T00:00:00Z"},
        ).to_json()
        for a in (0, 1)
        for b in (0, 1)
    ]


def is_right(case: dict[str, Any]) -> bool:
    """Return whether the cause and the command are those that the misplacement calls for."""
    cause, node = case["expected"]
    first = case["first"]
    if first["cause"] != cause:
        return False
    command = first["command"]
    kind = first["target"]["kind"]
    name = first["target"]["name"]
    if cause == "cpuset":
        return bool(command.startswith("meshmark placed --cgroup ") and command.endswith(" --fix"))
    if cause == "few-cpus":
        return bool(command.startswith("taskset -acp "))
    if cause == "first-touch":
        return bool(command.startswith(f"meshmark migrate {name} --to 0-1 --spread"))
    if kind == "process":
        return bool(command.startswith(f"meshmark migrate {name} --to {node}"))
    word = {"container": f"docker update --cpuset-cpus 0-1 --cpuset-mems {node}", "unit": "systemctl set-property"}
    return bool(command.startswith(word.get(kind, "")) and str(node) in command)


def summarise(cases: list[dict[str, Any]]) -> None:
    """Print the wrong cases, and print and record the shares."""
    misplaced = [c for c in cases if c["expected"][0] != "local"]
    placed = [c for c in cases if c["expected"][0] == "local"]
    right = [c for c in misplaced if is_right(c)]
    quiet = [c for c in placed if not c["first"]["command"]]
    helped = [c for c in misplaced if "fixed" in c and c["fixed"]["cause"] != c["first"]["cause"]]
    changed = [c for c in misplaced if "fixed" in c or "refused" in c]
    for case in cases:
        first = case["first"]
        if case not in right and case not in quiet:
            print(f"  {case['server']}, {case['way']}: expected {case['expected']}, found {first['cause']}:")
            print(f"    {first['sentence']}; {first['command']}")
    for case in changed:
        if case not in helped:
            print(f"  {case['server']}, {case['way']}: the change did not help: {case.get('changes')}")
            print(f"    {case.get('refused') or case['fixed']['sentence']}")
    ways = sorted({c["way"].split(" its ")[0] for c in misplaced})
    print(f"{len(right)} of {len(misplaced)} misplaced: right cause and command ({len(ways)} ways)")
    print(f"{len(quiet)} of {len(placed)} well placed: no change suggested")
    print(f"{len(helped)} of {len(changed)} changes removed the cause")
    notes = f"{len({c['server'] for c in cases})} programs, emulated guest of two nodes, latencies made up"
    for what, part, whole in (
        ("misplaced servers: right cause and command", right, misplaced),
        ("well-placed servers: no change suggested", quiet, placed),
        ("misplaced servers: the change removed the cause", helped, changed),
    ):
        if whole:
            add_row(
                what, "", len(part) / len(whole), limits=(0.95, None), notes=f"{len(part)} of {len(whole)}; {notes}"
            )


def main() -> None:
    """Try the servers and print the figures."""
    parser = bench_parser(__doc__)
    parser.add_argument("servers", nargs="*", default=list(SERVERS))
    options = parser.parse_args()
    if unknown := set(options.servers) - set(SERVERS):
        parser.error(f"found {sorted(unknown)[0]}; allowed: {', '.join(SERVERS)}")
    paths = ":".join(["/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
    if missing := [p for p in PROGRAMS if not (shutil.which(p) or shutil.which(p, path=paths))]:
        parser.error(f"these programs are missing: {', '.join(missing)}")
    with recording("Placing", options), tempfile.TemporaryDirectory(prefix="servers-", dir=ROOT / "build") as folder:
        prepare(Path(folder))
        cases: list[dict[str, Any]] = []
        # A boot for each server, so that one that fails does not hold up the others.
        for name in options.servers:
            plan = {"data": folder, "servers": [name], "number": list(SERVERS).index(name), "records": latencies()}
            answers = gathered("numa-2", str(ROOT / "bench/placed_servers_inside.py"), plan, 1800)
            if isinstance(answers, str):
                parser.error(answers)
            cases += answers.get("cases", [])
            broken = dict(answers.get("broken", {}))
            if "failed" in answers:
                broken[name] = answers["failed"]
            for server, reason in broken.items():
                print(f"{server}: {reason}", flush=True)
            print(f"{name}: {len(cases)} cases so far", flush=True)
        summarise(cases)


if __name__ == "__main__":
    main()
