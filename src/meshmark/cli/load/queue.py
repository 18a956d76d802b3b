"""`meshmark load queue`: what a placement policy gains for a whole mix of jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import interruptible, say
from meshmark.cli.options import JsonOption, time_option
from meshmark.errors import UsageError, quoted

if TYPE_CHECKING:
    from meshmark.load.queue.jobs import JobMix
    from meshmark.load.queue.mix import MixFile, QueueRules
    from meshmark.load.queue.session import MeasuredRepetition
    from meshmark.load.queue.simulation import PolicyRun, QueueMachine
    from meshmark.load.queue.summary import Agreement, PolicyGain, PolicySummary

_SOURCES: Final = "MIX, --swf, --sacct, --pbs, --lsf"


def _accounting(option: str, what: str) -> Any:
    return typer.Option(option, help=f"take the jobs from {what}; may be compressed", show_default=False)


SwfOption = Annotated[Path | None, _accounting("--swf", "a file in the Standard Workload Format")]
SacctOption = Annotated[Path | None, _accounting("--sacct", "the output of sacct --parsable2")]
PbsOption = Annotated[Path | None, _accounting("--pbs", "an accounting file of PBS or TORQUE")]
LsfOption = Annotated[Path | None, _accounting("--lsf", "LSF's lsb.acct")]


PoliciesOption = Annotated[
    str,
    typer.Option(
        "--policies", help="policies to compare, separated by spaces [none balance pack compact]", show_default=False
    ),
]
ModelOption = Annotated[
    str, typer.Option("--on", help="simulate this modelled machine [this host]", show_default=False)
]
TopologyOption = Annotated[
    str, typer.Option("--topology", help="simulate this synthetic machine, as in meshmark place", show_default=False)
]
SlotsOption = Annotated[
    str, typer.Option("--slots", help="unit of allocation: procs, cores, threads [cores]", show_default=False)
]
DisciplineOption = Annotated[
    str,
    typer.Option(
        "--discipline",
        help="fcfs, or first-fit: a waiting job may overtake others that do not fit [fcfs]",
        show_default=False,
    ),
]
MaxSlotsOption = Annotated[
    str,
    typer.Option(
        "--max-slots", help="slots of all running jobs together; 0: no limit [all of the machine]", show_default=False
    ),
]
BandwidthOption = Annotated[
    float, typer.Option("--node-bandwidth", min=0, help="memory bandwidth of each node in GB/s; 0: no limit")
]
YieldOption = Annotated[
    float, typer.Option("--core-yield", min=1, max=8, help="work of a core with several busy threads, relative to one")
]
ScaleOption = Annotated[float, typer.Option("--scale", min=1e-6, max=1e6, help="multiply all times by this factor")]
RepetitionsOption = Annotated[
    int, typer.Option("--repetitions", min=1, max=1000, help="draw random times of submission this many times")
]
RunOption = Annotated[bool, typer.Option("--run", help="really run the jobs on this machine, in --out DIR")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="continue interrupted runs in --out DIR")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="folder for the chart and for queue.json of the first repetition", show_default=False),
]


def queue(
    mix: Annotated[Path | None, typer.Argument(help="mix file (TOML)", show_default=False)] = None,
    swf: SwfOption = None,
    sacct: SacctOption = None,
    pbs: PbsOption = None,
    lsf: LsfOption = None,
    policies: PoliciesOption = "",
    on: ModelOption = "",
    topology: TopologyOption = "",
    slots: SlotsOption = "",
    discipline: DisciplineOption = "",
    max_slots: MaxSlotsOption = "",
    node_bandwidth: BandwidthOption = 0.0,
    core_yield: YieldOption = 1.0,
    begin: Annotated[float, time_option("--from", "leave out jobs that were submitted earlier [0s]")] = 0.0,
    end: Annotated[float, time_option("--to", "leave out jobs that were submitted later [never]")] = float("inf"),
    scale: ScaleOption = 1.0,
    repetitions: RepetitionsOption = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed of the first repetition")] = 0,
    run_here: RunOption = False,
    resume: ResumeOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare placement policies for a mix of jobs: total time, waiting and slowdown, simulated or in real runs.

    The jobs come from a mix file, or from the accounting file of a batch system. They wait in one queue for one
    machine. The simulation models waiting, sharing of CPUs and, if bandwidths are known, saturated memory. With --run,
    the jobs really run on this machine, and the simulation is compared with them.

    example: meshmark load queue --swf log.swf.gz --to 24h --topology 'pack:4 [numa] core:16 pu:1'
    """
    from meshmark.load.queue.mix import DEFAULT_POLICIES, DISCIPLINES, SLOTS, QueueRules, read_mix
    from meshmark.load.queue.simulation import simulate

    accounting = {"--swf": swf, "--sacct": sacct, "--pbs": pbs, "--lsf": lsf}
    named = {option: path for option, path in accounting.items() if path is not None}
    if len(named) + (mix is not None) != 1:
        sources = " and ".join([*(["MIX"] if mix else []), *named]) or "none"
        raise UsageError(f"{_SOURCES}: found {sources}; allowed: one of them", "meshmark load queue mix.toml")
    file = read_mix(mix) if mix is not None else None
    rules = file.rules if file is not None else QueueRules(policies=DEFAULT_POLICIES)
    rules = replace(
        rules,
        policies=tuple(policies.split()) or rules.policies,
        slots=_choice("--slots", slots, SLOTS) or rules.slots,
        discipline=_choice("--discipline", discipline, DISCIPLINES) or rules.discipline,
        max_slots=_limit(max_slots) if max_slots else rules.max_slots,
    )
    if repetitions > 1 and not run_here and (file is None or not file.is_random):
        raise UsageError(
            f"--repetitions: found {repetitions} for a mix without random times, allowed with every_s or --run"
        )
    if run_here and (on or topology or out is None):
        raise UsageError(
            f"--run: found {'without --out' if out is None else 'with another machine'}; allowed: --out DIR"
        )
    if resume and not run_here:
        raise UsageError("--resume: found without --run")
    machine = replace(_machine(on, topology), node_bytes_per_s=1e9 * node_bandwidth, core_yield=core_yield)
    mixes = [jobs.within(begin, end).scaled(scale) for jobs in _mixes(file, named, seed, repetitions)]
    measured = None
    if run_here and out is not None:
        measured = _measured(out, rules, mixes, seed, resume)
        mixes = [repetition.mix for repetition in measured]
    simulated = [[simulate(jobs, rules, policy, machine) for policy in rules.policies] for jobs in mixes]
    _report(mixes, measured, simulated, rules, machine, seed, out, as_json)


