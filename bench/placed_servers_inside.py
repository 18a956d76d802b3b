"""Runs inside a guest of two nodes: starts real servers, misplaces them, and asks for verdicts; judges nothing itself.

    placed_servers_inside.py PLAN OUT

PLAN is JSON: `data` (a folder with the prepared files of the servers), `servers` (the names of those to try), `number`
(which chooses some of the ways) and `records` (latencies between nodes). OUT gets a list of cases: `server`, `way`,
`expected` (cause, and the node to which memory should move), the answer, and for misplaced ones the answer after the
change.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/guest"))
from booted import answer  # type: ignore[import-not-found]

from meshmark.errors import MeshmarkError
from meshmark.explain import answer as answers
from meshmark.explain.change import carry_out
from meshmark.explain.situation import situation
from meshmark.explain.targets import Kind, find_target
from meshmark.explain.verdict import judge
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import FileTree
from meshmark.store.record import Record

OBSERVE_S: Final = 2.0
CPUS: Final = ("0,1", "2,3")  # of each node
GROUPS: Final = Path("/sys/fs/cgroup")
QUIET: Final = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass(frozen=True)
class Server:
    """How a server is started and kept busy.

    Attributes:
        start: Returns its command; the folder is its copy of the prepared data.
        loads: Returns the commands of its clients; the first ones fill it, the last one keeps it busy.
        threads: Threads that are busy at a time.
        port: Port at which it accepts connections, or 0 for programs that need no client.
        user: The user who may run it.
    """

    start: Callable[[Path], list[str]]
    loads: Callable[[Path], list[list[str]]] = lambda _: []
    threads: int = 1
    port: int = 0
    user: str = ""


MEMCACHED_CLIENT: Final = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", 11211))
f = s.makefile("rb")
for k in range(20000):
    s.sendall(b"set k%d 0 0 1000 noreply\\r\\n" % k + b"x" * 1000 + b"\\r\\n")
s.sendall(b"version\\r\\n")
f.readline()
if sys.argv[1] == "fill":
    sys.exit()
k = 0
while True:
    k = (k * 25214903917 + 11) % 20000
    s.sendall(b"get k%d\\r\\n" % k)
    while f.readline() != b"END\\r\\n":
        pass
"""
POOL: Final = """
import mmap, os, sys
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        break
block = mmap.mmap(-1, 24 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(block), 4096):
    block[at] = 1
while True:
    sum(block[at] for at in range(0, len(block), 4096))
"""
NODE: Final = """
const values = new Map();
for (let k = 0; k < 60000; k++) values.set('k' + k, 'x'.repeat(300) + k);
require('http').createServer((q, r) => r.end(values.get('k' + (Math.random() * 60000 | 0)))).listen(8081);
"""
NGINX: Final = """
worker_processes 2; error_log /dev/null; pid {folder}/pid; daemon off; user root;
events {{ worker_connections 64; }}
http {{ access_log off; server {{ listen 8080; root {folder}; }} }}
"""


def nginx(folder: Path) -> list[str]:
    """Return the command of nginx, after its configuration is written."""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder), encoding="utf-8")
    (folder / "file").write_bytes(bytes(20000))
    return ["nginx", "-c", str(folder / "nginx.conf")]


def postgres(folder: Path) -> list[str]:
    """Return the command of PostgreSQL."""
    settings = ["shared_buffers=48MB", "fsync=off", f"unix_socket_directories={folder}", "autovacuum=off"]
    return [*sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres"))), "-D", str(folder / "data")] + [
        word for setting in settings for word in ("-c", setting)
    ]


def mariadb(folder: Path) -> list[str]:
    """Return the command of MariaDB."""
    return [
        "mariadbd",
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        "--innodb-buffer-pool-size=48M",
        "--skip-grant-tables",
        "--port=3306",
        "--bind-address=127.0.0.1",
    ]


def http_load(port: int, path: str) -> list[str]:
    """Return the command of a client that asks for a file as fast as it can."""
    return ["ab", "-q", "-c", "4", "-n", "100000000", f"http://127.0.0.1:{port}/{path}"]


