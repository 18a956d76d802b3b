"""Measures the members of a composite in rounds, and says what their runs give: ratios and their geometric mean.

In each round every member runs once, in random order, as the configurations of one application do (`trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.place.app.application import absent, filled
from meshmark.place.app.attempt import Attempt, attempt
from meshmark.place.app.composite import Composite, Member
from meshmark.place.app.configuration import Configuration, Folders, placeholders
from meshmark.place.app.preparation import prepare
from meshmark.place.app.records import FIGURE, INSTRUMENT, records
from meshmark.place.app.trials import Plan, Trials, conduct
from meshmark.place.other_work import result_flags
from meshmark.store.files import make_folder
from meshmark.store.record import Metric, Record, Scalar, median
from meshmark.store.run import Absence
from meshmark.values.geometric import MIN_RUNS, GeometricMean, mean_of, over, ratios_to

COMPOSITE: Final = Metric("composite", "1", "higher", "geometric mean of the ratios of the members to the reference")
RATIO: Final = Metric("ratio", "1", "higher", "of a member to the reference; above 1 it is better")
_NO_RESULT: Final = "verify.pattern: found no match in the output"


def folders_of(member: Member, folder: Path) -> Folders:
    """Where the parts of a member are, in the folder of the measurement."""
    return Folders(folder / "members" / member.name)


def check_installed(composite: Composite, folder: Path) -> None:
    """Raise AbsentError, which names all members whose programs are not installed, before anything runs."""
    missing: list[AbsentError] = []
    for member in composite.members:
        app = member.application
        program = filled(app.command[0], placeholders(app, member.configuration, folders_of(member, folder)))
        built = program.startswith(str(folder))
        if not built and (why := absent(app, program, app.source)):
            missing.append(why)
    if missing:
        raise AbsentError(
            f"the composite {composite.name} lacks {len(missing)} of {len(composite.members)} members: "
            + "; ".join(map(str, missing))
        )


def measured(
    plan: Plan,
    composite: Composite,
    folder: Path,
    notify: Callable[[str], None],
    show: Callable[[Trials], None],
) -> Trials:
    """Prepare all members, and run or resume them in rounds. One that fails does not stop the others.

    Args:
        notify: Called with lines of text.
        show: Called after every run.

    Raises:
        MeshmarkError: All failed, or as of `trials.conduct`.
        AbsentError: A program is not installed.
    """
    check_installed(composite, folder)
    unprepared: dict[str, str] = {}
    for member in composite.members:
        app, name = member.application, Configuration({"member": member.name}).label
        place = folders_of(member, folder)
        make_folder(place.root)
        try:
            prepare(app, place, notify)  # of one configuration: a build that fails is an error
        except AbsentError:
            raise
        except MeshmarkError as why:
            unprepared[name] = str(why)
            notify(f"{member.name}: {why}")
    members = {Configuration({"member": m.name}).label: m for m in composite.members}

    def run(one: Configuration, number: int, observed: bool, most_s: float) -> Attempt:
        member = members[one.label]
        place = folders_of(member, folder)
        made = attempt(member.application, member.configuration, place, number, observed=observed, most_s=most_s)
        made.configuration = one.label
        if made.reason == _NO_RESULT and member.instrument:
            made.reason = f"found no single verified result of {member.instrument}; its options must leave one point"
        return made

    found = conduct(plan, [c for c in composite.listed if c.label not in unprepared], folder, run, show)
    found.all = composite.listed
    found.excluded |= unprepared
    return found


def failed(found: Trials, composite: Composite) -> str:
    """Which member failed, and why; "" if every one has `MIN_RUNS` verified runs."""
    for one in composite.listed:
        name = one.values["member"]
        if one.label in found.excluded:
            return f"member {name} failed: {found.excluded[one.label]}"
        if (count := len(found.of(one.label))) < MIN_RUNS:
            why = found.stopped and f", since {found.stopped}"
            return f"member {name} has {count} of at least {MIN_RUNS} runs{why}"
    return ""


def refused(found: Trials, composite: Composite) -> str:
    """Why there is no composite; "" if there is one."""
    return failed(found, composite) or ("" if composite.reference else "there is no reference to divide by")


def ratios(found: Trials, composite: Composite) -> dict[str, list[float]]:
    """Ratios of the runs to the median of the reference, by member that ran; empty without a reference."""
    if composite.reference is None:
        return {}
    reference = composite.reference.runs
    return {
        m.name: ratios_to(values, median(reference[m.name]), m.better)
        for m in composite.members
        if (values := _values(found, m))
    }


def result(found: Trials, composite: Composite) -> GeometricMean | None:
    """The composite; None if it is refused. Its interval has the spread of the reference as far as that has runs."""
    if refused(found, composite) or composite.reference is None:
        return None
    one = mean_of(ratios(found, composite))
    known = {m.name: composite.reference.runs[m.name] for m in composite.members}
    if not any(len(runs) > 1 for runs in known.values()):
        return one  # exact by definition
    own = {m.name: ratios_to(known[m.name], median(known[m.name]), m.better) for m in composite.members}
    base = mean_of({name: runs if len(runs) > 1 else runs * 2 for name, runs in own.items()})
    return GeometricMean(one.value, over(one, base).terms)


def _values(found: Trials, member: Member) -> list[float]:
    runs = found.of(Configuration({"member": member.name}).label)
    return [runs[r].value or 0.0 for r in sorted(runs)]


def _of_member(found: Trials, member: Member) -> Trials:
    """The runs of a member, as those of its application."""
    label, own = Configuration({"member": member.name}).label, member.configuration
    view = Trials(found.plan, [own])
    view.attempts = [replace(a, configuration=own.label) for a in found.attempts if a.configuration == label]
    view.failures = {own.label: found.failures.get(label, 0)}
    return view


def composite_records(found: Trials, composite: Composite, machine: str, command_line: str, build: str) -> list[Record]:
    """Records of all members that ran, as of their applications, with their ratios; and of the composite.

    Args:
        machine, command_line, build: As of `records.records`.
    """
    made: list[Record] = []
    of = composite.reference
    against: dict[str, Scalar] = {} if of is None else {"reference": of.machine}
    origin: dict[str, Scalar] = {} if of is None else {"reference_source": of.source}
    by_member = ratios(found, composite)
    for member in composite.members:
        where: dict[str, Scalar] = {"composite": composite.name, "member": member.name}
        own = records(_of_member(found, member), member.application, machine, command_line, build)
        made += [replace(r, conditions={**r.conditions, **where}) for r in own]
        if own and member.name in by_member:
            first = own[0]
            made.append(
                Record.of(
                    RATIO,
                    by_member[member.name],
                    source="host",
                    machine=machine,
                    instrument=INSTRUMENT,
                    conditions={"program": first.conditions["program"], **where, **against},
                    flags=first.flags,
                    provenance={**first.provenance, **origin},
                )
            )
    whole = result(found, composite)
    if whole is not None:
        interval = whole.interval
        bounds: dict[str, Scalar] = {} if interval is None else {"run_low": interval[0], "run_high": interval[1]}
        flags = frozenset[str]().union(*(r.flags for r in made if r.metric == RATIO.name))
        made.append(
            Record.of(
                COMPOSITE,
                [whole.value],
                source="host",
                machine=machine,
                instrument=INSTRUMENT,
                conditions={"program": composite.name, "members": len(composite.members), **against, **bounds},
                flags=flags,
                provenance={**made[0].provenance, **origin},
            )
        )
    return made


def composite_absences(found: Trials, composite: Composite) -> list[Absence]:
    """Why members have no result, and why there is no composite."""
    labels = {c.label: c.values["member"] for c in found.all}
    made = [
        Absence(instrument=INSTRUMENT, metric=FIGURE, reason=f"{labels[label]}: {why}", kind="error")
        for label, why in found.excluded.items()
    ]
    if why := refused(found, composite):
        made.append(Absence(instrument=INSTRUMENT, metric=COMPOSITE.name, reason=f"{composite.name}: {why}"))
    return made


def composite_answer(found: Trials, composite: Composite) -> dict[str, Any]:
    """What is printed with `--json` after the records. Figures have the unit of the member."""
    whole, of = result(found, composite), composite.reference
    by_member = ratios(found, composite)
    return {
        "type": "composite",
        "name": composite.name,
        "reference": None if of is None else {"machine": of.machine, "source": of.source},
        "value": None if whole is None else whole.value,
        "interval": None if whole is None else whole.interval,
        "refused": refused(found, composite),
        "members": [_row(found, composite, m, by_member.get(m.name, ())) for m in composite.members],
        "stopped": found.stopped,
        "seed": found.plan.seed,
        "run": found.plan.run,
    }


def _row(found: Trials, composite: Composite, member: Member, by_run: Sequence[float]) -> dict[str, Any]:
    label, values = Configuration({"member": member.name}).label, _values(found, member)
    of = composite.reference
    return {
        "member": member.name,
        "why": member.why,
        "unit": member.unit,
        "better": member.better,
        "value": median(values) if values else None,
        "values": values,
        "reference": None if of is None else median(of.runs[member.name]),
        "ratio": median(by_run) if by_run else None,
        "ratios": [min(by_run), max(by_run)] if by_run else None,
        "flags": sorted(result_flags(list(found.of(label).values()))),
        "failed": found.failures.get(label, 0),
        "reason": found.excluded.get(label, ""),
    }


def reference_toml(found: Trials, composite: Composite, machine: str) -> str:
    """The runs as a reference, for a file.

    Raises:
        MeshmarkError: A member failed.
    """
    if why := failed(found, composite):
        raise MeshmarkError(f"no reference: {why}")
    lines = ["[reference]", f'machine = "{machine}"', f'source = "measured by run {found.plan.run}"', ""]
    for member in composite.members:
        runs = ", ".join(f"{v!r}" for v in _values(found, member))
        lines += [
            "[[reference.figure]]",
            f'member = "{member.name}"',
            f'unit = "{member.unit}"',
            f"runs = [{runs}]",
            "",
        ]
    return "\n".join(lines)


def reference_of(rows: Mapping[str, Record], run: str) -> dict[str, Any]:
    """The table of a reference of the figures of a stored run, by member."""
    first = next(iter(rows.values()))
    return {
        "machine": first.machine,
        "source": f"run {run}",
        "figure": [{"member": name, "unit": r.unit, "runs": list(r.samples)} for name, r in rows.items()],
    }
