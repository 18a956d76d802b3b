"""`meshmark load`: base data, programs of prescribed behaviour, scenarios of many at once."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli_model import JsonOption, NoStoreOption, StoreOption
from meshmark.cli_study import app as study_app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.terminal import data_home, print_rows, progress_of_plan, say, scaled

if TYPE_CHECKING:
    from meshmark.load.make import Trial
    from meshmark.load.metrics import Metrics
    from meshmark.load.program import Program
    from meshmark.load.scenario import Scenario
    from meshmark.load.variants import Variant

app = typer.Typer(
    help="Load this machine with programs of prescribed behaviour: base, make, run, show, study.", no_args_is_help=True
)
app.add_typer(study_app, name="study")

BUSY: Final = 0.10  # of the CPUs' time taken by others: base data would be of them as well
BaseOption = Annotated[str, typer.Option("--base", help="run of base data [this machine's newest]", show_default=False)]
CpusOption = Annotated[str, typer.Option("--cpus", help="only these, such as 0-3 [all allowed]", show_default=False)]
RoundsOption = Annotated[int, typer.Option("--rounds", min=0, max=10, help="trials that correct a program")]
TrialOption = Annotated[str, typer.Option("--trial", help="length of a trial")]
MetricsOption = Annotated[Path | None, typer.Option("--metrics", help="metrics of your own, TOML", show_default=False)]
ScenarioArgument = Annotated[Path, typer.Argument(help="scenario, TOML", show_default=False)]


def _others_busy(cpus: tuple[int, ...], seconds: float = 0.5) -> float:
    """Share of these CPUs' time that is taken while we sleep."""

    def look() -> tuple[int, int]:
        busy = total = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
                ticks = [int(x) for x in rest.split()[:8]]
                total += sum(ticks)
                busy += sum(ticks) - ticks[3] - ticks[4]
        return busy, total

    before = look()
    time.sleep(seconds)
    after = look()
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def cpus_of(text: str) -> tuple[int, ...]:
    """
    Raises:
        UsageError: no list, or not all of them may be used here.
    """
    from meshmark.machine.tree import MachineError, format_list, parse_list

    allowed = tuple(sorted(os.sched_getaffinity(0)))
    if not text:
        return allowed
    try:
        cpus = parse_list(text)
    except MachineError as why:
        raise UsageError(f"--cpus: {why}") from why
    if not cpus or not set(cpus) <= set(allowed):
        raise UsageError(f"--cpus: found '{text}', allowed are CPUs of {format_list(allowed)}")
    return cpus


@app.command("kernels")
def kernels(as_json: JsonOption = False) -> None:
    """List the kernels that programs are made of.

    example: meshmark load kernels
    """
    from meshmark.load.make import kernels as listed

    rows = listed()
    if as_json:
        print_rows(rows, True)
        return
    print_rows([{"kernel": r["name"], "kind": r["kind"], "does": r["summary"], "after": r["source"]} for r in rows],
               False)  # fmt: skip