PYTHON: Final = [sys.executable, "-S", "-c"]
SERVERS: Final[dict[str, Server]] = {
    "PostgreSQL": Server(
        postgres,
        lambda folder: [["pgbench", "-h", str(folder), "-U", "postgres", "-S", "-c", "2", "-T", "100000", "postgres"]],
        2,
        5432,
        "postgres",
    ),
    "MariaDB": Server(
        mariadb,
        lambda folder: [
            [
                "mysqlslap",
                f"--socket={folder / 'socket'}",
                "--auto-generate-sql",
                "--concurrency=2",
                "--iterations=9999",
                "--auto-generate-sql-load-type=read",
                "--auto-generate-sql-write-number=2000",
            ]
        ],
        2,
        3306,
        "mysql",
    ),
    "Redis": Server(
        lambda folder: ["redis-server", "--save", "", "--dir", str(folder)],
        lambda _: [
            ["redis-benchmark", "-q", "-t", "set", "-r", "20000", "-d", "1000", "-n", "20000", "-P", "16"],
            ["redis-benchmark", "-q", "-t", "get", "-r", "20000", "-n", "1000000000", "-c", "4"],
        ],
        1,
        6379,
    ),
    "memcached": Server(
        lambda _: ["memcached", "-u", "root", "-t", "2", "-m", "64"],
        lambda _: [[*PYTHON, MEMCACHED_CLIENT, "fill"], [*PYTHON, MEMCACHED_CLIENT, "read"]],
        1,
        11211,
    ),
    "nginx": Server(nginx, lambda _: [http_load(8080, "file")], 2, 8080),
    "Node.js": Server(lambda _: ["node", "-e", NODE], lambda _: [http_load(8081, "")], 1, 8081),
    "Java": Server(lambda folder: ["java", "-Xmx160m", "-XX:+UseSerialGC", "-cp", str(folder), "Work", "2"], threads=2),
    "Java, four threads": Server(
        lambda folder: ["java", "-Xmx160m", "-XX:+UseSerialGC", "-cp", str(folder), "Work", "4"], threads=4
    ),
    "Python pool": Server(lambda _: [*PYTHON, POOL, "2"], threads=2),
    "Python pool of four": Server(lambda _: [*PYTHON, POOL, "4"], threads=4),
    "OpenMP": Server(lambda folder: ["env", "OMP_NUM_THREADS=2", str(folder / "openmp")], threads=2),
    "OpenMP, four threads": Server(lambda folder: ["env", "OMP_NUM_THREADS=4", str(folder / "openmp")], threads=4),
    "MPI": Server(
        lambda folder: (
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", str(folder / "mpi")]
        ),
        threads=2,
    ),
    "MPI, four ranks": Server(
        lambda folder: (
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4", str(folder / "mpi")]
        ),
        threads=4,
    ),
}


