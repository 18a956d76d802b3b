"""An application for tests of fleets, and lines of its runs as the runner of a node writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from meshmark.fleet.plan import NodePlan, node_plan
from meshmark.measure.runs.spec import parse_spec

# The script prints a rate and a sum, and reads its number of terms from a file.
SUM = """
[application]
name = "sum"
command = "sh {source}/sum.sh input.txt"
package = "sum-tools"

[figure]
pattern = 'rate: (\\S+) MB/s'
unit = "B/s"
scale = 1e6
better = "higher"

[verify]
pattern = 'sum: (\\S+)'
expected = 5050

[limits]
timeout_s = 20

[dimensions]
size = 100

[files]
"input.txt" = "{size}"
"""
SCRIPT = "n=$(cat $1); echo 'rate: 250 MB/s'; echo sum: $((n * (n + 1) / 2))\n"
SPEC = 'name = "ours"\n[[step]]\napplication = "sum.toml"\nruns = 2\n'


def write_sum(folder: Path, file: str = SUM, script: str = SCRIPT, spec: str = SPEC) -> Path:
    """Write the application, its program and a specification into a folder, and return its path."""
    (folder / "sum.toml").write_text(file, encoding="utf-8")
    (folder / "sum.sh").write_text(script, encoding="utf-8")
    (folder / "ours.toml").write_text(spec, encoding="utf-8")
    return folder / "ours.toml"


def plan_of(folder: Path, file: str = SUM, script: str = SCRIPT, spec: str = SPEC) -> NodePlan:
    """Return the plan of nodes for a specification, which is written by `write_sum`."""
    write_sum(folder, file, script, spec)
    return node_plan(parse_spec(spec, "ours.toml", applications=True), "check", folder=folder)


def run_line(number: int = 1, **more: Any) -> dict[str, Any]:
    """Return the line of a successful run."""
    return {
        "type": "run",
        "number": number,
        "how": "status",
        "code": 0,
        "left": 0,
        "elapsed_s": 0.5,
        "user_s": 0.25,
        "system_s": 0.125,
        "peak_bytes": 1 << 20,
        "minor_faults": 100,
        "major_faults": 0,
        "switches_involuntary": 2,
        "spent_s": 0.5,
        "busy_s": 0.38,
        "stolen_s": 0.0,
        "cpus": 2,
        "out": "rate: 250 MB/s\nsum: 5050\n",
        "err": "",
        "cut": False,
        **more,
    }


def lines_with(
    head: list[dict[str, Any]],
    plan: NodePlan,
    *runs: dict[str, Any],
    status: str = "ok",
    more: Callable[[int], list[dict[str, Any]]] = lambda _step: [],
) -> list[dict[str, Any]]:
    """Return the lines of the file of a node with the steps of a plan.

    Args:
        head: Lines from `made_fleet.lines_of`; only the first, the last and the lines of files are kept.
        runs: Runs of each step.
        status: Status of each step.
        more: Returns further runs of a step, by its number from 0.
    """
    first, *files = [line for line in head if line["type"] in {"node", "file"}]
    lines = [{**first, "plan": plan.id}, *files]
    for number, step in enumerate(plan.steps):
        end = {"type": "step end", "id": step["id"], "status": status, "reason": "" if status == "ok" else status}
        lines.append({"type": "step", "id": step["id"], "argv": step["argv"], "program": True})
        lines += [*runs, *more(number), {**end, "elapsed_s": 1.0}]
    return [*lines, head[-1]]