@app.command("base")
def base(
    quick: Annotated[bool, typer.Option("--quick", help="two minutes instead of a quarter of an hour")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="folder of this run", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with an interrupted run (of --out, or the last)")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="also on a busy machine; results carry flags")] = False,
    store: StoreOption = None,
) -> None:
    """Measure base data: what every variant of every kernel takes here, on a quiet machine.

    example: meshmark load base --quick
    """
    from meshmark.load.base import base_run, variants_of
    from meshmark.machine.identity import host_id
    from meshmark.measure.survey import load_run, run_survey

    busy = _others_busy(tuple(sorted(os.sched_getaffinity(0))))
    if busy > BUSY:
        said = f"load base: others take {100 * busy:.0f} % of the CPUs, allowed are {100 * BUSY:.0f} %"
        if not anyway:
            raise MeshmarkError(said, "end them, name quiet CPUs (taskset -c 4-7 meshmark …), or take --anyway")
        say(f"warning: {said}; programs made from these data will be too short on a quiet machine")
    runs = data_home() / "runs"
    folder = out or (base_run(runs, host_id()) if resume else None)
    if resume and folder is None:
        raise UsageError("--resume: found no base data of this machine", "meshmark load base takes them")
    with progress_of_plan("base data") as made:
        folder = run_survey(
            spec="load-quick" if quick else "load", folder=folder, runs=runs,
            store_folder=store or data_home() / "store", resume=resume,
            command="meshmark load base " + " ".join(sys.argv[3:]), progress=made, talk=say,
        )  # fmt: skip
    records, absences, info = load_run(folder)
    found = variants_of(records)
    flagged = sum(1 for r in records if r.flags)
    say(f"meshmark: {len(found)} variants of {len({v.kernel for v in found})} kernels, {flagged} of {len(records)} "
        f"results flagged, {len(absences)} absent, {info.elapsed_s:.0f} s")  # fmt: skip
    print(folder)


def base_variants(name: str) -> tuple[list[Variant], str]:
    """Variants of the base data, and their machine.

    Raises:
        MeshmarkError: there are none.
    """
    from meshmark.load.base import base_run, variants_of
    from meshmark.machine.identity import host_id
    from meshmark.measure.survey import load_run

    machine = host_id()
    folder = base_run(data_home() / "runs", machine, name)
    if folder is None:
        raise MeshmarkError(
            "found no base data of this machine", "meshmark load base --quick takes them in two minutes"
        )
    return variants_of(load_run(folder)[0]), machine


def _own_metrics(path: Path) -> Metrics:
    from meshmark.load.metrics import parse_metrics

    try:
        return parse_metrics(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as why:
        raise UsageError(f"metrics: cannot read '{path}': {why}") from why


def _seconds(option: str, text: str) -> float:
    from meshmark.measure.plan import seconds

    found = seconds(text)
    if not 0.2 <= found <= 3600:
        raise UsageError(f"{option}: found '{text}', allowed is a time from 200ms to 1h")
    return found


def _make(
    scenario: Scenario, out: Path, base_name: str, metrics: Metrics, cpus: tuple[int, ...], rounds: int, trial_s: float
) -> list[tuple[Path, Program, list[Trial]]]:
    """Synthesises, calibrates and writes every program that the scenario prescribes."""
    from meshmark.load.make import calibrate
    from meshmark.load.program import dump_program
    from meshmark.load.synthesis import synthesize
    from meshmark.store.store import write_aside

    wanted = [p for p in scenario.programs if p.prescription is not None]
    if not wanted:
        return []
    variants, machine = base_variants(base_name)
    found = []
    for p in wanted:
        assert p.prescription is not None
        if p.prescription.threads > len(cpus) and not p.oversubscribe:
            raise UsageError(f"program {p.name}: threads: found {p.prescription.threads}, allowed are {len(cpus)}")
        program = synthesize(variants, p.prescription, own_metrics=metrics, machine=machine)
        for note in program.notes:
            say(f"note: {p.name}: {note}")
        on = cpus[-p.prescription.threads :]  # not the first: interrupts and daemons gather there
        env = {
            "OMP_NUM_THREADS": str(p.prescription.threads),
            **({"OMP_WAIT_POLICY": p.wait_policy} if p.wait_policy else {}),
        }
        program, trials = calibrate(program, trial_s, rounds, on, env, talk=say)
        file = out / f"{p.name}.json"
        write_aside(file, dump_program(program).encode())
        found.append((file, program, trials))
    return found


@app.command("make")
def make(
    scenario: ScenarioArgument,
    out: Annotated[Path, typer.Option("--out", help="folder for the programs")] = Path("programs"),
    base_name: BaseOption = "",
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="metrics of your own, TOML", show_default=False)
    ] = None,
    cpus: CpusOption = "",
    rounds: RoundsOption = 2,
    trial: TrialOption = "10s",
    as_json: JsonOption = False,
) -> None:
    """Make the programs that a scenario prescribes: from run time, rates and mix to a file that can be run anywhere.

    example: meshmark load make bus.toml --out programs
    """
    from meshmark.load.metrics import all_metrics
    from meshmark.load.scenario import read_scenario

    own = _own_metrics(metrics) if metrics else {}
    found = _make(read_scenario(scenario, all_metrics(own)), out, base_name, own, cpus_of(cpus), rounds,
                  _seconds("--trial", trial))  # fmt: skip
    if not found:
        raise UsageError(
            f"{scenario}: no program prescribes anything", "run_time_s, memory_gb_per_s, …, in [[program]]"
        )
    rows = []
    for file, program, trials in found:
        wish = program.prescription
        last = trials[-1] if trials else None
        for name, asked in {"run_time_s": wish.run_time_s, **wish.metrics}.items():
            planned = program.planned()[name]
            tried = None if last is None or name == "run_time_s" else last.metrics.get(name)
            rows.append({"program": wish.name, "metric": name, "asked": asked, "planned": planned, "last trial": tried})
        say(f"{wish.name}: {program.calls} calls of {len(program.kernels)} kernels, "
            f"{scaled(program.memory_bytes, 'B')}: {file}")  # fmt: skip
    if not as_json:
        rows = [
            {k: f"{v:.4g}" if isinstance(v, float) else "-" if v is None else v for k, v in r.items()} for r in rows
        ]
    print_rows(rows, as_json)