def waited_for(condition: Callable[[], bool], what: str, limit_s: float = 240.0) -> None:
    """Wait until a condition holds, or raise TimeoutError."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(what)
        time.sleep(0.2)


def listens(port: int) -> bool:
    """Return whether a program accepts connections at a port."""
    text = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    return f":{port:04X} " in "".join(line[:60] for line in text.splitlines() if " 0A " in line)


def tree_of(pid: int) -> tuple[int, ...]:
    """Return a process and its descendants."""
    return find_target(FileTree(Path("/")), "process", str(pid)).processes


def times(pid: int) -> dict[str, float]:
    """Return the CPU time of each thread of a program, s."""
    used: dict[str, float] = {}
    for process in tree_of(pid):
        for stat in Path(f"/proc/{process}/task").glob("*/stat"):
            with suppress(OSError):
                words = stat.read_text().rpartition(")")[2].split()
                used[stat.parent.name] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return used


def computes(pid: int, threads: int) -> bool:
    """Return whether this many threads of a program use a CPU during a second."""
    before = times(pid)
    time.sleep(1.0)
    return sum(used > before.get(thread, 0.0) + 0.02 for thread, used in times(pid).items()) >= threads


@contextmanager
def running(name: str, data: Path, prefix: list[str], group: Path | None = None) -> Iterator[int]:
    """Run a server and its clients, and yield the number of its process once it is busy."""
    server = SERVERS[name]
    folder = Path(f"/tmp/servers/{name.replace(' ', '-').replace(',', '')}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(data / name.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0].lower(), folder, symlinks=True)
    if server.user:
        subprocess.run(["chown", "-R", server.user, str(folder)], check=True)
        prefix = [*prefix, "setpriv", f"--reuid={server.user}", f"--regid={server.user}", "--clear-groups"]
    command = [*prefix, *server.start(folder)]
    children: list[subprocess.Popen[bytes]] = []

    def enter() -> None:
        os.setpgid(0, 0)
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    log = (folder / "log").open("wb")
    try:
        child = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, preexec_fn=enter)  # noqa: PLW1509
        children.append(child)
        waited_for(lambda: not server.port or listens(server.port) or child.poll() is not None, f"{name} listens")
        loads = server.loads(folder)
        for k, load in enumerate(loads):
            client = subprocess.Popen(["taskset", "-c", "3", *load], preexec_fn=os.setpgrp, **QUIET)  # type: ignore[call-overload] # noqa: PLW1509
            children.append(client)
            if k < len(loads) - 1:
                client.wait(600)
        busy = 1 if server.port else server.threads
        waited_for(lambda: child.poll() is not None or computes(child.pid, busy), f"{name} computes")
        if child.poll() is not None:
            raise RuntimeError(f"{name} ended: " + (folder / "log").read_text(errors="replace")[-400:])
        yield child.pid
    finally:
        for child in reversed(children):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with suppress(MeshmarkError, OSError):
                for process in tree_of(child.pid):
                    os.kill(process, signal.SIGKILL)
            child.wait()
        log.close()


@dataclass
class Study:
    """Collects the cases."""

    records: list[Record]
    cases: list[dict[str, Any]]

    def ask(self, kind: Kind, name: str) -> tuple[Any, Any]:
        """Return what is observed of a program, and the verdict."""
        current = situation(from_sysfs(), find_target(FileTree(Path("/")), kind, name), OBSERVE_S, self.records)
        return current, judge(current)

    def case(self, server: str, way: str, expected: list[Any], kind: Kind, name: str, fix: bool = True) -> None:
        """Ask about a server; if it is misplaced and may be changed, change it and ask again."""
        current, verdict = self.ask(kind, name)
        found: dict[str, Any] = {"server": server, "way": way, "expected": expected}
        found["first"] = answers.answer(current, verdict)
        if fix and expected[0] != "local" and verdict.action and verdict.action.change != "permit":
            try:
                found["changes"] = carry_out(current, verdict.action)
                found["fixed"] = answers.answer(*self.ask(kind, name))
            except MeshmarkError as error:
                found["refused"] = str(error)
        self.cases.append(found)
        print(f"{server}, {way}: {found['first']['cause']}", file=sys.stderr, flush=True)


def bind(pid: int, cpus: str) -> None:
    """Bind all threads of a program."""
    for process in tree_of(pid):
        subprocess.run(["taskset", "-acp", cpus, str(process)], **QUIET, check=False)  # type: ignore[call-overload]


def move(pid: int, source: int, target: int) -> None:
    """Move the pages of a program from a node to another."""
    place = Path(__file__).resolve().parent.parent / "build/release/bin/meshmark-place"
    command = [place, "migrate", str(pid), "--from", str(source), "--to", str(target), "--children", "--shared"]
    subprocess.run(command, **QUIET, check=False)  # type: ignore[call-overload]


def group_at(name: str, cpus: str, nodes: str) -> Path:
    """Make a control group with these limits, and return its folder."""
    for folder in [GROUPS, *reversed(Path(name).parents[:-1])]:
        (GROUPS / folder).mkdir(exist_ok=True)
        (GROUPS / folder / "cgroup.subtree_control").write_text("+cpuset +memory")
    group = GROUPS / name
    group.mkdir(exist_ok=True)
    (group / "cpuset.cpus").write_text(cpus)
    (group / "cpuset.mems").write_text(nodes)
    return group


def try_server(study: Study, name: str, data: Path, number: int) -> None:
    """Try a program that fits into one node in all ways that suit it; `number` chooses some of them."""
    threads = SERVERS[name].threads
    if threads > 2:
        try_wide_server(study, name, data)
        return
    local = [["numactl", "-N0", "--preferred=0"], ["numactl", "-N1", "--preferred=1"]]
    with running(name, data, local[0]) as pid:
        study.case(name, "local on node 0", ["local"], "process", str(pid))
        bind(pid, CPUS[1])
        study.case(name, "threads moved to node 1", ["remote-memory", 1], "process", str(pid))
        move(pid, 1, 0)
        study.case(name, "pages moved to node 0", ["remote-memory", 1], "process", str(pid))
        if threads > 1 and not SERVERS[name].port:  # clients may keep a server below one CPU
            bind(pid, "2")
            move(pid, 0, 1)
            study.case(name, "all threads on one CPU", ["few-cpus", None], "process", str(pid))
    with running(name, data, local[1]) as pid:
        study.case(name, "local on node 1", ["local"], "process", str(pid))
    ways = [
        ("memory bound to node 1", ["numactl", "-N0", "-m1"], 0),
        ("memory of node 0 preferred", ["numactl", "-N1", "--preferred=0"], 1),
        ("memory interleaved", ["numactl", "-N0", "-i0,1"], 0),
    ]
    for way, prefix, node in (ways[number % 3], ways[(number + 1) % 3]):
        with running(name, data, prefix) as pid:
            study.case(name, way, ["remote-memory", node], "process", str(pid))
    identifier = f"{number + 11:064x}"
    kinds: list[tuple[str, Kind, str]] = [
        ("study/group", "cgroup", "/study/group"),
        (f"system.slice/docker-{identifier}.scope", "container", identifier),
        ("system.slice/study.service", "unit", "study"),
    ]
    path, kind, target = kinds[number % 3]
    group = group_at(path, CPUS[0], "0")
    with running(name, data, [], group) as pid:
        study.case(name, f"local in a {kind}", ["local"], kind, target)
        (group / "cpuset.mems").write_text("1")
        move(pid, 0, 1)
        study.case(name, f"limits of its {kind}", ["remote-memory", 0], kind, target, kind == "cgroup")
        (group / "cpuset.mems").write_text("1")
        move(pid, 0, 1)
        study.case(name, f"limits of its {kind}, asked by PID", ["cpuset", 0], "process", str(pid))


def try_wide_server(study: Study, name: str, data: Path) -> None:
    """Try a program that needs the CPUs of both nodes."""
    with running(name, data, ["numactl", "-i0,1"]) as pid:
        study.case(name, "interleaved over both nodes", ["local"], "process", str(pid))
    with running(name, data, ["numactl", "--preferred=0"]) as pid:
        study.case(name, "first touch on node 0", ["first-touch", None], "process", str(pid))
        bind(pid, CPUS[1])
        move(pid, 0, 1)
        study.case(name, "threads on half of the CPUs", ["few-cpus", None], "process", str(pid))


def gather(plan: dict[str, Any], out: dict[str, Any]) -> None:
    """Try the servers of a plan."""
    os.environ["XDG_DATA_HOME"] = "/tmp/changes"
    Path("/proc/sys/kernel/numa_balancing").write_text("0")  # it would move the pages, too
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/tmp/servers").mkdir(parents=True, exist_ok=True)
    study = Study([Record.from_json(r) for r in plan["records"]], [])
    out["cases"], out["broken"] = study.cases, {}
    for name in plan["servers"]:
        try:
            try_server(study, name, Path(plan["data"]), plan["number"])
        except (TimeoutError, RuntimeError, OSError, MeshmarkError, subprocess.TimeoutExpired) as error:
            out["broken"][name] = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    answer(gather, {})
