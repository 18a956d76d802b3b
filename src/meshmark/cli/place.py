"""`meshmark run`, `place`, `slots`, `placed`, `migrate`, `translate`, `advise` and `check-os`.

The first six are verbs of the native program: `entry` starts it without importing this module, which serves their help
and shell completion. Only `place` on modelled machines or with measured distances needs Python.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import interruptible, print_rows, say
from meshmark.cli.options import NoStoreOption, RootOption, StoreOption
from meshmark.errors import AbsentError, UsageError
from meshmark.values import grammar
from meshmark.values.paths import data_home
from meshmark.values.units import plain

if TYPE_CHECKING:
    from meshmark.doctor.check import Check
    from meshmark.place.advice import Advice
    from meshmark.place.candidates import Here

_FORWARDED: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
_STYLES: Final = {"wrong": "bold red", "absent": "yellow", "ok": "green"}


def register(app: typer.Typer) -> None:
    for name, call in (
        ("run", run),
        ("place", place),
        ("slots", slots),
        ("placed", placed),
        ("migrate", migrate),
        ("translate", translate),
    ):
        app.command(name, context_settings=_FORWARDED)(call)
    app.command("advise", context_settings={"allow_interspersed_args": False})(advise)
    app.command("check-os")(check_os)


def _become(verb: str) -> None:
    """Replaces this process by the native program, with the arguments as typed: the parser would remove `--`."""
    from meshmark.place.native import find_place

    sys.stdout.flush()
    os.execv(find_place(), ["meshmark-place", verb, *sys.argv[2:]])


def run() -> None:
    """Run a command with a placement policy, and verify that it was enforced.

    example: meshmark run --bind balance -n 4 --verify -- ./a.out
    """
    _become("run")


def slots() -> None:
    """List the CPUs of this host that are reserved, and by whom.

    example: meshmark slots
    """
    _become("slots")


def placed() -> None:
    """Show where the threads and pages of a running program are.

    example: meshmark placed 4711
    """
    _become("placed")


def migrate() -> None:
    """Move the pages of a running program to other memory nodes.

    example: meshmark migrate 4711 --to 1
    """
    _become("migrate")


def translate() -> None:
    """Translate a placement into the options of other launchers.

    example: meshmark translate --parts '0,4;1,5' --to slurm,openmpi
    """
    _become("translate")


# ------------------------------------------------------------------ place


def place() -> None:
    """Show the placement that a policy yields, on this machine or any other.

    example: meshmark place --topology gs1280-16 --policy compact --jobs 4
    """
    argv = sys.argv[2:]
    if "-h" in argv or "--help" in argv:
        from meshmark.place.native import ask

        print(ask(["plan", "--help"]).rstrip())
        print(
            "\n  --topology NAME, or --on NAME: a modelled machine (meshmark model list), with its modelled latencies."
            "\n  --matrix measured: the latencies in the store that were measured between the nodes of this machine."
            "\n  --svg FILE: also draw the jobs on the machine."
        )
        return
    argv, drawing = _without(argv, "--svg")
    argv, named = _without(argv, "--on")
    if named is None:
        topology = _value(argv, "--topology")
        if topology not in {None, "host"} and ":" not in str(topology) and not Path(str(topology)).exists():
            argv, named = _without(argv, "--topology")
    elif _value(argv, "--topology") is not None:
        raise UsageError("--on: found with --topology, allowed is one of them")
    measured = _value(argv, "--matrix") == "measured"
    if named is not None and named != "host":
        if _value(argv, "--matrix") is not None:
            raise UsageError(f"--matrix: found with the modelled machine '{named}', which has its own latencies")
        description, matrix = described(named)
        argv = ["--topology", description, *argv]
    elif measured:
        if _value(argv, "--topology") not in {None, "host"}:
            raise UsageError("--matrix measured: found with --topology of another machine, allowed with host")
        argv, _ = _without(argv, "--matrix")
        matrix = measured_here()
    elif drawing is None:
        _become("plan")
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
            raise SystemExit(subprocess.run(command, check=False).returncode)
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as plan:
            status = subprocess.run([*command, "--save", plan.name], check=False).returncode
            # Read by name, since the program replaces the file. It is empty if the plan was refused.
            if text := Path(plan.name).read_text(encoding="utf-8"):
                _draw(json.loads(text), Path(drawing), named, _value(argv, "--topology") or "host")
        raise SystemExit(status)


def _draw(plan: dict[str, Any], path: Path, named: str | None, topology: str) -> None:
    """Draws the jobs of a plan on the mesh of a modelled machine, or on the topology of any other."""
    from meshmark.report.topology_svg import JOB_FILLS, topology_svg
    from meshmark.store.files import read_bytes, write_text

    if path.suffix != ".svg":
        raise UsageError(f"--svg: found '{path}', allowed are names that end in .svg")
    held: dict[int, list[int]] = {}
    for number, job in enumerate(plan["jobs"], 1):
        for cpu in job.get("cpus", ()):
            held.setdefault(cpu, []).append(number)
    if named is not None and named != "host":
        from meshmark.model.engine import ask
        from meshmark.model.machine import find_machine
        from meshmark.report.mesh import mesh_svg

        machine = find_machine(named)
        on: dict[int, set[int]] = {}
        first = 0  # CPUs of a modelled machine are numbered node by node
        for node in ask(machine, [{"kind": "describe"}], threads=1)[0]["nodes"]:
            on[node["node"]] = {j for cpu in range(first, first + node["cpus"]) for j in held.get(cpu, ())}
            first += node["cpus"]
        marks = {
            n: ("+".join(map(str, sorted(jobs))), JOB_FILLS[(min(jobs) - 1) % len(JOB_FILLS)])
            for n, jobs in on.items()
            if jobs
        }
        text = mesh_svg(machine, held=marks)
    else:
        from meshmark.machine.hwloc import from_hwloc_xml, from_synthetic
        from meshmark.machine.sysfs import from_sysfs

        if topology == "host":
            machine_parts = from_sysfs()
        elif Path(topology).is_file():
            machine_parts = from_hwloc_xml(read_bytes(Path(topology)))
        else:
            machine_parts = from_synthetic(topology)
        text = topology_svg(machine_parts.to_dict(), held) + "\n"
    write_text(path, text)
    say(f"meshmark: {path}")


def _value(argv: list[str], option: str) -> str | None:
    """Value of an option, as `--option VALUE` or `--option=VALUE`; None if it is absent."""
    for word, after in pairwise([*argv, ""]):
        if word == option:
            return after
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


def _without(argv: list[str], option: str) -> tuple[list[str], str | None]:
    """The arguments without an option, and its value."""
    value = _value(argv, option)
    left, skip = [], False
    for word in argv:
        if not skip and word != option and not word.startswith(option + "="):
            left.append(word)
        skip = not skip and word == option
    return left, value


def described(name: str) -> tuple[str, str]:
    """A modelled machine for the native program: its synthetic topology, and the text of its matrix file.

    Raises:
        AbsentError: its nodes differ in their number of CPUs, which a synthetic topology cannot express.
    """
    from meshmark.model.engine import ask
    from meshmark.model.machine import find_machine
    from meshmark.place.native import matrix_text

    machine = find_machine(name)
    shape, matrix = ask(machine, [{"kind": "describe"}, {"kind": "matrix"}], threads=1)
    counts = {n["cpus"] for n in shape["nodes"]}
    if len(counts) != 1 or counts == {0}:
        raise AbsentError(f"place: the nodes of {name} have {sorted(counts)} CPUs, allowed is the same number in each")
    nodes = [n["node"] for n in shape["nodes"]]
    text = matrix_text(range(len(nodes)), matrix["latency_s"], "s", f"{machine.label}, closed form", "lower")
    return f"pack:{len(nodes)} [numa] core:{counts.pop()} pu:1", text


def measured_here() -> str:
    """The matrix file of the latencies that the store has of this machine; see `native.measured_matrix`."""
    from meshmark.machine.facts import host_id
    from meshmark.machine.sysfs import from_sysfs
    from meshmark.place.native import measured_matrix
    from meshmark.store.store import Store

    topology, store, machine = from_sysfs(), Store(data_home() / "store"), host_id()
    records = [r for m in ("load_latency", "bandwidth_net") for r in store.query(machine=machine, metric=m)]
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    return measured_matrix(records, node_of, [n.os_index for n in topology.nodes])


# ------------------------------------------------------------------ advise


def advise(
    command: Annotated[list[str] | None, typer.Argument(help="command and its arguments, after --")] = None,
    budget: Annotated[str, typer.Option("--budget", help="time limit [10m]", show_default=False)] = "",
    fom: Annotated[
        str,
        typer.Option(
            "--fom",
            help="figure of merit: the last match of this regular expression in the output, or its first group "
            "[elapsed time]",
            show_default=False,
        ),
    ] = "",
    higher: Annotated[bool, typer.Option("--higher/--lower", help="whether higher figures are better")] = True,
    policies: Annotated[
        str,
        typer.Option(
            "--policies", help="policies of meshmark run --bind; separate policies that contain commas by semicolons"
        ),
    ] = "none,balance,pack,compact,scatter",
    threads: Annotated[
        str,
        typer.Option("--threads", help="values of OMP_NUM_THREADS, for example 1,2,4 [unchanged]", show_default=False),
    ] = "",
    memory: Annotated[
        str,
        typer.Option("--memory", help="values of meshmark run --memory [default,interleave,bind]", show_default=False),
    ] = "",
    pages: Annotated[
        str, typer.Option("--pages", help="values of meshmark run --pages [default,thp]", show_default=False)
    ] = "",
    wait: Annotated[
        str, typer.Option("--wait-policy", help="values of OMP_WAIT_POLICY: default,active,passive")
    ] = "default",
    smt: Annotated[
        str, typer.Option("--smt", help="hardware threads of a core: off,on [both]", show_default=False)
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="seed for the order of runs")] = 1,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="resume the advice in this folder", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for plan, journal and result", show_default=False)
    ] = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line, then the result")] = False,
) -> None:
    """Find the best placement and page size for a program by running it.

    example: meshmark advise --budget 10m --policies balance,pack -- ./a.out
    """
    from meshmark.place.advise import advise as run_advice
    from meshmark.place.advise import make_plan
    from meshmark.place.candidates import WAIT_POLICIES, Plan, Wishes
    from meshmark.place.native import vocabulary
    from meshmark.place.trial import Runner
    from meshmark.store.files import held
    from meshmark.store.store import run_name

    budget_s = grammar.seconds("--budget", budget or "10m", low=0.01)
    if resume is not None and out is not None:
        raise UsageError("--resume: found with --out, allowed is one of them")
    run = run_name("advise")
    folder = resume or out or data_home() / "runs" / run
    plan = Plan.load(folder / "plan.json") if resume is not None else None
    if plan is not None:
        if command and command != plan.command:
            raise UsageError(
                f"COMMAND: found '{shlex.join(command)}', {folder} belongs to '{shlex.join(plan.command)}'"
            )
        command, fom, higher = plan.command, plan.figure, plan.higher
    elif not command:
        raise UsageError("COMMAND: found none, allowed is a command after --", "meshmark advise -- ./a.out")
    else:
        _no_advice_in(folder)
    _check_advice(fom, folder)
    here, node_of = _here()
    runner = Runner(folder, command, fom, higher, node_of)
    started, began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
    with held(folder, resumed=resume is not None):
        if plan is None:
            _no_advice_in(folder)  # another process may have started there in the meantime
            wishes = Wishes(
                _listed("--policies", policies, vocabulary().policies),
                _counts(threads),
                _listed("--memory", memory, vocabulary().memory),
                _listed("--pages", pages, vocabulary().pages),
                _listed("--wait-policy", wait, WAIT_POLICIES),
                tuple(w == "on" for w in _listed("--smt", smt, ("off", "on"))),
            )
            if str(here.inherited):
                say(f"the baseline runs with {here.inherited}, inherited by this process")
            say(f"warm-up: {shlex.join(command)}")
            plan = make_plan(command, wishes, here, runner, budget_s=budget_s, seed=seed, figure=fom, higher=higher)
            plan.run = run
            plan.save(folder / "plan.json")
            left_out = len(plan.left_out)
            say(f"{len(plan.candidates)} candidates, {left_out} skipped, {plan.pilot_s:.3g} s per run: {folder}")
        elif budget:
            plan.budget_s = budget_s
            plan.save(folder / "plan.json")
        kept = f"completed runs are kept; resume with meshmark advise --resume {shlex.quote(str(folder))}"
        with interruptible(kept):
            advice = run_advice(plan, folder, runner, say)
    answer = _keep_advice(advice, plan.run or folder.resolve().name, started, folder, as_json, store, no_store)
    say(f"{answer['runs']} runs, {time.monotonic() - began:.0f} s: {folder}")


def _keep_advice(
    advice: Advice, run: str, started: str, folder: Path, as_json: bool, store: Path | None, no_store: bool
) -> dict[str, Any]:
    """Writes the result to the folder and its records to the store, and prints both."""
    from importlib.metadata import version as installed

    from meshmark.machine.facts import host_id
    from meshmark.place.advice import lines, records, to_json
    from meshmark.store.files import write_file
    from meshmark.store.store import Store

    found = records(advice, host_id(), shlex.join(["advise", *sys.argv[2:]]), started, installed("meshmark"))
    answer = to_json(advice, lines(advice))
    write_file(folder / "answer.json", json.dumps(answer, indent=1).encode() + b"\n")
    if not no_store and found:
        Store(store or data_home() / "store").add(run, "advise", found, (), found[0].machine)
    if as_json:
        for record in found:
            print(json.dumps({"type": "result", "schema": 1, **record.to_json()}))
        print(json.dumps(answer))
    else:
        _print_advice(advice, answer)
    return answer


def _check_advice(fom: str, folder: Path) -> None:
    """Raises UsageError for an invalid regular expression, or a folder that cannot be created."""
    try:
        re.compile(fom)
    except re.error as why:
        raise UsageError(f"--fom: found '{fom}', which is not a regular expression: {why}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise UsageError(f"--out: cannot create {folder}: {why.strerror}", "name a writable folder") from None


def _no_advice_in(folder: Path) -> None:
    if (folder / "plan.json").exists():
        raise UsageError(f"--out: {folder} contains a run of advise", f"meshmark advise --resume {folder}")


def _here() -> tuple[Here, dict[int, int]]:
    from meshmark.machine.sysfs import from_sysfs
    from meshmark.machine.tree import Tree, chosen, format_list
    from meshmark.place.candidates import Here, Inherited, inherited_memory

    topology = from_sysfs()
    allowed = set(topology.allowed_cpus)
    per_core = max((len(allowed & set(c.cpus)) for c in topology.cores), default=1)
    mode = chosen(Tree(Path("/")).text("sys/kernel/mm/transparent_hugepage/enabled"))
    nodes = {n.os_index for n in topology.nodes if n.memory_bytes != 0}
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    inherited = Inherited(
        format_list(sorted(allowed)) if len(allowed) < len(topology.cpus) else "",
        inherited_memory(Tree(Path("/")).text("proc/self/numa_maps") or ""),
    )
    near = {cpu: node for cpu, node in node_of.items() if node in nodes}
    return Here(len(allowed), max(1, per_core), len(nodes), mode or "", inherited, near), node_of


def _listed(option: str, text: str, allowed: Collection[str]) -> tuple[str, ...]:
    """Splits a list; the name of each item, up to `=` or a comma, must be allowed."""
    words = tuple(dict.fromkeys(w.strip() for w in text.split(";" if ";" in text else ",") if w.strip()))
    for word in words:
        if re.split("[=,]", word)[0] not in allowed:
            raise UsageError(f"{option}: found '{word}', allowed are {', '.join(allowed)}")
    return words


def _counts(text: str) -> tuple[int, ...]:
    return tuple(grammar.integers("--threads", text, 1 << 16)) if text else ()


def _print_advice(advice: Advice, answer: dict[str, Any]) -> None:
    from meshmark.place.advice import spread, values_of
    from meshmark.place.candidates import BASELINE

    plan, verdict = advice.plan, advice.verdict
    unit = "" if plan.figure else "s"
    less = not (plan.figure and plan.higher)

    def shown(value: float) -> str:
        return plain(value, unit) if unit else f"{value:.5g}"

    rows = []
    for one in plan.candidates:
        values = values_of(advice, one.name)
        found = spread(values, less) if values else None
        state = (
            "chosen"
            if one.name == verdict.choice
            else "failed"
            if one.name in advice.failed and not values
            else "indistinguishable"
            if one.name in verdict.close
            else "worse"
            if values
            else "not tried"
        )
        rows.append(
            (
                found["mean"] if found else 0.0,
                {
                    "candidate": one.name,
                    "runs": len(values),
                    "mean": shown(found["mean"]) if found else "–",
                    "CoV": f"{100 * found['cov']:.1f} %" if found and len(values) > 1 else "–",
                    "best": shown(found["best"]) if found else "–",
                    "worst": shown(found["worst"]) if found else "–",
                    "": state,
                },
            )
        )
    rows.sort(key=lambda r: (r[1]["runs"] == 0, r[0] if less else -r[0]))
    print_rows([r for _, r in rows], False)
    print(f"\n{_sentence(advice, answer)}")
    if str(plan.inherited):
        print(f"baseline: {plan.inherited}, inherited")
    before, after = answer["before"], answer["after"]
    if before and after:
        print(
            f"spread: CoV {100 * before['cov']:.1f} % baseline, {100 * after['cov']:.1f} % with {verdict.best}; "
            f"best vs. best {100 * answer['best_vs_best']:+.1f} %, worst vs. worst "
            f"{100 * answer['worst_vs_worst']:+.1f} % (+ is better)"
        )
    for title, lines in (
        ("indistinguishable from the choice", [n for n in verdict.close if n not in {verdict.choice, BASELINE}]),
        ("why", answer["why"]),
        ("placement not enforced", answer["not_held"]),
        ("failed", [f"{k}: {v}" for k, v in answer["failed"].items()]),
        ("skipped", [f"{k}: {v}" for k, v in answer["left_out"].items()]),
    ):
        if lines:
            print(f"\n{title}")
            for line in lines:
                print(f"  {line}")
    print("\nequivalent commands")
    for form, line in answer["lines"].items():
        print(f"  {form}\n    {line}")


def _sentence(advice: Advice, answer: dict[str, Any]) -> str:
    """The result in one sentence, with its evidence."""
    verdict, better = advice.verdict, "less time" if not advice.plan.figure else "better figure"
    bounds = answer["gain_interval"]
    gained = "" if answer["gain"] is None else f"{100 * answer['gain']:+.1f} %"
    if bounds:
        gained += f" [{100 * bounds[0]:+.1f}, {100 * bounds[1]:+.1f}] in {verdict.pairs} pairs"
    if verdict.word == "better":
        return f"best: {verdict.choice}: {gained} {better} than the baseline ({verdict.stopped})"
    limit = f"{100 * verdict.effect:.1f} %" if answer["minimum_effect"] is not None else "a measurable size"
    if verdict.word == "no difference":
        seen = f": {verdict.best} {gained}" if verdict.best else ""
        return f"no difference of {limit} or more{seen} ({verdict.stopped}): keep the default placement"
    so_far = f": {verdict.best} {gained} so far" if gained else ""
    return f"not decided ({verdict.stopped}){so_far}: repeat with a larger --budget"


# ------------------------------------------------------------------ check-os


def check_os(
    starts: Annotated[
        int, typer.Option("--starts", min=0, max=10_000, help="starts of the triad, each bound and unbound; 0: none")
    ] = 10,
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="threads of the triad [half of the cores]", show_default=False)
    ] = 0,
    provoke: Annotated[
        bool, typer.Option("--provoke", help="briefly fill the memory of each node, to see where allocations spill to")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="exit with status 1 if a check fails")] = False,
    root: RootOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one check per line")] = False,
) -> None:
    """Check that the operating system enforces placement, and measure what its scheduler costs.

    example: meshmark check-os --starts 20
    """
    from meshmark.doctor.placement import examine

    if starts == 1:
        raise UsageError("--starts: found 1, allowed are 0, or 2 and more: one start has no spread")
    if root is None and threads > len(os.sched_getaffinity(0)):
        raise UsageError(
            f"--threads: found {threads}, allowed is at most {len(os.sched_getaffinity(0))}, the CPUs of this process"
        )
    if root is None and starts:
        say(f"{2 * starts} starts of the triad: up to two minutes")
    checks = examine(root or Path("/"), starts, threads, provoke)
    if as_json:
        for check in checks:
            print(json.dumps(check.to_json()))
    else:
        _print_checks(checks)
    wrong = sum(c.judged == "wrong" for c in checks)
    say(
        f"{wrong} wrong, {sum(c.judged == 'absent' for c in checks)} absent, {sum(c.judged == 'ok' for c in checks)} ok"
    )
    if strict and wrong:
        raise SystemExit(1)


def _print_checks(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name, ratio in (("what", 2), ("found", 4), ("what it means", 4)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for c in checks:
        table.add_row(Text(c.judged, style=_STYLES[c.judged]), Text(c.name), Text(c.found), Text(c.means))
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    for c in (c for c in checks if c.remedy):
        print(f"{c.name}\n    {c.remedy}")  # on one line, so that it can be copied
