"""Runs the native placer, `meshmark-place`, and writes the distance matrices that it reads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.native import find_native, remedy, start_error
from meshmark.store.record import Metric, Record


def find_place() -> Path:
    """Return the path of `meshmark-place`: from `MESHMARK_PLACE`, the installed package or the checkout's build folder.

    Raises:
        MeshmarkError: The program does not exist or is not executable.
    """
    return find_native("meshmark-place", "MESHMARK_PLACE")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Values of the placer's options, and the metrics of `meshmark run`."""

    policies: Mapping[str, str]  # help text by name
    modifiers: Mapping[str, str]
    memory: tuple[str, ...]
    pages: tuple[str, ...]
    metrics: tuple[Metric, ...]


def vocabulary() -> Vocabulary:
    """Return the vocabulary that `meshmark-place describe` prints.

    Raises:
        MeshmarkError: The program does not print a valid description.
    """
    return _vocabulary(find_place())


@cache
def _vocabulary(_: Path) -> Vocabulary:
    try:
        description = json.loads(ask(["describe"]))
        return Vocabulary(
            {p["name"]: p["help"] for p in description["policies"]},
            {m["name"]: m["help"] for m in description["modifiers"]},
            tuple(description["memory"]),
            tuple(description["pages"]),
            tuple(map(Metric.from_json, description["metrics"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MeshmarkError(f"meshmark-place describe failed: {quoted(error)}", remedy()) from error


def ask(argv: Sequence[str], timeout_s: float = 60.0) -> str:
    """Run the placer and return its standard output.

    Raises:
        UsageError, AbsentError, MeshmarkError: The placer failed. It printed the message and the hint of the error.
    """
    return _output(_run(argv, timeout_s))


def _output(completed: subprocess.CompletedProcess[str], allow_refused: bool = False) -> str:
    if completed.returncode == 0 or (allow_refused and completed.returncode == 1 and completed.stdout):
        return completed.stdout
    lines = completed.stderr.strip().splitlines()
    line = next(
        (x for x in lines if x.startswith("meshmark: ")), lines[-1] if lines else f"status {completed.returncode}"
    )
    hint = next((x.removeprefix("hint: ") for x in lines if x.startswith("hint: ")), "")
    message = line.removeprefix("meshmark: ").removeprefix("error: ").removeprefix("absent: ")
    kind = {UsageError.status: UsageError, AbsentError.status: AbsentError}.get(completed.returncode, MeshmarkError)
    raise kind(message, hint)


def _run(argv: Sequence[str], timeout_s: float | None) -> subprocess.CompletedProcess[str]:
    program = find_place()
    try:
        return process.run_text([program, *argv], timeout_s=timeout_s)
    except OSError as error:
        raise start_error(program, error) from error
    except subprocess.TimeoutExpired as error:
        raise MeshmarkError(f"meshmark-place {argv[0]} failed: {error}") from error


def answer(argv: Sequence[str], timeout_s: float | None = 60.0) -> dict[str, Any]:
    """Run the placer with `--json` and return the object that it prints.

    A job that a plan could not place has the key `refused`. To move the memory of a large program takes minutes, and
    needs a `timeout_s` of None.

    Raises:
        UsageError, AbsentError, MeshmarkError: See `ask`.
        MeshmarkError: The output is not a JSON object.
    """
    try:
        response = json.loads(_output(_run([*argv, "--json"], timeout_s), allow_refused=True))
    except ValueError:
        response = None
    if not isinstance(response, dict):
        raise MeshmarkError(f"meshmark-place {argv[0]}: the output is not a JSON object")
    return response


def parts_of(policy: str, count: int, slots: str) -> list[list[int]]:
    """Return the CPUs of each part that a policy assigns to a job of `count` slots on this machine when it is idle.

    Raises:
        MeshmarkError: The policy finds no placement; the message is the reason.
    """
    argv = ["plan", "--topology", "host", "--policy", policy, "--jobs", str(count), "--slots", slots]
    jobs = answer(argv).get("jobs")
    job = jobs[0] if isinstance(jobs, list) and jobs and isinstance(jobs[0], dict) else {}
    if "refused" in job or not isinstance(job.get("parts"), list):
        raise MeshmarkError(str(job.get("refused", "the plan has no parts")))
    return [sorted(map(int, part)) for part in job["parts"]]


def parts_text(parts: Sequence[Sequence[int]]) -> str:
    """Return parts in the placer's notation, for example `0,4;1,5`."""
    return ";".join(",".join(map(str, part)) for part in parts)


def matrix_text(
    nodes: Sequence[int],
    values: Sequence[Sequence[float]],
    unit: str,
    what: str,
    better: str,
    hops: Sequence[Sequence[int]] = (),
) -> str:
    """Return the content of a file for `--matrix`.

    Args:
        nodes: Numbers of the nodes.
        values: Values in `unit`, as `values[from][to]`.
        unit: Unit of the values.
        what: What the values are.
        better: `lower` or `higher`.
        hops: Links on the shortest path, as `hops[from][to]`; () if the graph is unknown.
    """
    content = {"nodes": list(nodes), "unit": unit, "what": what, "better": better, "values": [list(r) for r in values]}
    return json.dumps(content | ({"hops": [list(r) for r in hops]} if hops else {}))


def measured_matrix(records: Sequence[Record], node_of: Mapping[int, int], nodes: Sequence[int]) -> str:
    """Return the content of a matrix file from measurements on this machine.

    The values are idle latencies if these cover every pair of nodes, otherwise bandwidths.

    Args:
        records: Records of this machine. For each pair, the newest record with the largest footprint counts, because
            small footprints fit in the caches.
        node_of: Node of each CPU.
        nodes: All nodes with CPUs or memory, ascending.

    Raises:
        AbsentError: A pair was not measured. The message names the first such pair, the hint the command.
    """
    missing = ""
    for metric, description in (("load_latency", "measured latency"), ("bandwidth_net", "measured bandwidth")):
        record_by_pair = records_by_pair(records, metric, node_of)
        if not record_by_pair:
            missing = missing or f"node {nodes[0]} to node {nodes[0]}"
            continue
        unit, better = next((r.unit, r.better) for r in record_by_pair.values())
        values = {pair: record.value for pair, record in record_by_pair.items()}
        # Nothing can be measured from a node without CPUs. Its distances are assumed to be symmetric, and its distance
        # to itself is assumed to be as good as the best measured value.
        for a in set(nodes) - {node_of[c] for c in node_of}:
            values.update({(a, b): v for (b, home), v in tuple(values.items()) if home == a and b != a})
            values[a, a] = (min if better == "lower" else max)(values.values(), default=0.0)
        missing_pairs = [(a, b) for a in nodes for b in nodes if (a, b) not in values]
        if not missing_pairs:
            return matrix_text(nodes, [[values[a, b] for b in nodes] for a in nodes], unit, description, better)
        missing = missing or f"node {missing_pairs[0][0]} to node {missing_pairs[0][1]}"
    first = {node: min(c for c in node_of if node_of[c] == node) for node in set(node_of.values())}
    raise AbsentError(
        f"--matrix measured: found no measured latency from {missing}",
        "; ".join(f"meshmark measure latency --cpus {c} --memory-node all" for _, c in sorted(first.items())),
    )


def records_by_pair(
    records: Sequence[Record], metric: str, node_of: Mapping[int, int]
) -> dict[tuple[int, int], Record]:
    """Return the record of a metric, measured by one thread, for each pair of a CPU's node and a memory node.

    Args:
        records: Records of one machine. For each pair, the newest record with the largest footprint counts.
        metric: Name of the metric.
        node_of: Node of each CPU.
    """
    record_by_pair: dict[tuple[int, int], Record] = {}
    for record in sorted(records, key=_rank):
        home, cpu = record.conditions.get("memory_node"), _first_cpu(record)
        if record.metric == metric and cpu in node_of and str(home).isdigit() and _single_threaded(record):
            record_by_pair[node_of[cpu], int(str(home))] = record
    return record_by_pair


def _rank(record: Record) -> tuple[float, str]:
    size = record.conditions.get("footprint_bytes")
    return (float(size) if isinstance(size, int | float) else 0.0, str(record.provenance.get("start", "")))


def _single_threaded(record: Record) -> bool:
    return record.conditions.get("processes") in {None, 1} and record.conditions.get("threads") in {None, 1}


def _first_cpu(record: Record) -> int:
    """Return the CPU of a latency record or of a single-threaded bandwidth record; -1 if unknown."""
    cpu = str(record.conditions.get("cpu", record.conditions.get("cpus", "")))
    return int(cpu) if cpu.isdigit() else -1