def _measured(
    out: Path, rules: QueueRules, mixes: Sequence[JobMix], seed: int, resume: bool
) -> list[MeasuredRepetition]:
    """Run the mixes on this machine."""
    from meshmark.load.queue.session import QueueSession

    with interruptible(f"what has ended is kept in {out}; continue with --resume"):
        return QueueSession(out, rules, mixes, seed, say).run(resume)


def _report(
    mixes: Sequence[JobMix],
    measured: Sequence[MeasuredRepetition] | None,
    simulated: Sequence[Sequence[PolicyRun]],
    rules: QueueRules,
    machine: QueueMachine,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Print what happened under each policy, and write it to the folder."""
    from meshmark.load.queue.summary import agreement, gains, summarise

    def summaries(repetitions: Sequence[Sequence[PolicyRun]]) -> list[list[PolicySummary]]:
        return [[summarise(m, run) for run in runs] for m, runs in zip(mixes, repetitions, strict=True)]

    of_simulation = summaries(simulated)
    repetitions = simulated if measured is None else [[live.run for live in m.runs] for m in measured]
    rows = of_simulation if measured is None else summaries(repetitions)
    policy_gains = gains(rows)
    content: dict[str, Any] = {
        "mix": mixes[0].name,
        "machine": machine.name,
        "jobs": len(mixes[0].jobs),
        "left_out": dict(mixes[0].left_out),
        "seed": seed,
        "repetitions": [[s.to_json() for s in row] for row in rows],
        "gains": [g.to_json() for g in policy_gains],
    }
    agreed = None if measured is None else agreement(rows, of_simulation)
    if measured is not None and agreed is not None:
        content["agreement"] = agreed.to_json()
        content["simulated"] = [[s.to_json() for s in row] for row in of_simulation]
        content["failed"] = [{live.run.policy: live.failed for live in m.runs if live.failed} for m in measured]
    if out is not None:
        _write(out, mixes[0], repetitions[0], rows[0], content)
    if as_json:
        print(json.dumps(content))
        return
    _print(mixes[0], repetitions[0], rows, policy_gains, rules, machine)
    if measured is not None and agreed is not None:
        _print_agreement(measured, rows, of_simulation, agreed)
    _print_limits(rules, machine)


def _print_agreement(
    measured: Sequence[MeasuredRepetition],
    rows: Sequence[Sequence[PolicySummary]],
    of_simulation: Sequence[Sequence[PolicySummary]],
    agreed: Agreement,
) -> None:
    """Print the simulation beside the real runs, and which jobs failed."""
    from meshmark.values.units import counted
    from meshmark.views.queue.tables import agreement_section
    from meshmark.views.terminal.screen import print_sections, table_console

    print()
    print_sections(table_console(), [agreement_section(rows, of_simulation)])
    print(
        f"{counted(agreed.pairs, 'pair')} of simulated times of two policies differ by more than 2 %: "
        f"{agreed.same_order} have the same order in the real runs"
    )
    failures = [(live.run.policy, why) for m in measured for live in m.runs for why in live.failed.values()]
    if failures:
        print(f"{counted(len(failures), 'job')} failed, for example under {failures[0][0]}: {failures[0][1]}")


def _choice(option: str, word: str, allowed: Sequence[str]) -> str:
    if word and word not in allowed:
        raise UsageError(f"{option}: found '{quoted(word)}'; allowed: {', '.join(allowed)}")
    return word


def _limit(text: str) -> int:
    from meshmark.load.queue.jobs import MAX_SLOTS

    if not text.isascii() or not text.isdigit() or len(text) > 7 or int(text) > MAX_SLOTS:
        raise UsageError(f"--max-slots: found '{quoted(text)}'; allowed: 0 to {MAX_SLOTS}")
    return int(text)


def _machine(on: str, topology: str) -> QueueMachine:
    """Return the machine on which jobs run."""
    from meshmark.load.queue.simulation import QueueMachine

    if on and topology:
        raise UsageError("--on: found with --topology; allowed: one of them")
    if on and on != "host":
        from meshmark.cli.place.place import described

        description, matrix = described(on)
        return QueueMachine(on, description, matrix)
    return QueueMachine(topology or "host", topology or "host")


def _mixes(file: MixFile | None, accounting: dict[str, Path], seed: int, repetitions: int) -> list[JobMix]:
    """Return the jobs of each repetition: with other random times, or the jobs of the accounting file each time."""
    from meshmark.load.queue.accounting.reading import read_accounting

    if file is not None:
        return [file.mix(seed + number) for number in range(repetitions)]
    ((option, path),) = accounting.items()
    return [read_accounting(option, path)] * repetitions


def _write(
    out: Path,
    mix: JobMix,
    runs: Sequence[PolicyRun],
    summaries: Sequence[PolicySummary],
    content: dict[str, Any],
) -> None:
    """Write the charts and queue.json, which also states how each job fared."""
    from meshmark.store.files import make_folder, write_json
    from meshmark.views.queue.chart import draw_queue

    make_folder(out)
    job_rows = [{"name": j.name, "submit_s": j.submit_s, "run_s": j.run_s, "slots": j.slots} for j in mix.jobs]
    by_policy = {
        run.policy: [{"job": r.job, "start_s": r.start_s, "end_s": r.end_s, "cpus": list(r.cpus)} for r in run.runs]
        for run in runs
    }
    write_json(out / "queue.json", {**content, "all_jobs": job_rows, "runs": by_policy})
    say(str(out / "queue.json"))
    for path in draw_queue(mix, runs, summaries, out):
        say(str(path))


def _print(
    mix: JobMix,
    runs: Sequence[PolicyRun],
    rows: Sequence[Sequence[PolicySummary]],
    policy_gains: Sequence[PolicyGain],
    rules: QueueRules,
    machine: QueueMachine,
) -> None:
    from meshmark.load.queue.jobs import left_out_text
    from meshmark.values.units import counted
    from meshmark.views.queue.tables import queue_sections
    from meshmark.views.terminal.screen import print_sections, table_console

    print(
        f"{mix.name}: {counted(len(mix.jobs), 'job')} on {machine.name} with {counted(runs[0].slots, 'slot')}, "
        f"{rules.discipline}{left_out_text(mix.left_out, '; left out: ')}"
    )
    if len(rows) > 1:
        print(f"the first of {len(rows)} repetitions:")
    print_sections(table_console(), queue_sections(rows[0], policy_gains))
    for run in runs:
        if run.refused:
            reason = next(iter(run.refused.values()))
            print(f"{run.policy}: {counted(len(run.refused), 'job')} could not run, for example: {reason}")


def _print_limits(rules: QueueRules, machine: QueueMachine) -> None:
    """Print what the simulation does not contain."""
    if not machine.node_bytes_per_s:
        print("memory bandwidth is not simulated (--node-bandwidth)")
    if "none" in rules.policies:
        print("migrations and remote accesses, which binding avoids, are not simulated: 'none' looks better than it is")
