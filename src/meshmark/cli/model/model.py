"""`meshmark model`: simulate, draw, compare, sweep, fit and validate modelled machines."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import instruments, machines, workloads
from meshmark.cli.console import counted, interruptible, print_rows, say, say_undrawn
from meshmark.cli.model.model_fit import register as register_fit
from meshmark.cli.model.model_init import register as register_init
from meshmark.cli.options import JsonOption, NoStoreOption, SetOption, StoreOption, in_folder, time_option
from meshmark.errors import UsageError
from meshmark.values.paths import default_store
from meshmark.values.secrets import mask_words
from meshmark.views.terminal.records import print_records

if TYPE_CHECKING:
    from meshmark.model.machine import MachineFile

app = typer.Typer(
    help="Simulate modelled machines.",
    no_args_is_help=True,
)

register_init(app)
MachineArgument = Annotated[
    str, typer.Argument(help="name of a modelled machine, or a machine file", autocompletion=machines)
]


def note_assumptions(*machines: MachineFile) -> None:
    """Print the number of assumed and unknown values of each machine file."""
    from meshmark.model.single import assumptions

    for m in {m.name: m for m in machines}.values():
        if text := assumptions(m):
            say(text)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the modelled machines.

    example: meshmark model list
    """
    from collections import Counter

    from meshmark.model.machine import find_machine, machine_names

    rows = []
    for name in machine_names():
        m = find_machine(name)
        kinds = Counter(o.kind for o in m.origins.values())
        rows.append(
            {
                "machine": name,
                "title": m.title,
                "topology": m.data["topology"]["kind"],
                **{k: kinds.get(k, 0) for k in ("published", "derived", "fitted", "assumed")},
                "unknown": len(m.unknown),
            }
        )
    print_rows(rows, as_json)


@app.command("show")
def show(
    name: MachineArgument,
    settings: SetOption = None,
    origins: Annotated[bool, typer.Option("--origins", help="print the origin of every value")] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="also write a drawing of the mesh", show_default=False, callback=in_folder),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the mesh, performance and values of a machine.

    example: meshmark model show gs1280-16 --svg mesh.svg
    """
    from meshmark.model.machine import find_machine
    from meshmark.model.sweeps.figures import figures
    from meshmark.views.mesh import mesh_svg
    from meshmark.views.terminal.mesh import mesh_text

    machine = find_machine(name, settings)
    key_figures = figures(machine, simulate=False)
    if svg is not None:
        from meshmark.store.files import write_text

        write_text(svg, mesh_svg(machine))
    table = [{"key": k, "origin": o.kind, "of": o.text} for k, o in sorted(machine.origins.items())]
    table += [{"key": k, "origin": "unknown", "of": reason} for k, reason in sorted(machine.unknown.items())]
    if as_json:
        print(
            json.dumps(
                {
                    "machine": machine.name,
                    "title": machine.title,
                    "figures": [f.to_json() for f in key_figures],
                    "data": machine.data,
                    "origins": table,
                }
            )
        )
        return
    print(f"{machine.label}: {machine.title}")
    if machine.note:
        print(machine.note)
    sys.stdout.write("\n" + mesh_text(machine) + "\n")
    print_rows([{"figure": f.name, "value": f.shown(), "by": f.how} for f in key_figures], False)
    if origins:
        print()
        print_rows(
            [
                {"key": o["key"], "value": _value_of(machine, o["key"]), "origin": o["origin"], "of": o["of"]}
                for o in table
            ],
            False,
        )
    if svg is not None:
        say(f"drawing: {svg}")
    note_assumptions(machine)


def _value_of(machine: MachineFile, dotted: str) -> str:
    value: Any = machine.data
    for part in dotted.replace("[", ".").replace("]", "").split("."):
        value = (
            value[int(part)]
            if isinstance(value, list) and part.isdigit()
            else value.get(part)
            if isinstance(value, dict)
            else None
        )
    return "" if value is None else str(value)


@app.command("compare")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="two or more modelled machines; the first is the baseline", autocompletion=machines),
    ],
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare machines. --set applies to all but the first.

    example: meshmark model compare gs1280-8 es80
    """
    from meshmark.model.machine import find_machine
    from meshmark.model.sweeps.figures import comparison

    if len(names) < 2 and not settings:
        raise UsageError("compare: found one machine; allowed: two or more, or one with --set")
    if len(names) == 1:
        names = [names[0], names[0]]
    machines = [find_machine(names[0])] + [find_machine(n, settings) for n in names[1:]]
    with counted("compare") as progress:
        rows = comparison(machines, progress)
    print_rows([row.to_json() if as_json else row.row() for row in rows], as_json)
    if not as_json:
        print(f"in brackets: gain (+) or loss (-) against {machines[0].label}")
        note_assumptions(*machines)


