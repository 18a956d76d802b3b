"""`meshmark machine`: captures this machine to a file, and shows a live, captured or synthetic machine."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.completion import compared
from meshmark.cli.console import say, say_broken
from meshmark.cli.options import JsonOption, StoreToReadOption, share
from meshmark.values.units import plain

if TYPE_CHECKING:
    from meshmark.machine.capture import OpenedMachine

app = typer.Typer(help="Capture a machine to a file, or show one.", no_args_is_help=True)


@app.command("capture")
def capture_(
    file: Annotated[Path, typer.Argument(help="archive to write: .tar.gz, .tar.xz or .tar.zst")],
) -> None:
    """Capture this machine to a file. It contains topology, settings and facts, but no serial numbers.

    example: meshmark machine capture n042.tar.xz
    """
    from meshmark.machine.capture import capture

    count = capture(file)
    print(file)
    print(f"{count} files, {file.stat().st_size} B; meshmark machine show {file}", file=sys.stderr)


@app.command("show")
def show(
    what: Annotated[
        str,
        typer.Argument(
            help="host, a capture, an hwloc XML file, a synthetic topology such as 'pack:2 core:4 pu:2', or published "
            "numbers (paper:NAME)"
        ),
    ] = "host",
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON: one object, or one a line for published numbers")
    ] = False,
) -> None:
    """Show the topology and facts of a machine, or what a publication states about it.

    example: meshmark machine show 'pack:4 core:64 pu:1' --json
    """
    from meshmark.machine.capture import open_machine
    from meshmark.machine.published.papers import PAPER

    if what.startswith(PAPER):
        from meshmark.cli.published import show_published

        show_published(what, as_json)
        return
    machine = open_machine(what)
    if as_json:
        facts = machine.facts or {"schema": 1}
        print(
            json.dumps({"what": machine.what, "label": machine.label, **facts, "topology": machine.topology.to_dict()})
        )
    else:
        sys.stdout.writelines(line + "\n" for line in describe(machine))


@app.command("declared")
def declared(
    side: Annotated[
        str,
        typer.Argument(
            metavar="SIDE",
            help="whose results: host, a machine of the store, a run, a run folder or a file of results",
            autocompletion=compared,
        ),
    ] = "host",
    topology: Annotated[
        str,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="capture or hwloc XML of the machine [this host, if the results are its own]",
            show_default=False,
        ),
    ] = "",
    margin: Annotated[
        str, typer.Option("--margin", help="smallest difference that matters", metavar="PERCENT")
    ] = "10%",
    flagged: Annotated[
        bool, typer.Option("--flagged", help="judge flagged results, too, where there are no others")
    ] = False,
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what firmware and kernel declare about caches and memory, beside what was measured.

    example: meshmark machine declared --margin 5%
    """
    from dataclasses import asdict

    from meshmark.compare.declared import absent, declarations
    from meshmark.compare.exports.base import ExportMaterial, machine_of
    from meshmark.compare.sides import Sides
    from meshmark.views.terminal.declared import print_declared

    sides = Sides.here(store, "declared")
    results = sides.find(side)
    say_broken(sides.store)
    material = ExportMaterial(side=results, opened=machine_of(results, topology, sides.host))
    rows = declarations(material, share("--margin", margin), flagged=flagged)
    if as_json:
        for row in rows:
            print(json.dumps({**asdict(row), "verdict": row.word, "machine": results.machine}))
    else:
        print_declared(rows)
    for line in absent(material):
        say(f"absent: {line}")
    commands = Counter(row.command for row in rows if row.value is None)
    for command, count in commands.items():
        say(f"note: {count} of {len(rows)} were not measured; measure with: {command}")


def describe(machine: OpenedMachine) -> Iterable[str]:
    """Yield the machine as lines of text, with scaled units."""
    from meshmark.machine.tree import format_list

    topology, facts = machine.topology, machine.facts
    yield f"{machine.what} ({machine.label}): {topology.summary()}"
    for node in topology.nodes:
        nearest = format_list(node.near_cpus) if node.near_cpus else "unknown"
        cpus_text = f"CPUs {format_list(node.cpus)}" if node.cpus else f"no CPUs, nearest {nearest}"
        yield f"  node {node.os_index:<4} {_size(node.memory_bytes):>10}  {cpus_text}"
    if topology.distances and len(topology.nodes) > 1:
        yield "  distances  " + " ".join(f"{n.os_index:>4}" for n in topology.nodes)
        for node, row in zip(topology.nodes, topology.distances, strict=True):
            yield f"  {node.os_index:>9}  " + " ".join(f"{d:>4}" for d in row)
    for kind in topology.core_kinds:
        properties = [f"CPUs {format_list(kind.cpus)}"]
        properties += [f"capacity {kind.capacity} of 1024"] if kind.capacity else []
        properties += [f"up to {kind.max_hz / 1e9:.4g} GHz"] if kind.max_hz else []
        properties += [text for text in (kind.pmu, kind.model) if text]
        yield f"  cores       {kind.name}: {', '.join(properties)}"
    counts: dict[tuple[int, str, int | None, int], int] = {}
    for c in topology.caches:
        key = c.level, c.kind, c.size_bytes, len(c.cpus)
        counts[key] = counts.get(key, 0) + 1
    for (level, cache_kind, size, sharers), count in counts.items():
        cpus = "one CPU" if sharers == 1 else f"{sharers} CPUs"
        yield f"  L{level} {cache_kind:<12} {_size(size):>10}  x {count}, each of {cpus} (reported)"
    if list(topology.allowed_cpus) != [c.os_index for c in topology.cpus]:
        yield f"  allowed     CPUs {format_list(topology.allowed_cpus)}"
    if topology.offline_cpus:
        yield f"  offline     CPUs {format_list(topology.offline_cpus)}"
    if topology.unlisted_cpus:
        yield f"  not listed  CPUs {format_list(topology.unlisted_cpus)} (offline or not allowed)"
    for doubt in topology.doubts:
        yield f"  inconsistent: {doubt}"
    for part, value in facts.items():
        if part in {"schema", "topology", "caches", "mitigations"}:
            continue
        if isinstance(value, Mapping) and set(value) != {"absent"}:
            yield f"{part}:"
            width = max(map(len, value), default=0)
            yield from (f"  {k:<{width}}  {_shown(k, v)}" for k, v in value.items())
        else:
            yield f"{part}: {_shown(part, value)}"


def _size(count: Any) -> str:
    return "unknown" if not isinstance(count, int) else plain(count, "B")


def _shown(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        if set(value) == {"absent"}:
            return f"– ({value['absent']})"
        fields = {k: v for k, v in value.items() if k != "nodes" and v != "" and not isinstance(v, Mapping)}
        return ", ".join(f"{k.removesuffix('_bytes')} {_shown(k, v)}" for k, v in fields.items())
    if isinstance(value, list):
        from meshmark.machine.tree import format_list

        if key.endswith("cpus") and all(isinstance(v, int) for v in value):
            return format_list(value)
        texts = [_shown(key, v) for v in value]
        return ("; " if any(" " in text for text in texts) else " ").join(texts) or "none"
    if key.endswith("_bytes_per_s"):
        return f"{value / 1e9:.4g} GB/s"
    if key.endswith("_t_per_s"):
        return f"{value / 1e6:.6g} MT/s"
    if key.endswith("_hz"):
        return f"{value / 1e9:.4g} GHz"
    return _size(value) if key.endswith("_bytes") else str(value)
