"""The native program that places: where it is, what it answers, and the matrix of distances that it reads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.native import find_native
from meshmark.store.record import Metric, Record


def find_place() -> Path:
    """The program of `MESHMARK_PLACE`, of the installed package, or of the build folder of this checkout.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    return find_native("meshmark-place", "MESHMARK_PLACE")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words of the program's options, and the metrics of `meshmark run`."""

    policies: Mapping[str, str]  # name: help
    modifiers: Mapping[str, str]
    memory: tuple[str, ...]
    pages: tuple[str, ...]
    metrics: tuple[Metric, ...]


def vocabulary() -> Vocabulary:
    """As the program describes itself.

    Raises:
        MeshmarkError: it does not.
    """
    return _vocabulary(find_place())


@cache
def _vocabulary(_: Path) -> Vocabulary:
    try:
        said = json.loads(ask(["describe"]))
        return Vocabulary(
            {p["name"]: p["help"] for p in said["policies"]},
            {m["name"]: m["help"] for m in said["modifiers"]},
            tuple(said["memory"]),
            tuple(said["pages"]),
            tuple(map(Metric.from_json, said["metrics"])),
        )
    except (ValueError, KeyError, TypeError) as why:
        raise MeshmarkError(f"meshmark-place does not describe itself: {quoted(why)}", "make setup") from why


def ask(words: Sequence[str], timeout_s: float = 60.0) -> str:
    """What the program prints for one command line.

    Raises:
        UsageError, AbsentError, MeshmarkError: as it refused, with its own line and hint.
    """
    return _said(_call(words, timeout_s))


def _said(done: subprocess.CompletedProcess[str], refused_too: bool = False) -> str:
    if done.returncode == 0 or (refused_too and done.returncode == 1 and done.stdout):
        return done.stdout
    said = done.stderr.strip().splitlines()
    line = next((x for x in said if x.startswith("meshmark: ")), said[-1] if said else f"status {done.returncode}")
    hint = next((x.removeprefix("hint: ") for x in said if x.startswith("hint: ")), "")
    message = line.removeprefix("meshmark: ").removeprefix("error: ").removeprefix("absent: ")
    kind = {UsageError.status: UsageError, AbsentError.status: AbsentError}.get(done.returncode, MeshmarkError)
    raise kind(message, hint)


def _call(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [find_place(), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise MeshmarkError(f"meshmark-place {words[0]} does not answer: {why}") from why


def answer(words: Sequence[str]) -> dict[str, Any]:
    """The object that the program prints with `--json`; a plan with a job that found no place has it `refused`.

    Raises:
        MeshmarkError: as `ask`, or it answered something else.
    """
    try:
        found = json.loads(_said(_call([*words, "--json"], 60.0), refused_too=True))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise MeshmarkError(f"meshmark-place {words[0]}: it answers no JSON object")
    return found


def parts_of(policy: str, count: int, slots: str) -> list[list[int]]:
    """The CPUs of each part that a policy gives a job of `count` slots on this machine, were it alone.

    Raises:
        MeshmarkError: it finds no place; the message is the reason.
    """
    words = ["plan", "--topology", "host", "--policy", policy, "--jobs", str(count), "--slots", slots]
    jobs = answer(words).get("jobs")
    job = jobs[0] if isinstance(jobs, list) and jobs and isinstance(jobs[0], dict) else {}
    if "refused" in job or not isinstance(job.get("parts"), list):
        raise MeshmarkError(str(job.get("refused", "the plan has no parts")))
    return [sorted(map(int, part)) for part in job["parts"]]


def parts_text(parts: Sequence[Sequence[int]]) -> str:
    """Parts as the program's own notation has them: `0,4;1,5`."""
    return ";".join(",".join(map(str, part)) for part in parts)


def matrix_text(nodes: Sequence[int], values: Sequence[Sequence[float]], unit: str, what: str, better: str) -> str:
    """The file of `--matrix`: values[from][to] in `unit`; better: lower or higher."""
    return json.dumps(
        {"nodes": list(nodes), "unit": unit, "what": what, "better": better, "values": [list(r) for r in values]}
    )


def measured_matrix(records: Sequence[Record], node_of: Mapping[int, int], nodes: Sequence[int]) -> str:
    """The matrix file of this machine's own measurements: idle latency where every pair has one, else bandwidth.

    Args:
        records: of this machine. Of several of one pair the one with the largest footprint counts, as small ones stay
            in the caches, and of those the newest.
        node_of: node of each CPU.
        nodes: all nodes with CPUs or memory, ascending.

    Raises:
        AbsentError: some pair was not measured; the message names the first, the hint the command.
    """
    missing = ""
    for metric, what in (("load_latency", "measured latency"), ("bandwidth_net", "measured bandwidth")):
        found: dict[tuple[int, int], Record] = {}
        for record in sorted(records, key=_rank):
            home, cpu = record.conditions.get("memory_node"), _first_cpu(record)
            if record.metric == metric and cpu in node_of and str(home).isdigit() and _alone(record):
                found[node_of[cpu], int(str(home))] = record
        if not found:
            missing = missing or f"node {nodes[0]} to node {nodes[0]}"
            continue
        unit, better = next((r.unit, r.better) for r in found.values())
        values = {pair: record.value for pair, record in found.items()}
        # From a node without CPUs nobody loads: it is as far from the others as they are from it, and near itself.
        for a in set(nodes) - {node_of[c] for c in node_of}:
            values.update({(a, b): v for (b, home), v in tuple(values.items()) if home == a and b != a})
            values[a, a] = (min if better == "lower" else max)(values.values(), default=0.0)
        lacking = [(a, b) for a in nodes for b in nodes if (a, b) not in values]
        if not lacking:
            return matrix_text(nodes, [[values[a, b] for b in nodes] for a in nodes], unit, what, better)
        missing = missing or f"node {lacking[0][0]} to node {lacking[0][1]}"
    first = {node: min(c for c in node_of if node_of[c] == node) for node in set(node_of.values())}
    raise AbsentError(
        f"--matrix measured: nobody has measured the latency from {missing}",
        "; ".join(f"meshmark measure latency --cpus {c} --memory-node all" for _, c in sorted(first.items())),
    )


def _rank(record: Record) -> tuple[float, str]:
    size = record.conditions.get("footprint_bytes")
    return (float(size) if isinstance(size, int | float) else 0.0, str(record.provenance.get("start", "")))


def _alone(record: Record) -> bool:
    return record.conditions.get("processes") in {None, 1} and record.conditions.get("threads") in {None, 1}


def _first_cpu(record: Record) -> int:
    """Of a latency its CPU, of a bandwidth its thread's; -1 where that is not told."""
    said = str(record.conditions.get("cpu", record.conditions.get("cpus", "")))
    return int(said) if said.isdigit() else -1