@app.command("measure")
def measure(
    workload: Annotated[
        str,
        typer.Argument(
            help="hot_spot, random_reads, throughput, programs, exchange, all_to_all, halo, swap, trace; an instrument",
            autocompletion=workloads,
        ),
    ],
    name: MachineArgument,
    chains: Annotated[str, typer.Option("--chains", help="outstanding reads per CPU: a list or a range")] = "1..16",
    threads: Annotated[str, typer.Option("--threads", help="number of active CPUs: a list, a range, or all")] = "all",
    distance: Annotated[str, typer.Option("--distance", help="swap: a node's partner is its number XOR this")] = "1",
    block: Annotated[str, typer.Option("--block", help="exchange, all_to_all, halo, swap: message size")] = "64KiB",
    rate: Annotated[str, typer.Option("--rate", help="throughput: bandwidth demand of each program in GB/s")] = "2",
    write_share: Annotated[
        float,
        typer.Option("--write-share", min=0, max=0.8, help="throughput: share of the cache lines that are written"),
    ] = 0.33,
    programs: Annotated[str, typer.Option("--programs", help="programs: CPUS=GB/s[:WRITE_SHARE],…")] = "",
    in_step: Annotated[
        bool,
        typer.Option(
            "--in-step", help="programs, throughput: start all memory phases at the same time, as identical copies do"
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="trace: file with lines of the form CPU ADDRESS r|w", show_default=False),
    ] = None,
    page: Annotated[
        str, typer.Option("--page", help="trace: page size; a page is placed on the node that first touches it")
    ] = "8KiB",
    frames: Annotated[
        Path | None,
        typer.Option(
            "--frames",
            help="write utilization frames to this file (JSON Lines)",
            callback=in_folder,
            show_default=False,
        ),
    ] = None,
    window: Annotated[float, time_option("--window", "length of a frame", 1e-9, 1e-3, "1us")] = 1e-6,
    settings: SetOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
) -> None:
    """Run a workload or instrument on a modelled machine.

    example: meshmark model measure hot_spot gs1280-16 --chains 1..16 --set placement.striping=pair
    """
    from meshmark.model.machine import find_machine
    from meshmark.model.patterns import PatternRequest, run_pattern
    from meshmark.model.single import keep

    machine = find_machine(name, settings)
    request = PatternRequest(
        workload,
        chains,
        threads,
        distance,
        block,
        rate,
        write_share,
        1e9 * window if frames else 0.0,
        trace,
        page,
        programs,
        in_step,
    )
    with counted(f"{workload} on {machine.name}") as progress:
        records, lines = run_pattern(machine, request, "model measure " + " ".join(mask_words(sys.argv[3:])), progress)
    if frames is not None:
        from meshmark.model.frames import recording_lines
        from meshmark.store.files import write_file

        recording = recording_lines(machine, window, lines)
        write_file(frames, "".join(json.dumps(line) + "\n" for line in recording).encode())
        say(f"{len(lines)} frames: {frames}; meshmark replay {frames}")
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    if not as_json:
        print_records(records)
    keep(None if no_store else store or default_store(), records, workload)
    note_assumptions(machine)