@app.command("run")
def run(
    scenario: ScenarioArgument,
    out: Annotated[Path | None, typer.Option("--out", help="folder of this run", show_default=False)] = None,
    programs: Annotated[
        Path | None, typer.Option("--programs", help="folder where load make wrote them", show_default=False)
    ] = None,
    base_name: BaseOption = "",
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="metrics of your own, TOML", show_default=False)
    ] = None,
    cpus: CpusOption = "",
    rounds: RoundsOption = 2,
    trial: TrialOption = "5s",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario: many programs at once, who ran, waited and slept, and what that cost.

    Programs that were not made yet are made first, from quick base data if there are none.

    example: meshmark load run bus.toml --out bus
    """
    from meshmark.load.metrics import all_metrics
    from meshmark.load.run import new_folder, run_scenario
    from meshmark.load.scenario import Here, read_scenario

    own = _own_metrics(metrics) if metrics else {}
    found = read_scenario(scenario, all_metrics(own))
    on = cpus_of(cpus)
    trial_s = _seconds("--trial", trial)
    folder = out or new_folder(data_home() / "load")
    files: dict[str, Path] = {}
    missing = []
    for p in found.programs:
        if p.prescription is None:
            continue
        made = programs / f"{p.name}.json" if programs else None
        if made is not None and made.exists():
            files[p.name] = made
        else:
            missing.append(p.name)
    if missing:
        from dataclasses import replace

        from meshmark.load.base import base_run
        from meshmark.machine.identity import host_id

        if not base_name and base_run(data_home() / "runs", host_id()) is None:
            say("meshmark: no base data of this machine yet; quick ones first")
            base(quick=True, anyway=True, store=store)
        todo = replace(found, programs=tuple(p for p in found.programs if p.name in missing))
        for file, program, _ in _make(todo, programs or folder / "programs", base_name, own, on, rounds, trial_s):
            files[program.prescription.name] = file

    began_s = 0.0

    def report(event: Mapping[str, Any]) -> None:
        nonlocal began_s
        if event.get("event") == "start":
            began_s = float(event["t_s"])
        if event.get("event") in {"exit", "failed"}:
            at_s = float(event.get("t_s", began_s)) - began_s
            say(f"{at_s:8.2f} s  {event.get('program')} {event.get('copy', 0)}: {event.get('event')}"
                + (f" ({event['status']})" if event.get("status") else ""))  # fmt: skip

    here = Here.now()
    result = run_scenario(found, folder, files, report, all_metrics(own), Here(on, here.memory_bytes))
    _show(result, as_json, None if no_store else store or data_home() / "store")


@app.command("show")
def show(
    folder: Annotated[str, typer.Argument(help="folder of a run, or latest")] = "latest",
    as_json: JsonOption = False,
) -> None:
    """Show a run again: its Gantt chart, its totals, and its programs.

    example: meshmark load show latest
    """
    from meshmark.load.run import JOURNAL, read_run

    if folder == "latest":
        runs = [p for p in (data_home() / "load").glob("*") if (p / JOURNAL).exists()]
        if not runs:
            raise UsageError("found no run yet", "meshmark load run SCENARIO makes one")
        where = max(runs, key=lambda p: (p / JOURNAL).stat().st_mtime)
    else:
        where = Path(folder)
        if not (where / JOURNAL).exists():
            raise UsageError(f"found no run in {folder}", "meshmark load run SCENARIO --out FOLDER makes one")
    _show(read_run(where), as_json, None)


def _show(result: Any, as_json: bool, store: Path | None) -> None:
    from meshmark.load.gantt import gantt_text, write_gantt
    from meshmark.load.run import records_of

    records, absences = records_of(result)
    if store is not None and records:
        from meshmark.store.store import Store

        Store(store).add(f"load-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}", "load", records, absences,
                         records[0].machine)  # fmt: skip
    paths = write_gantt(result, result.folder)
    if as_json:
        for record in records:
            print(json.dumps(record.to_json()))
        return
    wide = os.get_terminal_size().columns if sys.stdout.isatty() else 110
    print(gantt_text(result, wide), end="")
    for absence in absences:
        say(f"absent: {absence.reason}")
    print(paths[0])
