"""Measures the members of a composite in rounds, and computes their ratios and the geometric mean of the ratios.

In each round every member runs once, in random order, like the configurations of one application (see `trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from meshmark.applications.application import absent, filled
from meshmark.applications.attempt import ConfigurationRun, attempt
from meshmark.applications.composite import Composite, CompositeMember
from meshmark.applications.configuration import Configuration, Folders, placeholders
from meshmark.applications.preparation import prepare
from meshmark.applications.records import FIGURE, INSTRUMENT, records
from meshmark.applications.trials import ApplicationPlan, Trials, conduct
from meshmark.describe import require_built
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.place.other_work import result_flags
from meshmark.statistics.geometric import MIN_RUNS, GeometricMean, mean_of, over, ratios_to
from meshmark.store.files import make_folder
from meshmark.store.record import Metric, Record, Scalar, median
from meshmark.store.run import Absence

COMPOSITE: Final = Metric("composite", "1", "higher", "geometric mean of the ratios of the members to the reference")
RATIO: Final = Metric(
    "ratio", "1", "higher", "figure of a member over the reference's figure; above 1 the member is better"
)
_NO_RESULT: Final = "verify.pattern: found no match in the output"


def folders_of(member: CompositeMember, folder: Path) -> Folders:
    """Return the folders of a member in the folder of the measurement."""
    return Folders(folder / "members" / member.name)


def check_installed(composite: Composite, folder: Path) -> None:
    """Raise AbsentError if programs of members are not installed; the error names all these members."""
    missing: list[AbsentError] = []
    for member in composite.members:
        app = member.application
        program = filled(app.command[0], placeholders(app, member.configuration, folders_of(member, folder)))
        is_built = program.startswith(str(folder))
        if not is_built and (error := absent(app, program, app.source)):
            missing.append(error)
        try:
            require_built(member.instrument)
        except AbsentError as error:
            missing.append(AbsentError(f"{member.name}: {error}", error.hint))
    if missing:
        raise AbsentError(
            f"the composite {composite.name} lacks {len(missing)} of {len(composite.members)} members: "
            + "; ".join(map(str, missing)),
            "; ".join(dict.fromkeys(error.hint for error in missing if error.hint)),
        )


def measured(
    plan: ApplicationPlan,
    composite: Composite,
    folder: Path,
    notify: Callable[[str], None],
    show: Callable[[Trials], None],
) -> Trials:
    """Prepare all members, and run or resume them in rounds. A member that fails does not stop the others.

    Args:
        plan: Request of the measurement.
        composite: Members, each with one configuration.
        folder: Folder of the measurement, which contains a folder per member.
        notify: Function that is called with lines of text.
        show: Function that is called after every run.

    Raises:
        MeshmarkError: All members failed, or see `trials.conduct`.
        AbsentError: A program is not installed.
    """
    check_installed(composite, folder)
    preparation_errors: dict[str, str] = {}
    for member in composite.members:
        app, name = member.application, Configuration({"member": member.name}).label
        folders = folders_of(member, folder)
        make_folder(folders.root)
        try:
            prepare(app, folders, notify)  # a member has one configuration, so a build that fails is an error
        except AbsentError:
            raise
        except MeshmarkError as error:
            preparation_errors[name] = str(error)
            notify(f"{member.name}: {error}")
    members = {Configuration({"member": m.name}).label: m for m in composite.members}

    def run(configuration: Configuration, number: int, observed: bool, most_s: float) -> ConfigurationRun:
        member = members[configuration.label]
        folders = folders_of(member, folder)
        outcome = attempt(member.application, member.configuration, folders, number, observed=observed, most_s=most_s)
        outcome.configuration = configuration.label
        if outcome.reason == _NO_RESULT and member.instrument:
            outcome.reason = (
                f"found no single verified result of {member.instrument}; its options must select one point, and "
                "its budget must suffice for it"
            )
        return outcome

    trials = conduct(plan, [c for c in composite.listed if c.label not in preparation_errors], folder, run, show)
    trials.all = composite.listed
    trials.excluded |= preparation_errors
    return trials


def failed(trials: Trials, composite: Composite) -> str:
    """Return which member failed, and why; "" if every member has `MIN_RUNS` verified runs."""
    for configuration in composite.listed:
        name = configuration.values["member"]
        if configuration.label in trials.excluded:
            return f"member {name} failed: {trials.excluded[configuration.label]}"
        if (count := len(trials.valid_runs(configuration.label))) < MIN_RUNS:
            suffix = trials.stopped and f", since {trials.stopped}"
            return f"member {name} has {count} of at least {MIN_RUNS} runs{suffix}"
    return ""


def refused(trials: Trials, composite: Composite) -> str:
    """Return why there is no composite; "" if there is one."""
    return failed(trials, composite) or ("" if composite.reference else "there is no reference to divide by")


def ratios(trials: Trials, composite: Composite) -> dict[str, list[float]]:
    """Return the ratios of the runs to the median of the reference, by member that ran; empty without a reference."""
    if composite.reference is None:
        return {}
    reference = composite.reference.runs
    return {
        m.name: ratios_to(values, median(reference[m.name]), m.better)
        for m in composite.members
        if (values := _values(trials, m))
    }


def result(trials: Trials, composite: Composite) -> GeometricMean | None:
    """Return the composite; None if it is refused.

    Its interval includes the spread of the reference for members with several runs of the reference.
    """
    if refused(trials, composite) or composite.reference is None:
        return None
    composite_mean = mean_of(ratios(trials, composite))
    reference_runs = {m.name: composite.reference.runs[m.name] for m in composite.members}
    if not any(len(runs) > 1 for runs in reference_runs.values()):
        return composite_mean  # exact by definition
    own_ratios = {
        m.name: ratios_to(reference_runs[m.name], median(reference_runs[m.name]), m.better) for m in composite.members
    }
    base = mean_of({name: runs if len(runs) > 1 else runs * 2 for name, runs in own_ratios.items()})
    return GeometricMean(composite_mean.value, over(composite_mean, base).terms)


def _values(trials: Trials, member: CompositeMember) -> list[float]:
    runs = trials.valid_runs(Configuration({"member": member.name}).label)
    return [runs[r].value or 0.0 for r in sorted(runs)]


def _of_member(trials: Trials, member: CompositeMember) -> Trials:
    """Return the runs of a member as runs of its application."""
    label, configuration = Configuration({"member": member.name}).label, member.configuration
    view = Trials(trials.plan, [configuration])
    view.attempts = [replace(a, configuration=configuration.label) for a in trials.attempts if a.configuration == label]
    view.failures = {configuration.label: trials.failures.get(label, 0)}
    return view


def composite_records(
    trials: Trials, composite: Composite, machine: str, command_line: str, build: str
) -> list[Record]:
    """Return the records of the applications of all members that ran, with their ratios, and of the composite.

    Args:
        trials: Runs, one configuration per member.
        composite: Members and reference machine.
        machine: Name of this machine.
        command_line: Command line of Meshmark.
        build: Version of Meshmark.
    """
    rows: list[Record] = []
    reference = composite.reference
    reference_name: dict[str, Scalar] = {} if reference is None else {"reference": reference.machine}
    origin: dict[str, Scalar] = {} if reference is None else {"reference_source": reference.source}
    by_member = ratios(trials, composite)
    for member in composite.members:
        member_conditions: dict[str, Scalar] = {"composite": composite.name, "member": member.name}
        own_records = records(_of_member(trials, member), member.application, machine, command_line, build)
        rows += [replace(r, conditions={**r.conditions, **member_conditions}) for r in own_records]
        if own_records and member.name in by_member:
            first = own_records[0]
            rows.append(
                Record.from_samples(
                    RATIO,
                    by_member[member.name],
                    source="host",
                    machine=machine,
                    instrument=INSTRUMENT,
                    conditions={"program": first.conditions["program"], **member_conditions, **reference_name},
                    flags=first.flags,
                    provenance={**first.provenance, **origin},
                )
            )
    overall = result(trials, composite)
    if overall is not None:
        interval = overall.interval
        bounds: dict[str, Scalar] = {} if interval is None else {"run_low": interval[0], "run_high": interval[1]}
        flags = frozenset[str]().union(*(r.flags for r in rows if r.metric == RATIO.name))
        rows.append(
            Record.from_samples(
                COMPOSITE,
                [overall.value],
                source="host",
                machine=machine,
                instrument=INSTRUMENT,
                conditions={
                    "program": composite.name,
                    "members": len(composite.members),
                    **reference_name,
                    **bounds,
                },
                flags=flags,
                provenance={**rows[0].provenance, **origin},
            )
        )
    return rows


def composite_absences(trials: Trials, composite: Composite) -> list[Absence]:
    """Return why members have no result, and why there is no composite."""
    labels = {c.label: c.values["member"] for c in trials.all}
    entries = [
        Absence(instrument=INSTRUMENT, metric=FIGURE, reason=f"{labels[label]}: {reason}", kind="error")
        for label, reason in trials.excluded.items()
    ]
    if reason := refused(trials, composite):
        entries.append(Absence(instrument=INSTRUMENT, metric=COMPOSITE.name, reason=f"{composite.name}: {reason}"))
    return entries


def composite_answer(trials: Trials, composite: Composite) -> dict[str, Any]:
    """Return the object that `--json` prints after the records. Figures have the unit of the member."""
    overall, reference = result(trials, composite), composite.reference
    by_member = ratios(trials, composite)
    return {
        "type": "composite",
        "name": composite.name,
        "reference": None if reference is None else {"machine": reference.machine, "source": reference.source},
        "value": None if overall is None else overall.value,
        "interval": None if overall is None else overall.interval,
        "refused": refused(trials, composite),
        "members": [_row(trials, composite, m, by_member.get(m.name, ())) for m in composite.members],
        "stopped": trials.stopped,
        "seed": trials.plan.seed,
        "run": trials.plan.run,
    }


def _row(trials: Trials, composite: Composite, member: CompositeMember, by_run: Sequence[float]) -> dict[str, Any]:
    label, values = Configuration({"member": member.name}).label, _values(trials, member)
    reference = composite.reference
    return {
        "member": member.name,
        "why": member.why,
        "unit": member.unit,
        "better": member.better,
        "value": median(values) if values else None,
        "values": values,
        "reference": None if reference is None else median(reference.runs[member.name]),
        "ratio": median(by_run) if by_run else None,
        "ratios": [min(by_run), max(by_run)] if by_run else None,
        "flags": sorted(result_flags(list(trials.valid_runs(label).values()))),
        "failed": trials.failures.get(label, 0),
        "reason": trials.excluded.get(label, ""),
    }


def reference_toml(trials: Trials, composite: Composite, machine: str) -> str:
    """Return the text of a reference file with these runs as the reference.

    Raises:
        MeshmarkError: A member failed.
    """
    if reason := failed(trials, composite):
        raise MeshmarkError(f"no reference: {reason}")
    lines = ["[reference]", f'machine = "{machine}"', f'source = "measured by run {trials.plan.run}"', ""]
    for member in composite.members:
        runs = ", ".join(f"{v!r}" for v in _values(trials, member))
        lines += [
            "[[reference.figure]]",
            f'member = "{member.name}"',
            f'unit = "{member.unit}"',
            f"runs = [{runs}]",
            "",
        ]
    return "\n".join(lines)


def reference_of(rows: Mapping[str, Record], run: str) -> dict[str, Any]:
    """Return the table of a reference with the figures of a stored run, by member."""
    first = next(iter(rows.values()))
    return {
        "machine": first.machine,
        "source": f"run {run}",
        "figure": [{"member": name, "unit": r.unit, "runs": list(r.samples)} for name, r in rows.items()],
    }