@app.command("sweep")
def sweep(
    name: MachineArgument,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary", help="values to sweep: table.key=A,B,C, or table.key=A..B/N for N steps; may be repeated"
        ),
    ],
    instrument: Annotated[
        str, typer.Option("--instrument", help="instrument to run at each point", autocompletion=instruments)
    ] = "loaded",
    options: Annotated[
        list[str] | None,
        typer.Option("--option", help="option of the instrument: name=value; may be repeated", show_default=False),
    ] = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    resume: Annotated[bool, typer.Option("--resume", help="skip points that are in the store already")] = False,
) -> None:
    """Sweep parameters of a modelled machine. Uses all CPUs of this host; points are stored as they complete.

    example: meshmark model sweep gs1280-64 --vary links.bandwidth=1.5..6/4 --instrument gups --option threads=all
    """
    from meshmark.model.machine import find_machine
    from meshmark.model.sweeps.clock_sweep import clock_sweeps
    from meshmark.model.sweeps.sweep import run_sweep

    machine = find_machine(name, settings)
    pairs = dict(o.partition("=")[::2] for o in options or [])
    state = "nothing is stored (--no-store)" if no_store else "completed points are stored; resume with --resume"
    with interruptible(state), counted(f"sweep of {machine.name}") as progress:
        records = run_sweep(
            machine,
            vary,
            instrument,
            pairs,
            None if no_store else store or default_store(),
            resume,
            progress,
            say,
        )
    effects = clock_sweeps(records)
    if as_json:
        for record in records:
            print(json.dumps(record.to_json()))
        for effect in effects:
            print(json.dumps(effect))
    else:
        print_records(records)
        for effect in effects:
            print(f"{', '.join(filter(None, ('clock', *effect['metrics'], effect['others'])))}: {effect['text']}")
    note_assumptions(machine)


@app.command("place-io")
def place_io(
    name: MachineArgument,
    ports: Annotated[int, typer.Option("--ports", min=1, help="number of I/O ports")] = 1,
    minimize: Annotated[
        str, typer.Option("--minimize", help="distance of a node to its nearest port: mean, max")
    ] = "mean",
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose nodes for I/O ports that minimize distances.

    example: meshmark model place-io gs1280-32 --ports 8 --minimize max
    """
    from meshmark.model.machine import find_machine
    from meshmark.model.place_io import place

    machine = find_machine(name, settings)
    choice = place(machine, ports, minimize)
    if as_json:
        print(json.dumps(choice))
        return
    nodes, proof = ", ".join(map(str, choice["nodes"])), "proved optimal" if choice["proved"] else "best found"
    print(f"nodes {nodes}: mean {choice['mean_hops']:.3f} hops, maximum {choice['max_hops']} ({proof})")


@app.command("validate")
def validate_(
    only: Annotated[
        list[str] | None, typer.Argument(help="statements to check, for example A12 G05 [all]", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder to write the page to [./validation]", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    no_page: Annotated[bool, typer.Option("--no-page", help="write no page")] = False,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="also vary every assumed number and show which results follow it (takes minutes)"
        ),
    ] = False,
) -> None:
    """Check the models against the publications.

    Blind predictions are counted separately from statements that set a number of a model or follow from one.

    example: meshmark model validate --out validation
    """
    from importlib.metadata import version

    from meshmark.validation.models.validate import validate
    from meshmark.validation.models_page import ROLES, TITLE_OF, published, scores, verdict, write_page
    from meshmark.validation.models_page import as_json as row_json

    with counted("validate") as progress:
        rows = validate(only or (), progress, sensitivity)
    if as_json:
        for row in rows:
            print(json.dumps(row_json(row)))
    else:
        print_rows(
            [
                {
                    "": r.claim.id,
                    "statement": r.claim.quantity[:52],
                    "published": published(r)[:24],
                    "modelled": r.finding.modelled[:44],
                    "role": r.counts_as,
                    "verdict": verdict(r),
                    **({"follows": str(r.depends[0]) if r.depends else ""} if sensitivity else {}),
                }
                for r in rows
            ],
            False,
        )
    count = scores(rows)
    for role in ROLES:
        total = sum(count[role].values())
        if total:
            score = count[role]
            say(f"{TITLE_OF[role]}: {score['inside']} of {total} in tolerance, {score['not_modelled']} not modelled")
    if not no_page:
        origin = f"meshmark {version('meshmark')}, {time.strftime('%Y-%m-%d')}"
        paths, undrawn = write_page(rows, out or Path("validation"), origin)
        say(f"page: {paths[0]}")
        say_undrawn(undrawn)


register_fit(app)
