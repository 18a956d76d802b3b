"""Runs candidates and reads their cost, exit status and observed placement."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.machine.tree import parse_list
from meshmark.place import native
from meshmark.place.candidates import BUSY, Candidate
from meshmark.place.other_work import OtherWork, OtherWorkShares
from meshmark.store.files import make_folder, open_private, read_tail, write_file
from meshmark.store.record import Record, RecordError
from meshmark.values.expressions import expression
from meshmark.values.numbers import decimal
from meshmark.values.secrets import reveal_words

BUDGET: Final = "the budget ended"  # reason why no more runs followed, or why a run was ended
MAX_SLOWDOWN: Final = 5.0  # a candidate that takes this many times as long as the baseline is stopped
MIN_LIMIT_S = 10.0
_SPACE_BYTES: Final = 1 << 16  # more than a run writes
_TAIL_BYTES: Final = 16 << 20  # part of a program's output that is read; figures of merit are near its end


@dataclass(slots=True)
class CandidateRun:
    """One run. A lower `cost` is better. If the run failed, `cost` is None and `reason` states why."""

    candidate: str
    cost: float | None
    elapsed_s: float
    reason: str = ""
    figure: float | None = None
    times: dict[str, float] = field(default_factory=dict)  # s, by metric
    flags: list[str] = field(default_factory=list)
    evidence: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def shares(self) -> OtherWorkShares | None:
        """Return the shares of the CPU time of this machine that other work took."""
        return OtherWorkShares.of_counts(self.evidence, self.elapsed_s)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> CandidateRun:
        """Return the run in a line of the journal.

        Raises:
            TypeError: The line has unknown fields, or lacks some.
        """
        return CandidateRun(**{k: v for k, v in line.items() if k != "type"})


@dataclass(frozen=True, slots=True)
class RunSurroundings:
    """Surroundings of the runs of a command.

    Attributes:
        folder: Folder in which the command runs; by default the folder of this process.
        environment: Variables in addition to the environment of this process.
        begin: Function that is called before each run.
        added: Function that is called after each run and returns what the run wrote elsewhere than to its output.
        wrong: Function that returns why an output is wrong; "" if it is right.
    """

    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    begin: Callable[[], None] = lambda: None
    added: Callable[[], str] = lambda: ""
    wrong: Callable[[str], str] = lambda _: ""


class CandidateRunner:
    """Runs the command with the placement of a candidate, one run at a time.

    Args:
        folder: Folder of the advice.
        command: The command and its arguments.
        figure: Regular expression of the figure of merit; "" for the elapsed time.
        higher: True if higher figures are better.
        node_of: NUMA node of each CPU, which determines the remote pages of unbound runs.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        figure: str,
        higher: bool,
        node_of: Mapping[int, int],
        around: RunSurroundings = RunSurroundings(),
    ) -> None:
        self.runs, self.command, self.node_of = folder / "runs", list(command), node_of
        self.figure = expression("--fom", figure) if figure else None
        self.higher = higher
        self.around = around
        self.program = native.find_place()

    def run(self, candidate: Candidate, number: int, limit_s: float) -> CandidateRun:
        """Run a candidate once. Failures of the command are part of the outcome, not exceptions.

        Raises:
            MeshmarkError: The disk of the folder is full.
        """
        make_folder(self.runs)
        record, out, err = (self.runs / f"{number:04}.{end}" for end in ("jsonl", "out", "err"))
        record.unlink(missing_ok=True)
        options = candidate.options()
        for option in ("--memory", "--pages"):  # overrides the site's defaults
            options += [option, "default"] if option not in options else []
        argv = [
            str(self.program),
            "run",
            *options,
            "--verify",
            "--record",
            str(record),
            "--",
            *reveal_words(self.command),
        ]
        self.around.begin()
        other_work = OtherWork()
        with open_private(out, "wb") as output, open_private(err, "wb") as errors:
            exit_report = process.run_in_session(
                argv,
                process.TERMINATED_WITH_PARENT,
                output,
                errors,
                limit_s,
                cwd=self.around.folder,
                env={**os.environ, **self.around.environment, **candidate.environment()},
            )
        outcome = CandidateRun(candidate.name, None, exit_report.elapsed_s)
        if (status := exit_report.status) is None:
            outcome.reason = f"took longer than {limit_s:.3g} s"
            return outcome
        shares = other_work.shares(exit_report.user_s + exit_report.system_s)
        # The placer, not the command, writes the last lines of standard error: its verdict on the placement.
        text = tail(out) + "\n" + re.split(r"^placement (?:held|did not hold): ", tail(err), flags=re.M)[0]
        text += self.around.added()
        if status != 0:
            last = last_line(text.splitlines())
            exit_text = process.status_text(status)
            outcome.reason = f"ended with {exit_text}: {printable(last.removeprefix('meshmark: error: '))}"
        else:
            self._read(record, candidate, outcome)
            outcome.flags = sorted({*outcome.flags, *shares.flags})
            outcome.evidence |= shares.counts
            outcome.reason = outcome.reason or self.around.wrong(text)
        if outcome.reason:
            check_space(self.runs)
            return outcome
        outcome.elapsed_s = outcome.times["elapsed"]
        outcome.cost = outcome.elapsed_s
        if self.figure is not None:
            outcome.cost, outcome.reason = None, ""
            matches = list(self.figure.finditer(text))
            value = positive(matches[-1].group(matches[-1].re.groups and 1)) if matches else None
            if value is None:
                excerpt = f"'{printable(matches[-1].group())}'" if matches else "no match"
                outcome.reason = f"--fom: found {excerpt} in the output, a positive number is required"
                return outcome
            outcome.figure, outcome.cost = value, 1 / value if self.higher else value
        out.unlink()
        err.unlink()
        return outcome

    def _read(self, path: Path, candidate: Candidate, outcome: CandidateRun) -> None:
        try:
            lines = [json.loads(x) for x in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        except (OSError, ValueError) as error:
            outcome.reason = f"the record cannot be read: {error}"
            return
        for line in lines:
            if not isinstance(line, dict):
                continue
            if line.get("type") == "result":
                try:
                    record = Record.from_json(line)
                except RecordError as error:
                    outcome.reason = f"the record is invalid: {error}"
                    return
                outcome.times[record.metric] = record.value
                outcome.flags = sorted({*outcome.flags, *record.flags})
            elif line.get("type") == "note" and line.get("kind") == "placement":
                outcome.evidence, outcome.findings = evidence(line, candidate, self.node_of)
        if outcome.times.get("elapsed", 0.0) <= 0:
            outcome.reason = "the record has no elapsed time"


def check_space(folder: Path) -> None:
    """Raise MeshmarkError if the disk of a folder is full, which must not count as a failure of the command."""
    probe = folder / "space"
    write_file(probe, bytes(_SPACE_BYTES))
    probe.unlink()


def tail(path: Path) -> str:
    """Return the last 16 MiB of a program's output."""
    with path.open("rb") as file:
        return read_tail(file.fileno(), _TAIL_BYTES)


def printable(text: str) -> str:
    """Return at most 200 characters of a text, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def last_line(lines: Sequence[str]) -> str:
    """Return the last line that is not blank, stripped; "no output" if all are blank."""
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def positive(text: str | None) -> float | None:
    """Return the positive finite number that a text states; None if it is not such a number."""
    value = decimal(text or "")
    return value if value is not None and value > 0 else None


def evidence(
    note: Mapping[str, Any], candidate: Candidate, node_of: Mapping[int, int]
) -> tuple[dict[str, float], list[str]]:
    """Return the evidence and the findings in the placement note of `meshmark run --verify --record`.

    Returns:
        The evidence by name, and the findings. The evidence contains, if known, the number of busy `threads`,
        `migrations`, `waiting_share` of the threads' time, `remote_share` and `huge_share` of the pages,
        `minor_faults` and `major_faults`.
    """
    report, conditions = (v if isinstance(v := note.get(k), dict) else {} for k in ("report", "conditions"))
    raw = report.get("threads")
    threads = [t for t in raw if isinstance(t, dict)] if isinstance(raw, list) else []
    values: dict[str, float] = {}
    seconds = _number(report.get("seconds"))
    cpu_times = [_number(t.get("user_s")) + _number(t.get("system_s")) for t in threads]
    waiting_s = math.fsum(_number(t.get("waiting_s")) for t in threads)
    if seconds > 0 and threads:
        values["threads"] = max(1, sum(w >= BUSY * seconds for w in cpu_times))
    if sum(cpu_times) + waiting_s > 0:
        values["waiting_share"] = waiting_s / (sum(cpu_times) + waiting_s)
    if report.get("migrations") is not None:
        values["migrations"] = _number(report["migrations"])
    pages_report = report.get("pages")
    pages = (
        {int(n): _number(b) for n, b in pages_report.items() if str(n).isdigit()}
        if isinstance(pages_report, dict)
        else {}
    )
    total = math.fsum(pages.values())
    if total > 0:
        observed_cpus = {c for t in threads for c in parse_list(str(t.get("ran_on", "")).replace("none", ""))}
        cpus = {c for part in candidate.parts for c in part} or observed_cpus
        near_nodes = {node_of[c] for c in cpus if c in node_of}
        if near_nodes:
            values["remote_share"] = math.fsum(b for n, b in pages.items() if n not in near_nodes) / total
        values["huge_share"] = min(1.0, _number(report.get("huge_bytes")) / total)
    for key in ("minor_faults", "major_faults"):
        if key in conditions:
            values[key] = _number(conditions[key])
    findings = report.get("findings")
    return values, [printable(str(f)) for f in findings] if isinstance(findings, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
