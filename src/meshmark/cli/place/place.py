"""`meshmark run`, `place`, `slots`, `placed`, `migrate` and `translate`.

The native program implements these commands, and `entry` starts it without importing this module, which provides help
and shell completion. Only `place` on modelled machines, with measured distances or with a drawing needs Python.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer

from meshmark import process
from meshmark.cli.completion import PlacerCommand
from meshmark.cli.console import say
from meshmark.cli.place.native_verb import become
from meshmark.cli.place.placed import placed
from meshmark.errors import AbsentError, UsageError
from meshmark.values.paths import default_store

_FORWARDED: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def register(app: typer.Typer) -> None:
    """Add the commands that the native placer implements."""
    for name, call in (
        ("run", run),
        ("place", place),
        ("slots", slots),
        ("migrate", migrate),
        ("translate", translate),
    ):
        app.command(name, cls=PlacerCommand, context_settings=_FORWARDED)(call)
    app.command("placed")(placed)


def run() -> None:
    """Run a command with a placement policy, and verify it.

    example: meshmark run --bind balance -n 4 --verify -- ./a.out
    """
    become("run")


def slots() -> None:
    """List the CPUs of this host that are reserved, and by whom.

    example: meshmark slots
    """
    become("slots")


def migrate() -> None:
    """Move pages of a running program to other nodes.

    example: meshmark migrate 4711 --to 1
    """
    become("migrate")


def translate() -> None:
    """Translate a placement into options of other launchers.

    example: meshmark translate --parts '0,4;1,5' --to slurm,openmpi
    """
    become("translate")


# ------------------------------------------------------------------ place


def place() -> None:
    """Show the placement that a policy yields on any machine.

    example: meshmark place --topology gs1280-16 --policy compact --jobs 4
    """
    argv = sys.argv[2:]
    if "-h" in argv or "--help" in argv:
        from meshmark.place.native import ask

        print(ask(["plan", "--help"]).rstrip())
        print(
            "\nOptions for modelled and measured machines:\n"
            "  --topology <name>, --on <name>\n"
            "                     a modelled machine (meshmark model list), with its\n"
            "                     modelled latencies\n"
            "  --matrix measured  the latencies in the store that were measured between\n"
            "                     the nodes of this machine\n"
            "  --svg <file>       also draw the jobs on the machine"
        )
        return
    argv, drawing = _without(argv, "--svg")
    argv, machine_name = _without(argv, "--on")
    if machine_name is None:
        topology = _value(argv, "--topology")
        if topology not in {None, "host"} and ":" not in str(topology) and not Path(str(topology)).exists():
            argv, machine_name = _without(argv, "--topology")
    elif _value(argv, "--topology") is not None:
        raise UsageError("--on: found with --topology; allowed: one of them")
    measured = _value(argv, "--matrix") == "measured"
    if machine_name is not None and machine_name != "host":
        if _value(argv, "--matrix") is not None:
            raise UsageError(f"--matrix: found with the modelled machine '{machine_name}', which has its own latencies")
        description, matrix = described(machine_name)
        argv = ["--topology", description, *argv]
    elif measured:
        if _value(argv, "--topology") not in {None, "host"}:
            raise UsageError("--matrix measured: found with --topology of another machine, allowed with host")
        argv, _ = _without(argv, "--matrix")
        matrix = measured_here()
    elif drawing is None:
        become("plan")
        return
    else:
        matrix = ""
    from meshmark.place.native import find_place

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.write(matrix)
        file.flush()
        sys.stdout.flush()
        command = [str(find_place()), "plan", *argv, *(["--matrix", file.name] if matrix else [])]
        if drawing is None:
            raise SystemExit(process.start(command).wait())
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as plan:
            status = process.start([*command, "--save", plan.name]).wait()
            # Open the file by name, since the program replaces it. It is empty if the program refused the plan.
            if text := Path(plan.name).read_text(encoding="utf-8"):
                _draw(json.loads(text), Path(drawing), machine_name, _value(argv, "--topology") or "host")
        raise SystemExit(status)


def _draw(plan: dict[str, Any], path: Path, machine_name: str | None, topology: str) -> None:
    """Draw the jobs of a plan on the mesh of a modelled machine, or on the topology of another machine."""
    from meshmark.store.files import read_bytes, write_text
    from meshmark.views.topology_svg import JOB_FILLS, topology_svg

    if path.suffix != ".svg":
        raise UsageError(f"--svg: found '{path}'; allowed: names that end in .svg")
    jobs_of: dict[int, list[int]] = {}
    for number, job in enumerate(plan["jobs"], 1):
        for cpu in job.get("cpus", ()):
            jobs_of.setdefault(cpu, []).append(number)
    if machine_name is not None and machine_name != "host":
        from meshmark.model.engine import ask
        from meshmark.model.machine import find_machine
        from meshmark.views.mesh import mesh_svg

        machine = find_machine(machine_name)
        jobs_on_node: dict[int, set[int]] = {}
        first_cpu = 0  # CPUs of a modelled machine are numbered node by node
        for node in ask(machine, [{"kind": "describe"}], threads=1)[0]["nodes"]:
            jobs_on_node[node["node"]] = {
                j for cpu in range(first_cpu, first_cpu + node["cpus"]) for j in jobs_of.get(cpu, ())
            }
            first_cpu += node["cpus"]
        marks = {
            n: ("+".join(map(str, sorted(jobs))), JOB_FILLS[(min(jobs) - 1) % len(JOB_FILLS)])
            for n, jobs in jobs_on_node.items()
            if jobs
        }
        text = mesh_svg(machine, held=marks)
    else:
        from meshmark.machine.sources import from_hwloc_xml, from_synthetic, from_sysfs

        if topology == "host":
            machine_parts = from_sysfs()
        elif Path(topology).is_file():
            machine_parts = from_hwloc_xml(read_bytes(Path(topology)))
        else:
            machine_parts = from_synthetic(topology)
        text = topology_svg(machine_parts.to_dict(), jobs_of) + "\n"
    write_text(path, text)
    say(f"meshmark: {path}")


def _value(argv: list[str], option: str) -> str | None:
    """Return the value of an option, `--option VALUE` or `--option=VALUE`; None if the option is absent."""
    for argument, following in pairwise([*argv, ""]):
        if argument == option:
            return following
        if argument.startswith(option + "="):
            return argument.partition("=")[2]
    return None


def _without(argv: list[str], option: str) -> tuple[list[str], str | None]:
    """Return the arguments without an option, and its value (None if absent)."""
    value = _value(argv, option)
    remaining, skip = [], False
    for argument in argv:
        if not skip and argument != option and not argument.startswith(option + "="):
            remaining.append(argument)
        skip = not skip and argument == option
    return remaining, value


def described(name: str) -> tuple[str, str]:
    """Return a modelled machine for the native program: its synthetic topology, and the text of its matrix file.

    Raises:
        AbsentError: The nodes have different numbers of CPUs, which a synthetic topology cannot express.
    """
    from meshmark.model.engine import ask
    from meshmark.model.machine import find_machine
    from meshmark.place.native import matrix_text

    machine = find_machine(name)
    requests = [{"kind": kind} for kind in ("describe", "matrix", "hops")]
    shape, matrix, links = ask(machine, requests, threads=1)
    counts = {n["cpus"] for n in shape["nodes"]}
    if len(counts) != 1 or counts == {0}:
        raise AbsentError(f"place: the nodes of {name} have {sorted(counts)} CPUs; allowed: the same number in each")
    nodes = [n["node"] for n in shape["nodes"]]
    what, hops = f"{machine.label}, closed form", links["hops"]
    text = matrix_text(range(len(nodes)), matrix["latency_s"], "s", what, "lower", hops)
    return f"pack:{len(nodes)} [numa] core:{counts.pop()} pu:1", text


def measured_here() -> str:
    """Return the matrix file of the measurements of this machine in the store; see `native.measured_matrix`."""
    from meshmark.machine.facts import host_id
    from meshmark.machine.sources import from_sysfs
    from meshmark.place.native import measured_matrix
    from meshmark.store.store import Store

    topology, store, machine = from_sysfs(), Store(default_store()), host_id()
    records = [r for m in ("load_latency", "bandwidth_net") for r in store.query(machine=machine, metric=m)]
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    return measured_matrix(records, node_of, [n.os_index for n in topology.nodes])
